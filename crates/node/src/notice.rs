use std::time::Duration;

use peerlock_registry::{ClusterId, Refusal, Versions};
use peerlock_types::{PeerId, roughly};

use crate::wire::Malformed;
use crate::{Error, Missing};

/// A condition for the log. It has no other effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A frame of an unknown version or format was dropped.
    Malformed(Malformed),
    /// A message that violates the protocol was dropped.
    Unexpected(&'static str),
    /// A process of a host has ended before it acknowledged all messages.
    Lost {
        /// The host.
        host: PeerId,
        /// The number of unacknowledged messages.
        messages: usize,
    },
    /// A message exceeds the maximum size, and was not sent.
    TooLong {
        /// The receiver.
        host: PeerId,
        /// The size; the maximum is about 1 MiB.
        bytes: usize,
    },
    /// A message for this host was dropped: too many hosts are unconnected.
    Unmet(PeerId),
    /// A host has acknowledged too few messages, and all were dropped.
    Broken {
        /// The host.
        host: PeerId,
        /// The number of dropped messages.
        messages: usize,
    },
    /// The session has ended: all grants are void, and another session is opened.
    SessionLost {
        /// Time from the last confirmed renewal to the end.
        since: Duration,
        /// The reason.
        why: String,
        /// The number of clients that have lost a slot.
        clients: usize,
    },
    /// There is no session. Repeated at intervals, and when the missing voters change.
    NoMajority {
        /// The voters that have not answered.
        missing: Vec<Missing>,
        /// How long there has been no session.
        since: Duration,
    },
    /// A host belongs to another cluster, and is ignored. Emitted once per host.
    OtherCluster {
        /// The other host.
        host: PeerId,
        /// Its address.
        address: String,
        /// Our cluster.
        ours: ClusterId,
        /// Its cluster.
        theirs: ClusterId,
    },
    /// A host's program supports no version of ours, and is ignored. Emitted once per host.
    OtherVersion {
        /// The other host.
        host: PeerId,
        /// Its address.
        address: String,
        /// The versions that this program supports.
        ours: Versions,
        /// The versions that the other program supports.
        theirs: Versions,
    },
    /// The cluster was recovered without this host, under a new ID.
    Recovered {
        /// A host of the recovered cluster.
        host: PeerId,
        /// The ID before the recovery, which is ours.
        ours: ClusterId,
        /// The ID of the recovered cluster.
        theirs: ClusterId,
    },
    /// The cluster was recovered although it has a majority: there are two clusters.
    RecoveredBeside {
        /// A host of the recovered cluster.
        host: PeerId,
        /// The ID of the cluster with the majority.
        ours: ClusterId,
        /// The ID of the recovered cluster.
        theirs: ClusterId,
    },
    /// The registry refuses a session to this process. It continues to try.
    Refused(Refusal),
    /// A registry message was dropped, for this reason. Emitted once in a row.
    Incident(String),
    /// The voter of this process has halted, for this reason.
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
            Self::NoMajority { missing, since } => {
                Error::NoMajority { missing: missing.clone(), since: *since }.to_string()
            }
            Self::OtherCluster { host, address, ours, theirs } => {
                let (ours, theirs) = (ours.to_string(), theirs.to_string());
                Error::OtherCluster { peer: *host, address: address.clone(), ours, theirs }.to_string()
            }
            Self::OtherVersion { host, address, ours, theirs } => {
                let (ours, theirs) = (ours.to_string(), theirs.to_string());
                Error::OtherVersion { peer: *host, address: address.clone(), ours, theirs }.to_string()
            }
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
