//! What comes out of rounds.

use std::collections::BTreeMap;

/// What came out of all trials; every number is a sum over them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RoundsReport {
    /// How many trials.
    pub trials: u32,
    /// Messages of the protocol by type: one for every hop of a routed message, and one for every direct message. Only
    /// of the rounds, not of what follows them.
    pub messages: Vec<(&'static str, u64)>,
    /// How many of these were hops of routed messages.
    pub hops: u64,
    /// Messages between overlays, and confirmations of hops; during the rounds.
    pub upkeep: u64,
    /// The same, and more, by round.
    pub rounds: Vec<Round>,
    /// Messages of the protocol that a peer got in a round, for all peers and rounds: Figures 4a–c of the E2E paper.
    pub received: Received,
    /// Who was still waiting when the last round was over.
    pub waiting: u64,
    /// What became of resources of which fewer than 2m − n replicas lost their memory within any one lease time …
    pub within: Harm,
    /// … and of the others, for which no quorum promises anything.
    pub beyond: Harm,
    /// What went wrong on the way.
    pub trouble: Trouble,
    /// Events simulated.
    pub events: u64,
}

/// One round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// How many clients asked.
    pub asked: u64,
    /// How many did not, since another client of their peer had the resource or waited for it.
    pub skipped: u64,
    /// How many went inside.
    pub grants: u64,
    /// Messages of the protocol that were sent.
    pub messages: u64,
}

/// How resources fared, to the very end. One resource of one trial counts as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Harm {
    /// How many there were.
    pub resources: u64,
    /// How many clients went inside.
    pub grants: u64,
    /// How many of them while somebody was inside.
    pub violations: u64,
    /// How many of them with a fencing number no larger than an earlier one.
    pub fencing_back: u64,
    /// Requests that were never served, though their peers lived and everybody else had left.
    pub stuck: u64,
}

impl Harm {
    /// Nothing happened that may not happen.
    pub fn is_none(&self) -> bool {
        self.violations + self.fencing_back + self.stuck == 0
    }

    /// Both together.
    pub fn plus(self, other: Self) -> Self {
        Self {
            resources: self.resources + other.resources,
            grants: self.grants + other.grants,
            violations: self.violations + other.violations,
            fencing_back: self.fencing_back + other.fencing_back,
            stuck: self.stuck + other.stuck,
        }
    }
}

/// What went wrong on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trouble {
    /// Peers that failed, silently, as churn.
    pub failed: u64,
    /// Peers that failed because one of their clients was to crash.
    pub crashed: u64,
    /// Peers that came.
    pub joined: u64,
    /// Times that a peer lost what it kept for others.
    pub resets: u64,
    /// Times that a replica lost its memory, for that or because its key had a new owner.
    pub forgotten: u64,
    /// The most replicas of one resource that lost their memory within one lease time, in any trial.
    pub most_forgotten: u32,
    /// Clients that lost their grant while they were inside.
    pub lost: u64,
    /// Clients that were sent away.
    pub refused: u64,
    /// Routed messages that found no way to their owner.
    pub undelivered: u64,
    /// Messages that made no sense where they came.
    pub strange: u64,
}

/// How many peers got how many messages in a round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    peers: BTreeMap<u32, u64>,
}

impl Received {
    /// A peer got this many in a round.
    pub(crate) fn add(&mut self, messages: u32) {
        *self.peers.entry(messages).or_default() += 1;
    }

    /// How many messages, and how many times a peer got just as many in a round; the fewest messages first.
    pub fn counts(&self) -> impl Iterator<Item = (u32, u64)> {
        self.peers.iter().map(|(&messages, &peers)| (messages, peers))
    }

    /// How many pairs of a peer and a round there are.
    pub fn total(&self) -> u64 {
        self.peers.values().sum()
    }

    /// The mean; `None` of nothing.
    pub fn mean(&self) -> Option<f64> {
        let all: u64 = self.counts().map(|(messages, peers)| u64::from(messages) * peers).sum();
        (self.total() > 0).then(|| all as f64 / self.total() as f64)
    }

    /// The fewest messages that at least `percent` of 100 do not exceed (nearest rank); `None` of nothing.
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

impl RoundsReport {
    /// Messages of the protocol, of all types.
    pub fn sent(&self) -> u64 {
        self.messages.iter().map(|&(_, count)| count).sum()
    }

    /// How many went inside during the rounds.
    pub fn grants(&self) -> u64 {
        self.rounds.iter().map(|round| round.grants).sum()
    }

    /// How many asked.
    pub fn asked(&self) -> u64 {
        self.rounds.iter().map(|round| round.asked).sum()
    }

    /// How many did not ask, since another client of their peer had.
    pub fn skipped(&self) -> u64 {
        self.rounds.iter().map(|round| round.skipped).sum()
    }

    /// Messages of the protocol for each time somebody went inside, both counted during the rounds; `None` if nobody did.
    pub fn messages_per_grant(&self) -> Option<f64> {
        (self.grants() > 0).then(|| self.sent() as f64 / self.grants() as f64)
    }

    /// How all resources fared, whatever was forgotten.
    pub fn harm(&self) -> Harm {
        self.within.plus(self.beyond)
    }

    /// Both together: other trials of the same protocol.
    pub fn plus(mut self, other: Self) -> Self {
        self.trials += other.trials;
        if self.messages.is_empty() {
            self.messages = other.messages;
        } else {
            self.messages.iter_mut().zip(other.messages).for_each(|(mine, theirs)| mine.1 += theirs.1);
        }
        self.hops += other.hops;
        self.upkeep += other.upkeep;
        self.rounds.resize(self.rounds.len().max(other.rounds.len()), Round::default());
        for (mine, theirs) in self.rounds.iter_mut().zip(other.rounds) {
            mine.asked += theirs.asked;
            mine.skipped += theirs.skipped;
            mine.grants += theirs.grants;
            mine.messages += theirs.messages;
        }
        for (messages, peers) in other.received.peers {
            *self.received.peers.entry(messages).or_default() += peers;
        }
        self.waiting += other.waiting;
        self.within = self.within.plus(other.within);
        self.beyond = self.beyond.plus(other.beyond);
        self.trouble = self.trouble.plus(other.trouble);
        self.events += other.events;
        self
    }
}

impl Trouble {
    fn plus(self, other: Self) -> Self {
        Self {
            failed: self.failed + other.failed,
            crashed: self.crashed + other.crashed,
            joined: self.joined + other.joined,
            resets: self.resets + other.resets,
            forgotten: self.forgotten + other.forgotten,
            most_forgotten: self.most_forgotten.max(other.most_forgotten),
            lost: self.lost + other.lost,
            refused: self.refused + other.refused,
            undelivered: self.undelivered + other.undelivered,
            strange: self.strange + other.strange,
        }
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
