use peerlock_base::Time;
use peerlock_mutex::Observe;

use super::{Broken, Entry, Watch};
use crate::ledger::Ledger;

/// Order inversions: clients who went inside while somebody who had asked earlier was waiting.
///
/// Not a rule: no protocol without a global clock can know the order of asking. It is counted.
#[derive(Debug, Default)]
pub struct Order {
    inversions: u64,
}

impl Order {
    /// How many went inside past somebody who had asked earlier.
    pub fn inversions(&self) -> u64 {
        self.inversions
    }
}

impl<P: Observe> Watch<P> for Order {
    fn on_grant(&mut self, _now: Time, entry: &Entry, ledger: &Ledger) -> Result<(), Broken> {
        self.inversions += u64::from(ledger.oldest().is_some_and(|(oldest, _)| oldest < entry.ticket));
        Ok(())
    }
}
