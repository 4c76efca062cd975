//! Messages of the coordinator protocol.

use alloc::vec::Vec;
use core::fmt;

use peerlock_types::{Span, Ticket, Time};
use serde::{Deserialize, Serialize};

use super::Coordinator;
use crate::Observe;
use crate::token::Claim;

/// The coordinator's number for a request, counted in its epoch; in print, the client's time stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Place {
    pub epoch: u64,
    pub count: u64,
}

/// A waiter, ordered by place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Entry {
    pub place: Place,
    pub client: Claim,
}

/// *Owner*: the client that has been granted the resource under this fencing number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Holder {
    pub client: Claim,
    pub number: u64,
}

/// A replica's memory. `max_epoch` is the highest epoch voted for or followed.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Memory {
    pub max_epoch: u64,
    pub number: u64,
    pub queue: Vec<Entry>,
}

/// The purpose of an UPDATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum UpdateKind {
    /// To a candidate: a promise to follow it for a term.
    Vote,
    /// To a candidate: the sender knows a higher epoch.
    Refusal,
    /// To a replica without memory: the coordinator's memory.
    Recovery,
    /// To a replica without memory: the sender has none, either.
    Blank,
}

/// The messages of Figure 1, and a receipt. `to` is the receiving replica (`None`: a client), `from` the sending one,
/// `sent` the send time by the sender's clock, or in an answer that of the message answered.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Message {
    /// REQUEST: sent by a client to request, repeat or renew. The coordinator queues the client or renews its lease,
    /// and answers with RESPONSE; another replica forwards the only copy (`alone`), in print every copy. `holds` is the
    /// number of the client's grant, `newest` the highest known.
    Request {
        to: u32,
        client: Claim,
        /// *timestamp*: the client's Lamport clock.
        stamp: u64,
        place: Option<Place>,
        holds: Option<u64>,
        is_holding: bool,
        newest: u64,
        alone: bool,
        sent: Time,
    },
    /// RESPONSE: sent by the coordinator to a client that has requested, or becomes the owner. The client stores the
    /// queue, and enters if it is the owner.
    Response {
        client: Ticket,
        from: u32,
        place: Option<Place>,
        owner: Option<Holder>,
        queue: Option<Vec<Entry>>,
        /// The coordinator starts no other chain before, by the client's clock.
        until: Time,
        t_cs: Option<Span>,
    },
    /// ADDREQUEST: sent by the coordinator to the owner (not in print), all waiters and all replicas, which insert the
    /// entry.
    AddRequest { to: Option<u32>, entry: Entry },
    /// RELEASE: sent by a client that releases or withdraws to all waiters and to the replicas, or by the coordinator
    /// for a silent client. The receiver removes the client; the successor enters. The coordinator answers with GOT.
    Release {
        to: Option<u32>,
        client: Claim,
        /// The number of its grant. `None`: it only waited. 0: the coordinator removes it.
        number: Option<u64>,
        /// Enters under the next number; without, the coordinator chooses. Not in print.
        successor: Option<Claim>,
        /// The coordinator notifies the waiters behind this place. Not in print.
        last: Option<Place>,
        receipt: u64,
    },
    /// Acknowledges a RELEASE. Not in print.
    Got { receipt: u64 },
    /// IAMCOORDINATOR: sent by a candidate to all replicas, or by a coordinator to replicas whose promise is old. A
    /// replica without another promise follows it and answers with UPDATE. In print it announces a result.
    IamCoordinator {
        to: u32,
        from: u32,
        /// Unique to the replica; in print, the time stamp.
        epoch: u64,
        sent: Time,
    },
    /// RECOVER: sent by a replica without memory to all others. The coordinator answers with UPDATE.
    Recover { to: u32, from: u32, sent: Time },
    /// UPDATE: sent by a replica to a candidate, which counts it, or to a replica without memory, which adopts it.
    Update { to: u32, from: u32, kind: UpdateKind, sent: Time, epoch: u64, memory: Memory },
    /// PING: sent periodically by a replica to its coordinator, which counts the promise and answers with OK; in print
    /// before it forwards a message.
    Ping {
        to: u32,
        from: u32,
        epoch: u64,
        /// `sent` of the latest OK or IAMCOORDINATOR, from which the promise counts.
        last_received: Time,
    },
    /// OK: answers PING. The follower renews its promise and drops entries before `front`.
    Ok { to: u32, from: u32, epoch: u64, sent: Time, front: Place },
}

impl Observe for Coordinator {
    const KINDS: &'static [&'static str] =
        &["request", "response", "addrequest", "release", "got", "iamcoordinator", "recover", "update", "ping", "ok"];

    fn kind(message: &Message) -> usize {
        match message {
            Message::Request { .. } => 0,
            Message::Response { .. } => 1,
            Message::AddRequest { .. } => 2,
            Message::Release { .. } => 3,
            Message::Got { .. } => 4,
            Message::IamCoordinator { .. } => 5,
            Message::Recover { .. } => 6,
            Message::Update { .. } => 7,
            Message::Ping { .. } => 8,
            Message::Ok { .. } => 9,
        }
    }
}

impl Message {
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

/// The timers: of a client, of unacknowledged RELEASEs, of the owner's lease, and of pings (in print: a late OK).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Timer {
    Wake(Ticket),
    Resend,
    Lease(u32),
    Ping(u32),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.epoch {
            0 => write!(f, "{}", self.count),
            epoch => write!(f, "{epoch}.{}", self.count),
        }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.place, self.client)
    }
}

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
            Self::Update { from, kind, epoch, .. } => write!(f, "UPDATE(R{from}, {kind:?}, epoch {epoch})"),
            Self::Ping { from, epoch, .. } => write!(f, "PING(R{from}, epoch {epoch})"),
            Self::Ok { from, epoch, .. } => write!(f, "OK(R{from}, epoch {epoch})"),
        }
    }
}

peerlock_types::debug_as_display!(Message);
