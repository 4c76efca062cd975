//! Custody, the token protocol of the product: late binding whose tokens and queue survive their peers. Our own; see
//! docs/design/protocol.md and docs/design/recovery.md.
//!
//! While no peer fails, this is late binding with one coordinator, which also gives every request an *arrival number*.
//! The registry opens the next *generation* and names its coordinator when a party's session has ended, when the number
//! of slots changes, or when fencing numbers run out. Then:
//!
//! ```text
//!   0 (coordinator of g)   1 (holds)          2 (waits)          3 (its session has ended)
//!   │ opened(g) ◄── the registry
//!   │ census(g)            │                  │
//!   ├─────────────────────►│                  │                  fence: a party that replies discards older messages
//!   ├──────────────────────┼─────────────────►│
//!   │ answer: token 0      │                  │
//!   │◄─────────────────────┤                  │
//!   │ answer: waits since g−1:7               │
//!   │◄─────────────────────┼──────────────────┤                  count: every party has replied
//!   │ close(g, 0 1 2) ──► the registry        │                  token 1 is missing: created here
//!   │ token 1              │                  │
//!   ├──────────────────────┼─────────────────►│                  resume
//! ```
//!
//! Comments name the rules R1–R11 of docs/design/recovery.md. Without any one of them ([`Rule`]), the model checker
//! finds a run that has two holders or loses a slot.
//!
//! A [`Custody`] is the state of *one session* for one resource. The driver discards it with all its clients before the
//! registry ends that session.

mod census;
mod generation;
mod keeper;
mod message;
mod observe;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use peerlock_types::{PeerId, Span, Ticket};

use self::census::{Census, Count};
use self::keeper::Keeper;
pub use self::message::{Answer, Body, MOST_WAITING, Message, Report};
use crate::holder::{Due, Held, Holder, Next};
use crate::queue::REACH;
pub use crate::queue::{Following, Location, Queue, Update};
use crate::registry::{Detached, EventKind, RegistryEvent, RegistryRequest, Session};
use crate::token::{Arrival, Claim, Token};
use crate::{Cx, Grant, Protocol};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    Update,
}

/// A rule that a test can leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// R1: messages and events of older generations are discarded.
    Fence,
    /// R2: a party that replies to a census discards successors and knowledge of remote tokens.
    Forget,
    /// R2: a reported token is used only as the coordinator directs.
    NotOurs,
    /// R3: every party replies before the census is counted.
    CountAll,
    /// R4: a session that joins starts in the generation of the answer.
    JoinAhead,
    /// R5: only a session that knows that it is a party accepts a token.
    PartiesOnly,
    /// R6: only the addressed session replies.
    BySession,
    /// R7: a slot's next number is at least the first of its generation.
    Numbers,
    /// R8: a party that replies "nothing" is no party any more.
    NothingLeaves,
    /// R9: updates for a future generation are buffered.
    EarlyUpdate,
    /// A slot's token is not created before its detached grant has ended.
    DetachedEnd,
    /// Of two tokens of one slot, the newer is valid.
    Youngest,
    /// While more slots are in use than exist, no waiter is bound to another token.
    HoldBack,
    /// R10: tokens are discarded before `Quit` is sent.
    GiveUpFirst,
    /// R10: a party that quits takes part again only after the answer …
    GiveUpWaits,
    /// … even if it is asked in the same generation before that.
    GiveUpLasts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Per generation. When half of them are used, the next generation is requested.
    pub numbers: u64,
    /// For arrival numbers; `None` sends each at once.
    pub batch: Option<Span>,
    /// Hand-overs between peers for which successors are sent ahead, at least 1; half as many with several slots.
    pub reach: u32,
    /// Successors are sent ahead with several slots even if stays are long.
    pub always_ahead: bool,
    pub without: Option<Rule>,
}

