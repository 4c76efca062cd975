//! A slot whose holder renews the lease.

use std::future::{pending, ready};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use peerlock_http::client::{Agent, Hold as Lines};
use peerlock_http::{Endpoint, Line};
use peerlock_service::{Class, Conclusion, Error, Grant as PeerGrant, Granted, Moment, Service};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

/// The longest interval of renewals, however long the lease. They keep the connection open: an agent at its connection
/// limit accepts no new one.
const OFTEN: Duration = Duration::from_secs(10);

/// The interval of attempts to reach an agent that has ended.
pub(crate) const RETRY: Duration = Duration::from_millis(100);
/// How long a release is repeated after the agent has ended: a service manager may take a second to restart it.
const RELEASING: Duration = Duration::from_secs(5);
/// The shortest timeout of a renewal, after which it is repeated on another connection.
const PATIENCE: Duration = Duration::from_secs(1);

/// A slot that is held until this is dropped, as long as its lease is renewed.
///
/// Dropping it releases the slot: at once through a Unix socket, even if the runtime is busy. Over TCP, where the end
/// of a connection frees no slot, the runtime on which it was acquired sends the release. If that runtime is blocked or
/// ends first, or cannot reach the agent for five seconds, the slot stays held until its lease expires.
/// [`release`](Hold::release) waits for the answer.
#[derive(Debug)]
#[must_use = "dropping it releases the slot"]
pub struct Hold {
    granted: Granted,
    ttl: Duration,
    holder: Holder,
    why_lost: Option<Error>,
}

#[derive(Debug)]
enum Holder {
    Peer(Service, PeerGrant),
    Agent(AgentSlot),
}

#[derive(Debug)]
struct AgentSlot {
    agent: Agent,
    granted: Granted,
    /// The connection that the slot belongs to, while there is one.
    lines: Option<Lines>,
    /// Sends the release when this is dropped.
    runtime: Handle,
    /// Lets [`Agent::unused`] wait for the release.
    user: watch::Receiver<()>,
    is_released: bool,
}

/// How soon the holder of a lost slot must stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stop {
    /// Within the grace: the slot is reserved for it.
    InGrace,
    /// At once: the slot may have another holder already.
    AtOnce,
}

enum SlotEvent {
    Lost(Error),
    /// The connection has ended. If the agent still runs, it has freed the slot; otherwise the next agent continues the
    /// grant.
    Broken,
}

enum Resumed {
    Yes,
    /// The agent cannot decide yet.
    NotYet,
    NoAgent,
}

impl Hold {
    pub(crate) fn of_peer(granted: Granted, ttl: Duration, service: Service, grant: PeerGrant) -> Self {
        Self { granted, ttl, holder: Holder::Peer(service, grant), why_lost: None }
    }

    pub(crate) fn of_agent(granted: Granted, ttl: Duration, agent: Agent, lines: Lines) -> Self {
        let (user, runtime) = (agent.user(), Handle::current());
        let slot = AgentSlot { agent, granted: granted.clone(), lines: Some(lines), runtime, user, is_released: false };
        Self { granted, ttl, holder: Holder::Agent(slot), why_lost: None }
    }

    /// Returns the grant, with its ID.
    pub fn granted(&self) -> &Granted {
        &self.granted
    }

    /// Returns the connection to the agent that the slot belongs to. A process with a copy keeps the slot if this
    /// process is killed, until the lease expires. Dropping the hold ends the connection for all copies.
    pub fn socket(&self) -> Option<Arc<OwnedFd>> {
        match &self.holder {
            Holder::Agent(slot) => slot.lines.as_ref().map(Lines::socket),
            Holder::Peer(..) => None,
        }
    }

    /// Returns whether the end of the connection frees the slot.
    pub(crate) fn ends_with_connection(&self) -> bool {
        matches!(&self.holder, Holder::Agent(slot) if slot.ends_with_connection())
    }

