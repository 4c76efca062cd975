//! The one task that owns the [`Engine`]: a loop over what clients, transport and clock bring.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::{Duration, SystemTime};

use peerlock_base::{PeerId, Span, Time};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

use crate::contacts;
use crate::engine::{Birth, Engine, Out, SessionId, TicketId, Wanted};
use crate::grant::{Grant, Lease};
use crate::transport::{self, Transport};
use crate::{Counters, Error, Happening, Inspection, Name, PeerView, Progress, ResourceDetails, ResourceView};

/// What clients want.
pub enum Command {
    Acquire {
        wanted: Wanted,
        waiter: u64,
        reply: oneshot::Sender<Result<Grant, Error>>,
        progress: watch::Sender<Progress>,
    },
    /// The future of this waiter was dropped.
    Forget {
        waiter: u64,
    },
    /// A handle of this grant was dropped.
    Drop {
        ticket: TicketId,
    },
    Release {
        ticket: TicketId,
        reply: oneshot::Sender<Result<(), Error>>,
    },
    Renew {
        ticket: TicketId,
        reply: oneshot::Sender<Result<Instant, Error>>,
    },
    Detach {
        ticket: TicketId,
    },
    EndSession {
        session: SessionId,
    },
    Show {
        name: Name,
        reply: oneshot::Sender<Result<ResourceDetails, Error>>,
    },
    Resources {
        reply: oneshot::Sender<Vec<ResourceView>>,
    },
    Peers {
        reply: oneshot::Sender<Vec<PeerView>>,
    },
    Counters {
        reply: oneshot::Sender<Counters>,
    },
    Inspect {
        reply: oneshot::Sender<Inspection>,
    },
    Dial {
        address: String,
    },
    Drain {
        reply: oneshot::Sender<()>,
    },
    Leave {
        reply: oneshot::Sender<()>,
    },
}

/// The clients of one ticket.
struct Seat {
    name: Name,
    waiters: Vec<Waiter>,
    /// How many handles there are of the grant; none of them matters once it is detached.
    handles: usize,
    detached: bool,
    lease: Option<watch::Sender<Lease>>,
}

struct Waiter {
    number: u64,
    reply: oneshot::Sender<Result<Grant, Error>>,
    progress: watch::Sender<Progress>,
}

/// The task.
pub struct Driver<T> {
    transport: T,
    engine: Engine,
    commands: mpsc::UnboundedReceiver<Command>,
    /// For the handles that we give out. Weak: the task ends when all handles are gone.
    sender: mpsc::WeakUnboundedSender<Command>,
    events: broadcast::Sender<Happening>,
    began: Instant,
    seats: BTreeMap<TicketId, Seat>,
    /// Which ticket somebody waits for.
    waiters: BTreeMap<u64, TicketId>,
    shows: BTreeMap<u64, oneshot::Sender<Result<ResourceDetails, Error>>>,
    started: Option<oneshot::Sender<Result<(), Error>>>,
    draining: Vec<oneshot::Sender<()>>,
    leaving: Vec<oneshot::Sender<()>>,
    join: Vec<String>,
    /// Why nobody was reached there, as far as that was heard.
    unreached: BTreeMap<String, String>,
    /// All handles are gone: nobody can say anything to us any more.
    abandoned: bool,
    left: bool,
}

impl<T: Transport> Driver<T> {
    pub fn new(
        transport: T,
        engine: Engine,
        (sender, commands): (&mpsc::UnboundedSender<Command>, mpsc::UnboundedReceiver<Command>),
        events: broadcast::Sender<Happening>,
        join: Vec<String>,
        started: oneshot::Sender<Result<(), Error>>,
    ) -> Self {
        Self {
            transport,
            engine,
            commands,
            sender: sender.downgrade(),
            events,
            began: Instant::now(),
            seats: BTreeMap::new(),
            waiters: BTreeMap::new(),
            shows: BTreeMap::new(),
            started: Some(started),
            draining: Vec::new(),
            leaving: Vec::new(),
            join,
            unreached: BTreeMap::new(),
            abandoned: false,
            left: false,
        }
    }

