//! The replicated state machine: the same entries give the same state at every voter. So it has no clock: `leases.rs`
//! measures time, and its decisions become entries.
//!
//! ```text
//!   members    hosts, as their latest process described them     never removed by time
//!   sessions   processes that may use tokens                     Open … Leave, End
//!   resources  slots, generation, coordinator, parties,          created by the first Join, deleted by Remove;
//!              detached grants                                   their generations, which fencing numbers contain,
//!                                                                are never reused
//!   voters     whose files contain all this                      by configuration changes of the log
//! ```

mod index;
mod resource;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use peerlock_types::{Detached, EventKind, MOST_GENERATION, PeerId, Session};
use serde::{Deserialize, Serialize};

use self::index::Index;
pub use self::resource::{DetachedRecord, Party, Resource, RunRecord};
use crate::command::{Command, Incarnation, Info, MOST_NUMBER, Outcome, Refusal};
use crate::event::Topic;
use crate::mutation::Mutation;
use crate::wire::{decode_versioned, encode_versioned};
use crate::{ClusterId, Label, SessionId, Ttl, Versions, VoterId};

pub const MOST_MEMBERS: usize = 16_384;
pub const MOST_SESSIONS: usize = 32_768;
/// Sessions of ended processes exist until they expire.
pub const MOST_SESSIONS_OF_HOST: usize = 256;
pub const MOST_RESOURCES: usize = 131_072;
/// Grants of one resource.
pub const MOST_DETACHED: usize = 2048;
/// Grants of all resources.
const MOST_GRANTS: usize = 65_536;
/// Later resources are never deleted: a deletion raises the generations of all resources.
const MOST_REMOVED: u64 = MOST_GENERATION / 2;
const MOST_VOTERS: usize = 64;
/// More than the lost voters have allocated.
const GAP: u64 = 1 << 16;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRecord {
    pub host: PeerId,
    pub nonce: u64,
    pub ttl: Ttl,
    /// The voter whose file the process had.
    pub voter: Option<VoterId>,
    pub incarnation: Incarnation,
    pub replaces: Option<SessionId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VoterRecord {
    pub host: PeerId,
    /// The session for which the number was allocated. Only its process may start the file.
    pub session: Option<SessionId>,
}

/// The Raft configuration. During a joint change both majorities decide.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conf {
    pub voters: BTreeSet<VoterId>,
    pub outgoing: BTreeSet<VoterId>,
    pub learners: BTreeSet<VoterId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    cluster: ClusterId,
    version: u16,
    members: BTreeMap<PeerId, Info>,
    sessions: BTreeMap<SessionId, SessionRecord>,
    last_session: SessionId,
    /// The latest of each member.
    incarnations: BTreeMap<PeerId, Incarnation>,
    resources: BTreeMap<Label, Resource>,
    voter_records: BTreeMap<VoterId, VoterRecord>,
    last_voter: VoterId,
    conf: Conf,
    /// The last configuration change, and the last one that a majority is known to have stored as committed.
    changes: u64,
    settled: u64,
    chosen: Option<BTreeSet<PeerId>>,
    choices: u64,
    /// Above the generations of deleted resources, and of those used before a recovery.
    floor: u64,
    /// The longest ttl so far.
    longest: Option<Ttl>,
    quarantine: Option<Ttl>,
    #[serde(skip)]
    index: Index,
}

impl State {
    /// Returns the state of a new cluster.
    pub fn found(cluster: ClusterId, host: PeerId, info: Info) -> Self {
        let (first, versions) = (VoterId::new(1), info.versions);
        let members = BTreeMap::from([(host, info)]);
        Self {
            index: Index::of(&members, &BTreeMap::new(), &BTreeMap::new()),
            members,
            version: versions.max,
            voter_records: BTreeMap::from([(first, VoterRecord { host, session: None })]),
            last_voter: first,
            conf: Conf { voters: BTreeSet::from([first]), ..Conf::default() },
            ..Self::blank(cluster, versions)
        }
    }

