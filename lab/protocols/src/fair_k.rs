//! Fair-K: k-mutual exclusion with a fair order (Reddy, Mittal, Gupta: "Fair K Mutual Exclusion Algorithm for Peer To
//! Peer Systems").
//!
//! Each of k tokens has a queue; a release sends the token straight to the next waiter (`child`). The *coordinator*
//! knows the tails of the queues (`token_locations`) and assigns requests to them in turn. Each assigned request
//! becomes the next coordinator, so all requests form one *privileged queue* (`next`). Its end is found along `parent`
//! pointers, which every forwarded request turns towards its sender (path reversal, Naimi and Tréhel). At most k
//! clients hold, since each needs a token, and no message duplicates one. `lab/docs/papers/fair-k.md` has a diagram.
//!
//! *Departure:* the paper allows one request per node at a time. Here `next` and `child` belong to a place in the queue
//! and name a [`Claim`], and a withdrawn place forwards the token.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::mem::replace;

use peerlock_types::{PeerId, Ticket};
use serde::{Deserialize, Serialize};

use crate::backed::Backable;
pub use crate::token::{Claim, Layout, Token};
use crate::{Cx, Never, Observe, Protocol};

/// The state of the coordinator (Table 1).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TokenLocations {
    /// *token_locations*: the tail of each token's queue.
    pub tails: Vec<Claim>,
    /// *counter_number*: the next queue.
    pub counter_number: u32,
}

