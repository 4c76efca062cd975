//! A small world for protocols with replicas: one queue of events, random trouble from one seed, and a judge.
//!
//! Replicas are peers 0 … n − 1, clients the peers after them (or the same, with [`Trouble::both`]). Every peer has a
//! clock of its own.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use peerlock_base::{PeerId, Rng, Span, Ticket, Time, mix};
use peerlock_mutex::{Cx, Effect, Input, Observe, Quorum, step};

/// Who asks how often, and how the network is.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub quorum: Quorum,
    pub load: Load,
    /// How long clients stay inside on average; exponential.
    pub hold: Span,
    /// One-way latency, uniform per pair of peers, the same in both directions.
    pub latency: (Span, Span),
    /// Nobody asks any more after this; then there is time to serve those who wait.
    pub length: Span,
    pub trouble: Trouble,
}

#[derive(Clone, Copy, Debug)]
pub enum Load {
    /// So many clients, each of which thinks for an exponential time with this mean between leaving and asking.
    Closed { clients: u64, think: Span },
    /// Clients without number, each of which asks once; exponential gaps with this mean.
    Open { gap: Span },
}

/// What goes wrong, until `length` is over.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trouble {
    /// Latency is drawn anew for every message, so that they overtake each other.
    pub jitter: bool,
    pub loss: f64,
    pub duplication: f64,
    /// The mean time between two resets of some replica; none if zero.
    pub resets_every: Span,
    /// No more resets than this within `resets_window`.
    pub resets_at_most: usize,
    pub resets_window: Span,
    /// How long a replica that is reset cannot be reached, on average.
    pub down_for: Span,
    /// The mean time between two partitions: some peers, replicas and clients, and all others do not hear of each
    /// other for about as long as `partitions_last`. None if zero.
    pub partitions_every: Span,
    pub partitions_last: Span,
    /// Incarnations are counted 1, 2, 3 … instead of read from a clock.
    pub counted_incarnations: bool,
    /// The probability that a client crashes some time after asking, never to be seen again.
    pub crash: f64,
    /// The probability that a client withdraws, or leaves early, some time after asking.
    pub withdraw: f64,
    /// The probability that a client which has just got in is cut off from everybody, for about 15 s.
    pub cut_off: f64,
    /// Clocks differ by up to 5 s, and by up to 400 parts in a million in rate.
    pub clocks_differ: bool,
    /// The clients are the peers that host the replicas.
    pub both: bool,
}

/// What the judge saw.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub asked: u64,
    pub entries: u64,
    /// Entries per second after the first third of `length`.
    pub throughput: f64,
    /// Entries while somebody else was inside.
    pub violations: u64,
    /// Entries whose fencing number is no larger than that of an earlier one.
    pub fencing_back: u64,
    /// Live clients that still waited at the end.
    pub unserved: u64,
    pub lost: u64,
    pub refused: u64,
    pub resets: u64,
    /// By type.
    pub messages: Vec<u64>,
    /// The most messages that one client sent or got.
    pub worst_client: u64,
}

enum Event<M, T> {
    Arrive { from: PeerId, to: PeerId, message: M },
    Timer { peer: PeerId, timer: T, set: u64 },
    Ask { peer: PeerId },
    Leave { peer: PeerId, ticket: Ticket },
    Crash { peer: PeerId },
    Reset,
    Partition,
}

#[derive(Clone, Copy)]
struct Clock {
    offset: Span,
    ppm: u64,
}

impl Clock {
    const FLAT: u64 = 1_000_000;

    fn read(self, now: Time) -> Time {
        let nanos = u128::from(now.as_nanos()) * u128::from(self.ppm) / u128::from(Self::FLAT);
        Time::from_nanos(nanos as u64) + self.offset
    }

    /// The true length of what this clock shows as `span`; rounded up, since no timer fires early.
    fn true_length(self, span: Span) -> Span {
        Span::from_nanos((u128::from(span.as_nanos()) * u128::from(Self::FLAT)).div_ceil(u128::from(self.ppm)) as u64)
    }
}

