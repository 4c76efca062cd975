//! The commands of the registry's log, and their outcomes.

use std::fmt;

use peerlock_types::{MOST_GENERATION, MOST_SLOTS, PeerId};
use serde::{Deserialize, Serialize};

use crate::{Label, SessionId, Ttl, Versions, VoterId};

/// Maximum number of addresses of one member.
pub const MOST_ADDRESSES: usize = 16;
/// Maximum number of sessions that one command or event names.
pub const MOST_NAMED: usize = 32_768;
/// Maximum number of resources that one `Open` takes over. Their names fit into one message.
pub const MOST_TAKEN: usize = 1024;
/// Maximum number of voters that an administrator can choose.
pub const MAX_VOTERS: usize = 7;
/// Upper bound of terms, indices and similar numbers in decoded messages, so that no increment overflows.
pub const MOST_NUMBER: u64 = 1 << 48;
/// Upper bound of fencing numbers. It follows from the bound on generations.
pub const MOST_FENCING: u64 = 1 << 62;

/// The description of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Info {
    /// The host's name.
    pub name: Label,
    /// The addresses that it listens on.
    pub addresses: Vec<Label>,
    /// The versions that its process understands.
    pub versions: Versions,
    /// Whether it has a data directory. Only such a host can become a voter, and it remains a member after its last
    /// session.
    pub keeps: bool,
}

/// The order of a host's `Open` requests: later requests compare greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Incarnation {
    /// The process number: higher than that of every earlier process of the host.
    pub process: u64,
    /// How many sessions this process has requested before.
    pub opening: u64,
}