    /// Returns the state of a voter that has received nothing.
    pub(crate) fn blank(cluster: ClusterId, versions: Versions) -> Self {
        Self {
            cluster,
            version: versions.min,
            members: BTreeMap::new(),
            sessions: BTreeMap::new(),
            last_session: SessionId::new(0),
            incarnations: BTreeMap::new(),
            resources: BTreeMap::new(),
            voter_records: BTreeMap::new(),
            last_voter: VoterId::new(0),
            conf: Conf::default(),
            changes: 0,
            settled: 0,
            chosen: None,
            choices: 0,
            floor: 0,
            longest: None,
            quarantine: None,
            index: Index::default(),
        }
    }

    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    pub fn version(&self) -> u16 {
        self.version
    }

    pub fn members(&self) -> &BTreeMap<PeerId, Info> {
        &self.members
    }

    pub fn sessions(&self) -> &BTreeMap<SessionId, SessionRecord> {
        &self.sessions
    }

    /// Returns whether the session has ended, which is final.
    pub fn is_over(&self, session: SessionId) -> bool {
        session <= self.last_session && !self.sessions.contains_key(&session)
    }

    pub fn session_of(&self, host: PeerId) -> Option<(SessionId, &SessionRecord)> {
        self.sessions_of(host).next_back()
    }

    /// Returns the sessions of a host, oldest first.
    pub fn sessions_of(&self, host: PeerId) -> impl DoubleEndedIterator<Item = (SessionId, &SessionRecord)> {
        self.index.sessions_of(host).filter_map(|id| self.sessions.get(&id).map(|session| (id, session)))
    }

    pub fn keepers(&self) -> usize {
        self.index.keepers()
    }

    pub fn resources(&self) -> &BTreeMap<Label, Resource> {
        &self.resources
    }

    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// Returns how long after a recovery no generation is announced: the lost voters may have opened sessions unknown
    /// here.
    pub fn quarantine(&self) -> Option<Ttl> {
        self.quarantine
    }

    /// Returns the resources whose names begin with `prefix` and follow `after`.
    pub fn resources_after(
        &self,
        prefix: Option<&Label>,
        after: Option<&Label>,
    ) -> impl Iterator<Item = (&Label, &Resource)> {
        let from = match (prefix, after) {
            (Some(prefix), after) if after.is_none_or(|after| after < prefix) => Bound::Included(prefix),
            (_, Some(after)) => Bound::Excluded(after),
            (_, None) => Bound::Unbounded,
        };
        let begins = move |name: &Label| prefix.is_none_or(|prefix| name.as_str().starts_with(prefix.as_str()));
        self.resources.range::<Label, _>((from, Bound::Unbounded)).take_while(move |(name, _)| begins(name))
    }

    pub fn with_events(&self, from: Option<&Label>) -> impl Iterator<Item = (&Label, &Resource)> {
        let names = self
            .index
            .with_events
            .range::<Label, _>((from.map_or(Bound::Unbounded, Bound::Included), Bound::Unbounded));
        names.filter_map(|name| self.resources.get(name).map(|resource| (name, resource)))
    }

    pub fn granted(&self) -> impl Iterator<Item = (&Label, &Resource)> {
        self.index.granted.keys().filter_map(|name| self.resources.get(name).map(|resource| (name, resource)))
    }

    pub fn event(&self, name: &Label, to: SessionId, generation: u64, topic: Topic) -> Option<(PeerId, EventKind)> {
        let resource = self.resources.get(name)?;
        let host = |session| self.sessions.get(&session).map(|it| it.host);
        resource.pending_events().find(|event| *event == (to, generation, topic))?;
        let kind = match topic {
            Topic::Opened => EventKind::Opened {
                slots: resource.slots(),
                asked: resource.asked().filter_map(|id| Some(Session { peer: host(id)?, number: id.get() })).collect(),
                detached: resource.detached_before(),
            },
            Topic::Expired(fencing) => {
                let (_, slot) = resource.expired().find(|(expired, _)| *expired == fencing)?;
                EventKind::Expired(Detached { slot, fencing })
            }
            Topic::Evicted => EventKind::Evicted,
        };
        Some((host(to)?, kind))
    }