struct World<P: Observe, F> {
    new_peer: F,
    setting: Setting,
    seed: u64,
    rng: Rng,
    now: Time,
    pushed: u64,
    heap: BinaryHeap<Reverse<(Time, u64)>>,
    events: BTreeMap<u64, Event<P::Message, P::Timer>>,
    timers: BTreeMap<(PeerId, P::Timer), u64>,
    peers: Vec<P>,
    clocks: Vec<Clock>,
    crashed: Vec<bool>,
    cut_off_until: Vec<Time>,
    /// Which partition it is, and until when.
    partition: (u64, Time),
    tickets: Vec<Ticket>,
    per_peer: Vec<u64>,
    inside: Vec<(PeerId, Ticket)>,
    waiting: Vec<(PeerId, Ticket)>,
    highest: u64,
    reset_times: Vec<Time>,
    outcome: Outcome,
}

/// Plays `setting` with the peers that `new_peer` makes.
pub fn play<P: Observe, F: Fn(PeerId) -> P>(setting: Setting, seed: u64, new_peer: F) -> Outcome {
    let mut world = World {
        new_peer,
        setting,
        seed,
        rng: Rng::new(seed),
        now: Time::ZERO,
        pushed: 0,
        heap: BinaryHeap::new(),
        events: BTreeMap::new(),
        timers: BTreeMap::new(),
        peers: Vec::new(),
        clocks: Vec::new(),
        crashed: Vec::new(),
        cut_off_until: Vec::new(),
        partition: (0, Time::ZERO),
        tickets: Vec::new(),
        per_peer: Vec::new(),
        inside: Vec::new(),
        waiting: Vec::new(),
        highest: 0,
        reset_times: Vec::new(),
        outcome: Outcome { messages: vec![0; P::KINDS.len()], ..Outcome::default() },
    };
    world.run();
    world.outcome
}

impl<P: Observe, F: Fn(PeerId) -> P> World<P, F> {
    fn run(&mut self) {
        let replicas = u64::from(self.setting.quorum.replicas());
        for _ in 0..replicas {
            self.add_peer();
        }
        match self.setting.load {
            Load::Closed { clients, think } => {
                for client in 0..clients {
                    let peer = if self.setting.trouble.both { PeerId::new(client % replicas) } else { self.add_peer() };
                    let at = self.now + self.rng.exponential(think);
                    self.push(at, Event::Ask { peer });
                }
            }
            Load::Open { .. } => self.next_arrival(),
        }
        if self.setting.trouble.resets_every > Span::ZERO {
            self.next_reset();
        }
        self.next_partition();
        let end = Time::ZERO + self.setting.length;
        // An open load above saturation leaves a queue behind; there only the closed one is played to the end.
        let last = if let Load::Open { .. } = self.setting.load { end } else { end + Span::from_secs(3000) };
        let mut early = None;
        while let Some(Reverse((at, number))) = self.heap.pop() {
            if at > last || (at > end && self.waiting.is_empty() && self.inside.is_empty()) {
                break;
            }
            self.now = at;
            if early.is_none() && at >= Time::ZERO + self.setting.length / 3 {
                early = Some((at, self.outcome.entries));
            }
            let event = self.events.remove(&number).expect("every number in the heap has its event");
            self.handle(event);
            if at <= end
                && let Some((since, entries)) = early
                && at > since
            {
                self.outcome.throughput = (self.outcome.entries - entries) as f64 / at.since(since).as_secs_f64();
            }
        }
        self.outcome.unserved = self.waiting.len() as u64;
        self.outcome.worst_client = self.per_peer.iter().skip(replicas as usize).copied().max().unwrap_or(0);
    }

    fn add_peer(&mut self) -> PeerId {
        let peer = PeerId::new(self.peers.len() as u64);
        let clock = if self.setting.trouble.clocks_differ {
            let offset = self.rng.between(Span::ZERO, Span::from_secs(5));
            Clock { offset, ppm: Clock::FLAT - 400 + self.rng.below(801) }
        } else {
            Clock { offset: Span::ZERO, ppm: Clock::FLAT }
        };
        self.peers.push((self.new_peer)(peer));
        self.clocks.push(clock);
        self.crashed.push(false);
        self.cut_off_until.push(Time::ZERO);
        self.tickets.push(Ticket::NONE);
        self.per_peer.push(0);
        peer
    }

    fn push(&mut self, at: Time, event: Event<P::Message, P::Timer>) {
        self.pushed += 1;
        self.heap.push(Reverse((at, self.pushed)));
        self.events.insert(self.pushed, event);
    }

