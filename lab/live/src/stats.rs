//! The state of a run in progress, and the effects of kills.

use std::collections::BTreeMap;

use peerlock_types::{PeerId, Time};

use crate::judge::Trial;
use crate::kill::{Kill, Target};
use crate::parent::Death;
use crate::wire::Update;

/// The parent's view. Holders and waiters are approximate, for the choice of victims.
#[derive(Default)]
pub struct Stats {
    pub trial: Trial,
    pub spared: Vec<Kill>,
    pub last_entry: Time,
    deaths: Vec<Killed>,
    entered: Vec<(Time, PeerId)>,
    holders: BTreeMap<PeerId, u32>,
    waiting: BTreeMap<PeerId, u64>,
    received: BTreeMap<PeerId, u64>,
    requests: u64,
}

struct Killed {
    trial: u32,
    peers: Vec<PeerId>,
    sent: Time,
    gone: Time,
}

impl Stats {
    pub fn record(&mut self, now: Time, at: Time, update: Update, lives: bool, progress: &dyn Fn(u64)) {
        if let Update::Entered(peer) = update {
            self.entered.push((at, peer));
            self.last_entry = now;
            progress(1);
        }
        match update {
            _ if !lives => {}
            Update::Asked(peer) => {
                self.requests += 1;
                self.waiting.entry(peer).or_insert(self.requests);
            }
            Update::Entered(peer) => {
                self.waiting.remove(&peer);
                *self.holders.entry(peer).or_default() += 1;
            }
            Update::Over(peer) => {
                self.waiting.remove(&peer);
                if let Some(count) = self.holders.get_mut(&peer) {
                    *count -= 1;
                    if *count == 0 {
                        self.holders.remove(&peer);
                    }
                }
            }
            Update::Got(peer) => *self.received.entry(peer).or_default() += 1,
        }
    }

    pub fn find(&self, target: Target) -> Option<PeerId> {
        let is_idle = |peer: &PeerId| !self.holders.contains_key(peer) && !self.waiting.contains_key(peer);
        match target {
            Target::Peer(peer) => Some(peer),
            Target::Holder => self.holders.keys().next().copied(),
            Target::Waiter => self.waiting.iter().min_by_key(|(_, since)| **since).map(|(peer, _)| *peer),
            Target::Busiest => {
                self.received.iter().max_by_key(|(peer, count)| (is_idle(peer), **count)).map(|(peer, _)| *peer)
            }
        }
    }

    /// Records a kill: the signal was sent at `sent`, and the process had exited at `gone`.
    pub fn record_kill(&mut self, sent: Time, gone: Time, trial: u32, peers: Vec<PeerId>) {
        for peer in &peers {
            self.holders.remove(peer);
            self.waiting.remove(peer);
            self.received.remove(peer);
            self.trial.deaths.push((gone, *peer));
        }
        self.deaths.push(Killed { trial, peers, sent, gone });
    }

    /// Returns the effect of each kill. Acquisitions count by their own times, since the parent may receive them after
    /// the kill.
    pub fn deaths(&self) -> impl Iterator<Item = Death> + '_ {
        self.deaths.iter().map(|Killed { trial, peers, sent, gone }| {
            // The last events of a killed process are no effect of the kill.
            let is_after = |(at, peer): &&(Time, PeerId)| at > if peers.contains(peer) { gone } else { sent };
            let after = || self.entered.iter().filter(is_after);
            let count = after().count() as u64;
            Death {
                trial: *trial,
                peers: peers.clone(),
                at: *sent,
                before: self.entered.len() as u64 - count,
                after: count,
                goes_on: after().map(|(at, _)| at.since(*sent)).min(),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use peerlock_types::Span;

    use super::*;

    const ONE: PeerId = PeerId::new(1);
    const TWO: PeerId = PeerId::new(2);

    fn at(seconds: u64) -> Time {
        Time::ZERO + Span::from_secs(seconds)
    }

    fn receive(stats: &mut Stats, second: u64, update: Update, lives: bool) {
        stats.record(at(100), at(second), update, lives, &|_| ());
    }

    #[test]
    fn acquisition_counts_by_its_own_time() {
        let mut stats = Stats::default();
        stats.record_kill(at(60), at(62), 0, vec![ONE]);
        // The killed process sent the second event after the signal.
        for (second, peer, lives) in [(59, TWO, true), (61, ONE, false), (58, ONE, false)] {
            receive(&mut stats, second, Update::Entered(peer), lives);
        }
        let death = stats.deaths().next().expect("a death");
        assert_eq!((death.at, death.before, death.after, death.goes_on), (at(60), 3, 0, None));
        for (second, peer) in [(75, ONE), (70, TWO)] {
            receive(&mut stats, second, Update::Entered(peer), true);
        }
        let death = stats.deaths().next().expect("one");
        assert_eq!((death.before, death.after, death.goes_on), (3, 2, Some(Span::from_secs(10))));
    }

    #[test]
    fn dead_peer_is_not_chosen_again() {
        let mut stats = Stats::default();
        for update in [Update::Got(ONE), Update::Got(ONE), Update::Got(TWO), Update::Asked(ONE)] {
            receive(&mut stats, 1, update, true);
        }
        assert_eq!([Target::Waiter, Target::Busiest].map(|target| stats.find(target)), [Some(ONE), Some(TWO)],);
        stats.record_kill(at(2), at(2), 0, vec![ONE]);
        for update in [Update::Asked(ONE), Update::Entered(ONE), Update::Got(ONE)] {
            receive(&mut stats, 1, update, false);
        }
        let found = [Target::Holder, Target::Waiter, Target::Busiest].map(|target| stats.find(target));
        assert_eq!(found, [None, None, Some(TWO)]);
    }
}
