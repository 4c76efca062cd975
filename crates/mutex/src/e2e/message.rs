//! What E2E's requesters, hops, replicas and owners say to each other.

use alloc::vec::Vec;
use core::fmt;

use peerlock_base::{PeerId, Ticket, Time};

use crate::route_quorum::Waiting;
use crate::sigma::{self, Stamp};

/// Who has the token, as far as somebody knows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Owner {
    /// The fencing number of its turn: of two owners, the later has the larger.
    pub epoch: u64,
    /// Which request the replicas voted for. The token goes on from one owner to the next under the same votes.
    pub elected: Stamp,
    /// Where the token is.
    pub peer: PeerId,
}

/// The queue as one of the first waiters keeps it, in case the owner fails (§V.A).
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Copy {
    /// The sequence number of the latest change.
    pub sequence: u64,
    /// Who waits, in order.
    pub queue: Vec<Waiting>,
}

/// A request that shall get into the owner's queue, or that shall be there already.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Enqueue {
    /// Who wants in.
    pub client: Waiting,
    /// Who says so.
    pub by: By,
    /// Whether the client has asked before: then it is answered in any case.
    pub again: bool,
    /// Whom the sender takes for the owner.
    pub owner: Owner,
    /// How many former owners it has been sent on by.
    pub detours: u8,
}

/// Who sends an ENQUEUE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum By {
    /// A hop on the way to this replica.
    Hop(u32),
    /// This replica itself, when the REQUEST has come all the way.
    Replica(u32),
    /// The client's peer, who has been told that it is in the queue.
    Client,
}

/// The paper's messages, §V's updates and pings, and what our repairs add. `replica` is always the index of the logical
/// replica, since one peer may host several.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Message {
    /// REQUEST: a client wants the replica's vote. Routed to every replica; a hop that knows the owner stops it and
    /// sends ENQUEUE instead.
    Request {
        /// Which replica is asked.
        replica: u32,
        /// Who asks, and when by its own clock.
        client: Waiting,
        /// The highest fencing number that the client has heard of.
        fencing: u64,
    },
    /// What is between clients and replicas alone, as in Sigma: RESPONSE, INQUIRE and YIELD; a REQUEST that no hop may
    /// stop, by a client that asks again or by the owner to renew its votes; and a RELEASE without successor.
    Vote(sigma::Message),
    /// IAMWINNER: the request has the votes. Routed to every replica; every peer on the way remembers the owner.
    IAmWinner {
        /// Which replica is told.
        replica: u32,
        /// Who has won.
        owner: Owner,
    },
    /// ENQUEUE: from a hop or a replica that knows the owner, in place of a REQUEST. Answered by QUEUED, the first
    /// time. Or PING (§V.A): from a waiting client to the owner, and always answered.
    Enqueue(Enqueue),
    /// You wait in my queue. From the owner to a requester; with the queue, as an UPDATE, if that is one of the first
    /// (§V.A). In the paper only those are told anything.
    Queued {
        /// The request that waits.
        to: Stamp,
        /// The sender, as owner: whom to ask from now on.
        owner: Owner,
        /// The whole queue, for one of the first waiters.
        copy: Option<Copy>,
    },
    /// Your request is not in my queue, and there is none any more. Answers an ENQUEUE of a hop, or a PING, at a former
    /// owner; the client asks again. Not in the paper.
    Astray {
        /// The request that is to be made again.
        to: Stamp,
        /// Which owner has finished: so this one, and all before.
        epoch: u64,
    },
    /// I am not the owner any more, and nobody is. Answers an ENQUEUE of a replica at a former owner; the replica takes
    /// it for the RELEASE, and acts on the request as if it had just come. Not in the paper.
    Back {
        /// Which replica the request was for.
        replica: u32,
        /// Whose request it is.
        client: Waiting,
        /// Whose reign is over.
        elected: Stamp,
        /// The highest fencing number that we have heard of.
        fencing: u64,
    },
    /// The request is finished. From a requester to whoever has it in a queue. Not in the paper.
    Withdraw {
        /// The request that is to be taken out of the queue.
        client: Stamp,
    },
    /// TOKEN: you are next. From an owner to the first in its queue, and answered by GOT.
    Token {
        /// The number of its receipt.
        receipt: u64,
        /// Which request it is for.
        to: Stamp,
        /// The new owner.
        owner: Owner,
        /// The end of the lease by the new owner's clock. If that is over the token is nothing but a queue.
        until: Time,
        /// The rest of the queue.
        rest: Copy,
    },
    /// The token is here. Not in the paper.
    Got {
        /// `receipt` of the TOKEN that has come.
        receipt: u64,
    },
    /// RELEASE, and who comes next. Routed to every replica; every peer on the way remembers the new owner. Also tells
    /// a hop or a replica that has sent an ENQUEUE to a former owner. (A RELEASE without successor is Sigma's.)
    Release {
        /// Which replica is told.
        replica: u32,
        /// The new owner, which gets the token from the one that releases.
        owner: Owner,
    },
    /// I was told of your vote for this request, and do not need it: it is finished, and was never elected or is not so
    /// any more. It does not count if the replica has heard from somebody else in the name of that request. Not in the
    /// paper.
    Decline {
        /// The replica whose vote is declined.
        replica: u32,
        /// The request that the vote was for.
        client: Stamp,
        /// The highest fencing number that we have heard of.
        fencing: u64,
    },
    /// The owner's messages take another way than through you (§V.A): from a hop to the one that was next on the old
    /// way, and so on. Or it has finished: from a former owner to a hop that takes it for the owner.
    Forget {
        /// On the way to which replica.
        replica: u32,
        /// Forget owners up to this one.
        epoch: u64,
    },
}

impl Message {
    /// The types' names, in the paper's words.
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

    /// The place of this message's type in [`Message::KINDS`].
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
    /// Which replica it is to or from, or about.
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

/// What a peer may want to be woken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// An owner renews its lease; a replica looks whether one has run out.
    Vote(sigma::Timer),
    /// A waiting client asks again, or asks the owner whether it is still there.
    Wake(Ticket),
    /// The owner tells the first waiters of changes in the queue.
    Update,
    /// A token was sent and nobody has said that it has come.
    Again,
}

impl From<sigma::Timer> for Timer {
    fn from(timer: sigma::Timer) -> Self {
        Self::Vote(timer)
    }
}

/// Who was elected, in which epoch, and where the token is if that is elsewhere: `1@3, epoch 1`, `1@3, epoch 2 at 4`.
impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, epoch {}", self.elected, self.epoch)?;
        if self.peer == self.elected.peer() { Ok(()) } else { write!(f, " at {}", self.peer) }
    }
}

peerlock_base::debug_as_display!(Owner);

impl fmt::Debug for Copy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.queue)
    }
}

/// The paper's words: `REQUEST(R2, 17@4)`, `TOKEN(17@4, epoch 3, [18@5])`.
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

peerlock_base::debug_as_display!(Message);
