//! Pastry (Rowstron, Druschel: "Pastry: Scalable, Decentralized Object Location and Routing for Large-Scale
//! Peer-to-Peer Systems", 2001), with b = 4: keys have 32 digits to base 16.
//!
//! A key belongs to the peer whose key is numerically nearest. Every peer knows its *leaf set*, the neighbours on the
//! ring, and a *routing table* of peers whose keys share the first digits with its own.
//!
//! ```text
//!   x            a              b              z (nearest to x's key)
//!   │ join        │ join         │ join         │
//!   ├────────────►├─────────────►├─────────────►│      each hop adds the rows that suit x
//!   │ welcome     rows of a, b and z, leaf set  │
//!   │◄──────────────────────────────────────────┤
//!   │ exchange with the nearest on both sides; ping to every peer that suits the table
//!   ├────────────►…
//! ```
//!
//! *Departure:* leaf sets are exchanged once a round, like Chord's lists. A joining peer pings the peers it has learned
//! of instead of sending them its state: a peer enters the table only by its own message, since dead peers would
//! survive in hearsay. There is no neighbourhood set and no *locality*.

use alloc::vec::Vec;

use peerlock_types::{Key, PeerId};
use serde::{Deserialize, Serialize};

use crate::ring::{Lists, Message as RingMessage, Received, Ring};
use crate::table::Table;
use crate::{Config, Cx, KeyRange, Node, Overlay, Timer};

/// The number of places in a table.
const ROWS_LIMIT: usize = Key::DIGITS * 16;

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Message {
    /// Between neighbours.
    Ring(RingMessage),
    /// *node arrival*: routed to the owner of the joining peer's key. Each hop confirms it, and adds its candidates for
    /// the table, from the first missing `row` on.
    Join { node: Node, rows: Vec<Node>, row: u8, hops: u8 },
    /// From the owner of the joining peer's key.
    Welcome { key: Key, lists: Lists, rows: Vec<Node> },
    /// Requests a row from a peer of the sender's table.
    AskRow { row: u8 },
    /// Answers `AskRow`. The receiver pings the candidates.
    Row { nodes: Vec<Node> },
}

