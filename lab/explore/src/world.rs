//! One state of a small world, and the actions that may come next.

mod detached;
mod fault;
mod fingerprint;
mod limits;
mod registry;

use std::fmt::Display;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use peerlock_protocols::{Cx, Effect, Grant, Input, Observe, Protocol, UnderWay, step};
use peerlock_types::{PeerId, Rng, Ticket, Time};

use self::fault::Cluster;
pub use self::fault::{AdminCommand, Fault, RegistryMessage};
use self::fingerprint::{Node, Sealed};
pub use self::limits::{FaultLimits, Limits, RegistryMutation};
use crate::Violation;
use crate::check::invariants;

pub trait Explorable: Protocol<Message: Ord + Hash + Display, Timer: Hash> + Observe + Clone + Eq + Hash {}

impl<P: Protocol<Message: Ord + Hash + Display, Timer: Hash> + Observe + Clone + Eq + Hash> Explorable for P {}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Packet<M> {
    pub from: PeerId,
    pub to: PeerId,
    pub message: M,
}

/// An event that may come next. Peers and messages are named by their index in the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<T> {
    Request(usize),
    Leave(usize, Ticket),
    Withdraw(usize, Ticket),
    Deliver(usize),
    Lose(usize),
    Duplicate(usize),
    Fire(usize, T),
    /// Time passes to the next pending timer.
    Pass,
    Reset(usize),
    /// The first peer suspects that the second has crashed.
    Suspect(usize, usize),
    /// The first peer cannot reach the second, where a client waits.
    Miss(usize, usize),
    Find(usize, usize),
    Fault(Fault),
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Local<P: Explorable> {
    peer: P,
    /// The pending timers. If time does not pass, all are due.
    timers: Vec<(P::Timer, Time)>,
    /// The number of requests, which is also the newest ticket.
    asked: u64,
    waiting: Vec<Ticket>,
    inside: Vec<(Ticket, Grant)>,
    session: u64,
    is_up: bool,
    /// The peer was evicted, and still has tokens.
    is_forced: bool,
}

pub(crate) type Effects<P> = Vec<Effect<<P as Protocol>::Message, <P as Protocol>::Timer>>;

/// A peer's index, its state with the clients up to date, and the input to pass to it.
type Notified<P> = (usize, Local<P>, Input<<P as Protocol>::Message, <P as Protocol>::Timer>);

/// Declares the limits that events use up.
macro_rules! remaining {
    ($($limit:ident),*) => {
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
        struct Left {
            $($limit: u32),*
        }

        impl Left {
            fn of(limits: &Limits) -> Self {
                Self { $($limit: limits.$limit),* }
            }
        }
    };
}
remaining!(withdrawals, losses, duplications, timeouts, passes, resets, suspicions, unreachable);

#[derive(PartialEq)]
struct Rules {
    ids: Vec<PeerId>,
    limits: Limits,
}

/// Peers, their clients and the messages between them, at one moment. Clones share peers and messages until they
/// change.
///
/// Time stays at [`Time::ZERO`] unless the limits let it pass: a protocol's safety must not depend on durations, so a
/// pending timer may expire at any moment. Every step gets the same random numbers.
#[derive(PartialEq)]
pub struct World<P: Explorable> {
    rules: Arc<Rules>,
    nodes: Vec<Arc<Node<P>>>,
    /// In sending order per pair if the network is ordered, otherwise sorted.
    packets: Vec<Arc<Sealed<P::Message>>>,
    now: Time,
    left: Left,
    grants: Vec<Grant>,
    /// Pairs (from, to) that cannot connect, sorted.
    missed: Vec<(usize, usize)>,
    cluster: Option<Arc<Cluster>>,
}

impl<P: Explorable> World<P> {
    ///
    /// # Panics
    /// If two peers have the same ID, or if replicas are interchangeable and messages ordered.
    pub fn new(limits: Limits, peers: impl IntoIterator<Item = (PeerId, P)>) -> Self {
        assert!(!(limits.alike && limits.ordered), "interchangeable replicas require unordered messages");
        let mut peers: Vec<_> = peers.into_iter().collect();
        peers.sort_by_key(|(id, _)| *id);
        assert!(peers.windows(2).all(|pair| pair[0].0 < pair[1].0), "peer IDs must be unique");
        let (ids, peers): (Vec<_>, Vec<_>) = peers.into_iter().unzip();
        let local = |peer| {
            let (timers, waiting, inside) = (Vec::new(), Vec::new(), Vec::new());
            let (session, is_up, is_forced) = (0, true, false);
            Local { peer, timers, asked: 0, waiting, inside, session, is_up, is_forced }
        };
        let nodes = peers.into_iter().map(|peer| Arc::new(Node::new(local(peer), &ids, &limits))).collect();
        let left = Left::of(&limits);
        let cluster = limits.faults.map(|fault_actions| Arc::new(Cluster::new(&ids, &fault_actions, limits.slots)));
        let (rules, packets, now) = (Arc::new(Rules { ids, limits }), Vec::new(), Time::ZERO);
        Self { rules, nodes, packets, now, left, grants: Vec::new(), missed: Vec::new(), cluster }
    }

