//! The driver of open runs: as [`crate::Simulation`], but peers come and go, and things go wrong.

use std::mem::take;

use peerlock_base::{PeerId, Rng, Span, Ticket, Time};
use peerlock_mutex::{Cx, Effect, Input, Observe, step};

use super::clients::{Client, Clients, Place};
use crate::carrier::Carrier;
use crate::engine::Violation;
use crate::faults::{Crash, Fate};
use crate::latency::Latency;
use crate::ledger::Ledger;
use crate::open::Open;
use crate::queue::Queue;
use crate::timers::Timers;
use crate::watch::{Broken, Entry, Watch};
use crate::workload::Poisson;

/// Everything that can happen.
enum Event<P: Observe> {
    Arrive {
        from: PeerId,
        to: PeerId,
        message: P::Message,
    },
    /// The next client comes, and asks.
    Come,
    Leave {
        peer: PeerId,
        ticket: Ticket,
    },
    Timer {
        peer: PeerId,
        timer: P::Timer,
        set: u64,
    },
    Crash {
        peer: PeerId,
        ticket: Ticket,
    },
    Reset {
        replica: PeerId,
    },
}

/// What became of those who did not leave by themselves.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fates {
    pub came: u64,
    pub refused: u64,
    pub lost: u64,
    pub crashed: u64,
}

/// One open run: replicas are peers 0 to n − 1, every client is a peer of its own after them.
pub struct OpenSimulation<P: Observe, W, F> {
    new_peer: F,
    replicas: Vec<P>,
    clients: Clients<P>,
    pub watch: W,
    pub fates: Fates,
    carrier: Carrier,
    workload: Poisson,
    fate: Fate,
    linger: Span,
    queue: Queue<Event<P>>,
    ledger: Ledger,
    now: Time,
    events: u64,
    effects: Vec<Effect<P::Message, P::Timer>>,
    timers: Timers<P::Timer>,
    /// Separate streams, as in a closed run.
    workload_rng: Rng,
    protocol_rng: Rng,
}

impl<P: Observe<Timer: std::hash::Hash>, W: Watch<P>, F: Fn(PeerId) -> P> OpenSimulation<P, W, F> {
    pub fn new(open: &Open, latency: Latency, seed: u64, new_peer: F, watch: W) -> Self {
        let replicas = u64::from(open.replicas);
        Self {
            replicas: (0..replicas).map(PeerId::new).map(&new_peer).collect(),
            new_peer,
            clients: Clients::new(replicas),
            watch,
            fates: Fates::default(),
            carrier: Carrier::new(latency, open.links, Rng::stream(seed, 1)),
            workload: open.workload,
            fate: Fate::new(open.faults, Rng::stream(seed, 3)),
            linger: open.lease * 2,
            queue: Queue::with_capacity(1024),
            ledger: Ledger::default(),
            now: Time::ZERO,
            events: 0,
            effects: Vec::with_capacity(64),
            timers: Timers::new(),
            workload_rng: Rng::stream(seed, 0),
            protocol_rng: Rng::stream(seed, 2),
        }
    }

    /// Lets everything happen until the time is up, or a rule is broken.
    pub fn run(&mut self) -> Result<(), Violation> {
        let end = Time::ZERO + self.workload.settle + self.workload.measure;
        self.next_client();
        for replica in 0..self.replicas.len() {
            self.next_reset(PeerId::new(replica as u64));
        }
        while let Some((at, event)) = self.queue.pop() {
            if at >= end {
                break;
            }
            self.now = at;
            self.events += 1;
            self.happen(event).map_err(|what| Violation { at, what })?;
        }
        Ok(())
    }

    pub fn events(&self) -> u64 {
        self.events
    }

    fn happen(&mut self, event: Event<P>) -> Result<(), Broken> {
        match event {
            Event::Arrive { from, to, message } => {
                if self.is_there(to) {
                    self.watch.on_deliver(self.now, from, to, &message)?;
                    self.step(to, Input::Message { from, message })?;
                }
                Ok(())
            }
            Event::Come => self.come(),
            Event::Leave { peer, ticket } => {
                // It may have crashed inside, or lost its grant, meanwhile.
                if self.place(peer) != Some(Place::Inside) {
                    return Ok(());
                }
                self.watch.on_leave(self.now, peer, ticket)?;
                self.clients.leave(peer, self.now + self.linger);
                self.step(peer, Input::Release(ticket))
            }
            Event::Timer { peer, timer, set } => match self.timers.take(peer, timer, set) {
                Some(timer) if self.is_there(peer) => self.step(peer, Input::Timer(timer)),
                _ => Ok(()),
            },
            Event::Crash { peer, ticket } => self.crash(peer, ticket),
            Event::Reset { replica } => {
                self.watch.on_reset(self.now, replica)?;
                self.next_reset(replica);
                self.step(replica, Input::Reset { incarnation: self.now.as_nanos() })
            }
        }
    }

    fn come(&mut self) -> Result<(), Broken> {
        while let Some(gone) = self.clients.take_leave(self.now) {
            for replica in 0..self.replicas.len() {
                self.carrier.forget(gone, PeerId::new(replica as u64));
            }
        }
        self.next_client();
        self.fates.came += 1;
        let (peer, crash) = (self.clients.next(), self.fate.crash());
        self.clients.add(Client { peer: (self.new_peer)(peer), crash, place: Place::Waiting });
        let ticket = self.ledger.ask(peer, self.now);
        if let Crash::After(span) = crash {
            self.queue.push(self.now + span, Event::Crash { peer, ticket });
        }
        self.watch.on_request(self.now, peer, ticket)?;
        self.step(peer, Input::Request(ticket))
    }

