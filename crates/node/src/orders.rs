//! What people here have asked for by hand and is under way, by the call: grants that are to be given back, and names
//! that are to be removed.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::replace;

use peerlock_registry::Page;
use peerlock_types::{PeerId, Time};

use crate::Name;

/// A grant that somebody here has asked for.
#[derive(Clone)]
pub struct Revocation {
    pub name: Name,
    pub peer: PeerId,
    pub fencing: u64,
    /// When its host last answered; before that, when it was first asked.
    pub last_received: Time,
}

/// A name that somebody here wants removed.
pub struct Removal {
    name: Name,
    since: Time,
    /// The register is being asked, and has not answered.
    is_asking: bool,
    /// It exists in the register as of this entry.
    found: Option<u64>,
    /// The hosts that take part, as the register has told it last.
    parties: BTreeSet<PeerId>,
    /// Those that have said that nobody uses it there.
    unused: BTreeSet<PeerId>,
    /// The register has refused although nobody takes part.
    is_refused: bool,
}

/// What follows for a name that is to be removed from what the register has told.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing: a voter that is behind may not know yet what we have seen at another. We look again after a while.
    Nothing,
    /// There is no such name.
    Gone {
        /// But there was one when we last looked.
        was_there: bool,
    },
    /// A detached grant of this host stands.
    Detached(PeerId),
    /// Nobody takes part in it in this generation: the register can remove it.
    Unused(u64),
    /// These take part, and are to be asked whether anybody uses it.
    Shared {
        hosts: BTreeSet<PeerId>,
        /// All of them have said no: they are to give it up.
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

    /// Whether the register has not answered.
    pub fn is_asking(&self) -> bool {
        self.is_asking
    }

    /// Who takes part, as the register has told it last.
    pub fn parties(&self) -> &BTreeSet<PeerId> {
        &self.parties
    }

    /// The register is to be asked now. False if it is being asked.
    pub fn ask(&mut self) -> bool {
        !replace(&mut self.is_asking, true)
    }

    /// The register has told what it knows.
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

    /// A host has said that nobody uses it there. Whether all of them have, only now.
    pub fn on_unused(&mut self, host: PeerId) -> bool {
        self.unused.insert(host) && self.parties.is_subset(&self.unused)
    }

    /// The register has answered whether it removes the name.
    pub fn on_outcome(&mut self) {
        self.is_asking = false;
    }

    /// It has refused since somebody takes part. Whether it had before, when nobody did.
    pub fn on_refused(&mut self) -> bool {
        replace(&mut self.is_refused, true)
    }
}

/// See the module.
#[derive(Default)]
pub struct Orders {
    revocations: BTreeMap<u64, Revocation>,
    removals: BTreeMap<u64, Removal>,
}

impl Orders {
    /// Somebody has asked for the grant of a client of that host.
    pub fn revoke(&mut self, call: u64, name: Name, peer: PeerId, fencing: u64, now: Time) {
        self.revocations.insert(call, Revocation { name, peer, fencing, last_received: now });
    }

    pub fn revocation(&self, call: u64) -> Option<&Revocation> {
        self.revocations.get(&call)
    }

    /// A host has answered about a grant. False if it was not asked, or that is over.
    pub fn on_answered(&mut self, call: u64, from: PeerId, now: Time) -> bool {
        let revocation = self.revocations.get_mut(&call).filter(|it| it.peer == from);
        revocation.map(|it| it.last_received = now).is_some()
    }

    /// Somebody wants a name removed.
    pub fn remove(&mut self, call: u64, name: Name, now: Time) {
        let (parties, unused) = (BTreeSet::new(), BTreeSet::new());
        let removal = Removal { name, since: now, is_asking: false, found: None, parties, unused, is_refused: false };
        self.removals.insert(call, removal);
    }

    pub fn removal(&mut self, call: u64) -> Option<&mut Removal> {
        self.removals.get_mut(&call)
    }

    /// It is done, or cannot be.
    pub fn end(&mut self, call: u64) {
        self.revocations.remove(&call);
        self.removals.remove(&call);
    }

    /// What must be true after each step: whatever is under way will be looked at again.
    pub fn check(&self, revokes: impl Fn(u64) -> bool, removes: impl Fn(u64) -> bool) {
        for call in self.revocations.keys() {
            assert!(revokes(*call), "call {call} is never answered: nobody asks the holder again");
        }
        for call in self.removals.keys() {
            assert!(removes(*call), "call {call} is never answered: nobody looks again who takes part");
        }
    }

    /// How much is under way.
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
    #[should_panic(expected = "call 1 is never answered")]
    fn a_holder_is_asked_again() {
        orders().check(|_| false, |_| true);
    }

    #[test]
    #[should_panic(expected = "call 2 is never answered")]
    fn a_name_is_looked_at_again() {
        orders().check(|_| true, |_| false);
    }

    #[test]
    fn what_is_over_is_not_looked_at_again() {
        let mut orders = orders();
        assert!(orders.on_answered(1, PeerId::new(2), Time::ZERO));
        assert!(!orders.on_answered(1, PeerId::new(3), Time::ZERO), "nobody has asked it");
        orders.end(1);
        orders.end(2);
        orders.check(|_| false, |_| false);
        assert_eq!(orders.retained(), 0);
    }
}
