//! What is decided once when a resource is founded, and all that were.

use alloc::collections::BTreeMap;

use peerlock_base::{Key, PeerId};
use peerlock_peer::Resources;
use serde::{Deserialize, Deserializer, Serialize};

use crate::name::check_slots;
use crate::{Guard, Name};

/// What is decided when a resource is founded.
///
/// Protocols with tokens are told beforehand who has them. Among peers that come and go nobody is there beforehand: the
/// first who asks *founds* the resource, and all others must learn of that and not found it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Charter {
    /// How many may be inside at a time. Checked when it comes from another peer: memory is set aside for each of them.
    #[serde(deserialize_with = "slots")]
    pub slots: u32,
    /// The peer that has all tokens at first.
    pub home: PeerId,
    /// All fencing numbers are above this. A resource that everybody has forgotten can be founded again: if this is the
    /// time, its numbers go on from where they were.
    pub above: u64,
}

fn slots<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    check_slots(u32::deserialize(deserializer)?).map_err(serde::de::Error::custom)
}

/// Every resource that is known to be founded. From its charter a peer [opens](Resources::open) its part in a resource.
#[derive(Clone, Debug, Default)]
pub struct Charters {
    known: BTreeMap<Key, (Name, Charter)>,
}

impl Charters {
    /// The charter of a resource, once it is known here.
    pub fn get(&self, resource: Key) -> Option<Charter> {
        self.known.get(&resource).map(|(_, charter)| *charter)
    }

    /// The same with its name.
    pub fn named(&self, resource: Key) -> Option<&(Name, Charter)> {
        self.known.get(&resource)
    }

    /// All of them.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Key, &(Name, Charter))> {
        self.known.iter().map(|(key, known)| (*key, known))
    }

    /// A resource is founded. A charter is for good: a different one comes back as the error, beside the one that is
    /// known. True if it is news.
    pub fn learn(&mut self, name: &Name, charter: Charter) -> Result<bool, Charter> {
        match self.known.get(&name.key()) {
            Some((_, known)) if *known == charter => Ok(false),
            Some((_, known)) => Err(*known),
            None => {
                self.known.insert(name.key(), (name.clone(), charter));
                Ok(true)
            }
        }
    }
}

impl<P: Guard> Resources<P> for Charters {
    fn open(&self, me: PeerId, resource: Key) -> Option<P> {
        self.get(resource).map(|charter| P::open(me, charter))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use peerlock_mutex::FairKLate;

    use super::*;

    const ME: PeerId = PeerId::new(1);
    const HOME: PeerId = PeerId::new(2);

    #[test]
    fn a_charter_is_for_good() {
        let name: Name = "x".parse().unwrap();
        let mut charters = Charters::default();
        let charter = Charter { slots: 3, home: ME, above: 100 };
        assert_eq!(charters.learn(&name, charter), Ok(true));
        assert_eq!(charters.learn(&name, charter), Ok(false));
        assert_eq!(charters.learn(&name, Charter { home: HOME, ..charter }), Err(charter));
        assert_eq!(charters.get(name.key()), Some(charter));
    }

    #[test]
    fn only_what_is_founded_can_be_opened_and_its_fencing_numbers_begin_where_the_charter_says() {
        let name: Name = "x".parse().unwrap();
        let mut charters = Charters::default();
        assert_eq!(Resources::<FairKLate>::open(&charters, ME, name.key()), None);
        charters.learn(&name, Charter { slots: 3, home: ME, above: 100 }).unwrap();
        let home: FairKLate = charters.open(ME, name.key()).unwrap();
        assert_eq!(home.held().map(|(token, _)| token.fencing).collect::<Vec<_>>(), [101, 102, 103]);
        let other: FairKLate = charters.open(HOME, name.key()).unwrap();
        assert_eq!((other.held().count(), other.coordinator()), (0, ME));
    }

    /// A member once could make another set memory aside for four thousand million tokens.
    #[test]
    fn a_charter_with_a_number_of_slots_that_cannot_be_is_malformed() {
        for (slots, good) in [(0, false), (1, true), (1024, true), (1025, false), (u32::MAX, false)] {
            let charter = Charter { slots, home: HOME, above: 0 };
            let bytes = postcard::to_extend(&charter, Vec::new()).unwrap();
            assert_eq!(postcard::from_bytes::<Charter>(&bytes).is_ok(), good, "{slots}");
        }
    }
}
