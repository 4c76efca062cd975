//! Small worlds of peers on routes that never change, for protocols with replicas on an overlay.

use std::sync::Arc;

use peerlock_base::{PeerId, Span};
use peerlock_explore::{Counterexample, Explorable, Explored, Limits, World, explore_with_hope};
use peerlock_mutex::{Protocol, Quorum, Replicas};
use peerlock_peer::fixed::{OnRoutes, Routes};

/// More than any case of the tests has.
const MOST_STATES: usize = 12_000_000;

/// Which way a client's messages take to a replica.
pub type Ways = fn(client: u64, replica: u64) -> Vec<u64>;

/// Peers from 0: the replicas, then hops without clients, then the clients.
#[derive(Clone)]
pub struct Case {
    pub replicas: u32,
    pub votes: u32,
    pub clients: Vec<u64>,
    pub ways: Ways,
    pub limits: Limits,
    /// In states with this many time-outs left, everybody must still be able to get in.
    pub reserve: u32,
}

impl Case {
    pub fn new(replicas: u32, votes: u32, hops: u64, clients: u64, ways: Ways) -> Self {
        let first = u64::from(replicas) + hops;
        let limits = Limits { replicas: first as usize, longest_timer: Span::from_secs(100), ..Limits::new(1) };
        Self { votes, replicas, clients: (first..first + clients).collect(), ways, limits, reserve: 0 }
    }

    pub fn with(self, change: fn(&mut Limits)) -> Self {
        let mut limits = self.limits;
        change(&mut limits);
        Self { limits, ..self }
    }

    pub fn reserve(self, reserve: u32) -> Self {
        Self { reserve, ..self }
    }

    pub fn world<P: Protocol>(&self, peer: impl Fn(PeerId, &Replicas) -> P) -> World<OnRoutes<P>>
    where
        OnRoutes<P>: Explorable,
    {
        let replicas = Replicas::on_overlay("resource", Quorum::new(self.replicas, self.votes));
        let mut routes = Routes::default();
        for replica in 0..self.replicas {
            let key = replicas.key(replica).expect("on an overlay every replica has a key");
            for &client in &self.clients {
                routes = routes.with(key, &(self.ways)(client, replica.into()));
            }
        }
        let routes = Arc::new(routes);
        let peer = |id| (id, OnRoutes::new(peer(id, &replicas), routes.clone()));
        World::new(self.limits, (0..=self.clients[self.clients.len() - 1]).map(PeerId::new).map(peer))
    }

    /// No order of events breaks anything.
    pub fn holds<P: Explorable>(&self, world: &World<P>) -> Explored {
        match explore_with_hope(world, MOST_STATES, self.reserve) {
            Ok(explored) => {
                println!("{} of {}, {:?}: {explored:?}", self.votes, self.replicas, self.limits);
                explored
            }
            Err(found) => panic!("{:?}, after {} steps:\n\n{found}\n", self.limits, found.steps),
        }
    }

    /// The shortest run that breaks something.
    pub fn breaks<P: Explorable>(&self, world: &World<P>) -> Box<Counterexample> {
        match explore_with_hope(world, MOST_STATES, self.reserve) {
            Ok(explored) => panic!("{:?}: nothing was found: {explored:?}", self.limits),
            Err(found) => {
                println!("{} steps:\n{found}\n", found.steps);
                found
            }
        }
    }
}
