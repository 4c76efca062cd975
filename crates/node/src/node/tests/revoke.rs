//! Revocation and eviction.

use peerlock_registry::{Command, GrantView, Page, ResourceView, SessionId};
use peerlock_types::Span;

use super::super::*;
use super::world::{CLUSTER, World, wanted};
use crate::session::label;
use crate::session_state::Ask;
use crate::verb::{Evict, Resize, Revoke, SetVoters};
use crate::{Class, Name, Origin, Wanted};

fn revoke(world: &mut World, at: u64, host: u64, fencing: u64) {
    let (name, peer) = ("r".parse().unwrap(), PeerId::new(host));
    world.machines.get_mut(&at).unwrap().received.clear();
    world.input(at, Input::call(9, Revoke { name, peer: Some(peer), fencing }));
}

fn detached(note: &str) -> Wanted {
    Wanted { detached: Some(note.into()), auto_renew: false, ttl: Span::from_secs(3600), ..wanted("r") }
}

fn name() -> Name {
    "r".parse().unwrap()
}

fn two_slots(note: &str) -> Wanted {
    Wanted { slots: Some(2), ..detached(note) }
}

/// Returns what the registry has of `r`, without its parties.
fn page(world: &World) -> Page {
    let state = world.node(1).session_state.registry().expect("it votes").state();
    let resource = &state.resources()[&label(&name())];
    let detached = resource.detached().iter().map(|(&fencing, grant)| GrantView {
        fencing,
        slot: grant.slot,
        host: grant.host,
        session: grant.session,
        ttl: grant.ttl,
        note: grant.note.clone(),
        run: grant.run,
        left: 0,
    });
    let found = ResourceView {
        name: label(&name()),
        slots: resource.slots(),
        generation: resource.generation(),
        closed: resource.is_closed(),
        coordinator: None,
        parties: Vec::new(),
        detached: detached.collect(),
    };
    Page { index: 1000, resources: vec![found], more: false }
}

/// Returns the session of host 2, and the generation since which it is a party of `r`.
fn party(world: &World) -> (SessionId, u64) {
    let state = world.node(1).session_state.registry().expect("it votes").state();
    let session = state.session_of(PeerId::new(2)).expect("it has a session").0;
    (session, state.resources()[&label(&name())].parties()[&session].since)
}

fn revoked() -> Error {
    Error::Revoked { name: "r".parse().unwrap(), forced: false }
}

#[test]
fn revoked_slot_is_handed_over_when_the_holder_stops() {
    for (asks, holds) in [(1, 2), (2, 2), (3, 1)] {
        let mut world = World::of(3);
        let holder = world.acquire(holds, wanted("r"));
        let waits = world.acquire(3, wanted("r"));
        let fencing = world.fencing(holds, holder).unwrap();
        revoke(&mut world, asks, holds, fencing);
        assert!(world.received(holds).contains(&Effect::Lost(holder, revoked())));
        world.run(Span::from_secs(1));
        assert_eq!(world.answer(asks), None, "it still holds the slot");
        assert_eq!(world.fencing(3, waits), None);
        world.input(holds, Input::Renew { call: 5, ticket: holder });
        assert_eq!(world.answer(holds), Some(&Err(revoked())));
        world.input(holds, Input::Release { call: None, ticket: holder });
        assert!(world.fencing(3, waits).is_some());
        world.run(Span::from_secs(1));
        assert_eq!(world.answer(asks), Some(&Ok(Answer::Done)));
        let sent = world.received(holds).iter().filter(|it| matches!(it, Effect::Lost(ticket, _) if *ticket == holder));
        assert_eq!(sent.count(), 1, "asked repeatedly, notified once");
    }
}

