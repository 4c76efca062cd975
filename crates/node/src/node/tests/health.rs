//! Health of peers and stalled resources.

use std::time::Duration;

use peerlock_types::Span;

use super::world::{World, wanted};
use crate::verb::{Resize, Show};
use crate::{Answer, Error, Health, Input, ResourceHealth, Stall};

fn health(world: &World, number: u64) -> Health {
    world.node(number).health(world.now)
}

fn resource(world: &World, number: u64) -> ResourceHealth {
    let health = health(world, number);
    let [resource] = &health.resources[..] else { panic!("one resource: {health:?}") };
    resource.clone()
}

fn names(stall: &Stall) -> Vec<&str> {
    stall.missing.iter().map(|missing| &missing.name[..]).collect()
}

#[test]
fn health_reports_session_and_clients() {
    let mut world = World::of(3);
    let holder = world.acquire(1, wanted("r"));
    world.acquire(1, wanted("r"));
    world.run(Span::from_secs(7));
    let Health { session, since, ends, problem, leaves, .. } = health(&world, 1);
    assert!(session.is_some() && ends.is_some_and(|ends| !ends.is_zero()) && problem.is_none() && !leaves);
    assert!(since >= Duration::from_secs(7), "{since:?}");
    let ResourceHealth { slots, holding, waiting, oldest_wait, generation, recoveries, stall, .. } =
        resource(&world, 1);
    assert_eq!((slots, holding, waiting, generation, recoveries, stall), (Some(1), 1, 1, 1, 0, None));
    assert!(oldest_wait.is_some_and(|wait| wait >= Duration::from_secs(7)), "{oldest_wait:?}");
    assert_eq!(health(&world, 2).resources, [], "it is not a party");
    world.input(1, Input::Drain);
    assert!(health(&world, 1).leaves && health(&world, 1).problem.is_some());
    world.input(1, Input::Release { call: None, ticket: holder });
}

#[test]
fn health_without_quorum_names_missing_voters() {
    let mut world = World::of(3);
    world.kill(1);
    world.kill(2);
    world.run(Span::from_secs(20));
    world.acquire(3, wanted("r"));
    let Health { session, since, ends, problem, sessions_lost, .. } = health(&world, 3);
    assert_eq!((session, ends, sessions_lost), (None, None, 1));
    assert!(since < Duration::from_secs(20), "it had one: {since:?}");
    let problem = problem.unwrap();
    assert!(problem.contains("no connection to the voters host1 for 20 s, host2 for 20 s"), "{problem}");
    let stall = resource(&world, 3).stall.unwrap();
    assert_eq!((names(&stall), &stall.why, stall.since), (vec!["host1", "host2"], &problem, since));
}

/// A generation is opened while a party is dead and its session has not expired.
#[test]
fn recovery_names_missing_hosts_and_the_latest_end() {
    let mut world = World::of(3);
    let holder = world.acquire(1, wanted("r"));
    world.acquire(2, wanted("r"));
    world.acquire(3, wanted("r"));
    world.kill(3);
    world.run(Span::from_secs(1));
    world.input(1, Input::call(1, Resize { name: "r".parse().unwrap(), slots: 2 }));
    world.run(Span::from_secs(2));
    let counts = [1, 2].into_iter().find(|number| resource(&world, *number).stall.is_some());
    let counts = counts.expect("one of them counts");
    let stall = resource(&world, counts).stall.unwrap();
    assert_eq!(names(&stall), ["host3"]);
    let ends = stall.missing[0].ends.expect("it is disconnected");
    assert!(ends < Duration::from_secs(18) && ends > Duration::from_secs(5), "{ends:?}");
    assert!(stall.why.starts_with("r has been stalled for 2 s: ") && stall.why.contains("host3 (disconnected for 3 s"));
    for asks in [1, 2] {
        world.input(asks, Input::call(2, Show { name: "r".parse().unwrap() }));
        world.run(Span::from_secs(3));
        let Some(Err(error @ Error::Recovering { since, missing, .. })) = world.answer(asks) else {
            panic!("{:?}", world.answer(asks));
        };
        assert!(*since >= Duration::from_secs(2) && missing[0].ends.is_some(), "{error}");
    }
    let before = world.now;
    while resource(&world, counts).stall.is_some() {
        world.run(Span::from_millis(100));
    }
    assert!(Duration::from(world.now.since(before)) <= ends, "the recovery ends within the announced time");
    let ResourceHealth { generation, recoveries, slots, .. } = resource(&world, counts);
    assert_eq!((slots, recoveries + 1), (Some(2), generation), "one for the resize, one for the death");
    assert!(world.fencing(1, holder).is_some());
    world.input(counts, Input::call(3, Show { name: "r".parse().unwrap() }));
    world.run(Span::from_secs(1));
    assert!(matches!(world.answer(counts), Some(Ok(Answer::Shown(_)))), "{:?}", world.answer(counts));
}
