use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt;
use core::hash::{Hash, Hasher};

use peerlock_base::{PeerId, Ticket};

use super::{Backable, Backed, Part};
use crate::token::Layout;
use crate::{Grant, Observe};

/// Which beginning a message belongs to: how often everything has begun anew, and who began it.
pub(super) type Epoch = (u64, PeerId);

/// What peers say to each other. The first is the protocol's own, and counted as such; all others are the backups'.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(bound(
        serialize = "P: serde::Serialize, P::Message: serde::Serialize",
        deserialize = "P: serde::Deserialize<'de>, P::Message: serde::Deserialize<'de>"
    ))
)]
pub enum Message<P: Backable> {
    /// From one participant to another, sent to whoever owns that one. Answered by `Confirm`; said again, to the next
    /// owner, if that one is gone before it has.
    Say {
        /// Since which beginning.
        epoch: Epoch,
        /// The participant that says it.
        from: PeerId,
        /// The participant that it is for.
        to: PeerId,
        /// As which of all that the one has said to the other.
        number: u64,
        /// The protocol's message.
        message: P::Message,
    },
    /// That a message has come, and so have the backups been told.
    Confirm {
        /// Since which beginning.
        epoch: Epoch,
        /// The participant that has heard it.
        from: PeerId,
        /// The participant that has said it.
        to: PeerId,
        /// The number of the message.
        number: u64,
    },
    /// A participant has changed: to each of its backups.
    State {
        /// Since which beginning.
        epoch: Epoch,
        /// The participant's identifier.
        whose: PeerId,
        /// Its state from now on.
        #[cfg_attr(feature = "serde", serde(with = "shared"))]
        state: Arc<Part<P>>,
    },
    /// Somebody's state is lost: to everybody, who stop and answer with `Found`.
    Search {
        /// The beginning that is to come.
        epoch: Epoch,
    },
    /// Who is inside at a peer; to who has asked.
    Found {
        /// The beginning that is to come.
        epoch: Epoch,
        /// Its clients inside, with their grants.
        inside: Vec<(Ticket, Grant)>,
    },
    /// Everybody has answered: all begin anew, and who waits asks again.
    Anew {
        /// The new beginning.
        epoch: Epoch,
        /// Who has which token: those inside the ones that they have.
        layout: Layout,
    },
}

/// What several have in memory is a copy for each on the wire.
#[cfg(feature = "serde")]
mod shared {
    use alloc::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<T: Serialize, S: Serializer>(thing: &Arc<T>, serializer: S) -> Result<S::Ok, S::Error> {
        T::serialize(thing, serializer)
    }

    pub fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<T>, D::Error> {
        T::deserialize(deserializer).map(Arc::new)
    }
}

impl<P: Backable> Message<P> {
    /// The participant whose owner shall get it, if it is for one.
    pub(super) fn to(&self) -> Option<PeerId> {
        match *self {
            Self::Say { to, .. } | Self::Confirm { to, .. } => Some(to),
            _ => None,
        }
    }

    pub(super) fn epoch(&self) -> Epoch {
        match *self {
            Self::Say { epoch, .. } | Self::Confirm { epoch, .. } | Self::State { epoch, .. } => epoch,
            Self::Search { epoch } | Self::Found { epoch, .. } | Self::Anew { epoch, .. } => epoch,
        }
    }

    /// Says since which beginning it is.
    pub(super) fn stamp(&mut self, now: Epoch) {
        if let Self::Say { epoch, .. } | Self::Confirm { epoch, .. } = self {
            *epoch = now;
        }
    }

    /// In which order messages are: by what they are of, and then by a fingerprint. Any order does, as long as it is
    /// always the same.
    fn key(&self) -> (usize, Epoch, Option<PeerId>, u64) {
        let mut fingerprint = Fnv(0xcbf2_9ce4_8422_2325);
        self.hash(&mut fingerprint);
        (Backed::<P>::kind(self), self.epoch(), self.to(), fingerprint.finish())
    }
}

impl<P: Backable> PartialOrd for Message<P> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<P: Backable> Ord for Message<P> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

/// FNV-1a.
struct Fnv(u64);

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

impl<P: Backable> Observe for Backed<P> {
    const KINDS: &'static [&'static str] =
        &["said", "backup confirm", "backup state", "backup search", "backup found", "backup anew"];

    fn kind(message: &Message<P>) -> usize {
        match message {
            Message::Say { .. } => 0,
            Message::Confirm { .. } => 1,
            Message::State { .. } => 2,
            Message::Search { .. } => 3,
            Message::Found { .. } => 4,
            Message::Anew { .. } => 5,
        }
    }

    /// Another process at the same address knows nothing: whatever it had is with its backups.
    fn successor(&self, _session: u64, _inside: &[(Ticket, Grant)]) -> Option<Self> {
        Some(self.without_memory())
    }
}

impl<P: Backable<Message: fmt::Display>> fmt::Display for Message<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Say { from, to, message, .. } => write!(f, "{from} says to {to}: {message}"),
            Self::Confirm { from, to, number, .. } => write!(f, "{from} has heard {to}'s message {number}"),
            Self::State { whose, state, .. } => write!(f, "state of {whose}, version {}", state.version),
            Self::Search { epoch } => write!(f, "search {}", epoch.0),
            Self::Found { epoch, inside } => write!(f, "found {} inside, of search {}", inside.len(), epoch.0),
            Self::Anew { epoch, layout } => write!(f, "anew {}, tokens {:?}", epoch.0, layout.tokens),
        }
    }
}
