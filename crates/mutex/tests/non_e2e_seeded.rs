//! Non-E2E at scale and in trouble, from seeds, on routes that never change: does it hold?

mod on_routes;

use on_routes::{Setting, bad_network, calm, cut_off, everything, few_resets};
use peerlock_mutex::NonE2e;
use peerlock_mutex::non_e2e::Config;

fn holds(setting: Setting) -> u64 {
    on_routes::holds(setting, |me, replicas| NonE2e::new(me, replicas, Config::REPAIRED))
}

#[test]
fn without_trouble() {
    holds(calm());
}

#[test]
fn on_a_bad_network() {
    holds(Setting { trouble: bad_network(), ..calm() });
}

#[test]
fn with_resets_of_replicas_and_hops() {
    holds(Setting { trouble: few_resets(), ..calm() });
}

#[test]
fn with_everything() {
    holds(Setting { trouble: everything(), ..calm() });
}

/// Leases that end, by clocks that differ, after a wait in some hop's queue: whoever is cut off is out in time.
#[test]
fn with_holders_that_are_cut_off() {
    assert!(holds(cut_off()) > 0);
}
