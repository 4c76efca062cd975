//! Participation in resources, and their recovery.
//!
//! 1. The registry opens a generation when a party's session ends or the resource is resized: `EventKind::Opened` to
//!    its coordinator.
//! 2. The coordinator sends `Census` to every party, which replies with its tokens and waiters.
//! 3. When all have replied, it recreates missing tokens, sends `Command::Close` to the registry and `Next` to the
//!    holders.
//! 4. Messages that are lost with a link may have contained a token: `Command::Renumber` requests another generation,
//!    unless the end of a session opens one.
//! 5. A resource that is not used for a while is quit: `Command::Quit`. A census of it still gets a reply.

use std::collections::BTreeMap;
use std::collections::btree_map::Iter;

use peerlock_protocol::registry::{EventKind, RegistryEvent, RegistryRequest, Session};
use peerlock_protocol::{self as protocol, Custody, Cx, Grant, custody};
use peerlock_registry::{Command, Outcome, Refusal, SessionId};
use peerlock_types::{Key, PeerId, Rng, Span, Ticket, Time};

use crate::Name;
use crate::node::{Alarm, Node};
use crate::session::label;
use crate::session_state::Ask;
use crate::testing::mutation::{Mutation, makes, without};
use crate::wire::{Body, decode_body};

const MOST_GIVEN_UP: usize = 1000;
/// The delay before messages lost with a process cause another generation.
const RECOUNT: Span = Span::from_secs(2);

pub struct Part {
    pub name: Name,
    pub custody: Custody,
    /// Its start, or that of the current generation.
    pub opened: Time,
    /// Generations after the first.
    pub recoveries: u64,
    pub used: Time,
}

#[derive(Clone, Debug, PartialEq)]
pub struct GivenUp {
    pub name: Name,
    pub memory: custody::Memory,
    at: Time,
}

/// Our choice: far longer than a coordinator asks a party that the registry has not removed yet.
const REMEMBERED: Span = Span::from_secs(3600);

pub struct Parts {
    ration: usize,
    pub(crate) parts: BTreeMap<Key, Part>,
    pub(crate) given_up: BTreeMap<Key, GivenUp>,
    pub(crate) rations: BTreeMap<PeerId, usize>,
}

impl Parts {
    pub fn new(ration: usize) -> Self {
        Self { ration, parts: BTreeMap::new(), given_up: BTreeMap::new(), rations: BTreeMap::new() }
    }

    pub fn contains(&self, resource: Key) -> bool {
        self.parts.contains_key(&resource)
    }

    pub fn get(&self, resource: Key) -> Option<&Part> {
        self.parts.get(&resource)
    }

    pub fn iter(&self) -> Iter<'_, Key, Part> {
        self.parts.iter()
    }

    pub fn open(&mut self, me: Session, name: &Name, taken_over: &[(Ticket, Grant)], now: Time) {
        self.parts.entry(name.key()).or_insert_with(|| {
            let config = custody::Config { without: without(), ..custody::Config::default() };
            // Its earlier state in this session is void.
            let custody = match self.given_up.remove(&name.key()) {
                Some(before) if taken_over.is_empty() => Custody::returning(me, config, before.memory),
                Some(_) | None => Custody::taking_over(me, config, taken_over),
            };
            Part { name: name.clone(), custody, opened: now, recoveries: 0, used: now }
        });
    }

    pub fn apply(
        &mut self,
        resource: Key,
        action: impl FnOnce(&mut Custody, &mut Cx<'_, Custody>),
        me: PeerId,
        now: Time,
        rng: &mut Rng,
    ) -> Vec<protocol::Effect<custody::Message, custody::Timer>> {
        let mut effects = Vec::new();
        let Some(part) = self.parts.get_mut(&resource) else { return effects };
        let generation = part.custody.generation();
        action(&mut part.custody, &mut Cx::new(me, now, rng, &mut effects));
        part.used = now;
        if part.custody.generation() > generation {
            part.opened = now;
            part.recoveries += u64::from(generation > 0);
        }
        effects
    }

    pub fn give_up(&mut self, resource: Key, now: Time) -> bool {
        let part = self.parts.remove(&resource);
        let is_there = part.is_some();
        self.remember(resource, part, now);
        is_there
    }

    fn remember(&mut self, resource: Key, part: Option<Part>, at: Time) {
        let given_up = part.map(|part| GivenUp { memory: part.custody.memory(), name: part.name, at });
        self.given_up.extend(given_up.map(|given_up| (resource, given_up)));
    }

    pub fn forget_long_given_up(&mut self, now: Time) {
        self.given_up.retain(|_, given_up| now.since(given_up.at) < REMEMBERED);
    }

    /// The registry has no such resource. Messages of generations that we have seen stay void.
    pub fn on_no_such_name(&mut self, resource: Key, now: Time) {
        let part = self.parts.remove(&resource).filter(|part| !part.custody.memory().is_empty());
        self.remember(resource, part, now);
    }

    pub fn given_up(&self, resource: Key) -> Option<&GivenUp> {
        self.given_up.get(&resource)
    }

    /// Returns whether the coordinator of this generation may ask for a part that was given up.
    pub fn was_given_up_in(&self, resource: Key, generation: u64) -> bool {
        self.given_up.get(&resource).is_some_and(|given_up| given_up.memory.counts(generation))
    }

    /// Returns whether a message is accepted. Only those that accumulate are refused: replies and tokens are bounded,
    /// and a census or a slot waits for them. Items are counted only when the estimate exceeds the limit.
    pub fn has_room(&mut self, from: PeerId, message: &custody::Message) -> bool {
        let estimate = self.rations.entry(from).or_default();
        *estimate += 1 + match &message.body {
            custody::Body::Answer(answer) => answer.tokens.len() + answer.waiting.len(),
            custody::Body::Next { following, .. } | custody::Body::Token { following, .. } => following.claims.len(),
            _ => 0,
        };
        if *estimate > self.ration {
            *estimate = self.parts.values().map(|part| part.custody.retained(Some(from))).sum();
        }
        let accumulates = matches!(
            message.body,
            custody::Body::Update(_) | custody::Body::Dropped { .. } | custody::Body::Next { .. }
        );
        *estimate <= self.ration || !accumulates
    }

    pub fn check(&self) {
        for (resource, part) in &self.parts {
            assert_eq!(part.name.key(), *resource, "the part of {} is under another name", part.name);
            assert!(!self.given_up.contains_key(resource), "the part of {} is both present and given up", part.name);
        }
    }
}

