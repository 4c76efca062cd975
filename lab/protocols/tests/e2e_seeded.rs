//! Seeded simulation of E2E on fixed routes.

mod on_routes;

use on_routes::faults::{self, bad_network, closed, crashes_and_withdrawals, few_resets};
use on_routes::{SERVERS, calm, rough};
use peerlock_protocols::E2e;
use peerlock_protocols::e2e::Config;
use peerlock_sim::Experiment;
use peerlock_types::Span;

/// A short lease shortens the runs.
const SHORT: Config = Config { lease: Span::from_secs(10), ping: Span::from_secs(20), ..Config::REPAIRED };

fn holds(experiment: &Experiment) -> u64 {
    on_routes::holds(experiment, |me, replicas| E2e::new(me, replicas, SHORT))
}

#[test]
fn repaired_form_holds_without_faults() {
    assert_eq!(holds(&calm()), 0);
}

#[test]
fn repaired_form_holds_on_bad_network() {
    holds(&rough(bad_network()));
}

#[test]
fn repaired_form_holds_with_resets() {
    holds(&Experiment { faults: few_resets(SERVERS.into()), ..calm() });
}

#[test]
fn repaired_form_holds_with_crashes_and_withdrawals() {
    holds(&Experiment { faults: crashes_and_withdrawals(), peers: SERVERS as usize + 12, ..calm() });
}

#[test]
fn repaired_form_holds_with_all_faults() {
    holds(&rough(on_routes::everything()));
}

#[test]
fn repaired_form_holds_with_stays_beyond_the_lease() {
    let workload = closed(Span::from_secs(1), Span::from_secs(8), 5);
    let lost = holds(&Experiment { workload, ..rough(on_routes::everything()) });
    assert!(lost > 0, "no lease was lost, so the run does not test it");
}

/// Clocks differ, and leases have passed through many hand-overs.
#[test]
fn repaired_form_holds_with_owners_cut_off() {
    assert!(holds(&faults::cut_off(calm())) > 0);
}

#[test]
fn printed_form_does_not_hold() {
    let counting = Experiment { count_violations: true, trials: 20, ..calm() };
    let found = |config| on_routes::play(&counting, |me, replicas| E2e::new(me, replicas, config)).harm();
    assert!(found(Config::PRINTED).stuck > 20);
    assert!(found(Config { successor_named: false, ..SHORT }).violations > 20);
}
