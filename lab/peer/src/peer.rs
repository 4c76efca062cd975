use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::mem::take;

use peerlock_overlay::{self as overlay, KeyRange, Overlay};
use peerlock_protocols::{self as protocol, Hop, Protocol};
use peerlock_types::{Key, PeerId, Rng, Span, Time};

use crate::hops::{Hops, Sent};
use crate::message::{Effect, Event, Input, Timer, Wire};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// How long the next hop may take to confirm.
    pub confirm: Option<Span>,
    /// How often a message is sent to the same hop.
    pub tries: u32,
    /// The number of hops after which a message is dropped.
    pub longest_way: u8,
}

impl Config {
    /// For networks without loss and crashes.
    pub const RELIABLE: Self = Self {
        confirm: None,
        tries: 1,
        // Our choice: six times the mean in a Chord of 100,000 peers.
        longest_way: 50,
    };
    /// For networks with loss and crashes.
    pub const CONFIRMED: Self = Self {
        // Our choice, like the overlays' `answer`.
        confirm: Some(Span::from_secs(1)),
        // Our choice, like the overlays' `tries`. If a live hop is bypassed, two peers own its keys.
        tries: 3,
        ..Self::RELIABLE
    };
}

/// Creates the instances of a protocol, at the first request or message for a resource.
pub trait Resources<P> {
    /// Returns `None` if there is no such resource.
    fn open(&self, me: PeerId, resource: Key) -> Option<P>;
}

impl<P, F: Fn(PeerId, Key) -> Option<P>> Resources<P> for F {
    fn open(&self, me: PeerId, resource: Key) -> Option<P> {
        self(me, resource)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Instance<P> {
    name: Key,
    protocol: P,
    /// Keys with state here.
    owned: Vec<Key>,
}

pub struct Cx<'a, O: Overlay, P: Protocol> {
    pub now: Time,
    pub rng: &'a mut Rng,
    pub buffers: &'a mut Buffers<O, P>,
}

/// Lists that are reused between steps.
#[derive(Debug)]
pub struct Buffers<O: Overlay, P: Protocol> {
    /// The effects of the step, for the driver.
    pub effects: Vec<Effect<O::Message, P::Message, P::Timer>>,
    overlay: Vec<overlay::Effect<O::Message>>,
    protocol: Vec<protocol::Effect<P::Message, P::Timer>>,
    pending: VecDeque<Pending<P>>,
}

impl<O: Overlay, P: Protocol> Default for Buffers<O, P> {
    fn default() -> Self {
        Self { effects: Vec::new(), overlay: Vec::new(), protocol: Vec::new(), pending: VecDeque::new() }
    }
}

#[derive(Debug)]
struct Pending<P: Protocol> {
    resource: Key,
    input: protocol::Input<P::Message, P::Timer>,
    hops: u8,
}

/// Limits the messages to the own peer in a step: some printed protocols send them forever.
const MAX_PENDING: usize = 10_000;

/// Limits the keys per resource: a sender may name any number.
const MAX_OWNED: usize = 1024;

enum Route {
    Ours,
    To(PeerId),
    Unknown,
}

/// One node of an overlay, with a protocol instance for each resource that it has met.
#[derive(Clone, Debug)]
pub struct Peer<O: Overlay, P: Protocol, R> {
    overlay: O,
    resources: R,
    config: Config,
    instances: Vec<Instance<P>>,
    hops: Hops<P::Message>,
}

impl<O: Overlay, P: Protocol, R: Resources<P>> Peer<O, P, R> {
    pub fn new(overlay: O, resources: R, config: Config) -> Self {
        Self { overlay, resources, config, instances: Vec::new(), hops: Hops::default() }
    }

    pub fn overlay(&self) -> &O {
        &self.overlay
    }

    pub fn protocol(&self, resource: Key) -> Option<&P> {
        self.find(resource).ok().map(|at| &self.instances[at].protocol)
    }

    /// Passes one input to the peer. Drivers need no other call.
    pub fn step(&mut self, input: Input<O::Message, P::Message, P::Timer>, cx: &mut Cx<'_, O, P>) {
        match input {
            Input::Join(via) => self.overlay_step(overlay::Input::Join(via), cx),
            Input::Leave => self.overlay_step(overlay::Input::Leave, cx),
            Input::Request { resource, ticket } => receive(resource, protocol::Input::Request(ticket), cx),
            Input::Release { resource, ticket } => receive(resource, protocol::Input::Release(ticket), cx),
            Input::Message { from, wire } => self.on_wire(from, wire, cx),
            Input::Timer(Timer::Overlay(timer)) => self.overlay_step(overlay::Input::Timer(timer), cx),
            Input::Timer(Timer::Resource(resource, timer)) => receive(resource, protocol::Input::Timer(timer), cx),
            Input::Timer(Timer::Hop(receipt)) => self.on_unconfirmed(receipt, cx),
            Input::Unreachable(peer) => self.on_unreachable(peer, cx),
            Input::Reset { incarnation } => self.step_all(|| protocol::Input::Reset { incarnation }, cx),
        }
        for _ in 0..MAX_PENDING {
            let Some(pending) = cx.buffers.pending.pop_front() else { return };
            self.protocol_step(pending, cx);
        }
        cx.buffers.pending.clear();
        cx.buffers.effects.push(Effect::Unexpected { why: "a protocol that sends itself messages without end" });
    }

