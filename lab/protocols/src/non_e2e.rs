//! Non-E2E: votes, with a queue distributed over the routes to the voters (§IV.B and §V.B of the paper of
//! [`crate::e2e`]).
//!
//! A REQUEST leaves an entry at every peer on its routes to n replicas: a *route quorum*. The next request is queued at
//! the first peer with an entry. RELEASE takes the same routes, clears the entries and collects the partial queues.
//!
//! ```text
//!   A             hop H            R              B
//!   │ REQUEST(A)   │ H: holder A   │              │
//!   ├─────────────►├──────────────►│ votes for A  │
//!   │◄──────────── GRANTREQ(A) ────┤              │
//!   │              │                   REQUEST(B) │
//!   │              │◄─────────────────────────────┤
//!   │              │ H: holder A, queue [B]       │
//!   │              ├── GRANTREQ(A, hearsay) ─────►│
//!   │ RELEASE(A)   │ H: no entry   │              │
//!   ├─────────────►├──────────────►│ RELEASE(A + [B])
//!   │              │◄─── TAKEN ────┤ votes for B  │
//!   │              │               ├─ GRANTREQ(B)►│
//! ```
//!
//! **Safety.** The votes are [Sigma's](crate::sigma), and only replicas give them. Entries and partial queues determine
//! which requests reach a replica, and when. So there is one holder, as in Sigma, if fewer than 2m − n replicas are
//! reset or move within any lease time.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::fmt;

use peerlock_types::{Key, PeerId, Span, Ticket};

use crate::outbox::Outbox;
use crate::replicas::write_parts;
use crate::route_quorum::FOREVER;
use crate::sigma::replica::{Entry as Request, Replica, is_same};
use crate::sigma::{self, Common, Stamp, Yields};
use crate::token::Claim;
use crate::{Cx, Hop, Protocol, Replicas};

mod client;
mod hop;
mod message;

use client::Requester;
use hop::Entry;
pub use message::{Load, Message, Timer};

/// Parameters, and a switch for each repair (`lab/docs/papers/non-e2e.md` has the reasons).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Length of a vote's lease.
    pub lease: Span,
    /// Time until a client retries, doubled up to a third of the lease.
    pub retry: Span,
    /// Time until a client without votes, or a hop with waiters, checks its route; doubled each time.
    pub patience: Span,
    /// Maximum of `patience`.
    pub most_patience: Span,
    /// Time until a hop resends unacknowledged queues.
    pub again: Span,
    /// A hop's answer is not a vote.
    pub hearsay: bool,
    /// A client with too few votes bypasses the hops. In print it yields them.
    pub surfaces: bool,
    /// Returns a vote for a finished request.
    pub answers_ghosts: bool,
    /// Distinguishes requests and grants.
    pub epochs: bool,
    /// The last hop that has added to the queue in a RELEASE keeps a copy.
    pub keeps_copies: bool,
    /// Votes expire.
    pub leases: bool,
    /// Clients retry.
    pub asks_again: bool,
}

impl Config {
    /// §IV.B, with the pings of §V.B.
    pub const PRINTED: Self = Self::new(false);
    /// §IV.B with all repairs.
    pub const REPAIRED: Self = Self::new(true);

    const fn new(is_repaired: bool) -> Self {
        Self {
            lease: Span::from_secs(10),
            retry: Span::from_millis(500),
            patience: Span::from_secs(10),
            most_patience: Span::from_secs(600),
            again: Span::from_secs(2),
            hearsay: is_repaired,
            surfaces: is_repaired,
            answers_ghosts: is_repaired,
            epochs: is_repaired,
            keeps_copies: is_repaired,
            leases: is_repaired,
            asks_again: is_repaired,
        }
    }

    /// How often queues are sent. By then their waiters have retried.
    const TRIES: u32 = 8;

