//! Messages of Non-E2E.

use alloc::vec::Vec;
use core::fmt;

use peerlock_types::{PeerId, Ticket, Time};
use serde::{Deserialize, Serialize};

use super::NonE2e;
use crate::Observe;
use crate::route_quorum::Waiting;
use crate::sigma::{self, Stamp};

/// The paper's four messages, §V's ping, ack and cleanup, and TAKEN.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Message {
    /// REQUEST: routed by a client to every replica. The first hop with an entry queues it; otherwise the replica votes
    /// or queues it. Also sent as a check to the hop that has queued it.
    Request { replica: u32, client: Stamp, sent: Time, fencing: u64 },
    /// GRANTREQ from a hop that has queued the request; not a vote. `holder` is the last request that passed.
    Queued { replica: u32, to: Ticket, holder: Stamp },
    /// Sigma's messages. GRANTREQ from a replica is its RESPONSE; no hop queues its REQUEST.
    Vote(sigma::Message),
    /// RELEASE: routed by a finished client to every replica. Each hop whose entry names the client deletes it and adds
    /// its queue. Also sent to a replica that has voted for a finished request.
    Release { replica: u32, client: Stamp, fencing: u64, load: Load },
    /// CLEANUP (§V.B): as RELEASE, by a hop that finds the holder's route broken. The holder keeps the vote.
    Cleanup { replica: u32, holder: Stamp, load: Load },
    /// Sent to the keeper of received queues, which deletes its copy.
    Taken { receipt: u64 },
    /// PING (§V.B): sent by a hop with a queue to its neighbours on the holder's route. A silent one counts as dead.
    Ping { replica: u32, holder: Stamp },
    /// ACK (§V.B). If the request is unknown, the hop cleans up the route.
    Ack { replica: u32, holder: Stamp, known: bool },
}

/// Partial queues, moving to the replica.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Load {
    pub queue: Vec<Waiting>,
    /// The peer with a copy, and the receipt.
    pub keeper: Option<(PeerId, u64)>,
}

impl Observe for NonE2e {
    const KINDS: &'static [&'static str] =
        &["request", "grantreq", "inquire", "yield", "release", "cleanup", "taken", "ping", "ack"];

    fn kind(message: &Message) -> usize {
        match message {
            Message::Vote(vote) => sigma::Sigma::kind(vote),
            Message::Request { .. } => 0,
            Message::Queued { .. } => 1,
            Message::Release { .. } => 4,
            Message::Cleanup { .. } => 5,
            Message::Taken { .. } => 6,
            Message::Ping { .. } => 7,
            Message::Ack { .. } => 8,
        }
    }
}

impl Message {
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

    pub(super) fn load_mut(&mut self) -> Option<&mut Load> {
        match self {
            Self::Release { load, .. } | Self::Cleanup { load, .. } => Some(load),
            _ => None,
        }
    }

    pub(super) fn into_load(mut self) -> Load {
        self.load_mut().map(core::mem::take).unwrap_or_default()
    }
}

impl From<sigma::Message> for Message {
    fn from(vote: sigma::Message) -> Self {
        Self::Vote(vote)
    }
}

/// The timers: Sigma's, of pings (§V.B), of unacknowledged queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Timer {
    Vote(sigma::Timer),
    Ping,
    Again,
}

impl From<sigma::Timer> for Timer {
    fn from(timer: sigma::Timer) -> Self {
        Self::Vote(timer)
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.queue.is_empty() {
            true => Ok(()),
            false => write!(f, " + {:?}", self.queue),
        }
    }
}

peerlock_types::debug_as_display!(Load);

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
