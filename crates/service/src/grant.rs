//! Grants and their IDs.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use peerlock_clock::{Clock, Moment};
use peerlock_node::{Input, TicketId, json};
use peerlock_protocol as protocol;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot, watch};

use crate::command::Command;
use crate::driver::random;
use crate::{Error, Name};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseStatus {
    pub deadline: Moment,
    /// Why the holder must stop, if it must.
    pub lost: Option<Error>,
}

/// A slot that is held until this is dropped.
///
/// The peer renews its lease. It is [lost](Grant::lost) nevertheless if the process is frozen for too long, or the peer
/// stops.
#[must_use = "dropping a grant releases it"]
#[derive(Debug)]
pub struct Grant {
    ticket: TicketId,
    id: GrantId,
    name: Name,
    grant: protocol::Grant,
    lease: watch::Receiver<LeaseStatus>,
    commands: mpsc::UnboundedSender<Command>,
    clock: Clock,
    disarmed: bool,
}

/// A grant, as its holder sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct Granted {
    /// ID for renewal and release.
    pub grant: String,
    /// The resource.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub name: Name,
    /// Number of the slot, from 0.
    pub slot: u32,
    /// The fencing number: strictly increasing per slot and unique within the resource.
    pub fencing: u64,
    /// Remaining lease when this was sent.
    #[serde(rename = "ttl_ms", with = "json")]
    #[cfg_attr(feature = "schema", schema(value_type = u64))]
    pub ttl: Duration,
    /// How long the request waited.
    #[serde(rename = "waited_ms", with = "json")]
    #[cfg_attr(feature = "schema", schema(value_type = u64))]
    pub waited: Duration,
}

/// The ID of a grant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GrantId {
    /// A grant that ends with this process.
    Held(TicketId),
    /// A grant that may outlive this process, by an unguessable ID.
    Named(String),
}

impl GrantId {
    /// Returns a new ID for a detached grant of this resource.
    pub(crate) fn new_detached(name: &Name) -> String {
        Self::new_id('d', name)
    }

    /// Returns a new ID for a grant that its client may resume at the next process of this host.
    pub(crate) fn new_held(name: &Name) -> String {
        Self::new_id('h', name)
    }

    fn new_id(kind: char, name: &Name) -> String {
        format!("{kind}{:016x}{:016x}-{:016x}", random(), random(), of_resource(name))
    }

    /// Returns whether this can be the ID of a grant of this resource.
    pub fn fits(&self, name: &Name) -> bool {
        match self {
            Self::Held(_) => true,
            Self::Named(note) => note.ends_with(&format!("-{:016x}", of_resource(name))),
        }
    }
}

fn of_resource(name: &Name) -> u64 {
    name.key().get() as u64
}

impl Grant {
    pub(crate) fn new(
        (ticket, id): (TicketId, GrantId),
        name: Name,
        grant: protocol::Grant,
        lease: watch::Receiver<LeaseStatus>,
        (commands, clock): (mpsc::UnboundedSender<Command>, Clock),
    ) -> Self {
        Self { ticket, id, name, grant, lease, commands, clock, disarmed: false }
    }

    /// Returns the resource.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Returns the fencing number: strictly increasing per slot and unique within the resource.
    pub fn fencing(&self) -> u64 {
        self.grant.fencing
    }

    /// Returns the number of the slot, from 0.
    pub fn slot(&self) -> u32 {
        self.grant.slot
    }

    /// Returns when the lease expires unless it is renewed, on a clock that counts suspend. The slot may be granted to
    /// others from then on.
    pub fn deadline(&self) -> Moment {
        self.lease.borrow().deadline
    }

    /// Returns whether the holder must stop. Reads the clock, since the peer may have been suspended with the process.
    pub fn is_lost(&self) -> bool {
        self.why_lost().is_some()
    }

    /// Returns why the holder must stop, if it must: [`Error::Lost`] if the lease was not renewed in time,
    /// [`Error::Revoked`] if the grant was revoked, and so on.
    pub fn why_lost(&self) -> Option<Error> {
        let LeaseStatus { deadline, lost } = self.lease.borrow().clone();
        let is_over = || (self.clock.now() >= deadline).then_some(Error::Lost);
        lost.or_else(|| self.lease.has_changed().is_err().then_some(Error::Stopped)).or_else(is_over)
    }

    /// Resolves when the holder must stop: a grace before the lease expires. Cancel-safe.
    pub async fn lost(&self) {
        let mut lease = self.lease.clone();
        // An error means that the peer has stopped.
        _ = lease.wait_for(|lease| lease.lost.is_some()).await;
    }

    /// Resolves when the grant has expired or was released: others may hold the slot. Cancel-safe.
    pub async fn ended(&self) {
        let mut lease = self.lease.clone();
        while lease.changed().await.is_ok() {}
    }

    /// Releases the grant, also if the future is dropped.
    ///
    /// # Errors
    /// [`Error::Lost`] if its lease had expired before.
    pub async fn release(mut self) -> Result<(), Error> {
        self.disarmed = true;
        let (reply, released) = oneshot::channel();
        let ticket = self.ticket;
        let input = move |call| Input::Release { call: Some(call), ticket };
        _ = self.commands.send(Command::Call(Box::new(input), reply));
        released.await.unwrap_or(Err(Error::Stopped)).map(drop)
    }

    /// Drops the handle, but not the grant, which is valid until its lease expires. Returns its ID, by which a
    /// [detached](crate::Service::acquire_detached) grant can be renewed and released.
    pub fn detach(mut self) -> GrantId {
        self.disarmed = true;
        _ = self.commands.send(Command::Detach(self.ticket));
        self.id.clone()
    }

    /// Returns the grant as its holder sees it; `asked` is the time of the request.
    pub fn granted(&self, asked: Moment) -> Granted {
        let (name, slot, fencing, now) = (self.name.clone(), self.slot(), self.fencing(), self.clock.now());
        let ttl = self.deadline().since(now);
        Granted { grant: self.id.to_string(), name, slot, fencing, ttl, waited: now.since(asked) }
    }

    /// Returns the ID of this grant.
    pub fn id(&self) -> &GrantId {
        &self.id
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        if !self.disarmed {
            _ = self.commands.send(Command::Drop(self.ticket));
        }
    }
}

impl fmt::Display for GrantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held(ticket) => ticket.0.fmt(f),
            Self::Named(note) => note.fmt(f),
        }
    }
}

impl FromStr for GrantId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text.parse() {
            Ok(number) => Ok(Self::Held(TicketId(number))),
            Err(_) if text.starts_with(['d', 'h']) => Ok(Self::Named(text.to_owned())),
            Err(_) => Err(Error::Lost),
        }
    }
}
