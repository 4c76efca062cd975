//! What Non-E2E's requesters, hops and replicas say to each other.

use alloc::vec::Vec;
use core::fmt;

use peerlock_base::{PeerId, Ticket, Time};

use crate::route_quorum::Waiting;
use crate::sigma::{self, Stamp};

/// The paper's four messages, §V's ping, ack and cleanup, and what our repairs add. `replica` is always the index of
/// the logical replica, since one peer may host several.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Message {
    /// REQUEST: a client wants the replica's vote. Routed to every replica; the first hop that has an entry for the
    /// replica keeps it. Answered by GRANTREQ, from that hop ([`Message::Queued`]) or from the replica. Also sent again
    /// to the hop that has kept it, to see whether it still does: if not, that hop passes it on.
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
    /// GRANTREQ from a hop: your request is queued here. From a hop to a requester.
    Queued {
        /// Which replica it is queued for.
        replica: u32,
        /// Which client of the receiving peer is meant.
        to: Ticket,
        /// Whose request went on to the replica, and is taken for the current holder. Hearsay.
        holder: Stamp,
    },
    /// What is between clients and replicas alone, as in Sigma: GRANTREQ from a replica (*Response*), INQUIRE and
    /// YIELD, and a REQUEST that no hop may keep. That one is routed, or sent to the peer where the replica was last
    /// seen.
    Vote(sigma::Message),
    /// RELEASE: the request is finished. Routed to every replica; each hop whose entry names the client deletes it and
    /// adds its queue. Sent straight to a replica that has voted for a request which is finished already.
    Release {
        /// Which replica is told.
        replica: u32,
        /// Whose request is finished.
        client: Stamp,
        /// The highest fencing level that the client has heard of, its own number included.
        fencing: u64,
        /// The queues of the hops so far.
        load: Load,
    },
    /// CLEANUP (§V.B): a peer on the way of the holder's request is gone. Routed to the replica by its neighbour on
    /// that way; each hop whose entry names the holder deletes it and adds its queue. The holder keeps the vote.
    Cleanup {
        /// Which replica is told.
        replica: u32,
        /// Whose way is cleaned up.
        holder: Stamp,
        /// The queues of the hops so far.
        load: Load,
    },
    /// The queues have arrived. To the hop that answers for them, which then forgets its copy. Not in the paper.
    Taken {
        /// Of which of that hop's messages.
        receipt: u64,
    },
    /// PING (§V.B): do you know of this request? From a hop with a queue to the next and the previous peer on the way
    /// of its holder's request.
    Ping {
        /// Which replica the way leads to.
        replica: u32,
        /// Whose way it is.
        holder: Stamp,
    },
    /// ACK (§V.B).
    Ack {
        /// Which replica the way leads to.
        replica: u32,
        /// Whose way it is.
        holder: Stamp,
        /// Whether the request is known here.
        known: bool,
    },
}

/// Partial queues on their way to the replica.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Load {
    /// Who waits, in order.
    pub queue: Vec<Waiting>,
    /// Who keeps a copy until it is told that they have arrived, under which receipt. `None` if there is nothing to
    /// lose.
    pub keeper: Option<(PeerId, u64)>,
}

impl Message {
    /// The types' names, in the paper's words.
    pub const KINDS: &'static [&'static str] =
        &["request", "grantreq", "inquire", "yield", "release", "cleanup", "taken", "ping", "ack"];

    /// The place of this message's type in [`Message::KINDS`].
    pub fn kind(&self) -> usize {
        match self {
            Self::Request { .. } | Self::Vote(sigma::Message::Request { .. }) => 0,
            Self::Queued { .. } | Self::Vote(sigma::Message::Response { .. }) => 1,
            Self::Vote(sigma::Message::Inquire { .. }) => 2,
            Self::Vote(sigma::Message::Yield { .. }) => 3,
            Self::Release { .. } | Self::Vote(sigma::Message::Release { .. }) => 4,
            Self::Cleanup { .. } => 5,
            Self::Taken { .. } => 6,
            Self::Ping { .. } => 7,
            Self::Ack { .. } => 8,
        }
    }

    /// Which replica it is to or from, or about.
    pub(super) fn replica(&self) -> Option<u32> {
        match *self {
            Self::Request { replica, .. }
            | Self::Queued { replica, .. }
            | Self::Release { replica, .. }
            | Self::Cleanup { replica, .. }
            | Self::Ping { replica, .. }
            | Self::Ack { replica, .. } => Some(replica),
            Self::Vote(mut vote) => Some(*vote.replica_mut()),
            Self::Taken { .. } => None,
        }
    }

    /// The queues that travel with it.
    pub(super) fn load_mut(&mut self) -> Option<&mut Load> {
        match self {
            Self::Release { load, .. } | Self::Cleanup { load, .. } => Some(load),
            _ => None,
        }
    }

    /// The same, for whoever does not send it on.
    pub(super) fn into_load(mut self) -> Load {
        self.load_mut().map(core::mem::take).unwrap_or_default()
    }
}

impl From<sigma::Message> for Message {
    fn from(vote: sigma::Message) -> Self {
        Self::Vote(vote)
    }
}

/// The timers of clients, replicas and hops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// A client's or a replica's.
    Vote(sigma::Timer),
    /// A hop looks whether the ways of its holders still stand (§V.B).
    Ping,
    /// A hop sends queues again whose arrival it has not been told of.
    Again,
}

impl From<sigma::Timer> for Timer {
    fn from(timer: sigma::Timer) -> Self {
        Self::Vote(timer)
    }
}

/// `+ [3@5, 4@6]`; nothing if nobody waits.
impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.queue.is_empty() {
            true => Ok(()),
            false => write!(f, " + {:?}", self.queue),
        }
    }
}

peerlock_base::debug_as_display!(Load);

/// The paper's words, with the replica as `R` and its index: `REQUEST(R2, 17@4)`. What goes past the hops, or was only
/// heard on the way, says so.
impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request { replica, client, .. } => write!(f, "REQUEST(R{replica}, {client})"),
            Self::Queued { replica, holder, .. } => write!(f, "GRANTREQ(R{replica}, {holder}, hearsay)"),
            Self::Vote(sigma::Message::Request { replica, client, .. }) => {
                write!(f, "REQUEST(R{replica}, {client}, direct)")
            }
            Self::Vote(sigma::Message::Response { replica, owner: Some(owner), number, .. }) => {
                write!(f, "GRANTREQ(R{replica}, {owner}, grant {number})")
            }
            Self::Vote(vote) => fmt::Display::fmt(vote, f),
            Self::Release { replica, client, load, .. } => write!(f, "RELEASE(R{replica}, {client}{load})"),
            Self::Cleanup { replica, holder, load } => write!(f, "CLEANUP(R{replica}, {holder}{load})"),
            Self::Taken { receipt } => write!(f, "TAKEN({receipt})"),
            Self::Ping { replica, holder } => write!(f, "PING(R{replica}, {holder})"),
            Self::Ack { replica, holder, known: true } => write!(f, "ACK(R{replica}, {holder})"),
            Self::Ack { replica, holder, known: false } => write!(f, "ACK(R{replica}, {holder} unknown)"),
        }
    }
}

peerlock_base::debug_as_display!(Message);
