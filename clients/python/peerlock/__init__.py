"""Locks and semaphores across machines, held through the peerlock agent of this one.

    import peerlock

    with peerlock.lock("backup") as grant:
        store.write(data, fencing=grant.fencing)

    with peerlock.semaphore("gpu", slots=4, wait=60, label="training") as grant:
        train(device=grant.slot)

    async with peerlock.aio.lock("backup") as grant:
        await store.write(data, fencing=grant.fencing)

A slot is held for as long as its connection to the agent stands and its lease is renewed, which a thread does. A process
that dies frees it at once; one that is frozen loses it at the end of its lease. What is then done without the slot is
for the *fencing number* to stop: give it to whatever the slot protects, and let that refuse smaller ones.
"""

from . import aio
from .agent import Agent, Hold, lock, semaphore
from .errors import Error, Failed, Lost, NotAcquired, Unreachable
from .visit import Grant

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
