//! The coordinator protocol where replicas are known by their keys only: none is there at the beginning, and the first message
//! for a key makes one that knows nothing.

#[allow(dead_code, reason = "the tests of protocols use more of it")]
#[path = "../../mutex/tests/driver/mod.rs"]
mod driver;

use std::sync::Arc;

use driver::{Load, Setting, Trouble, play};
use peerlock_base::Span;
use peerlock_mutex::coordinator::{Config, Coordinator};
use peerlock_mutex::{Quorum, Replicas};
use peerlock_peer::fixed::{OnRoutes, Routes};

const CLIENTS: u64 = 6;

/// Replica i is at peer i, and everybody knows a way there, by way of the last client.
fn routes(replicas: &Replicas) -> Routes {
    let (n, last) = (u64::from(replicas.quorum().replicas()), u64::from(replicas.quorum().replicas()) + CLIENTS - 1);
    let mut routes = Routes::default();
    for replica in 0..n {
        let key = replicas.key(replica as u32).expect("replicas on an overlay have keys");
        for peer in (0..last).filter(|&peer| peer != replica) {
            routes = routes.with(key, &[peer, last, replica]);
        }
    }
    routes
}

#[test]
fn everybody_is_served() {
    let trouble = Trouble {
        jitter: true,
        loss: 0.01,
        duplication: 0.01,
        resets_every: Span::from_secs(10),
        resets_at_most: 1,
        resets_window: Span::from_secs(30),
        clocks_differ: true,
        ..Trouble::default()
    };
    let setting = Setting {
        quorum: Quorum::new(3, 2),
        load: Load::Closed { clients: CLIENTS, think: Span::from_secs(1) },
        hold: Span::from_millis(300),
        latency: (Span::ZERO, Span::from_millis(100)),
        length: Span::from_secs(120),
        trouble,
    };
    let replicas = Replicas::on_overlay("/foo/bar", setting.quorum);
    let routes = Arc::new(routes(&replicas));
    for seed in 0..50 {
        let new = |me| OnRoutes::new(Coordinator::new(me, &replicas, Config::REPAIRED), routes.clone());
        let seen = play(setting, seed, new);
        assert_eq!((seen.violations, seen.fencing_back, seen.unserved), (0, 0, 0), "seed {seed}: {seen:?}");
        assert!(seen.entries > 20, "seed {seed}: {seen:?}");
    }
}
