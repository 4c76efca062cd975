//! The handle of a peer, and its builder.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use peerlock_clock::{Clock, Moment};
use peerlock_node::verb::{Operation, Revoke, Show, Verb};
use peerlock_node::{Answer, Class, ClusterId, Input, Name, Node, Origin, Predecessor, Setup, TicketId, Ttl};
use peerlock_types::{PeerId, Rng, Time, roughly};
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::time::{sleep, timeout};

use crate::awake::Awake;
use crate::command::{Command, Found, Waiter};
use crate::driver::{Driver, moment, random, random_stream};
use crate::grants::{GrantFile, translated};
use crate::request::Keeping;
use crate::store::{Known, Store, millis};
use crate::transport::Transport;
use crate::{
    Conclusion, Config, Counters, Error, Grant, GrantId, Happening, Health, Inspection, Listing, PeerView, Progress,
    Request, ResourceDetails, ResourceView, SlotView, async_methods,
};

/// The number of events buffered for a slow receiver.
const EVENTS: usize = 4096;
const SESSION: Duration = Duration::from_secs(15);
/// The limits of the session length. The longest is our choice: the slots of a host that disappears are unavailable for
/// that long, and a recovered cluster grants nothing for as long.
const SHORTEST_SESSION: Duration = Duration::from_millis(100);
const LONGEST_SESSION: Duration = Duration::from_secs(600);
/// How long a renewal or release waits until the grants of earlier processes are known.
const PATIENCE: Duration = Duration::from_secs(10);
/// A peer that knows its cluster serves clients after this long even without a session. Our choice: shorter than a
/// client waits for an answer, so that the answer names the missing voters.
const START_PATIENCE: Duration = Duration::from_secs(5);
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// A peer with its clients. Clones are handles of the same peer. It leaves when the last handle and the last grant are
/// dropped, or by [`leave`](Service::leave).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), peerlock_service::Error> {
/// use peerlock_service::{PeerId, Request, Service, memory::Network};
///
/// let network = Network::new(1);
/// let peer = Service::builder().start(network.endpoint(PeerId::new(1))).await?;
/// let grant = peer.acquire(Request::new("nightly-backup").slots(3)).await?;
/// println!("fencing number {}", grant.fencing());
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
    clock_start: Moment,
    waiters: AtomicU64,
}

/// The settings of a peer.
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
    /// Adds the address of a member to join; repeatable. Without addresses, the peer creates a cluster, unless its data
    /// directory names one.
    pub fn join(mut self, address: impl Into<String>) -> Self {
        self.join.push(address.into());
        self
    }

    /// Sets the node's configuration.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Sets the data directory and its contents. Only a peer with one may vote, and returns to the same cluster.
    pub fn dir(mut self, store: Store, known: Known) -> Self {
        self.dir = Some((store, known));
        self
    }

    /// Sets the takeover file, for clients that outlive this process, and the state of the predecessor, which must have
    /// ended.
    pub fn grants(mut self, file: GrantFile, predecessor: Option<Predecessor>) -> Self {
        self.grants = Some((file, predecessor));
        self
    }

    /// Permits the peer to vote without a data directory. For clusters whose members are all in one process.
    pub fn votes_from_memory(mut self) -> Self {
        self.votes_from_memory = true;
        self
    }

    /// Creates a cluster once so many hosts without one are connected, including this one.
    pub fn expect(mut self, hosts: usize) -> Self {
        self.expect = Some(hosts);
        self
    }

    /// Returns the number of hosts set by [`expect`](Self::expect).
    pub fn expected(&self) -> Option<usize> {
        self.expect
    }

    /// Returns whether the data directory names a cluster.
    pub fn knows_cluster(&self) -> bool {
        self.dir.as_ref().is_some_and(|(_, known)| known.names_cluster())
    }

    /// Sets the session length: without a quorum for this long, all grants of the peer are lost. From 100 ms to 10
    /// minutes; 15 s by default.
    pub fn session(mut self, session: Duration) -> Self {
        self.session = Some(session);
        self
    }

    /// Declares that the clients are other processes, which send the next command as soon as they have an answer: the
    /// peer [stays awake](Config::awake) after commands, too.
    pub fn clients_elsewhere(mut self) -> Self {
        self.clients_elsewhere = true;
        self
    }

    /// Sets the display name of this host. By default its host name.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the lease clock. By default the machine's.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the process number and the random seed, for reproducible tests. By default the number comes from the data
    /// directory. Nothing is safe unless it is higher than that of every earlier process of this host.
    pub fn process_number(mut self, process: u64) -> Self {
        self.process = Some(process);
        self
    }

    /// Starts the peer, and waits until it has a session. A peer that knows its cluster, or waits for hosts to create
    /// one with, is returned after a while even without a session: its clients receive errors that name the missing
    /// hosts.
    ///
    /// # Errors
    /// [`Error::NoPeer`] if no member was found; [`Error::Refused`] if the data directory is damaged.
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
            // Without a data directory, each process is a host of its own.
            process: self.process.or(store.process()).unwrap_or_else(|| millis(SystemTime::now())),
            rng: self.process.map_or_else(random_stream, |process| Rng::stream(me.get(), process)),
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
        Ok(Service { shared: Arc::new(Shared { me, name, commands, events, clock, clock_start, waiters }) })
    }
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name: String = name.trim().chars().filter(|c| !c.is_control()).take(63).collect();
    if name.is_empty() { "?".into() } else { name }
}

