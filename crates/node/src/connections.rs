//! Connections made of single packets that may get lost, come twice or be cut off: what a transport promises a node
//! (`Transport` in `peerlock-service`), and no more. So two nodes are connected by way of a third (`relay.rs`), and
//! so are all of them in the simulator.
//!
//! ```text
//!   3                            7
//!   │                      knock  │        the larger asks for a connection, the smaller opens it, so that
//!   │◄────────────────────────────┤        there are never two
//!   │ open(n)                     │
//!   ├────────────────────────────►│ up     n is a reading of its clock: of two of one process the later has the larger
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
//!
//! Who hears nothing asks whether the other is there: at every beat as long as either has said something not long ago,
//! and otherwise after a long rest. So one that nobody uses costs next to nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::vec::Drain;

use peerlock_types::{PeerId, Span, Time};
use serde::{Deserialize, Serialize};

/// How often each end looks whether it is to ask the other, and tries again to connect.
pub const BEAT: Span = Span::from_secs(1);
/// A peer that does not answer when it was asked so often is taken for gone.
const MOST_ASKED: u32 = 3;
/// After this long without anything said a connection rests, and the other is asked this often.
const REST: Span = Span::from_secs(20);
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
    pub segment: Segment,
}

/// What a message of a connection is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Segment {
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
    /// It has sent this much, and wants to know whether the other is there. Answered with `Beat`.
    Ask(u64),
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
    last_received: Time,
    /// When it was last told something, and when either last was.
    said: Time,
    used: Time,
    /// How often it was asked since it was heard.
    asked: u32,
}

impl End {
    fn new(number: u64, answer: u64, now: Time) -> Self {
        Self { number, answer, epoch: None, sent: 0, received: 0, last_received: now, said: now, used: now, asked: 0 }
    }

    /// Whether it is to be asked now. What was heard so soon after it was told something may have been said before.
    fn is_due(&self, now: Time) -> bool {
        let is_used = now.since(self.used) < REST;
        let is_silent = now.since(self.last_received) >= if is_used { BEAT } else { REST };
        self.epoch.is_none() || self.asked > 0 || is_silent || is_used && self.last_received < self.said + BEAT
    }
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
    packets: Vec<(PeerId, Packet)>,
    /// What the node is to be told.
    changes: Vec<Change>,
}

impl Connections {
    /// None yet; the first that is up will be known by the number after this.
    pub fn after(epochs: u64) -> Self {
        Self { epochs, ..Self::default() }
    }

    /// Whether there is none, nobody is wanted, and nothing is to be sent or told.
    pub fn is_idle(&self) -> bool {
        self.ends.is_empty() && self.wanted.is_empty() && self.is_settled()
    }

    /// Whether nothing is to be sent or told.
    pub fn is_settled(&self) -> bool {
        self.packets.is_empty() && self.changes.is_empty()
    }

    /// Whether there is a connection to a peer, or one begins.
    pub fn has(&self, peer: PeerId) -> bool {
        self.ends.contains_key(&peer)
    }

    /// Whether that connection to a peer is up.
    pub fn is_up(&self, peer: PeerId, epoch: u64) -> bool {
        self.ends.get(&peer).is_some_and(|end| end.epoch == Some(epoch))
    }

    /// How many connections there are or are wanted, and how much is to be sent.
    #[cfg(any(test, feature = "fuzz"))]
    pub fn retained(&self) -> usize {
        self.ends.len() + self.wanted.len() + self.packets.len() + self.changes.len()
    }