    fn in_trouble(&self) -> bool {
        self.now < Time::ZERO + self.setting.length
    }

    fn handle(&mut self, event: Event<P::Message, P::Timer>) {
        match event {
            Event::Arrive { from, to, message } => {
                self.per_peer[to.index()] += 1;
                self.step(to, Input::Message { from, message });
            }
            Event::Timer { peer, timer, set } => {
                if self.timers.get(&(peer, timer.clone())) == Some(&set) {
                    self.timers.remove(&(peer, timer.clone()));
                    self.step(peer, Input::Timer(timer));
                }
            }
            Event::Ask { peer } => self.ask(peer),
            Event::Leave { peer, ticket } => self.leave(peer, ticket),
            Event::Crash { peer } => {
                self.crashed[peer.index()] = true;
                self.inside.retain(|&(who, _)| who != peer);
                self.waiting.retain(|&(who, _)| who != peer);
            }
            Event::Reset => {
                self.reset();
                self.next_reset();
            }
            Event::Partition => {
                let last = self.rng.exponential(self.setting.trouble.partitions_last);
                self.partition = (self.rng.bits(), self.now + last);
                self.next_partition();
            }
        }
    }

    fn ask(&mut self, peer: PeerId) {
        let is_open = matches!(self.setting.load, Load::Open { .. });
        if is_open {
            self.next_arrival();
        }
        if self.crashed[peer.index()] || !self.in_trouble() {
            return;
        }
        let ticket = self.tickets[peer.index()].next();
        self.tickets[peer.index()] = ticket;
        self.outcome.asked += 1;
        self.waiting.push((peer, ticket));
        let soon = self.now + self.rng.exponential(self.setting.hold + Span::from_secs(1));
        if self.rng.chance(self.setting.trouble.crash) && !self.setting.trouble.both {
            self.push(soon, Event::Crash { peer });
        } else if self.rng.chance(self.setting.trouble.withdraw) {
            self.push(soon, Event::Leave { peer, ticket });
        }
        self.step(peer, Input::Request(ticket));
    }

    fn leave(&mut self, peer: PeerId, ticket: Ticket) {
        if !self.crashed[peer.index()] && self.finish(peer, ticket) {
            self.step(peer, Input::Release(ticket));
        }
    }

    /// The ticket is over; its client thinks and asks again. False if it was over already.
    fn finish(&mut self, peer: PeerId, ticket: Ticket) -> bool {
        let before = self.inside.len() + self.waiting.len();
        self.inside.retain(|&who| who != (peer, ticket));
        self.waiting.retain(|&who| who != (peer, ticket));
        let is_over = self.inside.len() + self.waiting.len() < before;
        if is_over && let Load::Closed { think, .. } = self.setting.load {
            let at = self.now + self.rng.exponential(think);
            self.push(at, Event::Ask { peer });
        }
        is_over
    }

    fn next_arrival(&mut self) {
        if let Load::Open { gap } = self.setting.load {
            let peer = self.add_peer();
            let at = self.now + self.rng.exponential(gap);
            self.push(at, Event::Ask { peer });
        }
    }

    fn next_reset(&mut self) {
        let at = self.now + self.rng.exponential(self.setting.trouble.resets_every);
        if at < Time::ZERO + self.setting.length {
            self.push(at, Event::Reset);
        }
    }

    fn next_partition(&mut self) {
        if self.setting.trouble.partitions_every > Span::ZERO {
            let at = self.now + self.rng.exponential(self.setting.trouble.partitions_every);
            self.push(at, Event::Partition);
        }
    }

    /// Whether a partition lies between the two.
    fn are_apart(&self, one: PeerId, other: PeerId) -> bool {
        let (partition, until) = self.partition;
        let side = |peer: PeerId| mix(partition ^ peer.get()) & 1;
        self.now < until && self.in_trouble() && side(one) != side(other)
    }

