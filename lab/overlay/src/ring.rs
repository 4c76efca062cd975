//! The ring under both overlays, maintained as in Chord (*stabilize*, *notify*, *check_predecessor*). The clockwise
//! side is Chord's successor list; both sides are Pastry's leaf set.
//!
//! ```text
//!   p              n              s
//!   │              │  exchange    │        each round with the nearest clockwise (stabilize and notify in one)
//!   │              ├─────────────►│
//!   │              │  exchanged   │
//!   │              │◄─────────────┤        n adopts s's right list; if s knows a peer between the two,
//!   │   exchange   │              │        n turns to that peer at once
//!   ├─────────────►│   …          │
//! ```
//!
//! *Departure:* the left side is a list, too, so that the range of owned keys is known when the predecessor dies. A
//! peer becomes the nearest neighbour only by its own message, since hearsay about a dead peer must not change
//! ownership. A joining peer owns nothing before both neighbours have answered it.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt::Debug;

use peerlock_types::{Key, PeerId, Time};
use serde::{Deserialize, Serialize};

use crate::side::{Side, Way};
use crate::{Config, Cx, Node, Timer};

/// The neighbours of a peer, the nearest first.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lists {
    /// Towards smaller keys.
    pub left: Vec<Node>,
    /// Towards larger keys.
    pub right: Vec<Node>,
    /// The list of a peer that is not in the ring does not replace known neighbours.
    pub settled: bool,
}

impl Lists {
    fn nodes(&self) -> impl Iterator<Item = Node> {
        self.left.iter().chain(&self.right).copied()
    }
}

/// The messages between neighbours. `key` and `lists` are the sender's.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Message {
    /// *stabilize* and *notify*: sent to the nearest neighbour in each round and whenever it changes. Answered by
    /// `Exchanged` or `Leave`.
    Exchange { key: Key, lists: Lists },
    /// Answers `Exchange`.
    Exchanged { key: Key, lists: Lists },
    /// Answered by `Pong` or `Leave`.
    Ping { key: Key },
    /// Answers `Ping`, and confirms a forwarded message.
    Pong { key: Key },
    /// The sender is not in the ring: sent to both neighbours when leaving, and later in answer to any message.
    Leave { lists: Lists },
}

/// The maximum number of peers remembered: unauthenticated ones may name any number.
const MAX_REMEMBERED: usize = 1024;

/// An overlay's message, which may be one of the ring.
pub(crate) trait Wire: From<Message> + Debug {}

impl<M: From<Message> + Debug> Wire for M {}

