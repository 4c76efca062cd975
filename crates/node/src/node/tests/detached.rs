//! Detached grants, as `peerlock acquire` requests them.

use std::cell::Cell;

use peerlock_registry::{Command, Label};
use peerlock_types::Span;

use super::super::*;
use super::world::{World, wanted};
use crate::session_state::Ask;
use crate::verb::{Evict, Remove, Resize, Revoke, Show};
use crate::{Class, Name, Ttl, Wanted};

pub(super) fn detached(name: &str) -> Wanted {
    Wanted { detached: Some("grant-7".into()), auto_renew: false, ttl: Span::from_secs(60), ..wanted(name) }
}

fn being_detached(world: &mut World) -> TicketId {
    let first = world.acquire(3, wanted("r"));
    world.input(3, Input::Release { call: None, ticket: first });
    world.slow_disks(true);
    let client = world.acquire(3, detached("r"));
    assert_eq!(world.fencing(3, client), None, "it is not recorded yet");
    client
}

#[test]
fn detached_grant_is_continued_by_the_next_process() {
    for releases in [false, true] {
        let mut world = World::of(3);
        let holder = world.acquire(3, detached("r"));
        let before = world.fencing(3, holder).expect("it was free");
        world.kill(3);
        let waits = world.acquire(1, wanted("r"));
        world.run(Span::from_secs(30));
        assert_eq!(world.fencing(1, waits), None, "its own lease is valid");
        world.restart(3);
        world.run(Span::from_secs(3));
        let returned = world.received(3).iter().find_map(|effect| match effect {
            Effect::Returned { ticket, note, grant, .. } if note == "grant-7" => Some((*ticket, grant.fencing)),
            _ => None,
        });
        let (ticket, fencing) = returned.expect("the register knows it");
        assert_eq!(fencing, before);
        world.input(3, Input::Renew { call: 5, ticket });
        let Some(Ok(Answer::Renewed(until))) = world.answer(3) else { panic!("{:?}", world.answer(3)) };
        let until = *until;
        assert_eq!(until, world.now + Span::from_secs(60));
        if releases {
            world.input(3, Input::Release { call: Some(6), ticket });
            assert_eq!(world.answer(3), Some(&Ok(Answer::Released)));
            world.run(Span::from_secs(1));
        } else {
            while world.now + Span::from_millis(100) < until {
                assert_eq!(world.fencing(1, waits), None, "it was renewed");
                world.run(Span::from_millis(100));
            }
            world.run(Span::from_secs(10));
        }
        assert!(world.fencing(1, waits) > Some(before), "releases: {releases}");
    }
}

/// A grant ID is a secret: it allows renewal and release.
#[test]
fn grant_id_is_never_shown() {
    let mut world = World::of(3);
    world.acquire(3, Wanted { ttl: Span::from_secs(120), ..detached("r") });
    world.kill(3);
    for is_back in [false, true] {
        if is_back {
            world.restart(3);
        }
        world.run(Span::from_secs(30));
        for at in [1, 2, 3].into_iter().filter(|at| is_back || *at != 3) {
            world.input(at, Input::call(5, Show { name: "r".parse().unwrap() }));
            world.run(Span::from_secs(6));
            let Some(Ok(Answer::Shown(shown))) = world.answer(at) else { panic!("{:?}", world.answer(at)) };
            assert!(shown.holders[0].detached && shown.holders[0].client.is_some(), "{shown:?}");
            assert!(!format!("{shown:?}").contains("grant-7"), "{at}, is back: {is_back}: {shown:?}");
        }
    }
    let inside = format!("{:?}", world.node(3).inspect(world.now));
    assert!(inside.contains("fencing") && !inside.contains("grant-7"), "{inside}");
    world.run(Span::from_secs(150));
    for effect in world.received(3).iter().filter(|effect| matches!(effect, Effect::Event(_))) {
        assert!(!format!("{effect:?}").contains("grant-7"), "{effect:?}");
    }
}

