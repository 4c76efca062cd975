use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::mem::take;

use peerlock_base::{Key, PeerId, Rng, Span, Time};
use peerlock_mutex::{self as mutex, Hop, Protocol};
use peerlock_overlay::{self as overlay, KeyRange, Overlay};

use crate::hops::{Hops, Passed};
use crate::message::{Effect, Event, Input, Timer, Wire};

/// How messages are routed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// How long to wait for the next hop to confirm a message; `None` if every message arrives, so that nobody needs
    /// to.
    pub confirm: Option<Span>,
    /// How often a message is handed to the same hop before another is tried.
    pub tries: u32,
    /// A message that has taken this many hops is dropped: it goes round in circles.
    pub longest_way: u8,
}

impl Config {
    /// Nothing is lost and nobody dies.
    pub const RELIABLE: Self = Self {
        confirm: None,
        tries: 1,
        // Our choice: six times the mean way in a Chord of 100,000 peers.
        longest_way: 50,
    };
    /// Messages get lost, and peers die.
    pub const CONFIRMED: Self = Self {
        // Our choice, as the overlays' `answer`: longer than nearly every round trip on the Internet.
        confirm: Some(Span::from_secs(1)),
        // Our choice, as the overlays' `tries`: with one message in a hundred lost, a live hop is passed over once in a
        // hundred thousand hops. That is dear: its keys have two owners until it is heard from again.
        tries: 3,
        ..Self::RELIABLE
    };
}

/// Where instances of a protocol come from: a peer meets a resource for the first time when a client asks for it, or
/// when a message for it comes by.
pub trait Resources<P> {
    /// The part of peer `me` in the protocol for this resource; `None` if there is no such resource.
    fn open(&self, me: PeerId, resource: Key) -> Option<P>;
}

impl<P, F: Fn(PeerId, Key) -> Option<P>> Resources<P> for F {
    fn open(&self, me: PeerId, resource: Key) -> Option<P> {
        self(me, resource)
    }
}

/// One resource at one peer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Instance<P> {
    name: Key,
    protocol: P,
    /// Keys under which we got messages as their owner, and so may keep something.
    owned: Vec<Key>,
}

/// What a driver brings to every step: the time, chance, latencies where they are known, and room for what the peer
/// wants done.
pub struct Cx<'a, O: Overlay, P: Protocol> {
    /// The time of this step.
    pub now: Time,
    /// Random numbers of this run.
    pub rng: &'a mut Rng,
    /// Where effects go.
    pub buffers: &'a mut Buffers<O, P>,
}

/// Lists that are made once and used again, so that a step allocates nothing.
#[derive(Debug)]
pub struct Buffers<O: Overlay, P: Protocol> {
    /// What the peer wants done, in order; for the driver to take out.
    pub effects: Vec<Effect<O::Message, P::Message, P::Timer>>,
    overlay: Vec<overlay::Effect<O::Message>>,
    protocol: Vec<mutex::Effect<P::Message, P::Timer>>,
    here: VecDeque<Here<P>>,
}

impl<O: Overlay, P: Protocol> Default for Buffers<O, P> {
    fn default() -> Self {
        Self { effects: Vec::new(), overlay: Vec::new(), protocol: Vec::new(), here: VecDeque::new() }
    }
}

/// What a protocol is still to hear in this step.
#[derive(Debug)]
struct Here<P: Protocol> {
    resource: Key,
    input: mutex::Input<P::Message, P::Timer>,
    /// How many hops a routed message has behind it.
    hops: u8,
}

/// At most this many messages may a peer tell itself in one step. Two replicas of a resource at one peer may never come
/// to an end, where each passes on what it does not know to the other: some protocols do that as printed.
const MOST_HERE: usize = 10_000;

/// At most this many keys are kept of one resource, for the day on which they are somebody else's. Protocols have a few
/// replicas each, and find all other keys strange; a stranger may still think up any number.
const MOST_OWNED: usize = 1024;

/// Where a message for a key goes from here.
enum Way {
    /// Nowhere: the key is ours.
    Ours,
    To(PeerId),
    /// We own nothing and know nobody.
    Unknown,
}

/// One peer: its place in the overlay, and its part in the protocols of all resources that it has met.
#[derive(Clone, Debug)]
pub struct Peer<O: Overlay, P: Protocol, R> {
    overlay: O,
    resources: R,
    config: Config,
    /// Sorted by the key of the resource's name.
    instances: Vec<Instance<P>>,
    hops: Hops<P::Message>,
}

impl<O: Overlay, P: Protocol, R: Resources<P>> Peer<O, P, R> {
    /// A peer at this place of an overlay.
    pub fn new(overlay: O, resources: R, config: Config) -> Self {
        Self { overlay, resources, config, instances: Vec::new(), hops: Hops::default() }
    }

    /// Its place in the overlay.
    pub fn overlay(&self) -> &O {
        &self.overlay
    }

    /// Its part in the protocol of a resource, if it has one.
    pub fn protocol(&self, resource: Key) -> Option<&P> {
        self.find(resource).ok().map(|at| &self.instances[at].protocol)
    }

