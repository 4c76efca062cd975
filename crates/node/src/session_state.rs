//! Our standing in the cluster: which one it is, and the session under which this process uses tokens.
//!
//! ```text
//!   Seeking ──met somebody who knows──► Learned ──Kept──► In: asks for a session, and keeps it
//!      └────enough have met, expect────────────────────►  │   its own voter's file first, then Belongs, then Kept;
//!   Founds ──────────────────────────────────────────────►│   only then others hear of the cluster
//!   Votes, Belongs ──────────────────────────────────────►│
//! ```
//!
//! It owns the [`Member`]: nobody else asks the register anything, and every question has an owner here ([`Ask`]).

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

/// At most this many own addresses are told to the register.
const MOST_ADDRESSES: usize = 16;

/// Who has asked the register something, and what for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Our part in this resource wants to take part, in this session.
    Join(Key, SessionId),
    /// Our part in this resource has been given up, in this session and this generation.
    Quit(Key, SessionId, u64),
    /// Our part has counted, or wants to be counted anew: nothing follows from the answer.
    Inform,
    /// A grant is to outlive us.
    Detach {
        /// The client whose grant it is.
        ticket: TicketId,
        /// Of which resource.
        of: Name,
        /// By its fencing number.
        fencing: u64,
        /// When this was asked: its lease is counted from here.
        at: Time,
        /// Who renews it, if it is not new.
        call: Option<u64>,
    },
    /// A detached grant is over, by word of this session.
    DropDetached(SessionId, Name, u64),
    /// A person wants another number of slots: to look which generation it is …
    ResizeFound(u64, Name, u32),
    /// … and to change it.
    Resize(u64, Name),
    /// A person wants a name removed: to look who takes part in it …
    RemoveFound(u64),
    /// … and to do it when nobody does.
    Remove(u64),
    /// A person wants a host forced out: to look which of its sessions take part …
    EvictTarget(u64, Name, PeerId),
    /// … and to end those sessions.
    Expel(u64),
    /// A person wants a grant back whose host does not answer: to look whether it is detached.
    RevokeFrom(u64),
    /// … and to take it back.
    Revoke(u64),
    /// A person wants other hosts to vote: to look how often they were chosen …
    VotersFound(u64, Option<Vec<PeerId>>),
    /// … and to choose them.
    SetVoters(u64),
    /// Those whom we deal with, and who votes.
    Cluster,
    /// Everybody, a page at a time, for who waits to see that.
    Everybody,
    /// What the hosts in a resource's line are called, by the question's number.
    Names(u64),
    /// The detached grants of this host.
    Returned,
    /// A page of names for a person.
    List(u64),
    /// What there is of a resource that is to be shown, by the question's number.
    Show(u64),
}

/// A change of the session that this process uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// This one is open, and the one that it replaces is over. It is not used before it stands.
    Opened(SessionId),
    /// This one stands from now on.
    Stands(SessionId),
    /// There is no session any more: nothing may be used.
    Over {
        /// How long before that the register had last said yes.
        since: Span,
        /// What has become of it.
        why: &'static str,
    },
    /// It stands for longer.
    Extended(Bound),
}

enum Phase {
    /// Knows no cluster.
    Seeking,
    /// Knows one, which is being written down.
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
    /// The cluster is written down, so that others may hear of it.
    is_recorded: bool,
    /// The file of a cluster that we found is not there yet.
    founds: bool,
    /// The last session that was opened, whether it is used or not.
    opened: Option<SessionId>,
    /// The session that is used, and its end as far as known.
    session: Option<(SessionId, Time)>,
    /// Since when there is one, or none.
    since: Time,
    /// We are about to stop: no other session is used after this one.
    leaves: bool,
    asks: BTreeMap<u64, Ask>,
}

impl SessionState {
    /// Of a process that is born so.
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
        // Where no cluster is known this is replaced before anybody sees it.
        let (process, ttl) = (setup.process, setup.session);
        let mut identity = Identity { cluster: ClusterId::new(0), host, process, info, ttl, predecessor: None };
        // Only who belongs to a cluster already can go on with what another process had in it.
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

    /// Begins with what we know.
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

