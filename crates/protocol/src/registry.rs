//! The registry's interface to a protocol: events and requests.
//!
//! For each resource the registry stores the number of slots, the *generation*, the coordinator, and the *parties*: the
//! sessions that may hold anything of the resource. Tokens never pass through it.
//!
//! An event may arrive late and at another process of the same host, so it names generation and session.

use alloc::vec::Vec;
use core::fmt;

pub use peerlock_types::{Detached, EventKind, Session};

/// docs/design/protocol.md has a table of events and requests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RegistryEvent {
    /// Any other session ignores it (R6).
    pub to: Session,
    /// At the time of the decision. A later generation ignores it (R1).
    pub generation: u64,
    pub kind: EventKind,
}

/// Not answered if the session has ended.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum RegistryRequest {
    /// Makes the session a party. Sent with its first request; answered by [`EventKind::Joined`].
    Join,
    /// Completes the census. Parties not in `remaining` cease to be parties, except those that joined since (R8).
    Close {
        /// No effect in any other.
        generation: u64,
        remaining: Vec<Session>,
    },
    /// Fencing numbers run out (R7).
    Renumber {
        /// No effect in any other.
        generation: u64,
    },
    /// The session has discarded everything it had (R10). Opens the next generation for the other parties.
    Quit {
        /// In which it did so. No effect in any other: a late copy must not remove a session that has joined again.
        generation: u64,
    },
}

impl fmt::Display for RegistryEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let generation = self.generation;
        match &self.kind {
            EventKind::Joined { coordinator, slots } => {
                write!(f, "joined(generation {generation}, coordinator {coordinator}, slots {slots})")
            }
            EventKind::Opened { slots, asked, detached } => {
                write!(f, "opened(generation {generation}, slots {slots}, asked {asked:?}")?;
                for Detached { slot, fencing } in detached {
                    write!(f, ", slot {slot} detached as {fencing}")?;
                }
                f.write_str(")")
            }
            EventKind::Expired(Detached { slot, fencing }) => {
                write!(f, "expired(generation {generation}, slot {slot} detached as {fencing})")
            }
            EventKind::Evicted => write!(f, "evicted(generation {generation})"),
            EventKind::Left { quit } => write!(f, "left(generation {generation}, quit {quit})"),
        }
    }
}

impl fmt::Display for RegistryRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Join => f.write_str("join"),
            Self::Close { generation, remaining } => write!(f, "close(generation {generation}, keep {remaining:?})"),
            Self::Renumber { generation } => write!(f, "renumber(generation {generation})"),
            Self::Quit { generation } => write!(f, "quit(generation {generation})"),
        }
    }
}
