use core::fmt;

use peerlock_base::PeerId;

use crate::wire::Malformed;
use crate::{Charter, Name};

/// Something that is not as it should be, for whoever keeps a log. Nothing depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A frame of no version or format that we know. It was dropped.
    Malformed(Malformed),
    /// A message that made no sense. It was dropped.
    Strange(&'static str),
    /// A process of this host has ended before it confirmed all messages.
    Lost {
        /// The host whose process has ended.
        host: PeerId,
        /// How many messages.
        messages: usize,
    },
    /// Too many messages are kept for members that we have heard of and not met; one for this member was dropped.
    Unmet(PeerId),
    /// This host has left too many messages unconfirmed: no more fit. All of them were dropped.
    Broken {
        /// The host that does not confirm.
        host: PeerId,
        /// How many messages.
        messages: usize,
    },
    /// A resource has two charters. We go on with the one that we knew first.
    FoundedTwice {
        /// The resource that was founded twice.
        name: Name,
        /// The charter that we go on with.
        known: Charter,
        /// The charter that we heard of later.
        other: Charter,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(how) => write!(f, "a malformed frame: {how:?}"),
            Self::Strange(why) => write!(f, "a strange message: {why}"),
            Self::Lost { host, messages } => write!(f, "{messages} messages were lost: a process of {host} has ended"),
            Self::Unmet(member) => write!(f, "a message for {member}, not met yet, is dropped: too many are kept"),
            Self::Broken { host, messages } => {
                write!(f, "the link to {host} is broken: {messages} messages were never confirmed")
            }
            Self::FoundedTwice { name, known, other } => {
                write!(f, "{name} was founded twice, by peers that did not count each other: {known:?} and {other:?}")
            }
        }
    }
}
