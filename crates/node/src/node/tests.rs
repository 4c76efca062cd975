//! Scenarios of whole nodes in a small world.

mod clients;
mod conclude;
mod detached;
mod fuzzed;
mod given_up;
mod health;
mod limits;
mod links;
mod nonsense;
mod order;
mod over;
mod reach;
mod recovered;
mod relay;
mod removed;
mod revoke;
mod takeover;
mod versions;
mod voters;
mod world;

use std::collections::BTreeMap;
use std::time::Duration;

use peerlock_types::Span;

use self::world::{CLUSTER, OTHER, World, address, wanted};
use super::*;
use crate::verb::{Cluster, Evict, Resize, SetVoters, Show};
use crate::{Class, ClusterId, Event, Listing, NetEvent, Origin, Wait, Wanted};

#[test]
fn single_creator_grants_after_its_file_is_written() {
    let mut world = World::new();
    world.start(1, Origin::Founds(CLUSTER), &[]);
    world.run(Span::from_secs(3));
    assert!(world.received(1).contains(&Effect::Joined));
    assert_eq!(world.machines[&1].cluster, Some(CLUSTER));
    let first = world.acquire(1, wanted("r"));
    let second = world.acquire(1, wanted("r"));
    assert!(world.fencing(1, first).is_some());
    assert_eq!(world.fencing(1, second), None);
    let before = world.fencing(1, first);
    world.input(1, Input::Release { call: None, ticket: first });
    assert!(world.fencing(1, second) > before);
}

#[test]
fn joined_hosts_share_the_queue() {
    let mut world = World::of(3);
    let first = world.acquire(1, wanted("r"));
    let others = [2, 3].map(|number| (number, world.acquire(number, wanted("r"))));
    assert!(world.fencing(1, first).is_some());
    let mut last = world.fencing(1, first);
    world.input(1, Input::Release { call: None, ticket: first });
    for (number, ticket) in others {
        assert!(world.fencing(number, ticket) > last, "{number}");
        last = world.fencing(number, ticket);
        world.input(number, Input::Release { call: None, ticket });
    }
    world.run(Span::from_secs(60));
    let again = world.acquire(1, wanted("r"));
    assert!(world.fencing(1, again) > last, "all sessions are valid a minute later");
    assert_eq!(world.node(1).counters().sessions_lost, 0);
}

#[test]
fn two_clusters_refuse_each_other_with_both_ids() {
    let mut world = World::new();
    world.start(1, Origin::Founds(CLUSTER), &[]);
    world.start(2, Origin::Founds(OTHER), &[1]);
    (0..3).for_each(|_| world.run(Span::from_secs(2)));
    for (number, ours, theirs) in [(1, CLUSTER, OTHER), (2, OTHER, CLUSTER)] {
        let is_notified = |effect: &&Effect| match effect {
            Effect::Notice(Notice::Problem(Error::OtherCluster { ours: a, theirs: b, .. })) => {
                (a, b) == (&ours.to_string(), &theirs.to_string())
            }
            _ => false,
        };
        assert_eq!(
            world.received(number).iter().filter(is_notified).count(),
            1,
            "{number}: {:?}",
            world.received(number)
        );
        assert!(world.node(number).problem().is_none(), "each cluster continues");
    }
    for _ in 0..3 {
        (1..=2).for_each(|number| world.machines.get_mut(&number).unwrap().received.clear());
        world.run(Span::from_secs(1));
        let met = |number| world.received(number).iter().any(|it| matches!(it, Effect::Event(Event::PeerUp { .. })));
        assert!(!met(1) && !met(2), "the other cluster is ignored after its hello");
    }
    let both = [1, 2].map(|number| (number, world.acquire(number, wanted("r"))));
    assert!(both.into_iter().all(|(number, ticket)| world.fencing(number, ticket).is_some()));
}

