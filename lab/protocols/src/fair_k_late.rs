//! Fair-K with late binding: one queue for all k tokens. Our own protocol, after [Fair-K](crate::fair_k), in which a
//! request is assigned to a queue at once and may wait longer than later ones. Here the coordinator sends a *holder*
//! its successor only when that holder may release next. `lab/docs/papers/fair-k-late.md` has a diagram.
//!
//! **Safety.** At most k clients hold, since each needs a token, and no message duplicates one.
//!
//! **Order.** The first release may serve a waiter that is not the oldest; the coordinator then announces the passed
//! waiter to further holders. If two of them release at once, the second token finds the waiter served and is passed
//! on.
//!
//! **One slot.** Successors are sent ahead for up to [`Config::reach`] hand-overs: they travel with the token, and
//! further ones are sent to the last of them. If the queue is longer, the token carries the flag `more`. A client at
//! the token's peer enters without a request only if that peer knows of no successor, no `more` and no other client
//! that waits there. So it overtakes only requests that were made less than two message delays earlier.
//!
//! **The coordinator's role** moves to the last waiter after [`Config::term`] entries; the former one forwards updates.
//!
//! **Failed and leaving peers.** The coordinator removes the claims of a failed peer, and a holder discards them as
//! successors. A peer that leaves sends its tokens and the role to a replacement.
//!
//! **Reordered messages.** The stays of a token at peers are numbered: a `next` is valid for one stay, and reports of
//! older stays change nothing. A `next` that replaces successors begins a new *turn*. `left` names the turn of the
//! successors that went with the token, so the coordinator knows whether to send the replacement again.

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
use serde::{Deserialize, Serialize};

