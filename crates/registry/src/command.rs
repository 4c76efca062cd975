//! The commands of the registry's log, and their outcomes.

use std::fmt;

use peerlock_types::{MOST_GENERATION, MOST_SLOTS, PeerId};
use serde::{Deserialize, Serialize};

use crate::{Label, SessionId, Ttl, Versions, VoterId};

pub const MOST_ADDRESSES: usize = 16;
/// Sessions that one command or event names.
pub const MOST_NAMED: usize = 32_768;
/// Resources that one `Open` takes over: their names fit into one message.
pub const MOST_TAKEN: usize = 1024;
/// Voters that an administrator can choose.
pub const MAX_VOTERS: usize = 7;
/// Bound of decoded terms and indices, so that no increment overflows.
pub const MOST_NUMBER: u64 = 1 << 48;
/// Upper bound of fencing numbers, from the bound on generations.
pub const MOST_FENCING: u64 = 1 << 62;

/// A host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Info {
    /// Its name.
    pub name: Label,
    /// The addresses that it listens on.
    pub addresses: Vec<Label>,
    /// The versions that its process understands.
    pub versions: Versions,
    /// Whether it has a data directory. Only such a host can vote, and it stays a member after its last session.
    pub keeps: bool,
}

/// The order of a host's `Open` requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Incarnation {
    /// The process number, which increases with every start of the host's agent.
    pub process: u64,
    /// Its number among the requests of the process.
    pub opening: u64,
}

/// An entry of the registry's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Opens a session. Answered with [`Outcome::Opened`]; a retransmission returns the same session.
    Open {
        /// The process's host.
        host: PeerId,
        /// Random, drawn for each session.
        nonce: u64,
        /// Refused unless greater than the host's latest, so that a late copy opens no session.
        incarnation: Incarnation,
        /// How long the session is valid after the sending of a renewal.
        ttl: Ttl,
        /// The description of the host.
        info: Info,
        /// The voter whose file the process has.
        voter: Option<VoterId>,
        /// An ended session of the host. Sessions that earlier processes opened to replace it, and never stored, end
        /// with it.
        replaces: Option<SessionId>,
        /// Resources in which clients of the replaced session may hold slots. The new session becomes a party of each,
        /// in a new generation.
        takes: Vec<Label>,
    },
    /// Ends a session. Sent by its own process.
    Leave {
        /// The session.
        session: SessionId,
    },
    /// Ends sessions that have expired. Has an effect only in an entry of `term`: see [`crate::leases`].
    End {
        /// The sessions.
        sessions: Vec<SessionId>,
        /// The term of the decision.
        term: u64,
    },
    /// Makes a session a party of a resource, which is created if necessary. Answered with [`Outcome::Joined`].
    Join {
        /// The new party.
        session: SessionId,
        /// The resource.
        resource: Label,
        /// The number of slots, if this creates the resource.
        slots: u32,
    },
    /// Changes the number of slots, which opens a generation.
    Resize {
        /// The resource.
        resource: Label,
        /// The new number.
        slots: u32,
        /// The last generation seen. Refused if the number has changed since.
        generation: u64,
    },
    /// Opens the next generation because this one runs out of fencing numbers.
    Renumber {
        /// The resource.
        resource: Label,
        /// Refused unless current.
        generation: u64,
    },
    /// Reports a complete census. Removes parties that joined before this generation and are not in `remaining`.
    Close {
        /// The coordinator's session.
        session: SessionId,
        /// The resource.
        resource: Label,
        /// Refused unless current.
        generation: u64,
        /// The parties that reported a token or a waiter.
        remaining: Vec<SessionId>,
    },
    /// Records a detached grant, or renews it: its time counts from this entry. Any session of the host may renew it.
    Detach {
        /// The session that grants or renews.
        session: SessionId,
        /// The resource.
        resource: Label,
        /// The slot.
        slot: u32,
        /// Identifies the grant.
        fencing: u64,
        /// Counted from this entry. A renewal never shortens it.
        ttl: Ttl,
        /// Opaque text for later processes of the host.
        note: Label,
    },
    /// Removes a detached grant that was released, or not given after all. Sent by a session of its host.
    DropDetached {
        /// The sending session.
        session: SessionId,
        /// The resource.
        resource: Label,
        /// Identifies the grant.
        fencing: u64,
    },
    /// Evicts a party with all detached grants of its session, and opens a generation. Only fencing numbers protect
    /// against its clients.
    Expel {
        /// The resource.
        resource: Label,
        /// The session to evict.
        session: SessionId,
        /// Its [`Party::since`](crate::Party), so that a late copy does not evict a session that has joined again.
        since: u64,
    },
    /// Revokes a detached grant whose host does not answer. Opens no generation.
    TakeBack {
        /// The resource.
        resource: Label,
        /// Identifies the grant.
        fencing: u64,
        /// The session that last renewed it, as seen. Refused if another one has since.
        session: SessionId,
    },
    /// Ends an expired detached grant.
    ExpireDetached {
        /// The resource.
        resource: Label,
        /// Identifies the grant.
        fencing: u64,
        /// The number of its renewals, as seen by the leader.
        stretch: u64,
    },
    /// Sets the hosts that vote; with `None` the registry chooses. No voter is removed until all of them have caught
    /// up.
    SetVoters {
        /// The hosts.
        hosts: Option<Vec<PeerId>>,
        /// The number of choices and removals seen. Refused if there was another since.
        after: u64,
    },
    /// Follows a change of voters. Once this is committed, a majority of the voters has stored that the change is, and
    /// never counts with the former voters again.
    Settle {
        /// The number of the change. Refused unless the last.
        change: u64,
    },
    /// Increases the registry's version, when every voter and session understands the next.
    Raise {
        /// The next version.
        version: u16,
    },
    /// Removes a party that has discarded its state of the resource. Opens a generation.
    Quit {
        /// The session to remove.
        session: SessionId,
        /// The resource.
        resource: Label,
        /// Refused unless current, since the session may have joined again.
        generation: u64,
    },
    /// Deletes an unused resource. Later resources start with a higher generation.
    Remove {
        /// The resource.
        resource: Label,
        /// Refused unless current.
        generation: u64,
    },
    /// Ends the quarantine after a recovery: see [`crate::State::quarantine`].
    LiftQuarantine,
    /// Removes a member that will not return.
    Forget {
        /// The host.
        host: PeerId,
        /// The number of choices and removals seen. Refused if there was another since.
        after: u64,
    },
}

