//! The strawman: a client requests all replicas and holds with m votes (§3 of the paper of [`crate::sigma`]). MinIO's
//! dsync is this protocol in production.
//!
//! A replica votes for the first request. A client that cannot get m votes returns those it has, and retries after a
//! random time, or not at all. With varying latencies votes split: throughput rises with the load, peaks, and falls to
//! nothing, like ALOHA's.
//!
//! ```text
//!   A              R₀ R₁ R₂             B
//!   ├── REQUEST ──►│  │  │◄── REQUEST ──┤
//!   │◄─ yes, no, no┤  │  ├─ no, yes, no►│      m = 2, a third client has R₂
//!   ├── RELEASE ──►│  │◄─┼── RELEASE ───┤      both lose
//! ```
//!
//! **Safety.** Without resets at most one client holds: two sets of m voters share a replica, whose vote is for one
//! client until RELEASE or the end of its lease. The client's lease counts from the start of its attempt and is 0.1 %
//! shorter, so it ends earlier. It is never renewed.
//!
//! *Departure:* attempts are numbered, and a late vote is returned.

use alloc::vec::Vec;
use core::fmt;

use peerlock_types::{PeerId, Span, Ticket, Time};
use serde::{Deserialize, Serialize};

use crate::quorum::{Verdict, Voters};
use crate::replicas::{Sender, by_any_clock};
use crate::token::Claim;
use crate::{Cx, Grant, Observe, Protocol, Quorum, Replicas, fencing};

/// An attempt of a client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Attempt {
    pub client: Claim,
    /// The number of earlier attempts.
    pub number: u64,
}

/// The messages. `fencing` is the highest fencing level known to the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Message {
    /// Sent by a client to every replica, which votes for it if it has no owner.
    Request { replica: u32, attempt: Attempt, fencing: u64 },
    /// Answers `Request`. The client counts its vote, or returns it.
    Response { replica: u32, attempt: Attempt, owner: Attempt, fencing: u64 },
    /// Returns a vote that the client has, or may have.
    Release { replica: u32, attempt: Attempt, fencing: u64 },
}

/// The timer of a client: the end of an attempt without answers, of the backoff, or of the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Wake(pub Ticket);

/// The reaction of a client that cannot win.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Loser {
    /// Figure 3: ALOHA's smooth curve.
    GivesUp,
    /// §3: retries after an exponential time, and adds to the load until throughput collapses.
    BacksOff {
        /// Mean of that time.
        mean: Span,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    pub loser: Loser,
    /// Length of a vote's lease; as in [`crate::sigma::Config`].
    pub lease: Span,
    /// Length of an attempt. 1 s: our choice, several round trips.
    pub patience: Span,
}

