//! Protocols on routes that never change, from seeds: the settings that E2E and Non-E2E share, and what must hold.

#![allow(dead_code, reason = "no test needs all of it")]

#[path = "../faults/mod.rs"]
pub mod faults;

use std::sync::Arc;

use peerlock_peer::fixed::{OnRoutes, Routes};
use peerlock_protocols::{Observe, Quorum, Replicas};
use peerlock_sim::{Experiment, Faults, Report};
use peerlock_types::PeerId;

/// Replicas at peers 0 … 4, four hops, and clients after them.
const QUORUM: Quorum = Quorum::new(5, 4);
pub const SERVERS: u32 = 9;

/// From a client by one of two hops to one of two others, and from there to the replica.
fn routes(replicas: &Replicas, peers: usize) -> Arc<Routes> {
    let mut routes = Routes::default();
    for replica in 0..QUORUM.replicas() {
        let key = replicas.key(replica).expect("on an overlay every replica has a key");
        let replica = u64::from(replica);
        for peer in (0..5).chain(SERVERS.into()..peers as u64).filter(|&peer| peer != replica) {
            routes = routes.with(key, &[peer, 5 + peer % 2, 7 + replica % 2, replica]);
        }
    }
    Arc::new(routes)
}

/// Six clients.
pub fn calm() -> Experiment {
    Experiment { network: faults::latency(0, 100), ..faults::calm(SERVERS, 6, 100) }
}

/// The same on a network on which messages overtake each other.
pub fn rough(faults: Faults) -> Experiment {
    Experiment { faults, network: faults::jitter(100), ..calm() }
}

/// A hundredth of the messages is lost, and comes twice: a way has four hops and nobody confirms any.
pub fn everything() -> Faults {
    Faults { loss: 0.01, duplication: 0.01, ..faults::everything(SERVERS.into()) }
}

/// Runs all trials with the peers that `new_peer` makes.
pub fn play<P>(experiment: &Experiment, new_peer: impl Fn(PeerId, &Replicas) -> P + Sync) -> Report
where
    P: Observe<Timer: std::hash::Hash>,
{
    let replicas = Replicas::on_overlay("resource", QUORUM);
    let routes = routes(&replicas, experiment.peers);
    faults::play(experiment, |me| OnRoutes::new(new_peer(me, &replicas), routes.clone()))
}

/// As [`faults::holds`].
pub fn holds<P>(experiment: &Experiment, new_peer: impl Fn(PeerId, &Replicas) -> P + Sync) -> u64
where
    P: Observe<Timer: std::hash::Hash>,
{
    let replicas = Replicas::on_overlay("resource", QUORUM);
    let routes = routes(&replicas, experiment.peers);
    faults::holds(experiment, |me| OnRoutes::new(new_peer(me, &replicas), routes.clone()))
}
