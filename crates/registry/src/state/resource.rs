//! One resource: who takes part, and in which generation.

use std::collections::{BTreeMap, BTreeSet};

use peerlock_types::{Key, MOST_GENERATION, MOST_SLOTS, PeerId, mix};
use serde::{Deserialize, Serialize};

use super::MOST_DETACHED;
use crate::command::{MOST_FENCING, Opening, Outcome, Refusal};
use crate::kind::Topic;
use crate::mutation::Mutation;
use crate::{Label, SessionId, Ttl};

/// Fencing numbers of a generation are between this much times its number and the next one's.
const NUMBERS: u64 = 1 << 32;

/// From this generation on nobody gets another one by asking for it.
const MOST_RESIZED: u64 = MOST_GENERATION / 2;

/// A named resource.
///
/// Fencing numbers are no part of it but hang on its generation: the next number of a slot is at least
/// generation · 2³², so that they go on, whoever has died, when everybody restarts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resource {
    slots: u32,
    /// The first generation with this number of slots.
    resized: u64,
    generation: u64,
    /// Whether the coordinator has counted.
    closed: bool,
    /// A party whose session stands, as long as there is one.
    coordinator: Option<SessionId>,
    parties: BTreeMap<SessionId, Party>,
    /// By fencing number.
    detached: BTreeMap<u64, Detached>,
    /// Grants that this generation's coordinator was told of and that are over since: slots by fencing number.
    expired: BTreeMap<u64, u32>,
    /// Who was forced out, and the generation that this has opened. Also if it has joined since: perhaps that was a
    /// late letter, and it does not know.
    expelled: BTreeMap<SessionId, u64>,
    /// The highest fencing number of each slot's detached grants that are over: a late word of one does not bring it
    /// back. Numbers of a slot only ever rise.
    over: BTreeMap<u32, u64>,
}

/// Since when a session takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Party {
    /// The generation in which it became a party: it is asked in every one after that.
    pub since: u64,
    /// The generation in which it has last asked to be one: no count of that generation removes it. It may have been
    /// asked, have answered that it has nothing, and have joined again before the count was closed.
    pub joined: u64,
}

/// A grant that outlives the session that gave it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detached {
    /// Which slot: not made anew before this is over.
    pub slot: u32,
    /// Who gave it, or the latest that has renewed it.
    pub session: SessionId,
    /// Where: any session of this host may renew it and give it back.
    pub host: PeerId,
    /// The generation in which it was detached: the coordinators of later ones are told of it.
    pub generation: u64,
    /// How long it stands, counted by each voter from its own applying of the entry.
    pub ttl: Ttl,
    /// How often it was renewed.
    pub stretch: u64,
    /// What the host wants to find with it again.
    pub note: Label,
}

impl Resource {
    /// Without parties; the first one opens the generation after this.
    pub(super) fn found(slots: u32, generation: u64) -> Self {
        Self {
            slots,
            // Above everything that was seen of an earlier resource of this name.
            resized: generation + 1,
            generation,
            closed: false,
            coordinator: None,
            parties: BTreeMap::new(),
            detached: BTreeMap::new(),
            expired: BTreeMap::new(),
            expelled: BTreeMap::new(),
            over: BTreeMap::new(),
        }
    }

    /// Whether it is as it can be; `stands` tells of a session.
    pub(super) fn is_possible(&self, stands: impl Fn(SessionId) -> bool) -> bool {
        let detached = self.detached.iter().map(|(fencing, grant)| (grant.slot, *fencing));
        let expired = self.expired.iter().map(|(fencing, slot)| (*slot, *fencing));
        let over = self.over.iter().map(|(slot, fencing)| (*slot, *fencing));
        (1..=MOST_SLOTS).contains(&self.slots)
            && self.generation < MOST_GENERATION
            && self.resized <= MOST_GENERATION
            && self.coordinator.is_none_or(|it| self.parties.contains_key(&it))
            && (self.coordinator.is_some() || self.parties.is_empty())
            && self.parties.keys().all(|party| stands(*party))
            && self.detached.len() <= MOST_DETACHED
            && detached.chain(expired).chain(over).all(|(slot, it)| slot < MOST_SLOTS && it < MOST_FENCING)
    }

