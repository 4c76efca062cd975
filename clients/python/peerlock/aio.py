"""The same for asyncio. A body whose slot is lost is cancelled, and leaving it raises :class:`peerlock.Lost`.

``on_lost`` is called once before that, from the event loop.
"""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import Any, Callable, Optional, Type

from .agent import Agent as Plain
from .agent import Grant, Hold


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

    async def __aenter__(self) -> Grant:
        self._loop, self._task, self._cancelled = asyncio.get_running_loop(), asyncio.current_task(), False
        waiting: asyncio.Future[Grant] = self._loop.create_future()
        # A thread of its own: those of the loop's executor are few, and who waits here would keep others from asking.
        threading.Thread(target=self._acquire, args=(self._loop, waiting), daemon=True).start()
        try:
            self._grant = await waiting
        except asyncio.CancelledError:
            self._hold.release()  # Ends the wait in the other thread.
            raise
        return self._grant

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        grant, self._grant, self._task = self._grant, None, None
        self._hold.release()
        if grant is not None and (kind is None or self._cancelled and kind is asyncio.CancelledError):
            grant.check()

    def _acquire(self, loop: asyncio.AbstractEventLoop, waiting: "asyncio.Future[Grant]") -> None:
        def settle(settle_with: Callable[[Any], None], value: Any) -> None:
            if waiting.cancelled():
                self._hold.release()
            else:
                settle_with(value)

        try:
            grant = self._hold.acquire()
        except BaseException as error:  # Whatever it is, it is for who waits.
            _call(loop, settle, waiting.set_exception, error)
        else:
            _call(loop, settle, waiting.set_result, grant)

    def _told_lost(self, _: Grant) -> None:
        """From another thread."""
        if self._loop is not None:
            _call(self._loop, self._lose)

    def _lose(self) -> None:
        if self._task is not None and self._grant is not None:
            if self._on_lost is not None:
                self._on_lost(self._grant)
            self._cancelled = True
            self._task.cancel("the slot is lost")


def _call(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *args: Any) -> None:
    try:
        loop.call_soon_threadsafe(call, *args)
    except RuntimeError:
        pass  # The loop has ended, and the body with it.


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