    /// Runs until everybody knows that we have left.
    pub async fn run(mut self) {
        let now = self.now();
        self.engine.start(&self.join, now);
        self.carry_out();
        // Set anew only when it changes: most of what happens does not change what is next.
        let mut set = None;
        let mut alarm = pin!(sleep_until(self.began));
        let stays_awake = self.stays_awake();
        let mut awake_until = std::time::Instant::now();
        while !self.left {
            let wake = self.engine.next_wake().map(|at| self.instant(at));
            if let Some(wake) = wake.filter(|_| wake != set) {
                alarm.as_mut().reset(wake);
            }
            set = wake;
            tokio::select! {
                // Messages first: whoever hands over should not wait behind those who only ask.
                biased;
                event = self.transport.next() => match event {
                    Some(event) => {
                        self.on_event(event);
                        if let Some(span) = stays_awake {
                            awake_until = std::time::Instant::now() + span;
                        }
                    }
                    None => break,
                },
                command = self.commands.recv(), if !self.abandoned => match command {
                    Some(command) => self.on_command(command),
                    None => {
                        self.abandoned = true;
                        let now = self.now();
                        self.engine.leave(now);
                    }
                },
                () = alarm.as_mut(), if wake.is_some() => {
                    // It has gone off: the next may be for the same time.
                    set = None;
                    let now = self.now();
                    self.engine.wake(now);
                }
                () = yield_now(), if stays_awake.is_some() && std::time::Instant::now() < awake_until => {
                    std::thread::yield_now();
                    continue;
                }
            }
            self.carry_out();
        }
        self.transport.stop().await;
        self.leaving.into_iter().for_each(|reply| _ = reply.send(()));
    }

    /// For how long after a message, if at all. Where threads share the work another of them waits for messages, and this
    /// one would stay awake in vain.
    fn stays_awake(&self) -> Option<Duration> {
        let alone = Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread;
        let span = Duration::from_nanos(self.engine.awake().as_nanos());
        (alone && !span.is_zero()).then_some(span)
    }

    fn now(&self) -> Time {
        Time::ZERO + Span::from_nanos(self.began.elapsed().as_nanos() as u64)
    }

    fn instant(&self, time: Time) -> Instant {
        self.began + Duration::from_nanos(time.as_nanos())
    }

    fn on_event(&mut self, event: transport::Event) {
        let now = self.now();
        match event {
            transport::Event::Up { peer, epoch, address } => self.engine.on_up(peer, epoch, address, now),
            transport::Event::Down { peer, epoch, why } => self.engine.on_down(peer, epoch, why, now),
            transport::Event::Message { from, epoch, bytes } => self.engine.on_bytes(from, epoch, &bytes, now),
            transport::Event::Unreached { address, why } => {
                if self.started.is_some() {
                    self.unreached.insert(address.clone(), why.clone());
                }
                self.engine.on_unreached(address, why);
            }
        }
    }

    fn on_command(&mut self, command: Command) {
        let now = self.now();
        match command {
            Command::Acquire { wanted, waiter, reply, progress } => {
                self.on_acquire(wanted, Waiter { number: waiter, reply, progress });
            }
            Command::Forget { waiter } => self.on_forget(waiter),
            Command::Drop { ticket } => {
                let Some(seat) = self.seats.get_mut(&ticket) else { return };
                seat.handles -= 1;
                if seat.handles == 0 && !seat.detached && seat.waiters.is_empty() {
                    _ = self.engine.release(ticket, now);
                }
            }
            Command::Release { ticket, reply } => {
                let released = self.engine.release(ticket, now);
                _ = reply.send(released);
            }
            Command::Renew { ticket, reply } => {
                let renewed = self.engine.renew(ticket, now).map(|deadline| self.instant(deadline));
                _ = reply.send(renewed);
            }
            Command::Detach { ticket } => {
                if let Some(seat) = self.seats.get_mut(&ticket) {
                    seat.detached = true;
                    self.engine.detach(ticket, now);
                }
            }
            Command::EndSession { session } => self.engine.end_session(session, now),
            Command::Show { name, reply } => {
                let number = self.engine.show(name, now);
                self.shows.insert(number, reply);
            }
            Command::Resources { reply } => _ = reply.send(self.engine.resources()),
            Command::Peers { reply } => _ = reply.send(self.engine.peers()),
            Command::Counters { reply } => {
                _ = reply.send(Counters { strangers: self.transport.strangers(), ..self.engine.counters() });
            }
            Command::Inspect { reply } => _ = reply.send(self.engine.inspect(now)),
            Command::Dial { address } => self.transport.dial(&address),
            Command::Drain { reply } => {
                self.draining.push(reply);
                self.engine.drain(now);
            }
            Command::Leave { reply } => {
                self.leaving.push(reply);
                self.engine.leave(now);
            }
        }
    }

    fn on_acquire(&mut self, wanted: Wanted, waiter: Waiter) {
        let (now, name) = (self.now(), wanted.name.clone());
        let ticket = match self.engine.acquire(wanted, now) {
            Ok(ticket) => ticket,
            Err(error) => {
                _ = waiter.reply.send(Err(error));
                return;
            }
        };
        let granted = self.engine.grant(ticket).is_some();
        let seat = self.seats.entry(ticket).or_insert_with(|| Seat {
            name,
            waiters: Vec::new(),
            handles: 0,
            detached: false,
            lease: None,
        });
        self.waiters.insert(waiter.number, ticket);
        seat.waiters.push(waiter);
        // Asked for once more after it was granted: the same grant. Else word of it comes with the effects.
        if granted && seat.lease.is_some() {
            self.answer(ticket);
        }
    }

