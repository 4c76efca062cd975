//! The node itself: its door, what it is put together from, and what must always be true of it.

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

/// The names of the alarms.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Alarm {
    /// Of our part in this resource.
    Part(Key, custody::Timer),
    /// Messages about this resource to a host are lost: if it is still of this generation, it is counted anew.
    Recount(Key, u64, PeerId),
    /// Whatever is next for this ticket: the end of its wait, or of its lease.
    Ticket(TicketId),
    /// Time to ask for the line.
    Survey(Key),
    /// A question of `show` was not answered.
    Query(u64),
    /// Time to ask again whether a holder has stopped.
    Revoke(u64),
    /// Time to look again who takes part in what is to be removed.
    Remove(u64),
    /// Time to look who the members are.
    Look,
    /// Nobody has answered those who wait to see the cluster.
    Lookers,
    /// The register has not answered this call.
    Caller(u64),
    /// There is still no session.
    Health,
    /// Tell the others what we have of theirs.
    Acks,
    /// Connections by way of other hosts are to be looked after.
    Relay,
    /// Time to look whether the hosts of those who come next can be reached.
    Waiters,
    /// Time to look which links nobody needs.
    Sweep,
    /// We still know no cluster.
    Join,
    /// We are still not out.
    Leave,
    /// A client that wants to go on with its grant has waited for a session until its end.
    Resume(u64),
}

/// What bytes between two nodes say, for a trace.
pub fn describe(bytes: &[u8]) -> String {
    match decode(bytes, Versions { min: 1, max: u16::MAX }).map(|(frame, _)| frame) {
        Ok(Frame::Data { number, has, body }) => match decode_body(&body) {
            Ok(Body::Part { resource, message }) => format!("data {number}, has {has}: {resource} {message}"),
            body => format!("data {number}, has {has}: {body:?}"),
        },
        Ok(Frame::Loose { body }) => match decode_body(&body) {
            Ok(Body::Registry(registry_message)) => format!("a letter of {} bytes", registry_message.len()),
            Ok(Body::Relay { from, to, packet: Packet { number, segment: Segment::Data(at, bytes), .. } }) => {
                format!("relay({from} to {to}, {number}, #{at}: {})", describe(&bytes))
            }
            body => format!("{body:?}"),
        },
        Ok(frame) => format!("{frame:?}"),
        Err(malformed) => format!("{malformed:?}"),
    }
}

/// What bytes between two nodes are for, where messages are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The parts of a resource talk: requests, tokens, and who is where.
    Resource,
    /// About the register: sessions and their renewal, votes, entries.
    Registry,
    /// The link itself: greetings, confirmations, questions of people, and what is passed on for others.
    Link,
}

/// What these bytes are for.
pub fn purpose(bytes: &[u8]) -> Purpose {
    match decode(bytes, Versions { min: 1, max: u16::MAX }) {
        // By the place of its kind in `Body`, which is the first byte: all else need not be read for that.
        Ok((Frame::Data { body, .. } | Frame::Loose { body }, _)) => match body.first() {
            Some(0) => Purpose::Resource,
            Some(1) => Purpose::Registry,
            _ => Purpose::Link,
        },
        _ => Purpose::Link,
    }
}

/// Whether somebody needs a link on which this is said. What goes by way of it between others keeps itself up.
fn keeps_link(body: &Body) -> bool {
    !matches!(body, Body::Greeting { .. } | Body::Relay { .. } | Body::Idle | Body::Seek)
}

/// One peer with all its clients.
pub struct Node {
    config: Config,
    rng: Rng,
    now: Time,
    timers: Timers<Alarm>,
    /// When to be woken to look at the register and our session, unless another step does so before.
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
    /// What was heard of hosts and is not dealt with yet. Empty between steps.
    update: Vec<Update>,
    phase: Phase,
    draining: Draining,
    counters: Counters,
    effects: Vec<Effect>,
    /// Steps since everything was looked over.
    unchecked: usize,
}

/// How far a peer has come.
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
    /// No more clients are taken.
    Yes,
    /// And the last of them has gone.
    Done,
}

impl Node {
    /// A peer of this host that listens there and knows nobody. [`Input::Start`] comes next.
    ///
    /// # Errors
    /// If it has a voter's file and that is damaged, or of another version. Nothing was changed.
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

