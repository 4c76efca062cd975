"""Locks and semaphores for asyncio. If the slot is lost, the body is cancelled and leaving it raises ``Lost``.

``on_lost`` is called once before that, from the event loop.
"""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import Any, Callable, Optional, Type

from .acquisition import Acquisition, Grant
from .agent import Agent as Plain
from .agent import Hold


class AsyncHold:
    """A slot to be held: an asynchronous context manager for one use at a time."""

    def __init__(
        self, make: Callable[[Callable[[Grant], None]], Hold], on_lost: Optional[Callable[[Grant], None]]
    ) -> None:
        self._hold = make(self._report_loss)
        self._on_lost = on_lost
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._task: Optional[asyncio.Task[Any]] = None
        self._grant: Optional[Grant] = None
        self._cancelled = False
        self._cancelling = 0

    async def __aenter__(self) -> Grant:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        acquisition = self._hold._open()
        self._loop, self._task, self._cancelled = loop, task, False
        self._cancelling = _cancelling(task)
        waiting: asyncio.Future[Grant] = loop.create_future()
        try:
            # A thread of its own: waiting requests would block the few threads of the executor.
            threading.Thread(target=self._acquire, args=(acquisition, loop, waiting), daemon=True).start()
            grant = await waiting
            # The slot may be lost already, if the loop was busy: there was no body to cancel.
            grant.check()
        except BaseException:
            release = self._hold._end(acquisition)  # Ends the wait of the other thread.
            if release is not None:
                threading.Thread(target=release, daemon=True).start()
            raise
        self._grant = grant
        return grant

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        grant, task, self._grant, self._task = self._grant, self._task, None, None
        # Before the release, which ends the observation.
        is_lost = grant is not None and grant._is_lost()
        release = self._hold._leave()
        if release is not None:
            await _in_thread(release)
        is_ours = self._cancelled and kind is asyncio.CancelledError
        if self._cancelled and task is not None and hasattr(task, "uncancel"):
            # Otherwise a surrounding time limit would count this cancellation, and one by another task would be ignored.
            is_ours = is_ours and task.uncancel() <= self._cancelling
        if grant is not None and is_lost and (kind is None or is_ours):
            raise grant._lost()

    def _acquire(
        self, acquisition: Acquisition, loop: asyncio.AbstractEventLoop, waiting: "asyncio.Future[Grant]"
    ) -> None:
        def settle(settle_with: Callable[[Any], None], value: Any) -> None:
            if not waiting.done():
                settle_with(value)

        try:
            grant = acquisition.acquire()
        except BaseException as error:  # Raised in the waiting task.
            _call(loop, settle, waiting.set_exception, error)
        else:
            if not _call(loop, settle, waiting.set_result, grant):
                self._hold._close(acquisition)

    def _report_loss(self, grant: Grant) -> None:
        if self._loop is not None:
            _call(self._loop, self._lose, grant)

    def _lose(self, grant: Grant) -> None:
        # A report of an earlier use may be late.
        if self._task is not None and self._grant is grant:
            self._cancelled = True
            self._task.cancel("the slot is lost")
            if self._on_lost is not None:
                self._on_lost(grant)


def _cancelling(task: Any) -> int:
    """Returns the number of pending cancellations, if Python counts them."""
    return int(task.cancelling()) if hasattr(task, "cancelling") else 0


async def _in_thread(work: Callable[[], None]) -> None:
    """Executes blocking work in a thread, also if the caller is cancelled."""
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
    """Returns whether the loop accepted the call. If the loop has ended, so has the body."""
    try:
        loop.call_soon_threadsafe(call, *args)
        return True
    except RuntimeError:
        return False


class Agent:
    """Like :class:`peerlock.Agent`."""

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
        """Like :meth:`peerlock.Agent.semaphore`."""

        def make(report: Callable[[Grant], None]) -> Hold:
            return self._plain.semaphore(name, slots, wait=wait, ttl=ttl, label=label, on_lost=report)

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
