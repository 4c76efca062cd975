//! Seeded simulation of E2E on changing routes.

mod moving;

use moving::{FEW_MOVES, calm, everything, play};
use peerlock_protocols::E2e;
use peerlock_protocols::e2e::Config;
use peerlock_sim::Experiment;
use peerlock_types::Span;

/// A short lease shortens the runs.
const SHORT: Config = Config { lease: Span::from_secs(10), ping: Span::from_secs(20), ..Config::REPAIRED };

fn holds(experiment: &Experiment) {
    moving::holds(experiment, |me, replicas| E2e::new(me, replicas, SHORT));
}

#[test]
fn repaired_form_holds_on_changing_routes() {
    holds(&calm());
}

#[test]
fn repaired_form_holds_on_changing_routes_with_faults() {
    holds(&everything());
}

#[test]
fn printed_form_loses_requests() {
    let counting = Experiment { count_violations: true, ..calm() };
    let found = |seed| play(&counting, FEW_MOVES, seed, |me, replicas| E2e::new(me, replicas, Config::PRINTED));
    assert!((0..10).map(|seed| found(seed).harm().stuck).sum::<u64>() > 10);
}
