use peerlock_types::Time;

use super::{Broken, Event, Watch};
use crate::actor::Actor;
use crate::report::Sheet;

/// Counts order inversions: clients that entered while an earlier request was waiting. Not a rule, since no protocol
/// without a global clock can know the order of requests.
#[derive(Debug, Default)]
pub struct Order {
    inversions: u64,
}

impl<A: Actor> Watch<A> for Order {
    #[inline(always)]
    fn on(&mut self, _now: Time, event: Event<'_, A>) -> Result<(), Broken> {
        if let Event::Grant(client, _, ledger) = event {
            self.inversions += u64::from(ledger.oldest().is_some_and(|oldest| oldest.ticket < client.ticket));
        }
        Ok(())
    }

    fn fill(&mut self, sheet: &mut Sheet) {
        sheet.numbers.sum("order inversions", self.inversions);
    }
}