/// The registry receives the release from a session that is over.
#[test]
fn release_in_a_partition_frees_the_slot_after_it() {
    let mut world = World::of(3);
    let holder = world.acquire(3, detached("r"));
    world.split(&[3]);
    world.input(3, Input::Release { call: Some(6), ticket: holder });
    assert_eq!(world.answer(3), Some(&Ok(Answer::Released)));
    let waits = world.acquire(1, wanted("r"));
    world.run(Span::from_secs(20));
    assert_eq!(world.fencing(1, waits), None, "the registry does not know it");
    world.split(&[]);
    world.run(Span::from_secs(5));
    assert!(world.fencing(1, waits).is_some());
}

#[test]
fn detached_grant_survives_session_loss_and_leaving() {
    let mut world = World::of(3);
    let holder = world.acquire(3, detached("r"));
    world.split(&[3]);
    world.run(Span::from_secs(20));
    assert!(world.fencing(3, holder).is_some() && world.node(3).problem().is_some());
    world.input(3, Input::Renew { call: 5, ticket: holder });
    assert!(matches!(world.answer(3), Some(Err(Error::NoMajority { .. }))));
    world.split(&[]);
    world.run(Span::from_secs(3));
    world.input(3, Input::Renew { call: 6, ticket: holder });
    assert!(matches!(world.answer(3), Some(Ok(Answer::Renewed(_)))));
    let waits = world.acquire(1, wanted("r"));
    world.input(3, Input::Drain);
    assert!(world.received(3).contains(&Effect::Drained), "a detached grant may stay");
    world.input(3, Input::Leave);
    world.run(Span::from_secs(30));
    assert_eq!(world.fencing(1, waits), None);
    world.run(Span::from_secs(40));
    assert!(world.fencing(1, waits).is_some());
}

#[test]
fn leaving_peer_drops_a_grant_that_is_being_persisted() {
    let mut world = World::of(3);
    let gone = being_detached(&mut world);
    world.input(3, Input::Drain);
    world.input(3, Input::Leave);
    assert_eq!(world.ended(3, gone), Some(&Error::Stopped));
    world.run(Span::from_millis(200));
    world.slow_disks(false);
    world.run(Span::from_secs(1));
    assert!(world.received(3).contains(&Effect::Left { confirmed: true }));
    world.kill(3);
    let next = world.acquire(1, wanted("r"));
    world.run(Span::from_secs(2));
    assert!(world.fencing(1, next).is_some());
}

#[test]
fn leaving_peer_keeps_a_grant_that_is_being_renewed() {
    let mut world = World::of(3);
    let holder = world.acquire(3, detached("r"));
    let waits = world.acquire(1, wanted("r"));
    world.run(Span::from_secs(10));
    world.slow_disks(true);
    let asked = world.now;
    world.input(3, Input::Renew { call: 5, ticket: holder });
    world.input(3, Input::Leave);
    world.run(Span::from_millis(200));
    world.slow_disks(false);
    world.run(Span::from_secs(1));
    assert_eq!(world.answer(3), Some(&Err(Error::Stopped)));
    assert!(world.received(3).contains(&Effect::Left { confirmed: true }));
    world.kill(3);
    while world.now < asked + Span::from_secs(60) {
        assert_eq!(world.fencing(1, waits), None, "it was renewed");
        world.run(Span::from_millis(100));
    }
    world.run(Span::from_secs(10));
    assert!(world.fencing(1, waits).is_some());
}

fn is_returned(world: &World, number: u64) -> bool {
    world.received(number).iter().any(|effect| matches!(effect, Effect::Returned { .. }))
}

fn assert_settled(world: &World, number: u64) {
    assert_eq!(world.machines[&number].predecessor.as_ref().unwrap().grants, []);
}

/// Killed after the confirmed release.
#[test]
fn release_unknown_to_the_registry_is_completed_by_takeover() {
    let mut world = World::of(3);
    let holder = world.acquire(3, detached("r"));
    assert_settled(&world, 3);
    world.split(&[3]);
    world.input(3, Input::Release { call: Some(6), ticket: holder });
    assert_eq!(world.answer(3), Some(&Ok(Answer::Released)));
    let waits = world.acquire(1, wanted("r"));
    for _ in 0..2 {
        world.kill(3);
        world.restart(3);
        world.run(Span::from_secs(1));
    }
    world.split(&[]);
    world.run(Span::from_secs(5));
    assert!(!is_returned(&world, 3) && world.fencing(1, waits).is_some());
    assert_settled(&world, 3);
}

