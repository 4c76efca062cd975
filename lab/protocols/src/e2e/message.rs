//! Messages of E2E.

use alloc::vec::Vec;
use core::fmt;

use peerlock_types::{PeerId, Ticket, Time};
use serde::{Deserialize, Serialize};

use super::E2e;
use crate::Observe;
use crate::route_quorum::Waiting;
use crate::sigma::{self, Stamp};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Owner {
    pub epoch: u64,
    /// The request under whose votes the token moves.
    pub elected: Stamp,
    pub peer: PeerId,
}

/// A copy of the queue for one of the first waiters (§V.A).
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Copy {
    pub sequence: u64,
    pub queue: Vec<Waiting>,
}

/// ENQUEUE or PING. `detours` counts the former owners that have forwarded it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Enqueue {
    pub client: Waiting,
    pub by: By,
    /// The client retries: the owner answers even if it has queued the request before.
    pub again: bool,
    pub owner: Owner,
    pub detours: u8,
}

/// The sender of an ENQUEUE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum By {
    /// A hop on the route to this replica.
    Hop(u32),
    Replica(u32),
    /// The client's peer, as PING.
    Client,
}

/// The paper's messages, §V's updates and pings, and ours (QUEUED, ASTRAY, BACK, WITHDRAW, GOT, DECLINE).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Message {
    /// REQUEST: routed by a client to every replica. A hop that knows the owner stops it and sends ENQUEUE; the replica
    /// votes or queues it.
    Request { replica: u32, client: Waiting, fencing: u64 },
    /// Sigma's messages. Its REQUEST, which no hop stops, comes from a client that retries or an owner that renews; its
    /// RELEASE has no successor.
    Vote(sigma::Message),
    /// IAMWINNER: routed by the winner to every replica. Every peer on the route records it, and the replica sends it
    /// the queued requests.
    IAmWinner { replica: u32, owner: Owner },
    /// ENQUEUE: sent to the owner by a hop or replica in place of a REQUEST, and answered with QUEUED the first time.
    /// PING (§V.A): the same, sent by a waiting client and always answered.
    Enqueue(Enqueue),
    /// Sent by the owner to a requester that it has queued. With a copy it is UPDATE (§V.A), sent to the first waiters
    /// at each change.
    Queued { to: Stamp, owner: Owner, copy: Option<Copy> },
    /// Sent by a former owner without successor to answer ENQUEUE or PING: owners up to `epoch` have finished. The
    /// client retries.
    Astray { to: Stamp, epoch: u64 },
    /// Sent by a former owner without successor to answer a replica's ENQUEUE: a RELEASE of the reign, and the request
    /// again.
    Back { replica: u32, client: Waiting, elected: Stamp, fencing: u64 },
    /// Sent by a finished requester to the peer that has queued it.
    Withdraw { client: Stamp },
    /// TOKEN: sent by an owner to its first waiter, which becomes the owner. `until` is the end of the lease by that
    /// peer's clock.
    Token { receipt: u64, to: Stamp, owner: Owner, until: Time, rest: Copy },
    /// Acknowledges a TOKEN.
    Got { receipt: u64 },
    /// RELEASE with the successor: routed by the owner to every replica; every peer on the route records it. Also the
    /// answer of a former owner to an ENQUEUE.
    Release { replica: u32, owner: Owner },
    /// Returns the vote for a request that has finished without being elected. The replica ignores it if another peer
    /// has sent it a message in the name of that request.
    Decline { replica: u32, client: Stamp, fencing: u64 },
    /// Removes records of owners before `epoch` along a former route (§V.A), or at a hop that considers the sender the
    /// owner.
    Forget { replica: u32, epoch: u64 },
}

