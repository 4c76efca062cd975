//! The node itself: its door, what it is put together from, and what must always be true of it.

mod ask;
mod cluster;
mod found;
mod inspect;
mod serve;

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem::take;

use peerlock_base::{Key, PeerId, Rng, Time};
use peerlock_mutex::{Grant, Protocol};
use peerlock_overlay::{self as overlay, Overlay, UNKNOWN};
use peerlock_peer::{self as peer, Cx, Peer, Room};

use crate::charter::Charters;
use crate::clients::{Clients, SessionId, TicketId, Wanted};
use crate::contacts::{Host, News};
use crate::founding::Founding;
use crate::link::Frame;
use crate::membership::{Membership, Phase};
use crate::sabotage::{Sabotage, makes};
use crate::survey::Survey;
use crate::timers::Timers;
use crate::wire::{Body, decode, decode_body, encode_body};
use crate::{Config, Counters, Error, Event, Guard, Name, Notice, Progress, ResourceDetails, Routing};

/// Everything that can happen to a node.
#[derive(Clone, Debug)]
pub enum Input {
    /// Join whoever is at these addresses, or begin alone if there are none. Comes first, and once. Answered by
    /// [`Effect::Joined`] or [`Effect::NotJoined`].
    Start {
        /// Where to look for peers.
        join: Vec<String>,
    },
    /// Of the network.
    Net(NetEvent),
    /// The time has come that [`Node::next_wake`] told.
    Wake,
    /// A client asks. The same request of the same session for the same resource gets the same ticket, granted or not.
    Acquire {
        /// Whom to answer with [`Answer::Ticket`].
        call: u64,
        /// What it asks for.
        wanted: Wanted,
    },
    /// A client leaves, or does not want to wait any more. Fails if it was inside and its lease has ended, or if there
    /// is no such ticket.
    Release {
        /// Whom to answer with [`Answer::Released`], if anybody.
        call: Option<u64>,
        /// As it was told by [`Answer::Ticket`].
        ticket: TicketId,
    },
    /// A client renews its lease. Fails if that does not stand any more.
    Renew {
        /// Whom to answer with [`Answer::Renewed`].
        call: u64,
        /// As it was told by [`Answer::Ticket`].
        ticket: TicketId,
    },
    /// From now on it is the client that renews the lease of this grant, and its session does not matter.
    Detach(TicketId),
    /// A client has gone, with all that it has.
    EndSession(SessionId),
    /// Somebody wants to see a resource in the whole cluster.
    Show {
        /// Whom to answer with [`Answer::Shown`].
        call: u64,
        /// The resource to show.
        name: Name,
    },
    /// No more clients: those who wait are sent away, and those who are inside must stop. Their leases stand to the end
    /// all the same, for those who do not hear of it. Answered by [`Effect::Drained`].
    Drain,
    /// Hand over what we have for the others and say goodbye. Clients here lose what they have. Answered by
    /// [`Effect::Left`].
    Leave,
}

/// What a network reports. Each connection to a peer is an *epoch*: see `Transport` in `peerlock-service` for what it
/// promises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetEvent {
    /// A connection to this peer begins.
    Up {
        /// The host at the other end.
        peer: PeerId,
        /// The number of this connection among all to that host; later ones have higher numbers.
        epoch: u64,
        /// Where it was reached, or where it says that it listens.
        address: String,
    },
    /// It has ended.
    Down {
        /// The host at the other end.
        peer: PeerId,
        /// The number of the connection.
        epoch: u64,
        /// Why, in words.
        why: String,
    },
    /// Bytes of one `send`.
    Message {
        /// The host that sent them.
        from: PeerId,
        /// The number of the connection.
        epoch: u64,
        /// What was sent.
        bytes: Vec<u8>,
    },
    /// Nobody could be reached where we dialled; it is tried again.
    Unreached {
        /// The address that was dialled.
        address: String,
        /// Why, in words.
        why: String,
    },
}

