//! What there is to know for a coordinator.

use core::fmt;

use crate::token::Claim;

/// What the coordinator is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Update {
    /// A client asks; answered by `Next` to a holder.
    Request(Claim),
    /// It does not want in any more.
    Withdraw(Claim),
    /// Its peer is gone, and a holder that was told of it has forgotten it and all who were to come after it. Answered
    /// by `Next`, with those.
    Forgotten(Claim),
    /// A token's client has left, and the token with it. Answered by `Next` to where it went.
    Left {
        /// The token, by its slot.
        slot: u32,
        /// Which of its stays is over.
        stay: u64,
        /// Whom it was sent to.
        to: Claim,
        /// The turn of what it took along of who follows.
        turn: u64,
    },
    /// A token's client has left, and nobody was known to come after. Answered by `Next` as soon as somebody asks.
    Free {
        /// The token, by its slot.
        slot: u32,
        /// Which of its stays.
        stay: u64,
        /// Counts `Free` and `Busy` of one stay, which must not be taken in the wrong order.
        report: u32,
    },
    /// A token that was reported free is in use again: who was told as next has to wait, or gets another.
    Busy {
        /// The token, by its slot.
        slot: u32,
        /// Which of its stays.
        stay: u64,
        /// As with `Free`.
        report: u32,
    },
}

impl fmt::Display for Update {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(claim) => write!(f, "request({claim})"),
            Self::Withdraw(claim) => write!(f, "withdraw({claim})"),
            Self::Forgotten(claim) => write!(f, "forgotten({claim})"),
            Self::Left { slot, to, .. } => write!(f, "left(token {slot} → {to})"),
            Self::Free { slot, .. } => write!(f, "free(token {slot})"),
            Self::Busy { slot, .. } => write!(f, "busy(token {slot})"),
        }
    }
}
