//! The coordinator protocol (Obeidat, Gubarev, Al-yousef: "Decentralized and Fair Mutual Exclusion Protocol in
//! Peer-to-Peer Systems").
//!
//! One of n replicas is the *coordinator*. It answers each request with the queue and announces the request to all
//! waiters, so that a release passes the token straight to the next client:
//!
//! ```text
//!   A (holds)       R₀ (coordinator)     B
//!   │                 │    REQUEST(B)    │
//!   │                 │◄─────────────────┤ to all n if R₀ does not answer
//!   │ ADDREQUEST(B)   │ RESPONSE(A, …)   │
//!   │◄────────────────┼─────────────────►│ also to all waiters and to the replicas
//!   │ RELEASE(A, next B)                 │
//!   ├─────────────────┬─────────────────►│ B holds; also to all waiters
//!   │                 ▼                  │
//! ```
//!
//! # Safety
//!
//! Messages may be lost, duplicated, delayed and reordered; replicas and clients crash, and replicas lose their memory.
//! The rates of any two clocks differ by less than 0.1 %, and the timer at the end of a client's lease is not late.
//!
//! 1. *One coordinator at a time.* A coordinator acts only while m replicas, itself included, have promised to follow
//!    no other for a [term](Config::term), counted from when it sent the message that the promise answers. Two sets of
//!    m share a replica, which gives one promise at a time, and without memory none until its earlier ones have
//!    expired.
//! 2. *One chain at a time.* A *chain* is a coordinator's grant and the hand-overs that follow it. RESPONSE names the
//!    owner and the end of its lease, by the client's clock. Before it no other chain starts, unless the last owner of
//!    the chain has released. A client holds only until such an end, received for itself or an earlier owner. An end
//!    of an earlier chain is no later than that of its own, since all leases have the same length.
//! 3. *Elections.* Grants are not replicated. The predecessor of a new coordinator extended no lease after its promises
//!    expired, so all its chains have ended one lease later. The new one starts no chain until then (*grace*), but
//!    adopts an owner that renews.
//!
//! # Numbers
//!
//! A hand-over adds 1 to the fencing number; after an expired lease the coordinator continues at the next multiple of
//! [`LEAP`](fencing::LEAP), and a new one at its epoch times 2⁴⁰. Epochs increase while a majority of replicas has its
//! memory: a replica without memory learns the epoch before it votes.

use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use peerlock_types::{Key, PeerId, Span, Ticket};

#[cfg(doc)]
use crate::fencing;
use crate::replicas::{Sender, write_parts};
use crate::token::Claim;
use crate::{Cx, Hop, Protocol, Replicas};

mod client;
mod election;
mod message;
mod replica;

use client::Clients;
use election::Election;
pub use message::{Entry, Holder, Memory, Message, Place, Timer, UpdateKind};
use replica::Replica;

/// Distance between the first fencing numbers of two epochs.
const EPOCH: u64 = 1 << 40;

/// Parameters, and a switch for each repair (`lab/docs/papers/coordinator.md` has the reasons).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Length of an owner's lease, and of the silence after which a waiter is removed.
    pub lease: Span,
    /// Length of a promise.
    pub term: Span,
    /// *periodOfTime*: interval of pings; in print also the wait for OK.
    pub ping: Span,
    /// Time until a client repeats an unanswered request.
    pub retry: Span,
    /// The owner receives ADDREQUEST.
    pub owner_notified: bool,
    /// Replicas handle RELEASE.
    pub replicas_receive_release: bool,
    /// RELEASE names the successor.
    pub named_successor: bool,
    /// The coordinator numbers requests. In print their order is that of the clients' time stamps.
    pub coordinator_numbers: bool,
    /// Distinguishes a client's requests.
    pub requests_apart: bool,
    /// Answers a repeated REQUEST. In print it is dropped (*received(msg)*).
    pub coordinator_dedups: bool,
    /// A coordinator needs a majority. In print a replica that misses an answer becomes the coordinator.
    pub majority_lease: bool,
    /// Owners have a lease (§4.4).
    pub owner_lease: bool,
    /// Retransmits unanswered messages (§4.4).
    pub resends: bool,
    /// Only the coordinator acts on a REQUEST. In print the others forward it.
    pub one_acts: bool,
    /// Sends REQUEST and RELEASE to one replica, if it answers. In print to all.
    pub one_asked: bool,
}

