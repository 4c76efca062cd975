//! E2E: votes choose the first owner; then the token moves from owner to owner (Muhammad, Cheema, Gupta: "Efficient
//! Mutual Exclusion in Peer-to-Peer Systems", §IV.A and §V.A).
//!
//! m of n votes win. The winner announces itself to all replicas, and the peers on the routes record it: a *route
//! quorum*. The first of them on the route of a later request adds it to the owner's queue.
//!
//! ```text
//!   A              hop H           R              B
//!   │ REQUEST(A)    │              │              │
//!   ├──────────────►├─────────────►│ votes for A  │
//!   │◄──────────────── RESPONSE ───┤              │
//!   │ IAMWINNER(A)  │              │              │
//!   ├──────────────►├─────────────►│              │
//!   │               │ H knows A    │   REQUEST(B) │
//!   │               │◄────────────────────────────┤
//!   │ ENQUEUE(B)    │              │              │
//!   │◄──────────────┤ QUEUED(B)    │              │
//!   ├────────────────────────────────────────────►│
//!   │ TOKEN(rest of the queue)     │              │
//!   ├────────────────────────────────────────────►│ enters
//!   │ RELEASE(to B) │              │              │
//!   ├──────────────►├─────────────►│              │
//! ```
//!
//! **Safety.** The votes are [Sigma's](crate::sigma), but for a *reign*: the elected request, and the requests that get
//! the token from it in turn. By Sigma's argument there is one reign at a time if fewer than 2m − n replicas are reset
//! or move within any lease time. A reign has one token. Its owner sends it to one waiter and uses it no more; the
//! receiver recognizes copies of that message. The token carries the end of the votes' lease by the receiver's clock;
//! after that it is only a queue. Safety does not depend on the records of hops, on queues or on pings.
//!
//! **Fencing numbers** are the epochs: the winner's comes from the votes, and each later owner of the reign adds one.
//! An expired lease adds more than the owners of one lease time can ([`crate::fencing`]).
//!
//! **When the owner fails** (§V.A), its lease expires. *Departure:* in the paper the waiter with the most recent copy
//! of the queue declares itself the owner; but the old owner may only be slow, and two waiters may do so. Here the next
//! owner needs votes.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::fmt;

use peerlock_types::{Key, PeerId, Span, Ticket};

use crate::outbox::Outbox;
use crate::replicas::write_parts;
use crate::route_quorum::{FOREVER, Waiting};
use crate::sigma::replica::{Entry, Replica};
use crate::sigma::{self, Common, Stamp};
use crate::token::Claim;
use crate::{Cx, Hop, Protocol, Replicas};

mod message;
mod owner;
mod requester;
mod trail;

pub use message::{By, Copy, Enqueue, Message, Owner, Timer};
use owner::{Past, Token};
use requester::Requester;
use trail::Trail;

/// Parameters, and a switch for each repair (`lab/docs/papers/e2e.md` has the reasons).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Length of the votes' lease.
    pub lease: Span,
    /// Time until a client retries, doubled up to half a lease, or a token is resent.
    pub retry: Span,
    /// Interval of the waiters' pings.
    pub ping: Span,
    /// n of §V.A: the waiters with a copy of the queue.
    pub backups: usize,
    /// Delay of these copies.
    pub update: Span,
    /// RELEASE names the successor.
    pub successor_named: bool,
    /// Replicas store losers until they know the winner, and a former owner forwards an ENQUEUE.
    pub losers_queued: bool,
    /// Hops record winners. In print they record the first request.
    pub marks_of_winners: bool,
    /// Owners are numbered, and messages of earlier ones ignored.
    pub epochs: bool,
    /// Retransmits TOKEN.
    pub acknowledged: bool,
    /// Votes expire.
    pub leases: bool,
    /// Clients retry.
    pub asks_again: bool,
    /// The next owner needs votes. In print it declares itself.
    pub claims_voted: bool,
}

impl Config {
    /// §IV.A, with the backups of §V.A.
    pub const PRINTED: Self = Self::new(false);
    /// §IV.A with all repairs.
    pub const REPAIRED: Self = Self::new(true);

