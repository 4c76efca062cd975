//! A peer as the world sees it: it receives inputs and returns effects.

mod bare;
mod on_overlay;
pub mod whole;

use std::fmt::Debug;
use std::hash::Hash;

use peerlock_protocols::Grant;
use peerlock_types::{PeerId, Rng, Span, Ticket, Time};

pub use bare::Bare;
pub use on_overlay::{Catalogue, OnOverlay, OverlayNote, Routing, Settled};
pub use whole::Whole;

use crate::watch::{Broken, Watch};

/// One kind of peer. A peer draws random numbers and reads the clock only through its [`Cx`].
pub trait Actor: Sized {
    type Message: Clone + Debug;
    /// A peer has at most one pending timer of each name.
    type Timer: Clone + Debug + Eq + Hash;
    /// Commands of the workload beside requests and releases, such as to join through a given peer.
    type Command: Debug;
    /// Reports to watchers and the workload beside grants and their ends, such as that the peer has joined.
    type Note: Debug;
    /// State that survives a crash.
    type Disk: Default;
    /// A change of the disk. It takes time and is confirmed by [`Input::Written`].
    type Write: Debug;
    /// The watcher of rules on all peers together; `()` if there are none.
    type Structure: Watch<Self>;
    /// Lists that a step fills and the world empties. They are reused, so that a step does not allocate.
    type Buffers: Default;

    /// The names of the message types, in the order of [`Actor::kind`].
    const KINDS: &'static [&'static str];

    /// Whether grants come with an end ([`Effect::Until`]), at which clients leave by themselves, possibly before their
    /// peer notices.
    const REPORTS_ENDS: bool = false;

    /// Returns the index of the message's type in [`Actor::KINDS`], or `None` for maintenance traffic, which is neither
    /// counted nor traced.
    fn kind(message: &Self::Message) -> Option<usize>;

    /// Passes one input to the peer, which leaves its effects in `buffers`.
    fn step(&mut self, input: Input<Self>, cx: Cx<'_>, buffers: &mut Self::Buffers);

    /// Equivalent to [`Actor::step`]; most inputs are messages, and this saves wrapping them in an [`Input`].
    #[inline(always)]
    fn receive(&mut self, from: PeerId, message: Self::Message, cx: Cx<'_>, buffers: &mut Self::Buffers) {
        self.step(Input::Message { from, message }, cx, buffers);
    }

    /// Drains `buffers` and carries out the effects in order, until the first error.
    fn effects(buffers: &mut Self::Buffers, hands: &mut impl Hands<Self>) -> Result<(), Broken>;

    /// Returns the input that reports another peer's suspected crash; `None` if this kind detects crashes itself.
    fn gone(_peer: PeerId) -> Option<Input<Self>> {
        None
    }

    /// Returns the commands for a peer at its start and restart, for workloads that have none of their own.
    fn begin(_me: PeerId, _disk: &Self::Disk) -> Vec<Self::Command> {
        Vec::new()
    }

    /// Applies a completed write to the disk.
    fn write(_disk: &mut Self::Disk, _write: Self::Write) {}

    /// Applies a write that a crash interrupted: none of it, all of it, or a part.
    fn tear(_disk: &mut Self::Disk, _write: Self::Write, _rng: &mut Rng) {}

    /// Discards unsynced writes ([`Effect::WriteUnsynced`]) when the machine of a crashed peer reboots.
    fn reboot(_disk: &mut Self::Disk) {}

    fn lose(disk: &mut Self::Disk) {
        *disk = Self::Disk::default();
    }
}

/// Carries out the effects of a peer. The most frequent ones need not be wrapped in an [`Effect`].
pub trait Hands<A: Actor> {
    fn send(&mut self, to: PeerId, message: A::Message) -> Result<(), Broken>;

    fn grant(&mut self, ticket: Ticket, grant: Grant) -> Result<(), Broken>;

    fn carry_out(&mut self, effect: Effect<A>) -> Result<(), Broken>;
}

/// The context of a step: the peer, its clock and its random numbers.
pub struct Cx<'a> {
    pub me: PeerId,
    /// The time by its clock.
    pub now: Time,
    /// The random stream of all peers of this run.
    pub rng: &'a mut Rng,
}

pub enum Input<A: Actor> {
    Request {
        resource: usize,
        ticket: Ticket,
    },
    /// A client releases its slot, or withdraws while it waits.
    Release {
        resource: usize,
        ticket: Ticket,
    },
    Message {
        from: PeerId,
        message: A::Message,
    },
    Timer(A::Timer),
    /// The peer, as a replica, has lost its memory. `incarnation` is larger than in all lives before.
    Reset {
        incarnation: u64,
    },
    /// The oldest unconfirmed write is on the disk.
    Written,
    Command(A::Command),
}

/// An effect of a step. The world carries effects out in order.
pub enum Effect<A: Actor> {
    Send {
        to: PeerId,
        message: A::Message,
    },
    Grant {
        ticket: Ticket,
        grant: Grant,
    },
    /// The end of a holder's grant, by the clock of its peer. It then leaves by itself, even if it cannot reach its
    /// peer. A holder without an end leaves when its peer crashes.
    Until {
        ticket: Ticket,
        until: Time,
    },
    Lost {
        ticket: Ticket,
    },
    Refused {
        ticket: Ticket,
    },
    /// Replaces a pending timer of the same name. The delay is by the peer's clock.
    SetTimer {
        timer: A::Timer,
        after: Span,
    },
    CancelTimer {
        timer: A::Timer,
    },
    /// Write to the disk. Writes complete in order, one at a time.
    Write(A::Write),
    /// Write to storage that survives a crash of the peer but not of its machine. Takes effect immediately.
    WriteUnsynced(A::Write),
    Note(A::Note),
    /// An unexpected message was dropped. Breaks a rule in a run without faults.
    Unexpected {
        why: &'static str,
    },
    /// The peer uses something that such a world does not have: the run ends. `what` follows "peer 7".
    Impossible {
        what: &'static str,
    },
}