    /// Returns the voters and learners.
    pub fn voter_records(&self) -> &BTreeMap<VoterId, VoterRecord> {
        &self.voter_records
    }

    pub fn conf(&self) -> &Conf {
        &self.conf
    }

    pub fn chosen(&self) -> Option<&BTreeSet<PeerId>> {
        self.chosen.as_ref()
    }

    /// Returns the number of choices so far.
    pub fn choices(&self) -> u64 {
        self.choices
    }

    pub fn next_voter(&self) -> VoterId {
        self.last_voter.next()
    }

    /// Returns whether the voter was removed, which is final.
    pub fn is_retired(&self, voter: VoterId) -> bool {
        voter <= self.last_voter && !self.voter_records.contains_key(&voter)
    }

    /// Returns the last configuration change, unless a majority is known to have stored it as committed. Until then
    /// former voters keep their files, since a restarted voter may need their votes.
    pub fn unsettled(&self) -> Option<u64> {
        (self.settled < self.changes).then_some(self.changes)
    }

    pub fn voter_hosts(&self) -> Vec<PeerId> {
        self.conf
            .voters
            .iter()
            .filter_map(|voter| self.voter_records.get(voter))
            .map(|voter_record| voter_record.host)
            .collect()
    }

    pub fn can_raise(&self, version: u16) -> bool {
        let hosts = self
            .sessions
            .values()
            .map(|session| session.host)
            .chain(self.voter_records.values().map(|voter_record| voter_record.host));
        version == self.version + 1
            && hosts.filter_map(|host| self.members.get(&host)).all(|info| info.versions.has(version))
    }

    pub fn apply(&mut self, term: u64, command: Command) -> Outcome {
        self.apply_but(term, command, |_| false)
    }

    pub fn apply_but(&mut self, term: u64, command: Command, makes: impl Fn(Mutation) -> bool) -> Outcome {
        match command {
            Command::Open { host, nonce, incarnation, ttl, info, voter, replaces, takes } => {
                self.open(SessionRecord { host, nonce, ttl, voter, incarnation, replaces }, info, &takes, makes)
            }
            Command::Leave { session } => self.end(vec![session]),
            // Not the voter's own term, which differs between replicas.
            Command::End { term: decided, .. } if decided != term => Outcome::Refused(Refusal::OldTerm),
            Command::End { sessions, .. } => self.end(sessions),
            Command::Join { session, resource, slots } => self.join(session, resource, slots),
            Command::Resize { resource, slots, generation } => {
                self.with(&resource, |it| it.resize(&resource, slots, generation, makes))
            }
            Command::Renumber { resource, generation } => self.with(&resource, |it| it.renumber(&resource, generation)),
            Command::Close { session, resource, generation, remaining } => {
                self.with(&resource, |it| it.close(session, generation, &remaining))
            }
            Command::Quit { session, resource, generation } => {
                self.with(&resource, |it| it.quit(&resource, session, generation))
            }
            Command::Detach { session, resource, slot, fencing, ttl, note, run } => {
                self.with_host(session, |state, host| {
                    let grant =
                        DetachedRecord { slot, session, host, generation: 0, ttl, renewals: 0, note, run: None };
                    let is_known =
                        state.resources.get(&resource).is_some_and(|it| it.detached().contains_key(&fencing));
                    if !is_known && state.index.grants() >= MOST_GRANTS {
                        return Outcome::Refused(Refusal::Full);
                    }
                    state.with(&resource, |it| it.detach(grant, fencing, run))
                })
            }
            Command::DropDetached { session, resource, fencing } => self
                .with_host(session, |state, host| state.with(&resource, |it| it.drop_detached(session, host, fencing))),
            Command::Evict { resource, session, since } => {
                self.with(&resource, |it| it.evict(&resource, session, since, makes))
            }
            Command::TakeBack { resource, fencing, session } => {
                self.with(&resource, |it| it.take_back(fencing, session))
            }
            Command::ExpireDetached { resource, fencing, renewals } => {
                self.with(&resource, |it| it.expire_detached(fencing, renewals))
            }
            Command::Shorten { resource, fencing, renewals, ttl } => {
                self.with(&resource, |it| it.shorten(fencing, renewals, ttl))
            }
            Command::SetVoters { hosts, after } => self.choose(hosts, after, makes),
            Command::Forget { host, after } => self.forget(host, after, makes),
            Command::Raise { version } if self.can_raise(version) => {
                self.version = version;
                Outcome::Done
            }
            Command::Raise { .. } => Outcome::Refused(Refusal::Version(self.version)),
            Command::Remove { resource, generation } => self.remove(&resource, generation, makes),
            Command::Settle { change } if change == self.changes => {
                self.settled = change;
                Outcome::Done
            }
            Command::Settle { .. } => Outcome::Refused(Refusal::OldGeneration),
            Command::LiftQuarantine => {
                self.quarantine = None;
                Outcome::Done
            }
        }
    }

