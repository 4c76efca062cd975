//! Updates that peers send to the coordinator.

use core::fmt;

use crate::token::Claim;

/// A change of a request or a token, reported to the coordinator by the peer where it happened.
///
/// `Free` and `Busy` are numbered within a stay, since they may overtake each other where a link is relayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Update {
    /// A client has requested a slot. The coordinator appends it to the queue, confirms an arrival number, and binds it
    /// to a token.
    Request(Claim),
    /// A waiting client has given up. The coordinator removes its claim.
    Withdraw(Claim),
    /// The peer of this claim has failed, and the sender has removed the claim and all later ones from its successors.
    /// The coordinator sends the remaining ones again. Only in late binding without recovery.
    Forgotten(Claim),
    /// A client has released `slot`, and its peer has sent the token to `to`. The coordinator removes `to` from the
    /// queue and sends further successors to the new holder.
    Left {
        /// The slot of the token.
        slot: u32,
        /// The stay that has ended.
        stay: u64,
        /// The new holder.
        to: Claim,
        /// The turn of the successors sent with the token.
        turn: u64,
    },
    /// A client has released `slot`, and its peer knows no successor: the token stays there. The coordinator sends a
    /// successor as soon as there is a waiter.
    Free {
        /// The token's slot.
        slot: u32,
        /// The present stay.
        stay: u64,
        /// The number of the report in this stay.
        report: u32,
    },
    /// A client of the same peer uses a token that was reported free. A successor sent meanwhile has to wait, or is
    /// bound to another token.
    Busy {
        /// The token's slot.
        slot: u32,
        /// The present stay.
        stay: u64,
        /// The number of the report in this stay.
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
