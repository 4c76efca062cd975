//! A slot whose lease its holder renews.

use std::future::{pending, ready};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use peerlock_http::client::{Agent, Hold as Lines};
use peerlock_http::{Endpoint, Line};
use peerlock_service::{Class, Error, Grant as PeerGrant, Granted, Moment, Service};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

/// A lease is renewed as often as this, however long it stands: so the connection that it was renewed on stays open,
/// and an agent that can take no new ones renews it all the same.
const OFTEN: Duration = Duration::from_secs(10);

/// How soon to ask again whether the agent is there, when the connection to it is gone.
pub(crate) const RETRY: Duration = Duration::from_millis(100);
/// How long it is tried to give a slot back when the agent is gone: what keeps an agent running may wait a second
/// before it starts it again.
const RELEASING: Duration = Duration::from_secs(5);
/// How long a renewal may take at least before it is asked for again, on another connection.
const PATIENCE: Duration = Duration::from_secs(1);

/// A slot that is held for as long as this is there and its lease is renewed. Dropping it gives it back.
///
/// Through a Unix socket that happens at once, also on a runtime that is busy. Over TCP, where the end of a connection
/// frees nothing, the runtime on which it was acquired sends the release in the background: if that runtime is blocked
/// or ends first, or the agent cannot be reached for five seconds, the slot stays held until its lease ends.
/// [`release`](Hold::release) waits for the answer.
#[derive(Debug)]
#[must_use = "dropping it gives the slot back"]
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

/// A slot that is held through an agent. Dropping it gives it back.
#[derive(Debug)]
struct AgentSlot {
    agent: Agent,
    granted: Granted,
    /// The connection that the slot belongs to, while there is one.
    lines: Option<Lines>,
    /// For the release, if this is dropped.
    runtime: Handle,
    /// Tells the agent's client that there is something to wait for.
    user: watch::Receiver<()>,
    is_released: bool,
}

/// How a holder that has lost its slot must stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stop {
    /// Within the grace: the slot is kept for this long.
    InGrace,
    /// At once: somebody else may be inside already.
    AtOnce,
}

/// What the other side says of a slot while it is held.
enum RegistryEvent {
    Lost(Error),
    /// The connection is gone. If the agent still runs, so is the slot; if not, the next one goes on with it.
    Broken,
}

/// What the next agent says to who asks for its slot.
enum Next {
    /// It goes on with it.
    Here,
    /// It cannot tell yet.
    Busy,
    /// There is none.
    Absent,
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

    /// What is held.
    pub fn granted(&self) -> &Granted {
        &self.granted
    }

    /// The connection that the slot belongs to, if it is an agent's: a process that has a copy of it keeps the slot
    /// when this one is killed, for as long as the lease stands. Dropping the hold ends the connection of all copies.
    pub fn socket(&self) -> Option<Arc<OwnedFd>> {
        match &self.holder {
            Holder::Agent(slot) => slot.lines.as_ref().map(Lines::socket),
            Holder::Peer(..) => None,
        }
    }

    /// Whether the slot is free when its connection ends.
    pub(crate) fn ends_with_connection(&self) -> bool {
        matches!(&self.holder, Holder::Agent(slot) if slot.ends_with_connection())
    }

    /// Renews the lease: how long it stands, counted from before this was called, so that whatever the other side
    /// counts from is later. Worth doing first of all: what was said on the way here may be old.
    ///
    /// # Errors
    /// [`Error::Lost`] if it does not stand any more.
    pub async fn renew(&self) -> Result<Duration, Error> {
        match &self.holder {
            Holder::Peer(service, grant) => {
                let asked = service.now();
                Ok(service.renew(grant.id()).await?.since(asked).min(self.ttl))
            }
            Holder::Agent(AgentSlot { agent, .. }) => {
                let stands = agent.renew(self.granted.name.as_str(), &self.granted.grant).await?;
                Ok(stands.min(self.ttl))
            }
        }
    }