impl Service {
    /// Returns a builder with the default settings.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Returns the host ID of this peer.
    pub fn me(&self) -> PeerId {
        self.shared.me
    }

    /// Returns the display name of its host.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Returns the current time of the lease clock.
    pub fn now(&self) -> Moment {
        self.shared.clock.now()
    }

    /// Requests a slot. Dropping the future withdraws the request or releases the grant. This peer renews the lease.
    ///
    /// # Errors
    /// When the future is awaited. After any error, no slot is held and no request waits.
    pub fn acquire(&self, request: impl Into<Request>) -> Acquire {
        self.ask(request.into(), Keeping::Peer)
    }

    /// Like [`acquire`](Self::acquire), but the client [renews](Self::renew) the lease, so that a frozen client loses
    /// it.
    pub fn hold(&self, request: impl Into<Request>) -> Acquire {
        self.ask(request.into(), Keeping::Client)
    }

    /// Like [`hold`](Self::hold), but the grant is recorded in the registry and outlives this peer: once its handle is
    /// [detached](Grant::detach), it is valid until its lease expires, and later processes of this host know its ID.
    pub fn acquire_detached(&self, request: impl Into<Request>) -> Acquire {
        self.ask(request.into(), Keeping::Registry)
    }

    fn ask(&self, request: Request, keeping: Keeping) -> Acquire {
        let command = request.wanted(keeping).map(|wanted| {
            move |waiter| {
                let note = wanted.detached.clone().or_else(|| wanted.taken_over_as.clone());
                let name = wanted.name.clone();
                Command::Wait { name, note, waiter, input: Box::new(|call| Input::Acquire { call, wanted }) }
            }
        });
        self.wait_for(command, false)
    }

    fn wait_for(&self, command: Result<impl FnOnce(Waiter) -> Command, Error>, resumes: bool) -> Acquire {
        let number = self.shared.waiters.fetch_add(1, Ordering::Relaxed);
        let (reply, answer) = oneshot::channel();
        let (progress, progressed) = watch::channel(Progress::default());
        let commands = self.shared.commands.clone();
        match command {
            Ok(command) => _ = commands.send(command(Waiter { number, reply, progress, resumes })),
            Err(error) => _ = reply.send(Err(error)),
        }
        Acquire { waiter: number, answer, progress: progressed, commands, resumes, done: false }
    }