impl Default for Config {
    /// Numbers: 2³² per generation stay below 2⁵³ for two million generations; half of them last half a day at a grant
    /// every 22 µs. Batch: 100 ms, our choice. A request older than that keeps its position when the coordinator fails.
    fn default() -> Self {
        Self { numbers: 1 << 32, batch: Some(Span::from_millis(100)), reach: REACH, always_ahead: false, without: None }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Outside,
    /// `Join` is not answered yet.
    Joining,
    Party,
    /// `Quit` is not answered yet (R10).
    Leaving,
}

#[allow(clippy::large_enum_variant, reason = "it is always in a box")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Role {
    Counting(Census),
    Keeping(Keeper),
}

/// Buffered until the census of its generation is complete (R9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Early {
    Update(Update),
    Dropped { slot: u32, stay: u64 },
    Expired(Detached),
}

/// Of a session that has nothing of the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Memory {
    generation: u64,
    answered: u64,
}

impl Memory {
    pub fn is_empty(&self) -> bool {
        self.generation == 0
    }

    /// Returns whether messages of this generation are valid.
    pub fn counts(&self, generation: u64) -> bool {
        generation >= self.generation
    }
}

type Waiter = (Ticket, Option<Arrival>);

/// The state of one session for one resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Custody {
    me: Session,
    config: Config,
    stage: Stage,
    /// 0 before the first.
    generation: u64,
    answered: u64,
    coordinator: PeerId,
    slots: u32,
    tokens: Holder,
    /// Sorted by ticket.
    waiting: VecDeque<Waiter>,
    role: Option<Box<Role>>,
    /// With generation and sender.
    early: Vec<(u64, PeerId, Early)>,
    renumbered: u64,
    /// Empty between steps.
    inbox: VecDeque<Message>,
}

impl Custody {
    pub fn new(me: Session, config: Config) -> Self {
        assert!(config.numbers >= 2, "a generation needs numbers");
        Self {
            me,
            config,
            stage: Stage::Outside,
            generation: 0,
            answered: 0,
            coordinator: me.peer,
            slots: 0,
            tokens: Holder::new(Vec::new()),
            waiting: VecDeque::new(),
            role: None,
            early: Vec::new(),
            renumbered: 0,
            inbox: VecDeque::new(),
        }
    }

    /// A party of generation 1, with all tokens at the coordinator, for simulation and exploration.
    pub fn founded(me: Session, config: Config, coordinator: PeerId, slots: u32) -> Self {
        let mut founded = Self { generation: 1, answered: 1, coordinator, slots, ..Self::new(me, config) };
        founded.stage = Stage::Party;
        if me.peer == coordinator {
            let token = |slot| Token { slot, fencing: founded.first_number(slot) };
            let tokens: Vec<Token> = (0..slots).map(token).collect();
            founded.tokens = Holder::new(tokens.iter().map(|&token| Held::free(token, token.fencing)).collect());
            let adopted = tokens.iter().map(|&token| (me.peer, Report { token, in_use: false })).collect();
            let (void, missing, detached, waiting, remaining) = <_>::default();
            let count = Count { adopted, void, missing, detached, waiting, remaining };
            founded.role = Some(Box::new(Role::Keeping(Keeper::new(1, slots, config, &count))));
        }
        founded
    }

    /// Takes over the grants `inside` of the previous process, and reports them in the first census. One log entry must
    /// end the earlier session and make this one a party.
    ///
    /// It does not ask to join: the answer could arrive before the event of its eviction, and evicted grants would stay
    /// in use.
    pub fn taking_over(me: Session, config: Config, inside: &[(Ticket, Grant)]) -> Self {
        let held = inside.iter().map(|&(ticket, Grant { slot, fencing })| {
            Held::in_custody(Token { slot, fencing: fencing + 1 }, Some(ticket))
        });
        let stage = if inside.is_empty() { Stage::Outside } else { Stage::Joining };
        Self { tokens: Holder::new(held.collect()), stage, ..Self::new(me, config) }
    }

    /// A session that was discarded while it [had nothing](Self::is_nothing).
    pub fn returning(me: Session, config: Config, memory: Memory) -> Self {
        let Memory { generation, answered } = memory;
        Self { generation, answered, ..Self::new(me, config) }
    }

