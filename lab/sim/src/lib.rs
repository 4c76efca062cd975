//! Simulation of protocols in virtual time.
//!
//! [`World`] is the event loop: peers of one kind ([`Actor`]), a [`Workload`], [`Faults`], and [watchers](watch) that
//! check every event. Settings run many trials of a world and merge them into a [`Report`]: [`Experiment`] (a closed
//! loop of bare protocols), [`Open`] (clients that arrive and depart), [`Rounds`] (peers on an overlay, churn), and,
//! with the product's own peers, [`Custody`] (a closed loop) and [`Nodes`] (faults). The same seed gives the same bytes
//! on any number of threads.
#![allow(missing_docs, reason = "a comment that repeats a name is left out")]

pub mod actor;
mod carrier;
mod custody;
mod erased;
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
pub use erased::{Erased, ErasedPeer};
pub use experiment::Experiment;
pub use faults::{Cut, Faults, Spells};
pub use ideal::Ideal;
pub use ledger::{Client, Ledger};
pub use names::UnknownName;
pub use nodes::Nodes;
pub use open::Open;
pub use part::{Came, Counted, Drive, Outside, Record, RecordOf, Recorder, Run, Share, Wire, judge};
pub use peerlock_node::Ttl;
pub use report::{Harm, Numbers, PerPeerMax, Report, WaitSummary};
pub use rounds::{OverlayKind, Rounds};
pub use trials::{Failure, Setting as Trial, seed_of};
pub use watch::{Received, Round};
pub use workload::{Closed, ClosedLoop, Hold, HoldError, Load, Poisson, Workload};
pub use world::{Make, Setup, Violation, World};
