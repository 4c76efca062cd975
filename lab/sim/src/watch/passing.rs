use std::collections::BTreeMap;

use peerlock_types::{Span, Ticket, Time};

use super::{Broken, Event, Watch};
use crate::actor::Actor;
use crate::ledger::Client;
use crate::report::Sheet;

/// Counts passes: a client enters that requested more than two message times later than a waiting one.
///
/// Two message times is the time for a request to reach the queue, and for an update to reach the peer that has the
/// token. With one slot any pass is a violation. With several, a waiter is bound to some holders, and is passed if
/// another one releases first: a violation only above the [bound](Self::at_most) of the protocol.
#[derive(Debug)]
pub struct Passing {
    /// Two message times, if delays are bounded.
    slack: Option<Span>,
    passed: u64,
    bound: Option<u64>,
    passes: BTreeMap<Ticket, u64>,
}

impl Passing {
    /// Without a bound of delays nothing is counted.
    pub fn new(longest: Option<Span>) -> Self {
        let slack = longest.map(|longest| longest * 2);
        Self { slack, passed: 0, bound: None, passes: BTreeMap::new() }
    }

    /// Makes more passes of a waiter a violation. A client that enters at the moment of its request found an idle token
    /// at its own peer, and does not count.
    pub fn at_most(self, bound: Option<u64>) -> Self {
        Self { bound, ..self }
    }

    fn note(&mut self, asked: Time, oldest: Option<Time>) {
        let is_passed = |(slack, oldest)| oldest + slack < asked;
        self.passed += u64::from(self.slack.zip(oldest).is_some_and(is_passed));
    }

    fn count<'a>(&mut self, client: &Client, waiting: impl Iterator<Item = &'a Client>) -> Result<(), Broken> {
        let (Some(slack), Some(bound)) = (self.slack, self.bound) else { return Ok(()) };
        let is_earlier = |other: &&Client| other.asked + slack < client.asked;
        let is_counted = |other: &&Client| other.resource == client.resource;
        for Client { peer, ticket, asked, .. } in waiting.take_while(is_earlier).filter(is_counted) {
            let passes = self.passes.entry(*ticket).or_default();
            *passes += 1;
            if *passes > bound {
                let last = format!("the last by peer {} at {}", client.peer, client.asked);
                let why = format!(
                    "peer {peer}, waiting since {asked}, is passed by more than {bound} later requests, {last}"
                );
                return Err(why.into());
            }
        }
        Ok(())
    }
}

impl<A: Actor> Watch<A> for Passing {
    #[inline(always)]
    fn on(&mut self, now: Time, event: Event<'_, A>) -> Result<(), Broken> {
        match event {
            Event::Grant(client, _, ledger) => {
                self.note(client.asked, ledger.oldest().map(|oldest| oldest.asked));
                self.passes.remove(&client.ticket);
                if client.asked < now { self.count(client, ledger.iter()) } else { Ok(()) }
            }
            Event::GiveUp(client) => {
                self.passes.remove(&client.ticket);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn fill(&mut self, sheet: &mut Sheet) {
        if self.slack.is_some() {
            sheet.numbers.sum("passed by", self.passed);
        }
    }
}

/// Counts order inversions: clients that entered while an earlier request was waiting. Not a rule, since no protocol
/// without a global clock can know the order of requests.
#[derive(Debug, Default)]
pub struct Order {
    inversions: u64,
}

impl<A: Actor> Watch<A> for Order {
    #[inline(always)]
    fn on(&mut self, _now: Time, event: Event<'_, A>) -> Result<(), Broken> {
        if let Event::Grant(client, _, ledger) = event {
            self.inversions += u64::from(ledger.oldest().is_some_and(|oldest| oldest.ticket < client.ticket));
        }
        Ok(())
    }

    fn fill(&mut self, sheet: &mut Sheet) {
        sheet.numbers.sum("order inversions", self.inversions);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_within_two_message_times_may_be_passed() {
        let at = |secs| Time::ZERO + Span::from_secs(secs);
        let table = [
            (None, 9, Some(0), 0),
            (Some(1), 9, None, 0),
            (Some(1), 2, Some(0), 0),
            (Some(1), 3, Some(0), 1),
            (Some(2), 4, Some(0), 0),
        ];
        for (longest, asked, oldest, expected) in table {
            let mut passing = Passing::new(longest.map(Span::from_secs));
            passing.note(at(asked), oldest.map(at));
            assert_eq!(passing.passed, expected, "{longest:?}: asked at {asked}, with {oldest:?} waiting");
        }
    }

    fn client(peer: u64, resource: usize, asked: u64) -> Client {
        let (peer, ticket) = (peerlock_types::PeerId::new(peer), Ticket::new(100 * peer + asked));
        Client { peer, ticket, resource, asked: Time::ZERO + Span::from_secs(asked), is_doomed: false }
    }

    #[test]
    fn passes_above_bound_are_a_violation() {
        let waiting = [client(1, 0, 0), client(2, 1, 0), client(3, 0, 8)];
        let passes = |bound, resource, asked| {
            let mut passing = Passing::new(Some(Span::from_secs(1))).at_most(bound);
            (0..20).find(|_| passing.count(&client(4, resource, asked), waiting.iter()).is_err())
        };
        assert_eq!(passes(Some(5), 0, 9), Some(5), "the sixth");
        assert_eq!(passes(Some(5), 0, 2), None, "asked within two message times");
        assert_eq!(passes(Some(5), 2, 9), None, "another resource");
        assert_eq!(passes(None, 0, 9), None);
    }
}
