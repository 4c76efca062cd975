//! What clients want of the task that owns a node, and who of them waits for what.

use peerlock_clock::Moment;
use peerlock_node::{TicketId, Wanted};
use peerlock_types::PeerId;
use tokio::sync::{oneshot, watch};

use crate::grant::{Grant, LeaseStatus};
use crate::{
    ClusterView, Counters, Error, Health, Inspection, Listing, Name, PeerView, Progress, ResourceDetails, ResourceView,
};

/// What clients want.
pub enum Command {
    Acquire {
        wanted: Wanted,
        waiter: Waiter,
    },
    /// A client of an earlier process goes on here.
    Resume {
        name: Name,
        note: String,
        waiter: Waiter,
    },
    /// The future of this waiter was dropped.
    Forget {
        waiter: u64,
    },
    /// A handle of this grant was dropped.
    Drop {
        ticket: TicketId,
    },
    Release {
        ticket: TicketId,
        reply: Reply<()>,
    },
    Renew {
        ticket: TicketId,
        reply: Reply<Moment>,
    },
    Detach {
        ticket: TicketId,
    },
    /// Which ticket a detached grant has.
    Find {
        note: String,
        reply: oneshot::Sender<Found>,
    },
    Show {
        name: Name,
        reply: Reply<ResourceDetails>,
    },
    Cluster {
        reply: Reply<ClusterView>,
    },
    Resize {
        name: Name,
        slots: u32,
        reply: Reply<()>,
    },
    Remove {
        name: Name,
        reply: Reply<()>,
    },
    Expel {
        name: Name,
        peer: PeerId,
        reply: Reply<()>,
    },
    Revoke {
        name: Name,
        peer: PeerId,
        fencing: u64,
        reply: Reply<()>,
    },
    SetVoters {
        hosts: Option<Vec<PeerId>>,
        reply: Reply<()>,
    },
    ForgetHost {
        host: PeerId,
        reply: Reply<()>,
    },
    Resources {
        listing: Listing,
        reply: Reply<Vec<ResourceView>>,
    },
    Peers {
        reply: oneshot::Sender<Vec<PeerView>>,
    },
    Counters {
        reply: oneshot::Sender<Counters>,
    },
    Health {
        reply: oneshot::Sender<Health>,
    },
    Inspect {
        reply: oneshot::Sender<Inspection>,
    },
    HasClients {
        reply: oneshot::Sender<bool>,
    },
    Drain {
        reply: oneshot::Sender<()>,
    },
    Close {
        reply: oneshot::Sender<()>,
    },
    Leave {
        reply: oneshot::Sender<bool>,
    },
}

/// Where an answer goes.
pub type Reply<T> = oneshot::Sender<Result<T, Error>>;

/// Where a detached grant is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    Here(TicketId),
    /// It was taken away from its client.
    Revoked(Error),
    /// Those of earlier processes may not all be known yet.
    NotYet,
    Nowhere,
}

/// One who waits for a grant.
pub struct Waiter {
    pub number: u64,
    pub reply: Reply<Grant>,
    pub progress: watch::Sender<Progress>,
    /// Whether it goes on with what it has: then that stands also without it, until its end.
    pub resumes: bool,
}

/// Who has asked the node something, and is answered as soon as it knows.
pub enum Call {
    /// With what a grant is to be called that may outlive this process.
    Acquire(Name, Option<String>, Waiter),
    /// Whatever is only done.
    Done(Reply<()>),
    Renew(Reply<Moment>),
    Show(Reply<ResourceDetails>),
    Cluster(Reply<ClusterView>),
    Resources(Reply<Vec<ResourceView>>),
}

/// Whoever has asked with one request id: several may wait for the same grant.
pub struct TicketClients {
    pub name: Name,
    pub waiters: Vec<Waiter>,
    /// What a grant is called that may outlive this process.
    pub note: Option<String>,
    /// How many handles there are of the grant; none of them matters once it is detached.
    pub handles: usize,
    pub detached: bool,
    pub lease: Option<watch::Sender<LeaseStatus>>,
}
