//! A slot that is held, and kept.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use peerlock_service::{Clock, Error, Grant as PeerGrant, Granted, Moment, Name};
use tokio::sync::{oneshot, watch};
use tokio::time::sleep;

use crate::hold::{Hold, RETRY, hang_up};

/// The right to be inside. Dropping it gives it back, as dropping a [`Hold`](crate::Hold) does.
///
/// Its lease is renewed in the background for as long as this process runs. It can still be [lost](Grant::lost): when
/// the process was frozen for too long, or the peer or agent stops.
#[derive(Debug)]
#[must_use = "dropping a grant gives it back"]
pub struct Grant {
    granted: Granted,
    keeper: Keeper,
}

#[derive(Debug)]
enum Keeper {
    Peer(PeerGrant),
    Agent(AgentKeeper),
}

/// What a task keeps at an agent.
#[derive(Debug)]
struct AgentKeeper {
    lease: watch::Receiver<LeaseStatus>,
    /// Dropping it gives the slot back, as soon as the task runs. Taken by a release.
    release: Option<oneshot::Sender<oneshot::Sender<Result<(), Error>>>>,
    /// The connection whose end frees the slot, if there is one.
    connection: watch::Receiver<Weak<OwnedFd>>,
}

/// Before the task runs: the runtime may be busy for long.
impl Drop for AgentKeeper {
    fn drop(&mut self) {
        let Some(release) = self.release.take() else { return };
        // First, so that the task knows why the connection ends.
        drop(release);
        if let Some(socket) = self.connection.borrow().upgrade() {
            hang_up(&socket);
        }
    }
}

#[derive(Clone, Debug)]
struct LeaseStatus {
    deadline: Moment,
    /// When the holder must stop: the grace before that, or a third of what the lease stood when it was renewed if that
    /// is less, so that there is time for the next renewal.
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
        Self { granted, keeper: Keeper::Peer(grant) }
    }

    /// Begins to keep what is held at an agent.
    pub(crate) async fn retained(mut hold: Hold, grace: Duration) -> Result<Self, Error> {
        let granted = hold.granted().clone();
        let (asked, stands) = hold.confirm(|| sleep(RETRY)).await?;
        let (status, lease) = watch::channel(LeaseStatus::new(asked, stands, grace));
        let socket = hold.socket().filter(|_| hold.ends_with_connection());
        let (opened, connection) = watch::channel(socket.map_or_else(Weak::new, |socket| Arc::downgrade(&socket)));
        let (release, released) = oneshot::channel();
        tokio::spawn(maintain(hold, grace, (status, opened), released));
        Ok(Self { granted, keeper: Keeper::Agent(AgentKeeper { lease, release: Some(release), connection }) })
    }

    /// What is held, with its name for others.
    pub fn granted(&self) -> &Granted {
        &self.granted
    }

    /// The resource of which it is a slot.
    pub fn name(&self) -> &Name {
        &self.granted.name
    }

    /// The fencing number: strictly increasing per slot and unique within the resource. Give it to whatever the slot
    /// protects, and let that refuse smaller ones than it has seen.
    pub fn fencing(&self) -> u64 {
        self.granted.fencing
    }

    /// Which of the resource's slots, counted from 0.
    pub fn slot(&self) -> u32 {
        self.granted.slot
    }

    /// When the lease ends unless it is renewed, on the clock that also counts while the machine sleeps. Others may
    /// come in from then on, and not before.
    pub fn deadline(&self) -> Moment {
        match &self.keeper {
            Keeper::Peer(grant) => grant.deadline(),
            Keeper::Agent(AgentKeeper { lease, .. }) => lease.borrow().deadline,
        }
    }

    /// Whether the holder must stop. It looks at the clock, so that who was frozen, or has kept its runtime busy for
    /// longer than the lease stands, knows before the runtime does.
    pub fn is_lost(&self) -> bool {
        match &self.keeper {
            Keeper::Peer(grant) => grant.is_lost(),
            Keeper::Agent(_) => self.why_lost().is_some(),
        }
    }

    /// Why the holder must stop, if it must: [`Error::Lost`] if the lease was not renewed in time, [`Error::Revoked`]
    /// if somebody has asked for the slot, [`Error::Stopped`] if the peer or agent stops.
    pub fn why_lost(&self) -> Option<Error> {
        match &self.keeper {
            Keeper::Peer(grant) => grant.why_lost(),
            Keeper::Agent(AgentKeeper { lease, .. }) => {
                let LeaseStatus { stop, lost, .. } = lease.borrow().clone();
                let is_over = || (Moment::now() >= stop).then_some(Error::Lost);
                lost.or_else(|| lease.has_changed().is_err().then_some(Error::Stopped)).or_else(is_over)
            }
        }
    }

    /// Resolves when the holder must stop, which is the grace before others can come in. Cancel-safe.
    pub async fn lost(&self) {
        match &self.keeper {
            Keeper::Peer(grant) => grant.lost().await,
            Keeper::Agent(AgentKeeper { lease, .. }) => {
                // An error means that nobody keeps it any more.
                _ = lease.clone().wait_for(|lease| lease.lost.is_some()).await;
            }
        }
    }

    /// Gives it back, and tells whether it stood until then. Dropping the future does not take that back.
    ///
    /// # Errors
    /// [`Error::Lost`] if its lease had ended before.
    pub async fn release(self) -> Result<(), Error> {
        match self.keeper {
            Keeper::Peer(grant) => grant.release().await,
            Keeper::Agent(mut keeper) => {
                let (reply, released) = oneshot::channel();
                _ = keeper.release.take().map(|release| release.send(reply));
                drop(keeper);
                released.await.unwrap_or(Err(Error::Stopped))
            }
        }
    }
}

/// Keeps a slot until its grant is released or dropped. One that is lost is not given back before: the holder has its
/// time to stop.
async fn maintain(
    mut hold: Hold,
    grace: Duration,
    (lease, socket): (watch::Sender<LeaseStatus>, watch::Sender<Weak<OwnedFd>>),
    mut released: oneshot::Receiver<oneshot::Sender<Result<(), Error>>>,
) {
    // Who gives up renewing may have been answered by the next agent, unheard: the slot belongs to that connection
    // then, which is left open for as long as the holder is inside.
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
        // It was dropped, so nobody asks how it went. Where there is no connection whose end would say the same, the
        // agent, or the next one, would keep the slot until the end of its lease.
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
