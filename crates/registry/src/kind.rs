//! What a session is told without having asked: that it coordinates a generation, that a grant it has been told of is
//! over, that it was forced out.
//!
//! ```text
//!   leader ──Told──► the session's host     when it is applied, and again: every 300 ms, less often if many are open
//!          ◄─Close── coordinator            a generation is told until it is closed: that is in the state
//!          ◄─Heard── process                anything else until it was heard: that is the leader's own memory, and the
//!                                           next leader tells it again
//! ```
//!
//! Whether a word has to be told follows from the state alone, so that no leader can forget one. Words may come twice,
//! late and in any order; each names its generation and its session. One for a session of an earlier process of the
//! host is dropped there: that session will end, and with it comes the next generation.
//!
//! Nobody else needs to open a generation for a coordinator that cannot be reached. Told and yes go the same way, from
//! the leader to the host of the session; who gets no yes has no session after its time, and its end opens the next
//! generation with another coordinator.

use peerlock_types::PeerId;
use serde::{Deserialize, Serialize};

use crate::SessionId;

/// Something that was decided about a resource, for one session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventKind {
    /// This generation begins, and the session that is addressed coordinates it. Every time it is told it says the
    /// same, however much was decided since. Answered by [`Command::Close`](crate::Command::Close) when all is counted.
    Opened {
        /// How many slots the resource has.
        slots: u32,
        /// Every party at the time, with its host.
        asked: Vec<(SessionId, PeerId)>,
        /// The grants that were detached at the time: slot and fencing number.
        detached: Vec<(u32, u64)>,
    },
    /// To the coordinator: a grant that was among those is over, at its end or taken back.
    Expired {
        /// The slot that it was for.
        slot: u32,
        /// The grant's number.
        fencing: u64,
    },
    /// The session is a party no more, by force: its slots may have been given to others already.
    Expelled,
}

/// Which word of one generation it is; there is one of each.
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
    /// What it is about.
    pub fn topic(&self) -> Topic {
        match *self {
            Self::Opened { .. } => Topic::Opened,
            Self::Expired { fencing, .. } => Topic::Expired(fencing),
            Self::Expelled => Topic::Expelled,
        }
    }
}
