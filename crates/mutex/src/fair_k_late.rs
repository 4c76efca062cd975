//! Fair-K with late binding: one line for all k tokens. Our own protocol, after Reddy, Mittal and Gupta's Fair-K.
//!
//! Fair-K puts every newcomer into one of k queues at once, in turn. A queue whose clients stay long then falls
//! behind, and its waiters with it. Here there is one line, and nobody in it belongs to a token until that token's
//! holder is about to be the next to leave: the coordinator, who keeps the line, tells each *holder* who comes after it,
//! and only that far. Everybody further back is still open. Leaving is one message, as in Fair-K: the token goes
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
//! those leave at once, the second token finds its client served; it goes on to that
//! client's own next, one message later.
//!
//! **The coordinator** moves: after [`Config::term`] entries it hands the line to the last in it. Pointers to it are
//! hints with an epoch; who is asked and is not coordinator any more passes the question on to a later one.
//!
//! **Stays.** A token's stays at peers are numbered. `next` is meant for one stay and ignored at any other, and reports
//! of old stays change nothing, so messages may overtake each other freely.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;

use peerlock_base::{PeerId, Ticket};

use crate::token::{Claim, Layout, Token};
use crate::{Cx, Never, Observe, Protocol};

/// Who coordinates, and since which change of the role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Role {
    /// How often the role had moved by then.
    pub epoch: u64,
    /// Who had it.
    pub peer: PeerId,
}

/// What peers say to each other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Message {
    /// Something the coordinator has to know.
    Tell {
        /// The coordinator that the sender knows. One who has not heard of it yet will be it: the line is on its way.
        epoch: u64,
        /// What there is to know.
        news: News,
    },
    /// From the coordinator to the peer that has a token, or will: who comes after the client there. Answered by
    /// `Token` to `next` when that client leaves.
    Next {
        /// Which token.
        slot: u32,
        /// At which of its stays.
        stay: u64,
        /// The last word for this stay has the highest number.
        turn: u32,
        /// Who comes after.
        next: Claim,
        /// The sender.
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
        /// The coordinator that the sender knows.
        role: Role,
    },
    /// The coordinator's role, to the last in line.
    Line(Box<Line>),
}

/// What the coordinator is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum News {
    /// A client asks; answered by `Next` to a holder.
    Request(Claim),
    /// It does not want in any more.
    Withdraw(Claim),
    /// A token's client has left, at the end of this stay. Answered by `Next` to `to`'s peer, or, if the token stays
    /// here because nobody was known to come after, by `Next` as soon as somebody asks.
    Left {
        /// Which token.
        slot: u32,
        /// Which of its stays.
        stay: u64,
        /// Whom it was sent to.
        to: Option<Claim>,
    },
    /// A token that was reported free is in use again: `next` has to wait, or go elsewhere.
    Busy {
        /// Which token.
        slot: u32,
        /// Which of its stays.
        stay: u64,
    },
}

/// How the protocol is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// After how many entries the coordinator's role moves on.
    pub term: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self { term: 1000 }
    }
}

/// What makes a peer the coordinator.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Line {
    epoch: u64,
    /// Entries since the role came here.
    served: u32,
    /// How slow we are to tell several holders of the same waiter: goes up by [`RARE`] for every token that came too
    /// late because of it, and down by one for every entry, so that it settles where one in `RARE` does.
    caution: u32,
    /// How often a token has moved.
    moves: u64,
    /// Everybody who waits, oldest first.
    waiting: VecDeque<Waiter>,
    /// What is known of each token.
    seats: Vec<Seat>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Waiter {
    claim: Claim,
    /// How many younger ones went in before it.
    passed: u32,
    /// How many holders know of it as their next.
    known: u32,
    /// One of those has nobody inside: the token is as good as on its way.
    coming: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Seat {
    /// Where the token is, or is going.
    at: PeerId,
    stay: u64,
    /// How many tokens had moved when this one came there: the lowest has been there longest.
    since: u64,
    /// It lies there unused: whoever is told as next gets it at once.
    free: bool,
    next: Option<Claim>,
    turn: u32,
}

/// A token that is here.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Held {
    token: Token,
    stay: u64,
    /// The client inside with it.
    user: Option<Ticket>,
    /// The coordinator believes that nobody is.
    reported_free: bool,
    next: Option<Heir>,
}