#[test]
fn cluster_is_announced_after_its_file_is_written() {
    let mut world = World::new();
    world.start(2, Origin::Seeks { expect: None }, &[1]);
    world.start(1, Origin::Founds(CLUSTER), &[]);
    world.kill(1);
    let machine = world.machines.get_mut(&1).unwrap();
    (machine.slow_disk, machine.file, machine.cluster) = (true, None, None);
    world.kill(2);
    world.start(2, Origin::Seeks { expect: None }, &[1]);
    world.machines.get_mut(&2).unwrap().cluster = None;
    world.start(1, Origin::Founds(CLUSTER), &[]);
    world.run(Span::from_secs(11));
    assert_eq!(world.machines[&2].cluster, None);
    assert!(world.received(2).contains(&Effect::NotJoined));
    let number = world.machines.get_mut(&1).unwrap().unwritten.pop_front().expect("it writes its file");
    world.machines.get_mut(&1).unwrap().slow_disk = false;
    world.input(1, Input::Written(number));
    world.run(Span::from_secs(3));
    assert_eq!(world.machines[&2].cluster, Some(CLUSTER));
    assert!(world.received(2).contains(&Effect::Joined));
}

#[test]
fn one_of_the_expected_hosts_creates_the_cluster() {
    let mut world = World::new();
    let seeks = |number: u128| Origin::Seeks { expect: Some((3, ClusterId::new(number))) };
    world.start(2, seeks(2), &[1, 2, 3]);
    world.start(3, seeks(3), &[1, 2, 3]);
    world.run(Span::from_secs(60));
    assert!(world.machines.values().all(|machine| machine.cluster.is_none()), "one is missing");
    world.apart.insert((2, 3));
    world.disconnect(3);
    world.start(1, seeks(1), &[1, 2, 3]);
    world.run(Span::from_secs(5));
    assert!(world.machines.values().all(|machine| machine.cluster.is_none()), "two have not met");
    world.apart.clear();
    world.run(Span::from_secs(5));
    for number in 1..=3 {
        assert_eq!(world.machines[&number].cluster, Some(ClusterId::new(1)));
        assert!(world.received(number).contains(&Effect::Joined), "{number}");
    }
    // A later host joins it.
    world.start(4, seeks(4), &[2]);
    world.run(Span::from_secs(5));
    assert_eq!(world.machines[&4].cluster, Some(ClusterId::new(1)));
}

/// Otherwise it would create a second cluster.
#[test]
fn restarted_first_machine_is_in_the_same_cluster() {
    let mut world = World::of(3);
    let holder = world.acquire(2, wanted("r"));
    let before = world.fencing(2, holder).expect("it is free");
    world.kill(1);
    world.split(&[1]);
    world.restart(1);
    world.run(Span::from_secs(2));
    let waits = world.acquire(1, wanted("r"));
    world.run(Span::from_secs(10));
    assert_eq!(world.fencing(1, waits), None, "alone it grants nothing");
    world.split(&[]);
    world.run(Span::from_secs(5));
    assert_eq!((world.fencing(1, waits), world.fencing(2, holder)), (None, Some(before)));
    world.input(2, Input::Release { call: None, ticket: holder });
    assert!(world.fencing(1, waits) > Some(before));
}

#[test]
fn fencing_numbers_increase_over_a_full_restart() {
    let mut world = World::of(3);
    let holder = world.acquire(3, Wanted { slots: Some(2), ..wanted("r") });
    let before = world.fencing(3, holder);
    (1..=3).for_each(|number| world.kill(number));
    world.run(Span::from_secs(1));
    (1..=3).for_each(|number| world.restart(number));
    world.run(Span::from_secs(5));
    let waits = world.acquire(2, Wanted { slots: Some(2), ..wanted("r") });
    assert!(world.fencing(2, waits) > before, "a client in a process ends with it");
    let wrong = world.acquire(1, Wanted { slots: Some(3), ..wanted("r") });
    let mismatch = Error::SlotsMismatch { name: "r".parse().unwrap(), has: 2, asked: 3 };
    assert_eq!(world.ended(1, wrong), Some(&mismatch));
}

