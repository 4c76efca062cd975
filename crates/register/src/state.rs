//! What the register holds, and how a command changes it.
//!
//! Deterministic: the same entries in the same order give the same state at every voter, whatever time it is there. So
//! nothing here counts time; who counts (`leases.rs`) puts what it has decided into the log.
//!
//! ```text
//!   members    hosts, as their last process described them      never forgotten because time has passed
//!   sessions   processes that may use tokens                    Open … Leave, End
//!   resources  slots, generation, coordinator, parties,         founded by the first Join, kept for good:
//!              detached grants                                   their generations go into fencing numbers
//!   voters     whose files hold all this                        by changes of the log's own configuration
//! ```

mod resource;

use std::collections::{BTreeMap, BTreeSet};

use peerlock_base::PeerId;
use serde::{Deserialize, Serialize};

pub use self::resource::{Detached, Resource};
use crate::command::{Command, Info, Opening, Outcome, Refusal};
use crate::{ClusterId, Label, SessionId, Ttl, Versions, VoterId};

/// At most this many hosts are members of one cluster.
pub const MOST_MEMBERS: usize = 4096;
/// At most this many sessions stand at once.
pub const MOST_SESSIONS: usize = 8192;
/// At most this many resources exist.
pub const MOST_RESOURCES: usize = 65_536;
/// At most this many grants of one resource are detached.
pub const MOST_DETACHED: usize = 4096;
/// The most slots that a resource can have.
pub const MOST_SLOTS: u32 = 1024;

/// A process that may use tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// The host that the process runs on.
    pub host: PeerId,
    /// What told its `Open` from others.
    pub nonce: u64,
    /// How long it stands after a renewal was sent.
    pub ttl: Ttl,
    /// The voter whose file it had when it was opened.
    pub voter: Option<VoterId>,
}

/// A voter, or one who learns to be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seat {
    /// Where its file is.
    pub host: PeerId,
    /// The session for which its number was given out. Only that process may begin its file, so that nobody ever begins
    /// it twice.
    pub session: Option<SessionId>,
}

/// Who votes. While it changes, the old majority and the new one are both needed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conf {
    /// Who votes now.
    pub voters: BTreeSet<VoterId>,
    /// The majority of these is needed, too, as long as there are any.
    pub outgoing: BTreeSet<VoterId>,
    /// Who gets everything and has no vote.
    pub learners: BTreeSet<VoterId>,
}

/// Everything that was decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    cluster: ClusterId,
    version: u16,
    members: BTreeMap<PeerId, Info>,
    sessions: BTreeMap<SessionId, Session>,
    last_session: SessionId,
    resources: BTreeMap<Label, Resource>,
    seats: BTreeMap<VoterId, Seat>,
    last_voter: VoterId,
    conf: Conf,
}

impl State {
    /// A cluster that was just founded: one member, who votes and has no session yet.
    pub fn found(cluster: ClusterId, host: PeerId, info: Info) -> Self {
        let (first, versions) = (VoterId::new(1), info.versions);
        Self {
            members: BTreeMap::from([(host, info)]),
            version: versions.max,
            seats: BTreeMap::from([(first, Seat { host, session: None })]),
            last_voter: first,
            conf: Conf { voters: BTreeSet::from([first]), ..Conf::default() },
            ..Self::blank(cluster, versions)
        }
    }

    /// What a voter knows before it has heard anything.
    pub(crate) fn blank(cluster: ClusterId, versions: Versions) -> Self {
        Self {
            cluster,
            version: versions.min,
            members: BTreeMap::new(),
            sessions: BTreeMap::new(),
            last_session: SessionId::new(0),
            resources: BTreeMap::new(),
            seats: BTreeMap::new(),
            last_voter: VoterId::new(0),
            conf: Conf::default(),
        }
    }

    /// Which cluster this is.
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// The version that the log is of.
    pub fn version(&self) -> u16 {
        self.version
    }

    /// Everybody who is known.
    pub fn members(&self) -> &BTreeMap<PeerId, Info> {
        &self.members
    }

    /// All sessions that stand.
    pub fn sessions(&self) -> &BTreeMap<SessionId, Session> {
        &self.sessions
    }

