"""The agent of this machine, and slots held through it."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, Callable, Optional, Type

from .acquisition import Acquisition, Grant, Request
from .transport import Transport, path_of


class Hold:
    """A slot to be held: a context manager for one use at a time.

    Leaving it releases the slot. If the slot was lost and the body raised nothing, leaving raises :class:`Lost`:
    another client may have held the slot meanwhile.
    """

    def __init__(self, transport: Transport, request: Request) -> None:
        self._transport = transport
        self._request = request
        self._lock = threading.Lock()
        self._acquisition: Optional[Acquisition] = None

    def acquire(self) -> Grant:
        """Waits for a slot, and holds it until :meth:`release`."""
        acquisition = self._open()
        try:
            return acquisition.acquire()
        except BaseException:
            self._close(acquisition)
            raise

    def release(self) -> None:
        """Releases the slot, or ends the wait for it. May be called from another thread."""
        release = self._leave()
        if release is not None:
            release()

    def conclude(self, succeeded: bool, hold: float, *, attempts: int = 3) -> bool:
        """Ends the use of the slot with the end of a run that takes place once per period.

        If the run has succeeded, or ``attempts`` runs of this period have failed, the slot is held for ``hold`` more
        seconds, also without this process; otherwise it is released. Returns whether it is held. ``period`` in
        :meth:`Agent.show` is the run. Raises an error if the end of the run was not recorded; the slot is then held as
        before.
        """
        acquisition = self._acquisition
        if acquisition is None:
            raise RuntimeError(f"this object holds no slot of {self._request.name!r}")
        holds = acquisition.conclude(succeeded, hold, attempts)
        self._close(acquisition)
        return holds

    def __enter__(self) -> Grant:
        return self.acquire()

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        acquisition = self._acquisition
        grant = acquisition.grant if acquisition is not None else None
        # Before the release, which ends the observation.
        is_lost = grant is not None and grant._is_lost()
        self.release()
        if grant is not None and is_lost and kind is None:
            raise grant._lost()

    def _open(self) -> Acquisition:
        with self._lock:
            if self._acquisition is not None:
                name = self._request.name
                raise RuntimeError(f"this object already holds or waits for {name!r}: create one object for each use")
            self._acquisition = Acquisition(self._transport, self._request)
            return self._acquisition

    def _leave(self) -> Optional[Callable[[], None]]:
        """Like :meth:`release`, but returns the part that may block, if any."""
        acquisition = self._acquisition
        return None if acquisition is None else self._end(acquisition)

    def _close(self, acquisition: Acquisition) -> None:
        release = self._end(acquisition)
        if release is not None:
            release()

    def _end(self, acquisition: Acquisition) -> Optional[Callable[[], None]]:
        if acquisition.is_copy():
            self._lock = threading.Lock()  # A thread of the parent may hold the old one.
        with self._lock:
            if self._acquisition is acquisition:
                self._acquisition = None
        return acquisition.close()


class Agent:
    """The agent of this machine.

    ``endpoint`` is the path of its socket or ``host:port``. The default is that of the commands: ``$PEERLOCK_AGENT``,
    otherwise this user's socket. ``token`` is the bearer token of an agent at ``host:port``: the content of the file
    ``token`` in its data directory, or of its ``--token-file``. Without ``endpoint`` and ``token``, the token is in
    ``$PEERLOCK_API_TOKEN``, or in the file ``$PEERLOCK_API_TOKEN_FILE``.
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
        """Returns a slot of a resource, not acquired yet.

        ``slots`` is the number of slots; ``None`` is the current number, or one for a new resource. ``wait`` limits the
        wait in seconds; 0 does not wait, ``None`` waits without limit. ``ttl`` is the lease in seconds: after this long
        without a renewal the slot is granted to others. ``label`` is shown by ``peerlock show``. ``on_lost`` is called
        once, from another thread, when the slot is lost.
        """
        return Hold(self._transport, Request(name, slots, wait, ttl, label, on_lost))

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
        """Removes a resource that is not in use.

        Raises ``Failed`` with the kind ``"in_use"`` if a client holds a slot or waits, or ``"no_such_resource"``.
        """
        self._transport.call("POST", f"{path_of(name)}/remove")

    def show(self, name: str) -> dict[str, Any]:
        """Returns the holders and the queue of a resource in the whole cluster; docs/api.md describes the fields."""
        shown = self._transport.call("GET", path_of(name))
        assert isinstance(shown, dict), "the answer is an object"
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
