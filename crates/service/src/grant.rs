//! A slot that is held.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use peerlock_clock::{Clock, Moment};
use peerlock_mutex as mutex;
use peerlock_node::{TicketId, json};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot, watch};

use crate::driver::Command;
use crate::{Error, Name};

/// How a lease stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// When it ends unless it is renewed.
    pub deadline: Moment,
    /// The client must stop.
    pub lost: bool,
}

/// The right to be inside. Dropping it gives it back.
///
/// Its lease is renewed in the background as long as this peer runs. It can still be [lost](Grant::lost): when the
/// process was frozen for too long, or the peer is stopped.
#[must_use = "dropping a grant gives it back"]
#[derive(Debug)]
pub struct Grant {
    ticket: TicketId,
    name: Name,
    grant: mutex::Grant,
    lease: watch::Receiver<Lease>,
    commands: mpsc::UnboundedSender<Command>,
    clock: Clock,
    /// Dropping it means nothing any more.
    disarmed: bool,
}

/// A slot that is held, as its holder is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct Granted {
    /// What to renew and to release it by.
    pub grant: String,
    /// The resource of which it is a slot.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub name: Name,
    /// Which of its slots, counted from 0.
    pub slot: u32,
    /// The fencing number: strictly increasing per slot and unique within the resource.
    pub fencing: u64,
    /// How long the lease stands from when this was told.
    #[serde(rename = "ttl_ms", with = "json")]
    #[cfg_attr(feature = "schema", schema(value_type = u64))]
    pub ttl: Duration,
    /// How long it took to get in.
    #[serde(rename = "waited_ms", with = "json")]
    #[cfg_attr(feature = "schema", schema(value_type = u64))]
    pub waited: Duration,
}

/// A grant's name, for clients that have no handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GrantId(pub(crate) TicketId);

impl Grant {
    pub(crate) fn new(
        ticket: TicketId,
        name: Name,
        grant: mutex::Grant,
        lease: watch::Receiver<Lease>,
        (commands, clock): (mpsc::UnboundedSender<Command>, Clock),
    ) -> Self {
        Self { ticket, name, grant, lease, commands, clock, disarmed: false }
    }

    /// What is held.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// The fencing number: strictly increasing per slot and unique within the resource.
    pub fn fencing(&self) -> u64 {
        self.grant.fencing
    }

    /// Which of the resource's slots, counted from 0.
    pub fn slot(&self) -> u32 {
        self.grant.slot
    }

    /// When the lease ends unless it is renewed, on the clock that also counts while the machine sleeps. Others may come
    /// in from then on, and not before.
    pub fn deadline(&self) -> Moment {
        self.lease.borrow().deadline
    }

    /// Whether the holder must stop.
    pub fn is_lost(&self) -> bool {
        self.lease.borrow().lost || self.lease.has_changed().is_err()
    }

    /// Resolves when the holder must stop, which is the grace before others can come in. Cancel-safe.
    pub async fn lost(&self) {
        let mut lease = self.lease.clone();
        // An error means that the peer has stopped, and nobody renews anything any more.
        _ = lease.wait_for(|lease| lease.lost).await;
    }

    /// Resolves when nothing is left of it: its lease has ended or it was released, and others may be inside.
    /// Cancel-safe.
    pub async fn ended(&self) {
        let mut lease = self.lease.clone();
        while lease.changed().await.is_ok() {}
    }

    /// Gives it back, and tells whether it stood until then. Dropping the future does not take that back.
    ///
    /// # Errors
    /// [`Error::Lost`] if its lease had ended before.
    pub async fn release(mut self) -> Result<(), Error> {
        self.disarmed = true;
        let (reply, released) = oneshot::channel();
        _ = self.commands.send(Command::Release { ticket: self.ticket, reply });
        released.await.unwrap_or(Err(Error::Stopped))
    }

    /// Keeps the grant without a handle: from now on it stands until its lease ends, unless it is renewed by
    /// [`Service::renew`](crate::Service::renew).
    pub fn detach(mut self) -> GrantId {
        self.disarmed = true;
        _ = self.commands.send(Command::Detach { ticket: self.ticket });
        GrantId(self.ticket)
    }

    /// What its holder is told: by which name to renew it, and since when it was asked for.
    pub fn granted(&self, grant: String, asked: Moment) -> Granted {
        let (name, slot, fencing, now) = (self.name.clone(), self.slot(), self.fencing(), self.clock.now());
        let ttl = self.deadline().since(now);
        Granted { grant, name, slot, fencing, ttl, waited: now.since(asked) }
    }

    /// Its name, for clients that have no handle.
    pub fn id(&self) -> GrantId {
        GrantId(self.ticket)
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        if !self.disarmed {
            _ = self.commands.send(Command::Drop { ticket: self.ticket });
        }
    }
}

impl fmt::Display for GrantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.0.fmt(f)
    }
}

impl FromStr for GrantId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        text.parse().map(|number| Self(TicketId(number))).map_err(|_| Error::Lost)
    }
}
