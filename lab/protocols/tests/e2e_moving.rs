//! E2E from seeds, on routes that change: hops die for good, replicas move to other peers and have forgotten.

mod moving;

use moving::{FEW_MOVES, calm, everything, play};
use peerlock_protocols::E2e;
use peerlock_protocols::e2e::Config;
use peerlock_sim::Experiment;
use peerlock_types::Span;

/// With a lease as short as Sigma's, so that runs are short, and pings to match.
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

/// The checks bite: as printed nearly everybody is left to wait.
#[test]
fn the_printed_form_loses_requests() {
    let counting = Experiment { count_violations: true, ..calm() };
    let found = |seed| play(&counting, FEW_MOVES, seed, |me, replicas| E2e::new(me, replicas, Config::PRINTED));
    assert!((0..10).map(|seed| found(seed).harm().stuck).sum::<u64>() > 10);
}