/// Otherwise the slot is reported free.
#[test]
fn restarted_host_does_not_confirm_a_revocation() {
    let mut world = World::of(5);
    let holder = world.acquire(5, detached("note"));
    let fencing = world.fencing(5, holder).unwrap();
    world.kill(5);
    // It finds only a host that does not vote, and gets no session.
    world.apart.extend([(1, 5), (2, 5), (3, 5)]);
    world.start(5, Origin::Belongs(CLUSTER), &[4]);
    assert!(world.node(5).session_state.session().is_none() && world.up.contains_key(&(4, 5)));
    revoke(&mut world, 4, 5, fencing);
    assert_eq!(world.answer(4), None);
}

#[test]
fn revoked_holder_keeps_its_slot_until_its_lease_ends() {
    let mut world = World::of(3);
    let holder = world.acquire(2, Wanted { ttl: Span::from_secs(3600), ..wanted("r") });
    let waits = world.acquire(3, wanted("r"));
    let (grant, until) = world.node(2).grant(holder).unwrap();
    revoke(&mut world, 1, 2, grant.fencing);
    world.run(Span::from_nanos(until.since(world.now).as_nanos() - 1));
    assert_eq!((world.fencing(3, waits), world.answer(1)), (None, None), "the session was renewed, the lease was not");
    world.run(Span::from_secs(1));
    assert!(world.fencing(3, waits).is_some());
    assert_eq!(world.answer(1), Some(&Ok(Answer::Done)));
}

#[test]
fn revoked_detached_grant_ends_at_once() {
    let mut world = World::of(3);
    let holder = world.acquire(2, detached("a"));
    let waits = world.acquire(1, wanted("r"));
    let fencing = world.fencing(2, holder).expect("it is detached by now");
    revoke(&mut world, 3, 2, fencing);
    assert_eq!(world.ended(2, holder), Some(&revoked()));
    assert!(world.fencing(1, waits).is_some());
    world.run(Span::from_millis(200));
    assert_eq!(world.answer(3), Some(&Ok(Answer::Done)));
}

#[test]
fn detached_grant_of_a_dead_host_can_be_revoked() {
    let mut world = World::of(3);
    let holder = world.acquire(2, detached("a"));
    let fencing = world.fencing(2, holder).unwrap();
    let waits = world.acquire(1, wanted("r"));
    world.kill(2);
    world.run(Span::from_secs(60));
    assert_eq!(world.fencing(1, waits), None, "it is valid");
    revoke(&mut world, 3, 2, fencing);
    world.run(Span::from_secs(9));
    assert_eq!(world.answer(3), Some(&Ok(Answer::Done)));
    assert!(world.fencing(1, waits).is_some());
}

#[test]
fn revocation_affects_no_other_grant() {
    let mut world = World::of(3);
    let (first, second) = (world.acquire(2, two_slots("a")), world.acquire(2, two_slots("b")));
    let (one, other) = (world.fencing(2, first).unwrap(), world.fencing(2, second).unwrap());
    let waits = world.acquire(1, wanted("r"));
    world.kill(2);
    world.run(Span::from_secs(60));
    revoke(&mut world, 3, 2, one);
    world.run(Span::from_secs(11));
    assert_eq!(world.answer(3), Some(&Ok(Answer::Done)));
    assert!(world.fencing(1, waits).is_some_and(|fencing| fencing != other));
    let left: Vec<u64> = page(&world).resources[0].detached.iter().map(|grant| grant.fencing).collect();
    assert_eq!(left, [other]);
}

