//! The interface of every overlay: inputs in, effects out.

use alloc::vec::Vec;
use core::fmt::Debug;
use core::hash::Hash;

use peerlock_types::{Key, PeerId, Rng, Span, Time};

use crate::{KeyRange, Node};

/// One peer's part in an overlay.
///
/// Plain verbs come down from the user above, `on_*` comes up from the network, `cx.verb()` goes out. The state is
/// comparable and hashable, so that it can be explored.
pub trait Overlay: Clone + Debug + Eq + Hash {
    /// The messages between peers.
    type Message: Clone + Debug + Eq + Hash;

    /// Creates a peer that has not joined yet.
    fn new(me: Node, config: Config) -> Self;

    /// Creates the settled state of the peer at `nodes[place]`, from complete knowledge of `nodes`, sorted by key.
    ///
    /// Sets no timer: a run without churn needs no repair. Pass [`Timer::Stabilize`] once to start its upkeep.
    ///
    /// # Panics
    ///
    /// Panics if the nodes next to `place` are not in the order of their keys.
    fn converged(nodes: &[Node], place: usize, config: Config) -> Self;

    /// Returns this peer and its key.
    fn me(&self) -> Node;

    /// Returns the keys that this peer owns; `None` before the join is complete and after it has left.
    fn range(&self) -> Option<KeyRange>;

    /// Returns the peer to pass a message for `key` to.
    ///
    /// `None` if this peer owns `key` or knows no other peer. A peer that is joining or has left owns nothing, and
    /// returns one of its neighbours. After [`Overlay::on_unreachable`] it returns another peer.
    fn next_hop(&self, key: Key) -> Option<PeerId>;

    /// Returns the neighbours: clockwise ones first, then the others, the nearest first. In a small ring both sides
    /// have the same peers.
    fn neighbours(&self) -> impl Iterator<Item = Node>;

    /// Joins the overlay of the peer `via`, or starts a new overlay without it. May be repeated with another `via`
    /// until [`Effect::Owns`] reports that the join is complete.
    ///
    /// A peer that has joined looks for its neighbours through `via` again. This merges two overlays after a partition.
    ///
    /// # Panics
    ///
    /// Panics if `via` is this peer.
    fn join(&mut self, via: Option<PeerId>, cx: &mut Cx<'_, Self::Message>);

    /// Leaves the overlay permanently. Drivers keep the peer for a while, so that it forwards messages that are still
    /// under way.
    fn leave(&mut self, cx: &mut Cx<'_, Self::Message>);

    /// Handles a message.
    fn on_message(&mut self, from: PeerId, message: Self::Message, cx: &mut Cx<'_, Self::Message>);

    /// Handles a timer that has expired.
    fn on_timer(&mut self, timer: Timer, cx: &mut Cx<'_, Self::Message>);

    /// Handles a report that `peer` cannot be reached. A living peer makes itself known again.
    fn on_unreachable(&mut self, peer: PeerId, cx: &mut Cx<'_, Self::Message>);
}

/// The parameters of an overlay's upkeep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// The number of neighbours on each side: Chord's r, and half of Pastry's |L|.
    pub side: usize,
    /// The mean interval between rounds of upkeep. Each is drawn between 0.5 and 1.5 of it, so that peers do not
    /// synchronise.
    pub stabilize: Span,
    /// The time to wait for an answer before asking again.
    pub answer: Span,
    /// The number of unanswered questions after which a peer counts as dead.
    pub tries: u8,
    /// The time for which a dead peer is not added again on the word of others.
    pub quarantine: Span,
}

impl Config {
    /// Defaults for Chord. The paper wants r to grow with log2 N: 16 is enough for 65,536 peers.
    pub const CHORD: Self = Self {
        side: 16,
        // Our choice: a dead neighbour is detected within 20 s, for about one message per peer and second.
        stabilize: Span::from_secs(10),
        // Our choice: longer than nearly every round trip on the Internet.
        answer: Span::from_secs(1),
        // Our choice: with 1 % loss, a living peer is taken for dead once in a hundred thousand times.
        tries: 3,
        // Our choice: by then the dead peer's neighbours have noticed and do not pass it on any more.
        quarantine: Span::from_secs(60),
    };

    /// Defaults for Pastry: |L| = 16, the paper's typical value; the rest as for Chord, for comparison.
    pub const PASTRY: Self = Self { side: 8, ..Self::CHORD };
}

/// The timers; at most one of each name is pending at a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// The join has not been answered: ask again.
    Join,
    /// A round of upkeep is due.
    Stabilize,
    /// This peer has not answered.
    Silence(PeerId),
}

/// An action for the driver. Drivers carry effects out in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect<M> {
    /// Send `message` to another peer.
    Send {
        /// The receiver.
        to: PeerId,
        /// The argument of the receiver's [`Overlay::on_message`].
        message: M,
    },
    /// Wake the peer with `timer` after `after`; a pending timer of the same name is replaced.
    SetTimer {
        /// The timer.
        timer: Timer,
        /// The time from now.
        after: Span,
    },
    /// Cancel the timer if it is pending.
    CancelTimer {
        /// The timer.
        timer: Timer,
    },
    /// Notify the user above: this peer now owns exactly these keys.
    Owns {
        /// The keys; `None` if the peer has left the overlay.
        range: Option<KeyRange>,
    },
    /// An unexpected message was dropped. Drivers count and trace it.
    Unexpected {
        /// The reason.
        why: &'static str,
    },
}

/// The context of a step: time, randomness, and the list of effects.
pub struct Cx<'a, M> {
    me: PeerId,
    now: Time,
    rng: &'a mut Rng,
    effects: &'a mut Vec<Effect<M>>,
}

impl<'a, M: Debug> Cx<'a, M> {
    /// Creates a context for a step of peer `me` at `now`; effects are appended to `effects`.
    pub fn new(me: PeerId, now: Time, rng: &'a mut Rng, effects: &'a mut Vec<Effect<M>>) -> Self {
        Self { me, now, rng, effects }
    }

    /// Returns the time of this step.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Returns the random numbers of this run.
    pub fn rng(&mut self) -> &mut Rng {
        self.rng
    }

    /// Sends `message` to another peer.
    pub fn send(&mut self, to: PeerId, message: M) {
        debug_assert!(to != self.me, "{to:?} sends itself {message:?}: what a peer tells itself is a call");
        self.effects.push(Effect::Send { to, message });
    }

    /// Sets `timer`, replacing a pending one of the same name.
    pub fn set_timer(&mut self, timer: Timer, after: Span) {
        self.effects.push(Effect::SetTimer { timer, after });
    }

    /// Cancels `timer`.
    pub fn cancel_timer(&mut self, timer: Timer) {
        self.effects.push(Effect::CancelTimer { timer });
    }

    /// Reports the keys that this peer owns from now on.
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
pub enum Input<M> {
    /// The user above joins, through this peer if any.
    Join(Option<PeerId>),
    /// The user above leaves.
    Leave,
    /// A message arrived.
    Message {
        /// The sender, authenticated by the network.
        from: PeerId,
        /// The message.
        message: M,
    },
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
