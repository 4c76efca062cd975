use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt;
use core::hash::{Hash, Hasher};

use peerlock_types::{PeerId, Ticket};
use serde::{Deserialize, Serialize};

use super::{Backable, Backed, Part};
use crate::token::Layout;
use crate::{Grant, Observe};

/// The number of a restart, and its initiator.
pub(super) type Epoch = (u64, PeerId);

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(bound(
    serialize = "P: serde::Serialize, P::Message: serde::Serialize",
    deserialize = "P: serde::Deserialize<'de>, P::Message: serde::Deserialize<'de>"
))]
pub enum Message<P: Backable> {
    /// A message of the protocol, sent by the owner of one participant to the owner of another, which discards
    /// duplicates and answers with `Confirm`.
    Say { epoch: Epoch, from: PeerId, to: PeerId, number: u64, message: P::Message },
    /// Answers `Say` when its result is on the way to the backups. The sender removes it from its outbox.
    Confirm { epoch: Epoch, from: PeerId, to: PeerId, number: u64 },
    /// Sent to each backup when the state of `whose` changes. It replaces an older copy.
    State {
        epoch: Epoch,
        whose: PeerId,
        #[serde(with = "shared")]
        state: Arc<Part<P>>,
    },
    /// Sent to all peers by an owner that finds a state missing. The receiver stops and answers with `Found`.
    Search { epoch: Epoch },
    /// Answers `Search` with the grants at the sender.
    Found { epoch: Epoch, grants: Vec<(Ticket, Grant)> },
    /// Sent to all peers when all have answered `Search`. The receiver restarts the protocol: a peer with a grant has
    /// its token, and waiting clients request again.
    Fresh { epoch: Epoch, layout: Layout },
}

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
    pub(super) fn to(&self) -> Option<PeerId> {
        match *self {
            Self::Say { to, .. } | Self::Confirm { to, .. } => Some(to),
            _ => None,
        }
    }

    pub(super) fn epoch(&self) -> Epoch {
        match *self {
            Self::Say { epoch, .. } | Self::Confirm { epoch, .. } | Self::State { epoch, .. } => epoch,
            Self::Search { epoch } | Self::Found { epoch, .. } | Self::Fresh { epoch, .. } => epoch,
        }
    }

    pub(super) fn stamp(&mut self, now: Epoch) {
        if let Self::Say { epoch, .. } | Self::Confirm { epoch, .. } = self {
            *epoch = now;
        }
    }

    /// Any deterministic order will do.
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
        &["message", "backup confirm", "backup state", "backup search", "backup found", "backup restart"];

    fn kind(message: &Message<P>) -> usize {
        match message {
            Message::Say { .. } => 0,
            Message::Confirm { .. } => 1,
            Message::State { .. } => 2,
            Message::Search { .. } => 3,
            Message::Found { .. } => 4,
            Message::Fresh { .. } => 5,
        }
    }

    /// Returns a peer without memory: its backups have the state.
    fn successor(&self, _session: u64, _inside: &[(Ticket, Grant)]) -> Option<Self> {
        Some(self.without_memory())
    }
}

impl<P: Backable<Message: fmt::Display>> fmt::Display for Message<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Say { from, to, message, .. } => write!(f, "{from} to {to}: {message}"),
            Self::Confirm { from, to, number, .. } => write!(f, "{from} confirms {to}'s message {number}"),
            Self::State { whose, state, .. } => write!(f, "state of {whose}, version {}", state.version),
            Self::Search { epoch } => write!(f, "search {}", epoch.0),
            Self::Found { epoch, grants } => write!(f, "found {} grants, search {}", grants.len(), epoch.0),
            Self::Fresh { epoch, layout } => write!(f, "restart {}, tokens {:?}", epoch.0, layout.tokens),
        }
    }
}