    fn on_forget(&mut self, waiter: u64) {
        let Some(ticket) = self.waiters.remove(&waiter) else { return };
        let Some(seat) = self.seats.get_mut(&ticket) else { return };
        seat.waiters.retain(|waiting| waiting.number != waiter);
        if seat.waiters.is_empty() && seat.handles == 0 && !seat.detached {
            let now = self.now();
            _ = self.engine.release(ticket, now);
        }
    }

    /// Gives everybody who waits for a ticket a handle of its grant. Who does not want it any more drops the handle, and
    /// with the last of them the grant.
    fn answer(&mut self, ticket: TicketId) {
        let (Some(seat), Some(sender)) = (self.seats.get_mut(&ticket), self.sender.upgrade()) else { return };
        let (Some((grant, _)), Some(lease)) = (self.engine.grant(ticket), &seat.lease) else { return };
        for waiter in std::mem::take(&mut seat.waiters) {
            self.waiters.remove(&waiter.number);
            seat.handles += 1;
            let handle = Grant::new(ticket, seat.name.clone(), grant, lease.subscribe(), sender.clone());
            drop(waiter.reply.send(Ok(handle)));
        }
    }

    fn carry_out(&mut self) {
        let mut out = std::mem::take(&mut self.engine.out);
        // What others wait for goes out before anybody here is told anything.
        out.sort_by_key(|out| !matches!(out, Out::Net(_)));
        for out in out {
            match out {
                Out::Net(contacts::Out::Send(host, epoch, bytes)) => self.transport.send(host.0, epoch, bytes),
                Out::Net(contacts::Out::HangUp(host)) => self.transport.hang_up(host.0),
                Out::Dial(address) => self.transport.dial(&address),
                Out::Joined => self.report(Ok(())),
                Out::NotJoined => {
                    let why = |address| self.unreached.get(address).cloned().unwrap_or_else(|| "no answer".into());
                    let tried = self.join.iter().map(|address| (address.clone(), why(address))).collect();
                    self.report(Err(Error::NoPeer { tried }));
                    self.left = true;
                }
                Out::Granted(ticket, deadline) => {
                    let deadline = self.instant(deadline);
                    if let Some(seat) = self.seats.get_mut(&ticket) {
                        seat.lease = Some(watch::Sender::new(Lease { deadline, lost: false }));
                    }
                    self.answer(ticket);
                }
                Out::Renewed(ticket, deadline) => {
                    let deadline = self.instant(deadline);
                    self.on_lease(ticket, |lease| lease.deadline = deadline);
                }
                Out::Lost(ticket) => self.on_lease(ticket, |lease| lease.lost = true),
                Out::Ended(ticket, error) => self.on_ended(ticket, &error),
                Out::Finished(ticket) => self.on_ended(ticket, &Error::Lost),
                Out::Progress(ticket, progress) => {
                    let waiters = self.seats.get(&ticket).map(|seat| &seat.waiters);
                    waiters.into_iter().flatten().for_each(|waiter| _ = waiter.progress.send(progress));
                }
                Out::Shown(number, shown) => {
                    if let Some(reply) = self.shows.remove(&number) {
                        _ = reply.send(shown);
                    }
                }
                Out::Event(event) => {
                    let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                    _ = self.events.send(Happening { at, event });
                }
                Out::Left => self.left = true,
            }
        }
        if self.engine.is_drained() {
            self.draining.drain(..).for_each(|reply| _ = reply.send(()));
        }
    }

    fn report(&mut self, started: Result<(), Error>) {
        if let Some(reply) = self.started.take() {
            _ = reply.send(started);
        }
    }

    fn on_lease(&self, ticket: TicketId, change: impl FnOnce(&mut Lease)) {
        if let Some(Seat { lease: Some(lease), .. }) = self.seats.get(&ticket) {
            lease.send_modify(change);
        }
    }

    fn on_ended(&mut self, ticket: TicketId, error: &Error) {
        self.on_lease(ticket, |lease| lease.lost = true);
        let Some(seat) = self.seats.remove(&ticket) else { return };
        for waiter in seat.waiters {
            self.waiters.remove(&waiter.number);
            _ = waiter.reply.send(Err(error.clone()));
        }
    }
}

/// This process, now: the wall clock is read only here.
pub fn born(host: PeerId) -> Birth {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    // The address of something on the stack differs between processes that begin in the same nanosecond.
    let here = std::ptr::from_ref(&host).addr() as u64;
    let process = peerlock_base::mix(since.as_nanos() as u64 ^ peerlock_base::mix(here));
    Birth { process, micros: since.as_micros() as u64 }
}
