//! Non-E2E: mutual exclusion by votes, with a queue that is spread over the routes to the voters (Muhammad, Cheema,
//! Gupta: "Efficient Mutual Exclusion in Peer-to-Peer Systems", §IV.B and §V.B).
//!
//! A resource has n replicas on an overlay, each with one vote, and m votes win. A REQUEST travels hop by hop to each
//! replica and leaves an entry at every peer on its way: a *route quorum*. The next request for the same replica goes
//! no further than the first peer with an entry, which queues it. RELEASE takes the same ways, clears the entries and
//! brings the partial queues along, so that the replica sees everybody who waits when it picks the next owner.
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
//! The replicas' votes are [Sigma's](crate::sigma), which the paper builds on: queues in the order of time stamps,
//! votes that are leased and numbered, replicas that ask their owner to yield to somebody earlier. Entries and partial
//! queues only save messages. So the repaired form is as safe as Sigma: at most one is inside as long as fewer than 2m
//! − n replicas are reset (or move to another peer) within any one lease time. What hops lose is asked for again.
//!
//! The form of §IV.B is [`Config::PRINTED`], ours is [`Config::REPAIRED`]; each switch in [`Config`] names one defect.
//!
//! *Departure:* a client may withdraw while it waits, and any number of clients at one peer wait each in its own right.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use peerlock_base::{Key, PeerId, Span, Ticket};

use crate::outbox::Outbox;
use crate::sigma::replica::{Entry as Request, Replica, is_same};
use crate::sigma::{self, Common, Stamp, Yields};
use crate::token::Claim;
use crate::{Cx, Hop, Observe, Protocol, Replicas};

mod client;
mod hop;
mod message;

use client::Requester;
use hop::Entry;
pub use message::{Load, Message, Timer};

/// How the protocol is played. Each switch is one difference between the printed form (off) and the repaired (on).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// How long a vote is good for without renewal. 10 s: as in Sigma.
    pub lease: Span,
    /// How long a client waits for an answer, or with too few votes for more, before it asks again; then twice as long,
    /// up to a third of the lease. 0.5 s: our choice, more than a round trip.
    pub retry: Span,
    /// After which time a client without votes asks whether its requests still wait where they were; then after twice
    /// that time, and so on. And after which time a hop asks whether the way still stands that somebody waits behind;
    /// then after twice that time, and so on. 10 s: our choice. Whoever waited at a peer that is dead may so wait twice
    /// as long as before, and the number of questions grows with the logarithm of the time. Each costs two messages.
    pub patience: Span,
    /// A client asks at least this often. 10 minutes: the paper's example for pings (§V.A).
    pub most_patience: Span,
    /// After which time a hop sends queues again whose arrival it has not been told of. 2 s: our choice, several times
    /// as long as a route takes.
    pub again: Span,
    /// The word of a hop is not taken for a vote. In print it is: a hop that is asked twice by one client names that
    /// client as holder, which it then believes to be.
    pub hearsay: bool,
    /// A client with too few votes goes past the hops that have queued it, and replicas ask their owner to yield when
    /// somebody earlier waits. In print all yield after a random time; but a replica that does not know who waits in
    /// the hops' queues gives the vote back to the one who has yielded: a split for ever.
    pub surfaces: bool,
    /// A vote for a request that is finished is answered with RELEASE. In print nobody ever gives it back: a client
    /// that is left in some queue blocks the replica.
    pub answers_ghosts: bool,
    /// Requests are told apart, and grants are numbered. In print a late RELEASE of an earlier request hits the next
    /// one, and late grants count.
    pub epochs: bool,
    /// The last hop that has added to the queue in a RELEASE keeps a copy until the replica has it. In print the only
    /// copy is under way.
    pub keeps_copies: bool,
    /// Votes are leased, clients know until when, and renew them. In print the vote for a client that crashes inside is
    /// lost for ever.
    pub leases: bool,
    /// A client asks again. In print what is lost, or forgotten, is lost for ever.
    pub asks_again: bool,
}

impl Config {
    /// The form of §IV.B, with the pings of §V.B.
    pub const PRINTED: Self = Self {
        lease: Span::from_secs(10),
        retry: Span::from_millis(500),
        patience: Span::from_secs(10),
        most_patience: Span::from_secs(600),
        again: Span::from_secs(2),
        hearsay: false,
        surfaces: false,
        answers_ghosts: false,
        epochs: false,
        keeps_copies: false,
        leases: false,
        asks_again: false,
    };
    /// The form that we use.
    pub const REPAIRED: Self = Self {
        hearsay: true,
        surfaces: true,
        answers_ghosts: true,
        epochs: true,
        keeps_copies: true,
        leases: true,
        asks_again: true,
        ..Self::PRINTED
    };