    /// Renews the lease. Returns its duration, counted from before the call, so that it expires here first. Call it
    /// once at the start, since the grant may have been delayed.
    ///
    /// # Errors
    /// [`Error::Lost`] if the grant is no longer valid.
    pub async fn renew(&self) -> Result<Duration, Error> {
        match &self.holder {
            Holder::Peer(service, grant) => {
                let asked = service.now();
                Ok(service.renew(grant.id()).await?.since(asked).min(self.ttl))
            }
            Holder::Agent(AgentSlot { agent, .. }) => {
                let lease = agent.renew(self.granted.name.as_str(), &self.granted.grant).await?;
                Ok(lease.min(self.ttl))
            }
        }
    }

    /// Renews the lease of a slot that was just granted, since the grant may have been delayed. Returns the time before
    /// the renewal, and the lease duration from then. If the agent has ended, resumes the grant at the next one. Calls
    /// `absent`, which may start an agent, before each attempt.
    ///
    /// # Errors
    /// [`Error::Lost`] or another error of its class if the slot is lost, or if no agent answers within the lease.
    pub async fn confirm<F: Future<Output = ()>>(
        &mut self,
        mut absent: impl FnMut() -> F,
    ) -> Result<(Moment, Duration), Error> {
        let ttl = self.ttl;
        loop {
            let asked = Moment::now();
            match timeout(ttl, self.renew()).await.unwrap_or(Err(Error::Lost)) {
                Ok(lease) => return Ok((asked, lease)),
                Err(Error::Broken { .. } | Error::NoAgent { .. }) if matches!(self.holder, Holder::Agent(_)) => {
                    let next = async {
                        loop {
                            match self.try_resume(|_| {}).await {
                                Ok(Resumed::Yes) => return Ok(()),
                                Ok(Resumed::NoAgent) => absent().await,
                                Ok(Resumed::NotYet) => {}
                                Err(_) => return Err(Error::Lost),
                            }
                            sleep(RETRY.min(ttl / 20)).await;
                        }
                    };
                    timeout(ttl, next).await.unwrap_or(Err(Error::Lost))?;
                }
                Err(why) => return Err(why),
            }
        }
    }

    /// Renews the lease after each third of it, and at least every ten seconds, until the slot is lost. Calls
    /// `renewed` with the time before each renewal, and the lease duration from then. No lease outlasts the session of
    /// the peer or agent.
    ///
    /// If the agent ends, or over TCP only the connection, resumes the slot at the next one. Calls `absent`, which may
    /// start an agent, before each attempt, and `opened` with each connection that the slot is to belong to. Does not
    /// return if no agent answers in time: the caller must stop by the end of the last lease.
    pub async fn maintain(
        &mut self,
        mut renewed: impl FnMut(Moment, Duration),
        mut opened: impl FnMut(Arc<OwnedFd>),
        mut absent: impl AsyncFnMut(),
    ) -> Stop {
        let mut pause = (self.granted.ttl.min(self.ttl) / 3).min(OFTEN);
        loop {
            let event = tokio::select! {
                biased;
                event = self.event() => Some(event),
                () = sleep(pause) => None,
            };
            match event {
                Some(SlotEvent::Lost(why)) => return self.lose(why),
                Some(SlotEvent::Broken) => {
                    // Fails if the agent still runs, which has freed the slot with its Unix connection.
                    if let Err(why) = self.resume(&mut opened, &mut absent).await {
                        self.why_lost = Some(self.gone(why));
                        return Stop::AtOnce;
                    }
                }
                None => {}
            }
            let asked = Moment::now();
            // A silent connection must not use up the lease.
            pause = match timeout(pause.max(PATIENCE), self.renew()).await {
                Ok(Ok(lease)) => {
                    renewed(asked, lease);
                    (lease / 3).min(OFTEN)
                }
                Ok(Err(Error::Lost)) => return self.refused().await,
                Ok(Err(why)) if why.class() == Class::Lost => return self.lose(why),
                // If the agent has ended, so has the slot's own connection.
                Ok(Err(_)) | Err(_) => RETRY.min(self.ttl / 20),
            };
        }
    }

