//! What clients and replicas say to each other, and the names that they go by.

use alloc::vec::Vec;
use core::fmt;

use peerlock_base::{Span, Ticket, Time};

use crate::token::Claim;

/// A request's place in the line. In print that is the time stamp of the client; here a number from the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Place {
    /// The coordinator's epoch when it gave the number: who came under an earlier coordinator comes first.
    pub epoch: u64,
    /// Counted from 1 in each epoch; in print, the time stamp.
    pub count: u64,
}

/// One who waits. Entries are in the order of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Entry {
    /// Where in the line.
    pub place: Place,
    /// The waiting client and its peer.
    pub client: Claim,
}

/// *Owner*: who is inside, or has been told that it may enter, and under which fencing number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Holder {
    /// The client that owns the resource, and its peer.
    pub client: Claim,
    /// The number of the grant. See [the numbers](super#numbers).
    pub number: u64,
}

/// What a replica remembers, as it tells others.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Memory {
    /// The highest epoch that it has voted for or followed.
    pub seen: u64,
    /// The highest number of a grant that it has heard of.
    pub number: u64,
    /// The line, as far as it knows.
    pub queue: Vec<Entry>,
}

/// Why a replica tells its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Telling {
    /// To a candidate: I follow you for a term.
    Vote,
    /// To a candidate: I have seen a higher epoch.
    Refusal,
    /// To one who has forgotten everything: I am the coordinator, and this is what I know.
    Recovery,
    /// To one who has forgotten everything: so have I.
    Blank,
}

