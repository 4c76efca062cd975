use peerlock_types::Time;

use super::{Broken, Event, Watch};
use crate::actor::Actor;
use crate::report::Sheet;

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
        let (waiting, inside) = match event {
            Event::Request(_) => (1, 0),
            Event::Grant(..) => (-1, 1),
            Event::Leave(_) => (0, -1),
            Event::GiveUp(_) => (-1, 0),
            _ => return Ok(()),
        };
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