/// An entry of the registry's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Opens a session for a process. Answered with [`Outcome::Opened`].
    ///
    /// A retransmission with the same nonce returns the same session.
    Open {
        /// The host that the process runs on.
        host: PeerId,
        /// A random number, drawn for each session.
        nonce: u64,
        /// Refused unless it is greater than the host's latest. So a late copy opens no session.
        incarnation: Incarnation,
        /// How long the session is valid after the sending of a renewal.
        ttl: Ttl,
        /// The description of the host.
        info: Info,
        /// The voter whose file the process has.
        voter: Option<VoterId>,
        /// An ended session of the same host: its process has exited or has latched its stop. Sessions that earlier
        /// processes opened to replace it, and never stored, end with it.
        replaces: Option<SessionId>,
        /// The resources in which clients of the replaced session may still hold slots. The new session becomes a party
        /// of each, and each gets a new generation in whose census it takes part.
        takes: Vec<Label>,
    },
    /// Ends a session. Sent by its own process, which has stopped using it.
    Leave {
        /// The session to end.
        session: SessionId,
    },
    /// Ends sessions whose time has passed at the leader. Has an effect only in an entry of `term`: see
    /// [`crate::leases`].
    End {
        /// The sessions to end.
        sessions: Vec<SessionId>,
        /// The term in which the leader decided this.
        term: u64,
    },
    /// Makes a session a party of a resource, which is created if it does not exist. Answered with [`Outcome::Joined`].
    Join {
        /// The session that becomes a party.
        session: SessionId,
        /// The name of the resource.
        resource: Label,
        /// The number of slots, if this command creates the resource.
        slots: u32,
    },
    /// Changes the number of slots of a resource, which opens a generation.
    Resize {
        /// The name of the resource.
        resource: Label,
        /// The new number. No effect if the resource already has that many.
        slots: u32,
        /// The generation that the sender has seen. Refused if the number has changed in a later one, so that a late
        /// copy does not undo a newer change.
        generation: u64,
    },
    /// Opens the next generation because this one runs out of fencing numbers.
    Renumber {
        /// The name of the resource.
        resource: Label,
        /// The current generation; refused otherwise.
        generation: u64,
    },
    /// Reports that the coordinator has completed the census. Removes parties that joined before this generation and
    /// are not in `remaining`. The generation is no longer announced to the coordinator.
    Close {
        /// The coordinator's session.
        session: SessionId,
        /// The name of the resource.
        resource: Label,
        /// The current generation; refused otherwise.
        generation: u64,
        /// The parties that reported a token or a waiter.
        remaining: Vec<SessionId>,
    },
    /// Records a detached grant, or renews it: its time counts from this entry. Committed before the client is
    /// notified.
    ///
    /// Any session of the granting host may renew it.
    Detach {
        /// The session that grants or renews.
        session: SessionId,
        /// The name of the resource.
        resource: Label,
        /// The granted slot.
        slot: u32,
        /// The fencing number, which identifies the grant.
        fencing: u64,
        /// How long the grant is valid from now on. A renewal never shortens it.
        ttl: Ttl,
        /// Opaque text that a later process of the host finds with the grant.
        note: Label,
    },
    /// Removes a detached grant: it was released, or not given after all. Sent by a session of the granting host.
    DropDetached {
        /// The session that removes it.
        session: SessionId,
        /// The name of the resource.
        resource: Label,
        /// The fencing number, which identifies the grant.
        fencing: u64,
    },
    /// Evicts a party with all detached grants of its session, and opens a generation.
    ///
    /// Its clients may still use their slots: only fencing numbers protect against them.
    Expel {
        /// The name of the resource.
        resource: Label,
        /// The session to evict.
        session: SessionId,
        /// The generation in which it became a party, as the sender has seen it ([`Party::since`](crate::Party)).
        /// Identifies one participation: a late copy does not evict a session that has joined again.
        since: u64,
    },
    /// Revokes one detached grant, on behalf of an administrator whose request its host does not answer. No generation
    /// is opened.
    TakeBack {
        /// The name of the resource.
        resource: Label,
        /// The fencing number, which identifies the grant.
        fencing: u64,
        /// The session that gave or last renewed it, as the sender has seen it. Refused if a later session of the host
        /// has renewed the grant since.
        session: SessionId,
    },
    /// Ends a detached grant whose time has passed at the leader.
    ExpireDetached {
        /// The name of the resource.
        resource: Label,
        /// The fencing number, which identifies the grant.
        fencing: u64,
        /// The number of its renewals. Refused if it was renewed since.
        stretch: u64,
    },
    /// Sets the hosts that vote; with `None` the registry chooses them.
    ///
    /// Each host becomes a voter once it has a session and has caught up. Until all have, no voter is removed.
    SetVoters {
        /// The hosts.
        hosts: Option<Vec<PeerId>>,
        /// The number of choices that the sender has seen. Refused if there was another since, so that a late copy does
        /// not undo a newer choice.
        after: u64,
    },
    /// Follows a change of voters that the leader has applied. Once this entry is committed, a majority of the present
    /// voters has stored that the change is committed, and never counts with the former voters again.
    Settle {
        /// The number of the change. Refused if it is not the last one.
        change: u64,
    },
    /// Increases the registry's version. Proposed when every voter and every session understands the next one.
    Raise {
        /// The next version.
        version: u16,
    },
    /// Removes a party that has discarded its state of the resource because none of its clients has used it for a
    /// while. Opens a generation for the remaining parties.
    Quit {
        /// The session to remove.
        session: SessionId,
        /// The name of the resource.
        resource: Label,
        /// The current generation; refused otherwise, since the session may have joined again.
        generation: u64,
    },
    /// Deletes a resource. Refused while it has a party or a detached grant.
    ///
    /// A later resource, of any name, starts with a higher generation.
    Remove {
        /// The name of the resource.
        resource: Label,
        /// The current generation. Refused otherwise: it was used since, or is another resource of the same name.
        generation: u64,
    },
    /// Ends the quarantine after a recovery, once its time has passed at the leader: see [`crate::State::quarantine`].
    LiftQuarantine,
}

impl Command {
    /// Returns the session that sends this command, if it acts for one.
    pub fn session(&self) -> Option<SessionId> {
        match *self {
            Self::Leave { session }
            | Self::Join { session, .. }
            | Self::Close { session, .. }
            | Self::Quit { session, .. }
            | Self::Detach { session, .. }
            | Self::DropDetached { session, .. } => Some(session),
            Self::Open { .. }
            | Self::Resize { .. }
            | Self::Renumber { .. }
            | Self::Expel { .. }
            | Self::TakeBack { .. }
            | Self::SetVoters { .. }
            | Self::End { .. }
            | Self::ExpireDetached { .. }
            | Self::Settle { .. }
            | Self::Raise { .. }
            | Self::Remove { .. }
            | Self::LiftQuarantine => None,
        }
    }

    /// Returns whether only a leader proposes this command.
    pub fn is_leaders(&self) -> bool {
        matches!(
            self,
            Self::End { .. }
                | Self::ExpireDetached { .. }
                | Self::Settle { .. }
                | Self::Raise { .. }
                | Self::LiftQuarantine
        )
    }