pub(crate) enum Received {
    Node(Node),
    Leave,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// After leaving, the former neighbours are still known.
    Outside,
    Joining {
        via: PeerId,
        /// The peers that have exchanged neighbours.
        answered: Vec<PeerId>,
    },
    Joined,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ring {
    me: Node,
    config: Config,
    phase: Phase,
    /// *predecessor*, and those before it.
    left: Side,
    /// The successor list.
    right: Side,
    received_left: bool,
    /// Unanswered queries.
    awaited: BTreeMap<PeerId, u8>,
    /// Peers that count as dead.
    dead: BTreeMap<PeerId, Time>,
}

impl Ring {
    pub(crate) fn new(me: Node, config: Config) -> Self {
        Self {
            me,
            config,
            phase: Phase::Outside,
            left: Side::new(me.key, Way::Back, config.side),
            right: Side::new(me.key, Way::Clockwise, config.side),
            received_left: false,
            awaited: BTreeMap::new(),
            dead: BTreeMap::new(),
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

    pub(crate) fn lists(&self) -> Lists {
        Lists { left: self.left.nodes().to_vec(), right: self.right.nodes().to_vec(), settled: self.is_joined() }
    }

    pub(crate) fn neighbours(&self) -> impl Iterator<Item = Node> {
        self.right.nodes().iter().chain(self.left.nodes()).copied()
    }

    pub(crate) fn is_joined(&self) -> bool {
        self.phase == Phase::Joined
    }

    pub(crate) fn is_outside(&self) -> bool {
        self.phase == Phase::Outside
    }

    pub(crate) fn via(&self) -> Option<PeerId> {
        match self.phase {
            Phase::Joining { via, .. } => Some(via),
            Phase::Outside | Phase::Joined => None,
        }
    }

    /// Returns whether the two sides meet, so that all peers are known.
    pub(crate) fn is_whole(&self) -> bool {
        match (self.left.farthest(), self.right.farthest()) {
            (Some(left), Some(right)) => {
                left.key.distance(self.me.key).checked_add(self.me.key.distance(right.key)).is_none()
            }
            _ => true,
        }
    }

    /// Returns whether the nearest peer of `key` is known.
    pub(crate) fn spans(&self, key: Key) -> bool {
        match (self.left.farthest(), self.right.farthest()) {
            (Some(left), Some(right)) => self.is_whole() || left.key.distance(key) <= left.key.distance(right.key),
            _ => true,
        }
    }

    /// *create*, and the first half of *join*.
    pub(crate) fn join<M: Debug>(&mut self, via: Option<PeerId>, cx: &mut Cx<'_, M>) {
        assert!(via != Some(self.me.peer), "a peer cannot join through itself");
        *self = Self::new(self.me, self.config);
        match via {
            Some(via) => self.phase = Phase::Joining { via, answered: Vec::new() },
            None => self.enter(cx),
        }
    }

    /// Sets the timer of a join so that a dead neighbour is detected before.
    pub(crate) fn set_join_timer<M: Debug>(&self, cx: &mut Cx<'_, M>) {
        if self.via().is_none() {
            return;
        }
        let patience = self.config.answer * u64::from(self.config.tries);
        let after = cx.rng().between(patience * 2, patience * 3);
        cx.set_timer(Timer::Join, after);
    }

    /// Handles the neighbours that the owner of this peer's key has sent.
    pub(crate) fn on_welcome<M: Wire>(&mut self, from: Node, lists: &Lists, cx: &mut Cx<'_, M>) {
        match self.phase {
            Phase::Joining { .. } => self.adopt(lists.nodes().chain([from]), cx),
            // Welcomed twice, or by another ring after a partition: the nearest peers merge the two.
            Phase::Joined => {
                self.exchange_with_nearer(|| lists.nodes().chain([from]), cx);
            }
            Phase::Outside => {}
        }
    }

    /// Adopts `nodes` on hearsay, and asks the nearest.
    pub(crate) fn adopt<M: Wire>(&mut self, nodes: impl Iterator<Item = Node>, cx: &mut Cx<'_, M>) {
        for node in nodes {
            if self.may_be(node) {
                self.left.insert(node);
                self.right.insert(node);
            }
        }
        self.exchange_with_nearest(cx);
    }

    pub(crate) fn leave<M: Wire>(&mut self, cx: &mut Cx<'_, M>) {
        if self.is_joined() {
            let (left, right) = (self.left.nearest(), self.right.nearest());
            for node in left.into_iter().chain(right.filter(|right| left != Some(*right))) {
                self.send_leave(node.peer, cx);
            }
        }
        self.phase = Phase::Outside;
        cx.cancel_timer(Timer::Join);
        cx.cancel_timer(Timer::Stabilize);
        while let Some((peer, _)) = self.awaited.pop_first() {
            cx.cancel_timer(Timer::Silence(peer));
        }
    }

    pub(crate) fn send_leave<M: Wire>(&self, to: PeerId, cx: &mut Cx<'_, M>) {
        cx.send(to, Message::Leave { lists: self.lists() }.into());
    }

    pub(crate) fn receive<M: Debug>(&mut self, from: PeerId, cx: &mut Cx<'_, M>) {
        self.dead.remove(&from);
        if self.awaited.remove(&from).is_some() {
            cx.cancel_timer(Timer::Silence(from));
        }
    }

    /// Returns `None` for an unexpected or late message.
    pub(crate) fn on_message<M: Wire>(
        &mut self,
        from: PeerId,
        message: Message,
        cx: &mut Cx<'_, M>,
    ) -> Option<Received> {
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
                self.insert_sender(node, cx);
                self.confirm(from, cx);
                node
            }
            Message::Pong { key } => {
                let node = self.accept(from, key, cx)?;
                self.insert_sender(node, cx);
                node
            }
            Message::Leave { lists } => {
                self.on_leave(from, &lists, cx);
                return Some(Received::Leave);
            }
        };
        Some(Received::Node(node))
    }

    /// Returns the sender if it is plausible and this peer is in the ring. Otherwise notifies it, also after an answer:
    /// it may have received a late message.
    fn accept<M: Wire>(&mut self, from: PeerId, key: Key, cx: &mut Cx<'_, M>) -> Option<Node> {
        let node = Node { key, peer: from };
        if !self.is_plausible(node) {
            cx.unexpected("a peer has the key of another");
            return None;
        }
        if self.is_outside() {
            self.send_leave(from, cx);
            return None;
        }
        Some(node)
    }

