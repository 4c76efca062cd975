//! The bench: protocols in virtual time.
//!
//! [`Experiment`] runs many trials of one setting and puts a [`Report`] together; [`Simulation`] is one trial, a loop
//! over a [`queue::Queue`] of events; [`Open`] is the same for clients that come and go, and for [`Faults`]; [`Rounds`]
//! runs whole peers on an overlay, with many resources, churn and faults. [`watch`] has the watchers that check every
//! event. The same seed gives the same bytes on any number of threads.

mod carrier;
mod engine;
mod experiment;
mod faults;
mod ideal;
pub mod latency;
mod ledger;
mod open;
pub mod queue;
mod rounds;
pub mod statistics;
mod timers;
pub mod watch;
mod workload;

pub use carrier::{Links, UnknownLinks};
pub use engine::{Simulation, Violation};
pub use experiment::{Experiment, Failure, PerPeerMax, Report, WaitSummary};
pub use faults::Faults;
pub use ideal::Ideal;
pub use ledger::{Ledger, Request};
pub use open::{Open, Tally};
pub use rounds::{Harm, Load, OverlayKind, Received, Round, Rounds, RoundsReport, Trouble, UnknownName};
pub use workload::{Closed, Hold, HoldError, Poisson};
