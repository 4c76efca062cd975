use peerlock_protocols::{self as protocol, Never, Observe};
use peerlock_types::PeerId;

use super::{Actor, Cx, Effect, Hands, Input};
use crate::watch::{Broken, Structure};

#[derive(Clone, Copy, Debug)]
pub struct Gone(PeerId);

/// A protocol on its own: one resource, and every message goes directly to its destination.
#[derive(Debug)]
pub struct Bare<P>(pub P);

impl<P: Observe<Timer: std::hash::Hash>> Actor for Bare<P> {
    type Message = P::Message;
    type Timer = P::Timer;
    type Command = Gone;
    type Note = Never;
    type Disk = ();
    type Write = Never;
    type Structure = Structure;
    type Buffers = Vec<protocol::Effect<P::Message, P::Timer>>;

    fn kind(message: &P::Message) -> Option<usize> {
        Some(P::kind(message))
    }

    #[inline]
    fn step(&mut self, input: Input<Self>, cx: Cx<'_>, buffers: &mut Self::Buffers) {
        let cx = &mut protocol::Cx::new(cx.me, cx.now, cx.rng, buffers);
        match input {
            Input::Request { ticket, .. } => self.0.request(ticket, cx),
            Input::Release { ticket, .. } => self.0.release(ticket, cx),
            Input::Message { from, message } => self.0.on_message(from, message, cx),
            Input::Timer(timer) => self.0.on_timer(timer, cx),
            Input::Reset { incarnation } => self.0.on_reset(incarnation, cx),
            Input::Written => unreachable!("a bare protocol writes nothing"),
            Input::Command(Gone(peer)) => self.0.on_peer_down(peer, cx),
        }
    }

    #[inline(always)]
    fn receive(&mut self, from: PeerId, message: P::Message, cx: Cx<'_>, buffers: &mut Self::Buffers) {
        self.0.on_message(from, message, &mut protocol::Cx::new(cx.me, cx.now, cx.rng, buffers));
    }

    fn gone(peer: PeerId) -> Option<Input<Self>> {
        Some(Input::Command(Gone(peer)))
    }

    #[inline(always)]
    fn effects(buffers: &mut Self::Buffers, hands: &mut impl Hands<Self>) -> Result<(), Broken> {
        // Reversed and popped, which is the cheapest way to drain a list. Most steps have one or two effects.
        if buffers.len() > 1 {
            buffers.reverse();
        }
        while let Some(effect) = buffers.pop() {
            match effect {
                protocol::Effect::Send { to, message } => hands.send(to, message)?,
                protocol::Effect::Grant { ticket, grant } => hands.grant(ticket, grant)?,
                effect => hands.carry_out(in_words_of_the_world(effect))?,
            }
        }
        Ok(())
    }
}

fn in_words_of_the_world<P: Observe<Timer: std::hash::Hash>>(
    effect: protocol::Effect<P::Message, P::Timer>,
) -> Effect<Bare<P>> {
    match effect {
        protocol::Effect::Send { to, message } => Effect::Send { to, message },
        protocol::Effect::Grant { ticket, grant } => Effect::Grant { ticket, grant },
        protocol::Effect::Lost { ticket } => Effect::Lost { ticket },
        protocol::Effect::Refused { ticket } => Effect::Refused { ticket },
        protocol::Effect::SetTimer { timer, after } => Effect::SetTimer { timer, after },
        protocol::Effect::CancelTimer { timer } => Effect::CancelTimer { timer },
        protocol::Effect::RegistryRequest(_) => {
            Effect::Impossible { what: "uses a registry, and there is none in this run" }
        }
        protocol::Effect::Unexpected { why } => Effect::Unexpected { why },
        protocol::Effect::Route { .. } | protocol::Effect::Forward { .. } => {
            Effect::Impossible { what: "routes a message, and there is no overlay in this run" }
        }
    }
}
