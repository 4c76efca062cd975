//! Participation in resources ([`Parts`](crate::parts::Parts)).

use peerlock_protocol::registry::{EventKind, RegistryEvent, RegistryRequest};
use peerlock_protocol::{self as protocol, Grant, custody};
use peerlock_registry::{Command, Outcome, Refusal, SessionId};
use peerlock_types::{Key, PeerId, Span, Ticket};

use super::session::label;
use super::{Alarm, Node};
use crate::Name;
use crate::mutation::{Mutation, makes};
use crate::parts::Part;
use crate::session_state::Ask;
use crate::wire::{Body, decode_body};

/// Resources to quit at a time: each is a log entry of the registry.
const MOST_GIVEN_UP: usize = 1000;
/// The delay before messages lost with a process cause another generation.
const RECOUNT: Span = Span::from_secs(2);

impl Node {
    pub(super) fn open_part(&mut self, name: &Name) {
        self.open_part_with(name, &[]);
    }

    pub(super) fn open_part_with(&mut self, name: &Name, inside: &[(Ticket, Grant)]) {
        let Some(session) = self.session_state.session() else { return };
        let me = self.session_of((session, self.host()));
        self.parts.open(me, name, inside, self.now);
    }

    /// Only a resource that we have asked to join accepts messages: others are for an earlier session of this host.
    pub(super) fn on_part_message(&mut self, from: PeerId, resource: Key, message: custody::Message) {
        if !self.parts.has_room(from, &message) {
            self.unexpected("more items than are stored for one host");
            // The link has acknowledged it, so only another census asks again.
            return self.recount_later(resource, message.generation, from);
        }
        if !self.parts.contains(resource) && self.takeover.buffer_message(from, resource, &message) {
            return;
        }
        // The coordinator asks us if the registry has not applied our `Quit`; or we are to coordinate, and learn it
        // later than parties that have joined since.
        if self.parts.was_given_up_in(resource, message.generation) && !makes(Mutation::SilentOnceGivenUp) {
            self.open_given_up(resource);
        }
        let slot = match &message.body {
            custody::Body::Next { slot, .. } => Some(*slot),
            custody::Body::Token { token, .. } => Some(token.slot),
            _ => None,
        };
        self.part_step(resource, protocol::Input::Message { from, message });
        slot.into_iter().for_each(|slot| self.reach_next(resource, slot));
    }

    fn open_given_up(&mut self, resource: Key) {
        if let Some(name) = self.parts.given_up(resource).map(|given_up| given_up.name.clone()) {
            self.open_part(&name);
        }
    }

    /// Quits unused resources and forgets those that were given up. The next request joins again.
    pub(super) fn give_up_unused(&mut self) {
        let nothing = self.parts.iter().filter(|(_, part)| part.custody.is_nothing()).map(|(resource, _)| *resource);
        for resource in nothing.collect::<Vec<_>>() {
            self.forget_part(resource);
        }
        let is_unused = |(resource, part): &(&Key, &Part)| {
            self.now.since(part.used) >= self.config.unused && !self.clients.has_any(**resource)
        };
        let unused: Vec<Key> = self.parts.iter().filter(is_unused).map(|(it, _)| *it).take(MOST_GIVEN_UP).collect();
        for resource in unused {
            self.part_step(resource, protocol::Input::Forget);
        }
        self.parts.forget_long_given_up(self.now);
        self.clients.forget(|resource| !self.parts.contains(resource));
    }

    fn forget_part(&mut self, resource: Key) {
        if self.clients.has_any(resource) {
            return;
        }
        if self.parts.give_up(resource, self.now) {
            self.timers.cancel(&Alarm::Part(resource, custody::Timer::Update));
        }
    }

    /// The registry has applied our `Quit`, or refused it as another generation was opened.
    pub(super) fn on_quit(&mut self, resource: Key, session: SessionId, quit: u64, outcome: &Outcome) {
        let generation = match outcome {
            Outcome::Advanced(opening) => opening.generation,
            Outcome::Refused(Refusal::OldGeneration) => quit + 1,
            _ => quit,
        };
        let to = self.session_of((session, self.host()));
        self.part_step(
            resource,
            protocol::Input::RegistryEvent(RegistryEvent { to, generation, kind: EventKind::Left { quit } }),
        );
        if self.parts.get(resource).is_some_and(|part| part.custody.is_nothing()) {
            self.forget_part(resource);
        }
    }

