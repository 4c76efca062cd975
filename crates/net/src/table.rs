//! The links, and the queues between them and the application. Implements the contract of the crate.
//!
//! One lock protects everything. It is never held across an await, so the end of an epoch, its `Down` and the start of
//! the next epoch are one step: no message of an old epoch can follow.
//!
//! *Which connection is the link.* Two peers may dial each other simultaneously, lose a connection on one side only, or
//! restart. The peer with the smaller number decides for both. It numbers the links it takes and keeps the current one,
//! unless the other side has lost that one (`Hello::over`) or is another process (`Hello::incarnation`).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use peerlock_types::PeerId;
use tokio::sync::Notify;

use crate::frame::Hello;
use crate::identity::Name;
use crate::random::random;
use crate::{Config, Event, Fingerprint, Metrics, Refusal, Secret, Unreached, Unsent, Why};

/// The cost of a message beside its bytes: empty ones are bounded, too.
const OVERHEAD: usize = 64;

pub(crate) const fn cost(length: usize) -> usize {
    length.saturating_add(OVERHEAD)
}

/// Limit of failed dials queued for an application that does not read.
const UNREACHED: usize = 256;

/// A peer that has proved itself on a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Newcomer {
    pub peer: PeerId,
    pub name: Name,
    pub hello: Hello,
    pub address: SocketAddr,
    pub found: IpAddr,
    /// The secret that it has proved, and the one preferred when the proof started.
    pub proved: Fingerprint,
    pub first: Fingerprint,
}

pub(crate) struct Table {
    me: PeerId,
    incarnation: u64,
    config: Config,
    pub listen: OnceLock<SocketAddr>,
    state: Mutex<State>,
    /// There is an event for the application.
    pub changed: Notify,
    pub ended: Notify,
}

struct State {
    /// It is under this lock, so that no link can come up with a replaced one.
    secret: Secret,
    links: HashMap<PeerId, Link>,
    /// The newest ended link, as sent in `Hello`, until the other side has surely noticed.
    past: HashMap<PeerId, ((u64, u64), Instant)>,
    /// Addresses where members are or may be, the latest last.
    known: VecDeque<IpAddr>,
    inbox: VecDeque<Event>,
    /// The cost of the inbox by sender, over all its links.
    inbox_costs: HashMap<PeerId, usize>,
    delayed: Vec<(PeerId, u64)>,
    /// How many inbox entries are `Up` or `Down`, and how many are `Unreached`.
    changes: usize,
    unreached: usize,
    last_epoch: u64,
    leaving: bool,
    metrics: Metrics,
}

struct Link {
    newcomer: Newcomer,
    epoch: u64,
    number: u64,
    /// The process of this peer that this one has replaced.
    before: Option<u64>,
    outbox: VecDeque<Bytes>,
    outbox_cost: usize,
    signals: Arc<Signals>,
}

#[derive(Default)]
struct Signals {
    /// There is something to write, or the link has ended.
    write: Notify,
    /// There is room in the inbox, or the link has ended.
    room: Notify,
    /// Messages that were queued when the application hung up.
    queued: Mutex<VecDeque<Bytes>>,
}

pub(crate) enum Work {
    /// Write these messages, then report their cost.
    Messages(VecDeque<Bytes>, usize),
    Leave,
    Nothing,
    /// The link has ended.
    Over,
}

/// A connection's entry in the table. Dropping it ends the link.
pub(crate) struct LinkGuard {
    table: Arc<Table>,
    peer: PeerId,
    pub address: SocketAddr,
    epoch: u64,
    pub number: u64,
    signals: Arc<Signals>,
}

impl Table {
    pub fn new(me: PeerId, config: Config, secret: Secret) -> Self {
        Self {
            me,
            incarnation: u64::from_ne_bytes(random()),
            config,
            listen: OnceLock::new(),
            state: Mutex::new(State::new(secret)),
            changed: Notify::new(),
            ended: Notify::new(),
        }
    }

