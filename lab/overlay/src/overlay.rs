//! The interface of every overlay.

use alloc::vec::Vec;
use core::fmt::Debug;
use core::hash::Hash;

use peerlock_types::{Key, PeerId, Rng, Span, Time};

use crate::{KeyRange, Node};

/// One peer of an overlay. Its state is comparable and hashable, so that it can be explored.
pub trait Overlay: Clone + Debug + Eq + Hash {
    /// The messages between peers.
    type Message: Clone + Debug + Eq + Hash;

    /// Creates a peer that has not joined.
    fn new(me: Node, config: Config) -> Self;

    /// Creates the settled state of the peer at `nodes[place]`. Sets no timer: pass [`Timer::Stabilize`] once to start
    /// the upkeep.
    ///
    /// # Panics
    ///
    /// If the nodes next to `place` are not in the order of their keys.
    fn converged(nodes: &[Node], place: usize, config: Config) -> Self;

    /// This peer and its key.
    fn me(&self) -> Node;

    /// The keys that this peer owns; `None` before the join is complete and after it has left.
    fn range(&self) -> Option<KeyRange>;

    /// The next hop of a message for `key`; `None` if this peer owns `key` or knows no other peer. A peer that is joining
    /// or has left returns a neighbour.
    fn next_hop(&self, key: Key) -> Option<PeerId>;

    /// The clockwise neighbours first, then the others, the nearest first. In a small ring both sides have the same
    /// peers.
    fn neighbours(&self) -> impl Iterator<Item = Node>;

    /// Joins the overlay of the peer `via`, or starts a new overlay. May be repeated with another `via`. A peer that
    /// has joined merges two overlays after a partition.
    ///
    /// # Panics
    ///
    /// If `via` is this peer.
    fn join(&mut self, via: Option<PeerId>, cx: &mut Cx<'_, Self::Message>);

    /// Leaves permanently. Drivers keep the peer for a while, so that it forwards messages in flight.
    fn leave(&mut self, cx: &mut Cx<'_, Self::Message>);

    /// Handles a message.
    fn on_message(&mut self, from: PeerId, message: Self::Message, cx: &mut Cx<'_, Self::Message>);

    /// Handles an expired timer.
    fn on_timer(&mut self, timer: Timer, cx: &mut Cx<'_, Self::Message>);

    /// Handles a report that `peer` cannot be reached.
    fn on_unreachable(&mut self, peer: PeerId, cx: &mut Cx<'_, Self::Message>);
}

/// The parameters of an overlay's upkeep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Neighbours on each side: Chord's r, and half of Pastry's |L|.
    pub side: usize,
    /// The mean interval between rounds of upkeep, each between 0.5 and 1.5 of it.
    pub stabilize: Span,
    /// The time to wait for an answer.
    pub answer: Span,
    /// The number of unanswered questions after which a peer counts as dead.
    pub tries: u8,
    /// The time for which a dead peer is not added again on hearsay.
    pub quarantine: Span,
}

impl Config {
    /// Chord's. The paper wants r to grow with log2 N: 16 is enough for 65,536 peers.
    pub const CHORD: Self = Self {
        side: 16,
        // Our choice: a dead neighbour is detected within 20 s, for about one message per peer and second.
        stabilize: Span::from_secs(10),
        // Our choice: longer than nearly every round trip on the Internet.
        answer: Span::from_secs(1),
        // Our choice: with 1 % loss, a living peer counts as dead once in a hundred thousand times.
        tries: 3,
        // Our choice: by then the dead peer's neighbours have noticed.
        quarantine: Span::from_secs(60),
    };

    /// Pastry's: |L| = 16, the paper's typical value; the rest as for Chord.
    pub const PASTRY: Self = Self { side: 8, ..Self::CHORD };
}

/// The timers; at most one of each name is pending at a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// The join has not been answered.
    Join,
    /// A round of upkeep is due.
    Stabilize,
    /// This peer has not answered.
    Silence(PeerId),
}

/// An action for the driver. Drivers carry effects out in order.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the text of an effect describes its fields")]
pub enum Effect<M> {
    /// Send to another peer.
    Send { to: PeerId, message: M },
    /// Set a timer, replacing a pending one of the same name.
    SetTimer { timer: Timer, after: Span },
    /// Cancel the timer if it is pending.
    CancelTimer { timer: Timer },
    /// This peer now owns these keys.
    Owns { range: Option<KeyRange> },
    /// An unexpected message was dropped.
    Unexpected { why: &'static str },
}

/// The context of a step: time, randomness, and the list of effects.
pub struct Cx<'a, M> {
    me: PeerId,
    now: Time,
    rng: &'a mut Rng,
    effects: &'a mut Vec<Effect<M>>,
}

impl<'a, M: Debug> Cx<'a, M> {
    /// A step of peer `me` at `now`; effects are appended to `effects`.
    pub fn new(me: PeerId, now: Time, rng: &'a mut Rng, effects: &'a mut Vec<Effect<M>>) -> Self {
        Self { me, now, rng, effects }
    }

    /// The time of this step.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The random numbers of this run.
    pub fn rng(&mut self) -> &mut Rng {
        self.rng
    }

    /// Sends to another peer.
    pub fn send(&mut self, to: PeerId, message: M) {
        debug_assert!(to != self.me, "{to:?} sends {message:?} to itself instead of calling");
        self.effects.push(Effect::Send { to, message });
    }

    /// Replaces a pending timer of the same name.
    pub fn set_timer(&mut self, timer: Timer, after: Span) {
        self.effects.push(Effect::SetTimer { timer, after });
    }

    /// Cancels a timer.
    pub fn cancel_timer(&mut self, timer: Timer) {
        self.effects.push(Effect::CancelTimer { timer });
    }

    /// Reports the owned keys.
    pub fn owns(&mut self, range: Option<KeyRange>) {
        self.effects.push(Effect::Owns { range });
    }

    /// Reports an unexpected message.
    pub fn unexpected(&mut self, why: &'static str) {
        self.effects.push(Effect::Unexpected { why });
    }
}

/// An input of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the text of an input describes its fields")]
pub enum Input<M> {
    /// Join, through this peer if any.
    Join(Option<PeerId>),
    /// Leave.
    Leave,
    /// A message from a sender authenticated by the network.
    Message { from: PeerId, message: M },
    /// A timer expired.
    Timer(Timer),
    /// A peer could not be reached.
    Unreachable(PeerId),
}

/// Passes one input to `peer`. Drivers need no other call.
pub fn step<O: Overlay>(peer: &mut O, input: Input<O::Message>, cx: &mut Cx<'_, O::Message>) {
    match input {
        Input::Join(via) => peer.join(via, cx),
        Input::Leave => peer.leave(cx),
        Input::Message { from, message } => peer.on_message(from, message, cx),
        Input::Timer(timer) => peer.on_timer(timer, cx),
        Input::Unreachable(peer_id) => peer.on_unreachable(peer_id, cx),
    }
}