    /// How many may hold it at once.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Which generation this is; the first is 1.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether this generation's count is over.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Who fences, counts and goes on in this generation.
    pub fn coordinator(&self) -> Option<SessionId> {
        self.coordinator
    }

    /// Who takes part, and since when.
    pub fn parties(&self) -> &BTreeMap<SessionId, Party> {
        &self.parties
    }

    /// The grants that outlive their sessions, by fencing number.
    pub fn detached(&self) -> &BTreeMap<u64, Detached> {
        &self.detached
    }

    /// Whether somebody was forced out whose session stands, and who may not have heard of it.
    pub(super) fn has_forced(&self) -> bool {
        !self.expelled.is_empty()
    }

    /// Which words have to be told: to whom, of which generation, and what about.
    pub fn words(&self) -> impl Iterator<Item = (SessionId, u64, Topic)> {
        let opened = self.coordinator.filter(|_| !self.closed).map(|it| (it, self.generation, Topic::Opened));
        let expired = self.coordinator.into_iter().flat_map(move |it| {
            self.expired.keys().map(move |fencing| (it, self.generation, Topic::Expired(*fencing)))
        });
        let expelled = self.expelled.iter().map(|(it, generation)| (*it, *generation, Topic::Expelled));
        opened.into_iter().chain(expired).chain(expelled)
    }

    /// Who is to be asked in this generation: everybody who took part when it was opened.
    pub fn asked(&self) -> impl Iterator<Item = SessionId> {
        let is_asked =
            |(id, party): &(&SessionId, &Party)| party.since < self.generation || self.coordinator == Some(**id);
        self.parties.iter().filter(is_asked).map(|(id, _)| *id)
    }

    /// The grants that were detached when this generation was opened, whether they are over or not: slot and fencing
    /// number.
    pub fn detached_before(&self) -> Vec<(u32, u64)> {
        let before = self.detached.iter().filter(|(_, grant)| grant.generation < self.generation);
        let before = before.map(|(&fencing, grant)| (grant.slot, fencing));
        let all: BTreeSet<(u32, u64)> = before.chain(self.expired().map(|(fencing, slot)| (slot, fencing))).collect();
        all.into_iter().collect()
    }

    /// Those of them that are over: fencing number and slot.
    pub fn expired(&self) -> impl Iterator<Item = (u64, u32)> {
        self.expired.iter().map(|(&fencing, &slot)| (fencing, slot))
    }

    /// The next generation, with one of the parties as its coordinator: another one for each resource and generation,
    /// so that a death that concerns many resources is no load on one.
    fn advance(&mut self, name: &Label) -> Opening {
        let draw = mix(Key::of(name.as_str().as_bytes()).get() as u64 ^ (self.generation + 1));
        let place = draw.checked_rem(self.parties.len() as u64).unwrap_or(0);
        let coordinator = self.parties.keys().nth(place as usize).copied();
        self.open(coordinator);
        Opening { resource: name.clone(), generation: self.generation, coordinator }
    }

    /// Generations up to this one may have been used.
    pub(super) fn recover(&mut self, name: &Label, floor: u64) {
        self.generation = floor;
        self.advance(name);
    }

    fn open(&mut self, coordinator: Option<SessionId>) {
        // Who uses up all of them has one name on which late words count. Beyond, nobody could read the register.
        self.generation = (self.generation + 1).min(MOST_GENERATION - 1);
        self.coordinator = coordinator;
        self.closed = false;
        self.expired.clear();
    }

