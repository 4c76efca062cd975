//! Late binding whose tokens, line and slots survive their peers. Our own, on a small register that all agree on.
//!
//! As long as nobody dies this is [`FairKLate`](crate::FairKLate) with one coordinator, who also gives every request an
//! *arrival number* and tells it. What dies with a peer is found by *generations*: a word of the register opens the
//! next one and names its coordinator when a party's session has ended, when the number of slots changes, or when
//! numbers run out. Then:
//!
//! ```text
//!   0 (coordinator of g)   1 (inside)         2 (waits)          3 (its session has ended)
//!   │ opened(g) ◄── the register
//!   │ census(g)            │                  │
//!   ├─────────────────────►│                  │                  fence: who answers refuses all that is older
//!   ├──────────────────────┼─────────────────►│
//!   │ answer: token 0      │                  │
//!   │◄─────────────────────┤                  │
//!   │ answer: waits since g−1:7               │
//!   │◄─────────────────────┼──────────────────┤                  count: everybody has answered
//!   │ close(g, 0 1 2) ──► the register        │                  token 1 is missing: made here
//!   │ token 1              │                  │
//!   ├──────────────────────┼─────────────────►│                  go on: the first message of g says so
//! ```
//!
//! **Rules.** Each was found by leaving it out ([`Rule`], lab/docs/custody.md): then somebody is inside beside
//! somebody, or a slot is lost. The margin names them where they are kept.
//!
//! A `Custody` is *one session's* part in one resource. When the session stops, because its peer died or could not
//! renew it, whoever drives it throws it away, with all its clients, and begins a new one. It may do that at any
//! moment, as long as it does before the register ends that session.

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

/// The names of the timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// The coordinator tells arrival numbers.
    Update,
}

/// A rule that may be left out, to show that it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// R1: what belongs to an older generation than ours is void.
    Fence,
    /// R2: who answers forgets who comes next, and what it knows of tokens that are not here.
    Forget,
    /// R2, second half: a token that was reported is used only as the coordinator says.
    NotOurs,
    /// R3: nothing is counted before everybody has answered.
    CountAll,
    /// R4: who joins begins in the generation that the answer names.
    JoinAhead,
    /// R5: only who knows that it is a party takes a token.
    PartiesOnly,
    /// R6: only the session that is asked answers.
    BySession,
    /// R7: the next number of a slot is at least the first of its generation.
    Numbers,
    /// R8: who answers "nothing here" is no party any more.
    NothingLeaves,
    /// R9: news for a generation to come are kept.
    EarlyUpdate,
    /// A slot is not made anew before the end of its detached grant.
    DetachedEnd,
    /// Of two tokens of one slot the younger counts.
    Youngest,
    /// While more are inside than there are slots, nobody is let in.
    HoldBack,
    /// R10: who gives up its part has thrown away what it had before it says so.
    GiveUpFirst,
    /// R10, second half: who has said so takes part again only when the register has answered …
    GiveUpWaits,
    /// … also if it is asked in the same generation meanwhile.
    GiveUpLasts,
}

/// How the protocol is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// How many fencing numbers each generation has. When half of them are given the next generation is asked for.
    pub numbers: u64,
    /// For how long the coordinator collects arrival numbers before it tells them; `None` if it tells each at once.
    pub batch: Option<Span>,
    /// With one slot: for how many hand-overs between peers it is said ahead who comes next, at least 1. With several,
    /// where stays are short: half as many.
    pub reach: u32,
    /// With several slots: all stays are taken for short. If not, it is found out.
    pub always_ahead: bool,
    /// For tests: the rule that is not kept.
    pub without: Option<Rule>,
}

impl Default for Config {
    /// 2³² numbers for each generation: below 2⁵³ for two million generations, and half of them last for half a day at
    /// an entry every 22 µs. A tenth of a second, our choice: who asked before that keeps its place when the
    /// coordinator dies, and a burst of requests of one peer costs one message.
    fn default() -> Self {
        Self { numbers: 1 << 32, batch: Some(Span::from_millis(100)), reach: REACH, always_ahead: false, without: None }
    }
}

/// How far we are in becoming a party.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    /// We have nothing of the resource and ask for nothing.
    Outside,
    /// The register was asked and has not answered yet.
    Joining,
    /// The join is known to be applied.
    Party,
    /// We have thrown away what we had, and the register was told so and has not answered yet.
    Leaving,
}

