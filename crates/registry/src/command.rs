//! What may be written into the log, and what happened when it was applied.

use std::fmt;

use peerlock_types::{MOST_GENERATION, MOST_SLOTS, PeerId};
use serde::{Deserialize, Serialize};

use crate::{Label, SessionId, Ttl, Versions, VoterId};

/// At most this many addresses are kept of one member.
pub const MOST_ADDRESSES: usize = 16;
/// At most this many sessions are named by one command or word.
pub const MOST_NAMED: usize = 32_768;
/// At most this many resources are taken over by one command: their names fit into a letter.
pub const MOST_TAKEN: usize = 1024;
/// At most this many hosts vote, if somebody chooses them.
pub const MAX_VOTERS: usize = 7;
/// Terms, indices and generations beyond this are not ours: nothing may overflow by counting on.
pub const MOST_NUMBER: u64 = 1 << 48;
/// Fencing numbers are below this, as long as generations are below theirs.
pub const MOST_FENCING: u64 = 1 << 62;

/// What a host says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Info {
    /// The host's name.
    pub name: Label,
    /// Where it listens.
    pub addresses: Vec<Label>,
    /// What its process understands.
    pub versions: Versions,
    /// Whether it has a data folder: only then can it become a voter, and only then is it remembered after its last
    /// session.
    pub keeps: bool,
}

/// Which request of a host for a session it is: a later one is greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Incarnation {
    /// The number of the process: higher than that of every earlier process of its host.
    pub process: u64,
    /// For how many sessions this process has asked before.
    pub opening: u64,
}

