//! A resource's founding: how many slots it has and where it begins, decided once. Not in the papers.
//!
//! Protocols with tokens are told beforehand who has the tokens at first. Among peers that come and go nobody is there
//! beforehand: the first who asks *founds* the resource, and all others must learn of that and not found it again. So
//! its [`Charter`] is a register that is written once, kept by n logical replicas (here: *keepers*) of which m must
//! agree, by Lamport's single-decree Paxos ("The Part-Time Parliament"):
//!
//! ```text
//!   A                 keepers           B
//!   │ ask(1)            │               │
//!   ├──────────────────►│ told(nothing) │
//!   │◄──────────────────┤               │
//!   │ propose(1, home A)│               │     A wants to be home to all tokens
//!   ├──────────────────►│ agreed        │
//!   │◄──────────────────┤               │     m of them: A is home, for good
//!   │                   │        ask(1) │
//!   │                   │◄──────────────┤
//!   │                   │ told(home A)  │
//!   │                   ├──────────────►│     m of them: B knows, and begins with A as root
//! ```
//!
//! **Memory.** A keeper whose key moves hands its memory to the new owner; one that crashes forgets. Whoever has a token
//! or the coordinator's role repeats the charter to all keepers every [`Config::refresh`], so that it is safe as long as
//! fewer than 2m − n keepers forget within that time: two sets of m always share one that remembers.
//!
//! If the home dies before anybody else has a token, the resource stays founded, and nobody gets in: its waiters see
//! that nothing moves, never a second home.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::mem::take;

use peerlock_base::{Key, PeerId, Span, Ticket};

use crate::fair_k_late::{self, FairKLate};
use crate::quorum::Voters;
use crate::replicas::Post;
use crate::token::Layout;
use crate::{Cx, Effect, Hop, Input, Observe, Protocol, Replicas, step};

/// What is decided when a resource is founded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Charter {
    /// How many may be inside at a time.
    pub slots: u32,
    /// The peer that has all tokens at first.
    pub home: PeerId,
}

/// A protocol that can begin from a charter.
pub trait Found: Observe {
    /// The part of peer `me` before the first request.
    fn found(me: PeerId, charter: Charter) -> Self;
}

impl Found for FairKLate {
    fn found(me: PeerId, Charter { slots, home }: Charter) -> Self {
        let layout = Layout { root: home, tokens: vec![home; slots as usize] };
        Self::new(me, &layout, fair_k_late::Config::default())
    }
}

/// Which attempt to decide this is; of two, the higher wins.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Ballot {
    round: u64,
    peer: Option<PeerId>,
}

/// What a keeper knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Memory {
    /// It agrees to nothing lower any more.
    promised: Ballot,
    /// What it agreed to last.
    agreed: Option<(Ballot, Charter)>,
}

/// What peers say to each other. `replica` is the number of the keeper that it is to or from.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Message<M> {
    /// Is there a charter? To every keeper; answered by `Told`.
    Ask {
        /// Which keeper.
        replica: u32,
        /// Which attempt.
        ballot: Ballot,
    },
    /// From a keeper to who asked or proposed.
    Told {
        /// Which keeper.
        replica: u32,
        /// What it knows now.
        memory: Memory,
    },
    /// Let it be this charter. To every keeper; answered by `Told`. Said again now and then when it is decided.
    Propose {
        /// Which keeper.
        replica: u32,
        /// Which attempt.
        ballot: Ballot,
        /// What is proposed.
        charter: Charter,
    },
    /// From who owned a keeper's key to who owns it now. Never answered.
    Moved {
        /// Which keeper.
        replica: u32,
        /// What it knew.
        memory: Memory,
    },
    /// It is decided. From who knows to whom it pleases: a driver that tells everybody protects the charter against
    /// keepers that forget. Never answered.
    Known(Charter),
    /// Of the protocol itself.
    Inner(M),
}

/// The timers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer<T> {
    /// Too few keepers have answered, or somebody else was faster.
    Retry,
    /// Time to repeat the charter to the keepers.
    Refresh,
    /// Of the protocol itself.
    Inner(T),
}

