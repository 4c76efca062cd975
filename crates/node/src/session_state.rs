//! The state of this process in the cluster: which cluster, and the session under which it uses tokens.
//!
//! ```text
//!   Seeking ──met a member──────► Learned ──recorded──► In: opens a session and renews it
//!      └────enough hosts met, expect──────────────────►  │   its own voter's file first, then Belongs, then recorded;
//!   Founds ─────────────────────────────────────────────►│   only then is the cluster named to other peers
//!   Votes, Belongs ─────────────────────────────────────►│
//! ```
//!
//! It owns the [`Member`], so all requests to the registry go through it, and each has an owner ([`Ask`]).

use std::collections::BTreeMap;

use peerlock_registry::wire::Malformed;
use peerlock_registry::{
    ClusterId, Command, Config, Identity, Info, Label, Look, Member, Output, Registry, SessionId, Ttl, file,
};
use peerlock_types::{Key, PeerId, Rng, Span, Time};

use crate::clients::TicketId;
use crate::lease::Bound;
use crate::takeover::Takeover;
use crate::{self as node, Damage, Name, Origin, Setup};

/// The maximum number of own addresses that are registered.
const MOST_ADDRESSES: usize = 16;

/// The owner of a pending request to the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Join a resource, in this session.
    Join(Key, SessionId),
    /// Quit a resource, in this session and generation.
    Quit(Key, SessionId, u64),
    /// Close a generation, or request another: the answer is ignored.
    Inform,
    /// Persist or renew a detached grant.
    Detach {
        /// The ticket of the grant.
        ticket: TicketId,
        /// The resource.
        of: Name,
        /// The fencing number.
        fencing: u64,
        /// When this was requested: the lease counts from here.
        at: Time,
        /// The call of a renewal; `None` for a new grant.
        call: Option<u64>,
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
    /// `expel`: query the host's sessions among the parties …
    EvictTarget(u64, Name, PeerId),
    /// … then evict them.
    Expel(u64),
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
    /// Query the hosts of interest and the voters.
    Cluster,
    /// Query all members page by page, for pending `look` calls.
    Everybody,
    /// Query the names of hosts, for this query of `show`.
    Names(u64),
    /// Query the detached grants of this host.
    Returned,
    /// Query a page of resources, for this call.
    List(u64),
    /// Query a resource, for this query of `show`.
    Show(u64),
}

/// A change of the session that this process uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// This session was opened, and its predecessor has ended. It is not used until it is valid.
    Opened(SessionId),
    /// This session is valid.
    Stands(SessionId),
    /// The session has ended: nothing may be used.
    Over {
        /// The time since the last confirmed renewal.
        since: Span,
        /// The reason.
        why: &'static str,
    },
    /// The session was renewed.
    Extended(Bound),
}

enum Phase {
    /// Knows no cluster.
    Seeking,
    /// Knows a cluster whose ID is being recorded.
    Learned(ClusterId),
    In(Box<Member>),
}

/// See the module.
pub struct SessionState {
    identity: Identity,
    config: Config,
    rng: Rng,
    origin: Origin,
    phase: Phase,
    /// The cluster ID is recorded, so it may be sent to other peers.
    is_recorded: bool,
    /// This process creates a cluster, and the voter's file is not written yet.
    founds: bool,
    /// The last session that was opened, used or not.
    opened: Option<SessionId>,
    /// The session in use, and its end as far as confirmed.
    session: Option<(SessionId, Time)>,
    /// The time of the last change between having a session and having none.
    since: Time,
    /// The node is stopping: no other session is used.
    leaves: bool,
    asks: BTreeMap<u64, Ask>,
}

impl SessionState {
    /// Creates the state of a new process.
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

    /// Starts as a voter, a member or the creator of a cluster, by origin.
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

    /// Creates a cluster.
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

    /// Returns our cluster, if its ID is recorded and may be sent.
    pub fn cluster(&self) -> Option<ClusterId> {
        self.is_recorded.then_some(self.identity.cluster)
    }

    /// Returns the cluster of our session. The host that creates a cluster may have a session before the ID is
    /// recorded: its voter's file names the cluster to the next process by then.
    pub fn cluster_of_session(&self) -> ClusterId {
        self.identity.cluster
    }

    /// Returns how many hosts must meet before one of them creates a cluster, and the ID to use; `None` if we know a
    /// cluster.
    pub fn expects(&self) -> Option<(usize, ClusterId)> {
        match (&self.phase, &self.origin) {
            (Phase::Seeking, Origin::Seeks { expect }) => *expect,
            _ => None,
        }
    }

    /// Returns whether this process has created the cluster.
    pub fn has_founded(&self, cluster: ClusterId) -> bool {
        match self.origin {
            Origin::Founds(own) | Origin::Seeks { expect: Some((_, own)) } => own == cluster,
            Origin::Votes(_) | Origin::Belongs(_) | Origin::Seeks { expect: None } => false,
        }
    }

