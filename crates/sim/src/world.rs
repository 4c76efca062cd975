//! The one loop of the simulator: who lives in it, what they are to do, what goes wrong and who watches are parameters.
//!
//! ```text
//!    Workload ──ask, leave, crash──►┐             ┌──on_grant, on_send, at_end …──► Watch
//!        ▲                          │             │
//!        └──on_entered, on_over─────┤    World    ├──Input──► Actor
//!                                   │             │◄─Effect──┘
//!    Faults ──lost, twice, frozen──►┘             └──arrival──► Latency
//! ```
//!
//! - **A kind of peer** is an [`Actor`]: see `actor/bare.rs` for the shortest. It says what it takes and what it wants
//!   done; the world does the rest. A peer with a disk has [`Actor::Disk`] and [`Actor::write`], and is made from its
//!   disk when it restarts ([`Setup::make`]).
//! - **A workload** is a [`Workload`]: who asks when, and stays how long, and when the run is over. Its functions have
//!   the whole world, of which it is the field `load`. See `workload/closed.rs`.
//! - **A fault** is a field of [`Faults`], a stream of random numbers in `Fate` (the next free number: streams that
//!   exist must not move), and the place here where it strikes. No workload and no kind of peer has to know of it.
//! - **A watcher** is a [`Watch`] in a file of its own under `watch/`, named in `watch.rs`. It stands in the tuple of
//!   those settings that want it (`experiment.rs`, `open.rs`, `rounds.rs`) and writes what it has counted into a
//!   [`Sheet`](crate::report::Sheet), from where it comes into the [`Report`](crate::Report) by its name.
//!
//! Random streams of a run: 0 workload, 1 network, 2 peers, 3 faults as they were first, 4 and 5 rounds, 6 to 12
//! further faults, 13 disks, 14 outages, 15 lost and
//! bad disks, 16 reboots. A fault that is off draws nothing, so a run without it keeps its numbers.

mod trouble;

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::mem::take;
use std::panic::{AssertUnwindSafe, catch_unwind};

use peerlock_base::{PeerId, Rng, Span, Ticket, Time};
use peerlock_mutex::Grant;

use crate::actor::{Actor, Cx, Effect, Input};
use crate::carrier::{Carrier, Links};
use crate::faults::{Crash, Fate, Faults};
use crate::hosts::Hosts;
use crate::latency::Latency;
use crate::ledger::{Client, Ledger};
use crate::queue::Queue;
use crate::report::Sheet;
use crate::timers::Timers;
use crate::watch::{Broken, Mark, Watch};
use crate::workload::{Over, Workload};

/// Everything that can happen.
enum Event<A: Actor, E> {
    Arrive {
        from: PeerId,
        to: PeerId,
        message: A::Message,
    },
    Timer {
        peer: PeerId,
        timer: A::Timer,
        set: u64,
    },
    /// A client leaves, or withdraws if it still waits.
    Leave {
        peer: PeerId,
        ticket: Ticket,
    },
    /// The oldest write of this peer is done, or has failed.
    Written {
        peer: PeerId,
        life: u32,
        fails: bool,
    },
    /// What a client was last told of its end may have come.
    End(Ticket),
    /// What happened to this peer while it was frozen, in this life.
    Thawed {
        peer: PeerId,
        life: u32,
        event: Box<Self>,
    },
    Workload(E),
    /// The peer of this client crashes, if it still waits or is inside.
    CrashOf {
        peer: PeerId,
        ticket: Ticket,
    },
    Reset(PeerId),
    Restart(PeerId),
    /// Everybody takes this peer for gone, if it is still down or frozen.
    Gone(PeerId),
    /// This peer is told that that one is gone.
    Told {
        peer: PeerId,
        gone: PeerId,
    },
    /// Whoever is parted from others by the partition with this number takes those for gone.
    Parted(u64),
    Fault(Fault),
}

/// A fault that comes at random.
enum Fault {
    /// Somebody crashes, and is down for this long.
    Crash(Span),
    /// Somebody crashes for good.
    Death,
    /// Somebody crashes, and is down for this long; the disk is lost.
    DiskLoss(Span),
    /// Everybody crashes.
    Outage,
    /// Somebody's disk is slow for this long.
    SlowDisk(Span),
    /// Somebody's disk is full.
    FullDisk,
    /// This share of the peers crashes for good.
    Catastrophe(f64),
    /// Somebody is frozen for this long.
    Freeze(Span),
    /// A partition begins that lasts this long.
    Partition(Span),
    /// The first of each kind is drawn.
    First,
}

