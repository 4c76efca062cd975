//! Requests, waits and leases of clients.

use std::time::Duration;

use super::detached::detached;
use super::world::{World, wanted};
use super::*;
use crate::TicketView;

fn tries(slots: u32) -> Wanted {
    Wanted { wait: Wait::Try, slots: Some(slots), ..wanted("r") }
}

#[test]
fn wait_times_out_with_the_queue_position() {
    let mut world = World::of(3);
    let holder = world.acquire(1, wanted("r"));
    let first = world.acquire(2, wanted("r"));
    world.run(Span::from_secs(1));
    let waits = world.acquire(3, Wanted { wait: Wait::For(Span::from_secs(5)), ..wanted("r") });
    world.run(Span::from_millis(4999));
    assert_eq!(world.ended(3, waits), None);
    world.run(Span::from_millis(1));
    let name = "r".parse().unwrap();
    let error = Error::NotAcquired { name, place: Some(1) };
    assert_eq!(world.ended(3, waits), Some(&error));
    assert_eq!(error.to_string(), "r was not acquired: 1 request is ahead in the queue");
    let place = world.received(2).iter().rev().find_map(|effect| match effect {
        Effect::Progress(ticket, progress) if *ticket == first => progress.ahead,
        _ => None,
    });
    assert_eq!(place, Some(0));
    world.input(1, Input::Release { call: None, ticket: holder });
    assert!(world.fencing(2, first).is_some());
}

#[test]
fn try_acquires_a_free_slot_but_never_overtakes() {
    let mut world = World::of(3);
    let refused = |world: &mut World, number| {
        let ticket = world.acquire(number, tries(2));
        world.run(Span::from_secs(1));
        match world.ended(number, ticket) {
            Some(Error::NotAcquired { place, .. }) => *place,
            other => panic!("{number}: {other:?}"),
        }
    };
    let inside = [1, 2].map(|number| (number, world.acquire(number, tries(2))));
    assert!(inside.iter().all(|(number, ticket)| world.fencing(*number, *ticket).is_some()));
    assert_eq!(refused(&mut world, 3), Some(0));
    let waits = world.acquire(2, wanted("r"));
    for number in 1..=3 {
        assert_eq!(refused(&mut world, number), Some(1), "{number} tries");
    }
    world.input(1, Input::Release { call: None, ticket: inside[0].1 });
    assert!(world.fencing(2, waits).is_some());
    for ticket in [inside[1].1, waits] {
        world.input(2, Input::Release { call: None, ticket });
    }
    for number in [3, 1, 2] {
        let ticket = world.acquire(number, tries(2));
        assert!(world.fencing(number, ticket).is_some(), "{number} tries");
        world.input(number, Input::Release { call: None, ticket });
    }
}

/// Also if the members that answer it have not met it yet.
#[test]
fn new_host_is_granted_a_slot_within_a_second() {
    let mut world = World::of(1);
    for number in 2..=12 {
        world.start(number, Origin::Seeks { expect: None }, &[number - 1]);
        world.run(Span::from_secs(1));
        assert!(world.received(number).contains(&Effect::Joined), "{number}");
        let ticket = world.acquire(number, wanted("r"));
        assert!(world.fencing(number, ticket).is_some(), "{number}");
        world.input(number, Input::Release { call: None, ticket });
    }
}

#[test]
fn forgotten_host_rejoins_after_a_partition() {
    let mut world = World::of(4);
    world.split(&[3]);
    world.run(Span::from_secs(700));
    world.split(&[]);
    world.run(Span::from_secs(5));
    for number in 1..=4 {
        for name in ["r", "new"] {
            let ticket = world.acquire(number, wanted(name));
            assert!(world.fencing(number, ticket).is_some(), "{number} does not get {name}");
            world.input(number, Input::Release { call: None, ticket });
        }
    }
}

#[test]
fn draining_peer_keeps_slots_until_released() {
    let mut world = World::of(3);
    let held = world.acquire(1, wanted("r"));
    let waits = world.acquire(1, wanted("r"));
    let other = world.acquire(2, wanted("r"));
    world.input(1, Input::Drain);
    assert_eq!(world.ended(1, waits), Some(&Error::Stopped));
    world.input(1, Input::Acquire { call: 5, wanted: wanted("r") });
    assert_eq!(world.answer(1), Some(&Err(Error::Stopped)));
    world.run(Span::from_secs(5));
    assert_eq!(world.fencing(2, other), None, "the holder was asked to stop, and may still hold it");
    world.input(1, Input::Release { call: Some(6), ticket: held });
    assert_eq!(world.answer(1), Some(&Err(Error::Lost)));
    assert!(world.fencing(2, other).is_some());
}

