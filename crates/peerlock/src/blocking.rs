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

use peerlock_service::{Error, Granted, Happening, Listing, PeerView, Progress, Request, ResourceView};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::timeout;

use crate::{Agent, PeerBuilder, StartError};

/// How long a member may take to say goodbye when its last handle is dropped.
const GOODBYE: Duration = Duration::from_secs(10);

/// Writes methods that wait for the method of the same name of [`crate::Client`].
macro_rules! blocking_methods {
    ($($(#[$doc:meta])* $method:ident($($arg:ident: $type:ty),*) -> $reply:ty $(= $verb:expr)?;)*) => {
        $(#[doc = concat!("As [`crate::Client::", stringify!($method), "`].")]
        ///
        /// # Errors
        #[doc = concat!("As [`crate::Client::", stringify!($method), "`].")]
        pub fn $method(&self, $($arg: $type),*) -> Result<$reply, Error> {
            self.shared.wait_for(self.shared.client.$method($($arg),*))
        })*
    };
}

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

    blocking_methods! {
        acquire_detached(request: impl Into<Request>) -> Granted;
        renew(name: &str, grant: &str) -> Duration;
        release(name: &str, grant: &str) -> ();
        resources() -> Vec<ResourceView>;
        list(listing: &Listing) -> Vec<ResourceView>;
        peers() -> Vec<PeerView>;
    }
    peerlock_service::verbs!(blocking_methods);

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
