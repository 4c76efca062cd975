//! peerlock on real sockets: encrypted links between the members of a cluster.
//!
//! ```no_run
//! use peerlock_net::{Config, Event, Identity, Net, Secret};
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let identity = Identity::load_or_create("/var/lib/peerlock/identity".as_ref())?;
//! let secret = Secret::load("/etc/peerlock/secret".as_ref())?;
//! let mut net = Net::start(Config::new("0.0.0.0:7400".parse()?), identity, secret).await?;
//! net.keep("10.0.0.7:7400".parse()?)?;
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
//! - A peer's events are `Up`, then messages, then `Down`, then perhaps `Up` with a higher epoch, and so on. Nothing of
//!   an epoch comes before its `Up` or after its `Down`.
//! - [`Net::send`] never blocks. Within an epoch, what arrives at the other side are the first messages sent, in order,
//!   each once: nothing is lost but a tail, and a tail only with the epoch's end. A message for an epoch that is over
//!   goes nowhere.
//! - `Down` may come late, on one side only, or never; [`Why::Silent`] is a suspicion.
//! - Only who has proved to know the cluster secret is ever up.
//! - Every queue is bounded; whoever fills one loses its link, not our memory.
//!
//! `docs/network.md` has the proof, the parameters and what is not there yet.

mod channel;
mod connection;
mod dials;
mod doorstep;
mod error;
mod frame;
mod hub;
mod identity;
mod interfaces;
mod log;
mod metrics;
mod net;
pub mod private;
mod proof;
mod random;
mod secret;
mod session;
mod table;

pub use error::{Busy, Error, Refusal, Unreached, Unsent, Why};
pub use identity::Identity;
pub use interfaces::{dialable, is_here};
pub use metrics::Metrics;
pub use net::{Config, Epoch, Event, Keyring, Net};
pub use secret::{Fingerprint, Secret};