#[test]
fn persisted_grant_without_client_is_dropped_by_takeover() {
    let mut world = World::of(3);
    being_detached(&mut world);
    world.kill(3);
    world.slow_disks(false);
    let waits = world.acquire(1, wanted("r"));
    world.run(Span::from_secs(1));
    world.restart(3);
    world.run(Span::from_secs(5));
    assert!(!is_returned(&world, 3) && world.fencing(1, waits).is_some());
    assert_settled(&world, 3);
}

/// The first of two grants for one request was persisted without an answer.
#[test]
fn of_two_persisted_grants_the_notified_one_remains() {
    let mut world = World::of(3);
    let client = being_detached(&mut world);
    world.split(&[3]);
    world.slow_disks(false);
    world.run(Span::from_secs(20));
    assert!(world.node(3).problem().is_some() && world.fencing(3, client).is_none());
    world.split(&[]);
    world.run(Span::from_secs(5));
    let fencing = world.fencing(3, client).expect("the first grant is released");
    assert_settled(&world, 3);
    world.kill(3);
    world.restart(3);
    world.run(Span::from_secs(5));
    let waits = world.acquire(1, wanted("r"));
    world.run(Span::from_secs(30));
    let is_it = |effect: &Effect| matches!(effect, Effect::Returned { grant, .. } if grant.fencing == fencing);
    assert!(world.received(3).iter().any(is_it) && world.fencing(1, waits).is_none());
}

/// Its lease would count again from the restart, beside the next holder's.
#[test]
fn returned_grant_ends_when_it_expired_in_the_registry() {
    for renews in [false, true] {
        let mut world = World::of(3);
        world.acquire(3, detached("r"));
        world.kill(3);
        world.run(Span::from_secs(50));
        world.restart(3);
        world.run(Span::from_secs(3));
        let returned = world.received(3).iter().find_map(|effect| match effect {
            Effect::Returned { ticket, .. } => Some(*ticket),
            _ => None,
        });
        let ticket = returned.expect("the register knows it");
        let holder = |world: &mut World| {
            world.input(1, Input::call(7, Show { name: "r".parse().unwrap() }));
            let Some(Ok(Answer::Shown(shown))) = world.answer(1) else { panic!("{:?}", world.answer(1)) };
            shown.holders[0].client.clone().expect("there is a holder")
        };
        let next = world.acquire(3, wanted("r"));
        world.run(Span::from_secs(1));
        assert_eq!(holder(&mut world).ends, None, "the last renewal is unknown");
        while world.fencing(3, next).is_none() {
            world.run(Span::from_millis(100));
        }
        assert_eq!(holder(&mut world).fencing, world.fencing(3, next));
        if renews {
            world.input(3, Input::Renew { call: 5, ticket });
            assert_eq!(world.answer(3), Some(&Err(Error::Lost)));
        }
        world.run(Span::from_secs(16));
        assert_eq!(world.ended(3, ticket), Some(&Error::Lost));
    }
}

