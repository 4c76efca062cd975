use alloc::vec::Vec;
use core::fmt;

use peerlock_types::{PeerId, Ticket};

use crate::Grant;

/// A request as other peers know it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Claim {
    pub peer: PeerId,
    pub ticket: Ticket,
}

/// Ordered by arrival. The client's peer keeps it under later coordinators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Arrival {
    pub generation: u64,
    pub number: u64,
}

/// The right to use one slot, as peers pass it on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Token {
    /// From 0 to k − 1.
    pub slot: u32,
    /// Of the next grant. Advances by k, so that no two tokens have the same number.
    pub fencing: u64,
}

impl Token {
    pub fn new(slot: u32) -> Self {
        Self { slot, fencing: u64::from(slot) + 1 }
    }

    /// Advances the fencing number.
    pub fn grant(&mut self, slots: u32) -> Grant {
        let grant = Grant { slot: self.slot, fencing: self.fencing };
        self.fencing += u64::from(slots);
        grant
    }
}

/// The papers start with token i at node i, and node 0 as root: [`Layout::printed`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Layout {
    /// The coordinator, and parent of all other peers in a common tree. Unused if each token has its own tree.
    pub root: PeerId,
    /// k entries.
    pub tokens: Vec<PeerId>,
}

impl Layout {
    /// Returns the layout of Fair-K §3.2, *Initialization*, for peers numbered from 0. Tokens in excess of peers start
    /// again at peer 0.
    ///
    /// # Panics
    ///
    /// If there are no peers or no tokens.
    pub fn printed(peers: u64, slots: u32) -> Self {
        assert!(peers > 0 && slots > 0, "a layout needs at least one peer and one token");
        let tokens = (0..u64::from(slots)).map(|slot| PeerId::new(slot % peers)).collect();
        Self { root: PeerId::new(0), tokens }
    }

    pub fn slots(&self) -> u32 {
        u32::try_from(self.tokens.len()).expect("the number of slots fits into 32 bits")
    }
}

impl fmt::Display for Arrival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.generation, self.number)
    }
}

/// Prints the peer's number as in the papers and, from its second ticket on, the ticket: `4`, `4#2`.
impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ticket.get() {
            0 | 1 => write!(f, "{}", self.peer),
            ticket => write!(f, "{}#{ticket}", self.peer),
        }
    }
}

peerlock_types::debug_as_display!(Claim);
