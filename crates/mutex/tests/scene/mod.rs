//! A scene: n replicas, peers 0 … n − 1, and clients A, B, C and a newcomer. Messages move only when told to.

use std::collections::BTreeMap;

use peerlock_base::{PeerId, Rng, Span, Ticket, Time};
use peerlock_mutex::sigma::{Config, Message, Sigma, Stamp};
use peerlock_mutex::token::Claim;
use peerlock_mutex::{Cx, Effect, Input, Observe, Protocol, Quorum, Replicas, step};

pub const A: u64 = 100;
pub const B: u64 = 101;
pub const C: u64 = 102;
pub const NEWCOMER: u64 = 103;

pub struct Scene<P: Observe> {
    pub now: Time,
    pub peers: BTreeMap<u64, P>,
    /// From, to, what: in the order sent.
    pub wire: Vec<Letter<P>>,
    pub timers: BTreeMap<(u64, P::Timer), Time>,
    tickets: BTreeMap<u64, u64>,
    /// Who is inside: peer, ticket, fencing number.
    pub inside: Vec<(u64, u64, u64)>,
    /// The same, of all who ever were.
    pub entered: Vec<(u64, u64, u64)>,
    pub lost: Vec<u64>,
    /// How many messages of each type.
    pub sent: Vec<usize>,
    pub cut_off: Option<u64>,
}

type Letter<P> = (u64, u64, <P as Protocol>::Message);

impl<P: Observe> Scene<P> {
    pub fn of(replicas: u32, new: impl Fn(PeerId) -> P) -> Self {
        Self {
            now: Time::ZERO + Span::from_secs(1),
            peers: (0..u64::from(replicas))
                .chain([A, B, C, NEWCOMER])
                .map(|peer| (peer, new(PeerId::new(peer))))
                .collect(),
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

    pub fn step(&mut self, peer: u64, input: Input<P::Message, P::Timer>) {
        let (mut effects, mut rng) = (Vec::new(), Rng::new(1));
        let mut cx = Cx::new(PeerId::new(peer), self.now, &mut rng, &mut effects);
        step(self.peers.get_mut(&peer).expect("a peer of the scene"), input, &mut cx);
        for effect in effects {
            match effect {
                Effect::Send { to, message } => {
                    self.sent[P::kind(&message)] += 1;
                    if self.cut_off != Some(peer) && self.cut_off != Some(to.get()) {
                        self.wire.push((peer, to.get(), message));
                    }
                }
                Effect::Grant { ticket, grant } => {
                    self.inside.push((peer, ticket.get(), grant.fencing));
                    self.entered.push((peer, ticket.get(), grant.fencing));
                }
                Effect::Lost { ticket } => {
                    self.inside.retain(|&(who, which, _)| (who, which) != (peer, ticket.get()));
                    self.lost.push(peer);
                }
                Effect::SetTimer { timer, after } => {
                    self.timers.insert((peer, timer), self.now + after);
                }
                Effect::CancelTimer { timer } => {
                    self.timers.remove(&(peer, timer));
                }
                Effect::Route { .. }
                | Effect::Forward { .. }
                | Effect::Refused { .. }
                | Effect::Wish(_)
                | Effect::Strange { .. } => {
                    panic!("{effect:?}")
                }
            }
        }
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

    pub fn reset(&mut self, replica: u64, incarnation: u64) {
        self.step(replica, Input::Reset { incarnation });
    }

    pub fn find(&self, from: u64, to: u64, kind: &str) -> Option<usize> {
        let is_it = |&(f, t, ref m): &Letter<P>| (f, t, P::KINDS[P::kind(m)]) == (from, to, kind);
        self.wire.iter().position(is_it)
    }

    /// Delivers the oldest such message.
    pub fn deliver(&mut self, from: u64, to: u64, kind: &str) {
        assert!(self.try_deliver(from, to, kind), "no {kind} from {from} to {to} in {:?}", self.wire);
    }

    pub fn try_deliver(&mut self, from: u64, to: u64, kind: &str) -> bool {
        let Some(at) = self.find(from, to, kind) else { return false };
        let (from, to, message) = self.wire.remove(at);
        self.step(to, Input::Message { from: PeerId::new(from), message });
        true
    }

    /// Puts a second copy of the oldest such message on the wire.
    pub fn duplicate(&mut self, from: u64, to: u64, kind: &str) {
        let copy = self.wire[self.find(from, to, kind).expect("a message to copy")].clone();
        self.wire.push(copy);
    }

    /// Takes what is on the wire from one to the other off it, for [`Scene::put_back`].
    pub fn hold_back(&mut self, from: u64, to: u64) -> Vec<Letter<P>> {
        let (held, rest) = self.wire.drain(..).partition(|letter| (letter.0, letter.1) == (from, to));
        self.wire = rest;
        held
    }

    pub fn put_back(&mut self, held: Vec<Letter<P>>) {
        self.wire.extend(held);
    }

    /// Delivers everything, in the order sent; at most so much that a protocol that never rests shows itself.
    pub fn stabilize(&mut self) {
        for _ in 0..2000 {
            if self.wire.is_empty() {
                return;
            }
            let (from, to, message) = self.wire.remove(0);
            self.step(to, Input::Message { from: PeerId::new(from), message });
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
            .map(|(who, &at)| (who.clone(), at))
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
}

impl Scene<Sigma> {
    pub fn new(n: u32, m: u32, config: Config) -> Self {
        let replicas = Replicas::first(Quorum::new(n, m));
        Self::of(n, |me| Sigma::new(me, &replicas, config))
    }

    /// Whose a replica's vote is, as it would tell a stranger.
    pub fn owner(&self, replica: u64) -> Option<u64> {
        let stranger = PeerId::new(999);
        let client = Stamp { time: u64::MAX, client: Claim { peer: stranger, ticket: Ticket::new(1) } };
        let message = Message::Request { replica: replica as u32, client, sent: self.now, fencing: 0 };
        let (mut copy, mut effects, mut rng) = (self.peers[&replica].clone(), Vec::new(), Rng::new(1));
        let mut cx = Cx::new(PeerId::new(replica), self.now, &mut rng, &mut effects);
        step(&mut copy, Input::Message { from: stranger, message }, &mut cx);
        let told = effects.iter().find_map(|effect| match effect {
            Effect::Send { to, message: Message::Response { owner, .. } } if *to == stranger => *owner,
            _ => None,
        });
        told.map(|owner| owner.peer().get()).filter(|&owner| owner != stranger.get())
    }
}
