//! Non-E2E at scale and in trouble, from seeds, on routes that never change: does it hold?

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
fn without_faults() {
    holds(&calm());
}

#[test]
fn on_a_bad_network() {
    holds(&rough(bad_network()));
}

#[test]
fn with_resets_of_replicas_and_hops() {
    holds(&Experiment { faults: few_resets(SERVERS.into()), ..calm() });
}

#[test]
fn with_everything() {
    holds(&rough(on_routes::everything()));
}

/// Leases that end, by clocks that differ, after a wait in some hop's queue: whoever is cut off is out in time.
#[test]
fn with_holders_that_are_cut_off() {
    assert!(holds(&faults::cut_off(calm())) > 0);
}