impl Node {
    pub(crate) fn open_part(&mut self, name: &Name) {
        self.open_part_with(name, &[]);
    }

    pub(crate) fn open_part_with(&mut self, name: &Name, taken_over: &[(Ticket, Grant)]) {
        let Some(session) = self.session_state.session() else { return };
        let me = self.own(session);
        self.parts.open(me, name, taken_over, self.now);
    }

    /// Only a resource that we have asked to join accepts messages: others are for an earlier session.
    pub(crate) fn on_part_message(&mut self, from: PeerId, resource: Key, message: custody::Message) {
        if !self.parts.has_room(from, &message) {
            self.unexpected("more items than are stored for one host");
            // The link has acknowledged it, so only another census asks again.
            return self.recount_later(resource, message.generation, from);
        }
        if !self.parts.contains(resource) && self.takeover.buffer_message(from, resource, &message) {
            return;
        }
        // The registry may not have applied our `Quit`; or we are to coordinate, and learn it later than parties that
        // have joined since.
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

    pub(crate) fn part_step(&mut self, resource: Key, input: protocol::Input<custody::Message, custody::Timer>) {
        let is_force = matches!(input, protocol::Input::RegistryEvent(RegistryEvent { kind: EventKind::Evicted, .. }));
        if is_force && makes(Mutation::ForceUnheard) {
            return;
        }
        let has_arrivals = matches!(
            input,
            protocol::Input::Timer(custody::Timer::Update)
                | protocol::Input::Message { message: custody::Message { body: custody::Body::Arrivals(_), .. }, .. }
        );
        self.part_apply(resource, |custody, cx| protocol::step(custody, input, cx));
        if has_arrivals {
            self.on_arrivals(resource);
        }
    }

    pub(crate) fn part_apply(&mut self, resource: Key, action: impl FnOnce(&mut Custody, &mut Cx<'_, Custody>)) {
        let effects = self.parts.apply(resource, action, self.host(), self.now, &mut self.rng);
        effects.into_iter().for_each(|effect| self.carry_out(resource, effect));
        self.probe_soon(resource);
    }

    fn carry_out(&mut self, resource: Key, effect: protocol::Effect<custody::Message, custody::Timer>) {
        match effect {
            protocol::Effect::Send { to, message } => self.send_reliable(to, &Body::Part { resource, message }),
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

    /// Counts resources again whose lost messages may have contained a token: at once if the process continues,
    /// otherwise after a while, since the end of its session usually causes that. A lost `Census` is sent again to the
    /// next process, whose session it may name.
    pub(crate) fn on_messages_lost(&mut self, host: PeerId, bodies: Vec<Vec<u8>>, goes_on: bool) {
        let mut lost = std::collections::BTreeMap::new();
        for body in bodies {
            if let Ok(Body::Part { resource, message }) = decode_body(&body) {
                if matches!(message.body, custody::Body::Census { .. }) && !goes_on {
                    self.send_reliable(host, &Body::Part { resource, message: message.clone() });
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

    /// Requests another generation after a while. Until the session of an ended process expires, a census would wait
    /// for it, and its end opens a generation anyway.
    fn recount_later(&mut self, resource: Key, generation: u64, host: PeerId) {
        self.timers.set_if_none(Alarm::Recount(resource, generation, host), self.now + RECOUNT);
        self.look_soon();
    }

    pub(crate) fn on_recount_alarm(&mut self, resource: Key, generation: u64, host: PeerId) {
        match self.cached_view.sessions_of(host).count() {
            // At most the current process's session is left.
            0 | 1 => self.recount(resource, generation),
            _ => self.recount_later(resource, generation, host),
        }
    }

    pub(crate) fn recount(&mut self, resource: Key, generation: u64) {
        self.open_given_up(resource);
        let is_of = |part: &Part| part.custody.generation() <= generation;
        if self.parts.get(resource).is_some_and(is_of) {
            self.registry_request(resource, RegistryRequest::Renumber { generation });
        }
    }

    /// Quits unused resources. The next request joins again.
    pub(crate) fn give_up_unused(&mut self) {
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

    /// The registry has applied our `Quit`, or opened another generation.
    pub(crate) fn on_quit(&mut self, resource: Key, session: SessionId, quit: u64, outcome: &Outcome) {
        let generation = match outcome {
            Outcome::Advanced(opening) => opening.generation,
            Outcome::Refused(Refusal::OldGeneration) => quit + 1,
            _ => quit,
        };
        let to = self.own(session);
        self.part_step(
            resource,
            protocol::Input::RegistryEvent(RegistryEvent { to, generation, kind: EventKind::Left { quit } }),
        );
        if self.parts.get(resource).is_some_and(|part| part.custody.is_nothing()) {
            self.forget_part(resource);
        }
    }
}

#[cfg(test)]
mod tests {
    use peerlock_protocol::token::{Claim, Token};

    use super::*;

    fn parts() -> (Parts, [Key; 2]) {
        let mut parts = Parts::new(3);
        let names: [Name; 2] = ["a", "b"].map(|name| name.parse().unwrap());
        names.iter().for_each(|name| parts.open(Session { peer: PeerId::new(1), number: 1 }, name, &[], Time::ZERO));
        parts.check();
        (parts, names.map(|name| name.key()))
    }

    #[test]
    #[should_panic(expected = "the part of b is both present and given up")]
    fn present_and_given_up_part_panics() {
        let (mut parts, [one, other]) = parts();
        assert!(parts.give_up(one, Time::ZERO));
        parts.check();
        let given_up = parts.given_up.remove(&one).unwrap();
        parts.given_up.insert(other, given_up);
        parts.check();
    }

    #[test]
    #[should_panic(expected = "the part of a is under another name")]
    fn part_under_another_name_panics() {
        let (mut parts, [one, other]) = parts();
        let part = parts.parts.remove(&one).unwrap();
        parts.parts.insert(other, part);
        parts.check();
    }

    #[test]
    fn parts_given_up_long_ago_are_forgotten() {
        let (mut parts, [one, other]) = parts();
        let at = |seconds| Time::ZERO + Span::from_secs(seconds);
        assert!(parts.give_up(one, at(0)) && parts.give_up(other, at(60)));
        parts.forget_long_given_up(at(3599));
        assert_eq!(parts.given_up.len(), 2);
        parts.forget_long_given_up(at(3600));
        assert!(parts.given_up(one).is_none() && parts.given_up(other).is_some());
    }

    #[test]
    fn answers_and_tokens_above_the_ration_are_accepted() {
        let (mut parts, _) = parts();
        let mut has_room = |body| parts.has_room(PeerId::new(2), &custody::Message { generation: 1, body });
        let waiting = (0..9).map(|ticket| (Ticket::new(ticket), None)).collect();
        let session = Session { peer: PeerId::new(2), number: 1 };
        let answer = custody::Answer { session, tokens: Vec::new(), waiting };
        let (token, following) = (Token { slot: 0, fencing: 7 }, custody::Following::default());
        assert!(has_room(custody::Body::Answer(answer)));
        assert!(has_room(custody::Body::Token { to: Ticket::new(1), token, stay: 1, following }));
    }

    #[test]
    fn requests_above_the_ration_are_refused() {
        let (mut parts, [a, _]) = parts();
        let coordinator = Session { peer: PeerId::new(1), number: 1 };
        parts.parts.get_mut(&a).unwrap().custody =
            Custody::founded(coordinator, custody::Config::default(), coordinator.peer, 1);
        let accepted = (1..=30).filter(|ticket| {
            let claim = Claim { peer: PeerId::new(2), ticket: Ticket::new(*ticket) };
            let message =
                custody::Message { generation: 1, body: custody::Body::Update(custody::Update::Request(claim)) };
            let has_room = parts.has_room(claim.peer, &message);
            if has_room {
                let input = protocol::Input::Message { from: claim.peer, message };
                let step = |custody: &mut Custody, cx: &mut Cx<'_, _>| protocol::step(custody, input, cx);
                parts.apply(a, step, coordinator.peer, Time::ZERO, &mut Rng::new(0));
            }
            has_room
        });
        assert!((3..10).contains(&accepted.count()));
    }
}
