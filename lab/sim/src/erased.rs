//! Protocols whose type is erased: their messages and timers are bytes. In several processes messages are bytes in any
//! case, so one world serves all protocols.

use std::fmt;

use peerlock_protocols::{Cx, Effect, Hop, Input, Observe, Protocol, Replicas, step};
use peerlock_types::{Key, PeerId, Ticket};
use serde::{Deserialize, Serialize};

use crate::part::Wire;

/// Creates the peers of one protocol.
pub struct Erased {
    /// Of its messages.
    pub kinds: &'static [&'static str],
    pub new: Box<NewPeer>,
}

type NewPeer = dyn Fn(PeerId, &Replicas) -> ErasedPeer + Sync;

impl Erased {
    pub fn of<P>(new: impl Fn(PeerId, &Replicas) -> P + Sync + 'static) -> Self
    where
        P: Observe<Timer: Wire, Message: Wire> + 'static,
    {
        Self { kinds: P::KINDS, new: Box::new(move |me, replicas| ErasedPeer(Box::new(new(me, replicas)))) }
    }
}

/// Its structure is not observed: the check needs all peers in one process.
pub struct ErasedPeer(Box<dyn Peer>);

#[derive(Clone, Serialize, Deserialize)]
pub struct Message {
    kind: usize,
    bytes: Vec<u8>,
    /// For traces.
    text: String,
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

type Effects = Vec<Effect<Message, Vec<u8>>>;

trait Peer {
    fn step(&mut self, input: Input<Message, Vec<u8>>, cx: &mut Cx<'_, ErasedPeer>) -> Effects;

    fn most_passes(&self) -> Option<u64>;
}

impl<P: Observe<Timer: Wire, Message: Wire>> Peer for P {
    fn step(&mut self, input: Input<Message, Vec<u8>>, cx: &mut Cx<'_, ErasedPeer>) -> Effects {
        let message = |message: Message| decoded(&message.bytes);
        let input = match input {
            Input::Request(ticket) => Input::Request(ticket),
            Input::Release(ticket) => Input::Release(ticket),
            Input::Message { from, message: sent } => Input::Message { from, message: message(sent) },
            Input::Routed { hop, message: sent } => Input::Routed { hop, message: message(sent) },
            Input::Disowned(key) => Input::Disowned(key),
            Input::Timer(timer) => Input::Timer(decoded(&timer)),
            Input::PeerDown(peer) => Input::PeerDown(peer),
            Input::Reset { incarnation } => Input::Reset { incarnation },
            input => unreachable!("an erased peer passes no {input:?}"),
        };
        let mut effects = Vec::new();
        step(self, input, &mut Cx::new(cx.me(), cx.now(), cx.rng(), &mut effects));
        let message =
            |message| Message { kind: P::kind(&message), text: format!("{message:?}"), bytes: encoded(message) };
        let erased = |effect| match effect {
            Effect::Send { to, message: sent } => Effect::Send { to, message: message(sent) },
            Effect::Route { key, message: sent } => Effect::Route { key, message: message(sent) },
            Effect::Forward { to, key, origin, message: sent } => {
                Effect::Forward { to, key, origin, message: message(sent) }
            }
            Effect::Grant { ticket, grant } => Effect::Grant { ticket, grant },
            Effect::Lost { ticket } => Effect::Lost { ticket },
            Effect::Refused { ticket } => Effect::Refused { ticket },
            Effect::SetTimer { timer, after } => Effect::SetTimer { timer: encoded(timer), after },
            Effect::CancelTimer { timer } => Effect::CancelTimer { timer: encoded(timer) },
            Effect::RegistryRequest(request) => Effect::RegistryRequest(request),
            Effect::Unexpected { why } => Effect::Unexpected { why },
        };
        effects.into_iter().map(erased).collect()
    }

    fn most_passes(&self) -> Option<u64> {
        Observe::most_passes(self)
    }
}

fn encoded(value: impl Serialize) -> Vec<u8> {
    postcard::to_allocvec(&value).expect("messages and timers are plain data")
}

fn decoded<T: Wire>(bytes: &[u8]) -> T {
    postcard::from_bytes(bytes).expect("a peer of the same protocol encoded it")
}

impl ErasedPeer {
    /// Returns the message to forward, if the input is one on its way.
    fn pass(&mut self, input: Input<Message, Vec<u8>>, cx: &mut Cx<'_, Self>) -> Option<Message> {
        let mut forwarded = None;
        for effect in self.0.step(input, cx) {
            match effect {
                Effect::Send { to, message } => cx.send(to, message),
                Effect::Route { key, message } => cx.route(key, message),
                Effect::Forward { message, .. } => forwarded = Some(message),
                Effect::Grant { ticket, grant } => cx.grant(ticket, grant),
                Effect::Lost { ticket } => cx.lost(ticket),
                Effect::Refused { ticket } => cx.refuse(ticket),
                Effect::SetTimer { timer, after } => cx.set_timer(timer, after),
                Effect::CancelTimer { timer } => cx.cancel_timer(timer),
                Effect::RegistryRequest(request) => cx.registry_request(request),
                Effect::Unexpected { why } => cx.unexpected(why),
            }
        }
        forwarded
    }
}

impl Protocol for ErasedPeer {
    type Message = Message;
    type Timer = Vec<u8>;

    fn request(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        self.pass(Input::Request(ticket), cx);
    }

    fn release(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        self.pass(Input::Release(ticket), cx);
    }

    fn on_message(&mut self, from: PeerId, message: Message, cx: &mut Cx<'_, Self>) {
        self.pass(Input::Message { from, message }, cx);
    }

    fn on_routed(&mut self, hop: Hop, message: Message, cx: &mut Cx<'_, Self>) {
        self.pass(Input::Routed { hop, message }, cx);
    }

    fn on_forward(&mut self, hop: Hop, message: Message, cx: &mut Cx<'_, Self>) -> Option<Message> {
        self.pass(Input::Routed { hop, message }, cx)
    }

    fn on_disowned(&mut self, key: Key, cx: &mut Cx<'_, Self>) {
        self.pass(Input::Disowned(key), cx);
    }

    fn on_timer(&mut self, timer: Vec<u8>, cx: &mut Cx<'_, Self>) {
        self.pass(Input::Timer(timer), cx);
    }

    fn on_peer_down(&mut self, peer: PeerId, cx: &mut Cx<'_, Self>) {
        self.pass(Input::PeerDown(peer), cx);
    }

    fn on_reset(&mut self, incarnation: u64, cx: &mut Cx<'_, Self>) {
        self.pass(Input::Reset { incarnation }, cx);
    }
}

impl Observe for ErasedPeer {
    /// Those of the protocol are in [`Erased::kinds`].
    const KINDS: &'static [&'static str] = &[];

    fn kind(message: &Message) -> usize {
        message.kind
    }

    fn most_passes(&self) -> Option<u64> {
        self.0.most_passes()
    }

    fn trees(&self) -> usize {
        0
    }
}
