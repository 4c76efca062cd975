//! Non-E2E at scale and in trouble, from seeds, on routes that never change: does it hold?

mod on_routes;

use on_routes::{Setting, bad_network, calm, everything, few_resets};
use peerlock_mutex::NonE2e;
use peerlock_mutex::non_e2e::Config;

fn holds(setting: Setting) {
    on_routes::holds(setting, |me, replicas| NonE2e::new(me, replicas, Config::REPAIRED));
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
    let setting = Setting {
        load: Load::Closed { clients: 6, think: Span::from_millis(10) },
        hold: Span::from_secs(15),
        latency: (Span::ZERO, Span::from_millis(1)),
        length: Span::from_secs(300),
        trouble: Trouble { cut_off: 0.5, clocks_differ: true, ..Trouble::default() },
        ..calm()
    };
    holds(setting);
    assert!((0..10).all(|seed| non_e2e(setting, Config::REPAIRED, seed).lost > 0));
}
