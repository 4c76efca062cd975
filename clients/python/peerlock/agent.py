"""The agent of this machine, and what is held through it."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, Callable, Optional, Type

from .transport import Transport, path_of
from .visit import Grant, Visit, Wish


class Hold:
    """A slot to be held: a context manager that may be entered once at a time.

    Leaving it gives the slot back. If the slot was lost meanwhile and nothing else was raised inside, leaving raises
    :class:`Lost`: what was done may have been done beside somebody else.
    """

    def __init__(self, transport: Transport, wish: Wish) -> None:
        self._transport = transport
        self._wish = wish
        self._lock = threading.Lock()
        self._visit: Optional[Visit] = None

    def acquire(self) -> Grant:
        """Waits for a slot, and keeps it until :meth:`release`."""
        visit = self._open()
        try:
            return visit.begin()
        except BaseException:
            self._close(visit)
            raise

    def release(self) -> None:
        """Gives the slot back, or stops waiting for it. May be called from another thread."""
        give_back = self._leave()
        if give_back is not None:
            give_back()

    def __enter__(self) -> Grant:
        return self.acquire()

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        visit = self._visit
        grant = visit.grant if visit is not None else None
        # Before it is given back: after that nobody looks any more.
        is_lost = grant is not None and grant._is_lost()
        self.release()
        if grant is not None and is_lost and kind is None:
            raise grant._lost()

    def _open(self) -> Visit:
        with self._lock:
            if self._visit is not None:
                name = self._wish.name
                raise RuntimeError(f"{name!r} is held or waited for by this object already: make one for each")
            self._visit = Visit(self._transport, self._wish)
            return self._visit

    def _leave(self) -> Optional[Callable[[], None]]:
        """As :meth:`release`, but returns what may take long, if anything is left to do."""
        visit = self._visit
        return None if visit is None else self._end(visit)

    def _close(self, visit: Visit) -> None:
        give_back = self._end(visit)
        if give_back is not None:
            give_back()

    def _end(self, visit: Visit) -> Optional[Callable[[], None]]:
        if visit.is_copy():
            self._lock = threading.Lock()  # A thread that is not here may have had the other.
        with self._lock:
            if self._visit is visit:
                self._visit = None
        return visit.close()


class Agent:
    """The agent of this machine.

    ``endpoint`` is the path of its socket or ``host:port``; without one it is looked for where the commands do:
    ``$PEERLOCK_AGENT``, else the socket of this user. ``token`` is the bearer token that an agent at ``host:port`` asks
    for: what is in the file ``token`` of its data folder, or in the one that its ``--token-file`` names. Without
    ``endpoint`` and ``token``, it is ``$PEERLOCK_API_TOKEN``, or what is in the file ``$PEERLOCK_API_TOKEN_FILE``.
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
        return Hold(self._transport, Wish(name, slots, wait, ttl, label, on_lost))

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
        self._transport.call("POST", f"{path_of(name)}/remove")

    def show(self, name: str) -> dict[str, Any]:
        """Who holds a resource and who waits, in the whole cluster: docs/api.md has the fields."""
        shown = self._transport.call("GET", path_of(name))
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
