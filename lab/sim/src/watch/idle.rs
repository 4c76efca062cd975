use peerlock_protocols::Grant;
use peerlock_types::Time;

use super::{Broken, Watch};
use crate::actor::Actor;
use crate::ledger::{Client, Ledger};
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

    /// Returns the lost share of all slot time until the last event, from 0 to 1.
    fn fraction(&self) -> f64 {
        let all = u128::from(self.slots) * u128::from(self.since.as_nanos());
        if all == 0 { 0.0 } else { self.lost as f64 / all as f64 }
    }

    fn advance(&mut self, now: Time) {
        // A broken protocol may have more holders than slots; another watcher reports that.
        let free = self.slots.saturating_sub(self.inside).min(self.waiting);
        self.lost += u128::from(free) * u128::from(now.since(self.since).as_nanos());
        self.since = now;
    }
}

impl<A: Actor> Watch<A> for Idle {
    fn on_request(&mut self, now: Time, _client: &Client) -> Result<(), Broken> {
        self.advance(now);
        self.waiting += 1;
        Ok(())
    }

    fn on_grant(&mut self, now: Time, _client: &Client, _grant: Grant, _ledger: &Ledger) -> Result<(), Broken> {
        self.advance(now);
        self.waiting -= 1;
        self.inside += 1;
        Ok(())
    }

    fn on_leave(&mut self, now: Time, _client: &Client) -> Result<(), Broken> {
        self.advance(now);
        self.inside -= 1;
        Ok(())
    }

    fn on_give_up(&mut self, now: Time, _client: &Client) -> Result<(), Broken> {
        self.advance(now);
        self.waiting -= 1;
        Ok(())
    }

    fn fill(&mut self, sheet: &mut Sheet) {
        sheet.numbers.mean("idle while waiting", self.fraction());
    }
}
