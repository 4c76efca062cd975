//! Runs the simulator's settings with real peers: in separate processes, over TCP, in real time.
//!
//! ```text
//!   parent ──stdin: Order──► child ═══TCP, one connection each way═══► every child, itself included
//!      ▲                       │
//!      └──stdout: ChildReport──┘   records, stamped by CLOCK_MONOTONIC
//! ```
//!
//! Each child runs its share of the peers in the simulator's event loop (`World::play_part`): the same state machines,
//! workloads, timers, delays and faults. All messages pass through sockets, also within a process. A child sends its
//! records to the parent *before* any message that follows from them, so that no act of a killed process is missing.
//! The parent sorts all records by time and passes them to the simulator's watchers.
//!
//! Links are plain TCP: handshakes, keep-alives and back-off of the product's links would be measured with every
//! protocol. A connecting process authenticates with the key of the run.
//!
//! **One clock**, the machine's, orders all records. Processes on other machines ([`Machine`]) use their own clock,
//! corrected by its offset, whose uncertainty is part of the result.
//!
//! **Time is scaled**: at speed 100 a second of the setting takes ten milliseconds.

mod child;
mod clock;
mod compare;
mod defaults;
mod frame;
mod judge;
mod kill;
mod links;
mod machine;
mod parent;
mod stats;
mod tables;
mod wire;

use peerlock_catalogue::{Load, Protocol, Setting};
use thiserror::Error;

pub use child::child;
pub use compare::{Comparison, Costs, difference};
pub use defaults::setting;
pub use kill::{Kill, KillError, Target};
pub use machine::{Machine, MachineError};
pub use parent::{Death, Live, Options, run};
pub use tables::{KillRow, Kills, Protocols, Row, Steps, kills, protocols, simulated};

/// Why there is no result.
#[derive(Debug, Error)]
pub enum Error {
    /// A system call failed.
    #[error("cannot {action}: {source}")]
    Io {
        /// The action.
        action: &'static str,
        /// The cause.
        source: std::io::Error,
    },
    /// A process of the run failed, and all others were killed.
    #[error("process {process} of the run failed: {why}")]
    Child {
        /// Its number, from 0.
        process: usize,
        /// The cause.
        why: String,
    },
    /// The setting has no result.
    #[error(transparent)]
    Setting(#[from] peerlock_catalogue::Error),
    /// The setting or the options cannot be run on sockets.
    #[error("{0}")]
    Refused(String),
}

impl Error {
    pub(crate) fn io(action: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { action, source }
    }
}

/// Returns the number of peers.
pub(crate) fn population(setting: &Setting) -> u64 {
    match &setting.load {
        Load::Closed(closed) => {
            u64::from(closed.peers) + closed.voters.map_or(0, |voters| u64::from(voters.quorum.replicas()))
        }
        Load::Open(open) => u64::from(open.voters.quorum.replicas()),
        Load::Rounds(rounds) => u64::from(rounds.peers),
    }
}

/// Checks that a setting can run on sockets.
///
/// # Errors
///
/// Names what only the simulator has.
pub fn check(setting: &Setting) -> Result<(), Error> {
    let refuse = |why: &str| Err(Error::Refused(why.into()));
    match setting.protocol {
        Protocol::Ideal => {
            return refuse("ideal is a bound with global knowledge, not a protocol: simulate it");
        }
        Protocol::Custody => {
            return refuse("custody is the protocol of the product: use peerlock-lab bench or peerlock demo");
        }
        _ => {}
    }
    let faults = &setting.faults;
    let simulated = [
        ("crash", faults.crashes.is_some()),
        ("death", faults.deaths.is_some()),
        ("catastrophe", faults.catastrophe.is_some()),
        ("client-crash", faults.client_crash > 0.0),
        ("cut-off", faults.cut_off.is_some()),
        ("resets-at-most", faults.resets_at_most.is_some()),
    ];
    match simulated.iter().find(|(_, is_set)| *is_set) {
        Some((name, _)) => Err(Error::Refused(format!("{name} works only in the simulator: use --kill"))),
        None => Ok(()),
    }
}
