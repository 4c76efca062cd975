//! Defects of an early version (docs/notes/2026-11-19-hardening.md).

use super::*;

fn are_let_in(world: &mut World, name: &str, numbers: &[u64], within: Span) -> bool {
    numbers.iter().all(|number| {
        let ticket = world.acquire(*number, wanted(name));
        world.run(within);
        let is_in = world.fencing(*number, ticket).is_some();
        world.input(*number, Input::Release { call: None, ticket });
        is_in
    })
}

/// B1: the next coordinator was disconnected when it was appointed.
#[test]
fn disconnected_party_is_served_after_its_coordinator_left() {
    for away in [2, 3] {
        let mut world = World::of(4);
        assert!(are_let_in(&mut world, "r", &[1, 2, 3, 4], Span::from_secs(1)));
        world.split(&[away]);
        world.input(1, Input::Leave);
        world.run(Span::from_secs(1));
        world.kill(1);
        let waits = world.acquire(4, wanted("r"));
        world.run(Span::from_secs(5));
        world.split(&[]);
        world.run(Span::from_secs(20));
        assert!(world.fencing(4, waits).is_some(), "without {away}");
        world.input(4, Input::Release { call: None, ticket: waits });
        assert!(are_let_in(&mut world, "r", &[2, 3, 4], Span::from_secs(1)), "with {away}");
    }
}

/// B3: idle tokens and the coordination of a killed peer were lost for good.
#[test]
fn idle_tokens_of_a_killed_peer_are_recovered() {
    for (had_it_last, coordinator) in [(1, 1), (2, 1), (1, 2), (3, 3)] {
        let mut world = World::of(3);
        assert!(are_let_in(&mut world, "r", &[coordinator, had_it_last], Span::from_secs(1)));
        let before = world.acquire(had_it_last, wanted("r"));
        world.run(Span::from_secs(1));
        let fencing = world.fencing(had_it_last, before);
        world.input(had_it_last, Input::Release { call: None, ticket: before });
        world.kill(had_it_last);
        let others: Vec<u64> = (1..=3).filter(|number| *number != had_it_last).collect();
        world.run(Span::from_secs(20));
        for number in &others {
            let ticket = world.acquire(*number, wanted("r"));
            world.run(Span::from_secs(1));
            assert!(world.fencing(*number, ticket) > fencing, "{number} after {had_it_last}");
            world.input(*number, Input::Release { call: None, ticket });
        }
        world.restart(had_it_last);
        world.run(Span::from_secs(5));
        assert!(are_let_in(&mut world, "r", &[1, 2, 3], Span::from_secs(1)), "{had_it_last} is back");
    }
}

/// B5, B6: hosts without a data directory that are killed.
#[test]
fn killed_guests_are_no_voters() {
    let mut world = World::of(1);
    world.keeps = false;
    for number in 100..120 {
        world.start(number, Origin::Seeks { expect: None }, &[1]);
        world.run(Span::from_secs(1));
        let ticket = world.acquire(number, wanted("r"));
        world.run(Span::from_secs(16));
        assert!(world.fencing(number, ticket).is_some(), "{number} waits no longer than the last session");
        world.kill(number);
        assert!(are_let_in(&mut world, &format!("new-{number}"), &[1], Span::from_millis(100)), "at once");
    }
}

/// A3, b and d: a minority grants no slot of a new resource, however long the partition lasts.
#[test]
fn minority_grants_no_slot_of_a_new_resource() {
    let mut world = World::of(3);
    world.run(Span::from_secs(1));
    world.split(&[1, 9]);
    world.keeps = false;
    world.start(9, Origin::Seeks { expect: None }, &[1]);
    for minutes in [0, 1, 10] {
        world.run(Span::from_secs(60 * minutes));
        let name = format!("new-{minutes}");
        let there = world.acquire(2, wanted(&name));
        let tickets = [1, 9].map(|number| (number, world.acquire(number, Wanted { wait: Wait::Try, ..wanted(&name) })));
        world.run(Span::from_secs(20));
        assert!(world.fencing(2, there).is_some(), "{minutes}");
        for (number, ticket) in tickets {
            assert!(world.fencing(number, ticket).is_none(), "{number} after {minutes} minutes");
            assert!(world.ended(number, ticket).is_some(), "{number} fails");
        }
    }
    world.split(&[]);
    world.run(Span::from_secs(30));
    let tried = world.acquire(1, Wanted { wait: Wait::Try, ..wanted("new-0") });
    world.run(Span::from_secs(5));
    assert!(world.fencing(1, tried).is_none(), "2 still holds it");
    assert!(are_let_in(&mut world, "later", &[1, 9, 3], Span::from_secs(1)));
}