    /// Resumes the grant at the next agent, without a timeout.
    async fn resume(
        &mut self,
        opened: &mut impl FnMut(Arc<OwnedFd>),
        absent: &mut impl AsyncFnMut(),
    ) -> Result<(), Error> {
        loop {
            match self.try_resume(&mut *opened).await? {
                Resumed::Yes => return Ok(()),
                Resumed::NoAgent => absent().await,
                Resumed::NotYet => {}
            }
            sleep(RETRY.min(self.ttl / 20)).await;
        }
    }

    async fn try_resume(&mut self, opened: impl FnOnce(Arc<OwnedFd>)) -> Result<Resumed, Error> {
        let Holder::Agent(AgentSlot { agent, lines, .. }) = &mut self.holder else { return Err(Error::Lost) };
        match resume(agent, &self.granted, opened).await {
            Ok(resumed) => {
                *lines = Some(resumed);
                Ok(Resumed::Yes)
            }
            Err(why) if why.class() == Class::Lost => Err(why),
            Err(Error::NoAgent { .. }) => Ok(Resumed::NoAgent),
            Err(_) => Ok(Resumed::NotYet),
        }
    }

    fn gone(&self, why: Error) -> Error {
        match (&self.holder, why) {
            (Holder::Agent(AgentSlot { agent, .. }), Error::Lost) => {
                let why = "the agent that answers there does not have the slot".to_owned();
                Error::Broken { endpoint: agent.endpoint().to_string(), why }
            }
            (_, why) => why,
        }
    }

    /// Returns why the slot was lost, if the reason is known.
    pub fn why_lost(&self) -> Option<&Error> {
        self.why_lost.as_ref()
    }

    /// Handles a renewal that was refused because the grant is not valid. Unless the agent has announced the loss
    /// before, the slot may have another holder.
    async fn refused(&mut self) -> Stop {
        let event = tokio::select! {
            biased;
            event = self.event() => Some(event),
            () = ready(()) => None,
        };
        match event {
            Some(SlotEvent::Lost(why)) => self.lose(why),
            Some(SlotEvent::Broken) | None => {
                self.why_lost = Some(Error::Lost);
                Stop::AtOnce
            }
        }
    }

    /// Records the loss. After an eviction or the end of the session, the slot may have another holder.
    fn lose(&mut self, why: Error) -> Stop {
        let is_over = matches!(why, Error::Revoked { forced: true, .. } | Error::SessionLost { .. });
        self.why_lost = Some(why);
        if is_over { Stop::AtOnce } else { Stop::InGrace }
    }

    async fn event(&mut self) -> SlotEvent {
        let lines = match &mut self.holder {
            Holder::Peer(_, grant) => {
                grant.lost().await;
                return SlotEvent::Lost(grant.why_lost().unwrap_or(Error::Lost));
            }
            Holder::Agent(slot) => &mut slot.lines,
        };
        let Some(open) = lines else { return pending().await };
        loop {
            match open.next().await {
                Ok(Line::Waiting(_) | Line::Granted(_) | Line::Alive { .. }) => {}
                Ok(Line::Lost { why }) => return SlotEvent::Lost(why.map_or(Error::Lost, |why| why.0)),
                Ok(Line::Failed(why)) => return SlotEvent::Lost(why.0),
                Err(_) => {
                    *lines = None;
                    return SlotEvent::Broken;
                }
            }
        }
    }

