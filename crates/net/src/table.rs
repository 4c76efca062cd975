//! Who is linked with us, and what is on its way between the links and the application: the one place that keeps the
//! contract.
//!
//! Everything is under one lock that is held for a few instructions and never across an await, so an epoch's end, its
//! `Down` and the beginning of the next are one step: no message of an old epoch can slip in behind.
//!
//! *Which connection is the link.* Two peers may dial each other at once, lose a connection on one side only, or
//! restart. The peer with the smaller number decides for both, so they cannot disagree. It numbers the links it takes
//! and keeps the one it has, unless the other side has lost that one (`Hello::over`) or is another process
//! (`Hello::incarnation`).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use peerlock_base::PeerId;
use tokio::sync::Notify;

use crate::frame::Hello;
use crate::identity::Name;
use crate::random::random;
use crate::{Config, Epoch, Event, Fingerprint, Metrics, Refusal, Secret, Unreached, Unsent, Why};

/// What a queued message costs beside its bytes, so that empty ones are bounded, too.
const OVERHEAD: usize = 64;

/// What a message of this length costs a queue.
pub(crate) const fn cost(length: usize) -> usize {
    length.saturating_add(OVERHEAD)
}

/// How many failed dials wait for an application that does not listen, before further ones are only counted.
const UNREACHED: usize = 256;

/// A peer that has proved itself on a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Newcomer {
    pub peer: PeerId,
    /// Its whole public key.
    pub name: Name,
    pub hello: Hello,
    /// Where others can reach it.
    pub address: SocketAddr,
    /// Where this connection of it comes from.
    pub seen: IpAddr,
    /// Which secret it has proved to know, and which was to be proved first when it began.
    pub proved: Fingerprint,
    pub first: Fingerprint,
}

/// Links, queues and counters of one peer.
pub(crate) struct Table {
    me: PeerId,
    incarnation: u64,
    config: Config,
    /// Where we listen by TCP, once we do.
    pub listen: OnceLock<SocketAddr>,
    state: Mutex<State>,
    /// There is something for the application.
    pub news: Notify,
    /// A link is over.
    pub ended: Notify,
}

struct State {
    /// What others must know. It is here so that no link can come up by one that was dropped.
    secret: Secret,
    links: HashMap<PeerId, Link>,
    /// The newest link that is over, as `Hello` tells it, and since when; until the other side has surely noticed.
    past: HashMap<PeerId, ((u64, u64), Instant)>,
    /// Where members have been, or are said to be; the latest last.
    known: VecDeque<IpAddr>,
    inbox: VecDeque<Event>,
    /// What of it costs how much, by who has said it, on this link or on one that is over.
    inbox_costs: HashMap<PeerId, usize>,
    /// Links with messages that wait for others to the same peer, or for a flush.
    unhurried: Vec<(PeerId, Epoch)>,
    /// How many of the inbox are `Up` or `Down`, and how many are `Unreached`.
    changes: usize,
    unreached: usize,
    last_epoch: u64,
    leaving: bool,
    metrics: Metrics,
}

struct Link {
    newcomer: Newcomer,
    epoch: Epoch,
    /// The number that the peer with the smaller number gave it.
    number: u64,
    /// The process of the same peer that this one has taken the place of.
    before: Option<u64>,
    outbox: VecDeque<Bytes>,
    outbox_cost: usize,
    signals: Arc<Signals>,
}

#[derive(Default)]
struct Signals {
    /// There is something to write, or the link is over.
    write: Notify,
    /// There is room in the inbox, or the link is over.
    room: Notify,
    /// What was queued when the application hung up.
    last_words: Mutex<VecDeque<Bytes>>,
}

/// What a link's writer has to do next.
pub(crate) enum Work {
    /// Write these, then report their cost.
    Messages(VecDeque<Bytes>, usize),
    /// Tell the other side that we leave, and end the link.
    Leave,
    /// Wait until there is something to write.
    Nothing,
    /// Stop: the link is over.
    Over,
}

