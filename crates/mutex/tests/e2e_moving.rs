//! E2E from seeds, on routes that change: hops die for good, replicas move to other peers and have forgotten.

mod driver;
mod moving;

use std::sync::Arc;

use driver::{Load, Outcome, Setting, Trouble, play};
use moving::{Moving, PEERS, Plan};
use peerlock_base::{PeerId, Span};
use peerlock_mutex::e2e::{Config, E2e};
use peerlock_mutex::{Quorum, Replicas};

const SEEDS: u64 = 100;

/// With a lease as short as Sigma's, so that runs are short, and pings to match.
const SHORT: Config = Config { lease: Span::from_secs(10), ping: Span::from_secs(20), ..Config::REPAIRED };

/// Fewer than 2m − n = 3 replicas move within a lease time, with a second to spare.
const FEW_MOVES: (Span, Span) = (Span::from_secs(4), Span::from_secs(11));

fn run(setting: Setting, (often, window): (Span, Span), config: Config, seed: u64) -> Outcome {
    let replicas = Replicas::on_overlay("resource", Quorum::new(5, 4));
    let plan = Arc::new(Plan::new(&replicas, seed, setting.length, often, window));
    play(setting, seed, |me: PeerId| Moving::new(E2e::new(me, &replicas, config), plan.clone()))
}

fn setting(trouble: Trouble) -> Setting {
    Setting {
        // For the driver these are all the peers that have no clients.
        quorum: Quorum::new(PEERS as u32, 9),
        load: Load::Closed { clients: 8, think: Span::from_secs(2) },
        hold: Span::from_millis(500),
        latency: (Span::ZERO, Span::from_millis(100)),
        length: Span::from_secs(120),
        trouble,
    }
}

fn holds(setting: Setting) {
    for seed in 0..SEEDS {
        let seen = run(setting, FEW_MOVES, SHORT, seed);
        assert_eq!((seen.violations, seen.fencing_back, seen.unserved), (0, 0, 0), "seed {seed}: {seen:?}");
        assert!(seen.entries > 5, "seed {seed}: {seen:?}");
    }
}

#[test]
fn hops_die_and_replicas_move() {
    holds(setting(Trouble::default()));
}

#[test]
fn hops_die_and_replicas_move_and_messages_are_lost_and_clients_crash() {
    holds(setting(Trouble {
        jitter: true,
        loss: 0.01,
        duplication: 0.01,
        crash: 0.01,
        withdraw: 0.1,
        cut_off: 0.02,
        ..Trouble::default()
    }));
}

/// The checks bite: as printed nearly everybody is left to wait.
#[test]
fn the_printed_form_loses_requests() {
    let unserved = |seed| run(setting(Trouble::default()), FEW_MOVES, Config::PRINTED, seed).unserved;
    assert!((0..10).map(unserved).sum::<u64>() > 10);
}
