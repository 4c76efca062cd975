//! The strawman: ask all replicas, and whoever gets m votes is in (Lin, Lian, Chen, Zhang, the paper of
//! [`crate::sigma`], §3). MinIO's dsync is this protocol in production.
//!
//! A replica gives its vote to the first who asks, and tells all others who has it. Nobody is queued: a client that
//! cannot get m votes any more gives back those it has, and starts over after a random time, or not at all. With
//! latencies that differ, requests reach the replicas in different orders, votes split, and nobody wins: throughput
//! rises with the load, peaks, and falls to nothing, like ALOHA's.
//!
//! ```text
//!   A              R₀ R₁ R₂             B
//!   ├── REQUEST ──►│  │  │◄── REQUEST ──┤
//!   │◄─ yes, no, no┤  │  ├─ no, yes, no►│      m = 2, somebody else has R₂
//!   ├── RELEASE ──►│  │◄─┼── RELEASE ───┤      both lose
//! ```
//!
//! The paper does not say what makes two requests of one client differ, nor when a client's lease ends. *Departure:*
//! each attempt has a number, a vote that comes too late is given back, and a client knows its lease: it ends `lease`
//! after the attempt began. It is never renewed, so that whoever stays longer loses it.

use alloc::vec::Vec;
use core::fmt;

use peerlock_base::{PeerId, Span, Ticket, Time};

use crate::quorum::{Verdict, Voters};
use crate::replicas::{Post, by_any_clock};
use crate::token::Claim;
use crate::{Cx, Grant, Observe, Protocol, Quorum, Replicas, fencing};

/// One attempt of one client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Attempt {
    /// The client and its peer.
    pub client: Claim,
    /// How many times it has tried before.
    pub number: u64,
}

/// What clients and replicas say to each other. `replica` is the index of the logical replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Message {
    /// From a client to every replica; answered by `Response`.
    Request {
        /// Which replica is asked.
        replica: u32,
        /// The client, and which attempt of its this is.
        attempt: Attempt,
        /// The highest fencing level that the client has heard of.
        fencing: u64,
    },
    /// From a replica to the one who asked. Answered by `Release` if it is a vote that nobody wants any more.
    Response {
        /// Which replica answers.
        replica: u32,
        /// Which request is answered.
        attempt: Attempt,
        /// Who has the vote.
        owner: Attempt,
        /// The replica's fencing level.
        fencing: u64,
    },
    /// From a client to a replica that has voted for it, or may have; never answered.
    Release {
        /// Which replica gets its vote back.
        replica: u32,
        /// Whose vote it was.
        attempt: Attempt,
        /// The highest fencing level that the client has heard of, its own number included.
        fencing: u64,
    },
}

/// A client's only timer. When it tries: give up waiting for answers. When it has lost: try again. When it is inside:
/// the lease ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wake(pub Ticket);

/// What becomes of a client that cannot win: the paper's text says the one, its Figure 3 looks like the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Loser {
    /// It is refused and goes away. Then throughput against load is ALOHA's smooth curve.
    GivesUp,
    /// §3 has losers come back after a random time: exponential with this mean. Losers add to the load, and
    /// beyond some point throughput falls off a cliff.
    BacksOff {
        /// The mean time from losing to the next attempt.
        mean: Span,
    },
}

/// How the protocol is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// What becomes of losers.
    pub loser: Loser,
    /// How long a vote is good for. 10 s, as in [`crate::sigma::Config`].
    pub lease: Span,
    /// How long a client waits for answers before it takes the attempt for lost. 1 s: our choice, several round trips.
    pub patience: Span,
}

impl Config {
    /// Losers go away.
    pub const GIVES_UP: Self = Self { loser: Loser::GivesUp, lease: Span::from_secs(10), patience: Span::from_secs(1) };
    /// Losers try again after a second on average: our choice, five mean round trips.
    pub const BACKS_OFF: Self = Self { loser: Loser::BacksOff { mean: Span::from_secs(1) }, ..Self::GIVES_UP };
}

/// One peer's part in the strawman, for one resource: any number of clients, and any of the replicas.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Strawman {
    config: Config,
    replicas: Replicas,
    post: Post<Message>,
    /// The highest fencing level that our clients have heard of.
    fencing: u64,
    /// Our clients, by ticket.
    clients: Vec<Client>,
    /// The replicas that we host, by index.
    votes: Vec<Vote>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Client {
    attempt: Attempt,
    phase: Phase,
    /// When the attempt began.
    since: Time,
    heard: Voters,
    /// Those of them who vote for us, and their fencing levels.
    mine: Voters,
    levels: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Trying,
    BackingOff,
    Inside,
}

/// One logical replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Vote {
    index: u32,
    owner: Option<(Attempt, Time)>,
    fencing: u64,
}

impl Strawman {
    /// A peer that nobody has asked for anything yet; it hosts the replicas that `replicas` places at `me`.
    pub fn new(me: PeerId, replicas: &Replicas, config: Config) -> Self {
        let votes = replicas.hosted_by(me).map(|index| Vote { index, owner: None, fencing: 0 }).collect();
        Self { config, replicas: replicas.clone(), post: Post::new(me), fencing: 0, clients: Vec::new(), votes }
    }

    fn quorum(&self) -> Quorum {
        self.replicas.quorum()
    }

    fn client(&self, ticket: Ticket) -> Option<usize> {
        self.clients.binary_search_by_key(&ticket, |client| client.attempt.client.ticket).ok()
    }