    /// Returns whether a learner may be added: another one may have received this number.
    pub fn may_enlist(&self, voter: VoterId, voter_record: VoterRecord) -> bool {
        let understands = self.members.get(&voter_record.host).is_some_and(|info| info.versions.has(self.version));
        voter == self.next_voter()
            && understands
            && voter_record.session.is_some_and(|it| self.sessions.contains_key(&it))
    }

    pub fn configure(&mut self, conf: Conf, enlisted: Option<(VoterId, VoterRecord)>) {
        if let Some((voter, voter_record)) = enlisted {
            self.voter_records.insert(voter, voter_record);
            self.last_voter = voter;
        }
        self.voter_records.retain(|voter, _| {
            [&conf.voters, &conf.outgoing, &conf.learners].into_iter().any(|group| group.contains(voter))
        });
        self.conf = conf;
        self.changes += 1;
    }

    fn open(
        &mut self,
        session: SessionRecord,
        info: Info,
        takes: &[Label],
        makes: impl Fn(Mutation) -> bool,
    ) -> Outcome {
        let host = session.host;
        if let Some((session, _)) = self.sessions_of(host).find(|(_, it)| it.nonce == session.nonce) {
            return Outcome::Opened { session };
        }
        let is_old = self.incarnations.get(&host).is_some_and(|latest| session.incarnation <= *latest);
        if is_old && !makes(Mutation::OpensLate) {
            return Outcome::Refused(Refusal::OldProcess);
        }
        if !info.versions.has(self.version) {
            return Outcome::Refused(Refusal::Version(self.version));
        }
        let replaced = self.replaced_by(&session, makes);
        let of_host = self.sessions_of(host).count();
        let full = (self.sessions.len() >= MOST_SESSIONS || of_host >= MOST_SESSIONS_OF_HOST) && replaced.is_empty()
            || self.members.len() >= MOST_MEMBERS && !self.members.contains_key(&host);
        if full {
            return Outcome::Refused(Refusal::Full);
        }
        // Before `end`, which may remove the member.
        self.last_session = self.last_session.next();
        self.longest = self.longest.max(Some(session.ttl));
        self.incarnations.insert(host, session.incarnation);
        self.sessions.insert(self.last_session, session);
        self.index.note_open(host, self.last_session);
        self.index.note_member(self.members.get(&host), Some(&info));
        self.members.insert(host, info);
        // Before the replaced sessions end, so that each resource gets one generation, whose census includes the new
        // session.
        for name in takes {
            if let Some(resource) = self.resources.get_mut(name) {
                resource.take_over(name, &replaced, self.last_session);
                self.index.note(name, resource);
            }
        }
        self.end(replaced);
        Outcome::Opened { session: self.last_session }
    }

    /// Returns the sessions that end when `new` is opened: the one that it names, and those that earlier processes
    /// opened to replace that one. Such a process was killed before it stored its session, since the file still names
    /// the one before; so no client has a grant of it. Other sessions belong to processes with another file, whose
    /// clients may continue.
    fn replaced_by(&self, new: &SessionRecord, makes: impl Fn(Mutation) -> bool) -> Vec<SessionId> {
        let Some(named) = new.replaces else { return Vec::new() };
        let mut replaced = Vec::new();
        for (id, it) in self.sessions_of(new.host) {
            let is_of_earlier = it.incarnation.process < new.incarnation.process && !makes(Mutation::KeepsUnwritten);
            let is_in_its_place = it.replaces.is_some_and(|before| before == named || replaced.contains(&before));
            if id == named || is_of_earlier && is_in_its_place {
                replaced.push(id);
            }
        }
        replaced
    }

