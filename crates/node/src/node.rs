//! The node: its inputs, its components, and its invariants.

use std::mem::take;

use peerlock_protocol::{Grant, custody};
use peerlock_registry::{ClusterId, Versions};
use peerlock_types::{Key, PeerId, Rng, Time};

use crate::admin::Orders;
use crate::clients::{Clients, TicketId};
use crate::cluster::CachedView;
use crate::detached::Detached;
use crate::health::Incidents;
use crate::links::contacts::{Contacts, Update};
use crate::links::join::{ACK_AFTER, Founding, Others};
use crate::links::link::Frame;
use crate::links::membership::Membership;
use crate::query::Survey;
use crate::recovery::Parts;
use crate::session_state::{Ask, SessionState};
use crate::takeover::Takeover;
use crate::timers::Timers;
use crate::wire::{Body, decode, decode_body, encode_body};
use crate::{Answer, Config, Counters, Damage, Effect, Error, Input, Notice, Setup};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Alarm {
    Part(Key, custody::Timer),
    /// Messages to a host were lost: request another generation.
    Recount(Key, u64, PeerId),
    Ticket(TicketId),
    Survey(Key),
    Query(u64),
    Revoke(u64),
    Remove(u64),
    Look,
    Looks,
    Caller(u64),
    Health,
    Acks,
    Relay,
    Waiters,
    Sweep,
    Join,
    Leave,
    Resume(u64),
}

/// Describes a message, for traces.
pub fn describe(bytes: &[u8]) -> String {
    match decode(bytes, Versions { min: 1, max: u16::MAX }).map(|(frame, _)| frame) {
        Ok(Frame::Data { number, has, body }) => match decode_body(&body) {
            Ok(Body::Part { resource, message }) => format!("data {number}, has {has}: {resource} {message}"),
            body => format!("data {number}, has {has}: {body:?}"),
        },
        Ok(Frame::Loose { body }) => match decode_body(&body) {
            Ok(Body::Registry(registry_message)) => format!("registry message of {} bytes", registry_message.len()),
            Ok(Body::Relay { from, to, frame, .. }) => format!("relay({from} to {to}: {})", describe(&frame)),
            body => format!("{body:?}"),
        },
        Ok(frame) => format!("{frame:?}"),
        Err(malformed) => format!("{malformed:?}"),
    }
}

/// The purpose of a message, for counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Protocol messages of a resource: requests, tokens, locations.
    Resource,
    /// Registry messages: sessions, votes, log entries.
    Registry,
    /// Everything else: greetings, acknowledgements, queries, relayed frames.
    Link,
}

/// Returns the purpose of a message.
pub fn purpose(bytes: &[u8]) -> Purpose {
    match decode(bytes, Versions { min: 1, max: u16::MAX }) {
        // The first byte is the index of the variant in `Body`.
        Ok((Frame::Data { body, .. } | Frame::Loose { body }, _)) => match body.first() {
            Some(0) => Purpose::Resource,
            Some(1) => Purpose::Registry,
            _ => Purpose::Link,
        },
        _ => Purpose::Link,
    }
}

/// Returns whether this message is a reason to keep a connection.
fn keeps_link(body: &Body) -> bool {
    !matches!(body, Body::Greeting { .. } | Body::Relay { .. } | Body::Idle | Body::Seek)
}