/// No more events than these are in line in any run that will come to an end: else messages breed, as those do that go
/// round in circles and come twice.
const MOST_FOR_ALL: usize = 1_000_000;
const MOST_FOR_EACH: usize = 100;

/// A rule was broken: which, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The simulated time at which it was noticed.
    pub at: Time,
    /// Which rule, in a sentence.
    pub what: Broken,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {}: {}", self.at, self.what)
    }
}

/// Makes a peer from its number and what its disk has kept.
pub type Make<'a, A> = Box<dyn Fn(PeerId, &<A as Actor>::Disk) -> A + 'a>;

/// What a world is made of, beside its workload and its watchers.
pub struct Setup<'a, A: Actor> {
    /// How long messages take.
    pub latency: Latency,
    /// Whether messages may overtake each other.
    pub links: Links,
    /// What goes wrong.
    pub faults: Faults,
    /// The seed of all random numbers.
    pub seed: u64,
    /// Messages that make no sense where they come are counted, instead of breaking a rule.
    pub is_lenient: bool,
    /// How long a write to the disk takes on average; exponential.
    pub disk: Span,
    /// Makes a peer from its number and what its disk has kept: one that comes later, or restarts.
    pub make: Make<'a, A>,
}

/// One run: peers, what is to happen to them, and who watches.
pub struct World<'a, A: Actor, L: Workload<A>, W> {
    /// Who watches; to be asked when the run is over.
    pub watch: W,
    /// Who asks when.
    pub load: L,
    hosts: Hosts<A>,
    make: Make<'a, A>,
    carrier: Carrier,
    fate: Fate,
    queue: Queue<Event<A, L::Event>>,
    ledger: Ledger,
    inside: Vec<Client>,
    /// What those were told who are inside and were told an end.
    ends: BTreeMap<Ticket, End>,
    timers: Timers<A::Timer>,
    now: Time,
    events: u64,
    buffers: A::Buffers,
    is_lenient: bool,
    disk: Span,
    tally: Tally,
    peers_rng: Rng,
    disk_rng: Rng,
    /// How many faults are in the queue that will strike at random.
    faults_to_come: usize,
    /// Nothing else is.
    has_come_to_rest: bool,
}

/// What a client that is inside was told.
#[derive(Clone, Copy, Debug)]
struct End {
    /// When it must be out, unless it is told a later end.
    at: Time,
    /// Its peer has crashed. Nobody can tell it anything any more, and it stays until its end.
    is_orphan: bool,
}

/// What became of clients and peers.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    asked: u64,
    lost: u64,
    refused: u64,
    withdrawn: u64,
    crashed: u64,
    restarted: u64,
    resets: u64,
    strange: u64,
    frozen: u64,
    parted: u64,
    outages: u64,
    disks_lost: u64,
    disks_slow: u64,
    disks_full: u64,
    torn: u64,
    orphans: u64,
    reboots: u64,
}

impl<'a, A: Actor, L: Workload<A>, W: Watch<A>> World<'a, A, L, W> {
    /// A world in which nobody lives yet.
    pub fn new(setup: Setup<'a, A>, load: L, watch: W) -> Self {
        let Setup { latency, links, faults, seed, is_lenient, disk, make } = setup;
        Self {
            watch,
            load,
            hosts: Hosts::new(),
            make,
            carrier: Carrier::new(latency, links, faults.delays.is_some(), Rng::stream(seed, 1)),
            fate: Fate::new(faults, seed),
            queue: Queue::with_capacity(1024),
            ledger: Ledger::default(),
            inside: Vec::new(),
            ends: BTreeMap::new(),
            timers: Timers::new(),
            now: Time::ZERO,
            events: 0,
            buffers: A::Buffers::default(),
            is_lenient,
            disk,
            tally: Tally::default(),
            peers_rng: Rng::stream(seed, 2),
            disk_rng: Rng::stream(seed, 13),
            faults_to_come: 0,
            has_come_to_rest: false,
        }
    }

