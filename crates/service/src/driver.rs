//! The task that owns a [`Node`]: a loop over commands, network events and timers, and one match on the effects.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::pin::pin;
use std::time::{Duration, SystemTime};

use peerlock_clock::{Clock, Moment};
use peerlock_node::{Answer, ClusterId, Effect, Input, NetEvent, Node, Notice, TicketId};
use peerlock_types::{Rng, Time};
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::task::yield_now;
use tokio::time::sleep;

use crate::awake::Awake;
use crate::command::{Call, Command, Found, Reply, TicketClients, Waiter};
use crate::grant::{Grant, GrantId, LeaseStatus};
use crate::grants::{GrantFile, on_clock};
use crate::store::{Store, Stored};
use crate::transport::Transport;
use crate::{Counters, Error, Happening, Health, Name};

/// The number of revoked detached grants of which the reason is stored, for clients that renew them.
const REVOKED: usize = 1000;

/// The sockets are polled after this many commands in a row. Our choice: the number of tasks that `peerlock::runtime`
/// polls in between. Otherwise a busy client delays messages for 128 of its commands.
const IN_A_ROW: u32 = 8;

/// Timers, unflushed messages and other tasks have their turn after this many iterations of the loop. Our choice:
/// tokio's budget of a task, which does not count messages. Otherwise a steady load of commands delays timers.
const TURNS: u32 = 128;

/// A host of another cluster is reported for this long after it was met, if this peer was not told to join it.
const LATELY: Duration = Duration::from_secs(3600);

pub struct Driver<T> {
    transport: T,
    node: Node,
    store: Store,
    grants: Option<GrantFile>,
    commands: mpsc::UnboundedReceiver<Command>,
    /// For new handles. Weak: the task ends when all handles are dropped.
    sender: mpsc::WeakUnboundedSender<Command>,
    events: broadcast::Sender<Happening>,
    clock: Clock,
    clock_start: Moment,
    effects: Vec<Effect>,
    /// An urgent message was sent, and may not have been flushed yet.
    hurried: bool,
    /// The number of steps since the first unflushed message; `None` if all are flushed.
    unhurried: Option<u32>,
    calls: BTreeMap<u64, Call>,
    last_call: u64,
    tickets: BTreeMap<TicketId, TicketClients>,
    /// The tickets of grants that may outlive this process, by grant ID.
    notes: BTreeMap<String, TicketId>,
    named: BTreeMap<TicketId, String>,
    /// The latest revocations, with their reasons.
    revoked: VecDeque<(String, Error)>,
    waiters: BTreeMap<u64, TicketId>,
    started: Option<Reply<()>>,
    /// The peer stops if it finds no member to join.
    must_join: bool,
    draining: Vec<oneshot::Sender<()>>,
    leaving: Vec<oneshot::Sender<bool>>,
    join: Vec<String>,
    /// The addresses in `join` that the user gave; the others are from the data directory.
    given: BTreeSet<String>,
    /// Why an address in `join` could not be reached.
    unreached: BTreeMap<String, String>,
    abandoned: bool,
    left: bool,
    confirmed: bool,
}

impl<T: Transport> Driver<T> {
    pub fn new(
        transport: T,
        (node, (clock, clock_start), store, grants): (Node, (Clock, Moment), Store, Option<GrantFile>),
        (sender, commands): (&mpsc::UnboundedSender<Command>, mpsc::UnboundedReceiver<Command>),
        events: broadcast::Sender<Happening>,
        (join, given, must_join): (Vec<String>, BTreeSet<String>, bool),
        started: Reply<()>,
    ) -> Self {
        Self {
            transport,
            node,
            store,
            grants,
            commands,
            sender: sender.downgrade(),
            events,
            clock_start,
            clock,
            effects: Vec::new(),
            hurried: false,
            unhurried: None,
            calls: BTreeMap::new(),
            last_call: 0,
            tickets: BTreeMap::new(),
            notes: BTreeMap::new(),
            named: BTreeMap::new(),
            revoked: VecDeque::new(),
            waiters: BTreeMap::new(),
            started: Some(started),
            must_join,
            draining: Vec::new(),
            leaving: Vec::new(),
            join,
            given,
            unreached: BTreeMap::new(),
            abandoned: false,
            left: false,
            confirmed: false,
        }
    }

