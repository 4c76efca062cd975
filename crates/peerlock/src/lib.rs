//! At most k at a time, in fair order, across any number of machines, with no lock server.
//!
//! ```no_run
//! # struct Storage;
//! # impl Storage { fn write(&self, fencing: u64, data: &str) -> std::io::Result<()> { Ok(()) } }
//! # async fn example(storage: Storage) -> Result<(), Box<dyn std::error::Error>> {
//! use peerlock::{Agent, Client, Peer, Request};
//!
//! let client = Agent::here()?.client(); // or Peer::builder().join("10.0.0.7").start().await?.client()
//! let grant = client.acquire(Request::new("nightly-backup").slots(3)).await?; // waits in line, and is cancel-safe
//! storage.write(grant.fencing(), "…")?; // grant.lost().await resolves if it is lost
//! grant.release().await?; // or drop it
//! # Ok(()) }
//! ```
//!
//! # Whom to ask
//!
//! - An [`Agent`] is the peer that `peerlock agent` runs on this machine. The application needs no secret and no port,
//!   and the cluster outlives it. Where there is an agent, take it.
//! - A [`Peer`] is a member of the cluster in this process. All members have the same [`Secret`]; one that names none
//!   takes `secret` in its [data folder](places::data_dir), and makes it if there is none. Let it [leave](Peer::leave):
//!   one that is killed leaves the others waiting for what it had.
//!
//! Either is a [`Client`], and from there on all is the same. [`blocking`] is the same for threads, and [`testing`] a
//! cluster without sockets for your own tests.
//!
//! # What is asked for
//!
//! A [`Request`] names a resource; a name alone is one, too. One slot is a lock, several are a semaphore. How long to
//! wait, how long the lease is and what others see of you can be said.
//!
//! # What comes back
//!
//! A [`Grant`] is a slot that is held, until it is dropped. Its lease is renewed in the background. It is lost
//! nevertheless when this process is frozen for longer than the lease, or the peer or agent stops: then [`Grant::lost`]
//! resolves, and the holder must stop within the grace. A holder that may be frozen for longer cannot know in time that
//! it has lost its slot; so give the [fencing number](Grant::fencing) along with whatever you write, and let the
//! storage refuse smaller ones than it has seen from the same slot.
//!
//! An [`Error`] says what happened and what to do. Its [`class`](Error::class) is what programs look at; HTTP status
//! and exit code of the program `peerlock` follow from it.
//!
//! The folder `examples` has a lock, a pool of workers, a fenced write, and what to do when a slot is lost.

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
    Class, ClientView, ClusterId, ClusterView, Error, Event, GrantFile, Granted, Happening, Health, Listing,
    MOST_SLOTS, Missing, Moment, Name, OtherCluster, PeerId, PeerView, Predecessor, Progress, Request, ResourceDetails,
    ResourceHealth, ResourceView, SHORTEST_TTL, SlotView, Stall, Voter, WaiterView, places, store,
};
#[doc(hidden)]
pub use probe::{Answer, Probe, probe};