    /// To be retained for a valid session that [has nothing](Self::is_nothing).
    pub fn memory(&self) -> Memory {
        Memory { generation: self.generation, answered: self.answered }
    }

    /// Except for the [memory](Self::memory).
    pub fn is_nothing(&self) -> bool {
        let is_empty = self.tokens.held.is_empty() && self.waiting.is_empty() && self.early.is_empty();
        self.stage == Stage::Outside && is_empty && self.role.is_none()
    }

    fn is_idle(&self) -> bool {
        let is_unused = self.tokens.held.iter().all(|held| held.user.is_none()) && self.waiting.is_empty();
        let is_unused_elsewhere = match self.role.as_deref() {
            Some(Role::Counting(_)) => false,
            Some(Role::Keeping(keeper)) => keeper.is_idle(),
            None => true,
        };
        self.stage == Stage::Party && is_unused && is_unused_elsewhere
    }

    /// 0 before the first generation.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// At the coordinator after the census.
    pub fn queue(&self) -> Option<&Queue<Arrival>> {
        match self.role.as_deref() {
            Some(Role::Keeping(keeper)) => Some(&keeper.queue),
            _ => None,
        }
    }

    pub fn is_party(&self) -> bool {
        self.stage == Stage::Party
    }

    /// This peer before the first generation.
    pub fn coordinator(&self) -> PeerId {
        self.coordinator
    }

    /// 0 before the first generation.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// At the coordinator: peers that are passed over.
    pub fn unreachable(&self) -> &[PeerId] {
        match self.role.as_deref() {
            Some(Role::Keeping(keeper)) => keeper.unreachable(),
            _ => &[],
        }
    }

    /// The parties that have not replied to this peer's census.
    pub fn missing(&self) -> Option<&[Session]> {
        match self.role.as_deref() {
            Some(Role::Counting(census)) => Some(census.asked()),
            _ => None,
        }
    }

    /// If the token is here.
    pub fn next_of(&self, slot: u32) -> Option<Claim> {
        self.tokens.held[self.tokens.place_of(slot)?].next()
    }

    /// With the clients that use them.
    pub fn held(&self) -> impl Iterator<Item = (Token, Option<Ticket>)> {
        self.tokens.held.iter().map(|held| (held.token, held.user))
    }

    /// On behalf of one peer, or of all.
    pub fn retained(&self, of: Option<PeerId>) -> usize {
        let is_of = |peer: PeerId| of.is_none_or(|of| of == peer);
        let role = match self.role.as_deref() {
            Some(Role::Counting(census)) => census.retained(is_of),
            Some(Role::Keeping(keeper)) => keeper.retained(of),
            None => 0,
        };
        let announced = if is_of(self.coordinator) { self.tokens.retained() } else { 0 };
        self.early.iter().filter(|(_, from, _)| is_of(*from)).count() + announced + role
    }

    fn keeps(&self, rule: Rule) -> bool {
        self.config.without != Some(rule)
    }

    /// R1.
    fn is_void(&self, generation: u64) -> bool {
        generation < self.generation && self.keeps(Rule::Fence)
    }

    /// R6.
    fn is_me(&self, session: Session) -> bool {
        session == self.me || session.peer == self.me.peer && !self.keeps(Rule::BySession)
    }

    fn post(&mut self, to: PeerId, body: Body, cx: &mut Cx<'_, Self>) {
        let message = Message { generation: self.generation, body };
        if to == self.me.peer {
            self.inbox.push_back(message);
        } else {
            cx.send(to, message);
        }
    }

    fn announce(&mut self, update: Update, cx: &mut Cx<'_, Self>) {
        self.post(self.coordinator, Body::Update(update), cx);
    }

    fn settle(&mut self, cx: &mut Cx<'_, Self>) {
        while let Some(message) = self.inbox.pop_front() {
            self.process(self.me.peer, message, cx);
        }
    }