/// What a node wants done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send bytes on a connection that is up.
    Send {
        /// The host at the other end.
        to: PeerId,
        /// The number of the connection.
        epoch: u64,
        /// What to send.
        bytes: Vec<u8>,
    },
    /// End the connection to this host, for another to begin.
    HangUp(PeerId),
    /// Connect to whoever listens there, and reconnect whenever that ends.
    Dial(String),
    /// We are in the cluster.
    Joined,
    /// Nobody was there to join.
    NotJoined,
    /// To whoever has called.
    Answer {
        /// As it was in the input.
        call: u64,
        /// What is answered.
        answer: Result<Answer, Error>,
    },
    /// A ticket is inside, until then unless its lease is renewed.
    Granted {
        /// As its client was told by [`Answer::Ticket`].
        ticket: TicketId,
        /// When its lease ends.
        until: Time,
    },
    /// Its lease was renewed.
    Renewed {
        /// The ticket whose lease it is.
        ticket: TicketId,
        /// When its lease ends now.
        until: Time,
    },
    /// It must stop.
    Lost(TicketId),
    /// Its place in line.
    Progress(TicketId, Progress),
    /// Nothing is left of a ticket, and why: [`Error::Lost`] if its client has given it back.
    Ended(TicketId, Error),
    /// For whoever watches this peer.
    Event(Event),
    /// For whoever keeps a log.
    Notice(Notice),
    /// After [`Input::Drain`]: nobody is here any more.
    Drained,
    /// After [`Input::Leave`]: everybody knows that we have left.
    Left,
}

/// What is answered to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To [`Input::Acquire`]: the ticket. If it is inside already, nothing else will say so: ask [`Node::grant`].
    Ticket(TicketId),
    /// To [`Input::Release`]: it stood until then.
    Released,
    /// To [`Input::Renew`]: until when it stands.
    Renewed(Time),
    /// To [`Input::Show`].
    Shown(ResourceDetails),
}

/// The names of the alarms.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Alarm<T> {
    /// Of the protocols and their overlay.
    Peer(peer::Timer<T>),
    /// Whatever is next for this ticket: the end of its wait, or of its lease.
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
    /// We are still not in the cluster.
    Join,
    /// We are still not out.
    Leave,
}

/// When and as which process a peer begins. All that is random about a node is here.
#[derive(Clone, Debug)]
pub struct Birth {
    /// A number that no earlier process of this host has had.
    pub process: u64,
    /// The wall clock at the node's [`Time::ZERO`], in microseconds since 1970. Fencing numbers begin there: those of a
    /// resource that is founded again, after everybody had stopped, are above all it ever had. That is true as long as
    /// clocks are right within the time for which nobody was there, and slots × grants are fewer than a million a
    /// second.
    pub micros: u64,
    /// Random numbers of its own.
    pub rng: Rng,
}

type Message<P> = <P as Protocol>::Message;
type Wire<P, O> = peer::Wire<<O as Overlay>::Message, Message<P>>;
type PeerInput<P, O> = peer::Input<<O as Overlay>::Message, Message<P>, <P as Protocol>::Timer>;
type PeerEffect<P, O> = peer::Effect<<O as Overlay>::Message, Message<P>, <P as Protocol>::Timer>;

/// What bytes between two nodes say, for a trace.
pub fn describe<P: Guard, O: Routing>(bytes: &[u8]) -> String {
    match decode(bytes) {
        Ok(Frame::Data { number, has, body }) => match decode_body::<Wire<P, O>>(&body) {
            Ok(body) => format!("data {number}, has {has}: {body:?}"),
            Err(malformed) => format!("data {number}, has {has}: {malformed:?}"),
        },
        Ok(Frame::Loose { body }) => format!("{:?}", decode_body::<Wire<P, O>>(&body)),
        Ok(frame) => format!("{frame:?}"),
        Err(malformed) => format!("{malformed:?}"),
    }
}

