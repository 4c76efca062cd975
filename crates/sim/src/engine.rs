//! The driver in virtual time: one loop over a closed set of events.

use std::fmt;
use std::mem::take;

use peerlock_base::{PeerId, Rng, Ticket, Time};
use peerlock_mutex::{Cx, Effect, Input, Observe, step};

use crate::Closed;
use crate::carrier::{Carrier, Links};
use crate::latency::Latency;
use crate::ledger::Ledger;
use crate::queue::Queue;
use crate::timers::Timers;
use crate::watch::{Broken, Entry, Watch};

/// Everything that can happen.
enum Event<P: Observe> {
    Arrive { from: PeerId, to: PeerId, message: P::Message },
    Ask { peer: PeerId },
    Leave { peer: PeerId, ticket: Ticket },
    Timer { peer: PeerId, timer: P::Timer, set: u64 },
}

/// A rule was broken: which, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// When.
    pub at: Time,
    /// Which rule, in a sentence.
    pub what: Broken,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {}: {}", self.at, self.what)
    }
}

/// One run: peers, what is to happen to them, and who watches.
pub struct Simulation<P: Observe, W> {
    peers: Vec<P>,
    /// Who watches; to be asked when the run is over.
    pub watch: W,
    carrier: Carrier,
    workload: Closed,
    queue: Queue<Event<P>>,
    ledger: Ledger,
    now: Time,
    events: u64,
    effects: Vec<Effect<P::Message, P::Timer>>,
    /// How many more times each peer will ask.
    to_come: Vec<u32>,
    timers: Timers<P::Timer>,
    /// Separate streams, so that a protocol that draws numbers changes neither the workload nor the network.
    workload_rng: Rng,
    protocol_rng: Rng,
}

impl<P: Observe, W: Watch<P>> Simulation<P, W>
where
    P::Timer: std::hash::Hash,
{
    /// A run of these peers, numbered from 0 in this order.
    pub fn new(peers: Vec<P>, workload: Closed, latency: Latency, links: Links, seed: u64, watch: W) -> Self {
        let room = 2 * peers.len() + 16;
        Self {
            to_come: vec![workload.entries; peers.len()],
            peers,
            watch,
            carrier: Carrier::new(latency, links, Rng::stream(seed, 1)),
            workload,
            queue: Queue::with_capacity(room),
            ledger: Ledger::default(),
            now: Time::ZERO,
            events: 0,
            effects: Vec::with_capacity(16),
            timers: Timers::new(),
            workload_rng: Rng::stream(seed, 0),
            protocol_rng: Rng::stream(seed, 2),
        }
    }

    /// Lets everything happen until nothing is left to happen, or a rule is broken.
    pub fn run(&mut self) -> Result<(), Violation> {
        for number in 0..self.peers.len() {
            self.think(PeerId::new(number as u64));
        }
        while let Some((at, event)) = self.queue.pop() {
            self.now = at;
            self.events += 1;
            self.happen(event).map_err(|what| Violation { at, what })?;
        }
        let at = self.now;
        self.watch.at_end(at, &self.ledger).map_err(|what| Violation { at, what })
    }

    /// How many events there were.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The time of the last event.
    pub fn now(&self) -> Time {
        self.now
    }

    fn happen(&mut self, event: Event<P>) -> Result<(), Broken> {
        if self.now == Time::END {
            return Err("the clock has run out: 584 years are all there is; use shorter times or fewer entries".into());
        }
        match event {
            Event::Arrive { from, to, message } => {
                self.watch.on_deliver(self.now, from, to, &message)?;
                self.step(to, Input::Message { from, message })
            }
            Event::Ask { peer } => {
                let ticket = self.ledger.ask(peer, self.now);
                self.watch.on_request(self.now, peer, ticket)?;
                self.step(peer, Input::Request(ticket))
            }
            Event::Leave { peer, ticket } => {
                self.watch.on_leave(self.now, peer, ticket)?;
                self.step(peer, Input::Release(ticket))?;
                self.think(peer);
                Ok(())
            }
            Event::Timer { peer, timer, set } => {
                let Some(timer) = self.timers.take(peer, timer, set) else { return Ok(()) };
                self.step(peer, Input::Timer(timer))
            }
        }
    }

    fn step(&mut self, peer: PeerId, input: Input<P::Message, P::Timer>) -> Result<(), Broken> {
        let mut effects = take(&mut self.effects);
        let mut cx = Cx::new(peer, self.now, &mut self.protocol_rng, &mut effects);
        step(&mut self.peers[peer.index()], input, &mut cx);
        for effect in effects.drain(..) {
            self.carry_out(peer, effect)?;
        }
        self.effects = effects;
        self.watch.after_step(self.now, peer, &self.peers)
    }

    fn carry_out(&mut self, peer: PeerId, effect: Effect<P::Message, P::Timer>) -> Result<(), Broken> {
        match effect {
            Effect::Send { to, message } => {
                self.watch.on_send(self.now, peer, to, &message)?;
                let at = self.carrier.arrival(self.now, peer, to);
                self.queue.push(at, Event::Arrive { from: peer, to, message });
            }
            Effect::Grant { ticket, grant } => {
                let Some(request) = self.ledger.strike(ticket).filter(|request| request.peer == peer) else {
                    return Err(format!("peer {peer} lets in {ticket:?}, who is not waiting there"));
                };
                self.watch.on_grant(self.now, &Entry { peer, ticket, request, grant }, &self.ledger)?;
                let hold = self.workload.hold.sample(&mut self.workload_rng);
                self.queue.push(self.now + hold, Event::Leave { peer, ticket });
            }
            Effect::SetTimer { timer, after } => {
                let set = self.timers.set(peer, timer.clone());
                self.queue.push(self.now + after, Event::Timer { peer, timer, set });
            }
            Effect::CancelTimer { timer } => self.timers.cancel(peer, timer),
            Effect::Lost { ticket } | Effect::Refused { ticket } => {
                return Err(format!("peer {peer} sends {ticket:?} away, who was to be served"));
            }
            Effect::Route { .. } | Effect::Forward { .. } => {
                return Err(format!("peer {peer} routes a message, and there is no overlay in this run"));
            }
            Effect::Wish(_) => return Err(format!("peer {peer} asks a register that there is not")),
            Effect::Strange { why } => return Err(format!("peer {peer} got {why}")),
        }
        Ok(())
    }

    fn think(&mut self, peer: PeerId) {
        let to_come = &mut self.to_come[peer.index()];
        if *to_come > 0 {
            *to_come -= 1;
            let think = self.workload_rng.exponential(self.workload.think);
            self.queue.push(self.now + think, Event::Ask { peer });
        }
    }
}