/// Who comes after, as the coordinator says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Heir {
    slot: u32,
    stay: u64,
    turn: u32,
    claim: Claim,
}

/// One peer's part in Fair-K with late binding, for one resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FairKLate {
    me: PeerId,
    config: Config,
    slots: u32,
    /// The latest coordinator that we know.
    role: Role,
    line: Option<Box<Line>>,
    /// News for the coordinator that we shall be.
    early: Vec<News>,
    held: Vec<Held>,
    /// Heirs of tokens that are not here yet.
    ahead: Vec<Heir>,
    /// Our clients that wait, by ticket.
    waiting: Vec<Ticket>,
    /// What we have told ourselves in this step and not yet done. Empty between steps.
    inbox: VecDeque<Message>,
}

impl FairKLate {
    /// One peer before the first request.
    pub fn new(me: PeerId, layout: &Layout, config: Config) -> Self {
        let slots = layout.slots();
        let free = |slot| Held { token: Token::new(slot), stay: 0, user: None, reported_free: true, next: None };
        Self {
            me,
            config,
            slots,
            role: Role { epoch: 0, peer: layout.root },
            line: (me == layout.root).then(|| Box::new(Line::new(&layout.tokens))),
            early: Vec::new(),
            held: (0..slots).filter(|&slot| layout.tokens[slot as usize] == me).map(free).collect(),
            ahead: Vec::new(),
            waiting: Vec::new(),
            inbox: VecDeque::new(),
        }
    }

    /// Sends, or notes for ourselves.
    fn post(&mut self, to: PeerId, message: Message, cx: &mut Cx<'_, Self>) {
        if to == self.me {
            self.inbox.push_back(message);
        } else {
            cx.send(to, message);
        }
    }

    fn tell(&mut self, news: News, cx: &mut Cx<'_, Self>) {
        let Role { epoch, peer } = self.role;
        self.post(peer, Message::Tell { epoch, news }, cx);
    }

    /// Does what we have told ourselves.
    fn settle(&mut self, cx: &mut Cx<'_, Self>) {
        while let Some(message) = self.inbox.pop_front() {
            self.process(message, cx);
        }
    }

    fn process(&mut self, message: Message, cx: &mut Cx<'_, Self>) {
        match message {
            Message::Tell { epoch, news } => match self.line.take() {
                Some(mut line) => {
                    line.note(news, cx);
                    self.bind(line, cx);
                }
                // Ours is still to come: word of it can be faster than the line itself.
                None if epoch > self.role.epoch || self.role.peer == self.me => self.early.push(news),
                None => self.tell(news, cx),
            },
            Message::Next { slot, stay, turn, next, role } => {
                self.role = self.role.max(role);
                self.on_next(Heir { slot, stay, turn, claim: next }, cx);
            }
            Message::Token { to, token, stay, role } => {
                self.role = self.role.max(role);
                self.on_token(to, token, stay, cx);
            }
            Message::Line(line) => self.on_line(line, cx),
        }
    }

    /// We are coordinator.
    fn on_line(&mut self, mut line: Box<Line>, cx: &mut Cx<'_, Self>) {
        self.role = Role { epoch: line.epoch, peer: self.me };
        for news in core::mem::take(&mut self.early) {
            line.note(news, cx);
        }
        self.bind(line, cx);
    }

    /// The coordinator tells holders who comes next, and hands the role on when it is time to.
    fn bind(&mut self, mut line: Box<Line>, cx: &mut Cx<'_, Self>) {
        while let Some((slot, next)) = line.choose() {
            let Seat { at, stay, turn, .. } = *line.bind(slot, next);
            self.post(at, Message::Next { slot, stay, turn, next, role: self.role }, cx);
        }
        let successor = line.waiting.back().map(|last| last.claim.peer).filter(|&peer| peer != self.me);
        match successor {
            Some(peer) if line.served >= self.config.term => {
                line.served = 0;
                line.epoch += 1;
                self.role = Role { epoch: line.epoch, peer };
                cx.send(peer, Message::Line(line));
            }
            _ => self.line = Some(line),
        }
    }