    /// Ends sessions, and opens at most one generation per resource.
    fn end(&mut self, sessions: Vec<SessionId>) -> Outcome {
        let mut ended = Vec::new();
        for id in sessions {
            if let Some(session) = self.sessions.remove(&id) {
                ended.push(id);
                let host = session.host;
                self.index.note_end(host, id);
                let is_last = self.sessions_of(host).next().is_none();
                let votes = self.voter_records.values().any(|voter_record| voter_record.host == host);
                if is_last && !votes && self.members.get(&host).is_some_and(|info| !info.keeps) {
                    self.index.note_member(self.members.remove(&host).as_ref(), None);
                    self.incarnations.remove(&host);
                }
            }
        }
        // `open` mostly ends none.
        if !ended.is_empty() {
            for (name, resource) in &mut self.resources {
                resource.lose(name, &ended);
                self.index.note(name, resource);
            }
        }
        Outcome::Ended { sessions: ended }
    }

    fn join(&mut self, session: SessionId, resource: Label, slots: u32) -> Outcome {
        if !self.sessions.contains_key(&session) {
            return Outcome::Refused(Refusal::NoSession);
        }
        if self.resources.len() >= MOST_RESOURCES && !self.resources.contains_key(&resource) {
            return Outcome::Refused(Refusal::Full);
        }
        self.resources.entry(resource.clone()).or_insert_with(|| Resource::found(slots, self.floor));
        let sessions = &self.sessions;
        let Some(it) = self.resources.get_mut(&resource) else { return Outcome::Refused(Refusal::NoResource) };
        let outcome = it.join(session, |session| sessions.get(&session).map(|it| it.host));
        self.index.note(&resource, it);
        outcome
    }

    /// Deletes a resource. Later resources start above the floor, so late messages are of an earlier generation.
    fn remove(&mut self, name: &Label, generation: u64, makes: impl Fn(Mutation) -> bool) -> Outcome {
        let Some(resource) = self.resources.get(name) else { return Outcome::Refused(Refusal::NoResource) };
        if resource.generation() != generation && !makes(Mutation::RemovesUsed) {
            return Outcome::Refused(Refusal::OldGeneration);
        }
        let is_used = !resource.parties().is_empty() || resource.detached().values().any(DetachedRecord::holds);
        if is_used && !makes(Mutation::RemovesUsed) || resource.has_unnotified() {
            return Outcome::Refused(Refusal::InUse);
        }
        if resource.generation() >= MOST_REMOVED {
            return Outcome::Refused(Refusal::Full);
        }
        if !makes(Mutation::ForgetsFloor) {
            self.floor = self.floor.max(resource.generation());
        }
        self.resources.remove(name);
        self.index.forget(name);
        Outcome::Done
    }

    pub(crate) fn recover(&mut self, host: PeerId, chance: u64, least: Ttl) -> VoterId {
        self.quarantine = self.longest.max(Some(least));
        self.cluster = self.cluster.recovered(chance);
        self.last_session = SessionId::new(self.last_session.get() + GAP);
        self.last_voter = VoterId::new(self.last_voter.get() + GAP);
        self.voter_records = BTreeMap::from([(self.last_voter, VoterRecord { host, session: None })]);
        self.conf = Conf { voters: BTreeSet::from([self.last_voter]), ..Conf::default() };
        self.settled = self.changes;
        self.chosen = None;
        self.choices += GAP;
        let latest = self.resources.values().map(Resource::generation).fold(self.floor, u64::max);
        self.floor = (latest + GAP).min(MOST_GENERATION - 2);
        for (name, resource) in &mut self.resources {
            resource.recover(name, self.floor);
            self.index.note(name, resource);
        }
        self.last_voter
    }

