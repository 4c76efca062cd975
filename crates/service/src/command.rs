//! Commands of the handles to the task that owns a node, and its pending answers.

use peerlock_node::{Answer, Input, Node, TicketId};
use peerlock_types::Time;
use tokio::sync::{oneshot, watch};

use crate::grant::{Grant, LeaseStatus};
use crate::{Counters, Error, Health, Name, Progress};

pub enum Command {
    /// Requests or resumes a slot. `note` is the ID of a grant that may outlive this process.
    Wait {
        name: Name,
        note: Option<String>,
        waiter: Waiter,
        input: ToInput,
    },
    /// The future of this waiter was dropped.
    Forget(u64),
    /// A handle of this grant was dropped.
    Drop(TicketId),
    /// A handle of this grant was dropped, but the grant stays.
    Detach(TicketId),
    /// Returns the ticket of the grant with this ID.
    Find(String, oneshot::Sender<Found>),
    /// Passes an input with this call to the node.
    Call(ToInput, Reply<Answer>),
    Read(Reader),
    Counters(oneshot::Sender<Counters>),
    Health(oneshot::Sender<Health>),
    /// Passes [`Input::Drain`] or [`Input::Close`] to the node.
    Drain(Input, oneshot::Sender<()>),
    Leave(oneshot::Sender<bool>),
}

pub type Reply<T> = oneshot::Sender<Result<T, Error>>;
/// Returns the input for the call with this number.
pub type ToInput = Box<dyn FnOnce(u64) -> Input + Send>;
pub type Reader = Box<dyn FnOnce(&Node, Time) + Send>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    Here(TicketId),
    Revoked(Error),
    /// The grants of earlier processes are not all known yet: ask again.
    NotYet,
    Nowhere,
}

pub struct Waiter {
    pub number: u64,
    pub reply: Reply<Grant>,
    pub progress: watch::Sender<Progress>,
    /// It resumes a grant, which stays valid until its deadline even if this waiter is gone.
    pub resumes: bool,
}

/// The receiver of the node's answer to a call.
pub enum Call {
    Acquire(Name, Option<String>, Waiter),
    Reply(Reply<Answer>),
}

/// The clients of a ticket: several may request the same grant by its request ID.
pub struct TicketClients {
    pub name: Name,
    pub waiters: Vec<Waiter>,
    /// The ID of a grant that may outlive this process.
    pub note: Option<String>,
    /// The number of handles; ignored once the grant is detached.
    pub handles: usize,
    pub detached: bool,
    pub lease: Option<watch::Sender<LeaseStatus>>,
}