/// The session has another client when the command is applied.
#[test]
fn plain_release_does_not_evict_a_session_that_joined_since() {
    let mut world = World::of(3);
    let first = world.acquire(2, two_slots("a"));
    let fencing = world.fencing(2, first).unwrap();
    world.kill(2);
    world.restart(2);
    world.run(Span::from_secs(5));
    let returned = world.received(2).iter().find_map(|effect| match effect {
        Effect::Returned { ticket, .. } => Some(*ticket),
        _ => None,
    });
    world.input(2, Input::Renew { call: 4, ticket: returned.expect("it is there again") });
    let found = page(&world);
    let second = world.acquire(2, Wanted { slots: Some(2), ..wanted("r") });
    world.run(Span::from_secs(1));
    assert!(world.fencing(2, second).is_some());
    world.frozen.insert(2);
    revoke(&mut world, 3, 2, fencing);
    world.machines.get_mut(&3).unwrap().node.as_mut().unwrap().on_revoke_found(9, found);
    world.run(Span::from_secs(1));
    assert_eq!(world.answer(3), Some(&Ok(Answer::Done)));
    world.frozen.clear();
    world.run(Span::from_secs(1));
    assert!(world.fencing(2, second).is_some() && !world.has_lost(2, second), "it was not revoked");
    assert!(page(&world).resources[0].detached.is_empty());
}

#[test]
fn plain_release_of_a_renewed_grant_is_not_reported_as_done() {
    let mut world = World::of(3);
    let holder = world.acquire(2, detached("a"));
    let fencing = world.fencing(2, holder).unwrap();
    let found = page(&world);
    world.kill(2);
    world.restart(2);
    world.run(Span::from_secs(5));
    let returned = world.received(2).iter().find_map(|effect| match effect {
        Effect::Returned { ticket, .. } => Some(*ticket),
        _ => None,
    });
    world.input(2, Input::Renew { call: 4, ticket: returned.expect("it is there again") });
    assert!(matches!(world.answer(2), Some(Ok(Answer::Renewed(_)))));
    world.frozen.insert(2);
    revoke(&mut world, 3, 2, fencing);
    world.machines.get_mut(&3).unwrap().node.as_mut().unwrap().on_revoke_found(9, found);
    world.run(Span::from_secs(1));
    let Some(Err(error)) = world.answer(3) else { panic!("{:?}", world.answer(3)) };
    assert!(error.class() == Class::Unavailable && error.to_string().contains("try again"), "{error}");
    assert_eq!(page(&world).resources[0].detached[0].fencing, fencing, "the renewal was confirmed");
}

/// The leader that received the first copy is gone, and the session has joined again.
#[test]
fn second_copy_of_a_forced_release_evicts_no_client() {
    let mut world = World::of(3);
    let first = world.acquire(2, wanted("r"));
    let (session, since) = party(&world);
    let copy = |world: &mut World| {
        world.machines.get_mut(&3).unwrap().received.clear();
        let now = world.now;
        let node = world.machines.get_mut(&3).unwrap().node.as_mut().unwrap();
        node.await_registry(9);
        node.session_state.ask(Command::Evict { resource: label(&name()), session, since }, Ask::Evict(9), now);
        world.run(Span::from_secs(1));
        assert_eq!(world.answer(3), Some(&Ok(Answer::Done)));
    };
    copy(&mut world);
    assert!(world.has_lost(2, first));
    let second = world.acquire(2, wanted("r"));
    world.run(Span::from_secs(1));
    assert!(world.fencing(2, second).is_some());
    copy(&mut world);
    assert!(world.fencing(2, second).is_some() && !world.has_lost(2, second));
}

#[test]
fn late_commands_of_an_administrator_are_reported() {
    let mut world = World::of(3);
    world.acquire(2, wanted("r"));
    world.run(Span::from_secs(1));
    world.input(1, Input::call(7, Resize { name: name(), slots: 2 }));
    world.input(1, Input::call(8, SetVoters { hosts: Some(vec![PeerId::new(1)]) }));
    world.run(Span::from_secs(1));
    let resize = Command::Resize { resource: label(&name()), slots: 3, generation: 1 };
    let locations = Command::SetVoters { hosts: None, after: 0 };
    for (command, ask) in [(resize, Ask::Resize(9, name())), (locations, Ask::SetVoters(9))] {
        world.machines.get_mut(&3).unwrap().received.clear();
        let now = world.now;
        let node = world.machines.get_mut(&3).unwrap().node.as_mut().unwrap();
        node.await_registry(9);
        node.session_state.ask(command, ask.clone(), now);
        world.run(Span::from_secs(3));
        let Some(Err(error)) = world.answer(3) else { panic!("{ask:?}: {:?}", world.answer(3)) };
        assert!(error.to_string().contains("another command has changed it"), "{error}");
    }
    let state = world.node(1).session_state.registry().unwrap().state();
    assert_eq!(state.resources()[&label(&name())].slots(), 2);
    assert!(state.chosen().is_some());
}

