//! The client of a peer or an agent.

use std::time::{Duration, SystemTime};

use peerlock_http::client::Events as AgentEvents;
use peerlock_service::verb::Verb;
use peerlock_service::{
    Acquire, Error, Event, Grant as PeerGrant, Granted, Happening, Listing, Name, PeerView, Progress, Request,
    ResourceView, async_methods,
};
use tokio::sync::broadcast::{Receiver, error::RecvError};
use tokio::time::sleep;

use crate::hold::{Hold, RETRY};
use crate::{Agent, Grant, Peer, waiting};

/// A client of a peer in this process, or of an agent. Clones are handles of the same client.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), peerlock::Error> {
/// use std::time::Duration;
/// use peerlock::{Class, Request};
///
/// # let client = peerlock::testing::Network::new().peer().await?.client();
/// let grant = client.acquire(Request::new("nightly-backup").slots(3).wait(Duration::from_secs(60))).await?;
/// println!("fencing number {}", grant.fencing());
/// grant.release().await?;
///
/// let grant = client.acquire("invoices").await?;
/// assert!(client.try_acquire("invoices").await?.is_none());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Client {
    /// A member of the cluster in this process.
    Peer(Peer),
    /// An agent.
    Agent(Agent),
}

impl From<Peer> for Client {
    fn from(peer: Peer) -> Self {
        Self::Peer(peer)
    }
}

impl From<Agent> for Client {
    fn from(agent: Agent) -> Self {
        Self::Agent(agent)
    }
}

impl Client {
    /// Waits for a slot, and holds it until the [`Grant`] is dropped or released. The lease is renewed in the
    /// background. Dropping the future withdraws the request, or releases the grant.
    ///
    /// If the agent ends during the wait, the request is repeated at the next agent if that starts within 30 seconds.
    /// The [`wait`](Request::wait) includes that time, and the queue position is a new one.
    ///
    /// # Errors
    /// See [`Error`]. After any error, no slot is held and no request waits.
    pub async fn acquire(&self, request: impl Into<Request>) -> Result<Grant, Error> {
        self.acquire_showing(request, |_| {}).await
    }

    /// Like [`acquire`](Self::acquire), and calls `progress` whenever the queue position changes.
    pub async fn acquire_showing(
        &self,
        request: impl Into<Request>,
        progress: impl FnMut(Progress),
    ) -> Result<Grant, Error> {
        let request = request.into();
        match self {
            Self::Peer(peer) => {
                let (request, asked) = (request.pid(std::process::id()), peer.service.now());
                let grant = follow(peer.service.acquire(request), progress).await?;
                Ok(Grant::of_peer(grant.granted(asked), grant))
            }
            Self::Agent(_) => {
                let (_, grace) = request.lease();
                Grant::maintained(self.hold(request, progress).await?, grace).await
            }
        }
    }

