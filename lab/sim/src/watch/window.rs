use std::mem::take;

use peerlock_protocols::Grant;
use peerlock_types::{PeerId, Span, Time};

use super::{Broken, Flow, Watch};
use crate::actor::Actor;
use crate::ledger::{Client, Ledger};
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
    fn on_grant(&mut self, now: Time, client: &Client, _grant: Grant, _ledger: &Ledger) -> Result<(), Broken> {
        let wait = now.since(client.asked);
        if now < self.from {
            self.before.push(wait);
        } else {
            self.inside.push(wait);
            self.flow.entries += 1;
        }
        Ok(())
    }

    fn on_send(&mut self, now: Time, _from: PeerId, _to: PeerId, _message: &A::Message) -> Result<(), Broken> {
        self.flow.messages += u64::from(now >= self.from);
        Ok(())
    }

    fn fill(&mut self, sheet: &mut Sheet) {
        sheet.flow = self.flow;
        sheet.steady = take(&mut self.inside);
        sheet.unsteady = take(&mut self.before);
    }
}
