use core::fmt;

use peerlock_types::{Key, PeerId};
use serde::{Deserialize, Serialize};

/// A peer and its place on the ring.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Node {
    /// First, so that nodes sort along the ring.
    pub key: Key,
    pub peer: PeerId,
}

impl Node {
    /// Derives the position from the peer's ID.
    pub fn of(peer: PeerId) -> Self {
        Self { key: Key::of_peer(peer), peer }
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}@{}", self.peer, self.key)
    }
}

/// The keys clockwise from `after` (exclusive) to `last` (inclusive); all keys if the two are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KeyRange {
    /// Before the range.
    pub after: Key,
    /// The end of the range.
    pub last: Key,
}

impl KeyRange {
    pub const fn contains(self, key: Key) -> bool {
        key.is_within(self.after, self.last)
    }
}