    pub fn decides(&self, peer: PeerId) -> bool {
        self.me < peer
    }

    pub fn advertised(&self) -> SocketAddr {
        let listen = self.listen.get().copied().unwrap_or(self.config.listen);
        match self.config.advertise {
            Some(socket) if socket.port() == 0 => SocketAddr::new(socket.ip(), listen.port()),
            Some(socket) => socket,
            None => listen,
        }
    }

    pub fn greet(&self, peer: PeerId, name: Name) -> Result<Hello, Refusal> {
        let state = self.lock();
        self.admissible(&state, peer, name)?;
        Ok(Hello {
            incarnation: self.incarnation,
            over: state.past.get(&peer).map_or((0, 0), |(over, _)| *over),
            listen: self.advertised(),
        })
    }

    /// Makes this connection the link, as the deciding peer.
    pub fn take(self: &Arc<Self>, newcomer: Newcomer) -> Result<LinkGuard, Refusal> {
        let mut state = self.lock();
        state.still_proved(&newcomer)?;
        self.admissible(&state, newcomer.peer, newcomer.name)?;
        if let Some(link) = state.links.get(&newcomer.peer) {
            let restarted = link.newcomer.hello.incarnation != newcomer.hello.incarnation;
            let (decider, over) = newcomer.hello.over;
            let lost = decider == self.incarnation && over >= link.number;
            if !restarted && !lost {
                return Err(Refusal::Duplicate);
            }
        }
        let number = state.last_epoch + 1;
        Ok(self.guard(&mut state, newcomer, number))
    }

    /// Makes this connection the link, as the other side has decided.
    pub fn follow(self: &Arc<Self>, newcomer: Newcomer, number: u64) -> Result<LinkGuard, Refusal> {
        let mut state = self.lock();
        state.still_proved(&newcomer)?;
        self.admissible(&state, newcomer.peer, newcomer.name)?;
        if let Some(link) = state.links.get(&newcomer.peer) {
            let same = link.newcomer.hello.incarnation == newcomer.hello.incarnation;
            if same && number <= link.number {
                // The other side's next decision has overtaken this one.
                return Err(Refusal::Duplicate);
            }
        }
        Ok(self.guard(&mut state, newcomer, number))
    }

    /// Returns whether another process with the same identity has replaced this one and is linked. A restarted process
    /// never returns with its old incarnation, so both processes run.
    pub fn is_twin(&self, newcomer: &Newcomer) -> bool {
        let state = self.lock();
        let link = state.links.get(&newcomer.peer).filter(|link| link.newcomer.name == newcomer.name);
        let incarnation = newcomer.hello.incarnation;
        link.is_some_and(|link| link.newcomer.hello.incarnation != incarnation && link.before == Some(incarnation))
    }

    pub fn know(&self, ip: IpAddr) {
        self.lock().know(ip, self.config.max_peers);
    }

    pub fn knows(&self, ip: IpAddr) -> bool {
        self.lock().known.contains(&ip)
    }

    fn admissible(&self, state: &State, peer: PeerId, name: Name) -> Result<(), Refusal> {
        if state.leaving {
            return Err(Refusal::Leaving);
        }
        // Our own name is refused earlier, so this is another key.
        if peer == self.me {
            return Err(Refusal::Collision);
        }
        match state.links.get(&peer) {
            Some(link) if link.newcomer.name != name => return Err(Refusal::Collision),
            Some(_) => {}
            None if state.links.len() >= self.config.max_peers => return Err(Refusal::Crowded),
            None => {}
        }
        // Bounds the events for an application that does not read.
        if state.changes > 4 * self.config.max_peers { Err(Refusal::Crowded) } else { Ok(()) }
    }

