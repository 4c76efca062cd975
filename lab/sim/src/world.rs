//! The event loop of the simulator. Peers, workload, faults and watchers are parameters.
//!
//! ```text
//!    Workload ──ask, leave, crash─────►┐             ┌──Event──► Watch
//!        ▲                             │             │
//!        └──on_entered, on_over────────┤    World    ├──Input──► Actor
//!                                      │             │◄─Effect──┘
//!    Faults ──lose, duplicate, freeze─►┘             └──arrival──► Latency
//! ```
//!
//! A fault is a field of [`Faults`], a random stream in `Injector` and the place here where it is injected. It uses the
//! next free stream number: existing streams must not move. A fault that is off draws nothing.
//!
//! Random streams of a run: 0 workload, 1 network, 2 peers, 3 the first faults, 4 and 5 rounds, 6 to 12 further faults,
//! 13 disks, 14 outages, 15 lost and bad disks, 16 reboots.

mod check;
mod clients;
mod event;
mod injection;
mod part;
mod tally;

use std::collections::BTreeMap;
use std::iter::repeat;

use peerlock_protocols::Grant;
use peerlock_types::{PeerId, Rng, Span, Ticket, Time};

pub use check::Violation;

use self::clients::End;
use self::event::Scheduled;
use self::tally::Tally;
use crate::actor::{Actor, Cx, Effect, Hands, Input};
use crate::carrier::{Carrier, Links};
use crate::faults::{Faults, Injector};
use crate::hosts::Hosts;
use crate::latency::Latency;
use crate::ledger::{Client, Ledger};
use crate::part::Share;
use crate::queue::Queue;
use crate::report::Sheet;
use crate::timers::Timers;
use crate::watch::{Broken, Event, Mark, Watch, Watchers};
use crate::workload::Workload;

pub type Make<'a, A> = Box<dyn Fn(PeerId, &<A as Actor>::Disk) -> A + 'a>;

pub struct Setup<'a, A: Actor> {
    pub latency: Latency,
    pub links: Links,
    pub faults: Faults,
    pub seed: u64,
    /// Counts unexpected messages instead of failing the run.
    pub is_lenient: bool,
    /// The mean duration of a disk write; exponential.
    pub disk: Span,
    pub make: Make<'a, A>,
}

pub struct World<'a, A: Actor, L: Workload<A>> {
    watch: Watchers<'a, A, L::Watch>,
    pub load: L,
    hosts: Hosts<A>,
    make: Make<'a, A>,
    carrier: Carrier,
    pub(crate) injector: Injector,
    queue: Queue<Scheduled<A, L::Event>, A::Message>,
    pub(crate) ledger: Ledger,
    /// In no order.
    pub(crate) inside: Vec<Client>,
    /// As last reported to each holder.
    ends: BTreeMap<Ticket, End>,
    timers: Timers<A::Timer>,
    now: Time,
    events: u64,
    /// Taken out for every step and put back; boxed, so that the move is one word.
    buffers: Option<Box<A::Buffers>>,
    is_lenient: bool,
    disk: Span,
    tally: Tally,
    peers_rng: Rng,
    disk_rng: Rng,
    faults_to_come: usize,
    /// Nothing but random faults is queued.
    pub(crate) has_come_to_rest: bool,
    /// If other processes run peers, too.
    share: Option<Share>,
    /// Of those other processes.
    counted: Vec<u64>,
}

