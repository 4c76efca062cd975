use peerlock_types::{Span, Time};

use super::{Broken, Event, Watch};
use crate::actor::Actor;
use crate::report::Sheet;

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
        let (client, waiting, inside) = match event {
            Event::Request(client) => (client, 1, 0),
            Event::Grant(client, ..) => (client, -1, 1),
            Event::Leave(client) => (client, 0, -1),
            Event::GiveUp(client) => (client, -1, 0),
            _ => return Ok(()),
        };
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