    fn try_once(&mut self, at: usize, cx: &mut Cx<'_, Self>) {
        let client = &mut self.clients[at];
        (client.phase, client.since, client.heard, client.mine) = (Phase::Trying, cx.now(), Voters::NONE, Voters::NONE);
        client.levels.clear();
        let (attempt, fencing) = (client.attempt, self.fencing);
        for replica in 0..self.quorum().replicas() {
            self.post.send_to(&self.replicas, replica, Message::Request { replica, attempt, fencing }, cx);
        }
        cx.set_timer(Wake(attempt.client.ticket), self.config.patience);
    }

    /// Gives back the votes that we have, and those that we may have.
    fn give_back(&mut self, at: usize, and_unheard: bool, cx: &mut Cx<'_, Self>) {
        let Client { attempt, heard, mine, .. } = self.clients[at];
        let fencing = self.fencing;
        for replica in 0..self.quorum().replicas() {
            if mine.contains(replica) || (and_unheard && !heard.contains(replica)) {
                self.post.send_to(&self.replicas, replica, Message::Release { replica, attempt, fencing }, cx);
            }
        }
    }

    /// The attempt has failed.
    fn lose(&mut self, at: usize, and_unheard: bool, cx: &mut Cx<'_, Self>) {
        self.give_back(at, and_unheard, cx);
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

    /// A replica has voted, for us or for somebody else.
    fn on_response(&mut self, at: usize, replica: u32, is_mine: bool, fencing: u64, cx: &mut Cx<'_, Self>) {
        let quorum = self.quorum();
        let client = &mut self.clients[at];
        if !client.heard.insert(replica) {
            return; // The same answer twice.
        }
        if is_mine {
            client.mine.insert(replica);
            client.levels.push(fencing);
        }
        if client.phase == Phase::Inside {
            return;
        }
        match quorum.verdict(client.mine.len(), client.heard.len()) {
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
        client.phase = Phase::Inside;
        let ticket = client.attempt.client.ticket;
        cx.set_timer(Wake(ticket), Span::from_nanos(left));
        cx.grant(ticket, Grant { slot: 0, fencing: number });
    }

    /// The ticket is finished.
    fn finish(&mut self, at: usize, cx: &mut Cx<'_, Self>) {
        // Whoever is inside gives back late votes as they come.
        self.give_back(at, self.clients[at].phase == Phase::Trying, cx);
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
                        self.post.send_to(&self.replicas, replica, Message::Release { replica, attempt, fencing }, cx);
                    }
                    None => {}
                }
            }
            Message::Request { replica, .. } | Message::Release { replica, .. } => {
                match self.votes.binary_search_by_key(&replica, |vote| vote.index) {
                    Ok(at) => self.deliver_to_replica(at, message, cx),
                    Err(_) => cx.strange("a message for a replica that is not here"),
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
                    vote.fencing += fencing::LEAP; // It may have been inside, under a number that we were not told.
                }
                let (owner, _) = *vote.owner.get_or_insert((attempt, cx.now() + self.config.lease));
                let message = Message::Response { replica, attempt, owner, fencing: vote.fencing };
                self.post.send(attempt.client.peer, message, cx);
            }
            Message::Release { attempt, fencing, .. } => {
                vote.fencing = vote.fencing.max(fencing);
                vote.owner = vote.owner.filter(|&(owner, _)| owner != attempt);
            }
            Message::Response { .. } => {}
        }
    }

    fn deliver_here(&mut self, cx: &mut Cx<'_, Self>) {
        while let Some(message) = self.post.take() {
            self.deliver(message, cx);
        }
    }
}

impl Protocol for Strawman {
    type Message = Message;
    type Timer = Wake;

    fn request(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        let is_newest = self.clients.last().is_none_or(|client| client.attempt.client.ticket < ticket);
        assert!(is_newest, "tickets are asked for in order");
        self.clients.push(Client {
            attempt: Attempt { client: Claim { peer: self.post.me(), ticket }, number: 0 },
            phase: Phase::Trying,
            since: cx.now(),
            heard: Voters::NONE,
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
            return cx.strange("a message about a replica that there is not");
        }
        self.deliver(message, cx);
        self.deliver_here(cx);
    }

    fn on_timer(&mut self, Wake(ticket): Wake, cx: &mut Cx<'_, Self>) {
        let Some(at) = self.client(ticket) else { return };
        match self.clients[at].phase {
            Phase::Trying => self.lose(at, true, cx),
            Phase::BackingOff => self.try_once(at, cx),
            Phase::Inside => {
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
    /// Which replica it is to or from.
    fn about(self) -> u32 {
        match self {
            Self::Request { replica, .. } | Self::Response { replica, .. } | Self::Release { replica, .. } => replica,
        }
    }
}

/// As in [`crate::sigma`]: `REQUEST(R2, 4.1)`.
impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request { replica, attempt, .. } => write!(f, "REQUEST(R{replica}, {attempt})"),
            Self::Response { replica, owner, .. } => write!(f, "RESPONSE(R{replica}, {owner})"),
            Self::Release { replica, attempt, .. } => write!(f, "RELEASE(R{replica}, {attempt})"),
        }
    }
}

/// The client, and from the second attempt on how many came before: `4`, `4.1`.
impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number {
            0 => write!(f, "{}", self.client),
            number => write!(f, "{}.{number}", self.client),
        }
    }
}

peerlock_base::debug_as_display!(Attempt);
