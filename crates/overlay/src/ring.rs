//! The ring that both overlays stand on: every peer knows its neighbours on both sides, and keeps that knowledge true.
//!
//! This is the upkeep of Chord (Stoica et al., "Chord: A Scalable Peer-to-peer Lookup Protocol for Internet
//! Applications": *stabilize*, *notify*, *check_predecessor*). Clockwise lies its successor list; Pastry's leaf
//! set is the lists of both sides.
//!
//! ```text
//!   p              n              s
//!   │              │  exchange    │        each round with the nearest clockwise (stabilize and notify in one)
//!   │              ├─────────────►│        s takes n for its left neighbour, and n's left list for its own
//!   │              │  exchanged   │
//!   │              │◄─────────────┤        n takes s's right list for its own; if s knows somebody between
//!   │   exchange   │              │        the two, n turns to that peer at once
//!   ├─────────────►│   …          │
//! ```
//!
//! *Departure:* the left side is a list too, not only the predecessor, so that the peer behind a dead neighbour is
//! known at once, and with it the range of keys that we own.
//!
//! *Departure:* nobody becomes the nearest neighbour on the word of others, only when heard from itself: a rumour about
//! a dead peer must not change who owns what. A place farther away may be filled by hearsay; when its turn comes to be
//! the nearest, it is asked.
//!
//! *Departure:* a peer that joins owns nothing before both neighbours have answered it, so that none of them still
//! thinks that the keys are its own.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt::Debug;

use peerlock_base::{Key, PeerId, Time};

use crate::side::{Side, Way};
use crate::{Config, Cx, Node, Timer};

/// The neighbours of a peer, the nearest first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Lists {
    /// Those towards smaller keys.
    pub left: Vec<Node>,
    /// Those that follow clockwise.
    pub right: Vec<Node>,
    /// Whether the one who tells them is in the ring. Who is on its way in knows few, and leaves out many in between:
    /// nobody gives up for its list what it knows itself.
    pub settled: bool,
}

impl Lists {
    fn nodes(&self) -> impl Iterator<Item = Node> {
        self.left.iter().chain(&self.right).copied()
    }
}

/// What neighbours say to each other. `key` is always the sender's own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Message {
    /// *stabilize* and *notify*: to the nearest neighbour, each round and whenever it is a new one. Answered by
    /// `Exchanged`, or by `Leave` from a peer that is not in the ring.
    Exchange {
        /// Where the sender lies.
        key: Key,
        /// Whom it knows.
        lists: Lists,
    },
    /// The answer to `Exchange`, with the same of the one who answers.
    Exchanged {
        /// Where the sender lies.
        key: Key,
        /// Whom it knows.
        lists: Lists,
    },
    /// Are you there? Answered by `Pong`, or by `Leave` from a peer that is not in the ring.
    Ping {
        /// Where the sender lies.
        key: Key,
    },
    /// I am here: answers `Ping`, and confirms what is forwarded from hop to hop.
    Pong {
        /// Where the sender lies.
        key: Key,
    },
    /// I am not in the ring, or not any more: to both neighbours when leaving, and later in answer to anything else.
    Leave {
        /// Whom the sender knew.
        lists: Lists,
    },
}

/// At most this many are remembered who are not there, or have answered while we join: far more than anybody has to do
/// with within a quarantine. Strangers may name any number.
const MOST_NAMED: usize = 1024;

/// What a message of the ring means to the table of long jumps above.
pub(crate) enum Heard {
    /// This node is alive and in the ring.
    Node(Node),
    /// The sender is not in the ring.
    Leave,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// Not in the ring: not yet, or not any more. Then the former neighbours are still known.
    Outside,
    /// On the way in through `via`.
    Joining {
        via: PeerId,
        /// Who knows of us, because we have exchanged neighbours.
        answered: Vec<PeerId>,
    },
    Joined,
}

