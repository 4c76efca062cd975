//! One peer with all its clients, without I/O: what happened goes in with the time, what is to be done comes out.
//!
//! ```text
//!   clients:  acquire, release, renew, …  ┐            ┌ Granted, Ended, Lost, …
//!   transport: up, down, bytes            ├─► Engine ──┤ Net(send), Dial
//!   clock:    wake                        ┘            └ Event, Shown, …
//!
//!   tickets.rs  the clients: tickets, sessions, leases
//!   founding.rs which resources there are
//!   ask.rs      who waits and where the tokens are: places in line, `show`, and what has come to a standstill
//!   inspect.rs  what we know by ourselves, for whoever watches
//!   here        the other peers, the overlay, leaving
//! ```

mod ask;
mod founding;
mod inspect;
mod tickets;

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::time::Duration;

use peerlock_base::{Key, PeerId, Rng, Span, Ticket, Time};
use peerlock_mutex::fair_k_late;
use peerlock_mutex::founded::{self, Charter};
use peerlock_mutex::token::Claim;
use peerlock_mutex::{FairKLate, Never};
use peerlock_overlay::{self as overlay, Node, Overlay as _, UNKNOWN};
use peerlock_peer::{Cx, Effect, Input, Peer, Resources, Room, Wire};

use self::ask::Query;
use self::founding::Founding;
use self::tickets::Entry;
pub use self::tickets::{SessionId, TicketId, Wait, Wanted};
use crate::contacts::{self, Contacts, Host, News};
use crate::health::Health;
use crate::net::from_here;
use crate::register::Memory;
use crate::timers::Timers;
use crate::wire::{Body, Overlay, Protocol, decode_body, encode_body};
use crate::{Config, Counters, Error, Event, Name, PeerView, Progress, ResourceDetails};

/// What the driver is to do.
#[derive(Clone, Debug)]
pub enum Out {
    /// Send, or hang up.
    Net(contacts::Out),
    /// Connect to whoever listens there.
    Dial(String),
    /// We are in the overlay.
    Joined,
    /// Nobody was there to join.
    NotJoined,
    /// A ticket holds a slot, until then unless its lease is renewed.
    Granted(TicketId, Time),
    /// Its lease was renewed, until then.
    Renewed(TicketId, Time),
    /// It must stop.
    Lost(TicketId),
    /// It will not be granted, or is not any more.
    Ended(TicketId, Error),
    /// Its place in line.
    Progress(TicketId, Progress),
    /// The answer to [`Engine::show`].
    Shown(u64, Result<ResourceDetails, Error>),
    /// Nothing is left of a ticket.
    Finished(TicketId),
    /// For whoever watches.
    Event(Event),
    /// We have left, and everybody knows.
    Left,
}

/// The names of the alarms.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Alarm {
    Peer(peerlock_peer::Timer<Never>),
    /// Whatever is next for this ticket: its wait or its lease.
    Ticket(TicketId),
    /// An attempt to found this resource has taken too long.
    Found(Key),
    /// Time to ask for the line.
    Survey(Key),
    /// A question of `show` was not answered.
    Query(u64),
    /// This host is still not there.
    Absent(Host),
    /// Tell the others what we have of theirs.
    Acks,
    /// We are still not in the overlay.
    Join,
    /// We are still not out.
    Leave,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// On the way in since then; the second is whether somebody was found to join through.
    Joining(Time, bool),
    Joined,
    Leaving(Time, Option<PeerId>),
    Left,
}

/// How a peer begins its part in a resource.
struct Opener;

impl Resources<Protocol> for Opener {
    fn open(&self, _me: PeerId, _resource: Key) -> Option<Protocol> {
        Some(Protocol::default())
    }
}

/// A resource that clients here have asked for.
struct Resource {
    name: Name,
    waiting: BTreeSet<TicketId>,
    holding: BTreeSet<TicketId>,
    health: Health,
    /// The last question that was asked about it.
    question: u64,
}