impl From<RingMessage> for Message {
    fn from(message: RingMessage) -> Self {
        Self::Ring(message)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pastry {
    /// L.
    ring: Ring,
    /// R.
    table: Table,
    /// The number of the round, which selects the peer that is queried in each row.
    round: u8,
}

impl Overlay for Pastry {
    type Message = Message;

    fn new(me: Node, config: Config) -> Self {
        Self { ring: Ring::new(me, config), table: Table::new(me.key), round: 0 }
    }

    fn converged(nodes: &[Node], place: usize, config: Config) -> Self {
        let table = Table::converged(nodes, place);
        Self { ring: Ring::converged(nodes, place, config), table, round: 0 }
    }

    fn me(&self) -> Node {
        self.ring.me()
    }

    /// From half way to one neighbour to half way to the other.
    fn range(&self) -> Option<KeyRange> {
        let me = self.ring.me().key;
        let after = self.ring.left().nearest().map_or(me, |left| left.key.halfway(me));
        let last = self.ring.right().nearest().map_or(me, |right| me.halfway(right.key));
        self.ring.is_joined().then_some(KeyRange { after, last })
    }

    /// The routing procedure.
    fn next_hop(&self, key: Key) -> Option<PeerId> {
        if self.range().is_some_and(|range| range.contains(key)) {
            return None;
        }
        if self.ring.spans(key) {
            let leaf = self.ring.neighbours().min_by_key(|node| nearness(*node, key));
            return leaf.map(|node| node.peer).or(self.ring.via());
        }
        self.table.get(key).or_else(|| self.rare_case(key)).map(|node| node.peer)
    }

    fn neighbours(&self) -> impl Iterator<Item = Node> {
        self.ring.neighbours()
    }

    fn join(&mut self, via: Option<PeerId>, cx: &mut Cx<'_, Message>) {
        if !self.ring.is_joined() {
            self.ring.join(via, cx);
            self.table = Table::new(self.ring.me().key);
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
                Some(Received::Node(node)) => self.table.insert(node),
                Some(Received::Leave) => self.drop_entry(from, cx),
                None => {}
            },
            Message::Join { node, rows, row, hops } => self.on_join(from, node, rows, row, hops, cx),
            Message::Welcome { key, lists, rows } => {
                self.ring.on_welcome(Node { key, peer: from }, &lists, cx);
                self.consider(rows.into_iter(), cx);
            }
            Message::AskRow { row } => self.on_ask_row(from, row, cx),
            Message::Row { nodes } => self.consider(nodes.into_iter(), cx),
        }
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Cx<'_, Message>) {
        match timer {
            Timer::Join => self.send_join(self.ring.via(), cx),
            Timer::Stabilize => {
                self.ring.stabilize(cx);
                self.maintain_table(cx);
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

impl Pastry {
    /// The routing table by row and column, without empty places.
    pub fn table(&self) -> &[Node] {
        self.table.nodes()
    }

    /// *rare case*: a peer that shares as many digits with the key and is nearer to it.
    fn rare_case(&self, key: Key) -> Option<Node> {
        let me = self.ring.me().key;
        let known = self.ring.neighbours().chain(self.table.nodes().iter().copied());
        let good = known
            .filter(|node| node.key.shared_digits(key) >= me.shared_digits(key) && node.key.gap(key) < me.gap(key));
        good.min_by_key(|node| nearness(*node, key))
    }

    fn send_join(&mut self, via: Option<PeerId>, cx: &mut Cx<'_, Message>) {
        if let Some(via) = via {
            cx.send(via, Message::Join { node: self.ring.me(), rows: Vec::new(), row: 0, hops: 0 });
            self.ring.set_join_timer(cx);
        }
    }

    fn on_join(&mut self, from: PeerId, node: Node, mut rows: Vec<Node>, row: u8, hops: u8, cx: &mut Cx<'_, Message>) {
        // A joining peer needs no confirmation: it repeats its request.
        if from != node.peer {
            self.ring.confirm(from, cx);
        }
        if !self.ring.is_plausible(node) || rows.len() > ROWS_LIMIT {
            return cx.unexpected("a newcomer has the key of another, or too many rows");
        }
        let shared = self.table.row_of(node.key);
        (usize::from(row)..=shared).for_each(|row| rows.extend(self.table.row(row)));
        rows.push(self.ring.me());
        let row = row.max(shared as u8 + 1);
        // The joining peer may be known from an earlier life.
        let mut others = self.clone();
        others.ring.remove_peer(node.peer);
        others.table.remove(node.peer);
        let next = if others.is_nearest(node.key) { None } else { others.next_hop(node.key) };
        match (next, hops.checked_add(1)) {
            (Some(hop), Some(hops)) => {
                cx.send(hop, Message::Join { node, rows, row, hops });
                self.ring.expect(hop, cx);
            }
            (Some(_), None) => cx.unexpected("a message that circles"),
            (None, _) if self.ring.is_joined() || others.is_nearest(node.key) => {
                cx.send(node.peer, Message::Welcome { key: self.ring.me().key, lists: self.ring.lists(), rows });
            }
            (None, _) => {} // No other peer is known.
        }
    }

    /// Returns whether this peer is nearer to the key than every peer it knows.
    fn is_nearest(&self, key: Key) -> bool {
        let me = nearness(self.ring.me(), key);
        let mut leaves = self.ring.neighbours().peekable();
        !self.ring.is_outside() && leaves.peek().is_some() && leaves.all(|leaf| me < nearness(leaf, key))
    }

    /// Pings those of `nodes` that suit the table.
    fn consider(&mut self, nodes: impl Iterator<Item = Node>, cx: &mut Cx<'_, Message>) {
        for node in nodes.take(ROWS_LIMIT) {
            let suits = self.ring.may_be(node) && !self.ring.awaits(node.peer) && !self.ring.is_outside();
            if suits && self.table.wants(node) {
                self.ring.ping(node.peer, cx);
            }
        }
    }

    /// Queries a peer of each row, which also detects dead peers within 15 rounds. The leaves are often the only
    /// candidates for the last rows.
    fn maintain_table(&mut self, cx: &mut Cx<'_, Message>) {
        let mut start = 0;
        while let Some(first) = self.table.nodes().get(start) {
            let row = self.table.row_of(first.key);
            let many = self.table.row(row).len();
            let chosen = self.table.nodes()[start + usize::from(self.round) % many];
            self.ask_row(chosen.peer, row, cx);
            start += many;
        }
        self.round = self.round.wrapping_add(1);
        let leaves: Vec<Node> = self.ring.neighbours().collect();
        self.consider(leaves.into_iter(), cx);
    }

    fn ask_row(&mut self, peer: PeerId, row: usize, cx: &mut Cx<'_, Message>) {
        cx.send(peer, Message::AskRow { row: row as u8 });
        self.ring.expect(peer, cx);
    }

    fn on_ask_row(&mut self, from: PeerId, row: u8, cx: &mut Cx<'_, Message>) {
        if self.ring.is_outside() {
            self.ring.send_leave(from, cx);
        } else {
            cx.send(from, Message::Row { nodes: self.table.row(row.into()).to_vec() });
        }
    }

    fn lose(&mut self, peer: PeerId, cx: &mut Cx<'_, Message>) {
        self.ring.lose(peer, cx);
        self.drop_entry(peer, cx);
    }

    /// *node departure*.
    fn drop_entry(&mut self, peer: PeerId, cx: &mut Cx<'_, Message>) {
        let lost = self.table.remove(peer);
        if self.ring.is_outside() {
            return;
        }
        if let Some(row) = lost {
            let from = self.table.nodes().partition_point(|node| self.table.row_of(node.key) < row);
            let others = &self.table.nodes()[from..];
            if !others.is_empty() {
                let chosen = others[cx.rng().below(others.len() as u64) as usize];
                self.ask_row(chosen.peer, row, cx);
            }
        }
        if self.ring.right().is_empty() && self.ring.is_joined() {
            self.ring.adopt(self.table.nodes().iter().copied(), cx);
        }
    }
}

/// At equal distance the node before the key is nearer.
fn nearness(node: Node, key: Key) -> impl Ord {
    (node.key.gap(key), node.key.distance(key) > key.distance(node.key))
}
