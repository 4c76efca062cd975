//! A cluster, and a log of who was inside when.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use peerlock_service::memory::Network;
use peerlock_service::{Clock, Error, Grant, PeerId, PeerView, Service, Voter};

/// A network and the peers on it, numbered from 1.
pub struct Cluster {
    pub network: Network,
    pub peers: BTreeMap<u64, Service>,
    /// The clock of each, which can be put to sleep.
    pub clocks: BTreeMap<u64, Clock>,
    /// How many processes there have been.
    started: u64,
}

pub fn id(number: u64) -> PeerId {
    PeerId::new(number)
}

impl Cluster {
    /// This many peers, one after the other, each joining through the first.
    pub async fn of(peers: u64, seed: u64) -> Self {
        let other = std::env::var("PEERLOCK_SEED").map_or(0, |seed| seed.parse().expect("PEERLOCK_SEED is a number"));
        let seed = seed + 1000 * other;
        let network = Network::new(seed);
        network.delay(Duration::from_micros(50), Duration::from_millis(2));
        let mut cluster = Self { network, peers: BTreeMap::new(), clocks: BTreeMap::new(), started: 1000 * seed };
        for number in 1..=peers {
            cluster.start(number, 1).await.expect("it starts");
        }
        cluster.settle().await;
        cluster.voters([1, 3][usize::from(peers > 2)]).await;
        cluster
    }

    /// Starts a peer that joins through another.
    pub async fn start(&mut self, number: u64, via: u64) -> Result<(), Error> {
        self.started += 1;
        let clock = Clock::pausable();
        self.clocks.insert(number, clock.clone());
        let builder = Service::builder().process_number(self.started).clock(clock).votes_from_memory();
        let builder = if number == via { builder } else { builder.join(Network::address(id(via))) };
        let service = builder.start(self.network.endpoint(id(number))).await?;
        self.peers.insert(number, service);
        Ok(())
    }

    /// Waits until so many vote that one may die.
    pub async fn voters(&self, many: usize) {
        for _ in 0..600 {
            let Some(peer) = self.peers.values().next() else { break };
            let cluster = peer.cluster().await.expect("it runs");
            let votes = |peer: &&PeerView| matches!(peer.voter, Voter::Votes | Voter::Leads);
            if cluster.peers.iter().filter(votes).count() == many {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("there are not {many} voters");
    }

    /// Waits until everybody knows everybody.
    pub async fn settle(&self) {
        for _ in 0..200 {
            let mut all = true;
            for service in self.peers.values() {
                let up = service.peers().await.expect("it runs").iter().filter(|peer| peer.up).count();
                all &= up >= self.peers.len();
            }
            if all {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("the peers do not find each other");
    }

    pub fn peer(&self, number: u64) -> &Service {
        &self.peers[&number]
    }

    /// The process ends without a word.
    pub fn kill(&mut self, number: u64) {
        self.network.kill(id(number));
        self.peers.remove(&number);
    }

    /// Cuts one peer off from all others, or brings it back.
    pub fn isolate(&self, number: u64, cut: bool) {
        for &other in self.peers.keys().filter(|other| **other != number) {
            match cut {
                true => self.network.cut(id(number), id(other)),
                false => self.network.heal(id(number), id(other)),
            }
        }
    }
}

/// Who is inside which resource, checked at every entry.
#[derive(Clone)]
pub struct Log(Arc<Mutex<State>>);

struct State {
    slots: usize,
    inside: BTreeMap<u32, u64>,
    last: BTreeMap<u32, u64>,
    seen: BTreeSet<u64>,
    entries: Vec<u64>,
}

impl Log {
    pub fn new(slots: usize) -> Self {
        let (inside, last) = (BTreeMap::new(), BTreeMap::new());
        Self(Arc::new(Mutex::new(State { slots, inside, last, seen: BTreeSet::new(), entries: Vec::new() })))
    }

    /// At most this many, each in a slot of its own, with numbers that rise per slot and never repeat.
    pub fn enter(&self, who: u64, grant: &Grant) {
        let mut state = self.0.lock().unwrap();
        let (slot, fencing) = (grant.slot(), grant.fencing());
        let before = state.inside.insert(slot, fencing);
        assert_eq!(before, None, "{who} enters slot {slot}, and somebody is there");
        assert!(state.inside.len() <= state.slots, "{who} is one too many");
        let last = state.last.insert(slot, fencing);
        assert!(last.is_none_or(|last| last < fencing), "{who} gets {fencing} after {last:?} in slot {slot}");
        assert!(state.seen.insert(fencing), "{who} gets {fencing}, which was given before");
        state.entries.push(who);
    }

    pub fn leave(&self, grant: &Grant) {
        assert_eq!(self.0.lock().unwrap().inside.remove(&grant.slot()), Some(grant.fencing()));
    }

    /// Who entered, in order.
    pub fn entries(&self) -> Vec<u64> {
        self.0.lock().unwrap().entries.clone()
    }
}