/// How patient we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// How long to wait for the keepers before asking again. Each time is drawn between half and one and a half of
    /// it, so that two who found at once do not hinder each other for ever. 2 s: our choice, more than nearly every
    /// round trip over some hops.
    pub retry: Span,
    /// How often the charter is repeated to the keepers. 20 s: our choice, so that it takes three crashes of five
    /// keepers in 20 s to forget it.
    pub refresh: Span,
}

impl Default for Config {
    fn default() -> Self {
        Self { retry: Span::from_secs(2), refresh: Span::from_secs(20) }
    }
}

/// An attempt to learn of the charter, or to write it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Attempt {
    ballot: Ballot,
    /// Who has promised.
    promised: Voters,
    /// The latest that any of them had agreed to.
    latest: Option<(Ballot, Charter)>,
    /// Who had agreed to just that.
    same: Voters,
    proposed: Option<Charter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stage<P> {
    /// Nobody here has asked.
    Idle,
    Asking(Attempt),
    Founded {
        ballot: Ballot,
        charter: Charter,
        protocol: P,
    },
}

/// So many messages of the protocol are kept for when we know the charter: only the home can need it, and only for a
/// moment.
const EARLY: usize = 1000;

/// One peer's part in a protocol that is founded by whoever asks first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Founded<P: Protocol> {
    replicas: Replicas,
    config: Config,
    /// How many slots our clients want; nothing if we only want to know.
    wish: Option<u32>,
    stage: Stage<P>,
    /// The highest round that we have heard of.
    round: u64,
    /// What the keepers here know, by their numbers.
    keepers: Vec<(u32, Memory)>,
    /// Our clients that asked before we knew the charter, in order.
    waiting: Vec<Ticket>,
    /// Messages that came before.
    early: Vec<(PeerId, P::Message)>,
    post: Post<Message<P::Message>>,
}

impl<P: Found> Founded<P> {
    /// A peer that knows of no charter. `wish` is how many slots its clients want: without one it will not found the
    /// resource, only learn of it.
    pub fn new(me: PeerId, replicas: &Replicas, wish: Option<u32>, config: Config) -> Self {
        Self {
            replicas: replicas.clone(),
            config,
            wish,
            stage: Stage::Idle,
            round: 0,
            keepers: replicas.hosted_by(me).map(|index| (index, Memory::default())).collect(),
            waiting: Vec::new(),
            early: Vec::new(),
            post: Post::new(me),
        }
    }

    /// The charter, once it is known here.
    pub fn charter(&self) -> Option<Charter> {
        match self.stage {
            Stage::Founded { charter, .. } => Some(charter),
            Stage::Idle | Stage::Asking(_) => None,
        }
    }

    /// The protocol, once the charter is known here.
    pub fn protocol(&self) -> Option<&P> {
        match &self.stage {
            Stage::Founded { protocol, .. } => Some(protocol),
            Stage::Idle | Stage::Asking(_) => None,
        }
    }

    fn tell_all(&mut self, message: impl Fn(u32) -> Message<P::Message>, cx: &mut Cx<'_, Self>) {
        for replica in 0..self.replicas.quorum().replicas() {
            self.post.send_to(&self.replicas, replica, message(replica), cx);
        }
    }

    /// A new attempt, above all that we have heard of.
    fn ask(&mut self, cx: &mut Cx<'_, Self>) {
        self.round += 1;
        let ballot = Ballot { round: self.round, peer: Some(cx.me()) };
        let (promised, same) = (Voters::NONE, Voters::NONE);
        self.stage = Stage::Asking(Attempt { ballot, promised, latest: None, same, proposed: None });
        let retry = self.config.retry;
        let after = cx.rng().between(retry / 2, retry + retry / 2);
        cx.set_timer(Timer::Retry, after);
        self.tell_all(|replica| Message::Ask { replica, ballot }, cx);
    }