    fn reset(&mut self) {
        let (window, now) = (self.setting.trouble.resets_window, self.now);
        self.reset_times.retain(|&at| now.since(at) <= window);
        if self.reset_times.len() >= self.setting.trouble.resets_at_most {
            return;
        }
        self.reset_times.push(now);
        self.outcome.resets += 1;
        let peer = PeerId::new(self.rng.below(u64::from(self.setting.quorum.replicas())));
        let clock = self.clocks[peer.index()].read(now).as_nanos();
        let incarnation = if self.setting.trouble.counted_incarnations { self.outcome.resets } else { clock };
        if self.setting.trouble.down_for > Span::ZERO {
            self.cut_off_until[peer.index()] = self.now + self.rng.exponential(self.setting.trouble.down_for);
        }
        self.step(peer, Input::Reset { incarnation });
    }

    fn step(&mut self, peer: PeerId, input: Input<P::Message, P::Timer>) {
        if self.crashed[peer.index()] {
            return;
        }
        let mut effects = Vec::new();
        let now = self.clocks[peer.index()].read(self.now);
        step(&mut self.peers[peer.index()], input, &mut Cx::new(peer, now, &mut self.rng, &mut effects));
        for effect in effects {
            self.carry_out(peer, effect);
        }
    }

    fn carry_out(&mut self, peer: PeerId, effect: Effect<P::Message, P::Timer>) {
        match effect {
            Effect::Send { to, message } => self.send(peer, to, message),
            Effect::Grant { ticket, grant } => {
                assert!(self.waiting.contains(&(peer, ticket)), "{peer:?} lets in {ticket:?}, who does not wait");
                self.waiting.retain(|&who| who != (peer, ticket));
                self.outcome.entries += 1;
                self.outcome.violations += u64::from(!self.inside.is_empty());
                self.outcome.fencing_back += u64::from(grant.fencing <= self.highest);
                self.highest = self.highest.max(grant.fencing);
                self.inside.push((peer, ticket));
                if self.rng.chance(self.setting.trouble.cut_off) && self.in_trouble() {
                    self.cut_off_until[peer.index()] = self.now + self.rng.exponential(Span::from_secs(15));
                }
                let at = self.now + self.rng.exponential(self.setting.hold);
                self.push(at, Event::Leave { peer, ticket });
            }
            Effect::Lost { ticket } => {
                self.outcome.lost += 1;
                assert!(self.finish(peer, ticket), "{ticket:?} was not inside");
            }
            Effect::Refused { ticket } => {
                self.outcome.refused += 1;
                assert!(self.finish(peer, ticket), "{ticket:?} did not wait");
            }
            Effect::SetTimer { timer, after } => {
                let at = self.now + self.clocks[peer.index()].true_length(after);
                self.push(at, Event::Timer { peer, timer: timer.clone(), set: self.pushed + 1 });
                self.timers.insert((peer, timer), self.pushed);
            }
            Effect::CancelTimer { timer } => {
                self.timers.remove(&(peer, timer));
            }
            Effect::Route { .. } | Effect::Forward { .. } => panic!("seed {}: {peer:?} routes", self.seed),
            Effect::Wish(_) => panic!("seed {}: there is no register", self.seed),
            Effect::Strange { why } => panic!("seed {}: {peer:?} got {why}", self.seed),
        }
    }

    fn send(&mut self, from: PeerId, to: PeerId, message: P::Message) {
        self.outcome.messages[P::kind(&message)] += 1;
        self.per_peer[from.index()] += 1;
        let trouble = self.setting.trouble;
        let is_lossy = self.in_trouble();
        if is_lossy && self.rng.chance(trouble.duplication) {
            let at = self.now + self.latency(from, to);
            self.push(at, Event::Arrive { from, to, message: message.clone() });
        }
        let is_cut_off = [from, to].iter().any(|peer| self.now < self.cut_off_until[peer.index()]);
        let is_cut_off = is_cut_off || self.are_apart(from, to);
        let is_lost = is_cut_off || (is_lossy && self.rng.chance(trouble.loss));
        if !is_lost {
            let at = self.now + self.latency(from, to);
            self.push(at, Event::Arrive { from, to, message });
        }
    }

    fn latency(&mut self, from: PeerId, to: PeerId) -> Span {
        let (low, high) = self.setting.latency;
        if self.setting.trouble.jitter {
            return self.rng.between(low, high);
        }
        let pair = mix(self.seed ^ mix(from.get().min(to.get())) ^ from.get().max(to.get()));
        Rng::new(pair).between(low, high)
    }
}
