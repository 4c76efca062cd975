//! A driver of whole peers without time: messages arrive in sending order; then timers expire in the order they were
//! set.

use std::collections::VecDeque;

use peerlock_overlay::{self as overlay, Node, Overlay};
use peerlock_peer::{self as peer, Buffers, Config, Effect, Input, Peer, Timer, Wire};
use peerlock_protocols::{Cx, Hop, Never, Protocol};
use peerlock_types::{Key, PeerId, Rng, Ticket, Time};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parcel {
    Plain(u64),
    Retained(u64),
    Answer(u64),
}

/// Tickets above this are for parcels that a hop stops.
pub const RETAINED: u64 = 1_000_000;

pub fn key_of(number: u64) -> Key {
    Key::of(&number.to_be_bytes())
}

pub fn resource(number: usize) -> Key {
    Key::of(format!("resource {number}").as_bytes())
}

pub fn unexpected_resource() -> Key {
    Key::of(b"no such resource")
}

/// Routes a parcel for each ticket.
#[derive(Debug, Default)]
pub struct Courier {
    pub asked: Vec<(Hop, Parcel)>,
    pub delivered: Vec<(Hop, Parcel)>,
    pub answers: Vec<u64>,
    pub disowned: Vec<Key>,
    pub resets: Vec<u64>,
}

impl Protocol for Courier {
    type Message = Parcel;
    type Timer = Never;

    fn request(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        let (number, parcel) = match ticket.get().checked_sub(RETAINED) {
            Some(number) => (number, Parcel::Retained(number)),
            None => (ticket.get(), Parcel::Plain(ticket.get())),
        };
        cx.route(key_of(number), parcel);
    }

    fn release(&mut self, _: Ticket, _: &mut Cx<'_, Self>) {}

    fn on_message(&mut self, _: PeerId, parcel: Parcel, _: &mut Cx<'_, Self>) {
        let Parcel::Answer(number) = parcel else { panic!("{parcel:?} was routed, not sent") };
        self.answers.push(number);
    }

    fn on_routed(&mut self, hop: Hop, parcel: Parcel, cx: &mut Cx<'_, Self>) {
        self.delivered.push((hop, parcel));
        if let Parcel::Plain(number) = parcel
            && hop.origin != cx.me()
        {
            cx.send(hop.origin, Parcel::Answer(number));
        }
    }

    fn on_forward(&mut self, hop: Hop, parcel: Parcel, _: &mut Cx<'_, Self>) -> Option<Parcel> {
        self.asked.push((hop, parcel));
        (!matches!(parcel, Parcel::Retained(_))).then_some(parcel)
    }

    fn on_disowned(&mut self, key: Key, _: &mut Cx<'_, Self>) {
        self.disowned.push(key);
    }

    fn on_reset(&mut self, incarnation: u64, _: &mut Cx<'_, Self>) {
        self.resets.push(incarnation);
    }
}

fn open(_me: PeerId, name: Key) -> Option<Courier> {
    (0..4).any(|number| resource(number) == name).then(Courier::default)
}

type Open = fn(PeerId, Key) -> Option<Courier>;
type Effects<O> = Vec<Effect<<O as Overlay>::Message, Parcel, Never>>;

pub struct Net<O: Overlay> {
    pub peers: Vec<Option<Peer<O, Courier, Open>>>,
    config: Config,
    under_way: VecDeque<(PeerId, PeerId, Wire<O::Message, Parcel>)>,
    timers: VecDeque<(PeerId, Timer<Never>)>,
    /// Sender and receiver of each message, except those of the overlay.
    sent: Vec<(PeerId, PeerId)>,
    pub undelivered: Vec<(Key, Key)>,
    pub unexpected: Vec<&'static str>,
    rng: Rng,
    buffers: Buffers<O, Courier>,
}

pub fn nodes(count: u64) -> Vec<Node> {
    let mut nodes: Vec<Node> = (0..count).map(|number| Node::of(PeerId::new(number))).collect();
    nodes.sort();
    nodes
}

pub fn net<O: Overlay>(count: u64, config: Config) -> Net<O> {
    let nodes = nodes(count);
    let mut net = Net::empty(config);
    net.peers.resize_with(nodes.len(), || None);
    for (place, node) in nodes.iter().enumerate() {
        let overlay = O::converged(&nodes, place, overlay::Config::PASTRY);
        net.peers[node.peer.index()] = Some(Peer::new(overlay, open, config));
    }
    net
}

impl<O: Overlay> Net<O> {
    pub fn empty(config: Config) -> Self {
        Self {
            peers: Vec::new(),
            config,
            under_way: VecDeque::new(),
            timers: VecDeque::new(),
            sent: Vec::new(),
            undelivered: Vec::new(),
            unexpected: Vec::new(),
            rng: Rng::new(1),
            buffers: Buffers::default(),
        }
    }

    pub fn add(&mut self, node: Node) -> PeerId {
        assert_eq!(node.peer.index(), self.peers.len());
        self.peers.push(Some(Peer::new(O::new(node, overlay::Config::PASTRY), open, self.config)));
        node.peer
    }

