//! The coordinator protocol on an overlay: the first message for a key creates a replica without state.

#[path = "../../protocols/tests/faults/mod.rs"]
mod faults;

use std::sync::Arc;

use peerlock_peer::fixed::{OnRoutes, Routes};
use peerlock_protocols::coordinator::{Config, Coordinator};
use peerlock_protocols::{Quorum, Replicas};
use peerlock_sim::{Experiment, Faults};
use peerlock_types::Span;

const CLIENTS: usize = 6;

/// Replica i is at peer i. Every route leads through the last client.
fn routes(replicas: &Replicas) -> Routes {
    let n = u64::from(replicas.quorum().replicas());
    let last = n + CLIENTS as u64 - 1;
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
fn coordinator_on_routes_serves_every_client() {
    let faults = Faults {
        loss: 0.01,
        duplication: 0.01,
        replica_life: Some(Span::from_secs(30)),
        resets_at_most: Some((1, Span::from_secs(30))),
        clocks: Some((Span::from_secs(5), 400)),
        ..Faults::default()
    };
    let replicas = Replicas::on_overlay("/foo/bar", Quorum::new(3, 2));
    let routes = Arc::new(routes(&replicas));
    let experiment = Experiment { faults, network: faults::jitter(100), ..faults::calm(3, CLIENTS, 50) };
    faults::holds(&experiment, |me| OnRoutes::new(Coordinator::new(me, &replicas, Config::REPAIRED), routes.clone()));
}

/// A single replica starts again by itself after a term.
#[test]
fn coordinator_with_one_replica_serves_every_client() {
    let replicas = Replicas::on_overlay("/foo/bar", Quorum::new(1, 1));
    let routes = Arc::new(routes(&replicas));
    let experiment = Experiment { network: faults::jitter(100), ..faults::calm(1, CLIENTS, 20) };
    faults::holds(&experiment, |me| OnRoutes::new(Coordinator::new(me, &replicas, Config::REPAIRED), routes.clone()));
}