    /// Whether this session was opened and is over. That is final.
    pub fn is_over(&self, session: SessionId) -> bool {
        session <= self.last_session && !self.sessions.contains_key(&session)
    }

    /// The newest session of a host.
    pub fn session_of(&self, host: PeerId) -> Option<(SessionId, &Session)> {
        self.sessions.iter().rev().find(|(_, session)| session.host == host).map(|(&id, session)| (id, session))
    }

    /// Every resource that was founded, by name.
    pub fn resources(&self) -> &BTreeMap<Label, Resource> {
        &self.resources
    }

    /// Voters and learners.
    pub fn seats(&self) -> &BTreeMap<VoterId, Seat> {
        &self.seats
    }

    /// Who votes and who learns, as of the last applied entry.
    pub fn conf(&self) -> &Conf {
        &self.conf
    }

    /// The number of the next voter.
    pub fn next_voter(&self) -> VoterId {
        self.last_voter.next()
    }

    /// Whether this voter was one and is no more. That is final: its number is never given out again.
    pub fn is_retired(&self, voter: VoterId) -> bool {
        voter <= self.last_voter && !self.seats.contains_key(&voter)
    }

    /// The hosts of all voters, for who looks for the leader.
    pub fn voter_hosts(&self) -> Vec<PeerId> {
        self.conf.voters.iter().filter_map(|voter| self.seats.get(voter)).map(|seat| seat.host).collect()
    }

    /// Whether everybody who would have to understand this version does.
    pub fn can_raise(&self, version: u16) -> bool {
        let hosts = self.sessions.values().map(|session| session.host).chain(self.seats.values().map(|seat| seat.host));
        version == self.version + 1
            && hosts.filter_map(|host| self.members.get(&host)).all(|info| info.versions.has(version))
    }

    /// Applies one command of an entry of this term.
    pub fn apply(&mut self, term: u64, command: Command) -> Outcome {
        match command {
            Command::Open { host, nonce, ttl, info, voter, replaces } => {
                self.open(host, Session { host, nonce, ttl, voter }, info, replaces)
            }
            Command::Leave { session } => self.end(vec![session]),
            // Compared with the entry's own term, never with the voter's present one, which is
            // another at each replica.
            Command::End { term: decided, .. } if decided != term => Outcome::Refused(Refusal::OldTerm),
            Command::End { sessions, .. } => self.end(sessions),
            Command::Join { session, resource, slots } => self.join(session, resource, slots),
            Command::Resize { resource, slots } => self.with(&resource, |it| it.resize(&resource, slots)),
            Command::Renumber { resource, generation } => self.with(&resource, |it| it.renumber(&resource, generation)),
            Command::Close { session, resource, generation, idle } => {
                self.with(&resource, |it| it.close(session, generation, &idle))
            }
            // The session may have ended, and its slot been made anew, since this was asked. Taken back
            // after that end it would be a slot that no generation makes.
            Command::Detach { session, .. } | Command::Attach { session, .. }
                if !self.sessions.contains_key(&session) =>
            {
                Outcome::Refused(Refusal::NoSession)
            }
            Command::Detach { session, resource, slot, fencing, ttl } => {
                self.with(&resource, |it| it.detach(session, slot, fencing, ttl))
            }
            Command::Attach { session, resource, fencing } => self.with(&resource, |it| it.attach(session, fencing)),
            Command::Lapse { resource, fencing, stretch } => {
                let sessions = &self.sessions;
                match self.resources.get_mut(&resource) {
                    Some(it) => it.lapse(&resource, fencing, stretch, |holder| sessions.contains_key(&holder)),
                    None => Outcome::Refused(Refusal::NoResource),
                }
            }
            Command::Raise { version } if self.can_raise(version) => {
                self.version = version;
                Outcome::Done
            }
            Command::Raise { .. } => Outcome::Refused(Refusal::Version(self.version)),
        }
    }

    /// A seat for a learner is to be written. Void if another one has got its number meanwhile.
    pub fn may_enlist(&self, voter: VoterId, seat: Seat) -> bool {
        let understands = self.members.get(&seat.host).is_some_and(|info| info.versions.has(self.version));
        voter == self.next_voter() && understands && seat.session.is_some_and(|it| self.sessions.contains_key(&it))
    }