/// One peer with all its clients. See the [crate].
pub struct Node {
    pub(crate) config: Config,
    pub(crate) rng: Rng,
    pub(crate) now: Time,
    pub(crate) timers: Timers<Alarm>,
    pub(crate) attend_at: Option<Time>,
    pub(crate) clients: Clients,
    pub(crate) parts: Parts,
    pub(crate) survey: Survey,
    pub(crate) takeover: Takeover,
    pub(crate) orders: Orders,
    pub(crate) membership: Membership,
    pub(crate) contacts: Contacts,
    pub(crate) founding: Founding,
    pub(crate) session_state: SessionState,
    pub(crate) cached_view: CachedView,
    pub(crate) detached: Detached,
    pub(crate) incidents: Incidents,
    pub(crate) others: Others,
    /// Empty between steps.
    pub(crate) update: Vec<Update>,
    pub(crate) phase: Phase,
    pub(crate) draining: Draining,
    pub(crate) counters: Counters,
    pub(crate) effects: Vec<Effect>,
    pub(crate) unchecked: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// There was no session yet.
    Joining,
    Joined,
    Leaving,
    Left,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Draining {
    No,
    Yes,
    /// The last client has ended.
    Done,
}

impl Node {
    /// Creates a peer of this host that listens at these addresses. [`Input::Start`] must follow. Fails if the voter's
    /// file is damaged or of another version.
    pub fn new(host: PeerId, addresses: Vec<String>, mut setup: Setup, config: Config) -> Result<Self, Damage> {
        let mut takeover = Takeover::new(setup.predecessor.take(), &setup.boot);
        let session_state = SessionState::new(host, &addresses, &mut setup, &mut takeover, config)?;
        let clients = Clients::after(setup.rng.bits() >> 33);
        Ok(Self {
            config,
            rng: setup.rng,
            now: Time::ZERO,
            timers: Timers::new(),
            attend_at: None,
            clients,
            parts: Parts::new(config.ration),
            survey: Survey::default(),
            takeover,
            orders: Orders::default(),
            membership: Membership::new(host, addresses),
            contacts: Contacts::new(setup.process, config.versions),
            founding: Founding::default(),
            session_state,
            cached_view: CachedView::default(),
            detached: Detached::default(),
            incidents: Incidents::default(),
            others: Others::default(),
            update: Vec::new(),
            phase: Phase::Joining,
            draining: Draining::No,
            counters: Counters::default(),
            effects: Vec::new(),
            unchecked: 0,
        })
    }

    /// Handles one input, with the time after it was received, from a clock that counts suspended time. Appends the
    /// effects, takeover records first.
    pub fn step(&mut self, input: Input, now: Time, out: &mut Vec<Effect>) {
        assert!(now >= self.now, "time does not go backwards");
        self.now = now;
        // An expired session ends before anything else is done.
        self.attend();
        // So do expired leases: after a suspend, the first input must not renew one.
        if !matches!(input, Input::Wake) && self.next_wake().is_some_and(|due| due <= now) {
            self.wake();
            self.settle();
        }
        match input {
            Input::Start { join } => self.start(join),
            Input::Net(event) => self.on_net(event),
            Input::Wake => self.wake(),
            Input::Written(number) => self.on_written(number),
            Input::ClusterRecorded => self.on_recorded(),
            Input::Acquire { call, wanted } => self.acquire(call, wanted),
            Input::Release { call, ticket } => self.release(call, ticket),
            Input::Renew { call, ticket } => self.renew(call, ticket),
            Input::Conclude { call, ticket, conclusion, at } => self.conclude(call, ticket, conclusion, at),
            Input::Resume { call, name, note } => self.resume(call, name, note),
            Input::GiveUp { call } => self.resume_no_more(call),
            Input::Call { call, operation } => self.on_call(call, operation),
            Input::Drain => self.drain(),
            Input::Close => self.close(),
            Input::Leave => self.leave(),
        }
        self.settle();
        self.write_down(out);
        self.check();
        self.counters.sent += self.contacts.hand_out(out);
        out.append(&mut self.effects);
    }

    /// Returns when to call [`step`](Self::step) with [`Input::Wake`].
    pub fn next_wake(&self) -> Option<Time> {
        self.timers.next().into_iter().chain(self.attend_at).min()
    }

    /// Returns the grant of a ticket and its deadline, if it has one.
    pub fn grant(&self, ticket: TicketId) -> Option<(Grant, Time)> {
        self.clients.granted(ticket)
    }

    /// Returns whether this process has created the cluster.
    pub fn has_founded(&self, cluster: ClusterId) -> bool {
        self.session_state.has_founded(cluster)
    }

