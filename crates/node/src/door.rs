//! The inputs, effects and answers of a [`Node`](crate::Node).

use std::time::Duration;

use peerlock_protocol::Grant;
use peerlock_registry::ClusterId;
use peerlock_registry::disk::Write;
use peerlock_types::{PeerId, Time};

use crate::clients::{TicketId, Wanted};
use crate::verb::Operation;
use crate::{
    ClusterView, Conclusion, Error, Event, JournalEntry, Name, Notice, Progress, ResourceDetails, ResourceView,
};

/// An input of a node.
#[derive(Clone, Debug)]
pub enum Input {
    /// Starts the node and dials these addresses. Must be the first input, once. Answered by [`Effect::Joined`] when
    /// the first session is valid, or by [`Effect::NotJoined`].
    Start {
        /// Addresses given by the user and those of the last [`Effect::Members`]. Own addresses are allowed.
        join: Vec<String>,
    },
    /// A network event.
    Net(NetEvent),
    /// The time returned by [`Node::next_wake`](crate::Node::next_wake) has come.
    Wake,
    /// The [`Effect::Write`] with this number is durable. Writes complete in order. After a failed write the process
    /// must end: the contents of the file are unknown.
    Written(u64),
    /// The cluster ID of [`Effect::Belongs`] is durable.
    ClusterRecorded,
    /// Requests a slot. Repeating [`Wanted::request`] for the same resource returns the same ticket, granted or not.
    Acquire {
        /// Identifies the [`Answer::Ticket`].
        call: u64,
        wanted: Wanted,
    },
    /// Releases a grant or withdraws a waiting request. Fails if the lease has expired, or for an unknown ticket.
    Release {
        /// Identifies the [`Answer::Released`], if one is needed.
        call: Option<u64>,
        /// From [`Answer::Ticket`], [`Effect::Returned`] or [`Effect::Inherited`].
        ticket: TicketId,
    },
    /// Renews a lease. Fails if it has expired. A detached grant is renewed in the registry before the answer.
    Renew {
        /// Identifies the [`Answer::Renewed`].
        call: u64,
        /// From [`Answer::Ticket`], [`Effect::Returned`] or [`Effect::Inherited`].
        ticket: TicketId,
    },
    /// Reports the end of a run that takes place once per period. Fails if the lease has expired.
    Conclude {
        /// Identifies the [`Answer::Concluded`].
        call: u64,
        /// From [`Answer::Ticket`] or [`Effect::Inherited`].
        ticket: TicketId,
        conclusion: Conclusion,
        /// Unix time, for display.
        at: Duration,
    },
    /// Resumes a grant of an earlier process of this host. Answered when this process has a valid session; on the first
    /// resume, [`Effect::Granted`] follows with the deadline. Fails if the grant has expired.
    Resume {
        /// Identifies the [`Answer::Ticket`].
        call: u64,
        name: Name,
        /// The grant ID: [`Wanted::taken_over_as`].
        note: String,
    },
    /// Cancels [`Input::Resume`]: its answer is not sent. The grant itself remains until its deadline.
    GiveUp { call: u64 },
    /// A query or an administrative verb.
    Call { call: u64, operation: Operation },
    /// Accepts no more requests, withdraws the waiting ones and asks all holders to stop. A holder that does not
    /// release keeps its slot until its lease ends. Detached grants stay. Answered by [`Effect::Drained`].
    Drain,
    /// Accepts no more requests and withdraws the waiting ones; holders continue. Answered by [`Effect::Drained`] after
    /// the last release. Detached grants are not waited for.
    Close,
    /// Ends the session and stops. Grants of this peer are lost, except detached ones, so [`Input::Drain`] comes first.
    /// Answered by [`Effect::Left`] when the registry has ended the session, or after a timeout.
    Leave,
}

impl Input {
    /// Returns the input for a query or an administrative verb.
    pub fn call(call: u64, verb: impl Into<Operation>) -> Self {
        Self::Call { call, operation: verb.into() }
    }
}

/// An event of the network. Each connection to a peer is an *epoch*; `Transport` in `peerlock-service` defines the
/// guarantees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetEvent {
    /// A connection to this peer is established.
    Up {
        peer: PeerId,
        /// The number of the connection; it increases with each connection to the same host.
        epoch: u64,
        /// The dialled address, or the listening address that the peer reported.
        address: String,
    },
    /// A connection has ended.
    Down {
        peer: PeerId,
        /// The number of the connection.
        epoch: u64,
        why: String,
    },
    /// A received message: the bytes of one `send`.
    Message { from: PeerId, epoch: u64, bytes: Vec<u8> },
    /// Dialling an address failed. The network retries.
    Unreached { address: String, why: String },
}

/// Why a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parting {
    /// The peer sent a malformed or unexpected message.
    Nonsense,
    /// Neither side needs the connection.
    Unneeded,
    /// The connection is presumed broken.
    Broken,
}

