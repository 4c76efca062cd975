//! E2E at scale and in trouble, from seeds, on routes that never change: does it hold?

mod on_routes;

use on_routes::{Load, Setting, Trouble, bad_network, calm, everything, few_resets};
use peerlock_base::Span;
use peerlock_mutex::E2e;
use peerlock_mutex::e2e::Config;

/// With a lease as short as Sigma's, so that runs are short, and pings to match.
const SHORT: Config = Config { lease: Span::from_secs(10), ping: Span::from_secs(20), ..Config::REPAIRED };

fn holds(setting: Setting) -> u64 {
    on_routes::holds(setting, |me, replicas| E2e::new(me, replicas, SHORT))
}

#[test]
fn without_trouble() {
    assert_eq!(holds(calm()), 0);
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
fn with_clients_that_crash_and_withdraw() {
    let trouble = Trouble { crash: 0.1, withdraw: 0.1, ..Trouble::default() };
    holds(Setting { trouble, load: Load::Closed { clients: 12, think: Span::from_secs(1) }, ..calm() });
}

#[test]
fn with_everything() {
    holds(Setting { trouble: everything(), ..calm() });
}

/// Leases are renewed, and now and then lost.
#[test]
fn with_stays_longer_than_the_lease() {
    let setting = Setting { trouble: everything(), hold: Span::from_secs(8), length: Span::from_secs(200), ..calm() };
    assert!(holds(setting) > 0, "nobody ever loses a lease here: then the run proves nothing about losing it");
}

/// Whoever is cut off leaves just before the others' leases on it end. Latencies are so short here, and waits so long,
/// that a clock which runs a little fast would let two in.
#[test]
fn with_owners_that_are_cut_off() {
    let setting = Setting {
        load: Load::Closed { clients: 6, think: Span::from_millis(10) },
        hold: Span::from_secs(15),
        latency: (Span::ZERO, Span::from_millis(1)),
        length: Span::from_secs(300),
        trouble: Trouble { cut_off: 0.5, clocks_differ: true, ..Trouble::default() },
        ..calm()
    };
    assert!(holds(setting) > 0);
}
