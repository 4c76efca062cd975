"""One request to an agent, over a Unix socket or TCP."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
from typing import Any, Optional

from .errors import Unreachable, from_body

ANSWER_SECONDS = 10.0
SYSTEM_SOCKET = "/run/peerlock/agent.sock"


def default_endpoint() -> str:
    """Where commands look for the agent, too."""
    said = os.environ.get("PEERLOCK_AGENT")
    if said:
        return said
    folder = os.environ.get("PEERLOCK_RUNTIME_DIR") or os.environ.get("PEERLOCK_DATA_DIR")
    if folder:
        return os.path.join(folder, "agent.sock")
    if os.geteuid() == 0:
        return SYSTEM_SOCKET
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    data = os.path.join(os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share"), "peerlock")
    # Who never had an agent of its own uses that of the machine.
    if os.path.exists(SYSTEM_SOCKET) and not os.path.exists(os.path.join(data, "agent.lock")):
        return SYSTEM_SOCKET
    return os.path.join(runtime, "peerlock/agent.sock") if runtime else os.path.join(data, "agent.sock")


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: Optional[float]) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Transport:
    """How to reach one agent. Threads may share it: each request has a connection of its own."""

    def __init__(self, endpoint: Optional[str], token: Optional[str]) -> None:
        self.endpoint = endpoint or default_endpoint()
        self._token = token

    def connect(self, timeout: Optional[float]) -> http.client.HTTPConnection:
        """A connection; ``timeout`` holds for every single read of it."""
        address = self.endpoint[len("http://") :].rstrip("/") if self.endpoint.startswith("http://") else None
        if self.endpoint.startswith("unix:"):
            connection: http.client.HTTPConnection = _UnixConnection(self.endpoint[len("unix:") :], timeout)
        elif address is None and "/" in self.endpoint:
            connection = _UnixConnection(self.endpoint, timeout)
        else:
            connection = http.client.HTTPConnection(address or self.endpoint, timeout=timeout)
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            raise Unreachable(
                f"no agent answers at {self.endpoint} ({error}): start one with `peerlock agent`, or set PEERLOCK_AGENT"
            ) from error
        return connection

    def ask(self, connection: http.client.HTTPConnection, method: str, path: str, body: Any) -> http.client.HTTPResponse:
        """Sends a request and reads the head of its answer. Raises what the agent refuses with."""
        headers = {"Content-Type": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            # Who refuses may do so before it has read all of it, and hang up: its answer is there all the same.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            if answer.status < 300:
                return answer
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"the connection to the agent at {self.endpoint} broke: {error!r}") from error
        try:
            said = json.loads(text)
        except ValueError:
            said = {"message": f"HTTP status {answer.status}: {text[:200]!r}"}
        raise from_body(said)

    def call(self, method: str, path: str, body: Any = None, patience: float = ANSWER_SECONDS) -> Any:
        """One request with one answer."""
        connection = self.connect(patience)
        try:
            answer = self.ask(connection, method, path, body)
            return json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Unreachable(f"the connection to the agent at {self.endpoint} broke: {error!r}") from error
        finally:
            connection.close()


class Line:
    """One request after the other on a connection that stays open; a new one if it is gone."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._connection: Optional[http.client.HTTPConnection] = None

    def call(self, method: str, path: str, body: Any, patience: float = ANSWER_SECONDS) -> Any:
        """One request with one answer, within so many seconds."""
        if self._connection is None:
            self._connection = self._transport.connect(patience)
        if self._connection.sock is not None:
            self._connection.sock.settimeout(patience)
        try:
            answer = self._transport.ask(self._connection, method, path, body)
            said = json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            raise Unreachable(f"the connection to the agent at {self._transport.endpoint} broke: {error!r}") from error
        except Unreachable:
            self.close()
            raise
        return said

    def close(self) -> None:
        """Until the next request."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
