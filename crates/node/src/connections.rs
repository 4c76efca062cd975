//! Connections made of single packets that may get lost, come twice or be cut off: what a transport promises a node
//! (`Transport` in `peerlock-service`), and no more. So two nodes are connected by way of a third (`relay.rs`), and
//! so are all of them in the simulator.
//!
//! ```text
//!   3                            7
//!   │                      knock  │        the larger asks for a connection, the smaller opens it, so that
//!   │◄────────────────────────────┤        there are never two
//!   │ open(n)                     │
//!   ├────────────────────────────►│ up     n is a reading of its clock: of two connections the later has the larger
//!   │               accept(n, m)  │        and so is m, which tells this process from the next that gets the same open
//!   │◄────────────────────────────┤
//!   │ up                          │
//!   │ data(n, m, 1), data(n, m, 2) ✂
//!   ├────────────────────────────►│
//!   │ data(n, m, 3)               │
//!   ├────────────────────────────►│ down   2 was lost: the connection breaks, here at once …
//!   │                close(n, m)  │
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
    /// The number of the connection, by who has opened it.
    pub number: u64,
    /// Its number by who has accepted it; 0 if that is not known. What opens a connection may come late, to another
    /// process than the one that accepted it first, and from that one on it is another connection.
    pub answer: u64,
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
    /// Somebody is wanted and was not found for a beat.
    Unreached(PeerId),
}

/// One end of a connection.
#[derive(Clone, Copy, Debug)]
struct End {
    number: u64,
    answer: u64,
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

    /// How many connections there are or are wanted, and how much is to be sent.
    #[cfg(any(test, feature = "forge"))]
    pub fn kept(&self) -> usize {
        self.ends.len() + self.wanted.len() + self.packets.len() + self.changes.len()
    }

    /// Connects to a peer, and reconnects whenever that ends.
    pub fn want(&mut self, peer: PeerId, me: PeerId, now: Time) {
        self.wanted.insert(peer);
        self.connect(peer, me, now);
    }