    const fn new(is_repaired: bool) -> Self {
        Self {
            lease: Span::from_secs(60),
            retry: Span::from_secs(2),
            ping: Span::from_secs(600),
            backups: 2,
            update: Span::from_secs(1),
            successor_named: is_repaired,
            losers_queued: is_repaired,
            marks_of_winners: is_repaired,
            epochs: is_repaired,
            acknowledged: is_repaired,
            leases: is_repaired,
            asks_again: is_repaired,
            claims_voted: is_repaired,
        }
    }

    /// How often a token is sent before its receiver counts as dead.
    const TRIES: u32 = 8;
    /// Maximum number of former owners that forward an ENQUEUE: our choice.
    const MAX_DETOURS: u8 = 3;
    /// Maximum number of requests stored for an announced token: our choice.
    const MAX_EARLY: usize = 1000;

    fn votes(&self) -> sigma::Config {
        sigma::Config {
            lease: if self.leases { self.lease } else { FOREVER },
            retry: self.retry,
            client_leases: self.leases,
            default_timer: false,
            levels_agree: self.asks_again,
            ..sigma::Config::REPAIRED
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct E2e {
    config: Config,
    common: Common<Message>,
    requesters: Vec<Requester>,
    /// The first request of this process.
    first: Option<Stamp>,
    token: Option<Token>,
    past: Vec<Past>,
    early: Vec<Entry>,
    /// *Replica list*: the known owner.
    trail: Trail<Owner>,
    replicas: Vec<Replica>,
    outbox: Outbox<Message>,
}

impl E2e {
    pub fn new(me: PeerId, replicas: &Replicas, config: Config) -> Self {
        Self {
            config,
            common: Common::new(me, replicas, config.votes()),
            requesters: Vec::new(),
            first: None,
            token: None,
            past: Vec::new(),
            early: Vec::new(),
            trail: Trail::default(),
            replicas: replicas.hosted_by(me).map(|index| Replica::new(index, 0)).collect(),
            outbox: Outbox::default(),
        }
    }

    fn me(&self) -> PeerId {
        self.common.sender.me
    }

    fn send(&mut self, to: PeerId, message: Message, cx: &mut Cx<'_, Self>) {
        self.common.sender.send(to, message, cx);
    }

    fn send_to_all(&mut self, message: impl Fn(u32) -> Message, cx: &mut Cx<'_, Self>) {
        for replica in 0..self.common.quorum().replicas() {
            self.common.sender.send_to(replica, message(replica), cx);
        }
    }

    fn enqueue_at(&mut self, owner: Owner, client: Waiting, by: By, again: bool, cx: &mut Cx<'_, Self>) {
        self.send(owner.peer, Message::Enqueue(Enqueue { client, by, again, owner, detours: 0 }), cx);
    }

    fn merge_clocks(&mut self, client: Stamp, epoch: u64) {
        self.common.clock = self.common.clock.max(client.time);
        self.common.fencing = self.common.fencing.max(epoch);
    }

    fn requester(&self, stamp: Stamp) -> Option<usize> {
        self.requesters.iter().position(|requester| requester.votes.stamp == stamp)
    }

    fn replica(&self, index: u32) -> Option<usize> {
        self.replicas.iter().position(|replica| replica.index == index)
    }

    fn deliver(&mut self, from: PeerId, message: Message, cx: &mut Cx<'_, Self>) {
        match message {
            Message::Request { replica, client, fencing } => {
                self.on_request(replica, client, (from, fencing, false), cx);
            }
            Message::Vote(vote) => self.on_vote(from, vote, cx),
            Message::IAmWinner { replica, owner } | Message::Release { replica, owner } => {
                self.learn(replica, owner, None, cx);
            }
            Message::Enqueue(wanted) => self.on_enqueue(from, wanted, cx),
            Message::Queued { to, owner, copy } => self.on_queued(to, owner, copy, cx),
            Message::Astray { to, epoch } => self.on_astray(to, epoch, cx),
            Message::Back { replica, client, elected, fencing } => {
                self.on_release(replica, elected, fencing, cx);
                if self.replica(replica).is_some() {
                    self.on_request(replica, client, (client.client.peer(), fencing, true), cx);
                }
            }
            Message::Withdraw { client } => self.on_withdraw(client, cx),
            Message::Token { receipt, to, owner, until, rest } => {
                if self.config.acknowledged {
                    self.send(from, Message::Got { receipt }, cx);
                }
                self.on_token(to, owner, until, rest, cx);
            }
            Message::Decline { replica, client, fencing } => {
                let Some(at) = self.replica(replica) else { return };
                self.replicas[at].merge_clocks(client, fencing);
                if self.replicas[at].speaker(client) == Some(from) {
                    self.replicas[at].on_release(client, &mut self.common, cx);
                }
            }
            Message::Got { receipt } => drop(self.outbox.on_receipt(receipt)),
            Message::Forget { replica, epoch } => {
                let mark = self.trail.remove(replica, |owner| owner.epoch < epoch);
                if let Some(next) = mark.and_then(|mark| mark.next) {
                    self.send(next, Message::Forget { replica, epoch }, cx);
                }
            }
        }
    }

    fn on_vote(&mut self, from: PeerId, vote: sigma::Message, cx: &mut Cx<'_, Self>) {
        match vote {
            sigma::Message::Request { replica, client, sent, fencing } => {
                self.on_request(replica, Waiting { client, sent }, (from, fencing, true), cx);
            }
            sigma::Message::Response { .. } => self.on_response(from, vote, cx),
            sigma::Message::Inquire { replica, owner, number, earlier } => {
                if let Some(token) = self.token.as_ref().filter(|token| token.owner.elected == owner) {
                    if !earlier {
                        let owner = token.owner; // The IAMWINNER has not arrived at the replica.
                        self.send(from, Message::IAmWinner { replica, owner }, cx);
                    }
                } else if let Some(at) = self.requester(owner) {
                    if earlier {
                        self.requesters[at].votes.on_inquire(replica, number, &mut self.common, cx);
                    }
                } else {
                    self.answer_stale_vote(from, replica, owner, cx);
                }
            }
            sigma::Message::Yield { replica, client, number, sent } => match self.replica(replica) {
                Some(at) => {
                    let entry = Entry { client, sent, arrived: cx.now() };
                    self.replicas[at].on_yield(entry, number, &mut self.common, cx);
                }
                None => cx.unexpected("a message for a replica that is not hosted here"),
            },
            sigma::Message::Release { replica, client, fencing } => self.on_release(replica, client, fencing, cx),
        }
    }

    /// §IV.A, step 3, at the replica. *Departure:* it sends ENQUEUE, as a hop does; the paper's replica only names the
    /// owner. It also queues a client that retries: the owner may be dead.
    fn on_request(
        &mut self,
        replica: u32,
        client: Waiting,
        (from, fencing, again): (PeerId, u64, bool),
        cx: &mut Cx<'_, Self>,
    ) {
        let Some(at) = self.replica(replica) else {
            return cx.unexpected("a message for a replica that is not hosted here");
        };
        self.replicas[at].merge_clocks(client.client, fencing);
        let owner = self.owner_for(replica).filter(|owner| owner.elected != client.client);
        if let Some(owner) = owner.filter(|_| self.config.losers_queued) {
            self.enqueue_at(owner, client, By::Replica(replica), again, cx);
            if !again {
                return;
            }
        }
        let (here, common) = (&mut self.replicas[at], &mut self.common);
        here.set_speaker(client.client, from);
        let is_free = here.owner().is_none_or(|owner| owner == client.client);
        if self.config.losers_queued || is_free {
            here.on_request(client.arrived(cx.now()), common, cx);
        } else {
            here.answer(client.client, common, cx);
        }
        let voted_for = here.owner();
        self.trail.remove(replica, |owner| Some(owner.elected) != voted_for);
    }

    fn owner_for(&self, replica: u32) -> Option<Owner> {
        let notified = self.trail.get(replica).map(|mark| mark.known);
        self.token.as_ref().map(|token| token.owner).or(notified)
    }

    /// §IV.A, step 2, at a hop. Returns whether the request is forwarded.
    fn on_request_by(&mut self, hop: Hop, replica: u32, client: Waiting, cx: &mut Cx<'_, Self>) -> bool {
        if let Some(owner) = self.owner_for(replica).filter(|owner| owner.elected != client.client) {
            self.enqueue_at(owner, client, By::Hop(replica), false, cx);
            return false;
        }
        if !self.config.marks_of_winners {
            let owner = Owner { epoch: 0, elected: client.client, peer: hop.origin };
            self.trail.mark(replica, owner, (hop.previous, hop.next));
        }
        true
    }

    /// Records an owner (§IV.A, steps 4 and 6), and clears the former route (§V.A).
    fn learn(&mut self, replica: u32, owner: Owner, hop: Option<Hop>, cx: &mut Cx<'_, Self>) {
        let known = self.trail.get(replica).map(|mark| mark.known);
        if self.config.epochs && known.is_some_and(|known| owner.epoch < known.epoch) {
            return;
        }
        match (hop, self.trail.get_mut(replica)) {
            (Some(hop), _) => {
                if let Some(next) = self.trail.mark(replica, owner, (hop.previous, hop.next)) {
                    self.send(next, Message::Forget { replica, epoch: owner.epoch }, cx);
                }
            }
            (None, Some(mark)) => mark.known = owner,
            (None, None) => drop(self.trail.mark(replica, owner, (owner.peer, None))),
        }
        let Some(at) = self.replica(replica).filter(|_| self.config.losers_queued) else { return };
        self.replicas[at].merge_clocks(owner.elected, owner.epoch);
        self.replicas[at].set_speaker(owner.elected, owner.peer);
        for entry in self.replicas[at].take_queue(owner.elected) {
            let client = entry.into_waiting(cx.now());
            self.enqueue_at(owner, client, By::Replica(replica), false, cx);
        }
    }

    /// §IV.A, step 6, a RELEASE without successor.
    fn on_release(&mut self, replica: u32, client: Stamp, fencing: u64, cx: &mut Cx<'_, Self>) {
        self.forget(replica, client);
        let Some(at) = self.replica(replica) else { return };
        let here = &mut self.replicas[at];
        here.merge_clocks(client, fencing);
        let whose = if self.config.epochs { client } else { here.owner().unwrap_or(client) };
        here.on_release(whose, &mut self.common, cx);
    }

    fn forget(&mut self, replica: u32, elected: Stamp) {
        let any = !self.config.epochs;
        self.trail.remove(replica, |owner| any || owner.elected == elected);
    }

    fn deliver_here(&mut self, cx: &mut Cx<'_, Self>) {
        while let Some(message) = self.common.sender.take() {
            self.deliver(self.me(), message, cx);
        }
    }
}

impl Protocol for E2e {
    type Message = Message;
    type Timer = Timer;

    fn request(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        self.expire(cx);
        let client = Claim { peer: self.me(), ticket };
        let stamp = Stamp { time: self.common.tick(cx.now()), client };
        self.first.get_or_insert(stamp);
        self.requesters.push(Requester::new(ticket, stamp, self.common.quorum().replicas()));
        self.send_first_requests(self.requesters.len() - 1, cx);
        self.deliver_here(cx);
    }

    fn release(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        if let Some(token) = self.token.as_mut().filter(|token| token.user == Some(ticket)) {
            token.user = None;
            self.end_turn(cx);
        } else if let Some(at) = self.requesters.iter().position(|requester| requester.votes.ticket == ticket) {
            self.withdraw(at, cx);
        }
        self.deliver_here(cx);
    }

    fn on_message(&mut self, from: PeerId, message: Message, cx: &mut Cx<'_, Self>) {
        if message.replica().is_some_and(|replica| replica >= self.common.quorum().replicas()) {
            return cx.unexpected("a message about an unknown replica");
        }
        self.expire(cx);
        self.deliver(from, message, cx);
        self.deliver_here(cx);
    }

    /// §IV.A, step 3. A replica that has moved here starts without memory.
    fn on_routed(&mut self, hop: Hop, message: Message, cx: &mut Cx<'_, Self>) {
        let Some(index) = self.common.sender.replicas.addressed(hop.key, message.replica()) else {
            return cx.unexpected("a message for another replica than that of its key");
        };
        if self.replica(index).is_none() {
            self.replicas.push(Replica::new(index, cx.now().as_nanos()));
        }
        self.expire(cx);
        match message {
            Message::IAmWinner { replica, owner } | Message::Release { replica, owner } => {
                self.learn(replica, owner, Some(hop), cx);
            }
            message => self.deliver(hop.origin, message, cx),
        }
        self.deliver_here(cx);
    }

    fn on_forward(&mut self, hop: Hop, message: Message, cx: &mut Cx<'_, Self>) -> Option<Message> {
        if self.common.sender.replicas.addressed(hop.key, message.replica()).is_none() {
            cx.unexpected("a message for another replica than that of its key");
            return None;
        }
        self.expire(cx);
        let goes_on = match message {
            Message::Request { replica, client, .. } => self.on_request_by(hop, replica, client, cx),
            // A retry: the known owner has not answered.
            Message::Vote(sigma::Message::Request { replica, client, .. }) => {
                self.trail.remove(replica, |owner| owner.elected != client);
                true
            }
            Message::IAmWinner { replica, owner } | Message::Release { replica, owner } => {
                self.learn(replica, owner, Some(hop), cx);
                true
            }
            Message::Vote(sigma::Message::Release { replica, client, .. }) => {
                self.forget(replica, client);
                true
            }
            _ => true,
        };
        self.deliver_here(cx);
        goes_on.then_some(message)
    }

    fn on_disowned(&mut self, key: Key, cx: &mut Cx<'_, Self>) {
        if let Some(at) = self.common.sender.replicas.under(key).and_then(|index| self.replica(index)) {
            let replica = self.replicas.swap_remove(at).index;
            cx.cancel_timer(sigma::Timer::Lease(replica).into());
            self.trail.remove(replica, |_| true);
        }
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Cx<'_, Self>) {
        self.expire(cx);
        match timer {
            Timer::Vote(sigma::Timer::Wake(id)) => self.on_renewal(id, cx),
            Timer::Vote(sigma::Timer::Lease(index)) => {
                if let Some(at) = self.replica(index) {
                    self.replicas[at].on_lease_timer(&mut self.common, cx);
                }
            }
            Timer::Wake(ticket) => {
                if let Some(at) = self.requesters.iter().position(|requester| requester.votes.ticket == ticket) {
                    self.on_wake(at, cx);
                }
            }
            Timer::Update => self.update(cx),
            Timer::Again => {
                for token in self.outbox.resend(Config::TRIES, &mut self.common.sender, cx) {
                    if let Message::Token { owner, rest, .. } = token {
                        self.send_queue(owner, rest, cx);
                    }
                }
                if !self.outbox.is_empty() {
                    cx.set_timer(Timer::Again, self.config.retry);
                }
            }
        }
        self.deliver_here(cx);
    }

    fn on_reset(&mut self, incarnation: u64, cx: &mut Cx<'_, Self>) {
        self.trail.clear();
        for replica in &mut self.replicas {
            replica.reset(incarnation, cx);
        }
    }
}

impl fmt::Display for E2e {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let requesters = self.requesters.iter().map(ToString::to_string);
        let token = self.token.iter().map(|token| format!("token: {token}"));
        let replicas = self.replicas.iter().map(|replica| format!("R{}: {replica}", replica.index));
        let trail = self.trail.iter().map(|(replica, owner)| format!("to R{replica}: {owner}"));
        let mut parts = requesters.chain(token).chain(replicas).chain(trail).peekable();
        if parts.peek().is_none() { f.write_str("idle") } else { write_parts(f, parts) }
    }
}
