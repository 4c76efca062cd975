use peerlock_protocols::Grant;
use peerlock_types::{Span, Time};

use super::{Broken, Watch};
use crate::actor::Actor;
use crate::ledger::{Client, Ledger};
use crate::report::Sheet;

/// Measures the longest time in which a client waited and a slot was free without any grant.
#[derive(Debug)]
pub struct Standstill {
    slots: usize,
    resources: Vec<Still>,
    longest: Span,
}

#[derive(Clone, Debug, Default)]
struct Still {
    waiting: usize,
    inside: usize,
    since: Option<Time>,
}

impl Standstill {
    pub fn new(resources: usize, slots: u32) -> Self {
        Self { slots: slots as usize, resources: vec![Still::default(); resources], longest: Span::ZERO }
    }

    /// `is_entry` ends the standstill.
    fn change(&mut self, now: Time, resource: usize, change: impl FnOnce(&mut Still), is_entry: bool) {
        let still = &mut self.resources[resource];
        change(still);
        let stands = still.waiting > 0 && still.inside < self.slots;
        if let Some(since) = still.since.take_if(|_| is_entry || !stands) {
            self.longest = self.longest.max(now.since(since));
        }
        if stands && still.since.is_none() {
            still.since = Some(now);
        }
    }
}

impl<A: Actor> Watch<A> for Standstill {
    fn on_request(&mut self, now: Time, client: &Client) -> Result<(), Broken> {
        self.change(now, client.resource, |still| still.waiting += 1, false);
        Ok(())
    }

    fn on_grant(&mut self, now: Time, client: &Client, _grant: Grant, _ledger: &Ledger) -> Result<(), Broken> {
        let enter = |still: &mut Still| (still.waiting, still.inside) = (still.waiting - 1, still.inside + 1);
        self.change(now, client.resource, enter, true);
        Ok(())
    }

    fn on_leave(&mut self, now: Time, client: &Client) -> Result<(), Broken> {
        self.change(now, client.resource, |still| still.inside -= 1, false);
        Ok(())
    }

    fn on_give_up(&mut self, now: Time, client: &Client) -> Result<(), Broken> {
        self.change(now, client.resource, |still| still.waiting -= 1, false);
        Ok(())
    }

    fn fill(&mut self, sheet: &mut Sheet) {
        sheet.numbers.most("longest standstill, ms", self.longest.as_nanos() / 1_000_000);
    }
}