    /// Founds a cluster.
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

    /// The cluster that we belong to and may speak of.
    pub fn cluster(&self) -> Option<ClusterId> {
        self.is_recorded.then_some(self.identity.cluster)
    }

    /// The cluster that a session of ours is of. Whoever founds it may have a session before that is written down: its
    /// voter's file is there by then, and names it to the next process of this host.
    pub fn cluster_of_session(&self) -> ClusterId {
        self.identity.cluster
    }

    /// How many must have met before one of them founds a cluster, and with which id; nothing if we know one.
    pub fn expects(&self) -> Option<(usize, ClusterId)> {
        match (&self.phase, &self.origin) {
            (Phase::Seeking, Origin::Seeks { expect }) => *expect,
            _ => None,
        }
    }

    /// Returns whether this process has founded the cluster.
    pub fn has_founded(&self, cluster: ClusterId) -> bool {
        match self.origin {
            Origin::Founds(own) | Origin::Seeks { expect: Some((_, own)) } => own == cluster,
            Origin::Votes(_) | Origin::Belongs(_) | Origin::Seeks { expect: None } => false,
        }
    }

    /// Whether we know no cluster.
    pub fn seeks(&self) -> bool {
        matches!(self.phase, Phase::Seeking)
    }

    /// Somebody belongs to this cluster. True if it is ours from now on, and to be written down.
    pub fn learn(&mut self, cluster: ClusterId) -> bool {
        let seeks = self.seeks();
        if seeks {
            self.phase = Phase::Learned(cluster);
        }
        seeks
    }

    /// The cluster is written down.
    pub fn on_recorded(&mut self, now: Time) {
        self.is_recorded = true;
        if let Phase::Learned(cluster) = self.phase {
            self.enter(cluster, now);
        }
    }

    /// A write is done. If it was the first one of a cluster that we found, that is to be written down now.
    pub fn on_written(&mut self, number: u64, now: Time) -> Option<ClusterId> {
        let member = self.member()?;
        member.on_written(number, now);
        std::mem::take(&mut self.founds).then_some(self.identity.cluster)
    }

    /// A letter of a host.
    pub fn on_registry_message(&mut self, from: PeerId, bytes: &[u8], now: Time) -> Result<(), Malformed> {
        self.member().map_or(Ok(()), |member| member.on_bytes(from, bytes, now))
    }

    /// A host of our cluster is there to be asked, now or when nobody else answers any more.
    pub fn meet(&mut self, host: PeerId, now: Time) {
        if let Some(member) = self.member() {
            member.meet(host, now);
        }
    }

    /// It is not there any more.
    pub fn part(&mut self, host: PeerId) {
        if let Some(member) = self.member() {
            member.part(host);
        }
    }

    /// What is due by now.
    pub fn wake(&mut self, now: Time) {
        if let Some(member) = self.member().filter(|member| member.next() <= now) {
            member.wake(now);
        }
    }

    /// When to be woken.
    pub fn next(&self) -> Option<Time> {
        match &self.phase {
            Phase::In(member) => Some(member.next()),
            Phase::Seeking | Phase::Learned(_) => None,
        }
    }

    /// What the register has to say, in order, and what it wants done.
    pub fn take_outputs(&mut self) -> Vec<Output> {
        self.member().map(|member| member.take_outputs()).unwrap_or_default()
    }

    /// Asks the register for something.
    pub fn ask(&mut self, command: Command, ask: Ask, now: Time) {
        if let Some(member) = self.member() {
            let number = member.ask(command, now);
            self.asks.insert(number, ask);
        }
    }

    /// Looks at something in the register. False if we know none.
    pub fn look(&mut self, look: Look, ask: Ask, now: Time) -> bool {
        let Some(member) = self.member() else { return false };
        let number = member.look(look, now);
        self.asks.insert(number, ask);
        true
    }

    /// Who has asked what was answered now; nobody if it was our own end.
    pub fn answered(&mut self, number: u64) -> Option<Ask> {
        let ask = self.asks.remove(&number);
        assert!(ask.is_some() || self.leaves, "nobody else asks the register anything");
        ask
    }

