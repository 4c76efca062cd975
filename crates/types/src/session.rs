//! Sessions, and what the registry reports to them about a resource.

use alloc::vec::Vec;
use core::fmt;

use crate::PeerId;

/// A peer uses tokens only while its session is valid.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Session {
    pub peer: PeerId,
    pub number: u64,
}

/// A grant that outlives the session of its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Detached {
    pub slot: u32,
    pub fencing: u64,
}

/// docs/design/protocol.md has a table of events.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum EventKind {
    /// Answers a join: the session is a party from this generation on. Not sent if the join opened a generation:
    /// `Opened`, or the coordinator's census, follows instead.
    Joined { coordinator: PeerId, slots: u32 },
    /// Makes the session the coordinator of this generation, of which it starts the census. Repeated until it closes
    /// the census.
    Opened {
        slots: u32,
        /// The parties when it was opened.
        asked: Vec<Session>,
        /// Tokens of their slots are not created before `Expired`.
        detached: Vec<Detached>,
    },
    /// To the coordinator: a detached grant has ended. Another one of the same slot may still be valid.
    Expired(Detached),
    /// The session is no party since this generation, and its slots may be in use elsewhere.
    Evicted,
    /// Answers a quit: the session is no party any more, or another generation was opened first.
    Left {
        /// In which generation it was requested.
        quit: u64,
    },
}

/// Prints `4`, and from the second session on `4.1`.
impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number {
            0 => write!(f, "{}", self.peer),
            number => write!(f, "{}.{number}", self.peer),
        }
    }
}

crate::debug_as_display!(Session);