impl Config {
    /// Figure 1.
    pub const PRINTED: Self = Self::new(false);
    /// Figure 1 with all repairs.
    pub const REPAIRED: Self = Self::new(true);

    const fn new(is_repaired: bool) -> Self {
        Self {
            lease: Span::from_secs(10),
            term: Span::from_secs(4),
            ping: Span::from_secs(1),
            retry: Span::from_millis(500),
            owner_notified: is_repaired,
            replicas_receive_release: is_repaired,
            named_successor: is_repaired,
            coordinator_numbers: is_repaired,
            requests_apart: is_repaired,
            coordinator_dedups: is_repaired,
            majority_lease: is_repaired,
            owner_lease: is_repaired,
            resends: is_repaired,
            one_acts: is_repaired,
            one_asked: is_repaired,
        }
    }
}

/// Forecast of a client's waiting time (§4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forecast {
    /// l: the clients ahead, including the holder.
    pub ahead: u64,
    /// t_w = l × t_cs; `None` before the first release.
    pub wait: Option<Span>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Coordinator {
    common: Common,
    clients: Clients,
    replicas: Vec<Replica>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Common {
    config: Config,
    sender: Sender<Message>,
}

impl Common {
    fn all(&self) -> Range<u32> {
        0..self.sender.replicas.quorum().replicas()
    }

    fn send(&mut self, replica: u32, message: Message, cx: &mut Cx<'_, Coordinator>) {
        self.sender.send_to(replica, message, cx);
    }
}

fn is_same(one: Claim, other: Claim, config: &Config) -> bool {
    if config.requests_apart { one == other } else { one.peer == other.peer }
}

impl Coordinator {
    /// Creates a peer with the replicas that `replicas` places at `me`.
    pub fn new(me: PeerId, replicas: &Replicas, config: Config) -> Self {
        Self {
            common: Common { config, sender: Sender::new(me, replicas) },
            clients: Clients::default(),
            replicas: replicas.hosted_by(me).map(|index| Replica::new(index, Election::default())).collect(),
        }
    }

    /// Returns `None` if the client does not wait, or has no answer yet.
    pub fn forecast(&self, ticket: Ticket) -> Option<Forecast> {
        self.clients.forecast(ticket)
    }

    fn deliver(&mut self, message: Message, cx: &mut Cx<'_, Self>) {
        if let Some(index) = message.replica() {
            return match self.replicas.binary_search_by_key(&index, |replica| replica.index) {
                Ok(at) => self.deliver_to_replica(at, message, cx),
                Err(_) => cx.unexpected("a message for a replica that is not hosted here"),
            };
        }
        let (clients, common) = (&mut self.clients, &mut self.common);
        match message {
            Message::Response { .. } => clients.on_response(message, common, cx),
            Message::AddRequest { entry, .. } => clients.on_add_request(entry, &common.config),
            Message::Release { client, number, successor, .. } => {
                clients.on_release(client, number, successor, common, cx);
            }
            Message::Got { receipt } => clients.on_got(receipt, cx),
            _ => cx.unexpected("a message for an unknown replica"),
        }
    }

    fn deliver_to_replica(&mut self, at: usize, message: Message, cx: &mut Cx<'_, Self>) {
        let (replica, common) = (&mut self.replicas[at], &mut self.common);
        replica.start_timer(common, cx);
        match message {
            Message::Request { .. } => replica.on_request(message, common, cx),
            Message::AddRequest { entry, .. } => replica.insert_waiter(entry, cx.now()),
            Message::Release { .. } => replica.on_release(message, common, cx),
            Message::IamCoordinator { from, epoch, sent, .. } => {
                replica.on_iam_coordinator(from, epoch, sent, common, cx);
            }
            Message::Recover { .. } => replica.on_recover(message, common, cx),
            Message::Update { .. } => replica.on_update(message, common, cx),
            Message::Ping { from, epoch, last_received, .. } => replica.on_ping(from, epoch, last_received, common, cx),
            Message::Ok { .. } => replica.on_ok(message, common, cx),
            Message::Response { .. } | Message::Got { .. } => {}
        }
    }

    fn deliver_here(&mut self, cx: &mut Cx<'_, Self>) {
        while let Some(message) = self.common.sender.take() {
            self.deliver(message, cx);
        }
    }
}

impl Protocol for Coordinator {
    type Message = Message;
    type Timer = Timer;

    fn request(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        self.clients.request(ticket, &mut self.common, cx);
        self.deliver_here(cx);
    }

    fn release(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        self.clients.release(ticket, &mut self.common, cx);
        self.deliver_here(cx);
    }

    fn on_message(&mut self, _from: PeerId, message: Message, cx: &mut Cx<'_, Self>) {
        if message.sender().is_some_and(|replica| replica >= self.common.sender.replicas.quorum().replicas()) {
            return cx.unexpected("a message from an unknown replica");
        }
        self.deliver(message, cx);
        self.deliver_here(cx);
    }

    /// Creates a replica without memory if its key has moved here.
    fn on_routed(&mut self, hop: Hop, message: Message, cx: &mut Cx<'_, Self>) {
        let Some(index) = self.common.sender.replicas.under(hop.key) else {
            return cx.unexpected("a message for an unknown replica");
        };
        if let Err(at) = self.replicas.binary_search_by_key(&index, |replica| replica.index) {
            let mut replica = Replica::new(index, Election::blank(cx.now(), &self.common.config));
            replica.start_recovery(&mut self.common, cx);
            self.replicas.insert(at, replica);
        }
        self.on_message(hop.origin, message, cx);
    }

    fn on_disowned(&mut self, key: Key, cx: &mut Cx<'_, Self>) {
        let moved = |replica: &mut Replica| self.common.sender.replicas.key(replica.index) == Some(key);
        for replica in self.replicas.extract_if(.., moved) {
            cx.cancel_timer(Timer::Lease(replica.index));
            cx.cancel_timer(Timer::Ping(replica.index));
        }
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Cx<'_, Self>) {
        let common = &mut self.common;
        match timer {
            Timer::Wake(ticket) => self.clients.on_wake(ticket, common, cx),
            Timer::Resend => self.clients.on_resend(common, cx),
            Timer::Lease(index) | Timer::Ping(index) => {
                match (timer, self.replicas.iter_mut().find(|replica| replica.index == index)) {
                    (_, None) => {}
                    (Timer::Lease(_), Some(replica)) => replica.on_lease_timer(common, cx),
                    (_, Some(replica)) => replica.on_ping_timer(common, cx),
                }
            }
        }
        self.deliver_here(cx);
    }

    /// §3: *their internal states may be randomly reset*.
    fn on_reset(&mut self, _incarnation: u64, cx: &mut Cx<'_, Self>) {
        for replica in &mut self.replicas {
            replica.reset(&mut self.common, cx);
        }
        self.deliver_here(cx);
    }
}

impl fmt::Display for Coordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.replicas {
            [] => self.clients.fmt(f),
            replicas => write_parts(f, replicas),
        }
    }
}

fn write_queue<'a>(f: &mut fmt::Formatter<'_>, waiting: impl Iterator<Item = &'a Entry>) -> fmt::Result {
    let mut waiting = waiting.peekable();
    f.write_str(if waiting.peek().is_some() { ", queue" } else { ", queue empty" })?;
    waiting.try_for_each(|entry| write!(f, " {entry}"))
}
