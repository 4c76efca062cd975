//! Deletion of unused resources.

use peerlock_registry::{Label, Outcome, Page, PartyView, ResourceView, SessionId};
use peerlock_types::Span;

use super::super::*;
use super::world::{World, wanted};
use crate::verb::{Evict, Remove};
use crate::{Class, Name, Refusal, Wanted};

const SECOND: Span = Span::from_secs(1);

impl World {
    /// Returns the answer within a second, if any.
    fn remove(&mut self, at: u64, name: &str) -> Option<Result<Answer, Error>> {
        self.machines.get_mut(&at).expect("it is there").received.clear();
        self.input(at, Input::call(9, Remove { name: name.parse().expect("a name") }));
        self.run(SECOND);
        self.answer(at).cloned()
    }

    fn pass_through(&mut self, number: u64, wanted: Wanted) -> u64 {
        let ticket = self.acquire(number, wanted);
        self.run(SECOND);
        let fencing = self.fencing(number, ticket).unwrap_or_else(|| panic!("{number} is not granted a slot"));
        self.input(number, Input::Release { call: None, ticket });
        self.run(SECOND);
        fencing
    }

    fn generation(&self, name: &str) -> Option<u64> {
        let registry = self.machines.values().find_map(|machine| machine.node.as_ref()?.registry()).expect("a voter");
        let mut all = registry.state().resources().iter();
        all.find(|(it, _)| it.as_str() == name).map(|(_, resource)| resource.generation())
    }
}

fn used(host: &str) -> Option<Result<Answer, Error>> {
    Some(Err(Error::InUse { name: "r".parse().expect("a name"), host: host.into(), forced: false }))
}

#[test]
fn recreated_resource_has_higher_fencing_numbers() {
    for users in [&[1][..], &[2], &[1, 2], &[2, 3, 4], &[4, 3, 2, 1]] {
        for at in [1, 2, 5] {
            let mut world = World::of(5);
            let before = users.iter().map(|user| world.pass_through(*user, wanted("r"))).max().expect("somebody");
            assert_eq!(world.remove(at, "r"), Some(Ok(Answer::Done)), "{users:?} {at}");
            assert_eq!(world.generation("r"), None);
            world.run(SECOND * 20);
            assert!((1..=5).all(|number| world.node(number).resources().is_empty()), "no host lists it");
            let fencing = world.pass_through(3, Wanted { slots: Some(7), ..wanted("r") });
            assert!(fencing > before, "{users:?} {at}: {fencing} after {before}");
            // Hosts that had quit, and hosts that never knew it.
            let mut last = fencing;
            for user in 1..=5 {
                let fencing = world.pass_through(user, wanted("r"));
                assert!(fencing > before, "{fencing} after {before}");
                last = last.max(fencing);
            }
            assert_eq!(world.remove(at, "r"), Some(Ok(Answer::Done)));
            assert!(world.pass_through(2, wanted("r")) > last);
        }
    }
}

#[test]
fn used_resource_is_neither_removed_nor_disturbed() {
    let mut world = World::of(4);
    let first = world.acquire(2, wanted("r"));
    world.run(SECOND);
    let second = world.acquire(3, wanted("r"));
    let third = world.acquire(4, wanted("r"));
    world.run(SECOND);
    world.input(4, Input::Release { call: None, ticket: third });
    let generation = world.generation("r");
    assert!(world.remove(1, "r").is_some_and(|answer| answer.is_err_and(|why| why.class() == Class::NotAcquired)));
    assert!(world.remove(2, "r").is_some_and(|answer| answer.is_err()));
    assert_eq!(world.generation("r"), generation);
    world.input(2, Input::Release { call: None, ticket: first });
    world.run(SECOND);
    assert!(world.fencing(3, second).is_some());
    assert_eq!(world.remove(4, "r"), used("host3"));
    assert_eq!(world.generation("r"), generation);
    world.input(3, Input::Release { call: None, ticket: second });
    assert_eq!(world.remove(4, "r"), Some(Ok(Answer::Done)));
    let no_such = Err(Error::NoSuchResource { name: "r".parse().expect("a name") });
    assert_eq!(world.remove(4, "r"), Some(no_such));
}

#[test]
fn detached_grant_of_a_dead_host_prevents_removal() {
    let mut world = World::of(3);
    let detached = Wanted { detached: Some("note".into()), auto_renew: false, ttl: Span::from_secs(60), ..wanted("r") };
    let holder = world.acquire(3, detached);
    let before = world.fencing(3, holder).expect("it was free");
    world.kill(3);
    world.run(Span::from_secs(20));
    assert_eq!(world.remove(2, "r"), used("host3"));
    world.run(Span::from_secs(60));
    assert_eq!(world.remove(2, "r"), Some(Ok(Answer::Done)));
    assert!(world.pass_through(1, wanted("r")) > before);
}

#[test]
fn removal_names_a_silent_party() {
    let mut world = World::of(4);
    world.pass_through(4, wanted("r"));
    world.kill(4);
    assert_eq!(world.remove(2, "r"), None, "its session is valid");
    world.run(SECOND * 5);
    let Some(Err(Error::Recovering { missing, .. })) = world.answer(2) else { panic!("{:?}", world.answer(2)) };
    assert_eq!(missing.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["host4"]);
    world.run(SECOND * 20);
    assert_eq!(world.remove(2, "r"), Some(Ok(Answer::Done)));
}

