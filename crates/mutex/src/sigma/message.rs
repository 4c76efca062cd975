//! What Sigma's clients and replicas say to each other, and the names that they go by.

use core::fmt;

use peerlock_base::{PeerId, Span, Ticket, Time};

use crate::token::Claim;

/// A request's place in the order that all replicas agree on: Lamport's time stamp first, then the client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Stamp {
    /// *timestamp*: the logical clock of the client when it asked.
    pub time: u64,
    /// *id*: who asks. One request of one client; in the printed form the client, request after request.
    pub client: Claim,
}

/// Which grant of a replica this is: later ones have larger numbers, also over resets. Not in the paper.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Number {
    /// Which life of the replica.
    pub incarnation: u64,
    /// Which grant in that life, counted from 1.
    pub count: u64,
}

/// The four messages of Figures 5 and 6, and one question. `replica` is always the index of the logical replica, since
/// one peer may host several.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Message {
    /// REQUEST: a client wants the replica's vote, or wants it still. From a client to every replica; answered by
    /// `Response`. Sent again as a retry (informed backoff) and, by the one inside, to renew its lease: to a replica
    /// that knows of the request it changes nothing but the lease, to one that has forgotten it is the first.
    Request {
        /// Which replica is asked.
        replica: u32,
        /// Who asks, and where in the order.
        client: Stamp,
        /// When this was sent, by the client's clock.
        sent: Time,
        /// The highest fencing level that the client has heard of.
        fencing: u64,
    },
    /// RESPONSE: whose the vote is now. From a replica to the one who asked or yielded, and to each new owner: then it
    /// is a grant.
    Response {
        /// Which replica answers.
        replica: u32,
        /// Which client of the receiving peer is meant.
        to: Ticket,
        /// *owner*, *timestamp*; `None` is the paper's nil, which only the printed form ever says.
        owner: Option<Stamp>,
        /// Which grant made it the owner.
        number: Number,
        /// For the owner: the end of its lease, by its own clock.
        until: Time,
        /// For a client in the queue: T_w, how long until its turn; `None` if the replica has no idea yet.
        wait: Option<Span>,
        /// The replica's fencing level.
        fencing: u64,
        /// The highest time stamp that the replica has seen.
        clock: u64,
    },
    /// Is the vote still wanted? From a replica to its owner, when the first in its queue came before the owner, or
    /// asks again. Answered by `Yield`, by `Release` if the request is finished, or not at all. Not in the paper.
    Inquire {
        /// Which replica asks.
        replica: u32,
        /// The owner, as the replica knows it.
        owner: Stamp,
        /// Which grant made it the owner.
        number: Number,
        /// Whether somebody with an earlier time stamp waits.
        earlier: bool,
    },
    /// YIELD: RELEASE and REQUEST in one. From an owner who cannot win to the replica, answered by `Response`.
    Yield {
        /// Which replica gets its vote back.
        replica: u32,
        /// Who yields, and where in the order.
        client: Stamp,
        /// Which grant is given back.
        number: Number,
        /// When this was sent, by the client's clock.
        sent: Time,
    },
    /// RELEASE: the request is finished, inside or in the queue. From a client to every replica; never answered.
    Release {
        /// Which replica is told.
        replica: u32,
        /// Whose request is finished.
        client: Stamp,
        /// The highest fencing level that the client has heard of, its own number included.
        fencing: u64,
    },
}

impl Message {
    /// The types' names, in the paper's words.
    pub const KINDS: &'static [&'static str] = &["request", "response", "inquire", "yield", "release"];

    /// The place of this message's type in [`Message::KINDS`].
    pub fn kind(&self) -> usize {
        match self {
            Self::Request { .. } => 0,
            Self::Response { .. } => 1,
            Self::Inquire { .. } => 2,
            Self::Yield { .. } => 3,
            Self::Release { .. } => 4,
        }
    }

    /// Which replica it is to or from.
    pub(crate) fn about(mut self) -> u32 {
        *self.replica_mut()
    }

    /// The same, to be changed.
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

/// The timers of both halves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// A client asks again: to rebuild replicas that have forgotten it, to make up for losses, to renew its lease.
    Wake(Ticket),
    /// A replica looks whether its owner's lease has run out.
    Lease(u32),
}

impl Stamp {
    /// The peer where the client is.
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

peerlock_base::debug_as_display!(Stamp);

/// The grant's number; after a reset also the life: `3`, `1.3`.
impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.incarnation {
            0 => write!(f, "{}", self.count),
            life => write!(f, "{life}.{}", self.count),
        }
    }
}

peerlock_base::debug_as_display!(Number);

/// The paper's words, with the replica as `R` and its index: `REQUEST(R2, 17@4)`.
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

peerlock_base::debug_as_display!(Message);
