//! The client without async.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use peerlock::blocking::Client;
//!
//! let client = Client::agent()?; // or Client::peer(peerlock::Peer::builder().join("10.0.0.7"))?
//! let grant = client.acquire("nightly-backup")?;
//! while !grant.is_lost() {
//!     // … a piece of the work
//! }
//! # Ok(()) }
//! ```
//!
//! A background thread communicates and renews leases. Within a tokio runtime, call this API in `spawn_blocking` only,
//! or use [`crate::Client`].

use std::sync::Arc;
use std::time::Duration;

use peerlock_service::{Error, Granted, Happening, Listing, PeerView, Progress, Request, ResourceView};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::timeout;

use crate::{Agent, PeerBuilder, StartError};

const LEAVING: Duration = Duration::from_secs(10);

/// Writes methods that wait for the method of [`crate::Client`] with the same name.
macro_rules! blocking_methods {
    ($($(#[$doc:meta])* $method:ident($($arg:ident: $type:ty),*) -> $reply:ty $(= $verb:expr)?;)*) => {
        $(#[doc = concat!("As [`crate::Client::", stringify!($method), "`].")]
        pub fn $method(&self, $($arg: $type),*) -> Result<$reply, Error> {
            self.shared.wait_for(self.shared.client.$method($($arg),*))
        })*
    };
}

/// [`crate::Client`] for threads. Clones are the same client.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    client: crate::Client,
    /// Taken when this is dropped.
    runtime: Option<Runtime>,
}

/// [`crate::Grant`] for threads. Dropping it releases the slot.
#[derive(Debug)]
#[must_use = "dropping a grant releases it"]
pub struct Grant {
    grant: crate::Grant,
    /// Dropped last: the runtime sends the release.
    shared: Arc<Shared>,
}

/// [`crate::Hold`] for threads: a slot whose holder [renews](Self::renew) the lease. Dropping it releases the slot.
#[derive(Debug)]
#[must_use = "dropping it releases the slot"]
pub struct Hold {
    hold: crate::Hold,
    shared: Arc<Shared>,
}

/// [`crate::Events`] for threads: an iterator that ends when the peer or agent has stopped.
#[derive(Debug)]
pub struct Events {
    events: crate::Events,
    shared: Arc<Shared>,
}

impl Client {
    /// Returns a client of the agent of this machine: see [`Agent::here`].
    pub fn agent() -> Result<Self, StartError> {
        Self::start(async { Ok(Agent::here()?.into()) })
    }

    /// Starts a member of the cluster in this process. It leaves when the last clone of the client and the last grant
    /// are dropped, which blocks for up to ten seconds; within a tokio runtime it leaves in another thread.
    pub fn peer(builder: PeerBuilder) -> Result<Self, StartError> {
        Self::start(async { Ok(builder.start().await?.into()) })
    }

    fn start(client: impl Future<Output = Result<crate::Client, StartError>>) -> Result<Self, StartError> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().map_err(StartError::System)?;
        let client = runtime.block_on(client)?;
        Ok(Self { shared: Arc::new(Shared { client, runtime: Some(runtime) }) })
    }

    /// Like [`crate::Client::acquire`].
    pub fn acquire(&self, request: impl Into<Request>) -> Result<Grant, Error> {
        let grant = self.shared.wait_for(self.shared.client.acquire(request))?;
        Ok(Grant { grant, shared: self.shared.clone() })
    }

    /// Like [`crate::Client::try_acquire`].
    pub fn try_acquire(&self, request: impl Into<Request>) -> Result<Option<Grant>, Error> {
        let grant = self.shared.wait_for(self.shared.client.try_acquire(request))?;
        Ok(grant.map(|grant| Grant { grant, shared: self.shared.clone() }))
    }

    /// Like [`crate::Client::acquire_showing`]. Calls `progress` on the waiting thread.
    pub fn acquire_showing(&self, request: impl Into<Request>, progress: impl FnMut(Progress)) -> Result<Grant, Error> {
        let grant = self.shared.wait_for(self.shared.client.acquire_showing(request, progress))?;
        Ok(Grant { grant, shared: self.shared.clone() })
    }

    /// Like [`crate::Client::hold`].
    pub fn hold(&self, request: impl Into<Request>, progress: impl FnMut(Progress)) -> Result<Hold, Error> {
        let hold = self.shared.wait_for(self.shared.client.hold(request, progress))?;
        Ok(Hold { hold, shared: self.shared.clone() })
    }

    blocking_methods! {
        acquire_detached(request: impl Into<Request>) -> Granted;
        renew(name: &str, grant: &str) -> Duration;
        release(name: &str, grant: &str) -> ();
        resources() -> Vec<ResourceView>;
        list(listing: &Listing) -> Vec<ResourceView>;
        peers() -> Vec<PeerView>;
    }
    peerlock_service::verbs!(blocking_methods);

    /// Like [`crate::Client::events`].
    pub fn events(&self, name: Option<&str>) -> Result<Events, Error> {
        let events = self.shared.wait_for(self.shared.client.events(name))?;
        Ok(Events { events, shared: self.shared.clone() })
    }
}

impl Hold {
    /// Returns the grant, with its ID.
    pub fn granted(&self) -> &Granted {
        self.hold.granted()
    }

    /// Like [`crate::Hold::renew`].
    pub fn renew(&self) -> Result<Duration, Error> {
        self.shared.wait_for(self.hold.renew())
    }

    /// Releases the slot.
    ///
    /// # Errors
    /// [`Error::Lost`] if the grant was no longer valid.
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
    fn wait_for<T>(&self, called: impl Future<Output = T>) -> T {
        self.runtime.as_ref().expect("only `drop` takes it").block_on(called)
    }
}

/// Leaves the cluster: otherwise the slots of this peer stay unavailable until its session expires.
impl Drop for Shared {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        let client = self.client.clone();
        let leave = move || {
            let ends = async {
                client.leave().await;
                // Releases of dropped grants may be in progress.
                if let crate::Client::Agent(Agent(agent)) = &client {
                    agent.unused().await;
                }
            };
            _ = runtime.block_on(async { timeout(LEAVING, ends).await });
        };
        match Handle::try_current() {
            Err(_) => leave(),
            // A runtime cannot be dropped within another one.
            Ok(_) => _ = std::thread::Builder::new().name("peerlock-leave".into()).spawn(leave),
        }
    }
}

impl Grant {
    /// Like [`crate::Grant::fencing`].
    pub fn fencing(&self) -> u64 {
        self.grant.fencing()
    }

    /// Like [`crate::Grant::slot`].
    pub fn slot(&self) -> u32 {
        self.grant.slot()
    }

    /// Like [`crate::Grant::is_lost`].
    pub fn is_lost(&self) -> bool {
        self.grant.is_lost()
    }

    /// Waits this long, or until the holder must stop. Returns whether it must.
    pub fn is_lost_within(&self, wait: Duration) -> bool {
        self.shared.wait_for(async { timeout(wait, self.grant.lost()).await }).is_ok()
    }

    /// Like [`crate::Grant::release`].
    pub fn release(self) -> Result<(), Error> {
        self.shared.wait_for(self.grant.release())
    }
}