    pub(super) fn join(&mut self, session: SessionId, host_of: impl Fn(SessionId) -> Option<PeerId>) -> Outcome {
        let coordinator = self.coordinator.unwrap_or_else(|| {
            // Nobody took part: it is new, or everybody who had anything is gone. Either way who comes first counts.
            self.open(Some(session));
            session
        });
        let generation = self.generation;
        let party = self.parties.entry(session).or_insert(Party { since: generation, joined: generation });
        party.joined = generation;
        // So also where this is the second time that it is asked: a coordinator is older than its generation otherwise.
        let opened = coordinator == session && party.since == generation;
        let host = host_of(coordinator);
        let host =
            host.unwrap_or_else(|| panic!("the coordinator's session {coordinator} is over, and it was not replaced"));
        Outcome::Joined { generation, coordinator: (coordinator, host), opened, slots: self.slots }
    }

    /// Sessions have ended: a new generation if any of them took part.
    pub(super) fn lose(&mut self, name: &Label, ended: &[SessionId]) -> Option<Opening> {
        let before = self.parties.len();
        for session in ended {
            self.parties.remove(session);
            self.expelled.remove(session);
        }
        (self.parties.len() < before).then(|| self.advance(name))
    }

    /// A session goes on with what earlier ones of its host had: a new generation, in which it is asked. Also if the
    /// earlier ones have ended before: nobody else tells the later one what has become of what they had.
    pub(super) fn take_over(&mut self, name: &Label, from: &[SessionId], to: SessionId) -> Opening {
        for from in from {
            self.parties.remove(from);
            self.expelled.remove(from);
        }
        self.parties.insert(to, Party { since: self.generation, joined: self.generation });
        self.advance(name)
    }

    pub(super) fn resize(
        &mut self,
        name: &Label,
        slots: u32,
        generation: u64,
        makes: impl Fn(Mutation) -> bool,
    ) -> Outcome {
        if self.slots == slots {
            return Outcome::Done;
        }
        let is_superseded = generation < self.resized || generation > self.generation;
        if is_superseded && !makes(Mutation::ResizesLate) {
            return Outcome::Refused(Refusal::Superseded);
        }
        // Whoever likes may ask for this, again and again: half of all generations are left for what happens by itself.
        if self.generation >= MOST_RESIZED {
            return Outcome::Refused(Refusal::Full);
        }
        self.slots = slots;
        let opening = self.advance(name);
        self.resized = self.generation;
        Outcome::Advanced(opening)
    }

    pub(super) fn renumber(&mut self, name: &Label, generation: u64) -> Outcome {
        if self.generation >= MOST_RESIZED {
            Outcome::Refused(Refusal::Full)
        } else if self.generation == generation {
            Outcome::Advanced(self.advance(name))
        } else {
            Outcome::Refused(Refusal::OldGeneration)
        }
    }

    /// Only who had joined before this generation was asked in it. The second time there is nothing left to do.
    pub(super) fn close(&mut self, session: SessionId, generation: u64, remaining: &[SessionId]) -> Outcome {
        if self.generation != generation {
            return Outcome::Refused(Refusal::OldGeneration);
        }
        if self.coordinator != Some(session) {
            return Outcome::Refused(Refusal::NotYours);
        }
        if !self.closed {
            self.closed = true;
            let remaining: BTreeSet<&SessionId> = remaining.iter().collect();
            self.parties.retain(|it, party| party.joined >= generation || *it == session || remaining.contains(it));
        }
        Outcome::Done
    }

    /// A party has nothing any more: to the others it is as if its session had ended. By generation, so that a late
    /// letter does not take away what it has since it joined again.
    pub(super) fn quit(&mut self, name: &Label, session: SessionId, generation: u64) -> Outcome {
        if self.generation != generation {
            return Outcome::Refused(Refusal::OldGeneration);
        }
        match self.parties.remove(&session) {
            Some(_) => {
                // Who knows of this generation does not have to hear that it was forced out in an earlier one.
                self.expelled.remove(&session);
                Outcome::Advanced(self.advance(name))
            }
            None => Outcome::Refused(Refusal::NoParty),
        }
    }