    fn on_next(&mut self, heir: Heir, cx: &mut Cx<'_, Self>) {
        let Some(at) = self.held.iter().position(|held| held.token.slot == heir.slot) else {
            return self.keep(heir);
        };
        let held = &mut self.held[at];
        if heir.stay > held.stay {
            return self.keep(heir);
        }
        if heir.stay < held.stay || held.next.is_some_and(|known| known.turn > heir.turn) {
            return;
        }
        held.next = Some(heir);
        if held.user.is_none() {
            self.hand_over(at, cx);
        } else if held.reported_free {
            held.reported_free = false;
            let (slot, stay) = (heir.slot, heir.stay);
            self.tell(News::Busy { slot, stay }, cx);
        }
    }

    /// The token is still on its way here, or has gone again.
    fn keep(&mut self, heir: Heir) {
        match self.ahead.iter_mut().find(|ahead| ahead.slot == heir.slot) {
            Some(ahead) if (ahead.stay, ahead.turn) < (heir.stay, heir.turn) => *ahead = heir,
            Some(_) => {}
            None => self.ahead.push(heir),
        }
    }

    fn on_token(&mut self, to: Ticket, token: Token, stay: u64, cx: &mut Cx<'_, Self>) {
        let ahead = self.ahead.iter().position(|heir| heir.slot == token.slot && heir.stay <= stay);
        let next = ahead.map(|at| self.ahead.swap_remove(at)).filter(|heir| heir.stay == stay);
        self.held.push(Held { token, stay, user: None, reported_free: false, next });
        let at = self.held.len() - 1;
        match self.waiting.binary_search(&to) {
            Ok(waits) => {
                self.waiting.remove(waits);
                self.enter(at, to, cx);
            }
            // It has come in with another token, or withdrawn: this one goes on.
            Err(_) => {
                if self.held[at].next.is_none() {
                    self.held[at].next = self.held.iter_mut().find_map(|held| held.next.take());
                }
                self.leave(at, cx);
            }
        }
    }

    fn enter(&mut self, at: usize, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        let held = &mut self.held[at];
        held.user = Some(ticket);
        cx.grant(ticket, held.token.grant(self.slots));
    }

    /// Nobody here uses the token any more.
    fn leave(&mut self, at: usize, cx: &mut Cx<'_, Self>) {
        let held = &mut self.held[at];
        held.user = None;
        if held.next.is_some() {
            self.hand_over(at, cx);
        } else if !held.reported_free {
            held.reported_free = true;
            let (slot, stay) = (held.token.slot, held.stay);
            self.tell(News::Left { slot, stay, to: None }, cx);
        }
    }

    fn hand_over(&mut self, at: usize, cx: &mut Cx<'_, Self>) {
        let Held { token, stay, next, .. } = self.held.remove(at);
        let to = next.expect("a token is handed over only to somebody").claim;
        self.post(to.peer, Message::Token { to: to.ticket, token, stay: stay + 1, role: self.role }, cx);
        self.tell(News::Left { slot: token.slot, stay, to: Some(to) }, cx);
    }
}

/// One token in this many may go to somebody who has been served already. Our choice: it then lies idle for one more
/// message, and with one in twenty the mean wait stays within 1 % of the ideal's at k = 3, even where a message takes a
/// tenth of the time inside.
const RARE: u32 = 20;

impl Line {
    fn new(tokens: &[PeerId]) -> Self {
        let seat = |&at| Seat { at, stay: 0, since: 0, free: true, next: None, turn: 0 };
        Self {
            epoch: 0,
            served: 0,
            moves: 0,
            caution: 3 * RARE,
            waiting: VecDeque::new(),
            seats: tokens.iter().map(seat).collect(),
        }
    }

