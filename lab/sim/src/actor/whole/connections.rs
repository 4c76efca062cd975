//! The simulator's transport: connections over packets that may be lost, duplicated or cut off, with the guarantees of
//! `Transport` in `peerlock-service`.
//!
//! ```text
//!   3                            7
//!   │                      knock  │        the larger host asks for a connection, the smaller opens it, so that
//!   │◄────────────────────────────┤        there are never two
//!   │ open(n)                     │
//!   ├────────────────────────────►│ up     n is a reading of its clock, so it increases within one process;
//!   │               accept(n, m)  │        so does m, which distinguishes this process from a later one that
//!   │◄────────────────────────────┤        receives the same open
//!   │ up                          │
//!   │ data(n, m, 1), data(n, m, 2) ✂
//!   ├────────────────────────────►│
//!   │ data(n, m, 3)               │
//!   ├────────────────────────────►│ down   2 was lost: the connection breaks, here at once …
//!   │                close(n, m)  │
//!   │◄────────────────────────────┤        … and there when this arrives, or by a timeout
//! ```
//!
//! An end that receives nothing probes the other: at every beat while the connection is in use, rarely when it is idle.

use std::collections::{BTreeMap, BTreeSet};
use std::vec::Drain;

use peerlock_types::{PeerId, Span, Time};

/// The interval of probes and of attempts to connect.
pub const BEAT: Span = Span::from_secs(1);
/// Unanswered probes, after which a peer is considered gone.
const MOST_ASKED: u32 = 3;
/// A connection without data for this long is idle, and probed at this interval.
const REST: Span = Span::from_secs(20);
const LOST: &str = "a packet was lost";

/// A message between the two ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Chosen by the side that opened it.
    pub number: u64,
    /// Chosen by the side that accepted it; 0 if unknown. A late `Open` may be accepted by a later process: that is
    /// another connection.
    pub answer: u64,
    pub segment: Segment,
}

/// The content of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// Asks the receiver to open a connection.
    Knock,
    Open,
    Accept,
    /// Data, numbered from 1.
    Data(u64, Vec<u8>),
    /// Answers `Ask`, with the number of data packets sent.
    Beat(u64),
    /// The sender has no such connection.
    Close,
    /// A probe, with the number of data packets sent. Answered with `Beat`.
    Ask(u64),
}

/// A change for the node. The second field is the epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Up(PeerId, u64),
    /// A connection has ended, for this reason.
    Down(PeerId, u64, &'static str),
    Message(PeerId, u64, Vec<u8>),
    /// A wanted peer was not reached for a beat.
    Unreached(PeerId),
}

#[derive(Clone, Copy, Debug)]
struct End {
    number: u64,
    answer: u64,
    /// The number by which the node knows it, once established.
    epoch: Option<u64>,
    sent: u64,
    received: u64,
    last_received: Time,
    sent_at: Time,
    used: Time,
    /// Probes since the last packet received.
    asked: u32,
}

impl End {
    fn new(number: u64, answer: u64, now: Time) -> Self {
        Self {
            number,
            answer,
            epoch: None,
            sent: 0,
            received: 0,
            last_received: now,
            sent_at: now,
            used: now,
            asked: 0,
        }
    }

    /// A packet received within a beat of sending data may have been sent before that data arrived.
    fn is_due(&self, now: Time) -> bool {
        let is_used = now.since(self.used) < REST;
        let is_silent = now.since(self.last_received) >= if is_used { BEAT } else { REST };
        self.epoch.is_none() || self.asked > 0 || is_silent || is_used && self.last_received < self.sent_at + BEAT
    }
}

#[derive(Debug, Default)]
pub struct Connections {
    ends: BTreeMap<PeerId, End>,
    wanted: BTreeSet<PeerId>,
    last: u64,
    epochs: u64,
    packets: Vec<(PeerId, Packet)>,
    changes: Vec<Change>,
}