/// The coordinator's role in our generation.
#[allow(clippy::large_enum_variant, reason = "it is always in a box")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Role {
    Counting(Census),
    Keeping(Keeper),
}

/// What is kept for the coordinator that we shall be, or are when all is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Early {
    Update(Update),
    Dropped { slot: u32, stay: u64 },
    Expired(Detached),
}

/// Which generations a session has seen of a resource of which it has nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Memory {
    /// What is older is void.
    generation: u64,
    /// The latest in which the coordinator's question was answered.
    answered: u64,
}

impl Memory {
    /// Whether it has seen none.
    pub fn is_empty(&self) -> bool {
        self.generation == 0
    }

    /// Whether something of this generation is not void.
    pub fn counts(&self, generation: u64) -> bool {
        generation >= self.generation
    }
}

/// A client that waits, and its arrival number if it was told one.
type Waiter = (Ticket, Option<Arrival>);

/// One session's part in a resource whose tokens survive their peers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Custody {
    me: Session,
    config: Config,
    stage: Stage,
    /// The latest that we have moved to; 0 before the first.
    generation: u64,
    /// The latest in which we have answered the coordinator's question.
    answered: u64,
    /// Who coordinates in our generation.
    coordinator: PeerId,
    /// How many slots the resource has in our generation.
    slots: u32,
    /// The tokens that are here, and what we know of the others.
    tokens: Holder,
    /// Our clients that wait, by ticket.
    waiting: VecDeque<Waiter>,
    role: Option<Box<Role>>,
    /// What came before its generation, or before the count was over, and from whom.
    early: Vec<(u64, PeerId, Early)>,
    /// The generation in which we have asked for the next one.
    renumbered: u64,
    /// What we have told ourselves in this step and not yet done. Empty between steps.
    inbox: VecDeque<Message>,
}

impl Custody {
    /// A session that has nothing of the resource yet.
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

    /// A session that has been a party of generation 1 from the beginning, with all tokens at its coordinator: where
    /// simulation and exploration begin.
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

    /// A new process on a host where clients of an earlier one are still inside: it answers for all of them, as clients
    /// of its own, from before it is first asked. The register must end the earlier session and make this one a party
    /// in one entry.
    ///
    /// So it does not ask to join: the answer could come before word that it was forced out, and let it keep what it
    /// had before.
    pub fn taking_over(me: Session, config: Config, inside: &[(Ticket, Grant)]) -> Self {
        let held = inside.iter().map(|&(ticket, Grant { slot, fencing })| {
            Held::in_custody(Token { slot, fencing: fencing + 1 }, Some(ticket))
        });
        let stage = if inside.is_empty() { Stage::Outside } else { Stage::Joining };
        Self { tokens: Holder::new(held.collect()), stage, ..Self::new(me, config) }
    }

    /// The same session, after it was [nothing](Self::is_nothing) and was thrown away: what is older stays void.
    pub fn returning(me: Session, config: Config, memory: Memory) -> Self {
        let Memory { generation, answered } = memory;
        Self { generation, answered, ..Self::new(me, config) }
    }

    /// What must not be forgotten of a part that is [nothing](Self::is_nothing), as long as its session stands.
    pub fn memory(&self) -> Memory {
        Memory { generation: self.generation, answered: self.answered }
    }

    /// Whether there is nothing here but the [memory](Self::memory) of generations: then whoever keeps that may throw
    /// all the rest away.
    pub fn is_nothing(&self) -> bool {
        let is_empty = self.tokens.held.is_empty() && self.waiting.is_empty() && self.early.is_empty();
        self.stage == Stage::Outside && is_empty && self.role.is_none()
    }

    /// Whether nobody here is inside or waits, and nobody elsewhere either as far as we know.
    fn is_idle(&self) -> bool {
        let is_unused = self.tokens.held.iter().all(|held| held.user.is_none()) && self.waiting.is_empty();
        let is_kept_by_nobody = match self.role.as_deref() {
            Some(Role::Counting(_)) => false,
            Some(Role::Keeping(keeper)) => keeper.is_idle(),
            None => true,
        };
        self.stage == Stage::Party && is_unused && is_kept_by_nobody
    }

    /// The latest generation that we have moved to; 0 before the first.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The line, if we are the coordinator and all is counted.
    pub fn queue(&self) -> Option<&Queue<Arrival>> {
        match self.role.as_deref() {
            Some(Role::Keeping(keeper)) => Some(&keeper.queue),
            _ => None,
        }
    }

