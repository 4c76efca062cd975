//! Benchmark of hand-over between real peers, each in its own process on loopback, compared with the cost of one
//! message and with other servers.
//!
//! ```text
//!   bench (the parent)                       measures nothing itself, and sleeps meanwhile
//!     ├── ping ◄── TCP ──► echo              the cost of one message: half a round trip
//!     ├── peer ◄── links ──► peer …          each with its share of the clients
//!     ├── etcd, redis, zookeeper             servers for comparison, in a temporary directory
//!     ├── their clients                      as many as the peers have, in as many processes
//!     └── relay                              between all of them, if messages are delayed
//! ```
//!
//! Every client records the times of request, departure of the request, grant and release on `CLOCK_MONOTONIC`, one
//! clock for the whole machine. The *gap* of a hand-over is the time from a release to the next grant of the slot. Two
//! clients in one slot, or a decreasing fencing number, fail the run.
//!
//! All cases take turns within each round, so that a moment of load does not affect only one. `lab/docs/bench.md`
//! explains the numbers.

pub mod child;
mod clock;
mod crew;
mod distance;
mod door;
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
mod targets;
mod zookeeper;

pub use error::Error;
pub use floor::Messages;
pub use plan::{Against, Options, Progress, run};
pub use recovery::{Recovery, RecoveryOptions, RecoveryRow, recovery};
pub use report::{Case, Memory, Message, Report, Uncontended};
pub use statistics::Times;
pub use targets::Target;