    /// Lets everything happen until the workload is over, nothing is left to happen, or a rule is broken.
    ///
    /// # Errors
    /// A rule was broken.
    pub fn run(&mut self) -> Result<(), Violation> {
        // A peer that finds its own state broken panics. That is a broken rule like any other, to be told with its
        // trace.
        let played = catch_unwind(AssertUnwindSafe(|| self.play()));
        played.unwrap_or_else(|panic| Err(in_words(&*panic))).map_err(|what| Violation { at: self.now, what })
    }

    fn play(&mut self) -> Result<(), Broken> {
        L::start(self)?;
        self.first_fault()?;
        let most = MOST_FOR_ALL + MOST_FOR_EACH * self.hosts.residents();
        while let Some((at, event)) = self.queue.pop() {
            if L::is_over(self, at) {
                break;
            }
            if self.queue.len() > most {
                return Err(format!("{} events are in line, and there will be more and more", self.queue.len()));
            }
            self.now = at;
            self.events += 1;
            self.happen(event)?;
        }
        if L::SERVES_ALL { self.watch.at_end(self.now, &self.ledger) } else { Ok(()) }
    }

    /// What this run, with this many resources, leaves behind.
    pub fn sheet(&mut self, resources: usize) -> Sheet {
        let mut sheet = Sheet::new(resources);
        let (tally, mishaps) = (self.tally, self.fate.mishaps());
        for (name, count) in [
            ("asked", tally.asked),
            ("lost", tally.lost),
            ("refused", tally.refused),
            ("withdrawn", tally.withdrawn),
            ("crashed", tally.crashed),
            ("restarted", tally.restarted),
            ("resets", tally.resets),
            ("strange", tally.strange),
            ("frozen", tally.frozen),
            ("parted", tally.parted),
            ("outages", tally.outages),
            ("disks lost", tally.disks_lost),
            ("disks slow", tally.disks_slow),
            ("disks full", tally.disks_full),
            ("writes torn", tally.torn),
            ("orphans", tally.orphans),
            ("reboots", tally.reboots),
            ("messages lost", mishaps.lost),
            ("messages twice", mishaps.twice),
            ("messages cut off", mishaps.cut_off),
            ("messages held up", mishaps.held_up),
        ] {
            sheet.numbers.sum(name, count);
        }
        sheet.events = self.events;
        self.load.tell(&mut sheet);
        self.watch.tell(&mut sheet);
        sheet
    }

    fn happen(&mut self, event: Event<A, L::Event>) -> Result<(), Broken> {
        if self.now == Time::END {
            return Err("the clock has run out: 584 years are all there is; use shorter times or fewer entries".into());
        }
        if self.fate.can_freeze()
            && let Some((peer, at)) = self.thaws_for(&event)
        {
            let life = self.fate.life_of(peer);
            self.queue.push(at, Event::Thawed { peer, life, event: Box::new(event) });
            return Ok(());
        }
        match event {
            Event::Arrive { from, to, message } => {
                if self.hosts.get(to).is_none() {
                    return Ok(());
                }
                self.watch.on_deliver(self.now, from, to, &message)?;
                self.step(to, Input::Message { from, message })
            }
            Event::Timer { peer, timer, set } => match self.timers.take(peer, timer, set) {
                Some(timer) => self.step(peer, Input::Timer(timer)),
                None => Ok(()),
            },
            Event::Leave { ticket, .. } => self.leave(ticket),
            Event::Written { peer, life, .. } if life != self.fate.life_of(peer) => Ok(()),
            Event::Written { peer, fails: true, .. } => self.write_fails(peer),
            Event::Written { peer, .. } => {
                self.hosts.finish_write(peer);
                self.step(peer, Input::Written)
            }
            Event::End(ticket) => self.end(ticket),
            // What waited for a process that has crashed is lost with it.
            Event::Thawed { peer, life, .. } if life != self.fate.life_of(peer) => Ok(()),
            Event::Thawed { event, .. } => self.happen(*event),
            Event::Workload(event) => L::happen(self, event),
            Event::CrashOf { peer, ticket } => {
                if self.ledger.get(ticket).is_none() && self.inside.iter().all(|client| client.ticket != ticket) {
                    return Ok(()); // A client that is done cannot crash any more.
                }
                self.crash_by_chance(peer)
            }
            Event::Reset(peer) => self.reset(peer),
            Event::Restart(peer) => self.restart(peer),
            Event::Gone(peer) if self.is_there(peer) && self.fate.thaws(self.now, peer).is_none() => Ok(()),
            Event::Gone(gone) => {
                let others: Vec<PeerId> = self.all_there().filter(|&peer| peer != gone).collect();
                others.into_iter().for_each(|peer| self.queue.push(self.now, Event::Told { peer, gone }));
                Ok(())
            }
            Event::Told { peer, gone } => match A::gone(gone) {
                Some(input) => self.step(peer, input),
                None => Ok(()),
            },
            Event::Parted(number) => {
                self.tell_parted(number);
                Ok(())
            }
            Event::Fault(fault) => {
                self.faults_to_come -= 1;
                self.has_come_to_rest = self.queue.len() == self.faults_to_come;
                if self.has_come_to_rest { Ok(()) } else { self.strike(fault) }
            }
        }
    }

