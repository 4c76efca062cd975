use peerlock_base::Time;
use peerlock_mutex::Grant;

use super::{Broken, Watch};
use crate::actor::Actor;
use crate::ledger::{Client, Ledger};
use crate::report::Sheet;

/// At most k inside of each resource, and at the end everybody has been.
#[derive(Debug)]
pub struct Exclusion {
    slots: usize,
    resources: Vec<Inside>,
    counts: bool,
}

#[derive(Clone, Debug, Default)]
struct Inside {
    inside: usize,
    grants: u64,
    violations: u64,
    stuck: u64,
}

impl Exclusion {
    /// For so many resources with `slots` slots each. Where it is known that the rule will be broken, and the question is how
    /// often, it `counts`: a client who is let in as one too many is counted, and the run goes on.
    pub fn new(resources: usize, slots: u32, counts: bool) -> Self {
        Self { slots: slots as usize, resources: vec![Inside::default(); resources], counts }
    }
}

impl<A: Actor> Watch<A> for Exclusion {
    fn on_grant(&mut self, _now: Time, client: &Client, _grant: Grant, _ledger: &Ledger) -> Result<(), Broken> {
        let resource = &mut self.resources[client.resource];
        resource.grants += 1;
        resource.inside += 1;
        if resource.inside <= self.slots {
            return Ok(());
        }
        resource.violations += 1;
        if self.counts {
            return Ok(());
        }
        Err(format!("peer {} is let in as number {} of {}", client.peer, resource.inside, self.slots))
    }

    fn on_leave(&mut self, _now: Time, client: &Client) -> Result<(), Broken> {
        self.resources[client.resource].inside -= 1;
        Ok(())
    }

    fn at_end(&mut self, _now: Time, ledger: &Ledger) -> Result<(), Broken> {
        for client in ledger.iter() {
            self.resources[client.resource].stuck += 1;
        }
        match ledger.oldest() {
            Some(client) if !self.counts => Err(format!(
                "{} requests were never served, the oldest by peer {} since {}",
                ledger.waiting(),
                client.peer,
                client.asked
            )),
            _ => Ok(()),
        }
    }

    fn tell(&mut self, sheet: &mut Sheet) {
        for (harm, seen) in sheet.harm.iter_mut().zip(&self.resources) {
            harm.grants += seen.grants;
            harm.violations += seen.violations;
            harm.stuck += seen.stuck;
        }
    }
}