impl Config {
    pub const GIVES_UP: Self = Self { loser: Loser::GivesUp, lease: Span::from_secs(10), patience: Span::from_secs(1) };
    /// Losers retry after a second on average: our choice.
    pub const BACKS_OFF: Self = Self { loser: Loser::BacksOff { mean: Span::from_secs(1) }, ..Self::GIVES_UP };
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Strawman {
    config: Config,
    sender: Sender<Message>,
    fencing: u64,
    clients: Vec<Client>,
    votes: Vec<Vote>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Client {
    attempt: Attempt,
    phase: Phase,
    since: Time,
    received: Voters,
    mine: Voters,
    levels: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Trying,
    BackingOff,
    Holding,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Vote {
    index: u32,
    owner: Option<(Attempt, Time)>,
    fencing: u64,
}

impl Strawman {
    /// Creates a peer with the replicas that `replicas` places at `me`.
    pub fn new(me: PeerId, replicas: &Replicas, config: Config) -> Self {
        let votes = replicas.hosted_by(me).map(|index| Vote { index, owner: None, fencing: 0 }).collect();
        Self { config, sender: Sender::new(me, replicas), fencing: 0, clients: Vec::new(), votes }
    }

    fn quorum(&self) -> Quorum {
        self.sender.replicas.quorum()
    }

    fn client(&self, ticket: Ticket) -> Option<usize> {
        self.clients.binary_search_by_key(&ticket, |client| client.attempt.client.ticket).ok()
    }

    fn try_once(&mut self, at: usize, cx: &mut Cx<'_, Self>) {
        let client = &mut self.clients[at];
        (client.phase, client.since, client.received, client.mine) =
            (Phase::Trying, cx.now(), Voters::NONE, Voters::NONE);
        client.levels.clear();
        let (attempt, fencing) = (client.attempt, self.fencing);
        for replica in 0..self.quorum().replicas() {
            self.sender.send_to(replica, Message::Request { replica, attempt, fencing }, cx);
        }
        cx.set_timer(Wake(attempt.client.ticket), self.config.patience);
    }

    /// Returns the client's votes, with `and_unanswered` also those that it may have.
    fn return_votes(&mut self, at: usize, and_unanswered: bool, cx: &mut Cx<'_, Self>) {
        let Client { attempt, received, mine, .. } = self.clients[at];
        let fencing = self.fencing;
        for replica in 0..self.quorum().replicas() {
            if mine.contains(replica) || (and_unanswered && !received.contains(replica)) {
                self.sender.send_to(replica, Message::Release { replica, attempt, fencing }, cx);
            }
        }
    }

    fn lose(&mut self, at: usize, and_unanswered: bool, cx: &mut Cx<'_, Self>) {
        self.return_votes(at, and_unanswered, cx);
        let client = &mut self.clients[at];
        let ticket = client.attempt.client.ticket;
        match self.config.loser {
            Loser::GivesUp => {
                cx.cancel_timer(Wake(ticket));
                cx.refuse(ticket);
                self.clients.remove(at);
            }
            Loser::BacksOff { mean } => {
                client.attempt.number += 1;
                client.phase = Phase::BackingOff;
                let after = cx.rng().exponential(mean);
                cx.set_timer(Wake(ticket), after);
            }
        }
    }

    fn on_response(&mut self, at: usize, replica: u32, is_mine: bool, fencing: u64, cx: &mut Cx<'_, Self>) {
        let quorum = self.quorum();
        let client = &mut self.clients[at];
        if !client.received.insert(replica) {
            return; // A duplicate.
        }
        if is_mine {
            client.mine.insert(replica);
            client.levels.push(fencing);
        }
        if client.phase == Phase::Holding {
            return;
        }
        match quorum.verdict(client.mine.len(), client.received.len()) {
            Verdict::Open => {}
            Verdict::Cannot => self.lose(at, false, cx),
            Verdict::Won => self.enter(at, cx),
        }
    }

    fn enter(&mut self, at: usize, cx: &mut Cx<'_, Self>) {
        let votes = self.quorum().votes();
        let client = &mut self.clients[at];
        let left = by_any_clock(self.config.lease).as_nanos().saturating_sub(cx.now().since(client.since).as_nanos());
        let number = fencing::number(&mut client.levels, votes).filter(|_| left > 0);
        let Some(number) = number else { return self.lose(at, true, cx) };
        self.fencing = self.fencing.max(number);
        client.phase = Phase::Holding;
        let ticket = client.attempt.client.ticket;
        cx.set_timer(Wake(ticket), Span::from_nanos(left));
        cx.grant(ticket, Grant { slot: 0, fencing: number });
    }

    fn finish(&mut self, at: usize, cx: &mut Cx<'_, Self>) {
        // A holder returns late votes on arrival.
        self.return_votes(at, self.clients[at].phase == Phase::Trying, cx);
        cx.cancel_timer(Wake(self.clients[at].attempt.client.ticket));
        self.clients.remove(at);
    }

    fn deliver(&mut self, message: Message, cx: &mut Cx<'_, Self>) {
        match message {
            Message::Response { replica, attempt, owner, fencing } => {
                self.fencing = self.fencing.max(fencing);
                let known = self.client(attempt.client.ticket);
                let is_trying = |client: &Client| client.attempt == attempt && client.phase != Phase::BackingOff;
                match known.filter(|&at| is_trying(&self.clients[at])) {
                    Some(at) => self.on_response(at, replica, owner == attempt, fencing, cx),
                    None if owner == attempt => {
                        let fencing = self.fencing;
                        self.sender.send_to(replica, Message::Release { replica, attempt, fencing }, cx);
                    }
                    None => {}
                }
            }
            Message::Request { replica, .. } | Message::Release { replica, .. } => {
                match self.votes.binary_search_by_key(&replica, |vote| vote.index) {
                    Ok(at) => self.deliver_to_replica(at, message, cx),
                    Err(_) => cx.unexpected("a message for a replica that is not hosted here"),
                }
            }
        }
    }

    fn deliver_to_replica(&mut self, at: usize, message: Message, cx: &mut Cx<'_, Self>) {
        let vote = &mut self.votes[at];
        match message {
            Message::Request { replica, attempt, fencing } => {
                vote.fencing = vote.fencing.max(fencing);
                if vote.owner.is_some_and(|(_, until)| until <= cx.now()) {
                    vote.owner = None;
                    vote.fencing += fencing::LEAP; // The owner may have held.
                }
                let (owner, _) = *vote.owner.get_or_insert((attempt, cx.now() + self.config.lease));
                let message = Message::Response { replica, attempt, owner, fencing: vote.fencing };
                self.sender.send(attempt.client.peer, message, cx);
            }
            Message::Release { attempt, fencing, .. } => {
                vote.fencing = vote.fencing.max(fencing);
                vote.owner = vote.owner.filter(|&(owner, _)| owner != attempt);
            }
            Message::Response { .. } => {}
        }
    }

    fn deliver_here(&mut self, cx: &mut Cx<'_, Self>) {
        while let Some(message) = self.sender.take() {
            self.deliver(message, cx);
        }
    }
}

impl Protocol for Strawman {
    type Message = Message;
    type Timer = Wake;

    fn request(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        let is_newest = self.clients.last().is_none_or(|client| client.attempt.client.ticket < ticket);
        assert!(is_newest, "tickets are requested in order");
        self.clients.push(Client {
            attempt: Attempt { client: Claim { peer: self.sender.me, ticket }, number: 0 },
            phase: Phase::Trying,
            since: cx.now(),
            received: Voters::NONE,
            mine: Voters::NONE,
            levels: Vec::new(),
        });
        self.try_once(self.clients.len() - 1, cx);
        self.deliver_here(cx);
    }

    fn release(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        if let Some(at) = self.client(ticket) {
            self.finish(at, cx);
            self.deliver_here(cx);
        }
    }

    fn on_message(&mut self, _from: PeerId, message: Message, cx: &mut Cx<'_, Self>) {
        if message.about() >= self.quorum().replicas() {
            return cx.unexpected("a message about an unknown replica");
        }
        self.deliver(message, cx);
        self.deliver_here(cx);
    }

    fn on_timer(&mut self, Wake(ticket): Wake, cx: &mut Cx<'_, Self>) {
        let Some(at) = self.client(ticket) else { return };
        match self.clients[at].phase {
            Phase::Trying => self.lose(at, true, cx),
            Phase::BackingOff => self.try_once(at, cx),
            Phase::Holding => {
                cx.lost(ticket);
                self.finish(at, cx);
            }
        }
        self.deliver_here(cx);
    }

    fn on_reset(&mut self, incarnation: u64, _cx: &mut Cx<'_, Self>) {
        for vote in &mut self.votes {
            *vote = Vote { index: vote.index, owner: None, fencing: incarnation };
        }
    }
}

impl Observe for Strawman {
    const KINDS: &'static [&'static str] = &["request", "response", "release"];

    fn kind(message: &Message) -> usize {
        match message {
            Message::Request { .. } => 0,
            Message::Response { .. } => 1,
            Message::Release { .. } => 2,
        }
    }
}

impl Message {
    fn about(self) -> u32 {
        match self {
            Self::Request { replica, .. } | Self::Response { replica, .. } | Self::Release { replica, .. } => replica,
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request { replica, attempt, .. } => write!(f, "REQUEST(R{replica}, {attempt})"),
            Self::Response { replica, owner, .. } => write!(f, "RESPONSE(R{replica}, {owner})"),
            Self::Release { replica, attempt, .. } => write!(f, "RELEASE(R{replica}, {attempt})"),
        }
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number {
            0 => write!(f, "{}", self.client),
            number => write!(f, "{}.{number}", self.client),
        }
    }
}

peerlock_types::debug_as_display!(Attempt);
