use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use peerlock_base::{PeerId, Rng, Span};
use peerlock_node::{Birth, SessionId, Wait, Wanted, check_slots};
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::driver::{Command, Driver, Waiter, born};
use crate::product::Node;
use crate::transport::Transport;
use crate::{
    Config, Counters, Error, Grant, GrantId, Happening, Inspection, Name, PeerView, Progress, ResourceDetails,
    ResourceView,
};

/// So many events are kept for a watcher that is slow.
const EVENTS: usize = 4096;
/// The lease of who does not say how long.
const TTL: Duration = Duration::from_secs(30);
const SHORTEST_TTL: Duration = Duration::from_millis(100);

/// A peer with its clients. Copies are handles of the same peer; it leaves when the last of them and of the grants is
/// gone, or when [told to](Service::leave).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), peerlock_service::Error> {
/// use peerlock_service::{PeerId, Service, memory::Network};
///
/// let network = Network::new(1);
/// let peer = Service::builder().start(network.endpoint(PeerId::new(1))).await?;
/// let grant = peer.resource("nightly-backup").slots(3).acquire().await?;
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
    /// Numbers of waiters and sessions.
    numbers: AtomicU64,
}

/// How a peer is started.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    join: Vec<String>,
    config: Config,
    process: Option<u64>,
}

impl Builder {
    /// Joins the cluster of whoever is at this address; may be said several times. Without one, a new cluster begins.
    pub fn join(mut self, address: impl Into<String>) -> Self {
        self.join.push(address.into());
        self
    }

    /// How patient the peer is.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// The number of this process among all of its host, for tests that shall run twice in the same way; fencing numbers
    /// begin as if it were 1970. If it is not said it is random. The same number twice is two members in
    /// one, and breaks every promise.
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
        let driver = Driver::new(transport, node, (&commands, receiver), events.clone(), self.join, started);
        tokio::spawn(driver.run(self.config.awake));
        is_started.await.unwrap_or(Err(Error::Stopped))?;
        // Session 1 is that of the process itself.
        Ok(Service { shared: Arc::new(Shared { me, commands, events, numbers: AtomicU64::new(2) }) })
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

    /// A resource by its name, to acquire. What is acquired this way belongs to the process itself.
    pub fn resource(&self, name: &str) -> Resource {
        Resource::new(self.clone(), SessionId(1), name)
    }

    /// A session for one client: when it ends, so does all that the client waits for or holds.
    pub fn session(&self) -> Session {
        Session { id: SessionId(self.shared.number()), service: self.clone() }
    }

    /// Renews the lease of a [detached](Grant::detach) grant: until when it stands then.
    ///
    /// # Errors
    /// [`Error::Lost`] if it does not stand any more.
    pub async fn renew(&self, grant: GrantId) -> Result<Instant, Error> {
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

    /// What happens at this peer from now on. Who is too slow misses the oldest, and is told how many.
    pub fn events(&self) -> broadcast::Receiver<Happening> {
        self.shared.events.subscribe()
    }

    /// Connects to another peer, for example one that was discovered.
    pub fn dial(&self, address: impl Into<String>) {
        _ = self.shared.commands.send(Command::Dial { address: address.into() });
    }

    /// Before [leaving](Self::leave), for whoever has clients that need time to stop: nobody comes in here any more, those
    /// who are inside have [lost](Grant::lost) their grants, and this resolves when the last of them has stopped, or its
    /// lease has ended.
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

/// One client of a peer, for as long as it is there. Dropping it withdraws what it waits for and releases what it holds.
#[derive(Debug)]
pub struct Session {
    id: SessionId,
    service: Service,
}

impl Session {
    /// A resource by its name, to acquire.
    pub fn resource(&self, name: &str) -> Resource {
        Resource::new(self.service.clone(), self.id, name)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        _ = self.service.shared.commands.send(Command::EndSession { session: self.id });
    }
}

/// A resource, and how it is to be acquired.
#[derive(Clone, Debug)]
#[must_use = "nothing is asked for before `acquire`"]
pub struct Resource {
    service: Service,
    session: SessionId,
    name: String,
    slots: Option<u32>,
    ttl: Duration,
    grace: Option<Duration>,
    wait: Wait,
    label: String,
    request: Option<String>,
    kept: bool,
}

impl Resource {
    fn new(service: Service, session: SessionId, name: &str) -> Self {
        Self {
            service,
            session,
            name: name.to_owned(),
            slots: None,
            ttl: TTL,
            grace: None,
            wait: Wait::Forever,
            label: String::new(),
            request: None,
            kept: true,
        }
    }

    /// How many may be inside at a time. If it is not said: as many as the resource has, or one if it is new.
    pub fn slots(mut self, slots: u32) -> Self {
        self.slots = Some(slots);
        self
    }

    /// How long a grant stands without being renewed. 30 s if it is not said.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long before the end of its lease a grant is [lost](Grant::lost), for the holder to stop in time. A fifth of
    /// the lease if it is not said.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    /// How long to wait. As long as it takes if neither this nor [`try_only`](Self::try_only) is said; of the two, the last
    /// counts.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Wait::For(span(wait));
        self
    }

    /// Do not wait: only if a slot is free and nobody else waits for it.
    pub fn try_only(mut self) -> Self {
        self.wait = Wait::Try;
        self
    }

    /// What others see of who waits or is inside, such as a host and a command.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// A number or name for this request: asked for again for the same resource in the same session while it waits or is
    /// inside, it is the same.
    pub fn request_id(mut self, request: impl Into<String>) -> Self {
        self.request = Some(request.into());
        self
    }

    /// The lease is renewed by its client with [`Service::renew`], and not by this peer: one that is frozen shall lose it.
    pub fn renewed_by_client(mut self) -> Self {
        self.kept = false;
        self
    }

    /// Asks for a slot. Dropping the future at any point withdraws, or gives back what was granted meanwhile.
    ///
    /// # Errors
    /// (When awaited.) Whatever they say, nothing is held and nothing waited for.
    pub fn acquire(self) -> Acquire {
        let waiter = self.service.shared.number();
        let (reply, answer) = oneshot::channel();
        let (progress, progressed) = watch::channel(Progress::default());
        let commands = self.service.shared.commands.clone();
        match self.wanted() {
            Ok(wanted) => {
                let waiter = Waiter { number: waiter, reply, progress };
                _ = commands.send(Command::Acquire { wanted, waiter });
            }
            Err(error) => _ = reply.send(Err(error)),
        }
        Acquire { waiter, answer, progress: progressed, commands, done: false }
    }

    fn wanted(self) -> Result<Wanted, Error> {
        let name: Name = self.name.parse()?;
        self.slots.map(check_slots).transpose()?;
        let (ttl, grace) = (self.ttl, self.grace.unwrap_or(self.ttl / 5));
        if ttl < SHORTEST_TTL || grace * 2 >= ttl {
            return Err(Error::BadLease { ttl, grace });
        }
        let Self { slots, wait, label, session, request, kept, .. } = self;
        Ok(Wanted { name, slots, ttl: span(ttl), grace: span(grace), kept, wait, label, session, request })
    }
}

fn span(duration: Duration) -> Span {
    Span::from_nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
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
