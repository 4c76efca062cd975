//! The coordinator protocol: replicas that elect who decides (Obeidat, Gubarev, Al-yousef: "Decentralized and Fair
//! Mutual Exclusion Protocol in Peer-to-Peer Systems").
//!
//! One of n replicas is the *coordinator*. It answers every request with the queue and tells everybody who waits of
//! every newcomer, so that each has the complete queue, and whoever leaves passes the token straight to the next:
//!
//! ```text
//!   A (inside)      R₀ (coordinator)     B
//!   │                 │    REQUEST(B)    │
//!   │                 │◄─────────────────┤ to all n if R₀ does not answer
//!   │ ADDREQUEST(B)   │ RESPONSE(A, …)   │
//!   │◄────────────────┼─────────────────►│ also to all who wait, and to the replicas
//!   │ RELEASE(A, next B)                 │
//!   ├─────────────────┬─────────────────►│ B is in; also to all who wait
//!   │                 ▼                  │
//! ```
//!
//! The form of Figure 1 is [`Config::PRINTED`]. Its second client waits for ever; each switch in [`Config`] names one
//! defect and its repair. [`Config::REPAIRED`] is what we use. How the replicas agree on a coordinator is in
//! `group.rs`.
//!
//! # Why it is safe
//!
//! *Assumptions.* Messages may be lost, doubled, delayed and overtaken without bound; replicas and clients may stop at
//! any time, and replicas forget; the rates of any two clocks differ by less than a thousandth, and timers are not late
//! where a client's lease ends. For rising fencing numbers also: at any time a majority of the replicas remembers.
//!
//! 1. *One coordinator at a time.* A coordinator acts only while m replicas, itself counted, have promised to follow
//!    nobody else. A promise lasts for a [term](Config::term) from the moment at which it is given, and is counted from
//!    the moment at which the message that it answers was sent. Two sets of m share a replica, and a replica has one
//!    promise out at a time. One that has forgotten its promises gives none until a term has passed, when they have all
//!    ended. A coordinator whose promises have lapsed is out of office, for good, until it is elected again: so on the
//!    wrong side of a partition there is none.
//! 2. *One chain at a time.* Whoever is inside was let in by a coordinator, or got the token from one who was: a chain
//!    of hand-overs. A coordinator begins a chain when it knows that the one before has ended, because its last owner
//!    left without a successor; or when the chain's lease has run out. It prolongs the lease by telling clients; and a
//!    client goes inside, and stays, only until the end that it was told, by its own clock, of the owner at that time
//!    or of one before it. So everybody of the chain is out by then, be the token handed over or lost.
//! 3. *Over elections.* What a coordinator has granted is written down nowhere but at the client; no grant waits for
//!    the other replicas. Instead a new coordinator begins no chain until a lease time has passed (*grace*): its
//!    predecessor could prolong no lease after its own promises had lapsed. Meanwhile owners renew their leases with
//!    it, and hand the token on as ever. The memory of a voter is a hint that spares time; for safety it is never
//!    needed.
//!
//! # Numbers
//!
//! A hand-over adds 1 to the fencing number, and so does a coordinator after a RELEASE that ends a chain. After a lease
//! has run out, the coordinator goes on from the next multiple of [`LEAP`](fencing::LEAP), since it cannot know how
//! often the token was handed over; a chain is no longer than that. A new coordinator's first chain begins at its epoch
//! times 2⁴⁰. Epochs rise: a candidate needs the votes of m who have seen no higher one, and one who has forgotten gets
//! to know them from the coordinator before it votes again. If so many forget that no majority remembers, the rest
//! begin anew, which is as safe, but numbers may begin anew, too.
//!
//! # Nobody waits for ever
//!
//! Clients ask again until they are inside, first all replicas and then the one that answers; a coordinator that knows
//! them changes nothing but the time it last heard of them. RELEASEs are retransmitted until the coordinator has
//! confirmed one. A grant that nobody wants any more goes back to the coordinator, and so does one whose
//! owner knows no successor: then the coordinator serves the first of its own queue. All the rest may get lost.
//!
//! *Departure:* a client may withdraw while it waits, and any number of clients at one peer wait each in its own right.

use alloc::vec::Vec;
use core::fmt;

use peerlock_base::{Key, PeerId, Span, Ticket};

#[cfg(doc)]
use crate::fencing;
use crate::replicas::Post;
use crate::token::Claim;
use crate::{Cx, Hop, Observe, Protocol, Replicas};

mod client;
mod group;
mod message;
mod replica;

use client::Clients;
use group::Group;
pub use message::{Entry, Holder, Memory, Message, Place, Telling, Timer};
use replica::Replica;

/// By so much the numbers of two epochs differ: room for a million leaps.
const EPOCH: u64 = 1 << 40;

