//! What a protocol hears from the register, and what it asks of it.
//!
//! The register is a small log that all peers agree on. For each resource it keeps the number of slots, the
//! *generation*, who coordinates in it, and which sessions are *parties*. It is slow and rarely asked; tokens never go
//! through it.
//!
//! A word may arrive late and after a younger one, so each names its generation; and it may reach another process of
//! the same host than the one it was meant for, so each names its session.

use alloc::vec::Vec;
use core::fmt;

use peerlock_types::PeerId;

/// One life of a peer, as the register opens and ends it. A peer may use tokens only while its session stands; once it
/// has ended, the peer goes on as another session, and so does another process at the same address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Session {
    /// The peer, which is where messages go.
    pub peer: PeerId,
    /// Which of its sessions.
    pub number: u64,
}

/// A word of the register to one session.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RegistryEvent {
    /// Whom it is meant for.
    pub to: Session,
    /// The resource's generation when the register decided this.
    pub generation: u64,
    /// What was decided.
    pub kind: EventKind,
}

/// What the register has decided.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum EventKind {
    /// The session that is addressed is a party from now on: the answer to [`RegistryRequest::Join`]. Not said if the join itself
    /// opened a generation; then there is `Opened`, or the coordinator's question.
    Joined {
        /// Who coordinates in this generation.
        coordinator: PeerId,
        /// How many slots the resource has.
        slots: u32,
    },
    /// This generation begins, and who is addressed coordinates it. Answered by [`RegistryRequest::Close`] when all is counted.
    Opened {
        /// How many slots the resource has.
        slots: u32,
        /// Every party whose session stands.
        asked: Vec<Session>,
        /// Clients that are inside for longer than their peer may live.
        detached: Vec<Detached>,
    },
    /// To the coordinator: this detached grant is over, at its end or taken back. There may be another of the same
    /// slot: one that was left before its end is taken back later.
    Expired(Detached),
    /// The session that is addressed is a party no more, by force: its slots may have been given to others already.
    Expelled,
    /// The answer to [`RegistryRequest::Quit`]: the session that is addressed is a party no more, or there was another generation
    /// before that.
    Left {
        /// The generation in which it has thrown everything away.
        quit: u64,
    },
}

/// A grant whose client was told an end after its session's: until then its slot must not be made anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Detached {
    /// The slot that the grant is for.
    pub slot: u32,
    /// The grant's fencing number.
    pub fencing: u64,
}

/// What a peer asks of the register. It may be asked in vain: no answer comes if the session has ended.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum RegistryRequest {
    /// To be a party of the resource.
    Join,
    /// All parties have answered, and only these have anything of the resource. The others are no parties any more,
    /// but for those that have joined since this generation was opened.
    Close {
        /// The generation that was counted; does nothing in any other.
        generation: u64,
        /// The parties that have anything of the resource.
        remaining: Vec<Session>,
    },
    /// The next generation, since the numbers of this one run out. Does nothing in any other.
    Renumber {
        /// The generation whose numbers run out.
        generation: u64,
    },
    /// To be a party no more: whatever the session had, it has thrown away. Opens the next generation, for those that
    /// are left. Does nothing in any other than this one: else a wish that comes late could take away what a session
    /// has since it joined again.
    Quit {
        /// The generation in which it has thrown everything away.
        generation: u64,
    },
}

/// The peer, and from its second session on, which: `4`, `4.1`.
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
