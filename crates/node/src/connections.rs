//! Connections made of single packets that may get lost, come twice or be cut off: what a transport promises a node
//! (`Transport` in `peerlock-service`), and no more. So two nodes are connected by way of a third ([`crate::relay`]), and
//! so are all of them in the simulator.
//!
//! ```text
//!   3                            7
//!   │                      knock  │        the larger asks for a connection, the smaller opens it, so that
//!   │◄────────────────────────────┤        there are never two
//!   │ open(n)                     │
//!   ├────────────────────────────►│ up     n is a reading of its clock: of two connections the later has the larger
//!   │                  accept(n)  │
//!   │◄────────────────────────────┤
//!   │ up                          │
//!   │ data(n, 1), data(n, 2) ✂    │
//!   ├────────────────────────────►│
//!   │ data(n, 3)                  │
//!   ├────────────────────────────►│ down   2 was lost: the connection breaks, here at once …
//!   │                   close(n)  │
//!   │◄────────────────────────────┤        … and there when this arrives, or nothing was heard for a while
//! ```

use std::collections::{BTreeMap, BTreeSet};

use peerlock_base::{PeerId, Span, Time};
use serde::{Deserialize, Serialize};

/// How often each end lets the other hear of it, and tries again to connect.
pub const BEAT: Span = Span::from_secs(1);
/// A peer that is not heard for this long is taken for gone.
const SILENT: Span = Span::from_secs(4);
/// Why a connection breaks where something is missing.
const LOST: &str = "something was lost on its way";

/// A message of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packet {
    /// The number of the connection.
    pub number: u64,
    /// What it is about.
    pub part: Part,
}

/// What a message of a connection is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// The sender wants a connection, and it is for the receiver to open it.
    Knock,
    /// The sender opens it.
    Open,
    /// The sender has it, too.
    Accept,
    /// The next of the bytes that it sends, counted from 1.
    Data(u64, Vec<u8>),
    /// It is there, and has sent this much.
    Beat(u64),
    /// It does not know such a connection any more.
    Close,
}

/// What becomes of connections; the number is the one by which the node knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is up: both ends have said so.
    Up(PeerId, u64),
    /// It has ended, and why.
    Down(PeerId, u64, &'static str),
    /// These bytes have come over it.
    Message(PeerId, u64, Vec<u8>),
}

/// One end of a connection.
#[derive(Clone, Copy, Debug)]
struct End {
    number: u64,
    /// The number by which the node knows it, once it is up.
    epoch: Option<u64>,
    sent: u64,
    received: u64,
    heard: Time,
}

/// All connections of one peer.
#[derive(Debug, Default)]
pub struct Connections {
    ends: BTreeMap<PeerId, End>,
    /// Whom we want to be connected with, and reconnect to.
    wanted: BTreeSet<PeerId>,
    /// The last number that was given to a connection.
    last: u64,
    /// How many have been up.
    epochs: u64,
    /// What is to be sent.
    pub packets: Vec<(PeerId, Packet)>,
    /// What the node is to be told.
    pub changes: Vec<Change>,
}

impl Connections {
    /// None yet; the first that is up will be known by the number after this.
    pub fn after(epochs: u64) -> Self {
        Self { epochs, ..Self::default() }
    }

    /// Whether there is none, nobody is wanted, and nothing is to be sent or told.
    pub fn is_idle(&self) -> bool {
        self.ends.is_empty() && self.wanted.is_empty() && self.packets.is_empty() && self.changes.is_empty()
    }

    /// Connects to a peer, and reconnects whenever that ends.
    pub fn want(&mut self, peer: PeerId, me: PeerId, now: Time) {
        self.wanted.insert(peer);
        self.connect(peer, me, now);
    }

    /// Ends the connection to a peer, and does not connect again before it is wanted again.
    pub fn forget(&mut self, peer: PeerId) {
        self.wanted.remove(&peer);
        self.hang_up(peer, "another way is better");
    }

