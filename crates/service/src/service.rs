//! The handles of a peer: what its clients call.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use peerlock_clock::{Clock, Moment};
use peerlock_node::{Class, ClusterId, Name, Node, Origin, Predecessor, Setup, TicketId, Ttl};
use peerlock_types::{PeerId, Rng, roughly};
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::time::{sleep, timeout};

use crate::awake::Awake;
use crate::command::{Command, Found, Waiter};
use crate::driver::{Driver, chance, random};
use crate::grants::{GrantFile, translated};
use crate::request::Keeping;
use crate::store::{Known, Store, millis};
use crate::transport::Transport;
use crate::{
    ClusterView, Config, Counters, Error, Grant, GrantId, Happening, Health, Inspection, Listing, PeerView, Progress,
    Request, ResourceDetails, ResourceView, SlotView,
};

/// At most this many events are kept for a watcher that is slow.
const EVENTS: usize = 4096;
/// How long a session stands after a renewal, unless something else is said.
const SESSION: Duration = Duration::from_secs(15);
/// The shortest and the longest session that a peer may have. The longest is our choice: the slots of a host that
/// disappears are unavailable for that long, and a recovered cluster grants nothing for as long.
const SHORTEST_SESSION: Duration = Duration::from_millis(100);
const LONGEST_SESSION: Duration = Duration::from_secs(600);
/// How long a peer that knows its cluster is waited for until it has a session. Then it is there all the same, and
/// tells its clients what is missing.
const PATIENCE: Duration = Duration::from_secs(10);
/// A peer that knows its cluster serves clients after this long even without a session. Our choice: shorter than a
/// client waits for an answer, so that the answer names the missing voters.
const START_PATIENCE: Duration = Duration::from_secs(5);
/// How often we ask for a grant of an earlier process that may not be known yet.
const ASK_AGAIN: Duration = Duration::from_millis(50);

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
    name: String,
    commands: mpsc::UnboundedSender<Command>,
    events: broadcast::Sender<Happening>,
    clock: Clock,
    /// Counts requests, so that each has a number of its own.
    waiters: AtomicU64,
}

/// How a peer is started.
#[derive(Default)]
#[must_use = "nothing is started before `start`"]
pub struct Builder {
    join: Vec<String>,
    config: Config,
    process: Option<u64>,
    clock: Clock,
    dir: Option<(Store, Known)>,
    grants: Option<(GrantFile, Option<Predecessor>)>,
    expect: Option<usize>,
    session: Option<Duration>,
    name: Option<String>,
    votes_from_memory: bool,
    clients_elsewhere: bool,
}

impl Builder {
    /// Joins the cluster of whoever is at this address; repeatable. Without one, a new cluster begins, unless the
    /// folder knows one.
    pub fn join(mut self, address: impl Into<String>) -> Self {
        self.join.push(address.into());
        self
    }

    /// How patient the peer is.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Keeps what the next process of this host has to know, and begins with what the last one has left: a peer with a
    /// folder may vote, and always comes back to the same cluster.
    pub fn dir(mut self, store: Store, known: Known) -> Self {
        self.dir = Some((store, known));
        self
    }

    /// Writes down what is granted to clients that do not die with this process, and goes on with what the one before
    /// it has written, which must be gone.
    pub fn grants(mut self, file: GrantFile, predecessor: Option<Predecessor>) -> Self {
        self.grants = Some((file, predecessor));
        self
    }

    /// May vote although it keeps nothing: its voter's file is in memory, and gone with it, as a host would be that has
    /// lost its disk. For clusters whose members all live in one process.
    pub fn votes_from_memory(mut self) -> Self {
        self.votes_from_memory = true;
        self
    }

    /// Begins a new cluster when so many hosts, this one included, have met that know none.
    pub fn expect(mut self, hosts: usize) -> Self {
        self.expect = Some(hosts);
        self
    }

    /// Sets the session duration: after this long without a majority nothing that it has is used any more. From 100 ms
    /// to 10 minutes; 15 s by default.
    pub fn session(mut self, session: Duration) -> Self {
        self.session = Some(session);
        self
    }

