//! Fair-K with late binding: one line for all k tokens. Our own protocol, after Reddy, Mittal and Gupta's Fair-K.
//!
//! Fair-K puts every newcomer into one of k queues at once, in turn. A queue whose clients stay long then falls
//! behind, and its waiters with it. Here there is one line, and nobody in it belongs to a token until that token's
//! holder is about to be the next to leave: the coordinator, who keeps the line, tells each *holder* who comes after
//! it, and only that far. Everybody further back is still open. Leaving is one message, as in Fair-K: the token goes
//! straight to the next.
//!
//! ```text
//!   4              1 (coordinator)    2 (holds a token)
//!   │ request(4)     │                  │
//!   ├───────────────►│ next(4)          │        4 is the oldest whom no holder knows
//!   │                ├─────────────────►│
//!   │                │                  │ … leaves
//!   │                │            token │
//!   │◄───────────────┼──────────────────┤        one message from leaving to entering
//!   │                │        left(→ 4) │
//!   │                │◄─────────────────┤        4 is a holder now
//!   │ next(5)        │                  │
//!   │◄───────────────┤                  │        … so it learns who comes after it
//! ```
//!
//! **Order.** Each holder has a different next, so whoever leaves first lets *its* next in, who need not be the oldest
//! of them. One who was passed is told to further holders as well, so that it cannot be passed for long. If two of
//! those leave at once, the second token finds its client served; it goes on to that client's own next, one message
//! later.
//!
//! **One token** has nothing to bind late. Then who comes after is told further ahead, and each to the one before it in
//! line, at once: a token that arrives finds the word there, or brings it along, and need not ask. Not so far ahead
//! that much would have been said in vain ([`Config::reach`]); where the line is longer, the token hears that there are
//! more. A client of the peer where the token lies goes in without asking only where neither a next nor `more` is
//! known, nor another one of that peer waits: so nobody goes in before one who asked more than two message times
//! earlier, as long as the role does not move. Who has withdrawn passes the token on.
//!
//! ```text
//!   4              1 (coordinator)    5              2 (holds the only token; next is 4)
//!   │                │◄───────────────┤ request(5)   │
//!   │ next(5)        │                │              │
//!   │◄───────────────┤                │              │ … leaves
//!   │◄───────────────┼────────────────┼──────────────┤ token
//!   │ … leaves       │                │              │
//!   ├────────────────┼───────────────►│ token        │
//! ```
//!
//! **The coordinator** moves: after [`Config::term`] entries it hands the line to the last in it. Pointers to it are
//! hints with an epoch; who is asked and is not coordinator any more passes the question on to a later one.
//!
//! **Gone peers.** When a peer is down, the coordinator strikes out its claims, and a holder whose next it was forgets
//! that and says so. A peer that leaves for good gives the role and its tokens, now and whenever more come, to an heir.
//!
//! **Stays.** A token's stays at peers are numbered. `next` is meant for one stay and ignored at any other, and reports
//! of old stays change nothing, so messages may overtake each other freely. A word that adds to what was told goes to
//! the last of those who were: the token cannot go on from there before it has come, so that no word is ever missed.
//! Where what was told has to be taken back, the *turn* changes, and `left` names the turn of what a token took along,
//! so that the coordinator knows whether it has to say it again.

mod lead;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;

use peerlock_types::{PeerId, Ticket};

pub use self::lead::Lead;
use crate::backed::Backable;
use crate::token::{Claim, Layout, Token};
use crate::{Cx, Never, Observe, Protocol};
use peerlock_protocol::holder::{Due, Held, Holder, Next};
use peerlock_protocol::queue::{self, Binding, REACH};
pub use peerlock_protocol::queue::{Following, Location, Queue, Update};

/// Who coordinates, and since which change of the role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Role {
    /// How often the role had moved by then.
    pub epoch: u64,
    /// Who had it.
    pub peer: PeerId,
}

