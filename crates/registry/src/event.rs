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

use peerlock_types::EventKind;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Topic {
    Opened,
    /// Has the fencing number.
    Expired(u64),
    Evicted,
}

impl Topic {
    /// Returns `None` for an answer to a command, which no leader sends.
    pub fn of(kind: &EventKind) -> Option<Self> {
        match kind {
            EventKind::Opened { .. } => Some(Self::Opened),
            EventKind::Expired(grant) => Some(Self::Expired(grant.fencing)),
            EventKind::Evicted => Some(Self::Evicted),
            EventKind::Joined { .. } | EventKind::Left { .. } => None,
        }
    }
}
