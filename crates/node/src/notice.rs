use std::time::Duration;

use peerlock_registry::{ClusterId, Refusal, Versions};
use peerlock_types::{PeerId, roughly};

use crate::wire::Malformed;
use crate::{Error, Missing};

/// Something that is not as it should be, for whoever keeps a log. Nothing depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A frame of no version or format that we know. It was dropped.
    Malformed(Malformed),
    /// A message that made no sense. It was dropped.
    Unexpected(&'static str),
    /// A process of this host has ended before it confirmed all messages.
    Lost {
        /// The host whose process has ended.
        host: PeerId,
        /// Messages that it may never have got.
        messages: usize,
    },
    /// Something that we wanted to say is longer than a message may be. It was not sent.
    TooLong {
        /// Who was to hear it.
        host: PeerId,
        /// How long it would be: about a mebibyte is the most.
        bytes: usize,
    },
    /// Too many hosts were heard of and not met; a message for this one was dropped.
    Unmet(PeerId),
    /// This host has left too many messages unconfirmed: no more fit. All of them were dropped.
    Broken {
        /// The host that does not confirm.
        host: PeerId,
        /// Messages that were dropped.
        messages: usize,
    },
    /// The session of this process is over: it uses nothing any more, and opens another one.
    SessionLost {
        /// How long before that the register had last been heard of.
        since: Duration,
        /// What has become of it, in words.
        why: String,
        /// How many clients that were inside have lost what they had.
        clients: usize,
    },
    /// For a while there has been no session. Said again when somebody else is missing.
    NoMajority {
        /// Whom we have asked and not heard of.
        missing: Vec<Missing>,
        /// For how long there has been no session.
        since: Duration,
    },
    /// A host belongs to another cluster. Nothing that it says is heard. Said once for each that we meet.
    OtherCluster {
        /// The other one.
        host: PeerId,
        /// Where it was reached.
        address: String,
        /// The cluster that we belong to.
        ours: ClusterId,
        /// The cluster that it belongs to.
        theirs: ClusterId,
    },
    /// The program of a host and ours have no version in common. Nothing that it says is heard. Said once for each that
    /// we meet.
    OtherVersion {
        /// The other one.
        host: PeerId,
        /// Where it was reached.
        address: String,
        /// The versions that this program understands.
        ours: Versions,
        /// The versions that its program does.
        theirs: Versions,
    },
    /// The cluster was recovered without us, and is another one since.
    Recovered {
        /// A host that belongs to it.
        host: PeerId,
        /// What it was called, and is here.
        ours: ClusterId,
        /// What it is called now.
        theirs: ClusterId,
    },
    /// The cluster was recovered, and has its majority all the same: there are two of them.
    RecoveredBeside {
        /// A host that belongs to the recovered one.
        host: PeerId,
        /// What the one with the majority is called.
        ours: ClusterId,
        /// What the recovered one is called.
        theirs: ClusterId,
    },
    /// The cluster does not let this process in. It goes on asking.
    Refused(Refusal),
    /// A letter about the register that is not for us, and why. Said once in a row.
    Incident(String),
    /// This process's voter does not go on: a sentence for people.
    Halted(String),
}

impl Notice {
    /// What to write into a log, with hosts by what people call them.
    pub fn in_words(&self, called: impl Fn(PeerId) -> String) -> String {
        match self {
            Self::Malformed(how) => format!("a malformed frame: {how:?}"),
            Self::Unexpected(why) => format!("a strange message: {why}"),
            Self::Lost { host, messages } => {
                format!("{messages} messages were lost: a process of {} has ended", called(*host))
            }
            Self::TooLong { host, bytes } => {
                format!("a message of {bytes} bytes for {} is not sent: that is too long", called(*host))
            }
            Self::Unmet(host) => {
                format!("a message for {}, not met yet, is dropped: too many are waited for", called(*host))
            }
            Self::Broken { host, messages } => {
                format!("the link to {} is broken: {messages} messages were never confirmed", called(*host))
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
                "this cluster was recovered after the loss of its majority, and is {theirs} since, as {} says; this \
                 peer is still of {ours}. It belongs to the new one when it is started again",
                called(*host)
            ),
            Self::RecoveredBeside { host, ours, theirs } => format!(
                "{} belongs to {theirs}, as which this cluster ({ours}) was recovered although it has its majority: \
                 both let clients in. Stop all agents of one of them. Old ones that are started one by one go over to \
                 the recovered one",
                called(*host)
            ),
            Self::Refused(why) => format!("the cluster does not let this process in: {why}"),
            Self::Incident(why) => format!("a letter about the register is dropped: {why}"),
            Self::Halted(why) => format!("the register has halted here: {why}"),
        }
    }
}
