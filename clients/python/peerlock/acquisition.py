"""One acquisition of a slot, from the request to the release."""

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
from .transport import ANSWER_SECONDS, Persistent, Transport, path_of

#: Longest interval of renewals, in seconds: an agent closes a connection after 30 s of silence.
RENEWAL_SECONDS = 10.0

RETRY_SECONDS = 0.1

#: How much later than the wait an answer may come, in seconds.
GRACE_SECONDS = 10.0

#: How long a waiting request continues without an agent, in seconds.
RESTART_SECONDS = 30.0

#: A connection is broken after this many missing keep-alive lines.
MISSED = 3


def now() -> float:
    """Returns the seconds of a clock that counts suspend and that NTP does not slew, where there is one."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return time.monotonic()
    best = (math.inf, 0.0)
    for _ in range(8):
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        boot = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        raw = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        after = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        best = min(best, (after - before, (raw + boot - after) / 1e9))
        # An interruption between the readings makes the result wrong by its length.
        if best[0] < 100_000:
            break
    return best[1]


class Grant:
    """A slot while it is held."""

    def __init__(self, name: str, grant: str, slot: int, fencing: int, waited: float) -> None:
        self.name = name
        self.id = grant
        #: The number of the slot, from 0.
        self.slot = slot
        #: The fencing number, larger than all earlier ones of this slot. Pass it to whatever the slot protects.
        self.fencing = fencing
        #: Seconds from the request to the grant.
        self.waited = waited
        #: Set when the slot is lost: work that needs it must stop.
        self.lost = threading.Event()
        self.why: Optional[Error] = None
        # When the work must stop unless the lease is renewed before.
        self._stop = math.inf

    def check(self) -> None:
        """Raises :class:`Lost` if the slot is lost. For use before each step that needs it."""
        if self._is_lost():
            raise self._lost()

    def _is_lost(self) -> bool:
        # The renewing thread may have been frozen, too.
        if now() >= self._stop:
            self.lost.set()
        return self.lost.is_set()

    def _lost(self) -> Lost:
        why = str(self.why or "its lease was not renewed in time, or it was released elsewhere")
        return Lost("lost", f"the slot of {self.name!r} is lost: {why}", {"name": self.name})

    def __repr__(self) -> str:
        return f"Grant(name={self.name!r}, slot={self.slot}, fencing={self.fencing})"


class Request:
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
        #: The limit of the wait, if any.
        self.wait = None if wait is None or wait == math.inf else max(0.0, wait)
        self._body: dict[str, Any] = {"ttl_ms": math.ceil(ttl * 1000), "label": label}
        if slots is not None:
            self._body["slots"] = slots

    def body(self, wait: Optional[float]) -> dict[str, Any]:
        """Returns the body of the request, with this many seconds left to wait."""
        if self.wait is None or wait is None:
            return self._body
        # No time left differs from a request that must not wait.
        return {**self._body, **({"wait_ms": math.ceil(wait * 1000)} if self.wait > 0 else {"try": True})}


class Acquisition:
    """One acquisition. Its threads end with it, and do not affect the next one."""

    def __init__(self, transport: Transport, request: Request) -> None:
        self.grant: Optional[Grant] = None
        self._transport = transport
        self._request = request
        self._process = os.getpid()
        # Guards the fields that the acquiring and the releasing thread change.
        self._lock = threading.Lock()
        self._connection: Optional[http.client.HTTPConnection] = None
        self._socket: Optional[socket.socket] = None
        self._released = threading.Event()
        self._is_reported = False
        self._ends_with_connection = not transport.is_tcp()
        # How long the agent may be silent, once it has announced keep-alive lines.
        self._quiet: Optional[float] = None
        # Set while no agent has confirmed the slot since the last one disappeared.
        self._away = threading.Event()
        # The lease duration at the last renewal, limited by the agent's session, and when the lease expires.
        self._lease = request.ttl
        self._ends = 0.0

    def acquire(self) -> Grant:
        """Waits for the slot. If the agent exits meanwhile, asks the next one, within the rest of the wait.

        After an exception the caller ends the acquisition.
        """
        started = now()
        wait = self._request.wait
        ended: Optional[float] = None
        while True:
            left = None if wait is None else max(0.0, wait - (now() - started))
            try:
                return self._acquire(left)
            except Unreachable as error:
                if self._released.is_set() or wait == 0 or error._is_silence:
                    raise
                if error._ended_a_wait:
                    ended = now()
                elif ended is None or now() - ended >= RESTART_SECONDS:
                    raise  # No agent at the first request, or for too long.
                why = error
            if left is not None and now() - started >= (wait or 0.0):
                message = f"{self._request.name!r} was not acquired in time: {why}"
                raise NotAcquired("not_acquired", message, {"name": self._request.name}) from why
            if self._released.wait(RETRY_SECONDS):
                raise self._withdrawn()

    def _acquire(self, wait: Optional[float]) -> Grant:
        asked = now()
        patience = None if wait is None else wait + GRACE_SECONDS
        end = None if patience is None else asked + patience
        connection = self._connect(ANSWER_SECONDS if patience is None else min(ANSWER_SECONDS, patience))
        try:
            self._limit_read(end)
            answer, grant, lease = self._ask(connection, "hold", self._request.body(wait), end)
        except Unreachable as error:
            if self._released.is_set():
                raise self._withdrawn() from None
            self._hang_up()
            error._ended_a_wait = True
            raise
        try:
            self._start(answer, grant, asked, lease)
        except BaseException:
            self.release()  # First: a thread that reads the answer prevents its closing.
            answer.close()
            if not self._ends_with_connection:
                self._release(grant.id)
            raise
        return grant

    def _start(self, answer: http.client.HTTPResponse, grant: Grant, asked: float, lease: float) -> None:
        self._limit_read(None)
        # Counted from before the request: a delay of the answer does not extend the lease.
        self._set_lease(grant, asked, lease)
        if now() - asked > lease / 3:
            # The grant may have been delayed, or this process frozen.
            self._confirm(grant, lease)
        with self._lock:
            if self._released.is_set():
                raise self._withdrawn()
            self.grant = grant
        threading.Thread(target=self._guard, args=(grant, lambda: self._renew(grant)), daemon=True).start()
        threading.Thread(target=self._guard, args=(grant, lambda: self._watch(answer, grant)), daemon=True).start()

    def conclude(self, succeeded: bool, hold: float, attempts: int) -> bool:
        """Reports the end of a run. Returns whether the slot is held until the period ends."""
        grant = self.grant
        if grant is None:
            raise RuntimeError(f"no slot of {self._request.name!r} is held")
        end = {"grant": grant.id, "succeeded": succeeded, "attempts": attempts, "hold_ms": round(hold * 1000)}
        concluded = self._transport.call("POST", f"{self._request.path}/conclude", end)
        assert isinstance(concluded, dict), "the answer is an object"
        if concluded["holds"]:
            with self._lock:
                self.grant = None  # A release would end the period.
        return bool(concluded["holds"])

    def release(self) -> None:
        """Releases the slot, or ends the wait. May be called from any thread, and repeatedly."""
        release = self.close()
        if release is not None:
            release()

    def close(self) -> Optional[Callable[[], None]]:
        """Like :meth:`release`, but returns the part that may block, if any."""
        if self.is_copy():
            # Closes the descriptor only: a thread of the parent may hold any lock.
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
        # Otherwise the next agent, or over TCP this one, would hold the slot until the lease expires.
        id = grant.id
        return lambda: self._release(id)

    def _hang_up(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
            taken, self._socket = self._socket, None
        if taken is not None:
            try:
                # Wakes a reading thread, which `close` would not.
                taken.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        if connection is not None:
            connection.close()

    def _release(self, grant: str) -> None:
        patience = max(RETRY_SECONDS, min(ANSWER_SECONDS, self._ends - now()))
        try:
            self._transport.call("POST", f"{self._request.path}/release", {"grant": grant}, patience)
        except Error:
            pass

    def is_copy(self) -> bool:
        """Returns whether this is a forked child: the slot is the parent's."""
        return self._process != os.getpid()

    def _withdrawn(self) -> Failed:
        return Failed("withdrawn", f"the request for {self._request.name!r} was withdrawn", {})

    def _connect(self, patience: float) -> http.client.HTTPConnection:
        if self._released.is_set():
            raise self._withdrawn()
        connection = self._transport.connect(patience)
        # A release closes this connection, and must not be followed by another one.
        connection.auto_open = 0
        self._quiet = None
        with self._lock:
            if not self._released.is_set():
                self._connection, self._socket = connection, connection.sock
                return connection
        connection.close()
        raise self._withdrawn()

    def _limit_read(self, end: Optional[float]) -> None:
        taken = self._socket
        try:
            if taken is not None:
                taken.settimeout(None if end is None else max(0.01, end - now()))
        except OSError:
            pass  # Closed: the read fails, too.

    def _ask(
        self, connection: http.client.HTTPConnection, verb: str, body: Any, end: Optional[float]
    ) -> tuple[http.client.HTTPResponse, Grant, float]:
        """Returns the stream of lines, the grant, and the lease in seconds."""
        answer = self._transport.ask(connection, "POST", f"{self._request.path}/{verb}", body)
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
        """Returns the next line, within the announced time of silence and before ``end``."""
        while True:
            silent = None if self._quiet is None else now() + self._quiet
            ends = [at for at in (silent, end) if at is not None]
            if ends:
                self._limit_read(min(ends))
            try:
                text = answer.readline()
                line = json.loads(text) if text else None
            except (OSError, http.client.HTTPException, ValueError, AttributeError) as error:
                if self._released.is_set():
                    raise self._withdrawn() from error
                if silent is not None and isinstance(error, socket.timeout) and (end is None or silent < end):
                    message = f"the agent at {self._transport.endpoint} has stopped sending"
                    raise Unreachable(message) from error
                raise self._transport.broken(error) from error
            alive = line.get("alive") if isinstance(line, dict) else None
            if not isinstance(alive, dict):
                # Unknown lines are ignored by the caller.
                return line if isinstance(line, dict) or not text else {}
            every = alive.get("every_ms")
            self._quiet = MISSED * every / 1000 if isinstance(every, (int, float)) and every > 0 else None

    def _confirm(self, grant: Grant, lease: float) -> None:
        """Renews the lease after a wait, with retries until it has expired."""
        end = now() + lease
        while True:
            try:
                return self._renew_once(self._transport, grant, end)
            except (Lost, Unreachable, Failed) as error:
                if isinstance(error, Lost) or now() >= end or self._released.wait(min(RETRY_SECONDS, lease / 30)):
                    raise

    def _guard(self, grant: Grant, part: Callable[[], None]) -> None:
        """Executes the work of a thread. Reports any exception to the holder as a loss."""
        try:
            part()
        except Error as error:
            self._lose(grant, error)
        except Exception as error:
            self._lose(grant, self._transport.broken(error))

    def _watch(self, answer: http.client.HTTPResponse, grant: Grant) -> None:
        """Waits for the report of a loss, also at the next agent."""
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
                    why = line["lost"].get("why") if isinstance(line["lost"], dict) else None
                    self._lose(grant, from_body(why) if why else None)
                    # The slot stays held while the connection is open, so that the holder has time to stop.
                    self._released.wait()
                    return
        finally:
            answer.close()

    def _resume(self, grant: Grant) -> http.client.HTTPResponse:
        """Resumes the grant at the next agent, until the lease expires; over TCP also at the same agent."""
        self._away.set()
        while True:
            gone = self._connection
            if gone is not None:
                gone.close()
            try:
                connection = self._connect(max(RETRY_SECONDS, min(ANSWER_SECONDS, self._ends - now())))
                # The agent answers when it has a session; the renewing thread notices if that is too late.
                self._limit_read(None)
                answer, _, _ = self._ask(connection, "resume", {"grant": grant.id}, None)
                self._away.clear()
                self._limit_read(None)
                return answer
            except (Unreachable, Failed) as error:
                # The reply `lost` is final; others, such as busy or stopping, are not.
                if isinstance(error, Lost) or now() >= self._ends or self._released.wait(RETRY_SECONDS):
                    raise

    def _renew(self, grant: Grant) -> None:
        """Renews the lease after each third of it, and often enough to keep the connection open.

        Failures are retried until the holder must stop.
        """
        pause = min(self._lease / 3, RENEWAL_SECONDS)
        connection = Persistent(self._transport)
        why: Error = Unreachable(f"the agent at {self._transport.endpoint} did not answer in time")
        try:
            while not self._released.wait(max(0.0, min(pause, grant._stop - now()))):
                if grant._is_lost():
                    return self._lose(grant, why)
                try:
                    self._renew_once(connection, grant, grant._stop)
                    pause = min(self._lease / 3, RENEWAL_SECONDS)
                except Lost as error:
                    # A new agent may know the grant only after it was resumed.
                    if not self._away.is_set():
                        return self._lose(grant, error)
                    why, pause = error, RETRY_SECONDS
                except (Unreachable, Failed) as error:
                    why, pause = error, min(RETRY_SECONDS, self._lease / 30)
        finally:
            connection.close()

    def _renew_once(self, agent: Union[Persistent, Transport], grant: Grant, end: float) -> None:
        asked = now()
        patience = max(0.05, min(ANSWER_SECONDS, end - asked))
        renewed = agent.call("POST", f"{self._request.path}/renew", {"grant": grant.id}, patience)
        try:
            lease = renewed["ttl_ms"] / 1000
        except (KeyError, TypeError) as error:
            raise self._transport.broken(error) from error
        self._set_lease(grant, asked, lease)

    def _set_lease(self, grant: Grant, asked: float, lease: float) -> None:
        self._lease, self._ends = lease, asked + lease
        # Leaves time to stop, limited so that a short session leaves time to renew.
        grant._stop = self._ends - min(self._request.ttl / 5, lease / 3)

    def _lose(self, grant: Grant, why: Optional[Error]) -> None:
        with self._lock:
            if self._released.is_set() or self._is_reported:
                return
            self._is_reported = True
        grant.why = why
        grant.lost.set()
        if self._request.on_lost is None:
            return
        try:
            self._request.on_lost(grant)
        except Exception:
            # As for an uncaught exception of a thread.
            threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