    fn guard(self: &Arc<Self>, state: &mut State, newcomer: Newcomer, number: u64) -> LinkGuard {
        let peer = newcomer.peer;
        let mut before = None;
        if let Some(link) = state.links.get(&peer) {
            let (epoch, process) = (link.epoch, link.newcomer.hello.incarnation);
            before = if process == newcomer.hello.incarnation { link.before } else { Some(process) };
            self.end_locked(state, peer, epoch, Why::Replaced);
        }
        state.know(newcomer.found, self.config.max_peers);
        state.last_epoch += 1;
        let epoch = state.last_epoch;
        let signals = Arc::<Signals>::default();
        let link = Link {
            newcomer,
            epoch,
            number,
            before,
            outbox: VecDeque::new(),
            outbox_cost: 0,
            signals: Arc::clone(&signals),
        };
        state.links.insert(peer, link);
        state.metrics.ups += 1;
        state.changes += 1;
        state.inbox.push_back(Event::Up { peer, epoch, address: newcomer.address });
        self.changed.notify_one();
        LinkGuard { table: Arc::clone(self), peer, address: newcomer.address, epoch, number, signals }
    }

    pub fn secret(&self) -> Secret {
        self.lock().secret.clone()
    }

    /// Ends links so that new proofs show which peers know the preferred secret.
    pub fn replace_secret(&self, secret: Secret) {
        let mut state = self.lock();
        let replace = state.secret.preferred() != secret.preferred();
        let stays = |proved| secret.accepts(proved) && (!replace || proved == secret.preferred());
        let links = state.links.iter().filter(|(_, link)| !stays(link.newcomer.proved));
        let over: Vec<_> = links.map(|(peer, link)| (*peer, link.epoch)).collect();
        state.secret = secret;
        for (peer, epoch) in over {
            self.end_locked(&mut state, peer, epoch, Why::Secret);
        }
    }

    pub fn proved(&self) -> BTreeMap<PeerId, Fingerprint> {
        self.lock().links.iter().map(|(peer, link)| (*peer, link.newcomer.proved)).collect()
    }

    pub fn end(&self, peer: PeerId, epoch: u64, why: Why) {
        self.end_locked(&mut self.lock(), peer, epoch, why);
    }

    /// Ends a link for the application. Queued messages may contain the reason, so they are still written.
    pub fn hang_up(&self, peer: PeerId, epoch: u64, why: Why) {
        let mut state = self.lock();
        if let Some(link) = state.link(peer, epoch) {
            let queued = std::mem::take(&mut link.outbox);
            *link.signals.queued.lock().unwrap_or_else(PoisonError::into_inner) = queued;
        }
        self.end_locked(&mut state, peer, epoch, why);
    }

    fn end_locked(&self, state: &mut State, peer: PeerId, epoch: u64, why: Why) {
        let Some(link) = state.link(peer, epoch) else { return };
        let decider = if self.decides(peer) { self.incarnation } else { link.newcomer.hello.incarnation };
        let over = (decider, link.number);
        link.signals.write.notify_one();
        link.signals.room.notify_one();
        state.metrics.dropped += link.outbox.len() as u64;
        state.links.remove(&peer);
        let now = Instant::now();
        let long_ago = 4 * self.config.silence();
        state.past.retain(|_, (_, when)| now.duration_since(*when) < long_ago);
        state.past.insert(peer, (over, now));
        *state.metrics.downs.entry(why).or_default() += 1;
        state.changes += 1;
        state.inbox.push_back(Event::Down { peer, epoch, why });
        self.changed.notify_one();
        self.ended.notify_waiters();
    }

    pub fn send(&self, to: PeerId, epoch: u64, bytes: Bytes) -> Result<(), Unsent> {
        let mut state = self.lock();
        let signals = Arc::clone(&self.queue(&mut state, to, epoch, bytes)?.signals);
        drop(state);
        signals.write.notify_one();
        Ok(())
    }

    pub fn send_soon(&self, to: PeerId, epoch: u64, bytes: Bytes) -> Result<(), Unsent> {
        let mut state = self.lock();
        self.queue(&mut state, to, epoch, bytes)?;
        state.delayed.push((to, epoch));
        Ok(())
    }