    /// Hands one input to the peer. Drivers need no other call.
    pub fn step(&mut self, input: Input<O::Message, P::Message, P::Timer>, cx: &mut Cx<'_, O, P>) {
        match input {
            Input::Join(via) => self.overlay_step(overlay::Input::Join(via), cx),
            Input::Leave => self.overlay_step(overlay::Input::Leave, cx),
            Input::Request { resource, ticket } => hear(resource, mutex::Input::Request(ticket), cx),
            Input::Release { resource, ticket } => hear(resource, mutex::Input::Release(ticket), cx),
            Input::Message { from, wire } => self.on_wire(from, wire, cx),
            Input::Timer(Timer::Overlay(timer)) => self.overlay_step(overlay::Input::Timer(timer), cx),
            Input::Timer(Timer::Resource(resource, timer)) => hear(resource, mutex::Input::Timer(timer), cx),
            Input::Timer(Timer::Hop(receipt)) => self.on_unconfirmed(receipt, cx),
            Input::Unreachable(peer) => self.on_unreachable(peer, cx),
            Input::Reset { incarnation } => self.tell_all(|| mutex::Input::Reset { incarnation }, cx),
        }
        for _ in 0..MOST_HERE {
            let Some(here) = cx.buffers.here.pop_front() else { return };
            self.protocol_step(here, cx);
        }
        cx.buffers.here.clear();
        cx.buffers.effects.push(Effect::Strange { why: "a protocol that talks to itself without end" });
    }

    fn tell_all(&self, input: impl Fn() -> mutex::Input<P::Message, P::Timer>, cx: &mut Cx<'_, O, P>) {
        self.instances.iter().for_each(|instance| hear(instance.name, input(), cx));
    }

    fn me(&self) -> PeerId {
        self.overlay.me().peer
    }

    fn find(&self, resource: Key) -> Result<usize, usize> {
        self.instances.binary_search_by_key(&resource, |instance| instance.name)
    }

    /// Begins our part in a resource, at its place among the others.
    fn begin(&mut self, at: usize, resource: Key) -> Option<usize> {
        let protocol = self.resources.open(self.me(), resource)?;
        self.instances.insert(at, Instance { name: resource, protocol, owned: Vec::new() });
        Some(at)
    }

    fn way(&self, key: Key) -> Way {
        match self.overlay.next_hop(key) {
            Some(next) => Way::To(next),
            None if self.overlay.range().is_some_and(|range| range.contains(key)) => Way::Ours,
            None => Way::Unknown,
        }
    }

    fn on_wire(&mut self, from: PeerId, wire: Wire<O::Message, P::Message>, cx: &mut Cx<'_, O, P>) {
        match wire {
            Wire::Overlay(message) => self.overlay_step(overlay::Input::Message { from, message }, cx),
            Wire::Direct { resource, message } => hear(resource, mutex::Input::Message { from, message }, cx),
            Wire::Routed { resource, key, origin, hops, receipt, message } => {
                let way = self.way(key);
                // Unconfirmed, it goes another way; what has gone in circles would only do so again.
                if let (Some(receipt), Way::Ours | Way::To(_)) = (receipt, &way) {
                    cx.buffers.effects.push(Effect::Send { to: from, wire: Wire::Got { receipt } });
                }
                let next = match way {
                    Way::Ours => None,
                    Way::To(next) if hops < self.config.longest_way => Some(next),
                    Way::To(_) | Way::Unknown => {
                        return cx.buffers.effects.push(Effect::Undelivered { resource, key });
                    }
                };
                let hop = Hop { key, origin, previous: from, next };
                cx.buffers.here.push_back(Here { resource, input: mutex::Input::Routed { hop, message }, hops });
            }
            Wire::Got { receipt } => {
                if self.hops.holder(receipt) == Some(from) {
                    self.hops.take(receipt);
                    cx.buffers.effects.push(Effect::CancelTimer { timer: Timer::Hop(receipt) });
                }
            }
        }
    }

    /// The next hop is silent: once more, or around it.
    fn on_unconfirmed(&mut self, receipt: u64, cx: &mut Cx<'_, O, P>) {
        let Some(passed) = self.hops.take(receipt) else { return };
        if passed.tries < self.config.tries {
            let tries = passed.tries + 1;
            self.pass(Passed { tries, ..passed }, cx);
        } else {
            self.overlay_step(overlay::Input::Unreachable(passed.to), cx);
            self.route_on(passed, cx);
        }
    }

    fn on_unreachable(&mut self, peer: PeerId, cx: &mut Cx<'_, O, P>) {
        self.overlay_step(overlay::Input::Unreachable(peer), cx);
        for (receipt, passed) in self.hops.take_from(peer) {
            cx.buffers.effects.push(Effect::CancelTimer { timer: Timer::Hop(receipt) });
            self.route_on(passed, cx);
        }
    }

