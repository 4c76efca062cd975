//! A correct peer with changed inputs and effects.

use std::hash::Hash;

use peerlock_protocols::token::Arrival;
use peerlock_protocols::{Cx, Effect, Input, Observe, Protocol, step};
use peerlock_types::{PeerId, Ticket, Time};

pub trait Mutation<P: Protocol>: Clone + Eq + Hash {
    /// Returns false to discard the input.
    fn on_input(&mut self, _peer: &P, _input: &mut Input<P::Message, P::Timer>) -> bool {
        true
    }

    fn on_effects(&mut self, step: Step<'_, P>);
}

pub struct Step<'a, P: Protocol> {
    pub before: &'a P,
    pub input: &'a Input<P::Message, P::Timer>,
    pub peer: &'a mut P,
    pub effects: &'a mut Vec<Effect<P::Message, P::Timer>>,
    pub me: PeerId,
    pub now: Time,
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Sabotaged<P, S> {
    pub peer: P,
    pub mutation: S,
}

impl<P: Protocol + Clone, S: Mutation<P>> Sabotaged<P, S> {
    fn run(&mut self, input: Input<P::Message, P::Timer>, cx: &mut Cx<'_, Self>) {
        let mut received = input.clone();
        if !self.mutation.on_input(&self.peer, &mut received) {
            return;
        }
        let (me, now, before, mut effects) = (cx.me(), cx.now(), self.peer.clone(), Vec::new());
        step(&mut self.peer, received, &mut Cx::new(me, now, cx.rng(), &mut effects));
        let step = Step { before: &before, input: &input, peer: &mut self.peer, effects: &mut effects, me, now };
        self.mutation.on_effects(step);
        for effect in effects {
            match effect {
                Effect::Send { to, message } => cx.send(to, message),
                Effect::Grant { ticket, grant } => cx.grant(ticket, grant),
                Effect::Lost { ticket } => cx.lost(ticket),
                Effect::Refused { ticket } => cx.refuse(ticket),
                Effect::Route { .. } | Effect::Forward { .. } => cx.unexpected("a message to be routed"),
                Effect::RegistryRequest(registry_request) => cx.registry_request(registry_request),
                Effect::Unexpected { why } => cx.unexpected(why),
                Effect::SetTimer { timer, after } => cx.set_timer(timer, after),
                Effect::CancelTimer { timer } => cx.cancel_timer(timer),
            }
        }
    }
}

impl<P: Protocol + Clone, S: Mutation<P>> Protocol for Sabotaged<P, S> {
    type Message = P::Message;
    type Timer = P::Timer;

    fn request(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        self.run(Input::Request(ticket), cx);
    }

    fn release(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        self.run(Input::Release(ticket), cx);
    }

    fn on_message(&mut self, from: PeerId, message: P::Message, cx: &mut Cx<'_, Self>) {
        self.run(Input::Message { from, message }, cx);
    }

    fn on_timer(&mut self, timer: P::Timer, cx: &mut Cx<'_, Self>) {
        self.run(Input::Timer(timer), cx);
    }

    fn on_reset(&mut self, incarnation: u64, cx: &mut Cx<'_, Self>) {
        self.run(Input::Reset { incarnation }, cx);
    }
}

impl<P: Observe + Clone, S: Mutation<P>> Observe for Sabotaged<P, S> {
    const KINDS: &'static [&'static str] = P::KINDS;
    const HAS_COORDINATOR: bool = P::HAS_COORDINATOR;
    const NEVER_IDLE: bool = P::NEVER_IDLE;

    fn kind(message: &P::Message) -> usize {
        P::kind(message)
    }

    fn tokens_in_all(&self) -> Option<usize> {
        self.peer.tokens_in_all()
    }

    fn tokens(&self) -> usize {
        self.peer.tokens()
    }

    fn tokens_in(message: &P::Message) -> usize {
        P::tokens_in(message)
    }

    fn is_coordinator(&self) -> bool {
        self.peer.is_coordinator()
    }

    fn carries_coordinator(message: &P::Message) -> bool {
        P::carries_coordinator(message)
    }

    fn parent(&self) -> Option<PeerId> {
        self.peer.parent()
    }

    fn slots(&self) -> Option<u32> {
        self.peer.slots()
    }

    fn arrival_of(&self, ticket: Ticket) -> Option<Arrival> {
        self.peer.arrival_of(ticket)
    }
}
