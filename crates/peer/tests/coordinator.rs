//! The coordinator protocol where replicas are known by their keys only: none is there at the beginning, and the first
//! message for a key makes one that knows nothing.

#[path = "../../mutex/tests/trouble/mod.rs"]
mod trouble;

use std::sync::Arc;

use peerlock_base::Span;
use peerlock_mutex::coordinator::{Config, Coordinator};
use peerlock_mutex::{Quorum, Replicas};
use peerlock_peer::fixed::{OnRoutes, Routes};
use peerlock_sim::{Experiment, Faults};

const CLIENTS: usize = 6;

/// Replica i is at peer i, and everybody knows a way there, by way of the last client.
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
fn everybody_is_served() {
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
    let experiment = Experiment { faults, network: trouble::jitter(100), ..trouble::calm(3, CLIENTS, 50) };
    trouble::holds(&experiment, |me| OnRoutes::new(Coordinator::new(me, &replicas, Config::REPAIRED), routes.clone()));
}

/// With one replica there is nobody whom it could ask what it has forgotten: it begins by itself, when a term is over.
#[test]
fn one_replica_is_enough() {
    let replicas = Replicas::on_overlay("/foo/bar", Quorum::new(1, 1));
    let routes = Arc::new(routes(&replicas));
    let experiment = Experiment { network: trouble::jitter(100), ..trouble::calm(1, CLIENTS, 20) };
    trouble::holds(&experiment, |me| OnRoutes::new(Coordinator::new(me, &replicas, Config::REPAIRED), routes.clone()));
}