    /// Whether the register has told that our session takes part.
    pub fn is_party(&self) -> bool {
        self.stage == Stage::Party
    }

    /// Who coordinates in our generation, as far as we know; ourselves before the first.
    pub fn coordinator(&self) -> PeerId {
        self.coordinator
    }

    /// How many slots the resource has in our generation; 0 before the first.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// The peers whose waiters are passed over since they cannot be reached, if we are the coordinator.
    pub fn unreachable(&self) -> &[PeerId] {
        match self.role.as_deref() {
            Some(Role::Keeping(keeper)) => keeper.unreachable(),
            _ => &[],
        }
    }

    /// Who has not answered yet, if we coordinate and still count.
    pub fn missing(&self) -> Option<&[Session]> {
        match self.role.as_deref() {
            Some(Role::Counting(census)) => Some(census.asked()),
            _ => None,
        }
    }

    /// Who gets the token of this slot after the client here, as far as we were told.
    pub fn next_of(&self, slot: u32) -> Option<Claim> {
        self.tokens.held[self.tokens.place_of(slot)?].next()
    }

    /// The tokens that are here, with the client inside.
    pub fn held(&self) -> impl Iterator<Item = (Token, Option<Ticket>)> {
        self.tokens.held.iter().map(|held| (held.token, held.user))
    }

    /// How much is kept here because this peer has said it, or everybody else: for who sees to it that there is an end
    /// to it.
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

    /// R1: whether a message of this generation comes too late to count.
    fn is_void(&self, generation: u64) -> bool {
        generation < self.generation && self.keeps(Rule::Fence)
    }

    /// R6: whether this is our own session, and not an earlier one of the same peer.
    fn is_me(&self, session: Session) -> bool {
        session == self.me || session.peer == self.me.peer && !self.keeps(Rule::BySession)
    }

    /// Sends, or notes for ourselves.
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

    /// Does what we have told ourselves.
    fn settle(&mut self, cx: &mut Cx<'_, Self>) {
        while let Some(message) = self.inbox.pop_front() {
            self.process(self.me.peer, message, cx);
        }
    }