    /// Returns whether no cluster is known.
    pub fn seeks(&self) -> bool {
        matches!(self.phase, Phase::Seeking)
    }

    /// Adopts the cluster of another host if we know none. Returns whether it was adopted, and has to be recorded.
    pub fn learn(&mut self, cluster: ClusterId) -> bool {
        let seeks = self.seeks();
        if seeks {
            self.phase = Phase::Learned(cluster);
        }
        seeks
    }

    /// The cluster ID is recorded.
    pub fn on_recorded(&mut self, now: Time) {
        self.is_recorded = true;
        if let Phase::Learned(cluster) = self.phase {
            self.enter(cluster, now);
        }
    }

    /// A write is complete. Returns the cluster if this was the first write of a cluster that we create: its ID is to
    /// be recorded now.
    pub fn on_written(&mut self, number: u64, now: Time) -> Option<ClusterId> {
        let member = self.member()?;
        member.on_written(number, now);
        std::mem::take(&mut self.founds).then_some(self.identity.cluster)
    }

    /// Handles a registry message.
    pub fn on_registry_message(&mut self, from: PeerId, bytes: &[u8], now: Time) -> Result<(), Malformed> {
        self.member().map_or(Ok(()), |member| member.on_bytes(from, bytes, now))
    }

    /// A host of our cluster is reachable for requests.
    pub fn meet(&mut self, host: PeerId, now: Time) {
        if let Some(member) = self.member() {
            member.meet(host, now);
        }
    }

    /// The host is unreachable.
    pub fn part(&mut self, host: PeerId) {
        if let Some(member) = self.member() {
            member.part(host);
        }
    }

    /// Handles due timers.
    pub fn wake(&mut self, now: Time) {
        if let Some(member) = self.member().filter(|member| member.next() <= now) {
            member.wake(now);
        }
    }

    /// Returns the next timer.
    pub fn next(&self) -> Option<Time> {
        match &self.phase {
            Phase::In(member) => Some(member.next()),
            Phase::Seeking | Phase::Learned(_) => None,
        }
    }

    /// Removes and returns the outputs of the registry, in order.
    pub fn take_outputs(&mut self) -> Vec<Output> {
        self.member().map(|member| member.take_outputs()).unwrap_or_default()
    }

    /// Sends a command to the registry.
    pub fn ask(&mut self, command: Command, ask: Ask, now: Time) {
        if let Some(member) = self.member() {
            let number = member.ask(command, now);
            self.asks.insert(number, ask);
        }
    }

    /// Sends a query to the registry. Returns false if we know no cluster.
    pub fn look(&mut self, look: Look, ask: Ask, now: Time) -> bool {
        let Some(member) = self.member() else { return false };
        let number = member.look(look, now);
        self.asks.insert(number, ask);
        true
    }

    /// Removes and returns the owner of an answered request; `None` for our own end of session.
    pub fn answered(&mut self, number: u64) -> Option<Ask> {
        let ask = self.asks.remove(&number);
        assert!(ask.is_some() || self.leaves, "every request to the registry has an owner");
        ask
    }

    /// Returns whether such a request is pending.
    pub fn is_asking(&self, ask: &Ask) -> bool {
        self.asks.values().any(|open| open == ask)
    }

    /// Returns the session in use.
    pub fn session(&self) -> Option<SessionId> {
        self.session.map(|(session, _)| session)
    }

    /// Returns whether it is the first session that this process has opened.
    pub fn is_first(&self) -> bool {
        matches!(&self.phase, Phase::In(member) if member.client().stops() == 0)
    }

    /// Returns the session's end, which bounds all grants.
    pub fn bound(&self) -> Option<Bound> {
        self.session.map(|(_, until)| Bound { until, grace: self.identity.ttl.span() * 2 / 5 })
    }

    /// Returns the session length, in the registry's type.
    pub fn session_ttl(&self) -> Ttl {
        self.identity.ttl
    }

    /// Returns when the renewal was sent that moved the session's end to this bound.
    pub fn confirmed(&self, bound: Bound) -> Time {
        Time::from_nanos(bound.until.as_nanos().saturating_sub(self.ttl().as_nanos()))
    }

    /// Returns the session length.
    pub fn ttl(&self) -> Span {
        self.identity.ttl.span()
    }

    /// Returns the registry leader, if known.
    pub fn leader(&self) -> Option<PeerId> {
        match &self.phase {
            Phase::In(member) => member.leader(),
            Phase::Seeking | Phase::Learned(_) => None,
        }
    }

    /// Returns the known voters, learners and leader, with duplicates.
    pub fn seated(&self) -> impl Iterator<Item = PeerId> {
        let member = match &self.phase {
            Phase::In(member) => Some(member),
            Phase::Seeking | Phase::Learned(_) => None,
        };
        member.into_iter().flat_map(|member| member.seated())
    }