/// So many addresses are told, and dialled.
const MOST_ADDRESSES: usize = 1024;
/// So many resources are told at once.
const MOST_CHARTERS: usize = 100;
/// How long a confirmation waits for a message to go with.
const ACK_AFTER: Span = Span::from_millis(20);
/// How often we look whether all is handed over.
const LEAVE_CHECK: Span = Span::from_millis(20);

/// When and as which process a peer begins.
#[derive(Clone, Copy, Debug)]
pub struct Birth {
    /// A number that no earlier process of this host has had.
    pub process: u64,
    /// The wall clock at the engine's [`Time::ZERO`], in microseconds since 1970. Fencing numbers begin there: those of a
    /// resource that is founded again, after everybody had stopped, are above all it ever had. That is true as long as
    /// clocks are right within the time for which nobody was there, and slots × grants are fewer than a million a second.
    pub micros: u64,
}

/// One peer with all its clients.
pub struct Engine {
    config: Config,
    birth: Birth,
    rng: Rng,
    now: Time,
    phase: Phase,
    /// No more clients are taken.
    draining: bool,
    me: Host,
    addresses: Vec<String>,
    dialled: BTreeSet<String>,
    contacts: Contacts,
    news: Vec<News>,
    peer: Peer<Overlay, Protocol, Opener>,
    room: Room<Overlay, Protocol>,
    /// Every resource that we know to be founded.
    known: BTreeMap<Key, (Name, Charter)>,
    resources: BTreeMap<Key, Resource>,
    /// What clients here want and is not known to be founded.
    founding: BTreeMap<Key, Founding>,
    /// What we have answered when others wanted to found something.
    memories: BTreeMap<Key, Memory>,
    /// Messages of resources that we are yet to hear of.
    early: BTreeMap<Key, Vec<(PeerId, PeerWire)>>,
    tickets: BTreeMap<TicketId, Entry>,
    claims: BTreeMap<Ticket, TicketId>,
    requests: BTreeMap<(SessionId, Key, String), TicketId>,
    last_claim: Ticket,
    last_ticket: u64,
    queries: BTreeMap<u64, Query>,
    last_question: u64,
    timers: Timers<Alarm>,
    counters: Counters,
    /// What is to be done, in order; for the driver to take out.
    pub out: Vec<Out>,
}

impl Engine {
    /// A peer that knows nobody.
    pub fn new(host: PeerId, addresses: Vec<String>, birth: Birth, config: Config) -> Self {
        let me = Host(host);
        let contacts = Contacts::new(me, birth.process);
        let chord = Overlay::new(Node::of(contacts.me()), overlay::Config::CHORD);
        Self {
            config,
            birth,
            rng: Rng::stream(host.get(), birth.process),
            now: Time::ZERO,
            phase: Phase::Joining(Time::ZERO, false),
            draining: false,
            me,
            dialled: addresses.iter().cloned().collect(),
            addresses,
            contacts,
            news: Vec::new(),
            peer: Peer::new(chord, Opener, peerlock_peer::Config::CONFIRMED),
            room: Room::default(),
            known: BTreeMap::new(),
            resources: BTreeMap::new(),
            founding: BTreeMap::new(),
            memories: BTreeMap::new(),
            early: BTreeMap::new(),
            tickets: BTreeMap::new(),
            claims: BTreeMap::new(),
            requests: BTreeMap::new(),
            last_claim: Ticket::NONE,
            last_ticket: 0,
            queries: BTreeMap::new(),
            last_question: 0,
            timers: Timers::new(),
            counters: Counters::default(),
            out: Vec::new(),
        }
    }

    /// Joins whoever is at these addresses, or begins alone if there are none.
    pub fn start(&mut self, join: &[String], now: Time) {
        self.now = now;
        self.phase = Phase::Joining(now, false);
        if join.is_empty() {
            return self.step(Input::Join(None));
        }
        join.iter().for_each(|address| self.dial(address.clone()));
        self.timers.set(Alarm::Join, now + self.config.join_patience);
    }

    /// How long to stay awake after a message.
    pub fn awake(&self) -> Span {
        self.config.awake
    }

    /// When to be woken.
    pub fn next_wake(&self) -> Option<Time> {
        self.timers.next()
    }

