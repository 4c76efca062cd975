//! The settings of the simulator, by real peers: in processes of their own, over TCP, in real time.
//!
//! ```text
//!   parent ──stdin: Order──► child ═══TCP, one connection each way═══► every child, itself included
//!      ▲                       │
//!      └───stdout: Told────────┘   records, stamped by CLOCK_MONOTONIC
//! ```
//!
//! Each child plays its share of the peers with the simulator's own loop (`World::play_part` in `peerlock-sim`): the
//! same state machines, loads, timers, delays and faults. All messages go over sockets, also those between two peers of
//! one process. What happens is written down and sent to the parent *before* any message that follows from it goes out,
//! so that what a process did is known even if it is killed right after. The parent puts all records in the order of
//! time and shows them to the simulator's watchers, which put together the same report.
//!
//! Links are plain TCP, and not those of `peerlock-net`: what is asked here is what a state machine does outside of
//! virtual time, and for that bytes in order are enough. Handshakes, keep-alives and back-off of the product's links
//! would be measured with every protocol. A process shows the key of the run before it is heard, which the parent has
//! made and handed over by pipe.
//!
//! **One clock** puts all records in order, that of the machine. Processes on other machines ([`Place`]) go by their
//! own, moved by as much as it is ahead; how well that is known is part of the result.
//!
//! **Time is scaled**: a run at speed 100 has a second of the setting in ten milliseconds, latencies, leases and stays
//! alike. What the machine itself needs is not, so that it weighs a hundred times as much.

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
mod seen;
mod tables;
mod wire;

use peerlock_catalogue::{Load, Protocol, Setting};
use thiserror::Error;

pub use child::child;
pub use compare::{Comparison, Costs, difference};
pub use defaults::setting;
pub use kill::{Kill, KillError, Who};
pub use parent::{Death, Live, Options, run};
pub use place::{Place, PlaceError};
pub use tables::{KillRow, Kills, Protocols, Row, Steps, kills, protocols, simulated};

/// Why there is no result.
#[derive(Debug, Error)]
pub enum Error {
    /// Something of the machine is missing.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was to be done.
        what: &'static str,
        /// Why not.
        source: std::io::Error,
    },
    /// A process of the run did not do its part. All others were ended.
    #[error("process {process} of the run has failed: {why}")]
    Child {
        /// Its number, from 0.
        process: usize,
        /// What it said, or what was seen of it.
        why: String,
    },
    /// The setting has no result.
    #[error(transparent)]
    Setting(#[from] peerlock_catalogue::Error),
    /// It cannot be done on sockets.
    #[error("{0}")]
    Refused(String),
}

impl Error {
    pub(crate) fn io(what: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { what, source }
    }
}

/// How many peers a setting has from the beginning.
pub(crate) fn population(setting: &Setting) -> u64 {
    match &setting.load {
        Load::Closed(closed) => {
            u64::from(closed.peers) + closed.voters.map_or(0, |voters| u64::from(voters.quorum.replicas()))
        }
        Load::Open(open) => u64::from(open.voters.quorum.replicas()),
        Load::Rounds(rounds) => u64::from(rounds.peers),
    }
}

/// What a simulator can do and sockets cannot, in a sentence.
///
/// # Errors
/// The setting has something of the kind.
pub fn check(setting: &Setting) -> Result<(), Error> {
    let refuse = |why: &str| Err(Error::Refused(why.into()));
    match setting.protocol {
        Protocol::Ideal => {
            return refuse("ideal is a bound that knows everything at once, which nobody does on sockets: simulate it");
        }
        Protocol::Custody => {
            return refuse("custody is what this program itself runs on sockets: see peerlock bench and peerlock demo");
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