    /// Learns something.
    fn note(&mut self, news: News, cx: &mut Cx<'_, FairKLate>) {
        match news {
            News::Request(claim) => self.waiting.push_back(Waiter { claim, passed: 0, known: 0, coming: false }),
            News::Withdraw(claim) => drop(self.strike_out(claim)),
            News::Left { slot, .. } | News::Busy { slot, .. } if slot as usize >= self.seats.len() => {
                cx.strange("news of a token that does not exist");
            }
            News::Left { slot, stay, to: Some(to) } => {
                match self.strike_out(to) {
                    Some(place) => {
                        self.waiting.range_mut(..place).for_each(|waiter| waiter.passed += 1);
                        self.served += 1;
                        self.caution = self.caution.saturating_sub(1);
                    }
                    None => self.caution += RARE, // It was served, or has withdrawn: the token goes astray.
                }
                if stay >= self.seats[slot as usize].stay {
                    self.forget_next(slot);
                    self.moves += 1;
                    let (at, stay, since) = (to.peer, stay + 1, self.moves);
                    self.seats[slot as usize] = Seat { at, stay, since, free: false, next: None, turn: 0 };
                }
            }
            News::Left { slot, stay, to: None } => self.set_free(slot, stay, true),
            News::Busy { slot, stay } => self.set_free(slot, stay, false),
        }
    }

    /// Takes somebody out of the line, and tells which place it had.
    fn strike_out(&mut self, claim: Claim) -> Option<usize> {
        let place = self.place(claim)?;
        self.waiting.remove(place);
        for seat in &mut self.seats {
            seat.next = seat.next.filter(|&next| next != claim);
        }
        Some(place)
    }

    fn place(&self, claim: Claim) -> Option<usize> {
        self.waiting.iter().position(|waiter| waiter.claim == claim)
    }

    fn set_free(&mut self, slot: u32, stay: u64, free: bool) {
        let seat = &mut self.seats[slot as usize];
        if seat.stay == stay && seat.free != free {
            let next = seat.next;
            self.forget_next(slot);
            self.seats[slot as usize].free = free;
            if let Some(next) = next {
                self.set_next(slot, next);
            }
        }
    }

    fn forget_next(&mut self, slot: u32) {
        let Seat { free, ref mut next, .. } = self.seats[slot as usize];
        if let Some(next) = next.take() {
            let waiter = self.waiter(next);
            waiter.known -= 1;
            waiter.coming &= !free;
        }
    }

    fn set_next(&mut self, slot: u32, next: Claim) {
        let free = self.seats[slot as usize].free;
        if free {
            // Nobody else needs to think of it.
            for other in 0..self.seats.len() as u32 {
                if self.seats[other as usize].next == Some(next) {
                    self.forget_next(other);
                }
            }
        }
        let waiter = self.waiter(next);
        waiter.known += 1;
        waiter.coming |= free;
        self.seats[slot as usize].next = Some(next);
    }

    fn waiter(&mut self, claim: Claim) -> &mut Waiter {
        let place = self.place(claim).expect("whoever a holder was told of is in line");
        &mut self.waiting[place]
    }

    /// A token whose holder should be told something, and whom to tell it of.
    fn choose(&self) -> Option<(u32, Claim)> {
        let open = || self.waiting.iter().filter(|waiter| !waiter.coming);
        // A free token goes to the oldest.
        let oldest = open().next()?;
        if let Some(slot) = self.longest_held(|seat| seat.free && seat.next.is_none()) {
            return Some((slot, oldest.claim));
        }
        // A holder who has nobody after it is told of one who was passed, or else of the oldest whom nobody knows; where
        // all are known, of one whom few know.
        let most = |waiter: &Waiter| 1 + waiter.passed * RARE / self.caution.max(1);
        let unknown = open().find(|waiter| waiter.known == 0);
        if let Some(slot) = self.longest_held(|seat| !seat.free && seat.next.is_none()) {
            let passed = open().take_while(|waiter| waiter.known > 0).find(|waiter| waiter.known < most(waiter));
            let next = passed.or(unknown).or_else(|| open().min_by_key(|waiter| waiter.known));
            return next.map(|waiter| (slot, waiter.claim));
        }
        // Somebody whom more holders know than need to makes room for one whom nobody knows.
        // Where there is a holder for everybody, nobody needs two.
        let unknown = unknown?;
        let enough = self.waiting.len() <= self.seats.len();
        let most = |waiter: &Waiter| if enough { 1 } else { most(waiter) };
        open().take_while(|waiter| waiter.known > 0).find(|waiter| waiter.known > most(waiter))?;
        // What it keeps are the tokens that have been out longest: they come back first.
        let is_spare = |seat: &Seat| {
            let sooner = self.seats.iter().filter(|other| other.next == seat.next && other.since < seat.since).count();
            let waiter = open().find(|waiter| Some(waiter.claim) == seat.next);
            waiter.is_some_and(|waiter| sooner as u32 >= most(waiter))
        };
        let slot = self.longest_held(is_spare)?;
        Some((slot, unknown.claim))
    }

