//! Messages of Sigma.

use core::fmt;

use peerlock_types::{PeerId, Span, Ticket, Time};
use serde::{Deserialize, Serialize};

use crate::token::Claim;

/// Lamport's time stamp, then the client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Stamp {
    pub time: u64,
    /// *id*: the request; in print the client.
    pub client: Claim,
}

/// The number of a grant in an incarnation of a replica. Not in the paper.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Number {
    pub incarnation: u64,
    pub count: u64,
}

/// The messages of Figures 5 and 6, and `Inquire`. `sent` is the send time by the client's clock, `fencing` the highest
/// fencing level known to the sender.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Message {
    /// REQUEST: sent by a client to every replica, also as a retry (informed backoff) and to renew. The replica grants,
    /// queues or renews, and answers with RESPONSE.
    Request { replica: u32, client: Stamp, sent: Time, fencing: u64 },
    /// RESPONSE: answers REQUEST and YIELD, and is a new owner's grant. The client enters, waits for T_w, or yields.
    Response {
        replica: u32,
        to: Ticket,
        /// *owner*, *timestamp*; `None` is the paper's nil.
        owner: Option<Stamp>,
        number: Number,
        until: Time,
        /// T_w.
        wait: Option<Span>,
        fencing: u64,
        clock: u64,
    },
    /// Sent by a replica to its owner if the head of its queue is earlier than the owner, or retries. The owner answers
    /// with YIELD if it cannot win, with RELEASE if it is finished, or not at all.
    Inquire { replica: u32, owner: Stamp, number: Number, earlier: bool },
    /// YIELD: returns a grant that cannot win. The replica handles it as RELEASE and REQUEST in one.
    Yield { replica: u32, client: Stamp, number: Number, sent: Time },
    /// RELEASE: sent by a finished client to every replica, which grants its vote to the next.
    Release { replica: u32, client: Stamp, fencing: u64 },
}

impl Message {
    pub(crate) fn about(mut self) -> u32 {
        *self.replica_mut()
    }

    pub(crate) fn replica_mut(&mut self) -> &mut u32 {
        match self {
            Self::Request { replica, .. }
            | Self::Response { replica, .. }
            | Self::Inquire { replica, .. }
            | Self::Yield { replica, .. }
            | Self::Release { replica, .. } => replica,
        }
    }
}

/// The timers of clients and replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Timer {
    Wake(Ticket),
    Lease(u32),
}

impl Stamp {
    pub fn peer(self) -> PeerId {
        self.client.peer
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.time, self.client)
    }
}

peerlock_types::debug_as_display!(Stamp);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.incarnation {
            0 => write!(f, "{}", self.count),
            life => write!(f, "{life}.{}", self.count),
        }
    }
}

peerlock_types::debug_as_display!(Number);

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Request { replica, client, .. } => write!(f, "REQUEST(R{replica}, {client})"),
            Self::Response { replica, owner: None, .. } => write!(f, "RESPONSE(R{replica}, nil)"),
            Self::Response { replica, owner: Some(owner), number, .. } => {
                write!(f, "RESPONSE(R{replica}, {owner}, grant {number})")
            }
            Self::Inquire { replica, owner, number, .. } => write!(f, "INQUIRE(R{replica}, {owner}, grant {number})"),
            Self::Yield { replica, client, number, .. } => write!(f, "YIELD(R{replica}, {client}, grant {number})"),
            Self::Release { replica, client, .. } => write!(f, "RELEASE(R{replica}, {client})"),
        }
    }
}

peerlock_types::debug_as_display!(Message);
