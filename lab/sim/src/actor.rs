//! What a peer is to the world: something that is told what happens, and says what it wants done.

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

use crate::watch::Broken;

/// One kind of peer. A world is made for one kind, so nothing here is called through a pointer.
///
/// The peer itself draws no random number and reads no clock but those of its [`Cx`]. Types that a kind of peer has no
/// use for are [`Never`](peerlock_protocols::Never), or `()` for the disk.
pub trait Actor: Sized {
    /// What peers send each other.
    type Message: Clone + Debug;
    /// The names of the timers; at most one of each name is pending at a peer. A peer that only knows when it wants to
    /// be woken next has one timer, and sets it again when that moment has changed.
    type Timer: Clone + Debug + Eq + Hash;
    /// What the workload may tell it beside requests and releases, such as to join by way of somebody.
    type Command: Debug;
    /// What it tells watchers and the workload beside what becomes of clients, such as that it has joined.
    type Note: Debug;
    /// What a crash leaves of it.
    type Disk: Default;
    /// A change of its disk, which takes time and is confirmed by [`Input::Written`].
    type Write: Debug;
    /// Lists that a step fills and the world empties. They are used again, so that a step allocates nothing.
    type Buffers: Default;

    /// The names of the message types, in the order of [`Actor::kind`].
    const KINDS: &'static [&'static str];

    /// Clients are told ends ([`Effect::Until`]): they leave by themselves, and their peer may not know it yet.
    const REPORTS_ENDS: bool = false;

    /// The place of `message`'s type in [`Actor::KINDS`]; `None` if it is not the protocol's but upkeep, which is
    /// neither counted nor traced.
    fn kind(message: &Self::Message) -> Option<usize>;

    /// Hands one input to the peer, which leaves what it wants done in `buffers`.
    fn step(&mut self, input: Input<Self>, cx: Cx<'_>, buffers: &mut Self::Buffers);

    /// Hands it a message: as [`Actor::step`] does, but most of what happens is messages, which need not be put into an
    /// [`Input`] and taken out again.
    #[inline(always)]
    fn receive(&mut self, from: PeerId, message: Self::Message, cx: Cx<'_>, buffers: &mut Self::Buffers) {
        self.step(Input::Message { from, message }, cx, buffers);
    }

    /// Takes what the peer wants done out of `buffers` and has it done, in the order it was asked for.
    ///
    /// # Errors
    /// The first of `hands`; then nothing more is done.
    fn effects(buffers: &mut Self::Buffers, hands: &mut impl Hands<Self>) -> Result<(), Broken>;

    /// What a peer is told when another seems to be gone; `None` if its kind finds out by itself.
    fn gone(_peer: PeerId) -> Option<Input<Self>> {
        None
    }

    /// What a peer is told first, one after the other, when it begins and when it begins again with what its disk has
    /// kept; where the workload has nothing of its own to tell.
    fn begin(_me: PeerId, _disk: &Self::Disk) -> Vec<Self::Command> {
        Vec::new()
    }

    /// A write has reached the disk.
    fn write(_disk: &mut Self::Disk, _write: Self::Write) {}

    /// The peer has crashed while this was being written: nothing of it, all of it or something between is on the disk.
    fn tear(_disk: &mut Self::Disk, _write: Self::Write, _rng: &mut Rng) {}

    /// The machine of a peer that has crashed was started anew: what was kept at once ([`Effect::Keep`]) is not to be
    /// relied on any more.
    fn reboot(_disk: &mut Self::Disk) {}

    /// The disk is gone, and another is in its place.
    fn lose(disk: &mut Self::Disk) {
        *disk = Self::Disk::default();
    }
}

/// Does what a peer wants done.
///
/// What nearly all steps want has a door of its own, so that it need not be put into an [`Effect`] and taken out again.
pub trait Hands<A: Actor> {
    /// Does [`Effect::Send`].
    ///
    /// # Errors
    /// A rule was broken.
    fn send(&mut self, to: PeerId, message: A::Message) -> Result<(), Broken>;

    /// Does [`Effect::Grant`].
    ///
    /// # Errors
    /// A rule was broken.
    fn grant(&mut self, ticket: Ticket, grant: Grant) -> Result<(), Broken>;

    /// Does any of them.
    ///
    /// # Errors
    /// A rule was broken.
    fn carry_out(&mut self, effect: Effect<A>) -> Result<(), Broken>;
}

/// What a step may know: who, when by the peer's own clock, and chance.
pub struct Cx<'a> {
    /// The peer whose step this is.
    pub me: PeerId,
    /// The time by its clock.
    pub now: Time,
    /// Random numbers of this run, for what peers draw.
    pub rng: &'a mut Rng,
}

/// Everything that can happen to a peer.
pub enum Input<A: Actor> {
    /// A client asks.
    Request {
        /// For which resource, by its number.
        resource: usize,
        /// The client's ticket, unique in the run.
        ticket: Ticket,
    },
    /// A client leaves, or withdraws while it is still waiting.
    Release {
        /// The resource that it holds or waits for.
        resource: usize,
        /// As it was in `Request`.
        ticket: Ticket,
    },
    /// A message arrived.
    Message {
        /// The peer that had it in an [`Effect::Send`].
        from: PeerId,
        /// The message as it was sent.
        message: A::Message,
    },
    /// A timer ran out.
    Timer(A::Timer),
    /// The peer, as a replica, has lost what it keeps for others.
    Reset {
        /// The number of its new life, larger than any before: a reading of its clock.
        incarnation: u64,
    },
    /// The oldest write that was not confirmed yet is on the disk.
    Written,
    /// The workload wants something of it.
    Command(A::Command),
}

/// What a peer wants done. The world carries effects out in the order they were asked for.
pub enum Effect<A: Actor> {
    /// Send a message to another peer.
    Send {
        /// Who shall get it.
        to: PeerId,
        /// Arrives as [`Input::Message`], if it does.
        message: A::Message,
    },
    /// This client is inside from now on.
    Grant {
        /// The client, as it was in [`Input::Request`].
        ticket: Ticket,
        /// Which slot, and under which fencing number.
        grant: Grant,
    },
    /// This client, which is inside, is told that it may stay until then by its peer's clock, and no longer: also if
    /// nothing is heard of the peer any more. A client that was told no end leaves when its peer crashes.
    Until {
        /// The client, as it was in [`Input::Request`].
        ticket: Ticket,
        /// By the clock of its peer.
        until: Time,
    },
    /// This client was inside and is not any more.
    Lost {
        /// The client, as it was in [`Input::Request`].
        ticket: Ticket,
    },
    /// This client will not be let in.
    Refused {
        /// The client, as it was in [`Input::Request`].
        ticket: Ticket,
    },
    /// Wake the peer with `timer` after this long by its clock, instead of any earlier wish of that name.
    SetTimer {
        /// At most one of this name is pending.
        timer: A::Timer,
        /// How long from now.
        after: Span,
    },
    /// Forget the timer if it is pending.
    CancelTimer {
        /// As it was set.
        timer: A::Timer,
    },
    /// Write to the disk. Writes are done one after another, in order.
    Write(A::Write),
    /// Write where only the peer's machine can forget it, at once: it is there if the peer crashes right after.
    Keep(A::Write),
    /// For watchers and the workload.
    Note(A::Note),
    /// A message made no sense here and was dropped. Breaks a rule in a run without faults.
    Unexpected {
        /// What was strange, in words.
        why: &'static str,
    },
    /// The peer wants something that does not exist in such a world: the run is over.
    Impossible {
        /// What it does, in words that follow "peer 7".
        what: &'static str,
    },
}
