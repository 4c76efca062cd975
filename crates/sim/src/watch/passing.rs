use peerlock_base::{Span, Time};
use peerlock_mutex::Grant;

use super::{Broken, Watch};
use crate::actor::Actor;
use crate::ledger::{Client, Ledger};
use crate::report::Sheet;

/// Clients who were passed by: somebody went inside who had asked more than two message times later, while they still
/// waited.
///
/// Two message times is what it takes for a request to reach the line and for word of it to reach the peer that has the
/// token: so long that peer cannot know of it. With one slot, anything beyond is a mistake. With several, who waits is
/// told to some holders and not to all, and is passed where another one leaves first. It is counted.
#[derive(Debug)]
pub struct Passing {
    /// Two message times, if there is a longest one.
    slack: Option<Span>,
    passed: u64,
}

impl Passing {
    /// Where no message takes longer than this. Where that is not known, nothing is counted.
    pub fn new(longest: Option<Span>) -> Self {
        Self { slack: longest.map(|longest| longest * 2), passed: 0 }
    }

    fn note(&mut self, asked: Time, oldest: Option<Time>) {
        let is_passed = |(slack, oldest)| oldest + slack < asked;
        self.passed += u64::from(self.slack.zip(oldest).is_some_and(is_passed));
    }
}

impl<A: Actor> Watch<A> for Passing {
    fn on_grant(&mut self, _now: Time, client: &Client, _grant: Grant, ledger: &Ledger) -> Result<(), Broken> {
        self.note(client.asked, ledger.oldest().map(|oldest| oldest.asked));
        Ok(())
    }

    fn tell(&mut self, sheet: &mut Sheet) {
        if self.slack.is_some() {
            sheet.numbers.sum("passed by", self.passed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asked_within_two_message_times_may_be_passed() {
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
}