    /// Acquires a slot if one is free and no other request waits; otherwise returns `None`.
    ///
    /// # Errors
    /// Those of [`acquire`](Self::acquire), except [`Error::NotAcquired`].
    pub async fn try_acquire(&self, request: impl Into<Request>) -> Result<Option<Grant>, Error> {
        match self.acquire(request.into().try_only()).await {
            Ok(grant) => Ok(Some(grant)),
            Err(Error::NotAcquired { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Like [`acquire_showing`](Self::acquire_showing), but the caller [renews](Hold::renew) the lease, so that a
    /// frozen caller loses the slot.
    pub async fn hold(&self, request: impl Into<Request>, progress: impl FnMut(Progress)) -> Result<Hold, Error> {
        self.hold_with(request, progress, || sleep(RETRY)).await
    }

    /// Like [`hold`](Self::hold). If the agent ends during the wait, calls `absent` before each attempt to reach the
    /// next one; `absent` may start it.
    pub async fn hold_with<F: Future<Output = ()>>(
        &self,
        request: impl Into<Request>,
        progress: impl FnMut(Progress),
        absent: impl FnMut() -> F,
    ) -> Result<Hold, Error> {
        let request = request.into();
        let (ttl, _) = request.lease();
        match self {
            Self::Peer(peer) => {
                let (request, asked) = (request.pid(std::process::id()), peer.service.now());
                let grant = follow(peer.service.hold(request), progress).await?;
                Ok(Hold::of_peer(grant.granted(asked), ttl, peer.service.clone(), grant))
            }
            Self::Agent(Agent(agent)) => {
                let (granted, lines) = waiting::hold(agent, &request, progress, absent).await?;
                Ok(Hold::of_agent(granted, ttl, agent.clone(), lines))
            }
        }
    }

    /// Waits for a slot that stays held until its lease expires, even if this process ends, unless it is
    /// [renewed](Self::renew) or [released](Self::release) by the grant's ID. The request is not repeated if the agent
    /// ends: it may have granted the slot without an answer, and the slot then stays held until its lease expires.
    pub async fn acquire_detached(&self, request: impl Into<Request>) -> Result<Granted, Error> {
        match self {
            Self::Peer(peer) => {
                let asked = peer.service.now();
                let grant = peer.service.acquire_detached(request).await?;
                let granted = grant.granted(asked);
                grant.detach();
                Ok(granted)
            }
            Self::Agent(Agent(agent)) => agent.acquire(&request.into()).await,
        }
    }

    /// Renews a detached grant. Returns its lease duration, counted from before the call.
    ///
    /// # Errors
    /// [`Error::Lost`] if the grant is no longer valid.
    pub async fn renew(&self, name: &str, grant: &str) -> Result<Duration, Error> {
        match self {
            Self::Peer(peer) => {
                let asked = peer.service.now();
                Ok(peer.service.renew(&grant.parse()?).await?.since(asked))
            }
            Self::Agent(Agent(agent)) => agent.renew(name, grant).await,
        }
    }

    /// Releases a detached grant.
    ///
    /// # Errors
    /// [`Error::Lost`] if the grant was no longer valid.
    pub async fn release(&self, name: &str, grant: &str) -> Result<(), Error> {
        match self {
            Self::Peer(peer) => peer.service.release(&grant.parse()?).await,
            Self::Agent(Agent(agent)) => agent.release(name, grant).await,
        }
    }

    peerlock_service::verbs!(async_methods);

    async fn call<V: Verb>(&self, verb: V) -> Result<V::Reply, Error> {
        match self {
            Self::Peer(peer) => peer.service.call(verb).await,
            Self::Agent(Agent(agent)) => agent.call(verb).await,
        }
    }

    /// Returns all resources of the cluster, by name.
    pub async fn resources(&self) -> Result<Vec<ResourceView>, Error> {
        self.list(&Listing::default()).await
    }

    /// Returns the selected resources of the cluster, by name.
    ///
    /// ```no_run
    /// # async fn page(client: peerlock::Client) -> Result<(), peerlock::Error> {
    /// use peerlock::Listing;
    /// let mut listing = Listing { limit: Some(100), ..Listing::of("backup/") };
    /// loop {
    ///     let page = client.list(&listing).await?;
    ///     let Some(last) = page.last() else { break };
    ///     listing.after = Some(last.name.clone());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::BadName`] if the prefix is invalid; see [`Error`].
    pub async fn list(&self, listing: &Listing) -> Result<Vec<ResourceView>, Error> {
        match self {
            Self::Peer(peer) => peer.service.list(listing.clone()).await,
            Self::Agent(Agent(agent)) => agent.list(listing).await,
        }
    }

    /// Returns the members of the cluster, this peer or agent first, as in [`cluster`](Self::cluster).
    pub async fn peers(&self) -> Result<Vec<PeerView>, Error> {
        self.cluster().await.map(|cluster| cluster.peers)
    }

    /// Returns the events of the peer or agent from now on, of one resource or of all.
    pub async fn events(&self, name: Option<&str>) -> Result<Events, Error> {
        Ok(Events(match self {
            Self::Peer(peer) => Source::Peer(peer.service.events(), name.map(str::parse).transpose()?),
            Self::Agent(Agent(agent)) => Source::Agent(agent.events(name).await?),
        }))
    }

    /// [Leaves](Peer::leave) the cluster, if this process is a member of it. An agent stays.
    pub async fn leave(&self) {
        if let Self::Peer(peer) = self {
            peer.leave().await;
        }
    }
}

async fn follow(acquire: Acquire, mut notify: impl FnMut(Progress)) -> Result<PeerGrant, Error> {
    let mut progress = acquire.progress();
    tokio::pin!(acquire);
    loop {
        tokio::select! {
            biased;
            grant = &mut acquire => return grant,
            Ok(()) = progress.changed() => notify(*progress.borrow_and_update()),
        }
    }
}

/// The events of a peer or agent.
#[derive(Debug)]
pub struct Events(Source);

#[derive(Debug)]
enum Source {
    Peer(Receiver<Happening>, Option<Name>),
    Agent(AgentEvents),
}

impl Events {
    /// Returns the next event; `None` when the peer or agent has stopped. Cancel-safe. A slow receiver misses the
    /// oldest events, and receives their number in [`Event::Missed`].
    pub async fn next(&mut self) -> Result<Option<Happening>, Error> {
        let (events, name) = match &mut self.0 {
            Source::Peer(events, name) => (events, name),
            Source::Agent(events) => return events.next().await,
        };
        loop {
            match events.recv().await {
                Ok(happening) if name.as_ref().is_none_or(|name| happening.event.is_about(name)) => {
                    return Ok(Some(happening));
                }
                Ok(_) => {}
                Err(RecvError::Lagged(count)) => {
                    let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                    return Ok(Some(Happening { at, event: Event::Missed { count } }));
                }
                Err(RecvError::Closed) => return Ok(None),
            }
        }
    }
}