    /// Hands one input to the node. What it wants done is appended to `out`, what others wait for first. `now` is read
    /// after the input was taken up, from a clock that counts while the machine sleeps.
    pub fn step(&mut self, input: Input, now: Time, out: &mut Vec<Effect>) {
        assert!(now >= self.now, "time does not go back");
        self.now = now;
        // A session whose time has passed stops before anything else is done, whatever has woken us.
        self.attend();
        // And so are leases that have ended meanwhile: a machine that has slept must not renew one by what comes first.
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

    /// When to be woken.
    pub fn next_wake(&self) -> Option<Time> {
        self.timers.next().into_iter().chain(self.attend_at).min()
    }

    /// The grant of a ticket and until when it stands, if it has one.
    pub fn grant(&self, ticket: TicketId) -> Option<(Grant, Time)> {
        self.clients.granted(ticket)
    }

    /// Returns whether this process has founded the cluster.
    pub fn has_founded(&self, cluster: ClusterId) -> bool {
        self.session_state.has_founded(cluster)
    }

    /// Returns whether a host has answered at an address that was to be joined.
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

    /// Does what has come up in this step: news of hosts, and what the register says.
    fn settle(&mut self) {
        loop {
            let mut update = take(&mut self.update);
            update.drain(..).for_each(|update| self.on_update(update));
            if self.update.is_empty() {
                self.update = update; // With the room that it has.
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

    /// What must be true between steps. Where nobody counts the time, everything is looked over once in an eighth as
    /// many steps as there are tickets, resources and hosts, so that it costs the same whatever their number.
    fn check(&mut self) {
        assert!(self.update.is_empty(), "what comes up in a step is dealt with in that step");
        let bound = self.session_state.bound();
        assert!(bound.is_none_or(|bound| self.now < bound.until), "the session is over, and still used");
        assert!(bound.is_some() || self.parts.is_empty(), "without a session this process takes part in nothing");
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
                "{waiting} wait for {name}, and nobody asks how long"
            );
        }
        let asks = bound.is_none() || self.clients.without_alias().next().is_none();
        assert!(asks, "somebody waits, and the protocol was not asked");
        assert!(self.detached.orphans() == 0 || bound.is_none(), "a grant that nobody has is still in the register");
        for (resource, fencing, alias) in self.detached.ending() {
            let part = self.parts.get(resource).expect("nothing ends in the register of what we do not take part in");
            let is_here = part.custody.held().any(|(_, user)| user == Some(alias));
            assert!(is_here, "grant {fencing} of {} is ending, and its slot is not here", part.name);
            let ask = |session| Ask::DropDetached(session, part.name.clone(), fencing);
            let is_asked =
                self.session_state.session().is_some_and(|session| self.session_state.is_asking(&ask(session)));
            assert!(is_asked, "grant {fencing} of {} is ending, and nobody tells the register", part.name);
        }
        match self.phase {
            Phase::Leaving => {
                assert!(self.timers.is_set(&Alarm::Leave), "we are not out, and do not try any more");
                assert!(self.clients.is_empty(), "nobody is served by a peer that leaves");
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
            Body::Probe => {} // The link confirms it.
        }
    }

    /// Says something that must arrive.
    fn send_body(&mut self, to: PeerId, body: &Body) {
        let is_connected = self.contacts.send(to, encode_body(body), self.now, &mut self.update);
        self.contacts.use_now(to, self.now);
        if !is_connected {
            self.reach(to);
        }
        self.relay_for(to);
    }

    /// Says something that may get lost.
    fn mention(&mut self, to: PeerId, body: &Body) {
        // A session is renewed over a connection, or ends: that is why everybody reaches the leader who has one.
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

    /// What people call a host: its name, its address if no more is known of it, and its number if nothing is.
    pub fn called(&self, host: PeerId) -> String {
        Some(self.name_of(host)).filter(|name| !name.is_empty()).unwrap_or_else(|| host.to_string())
    }

    /// What a host calls itself, if it is known to be a member.
    pub fn name(&self, host: PeerId) -> Option<String> {
        self.info_of(host).map(|info| info.name.to_string())
    }

    /// What people call a host; empty if nothing is known of it.
    fn name_of(&self, host: PeerId) -> String {
        self.name(host).or_else(|| Some(self.contacts.get(host)?.address.clone())).unwrap_or_default()
    }

    /// A host that is waited for, and since when it has not been connected; a connected one since `asked`.
    fn missing(&self, peer: PeerId, asked: Time) -> Missing {
        let absent = self.contacts.get(peer).filter(|contact| contact.epoch.is_none());
        let since = absent.map_or(asked, |contact| contact.since);
        Missing { peer, name: self.name_of(peer), since: self.now.since(since).into(), ends: None }
    }

    /// A party that is waited for; and for how long at most, if it is away: no session was renewed since then. The
    /// register's leader may have been there, too.
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