#[test]
fn frozen_peer_ends_its_session_before_other_effects() {
    let mut world = World::of(3);
    let holder = world.acquire(3, wanted("r"));
    let waits = world.acquire(1, wanted("r"));
    let (before, until) = world.node(3).grant(holder).map(|(grant, until)| (grant.fencing, until)).unwrap();
    world.frozen.insert(3);
    while world.now < until {
        assert!(world.fencing(1, waits).is_none(), "its deadline has not passed");
        world.run(Span::from_millis(100));
    }
    world.run(Span::from_secs(6));
    assert!(world.fencing(1, waits) > Some(before), "the register has ended the session");
    assert!(world.now >= until, "and not before the deadline that its client knows");
    world.frozen.clear();
    world.settle();
    world.run(Span::from_secs(5));
    assert!(matches!(world.ended(3, holder), Some(Error::SessionLost { .. })));
    let received: Vec<&Effect> = world
        .received(3)
        .iter()
        .filter(|it| matches!(it, Effect::Lost(..) | Effect::Ended(..) | Effect::Notice(_)))
        .collect();
    assert!(
        matches!(received[..], [Effect::Lost(..), Effect::Ended(..), Effect::Notice(Notice::SessionLost { .. }), ..]),
        "{received:?}"
    );
    // It continues in the next session.
    let again = world.acquire(3, wanted("r"));
    world.input(1, Input::Release { call: None, ticket: waits });
    assert!(world.fencing(3, again).is_some());
}

#[test]
fn partitioned_peer_stops_holders_and_keeps_waiters() {
    let mut world = World::of(3);
    let holder = world.acquire(3, wanted("r"));
    let waits = world.acquire(3, wanted("r"));
    let elsewhere = world.acquire(2, wanted("r"));
    world.split(&[3]);
    let until = world.node(3).grant(holder).unwrap().1;
    let mut lost = None;
    for _ in 0..200 {
        world.run(Span::from_millis(100));
        if lost.is_none() && world.has_lost(3, holder) {
            lost = Some(world.now);
        }
        if world.fencing(2, elsewhere).is_some() {
            break;
        }
    }
    assert!(world.fencing(2, elsewhere).is_some());
    let lost = lost.expect("it was asked to stop");
    assert!(lost < until && until.since(lost) > Span::from_secs(5), "with its grace period before the deadline");
    // The error of an expired lease would mislead its client.
    let why = world.received(3).iter().find_map(|effect| match effect {
        Effect::Lost(ticket, why) if *ticket == holder => Some(why),
        _ => None,
    });
    let Some(Error::NoMajority { missing, since }) = why else { panic!("{why:?}") };
    assert!(missing.len() == 2 && *since > Duration::from_secs(5), "{why:?}");
    assert!(world.now >= until, "the next grant comes after that deadline");
    assert!(matches!(world.ended(3, holder), Some(Error::SessionLost { .. })));
    assert_eq!(world.ended(3, waits), None);
    let Some(Error::NoMajority { missing, .. }) = world.node(3).problem() else { panic!("there is no session") };
    let names: Vec<&str> = missing.iter().map(|it| &it.name[..]).collect();
    assert_eq!(names, ["host1", "host2"]);
    world.split(&[]);
    world.run(Span::from_secs(3));
    world.input(2, Input::Release { call: None, ticket: elsewhere });
    assert!(world.fencing(3, waits).is_some());
}

#[test]
fn request_without_quorum_fails_with_missing_voters() {
    let mut world = World::of(3);
    world.kill(1);
    world.kill(2);
    world.run(Span::from_secs(20));
    let waits = world.acquire(3, wanted("r"));
    let tries = world.acquire(3, Wanted { wait: Wait::Try, ..wanted("r") });
    world.run(Span::from_secs(6));
    assert!(matches!(world.ended(3, tries), Some(Error::NoMajority { missing, .. }) if missing.len() == 2));
    assert_eq!(world.ended(3, waits), None);
    world.run(Span::from_secs(30));
    assert!(matches!(world.ended(3, waits), Some(Error::NoMajority { .. })));
    assert!(world.received(3).iter().any(|it| matches!(it, Effect::Notice(Notice::Problem(Error::NoMajority { .. })))));
}

