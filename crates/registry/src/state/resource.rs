use std::collections::{BTreeMap, BTreeSet};

use peerlock_types::{Detached, Key, MOST_GENERATION, MOST_SLOTS, PeerId, mix};
use serde::{Deserialize, Serialize};

use super::MOST_DETACHED;
use crate::command::{MOST_FENCING, Opening, Outcome, Refusal, RunEnd};
use crate::event::Topic;
use crate::mutation::Mutation;
use crate::{Label, SessionId, Ttl};

/// The fencing numbers of generation g begin at g times this.
const NUMBERS: u64 = 1 << 32;

/// From this one on, generations are reserved for ended sessions.
const MOST_RESIZED: u64 = MOST_GENERATION / 2;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resource {
    slots: u32,
    /// The first generation with this number of slots.
    resized: u64,
    generation: u64,
    closed: bool,
    coordinator: Option<SessionId>,
    parties: BTreeMap<SessionId, Party>,
    /// By fencing number.
    detached: BTreeMap<u64, DetachedRecord>,
    /// Slots by fencing number: ended grants known to this generation's coordinator.
    expired: BTreeMap<u64, u32>,
    /// Evictions and the generations that they opened. Kept when the session joins again: that may be a late copy.
    evicted: BTreeMap<SessionId, u64>,
    /// The highest fencing number of each slot's ended grants: a late `Detach` does not restore a grant.
    over: BTreeMap<u32, u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Party {
    /// The generation in which it became a party. It is in the census of every later one.
    pub since: u64,
    /// The generation of the latest `Join`. Its census does not remove the party: it may have reported nothing before
    /// it joined again.
    pub joined: u64,
}

/// No token is created for its slot, unless it is the record of a failed run that may be repeated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DetachedRecord {
    pub slot: u32,
    /// Last renewed it.
    pub session: SessionId,
    /// Its sessions may renew or release it.
    pub host: PeerId,
    /// Coordinators of later generations know of it.
    pub generation: u64,
    /// Counted by each voter since it has applied the entry.
    pub ttl: Ttl,
    pub renewals: u64,
    /// Opaque to the registry.
    pub note: Label,
    pub run: Option<RunRecord>,
}

/// The runs of a period. The record of the latest run replaces the one of the run before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRecord {
    pub succeeded: bool,
    /// The number of failed runs.
    pub failures: u32,
    /// No run may start before the record ends: one has succeeded, or there is no attempt left.
    pub holds: bool,
    /// Unix time in milliseconds, for display.
    pub ended: u64,
    /// How long the record lasts in all.
    pub whole: Ttl,
}

impl DetachedRecord {
    pub fn holds(&self) -> bool {
        self.run.is_none_or(|run| run.holds)
    }
}

impl Resource {
    /// The first `Join` opens the next generation.
    pub(super) fn found(slots: u32, generation: u64) -> Self {
        Self {
            slots,
            // Above every generation of an earlier resource of this name.
            resized: generation + 1,
            generation,
            closed: false,
            coordinator: None,
            parties: BTreeMap::new(),
            detached: BTreeMap::new(),
            expired: BTreeMap::new(),
            evicted: BTreeMap::new(),
            over: BTreeMap::new(),
        }
    }