    /// Renews the lease of a slot that was just granted: what was said on the way here may be old. Returns when the
    /// renewal was asked for, and how long the lease stands from then. If the agent has ended meanwhile, goes on at the
    /// next one; `absent` is called again and again while there is none, and may start it.
    ///
    /// # Errors
    /// [`Error::Lost`] and others of its class if the slot is lost, also if no answer came within the lease.
    pub async fn confirm<F: Future<Output = ()>>(
        &mut self,
        mut absent: impl FnMut() -> F,
    ) -> Result<(Moment, Duration), Error> {
        let ttl = self.ttl;
        loop {
            // Before the renewal is asked for, so that whatever the other side counts from is later.
            let asked = Moment::now();
            match timeout(ttl, self.renew()).await.unwrap_or(Err(Error::Lost)) {
                Ok(stands) => return Ok((asked, stands)),
                Err(Error::Broken { .. } | Error::NoAgent { .. }) if matches!(self.holder, Holder::Agent(_)) => {
                    let next = async {
                        loop {
                            match self.take_up(|_| {}).await {
                                Ok(Next::Here) => return Ok(()),
                                Ok(Next::Absent) => absent().await,
                                Ok(Next::Busy) => {}
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

    /// Renews the lease after a third of what it stands each time, and every ten seconds at least, for as long as that
    /// is possible, and returns when the slot is lost. It stands no longer than the session of the peer or agent, which
    /// that renews itself. After each renewal `renewed` is told when it was asked for, and for how long the lease
    /// stands from then.
    ///
    /// An agent that ends leaves what it has granted to the next one of its machine, which goes on with it: this comes
    /// to it as soon as it is there. As long as it is not, `absent` is called again and again, and may start it;
    /// `opened` gets each connection that the slot is to belong to. Over TCP the same happens when only the connection
    /// has ended. If none comes before the lease ends: who keeps a
    /// slot must stop by itself when the last that it was told is over.
    pub async fn maintain(
        &mut self,
        mut renewed: impl FnMut(Moment, Duration),
        mut opened: impl FnMut(Arc<OwnedFd>),
        mut absent: impl AsyncFnMut(),
    ) -> Stop {
        let mut pause = (self.granted.ttl.min(self.ttl) / 3).min(OFTEN);
        loop {
            let word = tokio::select! {
                biased;
                word = self.word() => Some(word),
                () = sleep(pause) => None,
            };
            match word {
                Some(RegistryEvent::Lost(why)) => return self.lose(why),
                Some(RegistryEvent::Broken) => {
                    // If the agent is there, it has freed the slot with its connection, unless that was TCP.
                    if let Err(why) = self.resume(&mut opened, &mut absent).await {
                        self.why_lost = Some(self.gone(why));
                        return Stop::AtOnce;
                    }
                }
                None => {}
            }
            let asked = Moment::now();
            // A connection that is dead without a word must not take all the time that there is.
            pause = match timeout(pause.max(PATIENCE), self.renew()).await {
                Ok(Ok(stands)) => {
                    renewed(asked, stands);
                    (stands / 3).min(OFTEN)
                }
                Ok(Err(Error::Lost)) => return self.refused().await,
                Ok(Err(why)) if why.class() == Class::Lost => return self.lose(why),
                // If the agent is gone, that is heard on the slot's own connection.
                Ok(Err(_)) | Err(_) => RETRY.min(self.ttl / 20),
            };
        }
    }

    /// Goes on at the next agent, however long it takes until it is there.
    async fn resume(
        &mut self,
        opened: &mut impl FnMut(Arc<OwnedFd>),
        absent: &mut impl AsyncFnMut(),
    ) -> Result<(), Error> {
        loop {
            match self.take_up(&mut *opened).await? {
                Next::Here => return Ok(()),
                Next::Absent => absent().await,
                Next::Busy => {}
            }
            sleep(RETRY.min(self.ttl / 20)).await;
        }
    }

    /// Asks the agent that is there for what one before it has granted.
    async fn take_up(&mut self, opened: impl FnOnce(Arc<OwnedFd>)) -> Result<Next, Error> {
        let Holder::Agent(AgentSlot { agent, lines, .. }) = &mut self.holder else { return Err(Error::Lost) };
        match take_up(agent, &self.granted, opened).await {
            Ok(taken_up) => {
                *lines = Some(taken_up);
                Ok(Next::Here)
            }
            Err(why) if why.class() == Class::Lost => Err(why),
            Err(Error::NoAgent { .. }) => Ok(Next::Absent),
            Err(_) => Ok(Next::Busy),
        }
    }

    /// Why it is lost if the agent that is there does not have it.
    fn gone(&self, why: Error) -> Error {
        match (&self.holder, why) {
            (Holder::Agent(AgentSlot { agent, .. }), Error::Lost) => {
                let why = "the agent that answers there now does not have the slot any more".to_owned();
                Error::Broken { endpoint: agent.endpoint().to_string(), why }
            }
            (_, why) => why,
        }
    }

    /// Why it was lost, once it is and the other side has told.
    pub fn why_lost(&self) -> Option<&Error> {
        self.why_lost.as_ref()
    }

    /// A renewal was refused because the grant is not valid. The other side keeps a lost slot until the end of its
    /// lease only if it has said so before: without that, others may hold the slot already.
    async fn refused(&mut self) -> Stop {
        let word = tokio::select! {
            biased;
            word = self.word() => Some(word),
            () = ready(()) => None,
        };
        match word {
            Some(RegistryEvent::Lost(why)) => self.lose(why),
            Some(RegistryEvent::Broken) | None => {
                self.why_lost = Some(Error::Lost);
                Stop::AtOnce
            }
        }
    }

    /// Whoever was forced out, or has lost the slot with the session, is not alone any more.
    fn lose(&mut self, why: Error) -> Stop {
        let is_over = matches!(why, Error::Revoked { forced: true, .. } | Error::SessionLost { .. });
        self.why_lost = Some(why);
        if is_over { Stop::AtOnce } else { Stop::InGrace }
    }

    async fn word(&mut self) -> RegistryEvent {
        let lines = match &mut self.holder {
            Holder::Peer(_, grant) => {
                grant.lost().await;
                return RegistryEvent::Lost(grant.why_lost().unwrap_or(Error::Lost));
            }
            Holder::Agent(slot) => &mut slot.lines,
        };
        let Some(open) = lines else { return pending().await };
        loop {
            match open.next().await {
                Ok(Line::Waiting(_) | Line::Granted(_) | Line::Alive { .. }) => {}
                Ok(Line::Lost { why }) => return RegistryEvent::Lost(why.map_or(Error::Lost, |why| why.0)),
                Ok(Line::Failed(why)) => return RegistryEvent::Lost(why.0),
                Err(_) => {
                    *lines = None;
                    return RegistryEvent::Broken;
                }
            }
        }
    }

    /// Gives it back, and tells whether it stood until then.
    ///
    /// # Errors
    /// [`Error::Lost`] if it did not.
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

    /// The connection is given up only after the answer: its end says the same, with less certainty.
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

/// Ends a connection at once, whoever has a copy of it.
pub(crate) fn hang_up(socket: &OwnedFd) {
    // Without a free descriptor the end comes when the runtime drops the connection.
    if let Ok(copy) = socket.try_clone() {
        _ = UnixStream::from(copy).shutdown(Shutdown::Both);
    }
}

/// Gives a slot back, also at the next agent, which would keep it until the end of its lease.
async fn release(agent: &Agent, granted: &Granted) -> Result<(), Error> {
    let since = Instant::now();
    loop {
        match agent.release(granted.name.as_str(), &granted.grant).await {
            Err(Error::NoAgent { .. } | Error::Broken { .. }) if since.elapsed() < RELEASING => sleep(RETRY).await,
            released => return released,
        }
    }
}

/// Asks an agent for what one before it has granted.
async fn take_up(agent: &Agent, granted: &Granted, opened: impl FnOnce(Arc<OwnedFd>)) -> Result<Lines, Error> {
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
