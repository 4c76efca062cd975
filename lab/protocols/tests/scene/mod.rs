//! Peers, and messages that the test delivers one by one. Routes avoid dead peers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use peerlock_protocols::{Cx, Effect, Hop, Input, Observe, Protocol, step};
use peerlock_types::{Key, PeerId, Rng, Span, Ticket, Time};

pub mod routes;
pub mod votes;

/// Sender, receiver, key and origin if it is routed, content.
pub type InFlight<P> = (u64, u64, Option<(Key, PeerId)>, <P as Protocol>::Message);

/// The next hop to a key among the live peers; `None` if `here` owns the key.
type Next = Box<dyn Fn(Key, u64, &BTreeSet<u64>) -> Option<u64>>;

pub struct Scene<P: Observe> {
    pub now: Time,
    pub peers: BTreeMap<u64, P>,
    next: Next,
    dead: BTreeSet<u64>,
    /// In the order sent.
    pub wire: Vec<InFlight<P>>,
    pub timers: BTreeMap<(u64, P::Timer), Time>,
    tickets: BTreeMap<u64, u64>,
    /// Current grants: peer, ticket, fencing number.
    pub grants: Vec<(u64, u64, u64)>,
    pub entered: Vec<(u64, u64, u64)>,
    pub lost: Vec<u64>,
    pub sent: Vec<usize>,
    /// A peer without messages in either direction.
    pub cut_off: Option<u64>,
}

impl<P: Observe> Scene<P> {
    pub fn of(peers: impl Iterator<Item = u64>, new: impl Fn(PeerId) -> P, next: Next) -> Self {
        Self {
            now: Time::ZERO + Span::from_secs(1),
            peers: peers.map(|peer| (peer, new(PeerId::new(peer)))).collect(),
            next,
            dead: BTreeSet::new(),
            wire: Vec::new(),
            timers: BTreeMap::new(),
            tickets: BTreeMap::new(),
            grants: Vec::new(),
            entered: Vec::new(),
            lost: Vec::new(),
            sent: vec![0; P::KINDS.len()],
            cut_off: None,
        }
    }

    fn next(&self, key: Key, here: u64) -> Option<PeerId> {
        (self.next)(key, here, &self.dead).map(PeerId::new)
    }