    /// Of the tokens like this, the one that has been at its peer longest: it is likely to leave first.
    fn longest_held(&self, like: impl Fn(&Seat) -> bool) -> Option<u32> {
        let seats = self.seats.iter().enumerate().filter(|(_, seat)| like(seat));
        seats.min_by_key(|(_, seat)| seat.since).map(|(slot, _)| slot as u32)
    }

    /// Notes that the holder of a token is told of `next`.
    fn bind(&mut self, slot: u32, next: Claim) -> &Seat {
        self.forget_next(slot);
        self.set_next(slot, next);
        let seat = &mut self.seats[slot as usize];
        seat.turn += 1;
        seat
    }
}

impl Protocol for FairKLate {
    type Message = Message;
    type Timer = Never;

    fn request(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        assert!(self.waiting.last().is_none_or(|&last| last < ticket), "tickets are asked for in order");
        if let Some(at) = self.held.iter().position(|held| held.user.is_none()) {
            self.enter(at, ticket, cx);
        } else {
            self.waiting.push(ticket);
            self.tell(News::Request(Claim { peer: self.me, ticket }), cx);
        }
        self.settle(cx);
    }

    fn release(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        if let Some(at) = self.held.iter().position(|held| held.user == Some(ticket)) {
            self.leave(at, cx);
        } else if let Ok(at) = self.waiting.binary_search(&ticket) {
            self.waiting.remove(at);
            self.tell(News::Withdraw(Claim { peer: self.me, ticket }), cx);
        }
        self.settle(cx);
    }

    fn on_message(&mut self, _from: PeerId, message: Message, cx: &mut Cx<'_, Self>) {
        self.process(message, cx);
        self.settle(cx);
    }
}

impl Observe for FairKLate {
    const KINDS: &'static [&'static str] = &["request", "next", "token", "left", "withdraw", "busy", "line"];
    const HAS_COORDINATOR: bool = true;

    fn kind(message: &Message) -> usize {
        match message {
            Message::Tell { news: News::Request(_), .. } => 0,
            Message::Next { .. } => 1,
            Message::Token { .. } => 2,
            Message::Tell { news: News::Left { .. }, .. } => 3,
            Message::Tell { news: News::Withdraw(_), .. } => 4,
            Message::Tell { news: News::Busy { .. }, .. } => 5,
            Message::Line(_) => 6,
        }
    }

    fn tokens_in_all(&self) -> Option<usize> {
        Some(self.slots as usize)
    }

    fn tokens(&self) -> usize {
        self.held.len()
    }

    fn tokens_in(message: &Message) -> usize {
        usize::from(matches!(message, Message::Token { .. }))
    }

    fn is_coordinator(&self) -> bool {
        self.line.is_some()
    }

    fn carries_coordinator(message: &Message) -> bool {
        matches!(message, Message::Line(_))
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tell { news: News::Request(claim), .. } => write!(f, "request({claim})"),
            Self::Tell { news: News::Withdraw(claim), .. } => write!(f, "withdraw({claim})"),
            Self::Tell { news: News::Left { slot, to: Some(to), .. }, .. } => write!(f, "left(token {slot} → {to})"),
            Self::Tell { news: News::Left { slot, to: None, .. }, .. } => write!(f, "left(token {slot})"),
            Self::Tell { news: News::Busy { slot, .. }, .. } => write!(f, "busy(token {slot})"),
            Self::Next { slot, next, .. } => write!(f, "next({next}) for token {slot}"),
            Self::Token { token, .. } => write!(f, "token {}", token.slot),
            Self::Line(line) => write!(f, "line of {}, epoch {}", line.waiting.len(), line.epoch),
        }
    }
}