    fn process(&mut self, from: PeerId, Message { generation, body }: Message, cx: &mut Cx<'_, Self>) {
        match body {
            Body::Census { session, slots } => self.on_census(from, generation, session, slots, cx),
            Body::Answer(Answer { session, .. }) if session.peer != from => {
                cx.unexpected("an answer of another peer's session")
            }
            Body::Answer(answer) => self.on_answer(generation, answer, cx),
            Body::Update(Update::Request(claim) | Update::RequestAgain(claim, _) | Update::Withdraw(claim))
                if claim.peer != from =>
            {
                cx.unexpected("a request of another peer's client");
            }
            // Only late binding without recovery sends this: here a census follows.
            Body::Update(Update::Forgotten(_)) => cx.unexpected("a message of late binding without recovery"),
            Body::Update(update) => self.on_early(from, generation, Early::Update(update), cx),
            Body::Dropped { slot, stay } => self.on_early(from, generation, Early::Dropped { slot, stay }, cx),
            // R5. It may be meant for an earlier session of this host.
            Body::Token { .. } if self.stage != Stage::Party && self.keeps(Rule::PartiesOnly) => {}
            Body::Token { .. } | Body::Next { .. } | Body::Void(_) | Body::Arrivals(_) if self.is_void(generation) => {}
            Body::Token { .. } if generation > self.generation && self.stage == Stage::Party => {
                cx.unexpected("a token of a generation in which we were not counted");
            }
            // This peer has not sent any token of this generation yet.
            Body::Token { .. } if generation == self.generation && self.missing().is_some() => {
                cx.unexpected("a token of a generation that is not counted yet");
            }
            Body::Token { to, token, stay, following } => self.on_token(to, token, stay, following, cx),
            _ if generation > self.generation => {}
            Body::Next { .. } | Body::Void(_) | Body::Arrivals(_) if from != self.coordinator => {
                cx.unexpected("a message that only the coordinator sends");
            }
            Body::Next { slot, stay, following, replaces } => {
                let due = self.tokens.on_next(Next { slot, stay, following, replaces });
                self.attend_to(due, cx);
            }
            Body::Void(token) => self.on_void(token, cx),
            Body::Arrivals(arrivals) => self.on_arrivals(&arrivals),
        }
    }
}

impl Custody {
    /// R7.
    fn first_number(&self, slot: u32) -> u64 {
        self.generation * self.config.numbers + 1 + u64::from(slot)
    }

    fn is_spent(&self, token: Token) -> bool {
        token.fencing >= self.last_number()
    }

    /// Exclusive. A token created later starts above it, so numbers show which of two tokens is newer.
    fn last_number(&self) -> u64 {
        (self.generation + 1) * self.config.numbers
    }

    fn on_token(&mut self, to: Ticket, token: Token, stay: u64, following: Following, cx: &mut Cx<'_, Self>) {
        if token.slot >= self.slots && self.stage == Stage::Party {
            return cx.unexpected("a token that does not exist");
        }
        if let Some(at) = self.tokens.place_of(token.slot) {
            let Held { token: older, is_ours, .. } = self.tokens.held[at];
            if is_ours || older.fencing >= token.fencing {
                return cx.unexpected("a token that is here already");
            }
            // The new token has overtaken the `Void` for this one.
            self.on_void(older, cx);
        }
        let at = self.tokens.take(token, stay, following);
        match self.queue_position(to) {
            // The client waits with the token for the next generation.
            Some(_) if self.is_spent(token) => self.tokens.held[at].is_ours = false,
            Some(waits) => {
                self.waiting.remove(waits);
                self.enter(at, to, cx);
            }
            None => {
                let due = self.tokens.pass_on(at);
                self.attend_to(due, cx);
            }
        }
    }

    fn enter(&mut self, at: usize, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        let (first, last) = (self.first_number(self.tokens.held[at].token.slot), self.last_number());
        let is_numbered = self.keeps(Rule::Numbers);
        let held = &mut self.tokens.held[at];
        held.user = Some(ticket);
        // R7. Slots step by k from different starts only within a generation.
        if is_numbered {
            held.token.fencing = held.token.fencing.max(first);
        }
        cx.grant(ticket, held.token.grant(self.slots));
        held.token.fencing = held.token.fencing.min(last);
        let half = self.generation * self.config.numbers + self.config.numbers / 2;
        if held.token.fencing >= half {
            self.renumber(cx);
        }
    }

