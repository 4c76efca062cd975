"""Requests to an agent, over a Unix socket or TCP."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import time
from typing import Any, Optional
from urllib.parse import quote

from .errors import Failed, Unreachable, from_body

ANSWER_SECONDS = 10.0
#: After about this long without a reply from the other kernel a TCP connection ends: see ``_tune``.
SILENCE_SECONDS = 25
SYSTEM_SOCKET = "/run/peerlock/agent.sock"
SYSTEM_DATA_DIR = "/var/lib/peerlock"


def default_endpoint() -> str:
    """Returns the default endpoint, by the same rules as the commands."""
    agent = os.environ.get("PEERLOCK_AGENT")
    if agent:
        return agent
    is_root = os.geteuid() == 0
    runtime, named = os.environ.get("PEERLOCK_RUNTIME_DIR"), os.environ.get("PEERLOCK_DATA_DIR")
    home = os.path.join(os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share"), "peerlock")
    data = named or (SYSTEM_DATA_DIR if is_root else home)
    if runtime:
        return os.path.join(runtime, "agent.sock")
    if is_root and not named:
        return SYSTEM_SOCKET
    last = _last_socket(data)
    if last is not None:
        return last
    if named:
        return os.path.join(named, "agent.sock")
    # Without an agent of its own so far, a user gets that of the machine.
    if os.path.exists(SYSTEM_SOCKET) and not os.path.exists(os.path.join(data, "agent.lock")):
        return SYSTEM_SOCKET
    user = os.environ.get("XDG_RUNTIME_DIR")
    return os.path.join(user, "peerlock/agent.sock") if user else os.path.join(data, "agent.sock")


def default_token() -> Optional[str]:
    """Returns the bearer token in the environment for an agent at ``host:port``."""
    token, path = os.environ.get("PEERLOCK_API_TOKEN"), os.environ.get("PEERLOCK_API_TOKEN_FILE")
    if token or not path:
        return token or None
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError) as error:
        raise Unreachable(
            f"cannot read the bearer token in {path}: {error}. Check PEERLOCK_API_TOKEN_FILE"
        ) from error


def _last_socket(data: str) -> Optional[str]:
    """Returns the socket of the data directory's last agent, unless that exited cleanly. The default socket differs
    between a shell, which has ``$XDG_RUNTIME_DIR``, and cron, which has not.
    """
    try:
        with open(os.path.join(data, "agent.lock"), encoding="utf-8") as file:
            path = file.read().splitlines()[2]
        is_its_own = os.stat(path).st_uid == os.stat(data).st_uid
    except (OSError, ValueError, IndexError):
        return None
    return path if os.path.isabs(path) and is_its_own else None


def path_of(name: str) -> str:
    """Returns the URL path of a resource."""
    if not name:
        why = "it is empty"
        message = f"{name!r} cannot be the name of a resource: {why}. Use 1 to 255 bytes of visible text"
        raise Failed("bad_name", message, {"name": name, "why": why})
    return f"/v1/resources/{quote(name, safe='')}"


class _TcpConnection(http.client.HTTPConnection):
    def connect(self) -> None:
        super().connect()
        _tune(self.sock)


def _tune(sock: socket.socket) -> None:
    """Makes the kernel detect a lost peer, as far as the options exist."""
    options = [(socket.SOL_SOCKET, "SO_KEEPALIVE", 1), (socket.IPPROTO_TCP, "TCP_NODELAY", 1)]
    options += [(socket.IPPROTO_TCP, name, value) for name, value in _PROBES.items()]
    for level, name, value in options:
        with contextlib.suppress(OSError, AttributeError):
            sock.setsockopt(level, getattr(socket, name), value)


#: In seconds, except for the count and the last, which is in milliseconds.
_PROBES = {
    "TCP_KEEPIDLE": 10,
    "TCP_KEEPINTVL": 5,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": SILENCE_SECONDS * 1000,
}


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: Optional[float]) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        end = None if self.timeout is None else time.monotonic() + self.timeout
        while True:
            try:
                return self.sock.connect(self._path)
            except BlockingIOError as error:
                # The backlog of the agent is full.
                if end is not None and time.monotonic() >= end:
                    raise TimeoutError("it accepts no connection") from error
                time.sleep(0.02)


class Transport:
    """The transport of requests to one agent. Thread-safe: each request has its own connection."""

    def __init__(self, endpoint: Optional[str], token: Optional[str]) -> None:
        self.endpoint = endpoint or default_endpoint()
        if token is None and endpoint is None and self.is_tcp():
            token = default_token()
        # A file ends with a newline, which a header must not contain.
        self._token = None if token is None else token.strip()

    def is_tcp(self) -> bool:
        """Returns whether the agent is reached over TCP, where a slot outlives its connection."""
        return self.endpoint.startswith("http://") or not ("/" in self.endpoint or self.endpoint.startswith("unix:"))

    def connect(self, timeout: Optional[float]) -> http.client.HTTPConnection:
        """Opens a connection; ``timeout`` limits each single read."""
        connection = self._unconnected(timeout)
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            why = f"this user may not use its socket: {error}" if isinstance(error, PermissionError) else str(error)
            raise Unreachable(
                f"no agent answers at {self.endpoint} ({why}): start one with `peerlock agent`, or set PEERLOCK_AGENT"
            ) from error
        return connection

    def _unconnected(self, timeout: Optional[float]) -> http.client.HTTPConnection:
        named, is_url = self.endpoint, self.endpoint.startswith("http://")
        if named.startswith("unix:") and named != "unix:":
            return _UnixConnection(named[len("unix:") :], timeout)
        if "/" in named and not is_url:
            return _UnixConnection(named, timeout)
        address = named[len("http://") :].rstrip("/") if is_url else named
        host, _, port = address.rpartition(":")
        if host and port.isdecimal() and int(port) < 1 << 16:
            return _TcpConnection(address, timeout=timeout)
        raise Unreachable(
            f"{named!r} is not an address of an agent: give the path of a Unix socket with a `/` in it, or `host:port`"
        )

    def broken(self, error: Exception) -> Unreachable:
        if isinstance(error, socket.timeout):
            advice = "`peerlock doctor` reports whether it is frozen"
            silence = Unreachable(f"the agent at {self.endpoint} has not answered in time: {advice}")
            silence._is_silence = True
            return silence
        return Unreachable(f"the connection to the agent at {self.endpoint} broke: {error!r}")

    def ask(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: Any
    ) -> http.client.HTTPResponse:
        """Sends a request and reads the head of its answer. Raises the agent's error."""
        headers = {"Content-Type": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            # An agent that refuses a request may close before it has read all of it. Its answer can still be read.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            if answer.status < 300:
                return answer
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise self.broken(error) from error
        try:
            refusal = json.loads(text)
        except ValueError:
            refusal = {"message": f"HTTP status {answer.status}: {text[:200]!r}"}
        raise from_body(refusal)

    def call(self, method: str, path: str, body: Any = None, patience: float = ANSWER_SECONDS) -> Any:
        connection = self.connect(patience)
        try:
            answer = self.ask(connection, method, path, body)
            return json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self.broken(error) from error
        finally:
            connection.close()


class Persistent:
    """A connection for consecutive requests, opened again when necessary."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._connection: Optional[http.client.HTTPConnection] = None

    def call(self, method: str, path: str, body: Any, patience: float = ANSWER_SECONDS) -> Any:
        """Sends a request and returns its answer, within ``patience`` seconds."""
        if self._connection is None:
            self._connection = self._transport.connect(patience)
        if self._connection.sock is not None:
            self._connection.sock.settimeout(patience)
        try:
            answer = self._transport.ask(self._connection, method, path, body)
            result = json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            raise self._transport.broken(error) from error
        except Unreachable:
            self.close()
            raise
        return result

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