impl Command {
    /// Returns the session that sends this command, if any.
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
            | Self::Forget { .. }
            | Self::End { .. }
            | Self::ExpireDetached { .. }
            | Self::Settle { .. }
            | Self::Raise { .. }
            | Self::Remove { .. }
            | Self::LiftQuarantine => None,
        }
    }

    /// Returns whether only a leader proposes this.
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

    /// Checks the bounds. The error names what is out of bounds.
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
            Self::Forget { after, .. } => within(*after < MOST_NUMBER, "number of choices out of range"),
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
    /// The resource.
    pub resource: Label,
    /// The generation.
    pub generation: u64,
    /// The session that takes the census and coordinates; `None` without parties.
    pub coordinator: Option<SessionId>,
}

/// The result of applying a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The session is open, and usable once a renewal was confirmed.
    Opened {
        /// The new session.
        session: SessionId,
    },
    /// Sessions have ended.
    Ended {
        /// Without those that had ended before.
        sessions: Vec<SessionId>,
    },
    /// The session is a party.
    Joined {
        /// The current generation.
        generation: u64,
        /// The coordinator's session and host.
        coordinator: (SessionId, PeerId),
        /// Whether this join has opened the generation, which the session then coordinates.
        opened: bool,
        /// The number of slots.
        slots: u32,
    },
    /// A generation was opened.
    Advanced(Opening),
    /// Applied, now or earlier.
    Done,
    /// Nothing has changed.
    Refused(Refusal),
}

/// Why a command has changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// The session has ended or never existed.
    NoSession,
    /// The session is not a party.
    NoParty,
    /// It belongs to another host or session.
    NotYours,
    /// There is no such resource.
    NoResource,
    /// The generation is not the current one.
    OldGeneration,
    /// Changed since the sender's query.
    Superseded,
    /// The grant does not exist, or was renewed since.
    NoSuchGrant,
    /// The host has a later process, or this one a later session.
    OldProcess,
    /// No such member, or it has no data directory.
    NoKeeper,
    /// Decided in another term than its entry's.
    OldTerm,
    /// A bound of the registry is reached.
    Full,
    /// A version that the process does not understand.
    Version(u16),
    /// It has a party, a detached grant, or an evicted session without notice.
    InUse,
    /// The host has a session, votes, is chosen to vote, or has given a valid detached grant.
    Present,
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
            Self::Present => f.write_str(
                "the host has a session, votes or may vote, or has given a grant that is valid. Stop its agent and \
                 wait until its session has expired, choose other voters, or release the grant",
            ),
            Self::Version(version) => {
                write!(
                    f,
                    "the cluster's registry has version {version}, which this program does not understand: upgrade it"
                )
            }
        }
    }
}