    pub(super) fn part_step(&mut self, resource: Key, input: protocol::Input<custody::Message, custody::Timer>) {
        let is_force = matches!(input, protocol::Input::RegistryEvent(RegistryEvent { kind: EventKind::Expelled, .. }));
        if is_force && makes(Mutation::ForceUnheard) {
            return;
        }
        let effects = self.parts.step(resource, input, self.host(), self.now, &mut self.rng);
        effects.into_iter().for_each(|effect| self.carry_out(resource, effect));
        self.probe_soon(resource);
    }

    fn carry_out(&mut self, resource: Key, effect: protocol::Effect<custody::Message, custody::Timer>) {
        match effect {
            protocol::Effect::Send { to, message } => self.send_body(to, &Body::Part { resource, message }),
            protocol::Effect::Grant { ticket, grant } => self.on_granted(resource, ticket, grant),
            protocol::Effect::Lost { ticket } => self.on_revoked(ticket),
            protocol::Effect::SetTimer { timer, after } => {
                self.timers.set(Alarm::Part(resource, timer), self.now + after);
            }
            protocol::Effect::CancelTimer { timer } => self.timers.cancel(&Alarm::Part(resource, timer)),
            protocol::Effect::RegistryRequest(registry_request) => self.registry_request(resource, registry_request),
            protocol::Effect::Unexpected { why } => self.unexpected(why),
            protocol::Effect::Refused { .. } | protocol::Effect::Route { .. } | protocol::Effect::Forward { .. } => {
                unreachable!("custody neither refuses nor routes")
            }
        }
    }

    fn registry_request(&mut self, key: Key, registry_request: RegistryRequest) {
        let (Some(session), Some(part)) = (self.session_state.session(), self.parts.get(key)) else { return };
        let resource = label(&part.name);
        let (command, ask) = match registry_request {
            RegistryRequest::Join => {
                let wanted = self.clients.waiting(key).find_map(|(_, entry)| entry.wanted.slots);
                let slots = wanted.unwrap_or(1);
                (Command::Join { session, resource, slots }, Ask::Join(key, session))
            }
            RegistryRequest::Close { generation, remaining } => {
                let remaining = remaining.into_iter().map(|party| SessionId::new(party.number)).collect();
                (Command::Close { session, resource, generation, remaining }, Ask::Inform)
            }
            RegistryRequest::Renumber { generation } => (Command::Renumber { resource, generation }, Ask::Inform),
            RegistryRequest::Quit { generation } => {
                (Command::Quit { session, resource, generation }, Ask::Quit(key, session, generation))
            }
        };
        self.session_state.ask(command, ask, self.now);
    }

    /// One of the lost messages may have contained a token, so the resource is counted again: at once if the process
    /// continues without them; otherwise the end of its session causes that, unless it had left in good order. A lost
    /// `Census` is sent again to the next process, whose session it may name.
    pub(super) fn on_messages_lost(&mut self, host: PeerId, bodies: Vec<Vec<u8>>, goes_on: bool) {
        let mut lost = std::collections::BTreeMap::new();
        for body in bodies {
            if let Ok(Body::Part { resource, message }) = decode_body(&body) {
                if matches!(message.body, custody::Body::Census { .. }) && !goes_on {
                    self.send_body(host, &Body::Part { resource, message: message.clone() });
                }
                let latest = lost.entry(resource).or_insert(0);
                *latest = message.generation.max(*latest);
            }
        }
        for (resource, generation) in lost {
            match goes_on {
                true => self.recount(resource, generation),
                false => self.recount_later(resource, generation, host),
            }
        }
    }

    /// Until the session of an ended process expires, a census would wait for it, and its end opens a generation
    /// anyway. For refused messages, one census covers all of them.
    fn recount_later(&mut self, resource: Key, generation: u64, host: PeerId) {
        self.timers.set_if_none(Alarm::Recount(resource, generation, host), self.now + RECOUNT);
        self.look_soon();
    }

    pub(super) fn on_recount_alarm(&mut self, resource: Key, generation: u64, host: PeerId) {
        match self.cached_view.sessions_of(host).count() {
            // At most the current process's session is left.
            0 | 1 => self.recount(resource, generation),
            _ => self.recount_later(resource, generation, host),
        }
    }

    pub(super) fn recount(&mut self, resource: Key, generation: u64) {
        self.open_given_up(resource);
        let is_of = |part: &Part| part.custody.generation() <= generation;
        if self.parts.get(resource).is_some_and(is_of) {
            self.registry_request(resource, RegistryRequest::Renumber { generation });
        }
    }
}
