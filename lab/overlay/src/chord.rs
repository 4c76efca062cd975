//! Chord (Stoica et al.: "Chord: A Scalable Peer-to-peer Lookup Protocol for Internet Applications", 2003).
//!
//! A key belongs to its *successor*, the first peer at or clockwise after it. Every peer knows its neighbours on the
//! ring and its *fingers*: the first peer at least 2ⁱ away, for every i.
//!
//! ```text
//!   n            via …          s (owns n's key)
//!   │ join        │              │
//!   ├────────────►│ join         │
//!   │             ├─────────────►│
//!   │ welcome                    │
//!   │◄───────────────────────────┤           n knows s and its neighbours
//!   │ exchange                   │
//!   ├───────────────────────────►│           also with the nearest on the other side; then n owns its keys
//! ```
//!
//! *Departure:* lookups for joins and fingers are recursive, and each hop confirms to the previous one. A message that
//! has passed the owner of its key goes back along the predecessors. So it approaches the key first from before it and
//! then from behind, each hop is nearer, and lookups terminate.

use alloc::vec::Vec;

use peerlock_types::{Key, PeerId};
use serde::{Deserialize, Serialize};

use crate::ring::{Lists, Message as RingMessage, Received, Ring};
use crate::{Config, Cx, KeyRange, Node, Overlay, Timer};

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Message {
    /// Between neighbours.
    Ring(RingMessage),
    /// *join*, routed to the owner of the newcomer's key; every hop confirms.
    Join { node: Node, way: Way },
    /// From the owner of the newcomer's key.
    Welcome { key: Key, lists: Lists },
    /// *fix_fingers*, routed to the owner of a key; every hop confirms.
    Seek { key: Key, origin: PeerId, way: Way },
    /// From the owner of the key `sought`.
    Found { sought: Key, key: Key },
}

/// The progress of a lookup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Way {
    /// The number of hops so far; at 255 the message is circling.
    pub hops: u8,
    /// The sender took the receiver, which is at the key or behind it, for the owner.
    pub is_past: bool,
}