/// Only its own agent knows that it was notified.
#[test]
fn evicted_session_prevents_removal() {
    let mut world = World::of(3);
    let holder = world.acquire(3, wanted("r"));
    let before = world.fencing(3, holder).expect("it was free");
    world.input(1, Input::call(1, Evict { name: "r".parse().expect("a name"), peer: PeerId::new(3) }));
    world.run(SECOND);
    assert!(world.ended(3, holder).is_some());
    let Some(Err(error @ Error::InUse { forced: true, .. })) = world.remove(2, "r") else { panic!("it is removed") };
    assert!(error.to_string().contains("evicted"), "{error}");
    // It uses the resource again, and quits for the deletion.
    assert!(world.pass_through(3, wanted("r")) > before);
    assert_eq!(world.remove(2, "r"), Some(Ok(Answer::Done)));
    assert!(world.pass_through(3, wanted("r")) > before);
}

#[test]
fn request_during_removal_is_granted() {
    for step in 0..40 {
        let mut world = World::of(3);
        let before = [2, 3].map(|user| world.pass_through(user, wanted("r")));
        world.step(1, Input::call(9, Remove { name: "r".parse().expect("a name") }));
        for _ in 0..step {
            let Some((to, input)) = world.queue.pop_front() else {
                world.run(Span::from_millis(100));
                continue;
            };
            world.step(to, input);
        }
        let asks = [1, 2, 3].map(|user| (user, world.acquire(user, wanted("r"))));
        for _ in 0..3 {
            world.run(SECOND * 3);
            let inside = asks.iter().find(|(user, ticket)| world.fencing(*user, *ticket).is_some());
            let &(user, ticket) = inside.unwrap_or_else(|| panic!("no slot is granted after {step} steps"));
            assert!(world.fencing(user, ticket) > before.into_iter().max());
            world.input(user, Input::Release { call: None, ticket });
        }
        assert_eq!(world.remove(1, "r"), Some(Ok(Answer::Done)), "after {step} steps");
    }
}

#[test]
fn requester_killed_during_removal_does_no_harm() {
    for step in 0..30 {
        let mut world = World::of(4);
        let before = [2, 3].map(|user| world.pass_through(user, wanted("r")));
        world.step(4, Input::call(9, Remove { name: "r".parse().expect("a name") }));
        for _ in 0..step {
            let Some((to, input)) = world.queue.pop_front() else {
                world.run(Span::from_millis(100));
                continue;
            };
            world.step(to, input);
        }
        world.kill(4);
        world.run(SECOND);
        assert!([1, 2, 3].into_iter().all(|user| world.pass_through(user, wanted("r")) > before[1]), "{step}");
    }
}

/// The registry is full. Late messages about the deleted resource must stay void.
#[test]
fn memory_of_a_removed_resource_survives_a_refused_join() {
    let mut world = World::of(3);
    let name: Name = "r".parse().expect("a name");
    world.pass_through(2, wanted("r"));
    assert_eq!(world.remove(1, "r"), Some(Ok(Answer::Done)));
    let memory = world.node(2).parts.given_up(name.key()).expect("it was a party").memory;
    world.disconnect(2);
    world.acquire(2, wanted("r"));
    let node = world.machines.get_mut(&2).and_then(|machine| machine.node.as_mut()).expect("it runs");
    let session = node.session_state.session().expect("it has not ended yet");
    let other = "other".parse::<Name>().expect("a name").key();
    for resource in [name.key(), other] {
        node.on_joined(resource, session, Outcome::Refused(Refusal::Full));
    }
    assert!(!node.clients.has_any(name.key()), "its request is refused");
    assert_eq!(node.parts.given_up(name.key()).map(|it| it.memory), Some(memory));
    assert!(node.parts.given_up(other).is_none());
}

/// A voter that is behind does not know the resource.
#[test]
fn lagging_voter_does_not_confirm_a_removal() {
    let mut world = World::of(2);
    world.pass_through(2, wanted("r"));
    world.frozen.insert(1);
    world.step(2, Input::call(9, Remove { name: "r".parse().expect("a name") }));
    let node = world.machines.get_mut(&2).and_then(|it| it.node.as_mut()).expect("it runs");
    let (session, host) = (SessionId::new(2), PeerId::new(2));
    let parties = vec![PartyView { session, host, since: 1 }];
    let (name, coordinator) = (Label::new("r").expect("a label"), Some((session, host)));
    let found =
        ResourceView { name, slots: 1, generation: 1, closed: true, coordinator, parties, detached: Vec::new() };
    node.on_remove_found(9, Page { index: 100, resources: vec![found], more: false });
    for (index, is_removed) in [(99, false), (100, true)] {
        node.on_remove_found(9, Page { index, resources: Vec::new(), more: false });
        let removed = |effect: &Effect| matches!(effect, Effect::Answer { answer: Ok(Answer::Done), .. });
        assert_eq!(node.effects.iter().any(removed), is_removed, "{index}");
    }
}
