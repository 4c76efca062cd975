//! Pending administrative commands, by call: revocations and removals.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::replace;

use peerlock_registry::Page;
use peerlock_types::{PeerId, Time};

use crate::Name;

#[derive(Clone)]
pub struct Revocation {
    pub name: Name,
    pub peer: PeerId,
    pub fencing: u64,
    /// When the holder's host last answered, or the start of the revocation.
    pub last_received: Time,
}

pub struct Removal {
    name: Name,
    since: Time,
    /// A request to the registry is pending.
    is_asking: bool,
    /// The log index at which the resource was found.
    found: Option<u64>,
    /// The hosts of the parties, from the last answer of the registry.
    parties: BTreeSet<PeerId>,
    unused: BTreeSet<PeerId>,
    is_refused: bool,
}

/// The next step of a deletion.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    Nothing,
    Gone {
        /// An earlier query has found it.
        was_there: bool,
    },
    /// This host has a detached grant.
    Detached(PeerId),
    /// There are no parties in this generation: request the deletion.
    Unused(u64),
    /// Ask these hosts.
    Shared {
        hosts: BTreeSet<PeerId>,
        /// All of them have reported no use: they are to quit.
        give_up: bool,
    },
}

impl Removal {
    pub fn name(&self) -> &Name {
        &self.name
    }

    pub fn since(&self) -> Time {
        self.since
    }

    pub fn is_asking(&self) -> bool {
        self.is_asking
    }

    pub fn parties(&self) -> &BTreeSet<PeerId> {
        &self.parties
    }

    /// Marks a query as pending. Returns false if one already is.
    pub fn ask(&mut self) -> bool {
        !replace(&mut self.is_asking, true)
    }

    pub fn on_result(&mut self, page: Page) -> Found {
        self.is_asking = false;
        if self.found.is_some_and(|index| page.index < index) {
            return Found::Nothing;
        }
        let Some(found) = page.resources.into_iter().next() else {
            return Found::Gone { was_there: self.found.is_some() };
        };
        self.found = Some(page.index);
        if let Some(grant) = found.detached.first() {
            return Found::Detached(grant.host);
        }
        self.parties = found.parties.iter().map(|party| party.host).collect();
        if self.parties.is_empty() {
            self.is_asking = true;
            return Found::Unused(found.generation);
        }
        self.is_refused = false;
        Found::Shared { hosts: self.parties.clone(), give_up: self.parties.is_subset(&self.unused) }
    }

    pub fn on_unused(&mut self, host: PeerId) -> bool {
        self.unused.insert(host) && self.parties.is_subset(&self.unused)
    }

    pub fn on_outcome(&mut self) {
        self.is_asking = false;
    }

    /// Returns whether the registry had refused before, without any parties.
    pub fn on_refused(&mut self) -> bool {
        replace(&mut self.is_refused, true)
    }
}

#[derive(Default)]
pub struct Orders {
    revocations: BTreeMap<u64, Revocation>,
    removals: BTreeMap<u64, Removal>,
}

impl Orders {
    pub fn revoke(&mut self, call: u64, name: Name, peer: PeerId, fencing: u64, now: Time) {
        self.revocations.insert(call, Revocation { name, peer, fencing, last_received: now });
    }

    pub fn revocation(&self, call: u64) -> Option<&Revocation> {
        self.revocations.get(&call)
    }

    /// Returns false if the host was not asked.
    pub fn on_answered(&mut self, call: u64, from: PeerId, now: Time) -> bool {
        let revocation = self.revocations.get_mut(&call).filter(|it| it.peer == from);
        revocation.map(|it| it.last_received = now).is_some()
    }

    pub fn remove(&mut self, call: u64, name: Name, now: Time) {
        let (parties, unused) = (BTreeSet::new(), BTreeSet::new());
        let removal = Removal { name, since: now, is_asking: false, found: None, parties, unused, is_refused: false };
        self.removals.insert(call, removal);
    }

    pub fn removal(&mut self, call: u64) -> Option<&mut Removal> {
        self.removals.get_mut(&call)
    }

    pub fn end(&mut self, call: u64) {
        self.revocations.remove(&call);
        self.removals.remove(&call);
    }

    pub fn check(&self, revokes: impl Fn(u64) -> bool, removes: impl Fn(u64) -> bool) {
        for call in self.revocations.keys() {
            assert!(revokes(*call), "revocation {call} has no timer");
        }
        for call in self.removals.keys() {
            assert!(removes(*call), "removal {call} has no timer");
        }
    }

    #[cfg(any(test, feature = "fuzz"))]
    pub fn retained(&self) -> usize {
        self.revocations.len() + self.removals.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orders() -> Orders {
        let mut orders = Orders::default();
        orders.revoke(1, "a".parse().unwrap(), PeerId::new(2), 7, Time::ZERO);
        orders.remove(2, "b".parse().unwrap(), Time::ZERO);
        orders.check(|call| call == 1, |call| call == 2);
        orders
    }

    #[test]
    #[should_panic(expected = "revocation 1 has no timer")]
    fn revocation_without_a_timer_panics() {
        orders().check(|_| false, |_| true);
    }

    #[test]
    #[should_panic(expected = "removal 2 has no timer")]
    fn removal_without_a_timer_panics() {
        orders().check(|_| true, |_| false);
    }

    #[test]
    fn ended_commands_need_no_timer() {
        let mut orders = orders();
        assert!(orders.on_answered(1, PeerId::new(2), Time::ZERO));
        assert!(!orders.on_answered(1, PeerId::new(3), Time::ZERO), "it was not asked");
        orders.end(1);
        orders.end(2);
        orders.check(|_| false, |_| false);
        assert_eq!(orders.retained(), 0);
    }
}