    pub async fn run(mut self, mut awake: Awake) {
        self.step(Input::Start { join: self.join.clone() });
        // Reset only when it changes, which most steps do not.
        let mut set = None;
        let mut alarm = pin!(sleep(Duration::ZERO));
        let (mut in_a_row, mut turns) = (0, 0);
        while !self.left {
            let wake = self.node.next_wake();
            if let Some(wake) = wake.filter(|_| wake != set) {
                alarm.as_mut().reset(tokio::time::Instant::now() + self.clock.nap(self.moment(wake)));
            }
            set = wake;
            tokio::select! {
                // Messages first: a hand-over must not wait behind commands.
                biased;
                event = self.transport.next() => match event {
                    Some(event) => {
                        self.on_event(event);
                        awake.on_message();
                    }
                    None => break,
                },
                Some(stored) = self.store.next() => self.step(input(stored)),
                command = self.commands.recv(), if !self.abandoned => match command {
                    Some(command) => {
                        self.on_command(command);
                        awake.on_command();
                        in_a_row += 1;
                    }
                    None => {
                        self.abandoned = true;
                        self.step(Input::Leave);
                    }
                },
                () = alarm.as_mut(), if wake.is_some() => {
                    // The next alarm may be for the same time, if this one came early.
                    set = None;
                    self.wake();
                }
                () = yield_now(), if self.unhurried.is_some() => {
                    in_a_row = 0;
                    self.flush();
                }
                () = yield_now(), if awake.waits() => {
                    in_a_row = 0;
                    awake.give_way();
                }
            }
            if std::mem::take(&mut self.hurried) {
                awake.on_said().await;
            }
            if self.unhurried.is_some_and(|steps| steps > IN_A_ROW) {
                self.flush();
            }
            turns += 1;
            if turns >= TURNS {
                (turns, in_a_row) = (0, IN_A_ROW);
                self.catch_up();
            }
            if in_a_row >= IN_A_ROW {
                in_a_row = 0;
                awake.share();
                yield_now().await;
            }
        }
        self.flush();
        self.transport.stop().await;
        self.leaving.into_iter().for_each(|reply| _ = reply.send(self.confirmed));
    }

    fn now(&self) -> Time {
        Time::from_nanos(self.clock.now().since(self.clock_start).as_nanos() as u64)
    }

    fn moment(&self, time: Time) -> Moment {
        moment(self.clock_start, time)
    }

    /// Reads the clock for each step: after a suspend, the node ends expired leases before anything else.
    fn step(&mut self, input: Input) {
        self.step_at(self.now(), input);
        // Writes to memory complete at once.
        while let Some(stored) = self.store.try_next() {
            self.step_at(self.now(), self::input(stored));
        }
    }

    fn step_at(&mut self, now: Time, input: Input) {
        let mut effects = std::mem::take(&mut self.effects);
        self.node.step(input, now, &mut effects);
        self.record(&mut effects);
        let mut has_sent = false;
        for effect in effects.drain(..) {
            match effect {
                // The first message is urgent. The others may wait for the next commands.
                Effect::Send { to, epoch, bytes } if std::mem::replace(&mut has_sent, true) => {
                    self.transport.send_soon(to, epoch, bytes);
                    self.unhurried.get_or_insert(0);
                }
                effect => self.carry_out(effect),
            }
        }
        self.effects = effects; // Reuses the allocation.
        self.unhurried = self.unhurried.map(|steps| steps + 1);
    }

    fn wake(&mut self) {
        if self.node.next_wake().is_some_and(|wake| wake <= self.now()) {
            self.step(Input::Wake);
        }
    }

    fn catch_up(&mut self) {
        self.wake();
        if self.unhurried.is_some() {
            self.flush();
        }
    }

    fn flush(&mut self) {
        self.unhurried = None;
        self.transport.flush();
    }