    /// The time has come.
    pub fn wake(&mut self, now: Time) {
        self.now = now;
        while let Some(alarm) = self.timers.due(now) {
            match alarm {
                Alarm::Peer(timer) => self.step(Input::Timer(timer)),
                Alarm::Ticket(ticket) => self.on_ticket_alarm(ticket),
                Alarm::Found(resource) => self.on_founding_alarm(resource),
                Alarm::Survey(resource) => self.survey(resource),
                Alarm::Query(number) => self.on_query_alarm(number),
                Alarm::Absent(host) => self.on_absent(host),
                Alarm::Acks => self.contacts.ack_all(),
                Alarm::Join => self.on_join_alarm(),
                Alarm::Leave => self.on_leave_alarm(),
            }
        }
        self.settle();
    }

    /// A connection begins.
    pub fn on_up(&mut self, host: PeerId, epoch: u64, address: String, now: Time) {
        self.now = now;
        self.dialled.insert(address.clone());
        self.timers.cancel(&Alarm::Absent(Host(host)));
        self.contacts.up(Host(host), epoch, address, now);
        self.settle();
    }

    /// A connection has ended.
    pub fn on_down(&mut self, host: PeerId, epoch: u64, why: String, now: Time) {
        self.now = now;
        if self.contacts.down(Host(host), epoch, now) {
            self.timers.set(Alarm::Absent(Host(host)), now + self.config.suspect);
            self.out.push(Out::Event(Event::PeerDown { peer: host, why }));
        }
        self.settle();
    }

    /// Nobody could be reached at an address.
    pub fn on_unreached(&mut self, address: String, why: String) {
        self.out.push(Out::Event(Event::Unreached { address, why }));
    }

    /// Bytes arrived.
    pub fn on_bytes(&mut self, from: PeerId, epoch: u64, bytes: &[u8], now: Time) {
        self.now = now;
        self.counters.received += 1;
        if self.phase != Phase::Left {
            self.contacts.on_bytes(Host(from), epoch, bytes, &mut self.news);
            self.settle();
        }
    }

    /// What this peer has counted.
    pub fn counters(&self) -> Counters {
        let holding = self.tickets.values().filter(|entry| entry.is_held()).count() as u64;
        Counters { holding, waiting: self.tickets.len() as u64 - holding, ..self.counters }
    }

    /// Everybody whom this peer knows, itself first.
    pub fn peers(&self) -> Vec<PeerView> {
        let address = self.addresses.first().cloned().unwrap_or_default();
        let since = duration(self.now.since(Time::ZERO));
        let me = PeerView { peer: self.me.0, address, up: true, since, is_me: true };
        let others = self.contacts.all().map(|(host, contact)| PeerView {
            peer: host.0,
            address: contact.address.clone(),
            up: contact.is_open(),
            since: duration(self.now.since(contact.since)),
            is_me: false,
        });
        std::iter::once(me).chain(others).collect()
    }

    /// Does what has come up meanwhile, and hands on what the contacts want done.
    fn settle(&mut self) {
        while !self.news.is_empty() {
            for news in take(&mut self.news) {
                self.on_news(news);
            }
        }
        if self.contacts.wants_acks() {
            self.timers.set_if_none(Alarm::Acks, self.now + ACK_AFTER);
        }
        let sent = self.contacts.out.iter().filter(|out| matches!(out, contacts::Out::Send(..))).count();
        self.counters.sent += sent as u64;
        self.out.extend(self.contacts.out.drain(..).map(Out::Net));
    }

    fn on_news(&mut self, news: News) {
        match news {
            News::Met(member) => self.on_met(member),
            News::Gone(member, heir, unsent) => {
                self.on_departed(member, heir);
                self.take_back(unsent);
            }
            News::Said(from, bytes) => match decode_body(&bytes) {
                Ok(body) => self.on_body(from, body),
                Err(_) => self.counters.malformed += 1,
            },
            News::Malformed(how) => {
                self.counters.malformed += 1;
                tracing::warn!(?how, "a malformed frame");
            }
            News::Strange(why) => self.strange(why),
        }
    }