impl<'a, A: Actor, L: Workload<A>> World<'a, A, L> {
    pub fn new(setup: Setup<'a, A>, load: L, rules: L::Watch) -> Self {
        let Setup { latency, links, faults, seed, is_lenient, disk, make } = setup;
        Self {
            watch: Watchers { observer: None, rules: Some(rules) },
            load,
            hosts: Hosts::new(),
            make,
            carrier: Carrier::new(latency, links, faults.delays.is_some(), Rng::stream(seed, 1)),
            injector: Injector::new(faults, seed),
            queue: Queue::with_capacity(1024),
            ledger: Ledger::default(),
            inside: Vec::new(),
            ends: BTreeMap::new(),
            timers: Timers::new(),
            now: Time::ZERO,
            events: 0,
            buffers: None,
            is_lenient,
            disk,
            tally: Tally::default(),
            peers_rng: Rng::stream(seed, 2),
            disk_rng: Rng::stream(seed, 13),
            faults_to_come: 0,
            has_come_to_rest: false,
            share: None,
            counted: Vec::new(),
        }
    }

    /// The observer sees each event before the watchers.
    pub fn observe(&mut self, observer: &'a mut (dyn Watch<A> + 'a)) {
        self.watch.observer = Some(observer);
    }

    /// Runs until the workload is over, no event is left, or a rule is broken.
    ///
    /// # Errors
    pub fn run(&mut self) -> Result<(), Violation> {
        check::caught(|| self.play()).map_err(|what| Violation { at: self.now, what })
    }

    fn play(&mut self) -> Result<(), Broken> {
        L::start(self)?;
        self.first_fault()?;
        while let Some(at) = self.queue.first() {
            if L::is_over(self, at) {
                break;
            }
            check::comes_to_an_end(self.queue.len() - 1, self.hosts.residents())?;
            self.now = at;
            self.events += 1;
            match self.queue.take_message() {
                Some((from, to, message)) => self.arrive(from, to, message)?,
                None => {
                    let event = self.queue.take_first();
                    self.happen(event)?;
                }
            }
        }
        if L::SERVES_ALL { self.watch.on(self.now, Event::End(&self.ledger)) } else { Ok(()) }
    }

    pub fn sheet(&mut self, resources: usize) -> Sheet {
        let mut sheet = Sheet::new(resources);
        let elsewhere = self.counted.iter().copied().chain(repeat(0));
        for ((name, count), elsewhere) in self.counts().into_iter().zip(elsewhere) {
            sheet.numbers.sum(name, count + elsewhere);
        }
        sheet.events = self.events;
        self.load.fill(&mut sheet);
        if let Some(rules) = &mut self.watch.rules {
            rules.fill(&mut sheet);
        }
        sheet
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        [self.tally.named(), self.injector.mishaps.named()].concat()
    }

    /// Out of line, so that the loop inlines [`World::happen`].
    #[inline(never)]
    fn happen_after_all(&mut self, event: Scheduled<A, L::Event>) -> Result<(), Broken> {
        self.happen(event)
    }

    #[inline(always)]
    fn happen(&mut self, event: Scheduled<A, L::Event>) -> Result<(), Broken> {
        check::has_time(self.now)?;
        if self.injector.faults.freezes.is_some()
            && let Some((peer, at)) = self.thaws_for(&event)
        {
            self.happen_at(at, peer, event);
            return Ok(());
        }
        match event {
            Scheduled::Arrive { from, to, message } => self.arrive_apart(from, to, message),
            Scheduled::Timer { peer, timer, set } => match self.timers.take(peer, timer, set) {
                Some(timer) => self.step(peer, Input::Timer(timer)),
                None => Ok(()),
            },
            Scheduled::Leave { ticket, .. } => self.leave(ticket),
            Scheduled::Written { peer, life, .. } if life != self.injector.condition(peer).life => Ok(()),
            Scheduled::Written { peer, fails: true, .. } => self.write_fails(peer),
            Scheduled::Written { peer, .. } => {
                self.hosts.finish_write(peer);
                self.step(peer, Input::Written)
            }
            Scheduled::End(ticket) => self.end(ticket),
            // Events deferred for a process that has crashed are lost with it.
            Scheduled::Thawed { peer, life, .. } if life != self.injector.condition(peer).life => Ok(()),
            Scheduled::Thawed { event, .. } => self.happen_after_all(*event),
            Scheduled::Workload(event) => L::happen(self, event),
            Scheduled::CrashOf { peer, ticket } => {
                if self.ledger.get(ticket).is_none() && self.inside.iter().all(|client| client.ticket != ticket) {
                    return Ok(()); // A client that has finished cannot crash.
                }
                self.crash_by_chance(peer)
            }
            Scheduled::Reset(peer) => self.reset(peer),
            Scheduled::Restart(peer) => self.restart(peer),
            Scheduled::Gone(peer) if self.is_there(peer) && self.injector.thaws(self.now, peer).is_none() => Ok(()),
            Scheduled::Gone(gone) => {
                let others: Vec<PeerId> = self.all_there().filter(|&peer| peer != gone).collect();
                others.into_iter().for_each(|peer| self.queue.push(self.now, Scheduled::Notified { peer, gone }));
                Ok(())
            }
            Scheduled::Notified { peer, gone } => match A::gone(gone) {
                Some(input) => self.step(peer, input),
                None => Ok(()),
            },
            Scheduled::Parted { number, from } => {
                self.report_parted(number, from);
                Ok(())
            }
            Scheduled::Fault(fault) => {
                self.faults_to_come -= 1;
                self.has_come_to_rest = self.queue.len() == self.faults_to_come;
                if self.has_come_to_rest { Ok(()) } else { self.inject(fault) }
            }
        }
    }

    #[inline(always)]
    fn arrive(&mut self, from: PeerId, to: PeerId, message: A::Message) -> Result<(), Broken> {
        check::has_time(self.now)?;
        if self.injector.faults.freezes.is_some()
            && let Some(at) = self.injector.thaws(self.now, to)
        {
            self.happen_at(at, to, Scheduled::Arrive { from, to, message });
            return Ok(());
        }
        if self.hosts.get(to).is_none() {
            return Ok(());
        }
        self.watch.on(self.now, Event::Deliver { from, to, message: &message })?;
        let Some((actor, cx, mut buffers)) = self.at_work(to) else { return Ok(()) };
        actor.receive(from, message, cx, &mut buffers);
        self.carry_out_all(to, buffers)
    }

    /// Delivers a message that was queued out of order or came from another process. Out of line, so that the loop
    /// inlines [`World::arrive`].
    #[inline(never)]
    fn arrive_apart(&mut self, from: PeerId, to: PeerId, message: A::Message) -> Result<(), Broken> {
        self.arrive(from, to, message)
    }

    #[cold]
    fn happen_at(&mut self, at: Time, peer: PeerId, event: Scheduled<A, L::Event>) {
        let life = self.injector.condition(peer).life;
        self.queue.push(at, Scheduled::Thawed { peer, life, event: Box::new(event) });
    }

    fn thaws_for(&self, event: &Scheduled<A, L::Event>) -> Option<(PeerId, Time)> {
        let peer = match event {
            Scheduled::Timer { peer, .. } | Scheduled::Leave { peer, .. } | Scheduled::Written { peer, .. } => *peer,
            Scheduled::Notified { peer, .. } => *peer,
            _ => return None, // Message delivery checks for itself.
        };
        self.injector.thaws(self.now, peer).map(|at| (peer, at))
    }

    #[inline(never)]
    fn step(&mut self, peer: PeerId, input: Input<A>) -> Result<(), Broken> {
        let Some((actor, cx, mut buffers)) = self.at_work(peer) else { return Ok(()) };
        actor.step(input, cx, &mut buffers);
        self.carry_out_all(peer, buffers)
    }

    /// Returns a peer that is up, with its context and buffers for a step.
    #[inline(always)]
    fn at_work(&mut self, peer: PeerId) -> Option<(&mut A, Cx<'_>, Box<A::Buffers>)> {
        let actor = self.hosts.get_mut(peer)?;
        let now = self.injector.clock(peer).map_or(self.now, |clock| clock.read(self.now));
        Some((actor, Cx { me: peer, now, rng: &mut self.peers_rng }, self.buffers.take().unwrap_or_default()))
    }

    /// Out of line: one copy keeps the event loop small enough for the instruction cache.
    #[inline(never)]
    fn carry_out_all(&mut self, peer: PeerId, mut buffers: Box<A::Buffers>) -> Result<(), Broken> {
        A::effects(&mut buffers, &mut Peers { world: self, peer })?;
        self.buffers = Some(buffers);
        match self.hosts.get(peer) {
            Some(actor) => self.watch.judge(self.now, Event::Step(peer, actor)),
            None => Ok(()),
        }
    }

    fn carry_out(&mut self, peer: PeerId, effect: Effect<A>) -> Result<(), Broken> {
        match effect {
            Effect::Send { to, message } => self.send(peer, to, message),
            Effect::Grant { ticket, grant } => self.enter(peer, ticket, grant),
            Effect::Until { ticket, until } => {
                self.report_end(peer, ticket, until);
                Ok(())
            }
            Effect::Lost { ticket } => self.lose(peer, ticket),
            Effect::Refused { ticket } => self.send_away(peer, ticket),
            Effect::SetTimer { timer, after } => {
                self.set_timer(peer, timer, after);
                Ok(())
            }
            Effect::CancelTimer { timer } => {
                self.timers.cancel(peer, timer);
                Ok(())
            }
            Effect::Write(write) => {
                let takes = self.disk_rng.exponential(self.disk);
                let (at, life, fails) = self.injector.write(self.now, peer, takes);
                self.hosts.storage(peer).under_way.push_back(write);
                self.queue.push(at, Scheduled::Written { peer, life, fails });
                Ok(())
            }
            Effect::WriteUnsynced(write) => {
                A::write(&mut self.hosts.storage(peer).disk, write);
                Ok(())
            }
            Effect::Note(note) => {
                self.watch.on(self.now, Event::Note(peer, &note))?;
                L::on_note(self, peer, note)
            }
            Effect::Unexpected { why } => {
                self.tally.unexpected += 1;
                if self.is_lenient { Ok(()) } else { Err(format!("peer {peer} got {why}").into()) }
            }
            Effect::Impossible { what } => Err(format!("peer {peer} {what}").into()),
        }
    }

    #[inline(always)]
    fn send(&mut self, from: PeerId, to: PeerId, message: A::Message) -> Result<(), Broken> {
        self.watch.on(self.now, Event::Send { from, to, message: &message })?;
        match self.injector.copies(self.now, from, to) {
            0 => Ok(()),
            1 => self.carry(from, to, message),
            _ => self.carry_twice(from, to, message),
        }
    }

    #[cold]
    fn carry_twice(&mut self, from: PeerId, to: PeerId, message: A::Message) -> Result<(), Broken> {
        self.carry(from, to, message.clone())?;
        self.carry(from, to, message)
    }

    #[inline(always)]
    fn carry(&mut self, from: PeerId, to: PeerId, message: A::Message) -> Result<(), Broken> {
        let delay = self.injector.delay(self.now);
        let at = self.carrier.arrival(self.now, from, to, delay);
        self.watch.on(self.now, Event::OnWay { from, arrives: at })?;
        if self.queue.is_last(at) {
            self.queue.post(at, from, to, message);
        } else {
            self.queue.push(at, Scheduled::Arrive { from, to, message });
        }
        Ok(())
    }

    fn reset(&mut self, peer: PeerId) -> Result<(), Broken> {
        if self.hosts.get(peer).is_none() || self.injector.is_calm {
            return Ok(());
        }
        self.resets_from_now(peer);
        if !self.injector.resets(self.now, peer) {
            return Ok(());
        }
        self.tally.resets += 1;
        self.watch.on(self.now, Event::Reset(peer))?;
        self.forget_all(peer)
    }

    fn forget_all(&mut self, peer: PeerId) -> Result<(), Broken> {
        let lives = self.tally.resets + self.tally.restarted;
        let incarnation = self.injector.incarnation(self.now, peer, lives);
        self.step(peer, Input::Reset { incarnation })
    }
}

