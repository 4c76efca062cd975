//! Messages between clients and replicas of the coordinator protocol.

use alloc::vec::Vec;
use core::fmt;

use peerlock_types::{Span, Ticket, Time};

use crate::token::Claim;

/// A request's place in the queue: a number from the coordinator. In print, the client's time stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Place {
    /// The epoch of the coordinator that gave the number. Places of earlier epochs come first.
    pub epoch: u64,
    /// Counts from 1 in each epoch; in print, the time stamp.
    pub count: u64,
}

/// A waiter. Entries are ordered by place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Entry {
    /// Its place in the queue.
    pub place: Place,
    /// The waiting client and its peer.
    pub client: Claim,
}

/// *Owner*: the client that holds the resource or has been granted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Holder {
    /// The owner and its peer.
    pub client: Claim,
    /// The fencing number of the grant. See [the numbers](super#numbers).
    pub number: u64,
}

/// A replica's memory, as sent to others.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Memory {
    /// The highest epoch that it has voted for or followed.
    pub found: u64,
    /// The highest grant number known.
    pub number: u64,
    /// The queue, as known to it.
    pub queue: Vec<Entry>,
}

/// The purpose of an `Update`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Telling {
    /// To a candidate: a promise to follow it for a term.
    Vote,
    /// To a candidate: the sender has seen a higher epoch.
    Refusal,
    /// To a replica without memory: the coordinator's memory.
    Recovery,
    /// To a replica without memory: the sender has none, either.
    Blank,
}

/// The messages of Figure 1, and a receipt. `to` is the receiving replica, `from` the sending one: a peer may host
/// several, and on an overlay they have no other identity.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Message {
    /// REQUEST: sent by a client to request the resource, to repeat the request, or to renew its lease. It goes to the
    /// replica that the client considers coordinator, and to all if that does not answer. The coordinator appends the
    /// client to the queue or renews its lease, and answers with `Response`. In print it goes to all, and the others
    /// forward it.
    Request {
        /// The receiving replica.
        to: u32,
        /// The client and its peer, which receives the answer even if another replica has forwarded this.
        client: Claim,
        /// *timestamp*: the client's Lamport clock at its first request.
        stamp: u64,
        /// Its place in the queue, which it keeps under a new coordinator.
        place: Option<Place>,
        /// The number of its grant, if it has one.
        holds: Option<u64>,
        /// Whether it is in the critical section.
        inside: bool,
        /// The highest number known to the client.
        newest: u64,
        /// Whether this is the only copy: another replica than the coordinator then forwards it.
        alone: bool,
        /// Send time, by the client's clock.
        sent: Time,
    },
    /// RESPONSE: sent by the coordinator to a client that has requested or is next. The client stores the queue and the
    /// end of the lease, and enters if it is the owner.
    Response {
        /// The receiving client.
        client: Ticket,
        /// The coordinator.
        from: u32,
        /// The client's place in the queue.
        place: Option<Place>,
        /// The owner. If it is the receiver, it may enter.
        owner: Option<Holder>,
        /// The queue, unless the client has it.
        queue: Option<Vec<Entry>>,
        /// End of the lease, by the client's clock: the coordinator does not reassign the resource before.
        until: Time,
        /// t_cs: the mean time per client.
        t_cs: Option<Span>,
    },
    /// ADDREQUEST: sent by the coordinator for each new waiter, to the owner (not in print), to all waiters and to all
    /// replicas. The receiver inserts the entry into its queue. No answer.
    AddRequest {
        /// The receiving replica; `None` for a client.
        to: Option<u32>,
        /// The new waiter.
        entry: Entry,
    },
    /// RELEASE: sent by a client that releases or withdraws, to all waiters and to the replicas, or by the coordinator
    /// on behalf of a silent client. The receiver removes the client; the successor enters. The coordinator answers
    /// with `Got`.
    Release {
        /// The receiving replica; `None` for a client.
        to: Option<u32>,
        /// The client that releases.
        client: Claim,
        /// The number of its grant. `None`: it only waited. 0: the coordinator removes it.
        number: Option<u64>,
        /// The next client, under the next number. `None`: the coordinator chooses. Not in print.
        successor: Option<Claim>,
        /// The last place known to the client: the coordinator notifies the waiters behind it. Not in print.
        last: Option<Place>,
        /// The receipt to return; 0 for none.
        receipt: u64,
    },
    /// Sent by the coordinator to acknowledge a RELEASE. The client stops retransmitting. Not in print.
    Got {
        /// `receipt` of the RELEASE.
        receipt: u64,
    },
    /// IAMCOORDINATOR: sent by a candidate, or by a coordinator to replicas whose promise is old, to all replicas. A
    /// replica without another promise follows it and answers with `Update`. In print it announces a result, and has no
    /// answer.
    IamCoordinator {
        /// The receiving replica.
        to: u32,
        /// The candidate's index among the replicas.
        from: u32,
        /// The epoch, which only this replica can have; in print the time stamp.
        epoch: u64,
        /// Send time, by the candidate's clock.
        sent: Time,
    },
    /// RECOVER: sent by a replica without memory to all others. The coordinator answers with `Update`.
    Recover {
        /// The receiving replica.
        to: u32,
        /// The replica without memory.
        from: u32,
        /// Send time, by the sender's clock.
        sent: Time,
    },
    /// UPDATE: sent by a replica to a candidate, or to a replica without memory. The receiver counts the vote or adopts
    /// the memory.
    Update {
        /// The receiving replica.
        to: u32,
        /// The replica whose memory this is.
        from: u32,
        /// The purpose: a vote or refusal, or the answer to RECOVER.
        why: Telling,
        /// `sent` of the message that this answers.
        sent: Time,
        /// The epoch of the candidate, or the coordinator.
        epoch: u64,
        /// The sender's memory.
        memory: Memory,
    },
    /// PING: sent periodically by a replica to its coordinator; in print before it forwards a message. The coordinator
    /// counts the promise and answers with `Ok`.
    Ping {
        /// The replica that the sender considers coordinator.
        to: u32,
        /// The follower.
        from: u32,
        /// The epoch that the sender follows.
        epoch: u64,
        /// `sent` of the latest `Ok` or IAMCOORDINATOR received: the sender follows no other replica for a term from
        /// then on.
        last_received: Time,
    },
    /// OK: sent by the coordinator to answer `Ping`. The follower renews its promise and drops entries before `front`.
    Ok {
        /// The follower.
        to: u32,
        /// The coordinator's index among the replicas.
        from: u32,
        /// Its epoch.
        epoch: u64,
        /// Send time, by the coordinator's clock.
        sent: Time,
        /// Clients with an earlier place are finished.
        front: Place,
    },
}