    /// What a keeper says to us.
    fn on_told(&mut self, replica: u32, memory: Memory, cx: &mut Cx<'_, Self>) {
        self.round = self.round.max(memory.promised.round);
        let quorum = self.replicas.quorum();
        let Stage::Asking(attempt) = &mut self.stage else { return };
        if let Some(agreed) = memory.agreed {
            if attempt.latest.is_none_or(|latest| latest.0 < agreed.0) {
                (attempt.latest, attempt.same) = (Some(agreed), Voters::NONE);
            }
            if attempt.latest == Some(agreed) {
                attempt.same.insert(replica);
            }
            if attempt.same.len() >= quorum.votes() {
                return self.found(agreed.0, agreed.1, cx);
            }
        }
        if memory.promised == attempt.ballot {
            attempt.promised.insert(replica);
        }
        if attempt.promised.len() < quorum.votes() || attempt.proposed.is_some() {
            return;
        }
        // What may have been decided already must be proposed again; else we are free to choose.
        let home = cx.me();
        let charter = attempt.latest.map(|(_, charter)| charter);
        let Some(charter) = charter.or(self.wish.map(|slots| Charter { slots, home })) else {
            return self.give_up(cx);
        };
        let ballot = attempt.ballot;
        attempt.proposed = Some(charter);
        self.tell_all(|replica| Message::Propose { replica, ballot, charter }, cx);
    }

    /// There is no such resource, and nobody here wants to found it.
    fn give_up(&mut self, cx: &mut Cx<'_, Self>) {
        self.stage = Stage::Idle;
        cx.cancel_timer(Timer::Retry);
        if !take(&mut self.early).is_empty() {
            cx.strange("messages of a resource that was never founded");
        }
        for ticket in take(&mut self.waiting) {
            cx.refuse(ticket);
        }
    }

    /// It is decided.
    fn found(&mut self, ballot: Ballot, charter: Charter, cx: &mut Cx<'_, Self>) {
        cx.cancel_timer(Timer::Retry);
        self.stage = Stage::Founded { ballot, charter, protocol: P::found(cx.me(), charter) };
        self.refresh_later(cx);
        for (from, message) in take(&mut self.early) {
            self.inner(Input::Message { from, message }, cx);
        }
        let waiting = take(&mut self.waiting);
        if self.wish.is_some_and(|slots| slots != charter.slots) {
            self.wish = Some(charter.slots); // Whoever asks from now on has been told.
            return waiting.into_iter().for_each(|ticket| cx.refuse(ticket));
        }
        for ticket in waiting {
            self.inner(Input::Request(ticket), cx);
        }
    }

    fn refresh_later(&self, cx: &mut Cx<'_, Self>) {
        let refresh = self.config.refresh;
        let after = cx.rng().between(refresh / 2, refresh + refresh / 2);
        cx.set_timer(Timer::Refresh, after);
    }

    /// Hands something to the protocol.
    fn inner(&mut self, input: Input<P::Message, P::Timer>, cx: &mut Cx<'_, Self>) {
        let Stage::Founded { protocol, .. } = &mut self.stage else { return };
        let (me, now, mut effects) = (cx.me(), cx.now(), Vec::new());
        step(protocol, input, &mut Cx::new(me, now, cx.rng(), &mut effects));
        for effect in effects {
            match effect {
                Effect::Send { to, message } => cx.send(to, Message::Inner(message)),
                Effect::Route { key, message } => cx.route(key, Message::Inner(message)),
                Effect::Grant { ticket, grant } => cx.grant(ticket, grant),
                Effect::Lost { ticket } => cx.lost(ticket),
                Effect::Refused { ticket } => cx.refuse(ticket),
                Effect::SetTimer { timer, after } => cx.set_timer(Timer::Inner(timer), after),
                Effect::CancelTimer { timer } => cx.cancel_timer(Timer::Inner(timer)),
                Effect::Strange { why } => cx.strange(why),
                Effect::Forward { .. } => cx.strange("a message to be forwarded, which never came by"),
            }
        }
    }

