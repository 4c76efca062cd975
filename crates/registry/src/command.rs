//! Commands of the registry's log, and their outcomes.

use std::fmt;

use peerlock_types::{MOST_GENERATION, MOST_SLOTS, PeerId};
use serde::{Deserialize, Serialize};

use crate::{Label, SessionId, Ttl, Versions, VoterId};

pub const MOST_ADDRESSES: usize = 16;
/// Sessions in one command or event.
pub const MOST_NAMED: usize = 32_768;
/// Resources in one `Open`: their names fit into one message.
pub const MOST_TAKEN: usize = 1024;
/// Voters that an administrator can choose.
pub const MAX_VOTERS: usize = 7;
/// Bound of decoded terms and indices, so that no increment overflows.
pub const MOST_NUMBER: u64 = 1 << 48;
/// Follows from the bound on generations.
pub const MOST_FENCING: u64 = 1 << 62;

/// The description of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Info {
    pub name: Label,
    pub addresses: Vec<Label>,
    pub versions: Versions,
    /// Has a data directory. Only such a host can vote, and it remains a member after its last session.
    pub keeps: bool,
}

/// The order of a host's `Open` commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Incarnation {
    /// Increases with every start of the host's agent.
    pub process: u64,
    /// Counts the requests of the process.
    pub opening: u64,
}

/// An entry of the registry's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Opens a session. The outcome is [`Outcome::Opened`]; a retransmission returns the same session.
    Open {
        host: PeerId,
        /// Random, for each session.
        nonce: u64,
        /// Refused unless greater than the host's latest, so that a late copy opens no session.
        incarnation: Incarnation,
        /// Validity after the sending of a renewal.
        ttl: Ttl,
        info: Info,
        /// The voter whose file the process has.
        voter: Option<VoterId>,
        /// An earlier session of the host, which ends. Sessions that other processes opened to replace it, and never
        /// stored, end with it.
        replaces: Option<SessionId>,
        /// Resources in which clients of the replaced session may hold slots. The new session becomes a party of each,
        /// in a new generation.
        takes: Vec<Label>,
    },
    /// Ends a session. Sent by its own process.
    Leave { session: SessionId },
    /// Ends expired sessions. Has an effect only in an entry of `term`: see [`crate::leases`].
    End { sessions: Vec<SessionId>, term: u64 },
    /// Makes a session a party. Creates the resource with `slots` if necessary. The outcome is [`Outcome::Joined`].
    Join { session: SessionId, resource: Label, slots: u32 },
    /// Changes the number of slots, which opens a generation. Refused if the number has changed since `generation`.
    Resize { resource: Label, slots: u32, generation: u64 },
    /// Opens the next generation because `generation` runs out of fencing numbers.
    Renumber { resource: Label, generation: u64 },
    /// Reports a complete census. Removes parties that joined before `generation` and are not in `remaining`: those
    /// that reported no token and no waiter. Sent by the coordinator.
    Close { session: SessionId, resource: Label, generation: u64, remaining: Vec<SessionId> },
    /// Records a detached grant, or renews it: `ttl` counts from this entry. Any session of the host may renew it.
    Detach {
        session: SessionId,
        resource: Label,
        slot: u32,
        fencing: u64,
        /// A renewal never shortens it.
        ttl: Ttl,
        /// Opaque text for later processes of the host.
        note: Label,
    },
    /// Removes a detached grant that was released, or not given. Sent by a session of its host.
    DropDetached { session: SessionId, resource: Label, fencing: u64 },
    /// Evicts a party with all detached grants of its session, and opens a generation. Only fencing numbers protect
    /// against its clients. `since` is its [`Party::since`](crate::Party), so that a late copy does not evict a session
    /// that has joined again.
    Expel { resource: Label, session: SessionId, since: u64 },
    /// Revokes a detached grant whose host does not answer. Refused if a session other than `session` has renewed it.
    /// Opens no generation.
    TakeBack { resource: Label, fencing: u64, session: SessionId },
    /// Ends a detached grant that has expired after `stretch` renewals.
    ExpireDetached { resource: Label, fencing: u64, stretch: u64 },
    /// Sets the hosts that vote; with `None` the registry chooses. No voter is removed until all of them have caught
    /// up. Refused unless `after` is the number of choices.
    SetVoters { hosts: Option<Vec<PeerId>>, after: u64 },
    /// Follows a change of voters. Once it is committed, a majority has stored that the change is, and never counts
    /// with the former voters again.
    Settle { change: u64 },
    /// Increases the registry's version, when every voter and session understands the next.
    Raise { version: u16 },
    /// Removes a party that has discarded its state. Opens a generation. Refused in another one than `generation`,
    /// since the session may have joined again.
    Quit { session: SessionId, resource: Label, generation: u64 },
    /// Deletes an unused resource. Later resources start with a higher generation.
    Remove { resource: Label, generation: u64 },
    /// Ends the [quarantine](crate::State::quarantine) after a recovery.
    LiftQuarantine,
}

impl Command {
    /// The session that sends this command.
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

    /// Only a leader proposes it.
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

    /// Checks the bounds.
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

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    pub resource: Label,
    pub generation: u64,
    /// The session that takes the census; `None` without parties.
    pub coordinator: Option<SessionId>,
}

/// The result of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Usable once a renewal is confirmed.
    Opened {
        session: SessionId,
    },
    /// Without sessions that had ended before.
    Ended {
        sessions: Vec<SessionId>,
    },
    /// `opened`: this join has opened the generation, which the session coordinates.
    Joined {
        generation: u64,
        coordinator: (SessionId, PeerId),
        opened: bool,
        slots: u32,
    },
    Advanced(Opening),
    /// Applied, now or earlier.
    Done,
    /// Nothing has changed.
    Refused(Refusal),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    NoSession,
    NoParty,
    NotYours,
    NoResource,
    OldGeneration,
    /// Changed since the sender's query.
    Superseded,
    /// It does not exist, or was renewed since.
    NoSuchGrant,
    /// The host has a later process, or this one a later session.
    OldProcess,
    /// No such member, or it has no data directory.
    NoKeeper,
    /// Decided in another term than its entry's.
    OldTerm,
    Full,
    Version(u16),
    /// It has a party, a detached grant, or an evicted session without notice.
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
