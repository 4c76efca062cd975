//! Seeded simulation of E2E on changing routes: hops die, and replicas move to other peers without their memory.

mod moving;

use moving::{FEW_MOVES, calm, everything, play};
use peerlock_protocols::E2e;
use peerlock_protocols::e2e::Config;
use peerlock_sim::Experiment;
use peerlock_types::Span;

/// A lease as short as Sigma's, which shortens the runs, and pings to match.
const SHORT: Config = Config { lease: Span::from_secs(10), ping: Span::from_secs(20), ..Config::REPAIRED };

fn holds(experiment: &Experiment) {
    moving::holds(experiment, |me, replicas| E2e::new(me, replicas, SHORT));
}

#[test]
fn hops_die_and_replicas_move() {
    holds(&calm());
}

#[test]
fn hops_die_and_replicas_move_and_messages_are_lost_and_clients_crash() {
    holds(&everything());
}

/// Check of the checker: the printed form leaves most clients waiting.
#[test]
fn the_printed_form_loses_requests() {
    let counting = Experiment { count_violations: true, ..calm() };
    let found = |seed| play(&counting, FEW_MOVES, seed, |me, replicas| E2e::new(me, replicas, Config::PRINTED));
    assert!((0..10).map(|seed| found(seed).harm().stuck).sum::<u64>() > 10);
}
