//! Runs the simulator's settings with real peers: in separate processes, over TCP, in real time.
//!
//! ```text
//!   parent ──stdin: Order──► child ═══TCP, one connection each way═══► every child, itself included
//!      ▲                       │
//!      └──stdout: ChildReport──┘   records, stamped by CLOCK_MONOTONIC
//! ```
//!
//! Each child runs its share of the peers in the simulator's event loop (`World::play_part`). It sends its records to
//! the parent *before* any message that follows from them, so that no event of a killed process is missing. The parent
//! sorts all records by time and passes them to the simulator's watchers. `lab/docs/live.md` has the reasons.
#![allow(missing_docs, reason = "a comment that repeats a name is left out")]

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

#[derive(Debug, Error)]
pub enum Error {
    #[error("cannot {action}: {source}")]
    Io { action: &'static str, source: std::io::Error },
    /// A process of the run failed, and all others were killed.
    #[error("process {process} of the run failed: {why}")]
    Child { process: usize, why: String },
    #[error(transparent)]
    Setting(#[from] peerlock_catalogue::Error),
    #[error("{0}")]
    Refused(String),
}

impl Error {
    pub(crate) fn io(action: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { action, source }
    }
}

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
