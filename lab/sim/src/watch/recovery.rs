use peerlock_protocols::Grant;
use peerlock_types::{PeerId, Span, Time};

use super::{Broken, Watch};
use crate::actor::Actor;
use crate::ledger::{Client, Ledger};
use crate::report::Sheet;

/// Measures the time from the first crash until all slots of a resource are held again.
#[derive(Debug)]
pub struct Recovery {
    slots: usize,
    inside: usize,
    struck: Option<Time>,
    took: Option<Span>,
}

impl Recovery {
    pub fn new(slots: u32) -> Self {
        Self { slots: slots as usize, inside: 0, struck: None, took: None }
    }

    /// Records the recovery if all slots are held, and have been since then.
    fn look(&mut self, since: Time) {
        let Some(struck) = self.struck else { return };
        if self.took.is_none() && self.inside >= self.slots {
            self.took = Some(since.since(struck));
        }
    }
}

impl<A: Actor> Watch<A> for Recovery {
    fn on_grant(&mut self, now: Time, _client: &Client, _grant: Grant, _ledger: &Ledger) -> Result<(), Broken> {
        self.inside += 1;
        self.look(now);
        Ok(())
    }

    fn on_leave(&mut self, now: Time, _client: &Client) -> Result<(), Broken> {
        // If all slots were held since the crash, no holder has crashed.
        if let Some(struck) = self.struck.filter(|struck| *struck < now) {
            self.look(struck);
        }
        self.inside -= 1;
        Ok(())
    }

    fn on_crash(&mut self, now: Time, _peer: PeerId) -> Result<(), Broken> {
        self.struck = self.struck.or(Some(now));
        Ok(())
    }

    fn fill(&mut self, sheet: &mut Sheet) {
        sheet.numbers.sum("recovered", u64::from(self.took.is_some()));
        sheet.numbers.sum("nanoseconds to recover", self.took.map_or(0, Span::as_nanos));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actor::Bare;
    use crate::ideal::Ideal;

    /// Plays events of two slots held by two clients: crashes, releases and entries at given seconds.
    fn took(events: &[(u64, &str)]) -> Option<Span> {
        let mut watcher = Recovery::new(2);
        let watch: &mut dyn Watch<Bare<Ideal>> = &mut watcher;
        let mut ledger = Ledger::default();
        let client = ledger.ask(PeerId::new(1), 0, Time::ZERO, false);
        for (second, what) in [(0, "in"), (0, "in")].iter().chain(events) {
            let now = Time::ZERO + Span::from_secs(*second);
            match *what {
                "in" => watch.on_grant(now, &client, Grant { slot: 0, fencing: 1 }, &ledger),
                "out" => watch.on_leave(now, &client),
                _ => watch.on_crash(now, PeerId::new(1)),
            }
            .expect("it only watches");
        }
        watcher.took
    }

    #[test]
    fn it_takes_until_all_slots_are_in_use_again() {
        let secs = |secs| Some(Span::from_secs(secs));
        assert_eq!(took(&[(5, "crash"), (9, "out")]), secs(0), "no holder has crashed");
        assert_eq!(took(&[(5, "out"), (5, "crash"), (7, "out"), (8, "in"), (9, "in")]), secs(4));
        assert_eq!(took(&[(5, "out"), (5, "crash"), (7, "out"), (8, "in")]), None, "a slot is lost");
        assert_eq!(took(&[(7, "out"), (8, "in")]), None, "no peer has crashed");
    }
}
