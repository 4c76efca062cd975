//! A waiter keeps its position when its session or its process ends.

use super::super::*;
use super::world::{World, wanted};
use crate::takeover::places::Place;
use crate::{JournalEntry, Wanted};
use peerlock_protocol::token::Arrival;
use peerlock_types::Span;

fn of_process(pid: u32) -> Wanted {
    Wanted { pid: Some(pid), ..wanted("r") }
}

/// A world of `machines` machines, where machine 1 holds the slot and these then wait in turn.
fn waiting(machines: u64, waiters: &[u64]) -> (World, TicketId, Vec<TicketId>) {
    let mut world = World::of(machines);
    let holder = world.acquire(1, wanted("r"));
    assert!(world.fencing(1, holder).is_some());
    let tickets = waiters.iter().map(|&number| {
        let ticket = world.acquire(number, of_process(7));
        world.run(Span::from_secs(1));
        ticket
    });
    let tickets = tickets.collect();
    (world, holder, tickets)
}

/// Returns whether the first of these tickets is granted before the second.
fn is_first(world: &mut World, holder: TicketId, first: (u64, TicketId), second: (u64, TicketId)) -> bool {
    world.input(1, Input::Release { call: None, ticket: holder });
    world.run(Span::from_secs(1));
    let granted = [first, second].map(|(number, ticket)| world.fencing(number, ticket).is_some());
    assert_ne!(granted[0], granted[1], "one slot");
    granted[0]
}

#[test]
fn waiter_of_a_restarted_process_keeps_its_position() {
    for killed in [true, false] {
        let (mut world, holder, tickets) = waiting(4, &[2, 3]);
        if !killed {
            world.input(2, Input::Close);
            world.input(2, Input::Leave);
            assert!(matches!(world.ended(2, tickets[0]), Some(Error::Stopped)));
        }
        world.kill(2);
        world.run(Span::from_secs(1));
        world.restart(2);
        world.run(Span::from_secs(1));
        let again = world.acquire(2, of_process(7));
        world.run(Span::from_secs(4));
        assert!(is_first(&mut world, holder, (2, again), (3, tickets[1])), "killed: {killed}");
    }
}

/// Also where the waiter's host coordinates, and where it does not: the generation is even or odd.
#[test]
fn waiter_whose_session_ended_keeps_its_position() {
    for others in [0, 1, 2] {
        let (mut world, holder, tickets) = waiting(5, &[2, 3]);
        (0..others).for_each(|at| _ = world.acquire(4 + at, wanted("r")));
        world.frozen.insert(2);
        world.run(Span::from_secs(60));
        world.frozen.clear();
        world.run(Span::from_secs(10));
        let has_lost = |effect: &Effect| matches!(effect, Effect::Notice(Notice::SessionLost { .. }));
        assert!(world.received(2).iter().any(has_lost));
        assert!(is_first(&mut world, holder, (2, tickets[0]), (3, tickets[1])), "{others}");
    }
}

#[test]
fn recorded_position_counts_once_and_for_its_client() {
    let (mut world, holder, tickets) = waiting(4, &[2, 3]);
    world.kill(2);
    world.restart(2);
    world.run(Span::from_secs(1));
    let of_another = world.acquire(2, of_process(8));
    let unknown = world.acquire(2, wanted("r"));
    let again = world.acquire(2, of_process(7));
    let once_more = world.acquire(2, of_process(7));
    world.run(Span::from_secs(4));
    world.input(1, Input::Release { call: None, ticket: holder });
    for (number, ticket) in [(2, again), (3, tickets[1]), (2, of_another), (2, unknown), (2, once_more)] {
        world.run(Span::from_secs(1));
        assert!(world.fencing(number, ticket).is_some(), "{ticket:?} of {number}");
        world.input(number, Input::Release { call: None, ticket });
    }
    assert_eq!(world.machines[&2].predecessor.as_ref().unwrap().places, [], "all have ended");
}

#[test]
fn recorded_position_is_kept_for_a_minute() {
    let (mut world, holder, tickets) = waiting(4, &[2, 3]);
    world.kill(2);
    world.restart(2);
    world.run(Span::from_secs(58));
    assert_eq!(world.machines[&2].predecessor.as_ref().unwrap().places.len(), 1);
    world.run(Span::from_secs(60));
    assert_eq!(world.machines[&2].predecessor.as_ref().unwrap().places, []);
    let again = world.acquire(2, of_process(7));
    world.run(Span::from_secs(1));
    assert!(!is_first(&mut world, holder, (2, again), (3, tickets[1])));
}

/// After the recovery of a quorum, generations may be lower than those that a host has seen.
#[test]
fn recorded_position_of_the_future_is_replaced() {
    let (mut world, holder, tickets) = waiting(4, &[2, 3]);
    world.kill(2);
    let arrival = Arrival { generation: 1 << 20, number: 1 };
    let place = |client: &str, arrival| Place { name: "r".parse().unwrap(), client: client.into(), arrival };
    world.machines.get_mut(&2).unwrap().predecessor.as_mut().unwrap().places = vec![place("process 7", arrival)];
    world.restart(2);
    world.run(Span::from_secs(1));
    let again = world.acquire(2, of_process(7));
    world.run(Span::from_secs(1));
    let places = &world.machines[&2].predecessor.as_ref().unwrap().places;
    assert!(matches!(&places[..], [Place { arrival, .. }] if arrival.generation < 100), "{places:?}");
    let later = world.acquire(4, wanted("r"));
    world.run(Span::from_secs(1));
    assert!(!is_first(&mut world, holder, (2, again), (3, tickets[1])));
    world.input(3, Input::Release { call: None, ticket: tickets[1] });
    world.run(Span::from_secs(1));
    assert!(world.fencing(2, again).is_some() && world.fencing(4, later).is_none());
}

#[test]
fn wait_is_recorded_and_ends_with_its_grant() {
    let (mut world, holder, tickets) = waiting(3, &[2]);
    let waits = |effect: &&Effect| matches!(effect, Effect::Record(JournalEntry::Waiting(_)));
    assert_eq!(world.received(2).iter().filter(waits).count(), 1);
    world.input(1, Input::Release { call: None, ticket: holder });
    assert!(world.fencing(2, tickets[0]).is_some());
    assert_eq!(world.machines[&2].predecessor.as_ref().unwrap().places, []);
}