    /// Ends the hold with the end of a run that takes place once per period. The slot is held until the period ends if
    /// the run has succeeded or was the last attempt, and released otherwise. Returns whether it is held. Repeats the
    /// call until the lease expires, also at the next agent. Calls `absent`, which may start an agent, before each
    /// attempt to reach one that has ended.
    ///
    /// # Errors
    /// [`Error::Lost`] if the grant is no longer valid. After any error the run may not be recorded, and another one
    /// may start.
    pub async fn conclude<F: Future<Output = ()>>(
        mut self,
        conclusion: Conclusion,
        mut absent: impl FnMut() -> F,
    ) -> Result<bool, Error> {
        let until = Instant::now() + self.ttl;
        let holds = loop {
            let concluded = match &self.holder {
                Holder::Peer(service, grant) => service.conclude(grant.id(), conclusion).await,
                Holder::Agent(AgentSlot { agent, .. }) => {
                    agent.conclude(self.granted.name.as_str(), &self.granted.grant, conclusion).await
                }
            };
            match concluded {
                Ok(holds) => break holds,
                Err(why) if why.class() == Class::Lost || why.class() == Class::BadRequest => return Err(why),
                Err(why) if Instant::now() >= until => return Err(why),
                // An agent that has ended leaves the grant to the next one.
                Err(_) => {
                    if let Ok(Resumed::NoAgent) = self.try_resume(|_| {}).await {
                        absent().await;
                    }
                }
            }
            sleep(RETRY).await;
        };
        if holds {
            if let Holder::Agent(slot) = &mut self.holder {
                slot.is_released = true;
            }
        } else {
            _ = self.release().await;
        }
        Ok(holds)
    }

    /// Releases the slot.
    ///
    /// # Errors
    /// [`Error::Lost`] if the grant was no longer valid.
    pub async fn release(self) -> Result<(), Error> {
        match self.holder {
            Holder::Peer(_, grant) => grant.release().await,
            Holder::Agent(slot) => slot.release().await,
        }
    }
}

impl AgentSlot {
    fn ends_with_connection(&self) -> bool {
        matches!(self.agent.endpoint(), Endpoint::Unix(_))
    }

    /// Waits for the answer before ending the connection, which is more certain than the end alone.
    async fn release(mut self) -> Result<(), Error> {
        let released = release(&self.agent, &self.granted).await;
        self.is_released = true;
        released
    }
}

impl Drop for AgentSlot {
    fn drop(&mut self) {
        if self.is_released {
            return;
        }
        match &self.lines {
            Some(lines) if self.ends_with_connection() => hang_up(&lines.socket()),
            _ => {
                let (agent, granted, user) = (self.agent.clone(), self.granted.clone(), self.user.clone());
                let lines = self.lines.take();
                self.runtime.spawn(async move {
                    _ = release(&agent, &granted).await;
                    drop((lines, user));
                });
            }
        }
    }
}

/// Ends a connection for all its copies.
pub(crate) fn hang_up(socket: &OwnedFd) {
    // Without a free descriptor, the connection ends when the runtime drops it.
    if let Ok(copy) = socket.try_clone() {
        _ = UnixStream::from(copy).shutdown(Shutdown::Both);
    }
}

/// Releases a slot. Repeats this at the next agent, which would otherwise hold the slot until its lease expires.
async fn release(agent: &Agent, granted: &Granted) -> Result<(), Error> {
    let since = Instant::now();
    loop {
        match agent.release(granted.name.as_str(), &granted.grant).await {
            Err(Error::NoAgent { .. } | Error::Broken { .. }) if since.elapsed() < RELEASING => sleep(RETRY).await,
            released => return released,
        }
    }
}

async fn resume(agent: &Agent, granted: &Granted, opened: impl FnOnce(Arc<OwnedFd>)) -> Result<Lines, Error> {
    let mut lines = agent.resume(granted.name.as_str(), &granted.grant, opened).await?;
    loop {
        match lines.next().await? {
            Line::Waiting(_) | Line::Alive { .. } => {}
            Line::Granted(_) => return Ok(lines),
            Line::Lost { why } => return Err(why.map_or(Error::Lost, |why| why.0)),
            Line::Failed(why) => return Err(why.0),
        }
    }
}
