//! At most k at a time, in fair order, across any number of machines, with no lock server.
//!
//! ```no_run
//! # struct Storage;
//! # impl Storage { fn write(&self, fencing: u64, data: &str) -> std::io::Result<()> { Ok(()) } }
//! # async fn example(storage: Storage) -> Result<(), Box<dyn std::error::Error>> {
//! let peer = peerlock::Peer::builder().join("10.0.0.7:7400").start().await?;
//! let grant = peer.resource("nightly-backup").slots(3).acquire().await?; // cancel-safe: dropping the future withdraws
//! storage.write(grant.fencing(), "…")?; // grant.lost().await resolves if it is lost
//! grant.release().await?; // or drop it
//! # Ok(()) }
//! ```
//!
//! - A [`Peer`] is one process in the cluster, with any number of clients. All peers of a cluster have the same [`Secret`];
//!   one that names none takes `secret` in its [data folder](places::data_dir), and makes it if there is none.
//! - A [`Resource`] is a name, with so many slots. One slot is a lock, several are a semaphore.
//! - A [`Grant`] is a slot that is held: as long as the process runs and the grant is not dropped. Its [fencing
//!   number](Grant::fencing) lets whoever is written to refuse a holder that came too late.
//! - A [`Session`] is one client among several of a process: when it is dropped, so is all that it holds and waits for.
//!
//! The program `peerlock` is in the same package. A library needs none of what only the program needs:
//!
//! ```toml
//! peerlock = { version = "0.1", default-features = false }
//! ```

pub use peerlock_service::{
    Acquire, ClientView, Counters, Error, Event, Grant, GrantId, Happening, Identity, MOST_SLOTS, Name, PORT, Peer,
    PeerBuilder, PeerId, PeerView, Progress, Resource, ResourceDetails, ResourceView, Secret, Service, Session,
    SlotView, StartError, WaiterView, places,
};