    /// Its clients are other processes, which ask again as soon as they have their answer: it
    /// [stays awake](Config::awake) after what they want, too.
    pub fn clients_elsewhere(mut self) -> Self {
        self.clients_elsewhere = true;
        self
    }

    /// What people call this host. By default what the system calls it.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The clock that leases are counted by. By default the machine's own.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// The number of this process among all of its host, for tests that shall run twice in the same way: higher than
    /// that of every earlier one. By default it is counted up in the folder. The same number twice is two processes in
    /// one, and breaks every promise.
    pub fn process_number(mut self, process: u64) -> Self {
        self.process = Some(process);
        self
    }

    /// Starts the peer, and waits until it is in the cluster. One that knows its cluster, or expects others to found
    /// one with, is there after a while even if it could not reach them, and tells its clients what is missing.
    ///
    /// # Errors
    /// [`Error::NoPeer`] if nobody was there to join; [`Error::Refused`] if what its folder says is damaged.
    pub async fn start(self, transport: impl Transport) -> Result<Service, Error> {
        let me = transport.me();
        let asked = self.session.unwrap_or(SESSION);
        let session = Some(asked).filter(|asked| (SHORTEST_SESSION..=LONGEST_SESSION).contains(asked));
        let session = session.and_then(|asked| Ttl::from_millis(asked.as_millis() as u64).ok());
        let session = session.ok_or_else(|| Error::Refused {
            class: Class::BadRequest,
            message: format!(
                "a session cannot last {}: choose between {} and {}. A host that disappears keeps its slots for that \
                 long, and a recovered cluster waits for the longest session",
                roughly(asked),
                roughly(SHORTEST_SESSION),
                roughly(LONGEST_SESSION)
            ),
        })?;
        let keeps = self.dir.is_some() || self.votes_from_memory;
        let (store, known) = self.dir.unwrap_or_else(|| (Store::memory(), Known::default()));
        let new_cluster = || match self.process {
            Some(process) => ClusterId::new(process.into()),
            None => ClusterId::new(u128::from(random()) << 64 | u128::from(random())),
        };
        let origin = match known {
            Known { registry: Some(file), .. } => Origin::Votes(file),
            Known { cluster: Some(cluster), .. } => Origin::Belongs(cluster),
            _ if self.join.is_empty() && self.expect.is_none() => Origin::Founds(new_cluster()),
            _ => Origin::Seeks { expect: self.expect.map(|hosts| (hosts, new_cluster())) },
        };
        let may_come_later =
            matches!(origin, Origin::Votes(_) | Origin::Belongs(_) | Origin::Seeks { expect: Some(_) });
        let must_join = origin == Origin::Seeks { expect: None };
        let clock_start = self.clock.now();
        let (grants, predecessor) = self.grants.unzip();
        let name = self.name.unwrap_or_else(|| self.process.map_or_else(host_name, |_| format!("peer-{me}")));
        let setup = Setup {
            boot: grants.as_ref().map(|file| file.boot().to_owned()).unwrap_or_default(),
            predecessor: predecessor.flatten().map(|predecessor| translated(predecessor, clock_start)),
            // Without a folder each process has a host number of its own, but for those that share a transport.
            process: self.process.or(store.process()).unwrap_or_else(|| millis(SystemTime::now())),
            rng: self.process.map_or_else(chance, |process| Rng::stream(me.get(), process)),
            name: name.clone(),
            keeps,
            session,
            origin,
        };
        let damaged =
            |why: peerlock_node::Damage| Error::Refused { class: Class::Unavailable, message: why.to_string() };
        let node = Node::new(me, transport.addresses(), setup, self.config).map_err(damaged)?;
        let (commands, receiver) = mpsc::unbounded_channel();
        let events = broadcast::Sender::new(EVENTS);
        let (started, is_started) = oneshot::channel();
        let given = self.join.iter().cloned().collect();
        let join = self.join.into_iter().chain(known.members).collect();
        let own = (node, (self.clock.clone(), clock_start), store, grants);
        let driver =
            Driver::new(transport, own, (&commands, receiver), events.clone(), (join, given, must_join), started);
        tokio::spawn(driver.run(Awake::new(self.config.awake.into(), self.clients_elsewhere)));
        match may_come_later {
            true => timeout(START_PATIENCE, is_started).await.unwrap_or(Ok(Ok(()))),
            false => is_started.await,
        }
        .unwrap_or(Err(Error::Stopped))?;
        let (clock, waiters) = (self.clock, AtomicU64::new(0));
        Ok(Service { shared: Arc::new(Shared { me, name, commands, events, clock, waiters }) })
    }
}

