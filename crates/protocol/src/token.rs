//! What every protocol with k tokens needs: the tokens, who has them at first, and the requests that wait for them.

use alloc::vec::Vec;
use core::fmt;

use peerlock_types::{PeerId, Ticket};

use crate::Grant;

/// A request as the others know it: a ticket and the peer where it waits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Claim {
    /// The peer where the client waits.
    pub peer: PeerId,
    /// Which of that peer's clients.
    pub ticket: Ticket,
}

/// When a request came to a coordinator: the generation, and its number there. Ordered as they came. Its owner is told,
/// and keeps it for as long as it waits, whoever coordinates by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Arrival {
    /// In which generation it came.
    pub generation: u64,
    /// As which of that generation's.
    pub number: u64,
}

/// One of the k tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Token {
    /// Its number, from 0 to k − 1: also the number of its queue, and of the slot it stands for.
    pub slot: u32,
    /// The fencing number of its next grant. Steps by k, so that no two tokens ever have the same.
    pub fencing: u64,
}

impl Token {
    /// The token of this slot before its first grant.
    pub fn new(slot: u32) -> Self {
        Self { slot, fencing: u64::from(slot) + 1 }
    }

    /// Spends the fencing number on one grant.
    pub fn grant(&mut self, slots: u32) -> Grant {
        let grant = Grant { slot: self.slot, fencing: self.fencing };
        self.fencing += u64::from(slots);
        grant
    }
}

/// Who has what before the first request.
///
/// The papers start with token i at node i and node 0 as root: [`Layout::printed`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Layout {
    /// Where there is one tree for all tokens, its root: the coordinator, and the parent of everybody else. Where each
    /// token has a tree of its own, the root of that is who has the token.
    pub root: PeerId,
    /// For each token the peer that has it. Their number is k.
    pub tokens: Vec<PeerId>,
}

impl Layout {
    /// Fair-K §3.2, *Initialization*, for peers numbered from 0. With more tokens than peers they go round again.
    ///
    /// # Panics
    /// Without peers or without tokens there is nothing to lay out.
    pub fn printed(peers: u64, slots: u32) -> Self {
        assert!(peers > 0 && slots > 0, "a layout needs at least one peer and one token");
        let tokens = (0..u64::from(slots)).map(|slot| PeerId::new(slot % peers)).collect();
        Self { root: PeerId::new(0), tokens }
    }

    /// How many tokens there are: k.
    pub fn slots(&self) -> u32 {
        u32::try_from(self.tokens.len()).expect("slots are counted in 32 bits")
    }
}

impl fmt::Display for Arrival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.generation, self.number)
    }
}

/// The peer's number as the papers write it; from its second ticket on, the ticket's, too: `4`, `4#2`.
impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ticket.get() {
            0 | 1 => write!(f, "{}", self.peer),
            ticket => write!(f, "{}#{ticket}", self.peer),
        }
    }
}

peerlock_types::debug_as_display!(Claim);
