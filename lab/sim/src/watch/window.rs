use std::mem::take;

use peerlock_types::{Span, Time};

use super::{Broken, Event, Flow, Watch};
use crate::actor::Actor;
use crate::report::Sheet;

/// Measures an open run: waits, entries and messages from a moment to the end of the run.
#[derive(Debug)]
pub struct Window {
    from: Time,
    inside: Vec<Span>,
    before: Vec<Span>,
    flow: Flow,
}

impl Window {
    pub fn from(from: Time) -> Self {
        Self { from, inside: Vec::new(), before: Vec::new(), flow: Flow::default() }
    }
}

impl<A: Actor> Watch<A> for Window {
    #[inline(always)]
    fn on(&mut self, now: Time, event: Event<'_, A>) -> Result<(), Broken> {
        match event {
            Event::Grant(client, ..) if now < self.from => self.before.push(now.since(client.asked)),
            Event::Grant(client, ..) => {
                self.inside.push(now.since(client.asked));
                self.flow.entries += 1;
            }
            Event::Send { .. } => self.flow.messages += u64::from(now >= self.from),
            _ => {}
        }
        Ok(())
    }

    fn fill(&mut self, sheet: &mut Sheet) {
        sheet.flow = self.flow;
        sheet.steady = take(&mut self.inside);
        sheet.unsteady = take(&mut self.before);
    }
}