#[test]
fn revocation_names_an_unreachable_holder() {
    let mut world = World::of(3);
    let holder = world.acquire(2, wanted("r"));
    let fencing = world.fencing(2, holder).unwrap();
    world.frozen.insert(2);
    revoke(&mut world, 3, 2, fencing);
    world.run(Span::from_secs(4));
    assert_eq!(world.answer(3), None, "it may come back");
    world.run(Span::from_secs(7));
    let Some(Err(error)) = world.answer(3) else { panic!("{:?}", world.answer(3)) };
    assert!(error.class() == Class::Unavailable && error.to_string().contains("host2"), "{error}");
    assert_eq!(world.fencing(2, holder), Some(fencing));
    world.frozen.clear();
    world.split(&[3]);
    world.run(Span::from_secs(30));
    revoke(&mut world, 3, 2, fencing);
    world.run(Span::from_secs(11));
    assert!(matches!(world.answer(3), Some(Err(Error::NoMajority { .. }))), "{:?}", world.answer(3));
}

#[test]
fn lost_revocation_is_repeated() {
    let mut world = World::of(2);
    let holder = world.acquire(2, wanted("r"));
    let fencing = world.fencing(2, holder).unwrap();
    world.disconnect(2);
    let (name, peer) = ("r".parse().unwrap(), PeerId::new(2));
    world.step(1, Input::call(9, Revoke { name, peer: Some(peer), fencing }));
    world.run(Span::from_secs(1));
    assert!(world.has_lost(2, holder));
}

#[test]
fn revoking_an_unknown_grant_succeeds() {
    let mut world = World::of(2);
    let holder = world.acquire(2, wanted("r"));
    let fencing = world.fencing(2, holder).unwrap();
    revoke(&mut world, 1, 2, fencing + 1);
    assert_eq!(world.answer(1), Some(&Ok(Answer::Done)));
    assert_eq!(world.fencing(2, holder), Some(fencing), "the other grant is unaffected");
}

/// It may have expired in the registry, so its end is not reported as an eviction.
#[test]
fn evicted_returned_grant_reports_it_at_the_renewal() {
    let forced = Error::Revoked { name: "r".parse().unwrap(), forced: true };
    for (has_renewed, why) in [(true, forced), (false, Error::Lost)] {
        let mut world = World::of(3);
        let holder = world.acquire(2, detached("a"));
        let waits = world.acquire(1, wanted("r"));
        world.kill(2);
        world.run(Span::from_secs(60));
        world.restart(2);
        world.run(Span::from_secs(5));
        let returned = world.received(2).iter().find_map(|effect| match effect {
            Effect::Returned { ticket, .. } => Some(*ticket),
            _ => None,
        });
        let returned = returned.expect("it is there again");
        assert_ne!(world.fencing(2, returned), None, "{holder:?}");
        if has_renewed {
            world.input(2, Input::Renew { call: 4, ticket: returned });
            assert!(matches!(world.answer(2), Some(Ok(Answer::Renewed(_)))));
        }
        world.input(1, Input::call(7, Evict { name: "r".parse().unwrap(), peer: PeerId::new(2) }));
        world.run(Span::from_secs(2));
        assert!(world.fencing(1, waits).is_some());
        world.input(2, Input::Renew { call: 5, ticket: returned });
        world.run(Span::from_secs(1));
        assert_eq!(world.answer(2), Some(&Err(why)));
    }
}
