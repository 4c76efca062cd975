use peerlock_overlay::chord::Chord;
use peerlock_overlay::pastry::Pastry;
use peerlock_overlay::{self as overlay, KeyRange, Overlay};
use peerlock_peer::{self as peer, Buffers, Event, Peer, Timer, Wire};
use peerlock_protocols::{Never, Observe, Quorum, Replicas};
use peerlock_types::{Key, PeerId, Span};
use serde::{Deserialize, Serialize};

use super::{Actor, Cx, Effect, Hands, Input};
use crate::watch::Broken;

pub struct OnOverlay<'a, O: Overlay, P: Observe, F> {
    peer: Peer<O, P, &'a Catalogue<F>>,
    catalogue: &'a Catalogue<F>,
}

impl<'a, O: Overlay, P: Observe, F> OnOverlay<'a, O, P, F>
where
    F: Fn(PeerId, &Replicas) -> P,
{
    pub fn new(overlay: O, catalogue: &'a Catalogue<F>, config: peer::Config) -> Self {
        Self { peer: Peer::new(overlay, catalogue, config), catalogue }
    }
}

pub trait Routing: Actor<Command = PeerId, Note = OverlayNote> {
    fn range(&self) -> Option<KeyRange>;

    /// Whether this message is on its way to the owner of a key.
    fn is_hop(message: &Self::Message) -> bool;

    fn upkeep() -> (Self::Timer, Span);
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum OverlayNote {
    /// `None` if it is not in the overlay.
    Owns(Option<KeyRange>),
    Undelivered(Key),
}

impl<O, P, F> Actor for OnOverlay<'_, O, P, F>
where
    O: Overlay,
    P: Observe<Timer: std::hash::Hash>,
    F: Fn(PeerId, &Replicas) -> P,
{
    type Message = Wire<O::Message, P::Message>;
    type Timer = Timer<P::Timer>;
    /// Join through this peer.
    type Command = PeerId;
    type Note = OverlayNote;
    type Disk = ();
    type Write = Never;
    type Structure = ();
    type Buffers = Buffers<O, P>;

    /// Messages between overlays, and confirmations of hops, are maintenance.
    fn kind(message: &Self::Message) -> Option<usize> {
        match message {
            Wire::Overlay(_) | Wire::Got { .. } => None,
            Wire::Direct { message, .. } | Wire::Routed { message, .. } => Some(P::kind(message)),
        }
    }

    fn step(&mut self, input: Input<Self>, cx: Cx<'_>, buffers: &mut Self::Buffers) {
        let name = |resource: usize| self.catalogue.resources[resource].0;
        let input = match input {
            Input::Request { resource, ticket } => peer::Input::Request { resource: name(resource), ticket },
            Input::Release { resource, ticket } => peer::Input::Release { resource: name(resource), ticket },
            Input::Message { from, message } => peer::Input::Message { from, wire: message },
            Input::Timer(timer) => peer::Input::Timer(timer),
            Input::Reset { incarnation } => peer::Input::Reset { incarnation },
            Input::Written => unreachable!("a peer on an overlay writes nothing"),
            Input::Command(via) => peer::Input::Join(Some(via)),
        };
        self.peer.step(input, &mut peer::Cx { now: cx.now, rng: cx.rng, buffers });
    }

    fn effects(buffers: &mut Self::Buffers, hands: &mut impl Hands<Self>) -> Result<(), Broken> {
        let mut effects = buffers.effects.drain(..).map(|effect| match effect {
            peer::Effect::Send { to, wire } => Effect::Send { to, message: wire },
            peer::Effect::Client { ticket, event: Event::Granted(grant), .. } => Effect::Grant { ticket, grant },
            peer::Effect::Client { ticket, event: Event::Lost, .. } => Effect::Lost { ticket },
            peer::Effect::Client { ticket, event: Event::Refused, .. } => Effect::Refused { ticket },
            peer::Effect::SetTimer { timer, after } => Effect::SetTimer { timer, after },
            peer::Effect::CancelTimer { timer } => Effect::CancelTimer { timer },
            peer::Effect::Owns(range) => Effect::Note(OverlayNote::Owns(range)),
            peer::Effect::Undelivered { key, .. } => Effect::Note(OverlayNote::Undelivered(key)),
            peer::Effect::Unexpected { why } => Effect::Unexpected { why },
        });
        effects.try_for_each(|effect| hands.carry_out(effect))
    }
}

impl<O, P, F> Routing for OnOverlay<'_, O, P, F>
where
    O: Settled,
    P: Observe<Timer: std::hash::Hash>,
    F: Fn(PeerId, &Replicas) -> P,
{
    fn range(&self) -> Option<KeyRange> {
        self.peer.overlay().range()
    }

    fn is_hop(message: &Self::Message) -> bool {
        matches!(message, Wire::Routed { .. })
    }

    fn upkeep() -> (Self::Timer, Span) {
        (Timer::Overlay(overlay::Timer::Stabilize), O::CONFIG.stabilize)
    }
}

pub trait Settled: Overlay {
    const CONFIG: overlay::Config;
}

impl Settled for Chord {
    const CONFIG: overlay::Config = overlay::Config::CHORD;
}

impl Settled for Pastry {
    const CONFIG: overlay::Config = overlay::Config::PASTRY;
}

/// The resources "/resource/0" and so on, each with its own replicas.
#[derive(Debug)]
pub struct Catalogue<F> {
    resources: Vec<(Key, Replicas)>,
    new_peer: F,
}

impl<F> Catalogue<F> {
    pub fn new(resources: usize, quorum: Quorum, new_peer: F) -> Self {
        let resource = |number| {
            let name = format!("/resource/{number}");
            (Key::of(name.as_bytes()), Replicas::on_overlay(&name, quorum))
        };
        let mut resources: Vec<(Key, Replicas)> = (0..resources).map(resource).collect();
        resources.sort_by_key(|resource| resource.0);
        Self { resources, new_peer }
    }

    pub fn replicas(&self) -> impl ExactSizeIterator<Item = &Replicas> {
        self.resources.iter().map(|resource| &resource.1)
    }
}

impl<P, F: Fn(PeerId, &Replicas) -> P> peer::Resources<P> for &Catalogue<F> {
    fn open(&self, me: PeerId, resource: Key) -> Option<P> {
        let at = self.resources.binary_search_by_key(&resource, |resource| resource.0).ok()?;
        Some((self.new_peer)(me, &self.resources[at].1))
    }
}