#[test]
fn slot_of_a_dead_machine_is_granted_with_a_higher_number() {
    for dies in 1..=3 {
        let mut world = World::of(3);
        let holder = world.acquire(dies, wanted("r"));
        let before = world.fencing(dies, holder);
        let others: Vec<_> = (1..=3).filter(|it| *it != dies).map(|it| (it, world.acquire(it, wanted("r")))).collect();
        let until = world.node(dies).grant(holder).unwrap().1;
        world.run(Span::from_secs(1));
        world.kill(dies);
        while world.now < until {
            assert!(others.iter().all(|(number, ticket)| world.fencing(*number, *ticket).is_none()));
            world.run(Span::from_millis(100));
        }
        // A new leader counts from its election.
        world.run(Span::from_secs(8));
        for (number, ticket) in others {
            assert!(world.fencing(number, ticket) > before, "{number} after {dies}");
            world.input(number, Input::Release { call: None, ticket });
        }
    }
}

#[test]
fn leaving_peer_delays_no_grant() {
    for leaves in 1..=3 {
        let mut world = World::of(3);
        let idle = world.acquire(leaves, wanted("idle"));
        world.input(leaves, Input::Release { call: None, ticket: idle });
        let holder = world.acquire(leaves, wanted("r"));
        let others: Vec<_> =
            (1..=3).filter(|it| *it != leaves).map(|it| (it, world.acquire(it, wanted("r")))).collect();
        world.input(leaves, Input::Drain);
        assert!(world.has_lost(leaves, holder));
        assert!(!world.received(leaves).contains(&Effect::Drained));
        world.input(leaves, Input::Release { call: None, ticket: holder });
        assert!(world.received(leaves).contains(&Effect::Drained));
        assert!(world.fencing(others[0].0, others[0].1).is_some());
        world.input(leaves, Input::Leave);
        world.run(Span::from_millis(400));
        assert!(world.received(leaves).contains(&Effect::Left { confirmed: true }), "{leaves}");
        world.kill(leaves);
        let rested = world.acquire(others[0].0, wanted("idle"));
        world.input(others[0].0, Input::Release { call: None, ticket: others[0].1 });
        world.run(Span::from_secs(3));
        assert!(world.fencing(others[1].0, others[1].1).is_some(), "{leaves} has left without its tokens");
        assert!(world.fencing(others[0].0, rested).is_some(), "also idle ones");
    }
}