    /// Returns whether a host has answered at an address given to [`Input::Start`].
    pub fn has_reached(&self, address: &str) -> bool {
        self.membership.needed_at(address).is_some()
    }

    pub(crate) fn is_leaving(&self) -> bool {
        matches!(self.phase, Phase::Leaving | Phase::Left)
    }

    pub(crate) fn host(&self) -> PeerId {
        self.membership.host()
    }

    fn wake(&mut self) {
        while let Some(alarm) = self.timers.due(self.now) {
            match alarm {
                Alarm::Part(resource, timer) => self.part_step(resource, peerlock_protocol::Input::Timer(timer)),
                Alarm::Recount(resource, generation, host) => self.on_recount_alarm(resource, generation, host),
                Alarm::Ticket(ticket) => self.on_ticket_alarm(ticket),
                Alarm::Survey(resource) => self.survey_queue(resource),
                Alarm::Query(number) => self.on_query_alarm(number),
                Alarm::Revoke(call) => self.on_revoke_alarm(call),
                Alarm::Remove(call) => self.on_remove_alarm(call),
                Alarm::Look => self.look_at_cluster(),
                Alarm::Looks => self.answer_looks(),
                Alarm::Caller(call) => self.on_caller_timeout(call),
                Alarm::Health => self.on_health_alarm(),
                Alarm::Acks => self.contacts.ack_all(),
                Alarm::Relay => self.on_relay_alarm(),
                Alarm::Waiters => self.probe_waiters(),
                Alarm::Sweep => self.sweep(),
                Alarm::Join => self.effects.push(Effect::NotJoined),
                Alarm::Leave => self.left(self.session_state.has_left()),
                Alarm::Resume(call) => self.on_resume_alarm(call),
            }
        }
    }

    fn settle(&mut self) {
        loop {
            let mut update = take(&mut self.update);
            update.drain(..).for_each(|update| self.on_update(update));
            if self.update.is_empty() {
                self.update = update; // Reuses the allocation.
            }
            self.attend();
            self.send_relayed();
            if self.update.is_empty() {
                break;
            }
        }
        if self.contacts.wants_acks() {
            self.timers.set_if_none(Alarm::Acks, self.now + ACK_AFTER);
        }
        if self.draining == Draining::Yes && !self.has_clients() {
            self.draining = Draining::Done;
            self.effects.push(Effect::Drained);
        }
        self.attend_at = self.session_state.next().filter(|_| self.phase != Phase::Left);
    }

    /// Most are checked in debug builds only, and rarely.
    fn check(&mut self) {
        assert!(self.update.is_empty(), "events of a step are handled in that step");
        let bound = self.session_state.bound();
        assert!(bound.is_none_or(|bound| self.now < bound.until), "the session in use is over");
        assert!(bound.is_some() || self.parts.parts.is_empty(), "there are parts without a session");
        self.unchecked += 1;
        if !cfg!(debug_assertions) || self.unchecked * 8 < self.clients.extent() + self.contacts.extent() {
            return;
        }
        self.unchecked = 0;
        let is_set = |alarm| self.timers.is_set(&alarm);
        self.clients.check(bound, |ticket| is_set(Alarm::Ticket(ticket)));
        self.survey.check(|number| is_set(Alarm::Query(number)));
        self.takeover.check(|ticket| self.clients.get(ticket).is_some(), |call| is_set(Alarm::Resume(call)));
        self.parts.check();
        self.cached_view.check(is_set(Alarm::Looks));
        self.contacts.check();
        self.founding.check(|host| host == self.host() || self.contacts.is_connected(host));
        self.orders.check(is_set);
        for (resource, name, _, waiting) in self.clients.resources().filter(|(.., waiting)| *waiting > 0) {
            assert!(
                self.timers.is_set(&Alarm::Survey(resource)),
                "{waiting} requests wait for {name} without a query timer"
            );
        }
        let asks = bound.is_none() || self.clients.without_alias().next().is_none();
        assert!(asks, "every waiting ticket is requested from the protocol");
        assert!(
            self.detached.orphans.is_empty() || bound.is_none(),
            "grants without an owner are dropped in a session"
        );
        for (&(resource, fencing), &alias) in &self.detached.ending {
            let part = self.parts.get(resource).expect("a grant that is ending has a part");
            let is_here = part.custody.held().any(|(_, user)| user == Some(alias));
            assert!(is_here, "grant {fencing} of {} is ending, but its slot is not here", part.name);
            let ask = |session| Ask::DropDetached(session, part.name.clone(), fencing);
            let is_asked =
                self.session_state.session().is_some_and(|session| self.session_state.is_asking(&ask(session)));
            assert!(is_asked, "grant {fencing} of {} is ending, but not being dropped", part.name);
        }
        match self.phase {
            Phase::Leaving => {
                assert!(self.timers.is_set(&Alarm::Leave), "a leaving peer has a timer");
                assert!(self.clients.is_empty(), "a leaving peer has no clients");
            }
            Phase::Joining | Phase::Joined | Phase::Left => {}
        }
    }