impl From<RingMessage> for Message {
    fn from(message: RingMessage) -> Self {
        Self::Ring(message)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Chord {
    ring: Ring,
    /// Beyond the successor, the nearest first: for each i at most one from 2ⁱ to 2ⁱ⁺¹ away.
    fingers: Vec<Node>,
    /// *next*, the finger to look up; `None` to start again.
    next: Option<u32>,
    sought: Option<u32>,
    /// This peer has just joined, and looks up all fingers at once.
    eager: bool,
}

enum Step {
    /// The peer, and whether it is past the key.
    To(PeerId, bool),
    Ours,
    Unknown,
}

impl Overlay for Chord {
    type Message = Message;

    fn new(me: Node, config: Config) -> Self {
        Self { ring: Ring::new(me, config), fingers: Vec::new(), next: None, sought: None, eager: true }
    }

    fn converged(nodes: &[Node], place: usize, config: Config) -> Self {
        let ring = Ring::converged(nodes, place, config);
        let me = ring.me().key;
        let mut fingers = Vec::new();
        let mut next = ring.right().nearest().and_then(|successor| after(bit(me, successor.key)));
        while let Some(i) = next {
            let target = me.plus(1 << i);
            let finger = nodes[nodes.partition_point(|node| node.key < target) % nodes.len()];
            // No peer is that far away.
            if finger.key == me || me.distance(finger.key) < 1 << i {
                break;
            }
            fingers.push(finger);
            next = after(bit(me, finger.key));
        }
        fingers.shrink_to_fit();
        Self { ring, fingers, next: None, sought: None, eager: false }
    }

    fn me(&self) -> Node {
        self.ring.me()
    }

    /// From behind the predecessor to this peer.
    fn range(&self) -> Option<KeyRange> {
        let last = self.ring.me().key;
        let after = self.ring.left().nearest().map_or(last, |predecessor| predecessor.key);
        self.ring.is_joined().then_some(KeyRange { after, last })
    }

    /// One step of *find_successor* and *closest_preceding_node*.
    fn next_hop(&self, key: Key) -> Option<PeerId> {
        if self.range().is_some_and(|range| range.contains(key)) {
            return None;
        }
        self.nearer(key).map(|node| node.peer).or(self.ring.via())
    }

    fn neighbours(&self) -> impl Iterator<Item = Node> {
        self.ring.neighbours()
    }

    fn join(&mut self, via: Option<PeerId>, cx: &mut Cx<'_, Message>) {
        if !self.ring.is_joined() {
            self.ring.join(via, cx);
            self.fingers.clear();
            (self.next, self.sought, self.eager) = (None, None, true);
        }
        self.send_join(via, cx);
    }

    fn leave(&mut self, cx: &mut Cx<'_, Message>) {
        self.ring.leave(cx);
    }

    fn on_message(&mut self, from: PeerId, message: Message, cx: &mut Cx<'_, Message>) {
        self.ring.receive(from, cx);
        match message {
            Message::Ring(message) => match self.ring.on_message(from, message, cx) {
                Some(Received::Leave) => self.drop_finger(from, cx),
                Some(Received::Node(_)) if self.eager && self.sought.is_none() => self.fix_fingers(cx),
                Some(Received::Node(_)) | None => {}
            },
            Message::Join { node, way } => self.on_join(from, node, way, cx),
            Message::Welcome { key, lists } => self.ring.on_welcome(Node { key, peer: from }, &lists, cx),
            Message::Seek { key, origin, way } => self.on_seek(from, key, origin, way, cx),
            Message::Found { sought, key } => self.on_found(Node { key, peer: from }, sought, cx),
        }
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Cx<'_, Message>) {
        match timer {
            Timer::Join => self.send_join(self.ring.via(), cx),
            Timer::Stabilize => {
                self.ring.stabilize(cx);
                self.fix_fingers(cx);
            }
            Timer::Silence(peer) => {
                if self.ring.on_silence(peer, cx) {
                    self.lose(peer, cx);
                }
            }
        }
    }

    fn on_unreachable(&mut self, peer: PeerId, cx: &mut Cx<'_, Message>) {
        self.lose(peer, cx);
    }
}

impl Chord {
    /// The distinct fingers beyond the successor, the nearest first.
    pub fn fingers(&self) -> &[Node] {
        &self.fingers
    }

    fn nearer(&self, key: Key) -> Option<Node> {
        let me = self.ring.me().key;
        let (successor, predecessor) = (self.ring.right().nearest()?, self.ring.left().nearest()?);
        // Without this peer in the ring, the key belongs to the successor.
        if key.is_within(me, successor.key) || key.is_within(predecessor.key, me) {
            return Some(successor);
        }
        let before = self.ring.left().nodes().get(1).map_or(me, |node| node.key);
        if key.is_within(before, predecessor.key) {
            return Some(predecessor);
        }
        let preceding = self.known().filter(|node| me.distance(node.key) < me.distance(key));
        preceding.max_by_key(|node| me.distance(node.key))
    }

    fn known(&self) -> impl Iterator<Item = Node> {
        self.ring.neighbours().chain(self.fingers.iter().copied())
    }

    fn next_step(&self, key: Key, way: Way) -> Step {
        let me = self.ring.me().key;
        let Some(predecessor) = self.ring.left().nearest() else {
            return match (self.ring.is_joined(), self.ring.via()) {
                (true, _) => Step::Ours,
                (false, Some(via)) => Step::To(via, false),
                (false, None) => Step::Unknown,
            };
        };
        // A joining peer answers, too, but no peer outside the ring.
        if !self.ring.is_outside() && key.is_within(predecessor.key, me) {
            return Step::Ours;
        }
        if way.is_past {
            let between = self.known().filter(|node| key.distance(node.key) < key.distance(me));
            let first = between.min_by_key(|node| key.distance(node.key));
            return first.map_or(Step::Unknown, |node| Step::To(node.peer, true));
        }
        let nearer = self.nearer(key);
        nearer.map_or(Step::Unknown, |node| Step::To(node.peer, me.distance(node.key) >= me.distance(key)))
    }

    fn send_join(&mut self, via: Option<PeerId>, cx: &mut Cx<'_, Message>) {
        if let Some(via) = via {
            cx.send(via, Message::Join { node: self.ring.me(), way: Way::default() });
            self.ring.set_join_timer(cx);
        }
    }

    /// *join*, at the hops and at the owner.
    fn on_join(&mut self, from: PeerId, node: Node, way: Way, cx: &mut Cx<'_, Message>) {
        // A newcomer needs no confirmation: it repeats its request.
        if from != node.peer {
            self.ring.confirm(from, cx);
        }
        if !self.ring.is_plausible(node) {
            return cx.unexpected("a newcomer has the key of another");
        }
        // The newcomer may be known from an earlier life.
        let mut others = self.clone();
        others.ring.remove_peer(node.peer);
        others.fingers.retain(|finger| finger.peer != node.peer);
        match others.next_step(node.key, way) {
            Step::To(to, is_past) => self.forward(from, way, (to, is_past), |way| Message::Join { node, way }, cx),
            Step::Ours => cx.send(node.peer, Message::Welcome { key: self.ring.me().key, lists: self.ring.lists() }),
            Step::Unknown => {}
        }
    }

    /// *find_successor*, at the hops and at the owner.
    fn on_seek(&mut self, from: PeerId, key: Key, origin: PeerId, way: Way, cx: &mut Cx<'_, Message>) {
        self.ring.confirm(from, cx);
        match self.next_step(key, way) {
            Step::To(to, is_past) => {
                self.forward(from, way, (to, is_past), |way| Message::Seek { key, origin, way }, cx);
            }
            // A search that returns to its origin is dropped.
            Step::Ours if self.ring.is_joined() && origin != self.ring.me().peer => {
                cx.send(origin, Message::Found { sought: key, key: self.ring.me().key });
            }
            Step::Ours | Step::Unknown => {}
        }
    }

    fn forward(
        &mut self,
        from: PeerId,
        way: Way,
        (to, is_past): (PeerId, bool),
        message: impl Fn(Way) -> Message,
        cx: &mut Cx<'_, Message>,
    ) {
        let Some(hops) = way.hops.checked_add(1) else {
            return cx.unexpected("a message that circles");
        };
        cx.send(to, message(Way { hops, is_past }));
        self.ring.expect(to, cx);
        // The previous hop took this peer for the owner: it must learn of the peers in between.
        if way.is_past && is_past && self.ring.is_joined() && !self.ring.awaits(from) {
            self.ring.exchange(from, cx);
        }
    }

    /// *fix_fingers*.
    fn fix_fingers(&mut self, cx: &mut Cx<'_, Message>) {
        let me = self.ring.me().key;
        let Some(successor) = self.ring.right().nearest().filter(|_| self.ring.is_joined()) else { return };
        let nearest = bit(me, successor.key);
        // A finger's distance has a higher bit than the successor's.
        self.fingers.retain(|finger| bit(me, finger.key) > nearest);
        let Some(i) = self.next.or(after(nearest)) else { return };
        let key = me.plus(1 << i);
        match self.next_step(key, Way::default()) {
            Step::To(hop, is_past) => {
                self.sought = Some(i);
                let way = Way { hops: 0, is_past };
                cx.send(hop, Message::Seek { key, origin: self.ring.me().peer, way });
                self.ring.expect(hop, cx);
            }
            // No peer is that far away.
            Step::Ours | Step::Unknown => (self.next, self.sought, self.eager) = (None, None, false),
        }
    }

    fn on_found(&mut self, node: Node, sought: Key, cx: &mut Cx<'_, Message>) {
        let me = self.ring.me().key;
        let Some(i) = self.sought.filter(|i| me.plus(1 << i) == sought) else { return };
        if !self.ring.is_plausible(node) || me.distance(node.key) < 1 << i {
            return cx.unexpected("a finger before the requested key");
        }
        let found = bit(me, node.key);
        // No peer lies between the key and its owner.
        self.fingers.retain(|finger| !(i..=found).contains(&bit(me, finger.key)));
        let place = self.fingers.partition_point(|finger| bit(me, finger.key) < found);
        self.fingers.insert(place, node);
        (self.next, self.sought) = (after(found), None);
        self.eager &= self.next.is_some();
        if self.eager {
            self.fix_fingers(cx);
        }
    }

    fn lose(&mut self, peer: PeerId, cx: &mut Cx<'_, Message>) {
        self.ring.lose(peer, cx);
        self.drop_finger(peer, cx);
    }

    /// The other fingers may lead back to the ring.
    fn drop_finger(&mut self, peer: PeerId, cx: &mut Cx<'_, Message>) {
        self.fingers.retain(|finger| finger.peer != peer);
        if self.ring.right().is_empty() && self.ring.is_joined() {
            self.ring.adopt(self.fingers.iter().copied(), cx);
        }
    }
}

fn bit(me: Key, key: Key) -> u32 {
    me.distance(key).checked_ilog2().expect("no known node has the own key")
}

fn after(i: u32) -> Option<u32> {
    (i < 127).then_some(i + 1)
}
