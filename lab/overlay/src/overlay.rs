//! The interface of every overlay.

use alloc::vec::Vec;
use core::fmt::Debug;
use core::hash::Hash;

use peerlock_types::{Key, PeerId, Rng, Span, Time};

use crate::{KeyRange, Node};

pub trait Overlay: Clone + Debug + Eq + Hash {
    type Message: Clone + Debug + Eq + Hash;

    fn new(me: Node, config: Config) -> Self;

    /// Creates the settled peer `nodes[place]`. Pass [`Timer::Stabilize`] once to start the upkeep.
    ///
    /// # Panics
    ///
    /// If the nodes next to `place` are not in the order of their keys.
    fn converged(nodes: &[Node], place: usize, config: Config) -> Self;

    fn me(&self) -> Node;

    /// The owned keys; `None` outside the ring.
    fn range(&self) -> Option<KeyRange>;

    /// Returns the next hop to `key`, outside the ring a neighbour; `None` if this peer owns the key or knows no peer.
    fn next_hop(&self, key: Key) -> Option<PeerId>;

    /// Returns the neighbours, the clockwise ones first. In a small ring some are on both sides.
    fn neighbours(&self) -> impl Iterator<Item = Node>;

    /// Joins the overlay of the peer `via`, or starts a new one. If this peer has joined another, the two merge.
    ///
    /// # Panics
    ///
    /// If `via` is this peer.
    fn join(&mut self, via: Option<PeerId>, cx: &mut Cx<'_, Self::Message>);

    /// Leaves permanently. Drivers let the peer forward messages in flight.
    fn leave(&mut self, cx: &mut Cx<'_, Self::Message>);

    fn on_message(&mut self, from: PeerId, message: Self::Message, cx: &mut Cx<'_, Self::Message>);

    fn on_timer(&mut self, timer: Timer, cx: &mut Cx<'_, Self::Message>);

    fn on_unreachable(&mut self, peer: PeerId, cx: &mut Cx<'_, Self::Message>);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Neighbours on each side: Chord's r, and half of Pastry's |L|.
    pub side: usize,
    /// The mean interval between rounds of upkeep.
    pub stabilize: Span,
    /// The time to wait for an answer.
    pub answer: Span,
    /// Unanswered questions after which a peer counts as dead.
    pub tries: u8,
    /// How long a dead peer is not added again on hearsay.
    pub quarantine: Span,
}

impl Config {
    /// The paper wants r to grow with log2 N: 16 is enough for 65,536 peers.
    pub const CHORD: Self = Self {
        side: 16,
        // Our choice: a dead neighbour is detected within 20 s.
        stabilize: Span::from_secs(10),
        // Our choice: longer than nearly every round trip.
        answer: Span::from_secs(1),
        // Our choice: with 1 % loss, one error in a hundred thousand.
        tries: 3,
        quarantine: Span::from_secs(60), // Our choice.
    };

    /// |L| = 16, the paper's typical value.
    pub const PASTRY: Self = Self { side: 8, ..Self::CHORD };
}

/// The timers of an unanswered join, of upkeep and of a silent peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    Join,
    Stabilize,
    Silence(PeerId),
}

/// An action for the driver, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect<M> {
    Send { to: PeerId, message: M },
    SetTimer { timer: Timer, after: Span },
    CancelTimer { timer: Timer },
    Owns { range: Option<KeyRange> },
    Unexpected { why: &'static str },
}

pub struct Cx<'a, M> {
    me: PeerId,
    now: Time,
    rng: &'a mut Rng,
    effects: &'a mut Vec<Effect<M>>,
}

impl<'a, M: Debug> Cx<'a, M> {
    pub fn new(me: PeerId, now: Time, rng: &'a mut Rng, effects: &'a mut Vec<Effect<M>>) -> Self {
        Self { me, now, rng, effects }
    }

    pub fn now(&self) -> Time {
        self.now
    }

    pub fn rng(&mut self) -> &mut Rng {
        self.rng
    }

    pub fn send(&mut self, to: PeerId, message: M) {
        debug_assert!(to != self.me, "{to:?} sends {message:?} to itself instead of calling");
        self.effects.push(Effect::Send { to, message });
    }

    pub fn set_timer(&mut self, timer: Timer, after: Span) {
        self.effects.push(Effect::SetTimer { timer, after });
    }

    pub fn cancel_timer(&mut self, timer: Timer) {
        self.effects.push(Effect::CancelTimer { timer });
    }

    pub fn owns(&mut self, range: Option<KeyRange>) {
        self.effects.push(Effect::Owns { range });
    }

    pub fn unexpected(&mut self, why: &'static str) {
        self.effects.push(Effect::Unexpected { why });
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input<M> {
    /// The peer joins, through another if any.
    Join(Option<PeerId>),
    Leave,
    /// The network has authenticated the sender.
    Message {
        from: PeerId,
        message: M,
    },
    Timer(Timer),
    Unreachable(PeerId),
}

/// Passes one input to `peer`, and reports whether it has changed the owned keys. Drivers need no other call.
pub fn step<O: Overlay>(peer: &mut O, input: Input<O::Message>, cx: &mut Cx<'_, O::Message>) {
    let before = peer.range();
    match input {
        Input::Join(via) => peer.join(via, cx),
        Input::Leave => peer.leave(cx),
        Input::Message { from, message } => peer.on_message(from, message, cx),
        Input::Timer(timer) => peer.on_timer(timer, cx),
        Input::Unreachable(peer_id) => peer.on_unreachable(peer_id, cx),
    }
    if peer.range() != before {
        cx.owns(peer.range());
    }
}