/// At most this many messages may a node tell itself in one step, as the heir of others. A protocol that does not come
/// to an end with them has a mistake, which shall cost a resource and not the process.
const MOST_HERE: usize = 10_000;

/// One peer with all its clients.
pub struct Node<P: Guard, O: Routing> {
    config: Config,
    birth: Birth,
    now: Time,
    timers: Timers<Alarm<P::Timer>>,
    clients: Clients,
    founding: Founding<Wire<P, O>>,
    survey: Survey,
    membership: Membership,
    peer: Peer<O, P, Charters>,
    buffers: Room<O, P>,
    /// What was heard of members and is not dealt with yet. Empty between steps.
    news: Vec<News>,
    /// What we have told members that have left, and so ourselves as their heir. Empty between steps.
    here: VecDeque<(PeerId, Wire<P, O>)>,
    draining: Draining,
    counters: Counters,
    effects: Vec<Effect>,
    /// Steps since everything was looked over.
    unchecked: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Draining {
    No,
    /// No more clients are taken.
    Yes,
    /// And the last of them has gone.
    Done,
}

impl<P: Guard, O: Routing> Node<P, O> {
    /// A peer that knows nobody. [`Input::Start`] comes next.
    pub fn new(host: PeerId, addresses: Vec<String>, birth: Birth, config: Config) -> Self {
        let membership = Membership::new(host, addresses, birth.process);
        let overlay = O::new(overlay::Node::of(membership.contacts.me()), overlay::Config::CHORD);
        Self {
            config,
            birth,
            now: Time::ZERO,
            timers: Timers::new(),
            clients: Clients::default(),
            founding: Founding::default(),
            survey: Survey::default(),
            membership,
            peer: Peer::new(overlay, Charters::default(), peer::Config::CONFIRMED),
            buffers: Room::default(),
            news: Vec::new(),
            here: VecDeque::new(),
            draining: Draining::No,
            counters: Counters::default(),
            effects: Vec::new(),
            unchecked: 0,
        }
    }

    /// Hands one input to the node. What it wants done is appended to `out`, what others wait for first.
    pub fn step(&mut self, input: Input, now: Time, out: &mut Vec<Effect>) {
        assert!(now >= self.now, "time does not go back");
        self.now = now;
        match input {
            Input::Start { join } => self.start(join),
            Input::Net(event) => self.on_net(event),
            Input::Wake => self.wake(),
            Input::Acquire { call, wanted } => self.acquire(call, wanted),
            Input::Release { call, ticket } => self.release(call, ticket),
            Input::Renew { call, ticket } => self.renew(call, ticket),
            Input::Detach(ticket) => self.detach(ticket),
            Input::EndSession(session) => {
                let tickets = self.clients.of_session(session);
                tickets.into_iter().for_each(|ticket| self.end(ticket, Error::SessionEnded));
            }
            Input::Show { call, name } => self.show(call, name),
            Input::Drain => self.drain(),
            Input::Leave => self.leave(),
        }
        self.settle();
        self.check();
        let sent = self.membership.contacts.out.iter().filter(|effect| matches!(effect, Effect::Send { .. }));
        self.counters.sent += sent.count() as u64;
        out.append(&mut self.membership.contacts.out);
        out.append(&mut self.effects);
    }

    /// When to be woken.
    pub fn next_wake(&self) -> Option<Time> {
        self.timers.next()
    }

    /// The grant of a ticket and until when it stands, if it has one.
    pub fn grant(&self, ticket: TicketId) -> Option<(Grant, Time)> {
        self.clients.granted(ticket)
    }

