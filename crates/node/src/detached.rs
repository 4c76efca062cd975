//! The detached grants of this host: the state of their synchronization with the registry.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;

use peerlock_types::{Key, Ticket};

use crate::Name;

/// The synchronization of the detached grants of this host with the registry.
#[derive(Default)]
pub struct Detached {
    /// Grants without an owner, to be dropped in the next session.
    orphans: Vec<(Name, u64)>,
    /// Grants that have ended here without their client's knowledge, and whose drop the registry has not confirmed: the
    /// aliases to release then, by resource and fencing number.
    ending: BTreeMap<(Key, u64), Ticket>,
    /// The grants on the received pages …
    found: BTreeSet<(Key, u64)>,
    /// … and the lowest log index of these.
    index: Option<u64>,
    /// The highest log index of a page from which a grant was added as returned.
    returned: u64,
    /// All pages were received once: an unknown grant is not of an earlier process.
    is_known: bool,
}

impl Detached {
    pub fn orphan(&mut self, name: Name, fencing: u64) {
        self.orphans.push((name, fencing));
    }

    pub fn take_orphans(&mut self) -> Vec<(Name, u64)> {
        take(&mut self.orphans)
    }

    /// Adds an ended grant whose slot is released later.
    pub fn end(&mut self, resource: Key, fencing: u64, alias: Ticket) {
        self.ending.insert((resource, fencing), alias);
    }

    pub fn ended(&mut self, resource: Key, fencing: u64) -> Option<Ticket> {
        self.ending.remove(&(resource, fencing))
    }

    pub fn drop_alias(&mut self, alias: Ticket) {
        self.ending.retain(|_, ending| *ending != alias);
    }

    pub fn on_session_over(&mut self) {
        self.ending.clear();
    }

    pub fn ending(&self) -> impl Iterator<Item = (Key, u64, Ticket)> {
        self.ending.iter().map(|((resource, fencing), alias)| (*resource, *fencing, *alias))
    }

    pub fn orphans(&self) -> usize {
        self.orphans.len()
    }

    pub fn begin_page(&mut self, index: u64) {
        self.index = Some(self.index.map_or(index, |all| all.min(index)));
    }

    pub fn see(&mut self, resource: Key, fencing: u64) {
        self.found.insert((resource, fencing));
    }

    /// A grant was added from a page with this log index.
    pub fn on_returned(&mut self, index: u64) {
        self.returned = self.returned.max(index);
    }

    pub fn is_known(&self) -> bool {
        self.is_known
    }

    /// Returns all reported grants, unless the pages are older than a returned grant.
    pub fn end_pages(&mut self) -> Option<BTreeSet<(Key, u64)>> {
        self.is_known = true;
        let (found, index) = (take(&mut self.found), self.index.take());
        (index >= Some(self.returned)).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_a_lagging_voter_end_no_returned_grant() {
        let mut detached = Detached::default();
        let resource = "a".parse::<Name>().unwrap().key();
        detached.begin_page(7);
        detached.see(resource, 1);
        detached.on_returned(7);
        assert_eq!(detached.end_pages(), Some([(resource, 1)].into()));
        assert!(detached.is_known());
        detached.begin_page(9);
        detached.begin_page(6);
        assert_eq!(detached.end_pages(), None);
        detached.begin_page(8);
        assert_eq!(detached.end_pages(), Some(BTreeSet::new()));
    }
}