    /// A party gives a grant, or a session of the host that has given one renews it.
    pub(super) fn detach(&mut self, grant: Detached, fencing: u64) -> Outcome {
        match self.detached.get_mut(&fencing) {
            Some(known) if known.host == grant.host => {
                // Never shorter than it was: this may be an earlier renewal that comes late, and its client was told
                // the other one's end.
                known.ttl = known.ttl.max(grant.ttl);
                known.session = known.session.max(grant.session);
                (known.stretch, known.note) = (known.stretch + 1, grant.note);
                return Outcome::Done;
            }
            Some(_) => return Outcome::Refused(Refusal::NotYours),
            None => {}
        }
        if self.over.get(&grant.slot).is_some_and(|over| fencing <= *over) {
            return Outcome::Refused(Refusal::NoSuchGrant);
        }
        let Some(party) = self.parties.get(&grant.session) else { return Outcome::Refused(Refusal::NoParty) };
        // It was given before its session was forced out or gave up its part, or by another resource of this name that
        // was removed since: nobody is inside with it. Or it is a number that nobody can have come to, and none that is
        // given out later would count beside it.
        if fencing < party.since * NUMBERS || fencing >= (self.generation + 1) * NUMBERS {
            return Outcome::Refused(Refusal::NoSuchGrant);
        }
        if self.detached.len() >= MOST_DETACHED {
            return Outcome::Refused(Refusal::Full);
        }
        self.detached.insert(fencing, Detached { generation: self.generation, stretch: 0, ..grant });
        Outcome::Done
    }

    /// By number, so that a late word of the former holder does not take away the next one's.
    pub(super) fn drop_detached(&mut self, session: SessionId, host: PeerId, fencing: u64) -> Outcome {
        match self.detached.get(&fencing) {
            // A later session of the host has renewed it, and its client was told so.
            Some(grant) if grant.host == host && session < grant.session => {}
            Some(grant) if grant.host == host => self.forget(fencing),
            Some(_) => return Outcome::Refused(Refusal::NotYours),
            None => {}
        }
        Outcome::Done
    }

    /// A grant is over by time.
    pub(super) fn expire_detached(&mut self, fencing: u64, stretch: u64) -> Outcome {
        match self.detached.get(&fencing) {
            Some(grant) if grant.stretch == stretch => {
                self.forget(fencing);
                Outcome::Done
            }
            Some(_) | None => Outcome::Refused(Refusal::NoSuchGrant),
        }
    }

    /// A grant is over. The coordinator hears of it if it has heard of the grant: perhaps the slot waits for that.
    fn forget(&mut self, fencing: u64) {
        let Some(grant) = self.detached.remove(&fencing) else { return };
        let over = self.over.entry(grant.slot).or_insert(fencing);
        *over = fencing.max(*over);
        if self.coordinator.is_some() && grant.generation < self.generation {
            self.expired.insert(fencing, grant.slot);
        }
    }

    /// Evicts a party at the risk that a client of it goes on. What is asked a second time finds the party gone, or
    /// another participation of the same session.
    pub(super) fn expel(
        &mut self,
        name: &Label,
        session: SessionId,
        since: u64,
        makes: impl Fn(Mutation) -> bool,
    ) -> Outcome {
        let Some(party) = self.parties.get(&session) else { return Outcome::Refused(Refusal::NoParty) };
        if party.since != since && !makes(Mutation::ExpelsLate) {
            return Outcome::Refused(Refusal::OldGeneration);
        }
        self.parties.remove(&session);
        let grants = self.detached.iter().filter(|(_, grant)| grant.session == session).map(|(fencing, _)| *fencing);
        grants.collect::<Vec<u64>>().into_iter().for_each(|fencing| self.forget(fencing));
        let opening = self.advance(name);
        self.expelled.insert(session, self.generation);
        Outcome::Advanced(opening)
    }

    /// Ends one detached grant. By number, so that a late copy does not end another one.
    pub(super) fn take_back(&mut self, fencing: u64, session: SessionId) -> Outcome {
        match self.detached.get(&fencing) {
            Some(grant) if grant.session != session => return Outcome::Refused(Refusal::Superseded),
            Some(_) => self.forget(fencing),
            None => {}
        }
        Outcome::Done
    }
}
