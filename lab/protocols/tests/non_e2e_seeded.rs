//! Seeded simulation of Non-E2E on fixed routes.

mod on_routes;

use on_routes::faults::{self, bad_network, few_resets};
use on_routes::{SERVERS, calm, rough};
use peerlock_protocols::NonE2e;
use peerlock_protocols::non_e2e::Config;
use peerlock_sim::Experiment;

fn holds(experiment: &Experiment) -> u64 {
    on_routes::holds(experiment, |me, replicas| NonE2e::new(me, replicas, Config::REPAIRED))
}

#[test]
fn repaired_form_holds_without_faults() {
    holds(&calm());
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
fn repaired_form_holds_with_all_faults() {
    holds(&rough(on_routes::everything()));
}

/// Clocks differ, and requests have waited in the queues of hops.
#[test]
fn repaired_form_holds_with_holders_cut_off() {
    assert!(holds(&faults::cut_off(calm())) > 0);
}