/// One peer's place in the ring.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ring {
    me: Node,
    config: Config,
    phase: Phase,
    /// *predecessor*, and those before it. Empty only if `right` is empty too.
    left: Side,
    /// The successor list.
    right: Side,
    /// The left neighbour has exchanged with us since the last round, so that there is no need to ask it.
    heard_left: bool,
    /// From whom an answer is due, and how often we have asked.
    awaited: BTreeMap<PeerId, u8>,
    /// Who is taken for dead, and until when.
    gone: BTreeMap<PeerId, Time>,
}

impl Ring {
    pub(crate) fn new(me: Node, config: Config) -> Self {
        Self {
            me,
            config,
            phase: Phase::Outside,
            left: Side::new(me.key, Way::Back, config.side),
            right: Side::new(me.key, Way::Clockwise, config.side),
            heard_left: false,
            awaited: BTreeMap::new(),
            gone: BTreeMap::new(),
        }
    }

    pub(crate) fn converged(nodes: &[Node], place: usize, config: Config) -> Self {
        for pair in nodes[place.saturating_sub(1)..nodes.len().min(place + 2)].windows(2) {
            assert!(pair[0].key < pair[1].key, "nodes are sorted by key, and no two have the same: {pair:?}");
        }
        Self {
            phase: Phase::Joined,
            left: Side::converged(nodes, place, Way::Back, config.side),
            right: Side::converged(nodes, place, Way::Clockwise, config.side),
            ..Self::new(nodes[place], config)
        }
    }

    pub(crate) fn me(&self) -> Node {
        self.me
    }

    pub(crate) fn left(&self) -> &Side {
        &self.left
    }

    pub(crate) fn right(&self) -> &Side {
        &self.right
    }

    /// What we tell others of our neighbours.
    pub(crate) fn lists(&self) -> Lists {
        Lists { left: self.left.nodes().to_vec(), right: self.right.nodes().to_vec(), settled: self.is_joined() }
    }

    /// All neighbours, first those clockwise.
    pub(crate) fn neighbours(&self) -> impl Iterator<Item = Node> {
        self.right.nodes().iter().chain(self.left.nodes()).copied()
    }

    pub(crate) fn is_joined(&self) -> bool {
        self.phase == Phase::Joined
    }

    pub(crate) fn is_outside(&self) -> bool {
        self.phase == Phase::Outside
    }

    /// The peer that we join through.
    pub(crate) fn via(&self) -> Option<PeerId> {
        match self.phase {
            Phase::Joining { via, .. } => Some(via),
            Phase::Outside | Phase::Joined => None,
        }
    }

    /// Whether the two sides meet at the back of the ring, so that we know everybody.
    pub(crate) fn is_whole(&self) -> bool {
        match (self.left.farthest(), self.right.farthest()) {
            (Some(left), Some(right)) => {
                left.key.distance(self.me.key).checked_add(self.me.key.distance(right.key)).is_none()
            }
            _ => true,
        }
    }

    /// Whether `key` lies between the farthest neighbours, so that we know who is nearest to it.
    pub(crate) fn spans(&self, key: Key) -> bool {
        match (self.left.farthest(), self.right.farthest()) {
            (Some(left), Some(right)) => self.is_whole() || left.key.distance(key) <= left.key.distance(right.key),
            _ => true,
        }
    }

    /// *create* and the first half of *join*: the request itself is the overlay's to send.
    pub(crate) fn join<M: Debug>(&mut self, via: Option<PeerId>, cx: &mut Cx<'_, M>) {
        assert!(via != Some(self.me.peer), "a peer cannot join through itself");
        *self = Self::new(self.me, self.config);
        match via {
            Some(via) => self.phase = Phase::Joining { via, answered: Vec::new() },
            None => self.enter(cx),
        }
    }

