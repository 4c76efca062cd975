//! A member that sends malformed messages to real agents on real sockets. `peerlock-node` has the generator, and the
//! same test in virtual time: `fuzz.rs` and `node/tests/fuzzed.rs`.
//!
//! `FUZZ_SECONDS=1800` sets the duration of each of the two tests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use peerlock_net::{Config, Identity, Net, Secret};
use peerlock_node::fuzz::Fuzzer;
use peerlock_node::{NetEvent, Parting};
use peerlock_service::transport::Transport;
use peerlock_service::{PeerId, RealNetwork, Service};

use super::world::{ANY_PORT, ENDLESS, World, metric};

/// The limit of an agent's additional memory, in bytes: twice the limit per host.
const MOST_MORE: u64 = 60 << 20;

/// The network of a regular node, which also sends generated frames.
struct Fuzzing {
    inner: RealNetwork,
    fuzzer: Arc<Mutex<Fuzzer>>,
    links: BTreeMap<PeerId, u64>,
}

impl Fuzzing {
    fn send_frames(&mut self) {
        let mut fuzzer = self.fuzzer.lock().unwrap();
        for (&peer, &epoch) in &self.links {
            for _ in 0..4 {
                let bytes = fuzzer.frame();
                if bytes.len() < 1 << 20 {
                    self.inner.send(peer, epoch, bytes);
                }
            }
        }
    }
}

impl Transport for Fuzzing {
    fn me(&self) -> PeerId {
        self.inner.me()
    }

    fn addresses(&self) -> Vec<String> {
        self.inner.addresses()
    }

    fn dial(&mut self, address: &str) {
        self.inner.dial(address);
    }

    fn forget(&mut self, address: &str) {
        self.inner.forget(address);
    }

    fn send(&mut self, to: PeerId, epoch: u64, bytes: Vec<u8>) {
        self.fuzzer.lock().unwrap().receive(&bytes);
        self.inner.send(to, epoch, bytes);
    }

    fn hang_up(&mut self, peer: PeerId, epoch: u64, why: Parting) {
        self.inner.hang_up(peer, epoch, why);
    }

    async fn next(&mut self) -> Option<NetEvent> {
        loop {
            let Ok(event) = tokio::time::timeout(Duration::from_millis(5), self.inner.next()).await else {
                self.send_frames();
                continue;
            };
            match event.as_ref()? {
                // Frames are accepted only after the handshake of both sides.
                NetEvent::Up { peer, epoch, .. } => _ = self.links.insert(*peer, *epoch),
                NetEvent::Down { peer, .. } => _ = self.links.remove(peer),
                NetEvent::Message { bytes, .. } => self.fuzzer.lock().unwrap().receive(bytes),
                NetEvent::Unreached { .. } => {}
            }
            return event;
        }
    }

    async fn stop(self) {
        self.inner.stop().await;
    }
}

/// Runs three agents and the fuzzing member. With `spared`, that member sends nothing about one resource and the
/// registry, and clients of the resource must be served.
async fn among_agents(spared: bool) {
    let seconds = std::env::var("FUZZ_SECONDS").map_or(12, |seconds| seconds.parse().unwrap());
    let mut world = World::new(1, Duration::from_secs(60), Duration::from_millis(1));
    let mut agents = world.cluster(3).await;
    let mut clients = Vec::new();
    if spared {
        clients.extend(agents.iter().map(|agent| world.client(agent, ENDLESS, true)));
        world.more(20).await;
    }
    let before: Vec<u64> = agents.iter().map(|agent| agent.process.cost().1).collect();

    let fuzzer = Fuzzer::new(world.seed);
    let name = super::client::NAME.parse().unwrap();
    let fuzzer = Arc::new(Mutex::new(if spared { fuzzer.sparing(&name) } else { fuzzer }));
    let secret = Secret::load(&world.path("ours.secret")).unwrap();
    let net = Net::start(Config::new(ANY_PORT), Identity::generate(), secret).await.unwrap();
    let network = Fuzzing { inner: RealNetwork::new(net), fuzzer: fuzzer.clone(), links: BTreeMap::new() };
    let builder = agents.iter().fold(Service::builder(), |builder, agent| builder.join(agent.address.to_string()));
    // The member's own messages may prevent it from joining.
    let started = tokio::spawn(builder.start(network));
    for _ in 0..seconds {
        tokio::time::sleep(Duration::from_secs(1)).await;
        for (agent, before) in agents.iter_mut().zip(&before) {
            assert!(!agent.process.has_ended(), "{}", world.output_of(agent.process.number));
            let more = agent.process.cost().1.saturating_sub(*before);
            assert!(more < MOST_MORE, "agent {} needs {more} bytes more", agent.process.number);
        }
        if spared {
            world.more(3).await;
        }
    }
    started.abort();
    let malformed: u64 = agents.iter().map(|agent| metric(agent, "malformed_total")).sum();
    println!(
        "{:?} sent in {seconds} s; {malformed} malformed; {:?} bytes",
        fuzzer.lock().unwrap().made(),
        agents.iter().map(|agent| agent.process.cost().1).collect::<Vec<_>>()
    );
    assert!(malformed > 10, "frames must have been received");
    if spared {
        world.stop();
        for mut client in clients {
            client.ends().await;
        }
        world.check();
    }
}

#[tokio::test]
async fn fuzzing_member_neither_stops_nor_fills_an_agent() {
    among_agents(false).await;
}

#[tokio::test]
async fn resource_spared_by_a_fuzzing_member_is_served() {
    among_agents(true).await;
}