#[test]
fn show_list_and_look_report_the_cluster() {
    let mut world = World::of(3);
    let holder = world.acquire(2, Wanted { label: "backup".into(), ..wanted("r") });
    world.acquire(3, Wanted { label: "waits".into(), ..wanted("r") });
    world.input(1, Input::call(5, Show { name: "r".parse().unwrap() }));
    let Some(Ok(Answer::Shown(details))) = world.answer(1) else { panic!("{:?}", world.answer(1)) };
    assert_eq!((details.slots, details.holders.len(), details.queue.len()), (1, 1, 1));
    assert_eq!((&details.holders[0].host[..], details.holders[0].free), ("host2", false));
    let client = details.holders[0].client.as_ref().expect("its peer has reported it");
    assert_eq!((&client.label[..], client.fencing), ("backup", world.fencing(2, holder)));
    assert!(client.ends.is_some_and(|ends| ends <= std::time::Duration::from_secs(15)));
    assert_eq!(details.queue[0].client.as_ref().unwrap().label, "waits");
    world.input(1, Input::call(5, Show { name: "s".parse().unwrap() }));
    assert!(matches!(world.answer(1), Some(Err(Error::NoSuchResource { .. }))));
    world.input(3, Input::call(6, Listing::default()));
    let Some(Ok(Answer::Listed(all))) = world.answer(3) else { panic!("{:?}", world.answer(3)) };
    assert_eq!(
        all.iter().map(|it| (it.name.as_str(), it.slots, it.waiting_here)).collect::<Vec<_>>(),
        [("r", Some(1), 1)]
    );
    for (prefix, found) in [("r", 1), ("r0", 0), ("q", 0)] {
        world.input(3, Input::call(6, Listing::of(prefix)));
        assert!(matches!(world.answer(3), Some(Ok(Answer::Listed(all))) if all.len() == found), "{prefix}");
    }
    for prefix in ["a\nb".to_owned(), "x".repeat(256)] {
        world.input(3, Input::call(6, Listing::of(prefix)));
        assert!(matches!(world.answer(3), Some(Err(Error::BadName { .. }))));
    }
    world.input(3, Input::call(7, Cluster {}));
    let Some(Ok(Answer::Found(found))) = world.answer(3) else { panic!("{:?}", world.answer(3)) };
    assert_eq!(found.cluster, CLUSTER.to_string());
    let mut names: Vec<_> = found.peers.iter().map(|it| (&it.name[..], it.up, it.session.is_some())).collect();
    names.sort_unstable();
    assert_eq!(names, [("host1", true, true), ("host2", true, true), ("host3", true, true)]);
    assert_eq!(found.peers.iter().filter(|it| it.voter == crate::Voter::Leads).count(), 1);
    assert_eq!(world.machines[&3].members, [address(1), address(2)]);
}

#[test]
fn command_without_quorum_fails_within_a_session() {
    let name = || "r".parse().unwrap();
    for input in [
        Input::call(9, Listing::default()),
        Input::call(9, Resize { name: name(), slots: 2 }),
        Input::call(9, Evict { name: name(), peer: PeerId::new(1) }),
        Input::call(9, SetVoters { hosts: None }),
    ] {
        let mut world = World::of(4); // Three of them vote.
        world.acquire(4, wanted("r"));
        world.split(&[4]);
        world.input(4, input.clone());
        world.run(Span::from_secs(6));
        assert!(world.node(4).problem().is_none(), "its session is valid");
        let Some(Err(error @ Error::Refused { class: Class::Unavailable, .. })) = world.answer(4) else {
            panic!("{input:?}: {:?}", world.answer(4));
        };
        assert!(error.to_string().contains("no quorum within 5s"), "{error}");
        world.split(&[]);
        world.run(Span::from_secs(5));
        let answers = world.received(4).iter().filter(|effect| matches!(effect, Effect::Answer { call: 9, .. }));
        assert_eq!(answers.count(), 1, "{input:?}");
    }
}

#[test]
fn resize_and_evict_change_holders() {
    let mut world = World::of(2);
    let holder = world.acquire(2, wanted("r"));
    let waits = world.acquire(1, wanted("r"));
    let third = world.acquire(1, wanted("r"));
    world.input(1, Input::call(5, Resize { name: "r".parse().unwrap(), slots: 2 }));
    assert_eq!(world.answer(1), Some(&Ok(Answer::Done)));
    assert!(world.fencing(1, waits).is_some() && world.fencing(1, third).is_none());
    world.input(1, Input::call(6, Resize { name: "r".parse().unwrap(), slots: 1 }));
    let fencing = world.fencing(1, waits);
    world.input(1, Input::Release { call: None, ticket: waits });
    assert_eq!(world.fencing(1, third), None, "there is only one slot again");
    world.input(1, Input::call(7, Evict { name: "r".parse().unwrap(), peer: PeerId::new(2) }));
    world.run(Span::from_secs(1));
    assert_eq!(world.answer(1), Some(&Ok(Answer::Done)));
    assert!(matches!(world.ended(2, holder), Some(Error::Revoked { forced: true, .. })));
    assert!(world.fencing(1, third) > fencing);
    world.input(1, Input::call(8, Evict { name: "s".parse().unwrap(), peer: PeerId::new(2) }));
    assert!(matches!(world.answer(1), Some(Err(Error::NoSuchResource { .. }))));
}

