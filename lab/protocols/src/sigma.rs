//! Sigma: votes of replicas that may forget (Lin, Lian, Chen, Zhang: "A Practical Distributed Mutual Exclusion Protocol
//! in Dynamic Peer-to-Peer Systems").
//!
//! m of n votes win. A replica whose vote is taken queues requests by time stamp, so a hand-over takes one RELEASE and
//! one grant through each replica. A replica may lose its memory, and retries of waiting clients restore it (*informed
//! backoff*).
//!
//! ```text
//!   A (owner)      R₀ … R_n−1          B
//!   │                │    REQUEST(B)   │
//!   │                │◄────────────────┤ to all n
//!   │                │ RESPONSE(A, T_w)│
//!   │                ├────────────────►│ B is queued, and knows when to retry
//!   │ RELEASE        │                 │
//!   ├───────────────►│ RESPONSE(B)     │
//!   │                ├────────────────►│ B holds with the m-th of these
//! ```
//!
//! **Safety.** At most one client holds if fewer than 2m − n replicas are reset within any lease time. A holder has m
//! votes with unexpired leases. By its clock a lease ends at the send time of its REQUEST plus, less 0.1 %, the time
//! from receipt to the end at the replica. So it stops before the replica may give the vote to another client. Before
//! that the replica does so only if it is reset, or the client has returned the vote, which it then counts no more. Two
//! sets of m voters share at least 2m − n replicas, so two holders need a reset of each of these.
//!
//! *Departure:* case 3. The paper's client yields all votes when it finds that no client can win; at a hand-over its
//! view is stale, and the votes come straight back. Here, a replica that queues a request earlier than its owner's
//! sends `Inquire`, as in Maekawa's algorithm, and the owner yields that vote if it cannot win. A vote moves only to an
//! earlier request, so yielding terminates.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::fmt;
use core::hash::{Hash, Hasher};

use peerlock_types::{Key, PeerId, Span, Ticket, Time};

use crate::replicas::{Sender, write_parts};
use crate::token::Claim;
use crate::{Cx, Hop, Observe, Protocol, Quorum, Replicas, UnderWay};

pub(crate) mod client;
mod message;
pub(crate) mod replica;
mod void;

use client::{Client, Phase};
pub use message::{Message, Number, Stamp, Timer};
use replica::{Entry, Replica};

/// Parameters, and a switch for each repair (`lab/docs/papers/sigma.md` has the reasons).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Length of a vote's lease.
    pub lease: Span,
    /// Minimum time between retries.
    pub retry: Span,
    /// Distinguishes a client's requests.
    pub requests_apart: bool,
    /// Numbers grants, so that a YIELD and its grant match.
    pub numbered_grants: bool,
    /// Clients know the end of their lease and renew it.
    pub client_leases: bool,
    /// A retry adds no second entry.
    pub idempotent_requests: bool,
    /// Replicas send `Inquire`, and clients yield on no other occasion.
    pub ask_owner: bool,
    /// A YIELD from an unknown client queues it.
    pub yield_is_request: bool,
    /// A client without T_w retries.
    pub default_timer: bool,
    /// Retries after five eighths of T_w.
    pub early_retry: bool,
    /// T_CS excludes idle time.
    pub busy_intervals: bool,
    /// Logical clocks are never behind the time.
    pub seeded_clocks: bool,
    /// The voters' fencing levels must be close enough ([`crate::fencing`]). Not in the paper.
    pub levels_agree: bool,
}

impl Config {
    /// Figures 5 and 6. Peers with clients must not host replicas: they would yield forever.
    pub const PRINTED: Self = Self::new(false);
    /// Figures 5 and 6 with all repairs.
    pub const REPAIRED: Self = Self::new(true);

