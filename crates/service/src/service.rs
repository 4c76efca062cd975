//! The handles of a peer: what its clients call.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use peerlock_base::{PeerId, Rng};
use peerlock_clock::{Clock, Moment};
use peerlock_node::{Birth, SessionId};
use tokio::sync::{broadcast, mpsc, oneshot, watch};

use crate::driver::{Command, Driver, Waiter, born};
use crate::product::Node;
use crate::transport::Transport;
use crate::{
    Config, Counters, Error, Grant, GrantId, Happening, Inspection, PeerView, Progress, Request, ResourceDetails,
    ResourceView,
};

/// At most this many events are kept for a watcher that is slow.
const EVENTS: usize = 4096;

/// A peer with its clients. Copies are handles of the same peer; it leaves when the last of them and of the grants is
/// gone, or when [told to](Service::leave).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), peerlock_service::Error> {
/// use peerlock_service::{PeerId, Request, Service, memory::Network};
///
/// let network = Network::new(1);
/// let peer = Service::builder().start(network.endpoint(PeerId::new(1))).await?;
/// let grant = peer.acquire(Request::new("nightly-backup").slots(3)).await?;
/// println!("inside with fencing number {}", grant.fencing());
/// grant.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Service {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    me: PeerId,
    commands: mpsc::UnboundedSender<Command>,
    events: broadcast::Sender<Happening>,
    clock: Clock,
    /// Numbers of waiters and sessions.
    numbers: AtomicU64,
}

/// How a peer is started.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    join: Vec<String>,
    config: Config,
    process: Option<u64>,
    clock: Clock,
}

impl Builder {
    /// Joins the cluster of whoever is at this address; repeatable. Without one, a new cluster begins.
    pub fn join(mut self, address: impl Into<String>) -> Self {
        self.join.push(address.into());
        self
    }

    /// How patient the peer is.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// The clock that leases are counted by. By default the machine's own.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// The number of this process among all of its host, for tests that shall run twice in the same way; fencing
    /// numbers begin as if it were 1970. By default it is random. The same number twice is two members in one, and
    /// breaks every promise.
    pub fn process_number(mut self, process: u64) -> Self {
        self.process = Some(process);
        self
    }

    /// Starts the peer, and waits until it is in the cluster.
    ///
    /// # Errors
    /// [`Error::NoPeer`] if nobody was there to join.
    pub async fn start(self, transport: impl Transport) -> Result<Service, Error> {
        let me = transport.me();
        let given = |process| Birth { process, micros: 0, rng: Rng::stream(me.get(), process) };
        let node = Node::new(me, transport.addresses(), self.process.map_or_else(born, given), self.config);
        let (commands, receiver) = mpsc::unbounded_channel();
        let events = broadcast::Sender::new(EVENTS);
        let (started, is_started) = oneshot::channel();
        let driver = Driver::new(
            transport,
            (node, self.clock.clone()),
            (&commands, receiver),
            events.clone(),
            self.join,
            started,
        );
        tokio::spawn(driver.run(self.config.awake));
        is_started.await.unwrap_or(Err(Error::Stopped))?;
        // Session 1 is that of the process itself.
        let (clock, numbers) = (self.clock, AtomicU64::new(2));
        Ok(Service { shared: Arc::new(Shared { me, commands, events, clock, numbers }) })
    }
}

impl Service {
    /// How to start one.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Who this peer is.
    pub fn me(&self) -> PeerId {
        self.shared.me
    }

    /// The present moment on the clock of its deadlines.
    pub fn now(&self) -> Moment {
        self.shared.clock.now()
    }

    /// Asks for a slot, for the process itself. Dropping the future at any point withdraws, or gives back what was
    /// granted meanwhile. This peer renews the lease.
    ///
    /// # Errors
    /// (When awaited.) Whatever they say, nothing is held and nothing waited for.
    pub fn acquire(&self, request: impl Into<Request>) -> Acquire {
        self.ask(request.into(), SessionId(1), true)
    }