    /// How often queues are sent. By then whoever waits in them has asked again by itself.
    const TRIES: u32 = 8;
    /// A lease that ends in 272 years.
    const FOR_EVER: Span = Span::from_secs(1 << 33);

    fn votes(&self) -> sigma::Config {
        sigma::Config {
            lease: if self.leases { self.lease } else { Self::FOR_EVER },
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

/// One peer's part in Non-E2E, for one resource: any number of clients, any of the replicas, and a hop for others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NonE2e {
    config: Config,
    common: Common<Message>,
    /// Our clients, in the order of their requests.
    clients: Vec<Requester>,
    /// The replicas that we host.
    replicas: Vec<Replica>,
    /// *Replica list*: the ways of other peers' requests that lead through here, at most one to each replica.
    entries: Vec<Entry>,
    /// Queues that have been sent on, and may still be lost.
    outbox: Outbox<Message>,
    /// Whether [`Timer::Ping`] is pending.
    watches: bool,
}

impl NonE2e {
    /// A peer that nobody has asked for anything yet.
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
            watches: false,
        }
    }

    fn client(&self, id: Ticket) -> Option<usize> {
        self.clients.iter().position(|client| client.votes.id() == id)
    }

    fn is_same(&self, one: Stamp, other: Stamp) -> bool {
        is_same(one, other, &self.common.config)
    }

    /// The name under which others know a request. In print a client has the same name for all of them.
    fn id_for(&self, ticket: Ticket) -> Ticket {
        let is_free = |id: &Ticket| self.client(*id).is_none();
        if self.config.epochs { ticket } else { (1..).map(Ticket::new).find(is_free).unwrap_or(ticket) }
    }

    fn finish(&mut self, at: usize, cx: &mut Cx<'_, Self>) {
        self.clients.remove(at).release(&mut self.common, cx);
    }

    /// A message that was sent to this peer, by another or by ourselves.
    fn deliver(&mut self, from: PeerId, message: Message, cx: &mut Cx<'_, Self>) {
        if message.replica().is_some_and(|replica| replica >= self.common.quorum().replicas()) {
            return cx.strange("a message about a replica that there is not");
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
                    Some(_) => {} // It lives, and is the first of those who do.
                    None => self.answer_ghost(from, replica, owner, cx),
                }
            }
            Message::Taken { receipt } => drop(self.outbox.on_receipt(receipt)),
            Message::Ping { replica, holder } => {
                let known = self.knows(replica, holder);
                self.common.post.send(from, Message::Ack { replica, holder, known }, cx);
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

    /// §IV.B, step 5. A vote for a request that is finished goes straight back.
    fn on_grant_req(&mut self, from: PeerId, to: Ticket, response: sigma::Message, cx: &mut Cx<'_, Self>) {
        let sigma::Message::Response { replica, owner, fencing, clock, .. } = response else { return };
        self.common.clock = self.common.clock.max(clock);
        self.common.fencing = self.common.fencing.max(fencing);
        match (self.client(to), owner) {
            (Some(at), _) => self.clients[at].on_grant_req(from, response, &self.config, &mut self.common, cx),
            (None, Some(owner)) if owner.client == (Claim { peer: self.common.post.me(), ticket: to }) => {
                self.answer_ghost(from, replica, owner, cx);
            }
            (None, _) => {}
        }
    }

    fn answer_ghost(&mut self, from: PeerId, replica: u32, client: Stamp, cx: &mut Cx<'_, Self>) {
        if self.config.answers_ghosts {
            let (fencing, load) = (self.common.fencing, Load::default());
            self.common.post.send(from, Message::Release { replica, client, fencing, load }, cx);
        }
    }

    /// §IV.B, steps 3 and 4.
    fn deliver_to_replica(&mut self, at: usize, message: Message, cx: &mut Cx<'_, Self>) {
        let (replica, common, now) = (&mut self.replicas[at], &mut self.common, cx.now());
        match message {
            Message::Request { client, sent, fencing, .. }
            | Message::Vote(sigma::Message::Request { client, sent, fencing, .. }) => {
                replica.hear(client, fencing);
                replica.on_request(Request { client, sent, arrived: now }, common, cx);
            }
            Message::Vote(sigma::Message::Yield { client, number, sent, .. }) => {
                replica.on_yield(Request { client, sent, arrived: now }, number, common, cx);
            }
            Message::Release { client, fencing, load, .. } => {
                replica.hear(client, fencing);
                load.queue.into_iter().for_each(|waiting| replica.merge(waiting.arrived(now), common));
                replica.on_release(client, common, cx);
                replica.settle(common, cx);
                self.take_over(load.keeper, cx);
            }
            Message::Cleanup { load, .. } => {
                load.queue.into_iter().for_each(|waiting| replica.merge(waiting.arrived(now), common));
                replica.settle(common, cx);
                self.take_over(load.keeper, cx);
            }
            _ => {} // The rest is not for replicas.
        }
    }

    /// Something for a replica that is not here, but was, or for a request that waits here, or did.
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
        self.common.post.send_to(&self.common.replicas, replica, onward, cx);
    }