/// How the protocol is played. Each switch is one difference between the printed form (off) and the repaired (on).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// How long an owner's lease is good for without renewal; also how long one who waits may be silent. 10 s: our
    /// choice, as in Sigma.
    pub lease: Span,
    /// How long a replica's promise to its coordinator is good for. 4 s: our choice, four pings.
    pub term: Span,
    /// *periodOfTime*: how often replicas ping their coordinator, and in print how long they wait for OK. 1 s: our
    /// choice.
    pub ping: Span,
    /// After this long a client that was not answered asks again. 0.5 s: our choice, more than a round trip.
    pub retry: Span,
    /// ADDREQUEST goes to the owner, too. In print it goes to the replicas and to those who wait, so that the owner
    /// never knows of anybody to release to.
    pub owner_told: bool,
    /// Replicas act on RELEASE. In print they have no handler for it, and think that the first owner is inside for
    /// ever.
    pub replicas_hear_release: bool,
    /// RELEASE names the successor; if the owner knows none the coordinator serves the first of its queue. In print
    /// whoever finds itself first in its own queue is next: a RELEASE that overtakes ADDREQUEST or RESPONSE leaves one
    /// behind.
    pub named_successor: bool,
    /// The coordinator numbers requests. In print they are in the order of the clients' time stamps, and one that comes
    /// late but was asked early makes a second head of the queue.
    pub coordinator_numbers: bool,
    /// Requests are told apart, and a grant for one that is finished goes back. In print a client has one id for all of
    /// them, and a REQUEST that comes twice is served twice.
    pub requests_apart: bool,
    /// A REQUEST that comes again is answered again. In print (*received(msg)*) every replica drops it, also one that
    /// has become coordinator since.
    pub coordinator_dedups: bool,
    /// A coordinator needs promises of a majority, and a replica without memory gives none. In print whoever finds the
    /// coordinator silent is the next, and the latest time stamp wins.
    pub majority_lease: bool,
    /// Owners have a lease, and know when it ends. In print (§4.4) it is promised; Figure 1 has none.
    pub owner_lease: bool,
    /// What is not answered is retransmitted. In print (§4.4) it is promised; Figure 1 sends everything once.
    pub resends: bool,
    /// Only the coordinator acts on a REQUEST. In print the others ping it and pass the REQUEST on: the same, for 3 (n
    /// − 1) messages more.
    pub one_acts: bool,
    /// A client sends REQUEST and RELEASE to one replica, which passes a REQUEST on if it is not the coordinator; to
    /// all only if no answer comes. In print to all at once.
    pub one_asked: bool,
}

impl Config {
    /// The form of Figure 1.
    pub const PRINTED: Self = Self {
        lease: Span::from_secs(10),
        term: Span::from_secs(4),
        ping: Span::from_secs(1),
        retry: Span::from_millis(500),
        owner_told: false,
        replicas_hear_release: false,
        named_successor: false,
        coordinator_numbers: false,
        requests_apart: false,
        coordinator_dedups: false,
        majority_lease: false,
        owner_lease: false,
        resends: false,
        one_acts: false,
        one_asked: false,
    };
    /// The form that we use.
    pub const REPAIRED: Self = Self {
        owner_told: true,
        replicas_hear_release: true,
        named_successor: true,
        coordinator_numbers: true,
        requests_apart: true,
        coordinator_dedups: true,
        majority_lease: true,
        owner_lease: true,
        resends: true,
        one_acts: true,
        one_asked: true,
        ..Self::PRINTED
    };
}

/// §4.4: how long a client will have to wait, as far as it can know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forecast {
    /// l: how many come before it, the one inside counted.
    pub ahead: u64,
    /// t_w = l × t_cs; `None` as long as the coordinator has seen nobody leave.
    pub wait: Option<Span>,
}

/// One peer's part in the coordinator protocol, for one resource: any number of clients, and any of the replicas.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Coordinator {
    common: Common,
    clients: Clients,
    /// The replicas that we host.
    replicas: Vec<Replica>,
}

/// What both halves know and do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Common {
    config: Config,
    replicas: Replicas,
    post: Post<Message>,
}

impl Common {
    /// To a replica.
    fn send(&mut self, replica: u32, message: Message, cx: &mut Cx<'_, Coordinator>) {
        self.post.send_to(&self.replicas, replica, message, cx);
    }
}

/// Whether both are the same request; in print, of the same client.
fn is_same(one: Claim, other: Claim, config: &Config) -> bool {
    if config.requests_apart { one == other } else { one.peer == other.peer }
}

impl Coordinator {
    /// A peer that nobody has asked for anything yet; it hosts the replicas that `replicas` places at `me`.
    pub fn new(me: PeerId, replicas: &Replicas, config: Config) -> Self {
        Self {
            common: Common { config, replicas: replicas.clone(), post: Post::new(me) },
            clients: Clients::new(),
            replicas: replicas.hosted_by(me).map(|index| Replica::new(index, Group::new())).collect(),
        }
    }