/// A connection's place in the table. The link is down when it is dropped, whatever the reason.
pub(crate) struct LinkGuard {
    table: Arc<Table>,
    peer: PeerId,
    pub address: SocketAddr,
    epoch: Epoch,
    /// What the other side is told if we decide.
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
            news: Notify::new(),
            ended: Notify::new(),
        }
    }

    /// Whether we are the one who decides between connections with this peer.
    pub fn decides(&self, peer: PeerId) -> bool {
        self.me < peer
    }

    /// Where others are told to find us.
    pub fn advertised(&self) -> SocketAddr {
        let listen = self.listen.get().copied().unwrap_or(self.config.listen);
        match self.config.advertise {
            Some(socket) if socket.port() == 0 => SocketAddr::new(socket.ip(), listen.port()),
            Some(socket) => socket,
            None => listen,
        }
    }

    /// What we tell this peer of ourselves; or why there can be no link with it.
    pub fn greet(&self, peer: PeerId, name: Name) -> Result<Hello, Refusal> {
        let state = self.lock();
        self.admissible(&state, peer, name)?;
        Ok(Hello {
            incarnation: self.incarnation,
            over: state.past.get(&peer).map_or((0, 0), |(over, _)| *over),
            listen: self.advertised(),
        })
    }

    /// The decider's choice: makes this connection the link with its peer, or says why not.
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

    /// Follows the other side's choice.
    pub fn follow(self: &Arc<Self>, newcomer: Newcomer, number: u64) -> Result<LinkGuard, Refusal> {
        let mut state = self.lock();
        state.still_proved(&newcomer)?;
        self.admissible(&state, newcomer.peer, newcomer.name)?;
        if let Some(link) = state.links.get(&newcomer.peer) {
            let same = link.newcomer.hello.incarnation == newcomer.hello.incarnation;
            if same && number <= link.number {
                // Its choice was overtaken by its next one.
                return Err(Refusal::Duplicate);
            }
        }
        Ok(self.guard(&mut state, newcomer, number))
    }

    /// Whether another process with the same identity is linked with us, which has taken the place of this one. One
    /// that was started again never comes back as the process that it was: so both of them run.
    pub fn is_twin(&self, newcomer: &Newcomer) -> bool {
        let state = self.lock();
        let link = state.links.get(&newcomer.peer).filter(|link| link.newcomer.name == newcomer.name);
        let incarnation = newcomer.hello.incarnation;
        link.is_some_and(|link| link.newcomer.hello.incarnation != incarnation && link.before == Some(incarnation))
    }

    /// A member is, or may be, at this address.
    pub fn know(&self, ip: IpAddr) {
        self.lock().know(ip, self.config.max_peers);
    }

    /// Whether a member is or was at this address.
    pub fn knows(&self, ip: IpAddr) -> bool {
        self.lock().known.contains(&ip)
    }

    fn admissible(&self, state: &State, peer: PeerId, name: Name) -> Result<(), Refusal> {
        if state.leaving {
            return Err(Refusal::Leaving);
        }
        // There is no connection with our own name, so our own number means another key.
        if peer == self.me {
            return Err(Refusal::Collision);
        }
        match state.links.get(&peer) {
            Some(link) if link.newcomer.name != name => return Err(Refusal::Collision),
            Some(_) => {}
            None if state.links.len() >= self.config.max_peers => return Err(Refusal::Crowded),
            None => {}
        }
        // An application that does not listen is not told ever more.
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
        state.know(newcomer.seen, self.config.max_peers);
        state.last_epoch += 1;
        let epoch = Epoch(state.last_epoch);
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
        self.news.notify_one();
        LinkGuard { table: Arc::clone(self), peer, address: newcomer.address, epoch, number, signals }
    }

    /// What others must know now.
    pub fn secret(&self) -> Secret {
        self.lock().secret.clone()
    }

    /// Others must know this from now on. Links that were proved with what counts no more are over at once; if another
    /// one is proved first from now on, so are the rest of those that were proved otherwise, so that it shows who knows
    /// it.
    pub fn replace_secret(&self, secret: Secret) {
        let mut state = self.lock();
        let anew = state.secret.preferred() != secret.preferred();
        let stays = |proved| secret.accepts(proved) && (!anew || proved == secret.preferred());
        let links = state.links.iter().filter(|(_, link)| !stays(link.newcomer.proved));
        let over: Vec<_> = links.map(|(peer, link)| (*peer, link.epoch)).collect();
        state.secret = secret;
        for (peer, epoch) in over {
            self.end_locked(&mut state, peer, epoch, Why::Secret);
        }
    }

    /// With which secret everybody who is up has proved to be a member.
    pub fn proved(&self) -> BTreeMap<PeerId, Fingerprint> {
        self.lock().links.iter().map(|(peer, link)| (*peer, link.newcomer.proved)).collect()
    }

    /// Ends a link, unless it is over already.
    pub fn end(&self, peer: PeerId, epoch: Epoch, why: Why) {
        self.end_locked(&mut self.lock(), peer, epoch, why);
    }

    /// Ends a link as the application wants it, unless it is over already. What it has said before is still to be
    /// written: it may be the reason.
    pub fn hang_up(&self, peer: PeerId, epoch: Epoch, why: Why) {
        let mut state = self.lock();
        if let Some(link) = state.link(peer, epoch) {
            let last_words = std::mem::take(&mut link.outbox);
            *link.signals.last_words.lock().unwrap_or_else(PoisonError::into_inner) = last_words;
        }
        self.end_locked(&mut state, peer, epoch, why);
    }

    fn end_locked(&self, state: &mut State, peer: PeerId, epoch: Epoch, why: Why) {
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
        self.news.notify_one();
        self.ended.notify_waiters();
    }

    /// Queues a message for a peer, and has it written with whatever waits for the same one.
    pub fn send(&self, to: PeerId, epoch: Epoch, bytes: Bytes) -> Result<(), Unsent> {
        let mut state = self.lock();
        let signals = Arc::clone(&self.queue(&mut state, to, epoch, bytes)?.signals);
        drop(state);
        signals.write.notify_one();
        Ok(())
    }

    /// Queues a message for a peer that may wait for the next one to it, or for a flush.
    pub fn send_soon(&self, to: PeerId, epoch: Epoch, bytes: Bytes) -> Result<(), Unsent> {
        let mut state = self.lock();
        self.queue(&mut state, to, epoch, bytes)?;
        state.unhurried.push((to, epoch));
        Ok(())
    }

    /// Has everything written that waits.
    pub fn flush(&self) {
        let mut state = self.lock();
        let mut unhurried = std::mem::take(&mut state.unhurried);
        for (peer, epoch) in unhurried.drain(..) {
            // Most have gone along with another meanwhile.
            if let Some(link) = state.link(peer, epoch).filter(|link| !link.outbox.is_empty()) {
                link.signals.write.notify_one();
            }
        }
        state.unhurried = unhurried; // Made once and used again.
    }

    fn queue<'a>(&self, state: &'a mut State, to: PeerId, epoch: Epoch, bytes: Bytes) -> Result<&'a Link, Unsent> {
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

    /// The next event for the application, if there is one.
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

    /// Tells the application that a dial led nowhere.
    pub fn unreached(&self, address: SocketAddr, why: Unreached) {
        let mut state = self.lock();
        state.metrics.unreached += 1;
        if state.unreached < UNREACHED {
            state.unreached += 1;
            state.inbox.push_back(Event::Unreached { address, why });
            self.news.notify_one();
        }
    }

    /// Counts a connection that did not become a link.
    pub fn refused(&self, refusal: Refusal) {
        *self.lock().metrics.refused.entry(refusal).or_default() += 1;
    }

    /// Counts that somebody could not be let in.
    pub fn not_accepted(&self) {
        self.lock().metrics.not_accepted += 1;
    }

    /// Counts a dial.
    pub fn dialled(&self, again: bool) {
        let mut state = self.lock();
        state.metrics.dials += 1;
        state.metrics.redials += u64::from(again);
    }

    pub fn is_up(&self, peer: PeerId) -> bool {
        self.lock().links.contains_key(&peer)
    }

    /// Everybody who is up, by number.
    pub fn peers(&self) -> BTreeMap<PeerId, (Epoch, SocketAddr)> {
        self.lock().links.iter().map(|(peer, link)| (*peer, (link.epoch, link.newcomer.address))).collect()
    }

    pub fn metrics(&self) -> Metrics {
        let state = self.lock();
        Metrics { up: state.links.len() as u64, ..state.metrics.clone() }
    }

    /// Every link says goodbye once its queue is empty, and no new one is taken.
    pub fn leave(&self) {
        let mut state = self.lock();
        state.leaving = true;
        state.links.values().for_each(|link| link.signals.write.notify_one());
    }

    pub fn is_empty(&self) -> bool {
        self.lock().links.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere while the lock was held is a bug of ours; the links of others go on.
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
            unhurried: Vec::new(),
            changes: 0,
            unreached: 0,
            last_epoch: 0,
            leaving: false,
            metrics: Metrics::default(),
        }
    }

    /// Its proof may have been for a secret that was dropped while it said hello. Or another one is to be proved first
    /// since then, and this connection would be the only one on which that was not asked for: the next is proved anew.
    fn still_proved(&self, newcomer: &Newcomer) -> Result<(), Refusal> {
        let preferred = self.secret.preferred();
        match newcomer.proved {
            proved if !self.secret.accepts(proved) => Err(Refusal::Secret),
            proved if proved != preferred && newcomer.first != preferred => Err(Refusal::Broken),
            _ => Ok(()),
        }
    }

    /// Notes where a member is, and forgets what it has not heard of for longest.
    fn know(&mut self, ip: IpAddr, most: usize) {
        self.known.retain(|known| *known != ip);
        self.known.push_back(ip);
        if self.known.len() > most {
            self.known.pop_front();
        }
    }

    fn link(&mut self, peer: PeerId, epoch: Epoch) -> Option<&mut Link> {
        self.links.get_mut(&peer).filter(|link| link.epoch == epoch)
    }
}

