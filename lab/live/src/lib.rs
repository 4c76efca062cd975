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

use peerlock_catalogue::{Protocol, Setting};
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

/// Checks that a setting can run on sockets.
///
/// # Errors
///
/// Names what only the simulator has.
pub fn check(setting: &Setting) -> Result<(), Error> {
    let refuse = |why: &str| Err(Error::Refused(why.into()));
    match setting.protocol() {
        Protocol::Ideal => {
            return refuse("ideal is a bound with global knowledge, not a protocol: simulate it");
        }
        Protocol::Custody => {
            return refuse("custody is the protocol of the product: use peerlock-lab bench or peerlock demo");
        }
        _ => {}
    }
    let simulated = [
        ("crash", setting.crash.is_some()),
        ("death", setting.death.is_some()),
        ("catastrophe", setting.catastrophe.is_some()),
        ("client-crash", setting.client_crash.is_some()),
        ("cut-off", setting.cut_off.is_some()),
        ("resets-at-most", setting.resets_at_most.is_some()),
    ];
    match simulated.iter().find(|(_, is_set)| *is_set) {
        Some((name, _)) => Err(Error::Refused(format!("{name} works only in the simulator: use --kill"))),
        None => Ok(()),
    }
}
