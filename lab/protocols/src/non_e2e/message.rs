//! Messages between Non-E2E's requesters, hops and replicas.

use alloc::vec::Vec;
use core::fmt;

use peerlock_types::{PeerId, Ticket, Time};

use crate::route_quorum::Waiting;
use crate::sigma::{self, Stamp};

/// The paper's four messages, §V's ping, ack and cleanup, and those of our repairs. `replica` is the index of the
/// logical replica, since one peer may host several.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Message {
    /// REQUEST: routed by a client to every replica for its vote. The first hop with an entry for the replica queues it
    /// and answers with GRANTREQ ([`Message::Queued`]); otherwise the replica does. Also sent as a check to the hop
    /// that has queued it, which forwards it if it does not know it.
    Request {
        /// The destination.
        replica: u32,
        /// The request and its position.
        client: Stamp,
        /// Send time, by the client's clock.
        sent: Time,
        /// The highest fencing level known to the client.
        fencing: u64,
    },
    /// GRANTREQ from a hop: sent to a requester whose request it has queued. The client records the place; it is not a
    /// vote.
    Queued {
        /// The replica.
        replica: u32,
        /// The receiving client.
        to: Ticket,
        /// The last request that passed to the replica, presumably its holder. Hearsay.
        holder: Stamp,
    },
    /// Messages between clients and replicas, as in Sigma: GRANTREQ from a replica (*Response*), INQUIRE and YIELD, and
    /// a REQUEST that no hop queues, which is routed, or sent to the last known peer of the replica.
    Vote(sigma::Message),
    /// RELEASE: routed by a client to every replica when its request is finished. Each hop whose entry names the client
    /// deletes it and adds its queue; the replica votes for the next. Sent directly to a replica that has voted for a
    /// finished request.
    Release {
        /// The destination.
        replica: u32,
        /// The finished request.
        client: Stamp,
        /// The highest fencing level known to the client, including its own number.
        fencing: u64,
        /// The queues of the hops passed.
        load: Load,
    },
    /// CLEANUP (§V.B): routed to the replica by a hop that finds the route of the holder's request broken. Each hop
    /// whose entry names the holder deletes it and adds its queue. The holder keeps the vote.
    Cleanup {
        /// The destination.
        replica: u32,
        /// The request of the broken route.
        holder: Stamp,
        /// The queues of the hops passed.
        load: Load,
    },
    /// Sent by a replica or hop that has received queues to the hop responsible for them, which then deletes its copy.
    /// Not in the paper.
    Taken {
        /// The receipt of that hop's message.
        receipt: u64,
    },
    /// PING (§V.B): sent by a hop with a queue to the next and the previous peer on its holder's route. Answered by
    /// ACK; a peer that does not answer counts as dead.
    Ping {
        /// The replica of the route.
        replica: u32,
        /// The request of the route.
        holder: Stamp,
    },
    /// ACK (§V.B): the answer to PING. If the request is unknown, the hop cleans up the route.
    Ack {
        /// The replica of the route.
        replica: u32,
        /// The request of the route.
        holder: Stamp,
        /// Whether the sender knows the request.
        known: bool,
    },
}

/// Partial queues, moving to the replica.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Load {
    /// The waiters, in order.
    pub queue: Vec<Waiting>,
    /// The peer that keeps a copy until the acknowledgement, and the receipt. `None` if there is nothing to lose.
    pub keeper: Option<(PeerId, u64)>,
}

impl Message {
    /// The names of the message types, as in the paper.
    pub const KINDS: &'static [&'static str] =
        &["request", "grantreq", "inquire", "yield", "release", "cleanup", "taken", "ping", "ack"];

    /// Returns the index of this message's type in [`Message::KINDS`].
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

    /// Returns the replica that sends or receives it, or that it concerns.
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

    /// Returns the queues that it carries.
    pub(super) fn load_mut(&mut self) -> Option<&mut Load> {
        match self {
            Self::Release { load, .. } | Self::Cleanup { load, .. } => Some(load),
            _ => None,
        }
    }

    /// Takes the queues from a message that is not forwarded.
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
    /// Those of Sigma.
    Vote(sigma::Timer),
    /// A hop pings the routes of its holders (§V.B).
    Ping,
    /// A hop resends unacknowledged queues.
    Again,
}

impl From<sigma::Timer> for Timer {
    fn from(timer: sigma::Timer) -> Self {
        Self::Vote(timer)
    }
}

/// `+ [3@5, 4@6]`; empty without waiters.
impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.queue.is_empty() {
            true => Ok(()),
            false => write!(f, " + {:?}", self.queue),
        }
    }
}

peerlock_types::debug_as_display!(Load);

/// The paper's notation, with the replica as `R` and its index: `REQUEST(R2, 17@4)`. Marks messages that bypass hops,
/// and hearsay.
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

peerlock_types::debug_as_display!(Message);
