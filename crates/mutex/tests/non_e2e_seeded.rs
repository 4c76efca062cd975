//! Non-E2E at scale and in trouble, from seeds, on routes that never change: does it hold?

mod driver;

use std::sync::Arc;

use driver::{Load, Outcome, Setting, Trouble, play};
use peerlock_base::{PeerId, Span};
use peerlock_mutex::non_e2e::{Config, NonE2e};
use peerlock_mutex::{Quorum, Replicas};
use peerlock_peer::fixed::{OnRoutes, Routes};

const SEEDS: u64 = 100;

/// Replicas at peers 0 … 4, four hops, and clients after them.
const QUORUM: Quorum = Quorum::new(5, 4);
const PEERS_WITHOUT_CLIENTS: u64 = 9;
const MOST_CLIENTS: u64 = 12;

/// From a client by one of two hops to one of two others, and from there to the replica.
fn routes(replicas: &Replicas) -> Arc<Routes> {
    let mut routes = Routes::default();
    for replica in 0..QUORUM.replicas() {
        let key = replicas.key(replica).expect("on an overlay every replica has a key");
        let replica = u64::from(replica);
        for peer in (0..5).chain(PEERS_WITHOUT_CLIENTS..PEERS_WITHOUT_CLIENTS + MOST_CLIENTS) {
            if peer != replica {
                routes = routes.with(key, &[peer, 5 + peer % 2, 7 + replica % 2, replica]);
            }
        }
    }
    Arc::new(routes)
}

fn non_e2e(setting: Setting, config: Config, seed: u64) -> Outcome {
    let replicas = Replicas::on_overlay("resource", QUORUM);
    let routes = routes(&replicas);
    play(setting, seed, |me: PeerId| OnRoutes::new(NonE2e::new(me, &replicas, config), routes.clone()))
}

/// Six clients, each inside for a third of a second about every two seconds.
fn calm() -> Setting {
    Setting {
        // For the driver these are all the peers that have no clients and may be reset.
        quorum: Quorum::new(PEERS_WITHOUT_CLIENTS as u32, 5),
        load: Load::Closed { clients: 6, think: Span::from_secs(1) },
        hold: Span::from_millis(300),
        latency: (Span::ZERO, Span::from_millis(100)),
        length: Span::from_secs(60),
        trouble: Trouble::default(),
    }
}

fn bad_network() -> Trouble {
    Trouble { jitter: true, loss: 0.05, duplication: 0.05, ..Trouble::default() }
}

/// Fewer than 2m − n = 3 within a lease time, with a second to spare.
fn few_resets() -> Trouble {
    Trouble {
        resets_every: Span::from_secs(2),
        resets_at_most: 2,
        resets_window: Span::from_secs(11),
        ..Trouble::default()
    }
}

fn everything() -> Trouble {
    Trouble {
        jitter: true,
        loss: 0.01,
        duplication: 0.01,
        crash: 0.02,
        withdraw: 0.1,
        clocks_differ: true,
        ..few_resets()
    }
}

/// Nobody inside with another, no fencing number twice or backwards, nobody forgotten.
fn holds(setting: Setting) {
    let (mut entries, mut messages) = (0, vec![0; 9]);
    for seed in 0..SEEDS {
        let seen = non_e2e(setting, Config::REPAIRED, seed);
        assert_eq!((seen.violations, seen.fencing_back, seen.unserved), (0, 0, 0), "seed {seed}: {seen:?}");
        assert!(seen.entries > 3, "seed {seed}: {seen:?}");
        entries += seen.entries;
        messages.iter_mut().zip(&seen.messages).for_each(|(sum, more)| *sum += more);
    }
    let per_entry = |sum: &u64| *sum as f64 / entries as f64;
    println!(
        "{entries} entries, messages of each type per entry {:.2?}",
        messages.iter().map(per_entry).collect::<Vec<_>>()
    );
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
