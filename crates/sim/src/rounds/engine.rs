//! The driver of whole peers: one loop over everything that can happen.

use std::mem::take;

use peerlock_base::{Key, PeerId, Rng, Span, Ticket, Time, mix};
use peerlock_mutex::{Grant, Observe, Replicas};
use peerlock_overlay::{self as overlay, Node, Overlay, UNKNOWN};
use peerlock_peer::{Config, Cx, Effect, Event as Told, Input, Peer, Room, Timer, Wire};

use super::hosts::{Client, Hosts};
use super::memory::Memory;
use super::report::{Harm, Round, RoundsReport};
use super::{Catalogue, Load, Placed, Rounds};
use crate::carrier::Carrier;
use crate::engine::Violation;
use crate::faults::{Crash, Fate};
use crate::latency::Latency;
use crate::ledger::Ledger;
use crate::queue::Queue;
use crate::timers::Timers;
use crate::watch::{Broken, Entry, Exclusion, Fencing, Watch};

/// How likely it is that a resource that somebody has is released in a round: "with a 50% probability" (§VI).
const RELEASE: f64 = 0.5;

/// A newcomer that is not in the overlay after this time tries again, by way of another peer. Our choice.
const JOIN_AGAIN: Span = Span::from_secs(10);

/// How often a peer that may fail is looked for. Where nearly everybody waits for something there may be none.
const LOOK_FOR_VICTIM: u32 = 100;

/// Everything that can happen.
enum Event<O: Overlay, P: Observe> {
    Arrive {
        from: PeerId,
        to: PeerId,
        wire: Wire<O::Message, P::Message>,
    },
    Timer {
        peer: PeerId,
        timer: Timer<P::Timer>,
        set: u64,
    },
    /// A round begins, or the last is over.
    Round,
    /// A client of this peer, or of any, asks.
    Ask(Option<PeerId>),
    /// Somebody asks for this resource before the first round.
    AskFirst {
        resource: usize,
    },
    /// A client leaves.
    Leave {
        peer: PeerId,
        ticket: Ticket,
    },
    /// Somebody fails.
    Fail,
    /// Somebody comes.
    Come,
    /// A newcomer should be in the overlay by now.
    JoinAgain(PeerId),
    /// The peer of this client fails, if it still waits or is inside.
    Crash {
        peer: PeerId,
        ticket: Ticket,
    },
    /// A peer loses what it keeps for others.
    Reset(PeerId),
}

/// One run.
pub(super) struct Swarm<'a, O: Overlay, P: Observe, F, W> {
    setting: &'a Rounds,
    catalogue: &'a Catalogue<F>,
    hosts: Hosts<O, P, &'a Catalogue<F>>,
    /// For each resource.
    rules: Vec<(Exclusion, Fencing)>,
    /// For each resource.
    harm: Vec<Harm>,
    memory: Memory,
    watch: W,
    report: RoundsReport,
    /// No round any more.
    drains: bool,
    /// How many are inside.
    inside: usize,
    carrier: Carrier,
    fate: Fate,
    queue: Queue<Event<O, P>>,
    ledger: Ledger,
    timers: Timers<Timer<P::Timer>>,
    now: Time,
    room: Room<O, P>,
    seed: u64,
    /// Separate streams: what a protocol does changes neither who asks when, nor the links, nor the other faults.
    asking: Rng,
    leaving: Rng,
    churn: Rng,
    protocol: Rng,
}

