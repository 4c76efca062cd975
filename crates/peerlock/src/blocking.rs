//! The same without async: for applications that have threads and no runtime.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use peerlock::blocking::Client;
//!
//! let client = Client::agent()?; // or Client::peer(peerlock::Peer::builder().join("10.0.0.7"))?
//! let grant = client.acquire("nightly-backup")?; // waits in line
//! while !grant.is_lost() {
//!     // … a piece of the work
//! }
//! # Ok(()) }
//! ```
//!
//! A thread in the background speaks with the others and renews leases. None of this may be called within a tokio
//! runtime: there, use [`crate::Client`]. On its threads for what blocks (`spawn_blocking`) it may.

use std::sync::Arc;
use std::time::Duration;

use peerlock_service::{
    ClusterView, Error, Granted, Happening, Listing, PeerId, PeerView, Progress, Request, ResourceDetails, ResourceView,
};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::timeout;

use crate::{Agent, PeerBuilder, StartError};

/// How long a member may take to say goodbye when its last handle is dropped.
const GOODBYE: Duration = Duration::from_secs(10);

/// [`crate::Client`] for threads. Copies are the same client.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
}

/// The client, and the thread that works for it.
#[derive(Debug)]
struct Shared {
    client: crate::Client,
    /// There until this is dropped.
    runtime: Option<Runtime>,
}

/// [`crate::Grant`] for threads: the right to be inside. Dropping it gives it back.
#[derive(Debug)]
#[must_use = "dropping a grant gives it back"]
pub struct Grant {
    grant: crate::Grant,
    /// Last, so that there is somebody to give it back to.
    shared: Arc<Shared>,
}

/// [`crate::Hold`] for threads: a slot whose holder [renews](Self::renew) the lease. Dropping it gives it back.
#[derive(Debug)]
#[must_use = "dropping it gives the slot back"]
pub struct Hold {
    hold: crate::Hold,
    shared: Arc<Shared>,
}

/// [`crate::Events`] for threads: each [waits](Iterator::next) for the next one, until the peer or agent has stopped.
#[derive(Debug)]
pub struct Events {
    events: crate::Events,
    shared: Arc<Shared>,
}

impl Client {
    /// The agent of this machine: see [`Agent::here`].
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn agent() -> Result<Self, StartError> {
        Self::start(async { Ok(Agent::here()?.into()) })
    }