    pub fn flush(&self) {
        let mut state = self.lock();
        let mut delayed = std::mem::take(&mut state.delayed);
        for (peer, epoch) in delayed.drain(..) {
            // Most have been written with another message meanwhile.
            if let Some(link) = state.link(peer, epoch).filter(|link| !link.outbox.is_empty()) {
                link.signals.write.notify_one();
            }
        }
        state.delayed = delayed;
    }

    fn queue<'a>(&self, state: &'a mut State, to: PeerId, epoch: u64, bytes: Bytes) -> Result<&'a Link, Unsent> {
        let cost = cost(bytes.len());
        let unsent = match state.link(to, epoch) {
            _ if bytes.len() > self.config.max_message => Unsent::TooLong,
            None => Unsent::Down,
            Some(link) if link.outbox_cost + cost > self.config.outbox => Unsent::Slow,
            Some(_) => {
                let link = state.links.get_mut(&to).expect("it was there a line ago");
                link.outbox_cost += cost;
                link.outbox.push_back(bytes);
                return Ok(link);
            }
        };
        state.metrics.dropped += 1;
        if unsent == Unsent::Slow {
            self.end_locked(state, to, epoch, Why::Slow);
        }
        Err(unsent)
    }

    pub fn pop(&self) -> Option<Event> {
        let mut state = self.lock();
        let event = state.inbox.pop_front()?;
        match &event {
            Event::Message { from, bytes, .. } => {
                let before = state.inbox_costs.remove(from).expect("what is in the inbox was charged to its sender");
                let after = before - cost(bytes.len());
                if after > 0 {
                    state.inbox_costs.insert(*from, after);
                }
                if let Some(link) = state.links.get(from).filter(|_| before >= self.config.inbox) {
                    link.signals.room.notify_one();
                }
            }
            Event::Up { .. } | Event::Down { .. } => state.changes -= 1,
            Event::Unreached { .. } => state.unreached -= 1,
        }
        Some(event)
    }

    pub fn unreached(&self, address: SocketAddr, why: Unreached) {
        let mut state = self.lock();
        state.metrics.unreached += 1;
        if state.unreached < UNREACHED {
            state.unreached += 1;
            state.inbox.push_back(Event::Unreached { address, why });
            self.changed.notify_one();
        }
    }

    pub fn refused(&self, refusal: Refusal) {
        *self.lock().metrics.refused.entry(refusal).or_default() += 1;
    }

    pub fn not_accepted(&self) {
        self.lock().metrics.not_accepted += 1;
    }

    pub fn dialled(&self, again: bool) {
        let mut state = self.lock();
        state.metrics.dials += 1;
        state.metrics.redials += u64::from(again);
    }

    pub fn is_up(&self, peer: PeerId) -> bool {
        self.lock().links.contains_key(&peer)
    }

    pub fn peers(&self) -> BTreeMap<PeerId, (u64, SocketAddr)> {
        self.lock().links.iter().map(|(peer, link)| (*peer, (link.epoch, link.newcomer.address))).collect()
    }

    pub fn metrics(&self) -> Metrics {
        let state = self.lock();
        Metrics { up: state.links.len() as u64, ..state.metrics.clone() }
    }

    /// Ends every link with a goodbye once its queue is empty.
    pub fn leave(&self) {
        let mut state = self.lock();
        state.leaving = true;
        state.links.values().for_each(|link| link.signals.write.notify_one());
    }

    pub fn is_empty(&self) -> bool {
        self.lock().links.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic of another thread is a bug in one link; the other links continue.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn new(secret: Secret) -> Self {
        Self {
            secret,
            links: HashMap::new(),
            past: HashMap::new(),
            known: VecDeque::new(),
            inbox: VecDeque::new(),
            inbox_costs: HashMap::new(),
            delayed: Vec::new(),
            changes: 0,
            unreached: 0,
            last_epoch: 0,
            leaving: false,
            metrics: Metrics::default(),
        }
    }

    /// Checks a proof again: its secret may have been dropped since the handshake. If another one is preferred since,
    /// the connection is refused, so that the next one proves the new secret.
    fn still_proved(&self, newcomer: &Newcomer) -> Result<(), Refusal> {
        let preferred = self.secret.preferred();
        match newcomer.proved {
            proved if !self.secret.accepts(proved) => Err(Refusal::Secret),
            proved if proved != preferred && newcomer.first != preferred => Err(Refusal::Broken),
            _ => Ok(()),
        }
    }

    /// Records an address, and drops the least recently recorded address if there are too many.
    fn know(&mut self, ip: IpAddr, most: usize) {
        self.known.retain(|known| *known != ip);
        self.known.push_back(ip);
        if self.known.len() > most {
            self.known.pop_front();
        }
    }

    fn link(&mut self, peer: PeerId, epoch: u64) -> Option<&mut Link> {
        self.links.get_mut(&peer).filter(|link| link.epoch == epoch)
    }
}

