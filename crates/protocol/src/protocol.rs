//! The one form of every protocol: events in, effects out.
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

/// One peer's part in a mutual-exclusion protocol, for one resource.
///
/// Plain verbs come down from the application, `on_*` comes up from the network, `cx.verb()` goes out.
pub trait Protocol: Sized {
    /// What peers say to each other.
    type Message: Clone + Debug;
    /// The names of the timers; at most one of each name is pending at a peer. [`Never`] if there are none.
    type Timer: Clone + Debug + Ord;

    /// A client wants in. Each ticket is asked for once.
    fn request(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>);

    /// A client leaves, or withdraws while it is still waiting: then it will not be granted any more.
    fn release(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>);

    /// A message arrived.
    fn on_message(&mut self, from: PeerId, message: Self::Message, cx: &mut Cx<'_, Self>);

    /// A message that was [routed](Cx::route) has come to the owner of its key: us.
    fn on_routed(&mut self, hop: Hop, message: Self::Message, cx: &mut Cx<'_, Self>) {
        self.on_message(hop.origin, message, cx);
    }

    /// A message to the owner of a key comes by. It goes on as it is returned; `None` if it shall stop here. Neither
    /// the peer that routes a message nor the owner is asked.
    fn on_forward(&mut self, _hop: Hop, message: Self::Message, _cx: &mut Cx<'_, Self>) -> Option<Self::Message> {
        Some(message)
    }

    /// We own `key` no longer. Whatever we kept under it, as a replica, counts no more: its new owner begins with an
    /// empty memory. Nobody is told of becoming an owner; the first message for a key tells.
    fn on_disowned(&mut self, _key: Key, _cx: &mut Cx<'_, Self>) {}

    /// A timer that was set and not cancelled has run out.
    fn on_timer(&mut self, _timer: Self::Timer, _cx: &mut Cx<'_, Self>) {}

    /// The register says something; only who has [asked](Cx::wish) something of it has to listen.
    fn on_registry_event(&mut self, _word: RegistryEvent, _cx: &mut Cx<'_, Self>) {}

    /// Nobody here has used it for a while. Whoever would be missed by nobody gives up what it has; who has something
    /// to do goes on as if nothing was said.
    fn forget(&mut self, _cx: &mut Cx<'_, Self>) {}

    /// `peer` is gone for good, or seems to be: whatever it waited for, it waits no more. Said of a living peer, this
    /// may cost its clients their places, and never lets anybody in.
    fn on_peer_down(&mut self, _peer: PeerId, _cx: &mut Cx<'_, Self>) {}

    /// The driver cannot reach `peer` for now, or can again. A protocol may pass over the clients that wait there,
    /// which keep their places: a hint, on which no safety depends.
    fn on_reachable(&mut self, _peer: PeerId, _reachable: bool, _cx: &mut Cx<'_, Self>) {}

    /// This peer is about to leave for good: whatever it has for the others, now or when it comes, goes to `replacement`, and
    /// nowhere if there is nobody else. May be said again with another. Its own clients are gone by then.
    fn retire(&mut self, _heir: Option<PeerId>, _cx: &mut Cx<'_, Self>) {}

    /// A message to `to` never went out, so that nobody has seen it, and `to` is gone for good or seems to be. Whatever
    /// must not get lost with it is ours again; what `to` should hear if it comes back after all is sent once more.
    fn on_undelivered(&mut self, _to: PeerId, _message: Self::Message, _cx: &mut Cx<'_, Self>) {}

    /// What this peer keeps for others, as a replica, is lost: another host has taken its place, with an empty memory.
    /// Its own clients are another matter; one that crashes is simply never heard of again.
    ///
    /// `incarnation` is larger than that of any earlier life of this replica. Best is a reading of the wall clock: a
    /// protocol may build on that to keep fencing numbers rising. Protocols without replicas have nothing to lose here.
    fn on_reset(&mut self, _incarnation: u64, _cx: &mut Cx<'_, Self>) {}
}

/// The timer of protocols that have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Never {}

/// One peer's place on the way of a routed message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hop {
    /// The message is for the owner of this key.
    pub key: Key,
    /// Who routed it.
    pub origin: PeerId,
    /// Who handed it to us: ourselves if we are the origin and the owner in one.
    pub previous: PeerId,
    /// Whom we would hand it to; `None` if we are the owner.
    pub next: Option<PeerId>,
}

/// The right to be inside, given to one ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Grant {
    /// Which of the resource's slots, counted from 0.
    pub slot: u32,
    /// The fencing number: strictly increasing per slot and unique within the resource.
    pub fencing: u64,
}

/// What a peer wants done. The driver carries effects out in the order they were asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect<M, T> {
    /// Send `message` to another peer. Never to oneself: what a peer tells itself is a call.
    Send {
        /// Who shall get it.
        to: PeerId,
        /// For its [`Protocol::on_message`].
        message: M,
    },
    /// Send `message` from hop to hop to the owner of `key`, which may be the peer itself.
    Route {
        /// Whose owner shall get it.
        key: Key,
        /// For the owner's [`Protocol::on_routed`], and each hop's [`Protocol::on_forward`] before.
        message: M,
    },
    /// Hand a message that came by to the next hop.
    Forward {
        /// Who shall get it.
        to: PeerId,
        /// Whose owner it is for.
        key: Key,
        /// Who routed it.
        origin: PeerId,
        /// As it came, or as this hop has changed it.
        message: M,
    },
    /// The client with this ticket is inside from now on.
    Grant {
        /// Whose turn it is.
        ticket: Ticket,
        /// Which slot, and under which fencing number.
        grant: Grant,
    },
    /// The client with this ticket was inside and is not any more: its lease has ended and could not be renewed. The
    /// ticket is finished.
    Lost {
        /// Whose grant has ended.
        ticket: Ticket,
    },
    /// The client with this ticket will not be let in: others were faster, and the protocol does not make it wait. The
    /// ticket is finished.
    Refused {
        /// The client that is not let in.
        ticket: Ticket,
    },
    /// Wake the peer with `timer` after `after`; a pending timer of the same name is replaced.
    SetTimer {
        /// At most one of this name is pending.
        timer: T,
        /// How long from now.
        after: Span,
    },
    /// Forget the timer if it is pending.
    CancelTimer {
        /// As it was set.
        timer: T,
    },
    /// Ask something of the register.
    RegistryRequest(RegistryRequest),
    /// A message made no sense here and was dropped, or kept in the safest way there is. Drivers count and trace it.
    Unexpected {
        /// What was strange, in words.
        why: &'static str,
    },
}

/// What a handler may know and do: the time, chance, and a list of effects to add to.
pub struct Cx<'a, P: Protocol> {
    me: PeerId,
    now: Time,
    rng: &'a mut Rng,
    effects: &'a mut Vec<Effect<P::Message, P::Timer>>,
}

impl<'a, P: Protocol> Cx<'a, P> {
    /// A context for one step of peer `me` at `now`; effects are appended to `effects`.
    pub fn new(me: PeerId, now: Time, rng: &'a mut Rng, effects: &'a mut Vec<Effect<P::Message, P::Timer>>) -> Self {
        Self { me, now, rng, effects }
    }

    /// The peer whose step this is.
    pub fn me(&self) -> PeerId {
        self.me
    }

    /// The time of this step.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Random numbers of this run.
    pub fn rng(&mut self) -> &mut Rng {
        self.rng
    }

    /// Sends `message` to another peer.
    pub fn send(&mut self, to: PeerId, message: P::Message) {
        debug_assert!(to != self.me, "{to:?} sends itself {message:?}: what a peer tells itself is a call");
        self.effects.push(Effect::Send { to, message });
    }

    /// Sends `message` to the owner of `key`, by way of the overlay: each peer on the way is
    /// [asked](Protocol::on_forward) and may keep it.
    pub fn route(&mut self, key: Key, message: P::Message) {
        self.effects.push(Effect::Route { key, message });
    }

    /// Lets the client with `ticket` in.
    pub fn grant(&mut self, ticket: Ticket, grant: Grant) {
        self.effects.push(Effect::Grant { ticket, grant });
    }

    /// Tells the client with `ticket` that it is inside no longer.
    pub fn lost(&mut self, ticket: Ticket) {
        self.effects.push(Effect::Lost { ticket });
    }

    /// Sends the client with `ticket` away.
    pub fn refuse(&mut self, ticket: Ticket) {
        self.effects.push(Effect::Refused { ticket });
    }

    /// Asks for [`Protocol::on_timer`] after `after`, instead of any earlier wish for the same `timer`.
    pub fn set_timer(&mut self, timer: P::Timer, after: Span) {
        self.effects.push(Effect::SetTimer { timer, after });
    }

    /// Takes the wish for `timer` back.
    pub fn cancel_timer(&mut self, timer: P::Timer) {
        self.effects.push(Effect::CancelTimer { timer });
    }

    /// Asks something of the register, which answers with a [word](Protocol::on_word), or never.
    pub fn registry_request(&mut self, registry_request: RegistryRequest) {
        self.effects.push(Effect::RegistryRequest(registry_request));
    }

    /// Reports a message that made no sense here.
    pub fn unexpected(&mut self, why: &'static str) {
        self.effects.push(Effect::Unexpected { why });
    }
}

/// Everything that can happen to a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input<M, T> {
    /// A client asks.
    Request(Ticket),
    /// A client leaves or withdraws.
    Release(Ticket),
    /// A message arrived.
    Message {
        /// The peer that had it in an [`Effect::Send`].
        from: PeerId,
        /// The message as it was sent.
        message: M,
    },
    /// A routed message is here.
    Routed {
        /// Where on its way it is: at its end if there is no next hop.
        hop: Hop,
        /// The message for the protocol at the owner of the key.
        message: M,
    },
    /// The peer owns this key no longer.
    Disowned(Key),
    /// A timer ran out.
    Timer(T),
    /// The register says something.
    RegistryEvent(RegistryEvent),
    /// Nobody here has used it for a while.
    Forget,
    /// Another peer is gone.
    PeerDown(PeerId),
    /// Another peer cannot be reached for now, or can again.
    Reachable {
        /// The other peer.
        peer: PeerId,
        /// Whether it can be reached.
        reachable: bool,
    },
    /// A message that never went out comes back.
    Undelivered {
        /// Who should have got it.
        to: PeerId,
        /// The message as it was sent.
        message: M,
    },
    /// The peer leaves for good.
    Retire {
        /// Who gets what it has.
        replacement: Option<PeerId>,
    },
    /// The peer, as a replica, has lost its memory. Timers that it had set for that are its own to cancel.
    Reset {
        /// The number of its new life.
        incarnation: u64,
    },
}

/// Hands one input to `peer`. Drivers need no other call.
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