/// An effect. The driver executes effects in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send bytes on an established connection.
    Send { to: PeerId, epoch: u64, bytes: Vec<u8> },
    /// Close this connection so that a new one can be established. Queued messages are still sent if possible.
    HangUp { peer: PeerId, epoch: u64, why: Parting },
    /// Connect to this address, and reconnect whenever the connection ends.
    Dial(String),
    /// Stop dialling this address. An existing connection stays.
    Forget(String),
    /// Change the voter's file. Answered by [`Input::Written`]; the node's thread must not wait for it. A driver
    /// without a data directory may keep the file in memory or discard it, and answers at once.
    Write {
        /// The number for the answer; consecutive.
        number: u64,
        /// Bytes to append to the file, or its new contents.
        write: Write,
    },
    /// Store this cluster ID for later processes of this host. Answered by [`Input::ClusterRecorded`]; until then the
    /// node opens no session and sends the ID to no peer. Emitted once: by [`Origin::Seeks`] when the cluster is known,
    /// by [`Origin::Founds`] and by the host that creates a cluster with `expect` when the voter's file is written.
    ///
    /// [`Origin::Seeks`]: crate::Origin::Seeks
    /// [`Origin::Founds`]: crate::Origin::Founds
    Belongs(ClusterId),
    /// Append this entry to the takeover file before executing the following effects. It has to survive the process,
    /// not the machine. Not answered. Unnecessary if all clients end with the process.
    Record(JournalEntry),
    /// The addresses of all members, on every change. Store them for the next process, which passes them to
    /// [`Input::Start`]. Not answered.
    Members(Vec<String>),
    /// The first session is valid. Emitted once.
    Joined,
    /// No member of a cluster was found within [`Config::join_timeout`](crate::Config::join_timeout). Emitted once. The
    /// node continues to search, so `Joined` may follow; drop the node to give up.
    NotJoined,
    /// Answers a call.
    Answer {
        /// The call of the input.
        call: u64,
        /// The answer named by the input, or the error.
        answer: Result<Answer, Error>,
    },
    /// A request was granted.
    Granted {
        /// From [`Answer::Ticket`].
        ticket: TicketId,
        /// The deadline: the earlier of the lease's and the session's end.
        until: Time,
    },
    /// A deadline has moved, since the lease or the session was renewed.
    Renewed { ticket: TicketId, until: Time },
    /// The grant lasts until the end of its period, whatever its client does.
    Concluded(TicketId),
    /// The client must stop, for this reason: usually [`Error::Lost`], when the deadline is closer than the grace
    /// period.
    Lost(TicketId, Error),
    /// The queue position of a request.
    Progress(TicketId, Progress),
    /// The ticket has ended, for this reason: [`Error::Lost`] if its client has released it.
    Ended(TicketId, Error),
    /// Reports a detached grant of an earlier process of this host, from the registry. From now on it can be renewed
    /// and released by this ticket.
    Returned {
        ticket: TicketId,
        name: Name,
        /// The grant ID: [`Wanted::detached`] of the request.
        note: String,
        /// Slot and fencing number.
        grant: Grant,
        /// The upper bound of the remaining lease. The time of the last renewal is unknown here.
        ttl: Duration,
    },
    /// Reports a grant taken over from the predecessor process. From now on it can be renewed and released by this
    /// ticket, and its client may [resume](Input::Resume) it.
    Inherited {
        ticket: TicketId,
        /// The grant ID.
        note: String,
    },
    /// An event for observers of this peer.
    Event(Event),
    /// An entry for the log.
    Notice(Notice),
    /// Completes [`Input::Drain`] or [`Input::Close`]: no client is left.
    Drained,
    /// Completes [`Input::Leave`].
    Left {
        /// Whether the registry has ended the session. Otherwise other peers wait until it expires.
        confirmed: bool,
    },
}

/// The answer to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To [`Input::Acquire`] and [`Input::Resume`]. If the ticket already holds a slot, no [`Effect::Granted`] follows:
    /// see [`Node::grant`](crate::Node::grant).
    Ticket(TicketId),
    /// To [`Input::Release`]: the grant was valid until now.
    Released,
    /// To [`Input::Renew`]: the new deadline.
    Renewed(Time),
    /// To [`Input::Conclude`]: the end of the run is recorded. `holds`: no run may start before the period ends.
    /// Otherwise the client releases the slot for the next attempt.
    Concluded { holds: bool },
    /// To [`Show`](crate::verb::Show).
    Shown(ResourceDetails),
    /// To [`Cluster`](crate::verb::Cluster).
    Found(ClusterView),
    /// To [`Listing`](crate::Listing): the next resources by name; empty after the last one.
    Listed(Vec<ResourceView>),
    /// To an administrative verb: the change is committed, or a revoked grant has ended.
    Done,
}
