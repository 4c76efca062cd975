//! Settings shared by E2E and Non-E2E on fixed routes.

#![allow(dead_code, reason = "each test uses some of it")]

#[path = "../faults/mod.rs"]
pub mod faults;

use std::sync::Arc;

use peerlock_peer::fixed::{OnRoutes, Routes};
use peerlock_protocols::{Observe, Quorum, Replicas};
use peerlock_sim::{Experiment, Faults, Report};
use peerlock_types::PeerId;

/// Replicas at peers 0 to 4, four hops, then the clients.
const QUORUM: Quorum = Quorum::new(5, 4);
pub const SERVERS: u32 = 9;

/// Routes lead through one of two first hops and one of two second hops.
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

pub fn calm() -> Experiment {
    Experiment { network: faults::latency(0, 100), ..faults::calm(SERVERS, 6, 100) }
}

/// An experiment in which messages overtake each other.
pub fn rough(faults: Faults) -> Experiment {
    Experiment { faults, network: faults::jitter(100), ..calm() }
}

/// A route has four hops without acknowledgement.
pub fn everything() -> Faults {
    Faults { loss: 0.01, duplication: 0.01, ..faults::everything(SERVERS.into()) }
}

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
