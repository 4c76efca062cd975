use peerlock_base::{PeerId, Ticket, Time};
use peerlock_mutex::Observe;

use super::{Broken, Entry, Watch};
use crate::ledger::Ledger;

/// At most k inside, and at the end everybody has been.
#[derive(Debug)]
pub struct Exclusion {
    slots: usize,
    inside: usize,
    counts: bool,
    violations: u64,
}

impl Exclusion {
    /// For a resource with `slots` slots.
    pub fn new(slots: u32) -> Self {
        Self { slots: slots as usize, inside: 0, counts: false, violations: 0 }
    }

    /// Where it is known that the rule will be broken, and the question is how often: a client who is let in as one
    /// too many is counted, and the run goes on.
    pub fn counting(slots: u32) -> Self {
        Self { counts: true, ..Self::new(slots) }
    }

    /// How many were let in while there was no room.
    pub fn violations(&self) -> u64 {
        self.violations
    }
}

impl<P: Observe> Watch<P> for Exclusion {
    fn on_grant(&mut self, _now: Time, entry: &Entry, _ledger: &Ledger) -> Result<(), Broken> {
        self.inside += 1;
        if self.inside > self.slots {
            self.violations += 1;
            if self.counts {
                return Ok(());
            }
            return Err(format!("peer {} is let in as number {} of {}", entry.peer, self.inside, self.slots));
        }
        Ok(())
    }

    fn on_leave(&mut self, _now: Time, _peer: PeerId, _ticket: Ticket) -> Result<(), Broken> {
        self.inside -= 1;
        Ok(())
    }

    fn at_end(&mut self, _now: Time, ledger: &Ledger) -> Result<(), Broken> {
        match ledger.oldest() {
            None => Ok(()),
            Some((_, request)) => Err(format!(
                "{} requests were never served, the oldest by peer {} since {}",
                ledger.waiting(),
                request.peer,
                request.at
            )),
        }
    }
}