impl Message {
    /// The names of the message types, in the paper's words.
    pub const KINDS: &'static [&'static str] =
        &["request", "response", "addrequest", "release", "got", "iamcoordinator", "recover", "update", "ping", "ok"];

    /// Returns the index of this message's type in [`Message::KINDS`].
    pub fn kind(&self) -> usize {
        match self {
            Self::Request { .. } => 0,
            Self::Response { .. } => 1,
            Self::AddRequest { .. } => 2,
            Self::Release { .. } => 3,
            Self::Got { .. } => 4,
            Self::IamCoordinator { .. } => 5,
            Self::Recover { .. } => 6,
            Self::Update { .. } => 7,
            Self::Ping { .. } => 8,
            Self::Ok { .. } => 9,
        }
    }

    /// Returns the receiving replica; `None` if a client receives the message.
    pub fn replica(&self) -> Option<u32> {
        match *self {
            Self::Request { to, .. }
            | Self::IamCoordinator { to, .. }
            | Self::Recover { to, .. }
            | Self::Update { to, .. }
            | Self::Ping { to, .. }
            | Self::Ok { to, .. } => Some(to),
            Self::AddRequest { to, .. } | Self::Release { to, .. } => to,
            Self::Response { .. } | Self::Got { .. } => None,
        }
    }

    /// Returns the sending replica, if a replica sends the message.
    pub fn sender(&self) -> Option<u32> {
        match *self {
            Self::Response { from, .. }
            | Self::IamCoordinator { from, .. }
            | Self::Recover { from, .. }
            | Self::Update { from, .. }
            | Self::Ping { from, .. }
            | Self::Ok { from, .. } => Some(from),
            Self::Request { .. } | Self::AddRequest { .. } | Self::Release { .. } | Self::Got { .. } => None,
        }
    }
}

/// The timers of clients and replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// A client repeats its request, renews its lease, or finds that it has expired.
    Wake(Ticket),
    /// A peer resends unconfirmed RELEASEs.
    Resend,
    /// The coordinator checks whether the owner's lease has expired.
    Lease(u32),
    /// A replica pings its coordinator, becomes a candidate, or requests its memory. In print: OK has not arrived in
    /// time.
    Ping(u32),
}

/// The count, with the epoch if that is not 0: `7`, `3.7`.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.epoch {
            0 => write!(f, "{}", self.count),
            epoch => write!(f, "{epoch}.{}", self.count),
        }
    }
}

/// Place and client, as in `7@4`.
impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.place, self.client)
    }
}

/// The paper's notation, with replicas as `R` and their index. Omits times, the queue and the memory.
impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request { client, holds: None, .. } => write!(f, "REQUEST({client})"),
            Self::Request { client, holds: Some(number), .. } => write!(f, "REQUEST({client}, holds {number})"),
            Self::Response { from, owner: None, .. } => write!(f, "RESPONSE(R{from}, no owner)"),
            Self::Response { from, owner: Some(Holder { client, number }), .. } => {
                write!(f, "RESPONSE(R{from}, owner {client}, {number})")
            }
            Self::AddRequest { entry, .. } => write!(f, "ADDREQUEST({entry})"),
            Self::Release { client, number, successor, .. } => {
                write!(f, "RELEASE({client}")?;
                number.map_or(Ok(()), |number| write!(f, ", {number}"))?;
                successor.map_or(Ok(()), |successor| write!(f, ", next {successor}"))?;
                f.write_str(")")
            }
            Self::Got { receipt } => write!(f, "GOT({receipt})"),
            Self::IamCoordinator { from, epoch, .. } => write!(f, "IAMCOORDINATOR(R{from}, epoch {epoch})"),
            Self::Recover { from, .. } => write!(f, "RECOVER(R{from})"),
            Self::Update { from, why, epoch, .. } => write!(f, "UPDATE(R{from}, {why:?}, epoch {epoch})"),
            Self::Ping { from, epoch, .. } => write!(f, "PING(R{from}, epoch {epoch})"),
            Self::Ok { from, epoch, .. } => write!(f, "OK(R{from}, epoch {epoch})"),
        }
    }
}

peerlock_types::debug_as_display!(Message);