/// What peers say to each other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Message {
    /// Something the coordinator has to know.
    Update {
        /// The coordinator that the sender knows. One who has not heard of it yet will be it: the line is on its way.
        epoch: u64,
        /// What there is to know.
        update: Update,
    },
    /// From the coordinator to the peer that has a token, or will: who comes after the client there. Answered by
    /// `Token` to the first of them when that client leaves.
    Next {
        /// The token, by its slot.
        slot: u32,
        /// At which of its stays.
        stay: u64,
        /// Who comes after.
        following: Following,
        /// It takes the place of all that was said before. If not, it adds to what was said under the same turn.
        replaces: bool,
        /// The coordinator that says so: one of a later epoch is believed instead.
        role: Role,
    },
    /// From who leaves to its next.
    Token {
        /// The ticket that it is meant for.
        to: Ticket,
        /// The token itself.
        token: Token,
        /// The number of the stay that begins.
        stay: u64,
        /// Who comes after, as far as the sender knows.
        following: Following,
        /// The coordinator that the sender knows.
        role: Role,
    },
    /// The coordinator's role, to the last in line.
    Queue(Box<Lead>),
}

/// How the protocol is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Config {
    /// After how many entries the coordinator's role moves on.
    pub term: u32,
    /// With one slot: for how many hand-overs between peers it is said ahead who comes next, at least 1. With several,
    /// where stays are short: half as many.
    pub reach: u32,
    /// With several slots: all stays are taken for short. If not, it is found out.
    pub always_ahead: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self { term: 1000, reach: REACH, always_ahead: false }
    }
}

/// One peer's part in Fair-K with late binding, for one resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct FairKLate {
    me: PeerId,
    config: Config,
    slots: u32,
    /// The latest coordinator that we know.
    role: Role,
    queue: Option<Box<Lead>>,
    /// News for the coordinator that we shall be.
    early: Vec<Update>,
    /// The tokens that are here, and what we know of the others.
    tokens: Holder,
    /// Our clients that wait, by ticket.
    waiting: VecDeque<Ticket>,
    /// We are leaving: what we have or get goes to this peer.
    replacement: Option<PeerId>,
    /// What we have told ourselves in this step and not yet done. Empty between steps.
    inbox: VecDeque<Message>,
}

/// At most this many news are kept for a role that is still to come. Each peer tells a few at a time, and only those
/// that know of the role already, so that more are a mistake or malice.
const MOST_EARLY: usize = 100_000;

impl FairKLate {
    /// One peer before the first request.
    pub fn new(me: PeerId, layout: &Layout, config: Config) -> Self {
        let slots = layout.slots();
        let here = (0..slots).filter(|&slot| layout.tokens[slot as usize] == me);
        let held = here.map(|slot| Held::free(Token::new(slot), 0)).collect();
        Self {
            me,
            config,
            slots,
            role: Role { epoch: 0, peer: layout.root },
            queue: (me == layout.root).then(|| Box::new(Lead::new(&layout.tokens, config))),
            early: Vec::new(),
            tokens: Holder::new(held),
            waiting: VecDeque::new(),
            replacement: None,
            inbox: VecDeque::new(),
        }
    }

    /// The latest coordinator that we know.
    pub fn coordinator(&self) -> PeerId {
        self.role.peer
    }

    /// The line, if we are the coordinator.
    pub fn queue(&self) -> Option<&Queue> {
        self.queue.as_deref().map(|lead| &lead.queue)
    }

    /// The tokens that are here, with the client inside.
    pub fn held(&self) -> impl Iterator<Item = (Token, Option<Ticket>)> {
        self.tokens.held.iter().map(|held| (held.token, held.user))
    }

    /// Who comes after the client inside with a token that is here, as far as we were told.
    pub fn next_of(&self, slot: u32) -> Option<Claim> {
        self.tokens.held[self.tokens.place_of(slot)?].next()
    }

