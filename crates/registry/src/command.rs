use peerlock_types::{MOST_GENERATION, MOST_SLOTS, PeerId};
use serde::{Deserialize, Serialize};

use crate::{Label, SessionId, Ttl, Versions, VoterId};

pub const MOST_ADDRESSES: usize = 16;
/// Sessions in one command or event.
pub const MOST_NAMED: usize = 32_768;
pub const MOST_TAKEN: usize = 1024;
pub const MAX_VOTERS: usize = 7;
/// Terms and indices are below this, so that no increment overflows.
pub const MOST_NUMBER: u64 = 1 << 48;
/// Runs that may fail in one period.
pub const MOST_ATTEMPTS: u32 = 1000;
pub const MOST_FENCING: u64 = 1 << 62;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Info {
    pub name: Label,
    pub addresses: Vec<Label>,
    pub versions: Versions,
    /// Has a data directory. Only such a host can vote, and remains a member after its last session.
    pub keeps: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Incarnation {
    /// Increases with every start of the agent.
    pub process: u64,
    pub opening: u64,
}

/// The end of a run that takes place once per period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnd {
    pub succeeded: bool,
    /// The period ends after this many failed runs.
    pub attempts: u32,
    /// Unix time in milliseconds, for display.
    pub at: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Opens a session. A retransmission returns the same one.
    Open {
        host: PeerId,
        /// Random, for each session.
        nonce: u64,
        /// Must increase, so that a late copy opens no session.
        incarnation: Incarnation,
        ttl: Ttl,
        info: Info,
        voter: Option<VoterId>,
        /// An earlier session, which ends; with it sessions that other processes opened to replace it, and never
        /// stored.
        replaces: Option<SessionId>,
        /// Resources in which clients of the replaced session may hold slots. The new session becomes a party of each.
        takes: Vec<Label>,
    },
    /// Ends a session. Sent by its process.
    Leave { session: SessionId },
    /// Ends expired sessions. Has an effect only in an entry of `term`: see [`crate::leases`].
    End { sessions: Vec<SessionId>, term: u64 },
    /// Makes a session a party. Creates the resource with `slots` if necessary.
    Join { session: SessionId, resource: Label, slots: u32 },
    /// Changes the number of slots, and opens a generation. Refused if the number has changed since `generation`.
    Resize { resource: Label, slots: u32, generation: u64 },
    /// Opens the next generation because `generation` runs out of fencing numbers.
    Renumber { resource: Label, generation: u64 },
    /// Sent by the coordinator after a census. Removes parties that joined before `generation` and reported no token
    /// and no waiter.
    Close { session: SessionId, resource: Label, generation: u64, remaining: Vec<SessionId> },
    /// Records or renews a detached grant. Any session of the host may renew it. The ttl counts from this entry, and a
    /// renewal never shortens it. The note is opaque. With `run`, the run that held the slot has ended, and the record
    /// lasts until its period ends: see [`RunRecord`](crate::RunRecord).
    Detach { session: SessionId, resource: Label, slot: u32, fencing: u64, ttl: Ttl, note: Label, run: Option<RunEnd> },
    /// Removes a released grant. Sent by a session of its host.
    DropDetached { session: SessionId, resource: Label, fencing: u64 },
    /// Evicts a party with all detached grants of its session. Only fencing numbers protect against its clients.
    /// `since` is [`Party::since`](crate::Party): a late copy does not evict a session that has joined again.
    Evict { resource: Label, session: SessionId, since: u64 },
    /// Revokes a detached grant whose host does not answer. Refused if a session other than `session` has renewed it.
    TakeBack { resource: Label, fencing: u64, session: SessionId },
    /// Ends an expired grant, if it was renewed this often.
    ExpireDetached { resource: Label, fencing: u64, renewals: u64 },
    /// Shortens the rest of a period by the time that has passed, so that a voter that restarts does not count it
    /// again.
    Shorten { resource: Label, fencing: u64, renewals: u64, ttl: Ttl },
    /// Sets the hosts that vote; with `None` the registry chooses. No voter is removed until all chosen ones have
    /// caught up. Refused unless `after` is the number of choices.
    SetVoters { hosts: Option<Vec<PeerId>>, after: u64 },
    /// Follows a change of voters. When it is committed, a majority has stored that the change is, and never counts
    /// with the former voters again.
    Settle { change: u64 },
    /// Increases the version, when every voter and session understands the next one.
    Raise { version: u16 },
    /// Removes a party that has discarded its state. Refused in a later generation, since the session may have joined
    /// again.
    Quit { session: SessionId, resource: Label, generation: u64 },
    /// Deletes an unused resource.
    Remove { resource: Label, generation: u64 },
    /// Ends the [quarantine](crate::State::quarantine).
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
            | Self::Evict { .. }
            | Self::TakeBack { .. }
            | Self::SetVoters { .. }
            | Self::Forget { .. }
            | Self::End { .. }
            | Self::ExpireDetached { .. }
            | Self::Shorten { .. }
            | Self::Settle { .. }
            | Self::Raise { .. }
            | Self::Remove { .. }
            | Self::LiftQuarantine => None,
        }
    }

    pub fn is_leaders(&self) -> bool {
        matches!(
            self,
            Self::End { .. }
                | Self::ExpireDetached { .. }
                | Self::Shorten { .. }
                | Self::Settle { .. }
                | Self::Raise { .. }
                | Self::LiftQuarantine
        )
    }

    pub fn check(&self) -> Result<(), &'static str> {
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
            Self::Evict { since, .. } => within(*since < MOST_GENERATION, "generation out of range"),
            Self::Detach { slot, fencing, run, .. } => {
                let has_attempts = run.is_none_or(|run| (1..=MOST_ATTEMPTS).contains(&run.attempts));
                within(*slot < MOST_SLOTS && *fencing < MOST_FENCING, "slot or fencing number out of range")?;
                within(has_attempts, "number of attempts out of range")
            }
            Self::Leave { .. }
            | Self::DropDetached { .. }
            | Self::TakeBack { .. }
            | Self::ExpireDetached { .. }
            | Self::Shorten { .. }
            | Self::Settle { .. }
            | Self::Raise { .. }
            | Self::LiftQuarantine => Ok(()),
        }
    }
}

