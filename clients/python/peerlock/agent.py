"""The agent of this machine, and what is held through it."""

from __future__ import annotations

import http.client
import json
import math
import socket
import threading
import time
from types import TracebackType
from typing import Any, Callable, Optional, Type, Union
from urllib.parse import quote

from .errors import Error, Failed, Lost, Unreachable, from_body
from .transport import ANSWER_SECONDS, Line, Transport

#: A lease is renewed as often as this, in seconds, however long it is: an agent closes what says nothing for 30 s.
OFTEN = 10.0

#: How soon the next agent is looked for when one has gone, in seconds.
AGAIN = 0.1


def now() -> float:
    """Seconds of a clock that goes on while the machine sleeps, where there is one."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


class Grant:
    """A slot, as long as it is held."""

    def __init__(self, name: str, grant: str, slot: int, fencing: int, waited: float) -> None:
        self.name = name
        #: What the agent knows this grant by.
        self.id = grant
        #: Which of the slots: 0 up to their number, less one.
        self.slot = slot
        #: Higher than all that were given for this slot before. Give it to whatever the slot protects.
        self.fencing = fencing
        #: How many seconds it took.
        self.waited = waited
        #: Set when the slot is lost: whatever it is held for must stop.
        self.lost = threading.Event()
        self.why: Optional[Error] = None

    def check(self) -> None:
        """Raises :class:`Lost` if the slot is lost. Call it before every step that needs it."""
        if self.lost.is_set():
            raise self._lost()

    def _lost(self) -> Lost:
        why = str(self.why or "its lease was not renewed in time, or it was released elsewhere")
        return Lost("lost", f"the slot of {self.name!r} is lost: {why}", {"name": self.name})

    def __repr__(self) -> str:
        return f"Grant(name={self.name!r}, slot={self.slot}, fencing={self.fencing})"


class Hold:
    """A slot to be held: a context manager that may be entered once at a time.

    Leaving it gives the slot back. If the slot was lost meanwhile and nothing else was raised inside, leaving raises
    :class:`Lost`: what was done may have been done beside somebody else.
    """

    def __init__(
        self,
        transport: Transport,
        name: str,
        slots: Optional[int],
        wait: Optional[float],
        ttl: float,
        label: str,
        on_lost: Optional[Callable[[Grant], None]],
    ) -> None:
        body: dict[str, Any] = {"ttl_ms": math.ceil(ttl * 1000), "label": label}
        if slots is not None:
            body["slots"] = slots
        if wait is not None:
            body.update({"try": True} if wait <= 0 else {"wait_ms": math.ceil(wait * 1000)})
        self._transport = transport
        self._name = name
        self._path = f"/v1/resources/{quote(name, safe='')}"
        self._body = body
        self._on_lost = on_lost
        self._connection: Optional[http.client.HTTPConnection] = None
        self._socket: Optional[socket.socket] = None
        self._grant: Optional[Grant] = None
        self._released = threading.Event()
        # The agent has gone, and the next one is not there yet.
        self._away = threading.Event()
        # How long the lease stands after a renewal, as the agent says: not beyond its own session. And until when.
        self._stands = ttl
        self._ends = 0.0

    def acquire(self) -> Grant:
        """Waits for a slot, and keeps it until :meth:`release`."""
        if self._connection is not None:
            raise RuntimeError(f"{self._name!r} is held or waited for by this object already: make one for each")
        self._released.clear()
        self._away.clear()
        asked = now()
        # Nothing comes for as long as nobody leaves, so that reads have no time limit here.
        self._connection = self._transport.connect(None)
        self._socket = self._connection.sock
        try:
            answer = self._transport.ask(self._connection, "POST", f"{self._path}/hold", self._body)
            grant, stands = self._wait(answer)
            # Counted from before the request: an answer that was long on its way gives no more time.
            self._stands, self._ends = stands, asked + stands
            if now() - asked > stands / 3:
                # How long the word of it was on its way is not known after a wait. Who was frozen meanwhile hears it now.
                self._renew_once(self._transport, grant)
        except BaseException:
            self.release()
            raise
        self._grant = grant
        threading.Thread(target=self._watch, args=(answer, grant), daemon=True).start()
        threading.Thread(target=self._renew, args=(grant,), daemon=True).start()
        return grant

    def release(self) -> None:
        """Gives the slot back, or stops waiting for it. May be called from another thread."""
        self._released.set()
        connection, self._connection = self._connection, None
        grant, self._grant = self._grant, None
        taken, self._socket = self._socket, None
        if taken is not None:
            try:
                # Wakes whoever reads in another thread; `close` would not.
                taken.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        if connection is not None:
            connection.close()
        if grant is not None and self._away.is_set() and not grant.lost.is_set():
            try:
                # The next agent would keep it to the end of its lease.
                self._transport.call("POST", f"{self._path}/release", {"grant": grant.id})
            except Error:
                pass

    def __enter__(self) -> Grant:
        return self.acquire()

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        grant = self._grant
        self.release()
        if grant is not None and kind is None:
            grant.check()

    def _wait(self, answer: http.client.HTTPResponse) -> tuple[Grant, float]:
        """The grant, and how long its lease stands."""
        while True:
            line = self._line(answer)
            if line is None:
                raise Unreachable(f"the agent at {self._transport.endpoint} has closed the connection")
            if "failed" in line:
                raise from_body(line["failed"])
            granted = line.get("granted")
            if granted is not None:
                waited = granted["waited_ms"] / 1000
                grant = Grant(granted["name"], granted["grant"], granted["slot"], granted["fencing"], waited)
                return grant, granted["ttl_ms"] / 1000

    def _line(self, answer: http.client.HTTPResponse) -> Optional[dict[str, Any]]:
        try:
            text = answer.readline()
            said = json.loads(text) if text else None
        except (OSError, http.client.HTTPException, ValueError, AttributeError) as error:
            if self._released.is_set():
                raise Failed("withdrawn", f"{self._name!r} is not waited for any more", {}) from error
            raise Unreachable(f"the connection to the agent at {self._transport.endpoint} broke: {error!r}") from error
        return said if isinstance(said, dict) else None

    def _watch(self, answer: http.client.HTTPResponse, grant: Grant) -> None:
        """Until the agent says that the slot is lost. If it goes, the next one of its machine goes on with the slot."""
        why: Optional[Error] = None
        try:
            while True:
                try:
                    line = self._line(answer)
                except Unreachable:
                    line = None
                if line is None:
                    answer = self._resume(grant)
                elif "lost" in line:
                    said = line["lost"].get("why") if isinstance(line["lost"], dict) else None
                    why = from_body(said) if said else None
                    break
        except Error as error:
            why = error
        self._lose(grant, why)

    def _resume(self, grant: Grant) -> http.client.HTTPResponse:
        """Takes the slot up again at the next agent, which is waited for as long as the lease stands."""
        self._away.set()
        while not self._released.is_set():
            gone = self._connection
            if gone is not None:
                gone.close()
            try:
                connection = self._transport.connect(None)
                self._connection, self._socket = connection, connection.sock
                if self._released.is_set():
                    connection.close()
                    break
                answer = self._transport.ask(connection, "POST", f"{self._path}/resume", {"grant": grant.id})
                self._wait(answer)
                self._away.clear()
                return answer
            except Unreachable:
                if now() >= self._ends:
                    raise
                self._released.wait(AGAIN)
        raise Failed("withdrawn", f"{self._name!r} was given back", {})

    def _renew(self, grant: Grant) -> None:
        """A third of the lease apart, and often enough for the agent to keep the connection open, so that it need not
        take a new one; what fails is tried again until it ends."""
        pause = min(self._stands / 3, OFTEN)
        line = Line(self._transport)
        try:
            while not self._released.wait(max(0.0, min(pause, self._ends - now()))):
                try:
                    if now() >= self._ends:
                        raise Unreachable(f"the agent at {self._transport.endpoint} did not answer in time")
                    self._renew_once(line, grant)
                    pause = min(self._stands / 3, OFTEN)
                except Unreachable as error:
                    if now() >= self._ends:
                        return self._lose(grant, error)
                    pause = self._stands / 30
                except Failed as error:
                    # An agent that has just come may know of the slot only when it is taken up again.
                    if not self._away.is_set() or now() >= self._ends:
                        return self._lose(grant, error)
                    pause = AGAIN
        finally:
            line.close()

    def _renew_once(self, agent: Union[Line, Transport], grant: Grant) -> None:
        asked = now()
        # Not beyond the end of the lease: who is not answered until then has lost it.
        patience = max(0.05, min(ANSWER_SECONDS, self._ends - asked))
        renewed = agent.call("POST", f"{self._path}/renew", {"grant": grant.id}, patience)
        self._stands = renewed["ttl_ms"] / 1000
        self._ends = asked + self._stands

    def _lose(self, grant: Grant, why: Optional[Error]) -> None:
        if self._released.is_set() or grant.lost.is_set():
            return
        grant.why = why
        grant.lost.set()
        if self._on_lost is not None:
            self._on_lost(grant)


class Agent:
    """The agent of this machine.

    ``endpoint`` is the path of its socket or ``host:port``; without one it is looked for where the commands do:
    ``$PEERLOCK_AGENT``, else the socket of this user. ``token`` is the bearer token that an agent at ``host:port`` asks
    for: what is in the file ``token`` of its data folder, or in the one that its ``--token-file`` names.
    """

    def __init__(self, endpoint: Optional[str] = None, token: Optional[str] = None) -> None:
        self._transport = Transport(endpoint, token)

    def semaphore(
        self,
        name: str,
        slots: Optional[int] = None,
        *,
        wait: Optional[float] = None,
        ttl: float = 30.0,
        label: str = "",
        on_lost: Optional[Callable[[Grant], None]] = None,
    ) -> Hold:
        """One of the slots of a resource.

        ``slots``: how many it has; ``None`` for as many as it has, one if it is new. ``wait``: at most so many seconds;
        0 not to wait at all, ``None`` for as long as it takes. ``ttl``: after so many seconds without a renewal others
        may come in. ``label``: what people see in ``peerlock show``. ``on_lost`` is called once, from another thread,
        when the slot is lost.
        """
        return Hold(self._transport, name, slots, wait, ttl, label, on_lost)

    def lock(
        self,
        name: str,
        *,
        wait: Optional[float] = None,
        ttl: float = 30.0,
        label: str = "",
        on_lost: Optional[Callable[[Grant], None]] = None,
    ) -> Hold:
        """A semaphore with one slot."""
        return self.semaphore(name, 1, wait=wait, ttl=ttl, label=label, on_lost=on_lost)

    def remove(self, name: str) -> None:
        """Removes a name that nobody uses.

        Raises ``Failed`` with the kind ``"in_use"`` while somebody holds a slot of it or waits, and with
        ``"no_such_resource"`` if there is none.
        """
        self._transport.call("POST", f"/v1/resources/{quote(name, safe='')}/remove")

    def show(self, name: str) -> dict[str, Any]:
        """Who holds a resource and who waits, in the whole cluster: docs/http.md has the fields."""
        shown = self._transport.call("GET", f"/v1/resources/{quote(name, safe='')}")
        assert isinstance(shown, dict), "the agent answers with an object"
        return shown


def lock(
    name: str,
    *,
    wait: Optional[float] = None,
    ttl: float = 30.0,
    label: str = "",
    on_lost: Optional[Callable[[Grant], None]] = None,
) -> Hold:
    """:meth:`Agent.lock` of the agent of this machine."""
    return Agent().lock(name, wait=wait, ttl=ttl, label=label, on_lost=on_lost)


def semaphore(
    name: str,
    slots: Optional[int] = None,
    *,
    wait: Optional[float] = None,
    ttl: float = 30.0,
    label: str = "",
    on_lost: Optional[Callable[[Grant], None]] = None,
) -> Hold:
    """:meth:`Agent.semaphore` of the agent of this machine."""
    return Agent().semaphore(name, slots, wait=wait, ttl=ttl, label=label, on_lost=on_lost)
