//! Messages between E2E's requesters, hops, replicas and owners.

use alloc::vec::Vec;
use core::fmt;

use peerlock_types::{PeerId, Ticket, Time};

use crate::route_quorum::Waiting;
use crate::sigma::{self, Stamp};

/// An owner of the token, as known to a peer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Owner {
    /// The fencing number of its turn; later owners have larger ones.
    pub epoch: u64,
    /// The elected request: the token moves from owner to owner under its votes.
    pub elected: Stamp,
    /// The peer that has the token.
    pub peer: PeerId,
}

/// A copy of the queue for one of the first waiters, in case the owner fails (§V.A).
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Copy {
    /// The sequence number of the latest change.
    pub sequence: u64,
    /// The waiters, in order.
    pub queue: Vec<Waiting>,
}

/// The content of ENQUEUE and PING: a request to be queued at the owner, or to be found there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Enqueue {
    /// The requesting client.
    pub client: Waiting,
    /// The role of the sender.
    pub by: By,
    /// Whether the client has retried: the owner then answers even if the request is queued.
    pub again: bool,
    /// The owner, as known to the sender.
    pub owner: Owner,
    /// Number of former owners that have forwarded it.
    pub detours: u8,
}

/// The sender of an ENQUEUE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum By {
    /// A hop on the route to this replica.
    Hop(u32),
    /// This replica, which the REQUEST has reached.
    Replica(u32),
    /// The client's peer, which knows that it is queued.
    Client,
}

/// The paper's messages, §V's updates and pings, and those of our repairs. `replica` is the index of the logical
/// replica, since one peer may host several.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Message {
    /// REQUEST: routed by a client to every replica for its vote. A hop that knows the owner stops it and sends
    /// ENQUEUE; the replica votes or queues it, and answers with RESPONSE.
    Request {
        /// The destination.
        replica: u32,
        /// The client, and the time by its clock.
        client: Waiting,
        /// The highest fencing number known to the client.
        fencing: u64,
    },
    /// Messages between clients and replicas, as in Sigma: RESPONSE, INQUIRE and YIELD; a REQUEST that no hop stops,
    /// sent by a client that retries or by the owner to renew its votes; and a RELEASE without successor.
    Vote(sigma::Message),
    /// IAMWINNER: routed by the winner to every replica. Every peer on the route records the owner, and the replica
    /// sends it the requests that it has queued. No answer.
    IAmWinner {
        /// The destination.
        replica: u32,
        /// The winner.
        owner: Owner,
    },
    /// ENQUEUE: sent to the owner by a hop or replica in place of a REQUEST. The owner queues the request and answers
    /// QUEUED the first time. Also PING (§V.A): sent by a waiting client to the owner, and always answered.
    Enqueue(Enqueue),
    /// Sent by the owner to a requester that it has queued. With a copy of the queue it is UPDATE (§V.A), sent to the
    /// first waiters at each change, which store it. In the paper only those receive one.
    Queued {
        /// The queued request.
        to: Stamp,
        /// The sender, as owner.
        owner: Owner,
        /// The queue, for one of the first waiters.
        copy: Option<Copy>,
    },
    /// Sent by a former owner without successor to answer the ENQUEUE of a hop, or a PING: the request is not queued.
    /// The client retries. Not in the paper.
    Astray {
        /// The request.
        to: Stamp,
        /// The owner that has finished, as have all before it.
        epoch: u64,
    },
    /// Sent by a former owner without successor to answer the ENQUEUE of a replica, which handles it as the RELEASE and
    /// the request as new. Not in the paper.
    Back {
        /// The replica that sent the request.
        replica: u32,
        /// The request.
        client: Waiting,
        /// The reign that has ended.
        elected: Stamp,
        /// The highest fencing number known to the sender.
        fencing: u64,
    },
    /// Sent by a requester to the peer that has queued it, when the request is finished. The receiver removes it from
    /// the queue. Not in the paper.
    Withdraw {
        /// The request to be removed.
        client: Stamp,
    },
    /// TOKEN: sent by an owner to the first waiter of its queue, which becomes the owner and enters. Answered by GOT.
    Token {
        /// The receipt to return.
        receipt: u64,
        /// The receiving request.
        to: Stamp,
        /// The new owner.
        owner: Owner,
        /// End of the lease, by the new owner's clock. After that the token is only a queue.
        until: Time,
        /// The rest of the queue.
        rest: Copy,
    },
    /// Sent by the receiver of a TOKEN. The sender stops retransmitting. Not in the paper.
    Got {
        /// `receipt` of the TOKEN.
        receipt: u64,
    },
    /// RELEASE with the successor: routed by the releasing owner to every replica. Every peer on the route records the
    /// new owner. Also sent to a hop or replica that has sent an ENQUEUE to a former owner. (A RELEASE without
    /// successor is Sigma's.)
    Release {
        /// The destination.
        replica: u32,
        /// The new owner, which receives the token from the sender.
        owner: Owner,
    },
    /// Sent to a replica that has voted for a finished request which is not, or no longer, elected. The replica takes
    /// its vote back, unless another peer has sent it a message in the name of that request. Not in the paper.
    Decline {
        /// The replica.
        replica: u32,
        /// The request.
        client: Stamp,
        /// The highest fencing number known to the sender.
        fencing: u64,
    },
    /// Sent by a hop along an old route when the owner's messages take another one (§V.A), and by a former owner to a
    /// hop that considers it the owner. The receiver removes its record and forwards the message to the next hop of
    /// that route.
    Forget {
        /// The replica of the route.
        replica: u32,
        /// The epoch below which owners are forgotten.
        epoch: u64,
    },
}

impl Message {
    /// The names of the message types, as in the paper.
    pub const KINDS: &'static [&'static str] = &[
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

    /// Returns the index of this message's type in [`Message::KINDS`].
    pub fn kind(&self) -> usize {
        match self {
            Self::Request { .. } | Self::Vote(sigma::Message::Request { .. }) => 0,
            Self::Vote(sigma::Message::Response { .. }) => 1,
            Self::Vote(sigma::Message::Inquire { .. }) => 2,
            Self::Vote(sigma::Message::Yield { .. }) => 3,
            Self::Release { .. } | Self::Vote(sigma::Message::Release { .. }) => 4,
            Self::IAmWinner { .. } => 5,
            Self::Enqueue(Enqueue { by: By::Client, .. }) => 9,
            Self::Enqueue(_) => 6,
            Self::Queued { copy: None, .. } => 7,
            Self::Queued { copy: Some(_), .. } => 8,
            Self::Astray { .. } => 10,
            Self::Withdraw { .. } => 11,
            Self::Token { .. } => 12,
            Self::Got { .. } => 13,
            Self::Forget { .. } => 14,
            Self::Decline { .. } => 15,
            Self::Back { .. } => 16,
        }
    }
}

impl Message {
    /// Returns the replica that sends or receives it, or that it concerns.
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

/// The elected request, the epoch, and the owner's peer if different: `1@3, epoch 1`, `1@3, epoch 2 at 4`.
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