    fn deliver(&mut self, from: PeerId, message: Message<P::Message>, cx: &mut Cx<'_, Self>) {
        let (replica, ballot, proposed) = match message {
            Message::Inner(message) => return self.on_inner(from, message, cx),
            Message::Told { replica, memory } => return self.on_told(replica, memory, cx),
            Message::Known(charter) => {
                return match self.charter() {
                    None => self.found(Ballot::default(), charter, cx),
                    Some(known) if known == charter => {}
                    Some(_) => cx.strange("a resource was founded twice"),
                };
            }
            Message::Ask { replica, ballot } => (replica, ballot, None),
            Message::Propose { replica, ballot, charter } => (replica, ballot, Some(charter)),
            Message::Moved { replica, memory } => {
                return match self.keeper(replica) {
                    Some(known) => known.merge(memory),
                    None => cx.strange("a message for a keeper that is not here"),
                };
            }
        };
        let Some(memory) = self.keeper(replica) else {
            return cx.strange("a message for a keeper that is not here");
        };
        if ballot >= memory.promised {
            memory.promised = ballot;
            memory.agreed = proposed.map(|charter| (ballot, charter)).or(memory.agreed);
        }
        let memory = *memory;
        self.post.send(from, Message::Told { replica, memory }, cx);
    }

    fn on_inner(&mut self, from: PeerId, message: P::Message, cx: &mut Cx<'_, Self>) {
        if self.protocol().is_some() {
            return self.inner(Input::Message { from, message }, cx);
        }
        if self.early.len() >= EARLY {
            return cx.strange("more messages of a resource than fit before we know of it");
        }
        self.early.push((from, message));
        if matches!(self.stage, Stage::Idle) {
            self.ask(cx);
        }
    }

    fn keeper(&mut self, replica: u32) -> Option<&mut Memory> {
        self.keepers.iter_mut().find(|keeper| keeper.0 == replica).map(|keeper| &mut keeper.1)
    }

    fn deliver_here(&mut self, cx: &mut Cx<'_, Self>) {
        while let Some(message) = self.post.take() {
            self.deliver(cx.me(), message, cx);
        }
    }
}

impl Memory {
    /// Two keepers under one key become one.
    fn merge(&mut self, other: Self) {
        self.promised = self.promised.max(other.promised);
        self.agreed = self.agreed.max(other.agreed);
    }
}

impl<P: Found> Protocol for Founded<P> {
    type Message = Message<P::Message>;
    type Timer = Timer<P::Timer>;

    fn request(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        if self.protocol().is_some() {
            return self.inner(Input::Request(ticket), cx);
        }
        self.waiting.push(ticket);
        if matches!(self.stage, Stage::Idle) {
            self.ask(cx);
            self.deliver_here(cx);
        }
    }

    fn release(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        self.waiting.retain(|&waiting| waiting != ticket);
        self.inner(Input::Release(ticket), cx);
    }

    fn on_message(&mut self, from: PeerId, message: Self::Message, cx: &mut Cx<'_, Self>) {
        self.deliver(from, message, cx);
        self.deliver_here(cx);
    }

    fn on_routed(&mut self, hop: Hop, message: Self::Message, cx: &mut Cx<'_, Self>) {
        if let Message::Inner(message) = message {
            return self.inner(Input::Routed { hop, message }, cx);
        }
        let Some(index) = self.replicas.under(hop.key) else {
            return cx.strange("a message for a keeper that there is not");
        };
        if self.keeper(index).is_none() {
            self.keepers.push((index, Memory::default()));
        }
        self.on_message(hop.origin, message, cx);
    }

    /// The keeper's memory follows its key.
    fn on_disowned(&mut self, key: Key, cx: &mut Cx<'_, Self>) {
        if let Some(at) = self.keepers.iter().position(|keeper| self.replicas.key(keeper.0) == Some(key)) {
            let (replica, memory) = self.keepers.swap_remove(at);
            cx.route(key, Message::Moved { replica, memory });
        }
        self.inner(Input::Disowned(key), cx);
    }

    fn on_timer(&mut self, timer: Self::Timer, cx: &mut Cx<'_, Self>) {
        match (timer, &self.stage) {
            (Timer::Inner(timer), _) => self.inner(Input::Timer(timer), cx),
            (Timer::Retry, Stage::Asking(_)) => self.ask(cx),
            (Timer::Refresh, &Stage::Founded { ballot, charter, ref protocol }) => {
                if protocol.tokens() > 0 || protocol.is_coordinator() {
                    self.tell_all(|replica| Message::Propose { replica, ballot, charter }, cx);
                }
                self.refresh_later(cx);
            }
            (Timer::Retry | Timer::Refresh, _) => {}
        }
        self.deliver_here(cx);
    }