impl LinkGuard {
    pub fn work(&self) -> Work {
        let mut state = self.table.lock();
        let leaving = state.leaving;
        match state.link(self.peer, self.epoch) {
            None => Work::Over,
            Some(link) if !link.outbox.is_empty() => {
                // The cost is charged until the messages are written.
                let messages = std::mem::take(&mut link.outbox);
                let cost = messages.iter().map(|bytes| cost(bytes.len())).sum();
                Work::Messages(messages, cost)
            }
            Some(_) if leaving => Work::Leave,
            Some(_) => Work::Nothing,
        }
    }

    pub fn wake_writer(&self) {
        self.signals.write.notify_one();
    }

    pub async fn wait_for_work(&self) {
        self.signals.write.notified().await;
    }

    pub fn written(&self, messages: usize, cost: usize) {
        let mut state = self.table.lock();
        state.metrics.sent += messages as u64;
        state.metrics.sent_bytes += (cost - messages * OVERHEAD) as u64;
        if let Some(link) = state.link(self.peer, self.epoch) {
            link.outbox_cost -= cost;
        }
    }

    /// Delivers a message, or returns it if there is no room. `Ok(false)`: the link has ended.
    pub fn deliver(&self, bytes: Bytes) -> Result<bool, Bytes> {
        let mut state = self.table.lock();
        if state.link(self.peer, self.epoch).is_none() {
            return Ok(false);
        }
        let in_inbox = state.inbox_costs.entry(self.peer).or_default();
        if *in_inbox >= self.table.config.inbox {
            return Err(bytes);
        }
        *in_inbox += cost(bytes.len());
        state.metrics.received += 1;
        state.metrics.received_bytes += bytes.len() as u64;
        state.inbox.push_back(Event::Message { from: self.peer, epoch: self.epoch, bytes });
        drop(state);
        self.table.changed.notify_one();
        Ok(true)
    }

    /// Takes the messages of a link that the application has ended, with their cost.
    pub fn queued(&self) -> (VecDeque<Bytes>, usize) {
        let mut queued = self.signals.queued.lock().unwrap_or_else(PoisonError::into_inner);
        let messages = std::mem::take(&mut *queued);
        let cost = messages.iter().map(|bytes| cost(bytes.len())).sum();
        (messages, cost)
    }

    pub fn is_over(&self) -> bool {
        self.table.lock().link(self.peer, self.epoch).is_none()
    }

    pub async fn wait_for_room(&self) {
        self.signals.room.notified().await;
    }

    pub fn end(self, why: Why) {
        self.table.end(self.peer, self.epoch, why);
    }
}

impl Drop for LinkGuard {
    fn drop(&mut self) {
        self.table.end(self.peer, self.epoch, Why::Lost);
    }
}

impl Config {
    /// Returns for how many beats a link counts as in use after a message.
    pub(crate) fn rest_beats(&self) -> u32 {
        u32::try_from(self.rest.as_nanos() / self.beat.as_nanos().max(1)).unwrap_or(u32::MAX)
    }

    pub(crate) fn silence(&self) -> Duration {
        2 * self.rest + self.beat * (self.missed + 1)
    }
}

#[cfg(test)]
mod tests;