    /// Takes out what is to be sent.
    pub fn take_packets(&mut self) -> Drain<'_, (PeerId, Packet)> {
        self.packets.drain(..)
    }

    /// Takes out what the node is to be told.
    pub fn take_changes(&mut self) -> Drain<'_, Change> {
        self.changes.drain(..)
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
            // A clock does not go back within one process.
            self.last = now.as_nanos().max(self.last + 1);
            self.ends.insert(peer, End::new(self.last, 0, now));
            self.packets.push((peer, Packet { number: self.last, answer: 0, segment: Segment::Open }));
        } else {
            self.packets.push((peer, Packet { number: 0, answer: 0, segment: Segment::Knock }));
        }
    }

    /// Does not go on to connect to those of whom that is true.
    pub fn give_up(&mut self, is_over: impl Fn(PeerId) -> bool) {
        self.ends.retain(|peer, end| end.epoch.is_some() || !is_over(*peer));
    }

    /// Sends on a connection that is up.
    pub fn send(&mut self, peer: PeerId, epoch: u64, bytes: Vec<u8>, now: Time) {
        if let Some(end) = self.ends.get_mut(&peer).filter(|end| end.epoch == Some(epoch)) {
            end.sent += 1;
            (end.said, end.used) = (now, now);
            let &mut End { number, answer, sent, .. } = end;
            self.packets.push((peer, Packet { number, answer, segment: Segment::Data(sent, bytes) }));
        }
    }

    /// Ends the connection to a peer, for another to begin.
    pub fn hang_up(&mut self, peer: PeerId, why: &'static str) {
        let Some(End { number, answer, epoch, .. }) = self.ends.remove(&peer) else { return };
        self.packets.push((peer, Packet { number, answer, segment: Segment::Close }));
        self.changes.extend(epoch.map(|epoch| Change::Down(peer, epoch, why)));
    }

    /// Asks whoever is to be heard, gives up those that are silent, and tries again to connect.
    pub fn beat(&mut self, me: PeerId, now: Time) {
        let due = self.ends.iter_mut().filter(|(_, end)| end.is_due(now));
        let mut silent = Vec::new();
        for (&peer, end) in due {
            if end.asked >= MOST_ASKED {
                silent.push(peer);
                continue;
            }
            end.asked += 1;
            let segment = if end.epoch.is_some() { Segment::Ask(end.sent) } else { Segment::Open };
            self.packets.push((peer, Packet { number: end.number, answer: end.answer, segment }));
        }
        silent.into_iter().for_each(|peer| self.hang_up(peer, "nothing is heard of it"));
        for peer in self.wanted.clone() {
            if self.ends.get(&peer).is_none_or(|end| end.epoch.is_none()) {
                self.changes.push(Change::Unreached(peer));
            }
            self.connect(peer, me, now);
        }
    }

    /// A message of a connection arrived.
    pub fn on_packet(&mut self, peer: PeerId, packet: Packet, me: PeerId, now: Time) {
        let Packet { number, answer, segment } = packet;
        if let Some(end) = self.ends.get_mut(&peer).filter(|end| end.number == number && end.answer == 0) {
            end.answer = answer;
        }
        let known = self.ends.get(&peer).map(|end| (end.number, end.answer));
        match segment {
            Segment::Knock => self.connect(peer, me, now),
            // An old one; or the clock of who opens it has begun anew with its process, which says so when it is asked
            // for the one that there is.
            Segment::Open if known.is_some_and(|(last, _)| last > number) => {
                if let Some(&End { number, answer, sent, .. }) = self.ends.get(&peer) {
                    self.packets.push((peer, Packet { number, answer, segment: Segment::Ask(sent) }));
                }
            }
            Segment::Open => {
                if known.is_none_or(|(last, _)| last != number) {
                    self.hang_up(peer, "the other side begins anew");
                    let answer = now.as_nanos().max(1);
                    self.ends.insert(peer, End::new(number, answer, now));
                }
                self.up(peer, now);
                let answer = self.ends.get(&peer).map_or(0, |end| end.answer);
                self.packets.push((peer, Packet { number, answer, segment: Segment::Accept }));
            }
            Segment::Close if known == Some((number, answer)) => self.hang_up(peer, "the other side has closed it"),
            Segment::Close => {}
            // Of a connection that is over here, or never was: another process has accepted what we have opened.
            _ if known != Some((number, answer)) => {
                self.packets.push((peer, Packet { number, answer, segment: Segment::Close }));
                if known.is_some_and(|(last, _)| last == number) {
                    self.hang_up(peer, "there is another process");
                }
            }
            Segment::Accept => self.up(peer, now),
            Segment::Data(at, bytes) => {
                if let Some(epoch) = self.take(peer, at, now) {
                    self.changes.push(Change::Message(peer, epoch, bytes));
                }
            }
            Segment::Beat(sent) => self.on_beat(peer, sent, now),
            Segment::Ask(sent) => {
                self.on_beat(peer, sent, now);
                if let Some(&End { number, answer, sent, .. }) = self.ends.get(&peer) {
                    self.packets.push((peer, Packet { number, answer, segment: Segment::Beat(sent) }));
                }
            }
        }
    }

    /// It is there, and has sent this much.
    fn on_beat(&mut self, peer: PeerId, sent: u64, now: Time) {
        self.up(peer, now);
        if self.ends.get(&peer).is_some_and(|end| end.received < sent) {
            self.hang_up(peer, LOST);
        }
    }

    fn up(&mut self, peer: PeerId, now: Time) {
        let Some(end) = self.ends.get_mut(&peer) else { return };
        (end.last_received, end.asked) = (now, 0);
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
        end.used = now;
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
        one.send(peer(2), 1, vec![7], NOW);
        carry(&mut one, &mut two, NOW);
        assert_eq!(two.changes.pop(), Some(Change::Message(peer(1), 1, vec![7])));
        one.send(peer(2), 1, vec![8], NOW);
        one.packets.clear();
        one.send(peer(2), 1, vec![9], NOW);
        carry(&mut one, &mut two, NOW);
        assert_eq!(two.changes.pop(), Some(Change::Down(peer(1), 1, LOST)));
        assert!(matches!(one.changes.pop(), Some(Change::Down(..))));
    }

    /// Two that are connected, and nothing of it is left to look at.
    fn connected() -> (Connections, Connections) {
        let (mut one, mut two) = (Connections::default(), Connections::default());
        one.connect(peer(2), peer(1), NOW);
        carry(&mut one, &mut two, NOW);
        assert_eq!((one.changes.len(), two.changes.len()), (1, 1));
        one.changes.clear();
        two.changes.clear();
        (one, two)
    }

    #[test]
    fn what_was_lost_last_is_missed_at_the_next_question() {
        let (mut one, mut two) = connected();
        one.send(peer(2), 1, vec![7], NOW);
        one.packets.clear();
        one.beat(peer(1), NOW + BEAT);
        carry(&mut one, &mut two, NOW + BEAT);
        assert_eq!(two.changes, [Change::Down(peer(1), 1, LOST)]);
        assert!(matches!(one.changes[..], [Change::Down(..)]));
    }

    #[test]
    fn what_comes_twice_is_heard_once() {
        let (mut one, mut two) = connected();
        one.send(peer(2), 1, vec![7], NOW);
        let (_, data) = one.packets[0].clone();
        carry(&mut one, &mut two, NOW);
        two.on_packet(peer(1), data, peer(2), NOW);
        assert_eq!(two.changes, [Change::Message(peer(1), 1, vec![7])]);
    }

    #[test]
    fn what_comes_late_of_an_earlier_connection_is_nothing_to_the_next() {
        let (mut one, mut two) = (Connections::default(), Connections::default());
        one.connect(peer(2), peer(1), NOW);
        let (_, open) = one.packets[0].clone();
        carry(&mut one, &mut two, NOW);
        one.hang_up(peer(2), "we hang up");
        let (_, close) = one.packets[0].clone();
        carry(&mut one, &mut two, NOW);
        one.connect(peer(2), peer(1), NOW + BEAT);
        carry(&mut one, &mut two, NOW + BEAT);
        assert!(matches!(two.changes[..], [Change::Up(..), Change::Down(..), Change::Up(..)]), "{:?}", two.changes);
        for late in [close, open] {
            two.on_packet(peer(1), late.clone(), peer(2), NOW + BEAT);
            carry(&mut one, &mut two, NOW + BEAT);
            assert_eq!(two.changes.len(), 3, "after {late:?}: {:?}", two.changes);
        }
    }

    /// Once the next process took over where the first had been, and what it said first was taken for a repetition.
    #[test]
    fn an_open_that_comes_to_another_process_does_not_go_on_with_its_connection() {
        let (mut one, mut two) = (Connections::default(), Connections::default());
        one.connect(peer(2), peer(1), NOW);
        let (_, open) = one.packets[0].clone();
        carry(&mut one, &mut two, NOW);
        two.send(peer(1), 1, vec![1], NOW);
        carry(&mut one, &mut two, NOW);
        let later = NOW + BEAT;
        let mut next = Connections::default();
        next.on_packet(peer(1), open, peer(2), later);
        next.send(peer(1), 1, vec![1], later);
        carry(&mut one, &mut next, later);
        assert!(
            matches!(one.changes.last(), Some(Change::Down(_, 1, "there is another process"))),
            "{:?}",
            one.changes
        );
        assert!(matches!(next.changes.last(), Some(Change::Down(..))));
    }

    /// Its clock has begun anew with it, and what it opens seemed to be an old one, until the other end had rested.
    #[test]
    fn who_starts_again_is_connected_after_a_beat_though_its_clock_has_gone_back() {
        let (mut one, mut two) = (Connections::default(), Connections::default());
        let later = NOW + REST * 10;
        one.connect(peer(2), peer(1), later);
        carry(&mut one, &mut two, later);
        let (now, _) = rest(&mut one, &mut two, later, 100);
        let mut next = Connections::default();
        next.connect(peer(2), peer(1), NOW);
        for beat in 0..=1 {
            let packets = std::mem::take(&mut next.packets);
            packets.into_iter().for_each(|(_, packet)| two.on_packet(peer(1), packet, peer(2), now + BEAT * beat));
            let packets = std::mem::take(&mut two.packets);
            packets.into_iter().for_each(|(_, packet)| next.on_packet(peer(2), packet, peer(1), NOW + BEAT * beat));
            let packets = std::mem::take(&mut next.packets);
            packets.into_iter().for_each(|(_, packet)| two.on_packet(peer(1), packet, peer(2), now + BEAT * beat));
            next.beat(peer(1), NOW + BEAT * (beat + 1));
        }
        assert!(matches!(two.changes[..], [Change::Up(..), Change::Down(..), Change::Up(..)]), "{:?}", two.changes);
    }

    /// Lets both beat for so many beats from then on, and counts what they say.
    fn rest(one: &mut Connections, two: &mut Connections, from: Time, beats: u64) -> (Time, usize) {
        let mut said = 0;
        for beat in 1..=beats {
            let now = from + BEAT * beat;
            one.beat(peer(1), now);
            two.beat(peer(2), now);
            said += one.packets.len() + two.packets.len();
            carry(one, two, now);
        }
        (from + BEAT * beats, said)
    }

    #[test]
    fn a_connection_that_nobody_uses_rests() {
        let (mut one, mut two) = (Connections::default(), Connections::default());
        one.connect(peer(2), peer(1), NOW);
        carry(&mut one, &mut two, NOW);
        let (now, said) = rest(&mut one, &mut two, NOW, 25);
        assert!((20..=42).contains(&said), "a question at every beat, as long as it is new: {said}");
        let (now, said) = rest(&mut one, &mut two, now, 100);
        assert!((4..=12).contains(&said), "one every twenty beats, of each at most: {said}");
        one.send(peer(2), 1, vec![7], now);
        carry(&mut one, &mut two, now);
        let (now, said) = rest(&mut one, &mut two, now, 15);
        assert!((14..=30).contains(&said), "{said}");
        let (_, said) = rest(&mut one, &mut two, now, 25);
        assert!((4..=16).contains(&said), "{said}");
        assert!(!one.changes.iter().chain(&two.changes).any(|change| matches!(change, Change::Down(..))));
    }

    #[test]
    fn who_was_told_something_asks_as_often_as_who_has_said_it() {
        let (mut one, mut two) = connected();
        let (now, _) = rest(&mut one, &mut two, NOW, 100);
        one.send(peer(2), 1, vec![7], now);
        carry(&mut one, &mut two, now);
        let mut asked = 0;
        for beat in 1..=15 {
            two.beat(peer(2), now + BEAT * beat);
            asked += two.packets.len();
            carry(&mut one, &mut two, now + BEAT * beat);
        }
        assert_eq!(asked, 15);
    }

    #[test]
    fn who_does_not_answer_is_given_up_soon_where_something_was_said_not_long_ago() {
        // A rest begins while it is asked in vain, in the third.
        for (before, is_notified, beats) in [(10, false, 4), (10, true, 4), (18, false, 4), (100, true, 4)] {
            let (mut one, mut two) = connected();
            let (now, _) = rest(&mut one, &mut two, NOW, before);
            if is_notified {
                one.send(peer(2), 1, vec![7], now);
            }
            // Nothing of what it says arrives any more. It looks between two beats of before: who was heard just now
            // and told something then is asked at once all the same.
            let first = now + if is_notified { BEAT / 2 } else { BEAT };
            let mut is_down = |beat: u64| {
                one.beat(peer(1), first + BEAT * (beat - 1));
                one.packets.clear();
                one.changes.iter().any(|change| matches!(change, Change::Down(..)))
            };
            assert_eq!((1..100).find(|beat| is_down(*beat)), Some(beats), "{before} {is_notified}");
        }
    }
}