    /// A member that returns later joins like a new one. Also counts if the host is no member: a late copy must not
    /// forget it once it has joined.
    fn forget(&mut self, host: PeerId, after: u64, makes: impl Fn(Mutation) -> bool) -> Outcome {
        if after != self.choices && !makes(Mutation::ForgetsLate) {
            let is_done = !self.members.contains_key(&host);
            return if is_done { Outcome::Done } else { Outcome::Refused(Refusal::Superseded) };
        }
        let votes = self.voter_records.values().any(|voter_record| voter_record.host == host);
        let is_chosen = self.chosen.as_ref().is_some_and(|chosen| chosen.contains(&host));
        let gives = self
            .resources
            .values()
            .any(|resource| resource.detached().values().any(|it| it.host == host && it.run.is_none()));
        let has_session = self.session_of(host).is_some() && !makes(Mutation::ForgetsPresent);
        if votes || is_chosen || gives || has_session {
            return Outcome::Refused(Refusal::Present);
        }
        self.index.note_member(self.members.remove(&host).as_ref(), None);
        self.incarnations.remove(&host);
        self.choices += 1;
        Outcome::Done
    }

    fn choose(&mut self, hosts: Option<Vec<PeerId>>, after: u64, makes: impl Fn(Mutation) -> bool) -> Outcome {
        let chosen = hosts.map(BTreeSet::from_iter);
        if after != self.choices && !makes(Mutation::VotersLate) {
            // A copy of the latest choice.
            let is_done = after + 1 == self.choices && chosen == self.chosen;
            return if is_done { Outcome::Done } else { Outcome::Refused(Refusal::Superseded) };
        }
        let keeps = |host: &PeerId| self.members.get(host).is_some_and(|info| info.keeps);
        if !chosen.iter().flatten().all(keeps) {
            return Outcome::Refused(Refusal::NoKeeper);
        }
        self.chosen = chosen;
        self.choices += 1;
        Outcome::Done
    }

    /// Checks the invariants: the state may come from outside.
    fn is_possible(&self) -> bool {
        let Conf { voters, outgoing, learners } = &self.conf;
        let could_be = |voter: &VoterId| voter.get() > 0 && *voter <= self.last_voter;
        let is_known = |voter: &VoterId| self.voter_records.contains_key(voter) && could_be(voter);
        let numbers = [self.last_session.get(), self.last_voter.get(), self.changes, self.settled, self.choices];
        numbers.into_iter().all(|number| number < MOST_NUMBER)
            && self.floor < MOST_GENERATION
            && voters.iter().chain(outgoing).chain(learners).all(is_known)
            && learners.is_disjoint(voters)
            && learners.is_disjoint(outgoing)
            && (!voters.is_empty() || outgoing.is_empty() && learners.is_empty())
            && voters.len() + outgoing.len() + learners.len() <= MOST_VOTERS
            && self.sessions.keys().all(|session| *session <= self.last_session)
            && self.resources.values().all(|resource| resource.is_possible(|it| self.sessions.contains_key(&it)))
    }

    fn with(&mut self, name: &Label, change: impl FnOnce(&mut Resource) -> Outcome) -> Outcome {
        let Some(resource) = self.resources.get_mut(name) else { return Outcome::Refused(Refusal::NoResource) };
        let outcome = change(resource);
        self.index.note(name, resource);
        outcome
    }

    fn with_host(&mut self, session: SessionId, change: impl FnOnce(&mut Self, PeerId) -> Outcome) -> Outcome {
        match self.sessions.get(&session).map(|it| it.host) {
            Some(host) => change(self, host),
            None => Outcome::Refused(Refusal::NoSession),
        }
    }

    /// Encodes the state. The version comes first, for programs that do not understand it.
    pub fn encode(&self) -> Vec<u8> {
        encode_versioned(self, self.version)
    }

    pub fn decode(bytes: &[u8], versions: Versions) -> Result<Self, Undecodable> {
        let (mut state, version): (Self, u16) = decode_versioned(bytes, versions)?;
        if state.version != version || !state.is_possible() {
            return Err(Undecodable::Format);
        }
        state.index = Index::of(&state.members, &state.sessions, &state.resources);
        Ok(state)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undecodable {
    Version(u16),
    Format,
}

#[cfg(test)]
mod tests;
