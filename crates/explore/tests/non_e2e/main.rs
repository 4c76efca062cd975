//! Non-E2E in every order of events, on small routes that never change.
//!
//! Time stands still, so that no lease ends; what leases do is shown in `peerlock-mutex`. Timers for asking again and
//! for pings run out at any moment, within a budget.

use std::sync::Arc;

use peerlock_base::{PeerId, Span};
use peerlock_explore::{Counterexample, Explored, Limits, World, explore_with_hope};
use peerlock_mutex::non_e2e::{Config, NonE2e};
use peerlock_mutex::{Quorum, Replicas};
use peerlock_peer::fixed::{OnRoutes, Routes};

/// More than any case of the tests has.
const MOST_STATES: usize = 6_000_000;

/// Which way a client's messages take to a replica.
type Ways = fn(client: u64, replica: u64) -> Vec<u64>;

#[derive(Clone)]
struct Case {
    votes: u32,
    replicas: u32,
    clients: Vec<u64>,
    ways: Ways,
    limits: Limits,
    reserve: u32,
}

/// Renewals and the ends of leases do not come here; everything else may.
const REPAIRED: Config = Config { lease: Span::from_secs(1000), ..Config::REPAIRED };

impl Case {
    /// Peers from 0: the replicas, then `hops` without clients, then the clients.
    fn new(replicas: u32, votes: u32, hops: u64, clients: u64, ways: Ways) -> Self {
        let first = u64::from(replicas) + hops;
        let limits = Limits { replicas: first as usize, longest_timer: Span::from_secs(100), ..Limits::new(1) };
        Self { votes, replicas, clients: (first..first + clients).collect(), ways, limits, reserve: 1 }
    }

    fn with(self, change: fn(&mut Limits)) -> Self {
        let mut limits = self.limits;
        change(&mut limits);
        Self { limits, ..self }
    }

    fn reserve(self, reserve: u32) -> Self {
        Self { reserve, ..self }
    }

    fn world(&self, config: Config) -> World<OnRoutes<NonE2e>> {
        let replicas = Replicas::on_overlay("resource", Quorum::new(self.replicas, self.votes));
        let mut routes = Routes::default();
        for replica in 0..self.replicas {
            let key = replicas.key(replica).expect("on an overlay every replica has a key");
            for &client in &self.clients {
                routes = routes.with(key, &(self.ways)(client, replica.into()));
            }
        }
        let routes = Arc::new(routes);
        let peer = |id| (id, OnRoutes::new(NonE2e::new(id, &replicas, config), routes.clone()));
        World::new(self.limits, (0..=self.clients[self.clients.len() - 1]).map(PeerId::new).map(peer))
    }

    fn run(&self, config: Config) -> Result<Explored, Box<Counterexample>> {
        explore_with_hope(&self.world(config), MOST_STATES, self.reserve)
    }

    /// No order of events breaks anything.
    fn holds(&self) -> Explored {
        match self.run(REPAIRED) {
            Ok(explored) => {
                println!("{:?}: {explored:?}", self.limits);
                explored
            }
            Err(found) => panic!("{:?}, after {} steps:\n\n{found}\n", self.limits, found.steps),
        }
    }

    /// The shortest run that breaks something.
    fn breaks(&self, config: Config) -> Box<Counterexample> {
        match self.run(config) {
            Ok(explored) => panic!("{:?}: nothing was found: {explored:?}", self.limits),
            Err(found) => {
                println!("{} steps:\n{found}\n", found.steps);
                found
            }
        }
    }
}

#[test]
fn probe() {
    fn star2(client: u64, replica: u64) -> Vec<u64> {
        vec![client, 2, replica]
    }
    fn star1(client: u64, replica: u64) -> Vec<u64> {
        vec![client, 1, replica]
    }
    fn star3(client: u64, replica: u64) -> Vec<u64> {
        vec![client, 3, replica]
    }
    let which = std::env::var("CASE").unwrap_or_default();
    match which.as_str() {
        "a" => drop(Case::new(1, 1, 1, 2, star1).reserve(0).holds()),
        "b" => drop(Case::new(2, 2, 1, 2, star2).holds()),
        "c" => drop(Case::new(1, 1, 1, 3, star1).holds()),
        "d" => drop(Case::new(3, 2, 1, 2, star3).holds()),
        "e" => drop(Case::new(2, 2, 1, 2, star2).with(|l| l.timeouts = 1).holds()),
        "f" => drop(Case::new(2, 2, 1, 3, star2).holds()),
        "g" => drop(Case::new(1, 1, 1, 3, star1).with(|l| l.timeouts = 2).reserve(2).holds()),
        "h" => drop(Case::new(3, 2, 1, 3, star3).holds()),
        _ => {}
    }
}