    pub(crate) fn answer(&mut self, call: u64, answer: Result<Answer, Error>) {
        self.effects.push(Effect::Answer { call, answer });
    }

    pub(crate) fn unexpected(&mut self, why: &'static str) {
        self.notice(Notice::Unexpected(why));
    }

    pub(crate) fn notice(&mut self, notice: Notice) {
        match notice {
            Notice::Malformed(_) => self.counters.malformed += 1,
            Notice::Unexpected(_) => self.counters.unexpected += 1,
            _ => {}
        }
        self.effects.push(Effect::Notice(notice));
    }

    pub(crate) fn on_body(&mut self, from: PeerId, bytes: &[u8]) {
        let body = match decode_body(bytes) {
            Ok(body) => body,
            Err(malformed) => return self.notice(Notice::Malformed(malformed)),
        };
        if keeps_link(&body) {
            self.contacts.use_now(from, self.now);
        }
        match body {
            Body::Part { resource, message } => self.on_part_message(from, resource, message),
            Body::Registry(registry_message) => self.on_registry_message(from, &registry_message),
            Body::Greeting { cluster, expects, founder, hosts } => {
                self.on_greeting(from, cluster, expects, founder, &hosts);
            }
            Body::Ask { number, question } => self.on_ask(from, number, question),
            Body::Reply { number, reply } => self.on_reply(from, number, reply),
            Body::Relay { from: origin, to, lives, frame } => self.on_relayed(from, (origin, to), lives, frame),
            Body::Idle => self.on_idle(from),
            Body::Seek => self.on_seek(from),
            Body::Probe => {} // The link acknowledges it.
        }
    }

    /// Sends a reliable message …
    pub(crate) fn send_reliable(&mut self, to: PeerId, body: &Body) {
        let is_connected = self.contacts.send(to, encode_body(body), self.now, &mut self.update);
        self.contacts.use_now(to, self.now);
        if !is_connected {
            self.reach(to);
        }
        self.relay_for(to);
    }

    /// … and an unreliable one.
    pub(crate) fn send_unreliable(&mut self, to: PeerId, body: &Body) {
        // Registry messages are never relayed: a valid session implies a direct connection to the leader.
        let by_any_way = matches!(body, Body::Ask { .. } | Body::Reply { .. });
        if keeps_link(body) {
            self.contacts.use_now(to, self.now);
        }
        self.contacts.send_loose(to, encode_body(body), by_any_way);
    }

    /// Returns the name, address or number of a host, whichever is known first.
    pub fn called(&self, host: PeerId) -> String {
        Some(self.name_of(host)).filter(|name| !name.is_empty()).unwrap_or_else(|| host.to_string())
    }

    /// Returns the registered name of a host, if it is a known member.
    pub fn name(&self, host: PeerId) -> Option<String> {
        self.info_of(host).map(|info| info.name.to_string())
    }

    /// Returns the name or the address of a host; empty if both are unknown.
    pub(crate) fn name_of(&self, host: PeerId) -> String {
        self.name(host).or_else(|| Some(self.contacts.get(host)?.address.clone())).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