/// The coordinator. Roles are ordered by epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Role {
    /// The number of earlier moves of the role.
    pub epoch: u64,
    pub peer: PeerId,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Message {
    /// Sent to the coordinator when the state of a request or a token changes. A former coordinator forwards it; a
    /// future one buffers it.
    Update { epoch: u64, update: Update },
    /// Sent by the coordinator to the peer that has a token, or will have it: the successors there. Without `replaces`
    /// they are appended to those of the same turn.
    Next { slot: u32, stay: u64, following: Following, replaces: bool, role: Role },
    /// Sent by the releasing peer to its successor, which grants `to`, or forwards the token if `to` does not wait.
    /// Begins `stay`.
    Token { to: Ticket, token: Token, stay: u64, following: Following, role: Role },
    /// The coordinator's role, sent to the last waiter or to the replacement of a peer that leaves.
    Queue(Box<Lead>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Config {
    /// Entries after which the role moves.
    pub term: u32,
    /// Hand-overs for which successors are sent ahead, at least 1; half as many with several slots and short stays.
    pub reach: u32,
    /// Treats all stays as short.
    pub always_ahead: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self { term: 1000, reach: REACH, always_ahead: false }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FairKLate {
    me: PeerId,
    config: Config,
    slots: u32,
    role: Role,
    lead: Option<Box<Lead>>,
    early: Vec<Update>,
    tokens: Holder,
    waiting: VecDeque<Ticket>,
    inbox: VecDeque<Message>,
}

/// The maximum number of updates buffered for a future role. A peer sends a few at a time.
const MAX_EARLY: usize = 100_000;

impl FairKLate {
    pub fn new(me: PeerId, layout: &Layout, config: Config) -> Self {
        let slots = layout.slots();
        let here = (0..slots).filter(|&slot| layout.tokens[slot as usize] == me);
        let held = here.map(|slot| Held::free(Token::new(slot), 0)).collect();
        Self {
            me,
            config,
            slots,
            role: Role { epoch: 0, peer: layout.root },
            lead: (me == layout.root).then(|| Box::new(Lead::new(&layout.tokens, config))),
            early: Vec::new(),
            tokens: Holder::new(held),
            waiting: VecDeque::new(),
            inbox: VecDeque::new(),
        }
    }

    pub fn coordinator(&self) -> PeerId {
        self.role.peer
    }

    /// Returns the queue at the coordinator, `None` at other peers.
    pub fn queue(&self) -> Option<&Queue> {
        self.lead.as_deref().map(|lead| &lead.queue)
    }

    /// The tokens here and their users.
    pub fn held(&self) -> impl Iterator<Item = (Token, Option<Ticket>)> {
        self.tokens.held.iter().map(|held| (held.token, held.user))
    }

    /// Returns the successor of the client that uses the token of `slot` here.
    pub fn next_of(&self, slot: u32) -> Option<Claim> {
        self.tokens.held[self.tokens.place_of(slot)?].next()
    }

    #[inline]
    fn send(&mut self, to: PeerId, message: Message, cx: &mut Cx<'_, Self>) {
        if to == self.me {
            self.inbox.push_back(message);
        } else {
            cx.send(to, message);
        }
    }

    #[inline]
    fn send_update(&mut self, update: Update, cx: &mut Cx<'_, Self>) {
        let Role { epoch, peer } = self.role;
        self.send(peer, Message::Update { epoch, update }, cx);
    }

    #[inline]
    fn process_inbox(&mut self, cx: &mut Cx<'_, Self>) {
        while let Some(message) = self.inbox.pop_front() {
            self.process(message, cx);
        }
    }

    fn process(&mut self, message: Message, cx: &mut Cx<'_, Self>) {
        match message {
            Message::Update { epoch, update } => match self.lead.take() {
                Some(mut lead) => {
                    Self::apply(&mut lead, update, cx);
                    self.bind(lead, cx);
                }
                // The update has overtaken the role.
                None if epoch > self.role.epoch || self.role.peer == self.me => {
                    if self.early.len() >= MAX_EARLY {
                        return cx.unexpected("more updates than are buffered for a future role");
                    }
                    self.early.push(update);
                }
                None => self.send_update(update, cx),
            },
            Message::Next { slot, stay, following, replaces, role } => {
                self.role = self.role.max(role);
                self.on_next(Next { slot, stay, following, replaces }, cx);
            }
            Message::Token { to, token, stay, following, role } => {
                self.role = self.role.max(role);
                self.on_token(to, token, stay, following, cx);
            }
            Message::Queue(lead) => self.on_role(lead, cx),
        }
    }

    fn on_role(&mut self, mut lead: Box<Lead>, cx: &mut Cx<'_, Self>) {
        let role = Role { epoch: lead.epoch, peer: self.me };
        if role < self.role || self.lead.is_some() {
            return cx.unexpected("a coordinator's role that is outdated or already here");
        }
        self.role = role;
        for update in core::mem::take(&mut self.early) {
            Self::apply(&mut lead, update, cx);
        }
        self.bind(lead, cx);
    }

    fn apply(lead: &mut Lead, update: Update, cx: &mut Cx<'_, Self>) {
        if let Err(why) = lead.apply(update) {
            cx.unexpected(why);
        }
    }

    /// Sends successors, and moves the role at the end of a term.
    fn bind(&mut self, mut lead: Box<Lead>, cx: &mut Cx<'_, Self>) {
        while let Some(Binding { at, slot, stay, following, replaces }) = lead.queue.bind() {
            self.send(at, Message::Next { slot, stay, following, replaces, role: self.role }, cx);
        }
        match lead.pass_on(self.config.term, self.me) {
            Some(peer) => {
                self.role = Role { epoch: lead.epoch, peer };
                cx.send(peer, Message::Queue(lead));
            }
            None => self.lead = Some(lead),
        }
    }

    fn on_next(&mut self, next: Next, cx: &mut Cx<'_, Self>) {
        if next.slot >= self.slots {
            return cx.unexpected("successors of a token that does not exist");
        }
        let due = self.tokens.on_next(next);
        self.carry_out(due, cx);
    }

    fn on_token(&mut self, to: Ticket, token: Token, stay: u64, following: Following, cx: &mut Cx<'_, Self>) {
        if token.slot >= self.slots || self.tokens.place_of(token.slot).is_some() {
            return cx.unexpected("a token that does not exist or is already here");
        }
        let at = self.tokens.take(token, stay, following);
        match self.waiting.binary_search(&to) {
            Ok(waits) => {
                self.waiting.remove(waits);
                self.enter(at, to, cx);
            }
            // The ticket was withdrawn, or has entered with another token.
            Err(_) => {
                let due = self.tokens.pass_on(at);
                self.carry_out(due, cx);
            }
        }
    }

    fn enter(&mut self, at: usize, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        let held = &mut self.tokens.held[at];
        held.user = Some(ticket);
        cx.grant(ticket, held.token.grant(self.slots));
    }

    fn leave(&mut self, at: usize, cx: &mut Cx<'_, Self>) {
        let due = self.tokens.leave(at);
        self.carry_out(due, cx);
    }

    fn carry_out(&mut self, due: Due, cx: &mut Cx<'_, Self>) {
        match due {
            Due::Nothing => {}
            Due::Report(at) => {
                let update = self.tokens.report(at);
                self.send_update(update, cx);
            }
            Due::HandOver(at) => {
                let (token, stay, to, following) = self.tokens.hand_over(at);
                let (turn, role) = (following.turn, self.role);
                self.send(to.peer, Message::Token { to: to.ticket, token, stay: stay + 1, following, role }, cx);
                self.send_update(Update::Left { slot: token.slot, stay, to, turn }, cx);
            }
        }
    }
}

impl Protocol for FairKLate {
    type Message = Message;
    type Timer = Never;

    #[inline]
    fn request(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        assert!(self.waiting.back().is_none_or(|&last| last < ticket), "tickets are requested in order");
        let at_hand = self.tokens.held.iter().position(Held::is_at_hand).filter(|_| self.waiting.is_empty());
        if let Some(at) = at_hand {
            self.enter(at, ticket, cx);
        } else {
            self.waiting.push_back(ticket);
            self.send_update(Update::Request(Claim { peer: self.me, ticket }), cx);
        }
        self.process_inbox(cx);
    }

    #[inline]
    fn release(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        if let Some(at) = self.tokens.used_by(ticket) {
            self.leave(at, cx);
        } else if let Ok(at) = self.waiting.binary_search(&ticket) {
            self.waiting.remove(at);
            self.send_update(Update::Withdraw(Claim { peer: self.me, ticket }), cx);
        }
        self.process_inbox(cx);
    }

    #[inline]
    fn on_message(&mut self, _from: PeerId, message: Message, cx: &mut Cx<'_, Self>) {
        self.process(message, cx);
        self.process_inbox(cx);
    }

    fn on_peer_down(&mut self, peer: PeerId, cx: &mut Cx<'_, Self>) {
        if let Some(mut lead) = self.lead.take() {
            lead.queue.forget(peer);
            self.bind(lead, cx);
        }
        // The coordinator may wait for a hand-over to the failed peer.
        let forgotten = self.tokens.forget_next(|next| next.peer == peer);
        forgotten.into_iter().for_each(|claim| self.send_update(Update::Forgotten(claim), cx));
        self.process_inbox(cx);
    }
}

impl Backable for FairKLate {
    fn fresh(&self, me: PeerId, layout: &Layout) -> Self {
        Self::new(me, layout, self.config)
    }
}

impl Observe for FairKLate {
    const KINDS: &'static [&'static str] = &["request", "next", "token", "left", "free", "withdraw", "busy", "queue"];
    const HAS_COORDINATOR: bool = true;
    const NEVER_IDLE: bool = true;

    #[inline]
    fn kind(message: &Message) -> usize {
        match message {
            Message::Update { update: Update::Request(_) | Update::RequestAgain(..), .. } => 0,
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

    /// Requests go to the coordinator directly.
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
        self.lead.is_some()
    }

    #[inline]
    fn carries_coordinator(message: &Message) -> bool {
        matches!(message, Message::Queue(_))
    }
}

impl fmt::Display for FairKLate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.lead {
            Some(lead) => write!(f, "coordinator, {lead}")?,
            None => write!(f, "coordinator {}, epoch {}", self.role.peer, self.role.epoch)?,
        }
        write!(f, "{}", self.tokens)?;
        if !self.waiting.is_empty() {
            let ours = self.waiting.iter().map(|&ticket| Claim { peer: self.me, ticket });
            write!(f, "; waiting {:?}", ours.collect::<Vec<_>>())?;
        }
        if !self.early.is_empty() {
            write!(f, "; {} early updates", self.early.len())?;
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
            Self::Queue(lead) => write!(f, "queue({lead})"),
        }
    }
}
