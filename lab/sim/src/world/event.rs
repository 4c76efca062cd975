//! Everything that can happen in a world, and what goes wrong in it at random.

use peerlock_types::{PeerId, Span, Ticket};

use crate::actor::Actor;

/// Everything that can happen.
pub(super) enum Event<A: Actor, E> {
    Arrive {
        from: PeerId,
        to: PeerId,
        message: A::Message,
    },
    Timer {
        peer: PeerId,
        timer: A::Timer,
        set: u64,
    },
    /// A client leaves, or withdraws if it still waits.
    Leave {
        peer: PeerId,
        ticket: Ticket,
    },
    /// The oldest write of this peer is done, or has failed.
    Written {
        peer: PeerId,
        life: u32,
        fails: bool,
    },
    /// What a client was last told of its end may have come.
    End(Ticket),
    /// What happened to this peer while it was frozen, in this life.
    Thawed {
        peer: PeerId,
        life: u32,
        event: Box<Self>,
    },
    Workload(E),
    /// The peer of this client crashes, if it still waits or is inside.
    CrashOf {
        peer: PeerId,
        ticket: Ticket,
    },
    Reset(PeerId),
    Restart(PeerId),
    /// Everybody takes this peer for gone, if it is still down or frozen.
    Gone(PeerId),
    /// This peer is told that that one is gone.
    Notified {
        peer: PeerId,
        gone: PeerId,
    },
    /// Whoever is parted from others by the partition with this number takes those for gone, one after the other, this
    /// one and those with higher numbers.
    Parted {
        number: u64,
        from: PeerId,
    },
    Fault(Fault),
}

/// A fault that comes at random.
pub(super) enum Fault {
    /// Somebody crashes, and is down for this long.
    Crash(Span),
    /// Somebody crashes for good.
    Death,
    /// Somebody crashes, and is down for this long; the disk is lost.
    DiskLoss(Span),
    /// Everybody crashes.
    Outage,
    /// Somebody's disk is slow for this long.
    SlowDisk(Span),
    /// Somebody's disk is full.
    FullDisk,
    /// This share of the peers crashes for good.
    Catastrophe(f64),
    /// Somebody is frozen for this long.
    Freeze(Span),
    /// A partition begins that lasts this long.
    Partition(Span),
    /// The first of each kind is drawn.
    First,
}
