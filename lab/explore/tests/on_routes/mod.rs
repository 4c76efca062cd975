use std::sync::Arc;

use peerlock_explore::{Explorable, Limits, World};
use peerlock_peer::fixed::{OnRoutes, Routes};
use peerlock_protocols::{Protocol, Replicas};
use peerlock_types::{PeerId, Span};

use crate::case::{Outcome, Voting};

const MOST_STATES: usize = 12_000_000;

pub fn explore<P: Protocol>(text: &str, peer: impl Fn(PeerId, &Replicas) -> P) -> Outcome
where
    OnRoutes<P>: Explorable,
{
    let case = Voting::read(text, Limits { longest_timer: Span::from_secs(100), ..Limits::new(1) });
    case.explore(&world(&case, peer), MOST_STATES)
}

/// Routes are direct, or through the first hop by default.
fn world<P: Protocol>(case: &Voting, peer: impl Fn(PeerId, &Replicas) -> P) -> World<OnRoutes<P>>
where
    OnRoutes<P>: Explorable,
{
    let replicas = Replicas::on_overlay("resource", case.quorum);
    let first = u64::from(case.quorum.replicas());
    let way = |client: u64, replica: u64| match replica {
        _ if case.in_a_line => (replica..=client).rev().collect(),
        _ if case.hops > 0 => vec![client, first, replica],
        0 if case.by_the_other => vec![client, 1, 0],
        _ => vec![client, replica],
    };
    let mut routes = Routes::default();
    for replica in 0..case.quorum.replicas() {
        let key = replicas.key(replica).expect("on an overlay every replica has a key");
        for client in (first + case.hops..).take(case.clients as usize) {
            routes = routes.with(key, &way(client, replica.into()));
        }
    }
    let routes = Arc::new(routes);
    case.world_of(|id| OnRoutes::new(peer(id, &replicas), routes.clone()))
}
