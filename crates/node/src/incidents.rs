//! The last logged reasons for having no session and the other clusters met, so that no message is logged twice in a
//! row.

use std::collections::{BTreeMap, BTreeSet};

use peerlock_registry::{ClusterId, Refusal};
use peerlock_types::{PeerId, Span, Time};

use crate::Error;

/// The maximum number of hosts of other clusters that are logged.
const MOST_FOREIGN: usize = 100;

#[derive(Default)]
pub struct Incidents {
    missing: Vec<PeerId>,
    refused: Option<Refusal>,
    halted: bool,
    forgotten: bool,
    /// Why our own voter has dropped messages.
    registry_drops: BTreeSet<&'static str>,
    registry_message: Option<String>,
    other: Option<Error>,
    foreign: BTreeSet<(PeerId, ClusterId)>,
    /// Clusters that ours was reportedly recovered as while our session is valid: since when, and whether that was
    /// logged.
    beside: BTreeMap<ClusterId, (Time, bool)>,
    /// The cluster that ours was reportedly recovered as, and since when.
    recovery: Option<(ClusterId, Time)>,
}

impl Incidents {
    /// The reasons may be logged again, except for a halted registry, which is final.
    pub fn on_session(&mut self) {
        (self.missing, self.refused, self.registry_message, self.other) = <_>::default();
    }

    pub fn miss(&mut self, voters: Vec<PeerId>) -> bool {
        let is_new = self.missing != voters;
        self.missing = voters;
        is_new
    }

    pub fn refuse(&mut self, why: Refusal) -> bool {
        self.refused.replace(why) != Some(why)
    }

    pub fn halt(&mut self) -> bool {
        !std::mem::replace(&mut self.halted, true)
    }

    /// The log of our own voter lacks confirmed data. Returns whether that is new.
    pub fn forget(&mut self) -> bool {
        !std::mem::replace(&mut self.forgotten, true)
    }

    /// Our own voter has dropped a message for this reason. Returns whether that is new.
    pub fn registry_drops(&mut self, why: &'static str) -> bool {
        self.registry_drops.insert(why)
    }

    pub fn misread(&mut self, why: &str) -> bool {
        self.registry_message.replace(why.to_owned()).as_deref() != Some(why)
    }

    pub fn meet(&mut self, other: Error) -> bool {
        self.other.replace(other.clone()) != Some(other)
    }

    pub fn other(&self) -> Option<&Error> {
        self.other.as_ref()
    }

    /// Returns whether that is new and there is room.
    pub fn meet_foreign(&mut self, host: PeerId, theirs: ClusterId) -> bool {
        self.foreign.len() < MOST_FOREIGN && self.foreign.insert((host, theirs))
    }

    /// Our cluster was reportedly recovered while our session is valid, last confirmed at `confirmed`. Returns `None`
    /// as long as no later renewal contradicts the report, otherwise whether that is new.
    pub fn meet_beside(&mut self, theirs: ClusterId, confirmed: Time, now: Time) -> Option<bool> {
        if self.beside.len() >= MOST_FOREIGN && !self.beside.contains_key(&theirs) {
            return None;
        }
        let (first, is_notified) = self.beside.entry(theirs).or_insert((now, false));
        (confirmed > *first).then(|| !std::mem::replace(is_notified, true))
    }

    /// Returns whether this recovery was first reported at least this long ago, and no other since.
    pub fn is_recovered(&mut self, theirs: ClusterId, now: Time, certain: Span) -> bool {
        self.recovery.take_if(|(id, _)| *id != theirs);
        let (_, first) = *self.recovery.get_or_insert((theirs, now));
        now.since(first) >= certain
    }

    #[cfg(any(test, feature = "fuzz"))]
    pub fn retained(&self) -> usize {
        self.foreign.len() + self.beside.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incident_is_reported_once_until_there_is_a_session() {
        let mut incidents = Incidents::default();
        let voters = || vec![PeerId::new(1)];
        for update in [true, false] {
            assert_eq!(incidents.miss(voters()), update);
            assert_eq!(incidents.refuse(Refusal::Full), update);
            assert_eq!(incidents.misread("what?"), update);
            assert_eq!(incidents.meet(Error::Lost), update);
            assert_eq!(incidents.halt(), update);
            assert_eq!(incidents.forget(), update);
            assert_eq!(incidents.registry_drops("why"), update);
        }
        assert!(incidents.misread("how?") && incidents.misread("what?"), "another one was reported in between");
        incidents.on_session();
        assert_eq!(incidents.other(), None);
        assert!(incidents.miss(voters()) && incidents.refuse(Refusal::Full) && incidents.meet(Error::Lost));
        assert!(!incidents.halt(), "halting is final");
    }
}
