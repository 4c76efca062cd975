//! A slot whose lease its holder renews.

use std::future::pending;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use peerlock_http::Line;
use peerlock_http::client::{Agent, Hold as Lines};
use peerlock_service::{Class, Error, Grant as PeerGrant, Granted, Moment, Service};
use tokio::time::sleep;

/// A lease is renewed as often as this, however long it stands: so the connection that it was renewed on stays open,
/// and an agent that can take no new ones renews it all the same.
const OFTEN: Duration = Duration::from_secs(10);

/// How soon to ask again whether the agent is there, when the connection to it is gone.
const RETRY: Duration = Duration::from_millis(100);
/// How often it is tried to give a slot back when the agent is gone: for 5 s, since what keeps an agent running may
/// wait a second before it starts it again.
const RELEASES: u32 = 50;

/// A slot that is held for as long as this is there and its lease is renewed. Dropping it gives it back.
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
    /// The connection that the slot belongs to, while there is one.
    Agent(Agent, Option<Lines>),
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
enum Word {
    Lost(Error),
    /// The connection is gone. If the agent still runs, so is the slot; if not, the next one goes on with it.
    Broken,
}

impl Hold {
    pub(crate) fn of_peer(granted: Granted, ttl: Duration, service: Service, grant: PeerGrant) -> Self {
        Self { granted, ttl, holder: Holder::Peer(service, grant), why_lost: None }
    }

    pub(crate) fn of_agent(granted: Granted, ttl: Duration, agent: Agent, lines: Lines) -> Self {
        Self { granted, ttl, holder: Holder::Agent(agent, Some(lines)), why_lost: None }
    }

    /// What is held.
    pub fn granted(&self) -> &Granted {
        &self.granted
    }

    /// The connection that the slot belongs to, if it is an agent's: a process that has a copy of it keeps the slot,
    /// for as long as the lease stands.
    pub fn socket(&self) -> Option<Arc<OwnedFd>> {
        match &self.holder {
            Holder::Agent(_, Some(lines)) => Some(lines.socket()),
            Holder::Agent(_, None) | Holder::Peer(..) => None,
        }
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
            Holder::Agent(agent, _) => {
                let stands = agent.renew(self.granted.name.as_str(), &self.granted.grant).await?;
                Ok(stands.min(self.ttl))
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
    /// `opened` gets each connection that the slot is to belong to. If none comes before the lease ends: who keeps a
    /// slot must stop by itself when the last that it was told is over.
    pub async fn keep(
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
                Some(Word::Lost(why)) => return self.lose(why),
                Some(Word::Broken) => {
                    // If the agent is there, it has freed the slot with its connection.
                    if let Err(why) = self.resume(&mut opened, &mut absent).await {
                        self.why_lost = Some(self.gone(why));
                        return Stop::AtOnce;
                    }
                }
                None => {}
            }
            let asked = Moment::now();
            pause = match self.renew().await {
                Ok(stands) => {
                    renewed(asked, stands);
                    (stands / 3).min(OFTEN)
                }
                Err(why) if why.class() == Class::Lost => return self.lose(why),
                // If the agent is gone, that is heard on the slot's own connection.
                Err(_) => RETRY.min(self.ttl / 20),
            };
        }
    }

    /// Goes on at the next agent, if this one is gone, as [`keep`](Self::keep) does: `absent` is called as long as
    /// there is none.
    ///
    /// # Errors
    /// [`Error::Lost`] if the slot is not to be had any more.
    pub async fn go_on(&mut self, mut absent: impl AsyncFnMut()) -> Result<(), Error> {
        self.resume(&mut |_| {}, &mut absent).await
    }

    /// Goes on at the next agent, however long it takes until it is there.
    async fn resume(
        &mut self,
        opened: &mut impl FnMut(Arc<OwnedFd>),
        absent: &mut impl AsyncFnMut(),
    ) -> Result<(), Error> {
        let Holder::Agent(agent, lines) = &mut self.holder else { return Err(Error::Lost) };
        loop {
            match take_up(agent, &self.granted, &mut *opened).await {
                Ok(taken_up) => {
                    *lines = Some(taken_up);
                    return Ok(());
                }
                Err(why) if why.class() == Class::Lost => return Err(why),
                Err(Error::NoAgent { .. }) => absent().await,
                Err(_) => {}
            }
            sleep(RETRY.min(self.ttl / 20)).await;
        }
    }

    /// Why it is lost if the agent that is there does not have it.
    fn gone(&self, why: Error) -> Error {
        match (&self.holder, why) {
            (Holder::Agent(agent, _), Error::Lost) => {
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

    /// Whoever was forced out, or has lost the slot with the session, is not alone any more.
    fn lose(&mut self, why: Error) -> Stop {
        let is_over = matches!(why, Error::Revoked { forced: true, .. } | Error::SessionLost { .. });
        self.why_lost = Some(why);
        if is_over { Stop::AtOnce } else { Stop::InGrace }
    }

    async fn word(&mut self) -> Word {
        let lines = match &mut self.holder {
            Holder::Peer(_, grant) => {
                grant.lost().await;
                return Word::Lost(grant.why_lost().unwrap_or(Error::Lost));
            }
            Holder::Agent(_, lines) => lines,
        };
        let Some(open) = lines else { return pending().await };
        loop {
            match open.next().await {
                Ok(Line::Waiting(_) | Line::Granted(_)) => {}
                Ok(Line::Lost { why }) => return Word::Lost(why.map_or(Error::Lost, |why| why.0)),
                Ok(Line::Failed(why)) => return Word::Lost(why.0),
                Err(_) => {
                    *lines = None;
                    return Word::Broken;
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
            // The connection, too, is given up only then: its end says the same, with less certainty.
            Holder::Agent(agent, _lines) => {
                let mut tries = 0..RELEASES;
                loop {
                    match agent.release(self.granted.name.as_str(), &self.granted.grant).await {
                        // The next agent would keep the slot until the end of its lease.
                        Err(Error::NoAgent { .. } | Error::Broken { .. }) if tries.next().is_some() => {
                            sleep(RETRY).await
                        }
                        released => return released,
                    }
                }
            }
        }
    }
}

/// Asks an agent for what one before it has granted.
async fn take_up(agent: &Agent, granted: &Granted, opened: impl FnOnce(Arc<OwnedFd>)) -> Result<Lines, Error> {
    let mut lines = agent.resume(granted.name.as_str(), &granted.grant, opened).await?;
    loop {
        match lines.next().await? {
            Line::Waiting(_) => {}
            Line::Granted(_) => return Ok(lines),
            Line::Lost { why } => return Err(why.map_or(Error::Lost, |why| why.0)),
            Line::Failed(why) => return Err(why.0),
        }
    }
}
