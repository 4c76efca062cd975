//! A small driver for overlays: an event queue, seeded latency and loss, peers that fail silently, and lookups.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt::Write as _;

use peerlock_overlay::chord::{self, Chord};
use peerlock_overlay::pastry::{self, Pastry};
use peerlock_overlay::{Config, Cx, Effect, Input, Node, Overlay, Timer, step};
use peerlock_types::{Key, PeerId, Rng, Span, Time};

pub trait Subject: Overlay {
    const CONFIG: Config;

    /// The owner of `key` by the paper's definition.
    fn owner(ring: &BTreeMap<Key, PeerId>, key: Key) -> PeerId;

    /// The hops so far; 0 if the message is not forwarded.
    fn hops(message: &Self::Message) -> u8;
}

impl Subject for Chord {
    const CONFIG: Config = Config::CHORD;

    fn owner(ring: &BTreeMap<Key, PeerId>, key: Key) -> PeerId {
        let successor = ring.range(key..).next().or(ring.first_key_value());
        *successor.expect("the ring has a peer").1
    }

    fn hops(message: &chord::Message) -> u8 {
        match message {
            chord::Message::Join { way, .. } | chord::Message::Seek { way, .. } => way.hops,
            _ => 0,
        }
    }
}

impl Subject for Pastry {
    const CONFIG: Config = Config::PASTRY;

    fn owner(ring: &BTreeMap<Key, PeerId>, key: Key) -> PeerId {
        let before = ring.range(..=key).next_back().or(ring.last_key_value()).expect("the ring has a peer");
        let after = ring.range(key..).next().or(ring.first_key_value()).expect("the ring has a peer");
        *if before.0.gap(key) <= after.0.gap(key) { before.1 } else { after.1 }
    }

    fn hops(message: &pastry::Message) -> u8 {
        match message {
            pastry::Message::Join { hops, .. } => *hops,
            _ => 0,
        }
    }
}

/// Creates nodes in ring order.
pub fn nodes(count: u64) -> Vec<Node> {
    let mut nodes: Vec<Node> = (0..count).map(|number| Node::of(PeerId::new(number))).collect();
    nodes.sort();
    nodes
}

/// `PEERLOCK_SEED`, or `default`. Shown only when the test fails.
pub fn seed(default: u64) -> u64 {
    let given = std::env::var("PEERLOCK_SEED").ok();
    let seed = given.map_or(default, |text| text.parse().expect("PEERLOCK_SEED is a whole number"));
    println!("PEERLOCK_SEED={seed}");
    seed
}

pub fn ring_of<O: Overlay>(nodes: &[Node], config: Config) -> Vec<O> {
    (0..nodes.len()).map(|place| O::converged(nodes, place, config)).collect()
}

pub fn map(nodes: &[Node]) -> BTreeMap<Key, PeerId> {
    nodes.iter().map(|node| (node.key, node.peer)).collect()
}

pub fn random_key(rng: &mut Rng) -> Key {
    Key::new(u128::from(rng.bits()) << 64 | u128::from(rng.bits()))
}

/// Returns the mean number of hops of lookups, each of which must end at the owner.
pub fn mean_hops<O: Subject>(count: u64, lookups: u64, seed: u64) -> f64 {
    let nodes = nodes(count);
    let (truth, ring) = (map(&nodes), ring_of::<O>(&nodes, O::CONFIG));
    let by_peer: BTreeMap<PeerId, usize> = nodes.iter().enumerate().map(|(place, node)| (node.peer, place)).collect();
    let mut rng = Rng::new(seed);
    let mut hops = 0u64;
    for _ in 0..lookups {
        let key = random_key(&mut rng);
        let mut at = rng.below(count) as usize;
        while let Some(next) = ring[at].next_hop(key) {
            hops += 1;
            at = by_peer[&next];
        }
        assert_eq!(nodes[at].peer, O::owner(&truth, key), "{key}");
    }
    hops as f64 / lookups as f64
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub right: u64,
    pub wrong: u64,
    pub lost: u64,
    pub hops: u64,
    pub detours: u64,
}

impl Tally {
    pub fn total(&self) -> u64 {
        self.right + self.wrong + self.lost
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Most {
    /// The hops of a join or of a search for a finger.
    pub own: u8,
    pub looked_up: u8,
}

#[derive(Clone, Copy, Debug)]
struct Lookup {
    key: Key,
    hops: u8,
}

#[derive(Debug)]
enum Event<M> {
    Message { from: PeerId, to: PeerId, message: M },
    Timer { at: PeerId, timer: Timer, number: u64 },
    Lookup { from: PeerId, at: PeerId, lookup: Lookup },
    Unconfirmed { at: PeerId, to: PeerId, lookup: Lookup },
}

struct Queued<M> {
    at: Reverse<(Time, u64)>,
    event: Event<M>,
}

impl<M> PartialEq for Queued<M> {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}
impl<M> Eq for Queued<M> {}
impl<M> PartialOrd for Queued<M> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<M> Ord for Queued<M> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at.cmp(&other.at)
    }
}

