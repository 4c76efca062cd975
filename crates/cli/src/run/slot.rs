//! A slot for a command: from the agent of this machine, or from a peer that this process is itself.

use std::convert::Infallible;
use std::future::pending;
use std::time::{Duration, Instant};

use peerlock_http::client::{Agent, Error as AgentError, Hold};
use peerlock_http::{Granted, Line, Waiting, Want};
use peerlock_service::{Error as ServiceError, Grant, Resource, Service};
use peerlock_supervise::Moment;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::lease::Lease;
use crate::Result;
use crate::here::Here;

/// How long to wait for the word that a slot was given back. It is free before that, or when we are gone.
const RELEASING: Duration = Duration::from_secs(5);

/// Where slots come from.
pub enum Source {
    Own(Box<Here>),
    Agent(Agent),
}

/// A slot that is held. It must be renewed.
pub struct Slot {
    pub granted: Granted,
    holder: Holder,
}

enum Holder {
    Own(Service, Grant),
    /// The connection that the slot belongs to, while there is one.
    Agent(Agent, Option<Hold>),
}

/// What the other side says of a slot while it is held.
enum Word {
    /// Stop.
    Lost,
    /// The connection is gone. If the agent still runs, so is the slot.
    Broken,
}

impl Source {
    /// Asks for a slot and waits. Dropping the future withdraws.
    pub async fn acquire(&self, name: &str, want: &Want, mut progress: impl FnMut(Waiting)) -> Result<Slot> {
        match self {
            Self::Own(here) => own(&here.peer, name, want, progress).await,
            Self::Agent(agent) => {
                let mut hold = agent.hold(name, want).await?;
                loop {
                    match hold.next().await? {
                        Line::Waiting(waiting) => progress(waiting),
                        Line::Granted(granted) => {
                            return Ok(Slot { granted, holder: Holder::Agent(agent.clone(), Some(hold)) });
                        }
                        Line::Lost {} => return Err(ServiceError::Lost.into()),
                        Line::Failed(failure) => return Err(AgentError::from(failure).into()),
                    }
                }
            }
        }
    }

    /// Nothing more is wanted.
    pub async fn leave(self) {
        if let Self::Own(here) = self {
            here.leave().await;
        }
    }
}

async fn own(service: &Service, name: &str, want: &Want, mut show: impl FnMut(Waiting)) -> Result<Slot> {
    let asked = Instant::now();
    let acquire = resource(service, name, want).acquire();
    let mut progress = acquire.progress();
    tokio::pin!(acquire);
    let grant = loop {
        tokio::select! {
            biased;
            grant = &mut acquire => break grant?,
            Ok(()) = progress.changed() => show((*progress.borrow_and_update()).into()),
        }
    };
    let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let granted = Granted {
        grant: grant.id().to_string(),
        name: name.to_owned(),
        slot: grant.slot(),
        fencing: grant.fencing(),
        ttl_ms: want.ttl_ms.unwrap_or_default(),
        waited_ms: ms(asked.elapsed()),
    };
    Ok(Slot { granted, holder: Holder::Own(service.clone(), grant) })
}

fn resource(service: &Service, name: &str, want: &Want) -> Resource {
    let ms = Duration::from_millis;
    // We renew it ourselves, so that both clocks, the command's and the slot's, begin with the same word.
    let resource = service.resource(name).renewed_by_client();
    let mut resource = resource.label(want.label.clone().unwrap_or_default());
    if let Some(slots) = want.slots {
        resource = resource.slots(slots);
    }
    if let Some(ttl) = want.ttl_ms {
        resource = resource.ttl(ms(ttl));
    }
    if let Some(grace) = want.grace_ms {
        resource = resource.grace(ms(grace));
    }
    match want.wait_ms {
        _ if want.try_only => resource.try_only(),
        Some(wait) => resource.wait(ms(wait)),
        None => resource,
    }
}

impl Slot {
    /// Renews the lease: by when the command must be over then. The clock is read before the renewal is asked for, so
    /// whatever the other side counts from is later.
    pub async fn renew(&self, lease: &Lease) -> Result<Moment> {
        let asked = Moment::now();
        let stands = match &self.holder {
            Holder::Own(service, grant) => service.renew(grant.id()).await.map(|_| lease.ttl)?,
            Holder::Agent(agent, _) => agent.renew(&self.granted.name, &self.granted.grant).await?,
        };
        Ok(lease.end(asked, stands.min(lease.ttl)))
    }

    /// Renews the lease every third of it, for as long as that is possible, and never ends.
    pub async fn keep(&mut self, lease: &Lease, end: &watch::Sender<Moment>) -> Infallible {
        let mut pause = lease.ttl / 3;
        let mut broken = false;
        loop {
            let word = tokio::select! {
                biased;
                word = self.word() => Some(word),
                () = sleep(pause) => None,
            };
            match word {
                Some(Word::Lost) => return stop(end, lease.time_to_stop()).await,
                Some(Word::Broken) => broken = true,
                None => {}
            }
            pause = match self.renew(lease).await {
                // The agent is there, and frees the slot with its connection, if it has not yet: somebody else may be inside.
                Ok(_) if broken => return stop(end, Duration::ZERO).await,
                Err(error) if broken && error.is_lost() => return stop(end, Duration::ZERO).await,
                Ok(renewed) => {
                    end.send_replace(renewed);
                    lease.ttl / 3
                }
                Err(error) if error.is_lost() => return stop(end, lease.time_to_stop()).await,
                // The agent may come back before the lease ends.
                Err(_) => lease.ttl / 20,
            };
        }
    }

    /// The next that the agent says of it; nothing if there is no agent.
    async fn word(&mut self) -> Word {
        let Holder::Agent(_, hold) = &mut self.holder else { return pending().await };
        let Some(open) = hold else { return pending().await };
        loop {
            match open.next().await {
                Ok(Line::Waiting(_) | Line::Granted(_)) => {}
                Ok(Line::Lost {} | Line::Failed(_)) => return Word::Lost,
                Err(_) => {
                    *hold = None;
                    return Word::Broken;
                }
            }
        }
    }

    /// Gives it back.
    pub async fn release(self) {
        let release = async {
            match self.holder {
                Holder::Own(_, grant) => grant.release().await.is_ok(),
                // The connection, too, is given up only then: its end says the same, with less certainty.
                Holder::Agent(agent, _hold) => agent.release(&self.granted.name, &self.granted.grant).await.is_ok(),
            }
        };
        // If it was lost, or nobody answers, there is nothing to give back.
        let _gone = timeout(RELEASING, release).await;
    }
}

/// The slot is lost: the command has so long to stop, unless it has less already.
async fn stop(end: &watch::Sender<Moment>, time_to_stop: Duration) -> Infallible {
    end.send_modify(|end| *end = (*end).min(Moment::now() + time_to_stop));
    pending().await
}
