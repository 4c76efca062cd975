//! What keeps us from a session, and which other clusters were met: as a log was told it last, so that the same is not
//! said twice in a row.

use std::collections::{BTreeMap, BTreeSet};

use peerlock_registry::{ClusterId, Refusal};
use peerlock_types::{PeerId, Span, Time};

use crate::Error;

/// Of so many hosts of other clusters a log is told.
const MOST_FOREIGN: usize = 100;

/// What a log was told.
#[derive(Default)]
pub struct Incidents {
    missing: Vec<PeerId>,
    refused: Option<Refusal>,
    halted: bool,
    registry_message: Option<String>,
    /// Somebody of another cluster, or of another version, was met.
    other: Option<Error>,
    /// Hosts of other clusters.
    foreign: BTreeSet<(PeerId, ClusterId)>,
    /// Clusters that ours is said to be recovered as while we have a session: since when, and whether a log was told.
    beside: BTreeMap<ClusterId, (Time, bool)>,
    /// Somebody says that our cluster was recovered and is this one since: since when.
    recovery: Option<(ClusterId, Time)>,
}

impl Incidents {
    /// There is a session: what kept us from it may be said again. But that the register has halted does not change.
    pub fn on_session(&mut self) {
        (self.missing, self.refused, self.registry_message, self.other) = <_>::default();
    }

    /// These voters are missing. Whether that is news.
    pub fn miss(&mut self, voters: Vec<PeerId>) -> bool {
        let is_new = self.missing != voters;
        self.missing = voters;
        is_new
    }

    /// The register refuses us. Whether that is news.
    pub fn refuse(&mut self, why: Refusal) -> bool {
        self.refused.replace(why) != Some(why)
    }

    /// Our own voter has halted. Whether that is news.
    pub fn halt(&mut self) -> bool {
        !std::mem::replace(&mut self.halted, true)
    }

    /// A letter makes no sense. Whether that is news.
    pub fn misread(&mut self, why: &str) -> bool {
        self.registry_message.replace(why.to_owned()).as_deref() != Some(why)
    }

    /// Somebody was met with whom we have nothing to do. Whether that is news.
    pub fn meet(&mut self, other: Error) -> bool {
        self.other.replace(other.clone()) != Some(other)
    }

    /// Who that was.
    pub fn other(&self) -> Option<&Error> {
        self.other.as_ref()
    }

    /// A host of another cluster was met. Whether that is news, and there is room for it.
    pub fn meet_foreign(&mut self, host: PeerId, theirs: ClusterId) -> bool {
        self.foreign.len() < MOST_FOREIGN && self.foreign.insert((host, theirs))
    }

    /// A host says that our cluster was recovered while our session is valid, which was confirmed last at that time.
    /// Returns `None` as long as nothing contradicts it: the session has not been renewed since the first such
    /// message. Otherwise whether that is news.
    pub fn meet_beside(&mut self, theirs: ClusterId, confirmed: Time, now: Time) -> Option<bool> {
        if self.beside.len() >= MOST_FOREIGN && !self.beside.contains_key(&theirs) {
            return None;
        }
        let (first, is_notified) = self.beside.entry(theirs).or_insert((now, false));
        (confirmed > *first).then(|| !std::mem::replace(is_notified, true))
    }

    /// Somebody says that our cluster was recovered as this one. Whether that was said this long ago for the first
    /// time, and nothing else since.
    pub fn is_recovered(&mut self, theirs: ClusterId, now: Time, certain: Span) -> bool {
        self.recovery.take_if(|(id, _)| *id != theirs);
        let (_, first) = *self.recovery.get_or_insert((theirs, now));
        now.since(first) >= certain
    }

    /// How much is kept because somebody else has said something.
    #[cfg(any(test, feature = "fuzz"))]
    pub fn retained(&self) -> usize {
        self.foreign.len() + self.beside.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_not_said_twice_in_a_row_and_a_session_makes_it_news_again() {
        let mut incidents = Incidents::default();
        let voters = || vec![PeerId::new(1)];
        for update in [true, false] {
            assert_eq!(incidents.miss(voters()), update);
            assert_eq!(incidents.refuse(Refusal::Full), update);
            assert_eq!(incidents.misread("what?"), update);
            assert_eq!(incidents.meet(Error::Lost), update);
            assert_eq!(incidents.halt(), update);
        }
        assert!(incidents.misread("how?") && incidents.misread("what?"), "something else was said in between");
        incidents.on_session();
        assert_eq!(incidents.other(), None);
        assert!(incidents.miss(voters()) && incidents.refuse(Refusal::Full) && incidents.meet(Error::Lost));
        assert!(!incidents.halt(), "that does not change");
    }
}