    fn wake(&mut self) {
        while let Some(alarm) = self.timers.due(self.now) {
            match alarm {
                Alarm::Peer(timer) => self.peer_step(peer::Input::Timer(timer)),
                Alarm::Ticket(ticket) => self.on_ticket_alarm(ticket),
                Alarm::Found(resource) => self.on_founding_alarm(resource),
                Alarm::Survey(resource) => self.ask_for_line(resource),
                Alarm::Query(number) => self.on_query_alarm(number),
                Alarm::Absent(host) => self.on_absent(host),
                Alarm::Acks => self.membership.contacts.ack_all(),
                Alarm::Join => self.on_join_alarm(),
                Alarm::Leave => self.on_leave_alarm(),
            }
        }
    }

    /// Does what has come up in this step: news of members, and what we have told ourselves as the heir of others. That
    /// is a queue and not a call from within, so that however much it is the stack stays as it is.
    fn settle(&mut self) {
        let mut told = 0;
        loop {
            for news in take(&mut self.news) {
                self.on_news(news);
            }
            match self.here.pop_front() {
                Some((from, peer::Wire::Direct { resource, message })) if told < MOST_HERE => {
                    told += 1;
                    self.on_inherited(from, resource, message);
                }
                Some((_, wire)) if told < MOST_HERE => {
                    told += 1;
                    self.on_wire(self.membership.contacts.me(), wire);
                }
                Some(_) => {
                    self.here.clear();
                    self.strange("a protocol that talks to itself without end");
                }
                None if self.news.is_empty() => break,
                None => {}
            }
        }
        if self.membership.contacts.wants_acks() {
            self.timers.set_if_none(Alarm::Acks, self.now + cluster::ACK_AFTER);
        }
        if self.draining == Draining::Yes && self.clients.is_empty() {
            self.draining = Draining::Done;
            self.effects.push(Effect::Drained);
        }
    }

    /// What must be true between steps. Where nobody counts the time, everything is looked over once in as many steps
    /// as there are tickets, so that it costs the same whatever their number.
    fn check(&mut self) {
        assert!(self.news.is_empty() && self.here.is_empty(), "what comes up in a step is dealt with in that step");
        self.unchecked += 1;
        if cfg!(debug_assertions) && self.unchecked * 8 >= self.clients.len() {
            self.unchecked = 0;
            self.clients.check(|ticket| self.timers.is_set(&Alarm::Ticket(ticket)));
            self.founding.check(|resource| self.peer.resources().get(resource).is_some());
            self.survey.check(|number| self.timers.is_set(&Alarm::Query(number)));
            for (resource, name, _, waiting) in self.clients.resources().filter(|(.., waiting)| *waiting > 0) {
                assert!(
                    self.timers.is_set(&Alarm::Survey(resource)),
                    "{waiting} wait for {name}, and nobody asks how long"
                );
            }
            match self.membership.phase() {
                Phase::Joining { since, .. } => {
                    let asks = *since == Time::ZERO || self.timers.is_set(&Alarm::Join);
                    assert!(asks || self.now == *since, "we are not in, and do not try any more");
                }
                Phase::Leaving(..) => {
                    assert!(self.timers.is_set(&Alarm::Leave), "we are not out, and do not try any more");
                    assert!(self.clients.is_empty(), "nobody is served by a peer that leaves");
                }
                Phase::Joined | Phase::Left => {}
            }
        }
    }

    fn answer(&mut self, call: u64, answer: Result<Answer, Error>) {
        self.effects.push(Effect::Answer { call, answer });
    }

    fn strange(&mut self, why: &'static str) {
        self.notice(Notice::Strange(why));
    }

    fn notice(&mut self, notice: Notice) {
        match notice {
            Notice::Malformed(_) => self.counters.malformed += 1,
            Notice::Strange(_) | Notice::FoundedTwice { .. } => self.counters.strange += 1,
            Notice::Lost { .. } | Notice::Unmet(_) | Notice::Broken { .. } => {}
        }
        self.effects.push(Effect::Notice(notice));
    }

