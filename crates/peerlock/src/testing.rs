//! Clusters within one process and without sockets, for the tests of applications.
//!
//! Under `#[tokio::test(start_paused = true)]` a lease of 30 seconds takes no time at all: tokio's clock jumps to the
//! next thing that happens.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), peerlock::Error> {
//! let network = peerlock::testing::Network::new();
//! let (one, two) = (network.peer().await?, network.peer().await?);
//! let grant = one.client().acquire("nightly-backup").await?;
//! assert!(two.client().try_acquire("nightly-backup").await?.is_none());
//!
//! network.cut(&one, &two); // What does your code do while nobody can be reached …
//! network.heal(&one, &two); // … and when they are back?
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
    /// A network without peers. Messages take no time.
    pub fn new() -> Self {
        Self { memory: memory::Network::new(1), started: AtomicU64::new(0) }
    }

    /// Messages take between `least` and `most` from now on.
    pub fn delay(&self, least: Duration, most: Duration) {
        self.memory.delay(least, most);
    }

    /// Starts a peer, which joins those who are there.
    ///
    /// # Errors
    /// [`Error::NoPeer`] if it cannot reach any of those.
    pub async fn peer(&self) -> Result<Peer, Error> {
        let number = self.started.fetch_add(1, Ordering::Relaxed) + 1;
        let builder = Service::builder().process_number(number).clock(Clock::pausable()).votes_from_memory();
        let others = (1..number).map(|other| memory::Network::address(PeerId::new(other)));
        let builder = others.fold(builder, |builder, address| builder.join(address));
        Ok(Peer::without_sockets(builder.start(self.memory.endpoint(PeerId::new(number))).await?))
    }

    /// Two peers cannot reach each other any more. What is under way between them is lost.
    pub fn cut(&self, one: &Peer, other: &Peer) {
        self.memory.cut(one.me(), other.me());
    }

    /// They can again.
    pub fn heal(&self, one: &Peer, other: &Peer) {
        self.memory.heal(one.me(), other.me());
    }

    /// A peer dies without a word, as if its process had been killed.
    pub fn kill(&self, peer: &Peer) {
        self.memory.kill(peer.me());
    }
}