    pub fn ids(&self) -> &[PeerId] {
        &self.rules.ids
    }

    pub fn limits(&self) -> &Limits {
        &self.rules.limits
    }

    pub fn peer(&self, at: usize) -> &P {
        &self.nodes[at].local.peer
    }

    pub fn newest(&self, at: usize) -> Ticket {
        Ticket::new(self.nodes[at].local.asked)
    }

    pub fn now(&self) -> Time {
        self.now
    }

    /// Returns the affected peer: the receiver of a message; the first peer if there is none.
    pub fn actor(&self, action: &Action<P::Timer>) -> PeerId {
        match *action {
            Action::Pass => self.ids()[0],
            Action::Fault(fault) => self.actor_of(fault),
            Action::Request(at) | Action::Leave(at, _) | Action::Withdraw(at, _) => self.ids()[at],
            Action::Fire(at, _) | Action::Reset(at) | Action::Suspect(at, _) => self.ids()[at],
            Action::Miss(at, _) | Action::Find(at, _) => self.ids()[at],
            Action::Deliver(at) | Action::Lose(at) | Action::Duplicate(at) => self.packet(at).to,
        }
    }

    pub fn packet(&self, at: usize) -> &Packet<P::Message> {
        &self.packets[at].packet
    }

    pub fn packets(&self) -> impl ExactSizeIterator<Item = &Packet<P::Message>> {
        self.packets.iter().map(|sealed| &sealed.packet)
    }

    pub fn forget_messages(&mut self) {
        self.packets.clear();
    }

    pub fn forget_timers(&mut self, is_forgotten: impl Fn(&P::Timer) -> bool) {
        for at in 0..self.nodes.len() {
            let mut local = self.nodes[at].local.clone();
            local.timers.retain(|(timer, _)| !is_forgotten(timer));
            self.set(at, local);
        }
    }

    pub fn waiting(&self, at: usize) -> &[Ticket] {
        &self.nodes[at].local.waiting
    }

    pub fn inside(&self, at: usize) -> &[(Ticket, Grant)] {
        &self.nodes[at].local.inside
    }

    pub fn all_waiting(&self) -> Vec<(PeerId, Ticket)> {
        let at =
            |(id, node): (&PeerId, &Arc<Node<P>>)| node.local.waiting.iter().map(|&t| (*id, t)).collect::<Vec<_>>();
        self.ids().iter().zip(&self.nodes).flat_map(at).collect()
    }

    pub fn timeouts_left(&self) -> u32 {
        if self.has_time() { self.left.passes } else { self.left.timeouts }
    }

    fn has_time(&self) -> bool {
        self.rules.limits.passes > 0
    }

    fn next_due(&self) -> Option<Time> {
        let due = self.nodes.iter().flat_map(|node| &node.local.timers).map(|&(_, due)| due).min();
        due.filter(|due| *due > self.now)
    }

    /// If timers are pending and [`World::actions`] is empty, the limits have ended the run.
    pub fn has_timers(&self) -> bool {
        self.nodes.iter().any(|node| !node.local.timers.is_empty())
    }

