//! How often late binding passes a waiter with several slots while some clients never release. `cargo test -p
//! peerlock-protocols --test long_stays -- --nocapture` prints the tables.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use peerlock_protocols::fair_k_late::{Config, Message};
use peerlock_protocols::token::Layout;
use peerlock_protocols::{Cx, Effect, FairKLate, Input, Never, step};
use peerlock_types::{PeerId, Rng, Ticket, Time};

/// The delay of a message, in microseconds.
const MESSAGE: u64 = 1000;

const SECOND: u64 = 1_000_000;

/// Each client is at a peer of its own.
#[derive(Clone, Copy, Debug)]
struct Loop {
    slots: u32,
    /// Clients that enter first and never release.
    long: u32,
    others: u32,
    /// Mean of a uniform distribution, in microseconds.
    stay: u64,
    /// In microseconds.
    lasts: u64,
}

impl Loop {
    /// The bound in lab/docs/papers/fair-k-late.md.
    fn most_passes(&self) -> u64 {
        let more = if self.stay < 2 * MESSAGE { 3 } else { 2 };
        u64::from(2 * self.slots * (self.long + more))
    }
}

/// The results for the clients that release.
#[derive(Debug, Default)]
struct Found {
    entries: u64,
    /// In microseconds. The longest wait may be unfinished.
    waited: u64,
    longest: u64,
    /// During one wait.
    passes: u64,
    never_served: u64,
    messages: u64,
}

enum Event {
    Ask(u64),
    Leave(u64),
    Arrive { from: u64, to: u64, message: Message },
}

struct Waiter {
    asked: u64,
    passes: u64,
}

struct Play {
    of: Loop,
    now: u64,
    rng: Rng,
    peers: Vec<FairKLate>,
    /// The time of each event, by its number.
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    events: BTreeMap<u64, Event>,
    scheduled: u64,
    tickets: Vec<u64>,
    entries: Vec<u64>,
    waiting: BTreeMap<u64, Waiter>,
    found: Found,
}

impl Play {
    fn new(of: Loop) -> Self {
        let count = 1 + u64::from(of.long + of.others);
        let layout = Layout::printed(count, of.slots);
        let config = Config { term: u32::MAX, ..Config::default() };
        Self {
            of,
            now: 0,
            rng: Rng::new(1),
            peers: (0..count).map(|peer| FairKLate::new(PeerId::new(peer), &layout, config)).collect(),
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            scheduled: 0,
            tickets: vec![0; count as usize],
            entries: vec![0; count as usize],
            waiting: BTreeMap::new(),
            found: Found::default(),
        }
    }

    fn run(mut self) -> Found {
        (1..self.peers.len() as u64).for_each(|peer| self.schedule(peer * 10 * MESSAGE, Event::Ask(peer)));
        while let Some(Reverse((at, number))) = self.queue.pop().filter(|Reverse((at, _))| *at < self.of.lasts) {
            self.now = at;
            let event = self.events.remove(&number).expect("an event happens once");
            self.happen(event);
        }
        let Self { of, waiting, entries, mut found, .. } = self;
        for (peer, Waiter { asked, passes }) in waiting.into_iter().filter(|(peer, _)| *peer > u64::from(of.long)) {
            found.longest = found.longest.max(of.lasts - asked);
            found.passes = found.passes.max(passes);
            found.never_served += u64::from(entries[peer as usize] == 0);
        }
        found
    }