    fn step_all(&self, input: impl Fn() -> protocol::Input<P::Message, P::Timer>, cx: &mut Cx<'_, O, P>) {
        self.instances.iter().for_each(|instance| receive(instance.name, input(), cx));
    }

    fn me(&self) -> PeerId {
        self.overlay.me().peer
    }

    fn find(&self, resource: Key) -> Result<usize, usize> {
        self.instances.binary_search_by_key(&resource, |instance| instance.name)
    }

    fn create_instance(&mut self, at: usize, resource: Key) -> Option<usize> {
        let protocol = self.resources.open(self.me(), resource)?;
        self.instances.insert(at, Instance { name: resource, protocol, owned: Vec::new() });
        Some(at)
    }

    fn route(&self, key: Key) -> Route {
        match self.overlay.next_hop(key) {
            Some(next) => Route::To(next),
            None if self.overlay.range().is_some_and(|range| range.contains(key)) => Route::Ours,
            None => Route::Unknown,
        }
    }

    fn on_wire(&mut self, from: PeerId, wire: Wire<O::Message, P::Message>, cx: &mut Cx<'_, O, P>) {
        match wire {
            Wire::Overlay(message) => self.overlay_step(overlay::Input::Message { from, message }, cx),
            Wire::Direct { resource, message } => receive(resource, protocol::Input::Message { from, message }, cx),
            Wire::Routed { resource, key, origin, hops, receipt, message } => {
                let route = self.route(key);
                // Circling messages are confirmed, since another hop would not help.
                if let (Some(receipt), Route::Ours | Route::To(_)) = (receipt, &route) {
                    cx.buffers.effects.push(Effect::Send { to: from, wire: Wire::Got { receipt } });
                }
                let next = match route {
                    Route::Ours => None,
                    Route::To(next) if hops < self.config.longest_way => Some(next),
                    Route::To(_) | Route::Unknown => {
                        return cx.buffers.effects.push(Effect::Undelivered { resource, key });
                    }
                };
                let hop = Hop { key, origin, previous: from, next };
                cx.buffers.pending.push_back(Pending {
                    resource,
                    input: protocol::Input::Routed { hop, message },
                    hops,
                });
            }
            Wire::Got { receipt } => {
                if self.hops.holder(receipt) == Some(from) {
                    self.hops.take(receipt);
                    cx.buffers.effects.push(Effect::CancelTimer { timer: Timer::Hop(receipt) });
                }
            }
        }
    }

    /// Retries, or routes around the hop.
    fn on_unconfirmed(&mut self, receipt: u64, cx: &mut Cx<'_, O, P>) {
        let Some(sent) = self.hops.take(receipt) else { return };
        if sent.tries < self.config.tries {
            let tries = sent.tries + 1;
            self.send_to_hop(Sent { tries, ..sent }, cx);
        } else {
            self.overlay_step(overlay::Input::Unreachable(sent.to), cx);
            self.reroute(sent, cx);
        }
    }

    fn on_unreachable(&mut self, peer: PeerId, cx: &mut Cx<'_, O, P>) {
        self.overlay_step(overlay::Input::Unreachable(peer), cx);
        for (receipt, sent) in self.hops.take_from(peer) {
            cx.buffers.effects.push(Effect::CancelTimer { timer: Timer::Hop(receipt) });
            self.reroute(sent, cx);
        }
    }

    /// Sends a message by another route, or delivers it if this peer owns the key by now.
    fn reroute(&mut self, sent: Sent<P::Message>, cx: &mut Cx<'_, O, P>) {
        let Sent { resource, key, origin, hops, message, .. } = sent;
        match self.route(key) {
            Route::To(to) => self.send_to_hop(Sent { resource, key, origin, hops, message, to, tries: 1 }, cx),
            Route::Ours => {
                let hop = Hop { key, origin, previous: self.me(), next: None };
                cx.buffers.pending.push_back(Pending {
                    resource,
                    input: protocol::Input::Routed { hop, message },
                    hops,
                });
            }
            Route::Unknown => cx.buffers.effects.push(Effect::Undelivered { resource, key }),
        }
    }

    fn send_to_hop(&mut self, sent: Sent<P::Message>, cx: &mut Cx<'_, O, P>) {
        let Sent { resource, key, origin, hops, to, .. } = sent;
        let Some(after) = self.config.confirm else {
            let wire = Wire::Routed { resource, key, origin, hops, receipt: None, message: sent.message };
            return cx.buffers.effects.push(Effect::Send { to, wire });
        };
        let message = sent.message.clone();
        let receipt = self.hops.insert(sent);
        let wire = Wire::Routed { resource, key, origin, hops, receipt: Some(receipt), message };
        cx.buffers.effects.push(Effect::Send { to, wire });
        cx.buffers.effects.push(Effect::SetTimer { timer: Timer::Hop(receipt), after });
    }

