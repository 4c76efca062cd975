//! What leases promise, where time passes: one coordinator falsely suspected, one that forgets. Up to the moment that
//! matters the run is given; from there on every order is tried, with whatever is still under way arriving late or
//! never.

use peerlock_explore::{Limits, Violation, World, explore_with_hope};
use peerlock_protocols::coordinator::{Config, Coordinator, Timer};
use peerlock_protocols::{Quorum, Replicas};
use peerlock_types::{PeerId, Span, Time};

use crate::stage::Stage;
use crate::{MOST_STATES, holds_from, one_inside};

/// Small numbers, so that little happens within a lease. Retries are rare.
const TIMED: Config = Config {
    lease: Span::from_secs(3),
    term: Span::from_millis(3500),
    ping: Span::from_secs(1),
    retry: Span::from_secs(30),
    ..Config::REPAIRED
};

/// Replica 0 lets client 3 in and renews its lease at 1, 2 and 3 s, when nobody has heard it answer a ping since the
/// beginning. At 4 s replica 1 takes its place, and client 4 asks.
fn taken_over(passes: u32, grace: Span, forgets: bool) -> Stage<Coordinator> {
    let limits = Limits { replicas: 3, resets: u32::from(forgets), passes: 5 + passes, ..Limits::new(1) };
    let replicas = Replicas::first(Quorum::new(3, 2));
    let retry = if forgets { Span::from_secs(1) } else { TIMED.retry };
    let config = |id| Config { lease: if id == 1 { grace } else { TIMED.lease }, retry, ..TIMED };
    let new = |id| (PeerId::new(id), Coordinator::new(PeerId::new(id), &replicas, config(id)));
    let mut stage = Stage::new(World::new(limits, (0..5).map(new)));
    one_inside(&mut stage);
    for _ in 0..3 {
        stage.pass();
        stage.fire(0..4);
        stage.deliver(3, 0, "request");
        stage.deliver(0, 3, "response");
        stage.lose_all();
    }
    if forgets {
        stage.reset(0);
    }
    stage.pass();
    stage.fire([1]);
    for voter in if forgets { 2..3 } else { 0..3 }.filter(|&voter| voter != 1) {
        stage.deliver(1, voter, "iamcoordinator");
        stage.deliver(voter, 1, "update");
    }
    stage.fire([0, 2, 3]);
    stage.lose_all();
    stage.request(4);
    stage
}

/// Client 3 is inside until 6 s and a little less; replica 1 lets client 4 in at 7 s at the earliest, unless client 3
/// has told it that it was inside, and has left. Its REQUEST may arrive at any time.
#[test]
fn a_coordinator_that_is_falsely_suspected() {
    let stage = suspected(TIMED.lease);
    holds_from(&stage, u32::MAX);

    // One of the runs that were tried: so far do they go.
    let mut run = stage;
    run.pass();
    run.fire(0..5);
    run.pass();
    run.fire(0..5);
    run.deliver(1, 4, "response");
    assert!(run.trace.to_string().ends_with("4: enter slot 0, fencing 1099511627777\n"), "{}", run.trace);
}

fn suspected(grace: Span) -> Stage<Coordinator> {
    let mut stage = taken_over(2, grace, false);
    stage.world.forget_timers(|timer| matches!(timer, Timer::Ping(_)));
    stage.pass();
    stage.deliver(4, 0, "request");
    stage.deliver(0, 1, "request");
    stage.lose_all();
    stage.fire([0, 3]);
    stage
}

/// The check bites: if the new coordinator does not wait for as long as the old one has granted, there are two inside.
#[test]
fn a_coordinator_that_does_not_wait_lets_two_in() {
    let stage = suspected(Span::from_millis(1990));
    let found = explore_with_hope(&stage.world, MOST_STATES, u32::MAX).unwrap_err();

    assert!(matches!(found.violation, Violation::TooManyInside { inside: 2, slots: 1 }), "{found}");
}

/// Replica 0 has forgotten everything at 3 s. At 5 s client 3 renews its lease with replica 1; at 7 s, when that may
/// let others in, replica 0 asks for its memory, since its promises have ended.
#[test]
fn a_coordinator_that_forgets() {
    let mut stage = taken_over(4, TIMED.lease, true);
    stage.lose_all();
    stage.world.forget_timers(|timer| matches!(timer, Timer::Ping(1 | 2)));
    stage.pass();
    stage.fire([0, 3, 4]);
    stage.deliver(3, 1, "request");
    stage.deliver(1, 3, "response");
    stage.deliver(4, 1, "request");
    stage.lose_all();
    stage.pass();
    while stage.world.now() < Time::ZERO + Span::from_secs(7) {
        stage.fire([0, 3, 4]);
        stage.lose_all();
        stage.pass();
    }
    stage.fire([0]);
    stage.deliver(0, 1, "recover");
    holds_from(&stage, u32::MAX);
}