    /// Whether such a question is open.
    pub fn is_asking(&self, ask: &Ask) -> bool {
        self.asks.values().any(|open| open == ask)
    }

    /// The session that is used now.
    pub fn session(&self) -> Option<SessionId> {
        self.session.map(|(session, _)| session)
    }

    /// Whether that is the first session that this process has opened.
    pub fn is_first(&self) -> bool {
        matches!(&self.phase, Phase::In(member) if member.client().stops() == 0)
    }

    /// Until when what is granted now stands at most.
    pub fn bound(&self) -> Option<Bound> {
        self.session.map(|(_, until)| Bound { until, grace: self.identity.ttl.span() * 2 / 5 })
    }

    /// As the register has it.
    pub fn session_ttl(&self) -> Ttl {
        self.identity.ttl
    }

    /// When that was sent by which a session stands until then.
    pub fn confirmed(&self, bound: Bound) -> Time {
        Time::from_nanos(bound.until.as_nanos().saturating_sub(self.ttl().as_nanos()))
    }

    /// For how long a session stands after a renewal.
    pub fn ttl(&self) -> Span {
        self.identity.ttl.span()
    }

    /// The register's leader, as far as we know.
    pub fn leader(&self) -> Option<PeerId> {
        match &self.phase {
            Phase::In(member) => member.leader(),
            Phase::Seeking | Phase::Learned(_) => None,
        }
    }

    /// The hosts that vote or learn to, and the one that leads, as far as we know; some of them twice.
    pub fn seated(&self) -> impl Iterator<Item = PeerId> {
        let member = match &self.phase {
            Phase::In(member) => Some(member),
            Phase::Seeking | Phase::Learned(_) => None,
        };
        member.into_iter().flat_map(|member| member.seated())
    }

    /// Our own voter, if we are one.
    pub fn registry(&self) -> Option<&Registry> {
        match &self.phase {
            Phase::In(member) => member.registry(),
            Phase::Seeking | Phase::Learned(_) => None,
        }
    }

    /// Since when there is a session, or none.
    pub fn since(&self) -> Time {
        self.since
    }

    /// Looks at the session, before anything else is done: whether another one is used now, or none, or for longer. To
    /// be called until nothing has changed.
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
                    true => "the session of this peer has run out, since the register could not be reached",
                    false if self.leaves => "this peer has stopped",
                    false => "the register has ended the session of this peer",
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

    /// Whether the register has not answered yet what is to become of a grant that outlives us. Without a session that
    /// is not waited for: it cannot become anything.
    pub fn owes(&self) -> bool {
        self.session.is_some()
            && self.asks.values().any(|ask| matches!(ask, Ask::Detach { .. } | Ask::DropDetached(..)))
    }

    /// Whether we are about to stop.
    pub fn is_stopping(&self) -> bool {
        self.leaves
    }

    /// Ends the session and opens no other, and gives the lead away.
    pub fn stop(&mut self, now: Time) {
        self.leaves = true;
        if let Some(member) = self.member() {
            member.stop(now);
        }
    }

    /// Whether that has come to its end.
    pub fn has_stopped(&self) -> bool {
        match &self.phase {
            Phase::In(member) => self.leaves && member.has_stopped(),
            Phase::Seeking | Phase::Learned(_) => self.leaves,
        }
    }

    /// Whether the register knows that this session is over.
    pub fn has_left(&self) -> bool {
        match &self.phase {
            Phase::In(member) => self.leaves && member.has_left(),
            Phase::Seeking | Phase::Learned(_) => self.leaves,
        }
    }

    /// Our voter, if we are one and it goes on; or why it does not.
    pub fn halted(&self) -> Option<&str> {
        let Phase::In(member) = &self.phase else { return None };
        member.registry()?.halted()
    }

    /// The hosts that vote, as our own voter knows them, and otherwise those that might and do not answer.
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

/// A name as the register takes it.
pub fn label_of(text: &str) -> Label {
    let good: String = text.chars().filter(|it| !it.is_control()).take(60).collect();
    Label::new(if good.is_empty() { "unknown".to_owned() } else { good }).expect("at most 240 bytes, without control")
}