    /// Sends, or notes for ourselves.
    #[inline]
    fn post(&mut self, to: PeerId, message: Message, cx: &mut Cx<'_, Self>) {
        if to == self.me {
            self.inbox.push_back(message);
        } else {
            cx.send(to, message);
        }
    }

    #[inline]
    fn feed(&mut self, update: Update, cx: &mut Cx<'_, Self>) {
        let Role { epoch, peer } = self.role;
        self.post(peer, Message::Update { epoch, update }, cx);
    }

    /// Does what we have told ourselves.
    #[inline]
    fn settle(&mut self, cx: &mut Cx<'_, Self>) {
        while let Some(message) = self.inbox.pop_front() {
            self.process(message, cx);
        }
    }

    fn process(&mut self, message: Message, cx: &mut Cx<'_, Self>) {
        match message {
            Message::Update { epoch, update } => match self.queue.take() {
                Some(mut queue) => {
                    self.note(&mut queue, update, cx);
                    self.bind(queue, cx);
                }
                // Ours is still to come: word of it can be faster than the line itself.
                None if epoch > self.role.epoch || self.role.peer == self.me => {
                    if self.early.len() >= MOST_EARLY {
                        return cx.unexpected("more news than fit for a role that does not come");
                    }
                    self.early.push(update);
                }
                None => self.feed(update, cx),
            },
            Message::Next { slot, stay, following, replaces, role } => {
                self.role = self.role.max(role);
                self.on_next(Next { slot, stay, following, replaces }, cx);
            }
            Message::Token { to, token, stay, following, role } => {
                self.role = self.role.max(role);
                self.on_token(to, token, stay, following, cx);
            }
            Message::Queue(queue) => self.on_line(queue, cx),
        }
    }

    /// We are coordinator.
    fn on_line(&mut self, mut queue: Box<Lead>, cx: &mut Cx<'_, Self>) {
        let role = Role { epoch: queue.epoch, peer: self.me };
        if role < self.role || self.queue.is_some() {
            return cx.unexpected("a coordinator's role that is here or was here already");
        }
        self.role = role;
        for update in core::mem::take(&mut self.early) {
            self.note(&mut queue, update, cx);
        }
        self.bind(queue, cx);
    }

    fn note(&self, queue: &mut Lead, update: Update, cx: &mut Cx<'_, Self>) {
        if let Err(why) = queue.note(update) {
            cx.unexpected(why);
        }
    }

    /// The coordinator tells holders who comes next, and hands the role on when it is time to.
    fn bind(&mut self, mut queue: Box<Lead>, cx: &mut Cx<'_, Self>) {
        while let Some(Binding { at, slot, stay, following, replaces }) = queue.bind() {
            self.post(at, Message::Next { slot, stay, following, replaces, role: self.role }, cx);
        }
        let next = match self.replacement {
            Some(replacement) => Some(queue.pass_to(replacement)),
            None => queue.pass_on(self.config.term, self.me),
        };
        match next {
            Some(peer) => {
                self.role = Role { epoch: queue.epoch, peer };
                cx.send(peer, Message::Queue(queue));
            }
            None => self.queue = Some(queue),
        }
    }

    fn on_next(&mut self, next: Next, cx: &mut Cx<'_, Self>) {
        if next.slot >= self.slots {
            return cx.unexpected("the next of a token that does not exist");
        }
        let due = self.tokens.on_next(next);
        self.attend_to(due, cx);
    }

    fn on_token(&mut self, to: Ticket, token: Token, stay: u64, following: Following, cx: &mut Cx<'_, Self>) {
        if token.slot >= self.slots || self.tokens.place_of(token.slot).is_some() {
            return cx.unexpected("a token that does not exist, or is here already");
        }
        let at = self.tokens.take(token, stay, following);
        match self.waiting.binary_search(&to) {
            Ok(waits) => {
                self.waiting.remove(waits);
                self.enter(at, to, cx);
            }
            // It has come in with another token, or withdrawn: this one goes on.
            Err(_) => {
                // The coordinator may not have heard of it yet. It would send the token here repeatedly.
                if self.replacement.is_some() && to != Ticket::NONE {
                    self.feed(Update::Withdraw(Claim { peer: self.me, ticket: to }), cx);
                }
                let due = self.tokens.pass_on(at);
                self.unless_leaving(at, due, cx);
            }
        }
    }

