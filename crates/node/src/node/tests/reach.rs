//! Waiters at unreachable hosts.

use super::*;
use crate::{Name, TicketId};

fn of(slots: u32) -> Wanted {
    Wanted { slots: Some(slots), ..wanted("r") }
}

/// Returns four hosts, with clients at host 2 that hold all slots, and a waiter at a host that does not coordinate.
fn with_waiter(slots: u32) -> (World, Vec<TicketId>, u64, TicketId) {
    let mut world = World::of(4);
    let holders: Vec<TicketId> = (0..slots).map(|_| world.acquire(2, of(slots))).collect();
    world.run(Span::from_secs(1));
    assert!(holders.iter().all(|ticket| world.fencing(2, *ticket).is_some()));
    let part = world.node(2).parts.get("r".parse::<Name>().expect("a name").key()).expect("it takes part");
    let host = [3, 4].into_iter().find(|host| part.custody.coordinator() != PeerId::new(*host)).expect("one of two");
    let waiter = world.acquire(host, of(slots));
    world.run(Span::from_secs(1));
    (world, holders, host, waiter)
}

fn cut_silently(world: &mut World, host: u64) {
    (1..=4).filter(|other| *other != host).for_each(|other| world.part_silently(host, other));
}

fn reconnect(world: &mut World, host: u64) {
    world.disconnect(host);
    world.settle();
    world.silent.clear();
    world.apart.clear();
    world.run(Span::from_secs(2));
}

#[test]
fn free_slot_is_not_handed_to_an_unreachable_host() {
    for slots in [1, 2] {
        let (mut world, holders, host, first) = with_waiter(slots);
        let second = world.acquire(1, of(slots));
        world.run(Span::from_secs(1));
        cut_silently(&mut world, host);
        world.run(Span::from_secs(4));
        world.input(2, Input::Release { call: None, ticket: holders[0] });
        world.run(Span::from_secs(1));
        assert!(world.fencing(1, second).is_some(), "{slots}");
        assert!(world.node(host).problem().is_none(), "{slots}: the session of the first waiter is still valid");
        assert_eq!(world.fencing(host, first), None);
    }
}

#[test]
fn waiter_is_served_first_when_it_is_reachable_again() {
    for slots in [1, 2] {
        let (mut world, holders, host, first) = with_waiter(slots);
        let others: Vec<TicketId> = (0..3).map(|_| world.acquire(1, of(slots))).collect();
        world.run(Span::from_secs(1));
        cut_silently(&mut world, host);
        world.run(Span::from_secs(4));
        reconnect(&mut world, host);
        assert!(world.node(host).problem().is_none(), "{slots}: it has not lost its session");
        holders.iter().for_each(|ticket| world.input(2, Input::Release { call: None, ticket: *ticket }));
        world.run(Span::from_secs(1));
        assert!(world.fencing(host, first).is_some(), "{slots}");
        assert_eq!(world.fencing(1, others[2]), None, "{slots}");
    }
}

#[test]
fn waiter_reached_via_the_leader_is_not_passed_over() {
    let (mut world, holders, host, first) = with_waiter(1);
    let part = world.node(2).parts.get("r".parse::<Name>().expect("a name").key()).expect("it takes part");
    let coordinator = part.custody.coordinator().get();
    let leader = (1..=4).find(|number| world.node(*number).registry().is_some_and(|registry| registry.is_leader()));
    if leader == Some(coordinator) || leader == Some(host) {
        panic!("the setting is unsuitable: {leader:?} leads, {coordinator} coordinates, and {host} waits");
    }
    let second = world.acquire(1, of(1));
    world.run(Span::from_secs(1));
    world.part_silently(coordinator, host);
    world.run(Span::from_secs(8));
    world.input(2, Input::Release { call: None, ticket: holders[0] });
    world.run(Span::from_secs(1));
    assert!(world.fencing(host, first).is_some());
    assert_eq!(world.fencing(1, second), None);
}
