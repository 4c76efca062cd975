//! A member that knows the secret and talks nonsense: real traffic with bytes changed, cut, repeated and put together
//! anew.
//!
//! Members trust each other, so it may well stall what it takes part in. It must not bring anybody down, and whatever
//! does not make sense is counted.

use std::time::Duration;

use peerlock_base::Rng;
use peerlock_service::memory::{Endpoint, Network};
use peerlock_service::transport::{Event, Transport};
use peerlock_service::{Clock, PeerId, Request, Service};
use tokio::time::timeout;

use super::world::{Cluster, id};

/// A way onto the network that spoils some of what is sent.
struct Spoiling {
    endpoint: Endpoint,
    rng: Rng,
    /// One in this many messages is spoiled.
    one_in: u64,
    earlier: Vec<Vec<u8>>,
}

impl Spoiling {
    fn spoil(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        // Half of the time version, frame and numbers stay, so that what is inside is reached.
        let first = self.rng.below(2) * 4;
        for _ in 0..=self.rng.below(4) {
            let place = (first + self.rng.below(bytes.len() as u64)) as usize;
            match (self.rng.below(6), bytes.get_mut(place)) {
                (0 | 1, Some(byte)) => *byte ^= 1 << self.rng.below(8),
                (2, Some(byte)) => *byte = self.rng.bits() as u8,
                (3, Some(_)) => bytes.truncate(place.max(1)),
                (4, Some(_)) => bytes.extend_from_within(place..),
                _ => {
                    let other = &self.earlier[self.rng.below(self.earlier.len() as u64) as usize];
                    bytes.truncate(place.max(1));
                    bytes.extend(other.iter().skip(place));
                }
            }
        }
        bytes
    }
}

impl Transport for Spoiling {
    fn me(&self) -> PeerId {
        self.endpoint.me()
    }

    fn addresses(&self) -> Vec<String> {
        self.endpoint.addresses()
    }

    fn dial(&mut self, address: &str) {
        self.endpoint.dial(address);
    }

    fn send(&mut self, to: PeerId, epoch: u64, bytes: Vec<u8>) {
        if self.earlier.len() < 1000 {
            self.earlier.push(bytes.clone());
        }
        let spoils = self.rng.below(self.one_in) == 0;
        let bytes = if spoils { self.spoil(bytes) } else { bytes };
        self.endpoint.send(to, epoch, bytes);
    }

    fn hang_up(&mut self, peer: PeerId) {
        self.endpoint.hang_up(peer);
    }

    async fn next(&mut self) -> Option<Event> {
        self.endpoint.next().await
    }

    async fn stop(self) {
        self.endpoint.stop().await;
    }
}

/// Clients that come and go; what they get does not matter here.
async fn traffic(service: Service, seed: u64) {
    let mut rng = Rng::new(seed);
    loop {
        let name = format!("r{}", rng.below(3));
        let acquire = service.acquire(Request::new(name.as_str()).slots(2).wait(Duration::from_secs(3)));
        if let Ok(grant) = acquire.await {
            tokio::time::sleep(Duration::from_millis(rng.below(20))).await;
            drop(grant);
        }
        tokio::time::sleep(Duration::from_millis(1 + rng.below(20))).await;
        let _ = service.show(&name).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_that_talks_nonsense_brings_nobody_down() {
    let first = std::env::var("PEERLOCK_SEED").map_or(0, |seed| seed.parse().expect("PEERLOCK_SEED is a number"));
    let seeds = std::env::var("PEERLOCK_SEEDS").map_or(12, |seeds| seeds.parse().expect("PEERLOCK_SEEDS is a number"));
    let (mut malformed, mut strange) = (0, 0);
    for seed in first..first + seeds {
        println!("seed {seed}");
        let mut cluster = Cluster::of(3, 80).await;
        let one_in = [2, 5, 20][seed as usize % 3];
        let endpoint = cluster.network.endpoint(id(9));
        let spoiling = Spoiling { endpoint, rng: Rng::new(seed), one_in, earlier: Vec::new() };
        let builder = Service::builder().clock(Clock::pausable()).process_number(seed).join(Network::address(id(1)));
        // It may not even come to join.
        let rogue = timeout(Duration::from_secs(20), builder.start(spoiling)).await;
        let services = cluster.peers.values().cloned().chain(rogue.into_iter().flatten());
        let clients: Vec<_> = services.zip(1..).map(|(service, n)| tokio::spawn(traffic(service, seed + n))).collect();
        tokio::time::sleep(Duration::from_secs(30)).await;
        for client in clients {
            client.abort();
            assert!(client.await.is_err_and(|error| error.is_cancelled()), "seed {seed}");
        }
        cluster.kill(9);
        for service in cluster.peers.values() {
            let counters = service.counters().await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            malformed += counters.malformed;
            strange += counters.strange;
        }
    }
    assert!(malformed > 100 && strange > 100, "nonsense is counted: {malformed} malformed, {strange} strange");
}
