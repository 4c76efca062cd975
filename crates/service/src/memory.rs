//! A network within one process, for tests, with delays, partitions and crashes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use peerlock_types::{PeerId, Rng};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::transport::{Event, Parting, Transport};

/// The peers of one process and their connections.
#[derive(Clone)]
pub struct Network(Arc<Mutex<State>>);

struct State {
    rng: Rng,
    /// The least and the greatest delay of a message.
    delay: (Duration, Duration),
    ports: BTreeMap<PeerId, Port>,
    /// Pairs of peers, the smaller first, that cannot reach each other.
    cut: BTreeSet<(PeerId, PeerId)>,
    pairs: BTreeMap<(PeerId, PeerId), Pair>,
    sent: u64,
}

#[derive(Clone, Copy, Default)]
struct Pair {
    epoch: u64,
    up: bool,
    /// Whether the smaller peer dials, and the larger one.
    dials: (bool, bool),
}

impl Pair {
    fn dials(&mut self, is_smaller: bool) -> &mut bool {
        if is_smaller { &mut self.dials.0 } else { &mut self.dials.1 }
    }
}

struct Port {
    inbox: BTreeMap<(Instant, u64), Event>,
    /// The arrival time of the last message from each peer, which the next message must not overtake.
    last: BTreeMap<PeerId, Instant>,
    wake: Arc<Notify>,
}

