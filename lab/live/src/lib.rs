//! Runs the simulator's settings with real peers: in separate processes, over TCP, in real time.
//!
//! ```text
//!   parent ──stdin: Order──► child ═══TCP, one connection each way═══► every child, itself included
//!      ▲                       │
//!      └───stdout: Told────────┘   records, stamped by CLOCK_MONOTONIC
//! ```
//!
//! Each child plays its share of the peers with the simulator's own loop (`World::play_part` in `peerlock-sim`): the
//! same state machines, workloads, timers, delays and faults. All messages pass through sockets, also between two peers
//! of one process. A child sends its records to the parent *before* any message that follows from them, so that the
//! acts of a killed process are known. The parent sorts all records by time and passes them to the simulator's
//! watchers, which make the same report.
//!
//! Links are plain TCP and not those of `peerlock-net`: the question is how a state machine behaves outside of virtual
//! time, and for that an ordered byte stream is enough. Handshakes, keep-alives and back-off of the product's links
//! would be measured with every protocol. A connecting process authenticates with the key of the run, which the parent
//! has created and passed by pipe.
//!
//! **One clock**, the machine's, orders all records. Processes on other machines ([`Place`]) use their own clock,
//! corrected by its offset; the uncertainty of the offset is part of the result.
//!
//! **Time is scaled**: at speed 100 a second of the setting takes ten milliseconds, for latencies, leases and holds
//! alike. The overhead of the machine is not scaled and so weighs a hundred times as much.

mod child;
mod clock;
mod compare;
mod defaults;
mod frame;
mod judge;
mod kill;
mod links;
mod parent;
mod place;
mod stats;
mod tables;
mod wire;

use peerlock_catalogue::{Load, Protocol, Setting};
use thiserror::Error;

pub use child::child;
pub use compare::{Comparison, Costs, difference};
pub use defaults::setting;
pub use kill::{Kill, KillError, Target};
pub use parent::{Death, Live, Options, run};
pub use place::{Place, PlaceError};
pub use tables::{KillRow, Kills, Protocols, Row, Steps, kills, protocols, simulated};

/// Why there is no result.
#[derive(Debug, Error)]
pub enum Error {
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    Io {
        /// The attempted action.
        what: &'static str,
        /// The cause.
        source: std::io::Error,
    },
    /// A process of the run failed. All others were ended.
    #[error("process {process} of the run has failed: {why}")]
    Child {
        /// The number of the process, from 0.
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
    pub(crate) fn io(what: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { what, source }
    }
}

/// Returns the number of peers at the start.
pub(crate) fn population(setting: &Setting) -> u64 {
    match &setting.load {
        Load::Closed(closed) => {
            u64::from(closed.peers) + closed.voters.map_or(0, |voters| u64::from(voters.quorum.replicas()))
        }
        Load::Open(open) => u64::from(open.voters.quorum.replicas()),
        Load::Rounds(rounds) => u64::from(rounds.peers),
    }
}

/// Checks that a setting can be run on sockets.
///
/// # Errors
///
/// Returns an error that names the part that only the simulator has.
pub fn check(setting: &Setting) -> Result<(), Error> {
    let refuse = |why: &str| Err(Error::Refused(why.into()));
    match setting.protocol {
        Protocol::Ideal => {
            return refuse("ideal is a bound that knows everything at once, which nobody does on sockets: simulate it");
        }
        Protocol::Custody => {
            return refuse(
                "custody is what this program itself runs on sockets: see peerlock-lab bench and peerlock demo",
            );
        }
        _ => {}
    }
    let faults = &setting.faults;
    let of_peers = [
        ("crash", faults.crashes.is_some()),
        ("death", faults.deaths.is_some()),
        ("catastrophe", faults.catastrophe.is_some()),
        ("client-crash", faults.client_crash > 0.0),
        ("cut-off", faults.cut_off.is_some()),
        ("resets-at-most", faults.resets_at_most.is_some()),
    ];
    match of_peers.iter().find(|(_, is_there)| *is_there) {
        Some((name, _)) => Err(Error::Refused(format!(
            "{name} is for the simulator, which knows all peers at once: here processes are killed with --kill"
        ))),
        None => Ok(()),
    }
}