    fn enter(&mut self, at: usize, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        let held = &mut self.tokens.held[at];
        held.user = Some(ticket);
        cx.grant(ticket, held.token.grant(self.slots));
    }

    /// Nobody here uses the token any more.
    fn leave(&mut self, at: usize, cx: &mut Cx<'_, Self>) {
        let due = self.tokens.leave(at);
        self.unless_leaving(at, due, cx);
    }

    /// Does what is due about a token that nobody uses; if nobody comes after and we are leaving, our heir does.
    fn unless_leaving(&mut self, at: usize, due: Due, cx: &mut Cx<'_, Self>) {
        if let (None, Some(peer)) = (self.tokens.held[at].next(), self.replacement) {
            self.tokens.divert(at, Some(Claim { peer, ticket: Ticket::NONE }));
            return self.attend_to(Due::HandOver(at), cx);
        }
        self.attend_to(due, cx);
    }

    fn attend_to(&mut self, due: Due, cx: &mut Cx<'_, Self>) {
        match due {
            Due::Nothing => {}
            Due::Report(at) => {
                let update = self.tokens.report(at);
                self.feed(update, cx);
            }
            Due::HandOver(at) => {
                let (token, stay, to, following) = self.tokens.hand_over(at);
                let (turn, role) = (following.turn, self.role);
                self.post(to.peer, Message::Token { to: to.ticket, token, stay: stay + 1, following, role }, cx);
                self.feed(Update::Left { slot: token.slot, stay, to, turn }, cx);
            }
        }
    }
}

impl Protocol for FairKLate {
    type Message = Message;
    type Timer = Never;

    #[inline]
    fn request(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        assert!(self.waiting.back().is_none_or(|&last| last < ticket), "tickets are asked for in order");
        // Who of ours waits came first.
        let at_hand = self.tokens.held.iter().position(Held::is_at_hand).filter(|_| self.waiting.is_empty());
        if let Some(at) = at_hand {
            self.enter(at, ticket, cx);
        } else {
            self.waiting.push_back(ticket);
            self.feed(Update::Request(Claim { peer: self.me, ticket }), cx);
        }
        self.settle(cx);
    }

    #[inline]
    fn release(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        if let Some(at) = self.tokens.used_by(ticket) {
            self.leave(at, cx);
        } else if let Ok(at) = self.waiting.binary_search(&ticket) {
            self.waiting.remove(at);
            self.feed(Update::Withdraw(Claim { peer: self.me, ticket }), cx);
        }
        self.settle(cx);
    }

    #[inline]
    fn on_message(&mut self, _from: PeerId, message: Message, cx: &mut Cx<'_, Self>) {
        self.process(message, cx);
        self.settle(cx);
    }

    fn on_peer_down(&mut self, peer: PeerId, cx: &mut Cx<'_, Self>) {
        if let Some(mut queue) = self.queue.take() {
            queue.forget(peer);
            self.bind(queue, cx);
        }
        // The coordinator may not know: if it waits for us to send that peer a token, nobody gets it.
        let forgotten = self.tokens.forget_next(|next| next.peer == peer);
        forgotten.into_iter().for_each(|claim| self.feed(Update::Forgotten(claim), cx));
        self.settle(cx);
    }