/// What the system calls this host.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name: String = name.trim().chars().filter(|c| !c.is_control()).take(63).collect();
    if name.is_empty() { "?".into() } else { name }
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

    /// What people call its host.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The present moment on the clock of its deadlines.
    pub fn now(&self) -> Moment {
        self.shared.clock.now()
    }

    /// Asks for a slot. Dropping the future at any point withdraws, or gives back what was
    /// granted meanwhile. This peer renews the lease.
    ///
    /// # Errors
    /// (When awaited.) Whatever they say, nothing is held and nothing waited for.
    pub fn acquire(&self, request: impl Into<Request>) -> Acquire {
        self.ask(request.into(), Keeping::Peer)
    }

    /// As [`acquire`](Self::acquire), but the client renews the lease with [`renew`](Self::renew), and not this peer:
    /// one that is frozen shall lose it.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub fn hold(&self, request: impl Into<Request>) -> Acquire {
        self.ask(request.into(), Keeping::Client)
    }

    /// As [`hold`](Self::hold), but the grant is in the register before it is told, and outlives this peer: once it is
    /// [let go of](Grant::detach), it stands until its lease ends, and any later process of this host knows it by its
    /// name.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub fn acquire_detached(&self, request: impl Into<Request>) -> Acquire {
        self.ask(request.into(), Keeping::Registry)
    }

    fn ask(&self, request: Request, keeping: Keeping) -> Acquire {
        let command = |waiter| match request.wanted(keeping) {
            Ok(wanted) => Ok(Command::Acquire { wanted, waiter }),
            Err(error) => Err(Box::new((error, waiter))),
        };
        self.wait_for(command, false)
    }

    /// Somebody waits for a grant, by this command or in vain.
    fn wait_for(
        &self,
        command: impl FnOnce(Waiter) -> Result<Command, Box<(Error, Waiter)>>,
        resumes: bool,
    ) -> Acquire {
        let number = self.shared.waiters.fetch_add(1, Ordering::Relaxed);
        let (reply, answer) = oneshot::channel();
        let (progress, progressed) = watch::channel(Progress::default());
        let commands = self.shared.commands.clone();
        match command(Waiter { number, reply, progress, resumes }) {
            Ok(command) => _ = commands.send(command),
            Err(refused) => {
                let (error, waiter) = *refused;
                _ = waiter.reply.send(Err(error));
            }
        }
        Acquire { waiter: number, answer, progress: progressed, commands, resumes, done: false }
    }

    /// Goes on with a grant that a process of this host before this one has [given](Self::hold), by its name: what is
    /// left of it is answered for here until its end, and it has its lease again from now on. Dropping the future gives
    /// nothing back: what was not told stands until its end, since its client may be inside.
    ///
    /// # Errors
    /// [`Error::Lost`] if its end has come, or nobody here knows it.
    pub fn resume(&self, name: Name, grant: GrantId) -> Acquire {
        let command = |waiter| match grant {
            GrantId::Named(note) => Ok(Command::Resume { name, note, waiter }),
            GrantId::Held(_) => Err(Box::new((Error::Lost, waiter))),
        };
        self.wait_for(command, true)
    }

    /// Renews the lease of a grant by its name: until when it stands then.
    ///
    /// # Errors
    /// [`Error::Lost`] if it does not stand any more.
    pub async fn renew(&self, grant: &GrantId) -> Result<Moment, Error> {
        let ticket = self.ticket(grant).await?;
        self.call(|reply| Command::Renew { ticket, reply }).await?
    }

    /// Gives a grant back by its name.
    ///
    /// # Errors
    /// [`Error::Lost`] if it does not stand any more.
    pub async fn release(&self, grant: &GrantId) -> Result<(), Error> {
        let ticket = self.ticket(grant).await?;
        self.call(|reply| Command::Release { ticket, reply }).await?
    }

    /// What a grant is called here. A process that has just begun hears of those of earlier ones in a moment.
    async fn ticket(&self, grant: &GrantId) -> Result<TicketId, Error> {
        let note = match grant {
            GrantId::Held(ticket) => return Ok(*ticket),
            GrantId::Named(note) => note,
        };
        let find = async {
            loop {
                match self.call(|reply| Command::Find { note: note.clone(), reply }).await? {
                    Found::Here(ticket) => return Ok(ticket),
                    Found::Revoked(why) => return Err(why),
                    Found::NotYet => sleep(ASK_AGAIN).await,
                    Found::Nowhere => return Err(Error::Lost),
                }
            }
        };
        match timeout(PATIENCE, find).await {
            Ok(found) => found,
            // There is still no session, or the register has not told what this host has from before.
            Err(_) => {
                let untold = || "the register has not told yet which grants this peer has from before".to_owned();
                let message = self.cluster().await?.problem.unwrap_or_else(untold);
                Err(Error::Refused { class: Class::Unavailable, message })
            }
        }
    }

    /// All resources of the cluster, by name.
    ///
    /// # Errors
    /// As [`Service::list`].
    pub async fn resources(&self) -> Result<Vec<ResourceView>, Error> {
        self.list(Listing::default()).await
    }

    /// Some of the resources of the cluster, by name.
    ///
    /// # Errors
    /// [`Error::NoMajority`] if nobody who knows them can be reached; [`Error::BadName`] if no name can begin so.
    pub async fn list(&self, mut listing: Listing) -> Result<Vec<ResourceView>, Error> {
        let mut all: Vec<ResourceView> = Vec::new();
        while listing.limit != Some(0) {
            let asked = listing.clone();
            let page = self.call(|reply| Command::Resources { listing: asked, reply }).await??;
            let Some(last) = page.last() else { break };
            listing.after = Some(last.name.clone());
            listing.limit = listing.limit.map(|limit| limit.saturating_sub(page.len() as u32));
            all.extend(page);
        }
        Ok(all)
    }

    /// Who waits for a resource and who is inside, in the whole cluster.
    ///
    /// # Errors
    /// [`Error::NoSuchResource`]; [`Error::NoMajority`] or [`Error::Recovering`] if nobody can tell now.
    pub async fn show(&self, name: &str) -> Result<ResourceDetails, Error> {
        let name = name.parse()?;
        self.call(|reply| Command::Show { name, reply }).await?
    }

    /// Those whom this peer deals with and those who vote, itself first: at once, without asking anybody. All of them:
    /// [`Service::cluster`].
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub async fn peers(&self) -> Result<Vec<PeerView>, Error> {
        self.call(|reply| Command::Peers { reply }).await
    }

    /// The cluster as a voter knows it; as this peer does if none can be reached.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub async fn cluster(&self) -> Result<ClusterView, Error> {
        self.call(|reply| Command::Cluster { reply }).await?
    }

    /// Gives a resource another number of slots. Those that are too many go when they are left.
    ///
    /// # Errors
    /// [`Error::NoSuchResource`], or that no majority can be reached.
    pub async fn resize(&self, name: &str, slots: u32) -> Result<(), Error> {
        let name: Name = name.parse()?;
        peerlock_node::check_slots(slots)?;
        self.call(|reply| Command::Resize { name, slots, reply }).await?
    }

    /// Removes a name that nobody uses: the cluster forgets it and its number of slots. Who asks for it later founds it
    /// again, with higher fencing numbers. Returns when it is gone; if it could not be, nothing has changed for anybody
    /// who uses it.
    ///
    /// # Errors
    /// [`Error::InUse`] if somebody holds a slot of it or waits, [`Error::NoSuchResource`], [`Error::Recovering`] if a
    /// host that takes part does not answer, or that no majority can be reached.
    pub async fn remove(&self, name: &str) -> Result<(), Error> {
        let name: Name = name.parse()?;
        self.call(|reply| Command::Remove { name, reply }).await?
    }

    /// Takes away by force all that a host has of a resource: others get its slots at once, though its clients may
    /// still be inside.
    ///
    /// # Errors
    /// That no majority can be reached.
    pub async fn expel(&self, name: &str, peer: PeerId) -> Result<(), Error> {
        let name: Name = name.parse()?;
        self.call(|reply| Command::Expel { name, peer, reply }).await?
    }

    /// Asks whoever is inside with this fencing number to stop, as [`show`](Self::show) has it, and returns when it
    /// has, or its lease has ended: its client has [lost](Grant::lost) its grant, and the time that is left of its
    /// lease to stop in. What is detached has no process that could be asked, and ends at once.
    ///
    /// # Errors
    /// [`Error::Lost`] if nobody is inside with it; that its host cannot be reached.
    pub async fn revoke(&self, name: &str, fencing: u64) -> Result<(), Error> {
        let name: Name = name.parse()?;
        let details = self.show(name.as_str()).await?;
        let has_it = |slot: &&SlotView| slot.client.as_ref().is_some_and(|client| client.fencing == Some(fencing));
        let peer = details.holders.iter().find(has_it).ok_or(Error::Lost)?.peer;
        self.call(|reply| Command::Revoke { name, peer, fencing, reply }).await?
    }

    /// Says which hosts vote; `None` leaves it to the register.
    ///
    /// # Errors
    /// That no majority can be reached, or why these cannot vote.
    pub async fn set_voters(&self, hosts: Option<Vec<PeerId>>) -> Result<(), Error> {
        self.call(|reply| Command::SetVoters { hosts, reply }).await?
    }

    /// Removes a member that will not return.
    ///
    /// # Errors
    /// That no majority can be reached, or that the host has a session, votes, or has given a valid grant.
    pub async fn forget_host(&self, host: PeerId) -> Result<(), Error> {
        self.call(|reply| Command::ForgetHost { host, reply }).await?
    }

    /// What this peer has counted.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub async fn counters(&self) -> Result<Counters, Error> {
        self.call(|reply| Command::Counters { reply }).await
    }

    /// How this peer stands. Nobody is asked, so it is told at once, also without a majority.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub async fn health(&self) -> Result<Health, Error> {
        self.call(|reply| Command::Health { reply }).await
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

    /// Before [leaving](Self::leave), for whoever has clients that need time to stop: nobody comes in here any more,
    /// those who are inside have [lost](Grant::lost) their grants, and this resolves when the last of them has stopped,
    /// or its lease has ended.
    pub async fn drain(&self) {
        _ = self.call(|reply| Command::Drain { reply }).await;
    }

    /// Lets nobody in any more and sends those away who wait; resolves when the last of those who are inside has left.
    /// What is [detached](Self::acquire_detached) is not waited for.
    pub async fn close(&self) {
        _ = self.call(|reply| Command::Close { reply }).await;
    }

    /// Whether somebody waits here, or is inside with what ends with this peer's session: whoever ends this process
    /// without [leaving](Self::leave) leaves them to the next one of this host.
    pub async fn has_clients(&self) -> bool {
        self.call(|reply| Command::HasClients { reply }).await.unwrap_or(false)
    }

    /// Leaves: clients here lose what they have, and the others get what this peer had for them. Whether the cluster
    /// knows that it has left: if not, nobody could be told, and others wait until its session has run out.
    pub async fn leave(&self) -> bool {
        self.call(|reply| Command::Leave { reply }).await.unwrap_or(false)
    }

    async fn call<R>(&self, command: impl FnOnce(oneshot::Sender<R>) -> Command) -> Result<R, Error> {
        let (reply, answer) = oneshot::channel();
        _ = self.shared.commands.send(command(reply));
        answer.await.map_err(|_| Error::Stopped)
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
    resumes: bool,
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
        if self.done {
            return;
        }
        self.answer.close();
        if let Ok(Ok(unheard)) = self.answer.try_recv()
            && self.resumes
        {
            unheard.detach();
        }
        _ = self.commands.send(Command::Forget { waiter: self.waiter });
    }
}