    /// A client is never heard of again, and hears nothing any more. Whoever is done cannot crash any more.
    fn crash(&mut self, peer: PeerId, ticket: Ticket) -> Result<(), Broken> {
        match self.place(peer) {
            Some(Place::Waiting) => {
                self.ledger.strike(ticket);
                self.watch.on_give_up(self.now, peer, ticket)?;
            }
            Some(Place::Inside) => self.watch.on_leave(self.now, peer, ticket)?,
            Some(Place::Done) | None => return Ok(()),
        }
        self.fates.crashed += 1;
        self.clients.remove(peer);
        Ok(())
    }

    fn step(&mut self, peer: PeerId, input: Input<P::Message, P::Timer>) -> Result<(), Broken> {
        let who = match self.replicas.get_mut(peer.index()) {
            Some(replica) => replica,
            None => match self.clients.get_mut(peer) {
                Some(client) => &mut client.peer,
                None => return Ok(()),
            },
        };
        let mut effects = take(&mut self.effects);
        step(who, input, &mut Cx::new(peer, self.now, &mut self.protocol_rng, &mut effects));
        for effect in effects.drain(..) {
            self.carry_out(peer, effect)?;
        }
        self.effects = effects;
        Ok(())
    }

    fn carry_out(&mut self, peer: PeerId, effect: Effect<P::Message, P::Timer>) -> Result<(), Broken> {
        match effect {
            Effect::Send { to, message } => {
                self.watch.on_send(self.now, peer, to, &message)?;
                self.send(peer, to, message);
            }
            Effect::Grant { ticket, grant } => {
                let Some(request) = self.ledger.strike(ticket).filter(|request| request.peer == peer) else {
                    return Err(format!("peer {peer} lets in {ticket:?}, who is not waiting there"));
                };
                self.watch.on_grant(self.now, &Entry { peer, ticket, request, grant }, &self.ledger)?;
                self.enter(peer, ticket);
            }
            Effect::Lost { ticket } => {
                if self.place(peer) != Some(Place::Inside) {
                    return Err(format!("peer {peer} tells {ticket:?} that it is inside no longer, which it was not"));
                }
                self.fates.lost += 1;
                self.watch.on_leave(self.now, peer, ticket)?;
                self.clients.leave(peer, self.now + self.linger);
            }
            Effect::Refused { ticket } => {
                if self.ledger.strike(ticket).is_none_or(|request| request.peer != peer) {
                    return Err(format!("peer {peer} sends {ticket:?} away, who is not waiting there"));
                }
                self.fates.refused += 1;
                self.watch.on_give_up(self.now, peer, ticket)?;
                self.clients.leave(peer, self.now + self.linger);
            }
            Effect::SetTimer { timer, after } => {
                let set = self.timers.set(peer, timer.clone());
                self.queue.push(self.now + after, Event::Timer { peer, timer, set });
            }
            Effect::CancelTimer { timer } => self.timers.cancel(peer, timer),
            Effect::Route { .. } | Effect::Forward { .. } => {
                return Err(format!("peer {peer} routes a message, and there is no overlay in this run"));
            }
            Effect::Wish(_) => return Err(format!("peer {peer} asks a register that there is not")),
            Effect::Strange { why } => return Err(format!("peer {peer} got {why}")),
        }
        Ok(())
    }

    fn send(&mut self, from: PeerId, to: PeerId, message: P::Message) {
        let copies = self.fate.copies();
        if copies == 2 {
            let at = self.carrier.arrival(self.now, from, to);
            self.queue.push(at, Event::Arrive { from, to, message: message.clone() });
        }
        if copies > 0 {
            let at = self.carrier.arrival(self.now, from, to);
            self.queue.push(at, Event::Arrive { from, to, message });
        }
    }

    /// A client has come inside: when does it leave, or crash?
    fn enter(&mut self, peer: PeerId, ticket: Ticket) {
        let Some(client) = self.clients.get_mut(peer) else { return };
        client.place = Place::Inside;
        if client.crash == Crash::Inside {
            return self.queue.push(self.now, Event::Crash { peer, ticket });
        }
        let hold = self.workload.hold.map_or(Span::ZERO, |hold| hold.sample(&mut self.workload_rng));
        self.queue.push(self.now + hold, Event::Leave { peer, ticket });
    }

    fn next_client(&mut self) {
        let gap = self.workload_rng.exponential(self.workload.gap);
        self.queue.push(self.now + gap, Event::Come);
    }

    fn next_reset(&mut self, replica: PeerId) {
        if let Some(life) = self.fate.life() {
            self.queue.push(self.now + life, Event::Reset { replica });
        }
    }

    fn place(&mut self, peer: PeerId) -> Option<Place> {
        self.clients.get_mut(peer).map(|client| client.place)
    }

    fn is_there(&mut self, peer: PeerId) -> bool {
        peer.index() < self.replicas.len() || self.clients.get_mut(peer).is_some()
    }
}