    /// Asks again for a join that has not come to an end by then. By then a dead neighbour is found out, too.
    pub(crate) fn arm_join<M: Debug>(&self, cx: &mut Cx<'_, M>) {
        if self.via().is_none() {
            return;
        }
        let patience = self.config.answer * u64::from(self.config.tries);
        let after = cx.rng().between(patience * 2, patience * 3);
        cx.set_timer(Timer::Join, after);
    }

    /// The owner of our key has told us who its neighbours are, who will be ours.
    pub(crate) fn on_welcome<M: From<Message> + Debug>(&mut self, from: Node, lists: &Lists, cx: &mut Cx<'_, M>) {
        match self.phase {
            Phase::Joining { .. } => self.rescue(lists.nodes().chain([from]), cx),
            // Welcomed twice, or to another ring that ours has been cut off from: the nearest tie the two together.
            Phase::Joined => {
                self.court_nearer(|| lists.nodes().chain([from]), cx);
            }
            Phase::Outside => {}
        }
    }

    /// Takes up `nodes` on hearsay when there is nobody better, and asks the nearest.
    pub(crate) fn rescue<M: From<Message> + Debug>(&mut self, nodes: impl Iterator<Item = Node>, cx: &mut Cx<'_, M>) {
        for node in nodes {
            if self.may_be(node) {
                self.left.insert(node);
                self.right.insert(node);
            }
        }
        self.court(cx);
    }

    /// Leaves: both neighbours are told, and later whoever asks.
    pub(crate) fn leave<M: From<Message> + Debug>(&mut self, cx: &mut Cx<'_, M>) {
        if self.is_joined() {
            let (left, right) = (self.left.nearest(), self.right.nearest());
            for node in left.into_iter().chain(right.filter(|right| left != Some(*right))) {
                self.say_goodbye(node.peer, cx);
            }
        }
        self.phase = Phase::Outside;
        cx.cancel_timer(Timer::Join);
        cx.cancel_timer(Timer::Stabilize);
        while let Some((peer, _)) = self.awaited.pop_first() {
            cx.cancel_timer(Timer::Silence(peer));
        }
    }

    /// Tells `to` that we are not in the ring.
    pub(crate) fn say_goodbye<M: From<Message> + Debug>(&self, to: PeerId, cx: &mut Cx<'_, M>) {
        cx.send(to, Message::Leave { lists: self.lists() }.into());
    }

    /// Any message from `from` shows that it is alive.
    pub(crate) fn hear<M: Debug>(&mut self, from: PeerId, cx: &mut Cx<'_, M>) {
        self.gone.remove(&from);
        if self.awaited.remove(&from).is_some() {
            cx.cancel_timer(Timer::Silence(from));
        }
    }

    /// Returns nothing for what is strange, or comes too late.
    pub(crate) fn on_message<M: From<Message> + Debug>(
        &mut self,
        from: PeerId,
        message: Message,
        cx: &mut Cx<'_, M>,
    ) -> Option<Heard> {
        let node = match message {
            Message::Exchange { key, lists } => {
                let node = self.accept(from, key, cx)?;
                let nearer = self.on_exchange(node, &lists, cx);
                cx.send(from, Message::Exchanged { key: self.me.key, lists: self.lists() }.into());
                self.try_enter(from, nearer, cx);
                node
            }
            Message::Exchanged { key, lists } => {
                let node = self.accept(from, key, cx)?;
                let nearer = self.on_exchange(node, &lists, cx);
                self.try_enter(from, nearer, cx);
                node
            }
            Message::Ping { key } => {
                let node = self.accept(from, key, cx)?;
                self.meet(node, cx);
                self.confirm(from, cx);
                node
            }
            Message::Pong { key } => {
                let node = self.accept(from, key, cx)?;
                self.meet(node, cx);
                node
            }
            Message::Leave { lists } => {
                self.on_leave(from, &lists, cx);
                return Some(Heard::Leave);
            }
        };
        Some(Heard::Node(node))
    }

