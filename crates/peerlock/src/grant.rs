//! A grant whose lease is renewed in the background.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use peerlock_service::{Clock, Error, Grant as PeerGrant, Granted, Moment, Name};
use tokio::sync::{oneshot, watch};
use tokio::time::sleep;

use crate::hold::{Hold, RETRY, hang_up};

/// A slot that is held until this is dropped, which releases it like a dropped [`Hold`](crate::Hold).
///
/// Its lease is renewed in the background. It is [lost](Grant::lost) nevertheless if the process is frozen for too
/// long, or the peer or agent stops.
#[derive(Debug)]
#[must_use = "dropping a grant releases it"]
pub struct Grant {
    granted: Granted,
    backing: Backing,
}

#[derive(Debug)]
enum Backing {
    Peer(PeerGrant),
    Agent(AgentGrant),
}

#[derive(Debug)]
struct AgentGrant {
    lease: watch::Receiver<LeaseStatus>,
    /// Its end lets the task release the slot. Taken by a release.
    release: Option<oneshot::Sender<oneshot::Sender<Result<(), Error>>>>,
    /// The connection that the slot belongs to, if its end frees the slot.
    connection: watch::Receiver<Weak<OwnedFd>>,
}

/// Frees the slot at once if the end of its connection does, since the runtime of the task may be busy.
impl Drop for AgentGrant {
    fn drop(&mut self) {
        let Some(release) = self.release.take() else { return };
        // First, so that the task does not resume the slot.
        drop(release);
        if let Some(socket) = self.connection.borrow().upgrade() {
            hang_up(&socket);
        }
    }
}

#[derive(Clone, Debug)]
struct LeaseStatus {
    deadline: Moment,
    /// When the holder must stop: the grace before the deadline, or a third of the last lease if that is less, so that
    /// there is time for the next renewal.
    stop: Moment,
    /// Why the holder must stop, if it must.
    lost: Option<Error>,
}

impl LeaseStatus {
    fn new(asked: Moment, stands: Duration, grace: Duration) -> Self {
        let deadline = asked + stands;
        Self { deadline, stop: deadline - grace.min(stands / 3), lost: None }
    }
}

impl Grant {
    pub(crate) fn of_peer(granted: Granted, grant: PeerGrant) -> Self {
        Self { granted, backing: Backing::Peer(grant) }
    }

    pub(crate) async fn maintained(mut hold: Hold, grace: Duration) -> Result<Self, Error> {
        let granted = hold.granted().clone();
        let (asked, stands) = hold.confirm(|| sleep(RETRY)).await?;
        let (status, lease) = watch::channel(LeaseStatus::new(asked, stands, grace));
        let socket = hold.socket().filter(|_| hold.ends_with_connection());
        let (opened, connection) = watch::channel(socket.map_or_else(Weak::new, |socket| Arc::downgrade(&socket)));
        let (release, released) = oneshot::channel();
        tokio::spawn(maintain(hold, grace, (status, opened), released));
        Ok(Self { granted, backing: Backing::Agent(AgentGrant { lease, release: Some(release), connection }) })
    }

    /// Returns the grant, with its ID.
    pub fn granted(&self) -> &Granted {
        &self.granted
    }

    /// Returns the resource.
    pub fn name(&self) -> &Name {
        &self.granted.name
    }

    /// Returns the fencing number: strictly increasing per slot and unique within the resource. Pass it to the
    /// protected storage, which refuses a smaller one than the last.
    pub fn fencing(&self) -> u64 {
        self.granted.fencing
    }

    /// Returns the number of the slot, from 0.
    pub fn slot(&self) -> u32 {
        self.granted.slot
    }

    /// Returns when the lease expires unless it is renewed, on a clock that counts suspend. The slot may be granted to
    /// others from then on.
    pub fn deadline(&self) -> Moment {
        match &self.backing {
            Backing::Peer(grant) => grant.deadline(),
            Backing::Agent(AgentGrant { lease, .. }) => lease.borrow().deadline,
        }
    }