struct Place<O> {
    overlay: O,
    alive: bool,
    timers: BTreeMap<Timer, u64>,
}

pub struct World<O: Subject> {
    pub now: Time,
    sequence: u64,
    queue: BinaryHeap<Queued<O::Message>>,
    places: BTreeMap<PeerId, Place<O>>,
    rng: Rng,
    net: Rng,
    pub latency: (Span, Span),
    pub loss: f64,
    /// An unconfirmed lookup is sent another way.
    pub detours: bool,
    pub ring: BTreeMap<Key, PeerId>,
    pub tally: Tally,
    pub messages: u64,
    pub unexpected: u64,
    pub most_hops: Most,
    pub silences: u64,
    pub trace: Option<String>,
    effects: Vec<Effect<O::Message>>,
}

impl<O: Subject> World<O> {
    pub fn new(seed: u64) -> Self {
        Self {
            now: Time::ZERO,
            sequence: 0,
            queue: BinaryHeap::new(),
            places: BTreeMap::new(),
            rng: Rng::stream(seed, 0),
            net: Rng::stream(seed, 1),
            latency: (Span::from_millis(20), Span::from_millis(120)),
            loss: 0.0,
            detours: true,
            ring: BTreeMap::new(),
            tally: Tally::default(),
            messages: 0,
            unexpected: 0,
            most_hops: Most::default(),
            silences: 0,
            trace: None,
            effects: Vec::new(),
        }
    }

    pub fn converged(count: u64, seed: u64) -> Self {
        let mut world = Self::new(seed);
        let nodes = nodes(count);
        for (place, node) in nodes.iter().enumerate() {
            world.put(O::converged(&nodes, place, O::CONFIG));
            world.ring.insert(node.key, node.peer);
            let after = world.net.between(Span::ZERO, O::CONFIG.stabilize);
            world.push(after, Event::Timer { at: node.peer, timer: Timer::Stabilize, number: 0 });
            world.place(node.peer).timers.insert(Timer::Stabilize, 0);
        }
        world
    }

    fn put(&mut self, overlay: O) {
        self.places.insert(overlay.me().peer, Place { overlay, alive: true, timers: BTreeMap::new() });
    }

    fn place(&mut self, peer: PeerId) -> &mut Place<O> {
        self.places.get_mut(&peer).expect("the peer is in the world")
    }

    pub fn overlay(&self, peer: PeerId) -> &O {
        &self.places[&peer].overlay
    }

    pub fn alive(&self) -> Vec<PeerId> {
        self.places.iter().filter(|(_, place)| place.alive).map(|(peer, _)| *peer).collect()
    }

    pub fn random_member(&mut self) -> PeerId {
        let place = self.net.below(self.ring.len() as u64) as usize;
        *self.ring.values().nth(place).expect("the ring has a peer")
    }

    pub fn join(&mut self, peer: u64, via: Option<u64>) {
        let node = Node::of(PeerId::new(peer));
        self.put(O::new(node, O::CONFIG));
        self.input(node.peer, Input::Join(via.map(PeerId::new)));
    }

    pub fn fail(&mut self, peer: PeerId) {
        let place = self.place(peer);
        place.alive = false;
        place.timers.clear();
        let key = place.overlay.me().key;
        self.ring.remove(&key);
    }

    pub fn leave(&mut self, peer: PeerId) {
        self.input(peer, Input::Leave);
    }

    pub fn look_up(&mut self, peer: PeerId, key: Key) {
        self.on_lookup(peer, Lookup { key, hops: 0 });
    }

    pub fn look_up_somewhere(&mut self) {
        let (peer, key) = (self.random_member(), random_key(&mut self.net));
        self.look_up(peer, key);
    }

    pub fn run(&mut self, span: Span) {
        let end = self.now + span;
        while self.queue.peek().is_some_and(|next| next.at.0.0 <= end) {
            let Some(Queued { at: Reverse((time, _)), event }) = self.queue.pop() else { break };
            self.now = time;
            self.happen(event);
        }
        self.now = end;
    }

    fn push(&mut self, after: Span, event: Event<O::Message>) {
        self.sequence += 1;
        self.queue.push(Queued { at: Reverse((self.now + after, self.sequence)), event });
    }

    fn happen(&mut self, event: Event<O::Message>) {
        if let Some(trace) = &mut self.trace {
            writeln!(trace, "{} {event:?}", self.now).expect("writing to a string succeeds");
        }
        match event {
            Event::Message { from, to, message } => self.input(to, Input::Message { from, message }),
            Event::Timer { at, timer, number } => {
                if self.place(at).timers.get(&timer) == Some(&number) {
                    self.place(at).timers.remove(&timer);
                    self.silences += u64::from(matches!(timer, Timer::Silence(_)));
                    self.input(at, Input::Timer(timer));
                }
            }
            Event::Lookup { at, lookup, .. } if self.place(at).alive => self.on_lookup(at, lookup),
            Event::Lookup { from, at, lookup } if self.detours => {
                self.push(O::CONFIG.answer, Event::Unconfirmed { at: from, to: at, lookup });
            }
            Event::Lookup { .. } => self.tally.lost += 1,
            Event::Unconfirmed { at, to, lookup } if self.place(at).alive => {
                self.tally.detours += 1;
                self.input(at, Input::Unreachable(to));
                self.on_lookup(at, lookup);
            }
            Event::Unconfirmed { .. } => self.tally.lost += 1,
        }
    }

