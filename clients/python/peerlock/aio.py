"""The same for asyncio. A body whose slot is lost is cancelled, and leaving it raises :class:`peerlock.Lost`.

``on_lost`` is called once before that, from the event loop.
"""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import Any, Callable, Optional, Type

from .agent import Agent as Plain
from .agent import Hold
from .visit import Grant, Visit


class AsyncHold:
    """A slot to be held: an asynchronous context manager that may be entered once at a time."""

    def __init__(
        self, make: Callable[[Callable[[Grant], None]], Hold], on_lost: Optional[Callable[[Grant], None]]
    ) -> None:
        self._hold = make(self._told_lost)
        self._on_lost = on_lost
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._task: Optional[asyncio.Task[Any]] = None
        self._grant: Optional[Grant] = None
        self._cancelled = False
        self._cancelling = 0

    async def __aenter__(self) -> Grant:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        visit = self._hold._open()
        self._loop, self._task, self._cancelled = loop, task, False
        self._cancelling = _cancelling(task)
        waiting: asyncio.Future[Grant] = loop.create_future()
        try:
            # A thread of its own: those of the loop's executor are few, and who waits here would keep others from asking.
            threading.Thread(target=self._begin, args=(visit, loop, waiting), daemon=True).start()
            grant = await waiting
            # It may be lost already, if the loop was busy: who was to cancel the body has found none.
            grant.check()
        except BaseException:
            give_back = self._hold._end(visit)  # Ends the wait in the other thread.
            if give_back is not None:
                threading.Thread(target=give_back, daemon=True).start()
            raise
        self._grant = grant
        return grant

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        grant, task, self._grant, self._task = self._grant, self._task, None, None
        # Before it is given back: after that nobody looks any more.
        is_lost = grant is not None and grant._is_lost()
        give_back = self._hold._leave()
        if give_back is not None:
            await _elsewhere(give_back)
        is_ours = self._cancelled and kind is asyncio.CancelledError
        if self._cancelled and task is not None and hasattr(task, "uncancel"):
            # Else whoever has set a time limit around this would take our cancelling for somebody else's, and somebody
            # else who has cancelled this as well would be ignored.
            is_ours = is_ours and task.uncancel() <= self._cancelling
        if grant is not None and is_lost and (kind is None or is_ours):
            raise grant._lost()

    def _begin(self, visit: Visit, loop: asyncio.AbstractEventLoop, waiting: "asyncio.Future[Grant]") -> None:
        def settle(settle_with: Callable[[Any], None], value: Any) -> None:
            if not waiting.done():
                settle_with(value)

        try:
            grant = visit.begin()
        except BaseException as error:  # Whatever it is, it is for who waits.
            _call(loop, settle, waiting.set_exception, error)
        else:
            if not _call(loop, settle, waiting.set_result, grant):
                self._hold._close(visit)

    def _told_lost(self, grant: Grant) -> None:
        """From another thread."""
        if self._loop is not None:
            _call(self._loop, self._lose, grant)

    def _lose(self, grant: Grant) -> None:
        # Word of an earlier use may come late.
        if self._task is not None and self._grant is grant:
            self._cancelled = True
            self._task.cancel("the slot is lost")
            if self._on_lost is not None:
                self._on_lost(grant)


def _cancelling(task: Any) -> int:
    """How many have asked the task to end, where that is counted."""
    return int(task.cancelling()) if hasattr(task, "cancelling") else 0


async def _elsewhere(work: Callable[[], None]) -> None:
    """Does what may take long in a thread. It is done also if this is cancelled."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def finish() -> None:
        if not done.done():
            done.set_result(None)

    def run() -> None:
        try:
            work()
        finally:
            _call(loop, finish)

    threading.Thread(target=run, daemon=True).start()
    await done


def _call(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *args: Any) -> bool:
    """Whether there is a loop that will. If it has ended, so has the body."""
    try:
        loop.call_soon_threadsafe(call, *args)
        return True
    except RuntimeError:
        return False


class Agent:
    """As :class:`peerlock.Agent`."""

    def __init__(self, endpoint: Optional[str] = None, token: Optional[str] = None) -> None:
        self._plain = Plain(endpoint, token)

    def semaphore(
        self,
        name: str,
        slots: Optional[int] = None,
        *,
        wait: Optional[float] = None,
        ttl: float = 30.0,
        label: str = "",
        on_lost: Optional[Callable[[Grant], None]] = None,
    ) -> AsyncHold:
        """As :meth:`peerlock.Agent.semaphore`."""

        def make(told: Callable[[Grant], None]) -> Hold:
            return self._plain.semaphore(name, slots, wait=wait, ttl=ttl, label=label, on_lost=told)

        return AsyncHold(make, on_lost)

    def lock(
        self,
        name: str,
        *,
        wait: Optional[float] = None,
        ttl: float = 30.0,
        label: str = "",
        on_lost: Optional[Callable[[Grant], None]] = None,
    ) -> AsyncHold:
        """A semaphore with one slot."""
        return self.semaphore(name, 1, wait=wait, ttl=ttl, label=label, on_lost=on_lost)


def lock(
    name: str,
    *,
    wait: Optional[float] = None,
    ttl: float = 30.0,
    label: str = "",
    on_lost: Optional[Callable[[Grant], None]] = None,
) -> AsyncHold:
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
) -> AsyncHold:
    """:meth:`Agent.semaphore` of the agent of this machine."""
    return Agent().semaphore(name, slots, wait=wait, ttl=ttl, label=label, on_lost=on_lost)