    /// Appends all possible actions, always in the same order.
    pub fn actions(&self, actions: &mut Vec<Action<P::Timer>>) {
        let Limits { requests, clients, replicas, ordered, .. } = self.rules.limits;
        let Left { withdrawals, losses, duplications, timeouts, passes, resets, .. } = self.left;
        actions.extend((0..replicas).filter(|_| resets > 0).map(Action::Reset));
        for (at, node) in self.nodes.iter().enumerate() {
            let local = &node.local;
            if at >= replicas
                && local.is_up
                && local.asked < requests
                && local.waiting.len() + local.inside.len() < clients
            {
                actions.push(Action::Request(at));
            }
            actions.extend(local.inside.iter().map(|&(ticket, _)| Action::Leave(at, ticket)));
            if withdrawals > 0 {
                actions.extend(local.waiting.iter().map(|&ticket| Action::Withdraw(at, ticket)));
            }
            if timeouts > 0 || self.has_time() {
                let due = local.timers.iter().filter(|(_, due)| *due <= self.now);
                actions.extend(due.map(|(timer, _)| Action::Fire(at, timer.clone())));
            }
        }
        actions.extend((passes > 0 && self.next_due().is_some()).then_some(Action::Pass));
        self.departures(actions);
        self.fault_actions(actions);
        let mut before: Option<&Packet<P::Message>> = None;
        for (at, packet) in self.packets().enumerate() {
            let repeats = |before: &Packet<P::Message>| match ordered {
                true => (before.from, before.to) == (packet.from, packet.to),
                false => before == packet,
            };
            if !before.is_some_and(repeats) {
                actions.push(Action::Deliver(at));
                actions.extend((losses > 0).then_some(Action::Lose(at)));
                actions.extend((duplications > 0).then_some(Action::Duplicate(at)));
            }
            before = Some(packet);
        }
    }

    fn departures(&self, actions: &mut Vec<Action<P::Timer>>) {
        let places = 0..self.nodes.len();
        if self.left.suspicions > 0 {
            let pairs = places.clone().flat_map(|at| places.clone().map(move |target| (at, target)));
            let suspects = pairs.filter(|&(at, target)| at != target && self.waiting(target).is_empty());
            actions.extend(suspects.map(|(at, target)| Action::Suspect(at, target)));
        }
        if self.left.unreachable > 0 {
            let pairs = places.clone().flat_map(|at| places.clone().map(move |target| (at, target)));
            let misses = pairs.filter(|&(at, target)| {
                at != target
                    && self.may_coordinate(at)
                    && !self.waiting(target).is_empty()
                    && !self.missed.contains(&(at, target))
            });
            actions.extend(misses.map(|(at, target)| Action::Miss(at, target)));
        }
        actions.extend(self.missed.iter().map(|&(at, target)| Action::Find(at, target)));
    }

    /// Returns whether the peer may be the coordinator. Without a registry it is the first peer.
    fn may_coordinate(&self, at: usize) -> bool {
        match &self.cluster {
            Some(cluster) => cluster.registry.coordinator == Some(self.session(at)),
            None => at == 0,
        }
    }

    /// Applies an action, and leaves the peer's effects in `effects`.
    pub fn apply(&mut self, action: &Action<P::Timer>, effects: &mut Effects<P>) -> Option<Violation> {
        effects.clear();
        let violation = match *action {
            Action::Fault(fault) => self.inject(fault, effects),
            _ => self.input(action).and_then(|(at, local, input)| self.step(at, local, input, effects)),
        };
        violation.or_else(|| self.check())
    }

    fn input(&mut self, action: &Action<P::Timer>) -> Option<Notified<P>> {
        let local = |at: usize| self.nodes[at].local.clone();
        match *action {
            Action::Request(at) => {
                let mut local = local(at);
                local.asked += 1;
                let ticket = Ticket::new(local.asked);
                local.waiting.push(ticket);
                Some((at, local, Input::Request(ticket)))
            }
            Action::Leave(at, ticket) => {
                let mut local = local(at);
                local.inside.retain(|&(inside, _)| inside != ticket);
                Some((at, local, Input::Release(ticket)))
            }
            Action::Withdraw(at, ticket) => {
                let mut local = local(at);
                local.waiting.retain(|&waiting| waiting != ticket);
                self.left.withdrawals -= 1;
                Some((at, local, Input::Release(ticket)))
            }
            Action::Deliver(packet) => {
                let Packet { from, to, message } = self.packets.remove(packet).packet.clone();
                let at = self.place(to);
                let local = self.nodes[at].local.clone();
                local.is_up.then_some((at, local, Input::Message { from, message }))
            }
            Action::Fault(_) => None,
            Action::Lose(packet) => {
                self.left.losses -= 1;
                self.packets.remove(packet);
                None
            }
            Action::Duplicate(packet) => {
                self.left.duplications -= 1;
                self.packets.insert(packet, self.packets[packet].clone());
                None
            }
            Action::Fire(at, ref timer) => {
                let mut local = local(at);
                local.timers.retain(|(pending, _)| pending != timer);
                self.left.timeouts -= u32::from(!self.has_time());
                Some((at, local, Input::Timer(timer.clone())))
            }
            Action::Pass => {
                self.left.passes -= 1;
                self.now = self.next_due().unwrap_or(self.now);
                None
            }
            Action::Reset(at) => {
                let local = local(at);
                self.left.resets -= 1;
                let incarnation = u64::from(self.rules.limits.resets - self.left.resets);
                Some((at, local, Input::Reset { incarnation }))
            }
            Action::Suspect(at, target) => {
                self.left.suspicions -= 1;
                Some((at, self.nodes[at].local.clone(), Input::PeerDown(self.ids()[target])))
            }
            Action::Miss(at, target) => {
                self.left.unreachable -= 1;
                let place = self.missed.partition_point(|pair| *pair < (at, target));
                self.missed.insert(place, (at, target));
                Some((at, local(at), Input::Reachable { peer: self.ids()[target], reachable: false }))
            }
            Action::Find(at, target) => {
                self.missed.retain(|pair| *pair != (at, target));
                let local = local(at);
                let input = Input::Reachable { peer: self.ids()[target], reachable: true };
                local.is_up.then_some((at, local, input))
            }
        }
    }

