use peerlock_base::Time;
use peerlock_mutex::Observe;

use super::{Broken, Entry, Watch};
use crate::ledger::Ledger;

/// Fencing numbers increase on every slot, and no two grants of the resource have the same.
#[derive(Debug)]
pub struct Fencing {
    last: Vec<u64>,
    /// All of them, for the check at the end: two slots may go up side by side and still meet.
    given: Vec<u64>,
    counts: bool,
    violations: u64,
}

impl Fencing {
    /// For a resource with `slots` slots.
    pub fn new(slots: u32) -> Self {
        Self { last: vec![0; slots as usize], given: Vec::new(), counts: false, violations: 0 }
    }

    /// Where it is known that the rule will be broken: numbers that do not increase are counted, and the run goes on.
    pub fn counting(slots: u32) -> Self {
        Self { counts: true, ..Self::new(slots) }
    }

    /// How many grants had a number no larger than an earlier one of their slot.
    pub fn violations(&self) -> u64 {
        self.violations
    }
}

impl<P: Observe> Watch<P> for Fencing {
    fn on_grant(&mut self, _now: Time, entry: &Entry, _ledger: &Ledger) -> Result<(), Broken> {
        let grant = entry.grant;
        let Some(last) = self.last.get_mut(grant.slot as usize) else {
            return Err(format!("peer {} is let into slot {}, which does not exist", entry.peer, grant.slot));
        };
        if grant.fencing <= *last {
            self.violations += 1;
            if self.counts {
                return Ok(());
            }
            return Err(format!(
                "slot {} gives fencing number {} to peer {} after {last}",
                grant.slot, grant.fencing, entry.peer
            ));
        }
        *last = grant.fencing;
        self.given.push(grant.fencing);
        Ok(())
    }

    fn at_end(&mut self, _now: Time, _ledger: &Ledger) -> Result<(), Broken> {
        self.given.sort_unstable();
        match self.given.windows(2).find(|pair| pair[0] == pair[1]) {
            None => Ok(()),
            Some(pair) => Err(format!("fencing number {} was given twice", pair[0])),
        }
    }
}