    /// Checks the bounds of all fields. The error names what is out of bounds.
    pub fn check(&self) -> Result<(), &'static str> {
        let within = |good, why| if good { Ok(()) } else { Err(why) };
        match self {
            Self::Open { info, takes, .. } => within(
                info.addresses.len() <= MOST_ADDRESSES && takes.len() <= MOST_TAKEN,
                "too many addresses or resources",
            ),
            Self::Join { slots, .. } => within((1..=MOST_SLOTS).contains(slots), "number of slots out of range"),
            Self::Resize { slots, generation, .. } => within(
                (1..=MOST_SLOTS).contains(slots) && *generation < MOST_GENERATION,
                "number of slots or generation out of range",
            ),
            Self::End { sessions, term } => {
                within(sessions.len() <= MOST_NAMED && *term < MOST_NUMBER, "too many sessions, or term out of range")
            }
            Self::Close { remaining, generation, .. } => within(
                remaining.len() <= MOST_NAMED && *generation < MOST_GENERATION,
                "too many sessions, or generation out of range",
            ),
            Self::Renumber { generation, .. } | Self::Quit { generation, .. } | Self::Remove { generation, .. } => {
                within(*generation < MOST_GENERATION, "generation out of range")
            }
            Self::SetVoters { hosts, after } => {
                let most = hosts.as_ref().is_none_or(|hosts| (1..=MAX_VOTERS).contains(&hosts.len()));
                within(most && *after < MOST_NUMBER, "number of voters or choices out of range")
            }
            Self::Expel { since, .. } => within(*since < MOST_GENERATION, "generation out of range"),
            Self::Detach { slot, fencing, .. } => {
                within(*slot < MOST_SLOTS && *fencing < MOST_FENCING, "slot or fencing number out of range")
            }
            Self::Leave { .. }
            | Self::DropDetached { .. }
            | Self::TakeBack { .. }
            | Self::ExpireDetached { .. }
            | Self::Settle { .. }
            | Self::Raise { .. }
            | Self::LiftQuarantine => Ok(()),
        }
    }
}

/// A generation that was opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    /// The name of the resource.
    pub resource: Label,
    /// The generation.
    pub generation: u64,
    /// The session that takes the census and coordinates, or `None` if no party is left.
    pub coordinator: Option<SessionId>,
}

/// The result of applying a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The session is open. It is usable only once a renewal was confirmed.
    Opened {
        /// The new session.
        session: SessionId,
    },
    /// Sessions have ended.
    Ended {
        /// The sessions that this command has ended, without those that had ended before.
        sessions: Vec<SessionId>,
    },
    /// The session is a party of the resource.
    Joined {
        /// The current generation. The joining session discards messages of earlier ones.
        generation: u64,
        /// The coordinator's session and host.
        coordinator: (SessionId, PeerId),
        /// Whether this join has opened the generation. Then the joining session coordinates it, and an event announces
        /// it.
        opened: bool,
        /// The number of slots, which may differ from the number in the command.
        slots: u32,
    },
    /// A generation was opened.
    Advanced(Opening),
    /// The command has been applied, now or earlier.
    Done,
    /// The command has changed nothing.
    Refused(Refusal),
}

/// Why a command has changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// The session has ended or never existed.
    NoSession,
    /// The session is not a party of the resource.
    NoParty,
    /// It belongs to another host or session.
    NotYours,
    /// There is no such resource.
    NoResource,
    /// The command names an earlier generation.
    OldGeneration,
    /// It has been changed since the sender's query.
    Superseded,
    /// The grant does not exist, or was renewed since.
    NoSuchGrant,
    /// The registry has seen a later process of the host, or a later session of this process.
    OldProcess,
    /// There is no such member, or it has no data directory.
    NoKeeper,
    /// It was decided in another term than that of its entry.
    OldTerm,
    /// A bound of the registry is reached.
    Full,
    /// The registry has a version that the process does not understand.
    Version(u16),
    /// The resource has a party, a detached grant, or an evicted session that may not have been notified.
    InUse,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSession => f.write_str("the session has ended"),
            Self::NoParty => f.write_str("the session has not joined the resource"),
            Self::NotYours => f.write_str("it belongs to another host or session"),
            Self::NoResource => f.write_str("there is no such resource"),
            Self::OldGeneration => f.write_str("the resource is in another generation"),
            Self::Superseded => f.write_str("it was changed since the query"),
            Self::NoSuchGrant => f.write_str("there is no such grant"),
            Self::OldProcess => f.write_str(
                "a later process of this host has had a session: another agent runs with a copy of this data \
                 directory, or this is an old copy of it",
            ),
            Self::NoKeeper => f.write_str("only a member with a data directory can vote"),
            Self::OldTerm => f.write_str("it was decided in an earlier term"),
            Self::Full => f.write_str("the registry is full: it has reached one of its limits"),
            Self::InUse => f.write_str("the resource is in use"),
            Self::Version(version) => {
                write!(
                    f,
                    "the cluster's registry has version {version}, which this program does not understand: upgrade it"
                )
            }
        }
    }
}
