//! Runs a protocol on routes that never change. The result is a [`Protocol`] itself, and small enough to be explored.
//!
//! ```text
//!   0 ──► 3 ──► 4    Routes::default().with(key, &[0, 3, 4]).with(key, &[1, 3, 4])
//!   1 ──► ┘          peer 4 owns the key; messages of 0 and 1 to the key pass through peer 3
//! ```

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::hash::Hasher;
use core::mem::take;

use peerlock_protocols::{Cx, Effect, Hop, Input, Observe, Protocol, step};
use peerlock_types::{Key, PeerId, Ticket};

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Routes {
    next: BTreeMap<(Key, PeerId), PeerId>,
}

impl Routes {
    /// Adds a route along these peers, the last of which owns `key`.
    ///
    /// # Panics
    ///
    /// If a peer has two next hops.
    pub fn with(mut self, key: Key, way: &[u64]) -> Self {
        for pair in way.windows(2) {
            let (here, there) = (PeerId::new(pair[0]), PeerId::new(pair[1]));
            let before = self.next.insert((key, here), there);
            assert!(before.is_none_or(|before| before == there), "two ways from {here:?} to {key}");
        }
        self
    }

    fn next(&self, key: Key, here: PeerId) -> Option<PeerId> {
        self.next.get(&(key, here)).copied()
    }
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wire<M> {
    /// The destination and the origin; `None` for a direct message.
    pub route: Option<(Key, PeerId)>,
    pub message: M,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OnRoutes<P> {
    protocol: P,
    routes: Arc<Routes>,
}

impl<P: Protocol> OnRoutes<P> {
    pub fn new(protocol: P, routes: Arc<Routes>) -> Self {
        Self { protocol, routes }
    }

    pub fn protocol(&self) -> &P {
        &self.protocol
    }

    fn run(&mut self, input: Input<P::Message, P::Timer>, cx: &mut Cx<'_, Self>) {
        let me = cx.me();
        run(&mut self.protocol, VecDeque::from([input]), |key| self.routes.next(key, me), cx);
    }
}

/// Sends routed messages to the `next` hop, or handles them here.
pub fn run<P: Protocol, Q: Protocol<Message = Wire<P::Message>, Timer = P::Timer>>(
    protocol: &mut P,
    mut inputs: VecDeque<Input<P::Message, P::Timer>>,
    next: impl Fn(Key) -> Option<PeerId>,
    cx: &mut Cx<'_, Q>,
) {
    let (me, now, mut effects) = (cx.me(), cx.now(), Vec::new());
    while let Some(input) = inputs.pop_front() {
        step(protocol, input, &mut Cx::new(me, now, cx.rng(), &mut effects));
        for effect in take(&mut effects) {
            match effect {
                Effect::Send { to, message } => cx.send(to, Wire { route: None, message }),
                Effect::Route { key, message } => match next(key) {
                    Some(next) => cx.send(next, Wire { route: Some((key, me)), message }),
                    None => {
                        let hop = Hop { key, origin: me, previous: me, next: None };
                        inputs.push_back(Input::Routed { hop, message });
                    }
                },
                Effect::Forward { to, key, origin, message } => {
                    cx.send(to, Wire { route: Some((key, origin)), message });
                }
                Effect::Grant { ticket, grant } => cx.grant(ticket, grant),
                Effect::Lost { ticket } => cx.lost(ticket),
                Effect::Refused { ticket } => cx.refuse(ticket),
                Effect::SetTimer { timer, after } => cx.set_timer(timer, after),
                Effect::CancelTimer { timer } => cx.cancel_timer(timer),
                Effect::RegistryRequest(registry_request) => cx.registry_request(registry_request),
                Effect::Unexpected { why } => cx.unexpected(why),
            }
        }
    }
}

impl<M> Wire<M> {
    /// Returns the input at the receiver, given the `next` hop from there.
    pub fn received<T>(self, from: PeerId, next: impl Fn(Key) -> Option<PeerId>) -> Input<M, T> {
        let Self { route, message } = self;
        match route {
            None => Input::Message { from, message },
            Some((key, origin)) => Input::Routed { hop: Hop { key, origin, previous: from, next: next(key) }, message },
        }
    }
}

impl<P: Protocol> Protocol for OnRoutes<P> {
    type Message = Wire<P::Message>;
    type Timer = P::Timer;

    fn request(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        self.run(Input::Request(ticket), cx);
    }

    fn release(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        self.run(Input::Release(ticket), cx);
    }

    fn on_message(&mut self, from: PeerId, wire: Self::Message, cx: &mut Cx<'_, Self>) {
        let me = cx.me();
        self.run(wire.received(from, |key| self.routes.next(key, me)), cx);
    }

    fn on_timer(&mut self, timer: P::Timer, cx: &mut Cx<'_, Self>) {
        self.run(Input::Timer(timer), cx);
    }

    fn on_reset(&mut self, incarnation: u64, cx: &mut Cx<'_, Self>) {
        self.run(Input::Reset { incarnation }, cx);
    }
}

impl<P: Observe> Observe for OnRoutes<P> {
    const KINDS: &'static [&'static str] = P::KINDS;
    const HAS_COORDINATOR: bool = P::HAS_COORDINATOR;
    const NEVER_IDLE: bool = P::NEVER_IDLE;

    fn kind(message: &Self::Message) -> usize {
        P::kind(&message.message)
    }

    fn tokens_in_all(&self) -> Option<usize> {
        self.protocol.tokens_in_all()
    }

    fn tokens(&self) -> usize {
        self.protocol.tokens()
    }

    fn tokens_in(message: &Self::Message) -> usize {
        P::tokens_in(&message.message)
    }

    fn is_coordinator(&self) -> bool {
        self.protocol.is_coordinator()
    }

    fn carries_coordinator(message: &Self::Message) -> bool {
        P::carries_coordinator(&message.message)
    }

    fn digest(&self, replica: Option<u32>, state: &mut dyn Hasher) {
        self.protocol.digest(replica, state);
    }
}

impl<P: fmt::Display> fmt::Display for OnRoutes<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.protocol.fmt(f)
    }
}

impl<M: fmt::Display> fmt::Display for Wire<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.message.fmt(f)?;
        if self.route.is_some() { f.write_str("…") } else { Ok(()) }
    }
}

impl<M: fmt::Debug> fmt::Debug for Wire<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}{}", self.message, if self.route.is_some() { "…" } else { "" })
    }
}
