//! The registry's interface to a protocol: events and requests.
//!
//! For each resource the registry stores the number of slots, the *generation*, the coordinator, and the *parties*: the
//! sessions that may hold anything of the resource. Tokens never pass through it.
//!
//! An event may arrive late and at another process of the same host, so it names generation and session.

use alloc::vec::Vec;
use core::fmt;

use peerlock_types::PeerId;

/// A peer uses tokens only while its session is valid.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Session {
    pub peer: PeerId,
    pub number: u64,
}

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

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum EventKind {
    /// Answers [`RegistryRequest::Join`]: the session is a party from this generation on. Not sent if the join opened a
    /// generation: `Opened`, or the coordinator's census, follows instead.
    Joined { coordinator: PeerId, slots: u32 },
    /// Makes the session the coordinator of this generation, of which it starts the census. Repeated until
    /// [`RegistryRequest::Close`].
    Opened {
        slots: u32,
        asked: Vec<Session>,
        /// Tokens of their slots are not created before `Expired`.
        detached: Vec<Detached>,
    },
    /// To the coordinator: a detached grant has ended. Another one of the same slot may still be valid.
    Expired(Detached),
    /// The session is no party since this generation, and its slots may be in use elsewhere.
    Evicted,
    /// Answers [`RegistryRequest::Quit`]: the session is no party any more, or another generation was opened first.
    Left {
        /// In which generation it was requested.
        quit: u64,
    },
}

/// A grant that outlives the session of its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Detached {
    pub slot: u32,
    pub fencing: u64,
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

/// Prints `4`, and from the second session on `4.1`.
impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number {
            0 => write!(f, "{}", self.peer),
            number => write!(f, "{}.{number}", self.peer),
        }
    }
}

peerlock_types::debug_as_display!(Session);

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