impl Observe for E2e {
    const KINDS: &'static [&'static str] = &[
        "request",
        "response",
        "inquire",
        "yield",
        "release",
        "iamwinner",
        "enqueue",
        "queued",
        "update",
        "ping",
        "astray",
        "withdraw",
        "token",
        "got",
        "forget",
        "decline",
        "back",
    ];

    fn kind(message: &Message) -> usize {
        match message {
            Message::Vote(vote) => sigma::Sigma::kind(vote),
            Message::Request { .. } => 0,
            Message::Release { .. } => 4,
            Message::IAmWinner { .. } => 5,
            Message::Enqueue(Enqueue { by: By::Client, .. }) => 9,
            Message::Enqueue(_) => 6,
            Message::Queued { copy: None, .. } => 7,
            Message::Queued { copy: Some(_), .. } => 8,
            Message::Astray { .. } => 10,
            Message::Withdraw { .. } => 11,
            Message::Token { .. } => 12,
            Message::Got { .. } => 13,
            Message::Forget { .. } => 14,
            Message::Decline { .. } => 15,
            Message::Back { .. } => 16,
        }
    }
}

impl Message {
    pub(super) fn replica(&self) -> Option<u32> {
        match *self {
            Self::Request { replica, .. }
            | Self::IAmWinner { replica, .. }
            | Self::Enqueue(Enqueue { by: By::Hop(replica) | By::Replica(replica), .. })
            | Self::Back { replica, .. }
            | Self::Release { replica, .. }
            | Self::Decline { replica, .. }
            | Self::Forget { replica, .. } => Some(replica),
            Self::Vote(mut vote) => Some(*vote.replica_mut()),
            Self::Enqueue(_)
            | Self::Queued { .. }
            | Self::Astray { .. }
            | Self::Withdraw { .. }
            | Self::Token { .. }
            | Self::Got { .. } => None,
        }
    }
}

impl From<sigma::Message> for Message {
    fn from(vote: sigma::Message) -> Self {
        Self::Vote(vote)
    }
}

/// The timers: of votes, of a waiting client, of changes to be sent to the first waiters, of an unacknowledged token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Timer {
    Vote(sigma::Timer),
    Wake(Ticket),
    Update,
    Again,
}

impl From<sigma::Timer> for Timer {
    fn from(timer: sigma::Timer) -> Self {
        Self::Vote(timer)
    }
}

/// `1@3, epoch 1`, or with another peer `1@3, epoch 2 at 4`.
impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, epoch {}", self.elected, self.epoch)?;
        if self.peer == self.elected.peer() { Ok(()) } else { write!(f, " at {}", self.peer) }
    }
}

peerlock_types::debug_as_display!(Owner);

impl fmt::Debug for Copy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.queue)
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request { replica, client, .. } => write!(f, "REQUEST(R{replica}, {})", client.client),
            Self::Vote(request @ sigma::Message::Request { .. }) => write!(f, "{request}, again"),
            Self::Vote(vote) => vote.fmt(f),
            Self::IAmWinner { replica, owner } => write!(f, "IAMWINNER(R{replica}, {owner})"),
            Self::Enqueue(Enqueue { client, by: By::Client, .. }) => write!(f, "PING({})", client.client),
            Self::Enqueue(Enqueue { client, again, .. }) => {
                write!(f, "ENQUEUE({}{})", client.client, if *again { ", again" } else { "" })
            }
            Self::Queued { to, owner, copy: None } => write!(f, "QUEUED({to} at {owner})"),
            Self::Queued { to, owner, copy: Some(copy) } => write!(f, "UPDATE({to} at {owner}, {copy:?})"),
            Self::Astray { to, epoch } => write!(f, "ASTRAY({to}, epoch {epoch})"),
            Self::Back { replica, client, .. } => write!(f, "BACK(R{replica}, {})", client.client),
            Self::Withdraw { client } => write!(f, "WITHDRAW({client})"),
            Self::Token { to, owner, rest, .. } => write!(f, "TOKEN({to}, epoch {}, {rest:?})", owner.epoch),
            Self::Got { receipt } => write!(f, "GOT({receipt})"),
            Self::Release { replica, owner } => write!(f, "RELEASE(R{replica}, to {owner})"),
            Self::Decline { replica, client, .. } => write!(f, "DECLINE(R{replica}, {client})"),
            Self::Forget { replica, epoch } => write!(f, "FORGET(R{replica}, epoch {epoch})"),
        }
    }
}

peerlock_types::debug_as_display!(Message);
