"""One visit to a resource: from asking for a slot to giving it back."""

from __future__ import annotations

import http.client
import json
import math
import os
import socket
import sys
import threading
import time
from typing import Any, Callable, Optional, Union

from .errors import Error, Failed, Lost, NotAcquired, Unreachable, from_body
from .transport import ANSWER_SECONDS, Line, Transport, path_of

#: A lease is renewed as often as this, in seconds, however long it is: an agent closes what says nothing for 30 s.
OFTEN = 10.0

#: How soon the next agent is looked for when one has gone, in seconds.
AGAIN = 0.1

#: How much longer than a client would wait the agent may take to say so, in seconds: it may be frozen.
LATE = 10.0


#: How long there may be no agent after one that has ended, while a slot is waited for, in seconds.
ABSENT = 30.0

#: After so many missed keep-alive lines of the agent a connection is broken.
MISSED = 3


def now() -> float:
    """Seconds of a clock that goes on while the machine sleeps and that NTP does not slew, where there is one."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return time.monotonic()
    best = (math.inf, 0.0)
    for _ in range(8):
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        boot = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        raw = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        after = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        best = min(best, (after - before, (raw + boot - after) / 1e9))
        # What was read by a thread that was interrupted meanwhile is wrong by that much.
        if best[0] < 100_000:
            break
    return best[1]


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
        # When whatever it is held for must stop, unless the lease is renewed before.
        self._stop = math.inf

    def check(self) -> None:
        """Raises :class:`Lost` if the slot is lost. Call it before every step that needs it."""
        if self._is_lost():
            raise self._lost()

    def _is_lost(self) -> bool:
        # The thread that renews the lease may have been frozen with us, and not have found out yet.
        if now() >= self._stop:
            self.lost.set()
        return self.lost.is_set()

    def _lost(self) -> Lost:
        why = str(self.why or "its lease was not renewed in time, or it was released elsewhere")
        return Lost("lost", f"the slot of {self.name!r} is lost: {why}", {"name": self.name})

    def __repr__(self) -> str:
        return f"Grant(name={self.name!r}, slot={self.slot}, fencing={self.fencing})"


class Wish:
    """What is asked for."""

    def __init__(
        self,
        name: str,
        slots: Optional[int],
        wait: Optional[float],
        ttl: float,
        label: str,
        on_lost: Optional[Callable[[Grant], None]],
    ) -> None:
        self.name = name
        self.path = path_of(name)
        self.ttl = ttl
        self.on_lost = on_lost
        #: How long the answer may take, if that is limited.
        self.wait = None if wait is None or wait == math.inf else max(0.0, wait)
        self._body: dict[str, Any] = {"ttl_ms": math.ceil(ttl * 1000), "label": label}
        if slots is not None:
            self._body["slots"] = slots

    def body(self, wait: Optional[float]) -> dict[str, Any]:
        """The request, to wait for so many seconds from now."""
        if self.wait is None or wait is None:
            return self._body
        # What is left of a wait may be nothing, which is not the same as not to wait in the first place.
        return {**self._body, **({"wait_ms": math.ceil(wait * 1000)} if self.wait > 0 else {"try": True})}


class Visit:
    """Whatever it began ends with it: its threads know nothing of the next one."""

    def __init__(self, transport: Transport, wish: Wish) -> None:
        self.grant: Optional[Grant] = None
        self._transport = transport
        self._wish = wish
        self._process = os.getpid()
        # For what both who asks and who gives up may change.
        self._lock = threading.Lock()
        self._connection: Optional[http.client.HTTPConnection] = None
        self._socket: Optional[socket.socket] = None
        self._released = threading.Event()
        self._is_told = False
        # Whether the slot is free when its connection ends.
        self._ends_with_connection = not transport.is_tcp()
        # The agent may send nothing for so many seconds, once it has said so.
        self._quiet: Optional[float] = None
        # The agent has gone, and the next one is not there yet.
        self._away = threading.Event()
        # How long the lease stands after a renewal, as the agent says: not beyond its own session. And until when.
        self._stands = wish.ttl
        self._ends = 0.0

    def begin(self) -> Grant:
        """Waits for the slot. If the agent ends meanwhile, asks the next one, for what is left of the wait. Whoever is
        told of an error here ends the visit."""
        began = now()
        wait = self._wish.wait
        ended: Optional[float] = None
        while True:
            left = None if wait is None else max(0.0, wait - (now() - began))
            try:
                return self._begin(left)
            except Unreachable as error:
                if self._released.is_set() or wait == 0 or error._is_silence:
                    raise
                if error._ended_a_wait:
                    ended = now()
                elif ended is None or now() - ended >= ABSENT:
                    raise  # The first request finds an agent, or there is none.
                why = error
            if left is not None and now() - began >= (wait or 0.0):
                message = f"{self._wish.name!r} was not acquired in time: {why}"
                raise NotAcquired("not_acquired", message, {"name": self._wish.name}) from why
            if self._released.wait(AGAIN):
                raise self._withdrawn()

    def _begin(self, wait: Optional[float]) -> Grant:
        """Waits for the slot at the agent that is there."""
        asked = now()
        patience = None if wait is None else wait + LATE
        end = None if patience is None else asked + patience
        connection = self._connect(ANSWER_SECONDS if patience is None else min(ANSWER_SECONDS, patience))
        try:
            self._allow(end)
            answer, grant, stands = self._ask(connection, "hold", self._wish.body(wait), end)
        except Unreachable as error:
            if self._released.is_set():
                raise self._withdrawn() from None
            self._hang_up()
            error._ended_a_wait = True
            raise
        try:
            self._enter(answer, grant, asked, stands)
        except BaseException:
            self.end()  # First: a thread that reads the answer already keeps it from being closed.
            answer.close()
            if not self._ends_with_connection:
                self._give_back(grant.id)
            raise
        return grant

    def _enter(self, answer: http.client.HTTPResponse, grant: Grant, asked: float, stands: float) -> None:
        # Nothing else than keep-alive lines comes for as long as it is not lost.
        self._allow(None)
        # Counted from before the request: an answer that was long on its way gives no more time.
        self._stand(grant, asked, stands)
        if now() - asked > stands / 3:
            # How long the word of it was on its way is not known after a wait. Who was frozen meanwhile hears it now.
            self._confirm(grant, stands)
        with self._lock:
            if self._released.is_set():
                raise self._withdrawn()
            self.grant = grant
        threading.Thread(target=self._keep, args=(grant, lambda: self._renew(grant)), daemon=True).start()
        threading.Thread(target=self._keep, args=(grant, lambda: self._watch(answer, grant)), daemon=True).start()

    def end(self) -> None:
        """Gives the slot back, or stops waiting for it. From any thread, and more than once."""
        give_back = self.close()
        if give_back is not None:
            give_back()

    def close(self) -> Optional[Callable[[], None]]:
        """As :meth:`end`, but does nothing that may take long: returns what is left to do, if anything is."""
        if self.is_copy():
            # Only its file is closed: a thread that is not here may have the lock of what reads it, and any other.
            taken, self._socket = self._socket, None
            if taken is not None:
                os.close(taken.detach())
            return None
        with self._lock:
            self._released.set()
            grant, self.grant = self.grant, None
        self._hang_up()
        if grant is None or now() >= self._ends:
            return None
        if self._ends_with_connection and (not self._away.is_set() or grant.lost.is_set()):
            return None
        # The next agent, or over TCP this one, would keep it to the end of its lease.
        id = grant.id
        return lambda: self._give_back(id)

    def _hang_up(self) -> None:
        """Ends the connection, also for a thread that reads it."""
        with self._lock:
            connection, self._connection = self._connection, None
            taken, self._socket = self._socket, None
        if taken is not None:
            try:
                # Wakes whoever reads in another thread; `close` would not.
                taken.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        if connection is not None:
            connection.close()

    def _give_back(self, grant: str) -> None:
        patience = max(AGAIN, min(ANSWER_SECONDS, self._ends - now()))
        try:
            self._transport.call("POST", f"{self._wish.path}/release", {"grant": grant}, patience)
        except Error:
            pass

    def is_copy(self) -> bool:
        """Whether this is another process than it was made in: after a fork the slot is our parent's."""
        return self._process != os.getpid()

    def _withdrawn(self) -> Failed:
        return Failed("withdrawn", f"{self._wish.name!r} is not waited for any more", {})

    def _connect(self, patience: float) -> http.client.HTTPConnection:
        """The connection that the slot is to belong to."""
        if self._released.is_set():
            raise self._withdrawn()
        connection = self._transport.connect(patience)
        # Who gives up closes this one: nothing is to be asked over another, which nobody knows of.
        connection.auto_open = 0
        self._quiet = None
        with self._lock:
            if not self._released.is_set():
                self._connection, self._socket = connection, connection.sock
                return connection
        connection.close()
        raise self._withdrawn()

    def _allow(self, end: Optional[float]) -> None:
        """How long the next read may take."""
        taken = self._socket
        try:
            if taken is not None:
                taken.settimeout(None if end is None else max(0.01, end - now()))
        except OSError:
            pass  # It was closed, which the read will find, too.

    def _ask(
        self, connection: http.client.HTTPConnection, verb: str, body: Any, end: Optional[float]
    ) -> tuple[http.client.HTTPResponse, Grant, float]:
        """What goes on for as long as the slot is held, the grant, and how long its lease stands."""
        answer = self._transport.ask(connection, "POST", f"{self._wish.path}/{verb}", body)
        try:
            return (answer, *self._wait(answer, end))
        except BaseException:
            answer.close()
            raise

    def _wait(self, answer: http.client.HTTPResponse, end: Optional[float]) -> tuple[Grant, float]:
        while True:
            line = self._line(answer, end)
            if line is None:
                raise Unreachable(f"the agent at {self._transport.endpoint} has closed the connection")
            if "failed" in line:
                raise from_body(line["failed"])
            granted = line.get("granted")
            if granted is not None:
                waited = granted["waited_ms"] / 1000
                grant = Grant(granted["name"], granted["grant"], granted["slot"], granted["fencing"], waited)
                return grant, granted["ttl_ms"] / 1000

    def _line(self, answer: http.client.HTTPResponse, end: Optional[float] = None) -> Optional[dict[str, Any]]:
        """The next line, within the time that the agent may be silent, and before ``end``."""
        while True:
            silent = None if self._quiet is None else now() + self._quiet
            ends = [at for at in (silent, end) if at is not None]
            if ends:
                self._allow(min(ends))
            try:
                text = answer.readline()
                said = json.loads(text) if text else None
            except (OSError, http.client.HTTPException, ValueError, AttributeError) as error:
                if self._released.is_set():
                    raise self._withdrawn() from error
                if silent is not None and isinstance(error, socket.timeout) and (end is None or silent < end):
                    message = f"the agent at {self._transport.endpoint} sends nothing any more"
                    raise Unreachable(message) from error
                raise self._transport.broken(error) from error
            alive = said.get("alive") if isinstance(said, dict) else None
            if not isinstance(alive, dict):
                # Others that this client does not know are for those who read lines to ignore.
                return said if isinstance(said, dict) or not text else {}
            every = alive.get("every_ms")
            self._quiet = MISSED * every / 1000 if isinstance(every, (int, float)) and every > 0 else None

    def _confirm(self, grant: Grant, stands: float) -> None:
        """The first renewal after a wait, which is tried for as long as the lease may stand."""
        end = now() + stands
        while True:
            try:
                return self._renew_once(self._transport, grant, end)
            except (Lost, Unreachable, Failed) as error:
                if isinstance(error, Lost) or now() >= end or self._released.wait(min(AGAIN, stands / 30)):
                    raise

    def _keep(self, grant: Grant, part: Callable[[], None]) -> None:
        """What one of the threads does. However it ends, the holder hears of it."""
        try:
            part()
        except Error as error:
            self._lose(grant, error)
        except Exception as error:
            self._lose(grant, self._transport.broken(error))

    def _watch(self, answer: http.client.HTTPResponse, grant: Grant) -> None:
        """Until the agent says that the slot is lost. If it goes, the next one of its machine goes on with the slot."""
        try:
            while True:
                try:
                    line = self._line(answer)
                except Unreachable:
                    line = None
                if line is None:
                    answer.close()
                    answer = self._resume(grant)
                elif "lost" in line:
                    said = line["lost"].get("why") if isinstance(line["lost"], dict) else None
                    self._lose(grant, from_body(said) if said else None)
                    # The slot is kept for whoever has to stop, as long as the connection stands.
                    self._released.wait()
                    return
        finally:
            answer.close()

    def _resume(self, grant: Grant) -> http.client.HTTPResponse:
        """Takes the slot up again at the next agent, which is waited for as long as the lease stands; over TCP also at
        the same one."""
        self._away.set()
        while True:
            gone = self._connection
            if gone is not None:
                gone.close()
            try:
                connection = self._connect(max(AGAIN, min(ANSWER_SECONDS, self._ends - now())))
                # The answer comes when the agent is back in its cluster. Who renews sees whether that is too late.
                self._allow(None)
                answer, _, _ = self._ask(connection, "resume", {"grant": grant.id}, None)
                self._away.clear()
                self._allow(None)
                return answer
            except (Unreachable, Failed) as error:
                # Who says that the slot is lost has looked; who is busy, or stops, has not.
                if isinstance(error, Lost) or now() >= self._ends or self._released.wait(AGAIN):
                    raise

    def _renew(self, grant: Grant) -> None:
        """A third of the lease apart, and often enough for the agent to keep the connection open, so that it need not
        take a new one; what fails is tried again until the holder must stop."""
        pause = min(self._stands / 3, OFTEN)
        line = Line(self._transport)
        why: Error = Unreachable(f"the agent at {self._transport.endpoint} did not answer in time")
        try:
            while not self._released.wait(max(0.0, min(pause, grant._stop - now()))):
                if grant._is_lost():
                    return self._lose(grant, why)
                try:
                    self._renew_once(line, grant, grant._stop)
                    pause = min(self._stands / 3, OFTEN)
                except Lost as error:
                    # An agent that has just come may know of the slot only when it is taken up again.
                    if not self._away.is_set():
                        return self._lose(grant, error)
                    why, pause = error, AGAIN
                except (Unreachable, Failed) as error:
                    why, pause = error, min(AGAIN, self._stands / 30)
        finally:
            line.close()

    def _renew_once(self, agent: Union[Line, Transport], grant: Grant, end: float) -> None:
        asked = now()
        # Not beyond the end: who is not answered until then has lost it.
        patience = max(0.05, min(ANSWER_SECONDS, end - asked))
        renewed = agent.call("POST", f"{self._wish.path}/renew", {"grant": grant.id}, patience)
        try:
            stands = renewed["ttl_ms"] / 1000
        except (KeyError, TypeError) as error:
            raise self._transport.broken(error) from error
        self._stand(grant, asked, stands)

    def _stand(self, grant: Grant, asked: float, stands: float) -> None:
        self._stands, self._ends = stands, asked + stands
        # The time to stop in, before others come in; less where the agent's session is short, so that there is time for
        # the next renewal.
        grant._stop = self._ends - min(self._wish.ttl / 5, stands / 3)

    def _lose(self, grant: Grant, why: Optional[Error]) -> None:
        with self._lock:
            if self._released.is_set() or self._is_told:
                return
            self._is_told = True
        grant.why = why
        grant.lost.set()
        if self._wish.on_lost is None:
            return
        try:
            self._wish.on_lost(grant)
        except Exception:
            # As any other that nobody catches in a thread.
            threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