    /// A token is ours again, as if the other had had it and passed it on to us. So is the line: we are coordinator
    /// once more. The rest matters only if the other is alive: then it must not miss where a token went, or who comes
    /// next.
    fn on_undelivered(&mut self, to: PeerId, message: Message, cx: &mut Cx<'_, Self>) {
        match message {
            Message::Token { token, stay, following, role, .. } => {
                self.role = self.role.max(role);
                let (to, following) = (Claim { peer: self.me, ticket: Ticket::NONE }, following.divert(None));
                self.feed(Update::Left { slot: token.slot, stay, to, turn: following.turn }, cx);
                self.on_token(Ticket::NONE, token, stay + 1, following, cx);
            }
            Message::Queue(mut queue) => {
                queue.pass_to(self.me);
                self.on_line(queue, cx);
            }
            Message::Update { .. } | Message::Next { .. } => cx.send(to, message),
        }
        self.settle(cx);
    }

    fn retire(&mut self, replacement: Option<PeerId>, cx: &mut Cx<'_, Self>) {
        assert!(replacement != Some(self.me), "{replacement:?} cannot be its own heir");
        self.replacement = replacement;
        if replacement.is_none() {
            return;
        }
        if let Some(queue) = self.queue.take() {
            self.bind(queue, cx);
        }
        while let Some(at) = self.tokens.held.iter().position(|held| held.user.is_none()) {
            self.leave(at, cx);
        }
        self.settle(cx);
    }
}

impl Backable for FairKLate {
    fn fresh(&self, me: PeerId, layout: &Layout) -> Self {
        Self::new(me, layout, self.config)
    }
}

impl Observe for FairKLate {
    const KINDS: &'static [&'static str] = &["request", "next", "token", "left", "free", "withdraw", "busy", "line"];
    const HAS_COORDINATOR: bool = true;
    const NEVER_IDLE: bool = true;

    #[inline]
    fn kind(message: &Message) -> usize {
        match message {
            Message::Update { update: Update::Request(_), .. } => 0,
            Message::Next { .. } => 1,
            Message::Token { .. } => 2,
            Message::Update { update: Update::Left { .. }, .. } => 3,
            Message::Update { update: Update::Free { .. }, .. } => 4,
            Message::Update { update: Update::Withdraw(_) | Update::Forgotten(_), .. } => 5,
            Message::Update { update: Update::Busy { .. }, .. } => 6,
            Message::Queue(_) => 7,
        }
    }

    fn tokens_in_all(&self) -> Option<usize> {
        Some(self.slots as usize)
    }

    fn most_passes(&self) -> Option<u64> {
        queue::most_passes(self.slots)
    }

    /// Requests go to the coordinator, wherever it is.
    fn trees(&self) -> usize {
        0
    }

    #[inline]
    fn tokens(&self) -> usize {
        self.tokens.held.len()
    }

    #[inline]
    fn tokens_in(message: &Message) -> usize {
        usize::from(matches!(message, Message::Token { .. }))
    }

    #[inline]
    fn is_coordinator(&self) -> bool {
        self.queue.is_some()
    }

    #[inline]
    fn carries_coordinator(message: &Message) -> bool {
        matches!(message, Message::Queue(_))
    }
}

/// One line: `coordinator, epoch 0: waiting [4, 5], tokens [0 at 2, next 4]; token 0 in use, next 4; waiting [1]`.
impl fmt::Display for FairKLate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.queue {
            Some(queue) => write!(f, "coordinator, {queue}")?,
            None => write!(f, "coordinator {}, epoch {}", self.role.peer, self.role.epoch)?,
        }
        write!(f, "{}", self.tokens)?;
        if !self.waiting.is_empty() {
            let ours = self.waiting.iter().map(|&ticket| Claim { peer: self.me, ticket });
            write!(f, "; waiting {:?}", ours.collect::<Vec<_>>())?;
        }
        if !self.early.is_empty() {
            write!(f, "; {} news for when the role comes", self.early.len())?;
        }
        Ok(())
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Update { update, .. } => write!(f, "{update}"),
            Self::Next { slot, following, .. } => write!(f, "next({following}) for token {slot}"),
            Self::Token { token, .. } => write!(f, "token {}", token.slot),
            Self::Queue(queue) => write!(f, "line({queue})"),
        }
    }
}
