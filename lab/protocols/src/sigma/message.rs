//! Messages between Sigma's clients and replicas.

use core::fmt;

use peerlock_types::{PeerId, Span, Ticket, Time};

use crate::token::Claim;

/// The position of a request in the global order: Lamport's time stamp, then the client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Stamp {
    /// *timestamp*: the client's logical clock at the request.
    pub time: u64,
    /// *id*: the request; in print the client.
    pub client: Claim,
}

/// The number of a grant by a replica: increasing, also over resets. Not in the paper.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Number {
    /// The incarnation of the replica.
    pub incarnation: u64,
    /// Counts the grants of that incarnation from 1.
    pub count: u64,
}

/// The four messages of Figures 5 and 6, and `Inquire`. `replica` is the index of the logical replica, since one peer
/// may host several.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Message {
    /// REQUEST: sent by a client to every replica to request its vote; repeated as a retry (informed backoff), and by a
    /// holder to renew its lease. The replica grants or queues the request, or renews the lease of a known one, and
    /// answers with `Response`.
    Request {
        /// The receiving replica.
        replica: u32,
        /// The request and its position.
        client: Stamp,
        /// Send time, by the client's clock.
        sent: Time,
        /// The highest fencing level known to the client.
        fencing: u64,
    },
    /// RESPONSE: sent by a replica after REQUEST or YIELD, and to each new owner as its grant. The client counts the
    /// votes: it enters, waits for T_w, or yields.
    Response {
        /// The sending replica.
        replica: u32,
        /// The client at the receiving peer.
        to: Ticket,
        /// *owner*, *timestamp*; `None` is the paper's nil, only in print.
        owner: Option<Stamp>,
        /// The number of the owner's grant.
        number: Number,
        /// For the owner: end of its lease, by its own clock.
        until: Time,
        /// For a queued client: T_w, the expected time until its turn, if known.
        wait: Option<Span>,
        /// The replica's fencing level.
        fencing: u64,
        /// The highest time stamp known to the replica.
        clock: u64,
    },
    /// Sent by a replica to its owner if the head of its queue is earlier than the owner, or retries. The owner answers
    /// with `Yield` if it cannot win, with `Release` if the request is finished, or not at all. Not in the paper.
    Inquire {
        /// The sending replica.
        replica: u32,
        /// The owner, as known to the replica.
        owner: Stamp,
        /// The number of its grant.
        number: Number,
        /// Whether an earlier request is queued.
        earlier: bool,
    },
    /// YIELD: sent by an owner that cannot win. The replica handles it as RELEASE and REQUEST in one, and answers with
    /// `Response`.
    Yield {
        /// The receiving replica.
        replica: u32,
        /// The request and its position.
        client: Stamp,
        /// The returned grant.
        number: Number,
        /// Send time, by the client's clock.
        sent: Time,
    },
    /// RELEASE: sent by a client to every replica when its request is finished, granted or not. The replica removes it,
    /// and grants the vote to the next in its queue. No answer.
    Release {
        /// The receiving replica.
        replica: u32,
        /// The finished request.
        client: Stamp,
        /// The highest fencing level known to the client, including its own number.
        fencing: u64,
    },
}

impl Message {
    /// The names of the message types, as in the paper.
    pub const KINDS: &'static [&'static str] = &["request", "response", "inquire", "yield", "release"];

    /// Returns the index of this message's type in [`Message::KINDS`].
    pub fn kind(&self) -> usize {
        match self {
            Self::Request { .. } => 0,
            Self::Response { .. } => 1,
            Self::Inquire { .. } => 2,
            Self::Yield { .. } => 3,
            Self::Release { .. } => 4,
        }
    }

    /// Returns the replica that sends or receives it.
    pub(crate) fn about(mut self) -> u32 {
        *self.replica_mut()
    }

    /// Returns a reference to it.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// A client retries: to restore replicas without memory, to replace lost messages, to renew its lease.
    Wake(Ticket),
    /// A replica checks its owner's lease.
    Lease(u32),
}

impl Stamp {
    /// Returns the client's peer.
    pub fn peer(self) -> PeerId {
        self.client.peer
    }
}

/// Time stamp and client, as in `17@4`.
impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.time, self.client)
    }
}

peerlock_types::debug_as_display!(Stamp);

/// The grant's number, with the incarnation if that is not 0: `3`, `1.3`.
impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.incarnation {
            0 => write!(f, "{}", self.count),
            life => write!(f, "{life}.{}", self.count),
        }
    }
}

peerlock_types::debug_as_display!(Number);

/// The paper's notation, with the replica as `R` and its index: `REQUEST(R2, 17@4)`.
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