    /// Connects to a peer, or tries to for a while.
    pub fn connect(&mut self, peer: PeerId, me: PeerId, now: Time) {
        if self.ends.contains_key(&peer) {
        } else if me < peer {
            // A clock does not go back, also when its peer restarts.
            self.last = now.as_nanos().max(self.last + 1);
            self.ends.insert(peer, End { number: self.last, epoch: None, sent: 0, received: 0, heard: now });
            self.packets.push((peer, Packet { number: self.last, part: Part::Open }));
        } else {
            self.packets.push((peer, Packet { number: 0, part: Part::Knock }));
        }
    }

    /// Sends on a connection that is up.
    pub fn send(&mut self, peer: PeerId, epoch: u64, bytes: Vec<u8>) {
        if let Some(end) = self.ends.get_mut(&peer).filter(|end| end.epoch == Some(epoch)) {
            end.sent += 1;
            self.packets.push((peer, Packet { number: end.number, part: Part::Data(end.sent, bytes) }));
        }
    }

    /// Ends the connection to a peer, for another to begin.
    pub fn hang_up(&mut self, peer: PeerId, why: &'static str) {
        let Some(End { number, epoch, .. }) = self.ends.remove(&peer) else { return };
        self.packets.push((peer, Packet { number, part: Part::Close }));
        self.changes.extend(epoch.map(|epoch| Change::Down(peer, epoch, why)));
    }

    /// Lets everybody hear of us, gives up those that are silent, and tries again to connect.
    pub fn beat(&mut self, me: PeerId, now: Time) {
        let silent: Vec<PeerId> =
            self.ends.iter().filter(|(_, end)| now.since(end.heard) >= SILENT).map(|(peer, _)| *peer).collect();
        silent.into_iter().for_each(|peer| self.hang_up(peer, "nothing is heard of it"));
        for (&peer, end) in &self.ends {
            let part = if end.epoch.is_some() { Part::Beat(end.sent) } else { Part::Open };
            self.packets.push((peer, Packet { number: end.number, part }));
        }
        for peer in self.wanted.clone() {
            self.connect(peer, me, now);
        }
    }

    /// A message of a connection arrived.
    pub fn on_packet(&mut self, peer: PeerId, Packet { number, part }: Packet, me: PeerId, now: Time) {
        let known = self.ends.get(&peer).map(|end| end.number);
        match part {
            Part::Knock => self.connect(peer, me, now),
            Part::Open if known > Some(number) => {} // An old one.
            Part::Open => {
                if known != Some(number) {
                    self.hang_up(peer, "the other side begins anew");
                    self.ends.insert(peer, End { number, epoch: None, sent: 0, received: 0, heard: now });
                }
                self.up(peer, now);
                self.packets.push((peer, Packet { number, part: Part::Accept }));
            }
            Part::Close if known == Some(number) => self.hang_up(peer, "the other side has closed it"),
            Part::Close => {}
            // Of a connection that is over here.
            _ if known != Some(number) => self.packets.push((peer, Packet { number, part: Part::Close })),
            Part::Accept => self.up(peer, now),
            Part::Data(at, bytes) => {
                if let Some(epoch) = self.take(peer, at, now) {
                    self.changes.push(Change::Message(peer, epoch, bytes));
                }
            }
            Part::Beat(sent) => {
                self.up(peer, now);
                if self.ends.get(&peer).is_some_and(|end| end.received < sent) {
                    self.hang_up(peer, LOST);
                }
            }
        }
    }

    fn up(&mut self, peer: PeerId, now: Time) {
        let Some(end) = self.ends.get_mut(&peer) else { return };
        end.heard = now;
        if end.epoch.is_none() {
            self.epochs += 1;
            end.epoch = Some(self.epochs);
            self.changes.push(Change::Up(peer, self.epochs));
        }
    }

    /// Something with this number arrives: the connection, if it is the next. If something is missing before it, what
    /// was sent from there on is lost with the connection.
    fn take(&mut self, peer: PeerId, number: u64, now: Time) -> Option<u64> {
        self.up(peer, now);
        let end = self.ends.get_mut(&peer)?;
        if number > end.received + 1 {
            self.hang_up(peer, LOST);
            return None;
        }
        let is_next = number == end.received + 1;
        end.received += u64::from(is_next);
        end.epoch.filter(|_| is_next)
    }
}