    /// Returns our own voter, if there is one.
    pub fn registry(&self) -> Option<&Registry> {
        match &self.phase {
            Phase::In(member) => member.registry(),
            Phase::Seeking | Phase::Learned(_) => None,
        }
    }

    /// Returns the time of the last change between having a session and having none.
    pub fn since(&self) -> Time {
        self.since
    }

    /// Returns the next change of the session. To be called at the start of a step, until it returns `None`.
    pub fn turn(&mut self, now: Time) -> Option<Turn> {
        let Phase::In(member) = &self.phase else { return None };
        let client = member.client();
        let stands = client.until().filter(|_| client.stands(now).is_some() && !self.leaves);
        match (self.session, stands) {
            (Some((mine, until)), Some((session, later))) if mine == session => {
                self.session = stands;
                (later > until).then(|| self.bound().map(Turn::Extended))?
            }
            (Some((_, until)), _) => {
                (self.session, self.since) = (None, now);
                let why = match now >= until {
                    true => "the session of this peer has expired, since the registry could not be reached",
                    false if self.leaves => "this peer has stopped",
                    false => "the registry has ended the session of this peer",
                };
                let confirmed = until.as_nanos().saturating_sub(self.ttl().as_nanos());
                Some(Turn::Over { since: now.since(Time::from_nanos(confirmed)), why })
            }
            (None, _) if client.session().is_some() && client.session() != self.opened => {
                self.opened = client.session();
                self.opened.map(Turn::Opened)
            }
            (None, Some((session, _))) => {
                (self.session, self.since) = (stands, now);
                Some(Turn::Stands(session))
            }
            (None, None) => None,
        }
    }

    /// Returns whether a request about a detached grant is pending. False without a session: it can have no effect
    /// then.
    pub fn owes(&self) -> bool {
        self.session.is_some()
            && self.asks.values().any(|ask| matches!(ask, Ask::Detach { .. } | Ask::DropDetached(..)))
    }

    /// Returns whether the node is stopping.
    pub fn is_stopping(&self) -> bool {
        self.leaves
    }

    /// Ends the session, opens no other, and transfers the leadership of the registry.
    pub fn stop(&mut self, now: Time) {
        self.leaves = true;
        if let Some(member) = self.member() {
            member.stop(now);
        }
    }

    /// Returns whether [`stop`](Self::stop) has completed or timed out.
    pub fn has_stopped(&self) -> bool {
        match &self.phase {
            Phase::In(member) => self.leaves && member.has_stopped(),
            Phase::Seeking | Phase::Learned(_) => self.leaves,
        }
    }

    /// Returns whether the registry has confirmed the end of the session.
    pub fn has_left(&self) -> bool {
        match &self.phase {
            Phase::In(member) => self.leaves && member.has_left(),
            Phase::Seeking | Phase::Learned(_) => self.leaves,
        }
    }

    /// Returns why our voter has halted, if it has.
    pub fn halted(&self) -> Option<&str> {
        let Phase::In(member) = &self.phase else { return None };
        member.registry()?.halted()
    }

    /// Returns the evidence that our own voter's log lacks confirmed data.
    pub fn forgotten(&self) -> Option<&str> {
        let Phase::In(member) = &self.phase else { return None };
        member.registry()?.forgotten()
    }

    /// Returns why our own voter has dropped messages.
    pub fn unexpected(&self) -> impl Iterator<Item = &'static str> {
        let member = match &self.phase {
            Phase::In(member) => Some(member),
            Phase::Seeking | Phase::Learned(_) => None,
        };
        let registry = member.and_then(|member| member.registry());
        registry.into_iter().flat_map(|registry| registry.unexpected().keys().copied())
    }

    /// Returns the voters according to our own voter, or else the potential voters that do not answer.
    pub fn voters(&self, now: Time) -> Vec<PeerId> {
        let Phase::In(member) = &self.phase else { return Vec::new() };
        match member.registry() {
            Some(registry) => registry.state().voter_hosts(),
            None => member.missing(now).into_iter().flat_map(|it| it.silent).map(|(host, _)| host).collect(),
        }
    }

    fn member(&mut self) -> Option<&mut Member> {
        match &mut self.phase {
            Phase::In(member) => Some(member),
            Phase::Seeking | Phase::Learned(_) => None,
        }
    }
}

/// Converts text to a registry label, dropping control characters.
pub fn label_of(text: &str) -> Label {
    let good: String = text.chars().filter(|it| !it.is_control()).take(60).collect();
    Label::new(if good.is_empty() { "unknown".to_owned() } else { good }).expect(
        "60 characters without control \
                                                                                  characters are a valid label",
    )
}