impl Network {
    /// Creates a network without peers or delays.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            rng: Rng::new(seed),
            delay: (Duration::ZERO, Duration::ZERO),
            ports: BTreeMap::new(),
            cut: BTreeSet::new(),
            pairs: BTreeMap::new(),
            sent: 0,
        })))
    }

    /// Sets the delay of messages.
    pub fn delay(&self, least: Duration, most: Duration) {
        self.state().delay = (least, most);
    }

    /// Adds a peer. Kills an earlier one with this ID.
    pub fn endpoint(&self, peer: PeerId) -> Endpoint {
        self.kill(peer);
        let wake = Arc::new(Notify::new());
        let port = Port { inbox: BTreeMap::new(), last: BTreeMap::new(), wake: wake.clone() };
        let mut state = self.state();
        state.ports.insert(peer, port);
        state.reconnect();
        Endpoint { me: peer, wake, network: self.clone(), unhurried: Vec::new() }
    }

    /// Returns the address of a peer, for [`Transport::dial`].
    pub fn address(peer: PeerId) -> String {
        format!("memory:{peer}")
    }

    /// Disconnects two peers until they are [healed](Self::heal). Messages on their way are lost.
    pub fn cut(&self, a: PeerId, b: PeerId) {
        let mut state = self.state();
        state.cut.insert((a.min(b), a.max(b)));
        state.disconnect((a.min(b), a.max(b)), "the wire is cut");
    }

    /// Reconnects two peers.
    pub fn heal(&self, a: PeerId, b: PeerId) {
        let mut state = self.state();
        state.cut.remove(&(a.min(b), a.max(b)));
        state.reconnect();
    }

    /// Resets the connection of two peers. Messages on their way are lost.
    pub fn blink(&self, a: PeerId, b: PeerId) {
        let mut state = self.state();
        state.disconnect((a.min(b), a.max(b)), "the connection was reset");
        state.reconnect();
    }

    /// Crashes a peer: its endpoint stops, and its connections end.
    pub fn kill(&self, peer: PeerId) {
        let mut state = self.state();
        let pairs: Vec<_> = state.pairs.keys().copied().filter(|&(a, b)| a == peer || b == peer).collect();
        for pair in pairs {
            state.disconnect(pair, "the other side is gone");
        }
        if let Some(port) = state.ports.remove(&peer) {
            port.wake.notify_one();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn connect(&mut self, pair: (PeerId, PeerId)) {
        let (a, b) = pair;
        let known = self.pairs.entry(pair).or_default();
        if known.up || self.cut.contains(&pair) || !self.ports.contains_key(&a) || !self.ports.contains_key(&b) {
            return;
        }
        *known = Pair { epoch: known.epoch + 1, up: true, ..*known };
        let epoch = known.epoch;
        self.post(b, a, Event::Up { peer: b, epoch, address: Network::address(b) });
        self.post(a, b, Event::Up { peer: a, epoch, address: Network::address(a) });
    }

    fn reconnect(&mut self) {
        let wanted = self.pairs.iter().filter(|(_, pair)| pair.dials != (false, false));
        let pairs: Vec<_> = wanted.map(|(pair, _)| *pair).collect();
        pairs.into_iter().for_each(|pair| self.connect(pair));
    }

    fn dial(&mut self, me: PeerId, address: &str, dials: bool) {
        let number = address.strip_prefix("memory:").and_then(|number| number.parse().ok());
        let Some(peer) = number.map(PeerId::new).filter(|peer| *peer != me) else { return };
        let pair = (me.min(peer), me.max(peer));
        *self.pairs.entry(pair).or_default().dials(me < peer) = dials;
        if dials {
            self.connect(pair);
        }
    }

    fn disconnect(&mut self, pair: (PeerId, PeerId), why: &str) {
        if !self.pairs.get(&pair).is_some_and(|known| known.up) {
            return;
        }
        for (from, to) in [pair, (pair.1, pair.0)] {
            if let Some(port) = self.ports.get_mut(&to) {
                port.inbox.retain(|_, event| !matches!(event, Event::Message { from: sender, .. } if *sender == from));
            }
        }
        self.end(pair, why);
    }

    /// Ends a connection once the messages in transit have arrived.
    fn end(&mut self, pair: (PeerId, PeerId), why: &str) {
        let Some(known) = self.pairs.get_mut(&pair).filter(|known| known.up) else { return };
        known.up = false;
        let epoch = known.epoch;
        for (from, to) in [pair, (pair.1, pair.0)] {
            self.post(from, to, Event::Down { peer: from, epoch, why: why.to_owned() });
        }
    }

    fn post(&mut self, from: PeerId, to: PeerId, event: Event) {
        let Some(port) = self.ports.get_mut(&to) else { return };
        let (least, most) = self.delay;
        let spread = (most - least).as_nanos() as u64;
        let delay = least + Duration::from_nanos(self.rng.below(spread + 1));
        let last = port.last.entry(from).or_insert_with(Instant::now);
        *last = (*last).max(Instant::now() + delay);
        self.sent += 1;
        port.inbox.insert((*last, self.sent), event);
        port.wake.notify_one();
    }
}

/// One peer's end of a [`Network`].
pub struct Endpoint {
    me: PeerId,
    wake: Arc<Notify>,
    network: Network,
    unhurried: Vec<(PeerId, u64, Vec<u8>)>,
}

impl Endpoint {
    fn post(&self, to: PeerId, epoch: u64, bytes: Vec<u8>) {
        let mut state = self.network.state();
        let alive = state.ports.get(&self.me).is_some_and(|port| Arc::ptr_eq(&port.wake, &self.wake));
        let pair = state.pairs.get(&(self.me.min(to), self.me.max(to))).copied().unwrap_or_default();
        if alive && pair.up && pair.epoch == epoch {
            state.post(self.me, to, Event::Message { from: self.me, epoch, bytes });
        }
    }

    fn post_unhurried(&mut self, goes: impl Fn(PeerId) -> bool) {
        let going: Vec<_> = self.unhurried.extract_if(.., |(to, ..)| goes(*to)).collect();
        going.into_iter().for_each(|(to, epoch, bytes)| self.post(to, epoch, bytes));
    }

    /// Returns the next event that has arrived; if there is none, when the next one will. Fails if this peer was
    /// killed.
    fn poll(&self) -> Result<Result<Event, Option<Instant>>, ()> {
        let mut state = self.network.state();
        let port = state.ports.get_mut(&self.me).filter(|port| Arc::ptr_eq(&port.wake, &self.wake)).ok_or(())?;
        let Some(first) = port.inbox.first_entry() else { return Ok(Err(None)) };
        let at = first.key().0;
        Ok(if at <= Instant::now() { Ok(first.remove()) } else { Err(Some(at)) })
    }
}

impl Transport for Endpoint {
    fn me(&self) -> PeerId {
        self.me
    }

    fn addresses(&self) -> Vec<String> {
        vec![Network::address(self.me)]
    }

    fn dial(&mut self, address: &str) {
        self.network.state().dial(self.me, address, true);
    }

    fn forget(&mut self, address: &str) {
        self.network.state().dial(self.me, address, false);
    }

    fn send(&mut self, to: PeerId, epoch: u64, bytes: Vec<u8>) {
        self.post_unhurried(|other| other == to);
        self.post(to, epoch, bytes);
    }

    fn send_soon(&mut self, to: PeerId, epoch: u64, bytes: Vec<u8>) {
        self.unhurried.push((to, epoch, bytes));
    }

    fn flush(&mut self) {
        self.post_unhurried(|_| true);
    }

    fn hang_up(&mut self, peer: PeerId, _epoch: u64, _why: Parting) {
        self.network.blink(self.me, peer);
    }

    async fn next(&mut self) -> Option<Event> {
        loop {
            match self.poll() {
                Ok(Ok(event)) => return Some(event),
                Ok(Err(None)) => self.wake.notified().await,
                Ok(Err(Some(at))) => tokio::select! {
                    () = self.wake.notified() => {}
                    () = sleep_until(at) => {}
                },
                Err(()) => return None,
            }
        }
    }

    async fn stop(self) {
        let me = self.me;
        let mut state = self.network.state();
        if state.ports.get(&me).is_some_and(|port| Arc::ptr_eq(&port.wake, &self.wake)) {
            let pairs: Vec<_> = state.pairs.keys().copied().filter(|&(a, b)| a == me || b == me).collect();
            pairs.into_iter().for_each(|pair| state.end(pair, "the other side has left"));
            state.ports.remove(&me);
        }
    }
}
