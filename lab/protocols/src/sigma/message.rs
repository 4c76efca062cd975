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
    /// *id*: one request of one client; in the printed form the client.
    pub client: Claim,
}

/// The number of a grant by a replica: increasing, also over resets. Not in the paper.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Number {
    /// The incarnation of the replica.
    pub incarnation: u64,
    /// The grants in that incarnation, counted from 1.
    pub count: u64,
}

/// The four messages of Figures 5 and 6, and `Inquire`. `replica` is always the index of the logical replica, since one
/// peer may host several.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Message {
    /// REQUEST: sent by a client to every replica for its vote; answered by `Response`. Repeated as a retry (informed
    /// backoff) and by a holder to renew its lease: a replica that knows the request only renews the lease, one that
    /// has forgotten it queues it.
    Request {
        /// The receiving replica.
        replica: u32,
        /// The request and its position.
        client: Stamp,
        /// When it was sent, by the client's clock.
        sent: Time,
        /// The highest fencing level that the client has received.
        fencing: u64,
    },
    /// RESPONSE: the present owner of the vote. Sent by a replica after REQUEST or YIELD, and to each new owner as a
    /// grant.
    Response {
        /// The sending replica.
        replica: u32,
        /// The client at the receiving peer.
        to: Ticket,
        /// *owner*, *timestamp*; `None` is the paper's nil, which only the printed form sends.
        owner: Option<Stamp>,
        /// The number of the owner's grant.
        number: Number,
        /// For the owner: the end of its lease, by its own clock.
        until: Time,
        /// For a queued client: T_w, the expected time until its turn; `None` if unknown.
        wait: Option<Span>,
        /// The replica's fencing level.
        fencing: u64,
        /// The highest time stamp that the replica has received.
        clock: u64,
    },
    /// Sent by a replica to its owner if the first of its queue is earlier than the owner, or retries: is the vote
    /// still needed? Answered by `Yield`, by `Release` if the request is finished, or not at all. Not in the paper.
    Inquire {
        /// The sending replica.
        replica: u32,
        /// The owner, as the replica knows it.
        owner: Stamp,
        /// The number of its grant.
        number: Number,
        /// Whether an earlier request is queued.
        earlier: bool,
    },
    /// YIELD: RELEASE and REQUEST in one. Sent to the replica by an owner that cannot win; answered by `Response`.
    Yield {
        /// The receiving replica.
        replica: u32,
        /// The request and its position.
        client: Stamp,
        /// The grant that is returned.
        number: Number,
        /// When it was sent, by the client's clock.
        sent: Time,
    },
    /// RELEASE: the request is finished, whether granted or queued. Sent by a client to every replica; not answered.
    Release {
        /// The receiving replica.
        replica: u32,
        /// The finished request.
        client: Stamp,
        /// The highest fencing level that the client has received, including its own number.
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

    /// Returns the same, mutable.
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
    /// A client retries: to restore replicas without memory, to make up for losses, to renew its lease.
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

/// The grant's number; after a reset also the life: `3`, `1.3`.
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