    /// Requests another generation, once.
    fn renumber(&mut self, cx: &mut Cx<'_, Self>) {
        if self.renumbered < self.generation {
            self.renumbered = self.generation;
            cx.registry_request(RegistryRequest::Renumber { generation: self.generation });
        }
    }

    fn leave(&mut self, at: usize, cx: &mut Cx<'_, Self>) {
        let Held { token, stay, .. } = self.tokens.held[at];
        if token.slot >= self.slots && self.stage == Stage::Party {
            self.tokens.held.remove(at);
            return self.post(self.coordinator, Body::Dropped { slot: token.slot, stay }, cx);
        }
        let due = self.tokens.leave(at);
        self.attend_to(due, cx);
    }

    fn attend_to(&mut self, due: Due, cx: &mut Cx<'_, Self>) {
        match due {
            Due::Nothing => {}
            // After a takeover there is no coordinator before the first census.
            Due::Report(_) if self.stage != Stage::Party => {}
            Due::Report(at) => {
                let update = self.tokens.report(at);
                self.announce(update, cx);
            }
            Due::HandOver(at) => {
                let (token, stay, to, following) = self.tokens.hand_over(at);
                let turn = following.turn;
                self.post(to.peer, Body::Token { to: to.ticket, token, stay: stay + 1, following }, cx);
                self.announce(Update::Left { slot: token.slot, stay, to, turn }, cx);
            }
        }
    }

    /// A newer token exists: this session was evicted, and the event has not arrived.
    fn on_void(&mut self, token: Token, cx: &mut Cx<'_, Self>) {
        let reported = |held: &Held| held.token == token && !held.is_ours;
        let Some(at) = self.tokens.held.iter().position(reported) else { return };
        if let Some(ticket) = self.tokens.held.remove(at).user {
            cx.lost(ticket);
        }
    }

    fn on_evicted(&mut self, generation: u64, cx: &mut Cx<'_, Self>) {
        if generation <= self.generation {
            return; // This session has joined again since.
        }
        self.move_to(generation, self.coordinator, self.slots, cx);
        for ticket in core::mem::take(&mut self.tokens.held).into_iter().filter_map(|held| held.user) {
            cx.lost(ticket);
        }
        // The answer to a join in flight may be of before the eviction.
        self.stage = Stage::Outside;
        self.join(cx);
    }

    /// Answers `Quit`. If another generation was opened first, its census may still arrive.
    fn on_left(&mut self, generation: u64, quit: u64, cx: &mut Cx<'_, Self>) {
        // A duplicate must not answer a later `Quit`.
        if self.stage == Stage::Leaving && self.generation == quit {
            self.move_to(generation, self.coordinator, self.slots, cx);
            self.stage = Stage::Outside;
            self.join(cx);
        }
    }

    fn on_arrivals(&mut self, arrivals: &[(Ticket, Arrival)]) {
        for &(announced, arrival) in arrivals {
            if let Some(at) = self.queue_position(announced) {
                self.waiting[at].1 = Some(arrival);
            }
        }
    }

    /// The waiters of this peer whose arrival numbers are confirmed.
    pub fn arrivals(&self) -> impl Iterator<Item = (Ticket, Arrival)> {
        self.waiting.iter().filter_map(|&(ticket, arrival)| Some((ticket, arrival?)))
    }

    /// Requests a slot for a client that waits since an earlier session, and keeps its position.
    pub fn request_again(&mut self, ticket: Ticket, arrival: Arrival, cx: &mut Cx<'_, Self>) {
        self.ask(ticket, Some(arrival), cx);
    }

