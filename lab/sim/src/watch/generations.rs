use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;

use peerlock_protocols::Grant;
use peerlock_registry::{Label, State, Topic};
use peerlock_types::{PeerId, Time};

use super::exclusion::all_served;
use super::{Broken, Event, Watch};
use crate::actor::Whole;
use crate::actor::whole::name_of;
use crate::ledger::Client;

/// The fencing numbers of generation g are from this times g to this times g + 1.
const NUMBERS: u64 = 1 << 32;

/// Checks exclusion under resizing. With each grant, the number of holders is at most the number of slots *since the
/// generation of the grant*, which is part of its fencing number. Evicted holders do not count.
///
/// Fencing numbers increase on every slot and are unique. An evicted holder that is not notified yet continues in its
/// own generation, so with evictions they increase within each generation. In the end every client has been served.
#[derive(Debug)]
pub struct Generations {
    resources: Vec<Found>,
    fresh: BTreeSet<usize>,
    /// The last applied index of each host's voter: what it knows changes only with it.
    applied: BTreeMap<PeerId, u64>,
    by_force: bool,
}

#[derive(Debug)]
struct Found {
    name: Label,
    /// The number of slots from each generation on.
    slots: BTreeMap<u64, u32>,
    /// With the generation that each eviction opened.
    evicted: Vec<(PeerId, u64)>,
    /// With evictions: all grants that were ever detached. Revoking one of an earlier session opens no generation.
    detached: BTreeSet<u64>,
    /// Of each slot; with evictions, of each generation.
    last: BTreeMap<(u64, u32), u64>,
    given: BTreeSet<u64>,
    inside: Vec<(Client, u64)>,
    /// Grants of the current step, or of a generation that no running voter has applied: the only one that did may have
    /// crashed in that very step.
    fresh: Vec<(Client, u64)>,
}

impl Found {
    fn learn(&mut self, state: &State, by_force: bool) {
        let Some(resource) = state.resources().get(&self.name) else { return };
        if by_force {
            self.detached.extend(resource.detached().keys());
        }
        let generation = resource.generation();
        if self.slots.last_key_value().is_some_and(|(last, _)| *last >= generation) {
            return;
        }
        self.slots.insert(generation, resource.slots());
        for (session, since, topic) in resource.pending_events() {
            let host = state.sessions().get(&session).map(|session| session.host);
            if let (Topic::Evicted, Some(host)) = (topic, host)
                && !self.evicted.contains(&(host, since))
            {
                self.evicted.push((host, since));
            }
        }
    }

    fn number(&mut self, client: &Client, grant: Grant, by_force: bool) -> Result<(), Broken> {
        let Grant { slot, fencing } = grant;
        let apart = if by_force { fencing / NUMBERS } else { 0 };
        let last = self.last.entry((apart, slot)).or_default();
        if fencing <= *last {
            return Err(
                format!("slot {slot} gives fencing number {fencing} to peer {} after {last}", client.peer).into()
            );
        }
        *last = fencing;
        if !self.given.insert(fencing) {
            return Err(format!("fencing number {fencing} was given twice").into());
        }
        Ok(())
    }

    fn check(&self, client: &Client, fencing: u64) -> Result<(), Broken> {
        let (peer, generation) = (client.peer, fencing / NUMBERS);
        // The client may receive the grant later than its peer, after another generation has adopted it.
        let since = self.slots.range(generation..).map(|(_, slots)| slots).max();
        let Some(slots) = since else { return Ok(()) };
        let slots = *slots as usize;
        let is_forced = |&&(ref other, theirs): &&(Client, u64)| {
            let is_out = |&(host, since): &(PeerId, u64)| host == other.peer && theirs / NUMBERS < since;
            self.evicted.iter().any(is_out) || self.detached.contains(&theirs)
        };
        let inside = self.inside.iter().filter(|other| !is_forced(other)).count();
        if inside <= slots {
            return Ok(());
        }
        Err(format!("peer {peer} enters as holder {inside} of {slots} in generation {generation}").into())
    }
}