    /// The sender of a message, if it makes sense and we are in the ring.
    ///
    /// If we are not, the sender is told, also when it only answers: it may have heard from us late, and think that we
    /// came back.
    fn accept<M: From<Message> + Debug>(&mut self, from: PeerId, key: Key, cx: &mut Cx<'_, M>) -> Option<Node> {
        let node = Node { key, peer: from };
        if !self.is_plausible(node) {
            cx.strange("a peer has the key of another");
            return None;
        }
        if self.is_outside() {
            self.say_goodbye(from, cx);
            return None;
        }
        Some(node)
    }

    /// *stabilize* and *notify*. Returns whether somebody unheard of lies between us and a nearest neighbour.
    fn on_exchange<M: From<Message> + Debug>(&mut self, node: Node, lists: &Lists, cx: &mut Cx<'_, M>) -> bool {
        self.left.insert(node);
        self.right.insert(node);
        if self.right.nearest() == Some(node) && lists.settled {
            let beyond = self.up_to_me(&lists.right);
            self.right.follow(beyond.into_iter());
        }
        if self.left.nearest() == Some(node) {
            if lists.settled {
                let beyond = self.up_to_me(&lists.left);
                self.left.follow(beyond.into_iter());
            }
            self.heard_left = true;
        }
        self.court_nearer(|| lists.nodes(), cx)
    }

    /// Turns to those of `nodes` that lie between us and the nearest neighbours. Returns whether there are any.
    fn court_nearer<M: From<Message> + Debug, I: Iterator<Item = Node>>(
        &mut self,
        nodes: impl Fn() -> I,
        cx: &mut Cx<'_, M>,
    ) -> bool {
        let nearer = [&self.left, &self.right].map(|side| {
            let between = nodes().filter(|node| side.is_nearer(*node) && self.may_be(*node));
            between.min_by_key(|node| side.distance(*node))
        });
        nearer.iter().flatten().for_each(|node| self.exchange(node.peer, cx));
        nearer.iter().any(Option::is_some)
    }

    /// The living of a neighbour's list, up to where it comes round to ourselves.
    fn up_to_me(&self, list: &[Node]) -> Vec<Node> {
        list.iter().copied().take_while(|node| node.peer != self.me.peer).filter(|node| self.may_be(*node)).collect()
    }

    /// A node that we heard from itself. If it turns out to be the nearest, the two have to know each other's lists.
    fn meet<M: From<Message> + Debug>(&mut self, node: Node, cx: &mut Cx<'_, M>) {
        let nearest = self.left.is_nearer(node) || self.right.is_nearer(node);
        self.left.insert(node);
        self.right.insert(node);
        if nearest {
            self.exchange(node.peer, cx);
        }
    }

    /// The end of a join: the nearest on both sides know of us, and there is nobody between.
    fn try_enter<M: Debug>(&mut self, from: PeerId, nearer: bool, cx: &mut Cx<'_, M>) {
        let Phase::Joining { answered, .. } = &mut self.phase else { return };
        if !answered.contains(&from) {
            if answered.len() >= MOST_NAMED {
                answered.remove(0); // Nobody between us and the neighbours that we shall have: they come last.
            }
            answered.push(from);
        }
        let known = |side: &Side| side.nearest().is_some_and(|node| answered.contains(&node.peer));
        if !nearer && known(&self.left) && known(&self.right) {
            cx.cancel_timer(Timer::Join);
            self.enter(cx);
        }
    }

    fn enter<M: Debug>(&mut self, cx: &mut Cx<'_, M>) {
        self.phase = Phase::Joined;
        self.arm_stabilize(cx);
    }

    fn arm_stabilize<M: Debug>(&mut self, cx: &mut Cx<'_, M>) {
        let after = cx.rng().between(self.config.stabilize / 2, self.config.stabilize * 3 / 2);
        cx.set_timer(Timer::Stabilize, after);
    }

