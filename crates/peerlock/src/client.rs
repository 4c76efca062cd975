//! One set of verbs, whoever is asked.

use std::time::{Duration, SystemTime};

use peerlock_http::client::Events as AgentEvents;
use peerlock_service::{
    Acquire, ClusterView, Error, Event, Grant as PeerGrant, Granted, Happening, Listing, Name, PeerId, PeerView,
    Progress, Request, ResourceDetails, ResourceView,
};
use tokio::sync::broadcast::{Receiver, error::RecvError};
use tokio::time::sleep;

use crate::hold::{Hold, RETRY};
use crate::{Agent, Grant, Peer, waiting};

/// Whom this process asks for slots. Copies are the same client.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), peerlock::Error> {
/// use std::time::Duration;
/// use peerlock::{Class, Request};
///
/// # let client = peerlock::testing::Network::new().peer().await?.client();
/// let grant = client.acquire(Request::new("nightly-backup").slots(3).wait(Duration::from_secs(60))).await?;
/// println!("inside with fencing number {}", grant.fencing());
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
    /// The agent of this machine, which is one.
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
    /// Waits in line for a slot, and holds it until the [`Grant`] is dropped or released; its lease is renewed in the
    /// background. Dropping the future withdraws, or gives back what was granted meanwhile.
    ///
    /// A request that waits at an agent which ends is made again at the next one, within the same
    /// [`wait`](Request::wait), if that one is there within 30 seconds. Its place in the queue is a new one.
    ///
    /// # Errors
    /// See [`Error`]. Whatever they say, nothing is held and nothing waited for.
    pub async fn acquire(&self, request: impl Into<Request>) -> Result<Grant, Error> {
        self.acquire_showing(request, |_| {}).await
    }

    /// As [`acquire`](Self::acquire), and tells of the place in line whenever it changes.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
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
                Ok(Grant::of_peer(grant.granted(grant.id().to_string(), asked), grant))
            }
            Self::Agent(_) => {
                let (_, grace) = request.lease();
                Grant::retained(self.hold(request, progress).await?, grace).await
            }
        }
    }

    /// A slot if one is free and nobody waits for it.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), but that others were first is no error.
    pub async fn try_acquire(&self, request: impl Into<Request>) -> Result<Option<Grant>, Error> {
        match self.acquire(request.into().try_only()).await {
            Ok(grant) => Ok(Some(grant)),
            Err(Error::NotAcquired { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// As [`acquire_showing`](Self::acquire_showing), but the caller [renews](Hold::renew) the lease: for those who
    /// want to lose the slot when they are frozen.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub async fn hold(&self, request: impl Into<Request>, progress: impl FnMut(Progress)) -> Result<Hold, Error> {
        self.hold_with(request, progress, || sleep(RETRY)).await
    }

    /// As [`hold`](Self::hold). When the agent ends during the wait, calls `absent` again and again until the next one
    /// is there: it may start it, and sets how often that one is looked for.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
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
                Ok(Hold::of_peer(grant.granted(grant.id().to_string(), asked), ttl, peer.service.clone(), grant))
            }
            Self::Agent(Agent(agent)) => {
                let (granted, lines) = waiting::hold(agent, &request, progress, absent).await?;
                Ok(Hold::of_agent(granted, ttl, agent.clone(), lines))
            }
        }
    }

    /// Waits in line for a slot that then stands until its lease ends, whatever becomes of this process, unless
    /// somebody [renews](Self::renew) or [releases](Self::release) it by the name that this returns. It is not asked
    /// for again if the agent ends meanwhile: that may have granted it without a word, and the slot then stays held
    /// until its lease ends.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_detached(&self, request: impl Into<Request>) -> Result<Granted, Error> {
        match self {
            Self::Peer(peer) => {
                let asked = peer.service.now();
                let grant = peer.service.acquire_detached(request).await?;
                let granted = grant.granted(grant.id().to_string(), asked);
                grant.detach();
                Ok(granted)
            }
            Self::Agent(Agent(agent)) => agent.acquire(&request.into()).await,
        }
    }

    /// Renews the lease of a detached grant: how long it stands, counted from before this was called.
    ///
    /// # Errors
    /// [`Error::Lost`] if it does not stand any more.
    pub async fn renew(&self, name: &str, grant: &str) -> Result<Duration, Error> {
        match self {
            Self::Peer(peer) => {
                let asked = peer.service.now();
                Ok(peer.service.renew(&grant.parse()?).await?.since(asked))
            }
            Self::Agent(Agent(agent)) => agent.renew(name, grant).await,
        }
    }

    /// Gives a detached grant back.
    ///
    /// # Errors
    /// [`Error::Lost`] if it did not stand any more.
    pub async fn release(&self, name: &str, grant: &str) -> Result<(), Error> {
        match self {
            Self::Peer(peer) => peer.service.release(&grant.parse()?).await,
            Self::Agent(Agent(agent)) => agent.release(name, grant).await,
        }
    }

    /// Who is inside a resource and who waits, in the whole cluster.
    ///
    /// # Errors
    /// [`Error::NoSuchResource`]; [`Error::NoMajority`] or [`Error::Recovering`] if nobody can tell now.
    pub async fn show(&self, name: &str) -> Result<ResourceDetails, Error> {
        match self {
            Self::Peer(peer) => peer.service.show(name).await,
            Self::Agent(Agent(agent)) => agent.show(name).await,
        }
    }

    /// All resources of the cluster, by name.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn resources(&self) -> Result<Vec<ResourceView>, Error> {
        self.list(&Listing::default()).await
    }

    /// Some of the resources of the cluster, by name: those with a prefix, or a page of them.
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
    /// [`Error::BadName`] if no name can begin so; see [`Error`].
    pub async fn list(&self, listing: &Listing) -> Result<Vec<ResourceView>, Error> {
        match self {
            Self::Peer(peer) => peer.service.list(listing.clone()).await,
            Self::Agent(Agent(agent)) => agent.list(listing).await,
        }
    }

    /// Everybody in the cluster, the peer or agent itself first: as a voter knows it, or it by itself if none can be
    /// reached.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn peers(&self) -> Result<Vec<PeerView>, Error> {
        match self {
            Self::Peer(peer) => peer.service.cluster().await.map(|cluster| cluster.peers),
            Self::Agent(Agent(agent)) => agent.peers().await,
        }
    }

    /// The cluster as a voter knows it: its members, who votes and who has a session.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn cluster(&self) -> Result<ClusterView, Error> {
        match self {
            Self::Peer(peer) => peer.service.cluster().await,
            Self::Agent(Agent(agent)) => agent.cluster().await,
        }
    }

    /// Gives a resource another number of slots. Those that are too many go when they are left.
    ///
    /// # Errors
    /// [`Error::NoSuchResource`], and see [`Error`].
    pub async fn resize(&self, name: &str, slots: u32) -> Result<(), Error> {
        match self {
            Self::Peer(peer) => peer.service.resize(name, slots).await,
            Self::Agent(Agent(agent)) => agent.resize(name, slots).await,
        }
    }

    /// Removes a name that nobody uses: the cluster forgets it and its number of slots. Who asks for it later founds it
    /// again, with higher fencing numbers.
    ///
    /// # Errors
    /// [`Error::InUse`] if somebody holds a slot of it or waits, and nothing has changed; [`Error::NoSuchResource`];
    /// and see [`Error`].
    pub async fn remove(&self, name: &str) -> Result<(), Error> {
        match self {
            Self::Peer(peer) => peer.service.remove(name).await,
            Self::Agent(Agent(agent)) => agent.remove(name).await,
        }
    }

    /// Asks whoever is inside with this fencing number to stop, as [`show`](Self::show) has it, wherever in the cluster
    /// that is, and returns when it has, or its lease has ended. A [`Grant`] is [lost](Grant::lost) by that; what is
    /// detached has no process that could be asked, and ends at once.
    ///
    /// # Errors
    /// [`Error::Lost`] if nobody is inside with it; that its host cannot be reached; and see [`Error`].
    pub async fn revoke(&self, name: &str, fencing: u64) -> Result<(), Error> {
        match self {
            Self::Peer(peer) => peer.service.revoke(name, fencing).await,
            Self::Agent(Agent(agent)) => agent.revoke(name, fencing).await,
        }
    }

    /// Takes away by force all that a host has of a resource: others get its slots at once, though its clients may
    /// still be inside. Only the fencing number protects what they do then.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn expel(&self, name: &str, peer: PeerId) -> Result<(), Error> {
        match self {
            Self::Peer(me) => me.service.expel(name, peer).await,
            Self::Agent(Agent(agent)) => agent.expel(name, peer).await,
        }
    }

    /// Says which hosts vote; `None` leaves it to the cluster.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn set_voters(&self, hosts: Option<Vec<PeerId>>) -> Result<(), Error> {
        match self {
            Self::Peer(peer) => peer.service.set_voters(hosts).await,
            Self::Agent(Agent(agent)) => agent.set_voters(hosts).await,
        }
    }

    /// Removes a member that will not return. If it does, it joins like a new one.
    ///
    /// # Errors
    /// That the host has a session, votes, or has given a valid grant; see [`Error`].
    pub async fn forget_host(&self, host: PeerId) -> Result<(), Error> {
        match self {
            Self::Peer(peer) => peer.service.forget_host(host).await,
            Self::Agent(Agent(agent)) => agent.forget_host(host).await,
        }
    }

    /// What happens at the peer or agent from now on, of one resource or of everything.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn events(&self, name: Option<&str>) -> Result<Events, Error> {
        Ok(Events(match self {
            Self::Peer(peer) => Source::Peer(peer.service.events(), name.map(str::parse).transpose()?),
            Self::Agent(Agent(agent)) => Source::Agent(agent.events(name).await?),
        }))
    }

    /// Says goodbye to the cluster if this process is a member of it: what it holds is lost, and the others get what it
    /// had for them. An agent stays.
    pub async fn leave(&self) {
        if let Self::Peer(peer) = self {
            peer.leave().await;
        }
    }
}

/// Waits for a grant, and tells of the place in line.
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

/// What happens at a peer or agent.
#[derive(Debug)]
pub struct Events(Source);

#[derive(Debug)]
enum Source {
    Peer(Receiver<Happening>, Option<Name>),
    Agent(AgentEvents),
}

impl Events {
    /// The next event; `None` when the peer or agent has stopped. Cancel-safe. A slow reader misses the oldest, and
    /// is told by [`Event::Missed`].
    ///
    /// # Errors
    /// [`Error::Broken`].
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