    /// Returns whether the holder must stop. Reads the clock, so it is right even after the process was frozen, or has
    /// blocked its runtime.
    pub fn is_lost(&self) -> bool {
        match &self.backing {
            Backing::Peer(grant) => grant.is_lost(),
            Backing::Agent(_) => self.why_lost().is_some(),
        }
    }

    /// Returns why the holder must stop, if it must: [`Error::Lost`] if the lease was not renewed in time,
    /// [`Error::Revoked`] if the grant was revoked, [`Error::Stopped`] if the peer or agent stops.
    pub fn why_lost(&self) -> Option<Error> {
        match &self.backing {
            Backing::Peer(grant) => grant.why_lost(),
            Backing::Agent(AgentGrant { lease, .. }) => {
                let LeaseStatus { stop, lost, .. } = lease.borrow().clone();
                let is_over = || (Moment::now() >= stop).then_some(Error::Lost);
                lost.or_else(|| lease.has_changed().is_err().then_some(Error::Stopped)).or_else(is_over)
            }
        }
    }

    /// Resolves when the holder must stop: a grace before the lease expires. Cancel-safe.
    pub async fn lost(&self) {
        match &self.backing {
            Backing::Peer(grant) => grant.lost().await,
            Backing::Agent(AgentGrant { lease, .. }) => {
                // An error means that the task has ended.
                _ = lease.clone().wait_for(|lease| lease.lost.is_some()).await;
            }
        }
    }

    /// Releases the slot, also if the future is dropped.
    ///
    /// # Errors
    /// [`Error::Lost`] if its lease had expired before.
    pub async fn release(self) -> Result<(), Error> {
        match self.backing {
            Backing::Peer(grant) => grant.release().await,
            Backing::Agent(mut backing) => {
                let (reply, released) = oneshot::channel();
                _ = backing.release.take().map(|release| release.send(reply));
                drop(backing);
                released.await.unwrap_or(Err(Error::Stopped))
            }
        }
    }
}

/// Renews a slot until its grant is released or dropped. A lost slot is not released earlier, since its holder may use
/// the grace to stop.
async fn maintain(
    mut hold: Hold,
    grace: Duration,
    (lease, socket): (watch::Sender<LeaseStatus>, watch::Sender<Weak<OwnedFd>>),
    mut released: oneshot::Receiver<oneshot::Sender<Result<(), Error>>>,
) {
    // If the grant is lost during a resume, the slot may already belong to the new connection. Therefore the connection
    // is kept open until the grant is dropped.
    let mut connection = hold.socket();
    let ends_with_connection = hold.ends_with_connection();
    let opened = |opened| {
        if ends_with_connection {
            socket.send_replace(Arc::downgrade(&opened));
        }
        connection = Some(opened);
    };
    let reply = tokio::select! {
        biased;
        reply = &mut released => Some(reply),
        () = until_lost(&mut hold, grace, &lease, opened) => None,
    };
    let reply = match reply {
        Some(reply) => reply,
        None => {
            let why = hold.why_lost().cloned().unwrap_or(Error::Lost);
            lease.send_modify(|lease| lease.lost = Some(why));
            released.await
        }
    };
    match reply {
        Ok(reply) => _ = reply.send(hold.release().await),
        // The grant was dropped. If the end of its connection does not free the slot, it must be released.
        Err(_) if hold.socket().is_none() || !ends_with_connection => _ = hold.release().await,
        Err(_) => {}
    }
    drop(connection);
}

async fn until_lost(
    hold: &mut Hold,
    grace: Duration,
    lease: &watch::Sender<LeaseStatus>,
    opened: impl FnMut(Arc<OwnedFd>),
) {
    let too_late = async {
        loop {
            let last = lease.borrow().stop;
            Clock::real().sleep_until(last).await;
            if lease.borrow().stop <= last {
                return;
            }
        }
    };
    let renewed = |asked, stands| _ = lease.send_replace(LeaseStatus::new(asked, stands, grace));
    tokio::select! {
        biased;
        () = too_late => {}
        _ = hold.maintain(renewed, opened, async || {}) => {}
    }
}