    fn record(&mut self, effects: &mut Vec<Effect>) {
        let last = effects.iter().rposition(|effect| matches!(effect, Effect::Record(_)));
        let Some(last) = last.filter(|_| self.grants.is_some()) else { return };
        let entries = effects.drain(..=last).map(|effect| match effect {
            Effect::Record(entry) => on_clock(entry, self.clock_start),
            effect => unreachable!("{effect:?} precedes a takeover record"),
        });
        let entries = entries.collect();
        if let Some(file) = &mut self.grants {
            file.record(entries);
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Send { to, epoch, bytes } => {
                self.transport.send(to, epoch, bytes);
                self.hurried = true;
            }
            Effect::HangUp { peer, epoch, why } => self.transport.hang_up(peer, epoch, why),
            Effect::Dial(address) => self.transport.dial(&address),
            Effect::Forget(address) => self.transport.forget(&address),
            Effect::Write { number, write } => self.store.write(number, write),
            Effect::Belongs(cluster) => {
                self.log_cluster(cluster);
                self.store.belongs(cluster);
            }
            // Without a takeover file, no client outlives this process.
            Effect::Record(_) => {}
            Effect::Members(addresses) => self.store.members(addresses),
            Effect::Joined => self.report(Ok(())),
            Effect::NotJoined if !self.must_join => {}
            Effect::NotJoined => {
                let why = |address| self.unreached.get(address).cloned().unwrap_or_else(|| "no answer".into());
                let tried = self.join.iter().map(|address| (address.clone(), why(address))).collect();
                let refused = |error: &Error| matches!(error, Error::OtherCluster { .. } | Error::OtherVersion { .. });
                let error = self.node.problem().filter(refused).unwrap_or(Error::NoPeer { tried });
                self.report(Err(error));
                self.left = true;
            }
            Effect::Answer { call, answer } => self.on_answer(call, answer),
            Effect::Granted { ticket, until } => {
                let deadline = self.moment(until);
                if let Some(clients) = self.tickets.get_mut(&ticket) {
                    clients.lease = Some(watch::Sender::new(LeaseStatus { deadline, lost: None }));
                }
                self.hand_out(ticket);
            }
            Effect::Renewed { ticket, until } => {
                let deadline = self.moment(until);
                self.on_lease(ticket, |lease| lease.deadline = deadline);
            }
            Effect::Concluded(ticket) => {
                if let Some(clients) = self.tickets.get_mut(&ticket) {
                    clients.detached = true;
                }
            }
            Effect::Lost(ticket, why) => self.on_lease(ticket, |lease| lease.lost = Some(why)),
            Effect::Ended(ticket, error) => self.on_ended(ticket, &error),
            Effect::Returned { ticket, note, .. } | Effect::Inherited { ticket, note } => self.name(ticket, note),
            Effect::Progress(ticket, progress) => {
                let waiters = self.tickets.get(&ticket).map(|clients| &clients.waiters);
                waiters.into_iter().flatten().for_each(|waiter| _ = waiter.progress.send(progress));
            }
            Effect::Event(_) if self.events.receiver_count() == 0 => {}
            Effect::Event(event) => {
                let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                _ = self.events.send(Happening { at, event });
            }
            Effect::Notice(notice) => self.on_notice(&notice),
            Effect::Drained => self.draining.drain(..).for_each(|reply| _ = reply.send(())),
            Effect::Left { confirmed } => (self.left, self.confirmed) = (true, confirmed),
        }
    }

    /// Returns the health of this peer, with hosts of other clusters that it is to join or has met lately.
    fn health(&self) -> Health {
        let mut health = self.node.health(self.now());
        for other in &mut health.others {
            other.is_joined = self.given.contains(&other.address);
        }
        health.others.retain(|other| other.is_joined || other.met < LATELY);
        health
    }

    fn log_cluster(&self, cluster: ClusterId) {
        if !self.node.has_founded(cluster) {
            return tracing::info!(%cluster, "joined a cluster");
        }
        tracing::info!(%cluster, "created a cluster");
        let silent: Vec<&String> = self.join.iter().filter(|address| !self.node.has_reached(address)).collect();
        if !silent.is_empty() {
            tracing::warn!(
                %cluster,
                unreached = ?silent,
                "created a cluster without having reached these addresses of --join: if their hosts are in another \
                 cluster, `peerlock doctor` reports it as soon as one is reached"
            );
        }
    }

