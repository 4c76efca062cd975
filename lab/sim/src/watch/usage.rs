use peerlock_types::{Span, Time};

use super::{Broken, Event, Watch};
use crate::actor::Actor;
use crate::ledger::Client;
use crate::report::Sheet;

/// Returns the client of an event, and the changes of the numbers of waiting clients and of holders.
#[inline(always)]
fn change<'a, A: Actor>(event: Event<'a, A>) -> Option<(&'a Client, i64, i64)> {
    match event {
        Event::Request(client) => Some((client, 1, 0)),
        Event::Grant(client, ..) => Some((client, -1, 1)),
        Event::Leave(client) => Some((client, 0, -1)),
        Event::GiveUp(client) => Some((client, -1, 0)),
        _ => None,
    }
}

/// Measures lost slot time: a slot is free while a client waits.
#[derive(Debug)]
pub struct Idle {
    slots: u64,
    inside: u64,
    waiting: u64,
    since: Time,
    /// Slots × nanoseconds.
    lost: u128,
}

impl Idle {
    pub fn new(slots: u32) -> Self {
        Self { slots: slots.into(), inside: 0, waiting: 0, since: Time::ZERO, lost: 0 }
    }

    fn fraction(&self) -> f64 {
        let all = u128::from(self.slots) * u128::from(self.since.as_nanos());
        if all == 0 { 0.0 } else { self.lost as f64 / all as f64 }
    }
}

impl<A: Actor> Watch<A> for Idle {
    #[inline(always)]
    fn on(&mut self, now: Time, event: Event<'_, A>) -> Result<(), Broken> {
        let Some((_, waiting, inside)) = change(event) else { return Ok(()) };
        // A broken protocol may have more holders than slots; another watcher reports that.
        let free = self.slots.saturating_sub(self.inside).min(self.waiting);
        self.lost += u128::from(free) * u128::from(now.since(self.since).as_nanos());
        self.since = now;
        self.waiting = self.waiting.wrapping_add_signed(waiting);
        self.inside = self.inside.wrapping_add_signed(inside);
        Ok(())
    }

    fn fill(&mut self, sheet: &mut Sheet) {
        sheet.numbers.mean("idle while waiting", self.fraction());
    }
}

/// Measures the longest time in which a client waited and a slot was free without any grant.
#[derive(Debug)]
pub struct Standstill {
    slots: i64,
    resources: Vec<Still>,
    longest: Span,
}

#[derive(Clone, Debug, Default)]
struct Still {
    waiting: i64,
    inside: i64,
    since: Option<Time>,
}

impl Standstill {
    pub fn new(resources: usize, slots: u32) -> Self {
        Self { slots: slots.into(), resources: vec![Still::default(); resources], longest: Span::ZERO }
    }
}

impl<A: Actor> Watch<A> for Standstill {
    #[inline(always)]
    fn on(&mut self, now: Time, event: Event<'_, A>) -> Result<(), Broken> {
        let Some((client, waiting, inside)) = change(event) else { return Ok(()) };
        let still = &mut self.resources[client.resource];
        (still.waiting, still.inside) = (still.waiting + waiting, still.inside + inside);
        let is_still = still.waiting > 0 && still.inside < self.slots;
        if let Some(since) = still.since.take_if(|_| inside > 0 || !is_still) {
            self.longest = self.longest.max(now.since(since));
        }
        if is_still && still.since.is_none() {
            still.since = Some(now);
        }
        Ok(())
    }

    fn fill(&mut self, sheet: &mut Sheet) {
        sheet.numbers.most("longest standstill, ms", self.longest.as_nanos() / 1_000_000);
    }
}

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
