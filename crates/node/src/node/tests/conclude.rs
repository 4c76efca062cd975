//! Runs that take place once per period.

use std::time::Duration;

use peerlock_types::{PeerId, Span};

use super::super::*;
use super::world::{World, wanted};
use crate::verb::{Evict, Remove, Revoke, Show};
use crate::{Conclusion, Name, PeriodView, Wanted};

const PERIOD: Span = Span::from_secs(100);

fn conclude(world: &mut World, at: u64, ticket: TicketId, succeeded: bool, attempts: u32) -> Result<bool, Error> {
    let conclusion = Conclusion { succeeded, attempts, hold: PERIOD.into() };
    world.input(at, Input::Conclude { call: 7, ticket, conclusion, at: Duration::from_secs(5) });
    world.run(Span::from_secs(1));
    match world.answer(at) {
        Some(Ok(Answer::Concluded { holds })) => Ok(*holds),
        Some(Err(why)) => Err(why.clone()),
        answer => panic!("{answer:?}"),
    }
}

fn period(world: &mut World, at: u64) -> Option<PeriodView> {
    world.input(at, Input::call(8, Show { name: "r".parse().unwrap() }));
    world.run(Span::from_secs(1));
    match world.answer(at) {
        Some(Ok(Answer::Shown(shown))) => shown.period.clone(),
        answer => panic!("{answer:?}"),
    }
}

/// Runs until the waiter is granted. Returns how long that took.
fn granted_after(world: &mut World, at: u64, waiter: TicketId) -> Span {
    let since = world.now;
    while world.fencing(at, waiter).is_none() {
        assert!(world.now.since(since) < PERIOD * 2, "the slot is never free");
        world.run(Span::from_millis(100));
    }
    world.now.since(since)
}

#[test]
fn success_holds_the_slot_until_the_period_ends() {
    for fault in ["none", "holder's host", "holder's host, restarted", "all hosts, restarted"] {
        let mut world = World::of(3);
        let holder = world.acquire(3, wanted("r"));
        let begins = world.now;
        assert_eq!(conclude(&mut world, 3, holder, true, 3), Ok(true), "{fault}");
        assert_eq!(conclude(&mut world, 3, holder, true, 3), Ok(true), "a repeated call");
        let hosts: &[u64] = match fault {
            "none" => &[],
            "all hosts, restarted" => &[1, 2, 3],
            _ => &[3],
        };
        world.run(Span::from_secs(10));
        hosts.iter().for_each(|host| world.kill(*host));
        if fault.ends_with("restarted") {
            hosts.iter().for_each(|host| world.restart(*host));
        }
        world.run(Span::from_secs(20));
        let waiter = world.acquire(1, wanted("r"));
        world.run(Span::from_secs(20));
        let shown = period(&mut world, 1).expect("the period has not ended");
        assert!(shown.succeeded && shown.holds && shown.failures == 0, "{fault}: {shown:?}");
        assert_eq!((shown.host.as_str(), shown.ended), ("host3", Duration::from_secs(5)), "{fault}");
        granted_after(&mut world, 1, waiter);
        let took = world.now.since(begins);
        // 3 % for the rates of clocks, 2.5 % for the part that a restarted voter counts again.
        assert!(took >= PERIOD && took < PERIOD + Span::from_secs(8), "{fault}: {took:?}");
        assert_eq!(period(&mut world, 1), None, "{fault}");
    }
}

#[test]
fn next_host_runs_after_a_failure_until_the_last_attempt() {
    let mut world = World::of(3);
    for (host, holds) in [(1, false), (2, false), (3, true)] {
        let holder = world.acquire(host, wanted("r"));
        world.run(Span::from_secs(1));
        assert!(world.fencing(host, holder).is_some(), "the attempt of host {host}");
        assert_eq!(conclude(&mut world, host, holder, false, 3), Ok(holds));
        assert_eq!(period(&mut world, 1).unwrap().failures as u64, host);
        if !holds {
            world.input(host, Input::Release { call: None, ticket: holder });
        }
    }
    let waiter = world.acquire(1, wanted("r"));
    assert!(granted_after(&mut world, 1, waiter) > Span::from_secs(90));
}

#[test]
fn client_that_ends_after_a_failure_frees_the_slot() {
    let mut world = World::of(3);
    let holder = world.acquire(3, wanted("r"));
    assert_eq!(conclude(&mut world, 3, holder, false, 3), Ok(false));
    world.kill(3);
    let waiter = world.acquire(1, wanted("r"));
    assert!(granted_after(&mut world, 1, waiter) < Span::from_secs(20), "the record of a failure holds no slot");
}

#[test]
fn administrator_ends_a_period() {
    for (forced, is_alive) in [(false, true), (false, false), (true, true), (true, false)] {
        let mut world = World::of(3);
        let holder = world.acquire(3, wanted("r"));
        let fencing = world.fencing(3, holder).unwrap();
        conclude(&mut world, 3, holder, true, 3).unwrap();
        if !is_alive {
            world.kill(3);
            world.run(Span::from_secs(20));
        }
        let (name, peer) = ("r".parse::<Name>().unwrap(), PeerId::new(3));
        world.input(1, Input::call(5, Remove { name: name.clone() }));
        world.run(Span::from_secs(5));
        assert!(matches!(world.answer(1), Some(Err(Error::InUse { .. }))), "{:?}", world.answer(1));
        let waiter = world.acquire(1, wanted("r"));
        world.input(
            1,
            match forced {
                true => Input::call(6, Evict { name, peer }),
                false => Input::call(6, Revoke { name, peer: Some(peer), fencing }),
            },
        );
        let took = granted_after(&mut world, 1, waiter);
        assert!(took < Span::from_secs(20), "{forced}, {is_alive}: {took:?}");
    }
}

#[test]
fn conclusion_after_the_lease_changes_nothing() {
    let mut world = World::of(3);
    let holder = world.acquire(3, Wanted { auto_renew: false, ttl: Span::from_secs(5), ..wanted("r") });
    world.run(Span::from_secs(6));
    assert_eq!(conclude(&mut world, 3, holder, true, 3), Err(Error::Lost));
    let waiter = world.acquire(1, wanted("r"));
    assert!(granted_after(&mut world, 1, waiter) < Span::from_secs(2));
}

#[test]
fn invalid_conclusion_is_refused() {
    let mut world = World::of(3);
    let holder = world.acquire(3, wanted("r"));
    let s = Duration::from_secs;
    for (attempts, hold) in [(0, s(9)), (1001, s(9)), (3, s(0)), (3, s(31 * 86_400)), (3, Duration::MAX)] {
        let conclusion = Conclusion { succeeded: true, attempts, hold };
        world.input(3, Input::Conclude { call: 7, ticket: holder, conclusion, at: s(0) });
        let refused = matches!(world.answer(3), Some(Err(Error::Refused { class: crate::Class::BadRequest, .. })));
        assert!(refused, "{conclusion:?}: {:?}", world.answer(3));
    }
    assert_eq!(period(&mut world, 1), None);
}
