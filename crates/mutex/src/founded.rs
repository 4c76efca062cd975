//! A protocol that begins when its charter is known: how many slots there are, and where the tokens are at first.
//!
//! Protocols with tokens are told beforehand who has them. Among peers that come and go nobody is there beforehand: the
//! first who asks *founds* the resource, and all others must learn of that and not found it again. That is decided
//! elsewhere, once; here a peer waits for the decision, with its clients and with what others said too early:
//!
//! ```text
//!   driver                      Founded<P>
//!   │ request(ticket)            │
//!   ├───────────────────────────►│ waits
//!   │ Known(3 slots, home A)     │
//!   ├───────────────────────────►│ P begins: A is its root and has all tokens; the request goes there
//! ```

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::mem::take;

use peerlock_base::{Key, PeerId, Ticket};

use crate::fair_k_late::{self, FairKLate};
use crate::token::Layout;
use crate::{Cx, Effect, Hop, Input, Protocol, step};

/// What is decided when a resource is founded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Charter {
    /// How many may be inside at a time.
    pub slots: u32,
    /// The peer that has all tokens at first.
    pub home: PeerId,
    /// All fencing numbers are above this. A resource that everybody has forgotten can be founded again: if this is the
    /// time, its numbers go on from where they were.
    pub above: u64,
}

/// A protocol that can begin from a charter.
pub trait Found: Protocol {
    /// The part of peer `me` before the first request.
    fn found(me: PeerId, charter: Charter) -> Self;
}

impl Found for FairKLate {
    fn found(me: PeerId, Charter { slots, home, above }: Charter) -> Self {
        let layout = Layout { root: home, tokens: vec![home; slots as usize] };
        Self::new(me, &layout, fair_k_late::Config::default()).numbered_above(above)
    }
}

/// What peers say to each other.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Message<M> {
    /// It is decided. From whoever knows; never answered.
    Known(Charter),
    /// Of the protocol itself.
    Inner(M),
}

/// So many messages of the protocol are kept for when we know the charter: word of it can be slower than they are, but
/// only for a moment.
const EARLY: usize = 1000;

/// One peer's part in a protocol that begins when its charter is known.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Founded<P: Protocol> {
    founded: Option<(Charter, P)>,
    /// Our clients that asked before we knew the charter, in order.
    waiting: Vec<Ticket>,
    /// Messages that came before.
    early: Vec<(PeerId, P::Message)>,
}

impl<P: Protocol> Default for Founded<P> {
    fn default() -> Self {
        Self { founded: None, waiting: Vec::new(), early: Vec::new() }
    }
}

impl<P: Found> Founded<P> {
    /// The charter, once it is known here.
    pub fn charter(&self) -> Option<Charter> {
        self.founded.as_ref().map(|founded| founded.0)
    }

    /// The protocol, once the charter is known here.
    pub fn protocol(&self) -> Option<&P> {
        self.founded.as_ref().map(|founded| &founded.1)
    }

    fn on_known(&mut self, charter: Charter, cx: &mut Cx<'_, Self>) {
        match self.charter() {
            Some(known) if known == charter => return,
            Some(_) => return cx.strange("a resource was founded twice"),
            None => self.founded = Some((charter, P::found(cx.me(), charter))),
        }
        for (from, message) in take(&mut self.early) {
            self.inner(Input::Message { from, message }, cx);
        }
        for ticket in take(&mut self.waiting) {
            self.inner(Input::Request(ticket), cx);
        }
    }

    /// Hands something to the protocol, if it has begun.
    fn inner(&mut self, input: Input<P::Message, P::Timer>, cx: &mut Cx<'_, Self>) {
        let Some((_, protocol)) = &mut self.founded else { return };
        let (me, now, mut effects) = (cx.me(), cx.now(), Vec::new());
        step(protocol, input, &mut Cx::new(me, now, cx.rng(), &mut effects));
        for effect in effects {
            match effect {
                Effect::Send { to, message } => cx.send(to, Message::Inner(message)),
                Effect::Route { key, message } => cx.route(key, Message::Inner(message)),
                Effect::Grant { ticket, grant } => cx.grant(ticket, grant),
                Effect::Lost { ticket } => cx.lost(ticket),
                Effect::Refused { ticket } => cx.refuse(ticket),
                Effect::SetTimer { timer, after } => cx.set_timer(timer, after),
                Effect::CancelTimer { timer } => cx.cancel_timer(timer),
                Effect::Wish(wish) => cx.wish(wish),
                Effect::Strange { why } => cx.strange(why),
                Effect::Forward { .. } => cx.strange("a message to be forwarded, which never came by"),
            }
        }
    }
}

impl<P: Found> Protocol for Founded<P> {
    type Message = Message<P::Message>;
    type Timer = P::Timer;

    fn request(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        match self.founded {
            Some(_) => self.inner(Input::Request(ticket), cx),
            None => self.waiting.push(ticket),
        }
    }

    fn release(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        self.waiting.retain(|&waiting| waiting != ticket);
        self.inner(Input::Release(ticket), cx);
    }