    fn on_lookup(&mut self, at: PeerId, lookup: Lookup) {
        let overlay = &self.place(at).overlay;
        match (overlay.next_hop(lookup.key), lookup.hops.checked_add(1)) {
            (None, _) if overlay.range().is_none() => self.tally.lost += 1,
            (None, _) => {
                self.tally.hops += u64::from(lookup.hops);
                if at == O::owner(&self.ring, lookup.key) {
                    self.tally.right += 1;
                } else {
                    self.tally.wrong += 1;
                }
            }
            (Some(_), None) => self.tally.lost += 1,
            (Some(hop), Some(hops)) => {
                self.most_hops.looked_up = self.most_hops.looked_up.max(hops);
                let after = self.net.between(self.latency.0, self.latency.1);
                self.push(after, Event::Lookup { from: at, at: hop, lookup: Lookup { hops, ..lookup } });
            }
        }
    }

    pub fn input(&mut self, at: PeerId, input: Input<O::Message>) {
        let mut effects = std::mem::take(&mut self.effects);
        let (now, rng) = (self.now, &mut self.rng);
        let Some(place) = self.places.get_mut(&at).filter(|place| place.alive) else { return };
        let before = place.overlay.range();
        step(&mut place.overlay, input, &mut Cx::new(at, now, rng, &mut effects));
        let notified = effects.iter().any(|effect| matches!(effect, Effect::Owns { .. }));
        assert_eq!(
            notified,
            place.overlay.range() != before,
            "the user is notified exactly when the owned range has changed"
        );
        for effect in effects.drain(..) {
            self.carry_out(at, effect);
        }
        self.effects = effects;
    }

    fn carry_out(&mut self, at: PeerId, effect: Effect<O::Message>) {
        match effect {
            Effect::Send { to, message } => {
                self.messages += 1;
                self.most_hops.own = self.most_hops.own.max(O::hops(&message));
                if !self.net.chance(self.loss) {
                    let after = self.net.between(self.latency.0, self.latency.1);
                    self.push(after, Event::Message { from: at, to, message });
                }
            }
            Effect::SetTimer { timer, after } => {
                self.push(after, Event::Timer { at, timer, number: self.sequence });
                let number = self.sequence - 1;
                self.place(at).timers.insert(timer, number);
            }
            Effect::CancelTimer { timer } => drop(self.place(at).timers.remove(&timer)),
            Effect::Owns { range } => {
                let key = self.place(at).overlay.me().key;
                match range {
                    Some(_) => self.ring.insert(key, at),
                    None => self.ring.remove(&key),
                };
            }
            Effect::Unexpected { .. } => self.unexpected += 1,
        }
    }

    /// The peers in ring order.
    pub fn members(&self) -> Vec<Node> {
        self.ring.iter().map(|(key, peer)| Node { key: *key, peer: *peer }).collect()
    }

    /// One lookup from every peer in the ring, `times` times.
    pub fn survey(&mut self, times: u64) -> Tally {
        let before = self.tally;
        for _ in 0..times {
            for node in self.members() {
                let key = random_key(&mut self.net);
                self.look_up(node.peer, key);
            }
            self.run(Span::from_secs(10));
        }
        Tally {
            right: self.tally.right - before.right,
            wrong: self.tally.wrong - before.wrong,
            lost: self.tally.lost - before.lost,
            hops: self.tally.hops - before.hops,
            detours: self.tally.detours - before.detours,
        }
    }
}

/// Whenever a peer fails, another one joins. The first fifth of the time, the warm-up, is not counted.
pub fn churn<O: Subject>(count: u64, half_life: Span, time: Span, detours: bool, seed: u64) -> World<O> {
    let mut world = World::converged(count, seed);
    world.detours = detours;
    let between_failures = Span::from_secs_f64(half_life.as_secs_f64() / std::f64::consts::LN_2 / count as f64);
    let between_lookups = Span::from_millis(100);
    let end = world.now + time;
    let warm = world.now + time / 5;
    let mut next_failure = world.now + world.net.exponential(between_failures);
    let mut next_lookup = world.now;
    let mut next_peer = count;
    let mut counting = false;
    while world.now < end {
        let next = next_failure.min(next_lookup);
        world.run(next.since(world.now));
        if !counting && world.now >= warm {
            counting = true;
            (world.tally, world.messages) = (Tally::default(), 0);
        }
        if next == next_lookup {
            world.look_up_somewhere();
            next_lookup = next + between_lookups;
        } else {
            let alive = world.alive();
            let victim = alive[world.net.below(alive.len() as u64) as usize];
            world.fail(victim);
            let via = world.random_member();
            world.join(next_peer, Some(via.get()));
            next_peer += 1;
            next_failure = next + world.net.exponential(between_failures);
        }
    }
    world.run(Span::from_secs(10));
    world
}
