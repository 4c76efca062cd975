//! Our parts in resources, one for each under the session that stands.

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

/// At most so many parts are given up at a time: each is an entry of the register.
const MOST_GIVEN_UP: usize = 1000;
/// How soon we look whether what was lost with a process has been counted since.
const RECOUNT: Span = Span::from_secs(2);

impl Node {
    /// Our part in a resource, which begins now if there is none and a session stands.
    pub(super) fn open_part(&mut self, name: &Name) {
        self.open_part_with(name, &[]);
    }

    /// The same where clients of an earlier process are inside.
    pub(super) fn open_part_with(&mut self, name: &Name, inside: &[(Ticket, Grant)]) {
        let Some(session) = self.session_state.session() else { return };
        let me = self.session_of((session, self.host()));
        self.parts.open(me, name, inside, self.now);
    }

    /// A message of another's part. Only who has asked to take part is meant by any of these: others are for an earlier
    /// session of this host, which has nothing any more.
    pub(super) fn on_part_message(&mut self, from: PeerId, resource: Key, message: custody::Message) {
        if !self.parts.has_room(from, &message) {
            self.unexpected("more than is kept of one host");
            // The link has confirmed it, so the sender does not repeat it: only a count asks again.
            return self.recount_later(resource, message.generation, from);
        }
        if !self.parts.contains(resource) && self.takeover.buffer_message(from, resource, &message) {
            return;
        }
        // Who counts asks for what we have given up, too, if the register has not heard of that in time; and we may be
        // the one who is to count, and hear of it later than those who have joined since.
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

    /// Our part in a resource begins again, if we have given it up in this session.
    fn open_given_up(&mut self, resource: Key) {
        if let Some(name) = self.parts.given_up(resource).map(|given_up| given_up.name.clone()) {
            self.open_part(&name);
        }
    }

    /// Gives up what nobody uses, and forgets what was given up: the register keeps the name, its slots and its
    /// numbers, and who asks again joins again.
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

    /// Nothing is kept of our part but its memory, if it is nothing.
    fn forget_part(&mut self, resource: Key) {
        if self.clients.has_any(resource) {
            return;
        }
        if self.parts.give_up(resource, self.now) {
            self.timers.cancel(&Alarm::Part(resource, custody::Timer::Update));
        }
    }

    /// The register has heard that we have given up our part; or there was another generation before it did.
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

    /// Hands one input to our part in a resource, if we have one, and does what it wants done.
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

    /// Messages to a host are lost, and a token could be among them. Where a session ends with that, everything is
    /// counted anew. If none does nobody else would notice: who was meant goes on without them, or had left in good
    /// order before, and the next process on its host was meant.
    ///
    /// The question of a count is put again to the next process: it names a session, which may be that one's, opened
    /// before it was met. Any other session is silent.
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

    /// Asks for a new count after a while, unless there is one before. Either the process that messages were meant for
    /// has ended: as long as its session is valid a count would wait for that, and its end is followed by one. Or a
    /// message of the host was refused, and there is one count for all that are refused meanwhile.
    fn recount_later(&mut self, resource: Key, generation: u64, host: PeerId) {
        self.timers.set_if_none(Alarm::Recount(resource, generation, host), self.now + RECOUNT);
        self.look_soon();
    }

    pub(super) fn on_recount_alarm(&mut self, resource: Key, generation: u64, host: PeerId) {
        match self.cached_view.sessions_of(host).count() {
            // That of the process that is there now, if it has one.
            0 | 1 => self.recount(resource, generation),
            _ => self.recount_later(resource, generation, host),
        }
    }

    pub(super) fn recount(&mut self, resource: Key, generation: u64) {
        // It may be our answer that is lost.
        self.open_given_up(resource);
        let is_of = |part: &Part| part.custody.generation() <= generation;
        if self.parts.get(resource).is_some_and(is_of) {
            self.registry_request(resource, RegistryRequest::Renumber { generation });
        }
    }
}