    /// The peer of an event and when it thaws, if it is frozen: whatever happens there happens then.
    fn thaws_for(&self, event: &Event<A, L::Event>) -> Option<(PeerId, Time)> {
        let peer = match event {
            Event::Arrive { to, .. } => *to,
            Event::Timer { peer, .. } | Event::Leave { peer, .. } | Event::Written { peer, .. } => *peer,
            Event::Told { peer, .. } => *peer,
            _ => return None,
        };
        self.fate.thaws(self.now, peer).map(|at| (peer, at))
    }

    fn step(&mut self, peer: PeerId, input: Input<A>) -> Result<(), Broken> {
        let Some(actor) = self.hosts.get_mut(peer) else { return Ok(()) };
        let now = self.fate.clock(peer).map_or(self.now, |clock| clock.read(self.now));
        let mut buffers = take(&mut self.buffers);
        actor.step(input, Cx { me: peer, now, rng: &mut self.peers_rng }, &mut buffers);
        A::effects(&mut buffers, |effect| match effect {
            Effect::Send { to, message } => self.send(peer, to, message),
            effect => self.carry_out(peer, effect),
        })?;
        self.buffers = buffers;
        match self.hosts.get(peer) {
            Some(actor) => self.watch.after_step(self.now, peer, actor),
            None => Ok(()),
        }
    }

