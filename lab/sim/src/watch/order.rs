use peerlock_protocols::Grant;
use peerlock_types::Time;

use super::{Broken, Watch};
use crate::actor::Actor;
use crate::ledger::{Client, Ledger};
use crate::report::Sheet;

/// Counts order inversions: clients that entered while an earlier request was waiting. Not a rule, since no protocol
/// without a global clock can know the order of requests.
#[derive(Debug, Default)]
pub struct Order {
    inversions: u64,
}

impl<A: Actor> Watch<A> for Order {
    fn on_grant(&mut self, _now: Time, client: &Client, _grant: Grant, ledger: &Ledger) -> Result<(), Broken> {
        self.inversions += u64::from(ledger.oldest().is_some_and(|oldest| oldest.ticket < client.ticket));
        Ok(())
    }

    fn fill(&mut self, sheet: &mut Sheet) {
        sheet.numbers.sum("order inversions", self.inversions);
    }
}