    fn on_body(&mut self, from: PeerId, bytes: &[u8]) {
        let body = match decode_body(bytes) {
            Ok(body) => body,
            Err(malformed) => return self.notice(Notice::Malformed(malformed)),
        };
        match body {
            Body::Peer(wire) => self.on_wire(from, wire),
            Body::Greeting { joined, hosts, departed } => self.on_greeting(from, joined, &hosts, departed),
            Body::Charters(charters) => charters.into_iter().for_each(|(name, charter)| self.learn(name, charter)),
            Body::Ask { asker, number, hops, question } => self.on_ask(asker, number, hops, question),
            Body::Answer { number, answer } => self.on_answer(from, number, answer),
            Body::Leaving { heir } => self.on_leaving(from, heir),
            Body::Bye { heir } => self.on_bye(from, heir),
        }
    }

    /// Says something that must arrive.
    fn tell(&mut self, to: PeerId, body: &Body<Wire<P, O>>) {
        self.membership.contacts.send(to, encode_body(body), &mut self.news);
    }

    /// Says something that may get lost.
    fn mention(&mut self, to: PeerId, body: &Body<Wire<P, O>>) {
        self.membership.contacts.send_loose(to, encode_body(body));
    }

    fn mention_to_all(&mut self, body: &Body<Wire<P, O>>) {
        let bytes = encode_body(body);
        for member in self.membership.contacts.members() {
            self.membership.contacts.send_loose(member, bytes.clone());
        }
    }

    // The protocols.

    /// A message for a protocol or the overlay. If it is of a resource that we are yet to hear of, it waits for that.
    fn on_wire(&mut self, from: PeerId, wire: Wire<P, O>) {
        if let peer::Wire::Direct { resource, .. } | peer::Wire::Routed { resource, .. } = wire
            && self.peer.resources().get(resource).is_none()
        {
            if !self.founding.keep(resource, from, wire) {
                self.strange("more messages of resources than fit before we know of them");
            }
            return;
        }
        self.peer_step(peer::Input::Message { from, wire });
    }

    /// Hands one input to the peer below, and does what it wants done.
    fn peer_step(&mut self, input: PeerInput<P, O>) {
        let mut cx = Cx { now: self.now, rng: &mut self.birth.rng, proximity: UNKNOWN, room: &mut self.buffers };
        self.peer.step(input, &mut cx);
        let mut effects = take(&mut self.buffers.effects);
        for effect in effects.drain(..) {
            self.carry_out(effect);
        }
        if self.buffers.effects.is_empty() {
            self.buffers.effects = effects; // Made once and used again.
        }
    }

    fn carry_out(&mut self, effect: PeerEffect<P, O>) {
        match effect {
            peer::Effect::Send { to, wire } => self.send(to, wire),
            peer::Effect::Client { resource, ticket, event } => self.on_client(resource, ticket, event),
            peer::Effect::SetTimer { timer, after } => self.timers.set(Alarm::Peer(timer), self.now + after),
            peer::Effect::CancelTimer { timer } => self.timers.cancel(&Alarm::Peer(timer)),
            peer::Effect::Owns(Some(_)) => self.on_progress(true, None, false),
            peer::Effect::Owns(None) => {}
            peer::Effect::Undelivered { .. } => self.counters.undelivered += 1,
            peer::Effect::Strange { why } => self.strange(why),
        }
    }

    /// Messages of protocols must arrive, at the member or at its heir; the overlay asks again by itself.
    fn send(&mut self, to: PeerId, wire: Wire<P, O>) {
        let contacts = &self.membership.contacts;
        let heir = contacts.heir(to);
        if matches!(wire, peer::Wire::Overlay(_) | peer::Wire::Got { .. }) {
            if heir == to {
                self.mention(to, &Body::Peer(wire));
            }
        } else if heir == contacts.me() {
            self.here.push_back((to, wire));
        } else {
            self.tell(to, &Body::Peer(wire));
        }
    }

