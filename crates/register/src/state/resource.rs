//! One resource: who takes part, and in which generation.

use std::collections::BTreeMap;

use peerlock_base::{Key, mix};
use serde::{Deserialize, Serialize};

use super::MOST_DETACHED;
use crate::command::{Opening, Outcome, Refusal};
use crate::{Label, SessionId, Ttl};

/// A named resource.
///
/// Fencing numbers are no part of it but hang on its generation: the next number of a slot is at least
/// generation · 2³², so that they go on, whoever has died, when everybody restarts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resource {
    slots: u32,
    generation: u64,
    coordinator: Option<SessionId>,
    /// Who takes part, and the generation in which each one joined.
    parties: BTreeMap<SessionId, u64>,
    /// By fencing number.
    detached: BTreeMap<u64, Detached>,
}

/// A grant that outlives the session that gave it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detached {
    /// Which slot: not made anew before this is over.
    pub slot: u32,
    /// Who gave it.
    pub session: SessionId,
    /// How long it stands, counted by each voter from its own applying of the entry.
    pub ttl: Ttl,
    /// How often it was renewed.
    pub stretch: u64,
}

impl Resource {
    pub(super) fn found(slots: u32) -> Self {
        Self { slots, generation: 0, coordinator: None, parties: BTreeMap::new(), detached: BTreeMap::new() }
    }

    /// How many may hold it at once.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Which generation this is; the first is 1.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Who fences, counts and goes on in this generation.
    pub fn coordinator(&self) -> Option<SessionId> {
        self.coordinator
    }

    /// Who takes part, and since which generation.
    pub fn parties(&self) -> &BTreeMap<SessionId, u64> {
        &self.parties
    }

    /// The grants that outlive their sessions, by fencing number.
    pub fn detached(&self) -> &BTreeMap<u64, Detached> {
        &self.detached
    }

    /// The next generation, with one of the parties as its coordinator: another one for each resource and generation,
    /// so that a death that concerns many resources is no load on one.
    fn advance(&mut self, name: &Label) -> Opening {
        self.generation += 1;
        let draw = mix(Key::of(name.as_str().as_bytes()).get() as u64 ^ self.generation);
        let place = draw.checked_rem(self.parties.len() as u64).unwrap_or(0);
        self.coordinator = self.parties.keys().nth(place as usize).copied();
        Opening { resource: name.clone(), generation: self.generation, coordinator: self.coordinator }
    }

    pub(super) fn join(&mut self, session: SessionId) -> Outcome {
        let coordinator = match self.coordinator {
            Some(coordinator) => coordinator,
            None => {
                // Nobody took part: it is new, or everybody who had anything is gone. Either way who comes first
                // counts.
                self.generation += 1;
                self.coordinator = Some(session);
                session
            }
        };
        self.parties.entry(session).or_insert(self.generation);
        Outcome::Joined { generation: self.generation, coordinator, slots: self.slots }
    }

    /// Sessions have ended: a new generation if any of them took part.
    pub(super) fn lose(&mut self, name: &Label, ended: &[SessionId]) -> Option<Opening> {
        let before = self.parties.len();
        ended.iter().for_each(|session| _ = self.parties.remove(session));
        (self.parties.len() < before).then(|| self.advance(name))
    }

    pub(super) fn resize(&mut self, name: &Label, slots: u32) -> Outcome {
        if self.slots == slots {
            return Outcome::Done;
        }
        self.slots = slots;
        Outcome::Advanced(self.advance(name))
    }

    pub(super) fn renumber(&mut self, name: &Label, generation: u64) -> Outcome {
        if self.generation == generation {
            Outcome::Advanced(self.advance(name))
        } else {
            Outcome::Refused(Refusal::OldGeneration)
        }
    }

    /// Only who had joined before this generation was asked in it, and who has a detached grant has something.
    pub(super) fn close(&mut self, session: SessionId, generation: u64, idle: &[SessionId]) -> Outcome {
        if self.generation != generation {
            return Outcome::Refused(Refusal::OldGeneration);
        }
        if self.coordinator != Some(session) {
            return Outcome::Refused(Refusal::NotYours);
        }
        let detached = &self.detached;
        self.parties.retain(|party, joined| {
            let has_grant = detached.values().any(|grant| grant.session == *party);
            *joined >= generation || *party == session || has_grant || !idle.contains(party)
        });
        Outcome::Done
    }

    pub(super) fn detach(&mut self, session: SessionId, slot: u32, fencing: u64, ttl: Ttl) -> Outcome {
        if !self.parties.contains_key(&session) {
            return Outcome::Refused(Refusal::NoParty);
        }
        let is_full = self.detached.len() >= MOST_DETACHED;
        match self.detached.get_mut(&fencing) {
            Some(grant) if grant.session == session => {
                (grant.ttl, grant.stretch) = (ttl, grant.stretch + 1);
                Outcome::Done
            }
            Some(_) => Outcome::Refused(Refusal::NotYours),
            None if is_full => Outcome::Refused(Refusal::Full),
            None => {
                self.detached.insert(fencing, Detached { slot, session, ttl, stretch: 0 });
                Outcome::Done
            }
        }
    }

    /// By number, so that a late word of the former holder does not take away the next one's.
    pub(super) fn attach(&mut self, session: SessionId, fencing: u64) -> Outcome {
        match self.detached.get(&fencing) {
            Some(grant) if grant.session == session => {
                self.detached.remove(&fencing);
                Outcome::Done
            }
            Some(_) => Outcome::Refused(Refusal::NotYours),
            None => Outcome::Done,
        }
    }

    /// A grant is over by time. If its giver is gone nobody has its token, and the next generation makes it anew.
    pub(super) fn lapse(
        &mut self,
        name: &Label,
        fencing: u64,
        stretch: u64,
        stands: impl Fn(SessionId) -> bool,
    ) -> Outcome {
        match self.detached.get(&fencing) {
            Some(grant) if grant.stretch == stretch => {
                let orphaned = !stands(grant.session);
                self.detached.remove(&fencing);
                if orphaned { Outcome::Advanced(self.advance(name)) } else { Outcome::Done }
            }
            Some(_) | None => Outcome::Refused(Refusal::NoSuchGrant),
        }
    }
}