    /// *stabilize* and *notify*. Returns whether an unknown peer is nearer.
    fn on_exchange<M: Wire>(&mut self, node: Node, lists: &Lists, cx: &mut Cx<'_, M>) -> bool {
        self.left.insert(node);
        self.right.insert(node);
        if self.right.nearest() == Some(node) && lists.settled {
            let beyond = self.plausible_prefix(&lists.right);
            self.right.follow(beyond.into_iter());
        }
        if self.left.nearest() == Some(node) {
            if lists.settled {
                let beyond = self.plausible_prefix(&lists.left);
                self.left.follow(beyond.into_iter());
            }
            self.received_left = true;
        }
        self.exchange_with_nearer(|| lists.nodes(), cx)
    }

    /// Exchanges with those of `nodes` that are nearer than the nearest neighbours. Returns whether there are any.
    fn exchange_with_nearer<M: Wire, I: Iterator<Item = Node>>(
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

    fn plausible_prefix(&self, list: &[Node]) -> Vec<Node> {
        list.iter().copied().take_while(|node| node.peer != self.me.peer).filter(|node| self.may_be(*node)).collect()
    }

    /// If the sender is the nearest, both need each other's lists.
    fn insert_sender<M: Wire>(&mut self, node: Node, cx: &mut Cx<'_, M>) {
        let nearest = self.left.is_nearer(node) || self.right.is_nearer(node);
        self.left.insert(node);
        self.right.insert(node);
        if nearest {
            self.exchange(node.peer, cx);
        }
    }

    /// Completes the join when the nearest peers know this one.
    fn try_enter<M: Debug>(&mut self, from: PeerId, nearer: bool, cx: &mut Cx<'_, M>) {
        let Phase::Joining { answered, .. } = &mut self.phase else { return };
        if !answered.contains(&from) {
            if answered.len() >= MAX_REMEMBERED {
                answered.remove(0); // The final neighbours come last.
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
        self.set_stabilize_timer(cx);
    }

    fn set_stabilize_timer<M: Debug>(&mut self, cx: &mut Cx<'_, M>) {
        let after = cx.rng().between(self.config.stabilize / 2, self.config.stabilize * 3 / 2);
        cx.set_timer(Timer::Stabilize, after);
    }

    fn on_leave<M: Wire>(&mut self, from: PeerId, lists: &Lists, cx: &mut Cx<'_, M>) {
        self.lose(from, cx);
        if !self.is_outside() {
            self.exchange_with_nearer(|| lists.nodes(), cx);
        }
    }

    /// *stabilize* and *check_predecessor*.
    pub(crate) fn stabilize<M: Wire>(&mut self, cx: &mut Cx<'_, M>) {
        let now = cx.now();
        self.dead.retain(|_, until| *until > now);
        let (left, right) = (self.left.nearest(), self.right.nearest());
        if let Some(right) = right {
            self.exchange(right.peer, cx);
        }
        if let Some(left) = left.filter(|left| !self.received_left && right != Some(*left)) {
            self.exchange(left.peer, cx);
        }
        self.received_left = false;
        self.set_stabilize_timer(cx);
    }

    /// Returns whether the peer counts as dead.
    pub(crate) fn on_silence<M: Wire>(&mut self, peer: PeerId, cx: &mut Cx<'_, M>) -> bool {
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

    pub(crate) fn lose<M: Wire>(&mut self, peer: PeerId, cx: &mut Cx<'_, M>) {
        if peer != self.me.peer {
            self.forget(peer, cx);
            self.remember_dead(peer, cx.now());
        }
    }

    /// Drops the oldest entry if there are too many: at worst a silent peer is asked once more.
    fn remember_dead(&mut self, peer: PeerId, now: Time) {
        if self.dead.len() >= MAX_REMEMBERED && !self.dead.contains_key(&peer) {
            self.dead.retain(|_, until| *until > now);
            if self.dead.len() >= MAX_REMEMBERED
                && let Some(oldest) = self.dead.iter().min_by_key(|&(_, until)| *until).map(|(&peer, _)| peer)
            {
                self.dead.remove(&oldest);
            }
        }
        self.dead.insert(peer, now + self.config.quarantine);
    }

    pub(crate) fn remove_peer(&mut self, peer: PeerId) {
        self.left.remove(peer);
        self.right.remove(peer);
        // A ring is closed: an empty side continues with the other.
        if self.left.is_empty() {
            self.right.nodes().iter().for_each(|node| self.left.insert(*node));
        } else if self.right.is_empty() {
            self.left.nodes().iter().for_each(|node| self.right.insert(*node));
        }
    }

    /// Asks the next neighbour whether it is alive.
    fn forget<M: Wire>(&mut self, peer: PeerId, cx: &mut Cx<'_, M>) {
        if self.awaited.remove(&peer).is_some() {
            cx.cancel_timer(Timer::Silence(peer));
        }
        let was_nearest = self.is_nearest(peer);
        self.remove_peer(peer);
        if was_nearest && !self.is_outside() {
            self.exchange_with_nearest(cx);
        }
    }

    fn exchange_with_nearest<M: Wire>(&mut self, cx: &mut Cx<'_, M>) {
        let (left, right) = (self.left.nearest(), self.right.nearest());
        for node in left.into_iter().chain(right.filter(|right| left != Some(*right))) {
            self.exchange(node.peer, cx);
        }
    }

    pub(crate) fn exchange<M: Wire>(&mut self, to: PeerId, cx: &mut Cx<'_, M>) {
        cx.send(to, Message::Exchange { key: self.me.key, lists: self.lists() }.into());
        self.expect(to, cx);
    }

    pub(crate) fn ping<M: Wire>(&mut self, to: PeerId, cx: &mut Cx<'_, M>) {
        cx.send(to, Message::Ping { key: self.me.key }.into());
        self.expect(to, cx);
    }

    /// A joining peer without neighbours replies that it is the wrong receiver, since it can only restart the search.
    pub(crate) fn confirm<M: Wire>(&mut self, to: PeerId, cx: &mut Cx<'_, M>) {
        if self.is_outside() || (!self.is_joined() && self.right.is_empty()) {
            self.send_leave(to, cx);
        } else {
            cx.send(to, Message::Pong { key: self.me.key }.into());
        }
    }

    /// Expects an answer. Repeated queries do not extend the time.
    pub(crate) fn expect<M: Debug>(&mut self, peer: PeerId, cx: &mut Cx<'_, M>) {
        if !self.awaits(peer) {
            self.awaited.insert(peer, 1);
            cx.set_timer(Timer::Silence(peer), self.config.answer);
        }
    }

    pub(crate) fn awaits(&self, peer: PeerId) -> bool {
        self.awaited.contains_key(&peer)
    }

    /// Returns whether a node that others have named can be adopted.
    pub(crate) fn may_be(&self, node: Node) -> bool {
        self.is_plausible(node) && !self.dead.contains_key(&node.peer)
    }

    /// Returns whether this is another peer, at its own key.
    pub(crate) fn is_plausible(&self, node: Node) -> bool {
        (node.key != self.me.key && node.peer != self.me.peer)
            && self.neighbours().all(|known| (known.key == node.key) == (known.peer == node.peer))
    }
}

#[cfg(test)]
mod tests {
    use peerlock_types::{Rng, Span};

    use super::*;

    #[test]
    fn remembered_peers_are_bounded() {
        let me = Node::of(PeerId::new(0));
        let (mut rng, mut effects) = (Rng::new(1), Vec::new());
        let mut ring = Ring::new(me, Config::CHORD);
        let mut now = Time::ZERO;
        let mut receive = |ring: &mut Ring, from, message| {
            now = now + Span::from_nanos(1);
            effects.clear();
            let mut cx: Cx<'_, Message> = Cx::new(me.peer, now, &mut rng, &mut effects);
            ring.on_message(PeerId::new(from), message, &mut cx);
        };
        let lists = Lists { left: Vec::new(), right: Vec::new(), settled: true };
        for unauthenticated in 1..=3000 {
            receive(&mut ring, unauthenticated, Message::Leave { lists: lists.clone() });
        }
        assert_eq!(ring.dead.len(), MAX_REMEMBERED);
        assert!(ring.dead.contains_key(&PeerId::new(3000)), "the latest are remembered");
        ring.phase = Phase::Joining { via: PeerId::new(1), answered: Vec::new() };
        for unauthenticated in (10_000..13_000).chain(10_000..13_000) {
            let key = Key::of_peer(PeerId::new(unauthenticated));
            receive(&mut ring, unauthenticated, Message::Exchange { key, lists: lists.clone() });
            if let Phase::Joining { answered, .. } = &ring.phase {
                assert!(answered.len() <= MAX_REMEMBERED);
            }
        }
    }
}