    fn on_leave<M: From<Message> + Debug>(&mut self, from: PeerId, lists: &Lists, cx: &mut Cx<'_, M>) {
        self.lose(from, cx);
        if !self.is_outside() {
            // Its neighbours will be ours, and it may have known somebody that we have not heard of.
            self.court_nearer(|| lists.nodes(), cx);
        }
    }

    /// A round of upkeep: *stabilize* and *check_predecessor*.
    pub(crate) fn stabilize<M: From<Message> + Debug>(&mut self, cx: &mut Cx<'_, M>) {
        let now = cx.now();
        self.gone.retain(|_, until| *until > now);
        let (left, right) = (self.left.nearest(), self.right.nearest());
        if let Some(right) = right {
            self.exchange(right.peer, cx);
        }
        if let Some(left) = left.filter(|left| !self.heard_left && right != Some(*left)) {
            self.exchange(left.peer, cx);
        }
        self.heard_left = false;
        self.arm_stabilize(cx);
    }

    /// A peer that was asked has not answered. Returns whether it is to be taken for dead.
    pub(crate) fn on_silence<M: From<Message> + Debug>(&mut self, peer: PeerId, cx: &mut Cx<'_, M>) -> bool {
        let Some(tries) = self.awaited.get(&peer).copied() else { return false };
        if tries >= self.config.tries {
            return true;
        }
        self.ping(peer, cx);
        self.awaited.insert(peer, tries + 1);
        cx.set_timer(Timer::Silence(peer), self.config.answer);
        false
    }

    fn is_nearest(&self, peer: PeerId) -> bool {
        [self.left.nearest(), self.right.nearest()].iter().flatten().any(|node| node.peer == peer)
    }

    /// Takes `peer` for dead, or believes it that it is not in the ring.
    pub(crate) fn lose<M: From<Message> + Debug>(&mut self, peer: PeerId, cx: &mut Cx<'_, M>) {
        if peer != self.me.peer {
            self.forget(peer, cx);
            self.remember_gone(peer, cx.now());
        }
    }

    /// Rumours of a peer that is gone are not believed for a while. Where there is no room, the oldest word of that
    /// kind is forgotten: at worst one is asked once more who does not answer.
    fn remember_gone(&mut self, peer: PeerId, now: Time) {
        if self.gone.len() >= MOST_NAMED && !self.gone.contains_key(&peer) {
            self.gone.retain(|_, until| *until > now);
            if self.gone.len() >= MOST_NAMED
                && let Some(oldest) = self.gone.iter().min_by_key(|&(_, until)| *until).map(|(&peer, _)| peer)
            {
                self.gone.remove(&oldest);
            }
        }
        self.gone.insert(peer, now + self.config.quarantine);
    }

    /// Strikes `peer` from both lists.
    pub(crate) fn strike_out(&mut self, peer: PeerId) {
        self.left.remove(peer);
        self.right.remove(peer);
        // Nobody left on one side: then all that we know are on the other, and the ring goes round.
        if self.left.is_empty() {
            self.right.nodes().iter().for_each(|node| self.left.insert(*node));
        } else if self.right.is_empty() {
            self.left.nodes().iter().for_each(|node| self.right.insert(*node));
        }
    }

    /// Strikes `peer` out, and does not wait for it any more. The next in the list is asked whether it is there.
    fn forget<M: From<Message> + Debug>(&mut self, peer: PeerId, cx: &mut Cx<'_, M>) {
        if self.awaited.remove(&peer).is_some() {
            cx.cancel_timer(Timer::Silence(peer));
        }
        let was_nearest = self.is_nearest(peer);
        self.strike_out(peer);
        if was_nearest && !self.is_outside() {
            self.court(cx);
        }
    }

    /// Exchanges with the nearest on both sides.
    fn court<M: From<Message> + Debug>(&mut self, cx: &mut Cx<'_, M>) {
        let (left, right) = (self.left.nearest(), self.right.nearest());
        for node in left.into_iter().chain(right.filter(|right| left != Some(*right))) {
            self.exchange(node.peer, cx);
        }
    }

