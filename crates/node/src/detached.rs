//! The detached grants of this host: the state of their synchronization with the registry.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;

use peerlock_types::{Key, Ticket};

use crate::Name;

/// The detached grants that are being dropped, queried, or have returned.
#[derive(Default)]
pub struct Detached {
    /// Grants without an owner, to be dropped in the next session.
    orphans: Vec<(Name, u64)>,
    /// Grants that have ended here without their client's knowledge, and whose drop the registry has not confirmed: the
    /// aliases to release then, by resource and fencing number.
    ending: BTreeMap<(Key, u64), Ticket>,
    /// The grants on the pages received so far.
    found: BTreeSet<(Key, u64)>,
    /// The lowest log index of these pages.
    index: Option<u64>,
    /// The highest log index of a page from which a grant was added as returned.
    returned: u64,
    /// All pages were received once: an unknown grant is not of an earlier process.
    is_known: bool,
}

impl Detached {
    /// Adds a grant without an owner.
    pub fn orphan(&mut self, name: Name, fencing: u64) {
        self.orphans.push((name, fencing));
    }

    /// Removes and returns the grants without an owner.
    pub fn take_orphans(&mut self) -> Vec<(Name, u64)> {
        take(&mut self.orphans)
    }

    /// Adds an ended grant whose slot is to be released later.
    pub fn end(&mut self, resource: Key, fencing: u64, alias: Ticket) {
        self.ending.insert((resource, fencing), alias);
    }

    /// The registry has dropped a grant. Returns the alias to release.
    pub fn ended(&mut self, resource: Key, fencing: u64) -> Option<Ticket> {
        self.ending.remove(&(resource, fencing))
    }

    /// Removes the grant of an alias that was revoked.
    pub fn drop_alias(&mut self, alias: Ticket) {
        self.ending.retain(|_, ending| *ending != alias);
    }

    /// The session is over, and with it all slots to be released.
    pub fn on_session_over(&mut self) {
        self.ending.clear();
    }

    /// Returns the ended grants.
    pub fn ending(&self) -> impl Iterator<Item = (Key, u64, Ticket)> {
        self.ending.iter().map(|((resource, fencing), alias)| (*resource, *fencing, *alias))
    }

    /// Returns the number of grants without an owner.
    pub fn orphans(&self) -> usize {
        self.orphans.len()
    }

    /// Starts a page with this log index.
    pub fn begin_page(&mut self, index: u64) {
        self.index = Some(self.index.map_or(index, |all| all.min(index)));
    }

    /// Adds a grant of the page.
    pub fn see(&mut self, resource: Key, fencing: u64) {
        self.found.insert((resource, fencing));
    }

    /// Records that a grant was added from a page with this log index.
    pub fn on_returned(&mut self, index: u64) {
        self.returned = self.returned.max(index);
    }

    /// Returns whether all grants were reported once.
    pub fn is_known(&self) -> bool {
        self.is_known
    }

    /// Ends the last page. Returns all reported grants, unless the pages are older than a returned grant.
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