/// The registry considers all other grants older.
#[test]
fn repeatedly_refused_detached_grant_fails() {
    let mut world = World::of(3);
    let (name, now): (Name, Time) = ("r".parse().unwrap(), world.now);
    let rogue = world.acquire(2, wanted("r"));
    world.input(2, Input::Release { call: None, ticket: rogue });
    let node = world.machines.get_mut(&2).unwrap().node.as_mut().unwrap();
    let fencing = ((node.parts.get(name.key()).unwrap().custody.generation() + 1) << 32) - 1;
    let (session, resource) = (node.session_state.session().unwrap(), Label::new("r").unwrap());
    let (slot, ttl, note) = (0, Ttl::from_millis(1000).unwrap(), Label::new("forged").unwrap());
    let detach = Command::Detach { session, resource: resource.clone(), slot, fencing, ttl, note, run: None };
    node.session_state.ask(detach, Ask::Inform, now);
    world.input(2, Input::Wake);
    let node = world.machines.get_mut(&2).unwrap().node.as_mut().unwrap();
    node.session_state.ask(Command::DropDetached { session, resource, fencing }, Ask::Inform, now);
    world.input(2, Input::Wake);
    world.queue.push_back((3, Input::Acquire { call: 1, wanted: detached("r") }));
    let steps = Cell::new(0);
    let is_over = |effect: &Effect| matches!(effect, Effect::Ended(..));
    world.run_until(|world| {
        steps.set(steps.get() + 1);
        steps.get() > 10_000 || world.received(3).iter().any(is_over)
    });
    let ended = world.received(3).iter().find(|effect| is_over(effect));
    let is_refused = |it: &Effect| matches!(it, Effect::Ended(_, Error::Refused { class: Class::Unavailable, .. }));
    assert!(ended.is_some_and(is_refused), "{ended:?} after {}", steps.get());
}

/// The registry's answer takes three seconds.
#[test]
fn returned_grants_are_unknown_until_the_registry_answers() {
    let mut world = World::of(4);
    world.acquire(4, detached("r"));
    world.kill(4);
    world.machines.get_mut(&4).unwrap().received.clear();
    world.restart(4);
    assert!(!world.node(4).knows_returned());
    world.run_until(|world| world.received(4).contains(&Effect::Joined));
    world.split(&[4]);
    world.run(Span::from_secs(10));
    assert!(world.node(4).problem().is_none(), "its session is valid");
    assert!(!is_returned(&world, 4) && !world.node(4).knows_returned());
    world.split(&[]);
    world.run(Span::from_secs(3));
    assert!(is_returned(&world, 4) && world.node(4).knows_returned());
}

#[test]
fn detached_renewal_without_quorum_times_out() {
    let mut world = World::of(3);
    let holder = world.acquire(3, detached("r"));
    world.split(&[3]);
    world.input(3, Input::Renew { call: 5, ticket: holder });
    world.run(Span::from_secs(6));
    let Some(Err(Error::Refused { class: Class::Unavailable, .. })) = world.answer(3) else {
        panic!("{:?}", world.answer(3));
    };
    world.run(Span::from_secs(20));
    world.split(&[]);
    world.run(Span::from_secs(5));
    let answers = world.received(3).iter().filter(|effect| matches!(effect, Effect::Answer { call: 5, .. }));
    assert_eq!(answers.count(), 1);
    world.input(3, Input::Renew { call: 6, ticket: holder });
    assert!(matches!(world.answer(3), Some(Ok(Answer::Renewed(_)))), "{:?}", world.answer(3));
}

#[test]
fn release_during_persisting_leaves_no_grant() {
    let mut world = World::of(1);
    let first = world.acquire(1, wanted("r"));
    world.input(1, Input::Release { call: None, ticket: first });
    world.machines.get_mut(&1).unwrap().slow_disk = true;
    let gone = world.acquire(1, detached("r"));
    assert_eq!(world.fencing(1, gone), None, "it is not recorded yet");
    world.input(1, Input::Release { call: None, ticket: gone });
    world.machines.get_mut(&1).unwrap().slow_disk = false;
    while let Some(number) = world.machines.get_mut(&1).unwrap().unwritten.pop_front() {
        world.input(1, Input::Written(number));
    }
    world.run(Span::from_secs(1));
    world.kill(1);
    world.restart(1);
    world.run(Span::from_secs(20));
    assert!(!world.received(1).iter().any(|effect| matches!(effect, Effect::Returned { .. })));
    let next = world.acquire(1, wanted("r"));
    assert!(world.fencing(1, next).is_some());
}

fn cut_from_leader(world: &mut World, is_recorded: bool) {
    match is_recorded {
        true => _ = world.apart.insert((1, 3)),
        false => world.apart.clear(),
    }
    world.disconnect_pair(1, 3);
    world.settle();
}