/// One change of the register.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// A process begins. Answered by [`Outcome::Opened`]; retransmitted with the same nonce it is the same session.
    Open {
        /// The host that the process runs on.
        host: PeerId,
        /// Drawn anew for each session.
        nonce: u64,
        /// Refused if the register knows a later one of the host, so that a late copy opens no session.
        incarnation: Incarnation,
        /// How long the session stands after a renewal was sent.
        ttl: Ttl,
        /// What is to be known of the host.
        info: Info,
        /// The voter whose file it has.
        voter: Option<VoterId>,
        /// A session of the same host that is over: its process is known to be gone, or has latched its stop. With it
        /// end the sessions that earlier processes have opened in its place and have not written down.
        replaces: Option<SessionId>,
        /// The resources of which clients of that session are still inside, for whom this one answers: it is a party of
        /// them from this entry on, and each has a new generation in which it is asked.
        takes: Vec<Label>,
    },
    /// A process ends its own session: it uses nothing any more.
    Leave {
        /// The session that ends.
        session: SessionId,
    },
    /// The leader has counted these sessions out. Has effect only in an entry of that term: see [`crate::leases`].
    End {
        /// The sessions whose time is over.
        sessions: Vec<SessionId>,
        /// The term in which this was decided.
        term: u64,
    },
    /// A session takes part in a resource, which is founded if it is not there. Answered by [`Outcome::Joined`].
    Join {
        /// The session that becomes a party.
        session: SessionId,
        /// The name of the resource.
        resource: Label,
        /// How many slots it is to have if it is founded by this.
        slots: u32,
    },
    /// A resource gets another number of slots, and with it a new generation.
    Resize {
        /// The name of the resource.
        resource: Label,
        /// The new number; nothing happens if the resource has as many.
        slots: u32,
        /// The generation that the asker has looked at. Void if the number has changed in a later one, so that a late
        /// copy does not undo a newer change.
        generation: u64,
    },
    /// The numbers of this generation run out: the next one.
    Renumber {
        /// The name of the resource.
        resource: Label,
        /// Void if it is not this generation any more.
        generation: u64,
    },
    /// The coordinator has counted. Everybody else who had joined before this generation is no party any more, and the
    /// coordinator is not told of it any more.
    Close {
        /// The coordinator's.
        session: SessionId,
        /// The name of the resource.
        resource: Label,
        /// Void if it is not this generation any more.
        generation: u64,
        /// The parties that have anything of the resource.
        remaining: Vec<SessionId>,
    },
    /// A grant that outlives its session has this end now, counted from here. Before its client is told, and for every
    /// renewal; renewed by any session of the host that has given it.
    Detach {
        /// Who grants or renews it.
        session: SessionId,
        /// The name of the resource.
        resource: Label,
        /// The slot that was granted.
        slot: u32,
        /// The grant, by its fencing number.
        fencing: u64,
        /// Until then from now. A renewal does not make it shorter than it was.
        ttl: Ttl,
        /// What a later process of the host is to find with it.
        note: Label,
    },
    /// A detached grant is over, or was not given after all. By any session of the host that has given it.
    DropDetached {
        /// Who gives it back.
        session: SessionId,
        /// The name of the resource.
        resource: Label,
        /// The grant, by its fencing number.
        fencing: u64,
    },
    /// Evicts a party by force, with every detached grant of its session, and opens a generation. Its clients may still
    /// use their slots: only the fencing numbers protect from them.
    Expel {
        /// The name of the resource.
        resource: Label,
        /// The session to evict.
        session: SessionId,
        /// The generation in which it became a party, as the asker has seen it ([`Party::since`](crate::Party)). The
        /// two name one participation: a late copy does not evict the same session after it has joined again.
        since: u64,
    },
    /// Ends one detached grant at once, on behalf of an administrator: its host does not answer. No party is affected.
    TakeBack {
        /// The name of the resource.
        resource: Label,
        /// The grant, by its fencing number.
        fencing: u64,
        /// The session that gave it or renewed it last, as the asker has seen it. Void if a later session of the host
        /// has renewed the grant since.
        session: SessionId,
    },
    /// The leader has counted a detached grant out.
    ExpireDetached {
        /// The name of the resource.
        resource: Label,
        /// The grant, by its fencing number.
        fencing: u64,
        /// Void if it was renewed since.
        stretch: u64,
    },
    /// These hosts shall vote, whatever the register would choose itself; it chooses again with `None`. Each one has a
    /// seat as soon as it has a session and has caught up; until all have, nobody loses one.
    SetVoters {
        /// The hosts.
        hosts: Option<Vec<PeerId>>,
        /// How many choices there had been when the asker looked. Void if there is another one since, so that a late
        /// copy does not undo a newer choice.
        after: u64,
    },
    /// The leader has applied this change of voters. Who has written this entry down has written with it that the
    /// change is committed: once it is applied, a majority of the voters will never count with those before.
    Settle {
        /// Void if it is not the last change any more.
        change: u64,
    },
    /// Everybody understands this version: from here on the log is of it.
    Raise {
        /// The next one.
        version: u16,
    },
    /// A session takes part in a resource no more: it has thrown away what it had, since nobody there has used it for a
    /// while. Opens a generation for those that are left.
    Quit {
        /// The session that is a party no more.
        session: SessionId,
        /// The name of the resource.
        resource: Label,
        /// Void if it is not this generation any more: it may have joined again since.
        generation: u64,
    },
    /// A resource is forgotten: its name, its slots, everything but that whatever is founded later begins above its
    /// generations. Refused as long as anybody takes part in it, or may be inside.
    Remove {
        /// The name of the resource.
        resource: Label,
        /// Void if it is not this generation any more: it was used since, or is another one of the same name.
        generation: u64,
    },
    /// The quarantine of a recovery is over, as the leader has counted: see [`crate::State::quarantine`].
    LiftQuarantine,
}

impl Command {
    /// The session on whose behalf this is asked; none for what is asked of the whole cluster.
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

    /// Whether only a leader decides this, from what it has counted itself.
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