/// The messages of Figure 1, and a receipt. `to` is always the replica that a message is for, `from` the one that it
/// comes from: a peer may host several, and on an overlay they are known by nothing else.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Message {
    /// REQUEST: a client wants in, or still wants in, or is inside and renews its lease. From a client to the replica
    /// that it takes for the coordinator, and if that does not answer, to all. Only the coordinator answers, with
    /// `Response`. In print it goes to all, and the others pass it on.
    Request {
        /// Which replica is asked.
        to: u32,
        /// The client and its peer, to which the coordinator answers even if another replica passed this on.
        client: Claim,
        /// *timestamp*: Lamport's clock of the client when it asked first.
        stamp: u64,
        /// Its place in the line, if it was told one: so it keeps it under a new coordinator.
        place: Option<Place>,
        /// The number of the grant that it has, or was handed.
        holds: Option<u64>,
        /// Whether it is inside.
        inside: bool,
        /// The highest number that it has heard of.
        newest: u64,
        /// Whether nobody else was asked: then who is not the coordinator passes it on.
        alone: bool,
        /// When this was sent, by the client's clock.
        sent: Time,
    },
    /// RESPONSE: the status of the resource and the queue. From the coordinator to a client that has asked, or whose
    /// turn it is.
    Response {
        /// Which client of the receiving peer is meant.
        client: Ticket,
        /// Who is the coordinator.
        from: u32,
        /// The client's place in the line.
        place: Option<Place>,
        /// Who is inside. If it is the client itself, it may enter.
        owner: Option<Holder>,
        /// The line, for who does not know it yet.
        queue: Option<Vec<Entry>>,
        /// By the client's clock: no lease will be taken away before.
        until: Time,
        /// t_cs: the mean time that one client takes.
        t_cs: Option<Span>,
    },
    /// ADDREQUEST: one more waits. From the coordinator to the owner (not in print), to all who wait and to all
    /// replicas. Never answered.
    AddRequest {
        /// Which replica is told; `None` if a client is.
        to: Option<u32>,
        /// Who waits now.
        entry: Entry,
    },
    /// RELEASE: one has left. To all who wait and to all replicas. From the client itself; from the coordinator on
    /// behalf of one who is not heard of any more.
    Release {
        /// Which replica is told; `None` if a client is.
        to: Option<u32>,
        /// Who has left.
        client: Claim,
        /// The number of the grant that it had; `None` if it has only waited; 0 where a coordinator strikes it out.
        number: Option<u64>,
        /// Who is next, under the next number. `None`: the coordinator knows. Not in print.
        successor: Option<Claim>,
        /// The last place that the client knew of: those behind it are told by the coordinator. Not in print.
        last: Option<Place>,
        /// What the receipt shall say; 0 if none is wanted.
        receipt: u64,
    },
    /// A RELEASE has come to the coordinator. Not in print.
    Got {
        /// `receipt` of the RELEASE that has come.
        receipt: u64,
    },
    /// IAMCOORDINATOR: a replica stands for coordinator. To all replicas; answered by `Update`. In print it is the
    /// news, not a question.
    IamCoordinator {
        /// Which replica is told.
        to: u32,
        /// The candidate's index among the replicas.
        from: u32,
        /// The epoch, which only this replica can have; in print the time stamp.
        epoch: u64,
        /// When this was sent, by the candidate's clock.
        sent: Time,
    },
    /// RECOVER: a replica has lost its memory. To all replicas; the coordinator answers with `Update`.
    Recover {
        /// Which replica is asked.
        to: u32,
        /// The replica that has lost its memory.
        from: u32,
        /// When this was sent, by the asking replica's clock.
        sent: Time,
    },
    /// UPDATE: what a replica knows. To one who stands for coordinator, or recovers.
    Update {
        /// Which replica is told.
        to: u32,
        /// The replica whose memory this is.
        from: u32,
        /// A vote or refusal for a candidate, or an answer to RECOVER.
        why: Telling,
        /// `sent` of the message that this answers.
        sent: Time,
        /// The epoch that it is about: the candidate's, or the coordinator's.
        epoch: u64,
        /// What it knows.
        memory: Memory,
    },
    /// PING: is the coordinator alive? From a replica to its coordinator, now and then; in print before it passes
    /// anything on. Answered by `Ok`.
    Ping {
        /// The replica that the sender takes for the coordinator.
        to: u32,
        /// The follower, to which `Ok` goes.
        from: u32,
        /// Which epoch the sender follows.
        epoch: u64,
        /// `sent` of the latest `Ok` (or IAMCOORDINATOR) that has arrived: for a term from then on its sender follows
        /// nobody else.
        heard: Time,
    },
    /// OK: it is.
    Ok {
        /// Who has asked.
        to: u32,
        /// The coordinator's index among the replicas.
        from: u32,
        /// The epoch in which it is coordinator.
        epoch: u64,
        /// When this was sent, by the coordinator's clock.
        sent: Time,
        /// Clients with an earlier place do not wait any more.
        front: Place,
    },
}

impl Message {
    /// The types' names, in the paper's words.
    pub const KINDS: &'static [&'static str] =
        &["request", "response", "addrequest", "release", "got", "iamcoordinator", "recover", "update", "ping", "ok"];

    /// The place of this message's type in [`Message::KINDS`].
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

    /// The replica that it is for; `None` if it is for a client.
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

    /// Which replica says so, of what replicas say.
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

/// The timers of both halves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// A client asks again, renews its lease, or finds that it has ended.
    Wake(Ticket),
    /// A peer sends RELEASEs again that nobody has confirmed.
    Resend,
    /// The coordinator looks whether the owner's lease has run out.
    Lease(u32),
    /// A replica pings its coordinator, stands for coordinator, or asks for its memory. In print: the wait for OK is
    /// over.
    Ping(u32),
}

/// Its count, and after the first epoch also that: `7`, `3.7`.
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

/// The paper's words; replicas as `R` and their index. Times are left out, and so are the queue and the memory.
impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request { client, holds: None, .. } => write!(f, "REQUEST({client})"),
            Self::Request { client, holds: Some(number), .. } => write!(f, "REQUEST({client}, holds {number})"),
            Self::Response { from, owner: None, .. } => write!(f, "RESPONSE(R{from}, nobody is inside)"),
            Self::Response { from, owner: Some(Holder { client, number }), .. } => {
                write!(f, "RESPONSE(R{from}, {client} is inside, {number})")
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

peerlock_base::debug_as_display!(Message);
