//! Our participation in resources, under the valid session; and the memory of those given up under it.

use std::collections::BTreeMap;
use std::collections::btree_map::Iter;
use std::mem::take;

use peerlock_protocol::registry::Session;
use peerlock_protocol::{self as protocol, Custody, Cx, Effect, Grant, Input, custody};
use peerlock_types::{Key, PeerId, Rng, Span, Ticket, Time};

use crate::Name;
use crate::mutation::without;

pub struct Part {
    pub name: Name,
    pub custody: Custody,
    /// When it began, or learned of the current generation.
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

/// Our choice: far longer than messages take, or than a coordinator asks a party that the registry has not removed yet.
const REMEMBERED: Span = Span::from_secs(3600);

pub struct Parts {
    ration: usize,
    parts: BTreeMap<Key, Part>,
    given_up: BTreeMap<Key, GivenUp>,
    /// Estimated numbers of items stored for each host.
    rations: BTreeMap<PeerId, usize>,
}

impl Parts {
    pub fn new(ration: usize) -> Self {
        Self { ration, parts: BTreeMap::new(), given_up: BTreeMap::new(), rations: BTreeMap::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
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

    pub fn open(&mut self, me: Session, name: &Name, inside: &[(Ticket, Grant)], now: Time) {
        self.parts.entry(name.key()).or_insert_with(|| {
            let config = custody::Config { without: without(), ..custody::Config::default() };
            // Its earlier state in this session is void.
            let custody = match self.given_up.remove(&name.key()) {
                Some(before) if inside.is_empty() => Custody::returning(me, config, before.memory),
                Some(_) | None => Custody::taking_over(me, config, inside),
            };
            Part { name: name.clone(), custody, opened: now, recoveries: 0, used: now }
        });
    }

    pub fn step(
        &mut self,
        resource: Key,
        input: Input<custody::Message, custody::Timer>,
        me: PeerId,
        now: Time,
        rng: &mut Rng,
    ) -> Vec<Effect<custody::Message, custody::Timer>> {
        let mut effects = Vec::new();
        let Some(part) = self.parts.get_mut(&resource) else { return effects };
        let generation = part.custody.generation();
        protocol::step(&mut part.custody, input, &mut Cx::new(me, now, rng, &mut effects));
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

    /// Forgets memories older than any message in flight.
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

    /// The session is over: drops all parts. Returns their resources.
    pub fn end(&mut self) -> Vec<Key> {
        take(&mut self.parts).into_keys().collect()
    }

    /// Messages to the session that has ended are void.
    pub fn forget_given_up(&mut self) {
        self.given_up.clear();
    }

    /// Only messages that accumulate are refused: a census or a slot waits for replies and tokens, which are bounded
    /// (one per session asked, and per slot). Stored items are counted only when the estimate exceeds the limit.
    pub fn has_room(&mut self, from: PeerId, message: &custody::Message) -> bool {
        let said = self.rations.entry(from).or_default();
        *said += 1 + match &message.body {
            custody::Body::Answer(answer) => answer.tokens.len() + answer.waiting.len(),
            custody::Body::Next { following, .. } | custody::Body::Token { following, .. } => following.claims.len(),
            _ => 0,
        };
        if *said > self.ration {
            *said = self.parts.values().map(|part| part.custody.retained(Some(from))).sum();
        }
        let accumulates = matches!(
            message.body,
            custody::Body::Update(_) | custody::Body::Dropped { .. } | custody::Body::Next { .. }
        );
        *said <= self.ration || !accumulates
    }

    pub fn retain_rations(&mut self, is_there: impl Fn(PeerId) -> bool) {
        self.rations.retain(|host, _| is_there(*host));
    }

    pub fn check(&self) {
        for (resource, part) in &self.parts {
            assert_eq!(part.name.key(), *resource, "the part of {} is under another name", part.name);
            assert!(!self.given_up.contains_key(resource), "the part of {} is both present and given up", part.name);
        }
    }

    #[cfg(any(test, feature = "fuzz"))]
    pub fn retained(&self) -> usize {
        self.parts.values().map(|part| 1 + part.custody.retained(None)).sum::<usize>() + self.rations.len()
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
                let input = Input::Message { from: claim.peer, message };
                parts.step(a, input, coordinator.peer, Time::ZERO, &mut Rng::new(0));
            }
            has_room
        });
        // One request gets the slot, and items are not counted at every message.
        assert!((3..10).contains(&accepted.count()));
    }
}
