"""Locks and semaphores across machines, held through the peerlock agent of this machine.

    import peerlock

    with peerlock.lock("backup") as grant:
        store.write(data, fencing=grant.fencing)

    with peerlock.semaphore("gpu", slots=4, wait=60, label="training") as grant:
        train(device=grant.slot)

    async with peerlock.aio.lock("backup") as grant:
        await store.write(data, fencing=grant.fencing)

A slot is held while its connection to the agent is open and its lease is renewed, which a thread does. A process that
exits frees it at once; a frozen process loses it when its lease expires. Actions after that are stopped by the *fencing
number* only: pass it to whatever the slot protects, and let that refuse smaller numbers.
"""

from . import aio
from .acquisition import Grant
from .agent import Agent, Hold, lock, semaphore
from .errors import Error, Failed, Lost, NotAcquired, Unreachable

__all__ = [
    "Agent",
    "Error",
    "Failed",
    "Grant",
    "Hold",
    "Lost",
    "NotAcquired",
    "Unreachable",
    "aio",
    "lock",
    "semaphore",
]