    /// Delivers what we have told ourselves.
    fn deliver_here(&mut self, cx: &mut Cx<'_, Self>) {
        while let Some(message) = self.common.post.take() {
            self.deliver(cx.me(), message, cx);
        }
    }

    /// The replica with this index is here from now on, with an empty memory but for what we know as a hop.
    fn host(&mut self, index: u32, cx: &mut Cx<'_, Self>) {
        let mut replica = Replica::new(index, cx.now().as_nanos());
        for entry in self.entries.extract_if(.., |entry| entry.replica == index) {
            entry.queue.into_iter().for_each(|queued| replica.merge(queued, &self.common));
        }
        replica.settle(&mut self.common, cx);
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
        let index = match (self.common.replicas.under(hop.key), message.replica()) {
            (Some(index), Some(meant)) if index == meant => index,
            _ => return cx.strange("a message for a replica that is not under its key"),
        };
        if self.replicas.iter().all(|replica| replica.index != index) {
            self.host(index, cx);
        }
        self.on_message(hop.origin, message, cx);
    }

    fn on_forward(&mut self, hop: Hop, message: Message, cx: &mut Cx<'_, Self>) -> Option<Message> {
        let meant = message.replica().filter(|_| message.replica() == self.common.replicas.under(hop.key));
        let (Some(next), Some(_)) = (hop.next, meant) else {
            cx.strange("a message that comes by on its way to nowhere");
            return None;
        };
        if !self.on_request_by(hop, next, &message, cx) {
            return None;
        }
        self.on_release_by(message, cx)
    }

    fn on_disowned(&mut self, key: Key, cx: &mut Cx<'_, Self>) {
        self.replicas.retain(|replica| {
            let stays = self.common.replicas.key(replica.index) != Some(key);
            if !stays {
                cx.cancel_timer(sigma::Timer::Lease(replica.index).into());
            }
            stays
        });
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

    /// §II, the failure model: internal states may be reset at any time. What we keep as a hop is lost with it.
    fn on_reset(&mut self, incarnation: u64, cx: &mut Cx<'_, Self>) {
        for replica in &mut self.replicas {
            replica.reset(incarnation, cx);
        }
        self.entries.clear();
        self.outbox = Outbox::default();
        self.watches = false;
        cx.cancel_timer(Timer::Ping);
        cx.cancel_timer(Timer::Again);
    }
}

impl Observe for NonE2e {
    const KINDS: &'static [&'static str] = Message::KINDS;

    fn kind(message: &Message) -> usize {
        message.kind()
    }
}

/// What a peer knows, in one line: `R0: 1@4 then [1@5]; hop to R1: 1@4 then [1@6]; 1@6 waits, votes [R2], queued [R1 at
/// 3]`.
impl fmt::Display for NonE2e {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut replicas: Vec<&Replica> = self.replicas.iter().collect();
        replicas.sort_by_key(|replica| replica.index);
        let mut entries: Vec<&Entry> = self.entries.iter().collect();
        entries.sort_by_key(|entry| entry.replica);
        let replicas = replicas.iter().map(|replica| format!("R{}: {replica}", replica.index));
        let entries = entries.iter().map(|entry| format!("hop to R{}: {entry}", entry.replica));
        let parts: Vec<String> = replicas.chain(entries).chain(self.clients.iter().map(ToString::to_string)).collect();
        f.write_str(if parts.is_empty() { "idle" } else { "" })?;
        f.write_str(&parts.join("; "))
    }
}
