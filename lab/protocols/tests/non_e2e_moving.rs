//! Seeded simulation of Non-E2E on changing routes.

mod moving;

use moving::{FEW_MOVES, calm, everything, faults, play};
use peerlock_protocols::NonE2e;
use peerlock_protocols::non_e2e::Config;
use peerlock_sim::Experiment;
use peerlock_types::Span;

fn holds(experiment: &Experiment) {
    moving::holds(experiment, |me, replicas| NonE2e::new(me, replicas, Config::REPAIRED));
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
    let found = |seed| play(&counting, FEW_MOVES, seed, |me, replicas| NonE2e::new(me, replicas, Config::PRINTED));
    assert!((0..10).map(|seed| found(seed).harm().stuck).sum::<u64>() > 10);
}

/// The bound of 2m − n is tight.
#[test]
fn too_many_moves_allow_two_holders() {
    let workload = faults::closed(Span::from_secs(2), Span::from_secs(2), 10);
    let counting = Experiment { workload, count_violations: true, ..calm() };
    let many_moves = (Span::from_millis(300), Span::ZERO);
    let found = |seed| play(&counting, many_moves, seed, |me, replicas| NonE2e::new(me, replicas, Config::REPAIRED));
    assert!((0..20).map(|seed| found(seed).harm().violations).sum::<u64>() > 0);
}