    /// Whether it is within its bounds, or what is not.
    pub fn check(&self) -> Result<(), &'static str> {
        let within = |good, why| if good { Ok(()) } else { Err(why) };
        match self {
            Self::Open { info, takes, .. } => within(
                info.addresses.len() <= MOST_ADDRESSES && takes.len() <= MOST_TAKEN,
                "too many addresses or names",
            ),
            Self::Join { slots, .. } => within((1..=MOST_SLOTS).contains(slots), "a number of slots that cannot be"),
            Self::Resize { slots, generation, .. } => within(
                (1..=MOST_SLOTS).contains(slots) && *generation < MOST_GENERATION,
                "a number of slots or a generation that cannot be",
            ),
            Self::End { sessions, term } => {
                within(sessions.len() <= MOST_NAMED && *term < MOST_NUMBER, "too many sessions or terms")
            }
            Self::Close { remaining, generation, .. } => within(
                remaining.len() <= MOST_NAMED && *generation < MOST_GENERATION,
                "too many sessions or generations",
            ),
            Self::Renumber { generation, .. } | Self::Quit { generation, .. } | Self::Remove { generation, .. } => {
                within(*generation < MOST_GENERATION, "too many generations")
            }
            Self::SetVoters { hosts, after } => {
                let most = hosts.as_ref().is_none_or(|hosts| (1..=MAX_VOTERS).contains(&hosts.len()));
                within(most && *after < MOST_NUMBER, "a number of voters or choices that cannot be")
            }
            Self::Expel { since, .. } => within(*since < MOST_GENERATION, "too many generations"),
            Self::Detach { slot, fencing, .. } => {
                within(*slot < MOST_SLOTS && *fencing < MOST_FENCING, "a grant that cannot be")
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
    /// The name of the resource that has it.
    pub resource: Label,
    /// The number of the generation, one more than the one before.
    pub generation: u64,
    /// Who is to fence, count and go on; nobody if no party is left.
    pub coordinator: Option<SessionId>,
}

/// What happened when a command was applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The session is open. It gives no time by itself: only a yes to a renewal does.
    Opened {
        /// The new session's number.
        session: SessionId,
    },
    /// Sessions are over; those that were already are not named.
    Ended {
        /// Those that this command has ended.
        sessions: Vec<SessionId>,
    },
    /// The session is a party of the resource, which is as follows.
    Joined {
        /// Everything older is void for the joiner.
        generation: u64,
        /// Who answers for it, and where.
        coordinator: (SessionId, PeerId),
        /// Whether the join itself has opened this generation: then the joiner coordinates it, and is told so.
        opened: bool,
        /// How many slots it has, whatever the joiner thought.
        slots: u32,
    },
    /// A generation was opened.
    Advanced(Opening),
    /// It is so now, or was so before.
    Done,
    /// Nothing has changed.
    Refused(Refusal),
}

/// Why nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// The session is over, or there never was one.
    NoSession,
    /// The session is not a party of the resource.
    NoParty,
    /// It is another's.
    NotYours,
    /// Nobody has founded such a resource.
    NoResource,
    /// The generation it speaks of has passed.
    OldGeneration,
    /// What it is to change has been changed since the asker looked at it.
    Superseded,
    /// The grant was renewed since, or is not there.
    NoSuchGrant,
    /// The register knows a later process of the host, or a later session of this process.
    OldProcess,
    /// There is no such member, or it has no data folder.
    NoKeeper,
    /// It was decided in another term than that of its entry.
    OldTerm,
    /// There is no more room for such things.
    Full,
    /// The register is of another version than the process understands.
    Version(u16),
    /// Somebody takes part in the resource, has a detached grant of it, or was forced out of it and may not know yet.
    InUse,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSession => f.write_str("the session is over"),
            Self::NoParty => f.write_str("the session has not joined the resource"),
            Self::NotYours => f.write_str("it belongs to another host or session"),
            Self::NoResource => f.write_str("there is no such resource"),
            Self::OldGeneration => f.write_str("the resource is in another generation"),
            Self::Superseded => f.write_str("it has been changed since it was looked at"),
            Self::NoSuchGrant => f.write_str("there is no such grant"),
            Self::OldProcess => f.write_str(
                "a later process of this host has had a session: another agent runs with a copy of this data \
                 directory, or this is an old copy of it",
            ),
            Self::NoKeeper => f.write_str("only a member with a data folder can vote"),
            Self::OldTerm => f.write_str("it was decided in an earlier term"),
            Self::Full => f.write_str("the register has no more room for it"),
            Self::InUse => f.write_str("somebody takes part in the resource"),
            Self::Version(version) => {
                write!(f, "the cluster's register is of version {version}, which this program does not understand")
            }
        }
    }
}