    fn strange(&mut self, why: &'static str) {
        self.counters.strange += 1;
        tracing::warn!(why, "a strange message");
    }

    fn on_body(&mut self, from: PeerId, body: Body) {
        match body {
            Body::Peer(wire) => self.on_wire(from, wire),
            Body::Greeting { joined, addresses, departed } => self.on_greeting(from, joined, addresses, departed),
            Body::Charters(charters) => charters.into_iter().for_each(|(name, charter)| self.learn(name, charter)),
            Body::Ask { asker, number, hops, question } => self.on_ask(asker, number, hops, question),
            Body::Answer { number, answer } => self.on_answer(from, number, answer),
            Body::Leaving { heir } => self.on_leaving(from, heir),
            Body::Bye { heir } => self.on_bye(from, heir),
        }
    }

    /// Says something that must arrive.
    fn tell(&mut self, to: PeerId, body: &Body) {
        self.contacts.send(to, encode_body(body), &mut self.news);
    }

    /// Says something that may get lost.
    fn mention(&mut self, to: PeerId, body: &Body) {
        self.contacts.send_loose(to, encode_body(body));
    }

    fn mention_to_all(&mut self, body: &Body) {
        let bytes = encode_body(body);
        let all: Vec<PeerId> = self.contacts.open().map(|(member, _)| member).collect();
        all.into_iter().for_each(|member| self.contacts.send_loose(member, bytes.clone()));
    }

    // Other peers.

    fn dial(&mut self, address: String) {
        if self.dialled.len() < MOST_ADDRESSES && self.dialled.insert(address.clone()) {
            self.out.push(Out::Dial(address));
        }
    }

    fn on_met(&mut self, member: PeerId) {
        if let (Some(host), Some(contact)) = (self.contacts.host(member), self.contacts.of(member)) {
            let address = contact.address.clone();
            self.out.push(Out::Event(Event::PeerUp { peer: host.0, address }));
        }
        let greeting = self.greeting();
        self.mention(member, &greeting);
        let known: Vec<_> = self.known.values().cloned().collect();
        for some in known.chunks(MOST_CHARTERS) {
            self.mention(member, &Body::Charters(some.to_vec()));
        }
        if let Phase::Leaving(_, heir) = self.phase {
            self.mention(member, &Body::Leaving { heir });
        }
        self.ask_for_pending();
    }

    fn greeting(&self) -> Body {
        let addresses = self.contacts.all().filter(|(_, contact)| contact.is_open());
        let addresses = addresses.map(|(_, contact)| contact.address.clone()).take(MOST_ADDRESSES).collect();
        Body::Greeting { joined: self.phase == Phase::Joined, addresses, departed: self.contacts.departed().collect() }
    }

    fn on_greeting(&mut self, from: PeerId, joined: bool, addresses: Vec<String>, departed: Vec<(PeerId, PeerId)>) {
        let teller = self.contacts.of(from).map(|contact| contact.address.clone()).unwrap_or_default();
        addresses.iter().for_each(|address| self.dial(from_here(address, &teller)));
        departed.into_iter().for_each(|(gone, heir)| self.contacts.depart(gone, heir, &mut self.news));
        if let Some(contact) = self.contacts.of(from) {
            contact.joined = joined;
        }
        match self.phase {
            Phase::Joining(since, false) if joined => {
                self.phase = Phase::Joining(since, true);
                self.step(Input::Join(Some(from)));
            }
            // If the network had fallen apart, this is how the two sides grow together again.
            Phase::Joined if joined => self.step(Input::Join(Some(from))),
            Phase::Joining(..) | Phase::Joined | Phase::Leaving(..) | Phase::Left => {}
        }
    }

    /// Nobody was in the overlay yet. If everybody waits for the others, the first of them begins.
    fn on_join_alarm(&mut self) {
        let Phase::Joining(since, found) = self.phase else { return };
        if self.now.since(since) >= self.config.join_timeout {
            return self.out.push(Out::NotJoined);
        }
        let me = self.contacts.me();
        let is_after_me = |(member, contact): (PeerId, &contacts::Contact)| !contact.joined && me < member;
        if !found && self.contacts.open().count() > 0 && self.contacts.open().all(is_after_me) {
            return self.step(Input::Join(None));
        }
        self.timers.set(Alarm::Join, self.now + self.config.join_patience);
    }