/// The four messages of §3.2.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Message {
    /// *Message_request(k)*: sent by a requester to its parent, and forwarded up to the root.
    Request(Claim),
    /// *Message_token*: sent by the releasing peer to the next place `to`, which is granted, or forwards the token if
    /// withdrawn.
    Token { to: Ticket, token: Token },
    /// *Message_child(r)*: sent by the coordinator to the tail of a queue, whose peer sends `Token` to the child on
    /// release, or at once if the token is idle.
    Child { slot: u32, tail: Ticket, child: Claim },
    /// *Message_token_locations(a, b)*: sent by the coordinator to the assigned request, the next coordinator.
    TokenLocations { to: Ticket, locations: Box<TokenLocations> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Config {
    /// §3.2, *Process_Child*: a node that receives its child makes it its parent. The paper says that this shortens
    /// paths to the root; under load it lengthens them. Off by default: our choice.
    pub child_sets_parent: bool,
}

impl Config {
    pub const PRINTED: Self = Self { child_sets_parent: true };
    pub const REPAIRED: Self = Self { child_sets_parent: false };
}

/// A request's place in the queues (Table 1).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Place {
    ticket: Ticket,
    phase: Phase,
    /// *next* in the privileged queue, *child* in the token's queue.
    next: Option<Claim>,
    child: Option<Claim>,
    /// The role has arrived. The paper never reads it; here the place without the role stores `next`.
    in_child_queue: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Phase {
    /// *requesting_cs*, without a token.
    Waiting,
    /// Forwards its token on arrival.
    Withdrawn,
    /// *requesting_cs* and *token_present*.
    Holding(Token),
    /// Finished, but the role has not arrived.
    Left,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FairK {
    me: PeerId,
    config: Config,
    slots: u32,
    /// *parent*; `None` at a root.
    parent: Option<PeerId>,
    /// *is_coordinator* is `is_some`.
    token_locations: Option<Box<TokenLocations>>,
    idle: Vec<Token>,
    places: Vec<Place>,
    last: Ticket,
}

impl FairK {
    /// §3.2, *Initialization*.
    pub fn new(me: PeerId, layout: &Layout, config: Config) -> Self {
        let slots = layout.slots();
        let tails = || layout.tokens.iter().map(|&peer| Claim { peer, ticket: Ticket::NONE }).collect();
        let is_root = me == layout.root;
        Self {
            me,
            config,
            slots,
            parent: (!is_root).then_some(layout.root),
            token_locations: is_root.then(|| Box::new(TokenLocations { tails: tails(), counter_number: 0 })),
            idle: (0..slots).filter(|&slot| layout.tokens[slot as usize] == me).map(Token::new).collect(),
            places: Vec::new(),
            last: Ticket::NONE,
        }
    }

    fn place(&mut self, ticket: Ticket) -> Option<usize> {
        self.places.binary_search_by_key(&ticket, |place| place.ticket).ok()
    }

    fn enter(&mut self, at: usize, mut token: Token, cx: &mut Cx<'_, Self>) {
        let place = &mut self.places[at];
        cx.grant(place.ticket, token.grant(self.slots));
        place.phase = Phase::Holding(token);
    }

    /// §3.2, *Process_Request(r)*.
    fn process_request(&mut self, r: Claim, cx: &mut Cx<'_, Self>) {
        if let Some(parent) = self.parent {
            cx.send(parent, Message::Request(r));
        } else if let Some(locations) = self.token_locations.take() {
            self.assign(r, locations, cx);
        } else {
            // A client of this peer does not follow itself.
            let ours = (r.peer == self.me).then_some(r.ticket);
            let queued = |place: &&mut Place| !place.in_child_queue && Some(place.ticket) != ours;
            let waiting = self.places.iter_mut().rev().find(queued);
            let waiting = waiting.expect("a root is the coordinator, or one of its clients will be");
            debug_assert!(waiting.next.is_none(), "the tail of the privileged queue has no successor");
            waiting.next = Some(r);
        }
        if r.peer != self.me {
            self.parent = Some(r.peer); // Path reversal.
        }
    }

    /// Makes `r` the tail of a queue and coordinator (printed twice, in *Process_Request* and
    /// *Process_Token_Locations*).
    fn assign(&mut self, mut r: Claim, mut locations: Box<TokenLocations>, cx: &mut Cx<'_, Self>) {
        loop {
            let slot = locations.counter_number;
            let tail = replace(&mut locations.tails[slot as usize], r);
            locations.counter_number = (slot + 1) % self.slots;
            if tail.peer == self.me {
                self.process_child(slot, tail.ticket, r, cx);
            } else {
                cx.send(tail.peer, Message::Child { slot, tail: tail.ticket, child: r });
            }
            if r.peer != self.me {
                return cx.send(r.peer, Message::TokenLocations { to: r.ticket, locations });
            }
            match self.end_of_privileged_queue(r.ticket, cx) {
                Some(next) => r = next,
                None => return self.token_locations = Some(locations),
            }
        }
    }

    /// Ends the place's wait for the role, and returns its follower in the privileged queue.
    fn end_of_privileged_queue(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) -> Option<Claim> {
        let Some(at) = self.place(ticket) else {
            cx.unexpected("the coordinator's role for a ticket that does not wait here");
            return None;
        };
        let place = &mut self.places[at];
        place.in_child_queue = true;
        let next = place.next.take();
        if place.phase == Phase::Left {
            self.places.remove(at);
        }
        next
    }

    /// §3.2, *Process_Token*; entering is only in the paper's prose.
    fn process_token(&mut self, mut to: Claim, token: Token, cx: &mut Cx<'_, Self>) {
        while to.peer == self.me {
            let Some(at) = self.place(to.ticket) else {
                cx.unexpected("a token for a ticket that does not wait here");
                return self.idle.push(token); // The token stays here: losing it is worse.
            };
            if self.places[at].phase == Phase::Waiting {
                return self.enter(at, token, cx);
            }
            match self.leave(at) {
                Some(child) => to = child,
                None => return self.idle.push(token),
            }
        }
        cx.send(to.peer, Message::Token { to: to.ticket, token });
    }

    /// Ends a turn, and returns the next place of its token.
    fn leave(&mut self, at: usize) -> Option<Claim> {
        let place = &mut self.places[at];
        place.phase = Phase::Left;
        let child = place.child.take();
        if place.in_child_queue {
            self.places.remove(at);
        }
        child
    }

    /// §3.2, *Process_Child(r)*.
    fn process_child(&mut self, slot: u32, tail: Ticket, r: Claim, cx: &mut Cx<'_, Self>) {
        if self.config.child_sets_parent {
            self.point_to(r, tail);
        }
        let waiting = self.place(tail).filter(|&at| self.places[at].phase != Phase::Left);
        // The tail has released without a follower: its token is here, idle or used again.
        let holds = |place: &Place| matches!(place.phase, Phase::Holding(token) if token.slot == slot);
        if let Some(at) = waiting.or_else(|| self.places.iter().position(holds)) {
            debug_assert!(self.places[at].child.is_none(), "a tail has no successor");
            self.places[at].child = Some(r);
        } else if let Some(at) = self.idle.iter().position(|token| token.slot == slot) {
            let token = self.idle.remove(at);
            self.process_token(r, token, cx);
        } else {
            cx.unexpected("a child for a queue whose tail is not here");
        }
    }

    /// §3.2, *Process_Token_Locations(a, b)*.
    fn process_token_locations(&mut self, to: Ticket, locations: Box<TokenLocations>, cx: &mut Cx<'_, Self>) {
        match self.end_of_privileged_queue(to, cx) {
            Some(next) => {
                self.point_to(next, to);
                self.assign(next, locations, cx);
            }
            None => self.token_locations = Some(locations),
        }
    }

    /// Turns `parent` to the follower of the newest ticket: that of an older one leads back here, in a cycle.
    fn point_to(&mut self, behind: Claim, ticket: Ticket) {
        if ticket == self.last && behind.peer != self.me {
            self.parent = Some(behind.peer);
        }
    }
}

impl Protocol for FairK {
    type Message = Message;
    type Timer = Never;

    /// §3.2, *Request_CS*.
    #[inline]
    fn request(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        assert!(self.places.last().is_none_or(|place| place.ticket < ticket), "tickets are requested in order");
        let token = self.idle.pop();
        let in_child_queue = token.is_some(); // It does not join the privileged queue.
        self.places.push(Place { ticket, phase: Phase::Waiting, next: None, child: None, in_child_queue });
        if let Some(token) = token {
            return self.enter(self.places.len() - 1, token, cx);
        }
        self.last = ticket;
        let claim = Claim { peer: self.me, ticket };
        match self.parent.take() {
            Some(parent) => cx.send(parent, Message::Request(claim)),
            None => self.process_request(claim, cx),
        }
    }

    /// §3.2, *Release_CS*.
    #[inline]
    fn release(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        let Some(at) = self.place(ticket) else { return };
        match self.places[at].phase {
            Phase::Holding(token) => match self.leave(at) {
                Some(child) => self.process_token(child, token, cx),
                None => self.idle.push(token),
            },
            Phase::Waiting => self.places[at].phase = Phase::Withdrawn,
            Phase::Withdrawn | Phase::Left => {}
        }
    }

    #[inline]
    fn on_message(&mut self, _from: PeerId, message: Message, cx: &mut Cx<'_, Self>) {
        match message {
            Message::Request(r) => self.process_request(r, cx),
            Message::Token { to, token } => self.process_token(Claim { peer: self.me, ticket: to }, token, cx),
            Message::Child { slot, tail, child } => self.process_child(slot, tail, child, cx),
            Message::TokenLocations { to, locations } => {
                let queues = locations.tails.len() as u64;
                if queues != u64::from(self.slots) || locations.counter_number >= self.slots {
                    return cx.unexpected("a coordinator's role with a wrong number of queues");
                }
                self.process_token_locations(to, locations, cx);
            }
        }
    }
}

impl Backable for FairK {
    fn fresh(&self, me: PeerId, layout: &Layout) -> Self {
        Self::new(me, layout, self.config)
    }
}

impl Observe for FairK {
    const KINDS: &'static [&'static str] = &["request", "token", "child", "token_locations"];
    const HAS_COORDINATOR: bool = true;

    #[inline]
    fn kind(message: &Message) -> usize {
        match message {
            Message::Request(_) => 0,
            Message::Token { .. } => 1,
            Message::Child { .. } => 2,
            Message::TokenLocations { .. } => 3,
        }
    }

    fn tokens_in_all(&self) -> Option<usize> {
        Some(self.slots as usize)
    }

    #[inline]
    fn tokens(&self) -> usize {
        self.idle.len() + self.places.iter().filter(|place| matches!(place.phase, Phase::Holding(_))).count()
    }

    #[inline]
    fn tokens_in(message: &Message) -> usize {
        usize::from(matches!(message, Message::Token { .. }))
    }

    #[inline]
    fn is_coordinator(&self) -> bool {
        self.token_locations.is_some()
    }

    #[inline]
    fn carries_coordinator(message: &Message) -> bool {
        matches!(message, Message::TokenLocations { .. })
    }

    #[inline]
    fn parent(&self) -> Option<PeerId> {
        self.parent
    }
}

impl fmt::Display for FairK {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parent {
            Some(parent) => write!(f, "parent {parent}")?,
            None => write!(f, "parent nil")?,
        }
        if let Some(TokenLocations { tails, counter_number }) = self.token_locations.as_deref() {
            write!(f, "; token_locations {tails:?}, counter_number {counter_number}")?;
        }
        for token in &self.idle {
            write!(f, "; token {} idle", token.slot)?;
        }
        self.places.iter().try_for_each(|place| write!(f, "; {place}"))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ticket > Ticket::new(1) {
            write!(f, "#{} ", self.ticket)?;
        }
        match self.phase {
            Phase::Waiting => write!(f, "waiting")?,
            Phase::Withdrawn => write!(f, "withdrawn")?,
            Phase::Holding(token) => write!(f, "holds token {}", token.slot)?,
            Phase::Left => write!(f, "left")?,
        }
        match (self.in_child_queue, self.phase) {
            (false, _) => write!(f, ", in the privileged queue")?,
            (true, Phase::Waiting | Phase::Withdrawn) => write!(f, ", in a token queue")?,
            (true, _) => {}
        }
        if let Some(next) = self.next {
            write!(f, ", next {next}")?;
        }
        if let Some(child) = self.child {
            write!(f, ", child {child}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for TokenLocations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} counter {}", self.tails, self.counter_number)
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(r) => write!(f, "request({r})"),
            Self::Token { token, .. } => write!(f, "token {}", token.slot),
            Self::Child { slot, child, .. } => write!(f, "child({child}) of queue {slot}"),
            Self::TokenLocations { locations, .. } => {
                write!(f, "token_locations({:?}, {})", locations.tails, locations.counter_number)
            }
        }
    }
}