    /// Resumes a grant that an earlier process of this host has [granted](Self::hold), and renews its lease. Dropping
    /// the future releases nothing, since the client may still use the slot: the grant is valid until its deadline.
    ///
    /// # Errors
    /// [`Error::Lost`] if it has expired, or is unknown here.
    pub fn resume(&self, name: Name, grant: GrantId) -> Acquire {
        let command = match grant {
            GrantId::Named(note) => Ok(move |waiter| {
                let (resource, id) = (name.clone(), Some(note.clone()));
                let input = Box::new(|call| Input::Resume { call, name, note });
                Command::Wait { name: resource, note: id, waiter, input }
            }),
            GrantId::Held(_) => Err(Error::Lost),
        };
        self.wait_for(command, true)
    }

    /// Renews the lease of a grant. Returns the new deadline.
    ///
    /// # Errors
    /// [`Error::Lost`] if the grant is no longer valid.
    pub async fn renew(&self, grant: &GrantId) -> Result<Moment, Error> {
        let ticket = self.ticket(grant).await?;
        match self.answer(move |call| Input::Renew { call, ticket }).await? {
            Answer::Renewed(until) => Ok(moment(self.shared.clock_start, until)),
            answer => unreachable!("{answer:?} does not answer a renewal"),
        }
    }

    /// Reports the end of a run that takes place once per period. Returns whether the slot is held until the period
    /// ends, whatever becomes of its holder; otherwise release it for the next attempt.
    ///
    /// # Errors
    /// [`Error::Lost`] if the grant is no longer valid; an error if no quorum can be reached, after which the call can
    /// be repeated.
    pub async fn conclude(&self, grant: &GrantId, conclusion: Conclusion) -> Result<bool, Error> {
        let ticket = self.ticket(grant).await?;
        let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        match self.answer(move |call| Input::Conclude { call, ticket, conclusion, at }).await? {
            Answer::Concluded { holds } => Ok(holds),
            answer => unreachable!("{answer:?} does not answer a conclusion"),
        }
    }

    /// Releases a grant.
    ///
    /// # Errors
    /// [`Error::Lost`] if the grant is no longer valid.
    pub async fn release(&self, grant: &GrantId) -> Result<(), Error> {
        let ticket = self.ticket(grant).await?;
        self.answer(move |call| Input::Release { call: Some(call), ticket }).await.map(drop)
    }

    /// Returns the ticket of a grant. Waits until a new process knows the grants of earlier ones.
    async fn ticket(&self, grant: &GrantId) -> Result<TicketId, Error> {
        let note = match grant {
            GrantId::Held(ticket) => return Ok(*ticket),
            GrantId::Named(note) => note,
        };
        let find = async {
            loop {
                match self.send(|reply| Command::Find(note.clone(), reply)).await? {
                    Found::Here(ticket) => return Ok(ticket),
                    Found::Revoked(why) => return Err(why),
                    Found::NotYet => sleep(ASK_AGAIN).await,
                    Found::Nowhere => return Err(Error::Lost),
                }
            }
        };
        match timeout(PATIENCE, find).await {
            Ok(found) => found,
            Err(_) => {
                let unknown = || "the registry has not reported the earlier grants of this host yet".to_owned();
                let message = self.cluster().await?.problem.unwrap_or_else(unknown);
                Err(Error::Refused { class: Class::Unavailable, message })
            }
        }
    }

    /// Returns the selected resources of the cluster, by name.
    ///
    /// # Errors
    /// [`Error::NoMajority`] if no quorum is reachable; [`Error::BadName`] if the prefix is invalid.
    pub async fn list(&self, mut listing: Listing) -> Result<Vec<ResourceView>, Error> {
        let mut all: Vec<ResourceView> = Vec::new();
        while listing.limit != Some(0) {
            let page = self.call(listing.clone()).await?;
            let Some(last) = page.last() else { break };
            listing.after = Some(last.name.clone());
            listing.limit = listing.limit.map(|limit| limit.saturating_sub(page.len() as u32));
            all.extend(page);
        }
        Ok(all)
    }

    crate::verbs!(async_methods);

    /// Sends the query or administrative verb.
    ///
    /// # Errors
    /// See the method of the verb, such as [`resize`](Self::resize).
    pub async fn call<V: Verb>(&self, verb: V) -> Result<V::Reply, Error> {
        let mut operation = verb.into();
        if let Operation::Revoke(Revoke { name, peer, fencing }) = &mut operation {
            *peer = self.holder(name, *fencing).await?;
        }
        self.reply::<V>(operation).await
    }