pub(crate) fn within(good: bool, why: &'static str) -> Result<(), &'static str> {
    if good { Ok(()) } else { Err(why) }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    pub resource: Label,
    pub generation: u64,
    pub coordinator: Option<SessionId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The session is usable once a renewal is confirmed.
    Opened { session: SessionId },
    /// Sessions have ended, without those that had ended before.
    Ended { sessions: Vec<SessionId> },
    /// `opened`: this join has opened the generation.
    Joined { generation: u64, coordinator: (SessionId, PeerId), opened: bool, slots: u32 },
    /// A generation was opened.
    Advanced(Opening),
    /// Applied, now or earlier.
    Done,
    /// The end of a run is recorded. `holds`: the slot stays taken until the period ends.
    Concluded { holds: bool },
    /// Nothing has changed.
    Refused(Refusal),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    #[error("the session has ended")]
    NoSession,
    #[error("the session has not joined the resource")]
    NoParty,
    #[error("it belongs to another host or session")]
    NotYours,
    #[error("there is no such resource")]
    NoResource,
    #[error("the resource is in another generation")]
    OldGeneration,
    #[error("it was changed since the query")]
    Superseded,
    /// The grant does not exist, or was renewed since.
    #[error("there is no such grant")]
    NoSuchGrant,
    /// The host has a later process, or this one a later session.
    #[error(
        "a later process of this host has had a session: another agent runs with a copy of this data directory, or \
         this is an old copy of it"
    )]
    OldProcess,
    #[error("only a member with a data directory can vote")]
    NoKeeper,
    #[error("it was decided in an earlier term")]
    OldTerm,
    #[error("the registry is full: it has reached one of its limits")]
    Full,
    #[error("the cluster's registry has version {0}, which this program does not understand: upgrade it")]
    Version(u16),
    /// It has a party, a detached grant, or an evicted session without notice.
    #[error("the resource is in use")]
    InUse,
    #[error(
        "the host has a session, votes or may vote, or has given a grant that is valid. Stop its agent and wait until \
         its session has expired, choose other voters, or release the grant"
    )]
    Present,
}