    /// Another way for a message that the next hop did not take. It may have become ours meanwhile.
    fn route_on(&mut self, passed: Passed<P::Message>, cx: &mut Cx<'_, O, P>) {
        let Passed { resource, key, origin, hops, message, .. } = passed;
        match self.way(key) {
            Way::To(to) => self.pass(Passed { resource, key, origin, hops, message, to, tries: 1 }, cx),
            Way::Ours => {
                let hop = Hop { key, origin, previous: self.me(), next: None };
                cx.buffers.here.push_back(Here { resource, input: mutex::Input::Routed { hop, message }, hops });
            }
            Way::Unknown => cx.buffers.effects.push(Effect::Undelivered { resource, key }),
        }
    }

    /// Hands a message to the next hop.
    fn pass(&mut self, passed: Passed<P::Message>, cx: &mut Cx<'_, O, P>) {
        let Passed { resource, key, origin, hops, to, .. } = passed;
        let Some(after) = self.config.confirm else {
            let wire = Wire::Routed { resource, key, origin, hops, receipt: None, message: passed.message };
            return cx.buffers.effects.push(Effect::Send { to, wire });
        };
        let message = passed.message.clone();
        let receipt = self.hops.keep(passed);
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
                overlay::Effect::Strange { why } => Effect::Strange { why },
                overlay::Effect::Owns { range } => {
                    self.disown(range, cx);
                    Effect::Owns(range)
                }
            };
            cx.buffers.effects.push(effect);
        }
        cx.buffers.overlay = effects;
    }

    /// Tells the protocols which of the keys that they had messages for are not ours any more.
    fn disown(&mut self, range: Option<KeyRange>, cx: &mut Cx<'_, O, P>) {
        for Instance { name, owned, .. } in &mut self.instances {
            for key in owned.extract_if(.., |key| range.is_none_or(|range| !range.contains(*key))) {
                hear(*name, mutex::Input::Disowned(key), cx);
            }
        }
    }

    fn protocol_step(&mut self, Here { resource, input, hops }: Here<P>, cx: &mut Cx<'_, O, P>) {
        let me = self.me();
        let Ok(at) = self.find(resource).or_else(|at| self.begin(at, resource).ok_or(at)) else {
            return cx.buffers.effects.push(Effect::Strange { why: "a message for a resource that there is not" });
        };
        let Instance { protocol, owned, .. } = &mut self.instances[at];
        let new_key = match &input {
            mutex::Input::Routed { hop: Hop { key, next: None, .. }, .. } if !owned.contains(key) => Some(*key),
            _ => None,
        };
        if new_key.is_some() && owned.len() >= MOST_OWNED {
            return cx.buffers.effects.push(Effect::Strange { why: "more keys than a resource has" });
        }
        let mut effects = take(&mut cx.buffers.protocol);
        mutex::step(protocol, input, &mut mutex::Cx::new(me, cx.now, cx.rng, &mut effects));
        if let Some(key) = new_key {
            // What a protocol finds strange it does not keep anything of.
            let is_strange = effects.iter().any(|effect| matches!(effect, mutex::Effect::Strange { .. }));
            owned.extend((!is_strange).then_some(key));
        }
        for effect in effects.drain(..) {
            self.carry_out(resource, effect, hops, cx);
        }
        cx.buffers.protocol = effects;
    }

    fn carry_out(
        &mut self,
        resource: Key,
        effect: mutex::Effect<P::Message, P::Timer>,
        hops: u8,
        cx: &mut Cx<'_, O, P>,
    ) {
        let tell = |ticket, event| Effect::Client { resource, ticket, event };
        cx.buffers.effects.push(match effect {
            mutex::Effect::Send { to, message } => Effect::Send { to, wire: Wire::Direct { resource, message } },
            mutex::Effect::Route { key, message } => {
                let me = self.me();
                return self.route_on(Passed { resource, key, origin: me, hops: 1, message, to: me, tries: 1 }, cx);
            }
            mutex::Effect::Forward { to, key, origin, message } => {
                return self.pass(Passed { resource, key, origin, hops: hops + 1, message, to, tries: 1 }, cx);
            }
            mutex::Effect::Grant { ticket, grant } => tell(ticket, Event::Granted(grant)),
            mutex::Effect::Lost { ticket } => tell(ticket, Event::Lost),
            mutex::Effect::Refused { ticket } => tell(ticket, Event::Refused),
            mutex::Effect::SetTimer { timer, after } => {
                Effect::SetTimer { timer: Timer::Resource(resource, timer), after }
            }
            mutex::Effect::CancelTimer { timer } => Effect::CancelTimer { timer: Timer::Resource(resource, timer) },
            mutex::Effect::Wish(_) => Effect::Strange { why: "a wish to a register that there is not" },
            mutex::Effect::Strange { why } => Effect::Strange { why },
        });
    }
}

/// The protocol of this resource shall hear this before the step is over.
fn hear<O: Overlay, P: Protocol>(resource: Key, input: mutex::Input<P::Message, P::Timer>, cx: &mut Cx<'_, O, P>) {
    cx.buffers.here.push_back(Here { resource, input, hops: 0 });
}