    fn on_message(&mut self, from: PeerId, message: Self::Message, cx: &mut Cx<'_, Self>) {
        match message {
            Message::Known(charter) => self.on_known(charter, cx),
            Message::Inner(message) if self.founded.is_some() => self.inner(Input::Message { from, message }, cx),
            Message::Inner(_) if self.early.len() >= EARLY => {
                cx.strange("more messages of a resource than fit before we know of it");
            }
            Message::Inner(message) => self.early.push((from, message)),
        }
    }

    fn on_routed(&mut self, hop: Hop, message: Self::Message, cx: &mut Cx<'_, Self>) {
        match message {
            Message::Inner(message) => self.inner(Input::Routed { hop, message }, cx),
            Message::Known(charter) => self.on_known(charter, cx),
        }
    }

    fn on_disowned(&mut self, key: Key, cx: &mut Cx<'_, Self>) {
        self.inner(Input::Disowned(key), cx);
    }

    fn on_timer(&mut self, timer: P::Timer, cx: &mut Cx<'_, Self>) {
        self.inner(Input::Timer(timer), cx);
    }

    fn on_peer_down(&mut self, peer: PeerId, cx: &mut Cx<'_, Self>) {
        self.inner(Input::PeerDown(peer), cx);
    }

    fn retire(&mut self, heir: Option<PeerId>, cx: &mut Cx<'_, Self>) {
        self.inner(Input::Retire { heir }, cx);
    }

    fn on_reset(&mut self, incarnation: u64, cx: &mut Cx<'_, Self>) {
        self.inner(Input::Reset { incarnation }, cx);
    }
}

impl<M: fmt::Debug> fmt::Debug for Message<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inner(message) => message.fmt(f),
            Self::Known(Charter { slots, home, .. }) => write!(f, "known(home {home}, {slots} slots)"),
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use peerlock_base::{Rng, Time};

    use super::*;
    use crate::fair_k_late::News;
    use crate::token::Claim;
    use crate::{Grant, fair_k_late};

    const ME: PeerId = PeerId::new(1);
    const HOME: PeerId = PeerId::new(2);
    const TICKET: Ticket = Ticket::new(1);

    type Peer = Founded<FairKLate>;
    type Effects = Vec<Effect<Message<fair_k_late::Message>, crate::Never>>;

    fn hear(peer: &mut Peer, input: Input<Message<fair_k_late::Message>, crate::Never>) -> Effects {
        let (mut rng, mut effects) = (Rng::new(1), Vec::new());
        step(peer, input, &mut Cx::new(ME, Time::ZERO, &mut rng, &mut effects));
        effects
    }

    fn known(home: PeerId) -> Input<Message<fair_k_late::Message>, crate::Never> {
        Input::Message { from: HOME, message: Message::Known(Charter { slots: 3, home, above: 100 }) }
    }

    #[test]
    fn who_asks_too_early_waits_for_the_charter() {
        let mut peer = Peer::default();
        assert_eq!(hear(&mut peer, Input::Request(TICKET)), []);
        let claim = Claim { peer: ME, ticket: TICKET };
        let message = Message::Inner(fair_k_late::Message::Tell { epoch: 0, news: News::Request(claim) });
        assert_eq!(hear(&mut peer, known(HOME)), [Effect::Send { to: HOME, message }]);
        assert_eq!(peer.charter().map(|charter| charter.slots), Some(3));
    }

    #[test]
    fn who_has_withdrawn_by_then_does_not_ask() {
        let mut peer = Peer::default();
        hear(&mut peer, Input::Request(TICKET));
        hear(&mut peer, Input::Release(TICKET));
        assert_eq!(hear(&mut peer, known(HOME)), []);
    }

    #[test]
    fn what_others_said_too_early_is_heard_then() {
        let mut home = Peer::default();
        let claim = Claim { peer: HOME, ticket: TICKET };
        let message = Message::Inner(fair_k_late::Message::Tell { epoch: 0, news: News::Request(claim) });
        assert_eq!(hear(&mut home, Input::Message { from: HOME, message: message.clone() }), []);
        let said = hear(&mut home, known(ME));
        let is_token = |effect: &Effect<_, _>| {
            matches!(effect, Effect::Send { to: HOME, message: Message::Inner(fair_k_late::Message::Token { .. }) })
        };
        assert!(said.iter().any(is_token), "we are home, and have all tokens: {said:?}");

        let mut flooded = Peer::default();
        for _ in 0..EARLY {
            hear(&mut flooded, Input::Message { from: HOME, message: message.clone() });
        }
        let said = hear(&mut flooded, Input::Message { from: HOME, message });
        assert!(matches!(said[..], [Effect::Strange { .. }]), "{said:?}");
    }

    #[test]
    fn fencing_numbers_begin_where_the_charter_says() {
        let mut home = Peer::default();
        hear(&mut home, known(ME));
        let numbers: Vec<u64> = home.protocol().unwrap().held().map(|(token, _)| token.fencing).collect();
        assert_eq!(numbers, [101, 102, 103]);
    }

    #[test]
    fn a_charter_is_for_good() {
        let mut home = Peer::default();
        hear(&mut home, known(ME));
        assert_eq!(hear(&mut home, known(ME)), []);
        assert!(matches!(hear(&mut home, known(HOME))[..], [Effect::Strange { .. }]));
        let grant = Grant { slot: 0, fencing: 101 };
        assert_eq!(hear(&mut home, Input::Request(TICKET)), [Effect::Grant { ticket: TICKET, grant }]);
    }
}