    /// A message of ours to a member that has left, whose heir we are.
    fn on_inherited(&mut self, from: PeerId, resource: Key, message: Message<P>) {
        self.peer_step(peer::Input::Inherited { from, resource, message });
    }

    /// What was meant for a member that is gone, and that it has not acted on. Its heir gets it; without one, it is for
    /// the protocols to decide what is not to get lost.
    fn give_back(&mut self, to: PeerId, bodies: Vec<Vec<u8>>, heir: Option<PeerId>) {
        for bytes in bodies {
            let Ok(Body::Peer(wire)) = decode_body::<Wire<P, O>>(&bytes) else { continue };
            match wire {
                wire if heir.is_some() => self.send(to, wire),
                peer::Wire::Direct { .. } if makes(Sabotage::Undelivered) => {}
                peer::Wire::Direct { resource, message } => {
                    self.peer_step(peer::Input::Undelivered { to, resource, message });
                }
                peer::Wire::Overlay(_) | peer::Wire::Routed { .. } | peer::Wire::Got { .. } => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use peerlock_base::Span;
    use peerlock_mutex::FairKLate;
    use peerlock_overlay::Unrouted;

    use super::*;
    use crate::{Charter, Wait};

    fn alone() -> Node<FairKLate, Unrouted> {
        let birth = Birth { process: 1, micros: 0, rng: Rng::new(1) };
        let mut node = Node::new(PeerId::new(1), vec!["here".into()], birth, Config::default());
        let mut out = Vec::new();
        node.step(Input::Start { join: Vec::new() }, Time::ZERO, &mut out);
        assert_eq!(out, [Effect::Joined]);
        node
    }

    fn acquire(call: u64) -> Input {
        let (ttl, grace) = (Span::from_secs(12), Span::from_secs(2));
        let (name, session) = ("r".parse().expect("a name"), SessionId(1));
        let (slots, kept, wait, label, request) = (None, true, Wait::Forever, String::new(), None);
        Input::Acquire { call, wanted: Wanted { name, slots, ttl, grace, kept, wait, label, session, request } }
    }

    #[test]
    fn alone_a_client_is_let_in_at_once_and_what_is_done_comes_before_what_is_told() {
        let mut node = alone();
        let mut out = Vec::new();
        node.step(acquire(7), Time::from_nanos(5_000), &mut out);
        let [Effect::Answer { call: 7, answer: Ok(Answer::Ticket(ticket)) }, Effect::Granted { .. }, Effect::Event(_)] =
            out[..]
        else {
            panic!("{out:?}")
        };
        let grant = node.grant(ticket).expect("it is inside").0;
        assert_eq!((grant.slot, grant.fencing), (0, 6), "numbers begin at the time of the founding, in microseconds");
    }

    /// A peer that was told to be the heir of a coordinator whose line never came once told itself so without end, and
    /// died of it. Anybody in the cluster could make it so.
    #[test]
    fn an_heir_without_the_line_lives_and_its_clients_are_told() {
        let mut node = alone();
        let gone = PeerId::new(99);
        let (me, name) = (node.membership.contacts.me(), "r".parse().expect("a name"));
        node.learn(name, Charter { slots: 1, home: gone, above: 0 });
        node.depart(gone, me);
        let mut out = Vec::new();
        for call in 1..=2000 {
            node.step(acquire(call), Time::from_nanos(call), &mut out);
        }
        assert!(out.iter().all(|effect| !matches!(effect, Effect::Granted { .. } | Effect::Notice(_))), "{out:?}");
        let told = |out: &[Effect]| {
            let stalled = |effect: &&Effect| matches!(effect, Effect::Ended(_, Error::Stalled { .. }));
            out.iter().filter(stalled).count()
        };
        while let Some(at) = node.next_wake().filter(|at| *at < Time::ZERO + Span::from_secs(13)) {
            node.step(Input::Wake, at, &mut out);
        }
        assert_eq!(told(&out), 2000);
    }
}