/// A token on a link that breaks is lost, although no session ends.
#[test]
fn messages_lost_with_a_link_open_a_generation() {
    for goes_on in [true, false] {
        let mut world = World::of(2);
        let holder = world.acquire(1, wanted("r"));
        let waits = world.acquire(2, wanted("r"));
        let before = world.fencing(1, holder);
        world.frozen.insert(2);
        world.input(1, Input::Release { call: None, ticket: holder });
        world.disconnect(2);
        world.queue.retain(|(to, input)| *to == 1 || !matches!(input, Input::Net(NetEvent::Message { .. })));
        let node = world.machines.get_mut(&1).unwrap().node.as_mut().unwrap();
        node.contacts.break_link(PeerId::new(2), goes_on, &mut node.update);
        world.input(1, Input::Wake);
        world.frozen.clear();
        world.run(Span::from_secs(2));
        assert!(world.fencing(2, waits).is_some() || !goes_on, "no session has to expire");
        world.run(Span::from_secs(31));
        assert!(world.fencing(2, waits) > before);
    }
}

#[test]
fn deadline_follows_renewals_within_the_session() {
    let mut world = World::of(3);
    let record = world.acquire(3, wanted("kept"));
    let own = world.acquire(3, Wanted { auto_renew: false, ttl: Span::from_secs(40), ..wanted("own") });
    let mut sent = BTreeMap::new();
    for _ in 0..300 {
        world.run(Span::from_millis(100));
        let session = world.node(3).session_state.bound().expect("there is no fault").until;
        for effect in world.machines.get_mut(&3).unwrap().received.drain(..) {
            if let Effect::Granted { ticket, until } | Effect::Renewed { ticket, until } = effect {
                assert!(until <= session);
                sent.insert(ticket, until);
            }
        }
        assert!(sent.get(&record).is_none_or(|until| *until == session));
        assert!(sent[&own] > world.now + Span::from_secs(5));
    }
    assert!(world.fencing(3, record).is_some());
    world.run(Span::from_secs(10));
    assert_eq!(world.fencing(3, own), None, "its client has not renewed it");
}

#[test]
fn grant_near_the_end_of_the_session_is_delayed() {
    for heals in [true, false] {
        let mut world = World::of(3);
        let first = world.acquire(3, wanted("r"));
        let next = world.acquire(3, wanted("r"));
        world.split(&[3]);
        while !world.has_lost(3, first) {
            world.run(Span::from_millis(100));
        }
        world.input(3, Input::Release { call: None, ticket: first });
        assert_eq!(world.fencing(3, next), None, "the session is about to expire");
        if heals {
            world.split(&[]);
            world.run(Span::from_secs(2));
            assert_eq!(world.node(3).counters().sessions_lost, 0);
            assert!(world.fencing(3, next).is_some());
        } else {
            world.run(Span::from_secs(10));
            assert_eq!(world.ended(3, next), None, "it waits for the next session");
            world.split(&[]);
            world.run(Span::from_secs(20));
            assert!(world.fencing(3, next).is_some());
        }
    }
}

/// Otherwise an unreachable peer could delay all others.
#[test]
fn peer_cut_off_from_the_leader_loses_its_session() {
    let mut world = World::of(4);
    assert!(world.node(1).registry().is_some_and(peerlock_registry::Registry::is_leader));
    let mine = world.acquire(4, wanted("cut"));
    world.run(Span::from_secs(1));
    world.apart.insert((1, 4));
    world.disconnect_pair(1, 4);
    world.run(Span::from_secs(16));
    assert!(matches!(world.ended(4, mine), Some(Error::SessionLost { .. })), "{:?}", world.ended(4, mine));
    let other = world.acquire(2, wanted("cut"));
    world.run(Span::from_secs(2));
    assert!(world.fencing(2, other).is_some());
}