    /// A member of the cluster in this process. It leaves when the last copy of the client and its last grant is
    /// dropped, which may take ten seconds; within a tokio runtime another thread sees to that.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn peer(builder: PeerBuilder) -> Result<Self, StartError> {
        Self::start(async { Ok(builder.start().await?.into()) })
    }

    /// Whatever can be asked.
    fn start(client: impl Future<Output = Result<crate::Client, StartError>>) -> Result<Self, StartError> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().map_err(StartError::System)?;
        let client = runtime.block_on(client)?;
        Ok(Self { shared: Arc::new(Shared { client, runtime: Some(runtime) }) })
    }

    /// As [`crate::Client::acquire`].
    ///
    /// # Errors
    /// As [`crate::Client::acquire`].
    pub fn acquire(&self, request: impl Into<Request>) -> Result<Grant, Error> {
        let grant = self.shared.wait_for(self.shared.client.acquire(request))?;
        Ok(Grant { grant, shared: self.shared.clone() })
    }

    /// As [`crate::Client::try_acquire`].
    ///
    /// # Errors
    /// As [`crate::Client::try_acquire`].
    pub fn try_acquire(&self, request: impl Into<Request>) -> Result<Option<Grant>, Error> {
        let grant = self.shared.wait_for(self.shared.client.try_acquire(request))?;
        Ok(grant.map(|grant| Grant { grant, shared: self.shared.clone() }))
    }

    /// As [`crate::Client::acquire_showing`]: tells of the place in line whenever it changes, on the thread that waits.
    ///
    /// # Errors
    /// As [`crate::Client::acquire`].
    pub fn acquire_showing(&self, request: impl Into<Request>, progress: impl FnMut(Progress)) -> Result<Grant, Error> {
        let grant = self.shared.wait_for(self.shared.client.acquire_showing(request, progress))?;
        Ok(Grant { grant, shared: self.shared.clone() })
    }

    /// As [`crate::Client::hold`]: who is frozen loses the slot, since nothing renews it in the background.
    ///
    /// # Errors
    /// As [`crate::Client::hold`].
    pub fn hold(&self, request: impl Into<Request>, progress: impl FnMut(Progress)) -> Result<Hold, Error> {
        let hold = self.shared.wait_for(self.shared.client.hold(request, progress))?;
        Ok(Hold { hold, shared: self.shared.clone() })
    }

    /// As [`crate::Client::acquire_detached`]: a slot that outlives this process.
    ///
    /// # Errors
    /// As [`crate::Client::acquire_detached`].
    pub fn acquire_detached(&self, request: impl Into<Request>) -> Result<Granted, Error> {
        self.shared.wait_for(self.shared.client.acquire_detached(request))
    }

    /// As [`crate::Client::renew`]: for how long a detached grant stands from before this was called.
    ///
    /// # Errors
    /// As [`crate::Client::renew`].
    pub fn renew(&self, name: &str, grant: &str) -> Result<Duration, Error> {
        self.shared.wait_for(self.shared.client.renew(name, grant))
    }

    /// As [`crate::Client::release`]: gives a detached grant back.
    ///
    /// # Errors
    /// As [`crate::Client::release`].
    pub fn release(&self, name: &str, grant: &str) -> Result<(), Error> {
        self.shared.wait_for(self.shared.client.release(name, grant))
    }

    /// As [`crate::Client::show`].
    ///
    /// # Errors
    /// As [`crate::Client::show`].
    pub fn show(&self, name: &str) -> Result<ResourceDetails, Error> {
        self.shared.wait_for(self.shared.client.show(name))
    }

    /// As [`crate::Client::resources`].
    ///
    /// # Errors
    /// As [`crate::Client::resources`].
    pub fn resources(&self) -> Result<Vec<ResourceView>, Error> {
        self.shared.wait_for(self.shared.client.resources())
    }

    /// As [`crate::Client::list`].
    ///
    /// # Errors
    /// As [`crate::Client::list`].
    pub fn list(&self, listing: &Listing) -> Result<Vec<ResourceView>, Error> {
        self.shared.wait_for(self.shared.client.list(listing))
    }

    /// As [`crate::Client::peers`].
    ///
    /// # Errors
    /// As [`crate::Client::peers`].
    pub fn peers(&self) -> Result<Vec<PeerView>, Error> {
        self.shared.wait_for(self.shared.client.peers())
    }

    /// As [`crate::Client::cluster`].
    ///
    /// # Errors
    /// As [`crate::Client::cluster`].
    pub fn cluster(&self) -> Result<ClusterView, Error> {
        self.shared.wait_for(self.shared.client.cluster())
    }

    /// As [`crate::Client::resize`]: slots that are too many go when they are left.
    ///
    /// # Errors
    /// As [`crate::Client::resize`].
    pub fn resize(&self, name: &str, slots: u32) -> Result<(), Error> {
        self.shared.wait_for(self.shared.client.resize(name, slots))
    }

    /// As [`crate::Client::remove`]: only a name that nobody uses.
    ///
    /// # Errors
    /// As [`crate::Client::remove`].
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        self.shared.wait_for(self.shared.client.remove(name))
    }

    /// As [`crate::Client::revoke`]: returns when the holder has stopped, or its lease has ended.
    ///
    /// # Errors
    /// As [`crate::Client::revoke`].
    pub fn revoke(&self, name: &str, fencing: u64) -> Result<(), Error> {
        self.shared.wait_for(self.shared.client.revoke(name, fencing))
    }

    /// As [`crate::Client::expel`]: by force, so that only the fencing number protects what is done then.
    ///
    /// # Errors
    /// As [`crate::Client::expel`].
    pub fn expel(&self, name: &str, peer: PeerId) -> Result<(), Error> {
        self.shared.wait_for(self.shared.client.expel(name, peer))
    }

    /// As [`crate::Client::set_voters`].
    ///
    /// # Errors
    /// As [`crate::Client::set_voters`].
    pub fn set_voters(&self, hosts: Option<Vec<PeerId>>) -> Result<(), Error> {
        self.shared.wait_for(self.shared.client.set_voters(hosts))
    }

    /// As [`crate::Client::forget_host`].
    ///
    /// # Errors
    /// As [`crate::Client::forget_host`].
    pub fn forget_host(&self, host: PeerId) -> Result<(), Error> {
        self.shared.wait_for(self.shared.client.forget_host(host))
    }

    /// As [`crate::Client::events`]: from now on, of one resource or of everything.
    ///
    /// # Errors
    /// As [`crate::Client::events`].
    pub fn events(&self, name: Option<&str>) -> Result<Events, Error> {
        let events = self.shared.wait_for(self.shared.client.events(name))?;
        Ok(Events { events, shared: self.shared.clone() })
    }
}

