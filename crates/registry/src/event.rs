//! Events: sent by the leader to a session, unasked.
//!
//! ```text
//!   leader ──Event───► the session's host     when applied, and again every 300 ms, less often if many are open
//!          ◄─Close──── coordinator            `Opened` is repeated until the generation is closed, by the state
//!          ◄─EventAck─ process                others are repeated until acknowledged: only the leader remembers that,
//!                                             so the next leader sends them again
//! ```
//!
//! The events to send follow from the state, so no leader can lose one. They may arrive twice, late and in any order. A
//! process drops events for another session of its host: the end of that session opens another generation. A
//! coordinator that receives no events cannot renew its session either, and its end opens the next generation.

use peerlock_types::PeerId;
use serde::{Deserialize, Serialize};

use crate::SessionId;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventKind {
    /// The session coordinates this new generation. Answered by [`Command::Close`](crate::Command::Close) when the
    /// census is complete.
    Opened {
        slots: u32,
        /// The parties when it was opened.
        asked: Vec<(SessionId, PeerId)>,
        /// Slot and fencing number of the grants detached then.
        detached: Vec<(u32, u64)>,
    },
    /// Sent to the coordinator: a grant of `detached` has ended.
    Expired { slot: u32, fencing: u64 },
    /// Others may already hold the session's slots.
    Evicted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Topic {
    Opened,
    /// Has the fencing number.
    Expired(u64),
    Evicted,
}

impl EventKind {
    pub fn topic(&self) -> Topic {
        match *self {
            Self::Opened { .. } => Topic::Opened,
            Self::Expired { fencing, .. } => Topic::Expired(fencing),
            Self::Evicted => Topic::Evicted,
        }
    }
}
