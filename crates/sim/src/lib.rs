//! The bench: protocols in virtual time.
//!
//! [`Experiment`] runs many trials of one setting and puts a [`Report`] together; [`Simulation`] is one trial, a loop
//! over a [`queue::Queue`] of events. [`watch`] has the watchers that check every event. The same seed gives the same
//! bytes on any number of threads.

mod engine;
mod experiment;
mod ideal;
pub mod latency;
mod ledger;
pub mod queue;
pub mod statistics;
pub mod text;
pub mod watch;
mod workload;

pub use engine::{Links, Simulation, UnknownLinks, Violation};
pub use experiment::{Experiment, Failure, PerPeerMax, Report, WaitSummary};
pub use ideal::Ideal;
pub use ledger::{Ledger, Request};
pub use workload::{Closed, Hold, HoldError};
