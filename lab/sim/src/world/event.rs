use peerlock_types::{PeerId, Span, Ticket};

use crate::actor::Actor;
use crate::faults::FaultKind;

pub(super) enum Scheduled<A: Actor, E> {
    Arrive { from: PeerId, to: PeerId, message: A::Message },
    Timer { peer: PeerId, timer: A::Timer, set: u64 },
    Leave { peer: PeerId, ticket: Ticket },
    Written { peer: PeerId, life: u32, fails: bool },
    // The end of a client's grant may have come.
    End(Ticket),
    // Deferred while this peer, in this life, was frozen.
    Thawed { peer: PeerId, life: u32, event: Box<Self> },
    Workload(E),
    // The peer of this client crashes, if the client still waits or holds.
    CrashOf { peer: PeerId, ticket: Ticket },
    Reset(PeerId),
    Restart(PeerId),
    // All peers suspect this peer, if it is still down or frozen.
    Gone(PeerId),
    Notified { peer: PeerId, gone: PeerId },
    // The peers separated by this partition suspect each other; handles this peer, then those with higher numbers.
    Parted { number: u64, from: PeerId },
    Fault(Fault),
}

pub(super) enum Fault {
    First,
    Catastrophe(f64),
    Random(FaultKind, Span),
}