    const fn new(is_repaired: bool) -> Self {
        Self {
            lease: Span::from_secs(10),
            retry: Span::from_millis(500),
            requests_apart: is_repaired,
            numbered_grants: is_repaired,
            client_leases: is_repaired,
            idempotent_requests: is_repaired,
            ask_owner: is_repaired,
            yield_is_request: is_repaired,
            default_timer: is_repaired,
            early_retry: is_repaired,
            busy_intervals: is_repaired,
            seeded_clocks: is_repaired,
            levels_agree: is_repaired,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sigma {
    common: Common<Message>,
    clients: Vec<Client>,
    replicas: Vec<Replica>,
}

/// A protocol whose messages and timers include Sigma's.
pub(crate) trait Voting: Protocol<Message: From<Message>, Timer: From<Timer>> {}

impl<P: Protocol<Message: From<Message>, Timer: From<Timer>>> Voting for P {}

/// When a client yields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Yields {
    /// When no client can win, as far as it knows.
    AtOnce,
    /// When the client cannot win and receives `Inquire`.
    Asked,
    /// In [`Client::yield_all`].
    Later,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Common<M> {
    pub config: Config,
    pub yields: Yields,
    pub sender: Sender<M>,
    /// *GetLogicalClock()*: the clients' Lamport clock.
    pub clock: u64,
    /// The highest fencing level received or used.
    pub fencing: u64,
}

impl<M> Common<M> {
    pub fn new(me: PeerId, replicas: &Replicas, config: Config) -> Self {
        let yields = if config.ask_owner { Yields::Asked } else { Yields::AtOnce };
        Self { config, yields, sender: Sender::new(me, replicas), clock: 0, fencing: 0 }
    }

    pub fn quorum(&self) -> Quorum {
        self.sender.replicas.quorum()
    }

    pub fn send<P: Voting<Message = M>>(&mut self, replica: u32, message: Message, cx: &mut Cx<'_, P>) {
        self.sender.send_to(replica, message.into(), cx);
    }

    pub fn tick(&mut self, now: Time) -> u64 {
        let floor = if self.config.seeded_clocks { now.as_nanos() } else { 0 };
        self.clock = self.clock.max(floor) + 1;
        self.clock
    }
}

impl Sigma {
    /// Creates a peer with the replicas that `replicas` places at `me`.
    pub fn new(me: PeerId, replicas: &Replicas, config: Config) -> Self {
        Self {
            common: Common::new(me, replicas, config),
            clients: Vec::new(),
            replicas: replicas.hosted_by(me).map(|index| Replica::new(index, 0)).collect(),
        }
    }

    fn client(&self, id: Ticket) -> Option<usize> {
        self.clients.binary_search_by_key(&id, Client::id).ok()
    }

    fn holder(&self, ticket: Ticket) -> Option<usize> {
        if self.common.config.requests_apart {
            return self.client(ticket);
        }
        self.clients.iter().position(|client| client.ticket == ticket && client.phase != Phase::Idle)
    }

    fn client_for(&mut self, ticket: Ticket, time: u64) -> usize {
        let apart = self.common.config.requests_apart;
        if !apart && let Some(at) = self.clients.iter().position(|client| client.phase == Phase::Idle) {
            self.clients[at].reuse(ticket, time);
            return at;
        }
        let at = self.clients.len();
        let id = if apart { ticket } else { Ticket::new(at as u64 + 1) };
        assert!(self.clients.last().is_none_or(|client| client.id() < id), "tickets are requested in order");
        let stamp = Stamp { time, client: Claim { peer: self.common.sender.me, ticket: id } };
        self.clients.push(Client::new(ticket, stamp, self.common.quorum().replicas()));
        at
    }

    fn finish(&mut self, at: usize, cx: &mut Cx<'_, Self>) {
        self.clients[at].release(&mut self.common, cx);
        if self.common.config.requests_apart {
            self.clients.remove(at);
        }
    }

    fn deliver(&mut self, message: Message, cx: &mut Cx<'_, Self>) {
        match message {
            Message::Response { to, clock, fencing, .. } => {
                self.common.clock = self.common.clock.max(clock);
                // A finished client need not answer: its RELEASE goes to every replica.
                if let Some(at) = self.client(to) {
                    self.common.fencing = self.common.fencing.max(fencing);
                    self.clients[at].on_response(message, &mut self.common, cx);
                }
            }
            Message::Inquire { replica, owner, number, earlier } => match self.client(owner.client.ticket) {
                Some(at) if earlier => self.clients[at].on_inquire(replica, number, &mut self.common, cx),
                Some(_) => {} // It is live, and no earlier request waits.
                None => {
                    let fencing = self.common.fencing;
                    self.common.send(replica, Message::Release { replica, client: owner, fencing }, cx);
                }
            },
            Message::Request { replica, .. } | Message::Yield { replica, .. } | Message::Release { replica, .. } => {
                match self.replicas.binary_search_by_key(&replica, |replica| replica.index) {
                    Ok(at) => self.deliver_to_replica(at, message, cx),
                    Err(_) => cx.unexpected("a message for a replica that is not hosted here"),
                }
            }
        }
    }

    fn deliver_to_replica(&mut self, at: usize, message: Message, cx: &mut Cx<'_, Self>) {
        let (replica, common, arrived) = (&mut self.replicas[at], &mut self.common, cx.now());
        match message {
            Message::Request { client, sent, fencing, .. } => {
                replica.merge_clocks(client, fencing);
                replica.on_request(Entry { client, sent, arrived }, common, cx);
            }
            Message::Yield { client, number, sent, .. } => {
                replica.on_yield(Entry { client, sent, arrived }, number, common, cx);
            }
            Message::Release { client, fencing, .. } => {
                replica.merge_clocks(client, fencing);
                replica.on_release(client, common, cx);
            }
            Message::Response { .. } | Message::Inquire { .. } => {}
        }
    }

    fn deliver_here(&mut self, cx: &mut Cx<'_, Self>) {
        while let Some(message) = self.common.sender.take() {
            self.deliver(message, cx);
        }
    }
}

impl Protocol for Sigma {
    type Message = Message;
    type Timer = Timer;

    fn request(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        let is_printed = !self.common.config.ask_owner;
        assert!(self.replicas.is_empty() || !is_printed, "a peer with clients of the printed form hosts no replica");
        let time = self.common.tick(cx.now());
        let at = self.client_for(ticket, time);
        self.clients[at].ask(&mut self.common, cx);
        self.deliver_here(cx);
    }

    fn release(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        if let Some(at) = self.holder(ticket) {
            self.finish(at, cx);
            self.deliver_here(cx);
        }
    }

    fn on_message(&mut self, _from: PeerId, message: Message, cx: &mut Cx<'_, Self>) {
        if message.about() >= self.common.quorum().replicas() {
            return cx.unexpected("a message about an unknown replica");
        }
        self.deliver(message, cx);
        self.deliver_here(cx);
    }

    /// §2: a logical replica is at the owner of its key, at first without memory.
    fn on_routed(&mut self, hop: Hop, message: Message, cx: &mut Cx<'_, Self>) {
        let Some(index) = self.common.sender.replicas.under(hop.key) else {
            return cx.unexpected("a message for an unknown replica");
        };
        if let Err(at) = self.replicas.binary_search_by_key(&index, |replica| replica.index) {
            self.replicas.insert(at, Replica::new(index, cx.now().as_nanos()));
        }
        self.on_message(hop.origin, message, cx);
    }

    fn on_disowned(&mut self, key: Key, cx: &mut Cx<'_, Self>) {
        let moved = |replica: &mut Replica| self.common.sender.replicas.key(replica.index) == Some(key);
        for replica in self.replicas.extract_if(.., moved) {
            cx.cancel_timer(Timer::Lease(replica.index));
        }
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Cx<'_, Self>) {
        match timer {
            Timer::Wake(id) => {
                if let Some(at) = self.client(id)
                    && self.clients[at].on_wake(&mut self.common, cx)
                {
                    cx.lost(self.clients[at].ticket);
                    self.finish(at, cx);
                }
            }
            Timer::Lease(index) => {
                if let Some(replica) = self.replicas.iter_mut().find(|replica| replica.index == index) {
                    replica.on_lease_timer(&mut self.common, cx);
                }
            }
        }
        self.deliver_here(cx);
    }

    /// §2: a replica may lose its memory at any time.
    fn on_reset(&mut self, incarnation: u64, cx: &mut Cx<'_, Self>) {
        for replica in &mut self.replicas {
            replica.reset(incarnation, cx);
        }
    }
}

impl Observe for Sigma {
    const KINDS: &'static [&'static str] = &["request", "response", "inquire", "yield", "release"];

    fn kind(message: &Message) -> usize {
        match message {
            Message::Request { .. } => 0,
            Message::Response { .. } => 1,
            Message::Inquire { .. } => 2,
            Message::Yield { .. } => 3,
            Message::Release { .. } => 4,
        }
    }

    fn replica_in(message: &Message) -> Option<(u32, Message)> {
        let mut message = *message;
        let replica = core::mem::take(message.replica_mut());
        Some((replica, message))
    }

    fn digest(&self, replica: Option<u32>, mut state: &mut dyn Hasher) {
        if replica.is_none() {
            (self.common.clock, self.common.fencing, self.clients.len()).hash(&mut state);
        }
        self.clients.iter().for_each(|client| client.digest(replica, &self.common.config, state));
        let here = self.replicas.iter().filter(|here| Some(here.index) == replica);
        here.for_each(|here| here.digest(state));
    }

    fn is_void(&self, in_flight: UnderWay<'_, Self>) -> bool {
        void::is_void(self, in_flight)
    }
}

impl fmt::Display for Sigma {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.replicas.is_empty() && self.clients.is_empty() {
            return f.write_str("nothing");
        }
        let replicas = self.replicas.iter().map(|replica| format!("R{}: {replica}", replica.index));
        write_parts(f, replicas.chain(self.clients.iter().map(ToString::to_string)))
    }
}
