//! Encrypted links between the members of a cluster.
//!
//! ```no_run
//! use peerlock_net::{Config, Event, Identity, Net, Secret};
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let identity = Identity::load_or_create("/var/lib/peerlock/identity".as_ref())?;
//! let secret = Secret::load("/etc/peerlock/secret".as_ref())?;
//! let mut net = Net::start(Config::new("0.0.0.0:7400".parse()?), identity, secret).await?;
//! net.maintain("10.0.0.7:7400".parse()?)?;
//! loop {
//!     match net.next().await {
//!         Event::Up { peer, epoch, .. } => net.send(peer, epoch, "hello".into())?,
//!         Event::Message { from, bytes, .. } => println!("{from}: {} bytes", bytes.len()),
//!         Event::Down { peer, why, .. } => println!("{peer} is down: {why}"),
//!         Event::Unreached { address, why } => println!("{address}: {why}"),
//!     }
//! }
//! # }
//! ```
//!
//! # The contract
//!
//! - A peer's events are `Up`, then messages, then `Down`, then possibly `Up` with a higher epoch.
//! - [`Net::send`] never blocks. Within an epoch the other side receives a prefix of the messages sent, in order, each
//!   once. A message for an ended epoch is dropped.
//! - `Down` may come late, on one side only, or never; [`Why::Silent`] is a suspicion.
//! - Only a peer that has proved knowledge of the cluster secret comes up.
//! - Every queue is bounded. A peer that fills one loses its link.
//!
//! `docs/design/security.md` has the handshake, `docs/design/network.md` the parameters.

#![allow(missing_docs, reason = "internal: comments say only what the names do not")]

mod admission;
mod channel;
mod connection;
mod dials;
mod error;
mod frame;
mod handshake;
mod hub;
mod identity;
mod interfaces;
mod link;
mod log;
mod metrics;
mod net;
pub mod private;
mod random;
mod secret;
mod table;

pub use error::{Busy, Error, Refusal, Unreached, Unsent, Why};
pub use identity::Identity;
pub use interfaces::{dialable, is_here};
pub use metrics::Metrics;
pub use net::{Config, Event, Keyring, Net};
pub use secret::{Fingerprint, Secret};