/// The registry may count from the request, so the client must not count from the answer.
#[test]
fn detached_renewal_counts_from_the_request() {
    let mut world = World::of(1);
    let held = world.acquire(1, detached("r"));
    let asked = world.now;
    world.machines.get_mut(&1).unwrap().slow_disk = true;
    world.input(1, Input::Renew { call: 5, ticket: held });
    world.run(Span::from_millis(300));
    world.machines.get_mut(&1).unwrap().slow_disk = false;
    while let Some(number) = world.machines.get_mut(&1).unwrap().unwritten.pop_front() {
        world.input(1, Input::Written(number));
    }
    world.run(Span::from_secs(5));
    assert_eq!(world.answer(1), Some(&Ok(Answer::Renewed(asked + Span::from_secs(60)))));
    world.run(Span::from_secs(49));
    world.input(1, Input::Renew { call: 6, ticket: held });
    assert_eq!(world.answer(1), Some(&Err(Error::Lost)), "too late: its grace has begun");
}

#[test]
fn slots_mismatch_names_both_numbers() {
    let mut world = World::of(2);
    world.acquire(1, Wanted { slots: Some(3), ..wanted("backup") });
    let refused = world.acquire(2, Wanted { slots: Some(5), ..wanted("backup") });
    let error = world.ended(2, refused).expect("it is refused").to_string();
    assert_eq!(error, "backup has 3 slots, not 5: ask for 3, or change it with `peerlock resize backup 5`");
}

#[test]
fn voters_know_each_other() {
    let mut world = World::of(3);
    world.run(Span::from_secs(60));
    for number in 1..=3 {
        let mut known = world.node(number).inspect(world.now).others;
        known.push(PeerId::new(number));
        known.sort();
        assert_eq!(known, [1, 2, 3].map(PeerId::new), "of {number}");
    }
    let alone = World::of(1);
    let alone = alone.node(1).inspect(alone.now);
    assert_eq!((alone.others, alone.parts), (vec![], vec![]));
}

#[test]
fn inspection_shows_one_queue_and_tokens_at_holders() {
    let mut world = World::of(3);
    let label = |label: &str| Wanted { slots: Some(2), label: label.into(), ..wanted("r") };
    for (number, name) in [(1, "in"), (2, "in"), (3, "3"), (1, "1"), (2, "2")] {
        world.acquire(number, label(name));
    }
    world.run(Span::from_secs(1));

    let parts = [1, 2, 3].map(|number| world.node(number).inspect(world.now).parts.remove(0));
    let keepers: Vec<_> = (1..).zip(&parts).filter_map(|(number, part)| Some((number, part.queue.as_ref()?))).collect();
    let [(keeper, queue)] = keepers[..] else { panic!("one coordinator: {keepers:?}") };
    assert!(parts.iter().all(|part| part.keeper == Some(PeerId::new(keeper)) && part.slots == Some(2)), "{parts:?}");
    let waits = |at: &TicketView| {
        let part = &parts[at.peer.get() as usize - 1];
        let client = part.clients.iter().find(|client| client.ticket == at.ticket).unwrap();
        assert!(client.slot.is_none() && client.client.fencing.is_none(), "it waits: {client:?}");
        assert!(client.client.age >= Duration::from_secs(1), "{client:?}");
        client.client.label.clone()
    };
    assert_eq!(queue.iter().map(waits).collect::<Vec<_>>(), ["3", "1", "2"]);
    let tokens: Vec<_> = parts.iter().flat_map(|part| part.tokens.iter().map(move |at| (part, at))).collect();
    assert_eq!(tokens.len(), 2);
    for (part, token) in tokens {
        let holder = part.clients.iter().find(|client| client.slot == Some(token.slot)).unwrap();
        assert_eq!((holder.client.label.as_str(), token.free), ("in", false));
        assert!(queue.contains(&token.next.unwrap()), "the successor is in the queue: {token:?}");
    }
}