fn over_unheard(world: &mut World, name: &str, slots: Option<u32>) -> TicketId {
    let holder = world.acquire(3, Wanted { slots, ..detached(name) });
    let waits = world.acquire(2, wanted(name));
    world.run(Span::from_millis(59_900));
    cut_from_leader(world, true);
    world.run(Span::from_millis(200));
    assert_eq!(world.ended(3, holder), Some(&Error::Lost));
    waits
}

/// The machine may die then: its next process has the grant from the registry, and the client renews it.
#[test]
fn expired_detached_slot_waits_for_the_registry() {
    for dies in [false, true] {
        let mut world = World::of(3);
        let waits = over_unheard(&mut world, "r", None);
        assert_eq!(world.fencing(2, waits), None, "its client could still renew it");
        if dies {
            world.kill(3);
            world.machines.get_mut(&3).unwrap().predecessor = None;
            cut_from_leader(&mut world, false);
            world.restart(3);
            world.run(Span::from_secs(1));
            let returned = world.received(3).iter().find_map(|effect| match effect {
                Effect::Returned { ticket, .. } => Some(*ticket),
                _ => None,
            });
            world.input(3, Input::Renew { call: 5, ticket: returned.expect("the register knows it") });
            assert!(matches!(world.answer(3), Some(Ok(Answer::Renewed(_)))), "{:?}", world.answer(3));
            world.run(Span::from_secs(50));
            assert_eq!(world.fencing(2, waits), None, "it was renewed");
            world.run(Span::from_secs(20));
        } else {
            world.run(Span::from_secs(2));
            assert_eq!(world.fencing(2, waits), None);
            cut_from_leader(&mut world, false);
            world.run(Span::from_secs(1));
            assert_settled(&world, 3);
        }
        assert!(world.fencing(2, waits).is_some(), "dies: {dies}");
    }
}

#[test]
fn released_detached_slot_is_handed_over_at_once() {
    let mut world = World::of(3);
    let holder = world.acquire(3, detached("r"));
    let waits = world.acquire(2, wanted("r"));
    cut_from_leader(&mut world, true);
    world.input(3, Input::Release { call: Some(5), ticket: holder });
    assert_eq!(world.answer(3), Some(&Ok(Answer::Released)));
    assert!(world.fencing(2, waits).is_some());
}

#[test]
fn revoked_detached_slot_waits_for_the_registry() {
    let mut world = World::of(3);
    let holder = world.acquire(3, detached("r"));
    let waits = world.acquire(2, wanted("r"));
    let (fencing, peer) = (world.fencing(3, holder).unwrap(), PeerId::new(3));
    cut_from_leader(&mut world, true);
    let answers = world.received(2).len();
    world.input(2, Input::call(9, Revoke { name: "r".parse().unwrap(), peer: Some(peer), fencing }));
    world.run(Span::from_secs(2));
    assert!(matches!(world.ended(3, holder), Some(Error::Revoked { forced: false, .. })));
    let is_answered = |world: &World| world.received(2)[answers..].iter().any(|it| matches!(it, Effect::Answer { .. }));
    assert!(world.fencing(2, waits).is_none() && !is_answered(&world), "the register knows it");
    world.input(3, Input::Release { call: Some(5), ticket: holder });
    assert_eq!(world.answer(3), Some(&Err(Error::Lost)), "it has ended for its client");
    assert_eq!(world.fencing(2, waits), None);
    cut_from_leader(&mut world, false);
    world.run(Span::from_secs(1));
    assert!(world.fencing(2, waits).is_some());
    assert_eq!(world.answer(2), Some(&Ok(Answer::Done)));
}

#[test]
fn revoked_grant_of_an_earlier_session_waits_for_registry() {
    let mut world = World::of(3);
    let holder = world.acquire(3, detached("r"));
    let (fencing, peer) = (world.fencing(3, holder).unwrap(), PeerId::new(3));
    cut_from_leader(&mut world, true);
    world.run(Span::from_secs(20));
    assert!(world.node(3).problem().is_some() && world.ended(3, holder).is_none());
    let answers = world.received(2).len();
    let is_answered = |world: &World| world.received(2)[answers..].iter().any(|it| matches!(it, Effect::Answer { .. }));
    world.input(2, Input::call(9, Revoke { name: "r".parse().unwrap(), peer: Some(peer), fencing }));
    world.run(Span::from_secs(2));
    assert!(matches!(world.ended(3, holder), Some(Error::Revoked { forced: false, .. })));
    assert!(!is_answered(&world), "the register knows it");
    cut_from_leader(&mut world, false);
    world.run(Span::from_secs(5));
    assert_eq!(world.answer(2), Some(&Ok(Answer::Done)));
    let next = world.acquire(2, wanted("r"));
    assert!(world.fencing(2, next).is_some());
}