    fn step(
        &mut self,
        at: usize,
        mut local: Local<P>,
        input: Input<P::Message, P::Timer>,
        effects: &mut Effects<P>,
    ) -> Option<Violation> {
        let me = self.rules.ids[at];
        let mut rng = Rng::new(0);
        let stepped = AssertUnwindSafe(|| step(&mut local.peer, input, &mut Cx::new(me, self.now, &mut rng, effects)));
        if let Err(panic) = catch_unwind(stepped) {
            let why = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            return Some(Violation::Panic(me, why.unwrap_or("no message").into()));
        }
        let mut violation = None;
        for effect in effects.iter() {
            let found = match effect {
                Effect::Send { to, message } => {
                    self.send(Packet { from: me, to: *to, message: message.clone() });
                    None
                }
                Effect::Grant { ticket, grant } => self.enter(me, &mut local, *ticket, *grant),
                Effect::Lost { ticket } => {
                    local.inside.retain(|(inside, _)| inside != ticket);
                    None
                }
                Effect::Refused { ticket } => {
                    local.waiting.retain(|waiting| waiting != ticket);
                    None
                }
                Effect::SetTimer { timer, after } => {
                    local.timers.retain(|(pending, _)| pending != timer);
                    if *after <= self.rules.limits.longest_timer {
                        let place = local.timers.partition_point(|(pending, _)| pending < timer);
                        let due = if self.has_time() { self.now + *after } else { self.now };
                        local.timers.insert(place, (timer.clone(), due));
                    }
                    None
                }
                Effect::CancelTimer { timer } => {
                    local.timers.retain(|(pending, _)| pending != timer);
                    None
                }
                Effect::Route { .. } | Effect::Forward { .. } => {
                    Some(Violation::Unexpected(me, "a routed message in a world without an overlay"))
                }
                Effect::RegistryRequest(registry_request) => self.registry_request(at, registry_request),
                Effect::Unexpected { why } => Some(Violation::Unexpected(me, why)),
            };
            violation = violation.or(found);
        }
        local.is_forced &= (local.peer.tokens() > 0 || self.is_to_be_evicted(me)) && !self.is_back(at, &local);
        self.set(at, local);
        self.forget_undeliverable();
        if self.rules.limits.tidy {
            self.tidy();
        }
        violation
    }

    /// Removes messages that can have no effect, one at a time: of two copies, one may still be needed.
    pub fn tidy(&mut self) {
        let mut at = 0;
        while at < self.packets.len() {
            if self.is_void(at) {
                self.packets.remove(at);
            } else {
                at += 1;
            }
        }
    }

    fn is_void(&self, at: usize) -> bool {
        let Packet { from, to, message } = self.packet(at);
        let (sender, receiver) = (self.place(*from), self.place(*to));
        let others = self.packets().enumerate().filter(|(other, packet)| {
            let is_between = [(packet.from, packet.to), (packet.to, packet.from)].contains(&(*from, *to));
            *other != at && is_between
        });
        let Limits { replicas, requests, .. } = self.rules.limits;
        let asks_again = |at: usize| at >= replicas && self.nodes[at].local.asked < requests;
        self.peer(receiver).is_void(UnderWay {
            message,
            sender: self.peer(sender),
            others: &mut others.map(|(_, packet)| &packet.message),
            is_calm: self.left == Left::default() && !asks_again(sender) && !asks_again(receiver),
        })
    }