    fn overlay_step(&mut self, input: overlay::Input<O::Message>, cx: &mut Cx<'_, O, P>) {
        let mut effects = take(&mut cx.buffers.overlay);
        let mut overlay_cx = overlay::Cx::new(self.me(), cx.now, cx.rng, &mut effects);
        overlay::step(&mut self.overlay, input, &mut overlay_cx);
        for effect in effects.drain(..) {
            let effect = match effect {
                overlay::Effect::Send { to, message } => Effect::Send { to, wire: Wire::Overlay(message) },
                overlay::Effect::SetTimer { timer, after } => Effect::SetTimer { timer: Timer::Overlay(timer), after },
                overlay::Effect::CancelTimer { timer } => Effect::CancelTimer { timer: Timer::Overlay(timer) },
                overlay::Effect::Unexpected { why } => Effect::Unexpected { why },
                overlay::Effect::Owns { range } => {
                    self.disown(range, cx);
                    Effect::Owns(range)
                }
            };
            cx.buffers.effects.push(effect);
        }
        cx.buffers.overlay = effects;
    }

    fn disown(&mut self, range: Option<KeyRange>, cx: &mut Cx<'_, O, P>) {
        for Instance { name, owned, .. } in &mut self.instances {
            for key in owned.extract_if(.., |key| range.is_none_or(|range| !range.contains(*key))) {
                receive(*name, protocol::Input::Disowned(key), cx);
            }
        }
    }

    fn protocol_step(&mut self, Pending { resource, input, hops }: Pending<P>, cx: &mut Cx<'_, O, P>) {
        let me = self.me();
        let Ok(at) = self.find(resource).or_else(|at| self.create_instance(at, resource).ok_or(at)) else {
            return cx.buffers.effects.push(Effect::Unexpected { why: "a message for an unknown resource" });
        };
        let Instance { protocol, owned, .. } = &mut self.instances[at];
        let new_key = match &input {
            protocol::Input::Routed { hop: Hop { key, next: None, .. }, .. } if !owned.contains(key) => Some(*key),
            _ => None,
        };
        if new_key.is_some() && owned.len() >= MAX_OWNED {
            return cx.buffers.effects.push(Effect::Unexpected { why: "more keys than a resource has" });
        }
        let mut effects = take(&mut cx.buffers.protocol);
        protocol::step(protocol, input, &mut protocol::Cx::new(me, cx.now, cx.rng, &mut effects));
        if let Some(key) = new_key {
            // A protocol stores nothing of a message that it rejects.
            let is_unexpected = effects.iter().any(|effect| matches!(effect, protocol::Effect::Unexpected { .. }));
            owned.extend((!is_unexpected).then_some(key));
        }
        for effect in effects.drain(..) {
            self.carry_out(resource, effect, hops, cx);
        }
        cx.buffers.protocol = effects;
    }

    fn carry_out(
        &mut self,
        resource: Key,
        effect: protocol::Effect<P::Message, P::Timer>,
        hops: u8,
        cx: &mut Cx<'_, O, P>,
    ) {
        let notify = |ticket, event| Effect::Client { resource, ticket, event };
        cx.buffers.effects.push(match effect {
            protocol::Effect::Send { to, message } => Effect::Send { to, wire: Wire::Direct { resource, message } },
            protocol::Effect::Route { key, message } => {
                let me = self.me();
                return self.reroute(Sent { resource, key, origin: me, hops: 1, message, to: me, tries: 1 }, cx);
            }
            protocol::Effect::Forward { to, key, origin, message } => {
                return self.send_to_hop(Sent { resource, key, origin, hops: hops + 1, message, to, tries: 1 }, cx);
            }
            protocol::Effect::Grant { ticket, grant } => notify(ticket, Event::Granted(grant)),
            protocol::Effect::Lost { ticket } => notify(ticket, Event::Lost),
            protocol::Effect::Refused { ticket } => notify(ticket, Event::Refused),
            protocol::Effect::SetTimer { timer, after } => {
                Effect::SetTimer { timer: Timer::Resource(resource, timer), after }
            }
            protocol::Effect::CancelTimer { timer } => Effect::CancelTimer { timer: Timer::Resource(resource, timer) },
            protocol::Effect::RegistryRequest(_) => {
                Effect::Unexpected { why: "a registry request, but there is no registry" }
            }
            protocol::Effect::Unexpected { why } => Effect::Unexpected { why },
        });
    }
}

fn receive<O: Overlay, P: Protocol>(
    resource: Key,
    input: protocol::Input<P::Message, P::Timer>,
    cx: &mut Cx<'_, O, P>,
) {
    cx.buffers.pending.push_back(Pending { resource, input, hops: 0 });
}