impl Connections {
    pub fn take_packets(&mut self) -> Drain<'_, (PeerId, Packet)> {
        self.packets.drain(..)
    }

    pub fn take_changes(&mut self) -> Drain<'_, Change> {
        self.changes.drain(..)
    }

    /// Connects to a peer, and reconnects whenever the connection ends.
    pub fn want(&mut self, peer: PeerId, me: PeerId, now: Time) {
        self.wanted.insert(peer);
        self.connect(peer, me, now);
    }

    pub fn let_go(&mut self, peer: PeerId) {
        self.wanted.remove(&peer);
    }

    /// Connects to a peer once.
    pub fn connect(&mut self, peer: PeerId, me: PeerId, now: Time) {
        if self.ends.contains_key(&peer) {
        } else if me < peer {
            // The clock does not go back within one process.
            self.last = now.as_nanos().max(self.last + 1);
            self.ends.insert(peer, End::new(self.last, 0, now));
            self.packets.push((peer, Packet { number: self.last, answer: 0, segment: Segment::Open }));
        } else {
            self.packets.push((peer, Packet { number: 0, answer: 0, segment: Segment::Knock }));
        }
    }

    pub fn send(&mut self, peer: PeerId, epoch: u64, bytes: Vec<u8>, now: Time) {
        if let Some(end) = self.ends.get_mut(&peer).filter(|end| end.epoch == Some(epoch)) {
            end.sent += 1;
            (end.sent_at, end.used) = (now, now);
            let &mut End { number, answer, sent, .. } = end;
            self.packets.push((peer, Packet { number, answer, segment: Segment::Data(sent, bytes) }));
        }
    }

    pub fn hang_up(&mut self, peer: PeerId, why: &'static str) {
        let Some(End { number, answer, epoch, .. }) = self.ends.remove(&peer) else { return };
        self.packets.push((peer, Packet { number, answer, segment: Segment::Close }));
        self.changes.extend(epoch.map(|epoch| Change::Down(peer, epoch, why)));
    }

    /// Probes, closes connections that do not answer, and retries wanted ones. Called at every [`BEAT`].
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
        silent.into_iter().for_each(|peer| self.hang_up(peer, "it does not answer"));
        for peer in self.wanted.clone() {
            if self.ends.get(&peer).is_none_or(|end| end.epoch.is_none()) {
                self.changes.push(Change::Unreached(peer));
            }
            self.connect(peer, me, now);
        }
    }

    pub fn on_packet(&mut self, peer: PeerId, packet: Packet, me: PeerId, now: Time) {
        let Packet { number, answer, segment } = packet;
        if let Some(end) = self.ends.get_mut(&peer).filter(|end| end.number == number && end.answer == 0) {
            end.answer = answer;
        }
        let known = self.ends.get(&peer).map(|end| (end.number, end.answer));
        match segment {
            Segment::Knock => self.connect(peer, me, now),
            // An old packet; or a restarted opener whose clock has restarted, which closes this connection when it is
            // probed.
            Segment::Open if known.is_some_and(|(last, _)| last > number) => {
                if let Some(&End { number, answer, sent, .. }) = self.ends.get(&peer) {
                    self.packets.push((peer, Packet { number, answer, segment: Segment::Ask(sent) }));
                }
            }
            Segment::Open => {
                if known.is_none_or(|(last, _)| last != number) {
                    self.hang_up(peer, "the other side has opened another connection");
                    let answer = now.as_nanos().max(1);
                    self.ends.insert(peer, End::new(number, answer, now));
                }
                self.up(peer, now);
                let answer = self.ends.get(&peer).map_or(0, |end| end.answer);
                self.packets.push((peer, Packet { number, answer, segment: Segment::Accept }));
            }
            Segment::Close if known == Some((number, answer)) => self.hang_up(peer, "the other side has closed it"),
            Segment::Close => {}
            // For an unknown connection: closed here, or accepted by another process.
            _ if known != Some((number, answer)) => {
                self.packets.push((peer, Packet { number, answer, segment: Segment::Close }));
                if known.is_some_and(|(last, _)| last == number) {
                    self.hang_up(peer, "another process has accepted it");
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

    /// Returns the epoch if this is the next data packet. If an earlier one is missing, the connection breaks.
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

    fn carry(one: &mut Connections, two: &mut Connections, now: Time) {
        while !one.packets.is_empty() || !two.packets.is_empty() {
            let (to_two, to_one) = (std::mem::take(&mut one.packets), std::mem::take(&mut two.packets));
            to_two.into_iter().for_each(|(_, packet)| two.on_packet(peer(1), packet, peer(2), now));
            to_one.into_iter().for_each(|(_, packet)| one.on_packet(peer(2), packet, peer(1), now));
        }
    }

    #[test]
    fn data_is_delivered_and_a_gap_breaks_the_connection() {
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
    fn lost_last_packet_is_detected_by_the_next_probe() {
        let (mut one, mut two) = connected();
        one.send(peer(2), 1, vec![7], NOW);
        one.packets.clear();
        one.beat(peer(1), NOW + BEAT);
        carry(&mut one, &mut two, NOW + BEAT);
        assert_eq!(two.changes, [Change::Down(peer(1), 1, LOST)]);
        assert!(matches!(one.changes[..], [Change::Down(..)]));
    }

    #[test]
    fn duplicate_data_is_delivered_once() {
        let (mut one, mut two) = connected();
        one.send(peer(2), 1, vec![7], NOW);
        let (_, data) = one.packets[0].clone();
        carry(&mut one, &mut two, NOW);
        two.on_packet(peer(1), data, peer(2), NOW);
        assert_eq!(two.changes, [Change::Message(peer(1), 1, vec![7])]);
    }

    #[test]
    fn late_packets_of_an_earlier_connection_are_ignored() {
        let (mut one, mut two) = (Connections::default(), Connections::default());
        one.connect(peer(2), peer(1), NOW);
        let (_, open) = one.packets[0].clone();
        carry(&mut one, &mut two, NOW);
        one.hang_up(peer(2), "closed by this side");
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

    #[test]
    fn late_open_at_another_process_breaks_the_connection() {
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
            matches!(one.changes.last(), Some(Change::Down(_, 1, "another process has accepted it"))),
            "{:?}",
            one.changes
        );
        assert!(matches!(next.changes.last(), Some(Change::Down(..))));
    }

    #[test]
    fn restarted_opener_with_an_earlier_clock_reconnects() {
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
    fn idle_connection_is_probed_rarely() {
        let (mut one, mut two) = (Connections::default(), Connections::default());
        one.connect(peer(2), peer(1), NOW);
        carry(&mut one, &mut two, NOW);
        let (now, said) = rest(&mut one, &mut two, NOW, 25);
        assert!((20..=42).contains(&said), "a probe at every beat while it is new: {said}");
        let (now, said) = rest(&mut one, &mut two, now, 100);
        assert!((4..=12).contains(&said), "at most one of each every twenty beats: {said}");
        one.send(peer(2), 1, vec![7], now);
        carry(&mut one, &mut two, now);
        let (now, said) = rest(&mut one, &mut two, now, 15);
        assert!((14..=30).contains(&said), "{said}");
        let (_, said) = rest(&mut one, &mut two, now, 25);
        assert!((4..=16).contains(&said), "{said}");
        assert!(!one.changes.iter().chain(&two.changes).any(|change| matches!(change, Change::Down(..))));
    }

    #[test]
    fn receiver_of_data_probes_as_often_as_its_sender() {
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
    fn silent_peer_is_given_up_soon_after_recent_data() {
        for (before, sends, beats) in [(10, false, 4), (10, true, 4), (18, false, 4), (100, true, 4)] {
            let (mut one, mut two) = connected();
            let (now, _) = rest(&mut one, &mut two, NOW, before);
            if sends {
                one.send(peer(2), 1, vec![7], now);
            }
            let first = now + if sends { BEAT / 2 } else { BEAT };
            let mut is_down = |beat: u64| {
                one.beat(peer(1), first + BEAT * (beat - 1));
                one.packets.clear();
                one.changes.iter().any(|change| matches!(change, Change::Down(..)))
            };
            assert_eq!((1..100).find(|beat| is_down(*beat)), Some(beats), "{before} {sends}");
        }
    }
}
