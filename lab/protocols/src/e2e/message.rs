//! Messages of E2E.
#![expect(missing_docs, reason = "the text of a type describes its fields")]

use alloc::vec::Vec;
use core::fmt;

use peerlock_types::{PeerId, Ticket, Time};

use super::E2e;
use crate::Observe;
use crate::route_quorum::Waiting;
use crate::sigma::{self, Stamp};

/// An owner of the token.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Owner {
    /// The fencing number of its turn.
    pub epoch: u64,
    /// The request under whose votes the token moves.
    pub elected: Stamp,
    pub peer: PeerId,
}

/// A copy of the queue for one of the first waiters, in case the owner fails (§V.A).
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Copy {
    /// The number of the latest change.
    pub sequence: u64,
    pub queue: Vec<Waiting>,
}

/// ENQUEUE or PING: a request to be queued at the owner, or to be found there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Enqueue {
    pub client: Waiting,
    pub by: By,
    /// Whether the client has retried: the owner then answers in any case.
    pub again: bool,
    /// As known to the sender.
    pub owner: Owner,
    /// The number of former owners that have forwarded it.
    pub detours: u8,
}

/// The sender of an ENQUEUE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum By {
    /// A hop on the route to this replica.
    Hop(u32),
    /// This replica.
    Replica(u32),
    /// The client's peer, as PING.
    Client,
}

/// The paper's messages, §V's updates and pings, and those of our repairs. `replica` is the destination, or the replica
/// that a message is about; `fencing` the highest fencing number known to the sender.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Message {
    /// REQUEST: routed by a client to every replica. A hop that knows the owner stops it and sends ENQUEUE; the replica
    /// votes or queues it, and answers with RESPONSE.
    Request { replica: u32, client: Waiting, fencing: u64 },
    /// Sigma's RESPONSE, INQUIRE and YIELD; its REQUEST, which no hop stops, from a client that retries or an owner that
    /// renews; and its RELEASE, without successor.
    Vote(sigma::Message),
    /// IAMWINNER: routed by the winner to every replica. Every peer on the route records it, and the replica sends it
    /// the requests that it has queued.
    IAmWinner { replica: u32, owner: Owner },
    /// ENQUEUE: sent to the owner by a hop or replica in place of a REQUEST. The owner queues the request and answers
    /// QUEUED the first time. PING (§V.A): the same, sent by a waiting client and always answered.
    Enqueue(Enqueue),
    /// Sent by the owner to a requester that it has queued. With a copy it is UPDATE (§V.A), sent to the first waiters
    /// at each change.
    Queued { to: Stamp, owner: Owner, copy: Option<Copy> },
    /// Sent by a former owner without successor to answer ENQUEUE or PING: owners up to `epoch` have finished. The
    /// client retries. Not in the paper.
    Astray { to: Stamp, epoch: u64 },
    /// Sent by a former owner without successor to answer the ENQUEUE of a replica, which handles it as a RELEASE of
    /// the reign and the request as new. Not in the paper.
    Back { replica: u32, client: Waiting, elected: Stamp, fencing: u64 },
    /// Sent by a finished requester to the peer that has queued it. Not in the paper.
    Withdraw { client: Stamp },
    /// TOKEN: sent by an owner to the first waiter of its queue, which becomes the owner and enters. Answered by GOT.
    Token {
        receipt: u64,
        to: Stamp,
        owner: Owner,
        /// End of the lease, by the new owner's clock.
        until: Time,
        rest: Copy,
    },
    /// Acknowledges a TOKEN. Not in the paper.
    Got { receipt: u64 },
    /// RELEASE with the successor: routed by the releasing owner to every replica; every peer on the route records it.
    /// Also the answer of a former owner to an ENQUEUE.
    Release { replica: u32, owner: Owner },
    /// Sent to a replica that has voted for a request which is finished and not elected. It takes the vote back, unless
    /// another peer has sent it a message in the name of that request. Not in the paper.
    Decline { replica: u32, client: Stamp, fencing: u64 },
    /// Removes records of owners before `epoch` and follows their route. Sent by a hop when the route has changed
    /// (§V.A), and by a former owner to a hop that considers it the owner.
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
    /// The replica that sends or receives the message, or that it is about.
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

/// The timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// An owner renews its lease; a replica checks for an expired one.
    Vote(sigma::Timer),
    /// A waiting client retries, or pings the owner.
    Wake(Ticket),
    /// The owner sends changes of the queue to the first waiters.
    Update,
    /// A token was not acknowledged in time.
    Again,
}

impl From<sigma::Timer> for Timer {
    fn from(timer: sigma::Timer) -> Self {
        Self::Vote(timer)
    }
}

/// The owner's peer if it is another: `1@3, epoch 1`, `1@3, epoch 2 at 4`.
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

/// The paper's notation: `REQUEST(R2, 17@4)`, `TOKEN(17@4, epoch 3, [18@5])`.
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
