//! The one form of every overlay: events in, effects out.

use alloc::vec::Vec;
use core::fmt::Debug;
use core::hash::Hash;

use peerlock_base::{Key, PeerId, Rng, Span, Time};

use crate::{KeyRange, Node};

/// One peer's part in an overlay.
///
/// Plain verbs come down from the user above, `on_*` comes up from the network, `cx.verb()` goes out. The state can be
/// compared and hashed, so that it can be explored.
pub trait Overlay: Clone + Debug + Eq + Hash {
    /// What peers say to each other.
    type Message: Clone + Debug + Eq + Hash;

    /// A peer that has not joined yet.
    fn new(me: Node, config: Config) -> Self;

    /// The peer at `nodes[place]` as it is when everything has settled, from knowledge of all `nodes`, sorted by key.
    ///
    /// Sets no timer: a run without churn needs no repair. Hand it [`Timer::Stabilize`] once to start its upkeep.
    ///
    /// # Panics
    /// If the nodes next to `place` are not in the order of their keys.
    fn converged(nodes: &[Node], place: usize, config: Config) -> Self;

    /// This peer and its key.
    fn me(&self) -> Node;

    /// The keys that this peer owns; `None` before the join is complete and after it has left.
    fn range(&self) -> Option<KeyRange>;

    /// The peer to hand a message for `key` to.
    ///
    /// `None` if we own `key`, or if we know of nobody else. A peer that is still joining or has left owns nothing, and
    /// names one of its neighbours. After [`Overlay::on_unreachable`] ask again: it names another peer.
    fn next_hop(&self, key: Key) -> Option<PeerId>;

    /// The peers next to us: first those clockwise, then those the other way, the nearest first. A small ring has the
    /// same peers on both sides.
    fn neighbours(&self) -> impl Iterator<Item = Node>;

    /// Joins the overlay of the peer `via`; without it, starts a new overlay with ourselves alone. May be repeated
    /// with another `via` until the join is complete: [`Effect::Owns`] tells.
    ///
    /// In an overlay already, it looks for its neighbours through `via` once more. If the network had fallen apart, and
    /// `via` was on the other side, this is how the two overlays grow together again.
    ///
    /// # Panics
    /// If `via` is ourselves.
    fn join(&mut self, via: Option<PeerId>, cx: &mut Cx<'_, Self::Message>);

    /// Leaves for good. Drivers keep the peer for a while, so that it hands on what is still under way to it.
    fn leave(&mut self, cx: &mut Cx<'_, Self::Message>);

    /// A message arrived.
    fn on_message(&mut self, from: PeerId, message: Self::Message, cx: &mut Cx<'_, Self::Message>);

    /// A timer that was set and not cancelled has run out.
    fn on_timer(&mut self, timer: Timer, cx: &mut Cx<'_, Self::Message>);

    /// The user or the network could not reach `peer`. If it is alive after all, it will be heard from again.
    fn on_unreachable(&mut self, peer: PeerId, cx: &mut Cx<'_, Self::Message>);
}

/// How an overlay is kept in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// How many neighbours are kept on each side: Chord's r, and half of Pastry's |L|.
    pub side: usize,
    /// The mean time from one round of upkeep to the next. Each is drawn between half and one and a half of it, so
    /// that peers do not fall into step.
    pub stabilize: Span,
    /// How long to wait for an answer before asking again.
    pub answer: Span,
    /// How often a peer is asked in vain before it is taken for dead.
    pub tries: u8,
    /// How long a peer taken for dead is not taken up again on the word of others.
    pub quarantine: Span,
}

impl Config {
    /// Defaults for Chord. The paper wants r to grow with log2 N: 16 is enough for 65,536 peers.
    pub const CHORD: Self = Self {
        side: 16,
        // Our choice: a dead neighbour is found out in less than 20 s, for about one message per peer and second.
        stabilize: Span::from_secs(10),
        // Our choice: longer than nearly every round trip on the Internet.
        answer: Span::from_secs(1),
        // Our choice: with one message in a hundred lost, a live peer is taken for dead once in a hundred thousand.
        tries: 3,
        // Our choice: by then the dead peer's neighbours have noticed, and nobody speaks of it any more.
        quarantine: Span::from_secs(60),
    };

    /// Defaults for Pastry: |L| = 16, the paper's typical value. The rest as for Chord, so that they can be compared.
    pub const PASTRY: Self = Self { side: 8, ..Self::CHORD };
}

/// The names of the timers; at most one of each name is pending at a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// The join has not been answered: ask again.
    Join,
    /// Time for a round of upkeep.
    Stabilize,
    /// This peer has not answered.
    Silence(PeerId),
}

/// What a peer wants done. The driver carries effects out in the order they were asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect<M> {
    /// Send `message` to another peer.
    Send {
        /// Who shall get it.
        to: PeerId,
        /// For its [`Overlay::on_message`].
        message: M,
    },
    /// Wake the peer with `timer` after `after`; a pending timer of the same name is replaced.
    SetTimer {
        /// At most one of this name is pending.
        timer: Timer,
        /// How long from now.
        after: Span,
    },
    /// Forget the timer if it is pending.
    CancelTimer {
        /// As it was set.
        timer: Timer,
    },
    /// Tell the user above: from now on we own these keys, and no others.
    Owns {
        /// The keys; `None` if we are not in the overlay any more.
        range: Option<KeyRange>,
    },
    /// A message made no sense here and was dropped. Drivers count and trace it.
    Strange {
        /// What was strange, in words.
        why: &'static str,
    },
}

/// What a handler may know and do: the time, chance, and a list of effects to add to.
pub struct Cx<'a, M> {
    me: PeerId,
    now: Time,
    rng: &'a mut Rng,
    effects: &'a mut Vec<Effect<M>>,
}

impl<'a, M: Debug> Cx<'a, M> {
    /// A context for one step of peer `me` at `now`; effects are appended to `effects`.
    pub fn new(me: PeerId, now: Time, rng: &'a mut Rng, effects: &'a mut Vec<Effect<M>>) -> Self {
        Self { me, now, rng, effects }
    }

