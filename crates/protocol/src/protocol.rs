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
    /// The messages between peers.
    type Message: Clone + Debug;
    /// The names of the timers; [`Never`] if there are none.
    type Timer: Clone + Debug + Ord;

    /// Requests a slot for `ticket`. Called once per ticket.
    fn request(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>);

    /// Releases the slot of `ticket`, or withdraws its request.
    fn release(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>);

    /// Handles a message from another peer.
    fn on_message(&mut self, from: PeerId, message: Self::Message, cx: &mut Cx<'_, Self>);

    /// Handles a [routed](Cx::route) message at the owner of its key.
    fn on_routed(&mut self, hop: Hop, message: Self::Message, cx: &mut Cx<'_, Self>) {
        self.on_message(hop.origin, message, cx);
    }

    /// Handles a routed message between its origin and the owner. The returned message is forwarded; `None` stops it
    /// here.
    fn on_forward(&mut self, _hop: Hop, message: Self::Message, _cx: &mut Cx<'_, Self>) -> Option<Self::Message> {
        Some(message)
    }

    /// Discards the replica state under `key`, which another peer owns now. The new owner starts with an empty memory.
    fn on_disowned(&mut self, _key: Key, _cx: &mut Cx<'_, Self>) {}

    /// Handles the expiry of a timer.
    fn on_timer(&mut self, _timer: Self::Timer, _cx: &mut Cx<'_, Self>) {}

    /// Handles an event of the registry.
    fn on_registry_event(&mut self, _word: RegistryEvent, _cx: &mut Cx<'_, Self>) {}

    /// Gives up what this peer has of an idle resource, unless another peer depends on it.
    fn forget(&mut self, _cx: &mut Cx<'_, Self>) {}

    /// Handles the suspected permanent failure of `peer`: its requests are dropped. If it is alive, its clients may
    /// lose their positions, but safety is not affected.
    fn on_peer_down(&mut self, _peer: PeerId, _cx: &mut Cx<'_, Self>) {}

    /// Reports whether the driver can reach `peer`. A protocol may pass over waiters of an unreachable peer, which keep
    /// their positions. No safety depends on it.
    fn on_reachable(&mut self, _peer: PeerId, _reachable: bool, _cx: &mut Cx<'_, Self>) {}

    /// Prepares to leave the system: sends everything that this peer stores for others, now or later, to `replacement`,
    /// or drops it. May be called again with another replacement. The peer has no clients.
    fn retire(&mut self, _replacement: Option<PeerId>, _cx: &mut Cx<'_, Self>) {}

    /// Handles a message that never left this peer, because `to` is suspected to have failed. State in it that must not
    /// be lost is this peer's again. A message that `to` needs in case it returns is sent once more.
    fn on_undelivered(&mut self, _to: PeerId, _message: Self::Message, _cx: &mut Cx<'_, Self>) {}

    /// Handles the loss of this peer's replica state, such as after its replacement by a host with an empty memory.
    /// Clients are not affected.
    ///
    /// `incarnation` is larger than in every earlier life of this replica: protocols may derive fencing numbers from
    /// it.
    fn on_reset(&mut self, _incarnation: u64, _cx: &mut Cx<'_, Self>) {}
}

/// The timer of protocols that have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Never {}

/// The position of a peer on the path of a routed message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hop {
    /// The key whose owner receives the message.
    pub key: Key,
    /// The peer that routed the message.
    pub origin: PeerId,
    /// The previous peer on the path; this peer if it is origin and owner.
    pub previous: PeerId,
    /// The next peer on the path; `None` at the owner.
    pub next: Option<PeerId>,
}

/// The right of one ticket to hold a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Grant {
    /// The slot, counted from 0.
    pub slot: u32,
    /// The fencing number: strictly increasing per slot and unique within the resource.
    pub fencing: u64,
}

/// An action for the driver, in the order of emission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect<M, T> {
    /// Sends `message` to another peer.
    Send {
        /// The receiver.
        to: PeerId,
        /// The message.
        message: M,
    },
    /// Routes `message` to the owner of `key`, which may be this peer.
    Route {
        /// The key.
        key: Key,
        /// The message.
        message: M,
    },
    /// Forwards a routed message to the next hop.
    Forward {
        /// The next hop.
        to: PeerId,
        /// The key.
        key: Key,
        /// The peer that routed it.
        origin: PeerId,
        /// The message.
        message: M,
    },
    /// Grants a slot to a client.
    Grant {
        /// The client.
        ticket: Ticket,
        /// The grant.
        grant: Grant,
    },
    /// Notifies a holder that its grant has ended. The ticket is finished.
    Lost {
        /// The holder.
        ticket: Ticket,
    },
    /// Rejects a request that the protocol does not queue. The ticket is finished.
    Refused {
        /// The client.
        ticket: Ticket,
    },
    /// Sets a timer, replacing a pending one of the same name.
    SetTimer {
        /// The timer.
        timer: T,
        /// The delay from the time of this step.
        after: Span,
    },
    /// Cancels a timer if it is pending.
    CancelTimer {
        /// The timer.
        timer: T,
    },
    /// Sends a request to the registry.
    RegistryRequest(RegistryRequest),
    /// Reports a message that is not valid in this state.
    Unexpected {
        /// The reason.
        why: &'static str,
    },
}

/// The context of a handler: time, randomness, and a list of effects.
pub struct Cx<'a, P: Protocol> {
    me: PeerId,
    now: Time,
    rng: &'a mut Rng,
    effects: &'a mut Vec<Effect<P::Message, P::Timer>>,
}

impl<'a, P: Protocol> Cx<'a, P> {
    /// Creates the context for one step of peer `me` at `now`.
    pub fn new(me: PeerId, now: Time, rng: &'a mut Rng, effects: &'a mut Vec<Effect<P::Message, P::Timer>>) -> Self {
        Self { me, now, rng, effects }
    }

    /// Returns the peer whose step this is.
    pub fn me(&self) -> PeerId {
        self.me
    }

    /// Returns the time of this step.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Returns the random numbers of this run.
    pub fn rng(&mut self) -> &mut Rng {
        self.rng
    }

    /// Sends `message` to another peer.
    pub fn send(&mut self, to: PeerId, message: P::Message) {
        debug_assert!(to != self.me, "{to:?} sends itself {message:?}: that must be a call");
        self.effects.push(Effect::Send { to, message });
    }

    /// Routes `message` to the owner of `key`. Each peer on the path may [intercept](Protocol::on_forward) it.
    pub fn route(&mut self, key: Key, message: P::Message) {
        self.effects.push(Effect::Route { key, message });
    }

    /// Grants a slot to `ticket`.
    pub fn grant(&mut self, ticket: Ticket, grant: Grant) {
        self.effects.push(Effect::Grant { ticket, grant });
    }

    /// Notifies `ticket` that it has lost its slot.
    pub fn lost(&mut self, ticket: Ticket) {
        self.effects.push(Effect::Lost { ticket });
    }

    /// Rejects the request of `ticket`.
    pub fn refuse(&mut self, ticket: Ticket) {
        self.effects.push(Effect::Refused { ticket });
    }

    /// Sets `timer`, replacing a pending one of the same name.
    pub fn set_timer(&mut self, timer: P::Timer, after: Span) {
        self.effects.push(Effect::SetTimer { timer, after });
    }

    /// Cancels `timer`.
    pub fn cancel_timer(&mut self, timer: P::Timer) {
        self.effects.push(Effect::CancelTimer { timer });
    }

    /// Sends a request to the registry, which answers with an [event](Protocol::on_registry_event) unless the session
    /// has ended.
    pub fn registry_request(&mut self, registry_request: RegistryRequest) {
        self.effects.push(Effect::RegistryRequest(registry_request));
    }

    /// Reports a message that is not valid in this state.
    pub fn unexpected(&mut self, why: &'static str) {
        self.effects.push(Effect::Unexpected { why });
    }
}

/// An input of a peer: calls the method of [`Protocol`] with the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input<M, T> {
    /// See [`Protocol::request`].
    Request(Ticket),
    /// See [`Protocol::release`].
    Release(Ticket),
    /// See [`Protocol::on_message`].
    Message {
        /// The sender.
        from: PeerId,
        /// The message.
        message: M,
    },
    /// A routed message, at the owner if there is no next hop.
    Routed {
        /// The position on its path.
        hop: Hop,
        /// The message.
        message: M,
    },
    /// See [`Protocol::on_disowned`].
    Disowned(Key),
    /// See [`Protocol::on_timer`].
    Timer(T),
    /// See [`Protocol::on_registry_event`].
    RegistryEvent(RegistryEvent),
    /// See [`Protocol::forget`].
    Forget,
    /// See [`Protocol::on_peer_down`].
    PeerDown(PeerId),
    /// See [`Protocol::on_reachable`].
    Reachable {
        /// The other peer.
        peer: PeerId,
        /// Whether it can be reached.
        reachable: bool,
    },
    /// See [`Protocol::on_undelivered`].
    Undelivered {
        /// The intended receiver.
        to: PeerId,
        /// The message.
        message: M,
    },
    /// See [`Protocol::retire`].
    Retire {
        /// The new owner of this peer's state.
        replacement: Option<PeerId>,
    },
    /// See [`Protocol::on_reset`]. Timers set before it are still pending.
    Reset {
        /// The number of the replica's new life.
        incarnation: u64,
    },
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
        Input::Undelivered { to, message } => peer.on_undelivered(to, message, cx),
        Input::Retire { replacement } => peer.retire(replacement, cx),
        Input::Reset { incarnation } => peer.on_reset(incarnation, cx),
    }
}
