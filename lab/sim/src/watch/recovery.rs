use peerlock_types::{Span, Time};

use super::{Broken, Event, Watch};
use crate::actor::Actor;
use crate::report::Sheet;

/// Measures the time from the first crash until all slots of a resource are held again.
#[derive(Debug)]
pub struct Recovery {
    slots: usize,
    inside: usize,
    crashed: Option<Time>,
    took: Option<Span>,
}

impl Recovery {
    pub fn new(slots: u32) -> Self {
        Self { slots: slots as usize, inside: 0, crashed: None, took: None }
    }

    fn look(&mut self, since: Time) {
        let Some(crashed) = self.crashed else { return };
        if self.took.is_none() && self.inside >= self.slots {
            self.took = Some(since.since(crashed));
        }
    }
}

impl<A: Actor> Watch<A> for Recovery {
    #[inline(always)]
    fn on(&mut self, now: Time, event: Event<'_, A>) -> Result<(), Broken> {
        match event {
            Event::Grant(..) => {
                self.inside += 1;
                self.look(now);
            }
            Event::Leave(_) => {
                // If all slots were held since the crash, no holder has crashed.
                if let Some(crashed) = self.crashed.filter(|crashed| *crashed < now) {
                    self.look(crashed);
                }
                self.inside -= 1;
            }
            Event::Crash(_) => self.crashed = self.crashed.or(Some(now)),
            _ => {}
        }
        Ok(())
    }

    fn fill(&mut self, sheet: &mut Sheet) {
        sheet.numbers.sum("recovered", u64::from(self.took.is_some()));
        sheet.numbers.sum("nanoseconds to recover", self.took.map_or(0, Span::as_nanos));
    }
}

#[cfg(test)]
mod tests {
    use peerlock_protocols::Grant;
    use peerlock_types::PeerId;

    use super::*;
    use crate::actor::Bare;
    use crate::ideal::Ideal;
    use crate::ledger::Ledger;

    /// Two slots are held by two clients. Events have a second.
    fn took(events: &[(u64, &str)]) -> Option<Span> {
        let mut watcher = Recovery::new(2);
        let watch: &mut dyn Watch<Bare<Ideal>> = &mut watcher;
        let mut ledger = Ledger::default();
        let client = ledger.ask(PeerId::new(1), 0, Time::ZERO, false);
        for (second, what) in [(0, "in"), (0, "in")].iter().chain(events) {
            let now = Time::ZERO + Span::from_secs(*second);
            match *what {
                "in" => watch.on(now, Event::Grant(&client, Grant { slot: 0, fencing: 1 }, &ledger)),
                "out" => watch.on(now, Event::Leave(&client)),
                _ => watch.on(now, Event::Crash(PeerId::new(1))),
            }
            .expect("it only watches");
        }
        watcher.took
    }

    #[test]
    fn recovery_lasts_until_all_slots_are_held() {
        let secs = |secs| Some(Span::from_secs(secs));
        assert_eq!(took(&[(5, "crash"), (9, "out")]), secs(0), "no holder has crashed");
        assert_eq!(took(&[(5, "out"), (5, "crash"), (7, "out"), (8, "in"), (9, "in")]), secs(4));
        assert_eq!(took(&[(5, "out"), (5, "crash"), (7, "out"), (8, "in")]), None, "a slot is lost");
        assert_eq!(took(&[(7, "out"), (8, "in")]), None, "no peer has crashed");
    }
}