    pub(crate) fn exchange<M: From<Message> + Debug>(&mut self, to: PeerId, cx: &mut Cx<'_, M>) {
        cx.send(to, Message::Exchange { key: self.me.key, lists: self.lists() }.into());
        self.expect(to, cx);
    }

    pub(crate) fn ping<M: From<Message> + Debug>(&mut self, to: PeerId, cx: &mut Cx<'_, M>) {
        cx.send(to, Message::Ping { key: self.me.key }.into());
        self.expect(to, cx);
    }

    /// Confirms what `to` forwarded to us, or that we are not the right one to forward to: who begins to join and knows
    /// nobody yet can only begin anew with it. Known from an earlier life, it would be handed the same again and again.
    pub(crate) fn confirm<M: From<Message> + Debug>(&mut self, to: PeerId, cx: &mut Cx<'_, M>) {
        if self.is_outside() || (!self.is_joined() && self.right.is_empty()) {
            self.say_goodbye(to, cx);
        } else {
            cx.send(to, Message::Pong { key: self.me.key }.into());
        }
    }

    /// Something was sent to `peer` that it answers if it is alive. Asking more often does not buy it more time.
    pub(crate) fn expect<M: Debug>(&mut self, peer: PeerId, cx: &mut Cx<'_, M>) {
        if !self.awaits(peer) {
            self.awaited.insert(peer, 1);
            cx.set_timer(Timer::Silence(peer), self.config.answer);
        }
    }

    pub(crate) fn awaits(&self, peer: PeerId) -> bool {
        self.awaited.contains_key(&peer)
    }

    /// Whether a node that others speak of can be taken up.
    pub(crate) fn may_be(&self, node: Node) -> bool {
        self.is_plausible(node) && !self.gone.contains_key(&node.peer)
    }

    /// Whether this is somebody else, at a key of its own, and the key that we know it by.
    pub(crate) fn is_plausible(&self, node: Node) -> bool {
        (node.key != self.me.key && node.peer != self.me.peer)
            && self.neighbours().all(|known| (known.key == node.key) == (known.peer == node.peer))
    }
}

#[cfg(test)]
mod tests {
    use peerlock_base::{Rng, Span};

    use super::*;

    /// Whoever says that it leaves is remembered, so that rumours of it are not believed; but anybody may say so.
    #[test]
    fn strangers_are_remembered_up_to_a_bound() {
        let me = Node::of(PeerId::new(0));
        let (mut rng, mut effects) = (Rng::new(1), Vec::new());
        let mut ring = Ring::new(me, Config::CHORD);
        let mut now = Time::ZERO;
        let mut hear = |ring: &mut Ring, from, message| {
            now = now + Span::from_nanos(1);
            effects.clear();
            let mut cx: Cx<'_, Message> = Cx::new(me.peer, now, &mut rng, &mut effects);
            ring.on_message(PeerId::new(from), message, &mut cx);
        };
        let lists = Lists { left: Vec::new(), right: Vec::new(), settled: true };
        for stranger in 1..=3000 {
            hear(&mut ring, stranger, Message::Leave { lists: lists.clone() });
        }
        assert_eq!(ring.gone.len(), MOST_NAMED);
        assert!(ring.gone.contains_key(&PeerId::new(3000)), "the latest are remembered");
        ring.phase = Phase::Joining { via: PeerId::new(1), answered: Vec::new() };
        for stranger in (10_000..13_000).chain(10_000..13_000) {
            let key = Key::of_peer(PeerId::new(stranger));
            hear(&mut ring, stranger, Message::Exchange { key, lists: lists.clone() });
            if let Phase::Joining { answered, .. } = &ring.phase {
                assert!(answered.len() <= MOST_NAMED);
            }
        }
    }
}