    /// How long the client with this ticket will have to wait; `None` if it does not wait, or has not been answered
    /// yet.
    pub fn forecast(&self, ticket: Ticket) -> Option<Forecast> {
        self.clients.forecast(ticket)
    }

    /// A message from another peer, or from ourselves.
    fn deliver(&mut self, message: Message, cx: &mut Cx<'_, Self>) {
        if let Some(index) = message.replica() {
            return match self.replicas.binary_search_by_key(&index, |replica| replica.index) {
                Ok(at) => self.deliver_to_replica(at, message, cx),
                Err(_) => cx.strange("a message for a replica that is not here"),
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
            _ => cx.strange("a message for a replica that there is not"),
        }
    }

    fn deliver_to_replica(&mut self, at: usize, message: Message, cx: &mut Cx<'_, Self>) {
        let (replica, common) = (&mut self.replicas[at], &mut self.common);
        replica.wake_up(common, cx);
        match message {
            Message::Request { .. } => replica.on_request(message, common, cx),
            Message::AddRequest { entry, .. } => replica.note(entry, cx.now()),
            Message::Release { .. } => replica.on_release(message, common, cx),
            Message::IamCoordinator { from, epoch, sent, .. } => {
                replica.on_iam_coordinator(from, epoch, sent, common, cx);
            }
            Message::Recover { .. } => replica.on_recover(message, common, cx),
            Message::Update { .. } => replica.on_update(message, common, cx),
            Message::Ping { from, epoch, heard, .. } => replica.on_ping(from, epoch, heard, common, cx),
            Message::Ok { .. } => replica.on_ok(message, common, cx),
            Message::Response { .. } | Message::Got { .. } => {}
        }
    }

    /// Delivers what we have told ourselves.
    fn deliver_here(&mut self, cx: &mut Cx<'_, Self>) {
        while let Some(message) = self.common.post.take() {
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
        if message.sender().is_some_and(|replica| replica >= self.common.replicas.quorum().replicas()) {
            return cx.strange("a message from a replica that there is not");
        }
        self.deliver(message, cx);
        self.deliver_here(cx);
    }

    /// A logical replica is wherever its key is. One that has moved here has forgotten everything.
    fn on_routed(&mut self, hop: Hop, message: Message, cx: &mut Cx<'_, Self>) {
        let Some(index) = self.common.replicas.under(hop.key) else {
            return cx.strange("a message for a replica that there is not");
        };
        if let Err(at) = self.replicas.binary_search_by_key(&index, |replica| replica.index) {
            let mut replica = Replica::new(index, Group::blank(cx.now(), &self.common.config));
            replica.begin_recovery(&mut self.common, cx);
            self.replicas.insert(at, replica);
        }
        self.on_message(hop.origin, message, cx);
    }

    fn on_disowned(&mut self, key: Key, cx: &mut Cx<'_, Self>) {
        self.replicas.retain(|replica| {
            let stays = self.common.replicas.key(replica.index) != Some(key);
            if !stays {
                cx.cancel_timer(Timer::Lease(replica.index));
                cx.cancel_timer(Timer::Ping(replica.index));
            }
            stays
        });
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Cx<'_, Self>) {
        let common = &mut self.common;
        match timer {
            Timer::Wake(ticket) => self.clients.on_wake(ticket, common, cx),
            Timer::Resend => self.clients.on_resend(common, cx),
            Timer::Lease(index) | Timer::Ping(index) => {
                if let Some(replica) = self.replicas.iter_mut().find(|replica| replica.index == index) {
                    match timer {
                        Timer::Lease(_) => replica.on_lease_timer(common, cx),
                        _ => replica.on_ping_timer(common, cx),
                    }
                }
            }
        }
        self.deliver_here(cx);
    }

    /// §3: "their internal states may be randomly reset due to a crash-recovery failure".
    fn on_reset(&mut self, _incarnation: u64, cx: &mut Cx<'_, Self>) {
        for replica in &mut self.replicas {
            replica.reset(&mut self.common, cx);
        }
        self.deliver_here(cx);
    }
}

impl Observe for Coordinator {
    const KINDS: &'static [&'static str] = Message::KINDS;

    fn kind(message: &Message) -> usize {
        message.kind()
    }
}

/// What its replicas know, and what its clients know: `R0 in office, epoch 0, 3 is inside, line 2@4`.
impl fmt::Display for Coordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for replica in &self.replicas {
            write!(f, "{between}{replica}")?;
            between = "; ";
        }
        if self.replicas.is_empty() { write!(f, "{}", self.clients) } else { Ok(()) }
    }
}

/// The line, in words.
fn write_line<'a>(f: &mut fmt::Formatter<'_>, line: impl Iterator<Item = &'a Entry>) -> fmt::Result {
    f.write_str(", line")?;
    let mut is_empty = true;
    for entry in line {
        write!(f, " {entry}")?;
        is_empty = false;
    }
    if is_empty { f.write_str(" empty") } else { Ok(()) }
}