    pub fn step(&mut self, peer: u64, input: Input<P::Message, P::Timer>) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front().filter(|_| !self.dead.contains(&peer)) {
            let (mut effects, mut rng) = (Vec::new(), Rng::new(1));
            let mut cx = Cx::new(PeerId::new(peer), self.now, &mut rng, &mut effects);
            step(self.peers.get_mut(&peer).expect("a peer of the scene"), input, &mut cx);
            for effect in effects {
                self.carry_out(peer, effect, &mut inputs);
            }
        }
    }

    fn carry_out(
        &mut self,
        peer: u64,
        effect: Effect<P::Message, P::Timer>,
        inputs: &mut VecDeque<Input<P::Message, P::Timer>>,
    ) {
        let me = PeerId::new(peer);
        match effect {
            Effect::Send { to, message } => self.send((peer, to.get(), None, message)),
            Effect::Route { key, message } => match self.next(key, peer) {
                Some(next) => self.send((peer, next.get(), Some((key, me)), message)),
                None => {
                    inputs.push_back(Input::Routed { hop: Hop { key, origin: me, previous: me, next: None }, message })
                }
            },
            Effect::Forward { to, key, origin, message } => {
                self.send((peer, to.get(), Some((key, origin)), message));
            }
            Effect::Grant { ticket, grant } => {
                self.grants.push((peer, ticket.get(), grant.fencing));
                self.entered.push((peer, ticket.get(), grant.fencing));
            }
            Effect::Lost { ticket } => {
                self.grants.retain(|&(holder, which, _)| (holder, which) != (peer, ticket.get()));
                self.lost.push(peer);
            }
            Effect::SetTimer { timer, after } => drop(self.timers.insert((peer, timer), self.now + after)),
            Effect::CancelTimer { timer } => drop(self.timers.remove(&(peer, timer))),
            Effect::Refused { .. } | Effect::RegistryRequest(_) | Effect::Unexpected { .. } => panic!("{effect:?}"),
        }
    }

    fn send(&mut self, in_flight: InFlight<P>) {
        self.sent[P::kind(&in_flight.3)] += 1;
        if self.cut_off != Some(in_flight.0) && self.cut_off != Some(in_flight.1) {
            self.wire.push(in_flight);
        }
    }

    fn arrive(&mut self, (from, to, route, message): InFlight<P>) {
        let previous = PeerId::new(from);
        let input = match route {
            None => Input::Message { from: previous, message },
            Some((key, origin)) => {
                let hop = Hop { key, origin, previous, next: self.next(key, to) };
                Input::Routed { hop, message }
            }
        };
        self.step(to, input);
    }

    pub fn request(&mut self, peer: u64) -> u64 {
        let ticket = self.tickets.entry(peer).or_default();
        *ticket += 1;
        let ticket = *ticket;
        self.step(peer, Input::Request(Ticket::new(ticket)));
        ticket
    }

    pub fn release(&mut self, peer: u64) {
        let ticket = self.tickets[&peer];
        self.grants.retain(|&(holder, which, _)| (holder, which) != (peer, ticket));
        self.step(peer, Input::Release(Ticket::new(ticket)));
    }

    pub fn reset(&mut self, replica: u64, incarnation: u64) {
        self.step(replica, Input::Reset { incarnation });
    }

    pub fn kill(&mut self, peer: u64) {
        self.dead.insert(peer);
        self.timers.retain(|&(holder, _), _| holder != peer);
        self.grants.retain(|&(holder, ..)| holder != peer);
    }

    pub fn find(&self, from: u64, to: u64, kind: &str) -> Option<usize> {
        let is_it = |&(f, t, _, ref m): &InFlight<P>| (f, t, P::KINDS[P::kind(m)]) == (from, to, kind);
        self.wire.iter().position(is_it)
    }

    fn the(&self, from: u64, to: u64, kind: &str) -> usize {
        self.find(from, to, kind).unwrap_or_else(|| panic!("no {kind} from {from} to {to} in {:?}", self.wire))
    }

    /// Delivers the oldest message of this kind.
    pub fn deliver(&mut self, from: u64, to: u64, kind: &str) {
        let in_flight = self.wire.remove(self.the(from, to, kind));
        self.arrive(in_flight);
    }

    pub fn try_deliver(&mut self, from: u64, to: u64, kind: &str) -> bool {
        let found = self.find(from, to, kind).is_some();
        if found {
            self.deliver(from, to, kind);
        }
        found
    }

    pub fn deliver_first(&mut self) {
        let in_flight = self.wire.remove(0);
        self.arrive(in_flight);
    }

    pub fn duplicate(&mut self, from: u64, to: u64, kind: &str) {
        let copy = self.wire[self.the(from, to, kind)].clone();
        self.wire.push(copy);
    }

    pub fn lose(&mut self, from: u64, to: u64, kind: &str) {
        self.wire.remove(self.the(from, to, kind));
    }

    /// Removes the messages from one peer to another, for [`Scene::put_back`].
    pub fn hold_back(&mut self, from: u64, to: u64) -> Vec<InFlight<P>> {
        let (held, rest) = self.wire.drain(..).partition(|in_flight| (in_flight.0, in_flight.1) == (from, to));
        self.wire = rest;
        held
    }

    pub fn put_back(&mut self, held: Vec<InFlight<P>>) {
        self.wire.extend(held);
    }

    pub fn stabilize(&mut self) {
        for _ in 0..2000 {
            if self.wire.is_empty() {
                return;
            }
            self.deliver_first();
        }
        panic!("messages do not cease: {:?}", self.wire);
    }

    /// Lets time pass. Messages take none.
    pub fn pass(&mut self, span: Span) {
        let end = self.now + span;
        self.stabilize();
        while let Some(((peer, timer), at)) = self
            .timers
            .iter()
            .min_by_key(|&(_, at)| at)
            .filter(|&(_, &at)| at <= end)
            .map(|(holder, &at)| (holder.clone(), at))
        {
            self.timers.remove(&(peer, timer.clone()));
            self.now = self.now.max(at);
            self.step(peer, Input::Timer(timer));
            self.stabilize();
        }
        self.now = end;
    }

    pub fn holders(&self) -> Vec<u64> {
        self.grants.iter().map(|&(peer, ..)| peer).collect()
    }

    pub fn order(&self) -> Vec<u64> {
        self.entered.iter().map(|&(peer, ..)| peer).collect()
    }
}