impl LinkGuard {
    /// What to write next.
    pub fn work(&self) -> Work {
        let mut state = self.table.lock();
        let leaving = state.leaving;
        match state.link(self.peer, self.epoch) {
            None => Work::Over,
            Some(link) if !link.outbox.is_empty() => {
                // Its cost stays on the account until it is written.
                let messages = std::mem::take(&mut link.outbox);
                let cost = messages.iter().map(|bytes| cost(bytes.len())).sum();
                Work::Messages(messages, cost)
            }
            Some(_) if leaving => Work::Leave,
            Some(_) => Work::Nothing,
        }
    }

    /// There may be something to write that is no message.
    pub fn stir(&self) {
        self.signals.write.notify_one();
    }

    /// Returns when there may be work.
    pub async fn worked(&self) {
        self.signals.write.notified().await;
    }

    /// These messages, of this cost, have been handed to the connection.
    pub fn written(&self, messages: usize, cost: usize) {
        let mut state = self.table.lock();
        state.metrics.sent += messages as u64;
        state.metrics.sent_bytes += (cost - messages * OVERHEAD) as u64;
        if let Some(link) = state.link(self.peer, self.epoch) {
            link.outbox_cost -= cost;
        }
    }

    /// Hands a message to the application if there is room, or gives it back. `Ok(false)`: the link is over.
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
        self.table.news.notify_one();
        Ok(true)
    }

    /// What is still to be written on a link that the application has ended, once; and its cost.
    pub fn last_words(&self) -> (VecDeque<Bytes>, usize) {
        let mut last_words = self.signals.last_words.lock().unwrap_or_else(PoisonError::into_inner);
        let messages = std::mem::take(&mut *last_words);
        let cost = messages.iter().map(|bytes| cost(bytes.len())).sum();
        (messages, cost)
    }

    /// Whether the link was ended by somebody else: the application, or a newer connection.
    pub fn is_over(&self) -> bool {
        self.table.lock().link(self.peer, self.epoch).is_none()
    }

    /// Returns when there may be room.
    pub async fn room(&self) {
        self.signals.room.notified().await;
    }

    /// Ends the link.
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
    /// How many beats a link is in use after something was said on it.
    pub(crate) fn rest_beats(&self) -> u32 {
        u32::try_from(self.rest.as_nanos() / self.beat.as_nanos().max(1)).unwrap_or(u32::MAX)
    }

    /// How long it takes at most until a silent peer is noticed.
    pub(crate) fn silence(&self) -> Duration {
        2 * self.rest + self.beat * (self.missed + 1)
    }
}

#[cfg(test)]
mod tests;
