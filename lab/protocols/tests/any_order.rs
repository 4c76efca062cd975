//! Seeded orders of events for protocols with tokens: any pending message, request, release or withdrawal may be next.

use std::collections::BTreeMap;

use peerlock_protocols::bv95::{Bv95, Config, Heuristic, Layout, Organisation};
use peerlock_protocols::{Cx, Effect, FairK, FairKLate, Grant, Input, Observe, fair_k, fair_k_late, step};
use peerlock_types::{PeerId, Rng, Ticket, Time};

type Client = (PeerId, Ticket);

struct World<P: Observe> {
    peers: Vec<P>,
    slots: u32,
    under_way: Vec<(PeerId, PeerId, P::Message)>,
    waiting: Vec<Client>,
    holding: BTreeMap<Client, Grant>,
    /// The last number of each slot.
    fencing: Vec<u64>,
    /// The last ticket of each peer.
    tickets: Vec<Ticket>,
    rng: Rng,
}

#[derive(Clone, Copy)]
enum Event {
    Ask,
    Deliver,
    Leave,
    Withdraw,
}

impl<P: Observe> World<P> {
    fn new(peers: u64, slots: u32, seed: u64, peer: impl Fn(PeerId, &Layout) -> P) -> Self {
        let layout = Layout::printed(peers, slots);
        Self {
            peers: (0..peers).map(|number| peer(PeerId::new(number), &layout)).collect(),
            slots,
            under_way: Vec::new(),
            waiting: Vec::new(),
            holding: BTreeMap::new(),
            fencing: vec![0; slots as usize],
            tickets: vec![Ticket::NONE; peers as usize],
            rng: Rng::new(seed),
        }
    }

    fn run(&mut self, requests: usize) {
        // Some seeds accumulate requests, others serve them one by one; some withdraw often, others never.
        let weights = [self.rng.below(4) + 1, self.rng.below(8) + 1, self.rng.below(4) + 1, self.rng.below(3)];
        let mut left = requests;
        for _ in 0..1_000 * (requests + 1) {
            let choices = [
                (Event::Ask, if left > 0 { weights[0] } else { 0 }),
                (Event::Deliver, if self.under_way.is_empty() { 0 } else { weights[1] }),
                (Event::Leave, if self.holding.is_empty() { 0 } else { weights[2] }),
                (Event::Withdraw, if self.waiting.is_empty() || left == 0 { 0 } else { weights[3] }),
            ];
            match self.choose(&choices) {
                Some(Event::Ask) => {
                    left -= 1;
                    let at = self.rng.below(self.peers.len() as u64);
                    self.tickets[at as usize] = self.tickets[at as usize].next();
                    let client = (PeerId::new(at), self.tickets[at as usize]);
                    self.waiting.push(client);
                    self.step(client.0, Input::Request(client.1));
                }
                Some(Event::Deliver) => {
                    let at = self.below(self.under_way.len());
                    let (from, to, message) = self.under_way.swap_remove(at);
                    self.step(to, Input::Message { from, message });
                }
                Some(Event::Leave) => {
                    let at = self.below(self.holding.len());
                    let client = *self.holding.keys().nth(at).expect("counted above");
                    self.holding.remove(&client);
                    self.step(client.0, Input::Release(client.1));
                }
                Some(Event::Withdraw) => {
                    let at = self.below(self.waiting.len());
                    let client = self.waiting.swap_remove(at);
                    self.step(client.0, Input::Release(client.1));
                }
                None => return assert_eq!(self.waiting, [], "no event is pending, but clients wait"),
            }
            self.check();
        }
        panic!("the run does not end");
    }

    fn below(&mut self, bound: usize) -> usize {
        self.rng.below(bound as u64) as usize
    }

    fn choose(&mut self, choices: &[(Event, u64)]) -> Option<Event> {
        let total = choices.iter().map(|(_, weight)| weight).sum();
        let mut drawn = if total > 0 { self.rng.below(total) } else { return None };
        choices.iter().find_map(|&(event, weight)| match drawn.checked_sub(weight) {
            Some(rest) => {
                drawn = rest;
                None
            }
            None => Some(event),
        })
    }