    fn carry_out(&mut self, peer: PeerId, effect: Effect<A>) -> Result<(), Broken> {
        match effect {
            Effect::Send { to, message } => self.send(peer, to, message),
            Effect::Grant { ticket, grant } => self.enter(peer, ticket, grant),
            Effect::Until { ticket, until } => {
                self.tell_end(peer, ticket, until);
                Ok(())
            }
            Effect::Lost { ticket } => match self.take_inside(ticket).filter(|client| client.peer == peer) {
                Some(client) => {
                    self.tally.lost += 1;
                    self.watch.on_leave(self.now, &client)?;
                    L::on_over(self, &client, Over::Lost)
                }
                None if A::TELLS_ENDS => Ok(()),
                None => Err(format!("peer {peer} tells {ticket:?} that it is inside no longer, which it was not")),
            },
            Effect::Refused { ticket } => match self.ledger.strike(ticket).filter(|client| client.peer == peer) {
                Some(client) => {
                    self.tally.refused += 1;
                    self.watch.on_give_up(self.now, &client)?;
                    L::on_over(self, &client, Over::Refused)
                }
                None => Err(format!("peer {peer} sends {ticket:?} away, who is not waiting there")),
            },
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
                let (at, life, fails) = self.fate.write(self.now, peer, takes);
                self.hosts.begin_write(peer, write);
                self.queue.push(at, Event::Written { peer, life, fails });
                Ok(())
            }
            Effect::Keep(write) => {
                self.hosts.keep(peer, write);
                Ok(())
            }
            Effect::Note(note) => {
                self.watch.on_note(self.now, peer, &note)?;
                L::on_note(self, peer, note)
            }
            Effect::Strange { why } => {
                self.tally.strange += 1;
                if self.is_lenient { Ok(()) } else { Err(format!("peer {peer} got {why}")) }
            }
            Effect::Impossible { what } => Err(format!("peer {peer} {what}")),
        }
    }

    #[inline]
    fn send(&mut self, from: PeerId, to: PeerId, message: A::Message) -> Result<(), Broken> {
        self.watch.on_send(self.now, from, to, &message)?;
        match self.fate.copies(self.now, from, to) {
            0 => {}
            1 => self.carry(from, to, message),
            _ => self.carry_twice(from, to, message),
        }
        Ok(())
    }

    #[cold]
    fn carry_twice(&mut self, from: PeerId, to: PeerId, message: A::Message) {
        self.carry(from, to, message.clone());
        self.carry(from, to, message);
    }

    #[inline]
    fn carry(&mut self, from: PeerId, to: PeerId, message: A::Message) {
        let delay = self.fate.delay(self.now);
        let at = self.carrier.arrival(self.now, from, to, delay);
        self.watch.on_way(self.now, from, at);
        self.queue.push(at, Event::Arrive { from, to, message });
    }

    fn enter(&mut self, peer: PeerId, ticket: Ticket, grant: Grant) -> Result<(), Broken> {
        let Some(client) = self.ledger.strike(ticket).filter(|client| client.peer == peer) else {
            return Err(format!("peer {peer} lets in {ticket:?}, who is not waiting there"));
        };
        self.inside.push(client);
        self.watch.on_grant(self.now, &client, grant, &self.ledger)?;
        self.fate.entered(self.now, peer);
        if client.is_doomed {
            self.queue.push(self.now, Event::CrashOf { peer, ticket });
            return Ok(());
        }
        L::on_entered(self, &client);
        Ok(())
    }

    fn take_inside(&mut self, ticket: Ticket) -> Option<Client> {
        if !self.ends.is_empty() {
            self.ends.remove(&ticket);
        }
        let at = self.inside.iter().position(|client| client.ticket == ticket)?;
        Some(self.inside.swap_remove(at))
    }

    fn reset(&mut self, peer: PeerId) -> Result<(), Broken> {
        if self.hosts.get(peer).is_none() || self.fate.is_calm() {
            return Ok(());
        }
        self.resets_from_now(peer);
        if !self.fate.resets(self.now, peer) {
            return Ok(());
        }
        self.tally.resets += 1;
        self.watch.on_reset(self.now, peer)?;
        let incarnation = self.fate.incarnation(self.now, peer, self.tally.resets);
        self.step(peer, Input::Reset { incarnation })
    }
}

/// What a panic says.
fn in_words(panic: &(dyn Any + Send)) -> Broken {
    let what = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref().map(String::as_str));
    format!("a peer has panicked: {}", what.unwrap_or("it does not say why"))
}

