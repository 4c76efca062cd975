//! The interface of every protocol: inputs in, effects out.
//!
//! ```text
//!   application          peer            network
//!       │ request(ticket) │                 │
//!       ├────────────────►│ cx.send(…)      │
//!       │                 ├────────────────►│
//!       │                 │      on_message │
//!       │ cx.grant(…)     │◄────────────────┤
//!       │◄────────────────┤                 │
//!       │ release(ticket) │                 │
//!       ├────────────────►│                 │
//! ```

use alloc::vec::Vec;
use core::fmt::Debug;

use peerlock_types::{Key, PeerId, Rng, Span, Ticket, Time};

use crate::registry::{RegistryEvent, RegistryRequest};

/// One peer's state of a mutual-exclusion protocol for one resource.
///
/// Plain verbs come down from the application, `on_*` comes up from the network, `cx.verb()` goes out.
pub trait Protocol: Sized {
    type Message: Clone + Debug;
    /// [`Never`] if there are none.
    type Timer: Clone + Debug + Ord;

    /// Called once per ticket.
    fn request(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>);

    /// Releases the slot of `ticket`, or withdraws its request.
    fn release(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>);

    fn on_message(&mut self, from: PeerId, message: Self::Message, cx: &mut Cx<'_, Self>);

    /// At the owner of the key: see [`Cx::route`].
    fn on_routed(&mut self, hop: Hop, message: Self::Message, cx: &mut Cx<'_, Self>) {
        self.on_message(hop.origin, message, cx);
    }

    /// Between the origin of a routed message and the owner. Returns the message to forward, or `None` to stop it here.
    fn on_forward(&mut self, _hop: Hop, message: Self::Message, _cx: &mut Cx<'_, Self>) -> Option<Self::Message> {
        Some(message)
    }

    /// The replica state under `key` belongs to another peer now, which starts without it.
    fn on_disowned(&mut self, _key: Key, _cx: &mut Cx<'_, Self>) {}

    fn on_timer(&mut self, _timer: Self::Timer, _cx: &mut Cx<'_, Self>) {}

    fn on_registry_event(&mut self, _event: RegistryEvent, _cx: &mut Cx<'_, Self>) {}

    /// Gives up what this peer has of an idle resource, unless another peer depends on it.
    fn forget(&mut self, _cx: &mut Cx<'_, Self>) {}

    /// Drops the requests of a peer that has probably failed for good. If it is alive, its clients may lose their
    /// positions; safety does not depend on it.
    fn on_peer_down(&mut self, _peer: PeerId, _cx: &mut Cx<'_, Self>) {}

    /// Reports whether the driver can reach `peer`. Waiters of an unreachable peer may be passed over; safety does not
    /// depend on it.
    fn on_reachable(&mut self, _peer: PeerId, _reachable: bool, _cx: &mut Cx<'_, Self>) {}

    /// This peer's replica state is lost, and its clients are not affected. `incarnation` is larger than in every
    /// earlier life of this replica, so fencing numbers can be derived from it.
    fn on_reset(&mut self, _incarnation: u64, _cx: &mut Cx<'_, Self>) {}
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Never {}

/// The position of a peer on the path of a routed message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hop {
    pub key: Key,
    pub origin: PeerId,
    /// This peer, if it is origin and owner.
    pub previous: PeerId,
    /// `None` at the owner.
    pub next: Option<PeerId>,
}

/// The right of one ticket to hold a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Grant {
    /// From 0.
    pub slot: u32,
    /// Strictly increasing per slot and unique within the resource.
    pub fencing: u64,
}

/// An action for the driver, in the order of emission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect<M, T> {
    Send {
        to: PeerId,
        message: M,
    },
    /// To the owner of `key`, which may be this peer.
    Route {
        key: Key,
        message: M,
    },
    /// A routed message, to its next hop.
    Forward {
        to: PeerId,
        key: Key,
        /// The peer that routed it.
        origin: PeerId,
        message: M,
    },
    Grant {
        ticket: Ticket,
        grant: Grant,
    },
    /// The grant has ended. The ticket is finished.
    Lost {
        ticket: Ticket,
    },
    /// The protocol does not queue the request. The ticket is finished.
    Refused {
        ticket: Ticket,
    },
    /// Replaces a pending timer of the same name.
    SetTimer {
        timer: T,
        after: Span,
    },
    CancelTimer {
        timer: T,
    },
    RegistryRequest(RegistryRequest),
    /// A message that is not valid in this state.
    Unexpected {
        why: &'static str,
    },
}

/// The context of a handler.
pub struct Cx<'a, P: Protocol> {
    me: PeerId,
    now: Time,
    rng: &'a mut Rng,
    effects: &'a mut Vec<Effect<P::Message, P::Timer>>,
}

impl<'a, P: Protocol> Cx<'a, P> {
    pub fn new(me: PeerId, now: Time, rng: &'a mut Rng, effects: &'a mut Vec<Effect<P::Message, P::Timer>>) -> Self {
        Self { me, now, rng, effects }
    }

    pub fn me(&self) -> PeerId {
        self.me
    }

    pub fn now(&self) -> Time {
        self.now
    }

    pub fn rng(&mut self) -> &mut Rng {
        self.rng
    }

    pub fn send(&mut self, to: PeerId, message: P::Message) {
        debug_assert!(to != self.me, "{to:?} sends itself {message:?}: that must be a call");
        self.effects.push(Effect::Send { to, message });
    }

    /// Each peer on the path may [intercept](Protocol::on_forward) the message.
    pub fn route(&mut self, key: Key, message: P::Message) {
        self.effects.push(Effect::Route { key, message });
    }

    pub fn grant(&mut self, ticket: Ticket, grant: Grant) {
        self.effects.push(Effect::Grant { ticket, grant });
    }

    pub fn lost(&mut self, ticket: Ticket) {
        self.effects.push(Effect::Lost { ticket });
    }

    pub fn refuse(&mut self, ticket: Ticket) {
        self.effects.push(Effect::Refused { ticket });
    }

    pub fn set_timer(&mut self, timer: P::Timer, after: Span) {
        self.effects.push(Effect::SetTimer { timer, after });
    }

    pub fn cancel_timer(&mut self, timer: P::Timer) {
        self.effects.push(Effect::CancelTimer { timer });
    }

    /// The registry answers with an [event](Protocol::on_registry_event) unless the session has ended.
    pub fn registry_request(&mut self, registry_request: RegistryRequest) {
        self.effects.push(Effect::RegistryRequest(registry_request));
    }

    pub fn unexpected(&mut self, why: &'static str) {
        self.effects.push(Effect::Unexpected { why });
    }
}

/// An input of a peer: calls the method of [`Protocol`] with the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input<M, T> {
    Request(Ticket),
    Release(Ticket),
    Message { from: PeerId, message: M },
    Routed { hop: Hop, message: M },
    Disowned(Key),
    Timer(T),
    RegistryEvent(RegistryEvent),
    Forget,
    PeerDown(PeerId),
    Reachable { peer: PeerId, reachable: bool },
    Reset { incarnation: u64 },
}

/// Passes one input to `peer`: the only call that a driver needs.
pub fn step<P: Protocol>(peer: &mut P, input: Input<P::Message, P::Timer>, cx: &mut Cx<'_, P>) {
    match input {
        Input::Request(ticket) => peer.request(ticket, cx),
        Input::Release(ticket) => peer.release(ticket, cx),
        Input::Message { from, message } => peer.on_message(from, message, cx),
        Input::Routed { hop, message } => match hop.next {
            None => peer.on_routed(hop, message, cx),
            Some(to) => {
                if let Some(message) = peer.on_forward(hop, message, cx) {
                    cx.effects.push(Effect::Forward { to, key: hop.key, origin: hop.origin, message });
                }
            }
        },
        Input::Disowned(key) => peer.on_disowned(key, cx),
        Input::Timer(timer) => peer.on_timer(timer, cx),
        Input::RegistryEvent(event) => peer.on_registry_event(event, cx),
        Input::Forget => peer.forget(cx),
        Input::PeerDown(gone) => peer.on_peer_down(gone, cx),
        Input::Reachable { peer: other, reachable } => peer.on_reachable(other, reachable, cx),
        Input::Reset { incarnation } => peer.on_reset(incarnation, cx),
    }
}
