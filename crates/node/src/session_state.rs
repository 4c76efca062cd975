//! The cluster of this process, and the session under which it uses tokens.
//!
//! ```text
//!   Seeking ──met a member──────► Learned ──recorded──► In: opens a session and renews it
//!      └────enough hosts met, expect──────────────────►  │   its own voter's file first, then Belongs, then recorded;
//!   Founds ─────────────────────────────────────────────►│   only then is the cluster named to other peers
//!   Votes, Belongs ─────────────────────────────────────►│
//! ```
//!
//! All requests to the registry go through its [`Member`], and each has an owner ([`Ask`]).

use std::collections::BTreeMap;

use peerlock_registry::wire::Malformed;
use peerlock_registry::{
    ClusterId, Command, Config, Identity, Info, Label, Look, Member, Output, Registry, SessionId, file,
};
use peerlock_types::{Key, PeerId, Rng, Span, Time};

use crate::clients::TicketId;
use crate::lease::Bound;
use crate::takeover::Takeover;
use crate::{self as node, Damage, Name, Origin, Setup};

const MOST_ADDRESSES: usize = 16;

/// The owner of a pending request to the registry. `u64` is a call, or a query of `show`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Join, or quit in a generation, in this session.
    Join(Key, SessionId),
    Quit(Key, SessionId, u64),
    /// Close a generation, or request another.
    Inform,
    /// Persist or renew a detached grant.
    Detach {
        ticket: TicketId,
        of: Name,
        fencing: u64,
        at: Time,
        call: Option<u64>,
    },
    /// Record the end of a run.
    Conclude {
        ticket: TicketId,
        of: Name,
        fencing: u64,
        session: SessionId,
        until: Time,
        call: u64,
    },
    /// Drop a detached grant that this session knows to have ended.
    DropDetached(SessionId, Name, u64),
    /// `resize`: query the generation …
    ResizeFound(u64, Name, u32),
    /// … then change the number of slots.
    Resize(u64, Name),
    /// `remove`: query the parties …
    RemoveFound(u64),
    /// … then delete the resource, when there are none.
    Remove(u64),
    /// `evict`: query the host's sessions among the parties …
    EvictTarget(u64, Name, PeerId),
    /// … then evict them.
    Evict(u64),
    /// `revoke`, when the holder's host does not answer: query whether the grant is detached …
    RevokeFrom(u64),
    /// … then end it.
    Revoke(u64),
    /// `voters`: query the number of earlier changes …
    VotersFound(u64, Option<Vec<PeerId>>),
    /// … then change the voters.
    SetVoters(u64),
    /// `forget`: query the number of earlier changes …
    ForgetFound(u64, PeerId),
    /// … then remove the member.
    Forget(u64),
    Cluster,
    AllMembers,
    Names(u64),
    Returned,
    List(u64),
    Show(u64),
}

/// A change of the session that this process uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionChange {
    /// Opened, and the predecessor has ended. Not used until it is valid.
    Opened(SessionId),
    Valid(SessionId),
    /// The session has ended: nothing may be used.
    Ended {
        since: Span,
        why: &'static str,
    },
    Renewed(Bound),
}

enum Phase {
    Seeking,
    Learned(ClusterId),
    In(Box<Member>),
}

pub struct SessionState {
    pub(crate) identity: Identity,
    config: Config,
    rng: Rng,
    origin: Origin,
    phase: Phase,
    /// The cluster ID may be sent to other peers.
    is_recorded: bool,
    /// We create a cluster, and the voter's file is not written yet.
    founds: bool,
    /// The last opened session, used or not.
    opened: Option<SessionId>,
    /// The session in use, and its end as far as confirmed.
    session: Option<(SessionId, Time)>,
    since: Time,
    /// The node is stopping: no other session is used.
    pub(crate) leaves: bool,
    asks: BTreeMap<u64, Ask>,
}

impl SessionState {
    pub fn new(
        host: PeerId,
        addresses: &[String],
        setup: &mut Setup,
        takeover: &mut Takeover,
        config: node::Config,
    ) -> Result<Self, Damage> {
        let addresses = addresses.iter().filter_map(|address| Label::new(address.clone()).ok());
        let info = Info {
            name: label_of(&setup.name),
            addresses: addresses.take(MOST_ADDRESSES).collect(),
            versions: config.versions,
            keeps: setup.keeps,
        };
        // Where no cluster is known, the ID is set before first use.
        let (process, ttl) = (setup.process, setup.session);
        let mut identity = Identity { cluster: ClusterId::new(0), host, process, info, ttl, predecessor: None };
        // A predecessor's grants can be continued only in a known cluster.
        let cluster = match &setup.origin {
            Origin::Votes(bytes) => Some(file::read(bytes)?.header.cluster),
            Origin::Belongs(cluster) => Some(*cluster),
            Origin::Founds(_) | Origin::Seeks { .. } => None,
        };
        identity.predecessor = cluster.and_then(|cluster| takeover.predecessor(cluster));
        if identity.predecessor.is_some() {
            identity.ttl = takeover.session(identity.ttl);
        } else {
            takeover.disclaim();
        }
        let (rng, config) = (Rng::new(setup.rng.bits()), config.registry);
        let mut session_state = Self {
            identity,
            config,
            rng,
            origin: setup.origin.clone(),
            phase: Phase::Seeking,
            is_recorded: false,
            founds: false,
            opened: None,
            session: None,
            since: Time::ZERO,
            leaves: false,
            asks: BTreeMap::new(),
        };
        if let (Origin::Votes(bytes), Some(cluster)) = (&setup.origin, cluster) {
            session_state.identity.cluster = cluster;
            let rng = Rng::new(session_state.rng.bits());
            let member = Member::restart(session_state.identity.clone(), config, Vec::new(), bytes, rng, Time::ZERO)?;
            session_state.phase = Phase::In(Box::new(member));
            session_state.is_recorded = true;
        }
        Ok(session_state)
    }