impl<'a, O, P, F, W> Swarm<'a, O, P, F, W>
where
    O: Placed,
    P: Observe<Timer: std::hash::Hash>,
    F: Fn(PeerId, &Replicas) -> P,
    W: Watch<P>,
{
    pub fn new(setting: &'a Rounds, catalogue: &'a Catalogue<F>, latency: Latency, seed: u64, watch: W) -> Self {
        const SLOTS: u32 = 1; // Votes of a majority are for one.
        let rules = || match setting.count_violations {
            true => (Exclusion::counting(SLOTS), Fencing::counting(SLOTS)),
            false => (Exclusion::new(SLOTS), Fencing::new(SLOTS)),
        };
        let resources = catalogue.resources.len();
        let messages = P::KINDS.iter().map(|&kind| (kind, 0)).collect();
        let mut swarm = Self {
            setting,
            catalogue,
            hosts: Hosts::with_capacity(setting.peers),
            rules: (0..resources).map(|_| rules()).collect(),
            harm: vec![Harm { resources: 1, ..Harm::default() }; resources],
            memory: Memory::new(catalogue.resources.iter().map(|resource| &resource.1), setting.lease),
            watch,
            report: RoundsReport { trials: 1, messages, waits: vec![Vec::new()], ..RoundsReport::default() },
            drains: false,
            inside: 0,
            carrier: Carrier::new(latency, setting.links, Rng::stream(seed, 1)),
            fate: Fate::new(setting.faults, Rng::stream(seed, 3)),
            queue: Queue::with_capacity(1024),
            ledger: Ledger::default(),
            timers: Timers::new(),
            now: Time::ZERO,
            room: Room::default(),
            seed,
            asking: Rng::stream(seed, 0),
            leaving: Rng::stream(seed, 4),
            churn: Rng::stream(seed, 5),
            protocol: Rng::stream(seed, 2),
        };
        swarm.settle();
        swarm
    }

    /// Everybody is in the overlay, and knows whom it should know.
    fn settle(&mut self) {
        let mut nodes: Vec<Node> = (0..self.setting.peers as u64).map(|peer| self.node(PeerId::new(peer))).collect();
        nodes.sort_unstable();
        let mut places: Vec<usize> = (0..nodes.len()).collect();
        places.sort_unstable_by_key(|&place| nodes[place].peer);
        for place in places {
            let overlay = O::converged(&nodes, place, O::CONFIG, UNKNOWN);
            let range = overlay.range();
            let peer = self.peer(overlay);
            self.hosts.add(peer, range);
        }
    }

    /// Where a peer lies: somewhere else in every trial.
    fn node(&self, peer: PeerId) -> Node {
        let high = mix(self.seed ^ mix(peer.get()));
        Node { key: Key::new(u128::from(high) << 64 | u128::from(mix(high))), peer }
    }

    fn peer(&self, overlay: O) -> Peer<O, P, &'a Catalogue<F>> {
        let config = if self.setting.is_rough() { Config::CONFIRMED } else { Config::RELIABLE };
        Peer::new(overlay, self.catalogue, config)
    }

    /// Lets everything happen, to the end or until a rule is broken.
    pub fn run(mut self) -> (Result<RoundsReport, Violation>, W) {
        let result = match self.play() {
            Ok(()) => Ok(self.put_together()),
            Err(what) => Err(Violation { at: self.now, what }),
        };
        (result, self.watch)
    }

    fn play(&mut self) -> Result<(), Broken> {
        let rounds = self.setting.round * self.setting.rounds as u64;
        let first = Time::ZERO + self.setting.settle;
        let end = first + rounds + self.setting.drain;
        if self.setting.is_rough() {
            self.start_upkeep();
        }
        if self.setting.settle > Span::ZERO {
            for resource in 0..self.catalogue.resources.len() {
                self.queue.push(Time::ZERO, Event::AskFirst { resource });
            }
        }
        self.queue.push(first, Event::Round);
        while let Some((at, event)) = self.queue.pop() {
            let is_served = self.ledger.waiting() == 0 && self.inside == 0;
            if at > end || (self.drains && is_served) {
                break;
            }
            self.now = at;
            self.report.events += 1;
            self.happen(event)?;
        }
        for (_, host) in self.hosts.iter_mut() {
            for client in host.clients.iter().filter(|client| !client.inside) {
                self.harm[client.resource].stuck += 1;
            }
        }
        if !self.setting.count_violations {
            for rules in &mut self.rules {
                Watch::<P>::at_end(rules, self.now, &self.ledger)?;
            }
        }
        Ok(())
    }

    fn start_upkeep(&mut self) {
        for peer in (0..self.setting.peers as u64).map(PeerId::new) {
            let after = self.churn.between(Span::ZERO, O::CONFIG.stabilize);
            self.set_timer(peer, Timer::Overlay(overlay::Timer::Stabilize), after);
            self.next_reset(peer);
        }
    }

    fn happen(&mut self, event: Event<O, P>) -> Result<(), Broken> {
        match event {
            Event::Arrive { from, to, wire } => self.arrive(from, to, wire),
            Event::Timer { peer, timer, set } => match self.timers.take(peer, timer, set) {
                Some(timer) => self.step(peer, Input::Timer(timer)),
                None => Ok(()),
            },
            Event::Round => self.next_round(),
            Event::Ask(peer) => match peer.or_else(|| self.hosts.any(&mut self.asking)) {
                Some(peer) => self.ask(peer),
                None => Ok(()),
            },
            Event::AskFirst { resource } => match self.hosts.any(&mut self.asking) {
                Some(peer) => self.ask_for(peer, resource),
                None => Ok(()),
            },
            Event::Leave { peer, ticket } => self.leave(peer, ticket),
            Event::Fail => self.fail_any(),
            Event::Come => self.come(),
            Event::JoinAgain(peer) => self.join(peer),
            Event::Crash { peer, ticket } => {
                if self.hosts.get(peer).is_none_or(|host| host.find(ticket).is_none()) {
                    return Ok(());
                }
                self.report.trouble.crashed += 1;
                self.fail(peer)?;
                self.come()
            }
            Event::Reset(peer) => self.reset(peer),
        }
    }

    fn arrive(&mut self, from: PeerId, to: PeerId, wire: Wire<O::Message, P::Message>) -> Result<(), Broken> {
        let Some(host) = self.hosts.get_mut(to) else { return Ok(()) };
        if let Wire::Direct { message, .. } | Wire::Routed { message, .. } = &wire {
            host.received += 1;
            self.watch.on_deliver(self.now, from, to, message)?;
        }
        self.step(to, Input::Message { from, wire })
    }

    /// All that a round brings is put in line; or it was the last.
    fn next_round(&mut self) -> Result<(), Broken> {
        let is_first = self.report.rounds.is_empty();
        for (_, host) in self.hosts.iter_mut() {
            let received = take(&mut host.received);
            if !is_first && host.range.is_some() {
                self.report.received.add(received);
            }
        }
        if self.report.rounds.len() == self.setting.rounds {
            return self.drain();
        }
        self.report.rounds.push(Round::default());
        self.queue.push(self.now + self.setting.round, Event::Round);

        for (peer, ticket) in self.holders() {
            if self.leaving.chance(RELEASE) {
                let at = self.now + moment(&mut self.leaving, self.setting.round);
                self.queue.push(at, Event::Leave { peer, ticket });
            }
        }
        for _ in 0..self.setting.churn / 2 {
            for event in [Event::Fail, Event::Come] {
                let at = self.now + moment(&mut self.churn, self.setting.round);
                self.queue.push(at, event);
            }
        }
        let askers = match self.setting.load {
            Load::Whole => vec![None],
            Load::PerPeer => self.hosts.joined().iter().copied().map(Some).collect(),
        };
        for asker in askers {
            for _ in 0..self.setting.requests {
                let at = self.now + moment(&mut self.asking, self.setting.round);
                self.queue.push(at, Event::Ask(asker));
            }
        }
        Ok(())
    }

    /// From now on everybody leaves as soon as it is inside.
    fn drain(&mut self) -> Result<(), Broken> {
        self.drains = true;
        self.report.waiting = self.ledger.waiting() as u64;
        for (peer, ticket) in self.holders() {
            self.leave(peer, ticket)?;
        }
        Ok(())
    }

    /// Everybody who is inside.
    fn holders(&mut self) -> Vec<(PeerId, Ticket)> {
        let mut holders = Vec::with_capacity(self.inside);
        for (peer, host) in self.hosts.iter_mut() {
            holders.extend(host.clients.iter().filter(|client| client.inside).map(|client| (peer, client.ticket)));
        }
        holders
    }

    fn ask(&mut self, peer: PeerId) -> Result<(), Broken> {
        let resource = self.asking.below(self.catalogue.resources.len() as u64) as usize;
        let (Some(host), Some(round)) = (self.hosts.get_mut(peer), self.report.rounds.last_mut()) else {
            return Ok(()); // It was there when the round began.
        };
        if host.wants(resource) {
            round.skipped += 1;
            return Ok(());
        }
        round.asked += 1;
        self.ask_for(peer, resource)
    }

    fn ask_for(&mut self, peer: PeerId, resource: usize) -> Result<(), Broken> {
        let Some(host) = self.hosts.get_mut(peer) else { return Ok(()) };
        let ticket = self.ledger.ask(peer, self.now);
        host.clients.push(Client { resource, ticket, inside: false, crash: self.fate.crash() });
        if let Some(Client { crash: Crash::After(span), .. }) = host.clients.last() {
            self.queue.push(self.now + *span, Event::Crash { peer, ticket });
        }
        self.watch.on_request(self.now, peer, ticket)?;
        self.step(peer, Input::Request { resource: self.catalogue.resources[resource].0, ticket })
    }

    /// A client leaves, if it did not crash or lose its grant meanwhile.
    fn leave(&mut self, peer: PeerId, ticket: Ticket) -> Result<(), Broken> {
        let Some(host) = self.hosts.get_mut(peer) else { return Ok(()) };
        let Some(at) = host.find(ticket) else { return Ok(()) };
        let client = host.clients.remove(at);
        self.is_out(peer, client)?;
        self.step(peer, Input::Release { resource: self.catalogue.resources[client.resource].0, ticket })
    }

    /// A client that was inside is not any more.
    fn is_out(&mut self, peer: PeerId, client: Client) -> Result<(), Broken> {
        self.inside -= 1;
        Watch::<P>::on_leave(&mut self.rules[client.resource], self.now, peer, client.ticket)?;
        self.watch.on_leave(self.now, peer, client.ticket)
    }

    /// §VI.C: "Requesters are not churned in our experiments."
    fn fail_any(&mut self) -> Result<(), Broken> {
        for _ in 0..LOOK_FOR_VICTIM {
            let victim = self.hosts.any(&mut self.churn);
            if let Some(peer) = victim
                && self.hosts.get(peer).is_some_and(|host| host.clients.is_empty())
            {
                self.report.trouble.failed += 1;
                return self.fail(peer);
            }
        }
        Ok(())
    }

    /// A peer is never heard of again. Nor are its clients.
    fn fail(&mut self, peer: PeerId) -> Result<(), Broken> {
        let Some(host) = self.hosts.remove(peer) else { return Ok(()) };
        self.memory.moved(self.now, host.range, None);
        for client in host.clients {
            if client.inside {
                self.is_out(peer, client)?;
            } else {
                self.ledger.strike(client.ticket);
                self.watch.on_give_up(self.now, peer, client.ticket)?;
            }
        }
        Ok(())
    }

    fn come(&mut self) -> Result<(), Broken> {
        self.report.trouble.joined += 1;
        let peer = self.hosts.next();
        let newcomer = self.peer(O::new(self.node(peer), O::CONFIG));
        self.hosts.add(newcomer, None);
        self.next_reset(peer);
        self.join(peer)
    }

    /// By way of any peer, until it is in.
    fn join(&mut self, peer: PeerId) -> Result<(), Broken> {
        if self.hosts.get(peer).is_none_or(|host| host.range.is_some()) {
            return Ok(());
        }
        self.queue.push(self.now + JOIN_AGAIN, Event::JoinAgain(peer));
        match self.hosts.any(&mut self.churn) {
            Some(via) => self.step(peer, Input::Join(Some(via))),
            None => Ok(()),
        }
    }

    fn reset(&mut self, peer: PeerId) -> Result<(), Broken> {
        let Some(host) = self.hosts.get(peer) else { return Ok(()) };
        if self.drains {
            return Ok(());
        }
        self.report.trouble.resets += 1;
        self.memory.reset(self.now, host.range);
        self.watch.on_reset(self.now, peer)?;
        self.next_reset(peer);
        self.step(peer, Input::Reset { incarnation: self.now.as_nanos() })
    }

    fn next_reset(&mut self, peer: PeerId) {
        if let Some(life) = self.fate.life() {
            self.queue.push(self.now + life, Event::Reset(peer));
        }
    }

    fn set_timer(&mut self, peer: PeerId, timer: Timer<P::Timer>, after: Span) {
        let set = self.timers.set(peer, timer.clone());
        self.queue.push(self.now + after, Event::Timer { peer, timer, set });
    }

    fn step(&mut self, peer: PeerId, input: Input<O::Message, P::Message, P::Timer>) -> Result<(), Broken> {
        let Some(host) = self.hosts.get_mut(peer) else { return Ok(()) };
        let (now, rng, room) = (self.now, &mut self.protocol, &mut self.room);
        host.peer.step(input, &mut Cx { now, rng, proximity: UNKNOWN, room });
        let mut effects = take(&mut self.room.effects);
        for effect in effects.drain(..) {
            self.carry_out(peer, effect)?;
        }
        self.room.effects = effects;
        Ok(())
    }

    fn carry_out(&mut self, peer: PeerId, effect: Effect<O::Message, P::Message, P::Timer>) -> Result<(), Broken> {
        match effect {
            Effect::Send { to, wire } => self.send(peer, to, wire),
            Effect::Client { ticket, event, .. } => self.tell(peer, ticket, event),
            Effect::SetTimer { timer, after } => {
                self.set_timer(peer, timer, after);
                Ok(())
            }
            Effect::CancelTimer { timer } => {
                self.timers.cancel(peer, timer);
                Ok(())
            }
            Effect::Owns(range) => {
                let before = self.hosts.set_range(peer, range);
                self.memory.moved(self.now, before, range);
                Ok(())
            }
            Effect::Undelivered { key, .. } => {
                self.report.trouble.undelivered += 1;
                self.unless_rough(|| format!("a message for the owner of {key} found no way from peer {peer}"))
            }
            Effect::Strange { why } => {
                self.report.trouble.strange += 1;
                self.unless_rough(|| format!("peer {peer} got {why}"))
            }
        }
    }

    /// What may not be where nothing goes wrong.
    fn unless_rough(&self, broken: impl Fn() -> Broken) -> Result<(), Broken> {
        if self.setting.is_rough() || self.setting.count_violations { Ok(()) } else { Err(broken()) }
    }

    fn send(&mut self, from: PeerId, to: PeerId, wire: Wire<O::Message, P::Message>) -> Result<(), Broken> {
        if let Wire::Direct { message, .. } | Wire::Routed { message, .. } = &wire {
            self.watch.on_send(self.now, from, to, message)?;
        }
        if !self.drains {
            self.count(&wire);
        }
        let copies = self.fate.copies();
        if copies == 2 {
            let at = self.carrier.arrival(self.now, from, to);
            self.queue.push(at, Event::Arrive { from, to, wire: wire.clone() });
        }
        if copies > 0 {
            let at = self.carrier.arrival(self.now, from, to);
            self.queue.push(at, Event::Arrive { from, to, wire });
        }
        Ok(())
    }

    /// One message per hop, and one per direct message; what the overlay needs for itself is counted apart.
    fn count(&mut self, wire: &Wire<O::Message, P::Message>) {
        let Some(round) = self.report.rounds.last_mut() else { return }; // Nothing counts before the first.
        let message = match wire {
            Wire::Overlay(_) | Wire::Got { .. } => {
                self.report.upkeep += 1;
                return;
            }
            Wire::Direct { message, .. } => message,
            Wire::Routed { message, .. } => {
                self.report.hops += 1;
                message
            }
        };
        self.report.messages[P::kind(message)].1 += 1;
        round.messages += 1;
    }

    fn tell(&mut self, peer: PeerId, ticket: Ticket, event: Told) -> Result<(), Broken> {
        let Some(host) = self.hosts.get_mut(peer) else { return Ok(()) };
        let at = host.find(ticket).filter(|&at| host.clients[at].inside == matches!(event, Told::Lost));
        let Some(at) = at else {
            return Err(format!("peer {peer} tells {ticket:?} {event:?}, who does not wait for it there"));
        };
        match event {
            Told::Granted(grant) => {
                host.clients[at].inside = true;
                let client = host.clients[at];
                self.enter(peer, client, grant)
            }
            Told::Lost => {
                let client = host.clients.remove(at);
                self.report.trouble.lost += 1;
                self.is_out(peer, client)
            }
            Told::Refused => {
                host.clients.remove(at);
                self.ledger.strike(ticket);
                self.report.trouble.refused += 1;
                self.watch.on_give_up(self.now, peer, ticket)
            }
        }
    }

    fn enter(&mut self, peer: PeerId, client: Client, grant: Grant) -> Result<(), Broken> {
        let Client { resource, ticket, crash, .. } = client;
        let request = self.ledger.strike(ticket).expect("who waits at a peer is in the ledger");
        let entry = Entry { peer, ticket, request, grant };
        self.inside += 1;
        self.harm[resource].grants += 1;
        self.watch.on_grant(self.now, &entry, &self.ledger)?;
        Watch::<P>::on_grant(&mut self.rules[resource], self.now, &entry, &self.ledger)?;
        if crash == Crash::Inside {
            self.queue.push(self.now, Event::Crash { peer, ticket });
        } else if self.drains || self.report.rounds.is_empty() {
            self.queue.push(self.now, Event::Leave { peer, ticket });
        }
        match self.report.rounds.last_mut() {
            Some(round) if !self.drains => round.grants += 1,
            _ => {}
        }
        if !self.report.rounds.is_empty() {
            self.report.waits[0].push(self.now.since(request.at));
        }
        Ok(())
    }

    fn put_together(&mut self) -> RoundsReport {
        let mut report = take(&mut self.report);
        for ((most, rules), mut harm) in self.memory.most().zip(&self.rules).zip(self.harm.iter().copied()) {
            harm.violations = rules.0.violations();
            harm.fencing_back = rules.1.violations();
            let is_within = most < self.setting.quorum.intersection();
            let sum = if is_within { &mut report.within } else { &mut report.beyond };
            *sum = sum.plus(harm);
            report.trouble.most_forgotten = report.trouble.most_forgotten.max(most);
        }
        report.trouble.forgotten = self.memory.forgotten;
        report
    }
}

/// A random moment of the first half of a round: its messages settle in the second.
fn moment(rng: &mut Rng, round: Span) -> Span {
    rng.between(Span::ZERO, round / 2)
}
