//! The node: its inputs, its components, and its invariants.

mod ask;
mod cluster;
mod detached;
mod health;
mod inspect;
mod links;
mod look;
mod part;
mod reach;
mod relay;
mod remove;
mod revoke;
mod serve;
mod session;
mod takeover;

use std::mem::take;
use std::time::Duration;

use peerlock_protocol::{Grant, custody};
use peerlock_registry::leases::patience;
use peerlock_registry::{ClusterId, Versions};
use peerlock_types::{Key, PeerId, Rng, Time};

use crate::cached_view::CachedView;
use crate::clients::{Clients, TicketId};
use crate::connections::{Packet, Segment};
use crate::contacts::{Contacts, Update};
use crate::detached::Detached;
use crate::founding::Founding;
use crate::incidents::Incidents;
use crate::link::Frame;
use crate::membership::Membership;
use crate::orders::Orders;
use crate::others::Others;
use crate::parts::Parts;
use crate::relay::Relay;
use crate::session_state::{Ask, SessionState};
use crate::survey::Survey;
use crate::takeover::Takeover;
use crate::timers::Timers;
use crate::wire::{Body, decode, decode_body, encode_body};
use crate::{Answer, Config, Counters, Damage, Effect, Error, Input, Missing, Notice, Setup};

/// Timers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Alarm {
    /// A timer of the protocol for this resource.
    Part(Key, custody::Timer),
    /// Messages about this resource to a host were lost: request another generation, if it is still in this one.
    Recount(Key, u64, PeerId),
    /// The next deadline of a ticket: of its wait, or of its lease.
    Ticket(TicketId),
    /// Query the coordinator about the queue.
    Survey(Key),
    /// Retry a query of `show`.
    Query(u64),
    /// Ask again whether a holder has stopped.
    Revoke(u64),
    /// Query again the parties of a resource that is to be deleted.
    Remove(u64),
    /// Refresh the cluster view.
    Look,
    /// Answer pending `look` calls without the registry.
    Lookers,
    /// Fail a call that the registry has not answered.
    Caller(u64),
    /// Check whether there is still no session.
    Health,
    /// Send acknowledgements.
    Acks,
    /// Probe relayed connections.
    Relay,
    /// Check that the hosts of the next waiters are reachable.
    Waiters,
    /// Close unneeded connections.
    Sweep,
    /// Report that no cluster was found.
    Join,
    /// Give up waiting for the end of the session.
    Leave,
    /// Fail a resume whose grant expires before there is a session.
    Resume(u64),
}