    pub fn step(&mut self, at: PeerId, input: Input<O::Message, Parcel, Never>) -> Effects<O> {
        let Some(peer) = &mut self.peers[at.index()] else { return Vec::new() };
        let (rng, buffers) = (&mut self.rng, &mut self.buffers);
        peer.step(input, &mut peer::Cx { now: Time::ZERO, rng, buffers });
        std::mem::take(&mut self.buffers.effects)
    }

    pub fn say(&mut self, at: PeerId, input: Input<O::Message, Parcel, Never>) {
        for effect in self.step(at, input) {
            match effect {
                Effect::Send { to, wire } => {
                    if !matches!(wire, Wire::Overlay(_)) {
                        self.sent.push((at, to));
                    }
                    self.under_way.push_back((at, to, wire));
                }
                Effect::SetTimer { timer, .. } => {
                    self.timers.retain(|pending| *pending != (at, timer.clone()));
                    self.timers.push_back((at, timer));
                }
                Effect::CancelTimer { timer } => self.timers.retain(|pending| *pending != (at, timer.clone())),
                Effect::Undelivered { resource, key } => self.undelivered.push((resource, key)),
                Effect::Unexpected { why } => self.unexpected.push(why),
                Effect::Owns(_) => {}
                Effect::Client { .. } => panic!("couriers grant nothing"),
            }
        }
    }

    fn carry(&mut self) {
        while let Some((from, to, wire)) = self.under_way.pop_front() {
            if to.index() < self.peers.len() {
                self.say(to, Input::Message { from, wire });
            }
        }
    }

    /// Delivers all messages and timers, except those of the overlay's upkeep.
    pub fn settle(&mut self) {
        self.carry();
        let is_upkeep = |timer: &Timer<Never>| matches!(timer, Timer::Overlay(overlay::Timer::Stabilize));
        while let Some(at) = self.timers.iter().position(|(_, timer)| !is_upkeep(timer)) {
            let (peer, timer) = self.timers.remove(at).unwrap();
            self.say(peer, Input::Timer(timer));
            self.carry();
        }
    }

    pub fn route(&mut self, number_of_resource: usize, from: PeerId, number: u64) {
        self.say(from, Input::Request { resource: resource(number_of_resource), ticket: Ticket::new(number) });
        self.settle();
    }

    pub fn way(&self, from: PeerId, key: Key) -> Vec<PeerId> {
        let next = |at: &PeerId| self.peers[at.index()].as_ref()?.overlay().next_hop(key);
        std::iter::successors(Some(from), next).collect()
    }

    /// Returns a sender and a parcel that needs more than one hop.
    pub fn far_away(&self) -> (PeerId, u64) {
        let pairs = (1..).map(|number| (PeerId::new(number % self.peers.len() as u64), number));
        pairs.take(10_000).find(|&(from, number)| self.way(from, key_of(number)).len() > 2).unwrap()
    }

    pub fn owner(&self, key: Key) -> PeerId {
        let owns = |overlay: &&O| overlay.range().is_some_and(|range| range.contains(key));
        let owners: Vec<PeerId> =
            self.peers.iter().flatten().map(Peer::overlay).filter(owns).map(|overlay| overlay.me().peer).collect();
        assert_eq!(owners.len(), 1, "{owners:?} own {key}");
        owners[0]
    }

    pub fn protocol(&self, peer: PeerId, number: usize) -> Option<&Courier> {
        self.peers[peer.index()].as_ref()?.protocol(resource(number))
    }

    fn couriers(&self) -> impl Iterator<Item = (PeerId, &Courier)> {
        let all = (0..4).flat_map(|number| self.peers.iter().flatten().map(move |peer| (number, peer)));
        all.filter_map(|(number, peer)| Some((peer.overlay().me().peer, peer.protocol(resource(number))?)))
    }

    pub fn asked(&self, parcel: Parcel) -> Vec<Hop> {
        let hops =
            self.couriers().flat_map(|(peer, courier)| courier.asked.iter().map(move |(hop, what)| (peer, hop, what)));
        let mut hops: Vec<(PeerId, Hop)> =
            hops.filter(|(_, _, what)| **what == parcel).map(|(peer, hop, _)| (peer, *hop)).collect();
        let Some((_, first)) = hops.first() else { return Vec::new() };
        let way = self.way(first.origin, first.key);
        hops.sort_by_key(|(peer, _)| way.iter().position(|on_way| on_way == peer));
        hops.into_iter().map(|(_, hop)| hop).collect()
    }

    pub fn delivered(&self, parcel: Parcel) -> Vec<(PeerId, Hop)> {
        let all = self.couriers().flat_map(|(peer, courier)| courier.delivered.iter().map(move |got| (peer, got)));
        all.filter(|(_, (_, what))| *what == parcel).map(|(peer, (hop, _))| (peer, *hop)).collect()
    }

    pub fn answered(&self, peer: PeerId, number: u64) -> usize {
        self.protocol(peer, 0).map_or(0, |courier| courier.answers.iter().filter(|answer| **answer == number).count())
    }

    pub fn sent(&self, from: PeerId, to: PeerId) -> usize {
        self.sent.iter().filter(|sent| **sent == (from, to)).count()
    }
}
