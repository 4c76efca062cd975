use std::time::Duration;

use peerlock_registry::{ClusterId, Refusal};
use peerlock_types::{PeerId, roughly};

use crate::Error;
use crate::wire::Malformed;

/// A condition for the log. It has no other effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A frame of an unknown version or format was dropped.
    Malformed(Malformed),
    /// A message that violates the protocol was dropped.
    Unexpected(&'static str),
    /// A process of a host has ended before it acknowledged these messages.
    Lost { host: PeerId, messages: usize },
    /// A message exceeds the maximum size, and was not sent.
    TooLong { host: PeerId, bytes: usize },
    /// A message was dropped: too many hosts are unconnected.
    Unmet(PeerId),
    /// A host has acknowledged too few messages, and all of these were dropped.
    Broken { host: PeerId, messages: usize },
    /// The session has ended: all grants are void, and another session is opened.
    SessionLost {
        /// From the last confirmed renewal to the end.
        since: Duration,
        why: String,
        /// The clients that have lost a slot.
        clients: usize,
    },
    /// Why clients are refused. [`Error::NoMajority`] is repeated at intervals, and when the missing voters change;
    /// [`Error::OtherCluster`] and [`Error::OtherVersion`] are emitted once per host.
    Problem(Error),
    /// The cluster was recovered without this host.
    Recovered {
        /// It belongs to the recovered cluster.
        host: PeerId,
        ours: ClusterId,
        theirs: ClusterId,
    },
    /// The cluster was recovered although it has a quorum: there are two clusters.
    RecoveredBeside {
        /// It belongs to the recovered cluster.
        host: PeerId,
        ours: ClusterId,
        theirs: ClusterId,
    },
    /// The registry refuses a session to this process, which continues to try.
    Refused(Refusal),
    /// A registry message was dropped. Emitted once in a row.
    Incident(String),
    /// The voter of this process has halted.
    Halted(String),
    /// The log of the voter of this process lacks confirmed data, by this evidence.
    Forgotten(String),
}

impl Notice {
    /// Returns the log message. `called` returns the display name of a host.
    pub fn in_words(&self, called: impl Fn(PeerId) -> String) -> String {
        match self {
            Self::Malformed(how) => format!("dropped a malformed frame: {how:?}"),
            Self::Unexpected(why) => format!("dropped an unexpected message: {why}"),
            Self::Lost { host, messages } => {
                format!("{messages} messages to {} were lost: its process has ended", called(*host))
            }
            Self::TooLong { host, bytes } => {
                format!("a message of {bytes} bytes for {} was dropped: it is too long", called(*host))
            }
            Self::Unmet(host) => {
                format!("a message for {} was dropped: there are too many unconnected hosts", called(*host))
            }
            Self::Broken { host, messages } => {
                format!("the link to {} broke: {messages} messages were not acknowledged", called(*host))
            }
            Self::SessionLost { since, why, clients } => format!(
                "{why}, {} after the session was last confirmed: {clients} clients have lost their slots",
                roughly(*since)
            ),
            Self::Problem(error) => error.to_string(),
            Self::Recovered { host, ours, theirs } => format!(
                "{} reports that this cluster was recovered as {theirs} after the loss of its quorum, but this \
                 peer still belongs to {ours}. Restart it to join the recovered cluster",
                called(*host)
            ),
            Self::RecoveredBeside { host, ours, theirs } => format!(
                "{} belongs to {theirs}, as which this cluster ({ours}) was recovered although it has a quorum: both \
                 grant slots. Stop all agents of one of them. Agents of the old one that are restarted join the \
                 recovered one",
                called(*host)
            ),
            Self::Refused(why) => format!("the cluster refuses a session to this process: {why}"),
            Self::Incident(why) => format!("dropped a registry message: {why}"),
            Self::Halted(why) => halted(why),
            Self::Forgotten(why) => forgotten(why),
        }
    }
}

/// Returns the message about a voter that has halted.
pub fn halted(why: &str) -> String {
    format!("the registry has halted on this host: {why}")
}

/// Returns the message about a voter whose log lacks confirmed data.
pub fn forgotten(why: &str) -> String {
    format!(
        "the registry of this cluster has lost confirmed data, so a slot may have two holders: {why}. An old data \
         directory was restored, or a disk has dropped writes that it had confirmed. Stop all agents, and recover from \
         the voter with the newest log (`peerlock recover`)"
    )
}