    fn step(&mut self, at: PeerId, input: Input<P::Message, P::Timer>) {
        let mut effects = Vec::new();
        let mut cx = Cx::new(at, Time::ZERO, &mut self.rng, &mut effects);
        step(&mut self.peers[at.index()], input, &mut cx);
        for effect in effects {
            match effect {
                Effect::Send { to, message } => self.under_way.push((at, to, message)),
                Effect::Grant { ticket, grant } => {
                    let waited = self.waiting.iter().position(|&client| client == (at, ticket));
                    self.waiting.remove(waited.unwrap_or_else(|| panic!("{at:?} {ticket:?} did not wait: {grant:?}")));
                    let last = &mut self.fencing[grant.slot as usize];
                    assert!(grant.fencing > *last, "fencing numbers of a slot increase: {last} before {grant:?}");
                    assert_eq!(
                        grant.fencing % u64::from(self.slots),
                        u64::from(grant.slot + 1) % u64::from(self.slots)
                    );
                    *last = grant.fencing;
                    self.holding.insert((at, ticket), grant);
                }
                Effect::Route { .. } | Effect::Forward { .. } => panic!("no overlay here: {effect:?}"),
                Effect::RegistryRequest(_) => panic!("{at:?} sends a registry request"),
                Effect::Unexpected { why } => panic!("unexpected at {at:?}: {why}"),
                Effect::SetTimer { timer, .. } | Effect::CancelTimer { timer } => panic!("no timers here: {timer:?}"),
                Effect::Lost { ticket } | Effect::Refused { ticket } => panic!("no leases here: {ticket:?}"),
            }
        }
    }

    fn check(&self) {
        let mut slots: Vec<u32> = self.holding.values().map(|grant| grant.slot).collect();
        slots.sort_unstable();
        assert!(slots.windows(2).all(|two| two[0] < two[1]), "one client per slot: {:?}", self.holding);
        assert!(slots.len() <= self.slots as usize);
        let held: usize = self.peers.iter().map(P::tokens).sum();
        let carried: usize = self.under_way.iter().map(|(_, _, message)| P::tokens_in(message)).sum();
        assert_eq!(Some(held + carried), self.peers[0].tokens_in_all());
        if P::NEVER_IDLE && self.under_way.is_empty() && slots.len() < self.slots as usize {
            assert_eq!(self.waiting, [], "slots are empty, no message is in flight, but clients wait");
        }
        for tree in 0..self.peers[0].trees() {
            for peer in &self.peers {
                let up = |at: &PeerId| self.peers[at.index()].parent_in(tree);
                let way = std::iter::successors(peer.parent_in(tree), up);
                assert!(way.take(self.peers.len()).count() < self.peers.len(), "parents form a cycle in tree {tree}");
            }
        }
    }
}

struct Named(String);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with {}", self.0);
        }
    }
}

/// Plays the seeds with different numbers of peers and tokens, also with more tokens than peers.
fn any_order<P: Observe>(name: &str, seeds: u64, peer: impl Fn(PeerId, &Layout) -> P) {
    for (peers, slots, seed) in
        (1..=6).flat_map(|n| (1..=4).flat_map(move |k| (0..seeds).map(move |seed| (n, k, seed))))
    {
        let _named = Named(format!("{name}, {peers} peers, {slots} slots, seed {seed}"));
        World::new(peers, slots, seed, &peer).run(4 * peers as usize + 4);
    }
}

#[test]
fn bv95_is_safe_and_live() {
    for organisation in [Organisation::Plain, Organisation::Caching] {
        for heuristic in [Heuristic::Random, Heuristic::LastHeld, Heuristic::RoundRobin] {
            let config = Config { organisation, heuristic };
            any_order(&format!("{config:?}"), 200, |me, layout| Bv95::new(me, layout, config));
        }
    }
}

#[test]
fn fair_k_is_safe_and_live() {
    for config in [fair_k::Config::PRINTED, fair_k::Config::REPAIRED] {
        any_order(&format!("{config:?}"), 200, |me, layout| FairK::new(me, layout, config));
    }
}

#[test]
fn fair_k_late_is_safe_live_and_never_idle() {
    for term in [1, 3, 1000] {
        let config = fair_k_late::Config { term, ..fair_k_late::Config::default() };
        any_order(&format!("{config:?}"), 400, |me, layout| FairKLate::new(me, layout, config));
        for (peers, slots, seed) in
            [(20, 3), (40, 7), (60, 20)].into_iter().flat_map(|(n, k)| (0..40).map(move |s| (n, k, s)))
        {
            let _named = Named(format!("{config:?}, {peers} peers, {slots} slots, seed {seed}"));
            World::new(peers, slots, seed, |me, layout| FairKLate::new(me, layout, config)).run(6 * peers as usize);
        }
    }
}
