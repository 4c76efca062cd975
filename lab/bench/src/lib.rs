//! Benchmark of hand-over between real peers, compared with the cost of one message and with other servers.
//!
//! ```text
//!   bench (the parent)                       sleeps during a measurement
//!     ├── ping ◄── TCP ──► echo              the cost of one message: half a round trip
//!     ├── peer ◄── links ──► peer …          each with its share of the clients
//!     ├── etcd, redis, zookeeper             servers for comparison, in a temporary directory
//!     ├── their clients                      as many as the peers have, in as many processes
//!     └── relay                              between all of them, if messages are delayed
//! ```
//!
//! Clients record their times on `CLOCK_MONOTONIC`, one clock for the machine. Two clients in one slot, or a decreasing
//! fencing number, fail the run. All cases take turns within each round, so that a moment of load affects all of them.
//! `lab/docs/bench.md` explains the numbers.
#![allow(missing_docs, reason = "a comment that repeats a name is left out")]

pub mod child;
mod clock;
mod distance;
mod error;
mod etcd;
mod floor;
mod held_grant;
mod plan;
mod recovery;
mod redis;
mod relay;
mod report;
mod server;
mod setting;
mod statistics;
mod system;
mod worker;
mod zookeeper;

pub use error::Error;
pub use floor::Messages;
pub use plan::{Against, Options, Progress, run};
pub use recovery::{Recovery, RecoveryOptions, RecoveryRow, recovery};
pub use report::{Case, Memory, Message, Report, Uncontended};
pub use statistics::Times;