/// The second peer counts while the third cannot reach the registry.
#[test]
fn census_counts_the_slot_of_an_unrecorded_end() {
    let (name, mut world) = ("a", World::of(3));
    let waits = over_unheard(&mut world, name, Some(2));
    assert!(world.fencing(2, waits).is_some(), "the second slot was free");
    let next = world.acquire(2, wanted(name));
    world.input(2, Input::call(7, Resize { name: name.parse().unwrap(), slots: 1 }));
    world.run(Span::from_secs(1));
    let key = name.parse::<Name>().unwrap().key();
    let third = world.node(3);
    assert_eq!(
        (third.parts.get(key).unwrap().custody.generation(), third.detached.ending.len()),
        (2, 1),
        "it was reported in the census"
    );
    assert_eq!(world.fencing(2, next), None);
    cut_from_leader(&mut world, false);
    world.run(Span::from_secs(3));
    assert!(world.node(3).detached.ending.is_empty());
    assert_eq!(world.fencing(2, next), None, "there is one slot now, which is held");
    world.input(2, Input::Release { call: None, ticket: waits });
    assert!(world.fencing(2, next).is_some());
}

#[test]
fn ended_grant_slot_is_lost_with_session_or_eviction() {
    for forces in [false, true] {
        let mut world = World::of(3);
        let waits = over_unheard(&mut world, "r", None);
        if forces {
            world.input(2, Input::call(7, Evict { name: "r".parse().unwrap(), peer: PeerId::new(3) }));
            world.run(Span::from_secs(1));
            assert_eq!(world.answer(2), Some(&Ok(Answer::Done)));
            // It receives the eviction before the registry has recorded the end of the grant.
            world.slow_disks(true);
        } else {
            world.run(Span::from_secs(15));
            assert!(world.node(3).problem().is_some() && world.node(3).detached.ending.is_empty());
        }
        cut_from_leader(&mut world, false);
        world.run(Span::from_millis(500));
        assert!(world.node(3).detached.ending.is_empty());
        world.slow_disks(false);
        world.run(Span::from_secs(5));
        assert!(world.fencing(2, waits).is_some(), "forces: {forces}");
        assert_settled(&world, 3);
    }
}

/// The session ends only after the registry's answer.
#[test]
fn leaving_peer_hands_over_after_the_end_is_recorded() {
    let mut world = World::of(3);
    let waits = over_unheard(&mut world, "r", None);
    world.input(3, Input::Drain);
    assert!(world.received(3).contains(&Effect::Drained));
    world.input(3, Input::Leave);
    world.run(Span::from_millis(500));
    assert_eq!(world.fencing(2, waits), None);
    cut_from_leader(&mut world, false);
    world.run(Span::from_secs(1));
    assert!(world.received(3).contains(&Effect::Left { confirmed: true }));
    assert!(world.fencing(2, waits).is_some());
}

#[test]
fn remove_is_refused_until_the_last_end_is_recorded() {
    let mut world = World::of(3);
    let waits = over_unheard(&mut world, "r", None);
    world.input(2, Input::Release { call: None, ticket: waits });
    world.input(2, Input::call(7, Remove { name: "r".parse().unwrap() }));
    world.run(Span::from_secs(1));
    assert!(matches!(world.answer(2), Some(Err(Error::InUse { forced: false, .. }))), "{:?}", world.answer(2));
    cut_from_leader(&mut world, false);
    world.run(Span::from_secs(1));
    world.input(2, Input::call(8, Remove { name: "r".parse().unwrap() }));
    world.run(Span::from_secs(3));
    assert_eq!(world.answer(2), Some(&Ok(Answer::Done)));
}
