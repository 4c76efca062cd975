//! Clusters within one process and without sockets, for the tests of applications.
//!
//! Under `#[tokio::test(start_paused = true)]` leases take no real time: tokio's clock jumps to the next event.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), peerlock::Error> {
//! let network = peerlock::testing::Network::new();
//! let (one, two) = (network.peer().await?, network.peer().await?);
//! let grant = one.client().acquire("nightly-backup").await?;
//! assert!(two.client().try_acquire("nightly-backup").await?.is_none());
//!
//! network.cut(&one, &two);
//! network.heal(&one, &two);
//! drop(grant);
//! two.client().acquire("nightly-backup").await?.release().await?;
//! # Ok(()) }
//! ```

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use peerlock_service::{Clock, Error, PeerId, Service, memory};

use crate::Peer;

/// A network without sockets, and the peers on it.
pub struct Network {
    memory: memory::Network,
    started: AtomicU64,
}

impl Default for Network {
    fn default() -> Self {
        Self::new()
    }
}

impl Network {
    /// Creates a network without peers or delays.
    pub fn new() -> Self {
        Self { memory: memory::Network::new(1), started: AtomicU64::new(0) }
    }

    /// Sets the delay of messages.
    pub fn delay(&self, least: Duration, most: Duration) {
        self.memory.delay(least, most);
    }

    /// Starts a peer that joins the others.
    ///
    /// # Errors
    /// [`Error::NoPeer`] if it cannot reach any of them.
    pub async fn peer(&self) -> Result<Peer, Error> {
        let number = self.started.fetch_add(1, Ordering::Relaxed) + 1;
        let builder = Service::builder().process_number(number).clock(Clock::pausable()).votes_from_memory();
        let others = (1..number).map(|other| memory::Network::address(PeerId::new(other)));
        let builder = others.fold(builder, |builder, address| builder.join(address));
        Ok(Peer::without_sockets(builder.start(self.memory.endpoint(PeerId::new(number))).await?))
    }

    /// Disconnects two peers until they are [healed](Self::heal). Messages in transit are lost.
    pub fn cut(&self, one: &Peer, other: &Peer) {
        self.memory.cut(one.me(), other.me());
    }

    /// Reconnects two peers.
    pub fn heal(&self, one: &Peer, other: &Peer) {
        self.memory.heal(one.me(), other.me());
    }

    /// Crashes a peer.
    pub fn kill(&self, peer: &Peer) {
        self.memory.kill(peer.me());
    }
}
