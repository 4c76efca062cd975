//! Events: what the leader sends to a session without having been asked.
//!
//! ```text
//!   leader ──Event───► the session's host     when applied, and again every 300 ms, less often if many are open
//!          ◄─Close──── coordinator            `Opened` is repeated until the generation is closed, by the state
//!          ◄─EventAck─ process                others are repeated until acknowledged: only the leader remembers that,
//!                                             so the next leader sends them again
//! ```
//!
//! The events to send follow from the state alone, so no leader can lose one. They may arrive twice, late and in any
//! order, and name their generation and session. A process drops events for another session of its host: when that
//! session ends, another generation opens.
//!
//! An unreachable coordinator needs no further rule. Events and confirmed renewals take the same path, from the leader
//! to the session's host. A coordinator that receives no events receives no renewals either, so its session expires,
//! which opens the next generation with another coordinator.

use peerlock_types::PeerId;
use serde::{Deserialize, Serialize};

use crate::SessionId;

/// An event of a resource, for one session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventKind {
    /// This generation has been opened, and the addressed session coordinates it. Every repetition has the same
    /// content. Answered by [`Command::Close`](crate::Command::Close) when the census is complete.
    Opened {
        /// The number of slots.
        slots: u32,
        /// The parties when it was opened, with their hosts.
        asked: Vec<(SessionId, PeerId)>,
        /// The grants that were detached when it was opened: slot and fencing number.
        detached: Vec<(u32, u64)>,
    },
    /// Sent to the coordinator: a grant in its `detached` has expired or was released or revoked.
    Expired {
        /// The slot.
        slot: u32,
        /// The fencing number, which identifies the grant.
        fencing: u64,
    },
    /// The session was evicted: its slots may already be granted to others.
    Expelled,
}

/// Identifies an event within one generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Topic {
    /// [`EventKind::Opened`].
    Opened,
    /// [`EventKind::Expired`], of this fencing number.
    Expired(u64),
    /// [`EventKind::Expelled`].
    Expelled,
}

impl EventKind {
    /// Returns the topic of this event.
    pub fn topic(&self) -> Topic {
        match *self {
            Self::Opened { .. } => Topic::Opened,
            Self::Expired { fencing, .. } => Topic::Expired(fencing),
            Self::Expelled => Topic::Expelled,
        }
    }
}
