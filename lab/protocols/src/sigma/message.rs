//! Messages of Sigma.
#![expect(missing_docs, reason = "the text of a type describes its fields")]

use core::fmt;

use peerlock_types::{PeerId, Span, Ticket, Time};

use crate::token::Claim;

/// A request's position in the global order: Lamport's time stamp, then the client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Stamp {
    pub time: u64,
    /// *id*: the request; in print the client.
    pub client: Claim,
}

/// The number of a grant in an incarnation of a replica. Not in the paper.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Number {
    pub incarnation: u64,
    pub count: u64,
}

/// The four messages of Figures 5 and 6, and `Inquire`. `replica` sends or receives the message; `sent` is the send
/// time by the client's clock, `fencing` the highest fencing level known to the sender.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Message {
    /// REQUEST: sent by a client to every replica, as a retry (informed backoff), and by a holder to renew its lease.
    /// The replica grants or queues the request, or renews the lease, and answers with RESPONSE.
    Request { replica: u32, client: Stamp, sent: Time, fencing: u64 },
    /// RESPONSE: answers REQUEST and YIELD, and is a new owner's grant. The client counts the votes: it enters, waits
    /// for T_w, or yields.
    Response {
        replica: u32,
        to: Ticket,
        /// *owner*, *timestamp*; `None` is the paper's nil, only in print.
        owner: Option<Stamp>,
        number: Number,
        until: Time,
        /// T_w, the expected time until its turn, if known.
        wait: Option<Span>,
        fencing: u64,
        /// The highest time stamp known to the replica.
        clock: u64,
    },
    /// Sent by a replica to its owner if the head of its queue is earlier than the owner, or retries. The owner answers
    /// with YIELD if it cannot win, with RELEASE if the request is finished, or not at all. Not in the paper.
    Inquire {
        replica: u32,
        owner: Stamp,
        number: Number,
        /// Whether an earlier request is queued.
        earlier: bool,
    },
    /// YIELD: returns a grant that cannot win. The replica handles it as RELEASE and REQUEST in one, and answers with
    /// RESPONSE.
    Yield { replica: u32, client: Stamp, number: Number, sent: Time },
    /// RELEASE: sent by a finished client to every replica, which grants the vote to the next in its queue.
    Release { replica: u32, client: Stamp, fencing: u64 },
}

impl Message {
    /// The replica that sends or receives it.
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

/// The timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// A client retries or renews its lease.
    Wake(Ticket),
    /// A replica checks its owner's lease.
    Lease(u32),
}

impl Stamp {
    /// The client's peer.
    pub fn peer(self) -> PeerId {
        self.client.peer
    }
}

/// `17@4`.
impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.time, self.client)
    }
}

peerlock_types::debug_as_display!(Stamp);

/// Without incarnation 0: `3`, `1.3`.
impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.incarnation {
            0 => write!(f, "{}", self.count),
            life => write!(f, "{life}.{}", self.count),
        }
    }
}

peerlock_types::debug_as_display!(Number);

/// The paper's notation: `REQUEST(R2, 17@4)`.
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