    fn on_notice(&mut self, notice: &Notice) {
        let words = notice.in_words(|host| self.node.called(host));
        match notice {
            Notice::SessionLost { .. }
            | Notice::Problem(Error::OtherCluster { .. } | Error::OtherVersion { .. })
            | Notice::Halted(_)
            | Notice::Forgotten(_) => {
                tracing::error!("{words}");
            }
            _ => tracing::warn!("{words}"),
        }
        if let Notice::Recovered { theirs, .. } = notice {
            self.store.follow(*theirs);
        }
    }

    fn on_event(&mut self, event: NetEvent) {
        match &event {
            NetEvent::Up { peer, address, .. } => {
                // A new member may have no name yet.
                tracing::info!(host = self.node.name(*peer), address, "a peer is connected");
            }
            NetEvent::Down { peer, why, .. } => {
                tracing::info!(host = self.node.called(*peer), why, "a peer is disconnected")
            }
            NetEvent::Unreached { address, why } if self.started.is_some() => {
                self.unreached.insert(address.clone(), why.clone());
            }
            NetEvent::Unreached { .. } | NetEvent::Message { .. } => {}
        }
        self.step(Input::Net(event));
    }

    fn on_command(&mut self, command: Command) {
        match command {
            Command::Wait { name, note, waiter, input } => {
                let call = self.call(Call::Acquire(name, note, waiter));
                self.step(input(call));
            }
            Command::Forget(waiter) => self.forget(waiter),
            Command::Drop(ticket) => {
                let Some(clients) = self.tickets.get_mut(&ticket) else { return };
                clients.handles -= 1;
                self.release_if_unwanted(ticket);
            }
            Command::Call(input, reply) => {
                let call = self.call(Call::Reply(reply));
                self.step(input(call));
            }
            Command::Read(read) => read(&self.node, self.now()),
            Command::Detach(ticket) => {
                let Some(clients) = self.tickets.get_mut(&ticket) else { return };
                clients.handles -= 1;
                clients.detached = true;
            }
            Command::Find(note, reply) => _ = reply.send(self.find(&note)),
            Command::Counters(reply) => {
                _ = reply.send(Counters { unauthenticated: self.transport.unauthenticated(), ..self.node.counters() });
            }
            Command::Health(reply) => _ = reply.send(self.health()),
            Command::Drain(input, reply) => {
                self.draining.push(reply);
                self.step(input);
            }
            Command::Leave(reply) => {
                self.leaving.push(reply);
                self.step(Input::Leave);
            }
        }
    }

    fn call(&mut self, call: Call) -> u64 {
        self.last_call += 1;
        self.calls.insert(self.last_call, call);
        self.last_call
    }

    fn on_answer(&mut self, call: u64, answer: Result<Answer, Error>) {
        match (self.calls.remove(&call), answer) {
            (Some(Call::Acquire(name, note, waiter)), Ok(Answer::Ticket(ticket))) => {
                self.on_ticket(ticket, (name, note), waiter);
            }
            (Some(Call::Acquire(_, _, waiter)), Err(error)) => _ = waiter.reply.send(Err(error)),
            (Some(Call::Reply(reply)), answer) => _ = reply.send(answer),
            (_, answer) => unreachable!("{answer:?} is no answer to what call {call} asked"),
        }
    }

    fn find(&self, note: &str) -> Found {
        if let Some((_, why)) = self.revoked.iter().find(|(revoked, _)| revoked == note) {
            return Found::Revoked(why.clone());
        }
        match self.notes.get(note) {
            Some(ticket) => Found::Here(*ticket),
            None if self.node.knows_returned() => Found::Nowhere,
            None => Found::NotYet,
        }
    }

    fn on_ticket(&mut self, ticket: TicketId, (name, note): (Name, Option<String>), waiter: Waiter) {
        let clients = self.tickets.entry(ticket).or_insert_with(|| TicketClients {
            name,
            note,
            waiters: Vec::new(),
            handles: 0,
            detached: false,
            lease: None,
        });
        self.waiters.insert(waiter.number, ticket);
        clients.detached &= !waiter.resumes;
        clients.waiters.push(waiter);
        // A repeated request gets the same grant; a new one is answered by an effect.
        if clients.lease.is_some() {
            self.hand_out(ticket);
        }
    }