    fn ask(&mut self, ticket: Ticket, arrival: Option<Arrival>, cx: &mut Cx<'_, Self>) {
        assert!(self.waiting.back().is_none_or(|&(last, _)| last < ticket), "tickets are requested in order");
        let is_usable = |held: &Held| held.is_at_hand() && !self.is_spent(held.token);
        // Clients of this peer that wait come first.
        if let Some(at) = self.tokens.held.iter().position(is_usable).filter(|_| self.waiting.is_empty()) {
            self.enter(at, ticket, cx);
        } else {
            self.waiting.push_back((ticket, arrival));
            if self.stage == Stage::Party {
                self.announce_request(ticket, arrival, cx);
            }
            self.join(cx);
        }
        self.settle(cx);
    }

    fn announce_request(&mut self, ticket: Ticket, arrival: Option<Arrival>, cx: &mut Cx<'_, Self>) {
        let claim = Claim { peer: self.me.peer, ticket };
        let request = Update::Request(claim);
        self.announce(arrival.map_or(request, |arrival| Update::RequestAgain(claim, arrival)), cx);
    }

    fn queue_position(&self, ticket: Ticket) -> Option<usize> {
        self.waiting.binary_search_by_key(&ticket, |&(waiting, _)| waiting).ok()
    }

    fn join(&mut self, cx: &mut Cx<'_, Self>) {
        if self.stage == Stage::Outside && !self.waiting.is_empty() {
            self.stage = Stage::Joining;
            cx.registry_request(RegistryRequest::Join);
        }
    }
}

impl Protocol for Custody {
    type Message = Message;
    type Timer = Timer;

    fn request(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        self.ask(ticket, None, cx);
    }

    fn release(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        if let Some(at) = self.tokens.used_by(ticket) {
            self.leave(at, cx);
        } else if let Some(at) = self.queue_position(ticket) {
            self.waiting.remove(at);
            if self.stage == Stage::Party {
                self.announce(Update::Withdraw(Claim { peer: self.me.peer, ticket }), cx);
            }
        }
        self.settle(cx);
    }

    fn on_message(&mut self, from: PeerId, message: Message, cx: &mut Cx<'_, Self>) {
        self.process(from, message, cx);
        self.settle(cx);
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Cx<'_, Self>) {
        match timer {
            Timer::Update => self.send_arrivals(cx),
        }
        self.settle(cx);
    }

    /// R10. Only if idle. The registry opens a generation for the other parties.
    fn forget(&mut self, cx: &mut Cx<'_, Self>) {
        if self.is_nothing() {
            *self = Self::returning(self.me, self.config, self.memory());
        }
        if !self.is_idle() {
            return;
        }
        if self.keeps(Rule::GiveUpFirst) {
            self.move_to(self.generation, self.coordinator, self.slots, cx);
            self.tokens = Holder::new(Vec::new());
        }
        self.stage = if self.keeps(Rule::GiveUpWaits) { Stage::Leaving } else { Stage::Outside };
        cx.registry_request(RegistryRequest::Quit { generation: self.generation });
    }

    fn on_reachable(&mut self, peer: PeerId, reachable: bool, cx: &mut Cx<'_, Self>) {
        if let Some(Role::Keeping(keeper)) = self.role.as_deref_mut() {
            keeper.set_reachable(peer, reachable);
            self.bind(cx);
        }
        self.settle(cx);
    }

    fn on_registry_event(&mut self, RegistryEvent { to, generation, kind }: RegistryEvent, cx: &mut Cx<'_, Self>) {
        // R6 and R1 also hold for events.
        if !self.is_me(to) || self.is_void(generation) {
            return;
        }
        match kind {
            EventKind::Joined { coordinator, slots } => self.on_joined(generation, coordinator, slots, cx),
            EventKind::Opened { slots, asked, detached } => {
                self.on_opened(generation, slots, Census::new(asked, detached), cx);
            }
            EventKind::Expired(detached) => self.on_early(self.me.peer, generation, Early::Expired(detached), cx),
            EventKind::Evicted => self.on_evicted(generation, cx),
            EventKind::Left { quit } => self.on_left(generation, quit, cx),
        }
        self.settle(cx);
    }
}