/// What a workload may know and do.
impl<A: Actor, L: Workload<A>, W: Watch<A>> World<'_, A, L, W> {
    /// The time of the last event.
    pub fn now(&self) -> Time {
        self.now
    }

    /// How many events there were.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The requests of clients that wait, the oldest first.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Who is inside, in no order.
    pub fn inside(&self) -> &[Client] {
        &self.inside
    }

    /// Whether nothing is left to happen but that somebody crashes, freezes or is parted from others.
    pub fn has_come_to_rest(&self) -> bool {
        self.has_come_to_rest
    }

    /// Takes a peer up that stays until it crashes; who it is.
    pub fn add(&mut self, actor: A) -> PeerId {
        let peer = self.hosts.next();
        self.hosts.add(actor);
        peer
    }

    /// Makes a peer that stays until it crashes.
    pub fn add_new(&mut self) -> PeerId {
        let newcomer = (self.make)(self.hosts.next(), &A::Disk::default());
        self.add(newcomer)
    }

    /// Makes a peer that will be [forgotten](World::forget). From then on no other peers can be taken up.
    pub fn add_visitor(&mut self) -> PeerId {
        let peer = self.hosts.next();
        let visitor = (self.make)(peer, &A::Disk::default());
        self.hosts.add_visitor(visitor);
        peer
    }

    /// A visitor is gone, and nothing is left of it.
    pub fn forget(&mut self, visitor: PeerId) {
        for resident in 0..self.hosts.residents() {
            self.carrier.forget(visitor, PeerId::new(resident as u64));
        }
        self.hosts.remove(visitor);
    }

    /// Whether a peer is there.
    pub fn is_there(&self, peer: PeerId) -> bool {
        self.hosts.get(peer).is_some()
    }

    /// All residents there ever were: peers 0 up to this number.
    pub fn residents(&self) -> usize {
        self.hosts.residents()
    }

    /// A peer's state; `None` if there is no such peer now.
    pub fn actor(&self, peer: PeerId) -> Option<&A> {
        self.hosts.get(peer)
    }

    /// Puts an event of the workload in line.
    pub fn schedule(&mut self, at: Time, event: L::Event) {
        self.queue.push(at, Event::Workload(event));
    }

    /// When a frozen peer thaws: until then its clients cannot ask.
    pub fn thaws(&self, peer: PeerId) -> Option<Time> {
        self.fate.thaws(self.now, peer)
    }

    /// The ticket of whoever asks next.
    pub fn next_ticket(&self) -> Ticket {
        self.ledger.next()
    }

    /// A client of this peer asks for a resource.
    pub fn ask(&mut self, peer: PeerId, resource: usize) -> Result<(), Broken> {
        if self.hosts.get(peer).is_none() {
            return Ok(());
        }
        self.tally.asked += 1;
        let crash = self.fate.crash();
        let client = self.ledger.ask(peer, resource, self.now, crash == Crash::Inside);
        let ticket = client.ticket;
        if let Crash::After(span) = crash {
            self.queue.push(self.now + span, Event::CrashOf { peer, ticket });
        }
        if let Some(span) = self.fate.withdrawal() {
            self.queue.push(self.now + span, Event::Leave { peer, ticket });
        }
        self.watch.on_request(self.now, &client)?;
        self.step(peer, Input::Request { resource, ticket })
    }

    /// A client that is inside leaves then, if it did not lose its grant, or crash, before.
    pub fn leave_at(&mut self, at: Time, client: &Client) {
        self.queue.push(at, Event::Leave { peer: client.peer, ticket: client.ticket });
    }

    /// A client leaves, or withdraws if it still waits. Nothing happens if it is neither inside nor waiting.
    pub fn leave(&mut self, ticket: Ticket) -> Result<(), Broken> {
        if self.ends.get(&ticket).is_some_and(|end| end.is_orphan) {
            return Ok(());
        }
        let (client, over) = if let Some(client) = self.take_inside(ticket) {
            self.watch.on_leave(self.now, &client)?;
            (client, Over::Left)
        } else if let Some(client) = self.ledger.strike(ticket) {
            self.tally.withdrawn += 1;
            self.watch.on_give_up(self.now, &client)?;
            (client, Over::Withdrawn)
        } else {
            return Ok(());
        };
        self.step(client.peer, Input::Release { resource: client.resource, ticket })?;
        L::on_over(self, &client, over)
    }

    /// Tells a peer something that only its kind of peer understands.
    pub fn command(&mut self, peer: PeerId, command: A::Command) -> Result<(), Broken> {
        self.step(peer, Input::Command(command))
    }

    /// Sets a timer of a peer, as if it had asked for it.
    pub fn set_timer(&mut self, peer: PeerId, timer: A::Timer, after: Span) {
        let after = self.fate.clock(peer).map_or(after, |clock| clock.true_length(after));
        let set = self.timers.set(peer, timer.clone());
        self.queue.push(self.now + after, Event::Timer { peer, timer, set });
    }

    /// From now on this peer loses now and then what it keeps for others, if that is among the faults.
    pub fn resets_from_now(&mut self, peer: PeerId) {
        if let Some(life) = self.fate.life() {
            self.queue.push(self.now + life, Event::Reset(peer));
        }
    }

    /// Nobody crashes, freezes, forgets or is parted from others any more.
    pub fn calm_down(&mut self) {
        self.fate.calm_down();
    }

    /// From now on these two do not hear of each other.
    pub fn rift(&mut self, one: PeerId, other: PeerId) {
        self.fate.rift(one, other);
    }

    /// From now on messages arrive once, and take as long as their links do.
    pub fn deliver_all(&mut self) {
        self.fate.deliver_all();
    }

    /// What a resident keeps through crashes.
    pub fn disk(&self, peer: PeerId) -> &A::Disk {
        self.hosts.disk(peer)
    }

    /// Whether anything can go wrong at random.
    pub fn is_rough(&self) -> bool {
        self.fate.is_rough()
    }

    /// Tells watchers where the workload is.
    pub fn mark(&mut self, mark: Mark<'_>) -> Result<(), Broken> {
        self.watch.on_mark(self.now, mark, &self.ledger)
    }
}
