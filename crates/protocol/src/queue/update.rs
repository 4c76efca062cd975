use core::fmt;

use crate::token::{Arrival, Claim};

/// Sent to the coordinator by the peer where a request or a token has changed.
///
/// `Free` and `Busy` are numbered within a stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Update {
    /// A client has requested a slot. The coordinator appends the claim to the queue and confirms an arrival number.
    Request(Claim),
    /// A client whose request has an arrival number, from an earlier session of its host, waits again. It keeps its
    /// position: if others have arrived later, the next generation restores the order.
    RequestAgain(Claim, Arrival),
    /// A waiting client has given up.
    Withdraw(Claim),
    /// The peer of this claim has failed, and the sender has removed the claim and all later ones from its successors,
    /// which the coordinator sends again. Only in late binding without recovery.
    Forgotten(Claim),
    /// A client has released `slot`, and its peer has sent the token to `to`. The coordinator removes `to` from the
    /// queue, and sends successors to its peer.
    Left {
        slot: u32,
        /// The stay that has ended.
        stay: u64,
        to: Claim,
        /// Of the successors sent with the token.
        turn: u64,
    },
    /// A client has released `slot`, and its peer, which keeps the token, knows no successor.
    Free { slot: u32, stay: u64, report: u32 },
    /// A client of the same peer uses a token that was reported free, and a successor has arrived. The successor has to
    /// wait, or is bound to another token. Not sent while there is no successor.
    Busy { slot: u32, stay: u64, report: u32 },
}

impl fmt::Display for Update {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(claim) => write!(f, "request({claim})"),
            Self::RequestAgain(claim, arrival) => write!(f, "request({claim} since {arrival})"),
            Self::Withdraw(claim) => write!(f, "withdraw({claim})"),
            Self::Forgotten(claim) => write!(f, "forgotten({claim})"),
            Self::Left { slot, to, .. } => write!(f, "left(token {slot} → {to})"),
            Self::Free { slot, .. } => write!(f, "free(token {slot})"),
            Self::Busy { slot, .. } => write!(f, "busy(token {slot})"),
        }
    }
}