    fn forget(&mut self, waiter: u64) {
        let Some(ticket) = self.waiters.remove(&waiter) else { return self.give_up(waiter) };
        let Some(clients) = self.tickets.get_mut(&ticket) else { return };
        clients.waiters.retain(|waiting| waiting.number != waiter);
        self.release_if_unwanted(ticket);
    }

    /// Cancels a pending call, such as a resume before there is a session.
    fn give_up(&mut self, waiter: u64) {
        let is_it = |call: &Call| matches!(call, Call::Acquire(_, _, waiting) if waiting.number == waiter);
        let Some(call) = self.calls.iter().find_map(|(call, asked)| is_it(asked).then_some(*call)) else { return };
        self.step(Input::GiveUp { call });
        self.calls.remove(&call);
    }

    fn release_if_unwanted(&mut self, ticket: TicketId) {
        let unwanted =
            |clients: &TicketClients| clients.waiters.is_empty() && clients.handles == 0 && !clients.detached;
        if self.tickets.get(&ticket).is_some_and(unwanted) {
            self.step(Input::Release { call: None, ticket });
        }
    }

    /// Sends a handle of the grant to each waiter. If the waiter is gone, its handle is detached if it was to resume
    /// the grant; otherwise it is dropped, and the last handle releases the grant.
    fn hand_out(&mut self, ticket: TicketId) {
        let (Some(clients), Some(sender)) = (self.tickets.get_mut(&ticket), self.sender.upgrade()) else { return };
        let (Some((grant, _)), Some(lease)) = (self.node.grant(ticket), &clients.lease) else { return };
        let note = clients.note.clone();
        for waiter in std::mem::take(&mut clients.waiters) {
            self.waiters.remove(&waiter.number);
            clients.handles += 1;
            let id = note.clone().map_or(GrantId::Held(ticket), GrantId::Named);
            let means = (sender.clone(), self.clock.clone());
            let handle = Grant::new((ticket, id), clients.name.clone(), grant, lease.subscribe(), means);
            if let Err(Ok(unclaimed)) = waiter.reply.send(Ok(handle))
                && waiter.resumes
            {
                unclaimed.detach();
            }
        }
        note.into_iter().for_each(|note| self.name(ticket, note));
    }

    fn name(&mut self, ticket: TicketId, note: String) {
        self.named.insert(ticket, note.clone());
        self.notes.insert(note, ticket);
    }

    fn report(&mut self, started: Result<(), Error>) {
        if let Some(reply) = self.started.take() {
            _ = reply.send(started);
        }
    }

    fn on_lease(&self, ticket: TicketId, change: impl FnOnce(&mut LeaseStatus)) {
        if let Some(TicketClients { lease: Some(lease), .. }) = self.tickets.get(&ticket) {
            lease.send_modify(change);
        }
    }

    fn on_ended(&mut self, ticket: TicketId, error: &Error) {
        self.on_lease(ticket, |lease| _ = lease.lost.get_or_insert_with(|| error.clone()));
        if let Some(note) = self.named.remove(&ticket) {
            self.notes.remove(&note);
            if matches!(error, Error::Revoked { .. }) {
                self.revoked.truncate(REVOKED - 1);
                self.revoked.push_front((note, error.clone()));
            }
        }
        let Some(clients) = self.tickets.remove(&ticket) else { return };
        for waiter in clients.waiters {
            self.waiters.remove(&waiter.number);
            _ = waiter.reply.send(Err(error.clone()));
        }
    }
}

/// Converts a time of the node, whose clock starts at `start`.
pub fn moment(start: Moment, time: Time) -> Moment {
    start + Duration::from_nanos(time.as_nanos())
}

fn input(stored: Stored) -> Input {
    match stored {
        Stored::Written(number) => Input::Written(number),
        Stored::Belongs => Input::ClusterRecorded,
    }
}

/// Returns a random number from the operating system.
pub fn random() -> u64 {
    // Without it, a process might use the number of an earlier one, and nothing would be safe.
    getrandom::u64().expect("the operating system has a random source")
}

pub fn random_stream() -> Rng {
    Rng::new(random())
}
