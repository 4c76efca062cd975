//! At most k at a time, in fair order, across any number of machines, with no lock server.
//!
//! ```no_run
//! # struct Storage;
//! # impl Storage { fn write(&self, fencing: u64, data: &str) -> std::io::Result<()> { Ok(()) } }
//! # async fn example(storage: Storage) -> Result<(), Box<dyn std::error::Error>> {
//! use peerlock::{Agent, Client, Peer, Request};
//!
//! let client = Agent::here()?.client(); // or Peer::builder().join("10.0.0.7").start().await?.client()
//! let grant = client.acquire(Request::new("nightly-backup").slots(3)).await?; // waits; cancel-safe
//! storage.write(grant.fencing(), "…")?; // grant.lost().await resolves if it is lost
//! grant.release().await?; // or drop it
//! # Ok(()) }
//! ```
//!
//! A [`Client`] uses one of these:
//!
//! - An [`Agent`], the peer that `peerlock agent` runs on this machine. The application needs no secret and no port,
//!   and the cluster outlives it. Prefer it.
//! - A [`Peer`], a member of the cluster in this process. All members have the same [`Secret`], by default that in the
//!   [data directory](places::data_dir), which is created if it is missing. Call [`Peer::leave`] before the process
//!   ends: otherwise its slots stay unavailable until its session expires.
//!
//! [`blocking`] is the same for threads, and [`testing`] a cluster without sockets for tests.
//!
//! A [`Request`] names a resource, and may set its number of slots, how long to wait, the lease and a label. One slot
//! is a lock, several are a semaphore.
//!
//! A [`Grant`] holds a slot until it is dropped, and renews its lease in the background. It is lost nevertheless if the
//! process is frozen for longer than the lease, or the peer or agent stops: [`Grant::lost`] resolves, and the holder
//! must stop within the grace. A frozen holder cannot know in time. Pass the [fencing number](Grant::fencing) to the
//! storage, which refuses a smaller one than the last for the same slot.
//!
//! Programs distinguish errors by [`class`](Error::class), which also determines HTTP status and exit code.

mod agent;
pub mod blocking;
mod client;
mod grant;
mod hold;
mod peer;
mod probe;
pub mod testing;
mod waiting;

pub use agent::Agent;
pub use client::{Client, Events};
pub use grant::Grant;
pub use hold::{Hold, Stop};
pub use peer::{PORT, Peer, PeerBuilder, StartError, runtime};
pub use peerlock_http::{BadEndpoint, BadToken, Endpoint, Token};
pub use peerlock_net::{Error as NetworkError, Fingerprint, Identity, Keyring, Secret};
pub use peerlock_service::{
    Class, ClientView, ClusterId, ClusterView, Conclusion, Error, Event, GrantFile, Granted, Happening, Health,
    Listing, MOST_SLOTS, Missing, Moment, Name, OtherCluster, PeerId, PeerView, PeriodView, Predecessor, Progress,
    Request, ResourceDetails, ResourceHealth, ResourceView, SHORTEST_TTL, SlotView, Stall, Voter, WaiterView, places,
    store,
};
#[doc(hidden)]
pub use probe::{Answer, Probe, probe};