    fn on_peer_down(&mut self, peer: PeerId, cx: &mut Cx<'_, Self>) {
        self.inner(Input::PeerDown(peer), cx);
    }

    /// What the keepers here know goes with their keys, when the overlay gives those up.
    fn retire(&mut self, heir: Option<PeerId>, cx: &mut Cx<'_, Self>) {
        self.inner(Input::Retire { heir }, cx);
    }

    fn on_reset(&mut self, incarnation: u64, cx: &mut Cx<'_, Self>) {
        self.keepers.iter_mut().for_each(|keeper| keeper.1 = Memory::default());
        self.inner(Input::Reset { incarnation }, cx);
    }
}

impl<P: Found + Hash> Observe for Founded<P>
where
    P::Message: Hash,
{
    const KINDS: &'static [&'static str] = &["founding", "protocol"];

    fn kind(message: &Self::Message) -> usize {
        usize::from(matches!(message, Message::Inner(_)))
    }

    fn replica_in(message: &Self::Message) -> Option<(u32, Self::Message)> {
        let mut message = message.clone();
        let replica = match &mut message {
            Message::Ask { replica, .. }
            | Message::Told { replica, .. }
            | Message::Propose { replica, .. }
            | Message::Moved { replica, .. } => take(replica),
            Message::Known(_) | Message::Inner(_) => return None,
        };
        Some((replica, message))
    }

    fn digest(&self, replica: Option<u32>, mut state: &mut dyn Hasher) {
        match (replica, &self.stage) {
            (None, Stage::Idle) => {}
            (None, Stage::Asking(attempt)) => (attempt.ballot, attempt.latest, attempt.proposed).hash(&mut state),
            (None, Stage::Founded { ballot, charter, protocol }) => (ballot, charter, protocol).hash(&mut state),
            (Some(replica), Stage::Asking(Attempt { promised, same, .. })) => {
                (promised.contains(replica), same.contains(replica)).hash(&mut state);
            }
            (Some(_), _) => {}
        }
        match replica {
            None => (self.round, &self.waiting, &self.early, self.wish).hash(&mut state),
            Some(replica) => self.keepers.iter().filter(|keeper| keeper.0 == replica).for_each(|keeper| {
                keeper.1.hash(&mut state);
            }),
        }
    }
}

/// `1 of 4`: the round and whose it is.
impl fmt::Display for Ballot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.peer {
            Some(peer) => write!(f, "{} of {peer}", self.round),
            None => f.write_str("none"),
        }
    }
}

impl fmt::Debug for Ballot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.agreed {
            Some((ballot, Charter { home, .. })) => {
                write!(f, "promised {}, agreed to home {home} in {ballot}", self.promised)
            }
            None => write!(f, "promised {}", self.promised),
        }
    }
}

impl<M: fmt::Display> fmt::Display for Message<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ask { replica, ballot } => write!(f, "ask(R{replica}, {ballot})"),
            Self::Told { replica, memory } => write!(f, "told(R{replica}, {memory})"),
            Self::Propose { replica, ballot, charter } => {
                write!(f, "propose(R{replica}, {ballot}, home {}, {} slots)", charter.home, charter.slots)
            }
            Self::Moved { replica, memory } => write!(f, "moved(R{replica}, {memory})"),
            Self::Known(Charter { slots, home }) => write!(f, "known(home {home}, {slots} slots)"),
            Self::Inner(message) => message.fmt(f),
        }
    }
}

impl<M: fmt::Debug> fmt::Debug for Message<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inner(message) => message.fmt(f),
            Self::Ask { replica, ballot } => write!(f, "ask(R{replica}, {ballot})"),
            Self::Told { replica, memory } => write!(f, "told(R{replica}, {memory})"),
            Self::Propose { replica, ballot, charter } => write!(f, "propose(R{replica}, {ballot}, {charter:?})"),
            Self::Moved { replica, memory } => write!(f, "moved(R{replica}, {memory})"),
            Self::Known(Charter { slots, home }) => write!(f, "known(home {home}, {slots} slots)"),
        }
    }
}
