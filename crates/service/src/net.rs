//! The real network as a [`Transport`].

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use peerlock_net::{Net, Refusal, Unsent, Why};
use peerlock_types::PeerId;

use crate::transport::{Event, Parting, Transport};

/// How long to wait before repeating a request that did not fit into the network's queue.
const AGAIN: Duration = Duration::from_millis(20);

/// Encrypted links between the members of a cluster.
pub struct RealNetwork {
    net: Net,
    /// Addresses to dial (true) or to forget, which did not fit into the network's queue yet.
    waiting: VecDeque<(SocketAddr, bool)>,
}

impl RealNetwork {
    /// Wraps a network that has reported no event yet.
    pub fn new(net: Net) -> Self {
        Self { net, waiting: VecDeque::new() }
    }

    fn hand_on(&mut self) {
        while let Some(&(address, is_dialled)) = self.waiting.front() {
            let is_taken = if is_dialled { self.net.maintain(address) } else { self.net.forget(address) };
            if is_taken.is_err() {
                return;
            }
            self.waiting.pop_front();
        }
    }
}

fn check(to: PeerId, sent: Result<(), Unsent>) {
    match sent {
        // The `Down` event of this connection follows.
        Ok(()) | Err(Unsent::Down) => {}
        Err(why) => tracing::warn!(%to, %why, "cannot send a message"),
    }
}

impl Transport for RealNetwork {
    fn me(&self) -> PeerId {
        self.net.me()
    }

    fn addresses(&self) -> Vec<String> {
        self.net.addresses().iter().map(SocketAddr::to_string).collect()
    }

    fn dial(&mut self, address: &str) {
        match address.parse::<SocketAddr>() {
            Ok(address) => self.waiting.push_back((address, true)),
            Err(why) => tracing::warn!(address, %why, "cannot dial this address"),
        }
        self.hand_on();
    }

    fn forget(&mut self, address: &str) {
        self.waiting.extend(address.parse::<SocketAddr>().map(|address| (address, false)));
        self.hand_on();
    }

    fn send(&mut self, to: PeerId, epoch: u64, bytes: Vec<u8>) {
        check(to, self.net.send(to, epoch, bytes.into()));
    }

    fn send_soon(&mut self, to: PeerId, epoch: u64, bytes: Vec<u8>) {
        check(to, self.net.send_soon(to, epoch, bytes.into()));
    }

    fn flush(&mut self) {
        self.net.flush();
    }

    fn hang_up(&mut self, peer: PeerId, epoch: u64, why: Parting) {
        let why = match why {
            Parting::Nonsense => Why::HungUp,
            Parting::Unneeded => Why::Unneeded,
            Parting::Broken => Why::Lost,
        };
        self.net.hang_up(peer, epoch, why);
    }

    fn unauthenticated(&self) -> u64 {
        let unauthenticated = |refusal: &Refusal| match refusal {
            Refusal::Secret | Refusal::Timeout | Refusal::Broken | Refusal::Version | Refusal::Crowded => true,
            Refusal::Collision | Refusal::Twin | Refusal::Myself | Refusal::Duplicate | Refusal::Leaving => false,
        };
        self.net.metrics().refused.iter().filter(|(refusal, _)| unauthenticated(refusal)).map(|(_, count)| count).sum()
    }

    async fn next(&mut self) -> Option<Event> {
        loop {
            self.hand_on();
            let next = self.net.next();
            let event = match self.waiting.is_empty() {
                true => next.await,
                // The network does not report when its queue has room again.
                false => match tokio::time::timeout(AGAIN, next).await {
                    Ok(event) => event,
                    Err(_) => continue,
                },
            };
            return Some(match event {
                peerlock_net::Event::Up { peer, epoch, address } => {
                    Event::Up { peer, epoch, address: address.to_string() }
                }
                peerlock_net::Event::Down { peer, epoch, why } => Event::Down { peer, epoch, why: why.to_string() },
                peerlock_net::Event::Message { from, epoch, bytes } => {
                    Event::Message { from, epoch, bytes: bytes.into() }
                }
                peerlock_net::Event::Unreached { address, why } => {
                    Event::Unreached { address: address.to_string(), why: why.to_string() }
                }
            });
        }
    }

    async fn stop(self) {
        self.net.shutdown().await;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use peerlock_net::{Config, Identity, Secret};

    use super::*;

    /// The network's queue has room for 256.
    #[tokio::test]
    async fn many_addresses_are_all_dialled() {
        let config = Config::new("127.0.0.1:0".parse().expect("an address"));
        let net = Net::start(config, Identity::generate(), Secret::generate()).await.expect("a network");
        let mut network = RealNetwork::new(net);
        let addresses: BTreeSet<String> = (0..600).map(|at| format!("127.{}.{}.1:9", 1 + at / 250, at % 250)).collect();
        addresses.iter().for_each(|address| network.dial(address));
        let mut tried = BTreeSet::new();
        while tried.len() < addresses.len() {
            let event = tokio::time::timeout(Duration::from_secs(60), network.next()).await;
            let Ok(Some(Event::Unreached { address, .. })) = event else { panic!("{} were tried", tried.len()) };
            tried.insert(address);
        }
        assert_eq!(tried, addresses);
    }
}