    /// Checks the invariants. `is_valid`: of a session.
    pub(super) fn is_possible(&self, is_valid: impl Fn(SessionId) -> bool) -> bool {
        let detached = self.detached.iter().map(|(fencing, grant)| (grant.slot, *fencing));
        let expired = self.expired.iter().map(|(fencing, slot)| (*slot, *fencing));
        let over = self.over.iter().map(|(slot, fencing)| (*slot, *fencing));
        (1..=MOST_SLOTS).contains(&self.slots)
            && self.generation < MOST_GENERATION
            && self.resized <= MOST_GENERATION
            && self.coordinator.is_none_or(|it| self.parties.contains_key(&it))
            && (self.coordinator.is_some() || self.parties.is_empty())
            && self.parties.keys().all(|party| is_valid(*party))
            && self.detached.len() <= MOST_DETACHED
            && detached.chain(expired).chain(over).all(|(slot, it)| slot < MOST_SLOTS && it < MOST_FENCING)
    }

    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// The first is 1.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    pub fn is_closed(&self) -> bool {
        self.closed
    }

    pub fn coordinator(&self) -> Option<SessionId> {
        self.coordinator
    }

    pub fn parties(&self) -> &BTreeMap<SessionId, Party> {
        &self.parties
    }

    /// By fencing number.
    pub fn detached(&self) -> &BTreeMap<u64, DetachedRecord> {
        &self.detached
    }

    /// Its session may not have been notified.
    pub(super) fn has_unnotified(&self) -> bool {
        !self.evicted.is_empty()
    }

    /// Returns session, generation and topic.
    pub fn pending_events(&self) -> impl Iterator<Item = (SessionId, u64, Topic)> {
        let opened = self.coordinator.filter(|_| !self.closed).map(|it| (it, self.generation, Topic::Opened));
        let expired = self.coordinator.into_iter().flat_map(move |it| {
            self.expired.keys().map(move |fencing| (it, self.generation, Topic::Expired(*fencing)))
        });
        let evicted = self.evicted.iter().map(|(it, generation)| (*it, *generation, Topic::Evicted));
        opened.into_iter().chain(expired).chain(evicted)
    }

    pub fn asked(&self) -> impl Iterator<Item = SessionId> {
        let is_asked =
            |(id, party): &(&SessionId, &Party)| party.since < self.generation || self.coordinator == Some(**id);
        self.parties.iter().filter(is_asked).map(|(id, _)| *id)
    }

    /// Returns slot and fencing number of the grants detached before this generation.
    pub fn detached_before(&self) -> Vec<Detached> {
        let before = self.detached.iter().filter(|(_, grant)| grant.generation < self.generation && grant.holds());
        let before = before.map(|(&fencing, grant)| Detached { slot: grant.slot, fencing });
        let expired = self.expired().map(|(fencing, slot)| Detached { slot, fencing });
        before.chain(expired).collect::<BTreeSet<_>>().into_iter().collect()
    }

    pub fn expired(&self) -> impl Iterator<Item = (u64, u32)> {
        self.expired.iter().map(|(&fencing, &slot)| (fencing, slot))
    }

    /// The coordinator is pseudorandom, so that the end of a session with many resources does not make another one
    /// coordinate them all.
    fn advance(&mut self, name: &Label) -> Opening {
        let draw = mix(Key::of(name.as_str().as_bytes()).get() as u64 ^ (self.generation + 1));
        let place = draw.checked_rem(self.parties.len() as u64).unwrap_or(0);
        let coordinator = self.parties.keys().nth(place as usize).copied();
        self.open(coordinator);
        Opening { resource: name.clone(), generation: self.generation, coordinator }
    }

    pub(super) fn recover(&mut self, name: &Label, floor: u64) {
        self.generation = floor;
        self.advance(name);
    }

    fn open(&mut self, coordinator: Option<SessionId>) {
        // A higher one would make the state undecodable. Late messages can then be mistaken for current ones, but only
        // of this resource.
        self.generation = (self.generation + 1).min(MOST_GENERATION - 1);
        self.coordinator = coordinator;
        self.closed = false;
        self.expired.clear();
    }

    pub(super) fn join(&mut self, session: SessionId, host_of: impl Fn(SessionId) -> Option<PeerId>) -> Outcome {
        let coordinator = self.coordinator.unwrap_or_else(|| {
            // The resource is new, or every session that had anything of it has ended.
            self.open(Some(session));
            session
        });
        let generation = self.generation;
        let party = self.parties.entry(session).or_insert(Party { since: generation, joined: generation });
        party.joined = generation;
        // Also for a copy of the command.
        let opened = coordinator == session && party.since == generation;
        let host = host_of(coordinator);
        let host = host
            .unwrap_or_else(|| panic!("the coordinator's session {coordinator} has ended, but it was not replaced"));
        Outcome::Joined { generation, coordinator: (coordinator, host), opened, slots: self.slots }
    }

    pub(super) fn lose(&mut self, name: &Label, ended: &[SessionId]) -> Option<Opening> {
        let before = self.parties.len();
        for session in ended {
            self.parties.remove(session);
            self.evicted.remove(session);
        }
        (self.parties.len() < before).then(|| self.advance(name))
    }

    /// Replaces parties, also if their sessions have ended: only a census reports to the new session what became of
    /// their tokens.
    pub(super) fn take_over(&mut self, name: &Label, from: &[SessionId], to: SessionId) -> Opening {
        // Its grants are those of the replaced parties.
        let mut since = self.generation;
        for from in from {
            since = self.parties.remove(from).map_or(since, |party| since.min(party.since));
            self.evicted.remove(from);
        }
        self.parties.insert(to, Party { since, joined: self.generation });
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

    /// A late copy names an earlier generation, so it does not remove a party that has joined again.
    pub(super) fn quit(&mut self, name: &Label, session: SessionId, generation: u64) -> Outcome {
        if self.generation != generation {
            return Outcome::Refused(Refusal::OldGeneration);
        }
        match self.parties.remove(&session) {
            Some(_) => {
                // A session that knows this generation knows of evictions in earlier ones.
                self.evicted.remove(&session);
                Outcome::Advanced(self.advance(name))
            }
            None => Outcome::Refused(Refusal::NoParty),
        }
    }

    pub(super) fn detach(&mut self, grant: DetachedRecord, fencing: u64, run: Option<RunEnd>) -> Outcome {
        match self.detached.get_mut(&fencing) {
            Some(known) if known.host != grant.host => return Outcome::Refused(Refusal::NotYours),
            Some(known) => match (known.run, run) {
                (None, None) => {
                    // This may be a late copy of an earlier renewal, and the client knows the later end.
                    known.ttl = known.ttl.max(grant.ttl);
                    known.session = known.session.max(grant.session);
                    (known.renewals, known.note) = (known.renewals + 1, grant.note);
                    return Outcome::Done;
                }
                (Some(RunRecord { holds, .. }), Some(_)) => return Outcome::Concluded { holds },
                (Some(_), None) | (None, Some(_)) => return Outcome::Refused(Refusal::NoSuchGrant),
            },
            None => {}
        }
        if self.over.get(&grant.slot).is_some_and(|over| fencing <= *over) {
            return Outcome::Refused(Refusal::NoSuchGrant);
        }
        let Some(party) = self.parties.get(&grant.session) else { return Outcome::Refused(Refusal::NoParty) };
        // Below: granted before its session was evicted or quit, or by a deleted resource of this name. No client holds
        // a slot with it. Above: later numbers would not exceed it.
        if fencing < party.since * NUMBERS || fencing >= (self.generation + 1) * NUMBERS {
            return Outcome::Refused(Refusal::NoSuchGrant);
        }
        if self.detached.len() >= MOST_DETACHED {
            return Outcome::Refused(Refusal::Full);
        }
        let grant = DetachedRecord { generation: self.generation, renewals: 0, ..grant };
        let Some(run) = run else {
            self.detached.insert(fencing, grant);
            return Outcome::Done;
        };
        let record = self.conclude(run, grant.ttl);
        if !record.holds {
            // The client releases the slot. A late copy must not restore the record after its end.
            let over = self.over.entry(grant.slot).or_insert(fencing);
            *over = fencing.max(*over);
        }
        self.detached.insert(fencing, DetachedRecord { run: Some(record), ..grant });
        Outcome::Concluded { holds: record.holds }
    }

    /// Returns the record of a run, and removes the one of an earlier failure.
    fn conclude(&mut self, end: RunEnd, whole: Ttl) -> RunRecord {
        let earlier = self.detached.values().filter(|grant| !grant.holds());
        let earlier = earlier.filter_map(|grant| Some(grant.run?.failures)).max().unwrap_or(0);
        self.detached.retain(|_, grant| grant.holds());
        let failures = earlier + u32::from(!end.succeeded);
        let holds = end.succeeded || failures >= end.attempts;
        RunRecord { succeeded: end.succeeded, failures, holds, ended: end.at, whole }
    }

    pub(super) fn shorten(&mut self, fencing: u64, renewals: u64, ttl: Ttl) -> Outcome {
        match self.detached.get_mut(&fencing) {
            Some(grant) if grant.renewals == renewals && grant.run.is_some() => {
                (grant.ttl, grant.renewals) = (grant.ttl.min(ttl), renewals + 1);
                Outcome::Done
            }
            Some(_) | None => Outcome::Refused(Refusal::NoSuchGrant),
        }
    }

    pub(super) fn drop_detached(&mut self, session: SessionId, host: PeerId, fencing: u64) -> Outcome {
        match self.detached.get(&fencing) {
            // A later session has renewed it.
            Some(grant) if grant.host == host && session < grant.session => {}
            Some(grant) if grant.host == host => self.forget(fencing),
            Some(_) => return Outcome::Refused(Refusal::NotYours),
            None => {}
        }
        Outcome::Done
    }

    pub(super) fn expire_detached(&mut self, fencing: u64, renewals: u64) -> Outcome {
        match self.detached.get(&fencing) {
            Some(grant) if grant.renewals == renewals => {
                self.forget(fencing);
                Outcome::Done
            }
            Some(_) | None => Outcome::Refused(Refusal::NoSuchGrant),
        }
    }

    /// Notifies a coordinator that knows of the grant, since the slot may wait for its end.
    fn forget(&mut self, fencing: u64) {
        let Some(grant) = self.detached.remove(&fencing).filter(DetachedRecord::holds) else { return };
        let over = self.over.entry(grant.slot).or_insert(fencing);
        *over = fencing.max(*over);
        if self.coordinator.is_some() && grant.generation < self.generation {
            self.expired.insert(fencing, grant.slot);
        }
    }

    pub(super) fn evict(
        &mut self,
        name: &Label,
        session: SessionId,
        since: u64,
        makes: impl Fn(Mutation) -> bool,
    ) -> Outcome {
        let Some(party) = self.parties.get(&session) else { return Outcome::Refused(Refusal::NoParty) };
        if party.since != since && !makes(Mutation::EvictsLate) {
            return Outcome::Refused(Refusal::OldGeneration);
        }
        self.parties.remove(&session);
        let grants = self.detached.iter().filter(|(_, grant)| grant.session == session).map(|(fencing, _)| *fencing);
        grants.collect::<Vec<u64>>().into_iter().for_each(|fencing| self.forget(fencing));
        let opening = self.advance(name);
        self.evicted.insert(session, self.generation);
        Outcome::Advanced(opening)
    }

    pub(super) fn take_back(&mut self, fencing: u64, session: SessionId) -> Outcome {
        match self.detached.get(&fencing) {
            Some(grant) if grant.session != session => return Outcome::Refused(Refusal::Superseded),
            Some(_) => self.forget(fencing),
            None => {}
        }
        Outcome::Done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: SessionId = SessionId::new(1);
    const HOST: PeerId = PeerId::new(7);

    fn resource() -> Resource {
        let mut resource = Resource::found(1, 0);
        resource.join(S, |_| Some(HOST));
        resource
    }

    fn ends(resource: &mut Resource, fencing: u64, succeeded: bool, attempts: u32) -> Outcome {
        let (ttl, note) = (Ttl::from_millis(60_000).unwrap(), Label::new("ada").unwrap());
        let grant =
            DetachedRecord { slot: 0, session: S, host: HOST, generation: 0, ttl, renewals: 0, note, run: None };
        resource.detach(grant, NUMBERS + fencing, Some(RunEnd { succeeded, attempts, at: 5 }))
    }

    fn latest(resource: &Resource) -> (bool, u32, bool) {
        let run = resource.detached.values().next().unwrap().run.unwrap();
        assert_eq!(resource.detached.len(), 1, "the record of a run replaces the one before");
        (run.succeeded, run.failures, run.holds)
    }

    #[test]
    fn successful_run_holds_the_slot_until_its_period_ends() {
        let mut resource = resource();
        assert_eq!(ends(&mut resource, 1, true, 3), Outcome::Concluded { holds: true });
        assert_eq!(ends(&mut resource, 1, false, 3), Outcome::Concluded { holds: true }, "a late copy");
        assert_eq!(latest(&resource), (true, 0, true));
        resource.recover(&Label::new("r").unwrap(), 1);
        assert_eq!(resource.detached_before(), [Detached { slot: 0, fencing: NUMBERS + 1 }]);
        resource.join(S, |_| Some(HOST));
        assert_eq!(resource.expire_detached(NUMBERS + 1, 0), Outcome::Done);
        assert!(resource.expired().eq([(NUMBERS + 1, 0)]), "the coordinator creates the token");
    }

    #[test]
    fn failed_run_holds_the_slot_after_the_last_attempt() {
        let mut resource = resource();
        for (fencing, holds) in [(1, false), (2, false), (3, true)] {
            assert_eq!(ends(&mut resource, fencing, false, 3), Outcome::Concluded { holds });
            assert_eq!(latest(&resource), (false, fencing as u32, holds));
            let copy = ends(&mut resource, 1, false, 3);
            assert_eq!(copy == Outcome::Refused(Refusal::NoSuchGrant), fencing > 1, "a late copy of the first");
        }
    }

    #[test]
    fn run_of_a_replaced_session_is_concluded() {
        let mut resource = resource();
        let name = Label::new("r").unwrap();
        resource.recover(&name, 1);
        resource.take_over(&name, &[S], SessionId::new(2));
        resource.take_over(&name, &[SessionId::new(2)], S);
        assert_eq!(ends(&mut resource, 1, true, 3), Outcome::Concluded { holds: true }, "granted in generation 1");
    }

    #[test]
    fn success_after_failures_ends_their_record() {
        let mut resource = resource();
        ends(&mut resource, 1, false, 3);
        resource.recover(&Label::new("r").unwrap(), 1);
        assert_eq!(resource.detached_before(), [], "a failed run holds no slot");
        resource.join(S, |_| Some(HOST));
        assert_eq!(ends(&mut resource, NUMBERS, true, 3), Outcome::Concluded { holds: true });
        assert_eq!(latest(&resource), (true, 1, true));
        assert!(resource.expired().next().is_none());
    }

    #[test]
    fn period_is_shortened_and_never_lengthened() {
        let mut resource = resource();
        ends(&mut resource, 1, true, 3);
        let ttl = |resource: &Resource| u64::from(resource.detached.values().next().unwrap().ttl);
        for (renewals, millis, outcome, left) in [
            (0, 50_000, Outcome::Done, 50_000),
            (0, 40_000, Outcome::Refused(Refusal::NoSuchGrant), 50_000),
            (1, 55_000, Outcome::Done, 50_000),
        ] {
            let shorter = Ttl::from_millis(millis).unwrap();
            assert_eq!(resource.shorten(NUMBERS + 1, renewals, shorter), outcome);
            assert_eq!(ttl(&resource), left);
        }
    }
}
