//! Protocols in virtual time.
//!
//! [`World`] is the loop: peers of some kind ([`Actor`]), a [`Workload`], [`Faults`], and [watchers](watch) that check
//! every event. `world.rs` tells how to add one of each. Settings are made of it, each of which runs many trials and
//! puts a [`Report`] together: [`Experiment`] (a closed loop of bare protocols), [`Open`] (an open workload: clients
//! that come and go) and [`Rounds`] (whole peers on an overlay, many resources, churn); two more run the product's own
//! peers: [`Custody`] in a closed loop, to be compared, and [`Nodes`], to be broken. The same seed gives the same bytes
//! on any number of threads.

pub mod actor;
mod carrier;
mod custody;
mod experiment;
mod faults;
mod hosts;
mod ideal;
pub mod latency;
mod ledger;
mod names;
mod nodes;
mod open;
mod part;
pub mod queue;
pub mod report;
mod rounds;
pub mod statistics;
mod timers;
mod trials;
pub mod watch;
pub mod workload;
mod world;

pub use actor::{Actor, Bare};
pub use carrier::Links;
pub use custody::Custody;
pub use experiment::Experiment;
pub use faults::{Cut, Faults, Spells};
pub use ideal::Ideal;
pub use ledger::{Client, Ledger};
pub use names::UnknownName;
pub use nodes::Nodes;
pub use open::Open;
pub use part::{Came, Counted, Drive, Outside, Record, RecordOf, Recorder, Run, Share, Simulated, Wire, judge};
pub use peerlock_node::Ttl;
pub use report::{Harm, Numbers, PerPeerMax, Report, WaitSummary};
pub use rounds::{OverlayKind, Rounds};
pub use trials::{Failure, Setting as Trial, seed_of};
pub use watch::{Received, Round};
pub use workload::{Closed, ClosedLoop, Hold, HoldError, Load, Poisson, Workload};
pub use world::{Make, Setup, Violation, World};