impl Generations {
    pub fn new(resources: usize, by_force: bool) -> Self {
        let name = |resource: usize| Label::new(name_of(resource).as_str()).expect("a name is a valid label");
        let found = |name| Found {
            name,
            slots: BTreeMap::new(),
            evicted: Vec::new(),
            detached: BTreeSet::new(),
            last: BTreeMap::new(),
            given: BTreeSet::new(),
            inside: Vec::new(),
            fresh: Vec::new(),
        };
        let resources = (0..resources).map(name).map(found).collect();
        Self { resources, fresh: BTreeSet::new(), applied: BTreeMap::new(), by_force }
    }

    /// Reads what a voter has applied. Only then are the limits for the grants of the same step known.
    fn learn(&mut self, peer: PeerId, actor: &Whole) -> Result<(), Broken> {
        if let Some(registry) = actor.registry()
            && self.applied.insert(peer, registry.applied()) != Some(registry.applied())
        {
            self.resources.iter_mut().for_each(|found| found.learn(registry.state(), self.by_force));
        }
        for resource in take(&mut self.fresh) {
            let found = &mut self.resources[resource];
            let latest = found.slots.last_key_value().map(|(latest, _)| *latest);
            let is_known = |(_, fencing): &(Client, u64)| latest.is_some_and(|latest| latest >= fencing / NUMBERS);
            let (known, unknown): (Vec<_>, Vec<_>) = take(&mut found.fresh).into_iter().partition(is_known);
            found.fresh = unknown;
            if !found.fresh.is_empty() {
                self.fresh.insert(resource);
            }
            known.iter().try_for_each(|(client, fencing)| found.check(client, *fencing))?;
        }
        Ok(())
    }
}

impl Watch<Whole> for Generations {
    #[inline(always)]
    fn on(&mut self, _now: Time, event: Event<'_, Whole>) -> Result<(), Broken> {
        match event {
            Event::Step(peer, actor) => self.learn(peer, actor),
            Event::Grant(client, grant, _) => {
                let found = &mut self.resources[client.resource];
                found.number(client, grant, self.by_force)?;
                let entered = (*client, grant.fencing);
                found.inside.push(entered);
                found.fresh.push(entered);
                self.fresh.insert(client.resource);
                Ok(())
            }
            Event::Leave(client) => {
                self.resources[client.resource].inside.retain(|(other, _)| other.ticket != client.ticket);
                Ok(())
            }
            Event::End(ledger) => all_served(ledger),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Ledger;

    /// An evicted holder may continue below the others' numbers, but not below its own.
    #[test]
    fn evicted_holder_keeps_its_own_fencing_order() {
        let client = Ledger::default().ask(PeerId::new(3), 0, Time::ZERO, false);
        let number = |generation: u64, count| generation * NUMBERS + count;
        let of_two = [number(2, 1), number(1, 3), number(2, 4)];
        let cases: [(&[u64], bool, bool); 5] = [
            (&of_two, true, true),
            (&of_two, false, false),
            (&[number(2, 4), number(1, 3), number(1, 3)], true, false),
            (&[number(2, 4), number(1, 3), number(2, 1)], true, false),
            (&[number(1, 1), number(1, 2), number(2, 1)], false, true),
        ];
        for (numbers, by_force, is_good) in cases {
            let mut watch = Generations::new(1, by_force);
            let mut receive = |fencing| watch.resources[0].number(&client, Grant { slot: 0, fencing }, by_force);
            assert_eq!(numbers.iter().try_for_each(|&fencing| receive(fencing)).is_ok(), is_good, "{numbers:?}");
        }
        let mut watch = Generations::new(1, true);
        let mut receive = |slot| watch.resources[0].number(&client, Grant { slot, fencing: 7 }, true);
        assert!(receive(0).is_ok() && receive(1).is_err(), "two slots have the same number");
    }
}
