//! A slot that is held.

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

/// How a lease stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseStatus {
    /// When it ends unless it is renewed.
    pub deadline: Moment,
    /// Why the client must stop, if it must.
    pub lost: Option<Error>,
}

/// The right to be inside. Dropping it gives it back.
///
/// Its lease is renewed in the background as long as this peer runs. It can still be [lost](Grant::lost): when the
/// process was frozen for too long, or the peer is stopped.
#[must_use = "dropping a grant gives it back"]
#[derive(Debug)]
pub struct Grant {
    ticket: TicketId,
    id: GrantId,
    name: Name,
    grant: protocol::Grant,
    lease: watch::Receiver<LeaseStatus>,
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
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GrantId {
    /// It ends with the process that has given it, which knows it by this number.
    Held(TicketId),
    /// It may outlive that process: all of the same host know it by this name, which nobody can guess.
    Named(String),
}

impl GrantId {
    /// A new name for a detached grant of this resource, and only of this one.
    pub(crate) fn new_detached(name: &Name) -> String {
        Self::new_name('d', name)
    }

    /// The same for one that its client may go on with at the next process of this host.
    pub(crate) fn new_held(name: &Name) -> String {
        Self::new_name('h', name)
    }

    fn new_name(kind: char, name: &Name) -> String {
        format!("{kind}{:016x}{:016x}-{:016x}", random(), random(), of_resource(name))
    }

    /// Whether it can be a grant of this resource: what a client has slept over must not be taken for another's.
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

    /// When the lease ends unless it is renewed, on the clock that also counts while the machine sleeps. Others may
    /// come in from then on, and not before.
    pub fn deadline(&self) -> Moment {
        self.lease.borrow().deadline
    }

    /// Whether the holder must stop. It looks at the clock: the peer may have been frozen with us, and not know yet.
    pub fn is_lost(&self) -> bool {
        self.why_lost().is_some()
    }

    /// Why the holder must stop, if it must: [`Error::Lost`] if the lease was not renewed in time, [`Error::Revoked`]
    /// if somebody has asked for the slot, and so on.
    pub fn why_lost(&self) -> Option<Error> {
        let LeaseStatus { deadline, lost } = self.lease.borrow().clone();
        let is_over = || (self.clock.now() >= deadline).then_some(Error::Lost);
        lost.or_else(|| self.lease.has_changed().is_err().then_some(Error::Stopped)).or_else(is_over)
    }

    /// Resolves when the holder must stop, which is the grace before others can come in. Cancel-safe.
    pub async fn lost(&self) {
        let mut lease = self.lease.clone();
        // An error means that the peer has stopped, and nobody renews anything any more.
        _ = lease.wait_for(|lease| lease.lost.is_some()).await;
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
        let ticket = self.ticket;
        let input = move |call| Input::Release { call: Some(call), ticket };
        _ = self.commands.send(Command::Call(Box::new(input), reply));
        released.await.unwrap_or(Err(Error::Stopped)).map(drop)
    }

    /// Lets it stand without a handle, until its lease ends; a [detached](crate::Service::acquire_detached) one can be
    /// renewed and released by its name.
    pub fn detach(mut self) -> GrantId {
        self.disarmed = true;
        _ = self.commands.send(Command::Detach { ticket: self.ticket });
        self.id.clone()
    }

    /// What its holder is told: by which name to renew it, and since when it was asked for.
    pub fn granted(&self, grant: String, asked: Moment) -> Granted {
        let (name, slot, fencing, now) = (self.name.clone(), self.slot(), self.fencing(), self.clock.now());
        let ttl = self.deadline().since(now);
        Granted { grant, name, slot, fencing, ttl, waited: now.since(asked) }
    }

    /// Its name, for clients that have no handle.
    pub fn id(&self) -> &GrantId {
        &self.id
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