    fn send(&mut self, packet: Packet<P::Message>) {
        let before = |sealed: &Arc<Sealed<P::Message>>| match self.rules.limits.ordered {
            true => (sealed.packet.from, sealed.packet.to) <= (packet.from, packet.to),
            false => sealed.packet <= packet,
        };
        let place = self.packets.partition_point(before);
        self.packets.insert(place, Arc::new(self.seal(packet)));
    }

    /// Grants a slot to a client of the peer whose new state is `local`.
    fn enter(&mut self, me: PeerId, local: &mut Local<P>, ticket: Ticket, grant: Grant) -> Option<Violation> {
        let Some(waiting) = local.waiting.iter().position(|&waiting| waiting == ticket) else {
            return Some(Violation::NotWaiting(me, ticket));
        };
        local.waiting.remove(waiting);
        local.inside.push((ticket, grant));
        if local.is_forced {
            return None;
        }
        let slots = local.peer.slots().map_or(self.rules.limits.slots, |slots| slots as usize);
        let honest = |(id, node): &(&PeerId, &Arc<Node<P>>)| **id != me && !node.local.is_forced;
        let others = self.ids().iter().zip(&self.nodes).filter(honest).map(|(id, node)| (*id, &node.local));
        let of_others = others.clone().map(|(_, local)| local);
        let alone = self.cluster.as_ref().map_or(0, |cluster| cluster.alone.len());
        let inside = alone + local.inside.len() + of_others.clone().map(|local| local.inside.len()).sum::<usize>();
        if inside > slots {
            return Some(Violation::TooManyHolders { inside, slots });
        }
        if let Some(arrival) = self.peer(self.place(me)).arrival_of(ticket)
            && slots == 1
            && self.left.unreachable == self.rules.limits.unreachable
        {
            let generation = local.peer.generation();
            let is_earlier = |(id, other): (PeerId, &Local<P>)| {
                let arrivals = other.waiting.iter().filter_map(|&ticket| other.peer.arrival_of(ticket));
                arrivals.min().is_some_and(|earliest| earliest < arrival && self.is_queued(id, earliest, generation))
            };
            if others.chain([(me, &*local)]).any(is_earlier) {
                return Some(Violation::OutOfOrder(me, ticket));
            }
        }
        let all = of_others.flat_map(|local| &local.inside).chain(&local.inside);
        let same = all.filter(|(_, other)| other.slot == grant.slot).count();
        if same > 1 || grant.slot as usize >= slots {
            return Some(Violation::WrongSlot(me, grant));
        }
        let stale = |old: &Grant| old.fencing == grant.fencing || old.slot == grant.slot && old.fencing > grant.fencing;
        if self.grants.iter().any(stale) {
            return Some(Violation::Fencing(me, grant));
        }
        let place = self.grants.partition_point(|old| *old < grant);
        self.grants.insert(place, grant);
        None
    }

    fn check(&self) -> Option<Violation> {
        let messages = self.packets.iter().map(|sealed| &sealed.packet.message);
        let found = invariants(self.peer(0), self.ids(), |at| &self.nodes[at].summary, messages);
        found.or_else(|| self.idle()).or_else(|| self.slot_twice())
    }

    fn idle(&self) -> Option<Violation> {
        if !P::NEVER_IDLE || !self.packets.is_empty() || !self.missed.is_empty() {
            return None;
        }
        let slots = match &self.cluster {
            Some(_) => self.slots_when_calm()?,
            None => self.rules.limits.slots,
        };
        let inside: usize = self.nodes.iter().map(|node| node.local.inside.len()).sum();
        let waiting = self.all_waiting();
        (inside < slots && !waiting.is_empty()).then_some(Violation::Idle(waiting))
    }

    /// # Panics
    /// If the peer is outside this world.
    pub fn place(&self, peer: PeerId) -> usize {
        self.ids().binary_search(&peer).expect("messages must go to peers of this world")
    }
}

impl<P: Explorable> Clone for World<P> {
    fn clone(&self) -> Self {
        let Self { rules, nodes, packets, now, left, grants, missed, cluster } = self;
        let (nodes, packets, grants, missed) = (nodes.clone(), packets.clone(), grants.clone(), missed.clone());
        Self { rules: rules.clone(), nodes, packets, now: *now, left: *left, grants, missed, cluster: cluster.clone() }
    }
}
