//! Leases, with time: a coordinator falsely suspected, and one that is reset. The run is given up to the critical
//! moment; from there every order is explored.

use peerlock_explore::{Limits, Violation, World, explore_with_hope};
use peerlock_protocols::coordinator::{Config, Coordinator, Timer};
use peerlock_protocols::{Quorum, Replicas};
use peerlock_types::{PeerId, Span, Time};

use crate::stage::Stage;
use crate::{MOST_STATES, holds_from, one_inside};

const TIMED: Config = Config {
    lease: Span::from_secs(3),
    term: Span::from_millis(3500),
    ping: Span::from_secs(1),
    retry: Span::from_secs(30),
    ..Config::REPAIRED
};

/// Replica 0 grants to client 3 and renews its lease at 1, 2 and 3 s, while its answers to pings are lost. At 4 s
/// replica 1 takes its place, and client 4 requests.
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

/// Client 3 holds until just before 6 s. Replica 1 grants to client 4 at 7 s at the earliest, unless client 3 has
/// reported its hold and released.
#[test]
fn falsely_suspected_coordinator_is_harmless() {
    let stage = suspected(TIMED.lease);
    holds_from(&stage, u32::MAX);

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

#[test]
fn coordinator_without_grace_gives_two_holders() {
    let stage = suspected(Span::from_millis(1990));
    let found = explore_with_hope(&stage.world, MOST_STATES, u32::MAX).unwrap_err();

    assert!(matches!(found.violation, Violation::TooManyHolders { inside: 2, slots: 1 }), "{found}");
}

/// Replica 0 is reset at 3 s. At 5 s client 3 renews its lease with replica 1. At 7 s, when that may grant to others,
/// replica 0 asks for its state, since its own leases have expired.
#[test]
fn reset_coordinator_waits_for_its_leases() {
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