    async fn holder(&self, name: &Name, fencing: u64) -> Result<Option<PeerId>, Error> {
        let show = Show { name: name.clone() };
        let details: ResourceDetails = self.reply::<Show>(show.into()).await?;
        let has_it = |slot: &&SlotView| slot.client.as_ref().is_some_and(|client| client.fencing == Some(fencing));
        Ok(details.holders.iter().find(has_it).map(|slot| slot.peer))
    }

    async fn reply<V: Verb>(&self, operation: Operation) -> Result<V::Reply, Error> {
        let answer = self.answer(|call| Input::Call { call, operation }).await?;
        let wrong = |answer| unreachable!("{answer:?} does not answer {}", V::ROUTE);
        Ok(answer.try_into().unwrap_or_else(wrong))
    }

    /// Returns the connected peers and the voters, this one first, from local state; [`Service::cluster`] returns all
    /// members.
    pub async fn peers(&self) -> Result<Vec<PeerView>, Error> {
        self.read(Node::peers).await
    }

    /// Returns the counters of this peer.
    pub async fn counters(&self) -> Result<Counters, Error> {
        self.send(Command::Counters).await
    }

    /// Returns the health of this peer from local state, also without a quorum.
    pub async fn health(&self) -> Result<Health, Error> {
        self.send(Command::Health).await
    }

    /// Returns the internal state of this peer.
    pub async fn inspect(&self) -> Result<Inspection, Error> {
        self.read(Node::inspect).await
    }

    /// Returns the events of this peer from now on. A slow receiver misses the oldest ones, and receives their number.
    pub fn events(&self) -> broadcast::Receiver<Happening> {
        self.shared.events.subscribe()
    }

    /// Grants no more slots, withdraws waiting requests, and revokes all grants, so that clients can stop before
    /// [`leave`](Self::leave). Resolves when every grant is released or has expired.
    pub async fn drain(&self) {
        _ = self.send(|reply| Command::Drain(Input::Drain, reply)).await;
    }

    /// Grants no more slots, and withdraws waiting requests. Resolves when all grants are released or have expired,
    /// except [detached](Self::acquire_detached) ones.
    pub async fn close(&self) {
        _ = self.send(|reply| Command::Drain(Input::Close, reply)).await;
    }

    /// Returns whether a client waits, or has a grant that ends with this peer's session. If the process ends without
    /// [leaving](Self::leave), the next one takes such grants over.
    pub async fn has_clients(&self) -> bool {
        self.read(|node, _| node.has_clients()).await.unwrap_or(false)
    }

    /// Ends the session: grants here are lost, and other peers receive the slots. Returns whether the registry has
    /// confirmed it; if not, the slots become free when the session expires.
    pub async fn leave(&self) -> bool {
        self.send(Command::Leave).await.unwrap_or(false)
    }

    async fn answer(&self, input: impl FnOnce(u64) -> Input + Send + 'static) -> Result<Answer, Error> {
        self.send(|reply| Command::Call(Box::new(input), reply)).await?
    }

    async fn read<R: Send + 'static>(&self, read: impl FnOnce(&Node, Time) -> R + Send + 'static) -> Result<R, Error> {
        self.send(|reply| Command::Read(Box::new(move |node, now| _ = reply.send(read(node, now))))).await
    }

    async fn send<R>(&self, command: impl FnOnce(oneshot::Sender<R>) -> Command) -> Result<R, Error> {
        let (reply, answer) = oneshot::channel();
        _ = self.shared.commands.send(command(reply));
        answer.await.map_err(|_| Error::Stopped)
    }
}

/// A pending request: a future that resolves to its grant.
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
    /// Returns the queue position as it changes.
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
        if let Ok(Ok(unclaimed)) = self.answer.try_recv()
            && self.resumes
        {
            unclaimed.detach();
        }
        _ = self.commands.send(Command::Forget(self.waiter));
    }
}