    fn schedule(&mut self, at: u64, event: Event) {
        self.events.insert(self.scheduled, event);
        self.queue.push(Reverse((at, self.scheduled)));
        self.scheduled += 1;
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Ask(peer) => {
                self.tickets[peer as usize] += 1;
                self.waiting.insert(peer, Waiter { asked: self.now, passes: 0 });
                self.step(peer, Input::Request(Ticket::new(self.tickets[peer as usize])));
            }
            Event::Leave(peer) => {
                self.step(peer, Input::Release(Ticket::new(self.tickets[peer as usize])));
                self.schedule(self.now, Event::Ask(peer));
            }
            Event::Arrive { from, to, message } => self.step(to, Input::Message { from: PeerId::new(from), message }),
        }
    }

    fn step(&mut self, peer: u64, input: Input<Message, Never>) {
        let (mut effects, now) = (Vec::new(), Time::from_nanos(self.now * 1000));
        step(&mut self.peers[peer as usize], input, &mut Cx::new(PeerId::new(peer), now, &mut self.rng, &mut effects));
        for effect in effects {
            match effect {
                Effect::Send { to, message } => {
                    self.found.messages += 1;
                    self.schedule(self.now + MESSAGE, Event::Arrive { from: peer, to: to.get(), message });
                }
                Effect::Grant { .. } => self.enter(peer),
                effect => panic!("{effect:?}"),
            }
        }
    }

    fn enter(&mut self, peer: u64) {
        let Waiter { asked, passes } = self.waiting.remove(&peer).expect("only a waiter enters");
        self.entries[peer as usize] += 1;
        if peer > u64::from(self.of.long) {
            let wait = self.now - asked;
            self.found.entries += 1;
            self.found.waited += wait;
            self.found.longest = self.found.longest.max(wait);
            self.found.passes = self.found.passes.max(passes);
            let stay = self.of.stay as f64 * (0.5 + self.rng.unit());
            self.schedule(self.now + stay as u64, Event::Leave(peer));
        }
        // A request needs two messages to reach the holder of a token.
        let earlier = self.waiting.values_mut().filter(|other| other.asked + 2 * MESSAGE < asked);
        earlier.for_each(|other| other.passes += 1);
    }
}

fn play_all(loops: impl IntoIterator<Item = Loop>) -> Vec<(Loop, Found)> {
    println!(
        "| k | long stays | others | mean stay | mean wait | longest | most passes | bound | messages per entry |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    let seconds = |micros: u64| micros as f64 / SECOND as f64;
    let all = loops.into_iter().map(|of| (of, Play::new(of).run()));
    let show = |(of, found): &(Loop, Found)| {
        let Loop { slots, long, others, stay, .. } = *of;
        let Found { entries, waited, longest, passes, messages, .. } = *found;
        println!(
            "| {slots} | {long} | {others} | {} s | {:.4} s | {:.4} s | {passes} | {} | {:.2} |",
            seconds(stay),
            seconds(waited) / entries as f64,
            seconds(longest),
            of.most_passes(),
            messages as f64 / entries as f64
        );
    };
    all.inspect(show).collect()
}

/// Slots, long stays and other clients.
const LONG: [(u32, u32, u32); 11] = [
    (2, 1, 3),
    (2, 1, 4),
    (2, 1, 6),
    (3, 1, 5),
    (3, 2, 4),
    (5, 2, 8),
    (10, 9, 3),
    (10, 9, 11),
    (10, 5, 12),
    (50, 40, 60),
    (50, 49, 60),
];

#[test]
fn passes_are_bounded_with_endless_stays() {
    let lasts = |stay: u64| 600 * stay.max(2 * MESSAGE);
    let loops = [SECOND, 10 * MESSAGE, MESSAGE / 2].into_iter().flat_map(|stay| {
        LONG.map(|(slots, long, others)| Loop { slots, long, others, stay, lasts: lasts(stay).max(2 * SECOND) })
    });
    for (of, found) in play_all(loops) {
        assert!(found.passes <= of.most_passes(), "{of:?}: {found:?}");
        assert_eq!(found.never_served, 0, "{of:?}: {found:?}");
    }
}

/// Waiters do not depend on a stay that is known to be long.
#[test]
fn longest_wait_with_long_stays_is_near_the_mean() {
    let loops = LONG.map(|(slots, long, others)| Loop { slots, long, others, stay: SECOND, lasts: 600 * SECOND });
    for (of, found) in play_all(loops) {
        assert!(found.longest < 4 * found.waited / found.entries, "{of:?}: {found:?}");
    }
}

/// The bounds are those measured without the rule for long stays.
#[test]
fn without_long_stays_order_and_cost_are_unchanged() {
    let loops = [(3, 6), (3, 5), (10, 20), (10, 15), (50, 100)];
    let loops = loops.map(|(slots, others)| Loop { slots, long: 0, others, stay: SECOND, lasts: 600 * SECOND });
    let bounds = [(3, 5.00), (2, 5.79), (10, 5.00), (10, 6.32), (44, 5.00)];
    for ((of, found), (passes, messages)) in play_all(loops).into_iter().zip(bounds) {
        assert!(found.passes <= passes, "{of:?}: {found:?}");
        assert!(found.messages as f64 / (found.entries as f64) < 1.01 * messages, "{of:?}: {found:?}");
    }
}
