use std::collections::BTreeMap;
use std::mem::take;

use peerlock_types::{PeerId, Span, Time};

use super::traffic::count_of;
use super::{Broken, Event, Mark, Watch};
use crate::actor::Routing;
use crate::report::Sheet;

/// Counts round by round. Only waiting times count after the last round.
#[derive(Debug)]
pub struct PerRound {
    rounds: Vec<Round>,
    is_over: bool,
    /// By type: each hop of a routed message, and each direct message.
    messages: Vec<(&'static str, u64)>,
    hops: u64,
    /// Messages between overlays, and confirmations of hops.
    upkeep: u64,
    /// In this round, by peer.
    got: Vec<u32>,
    received: Received,
    waits: Vec<Span>,
    /// At the end of the last round.
    waiting: u64,
}

impl PerRound {
    pub fn of(kinds: &[&'static str]) -> Self {
        Self {
            rounds: Vec::new(),
            is_over: false,
            messages: kinds.iter().map(|kind| (*kind, 0)).collect(),
            hops: 0,
            upkeep: 0,
            got: Vec::new(),
            received: Received::default(),
            waits: Vec::new(),
            waiting: 0,
        }
    }

    fn end_round(&mut self, peers: &[PeerId]) {
        if !self.rounds.is_empty() {
            let got = |peer: &PeerId| self.got.get(peer.index()).copied().unwrap_or(0);
            peers.iter().map(got).for_each(|messages| self.received.add(messages));
        }
        self.got.fill(0);
    }
}

impl<A: Routing> Watch<A> for PerRound {
    #[inline(always)]
    fn on(&mut self, now: Time, event: Event<'_, A>) -> Result<(), Broken> {
        match event {
            Event::Mark(Mark::Round(peers), _) => {
                self.end_round(peers);
                self.rounds.push(Round::default());
            }
            Event::Mark(Mark::Skipped, _) => self.rounds.last_mut().into_iter().for_each(|round| round.skipped += 1),
            Event::Mark(Mark::Drain(peers), ledger) => {
                self.end_round(peers);
                self.is_over = true;
                self.waiting = ledger.waiting() as u64;
            }
            Event::Request(_) => self.rounds.last_mut().into_iter().for_each(|round| round.asked += 1),
            Event::Grant(client, ..) => {
                if let Some(round) = self.rounds.last_mut() {
                    round.grants += u64::from(!self.is_over);
                    self.waits.push(now.since(client.asked));
                }
            }
            Event::Send { message, .. } => {
                if let Some(round) = self.rounds.last_mut().filter(|_| !self.is_over) {
                    match A::kind(message) {
                        Some(kind) => {
                            self.messages[kind].1 += 1;
                            round.messages += 1;
                            self.hops += u64::from(A::is_hop(message));
                        }
                        None => self.upkeep += 1,
                    }
                }
            }
            Event::Deliver { to, message, .. } if A::kind(message).is_some() => *count_of(&mut self.got, to) += 1,
            _ => {}
        }
        Ok(())
    }

    fn fill(&mut self, sheet: &mut Sheet) {
        let sum = |of: fn(&Round) -> u64| self.rounds.iter().map(of).sum();
        for (name, count) in [
            ("asked in rounds", sum(|round| round.asked)),
            ("skipped", sum(|round| round.skipped)),
            ("hops", self.hops),
            ("upkeep", self.upkeep),
            ("waiting after the rounds", self.waiting),
        ] {
            sheet.numbers.sum(name, count);
        }
        sheet.flow.entries = sum(|round| round.grants);
        sheet.flow.messages = sum(|round| round.messages);
        sheet.messages = take(&mut self.messages);
        sheet.unsteady = take(&mut self.waits);
        sheet.rounds = take(&mut self.rounds);
        sheet.received = take(&mut self.received);
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Round {
    pub asked: u64,
    /// Another client of the peer held the resource or waited for it.
    pub skipped: u64,
    pub grants: u64,
    pub messages: u64,
}

impl Round {
    pub(crate) fn add(&mut self, other: Self) {
        self.asked += other.asked;
        self.skipped += other.skipped;
        self.grants += other.grants;
        self.messages += other.messages;
    }
}

/// The distribution of received messages per peer and round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    peers: BTreeMap<u32, u64>,
}

impl Received {
    pub(crate) fn add(&mut self, messages: u32) {
        *self.peers.entry(messages).or_default() += 1;
    }

    pub(crate) fn add_all(&mut self, other: Self) {
        for (messages, peers) in other.peers {
            *self.peers.entry(messages).or_default() += peers;
        }
    }

    pub fn counts(&self) -> impl Iterator<Item = (u32, u64)> {
        self.peers.iter().map(|(&messages, &peers)| (messages, peers))
    }

    pub fn total(&self) -> u64 {
        self.peers.values().sum()
    }

    pub fn mean(&self) -> Option<f64> {
        let all: u64 = self.counts().map(|(messages, peers)| u64::from(messages) * peers).sum();
        (self.total() > 0).then(|| all as f64 / self.total() as f64)
    }

    /// The nearest rank.
    pub fn quantile(&self, percent: u64) -> Option<u32> {
        let rank = (self.total() * percent).div_ceil(100).max(1);
        let mut below = 0;
        let reaches = |&(_, peers): &(u32, u64)| {
            below += peers;
            below >= rank
        };
        self.counts().find(reaches).map(|(messages, _)| messages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_known_counts() {
        let mut received = Received::default();
        assert_eq!((received.quantile(50), received.mean()), (None, None));
        for messages in [0, 0, 0, 1, 7] {
            received.add(messages);
        }
        assert_eq!(received.counts().collect::<Vec<_>>(), [(0, 3), (1, 1), (7, 1)]);
        assert_eq!(received.mean(), Some(1.6));
        for (percent, messages) in [(0, 0), (60, 0), (61, 1), (80, 1), (81, 7), (100, 7)] {
            assert_eq!(received.quantile(percent), Some(messages), "{percent} %");
        }
    }
}
