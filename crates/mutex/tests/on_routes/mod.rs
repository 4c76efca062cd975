//! Protocols on routes that never change, from seeds: the settings that E2E and Non-E2E share, and what must hold.

#[allow(dead_code, reason = "open loads are for protocols without routes")]
#[path = "../driver/mod.rs"]
mod driver;

use std::sync::Arc;

pub use driver::{Load, Outcome, Setting, Trouble};
use peerlock_base::{PeerId, Span};
use peerlock_mutex::{Observe, Quorum, Replicas};
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

/// Plays a setting with the peers that `new_peer` makes.
pub fn play<P: Observe>(setting: Setting, seed: u64, new_peer: impl Fn(PeerId, &Replicas) -> P) -> Outcome {
    let replicas = Replicas::on_overlay("resource", QUORUM);
    let routes = routes(&replicas);
    driver::play(setting, seed, |me: PeerId| OnRoutes::new(new_peer(me, &replicas), routes.clone()))
}

/// Six clients, each inside for a third of a second about every two seconds.
pub fn calm() -> Setting {
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

pub fn bad_network() -> Trouble {
    Trouble { jitter: true, loss: 0.05, duplication: 0.05, ..Trouble::default() }
}

/// Fewer than 2m − n = 3 within a lease time, with a second to spare.
pub fn few_resets() -> Trouble {
    Trouble {
        resets_every: Span::from_secs(2),
        resets_at_most: 2,
        resets_window: Span::from_secs(11),
        ..Trouble::default()
    }
}

pub fn everything() -> Trouble {
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

/// Whoever is cut off must be out just before the others' leases on it end. Latencies are so short here, and waits so
/// long, that a clock which runs a little fast would let two in.
pub fn cut_off() -> Setting {
    Setting {
        load: Load::Closed { clients: 6, think: Span::from_millis(10) },
        hold: Span::from_secs(15),
        latency: (Span::ZERO, Span::from_millis(1)),
        length: Span::from_secs(300),
        trouble: Trouble { cut_off: 0.5, clocks_differ: true, ..Trouble::default() },
        ..calm()
    }
}

/// Nobody inside with another, no fencing number twice or backwards, nobody forgotten. Returns how many lost their lease.
pub fn holds<P: Observe>(setting: Setting, new_peer: impl Fn(PeerId, &Replicas) -> P) -> u64 {
    let (mut entries, mut lost, mut messages) = (0, 0, vec![0; P::KINDS.len()]);
    for seed in 0..SEEDS {
        let seen = play(setting, seed, &new_peer);
        assert_eq!((seen.violations, seen.fencing_back, seen.unserved), (0, 0, 0), "seed {seed}: {seen:?}");
        assert!(seen.entries > 3, "seed {seed}: {seen:?}");
        entries += seen.entries;
        lost += seen.lost;
        messages.iter_mut().zip(&seen.messages).for_each(|(sum, more)| *sum += more);
    }
    let per_entry = |(kind, sum): (&&str, &u64)| format!("{kind} {:.2}", *sum as f64 / entries as f64);
    let messages: Vec<_> = P::KINDS.iter().zip(&messages).map(per_entry).collect();
    println!("{entries} entries, {lost} leases lost, messages per entry: {}", messages.join(", "));
    lost
}