    fn votes(&self) -> sigma::Config {
        sigma::Config {
            lease: if self.leases { self.lease } else { FOREVER },
            retry: self.retry,
            requests_apart: self.epochs,
            numbered_grants: self.epochs,
            client_leases: self.leases,
            ask_owner: self.surfaces,
            default_timer: self.asks_again,
            levels_agree: self.asks_again,
            ..sigma::Config::REPAIRED
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NonE2e {
    config: Config,
    common: Common<Message>,
    clients: Vec<Requester>,
    replicas: Vec<Replica>,
    /// *Replica list*: at most one entry per replica.
    entries: Vec<Entry>,
    outbox: Outbox<Message>,
    pings_run: bool,
}

impl NonE2e {
    pub fn new(me: PeerId, replicas: &Replicas, config: Config) -> Self {
        let mut common = Common::new(me, replicas, config.votes());
        common.yields = if config.surfaces { Yields::Asked } else { Yields::Later };
        Self {
            config,
            common,
            clients: Vec::new(),
            replicas: replicas.hosted_by(me).map(|index| Replica::new(index, 0)).collect(),
            entries: Vec::new(),
            outbox: Outbox::default(),
            pings_run: false,
        }
    }

    fn client(&self, id: Ticket) -> Option<usize> {
        self.clients.iter().position(|client| client.votes.id() == id)
    }

    fn is_same(&self, one: Stamp, other: Stamp) -> bool {
        is_same(one, other, &self.common.config)
    }

    fn id_for(&self, ticket: Ticket) -> Ticket {
        let is_free = |id: &Ticket| self.client(*id).is_none();
        if self.config.epochs { ticket } else { (1..).map(Ticket::new).find(is_free).unwrap_or(ticket) }
    }

    fn finish(&mut self, at: usize, cx: &mut Cx<'_, Self>) {
        self.clients.remove(at).release(&mut self.common, cx);
    }

    fn deliver(&mut self, from: PeerId, message: Message, cx: &mut Cx<'_, Self>) {
        if message.replica().is_some_and(|replica| replica >= self.common.quorum().replicas()) {
            return cx.unexpected("a message about an unknown replica");
        }
        match message {
            Message::Vote(vote @ sigma::Message::Response { to, .. }) => self.on_grant_req(from, to, vote, cx),
            Message::Queued { replica, to, holder } => {
                if let Some(at) = self.client(to) {
                    let (config, common) = (&self.config, &mut self.common);
                    self.clients[at].on_queued(from, (replica, holder), config, common, cx);
                }
            }
            Message::Vote(sigma::Message::Inquire { replica, owner, number, earlier }) => {
                match self.client(owner.client.ticket) {
                    Some(at) if earlier => {
                        self.clients[at].votes.on_inquire(replica, number, &mut self.common, cx);
                    }
                    Some(_) => {} // It is live, and no earlier request waits.
                    None => self.answer_stale_vote(from, replica, owner, cx),
                }
            }
            Message::Taken { receipt } => drop(self.outbox.on_receipt(receipt)),
            Message::Ping { replica, holder } => {
                let known = self.knows(replica, holder);
                self.common.sender.send(from, Message::Ack { replica, holder, known }, cx);
            }
            Message::Ack { replica, holder, known } => self.on_ack(from, (replica, holder), known, cx),
            Message::Request { replica, .. }
            | Message::Release { replica, .. }
            | Message::Cleanup { replica, .. }
            | Message::Vote(
                sigma::Message::Request { replica, .. }
                | sigma::Message::Yield { replica, .. }
                | sigma::Message::Release { replica, .. },
            ) => match self.replicas.iter().position(|here| here.index == replica) {
                Some(at) => self.deliver_to_replica(at, message, cx),
                None => self.deliver_to_hop(replica, message, cx),
            },
        }
    }

    /// §IV.B, step 5. Returns a vote for a finished request.
    fn on_grant_req(&mut self, from: PeerId, to: Ticket, response: sigma::Message, cx: &mut Cx<'_, Self>) {
        let sigma::Message::Response { replica, owner, fencing, clock, .. } = response else { return };
        self.common.clock = self.common.clock.max(clock);
        self.common.fencing = self.common.fencing.max(fencing);
        match (self.client(to), owner) {
            (Some(at), _) => self.clients[at].on_grant_req(from, response, &self.config, &mut self.common, cx),
            (None, Some(owner)) if owner.client == (Claim { peer: self.common.sender.me, ticket: to }) => {
                self.answer_stale_vote(from, replica, owner, cx);
            }
            (None, _) => {}
        }
    }

    fn answer_stale_vote(&mut self, from: PeerId, replica: u32, client: Stamp, cx: &mut Cx<'_, Self>) {
        if self.config.answers_ghosts {
            let (fencing, load) = (self.common.fencing, Load::default());
            self.common.sender.send(from, Message::Release { replica, client, fencing, load }, cx);
        }
    }

    /// §IV.B, steps 3 and 4.
    fn deliver_to_replica(&mut self, at: usize, message: Message, cx: &mut Cx<'_, Self>) {
        let (replica, common, now) = (&mut self.replicas[at], &mut self.common, cx.now());
        match message {
            Message::Request { client, sent, fencing, .. }
            | Message::Vote(sigma::Message::Request { client, sent, fencing, .. }) => {
                replica.merge_clocks(client, fencing);
                replica.on_request(Request { client, sent, arrived: now }, common, cx);
            }
            Message::Vote(sigma::Message::Yield { client, number, sent, .. }) => {
                replica.on_yield(Request { client, sent, arrived: now }, number, common, cx);
            }
            Message::Release { client, fencing, load, .. } => {
                replica.merge_clocks(client, fencing);
                load.queue.into_iter().for_each(|waiting| replica.merge(waiting.arrived(now), common));
                replica.on_release(client, common, cx);
                replica.finish_merge(common, cx);
                self.take_over(load.keeper, cx);
            }
            Message::Cleanup { load, .. } => {
                load.queue.into_iter().for_each(|waiting| replica.merge(waiting.arrived(now), common));
                replica.finish_merge(common, cx);
                self.take_over(load.keeper, cx);
            }
            _ => {}
        }
    }

    /// Handles a message for a replica that has left this peer, or the check of a request queued here.
    fn deliver_to_hop(&mut self, replica: u32, message: Message, cx: &mut Cx<'_, Self>) {
        let at = self.entries.iter().position(|entry| entry.replica == replica);
        let onward = match message {
            Message::Request { client, sent, fencing, .. } => {
                let arrived = cx.now();
                if let Some(at) = at.filter(|&at| self.waits_at(at, client)) {
                    return self.queue(at, Request { client, sent, arrived }, cx);
                }
                Message::Vote(sigma::Message::Request { replica, client, sent, fencing })
            }
            other => other,
        };
        self.common.sender.send_to(replica, onward, cx);
    }

    fn deliver_here(&mut self, cx: &mut Cx<'_, Self>) {
        while let Some(message) = self.common.sender.take() {
            self.deliver(cx.me(), message, cx);
        }
    }

    /// Creates a replica that has moved here. It knows only this hop's queue.
    fn host(&mut self, index: u32, cx: &mut Cx<'_, Self>) {
        let mut replica = Replica::new(index, cx.now().as_nanos());
        for entry in self.entries.extract_if(.., |entry| entry.replica == index) {
            entry.queue.into_iter().for_each(|queued| replica.merge(queued, &self.common));
        }
        replica.finish_merge(&mut self.common, cx);
        self.replicas.push(replica);
    }
}

impl Protocol for NonE2e {
    type Message = Message;
    type Timer = Timer;

    fn request(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        let time = self.common.tick(cx.now());
        let client = Claim { peer: cx.me(), ticket: self.id_for(ticket) };
        let mut requester = Requester::new(ticket, Stamp { time, client }, self.common.quorum().replicas());
        requester.request(&self.config, &mut self.common, cx);
        self.clients.push(requester);
        self.deliver_here(cx);
    }

    fn release(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        if let Some(at) = self.clients.iter().position(|client| client.votes.ticket == ticket) {
            self.finish(at, cx);
            self.deliver_here(cx);
        }
    }

    fn on_message(&mut self, from: PeerId, message: Message, cx: &mut Cx<'_, Self>) {
        self.deliver(from, message, cx);
        self.deliver_here(cx);
    }

    fn on_routed(&mut self, hop: Hop, message: Message, cx: &mut Cx<'_, Self>) {
        let Some(index) = self.common.sender.replicas.addressed(hop.key, message.replica()) else {
            return cx.unexpected("a message for another replica than that of its key");
        };
        if self.replicas.iter().all(|replica| replica.index != index) {
            self.host(index, cx);
        }
        self.on_message(hop.origin, message, cx);
    }

    fn on_forward(&mut self, hop: Hop, message: Message, cx: &mut Cx<'_, Self>) -> Option<Message> {
        let meant = self.common.sender.replicas.addressed(hop.key, message.replica());
        let (Some(next), Some(_)) = (hop.next, meant) else {
            cx.unexpected("a forwarded message without a next hop or a replica");
            return None;
        };
        if !self.on_request_by(hop, next, &message, cx) {
            return None;
        }
        self.on_release_by(message, cx)
    }

    fn on_disowned(&mut self, key: Key, cx: &mut Cx<'_, Self>) {
        let moved = |replica: &mut Replica| self.common.sender.replicas.key(replica.index) == Some(key);
        for replica in self.replicas.extract_if(.., moved) {
            cx.cancel_timer(sigma::Timer::Lease(replica.index).into());
        }
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Cx<'_, Self>) {
        match timer {
            Timer::Vote(sigma::Timer::Wake(id)) => {
                if let Some(at) = self.client(id)
                    && self.clients[at].on_wake(&self.config, &mut self.common, cx)
                {
                    cx.lost(self.clients[at].votes.ticket);
                    self.finish(at, cx);
                }
            }
            Timer::Vote(sigma::Timer::Lease(index)) => {
                if let Some(replica) = self.replicas.iter_mut().find(|replica| replica.index == index) {
                    replica.on_lease_timer(&mut self.common, cx);
                }
            }
            Timer::Ping => self.on_ping_timer(cx),
            Timer::Again => self.on_again_timer(cx),
        }
        self.deliver_here(cx);
    }

    /// §II: internal state may be reset, including that of a hop.
    fn on_reset(&mut self, incarnation: u64, cx: &mut Cx<'_, Self>) {
        for replica in &mut self.replicas {
            replica.reset(incarnation, cx);
        }
        self.entries.clear();
        self.outbox = Outbox::default();
        self.pings_run = false;
        cx.cancel_timer(Timer::Ping);
        cx.cancel_timer(Timer::Again);
    }
}

impl fmt::Display for NonE2e {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut replicas: Vec<&Replica> = self.replicas.iter().collect();
        replicas.sort_by_key(|replica| replica.index);
        let mut entries: Vec<&Entry> = self.entries.iter().collect();
        entries.sort_by_key(|entry| entry.replica);
        let replicas = replicas.iter().map(|replica| format!("R{}: {replica}", replica.index));
        let entries = entries.iter().map(|entry| format!("hop to R{}: {entry}", entry.replica));
        let mut parts = replicas.chain(entries).chain(self.clients.iter().map(ToString::to_string)).peekable();
        if parts.peek().is_none() { f.write_str("idle") } else { write_parts(f, parts) }
    }
}
