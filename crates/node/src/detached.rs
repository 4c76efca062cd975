//! The detached grants of this host: what the register tells of them, and what it has still to hear.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;

use peerlock_types::{Key, Ticket};

use crate::Name;

/// What is between us and the register about grants that outlive sessions.
#[derive(Default)]
pub struct Detached {
    /// Those that nobody has: to be taken back under the next session.
    orphans: Vec<(Name, u64)>,
    /// Those that are over here, unheard by their clients, and of which the register has not answered yet that it
    /// knows: by resource and number, what the protocol knows the slot by, which goes on then.
    ending: BTreeMap<(Key, u64), Ticket>,
    /// Those on the pages that the register has told so far.
    found: BTreeSet<(Key, u64)>,
    /// Up to which entry all of these pages go at least.
    index: Option<u64>,
    /// The entry up to which one went on which something was that has returned.
    returned: u64,
    /// The register has told all of them once: others are not of earlier processes.
    is_known: bool,
}

impl Detached {
    /// Nobody has this one.
    pub fn orphan(&mut self, name: Name, fencing: u64) {
        self.orphans.push((name, fencing));
    }

    /// Those that nobody has, for the session that stands now.
    pub fn take_orphans(&mut self) -> Vec<(Name, u64)> {
        take(&mut self.orphans)
    }

    /// This one is over, and its slot goes on when the register knows.
    pub fn end(&mut self, resource: Key, fencing: u64, alias: Ticket) {
        self.ending.insert((resource, fencing), alias);
    }

    /// The register knows that this one is over: what goes on now.
    pub fn ended(&mut self, resource: Key, fencing: u64) -> Option<Ticket> {
        self.ending.remove(&(resource, fencing))
    }

    /// What had this alias was taken away.
    pub fn drop_alias(&mut self, alias: Ticket) {
        self.ending.retain(|_, ending| *ending != alias);
    }

    /// The session is over, and with it everything that was to go on.
    pub fn on_session_over(&mut self) {
        self.ending.clear();
    }

    /// Those that are ending.
    pub fn ending(&self) -> impl Iterator<Item = (Key, u64, Ticket)> {
        self.ending.iter().map(|((resource, fencing), alias)| (*resource, *fencing, *alias))
    }

    /// How many nobody has.
    pub fn orphans(&self) -> usize {
        self.orphans.len()
    }

    /// A page of the register's begins, which goes up to this entry.
    pub fn begin_page(&mut self, index: u64) {
        self.index = Some(self.index.map_or(index, |all| all.min(index)));
    }

    /// This one is on a page.
    pub fn see(&mut self, resource: Key, fencing: u64) {
        self.found.insert((resource, fencing));
    }

    /// One on a page that goes up to this entry has returned.
    pub fn on_returned(&mut self, index: u64) {
        self.returned = self.returned.max(index);
    }

    /// Whether the register has told all of them once.
    pub fn is_known(&self) -> bool {
        self.is_known
    }

    /// The register has told all of them: those that it has, if that is not older than what has returned.
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
    fn pages_of_a_voter_that_is_behind_say_nothing_of_what_has_returned() {
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