    /// The time of this step.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Random numbers of this run.
    pub fn rng(&mut self) -> &mut Rng {
        self.rng
    }

    /// Sends `message` to another peer.
    pub fn send(&mut self, to: PeerId, message: M) {
        debug_assert!(to != self.me, "{to:?} sends itself {message:?}: what a peer tells itself is a call");
        self.effects.push(Effect::Send { to, message });
    }

    /// Asks for [`Overlay::on_timer`] after `after`, instead of any earlier wish for the same `timer`.
    pub fn set_timer(&mut self, timer: Timer, after: Span) {
        self.effects.push(Effect::SetTimer { timer, after });
    }

    /// Takes the wish for `timer` back.
    pub fn cancel_timer(&mut self, timer: Timer) {
        self.effects.push(Effect::CancelTimer { timer });
    }

    /// Tells the user above which keys are ours from now on.
    pub fn owns(&mut self, range: Option<KeyRange>) {
        self.effects.push(Effect::Owns { range });
    }

    /// Reports a message that made no sense here.
    pub fn strange(&mut self, why: &'static str) {
        self.effects.push(Effect::Strange { why });
    }
}

/// Everything that can happen to a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input<M> {
    /// The user above wants in, through this peer if any.
    Join(Option<PeerId>),
    /// The user above wants out.
    Leave,
    /// A message arrived.
    Message {
        /// The peer at the other end, as the network vouches for it.
        from: PeerId,
        /// The message as it was sent.
        message: M,
    },
    /// A timer ran out.
    Timer(Timer),
    /// A peer could not be reached.
    Unreachable(PeerId),
}

/// Hands one input to `peer`. Drivers need no other call.
pub fn step<O: Overlay>(peer: &mut O, input: Input<O::Message>, cx: &mut Cx<'_, O::Message>) {
    match input {
        Input::Join(via) => peer.join(via, cx),
        Input::Leave => peer.leave(cx),
        Input::Message { from, message } => peer.on_message(from, message, cx),
        Input::Timer(timer) => peer.on_timer(timer, cx),
        Input::Unreachable(peer_id) => peer.on_unreachable(peer_id, cx),
    }
}