    pub fn start(&mut self, now: Time) {
        self.since = now;
        match self.origin {
            Origin::Founds(cluster) => self.found(cluster, now),
            Origin::Belongs(cluster) => {
                self.is_recorded = true;
                self.enter(cluster, now);
            }
            Origin::Votes(_) | Origin::Seeks { .. } => {}
        }
    }

    pub fn found(&mut self, cluster: ClusterId, now: Time) {
        self.identity.cluster = cluster;
        self.founds = true;
        let rng = Rng::new(self.rng.bits());
        self.phase = Phase::In(Box::new(Member::found(self.identity.clone(), self.config, rng, now)));
    }

    fn enter(&mut self, cluster: ClusterId, now: Time) {
        self.identity.cluster = cluster;
        let rng = Rng::new(self.rng.bits());
        let member = Member::new(self.identity.clone(), self.config, Vec::new(), rng, now);
        self.phase = Phase::In(Box::new(member));
    }

    /// Returns our cluster, if its ID may be sent.
    pub fn cluster(&self) -> Option<ClusterId> {
        self.is_recorded.then_some(self.identity.cluster)
    }

    /// Returns how many hosts must meet before one creates a cluster, and its ID.
    pub fn expects(&self) -> Option<(usize, ClusterId)> {
        match (&self.phase, &self.origin) {
            (Phase::Seeking, Origin::Seeks { expect }) => *expect,
            _ => None,
        }
    }

    pub fn has_founded(&self, cluster: ClusterId) -> bool {
        match self.origin {
            Origin::Founds(own) | Origin::Seeks { expect: Some((_, own)) } => own == cluster,
            Origin::Votes(_) | Origin::Belongs(_) | Origin::Seeks { expect: None } => false,
        }
    }

    pub fn seeks(&self) -> bool {
        matches!(self.phase, Phase::Seeking)
    }

    /// Returns whether the ID of an adopted cluster has to be recorded.
    pub fn learn(&mut self, cluster: ClusterId) -> bool {
        let seeks = self.seeks();
        if seeks {
            self.phase = Phase::Learned(cluster);
        }
        seeks
    }

    pub fn on_recorded(&mut self, now: Time) {
        self.is_recorded = true;
        if let Phase::Learned(cluster) = self.phase {
            self.enter(cluster, now);
        }
    }

    pub fn on_written(&mut self, number: u64, now: Time) -> Option<ClusterId> {
        let member = self.member()?;
        member.on_written(number, now);
        std::mem::take(&mut self.founds).then_some(self.identity.cluster)
    }

    pub fn on_registry_message(&mut self, from: PeerId, bytes: &[u8], now: Time) -> Result<(), Malformed> {
        self.member().map_or(Ok(()), |member| member.on_bytes(from, bytes, now))
    }

    pub fn meet(&mut self, host: PeerId, now: Time) {
        if let Some(member) = self.member() {
            member.meet(host, now);
        }
    }

    pub fn part(&mut self, host: PeerId) {
        if let Some(member) = self.member() {
            member.part(host);
        }
    }

    pub fn wake(&mut self, now: Time) {
        if let Some(member) = self.member().filter(|member| member.next() <= now) {
            member.wake(now);
        }
    }

    pub fn next(&self) -> Option<Time> {
        self.joined().map(|member| member.next())
    }

    pub fn take_outputs(&mut self) -> Vec<Output> {
        self.member().map(|member| member.take_outputs()).unwrap_or_default()
    }

    pub fn ask(&mut self, command: Command, ask: Ask, now: Time) {
        if let Some(member) = self.member() {
            let number = member.ask(command, now);
            self.asks.insert(number, ask);
        }
    }

    pub fn look(&mut self, look: Look, ask: Ask, now: Time) -> bool {
        let Some(member) = self.member() else { return false };
        let number = member.look(look, now);
        self.asks.insert(number, ask);
        true
    }

