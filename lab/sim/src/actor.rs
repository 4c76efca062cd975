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
    /// At most one timer of each name is pending.
    type Timer: Clone + Debug + Eq + Hash;
    /// Commands of the workload beside requests and releases.
    type Command: Debug;
    /// Reports to watchers and the workload beside grants and their ends.
    type Note: Debug;
    /// State that survives a crash.
    type Disk: Default;
    type Write: Debug;
    /// The watcher of rules on all peers together.
    type Structure: Watch<Self>;
    /// Reused, so that a step does not allocate.
    type Buffers: Default;

    /// Clients leave by themselves at the reported end of their grant, possibly before their peer notices.
    const REPORTS_ENDS: bool = false;

    /// Returns the index in the list of kinds, or `None` for maintenance traffic, which is neither counted nor traced.
    fn kind(message: &Self::Message) -> Option<usize>;

    fn step(&mut self, input: Input<Self>, cx: Cx<'_>, buffers: &mut Self::Buffers);

    /// Equivalent to [`Actor::step`], without an [`Input`] around the most frequent one.
    #[inline(always)]
    fn receive(&mut self, from: PeerId, message: Self::Message, cx: Cx<'_>, buffers: &mut Self::Buffers) {
        self.step(Input::Message { from, message }, cx, buffers);
    }

    /// Drains `buffers` and carries out the effects in order, until the first error.
    fn effects(buffers: &mut Self::Buffers, hands: &mut impl Hands<Self>) -> Result<(), Broken>;

    /// Returns the input that reports another peer's suspected crash.
    fn gone(_peer: PeerId) -> Option<Input<Self>> {
        None
    }

    /// Returns the commands at start and restart, for workloads that have none of their own.
    fn begin(_me: PeerId, _disk: &Self::Disk) -> Vec<Self::Command> {
        Vec::new()
    }

    fn write(_disk: &mut Self::Disk, _write: Self::Write) {}

    /// Applies a write that a crash interrupted: none of it, all of it, or a part.
    fn tear(_disk: &mut Self::Disk, _write: Self::Write, _rng: &mut Rng) {}

    /// Discards unsynced writes.
    fn reboot(_disk: &mut Self::Disk) {}

    fn lose(disk: &mut Self::Disk) {
        *disk = Self::Disk::default();
    }
}

/// The most frequent effects need not be wrapped in an [`Effect`].
pub trait Hands<A: Actor> {
    fn send(&mut self, to: PeerId, message: A::Message) -> Result<(), Broken>;

    fn grant(&mut self, ticket: Ticket, grant: Grant) -> Result<(), Broken>;

    fn carry_out(&mut self, effect: Effect<A>) -> Result<(), Broken>;
}

pub struct Cx<'a> {
    pub me: PeerId,
    /// By the peer's clock.
    pub now: Time,
    /// Shared by all peers of a run.
    pub rng: &'a mut Rng,
}

pub enum Input<A: Actor> {
    Request { resource: usize, ticket: Ticket },
    // Also withdraws a waiting request.
    Release { resource: usize, ticket: Ticket },
    Message { from: PeerId, message: A::Message },
    Timer(A::Timer),
    // A replica has lost its memory.
    Reset { incarnation: u64 },
    // The oldest unconfirmed write is on the disk.
    Written,
    Command(A::Command),
}

pub enum Effect<A: Actor> {
    /// Arrives as [`Input::Message`], unless it is lost.
    Send { to: PeerId, message: A::Message },
    /// Answers [`Input::Request`].
    Grant { ticket: Ticket, grant: Grant },
    /// The end of a grant, by the peer's clock. The holder then leaves by itself; without an end it leaves when its
    /// peer crashes.
    Until { ticket: Ticket, until: Time },
    /// A holder has lost its slot.
    Lost { ticket: Ticket },
    /// A waiting request has ended.
    Refused { ticket: Ticket },
    /// Replaces a pending timer of the same name.
    SetTimer { timer: A::Timer, after: Span },
    /// Without effect if the timer is not pending.
    CancelTimer { timer: A::Timer },
    /// Completes later and in order.
    Write(A::Write),
    /// Survives a crash of the peer but not of its machine. Takes effect immediately.
    WriteUnsynced(A::Write),
    /// For watchers and the workload.
    Note(A::Note),
    /// Breaks a rule in a run without faults.
    Unexpected { why: &'static str },
    /// Ends the run. `what` follows "peer 7".
    Impossible { what: &'static str },
}