    /// The log's configuration has changed to this, perhaps with a new seat.
    pub fn configure(&mut self, conf: Conf, enlisted: Option<(VoterId, Seat)>) {
        if let Some((voter, seat)) = enlisted {
            self.seats.insert(voter, seat);
            self.last_voter = voter;
        }
        self.seats.retain(|voter, _| {
            [&conf.voters, &conf.outgoing, &conf.learners].into_iter().any(|group| group.contains(voter))
        });
        self.conf = conf;
    }

    fn open(&mut self, host: PeerId, session: Session, info: Info, replaces: Option<SessionId>) -> Outcome {
        let same = |(_, it): &(&SessionId, &Session)| it.host == host && it.nonce == session.nonce;
        if let Some((&session, _)) = self.sessions.iter().find(same) {
            return Outcome::Opened { session, openings: Vec::new() };
        }
        if !info.versions.has(self.version) {
            return Outcome::Refused(Refusal::Version(self.version));
        }
        let replaced = replaces.filter(|old| self.sessions.get(old).is_some_and(|it| it.host == host));
        let full = self.sessions.len() >= MOST_SESSIONS && replaced.is_none()
            || self.members.len() >= MOST_MEMBERS && !self.members.contains_key(&host);
        if full {
            return Outcome::Refused(Refusal::Full);
        }
        // The member first: the end of a host's last session would forget one that keeps nothing.
        self.last_session = self.last_session.next();
        self.sessions.insert(self.last_session, session);
        self.members.insert(host, info);
        let openings = match self.end(Vec::from_iter(replaced)) {
            Outcome::Ended { openings, .. } => openings,
            _ => Vec::new(),
        };
        Outcome::Opened { session: self.last_session, openings }
    }

    /// However many sessions end in one entry, each resource gets at most one generation by it.
    fn end(&mut self, sessions: Vec<SessionId>) -> Outcome {
        let mut ended = Vec::new();
        for id in sessions {
            if let Some(session) = self.sessions.remove(&id) {
                ended.push(id);
                let host = session.host;
                let is_last = self.sessions.values().all(|it| it.host != host);
                let votes = self.seats.values().any(|seat| seat.host == host);
                if is_last && !votes && self.members.get(&host).is_some_and(|info| !info.keeps) {
                    self.members.remove(&host);
                }
            }
        }
        let openings: Vec<Opening> = self.resources.iter_mut().filter_map(|(name, it)| it.lose(name, &ended)).collect();
        Outcome::Ended { sessions: ended, openings }
    }

    fn join(&mut self, session: SessionId, resource: Label, slots: u32) -> Outcome {
        if !self.sessions.contains_key(&session) {
            return Outcome::Refused(Refusal::NoSession);
        }
        if self.resources.len() >= MOST_RESOURCES && !self.resources.contains_key(&resource) {
            return Outcome::Refused(Refusal::Full);
        }
        self.resources.entry(resource).or_insert_with(|| Resource::found(slots)).join(session)
    }

    fn with(&mut self, resource: &Label, change: impl FnOnce(&mut Resource) -> Outcome) -> Outcome {
        self.resources.get_mut(resource).map_or(Outcome::Refused(Refusal::NoResource), change)
    }

    /// The state as it goes into snapshots: its version first, so that who does not understand it can say so.
    pub fn encode(&self) -> Vec<u8> {
        // Nothing of ours is without a known length, which is all that could fail.
        postcard::to_extend(self, self.version.to_le_bytes().to_vec()).unwrap_or_default()
    }

    /// The state that bytes are, if this code understands their version.
    pub fn decode(bytes: &[u8], versions: Versions) -> Result<Self, Undecodable> {
        let Some((version, rest)) = bytes.split_first_chunk() else { return Err(Undecodable::Format) };
        let version = u16::from_le_bytes(*version);
        if !versions.has(version) {
            return Err(Undecodable::Version(version));
        }
        match postcard::take_from_bytes::<Self>(rest) {
            Ok((state, [])) if state.version == version => Ok(state),
            Ok(_) | Err(_) => Err(Undecodable::Format),
        }
    }
}

/// Why bytes are no state or entry of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undecodable {
    /// Of a version that we do not understand.
    Version(u16),
    /// Not of our format.
    Format,
}

#[cfg(test)]
mod tests;
