//! A scene for protocols on routes: three replicas, some hops, and clients A, B, C, D. Messages move only when told to,
//! and peers may die: then the routes lead around them.
//!
//! ```text
//!   A 20 ─┬─► 10 ─┬─► 11 ─► R (0, 1, 2)      if 10 or 11 dies: 12 in its place
//!   B 21 ─┘       │                          if R dies: 13 in its place
//!   C 22 ─────────┘
//!   D 23 ─────────────────► R
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Display;

use peerlock_base::{Key, PeerId, Rng, Span, Ticket, Time};
use peerlock_mutex::{Cx, Effect, Hop, Input, Observe, Quorum, Replicas, step};

pub const A: u64 = 20;
pub const B: u64 = 21;
pub const C: u64 = 22;
pub const D: u64 = 23;

/// A message under way: from, to, for the owner of which key and from whom if it is routed, what.
pub type Letter<M> = (u64, u64, Option<(Key, PeerId)>, M);

pub struct Scene<P: Observe> {
    pub now: Time,
    replicas: Replicas,
    peers: BTreeMap<u64, P>,
    dead: BTreeSet<u64>,
    /// In the order sent.
    pub wire: Vec<Letter<P::Message>>,
    pub timers: BTreeMap<(u64, P::Timer), Time>,
    tickets: BTreeMap<u64, u64>,
    /// Who is inside: peer, ticket, fencing number.
    pub inside: Vec<(u64, u64, u64)>,
    /// The same, of all who ever were.
    pub entered: Vec<(u64, u64, u64)>,
    pub lost: Vec<u64>,
    /// By type.
    pub sent: Vec<usize>,
    /// From now on nothing comes to or from this peer.
    pub cut_off: Option<u64>,
}

impl<P: Observe + Display> Scene<P> {
    /// Two of three votes win.
    pub fn new(new_peer: impl Fn(PeerId, &Replicas) -> P) -> Self {
        let replicas = Replicas::on_overlay("resource", Quorum::new(3, 2));
        let new = |id: u64| (id, new_peer(PeerId::new(id), &replicas));
        Self {
            now: Time::ZERO + Span::from_secs(1),
            peers: (0..3).chain(10..14).chain(A..=D).map(new).collect(),
            replicas,
            dead: BTreeSet::new(),
            wire: Vec::new(),
            timers: BTreeMap::new(),
            tickets: BTreeMap::new(),
            inside: Vec::new(),
            entered: Vec::new(),
            lost: Vec::new(),
            sent: vec![0; P::KINDS.len()],
            cut_off: None,
        }
    }

    /// Who comes next on the way to a key; nobody if `here` owns it.
    fn next(&self, key: Key, here: u64) -> Option<PeerId> {
        let replica = u64::from(self.replicas.under(key).expect("a key of a replica"));
        let ways: &[u64] = match here {
            A | B => &[10, 12],
            10 => &[11, 12],
            C => &[11, 12],
            D | 11 | 12 => &[replica, 13],
            _ => &[],
        };
        ways.iter().copied().find(|peer| !self.dead.contains(peer)).map(PeerId::new)
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
            Effect::Forward { hop, message } => {
                let next = hop.next.expect("what is forwarded goes on");
                self.send((peer, next.get(), Some((hop.key, hop.origin)), message));
            }
            Effect::Grant { ticket, grant } => {
                self.inside.push((peer, ticket.get(), grant.fencing));
                self.entered.push((peer, ticket.get(), grant.fencing));
            }
            Effect::Lost { ticket } => {
                self.inside.retain(|&(who, which, _)| (who, which) != (peer, ticket.get()));
                self.lost.push(peer);
            }
            Effect::SetTimer { timer, after } => drop(self.timers.insert((peer, timer), self.now + after)),
            Effect::CancelTimer { timer } => drop(self.timers.remove(&(peer, timer))),
            Effect::Refused { .. } | Effect::Wish(_) | Effect::Strange { .. } => panic!("{effect:?}"),
        }
    }

    fn send(&mut self, letter: Letter<P::Message>) {
        self.sent[P::kind(&letter.3)] += 1;
        if self.cut_off != Some(letter.0) && self.cut_off != Some(letter.1) {
            self.wire.push(letter);
        }
    }

    fn arrive(&mut self, (from, to, route, message): Letter<P::Message>) {
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

    /// The peer's latest request is over.
    pub fn release(&mut self, peer: u64) {
        let ticket = self.tickets[&peer];
        self.inside.retain(|&(who, which, _)| (who, which) != (peer, ticket));
        self.step(peer, Input::Release(Ticket::new(ticket)));
    }

    pub fn kill(&mut self, peer: u64) {
        self.dead.insert(peer);
        self.timers.retain(|&(who, _), _| who != peer);
        self.inside.retain(|&(who, ..)| who != peer);
    }

    /// What a peer knows.
    pub fn state(&self, peer: u64) -> String {
        self.peers[&peer].to_string()
    }

    fn find(&self, from: u64, to: u64, kind: &str) -> usize {
        let is_it = |&(f, t, _, ref m): &Letter<P::Message>| (f, t, P::KINDS[P::kind(m)]) == (from, to, kind);
        let found = self.wire.iter().position(is_it);
        found.unwrap_or_else(|| panic!("no {kind} from {from} to {to} in {:?}", self.wire))
    }

    /// Delivers the oldest such message.
    pub fn deliver(&mut self, from: u64, to: u64, kind: &str) {
        let letter = self.wire.remove(self.find(from, to, kind));
        self.arrive(letter);
    }

    /// Puts a second copy of the oldest such message on the wire.
    pub fn duplicate(&mut self, from: u64, to: u64, kind: &str) {
        let copy = self.wire[self.find(from, to, kind)].clone();
        self.wire.push(copy);
    }

    /// Loses the oldest such message.
    pub fn lose(&mut self, from: u64, to: u64, kind: &str) {
        self.wire.remove(self.find(from, to, kind));
    }

    /// Takes what is on the wire from one to the other off it, to be put back later.
    pub fn hold_back(&mut self, from: u64, to: u64) -> Vec<Letter<P::Message>> {
        let (held, rest) = self.wire.drain(..).partition(|&(f, t, ..)| (f, t) == (from, to));
        self.wire = rest;
        held
    }

    /// Delivers everything, in the order sent; at most so much that a protocol that never rests shows itself.
    pub fn stabilize(&mut self) {
        for _ in 0..2000 {
            if self.wire.is_empty() {
                return;
            }
            let letter = self.wire.remove(0);
            self.arrive(letter);
        }
        panic!("no rest: {:?}", self.wire);
    }

    /// Time passes, and messages need none of it.
    pub fn pass(&mut self, span: Span) {
        let end = self.now + span;
        self.stabilize();
        while let Some(((peer, timer), at)) = self
            .timers
            .iter()
            .min_by_key(|&(_, at)| at)
            .filter(|&(_, &at)| at <= end)
            .map(|(key, &at)| (key.clone(), at))
        {
            self.timers.remove(&(peer, timer.clone()));
            self.now = self.now.max(at);
            self.step(peer, Input::Timer(timer));
            self.stabilize();
        }
        self.now = end;
    }

    pub fn who_is_inside(&self) -> Vec<u64> {
        self.inside.iter().map(|&(peer, ..)| peer).collect()
    }

    pub fn order(&self) -> Vec<u64> {
        self.entered.iter().map(|&(peer, ..)| peer).collect()
    }
}