    /// Does not connect to a peer again once the connection that there is has ended.
    pub fn let_go(&mut self, peer: PeerId) {
        self.wanted.remove(&peer);
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
            self.ends.insert(peer, End { number: self.last, answer: 0, epoch: None, sent: 0, received: 0, heard: now });
            self.packets.push((peer, Packet { number: self.last, answer: 0, part: Part::Open }));
        } else {
            self.packets.push((peer, Packet { number: 0, answer: 0, part: Part::Knock }));
        }
    }

    /// Sends on a connection that is up.
    pub fn send(&mut self, peer: PeerId, epoch: u64, bytes: Vec<u8>) {
        if let Some(end) = self.ends.get_mut(&peer).filter(|end| end.epoch == Some(epoch)) {
            end.sent += 1;
            let &mut End { number, answer, sent, .. } = end;
            self.packets.push((peer, Packet { number, answer, part: Part::Data(sent, bytes) }));
        }
    }

    /// Ends the connection to a peer, for another to begin.
    pub fn hang_up(&mut self, peer: PeerId, why: &'static str) {
        let Some(End { number, answer, epoch, .. }) = self.ends.remove(&peer) else { return };
        self.packets.push((peer, Packet { number, answer, part: Part::Close }));
        self.changes.extend(epoch.map(|epoch| Change::Down(peer, epoch, why)));
    }

    /// Lets everybody hear of us, gives up those that are silent, and tries again to connect.
    pub fn beat(&mut self, me: PeerId, now: Time) {
        let silent: Vec<PeerId> =
            self.ends.iter().filter(|(_, end)| now.since(end.heard) >= SILENT).map(|(peer, _)| *peer).collect();
        silent.into_iter().for_each(|peer| self.hang_up(peer, "nothing is heard of it"));
        for (&peer, end) in &self.ends {
            let part = if end.epoch.is_some() { Part::Beat(end.sent) } else { Part::Open };
            self.packets.push((peer, Packet { number: end.number, answer: end.answer, part }));
        }
        for peer in self.wanted.clone() {
            if self.ends.get(&peer).is_none_or(|end| end.epoch.is_none()) {
                self.changes.push(Change::Unreached(peer));
            }
            self.connect(peer, me, now);
        }
    }

    /// A message of a connection arrived.
    pub fn on_packet(&mut self, peer: PeerId, packet: Packet, me: PeerId, now: Time) {
        let Packet { number, answer, part } = packet;
        if let Some(end) = self.ends.get_mut(&peer).filter(|end| end.number == number && end.answer == 0) {
            end.answer = answer;
        }
        let known = self.ends.get(&peer).map(|end| (end.number, end.answer));
        match part {
            Part::Knock => self.connect(peer, me, now),
            Part::Open if known.is_some_and(|(last, _)| last > number) => {} // An old one.
            Part::Open => {
                if known.is_none_or(|(last, _)| last != number) {
                    self.hang_up(peer, "the other side begins anew");
                    let answer = now.as_nanos().max(1);
                    self.ends.insert(peer, End { number, answer, epoch: None, sent: 0, received: 0, heard: now });
                }
                self.up(peer, now);
                let answer = self.ends.get(&peer).map_or(0, |end| end.answer);
                self.packets.push((peer, Packet { number, answer, part: Part::Accept }));
            }
            Part::Close if known == Some((number, answer)) => self.hang_up(peer, "the other side has closed it"),
            Part::Close => {}
            // Of a connection that is over here, or never was: another process has accepted what we have opened.
            _ if known != Some((number, answer)) => {
                self.packets.push((peer, Packet { number, answer, part: Part::Close }));
                if known.is_some_and(|(last, _)| last == number) {
                    self.hang_up(peer, "there is another process");
                }
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_nanos(1);

    fn peer(number: u64) -> PeerId {
        PeerId::new(number)
    }

    /// Carries everything that 1 and 2 have for each other.
    fn carry(one: &mut Connections, two: &mut Connections, now: Time) {
        while !one.packets.is_empty() || !two.packets.is_empty() {
            let (to_two, to_one) = (std::mem::take(&mut one.packets), std::mem::take(&mut two.packets));
            to_two.into_iter().for_each(|(_, packet)| two.on_packet(peer(1), packet, peer(2), now));
            to_one.into_iter().for_each(|(_, packet)| one.on_packet(peer(2), packet, peer(1), now));
        }
    }

    #[test]
    fn what_one_sends_the_other_hears_and_what_is_missing_breaks_it() {
        let (mut one, mut two) = (Connections::default(), Connections::default());
        two.connect(peer(1), peer(2), NOW);
        carry(&mut one, &mut two, NOW);
        assert_eq!((&one.changes, &two.changes), (&vec![Change::Up(peer(2), 1)], &vec![Change::Up(peer(1), 1)]));
        one.send(peer(2), 1, vec![7]);
        carry(&mut one, &mut two, NOW);
        assert_eq!(two.changes.pop(), Some(Change::Message(peer(1), 1, vec![7])));
        one.send(peer(2), 1, vec![8]);
        one.packets.clear();
        one.send(peer(2), 1, vec![9]);
        carry(&mut one, &mut two, NOW);
        assert_eq!(two.changes.pop(), Some(Change::Down(peer(1), 1, LOST)));
        assert!(matches!(one.changes.pop(), Some(Change::Down(..))));
    }

    /// Once the next process took over where the first had been, and what it said first was taken for a repetition.
    #[test]
    fn an_open_that_comes_to_another_process_does_not_go_on_with_its_connection() {
        let (mut one, mut two) = (Connections::default(), Connections::default());
        one.connect(peer(2), peer(1), NOW);
        let (_, open) = one.packets[0].clone();
        carry(&mut one, &mut two, NOW);
        two.send(peer(1), 1, vec![1]);
        carry(&mut one, &mut two, NOW);
        let later = NOW + BEAT;
        let mut next = Connections::default();
        next.on_packet(peer(1), open, peer(2), later);
        next.send(peer(1), 1, vec![1]);
        carry(&mut one, &mut next, later);
        assert!(
            matches!(one.changes.last(), Some(Change::Down(_, 1, "there is another process"))),
            "{:?}",
            one.changes
        );
        assert!(matches!(next.changes.last(), Some(Change::Down(..))));
    }
}