impl Hold {
    /// What is held.
    pub fn granted(&self) -> &Granted {
        self.hold.granted()
    }

    /// As [`crate::Hold::renew`]: for how long the lease stands from before this was called.
    ///
    /// # Errors
    /// [`Error::Lost`] if it does not stand any more.
    pub fn renew(&self) -> Result<Duration, Error> {
        self.shared.wait_for(self.hold.renew())
    }

    /// Gives it back, and tells whether it stood until then.
    ///
    /// # Errors
    /// [`Error::Lost`] if it did not.
    pub fn release(self) -> Result<(), Error> {
        self.shared.wait_for(self.hold.release())
    }
}

impl Iterator for Events {
    type Item = Result<Happening, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.shared.wait_for(self.events.next()).transpose()
    }
}

impl Shared {
    fn wait_for<T>(&self, asked: impl Future<Output = T>) -> T {
        self.runtime.as_ref().expect("only `drop` takes it").block_on(asked)
    }
}

/// A member that vanished without a word would keep the others waiting for what it had.
impl Drop for Shared {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        let client = self.client.clone();
        let goodbye = move || {
            let ends = async {
                client.leave().await;
                // What was dropped just now is still being given back.
                if let crate::Client::Agent(Agent(agent)) = &client {
                    agent.unused().await;
                }
            };
            _ = runtime.block_on(async { timeout(GOODBYE, ends).await });
        };
        match Handle::try_current() {
            Err(_) => goodbye(),
            // Where a runtime is, nobody may wait for another, nor end it.
            Ok(_) => _ = std::thread::Builder::new().name("peerlock-goodbye".into()).spawn(goodbye),
        }
    }
}

impl Grant {
    /// The fencing number: see [`crate::Grant::fencing`].
    pub fn fencing(&self) -> u64 {
        self.grant.fencing()
    }

    /// Which of the resource's slots, counted from 0.
    pub fn slot(&self) -> u32 {
        self.grant.slot()
    }

    /// Whether the holder must stop.
    pub fn is_lost(&self) -> bool {
        self.grant.is_lost()
    }

    /// Waits for this long, or until the holder must stop: whether it must.
    pub fn is_lost_within(&self, wait: Duration) -> bool {
        self.shared.wait_for(async { timeout(wait, self.grant.lost()).await }).is_ok()
    }

    /// Gives it back, and tells whether it stood until then.
    ///
    /// # Errors
    /// [`Error::Lost`] if its lease had ended before.
    pub fn release(self) -> Result<(), Error> {
        self.shared.wait_for(self.grant.release())
    }
}
