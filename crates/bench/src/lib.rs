//! How fast peers hand over: real peers in processes of their own, on loopback, measured beside what one message costs
//! and beside other servers.
//!
//! ```text
//!   bench (the parent)                       measures nothing itself, and sleeps while others do
//!     ├── ping ◄── TCP ──► echo              what one message costs: half a round trip
//!     ├── peer ◄── links ──► peer …          each with its share of the clients
//!     ├── etcd, redis, zookeeper             servers to compare with, in a temporary folder
//!     ├── their clients                      as many as the peers have, in as many processes
//!     └── relay                              between all of them, where messages are to take a while
//! ```
//!
//! Every client notes when it asked, when its request had left its process, and when it entered and left, on
//! `CLOCK_MONOTONIC`, which is one clock for the whole machine; the *gap* of a hand-over is the time from one client's
//! leaving to the next one's entering the same slot. What the clients noted is also checked: two of them in one slot,
//! or a fencing number that went back, fail the run.
//!
//! All cases take turns within each round, so that a moment of load does not hit only one of them. `docs/bench.md` says
//! how to read the numbers.

pub mod child;
mod clock;
mod crew;
mod distance;
mod door;
mod error;
mod etcd;
mod floor;
mod kept;
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