    /// As [`acquire`](Self::acquire), but the client renews the lease with [`renew`](Self::renew), and not this peer:
    /// one that is frozen shall lose it.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub fn hold(&self, request: impl Into<Request>) -> Acquire {
        self.ask(request.into(), SessionId(1), false)
    }

    fn ask(&self, request: Request, session: SessionId, kept: bool) -> Acquire {
        let waiter = self.shared.number();
        let (reply, answer) = oneshot::channel();
        let (progress, progressed) = watch::channel(Progress::default());
        let commands = self.shared.commands.clone();
        match request.wanted(session, kept) {
            Ok(wanted) => {
                let waiter = Waiter { number: waiter, reply, progress };
                _ = commands.send(Command::Acquire { wanted, waiter });
            }
            Err(error) => _ = reply.send(Err(error)),
        }
        Acquire { waiter, answer, progress: progressed, commands, done: false }
    }

    /// A session for one client: when it ends, so does all that the client waits for or holds.
    pub fn session(&self) -> Session {
        Session { id: SessionId(self.shared.number()), service: self.clone() }
    }

    /// Renews the lease of a [detached](Grant::detach) grant: until when it stands then.
    ///
    /// # Errors
    /// [`Error::Lost`] if it does not stand any more.
    pub async fn renew(&self, grant: GrantId) -> Result<Moment, Error> {
        self.call(|reply| Command::Renew { ticket: grant.0, reply }).await?
    }

    /// Gives a [detached](Grant::detach) grant back.
    ///
    /// # Errors
    /// [`Error::Lost`] if it does not stand any more.
    pub async fn release(&self, grant: GrantId) -> Result<(), Error> {
        self.call(|reply| Command::Release { ticket: grant.0, reply }).await?
    }

    /// All resources that this peer knows of, by name.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub async fn resources(&self) -> Result<Vec<ResourceView>, Error> {
        self.call(|reply| Command::Resources { reply }).await
    }

    /// Who waits for a resource and who is inside, in the whole cluster.
    ///
    /// # Errors
    /// [`Error::NoSuchResource`], or [`Error::Stalled`] if who keeps the line does not answer.
    pub async fn show(&self, name: &str) -> Result<ResourceDetails, Error> {
        let name = name.parse()?;
        self.call(|reply| Command::Show { name, reply }).await?
    }

    /// Everybody whom this peer knows, itself first.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub async fn peers(&self) -> Result<Vec<PeerView>, Error> {
        self.call(|reply| Command::Peers { reply }).await
    }

    /// What this peer has counted.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub async fn counters(&self) -> Result<Counters, Error> {
        self.call(|reply| Command::Counters { reply }).await
    }

    /// This peer from the inside. Nobody is asked, and nothing is changed by looking.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub async fn inspect(&self) -> Result<Inspection, Error> {
        self.call(|reply| Command::Inspect { reply }).await
    }

    /// What happens at this peer from now on. A slow reader misses the oldest, and is told how many.
    pub fn events(&self) -> broadcast::Receiver<Happening> {
        self.shared.events.subscribe()
    }

    /// Connects to another peer, for example one that was discovered.
    pub fn dial(&self, address: impl Into<String>) {
        _ = self.shared.commands.send(Command::Dial { address: address.into() });
    }

    /// Before [leaving](Self::leave), for whoever has clients that need time to stop: nobody comes in here any more,
    /// those who are inside have [lost](Grant::lost) their grants, and this resolves when the last of them has stopped,
    /// or its lease has ended.
    pub async fn drain(&self) {
        _ = self.call(|reply| Command::Drain { reply }).await;
    }

    /// Leaves: clients here lose what they have, and the others get what this peer had for them.
    pub async fn leave(&self) {
        _ = self.call(|reply| Command::Leave { reply }).await;
    }

    async fn call<R>(&self, command: impl FnOnce(oneshot::Sender<R>) -> Command) -> Result<R, Error> {
        let (reply, answer) = oneshot::channel();
        _ = self.shared.commands.send(command(reply));
        answer.await.map_err(|_| Error::Stopped)
    }
}

impl Shared {
    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }
}

/// One client of a peer, for as long as it is there. Dropping it withdraws what it waits for and releases what it
/// holds.
#[derive(Debug)]
pub struct Session {
    id: SessionId,
    service: Service,
}

impl Session {
    /// As [`Service::acquire`], for this client.
    ///
    /// # Errors
    /// As [`Service::acquire`].
    pub fn acquire(&self, request: impl Into<Request>) -> Acquire {
        self.service.ask(request.into(), self.id, true)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        _ = self.service.shared.commands.send(Command::EndSession { session: self.id });
    }
}

/// A request that is under way: a future of its grant.
#[must_use = "dropping it withdraws the request"]
#[derive(Debug)]
pub struct Acquire {
    waiter: u64,
    answer: oneshot::Receiver<Result<Grant, Error>>,
    progress: watch::Receiver<Progress>,
    commands: mpsc::UnboundedSender<Command>,
    done: bool,
}

impl Acquire {
    /// The place in line, as it changes.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.clone()
    }
}

impl Future for Acquire {
    type Output = Result<Grant, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = std::task::ready!(Pin::new(&mut self.answer).poll(cx));
        self.done = true;
        Poll::Ready(answer.unwrap_or(Err(Error::Stopped)))
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        if !self.done {
            _ = self.commands.send(Command::Forget { waiter: self.waiter });
        }
    }
}
