//! Events that a protocol receives from the registry, and requests that it sends to it.
//!
//! The registry is a log replicated on the voters. For each resource it stores the number of slots, the *generation*,
//! the coordinator, and the *parties*: the sessions that may hold anything of the resource. Tokens never pass through
//! it.
//!
//! An event may arrive late and after a newer one, so each names its generation. It may reach another process of the
//! same host, so each names its session.

use alloc::vec::Vec;
use core::fmt;

use peerlock_types::PeerId;

/// One session of a peer, which uses tokens only while the session is valid.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Session {
    /// The peer.
    pub peer: PeerId,
    /// The number of the session at this peer.
    pub number: u64,
}

/// A notification to one session. docs/design/protocol.md has a table of events and requests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RegistryEvent {
    /// The addressed session. Any other ignores it (R6).
    pub to: Session,
    /// The resource's generation at the decision. A later generation ignores it (R1).
    pub generation: u64,
    /// The decision.
    pub kind: EventKind,
}

/// A decision of the registry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum EventKind {
    /// Answers [`RegistryRequest::Join`]: the addressed session is a party from this generation on.
    ///
    /// Not sent if the join opened a generation: `Opened`, or the coordinator's census, follows instead.
    Joined {
        /// The coordinator of this generation.
        coordinator: PeerId,
        /// The number of slots.
        slots: u32,
    },
    /// Opens this generation and makes the addressed session its coordinator, which starts the census. Repeated until
    /// [`RegistryRequest::Close`].
    Opened {
        /// The number of slots.
        slots: u32,
        /// The parties to be asked.
        asked: Vec<Session>,
        /// Detached grants. Tokens of their slots are not created before `Expired`.
        detached: Vec<Detached>,
    },
    /// Notifies the coordinator that a detached grant has ended. Another one of the same slot may still be valid.
    Expired(Detached),
    /// Evicts the addressed session: it is no party since this generation, and its slots may be in use elsewhere.
    Expelled,
    /// Answers [`RegistryRequest::Quit`]: the session is no party any more, or another generation was opened first.
    Left {
        /// The generation of the request.
        quit: u64,
    },
}

/// A grant that outlives the session of its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Detached {
    /// The slot.
    pub slot: u32,
    /// The grant's fencing number.
    pub fencing: u64,
}

/// A request to the registry. It is not answered if the session has ended.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum RegistryRequest {
    /// Makes the session a party. Sent with its first request for the resource; answered by [`EventKind::Joined`].
    Join,
    /// Completes the census. Parties not in `remaining` cease to be parties, except those that joined after this
    /// generation was opened (R8).
    Close {
        /// The counted generation; no effect in any other.
        generation: u64,
        /// The parties that have tokens or waiters.
        remaining: Vec<Session>,
    },
    /// Requests the next generation, since fencing numbers run out (R7).
    Renumber {
        /// The present generation; no effect in any other.
        generation: u64,
    },
    /// Ends the participation of the session, which has discarded everything it had (R10). Opens the next generation
    /// for the remaining parties.
    Quit {
        /// The generation in which it did so. No effect in any other: a late copy must not remove a session that has
        /// joined again.
        generation: u64,
    },
}

/// Prints the peer and, from its second session on, the number: `4`, `4.1`.
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
            EventKind::Expelled => write!(f, "expelled(generation {generation})"),
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