    /// A host has not come back: first it is routed around, then its clients lose their places, then it is forgotten.
    fn on_absent(&mut self, host: Host) {
        let found = self.contacts.all().find(|(known, contact)| *known == host && contact.epoch.is_none());
        let found = found.map(|(_, contact)| (contact.since, contact.member, contact.leaving));
        let Some((since, member, leaving)) = found else { return };
        let Config { suspect, gone, forget, .. } = self.config;
        let next = match self.now.since(since) {
            away if away >= forget => return self.contacts.forget(host),
            away if away >= gone => {
                if let Some(member) = member {
                    self.step(Input::PeerDown(member));
                    let unsent = self.contacts.take_unsent(member);
                    self.take_back(unsent);
                }
                forget
            }
            _ if leaving.is_some() => {
                self.contacts.remove(host);
                return member.into_iter().for_each(|member| self.on_departed(member, leaving.flatten()));
            }
            _ => {
                member.into_iter().for_each(|member| self.step(Input::Unreachable(member)));
                gone.max(suspect)
            }
        };
        self.timers.set(Alarm::Absent(host), since + next);
    }

    // Leaving.

    /// Hands over what we have for the others and says goodbye; [`Out::Left`] when that is done. Clients here lose what
    /// they have.
    pub fn leave(&mut self, now: Time) {
        self.now = now;
        if matches!(self.phase, Phase::Leaving(..) | Phase::Left) {
            return;
        }
        self.phase = Phase::Leaving(now, None);
        let tickets: Vec<TicketId> = self.tickets.keys().copied().collect();
        tickets.into_iter().for_each(|ticket| self.end(ticket, Error::Stopped));
        self.hand_over();
        self.step(Input::Leave);
        self.timers.set(Alarm::Leave, now + LEAVE_CHECK);
        self.settle();
    }

    /// Whoever stays gets what we have.
    fn hand_over(&mut self) {
        let Phase::Leaving(since, _) = self.phase else { return };
        let heir = self.contacts.open().find(|(_, contact)| contact.leaving.is_none()).map(|(member, _)| member);
        self.phase = Phase::Leaving(since, heir);
        self.mention_to_all(&Body::Leaving { heir });
        self.step(Input::Retire { heir });
    }

    fn on_leaving(&mut self, from: PeerId, heir: Option<PeerId>) {
        if let Some(contact) = self.contacts.of(from) {
            contact.leaving = Some(heir);
        }
        if matches!(self.phase, Phase::Leaving(_, Some(heir)) if heir == from) {
            self.hand_over();
        }
    }

    fn on_leave_alarm(&mut self) {
        let Phase::Leaving(since, heir) = self.phase else { return };
        if self.contacts.kept() > 0 && self.now.since(since) < self.config.leave_patience {
            return self.timers.set(Alarm::Leave, self.now + LEAVE_CHECK);
        }
        self.contacts.ack_all();
        self.mention_to_all(&Body::Bye { heir });
        self.phase = Phase::Left;
        self.settle();
        self.out.push(Out::Left);
    }

    fn on_bye(&mut self, from: PeerId, heir: Option<PeerId>) {
        let host = self.contacts.host(from);
        let left_over = self.contacts.on_bye(from);
        if let Some(host) = host {
            self.timers.cancel(&Alarm::Absent(host));
            self.out.push(Out::Event(Event::PeerDown { peer: host.0, why: "it has left".to_owned() }));
        }
        self.on_departed(from, heir);
        for bytes in left_over {
            if let (Some(_), Ok(Body::Peer(wire))) = (heir, decode_body(&bytes)) {
                self.send(from, wire);
            }
        }
    }