    /// `None` for our own end of session.
    pub fn answered(&mut self, number: u64) -> Option<Ask> {
        let ask = self.asks.remove(&number);
        assert!(ask.is_some() || self.leaves, "every request to the registry has an owner");
        ask
    }

    pub fn is_asking(&self, ask: &Ask) -> bool {
        self.asks.values().any(|open| open == ask)
    }

    pub fn session(&self) -> Option<SessionId> {
        self.session.map(|(session, _)| session)
    }

    pub fn is_first(&self) -> bool {
        self.joined().is_some_and(|member| member.client().stops() == 0)
    }

    pub fn bound(&self) -> Option<Bound> {
        self.session.map(|(_, until)| Bound { until, grace: self.identity.ttl.span() * 2 / 5 })
    }

    pub fn confirmed(&self, bound: Bound) -> Time {
        Time::from_nanos(bound.until.as_nanos().saturating_sub(self.ttl().as_nanos()))
    }

    pub fn ttl(&self) -> Span {
        self.identity.ttl.span()
    }

    pub fn leader(&self) -> Option<PeerId> {
        self.joined()?.leader()
    }

    pub fn registry_hosts(&self) -> impl Iterator<Item = PeerId> {
        self.joined().into_iter().flat_map(|member| member.seated())
    }

    pub fn registry(&self) -> Option<&Registry> {
        self.joined()?.registry()
    }

    pub fn since(&self) -> Time {
        self.since
    }

    /// Returns the next change of the session.
    pub fn next_change(&mut self, now: Time) -> Option<SessionChange> {
        let client = self.joined()?.client();
        let valid = client.until().filter(|_| client.stands(now).is_some() && !self.leaves);
        match (self.session, valid) {
            (Some((mine, until)), Some((session, later))) if mine == session => {
                self.session = valid;
                (later > until).then(|| self.bound().map(SessionChange::Renewed))?
            }
            (Some((_, until)), _) => {
                (self.session, self.since) = (None, now);
                let why = match now >= until {
                    true => "the session of this peer has expired, since the registry could not be reached",
                    false if self.leaves => "this peer has stopped",
                    false => "the registry has ended the session of this peer",
                };
                let confirmed = until.as_nanos().saturating_sub(self.ttl().as_nanos());
                Some(SessionChange::Ended { since: now.since(Time::from_nanos(confirmed)), why })
            }
            (None, _) if client.session().is_some() && client.session() != self.opened => {
                self.opened = client.session();
                self.opened.map(SessionChange::Opened)
            }
            (None, Some((session, _))) => {
                (self.session, self.since) = (valid, now);
                Some(SessionChange::Valid(session))
            }
            (None, None) => None,
        }
    }

    /// Returns whether a request about a detached grant is pending. It has no effect without a session.
    pub fn owes(&self) -> bool {
        self.session.is_some()
            && self
                .asks
                .values()
                .any(|ask| matches!(ask, Ask::Detach { .. } | Ask::Conclude { .. } | Ask::DropDetached(..)))
    }

    /// Ends the session, opens no other, and transfers the leadership of the registry.
    pub fn stop(&mut self, now: Time) {
        self.leaves = true;
        if let Some(member) = self.member() {
            member.stop(now);
        }
    }

    pub fn has_stopped(&self) -> bool {
        self.leaves && self.joined().is_none_or(|member| member.has_stopped())
    }

    pub fn has_left(&self) -> bool {
        self.leaves && self.joined().is_none_or(|member| member.has_left())
    }

    pub fn halted(&self) -> Option<&str> {
        self.registry()?.halted()
    }

    /// Returns the evidence that our own voter's log lacks confirmed data.
    pub fn forgotten(&self) -> Option<&str> {
        self.registry()?.forgotten()
    }

    /// Returns why our own voter has dropped messages.
    pub fn unexpected(&self) -> impl Iterator<Item = &'static str> {
        self.registry().into_iter().flat_map(|registry| registry.unexpected().keys().copied())
    }

    /// Returns the voters according to our own voter, or else the potential voters that do not answer.
    pub fn voters(&self, now: Time) -> Vec<PeerId> {
        let Some(member) = self.joined() else { return Vec::new() };
        match member.registry() {
            Some(registry) => registry.state().voter_hosts(),
            None => member.missing(now).into_iter().flat_map(|it| it.silent).map(|(host, _)| host).collect(),
        }
    }

    fn joined(&self) -> Option<&Member> {
        match &self.phase {
            Phase::In(member) => Some(member),
            Phase::Seeking | Phase::Learned(_) => None,
        }
    }

    fn member(&mut self) -> Option<&mut Member> {
        match &mut self.phase {
            Phase::In(member) => Some(member),
            Phase::Seeking | Phase::Learned(_) => None,
        }
    }
}

pub fn label_of(text: &str) -> Label {
    let good: String = text.chars().filter(|it| !it.is_control()).take(60).collect();
    Label::new(if good.is_empty() { "unknown".to_owned() } else { good })
        .expect("60 characters without control characters are a valid label")
}