    fn process(&mut self, from: PeerId, Message { generation, body }: Message, cx: &mut Cx<'_, Self>) {
        match body {
            Body::Census { session, slots } => self.on_census(from, generation, session, slots, cx),
            Body::Answer(Answer { session, .. }) if session.peer != from => {
                cx.unexpected("an answer for somebody else")
            }
            Body::Answer(answer) => self.on_answer(generation, answer, cx),
            Body::Update(Update::Request(claim) | Update::Withdraw(claim)) if claim.peer != from => {
                cx.unexpected("a request of somebody else's client");
            }
            // Late binding's word for a peer that is gone. Here a session ends, and everybody is asked.
            Body::Update(Update::Forgotten(_)) => {
                cx.unexpected("word of a client that is forgotten, which nobody gives here")
            }
            Body::Update(update) => self.on_early(from, generation, Early::Update(update), cx),
            Body::Dropped { slot, stay } => self.on_early(from, generation, Early::Dropped { slot, stay }, cx),
            // R5. What comes here may be meant for an earlier session of this host.
            Body::Token { .. } if self.stage != Stage::Party && self.keeps(Rule::PartiesOnly) => {}
            Body::Token { .. } | Body::Next { .. } | Body::Void(_) | Body::Arrivals(_) if self.is_void(generation) => {}
            Body::Token { .. } if generation > self.generation && self.stage == Stage::Party => {
                cx.unexpected("a token of a generation in which we were not counted");
            }
            // All that there is of this generation will be handed out by us.
            Body::Token { .. } if generation == self.generation && self.missing().is_some() => {
                cx.unexpected("a token of a generation that is not counted yet");
            }
            Body::Token { to, token, stay, following } => self.on_token(to, token, stay, following, cx),
            _ if generation > self.generation => {}
            Body::Next { .. } | Body::Void(_) | Body::Arrivals(_) if from != self.coordinator => {
                cx.unexpected("what only the coordinator says");
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

/// Tokens and clients.
impl Custody {
    /// R7. The first number that a slot may have in our generation.
    fn first_number(&self, slot: u32) -> u64 {
        self.generation * self.config.numbers + 1 + u64::from(slot)
    }

    /// Whether a token has had all numbers of our generation. Then it lets nobody in before the next.
    fn is_spent(&self, token: Token) -> bool {
        token.fencing >= self.last_number()
    }

    /// No number of our generation is as large. A token that was made in a later one has a larger one from the
    /// beginning, so that numbers tell which of two is younger.
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
            // The one that we have reported does not count: word of that is slower than the one that does.
            self.on_void(older, cx);
        }
        let at = self.tokens.take(token, stay, following);
        match self.queue_position(to) {
            // Its client waits for the next generation with it.
            Some(_) if self.is_spent(token) => self.tokens.held[at].is_ours = false,
            Some(waits) => {
                self.waiting.remove(waits);
                self.enter(at, to, cx);
            }
            // It has come in with another token, or withdrawn: this one goes on.
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
        // R7. Within a generation, and only there, slots step by k from different beginnings.
        if is_numbered {
            held.token.fencing = held.token.fencing.max(first);
        }
        cx.grant(ticket, held.token.grant(self.slots));
        held.token.fencing = held.token.fencing.min(last);
        let half = self.generation * self.config.numbers + self.config.numbers / 2;
        if held.token.fencing >= half && self.renumbered < self.generation {
            self.renumbered = self.generation;
            cx.registry_request(RegistryRequest::Renumber { generation: self.generation });
        }
    }

    /// Nobody here uses the token any more.
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
            // After a takeover, and before the first census, there is no coordinator to tell.
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

    /// There is a younger token of this slot: we were forced out, and had not heard of it when we were asked.
    fn on_void(&mut self, token: Token, cx: &mut Cx<'_, Self>) {
        let reported = |held: &Held| held.token == token && !held.is_ours;
        let Some(at) = self.tokens.held.iter().position(reported) else { return };
        if let Some(ticket) = self.tokens.held.remove(at).user {
            cx.lost(ticket);
        }
    }

    /// We were forced out of what we had. Clients that wait here ask again.
    fn on_expelled(&mut self, generation: u64, cx: &mut Cx<'_, Self>) {
        if generation <= self.generation {
            return; // We have joined again since.
        }
        self.move_to(generation, self.coordinator, self.slots, cx);
        for ticket in core::mem::take(&mut self.tokens.held).into_iter().filter_map(|held| held.user) {
            cx.lost(ticket);
        }
        self.waiting.iter_mut().for_each(|(_, arrival)| *arrival = None);
        // A join that is under way may have been applied before this, and its answer be void.
        self.stage = Stage::Outside;
        self.join(cx);
    }

    /// The register has heard that we have nothing any more; or somebody else had opened another generation before
    /// that, in which we are asked, and may ask again as long as we are not.
    fn on_left(&mut self, generation: u64, quit: u64, cx: &mut Cx<'_, Self>) {
        // The same answer twice is not one to what we have given up since.
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

    /// Which of our clients that wait it is. They are asked for in order, and there may be many.
    fn queue_position(&self, ticket: Ticket) -> Option<usize> {
        self.waiting.binary_search_by_key(&ticket, |&(waiting, _)| waiting).ok()
    }

    /// Asks to be a party, if somebody waits for it.
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
        assert!(self.waiting.back().is_none_or(|&(last, _)| last < ticket), "tickets are asked for in order");
        let is_usable = |held: &Held| held.is_at_hand() && !self.is_spent(held.token);
        // Who of ours waits came first.
        if let Some(at) = self.tokens.held.iter().position(is_usable).filter(|_| self.waiting.is_empty()) {
            self.enter(at, ticket, cx);
        } else {
            self.waiting.push_back((ticket, None));
            if self.stage == Stage::Party {
                self.announce(Update::Request(Claim { peer: self.me.peer, ticket }), cx);
            }
            self.join(cx);
        }
        self.settle(cx);
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

    /// R10. Who has nothing in use throws it away and tells the register, which opens a generation for those that are
    /// left: to them it is as if a session had ended. Nothing of ours is used again before the answer.
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
        // R6 and R1: words, too.
        if !self.is_me(to) || self.is_void(generation) {
            return;
        }
        match kind {
            EventKind::Joined { coordinator, slots } => self.on_joined(generation, coordinator, slots, cx),
            EventKind::Opened { slots, asked, detached } => {
                self.on_opened(generation, slots, Census::new(asked, detached), cx);
            }
            EventKind::Expired(detached) => self.on_early(self.me.peer, generation, Early::Expired(detached), cx),
            EventKind::Expelled => self.on_expelled(generation, cx),
            EventKind::Left { quit } => self.on_left(generation, quit, cx),
        }
        self.settle(cx);
    }
}