struct Peers<'w, 'a, A: Actor, L: Workload<A>> {
    world: &'w mut World<'a, A, L>,
    peer: PeerId,
}

impl<A: Actor, L: Workload<A>> Hands<A> for Peers<'_, '_, A, L> {
    #[inline(always)]
    fn send(&mut self, to: PeerId, message: A::Message) -> Result<(), Broken> {
        self.world.send(self.peer, to, message)
    }

    #[inline]
    fn grant(&mut self, ticket: Ticket, grant: Grant) -> Result<(), Broken> {
        self.world.enter(self.peer, ticket, grant)
    }

    #[inline(never)]
    fn carry_out(&mut self, effect: Effect<A>) -> Result<(), Broken> {
        self.world.carry_out(self.peer, effect)
    }
}

impl<A: Actor, L: Workload<A>> World<'_, A, L> {
    pub fn now(&self) -> Time {
        self.now
    }

    pub fn add(&mut self, actor: A) -> PeerId {
        let peer = self.hosts.next();
        self.hosts.add(Some(actor).filter(|_| !self.is_elsewhere(peer)));
        peer
    }

    /// The number of the new peer is one of this process.
    pub fn add_new(&mut self) -> PeerId {
        while self.is_elsewhere(self.hosts.next()) {
            self.hosts.add(None);
        }
        let newcomer = (self.make)(self.hosts.next(), &A::Disk::default());
        self.add(newcomer)
    }

    /// Removed by [`World::forget`]. No permanent peers can be added afterwards.
    pub fn add_visitor(&mut self) -> PeerId {
        let peer = self.hosts.next();
        let visitor = (self.make)(peer, &A::Disk::default());
        self.hosts.add_visitor(Some(visitor).filter(|_| !self.is_elsewhere(peer)));
        peer
    }

    pub fn forget(&mut self, visitor: PeerId) {
        for resident in 0..self.hosts.residents() {
            self.carrier.forget(visitor, PeerId::new(resident as u64));
        }
        self.hosts.remove(visitor);
    }

    pub fn is_there(&self, peer: PeerId) -> bool {
        self.hosts.get(peer).is_some()
    }

    pub fn is_elsewhere(&self, peer: PeerId) -> bool {
        self.share.as_ref().is_some_and(|share| !share.is_here(peer))
    }

    /// Permanent peers ever added: their numbers are below it.
    pub fn residents(&self) -> usize {
        self.hosts.residents()
    }

    pub fn actor(&self, peer: PeerId) -> Option<&A> {
        self.hosts.get(peer)
    }

    pub fn schedule(&mut self, at: Time, event: L::Event) {
        self.queue.push(at, Scheduled::Workload(event));
    }

    /// The clients of a frozen peer cannot request until then.
    pub fn thaws(&self, peer: PeerId) -> Option<Time> {
        self.injector.thaws(self.now, peer)
    }

    pub fn command(&mut self, peer: PeerId, command: A::Command) -> Result<(), Broken> {
        self.step(peer, Input::Command(command))
    }

    pub fn set_timer(&mut self, peer: PeerId, timer: A::Timer, after: Span) {
        let after = self.injector.clock(peer).map_or(after, |clock| clock.true_length(after));
        let set = self.timers.set(peer, timer.clone());
        self.queue.push(self.now + after, Scheduled::Timer { peer, timer, set });
    }

    pub fn resets_from_now(&mut self, peer: PeerId) {
        if let Some(life) = self.injector.life() {
            self.queue.push(self.now + life, Scheduled::Reset(peer));
        }
    }

    pub fn disk(&self, peer: PeerId) -> &A::Disk {
        self.hosts.disk(peer)
    }

    pub fn mark(&mut self, mark: Mark<'_>) -> Result<(), Broken> {
        self.watch.on(self.now, Event::Mark(mark, &self.ledger))
    }
}
