use peerlock_base::{PeerId, Time};
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
    sees_instants: bool,
}

#[derive(Clone, Debug, Default)]
struct Inside {
    inside: usize,
    /// When somebody last came.
    entered: Time,
    /// The last moment at which somebody both came and left, and who did.
    last: Time,
    passed: Vec<PeerId>,
    grants: u64,
    violations: u64,
    stuck: u64,
}

impl Exclusion {
    /// For this many resources with `slots` slots each. Where it is known that the rule will be broken, and the
    /// question is how often, it `counts`: a client who is let in as one too many is counted, and the run goes on.
    pub fn new(resources: usize, slots: u32, counts: bool) -> Self {
        Self { slots: slots as usize, resources: vec![Inside::default(); resources], counts, sees_instants: false }
    }

    /// A client that comes and leaves at one moment was inside at that moment, and must not have met anybody there. To
    /// be watched where a slot cannot go from one peer to another in no time, since messages take some.
    pub fn seeing_instants(mut self, sees_instants: bool) -> Self {
        self.sees_instants = sees_instants;
        self
    }
}

impl<A: Actor> Watch<A> for Exclusion {
    fn on_grant(&mut self, now: Time, client: &Client, _grant: Grant, _ledger: &Ledger) -> Result<(), Broken> {
        let resource = &mut self.resources[client.resource];
        resource.grants += 1;
        resource.inside += 1;
        resource.entered = now;
        let is_now = self.sees_instants && resource.last == now;
        let passed = resource.passed.iter().filter(|&&peer| is_now && peer != client.peer).count();
        if resource.inside + passed <= self.slots {
            return Ok(());
        }
        resource.violations += 1;
        if self.counts {
            return Ok(());
        }
        Err(format!("peer {} is let in as number {} of {}", client.peer, resource.inside + passed, self.slots))
    }

    fn on_leave(&mut self, now: Time, client: &Client) -> Result<(), Broken> {
        let resource = &mut self.resources[client.resource];
        resource.inside -= 1;
        if self.sees_instants && resource.entered == now {
            if resource.last != now {
                resource.passed.clear();
            }
            resource.last = now;
            resource.passed.push(client.peer);
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actor::Bare;
    use crate::ideal::Ideal;

    /// The watcher as of an open run of which messages take time, or not.
    fn watcher(sees_instants: bool) -> Box<dyn Watch<Bare<Ideal>>> {
        Box::new(Exclusion::new(1, 1, false).seeing_instants(sees_instants))
    }

    /// One comes and leaves at once, and another comes at that moment or later.
    fn meet(sees_instants: bool, other: u64, later: u64) -> Result<(), Broken> {
        let (mut watcher, mut ledger) = (watcher(sees_instants), Ledger::default());
        let (then, grant) = (Time::from_nanos(5), Grant { slot: 0, fencing: 1 });
        let one = ledger.ask(PeerId::new(1), 0, Time::ZERO, false);
        let other = ledger.ask(PeerId::new(other), 0, Time::ZERO, false);
        watcher.on_grant(then, &one, grant, &ledger)?;
        watcher.on_leave(then, &one)?;
        watcher.on_grant(Time::from_nanos(5 + later), &other, grant, &ledger)
    }

    #[test]
    fn two_who_stay_for_no_time_must_not_meet() {
        assert!(meet(true, 2, 0).is_err_and(|what| what == "peer 2 is let in as number 2 of 1"));
        assert_eq!(meet(true, 2, 1), Ok(()), "a moment later");
        assert_eq!(meet(true, 1, 0), Ok(()), "handed over within a peer, which takes no message");
        assert_eq!(meet(false, 2, 0), Ok(()), "messages take no time");
    }
}
