//! The ideal: one queue for all slots, kept by a moderator with instant global knowledge. A bound, not a protocol.
//!
//! A releasing client sends the token to the oldest request in the world: one message, no longer idle time while a
//! client waits, and strict order. The difference to a real protocol is the cost of distance.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;

use peerlock_protocols::token::{Claim, Token};
use peerlock_protocols::{Cx, Observe, Protocol};
use peerlock_types::{PeerId, Ticket};
use serde::{Deserialize, Serialize};

use crate::latency::Latency;

#[derive(Debug)]
pub struct Ideal {
    me: PeerId,
    moderator: Rc<RefCell<Moderator>>,
    inside: Vec<(Ticket, Token)>,
    /// Idle tokens on their way to clients of this peer.
    coming: Vec<(Ticket, Token)>,
}

#[derive(Debug)]
struct Moderator {
    slots: u32,
    latency: Latency,
    waiting: VecDeque<Claim>,
    free: VecDeque<(PeerId, Token)>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Handover {
    to: Ticket,
    token: Token,
}

impl fmt::Display for Handover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "token {}", self.token.slot)
    }
}

impl Ideal {
    /// An idle token is fetched without a message.
    pub fn peers(peers: usize, slots: u32, latency: &Latency) -> Vec<Self> {
        let free = (0..slots).map(|slot| (PeerId::new(u64::from(slot) % peers as u64), Token::new(slot))).collect();
        let moderator = Moderator { slots, latency: latency.clone(), waiting: VecDeque::new(), free };
        let moderator = Rc::new(RefCell::new(moderator));
        let peer = |number| Self {
            me: PeerId::new(number as u64),
            moderator: Rc::clone(&moderator),
            inside: Vec::new(),
            coming: Vec::new(),
        };
        (0..peers).map(peer).collect()
    }

    fn enter(&mut self, ticket: Ticket, mut token: Token, cx: &mut Cx<'_, Self>) {
        cx.grant(ticket, token.grant(self.moderator.borrow().slots));
        self.inside.push((ticket, token));
    }
}

impl Protocol for Ideal {
    type Message = Handover;
    type Timer = Ticket;

    fn request(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        let mut moderator = self.moderator.borrow_mut();
        let here = moderator.free.iter().position(|&(at, _)| at == self.me).unwrap_or(0);
        match moderator.free.remove(here) {
            Some((at, token)) if at == self.me => {
                drop(moderator);
                self.enter(ticket, token, cx);
            }
            Some((at, token)) => {
                let delay = moderator.latency.sample(at, self.me, cx.rng());
                cx.set_timer(ticket, delay);
                self.coming.push((ticket, token));
            }
            None => moderator.waiting.push_back(Claim { peer: self.me, ticket }),
        }
    }

    fn release(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        let mut moderator = self.moderator.borrow_mut();
        let Some(at) = self.inside.iter().position(|&(inside, _)| inside == ticket) else {
            return moderator.waiting.retain(|claim| claim.ticket != ticket || claim.peer != self.me);
        };
        let (_, token) = self.inside.swap_remove(at);
        match moderator.waiting.pop_front() {
            None => moderator.free.push_back((self.me, token)),
            Some(next) if next.peer == self.me => {
                drop(moderator);
                self.enter(next.ticket, token, cx);
            }
            Some(next) => cx.send(next.peer, Handover { to: next.ticket, token }),
        }
    }

    fn on_message(&mut self, _from: PeerId, message: Handover, cx: &mut Cx<'_, Self>) {
        self.enter(message.to, message.token, cx);
    }

    fn on_timer(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        let at = self.coming.iter().position(|&(coming, _)| coming == ticket);
        let (ticket, token) = self.coming.swap_remove(at.expect("each timer has a token on its way"));
        self.enter(ticket, token, cx);
    }
}

impl Observe for Ideal {
    const KINDS: &'static [&'static str] = &["token"];

    fn kind(_message: &Handover) -> usize {
        0
    }

    fn trees(&self) -> usize {
        0
    }
}