/// Describes a message between nodes, for traces.
pub fn describe(bytes: &[u8]) -> String {
    match decode(bytes, Versions { min: 1, max: u16::MAX }).map(|(frame, _)| frame) {
        Ok(Frame::Data { number, has, body }) => match decode_body(&body) {
            Ok(Body::Part { resource, message }) => format!("data {number}, has {has}: {resource} {message}"),
            body => format!("data {number}, has {has}: {body:?}"),
        },
        Ok(Frame::Loose { body }) => match decode_body(&body) {
            Ok(Body::Registry(registry_message)) => format!("registry message of {} bytes", registry_message.len()),
            Ok(Body::Relay { from, to, packet: Packet { number, segment: Segment::Data(at, bytes), .. } }) => {
                format!("relay({from} to {to}, {number}, #{at}: {})", describe(&bytes))
            }
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
    /// Everything else: greetings, acknowledgements, queries, relayed packets.
    Link,
}

/// Returns the purpose of a message.
pub fn purpose(bytes: &[u8]) -> Purpose {
    match decode(bytes, Versions { min: 1, max: u16::MAX }) {
        // The first byte is the index of the variant in `Body`, so the rest need not be decoded.
        Ok((Frame::Data { body, .. } | Frame::Loose { body }, _)) => match body.first() {
            Some(0) => Purpose::Resource,
            Some(1) => Purpose::Registry,
            _ => Purpose::Link,
        },
        _ => Purpose::Link,
    }
}

/// Returns whether this message is a reason to keep a connection. Relayed connections keep themselves alive.
fn keeps_link(body: &Body) -> bool {
    !matches!(body, Body::Greeting { .. } | Body::Relay { .. } | Body::Idle | Body::Seek)
}

/// One peer with all its clients. See the [crate](crate).
pub struct Node {
    config: Config,
    rng: Rng,
    now: Time,
    timers: Timers<Alarm>,
    /// When to check the registry and the session next, unless a step does so before.
    attend_at: Option<Time>,
    clients: Clients,
    parts: Parts,
    survey: Survey,
    takeover: Takeover,
    orders: Orders,
    membership: Membership,
    contacts: Contacts,
    relay: Relay,
    founding: Founding,
    session_state: SessionState,
    cached_view: CachedView,
    detached: Detached,
    incidents: Incidents,
    others: Others,
    /// Unhandled events about hosts. Empty between steps.
    update: Vec<Update>,
    phase: Phase,
    draining: Draining,
    counters: Counters,
    effects: Vec<Effect>,
    /// Steps since the last complete check.
    unchecked: usize,
}

/// The phase of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// There was no session yet.
    Joining,
    Joined,
    Leaving,
    Left,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Draining {
    No,
    /// No more requests are accepted.
    Yes,
    /// The last client has ended.
    Done,
}

impl Node {
    /// Creates a peer of this host that listens at these addresses. [`Input::Start`] must follow.
    ///
    /// # Errors
    /// If the voter's file is damaged or of another version. Nothing was changed.
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
            relay: Relay::new(),
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

    /// Handles one input. Appends the effects to `out`, takeover records first. `now` must be read after the input was
    /// received, from a clock that counts suspended time.
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
            Input::Resume { call, name, note } => self.resume(call, name, note),
            Input::GiveUp { call } => self.resume_no_more(call),
            Input::Show { call, name } => self.show(call, name),
            Input::Look { call } => self.look_for(call),
            Input::List { call, listing } => self.list(call, &listing),
            Input::Resize { call, name, slots } => self.resize(call, name, slots),
            Input::Remove { call, name } => self.remove(call, name),
            Input::Expel { call, name, peer } => self.expel(call, name, peer),
            Input::Revoke { call, name, peer, fencing } => self.revoke(call, name, peer, fencing),
            Input::SetVoters { call, hosts } => self.set_voters(call, hosts),
            Input::Forget { call, host } => self.forget_member(call, host),
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

    fn host(&self) -> PeerId {
        self.membership.host()
    }

    fn wake(&mut self) {
        while let Some(alarm) = self.timers.due(self.now) {
            match alarm {
                Alarm::Part(resource, timer) => self.part_step(resource, peerlock_protocol::Input::Timer(timer)),
                Alarm::Recount(resource, generation, host) => self.on_recount_alarm(resource, generation, host),
                Alarm::Ticket(ticket) => self.on_ticket_alarm(ticket),
                Alarm::Survey(resource) => self.ask_for_line(resource),
                Alarm::Query(number) => self.on_query_alarm(number),
                Alarm::Revoke(call) => self.on_revoke_alarm(call),
                Alarm::Remove(call) => self.on_remove_alarm(call),
                Alarm::Look => self.look_at_cluster(),
                Alarm::Lookers => self.answer_lookers(),
                Alarm::Caller(call) => self.give_up_register(call),
                Alarm::Health => self.on_health_alarm(),
                Alarm::Acks => self.contacts.ack_all(),
                Alarm::Relay => self.look_after_relays(),
                Alarm::Waiters => self.probe_waiters(),
                Alarm::Sweep => self.sweep(),
                Alarm::Join => self.effects.push(Effect::NotJoined),
                Alarm::Leave => self.left(self.session_state.has_left()),
                Alarm::Resume(call) => self.on_resume_alarm(call),
            }
        }
    }

    /// Handles what this step has caused: events about hosts, and outputs of the registry.
    fn settle(&mut self) {
        loop {
            let mut update = take(&mut self.update);
            update.drain(..).for_each(|update| self.on_update(update));
            if self.update.is_empty() {
                self.update = update; // Reuses the allocation.
            }
            self.attend();
            self.detour();
            if self.update.is_empty() {
                break;
            }
        }
        if self.contacts.wants_acks() {
            self.timers.set_if_none(Alarm::Acks, self.now + cluster::ACK_AFTER);
        }
        if self.draining == Draining::Yes && !self.has_clients() {
            self.draining = Draining::Done;
            self.effects.push(Effect::Drained);
        }
        self.attend_at = self.session_state.next().filter(|_| self.phase != Phase::Left);
    }

    /// Asserts the invariants between steps. Most are checked in debug builds only, and rarely enough that the cost per
    /// step does not depend on the number of tickets, resources and hosts.
    fn check(&mut self) {
        assert!(self.update.is_empty(), "events of a step are handled in that step");
        let bound = self.session_state.bound();
        assert!(bound.is_none_or(|bound| self.now < bound.until), "the session in use is over");
        assert!(bound.is_some() || self.parts.is_empty(), "there are parts without a session");
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
        self.cached_view.check(is_set(Alarm::Lookers));
        self.contacts.check(|host, epoch| self.relay.is_up(host, epoch));
        self.relay.check();
        self.founding.check(|host| host == self.host() || self.contacts.is_connected(host));
        self.orders.check(|call| is_set(Alarm::Revoke(call)), |call| is_set(Alarm::Remove(call)));
        for (resource, name, _, waiting) in self.clients.resources().filter(|(.., waiting)| *waiting > 0) {
            assert!(
                self.timers.is_set(&Alarm::Survey(resource)),
                "{waiting} requests wait for {name} without a query timer"
            );
        }
        let asks = bound.is_none() || self.clients.without_alias().next().is_none();
        assert!(asks, "every waiting ticket is requested from the protocol");
        assert!(self.detached.orphans() == 0 || bound.is_none(), "grants without an owner are dropped in a session");
        for (resource, fencing, alias) in self.detached.ending() {
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

    fn answer(&mut self, call: u64, answer: Result<Answer, Error>) {
        self.effects.push(Effect::Answer { call, answer });
    }

    fn unexpected(&mut self, why: &'static str) {
        self.notice(Notice::Unexpected(why));
    }

    fn notice(&mut self, notice: Notice) {
        match notice {
            Notice::Malformed(_) => self.counters.malformed += 1,
            Notice::Unexpected(_) => self.counters.unexpected += 1,
            _ => {}
        }
        self.effects.push(Effect::Notice(notice));
    }

    fn on_body(&mut self, from: PeerId, bytes: &[u8]) {
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
            Body::Relay { from: origin, to, packet } => self.on_relayed(from, origin, to, packet),
            Body::Idle => self.on_idle(from),
            Body::Seek => self.on_seek(from),
            Body::Probe => {} // The link acknowledges it.
        }
    }

    /// Sends a reliable message.
    fn send_body(&mut self, to: PeerId, body: &Body) {
        let is_connected = self.contacts.send(to, encode_body(body), self.now, &mut self.update);
        self.contacts.use_now(to, self.now);
        if !is_connected {
            self.reach(to);
        }
        self.relay_for(to);
    }

    /// Sends an unreliable message.
    fn mention(&mut self, to: PeerId, body: &Body) {
        // Registry messages are never relayed: a valid session implies a direct connection to the leader.
        let by_any_way = matches!(body, Body::Ask { .. } | Body::Reply { .. });
        if keeps_link(body) {
            self.contacts.use_now(to, self.now);
        }
        self.contacts.send_loose(to, encode_body(body), by_any_way);
    }

    fn mention_to_all(&mut self, body: &Body) {
        let hosts: Vec<PeerId> = self.contacts.open().map(|(host, _)| host).collect();
        hosts.into_iter().for_each(|host| self.mention(host, body));
    }

    /// Returns the display name of a host: its name, address or number, whichever is known first.
    pub fn called(&self, host: PeerId) -> String {
        Some(self.name_of(host)).filter(|name| !name.is_empty()).unwrap_or_else(|| host.to_string())
    }

    /// Returns the registered name of a host, if it is a known member.
    pub fn name(&self, host: PeerId) -> Option<String> {
        self.info_of(host).map(|info| info.name.to_string())
    }

    /// Returns the name or the address of a host; empty if both are unknown.
    fn name_of(&self, host: PeerId) -> String {
        self.name(host).or_else(|| Some(self.contacts.get(host)?.address.clone())).unwrap_or_default()
    }

    /// Describes an awaited host: since when it is disconnected, or since `asked` if it is connected.
    fn missing(&self, peer: PeerId, asked: Time) -> Missing {
        let absent = self.contacts.get(peer).filter(|contact| contact.epoch.is_none());
        let since = absent.map_or(asked, |contact| contact.since);
        Missing { peer, name: self.name_of(peer), since: self.now.since(since).into(), ends: None }
    }

    /// Describes an awaited party. If it is disconnected, `ends` is the time after which its session has expired at the
    /// latest; an election is included, since the disconnected host may have been the registry leader.
    fn missing_party(&self, peer: PeerId, asked: Time) -> Missing {
        let missing = self.missing(peer, asked);
        let last = self.cached_view.sessions_of(peer).next_back();
        let ttl = last.map_or(self.session_state.ttl(), |(_, ttl)| ttl.span());
        let registry = self.config.registry;
        let ends = patience(ttl, registry.slack) + registry.tick * (2 * registry.election_ticks as u64);
        let is_away = self.contacts.get(peer).is_none_or(|contact| contact.epoch.is_none());
        Missing { ends: is_away.then(|| Duration::from(ends).saturating_sub(missing.since)), ..missing }
    }
}

#[cfg(test)]
mod tests;