    /// Tokens that were meant for a member that is gone, and never went out, are ours again: as if it had had them and
    /// passed them on to us. Nothing else of what was meant for it matters to anybody.
    fn take_back(&mut self, unsent: Vec<Vec<u8>>) {
        let me = self.contacts.me();
        for bytes in unsent {
            let Ok(Body::Peer(Wire::Direct { resource, message })) = decode_body(&bytes) else { continue };
            let founded::Message::Inner(fair_k_late::Message::Token { token, stay, role, .. }) = message else {
                continue;
            };
            let to = Claim { peer: me, ticket: Ticket::NONE };
            let news = fair_k_late::News::Left { slot: token.slot, stay, to };
            let token = fair_k_late::Message::Token { to: Ticket::NONE, token, stay: stay + 1, role };
            for message in [fair_k_late::Message::Tell { epoch: 0, news }, token] {
                let wire = Wire::Direct { resource, message: founded::Message::Inner(message) };
                self.on_wire(me, wire);
            }
        }
    }

    /// A member is gone for good. If it has left in good order, its heir has what it had.
    fn on_departed(&mut self, member: PeerId, heir: Option<PeerId>) {
        if let Some(heir) = heir {
            self.contacts.depart(member, heir, &mut self.news);
        }
        self.step(Input::Unreachable(member));
        self.step(Input::PeerDown(member));
    }

    // The peer below.

    /// Hands one input to the peer below, and does what it wants done.
    fn step(&mut self, input: PeerInput) {
        let mut cx = Cx { now: self.now, rng: &mut self.rng, proximity: UNKNOWN, room: &mut self.room };
        self.peer.step(input, &mut cx);
        let mut effects = take(&mut self.room.effects);
        for effect in effects.drain(..) {
            self.carry_out(effect);
        }
        if self.room.effects.is_empty() {
            self.room.effects = effects; // Made once and used again.
        }
    }

    fn carry_out(&mut self, effect: PeerEffect) {
        match effect {
            Effect::Send { to, wire } => self.send(to, wire),
            Effect::Client { resource, ticket, event } => self.on_client(resource, ticket, event),
            Effect::SetTimer { timer, after } => self.timers.set(Alarm::Peer(timer), self.now + after),
            Effect::CancelTimer { timer } => self.timers.cancel(&Alarm::Peer(timer)),
            Effect::Owns(Some(_)) => {
                if matches!(self.phase, Phase::Joining(..)) {
                    self.phase = Phase::Joined;
                    self.timers.cancel(&Alarm::Join);
                    self.out.push(Out::Joined);
                    let greeting = self.greeting();
                    self.mention_to_all(&greeting);
                    self.ask_for_pending();
                }
            }
            Effect::Owns(None) => {}
            Effect::Undelivered { .. } => self.counters.undelivered += 1,
            Effect::Strange { why } => self.strange(why),
        }
    }

    /// Messages of protocols must arrive; the overlay asks again by itself.
    fn send(&mut self, to: PeerId, wire: PeerWire) {
        let loose = matches!(wire, Wire::Overlay(_) | Wire::Got { .. });
        let heir = self.contacts.heir(to);
        if loose {
            if heir == to {
                self.mention(to, &Body::Peer(wire));
            }
        } else if heir == self.contacts.me() {
            self.on_wire(heir, wire);
        } else {
            self.tell(to, &Body::Peer(wire));
        }
    }

    // Resources.

    /// The protocol of a resource, once its charter is known here.
    fn protocol(&self, resource: Key) -> Option<&FairKLate> {
        self.peer.protocol(resource)?.protocol()
    }
}

type PeerInput = Input<
    <Overlay as peerlock_overlay::Overlay>::Message,
    <Protocol as peerlock_mutex::Protocol>::Message,
    <Protocol as peerlock_mutex::Protocol>::Timer,
>;
type PeerEffect = Effect<
    <Overlay as peerlock_overlay::Overlay>::Message,
    <Protocol as peerlock_mutex::Protocol>::Message,
    <Protocol as peerlock_mutex::Protocol>::Timer,
>;
type PeerWire = Wire<<Overlay as peerlock_overlay::Overlay>::Message, <Protocol as peerlock_mutex::Protocol>::Message>;

fn duration(span: Span) -> Duration {
    Duration::from_nanos(span.as_nanos())
}
