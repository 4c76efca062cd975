//! The census: answers in, a [`Count`] out.

use alloc::vec::Vec;

use peerlock_types::PeerId;

use super::message::{Answer, Report};
use crate::registry::{Detached, Session};
use crate::token::{Arrival, Claim, Token};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Census {
    /// They have not replied. The end of a session does not remove one, but opens a new generation (R3).
    asked: Vec<Session>,
    answers: Vec<Answer>,
    /// As of the start of the generation.
    detached: Vec<Detached>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) adopted: Vec<(PeerId, Report)>,
    /// A newer token of the slot exists.
    pub(super) void: Vec<(PeerId, Token)>,
    /// Without a token and without a detached grant.
    pub(super) missing: Vec<u32>,
    /// Of slots without a token.
    pub(super) detached: Vec<Detached>,
    /// By arrival; those without a confirmed number come last.
    pub(super) waiting: Vec<(Claim, Option<Arrival>)>,
    pub(super) remaining: Vec<Session>,
}

impl Census {
    pub(super) fn new(asked: Vec<Session>, detached: Vec<Detached>) -> Self {
        Self { asked, answers: Vec::new(), detached }
    }

    pub(super) fn asked(&self) -> &[Session] {
        &self.asked
    }

    pub(super) fn take(&mut self, answer: Answer, is_asked: impl Fn(&Session) -> bool) {
        if let Some(at) = self.asked.iter().position(is_asked) {
            self.asked.remove(at);
            let place = self.answers.partition_point(|other| other.session < answer.session);
            self.answers.insert(place, answer);
        }
    }

    pub(super) fn retained(&self, is_of: impl Fn(PeerId) -> bool) -> usize {
        let answers = self.answers.iter().filter(|answer| is_of(answer.session.peer));
        answers.map(|answer| 1 + answer.tokens.len() + answer.waiting.len()).sum()
    }

    pub(super) fn is_complete(&self) -> bool {
        self.asked.is_empty()
    }

    pub(super) fn forget_detached(&mut self) {
        self.detached.clear();
    }

    pub(super) fn count(self, slots: u32) -> Count {
        let Self { answers, mut detached, .. } = self;
        let remaining = answers.iter().filter(|answer| !answer.is_empty()).map(|answer| answer.session).collect();
        let tokens =
            answers.iter().flat_map(|answer| answer.tokens.iter().map(|&report| (answer.session.peer, report)));
        let mut tokens: Vec<(PeerId, Report)> = tokens.collect();
        tokens.sort_by_key(|(_, Report { token, .. })| (token.slot, core::cmp::Reverse(token.fencing)));
        let (mut adopted, mut void): (Vec<(PeerId, Report)>, Vec<_>) = (Vec::new(), Vec::new());
        for (peer, report) in tokens {
            let Token { slot, fencing } = report.token;
            let is_older = |detached: &Detached| detached.slot == slot && fencing <= detached.fencing;
            if adopted.last().is_some_and(|(_, last)| last.token.slot == slot) || detached.iter().any(is_older) {
                void.push((peer, report.token));
            } else {
                adopted.push((peer, report));
            }
        }
        let is_here = |slot: u32| adopted.binary_search_by_key(&slot, |(_, report)| report.token.slot).is_ok();
        detached.retain(|detached| !is_here(detached.slot));
        let is_detached = |slot: u32| detached.iter().any(|detached| detached.slot == slot);
        let missing = (0..slots).filter(|&slot| !is_here(slot) && !is_detached(slot)).collect();
        let waiting = answers.iter().flat_map(|Answer { session, waiting, .. }| {
            waiting.iter().map(|&(ticket, arrival)| (Claim { peer: session.peer, ticket }, arrival))
        });
        let mut waiting: Vec<(Claim, Option<Arrival>)> = waiting.collect();
        waiting.sort_by_key(|&(claim, arrival)| (arrival.is_none(), arrival, claim));
        Count { adopted, void, missing, detached, waiting, remaining }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use peerlock_types::Ticket;

    use super::*;

    fn session(peer: u64) -> Session {
        Session { peer: PeerId::new(peer), number: 0 }
    }

    fn report(slot: u32, fencing: u64, in_use: bool) -> Report {
        Report { token: Token { slot, fencing }, in_use }
    }

    fn count(answers: Vec<(u64, Vec<Report>)>, detached: Vec<Detached>, slots: u32) -> Count {
        let asked = answers.iter().map(|&(peer, _)| session(peer)).collect();
        let mut census = Census::new(asked, detached);
        for (peer, tokens) in answers {
            assert!(!census.is_complete());
            let answer = Answer { session: session(peer), tokens, waiting: Vec::new() };
            census.take(answer, |asked| *asked == session(peer));
        }
        assert!(census.is_complete());
        census.count(slots)
    }

    #[test]
    fn unreported_tokens_are_missing() {
        let count = count(vec![(1, vec![report(1, 5, true)]), (2, vec![])], vec![], 3);
        assert_eq!((count.missing, count.remaining), (vec![0, 2], vec![session(1)]));
        assert_eq!(count.adopted, [(PeerId::new(1), report(1, 5, true))]);
    }

    #[test]
    fn newer_of_two_tokens_of_a_slot_is_adopted() {
        let count = count(vec![(1, vec![report(0, 105, true)]), (2, vec![report(0, 200, false)])], vec![], 1);
        assert_eq!(count.adopted, [(PeerId::new(2), report(0, 200, false))]);
        assert_eq!(count.void, [(PeerId::new(1), Token { slot: 0, fencing: 105 })]);
    }

    #[test]
    fn detached_slot_is_not_missing_and_voids_older_token() {
        let detached = vec![Detached { slot: 0, fencing: 107 }];
        let lost = count(vec![(1, vec![report(0, 104, true)])], detached.clone(), 1);
        assert_eq!((lost.missing, lost.void.len(), lost.detached), (vec![], 1, detached.clone()));
        let held = count(vec![(1, vec![report(0, 108, true)])], detached, 1);
        assert_eq!((held.missing, held.adopted.len(), held.detached), (vec![], 1, vec![]));
    }

    #[test]
    fn waiters_with_arrival_number_come_first() {
        let arrival = |number| Some(Arrival { generation: 1, number });
        let mut census = Census::new(vec![session(1), session(2)], vec![]);
        let answer = |peer, waiting| Answer { session: session(peer), tokens: vec![], waiting };
        census.take(answer(1, vec![(Ticket::new(1), None), (Ticket::new(2), arrival(9))]), |_| true);
        census.take(answer(2, vec![(Ticket::new(1), arrival(4))]), |_| true);
        let queue = census.count(1).waiting.into_iter().map(|(claim, _)| alloc::format!("{claim}"));
        assert_eq!(queue.collect::<Vec<_>>(), ["2", "1#2", "1"]);
    }
}
