//! The one task that owns a [`Node`]: a loop over what clients, transport and clock bring, and one match on what is to
//! be done.

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

/// Of so many detached grants that were taken away we still know why.
const REVOKED: usize = 1000;

/// After so many commands in a row the sockets are looked at. Our choice: as many as tasks are polled between two looks
/// (`peerlock::runtime`). Without it a client that asks again and again entries word of the others out for 128 of them.
const IN_A_ROW: u32 = 8;

/// After so many turns of the loop, of whatever kind, what is due has one, what waits to be sent, and other tasks. Our
/// choice: as many as tokio lets a task have, which cannot count messages. Without it timers wait as long as there is
/// always one more who only asks.
const TURNS: u32 = 128;

/// A host of another cluster is reported for this long after it was met, if this peer was not told to join it.
const LATELY: Duration = Duration::from_secs(3600);

/// The task's state: the node, its transport, and whoever waits for an answer.
pub struct Driver<T> {
    transport: T,
    node: Node,
    store: Store,
    grants: Option<GrantFile>,
    commands: mpsc::UnboundedReceiver<Command>,
    /// For the handles that we give out. Weak: the task ends when all handles are gone.
    sender: mpsc::WeakUnboundedSender<Command>,
    events: broadcast::Sender<Happening>,
    clock: Clock,
    clock_start: Moment,
    effects: Vec<Effect>,
    /// Something was said that others wait for, and may not have been written yet.
    hurried: bool,
    /// How many steps ago something was said that may wait a little, if it was not flushed since.
    unhurried: Option<u32>,
    calls: BTreeMap<u64, Call>,
    last_call: u64,
    tickets: BTreeMap<TicketId, TicketClients>,
    /// The grants of this host that may outlive its processes, by what their clients call them.
    notes: BTreeMap<String, TicketId>,
    named: BTreeMap<TicketId, String>,
    /// What the last of them that were taken away were called, and why: for clients that renew them.
    revoked: VecDeque<(String, Error)>,
    /// Which ticket somebody waits for.
    waiters: BTreeMap<u64, TicketId>,
    started: Option<Reply<()>>,
    /// Whether it is an end not to have found anybody in time.
    must_join: bool,
    draining: Vec<oneshot::Sender<()>>,
    leaving: Vec<oneshot::Sender<bool>>,
    join: Vec<String>,
    /// Those of them that a person has given, and the folder has not.
    given: BTreeSet<String>,
    /// Why nobody was reached there, as far as that was heard.
    unreached: BTreeMap<String, String>,
    /// All handles are gone: nobody can say anything to us any more.
    abandoned: bool,
    left: bool,
    /// The cluster knows that.
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

    /// Runs until everybody knows that we have left.
    pub async fn run(mut self, mut awake: Awake) {
        self.step(Input::Start { join: self.join.clone() });
        // Set anew only when it changes: most of what happens does not change what is next.
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
                // Messages first: whoever hands over should not wait behind those who only ask.
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
                    // It has gone off, perhaps only for a look at the clock: the next may be for the same time.
                    set = None;
                    self.wake();
                }
                // Everybody who could say something has had a turn.
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
        self.clock_start + Duration::from_nanos(time.as_nanos())
    }

    /// The clock is read here: after a sleep of the machine the node looks at the leases that ended meanwhile before it
    /// grants, answers or sends anything.
    fn step(&mut self, input: Input) {
        self.step_at(self.now(), input);
        // What is kept in memory is kept at once.
        while let Some(stored) = self.store.try_next() {
            self.step_at(self.now(), self::input(stored));
        }
    }

    /// Hands one input to the node, and does what it wants done.
    fn step_at(&mut self, now: Time, input: Input) {
        let mut effects = std::mem::take(&mut self.effects);
        self.node.step(input, now, &mut effects);
        self.record(&mut effects);
        let mut has_sent = false;
        for effect in effects.drain(..) {
            match effect {
                // What others wait for comes first. The rest may go with what clients want next.
                Effect::Send { to, epoch, bytes } if std::mem::replace(&mut has_sent, true) => {
                    self.transport.send_soon(to, epoch, bytes);
                    self.unhurried.get_or_insert(0);
                }
                effect => self.carry_out(effect),
            }
        }
        self.effects = effects; // Made once and used again.
        self.unhurried = self.unhurried.map(|steps| steps + 1);
    }

    /// Does what is due.
    fn wake(&mut self) {
        if self.node.next_wake().is_some_and(|wake| wake <= self.now()) {
            self.step(Input::Wake);
        }
    }

    /// What nobody has come to because there was always something else.
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

    /// Writes down what is to be written down before anything else is done.
    fn record(&mut self, effects: &mut Vec<Effect>) {
        let last = effects.iter().rposition(|effect| matches!(effect, Effect::Record(_)));
        let Some(last) = last.filter(|_| self.grants.is_some()) else { return };
        let entries = effects.drain(..=last).map(|effect| match effect {
            Effect::Record(entry) => on_clock(entry, self.clock_start),
            effect => unreachable!("{effect:?} comes before something that is to be written down first"),
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
            Effect::HangUp(peer, why) => self.transport.hang_up(peer, why),
            Effect::Dial(address) => self.transport.dial(&address),
            Effect::Forget(address) => self.transport.forget(&address),
            Effect::Write { number, write } => self.store.write(number, write),
            Effect::Belongs(cluster) => {
                self.log_cluster(cluster);
                self.store.belongs(cluster);
            }
            // Nobody here outlives this process.
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
            Effect::Lost(ticket, why) => self.on_lease(ticket, |lease| lease.lost = Some(why)),
            Effect::Ended(ticket, error) => self.on_ended(ticket, &error),
            Effect::Returned { ticket, note, .. } | Effect::Inherited { ticket, note } => self.name(ticket, note),
            Effect::Progress(ticket, progress) => {
                let waiters = self.tickets.get(&ticket).map(|clients| &clients.waiters);
                waiters.into_iter().flatten().for_each(|waiter| _ = waiter.progress.send(progress));
            }
            // Where nobody watches, not even the time is looked at.
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

    /// How this peer stands, with the hosts of other clusters that it was told to join or has met lately.
    fn health(&self) -> Health {
        let mut health = self.node.health(self.now());
        for other in &mut health.others {
            other.is_joined = self.given.contains(&other.address);
        }
        health.others.retain(|other| other.is_joined || other.met < LATELY);
        health
    }

    /// Logs which cluster this host belongs to from now on, and whether it has founded that cluster.
    fn log_cluster(&self, cluster: ClusterId) {
        if !self.node.has_founded(cluster) {
            return tracing::info!(%cluster, "joined a cluster");
        }
        tracing::info!(%cluster, "founded a cluster");
        let silent: Vec<&String> = self.join.iter().filter(|address| !self.node.has_reached(address)).collect();
        if !silent.is_empty() {
            tracing::warn!(
                %cluster,
                unreached = ?silent,
                "founded a cluster without having reached these addresses of --join: if their hosts are in another \
                 cluster, `peerlock doctor` reports it as soon as one is reached"
            );
        }
    }

    /// Something for the log. Here, because the node knows what people call the hosts that it is about.
    fn on_notice(&mut self, notice: &Notice) {
        let words = notice.in_words(|host| self.node.called(host));
        match notice {
            Notice::SessionLost { .. }
            | Notice::OtherCluster { .. }
            | Notice::OtherVersion { .. }
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
                // Of who has just come perhaps nothing else is known yet.
                tracing::info!(host = self.node.name(*peer), address, "a peer is linked with us");
            }
            NetEvent::Down { peer, why, .. } => tracing::info!(host = self.node.called(*peer), why, "a link is down"),
            NetEvent::Unreached { address, why } if self.started.is_some() => {
                self.unreached.insert(address.clone(), why.clone());
            }
            NetEvent::Unreached { .. } | NetEvent::Message { .. } => {}
        }
        self.step(Input::Net(event));
    }

    fn on_command(&mut self, command: Command) {
        match command {
            Command::Acquire { wanted, waiter } => {
                let note = wanted.detached.clone().or_else(|| wanted.taken_over_as.clone());
                let call = self.call(Call::Acquire(wanted.name.clone(), note, waiter));
                self.step(Input::Acquire { call, wanted });
            }
            Command::Resume { name, note, waiter } => {
                let call = self.call(Call::Acquire(name.clone(), Some(note.clone()), waiter));
                self.step(Input::Resume { call, name, note });
            }
            Command::Forget { waiter } => self.forget(waiter),
            Command::Drop { ticket } => {
                let Some(clients) = self.tickets.get_mut(&ticket) else { return };
                clients.handles -= 1;
                self.release_if_unwanted(ticket);
            }
            Command::Release { ticket, reply } => {
                let call = Some(self.call(Call::Done(reply)));
                self.step(Input::Release { call, ticket });
            }
            Command::Renew { ticket, reply } => {
                let call = self.call(Call::Renew(reply));
                self.step(Input::Renew { call, ticket });
            }
            Command::Detach { ticket } => {
                let Some(clients) = self.tickets.get_mut(&ticket) else { return };
                clients.handles -= 1;
                clients.detached = true;
            }
            Command::Find { note, reply } => _ = reply.send(self.find(&note)),
            Command::Cluster { reply } => {
                let call = self.call(Call::Cluster(reply));
                self.step(Input::Look { call });
            }
            Command::Resize { name, slots, reply } => {
                let call = self.call(Call::Done(reply));
                self.step(Input::Resize { call, name, slots });
            }
            Command::Remove { name, reply } => {
                let call = self.call(Call::Done(reply));
                self.step(Input::Remove { call, name });
            }
            Command::Expel { name, peer, reply } => {
                let call = self.call(Call::Done(reply));
                self.step(Input::Expel { call, name, peer });
            }
            Command::Revoke { name, peer, fencing, reply } => {
                let call = self.call(Call::Done(reply));
                self.step(Input::Revoke { call, name, peer, fencing });
            }
            Command::SetVoters { hosts, reply } => {
                let call = self.call(Call::Done(reply));
                self.step(Input::SetVoters { call, hosts });
            }
            Command::ForgetHost { host, reply } => {
                let call = self.call(Call::Done(reply));
                self.step(Input::Forget { call, host });
            }
            Command::Show { name, reply } => {
                let call = self.call(Call::Show(reply));
                self.step(Input::Show { call, name });
            }
            Command::Resources { listing, reply } => {
                let call = self.call(Call::Resources(reply));
                self.step(Input::List { call, listing });
            }
            Command::Peers { reply } => _ = reply.send(self.node.peers(self.now())),
            Command::Counters { reply } => {
                _ = reply.send(Counters { unauthenticated: self.transport.unauthenticated(), ..self.node.counters() });
            }
            Command::Health { reply } => _ = reply.send(self.health()),
            Command::Inspect { reply } => _ = reply.send(self.node.inspect(self.now())),
            Command::HasClients { reply } => _ = reply.send(self.node.has_clients()),
            Command::Drain { reply } => {
                self.draining.push(reply);
                self.step(Input::Drain);
            }
            Command::Close { reply } => {
                self.draining.push(reply);
                self.step(Input::Close);
            }
            Command::Leave { reply } => {
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
            // It says which verb it answers, and whoever has called knows that.
            (Some(Call::Done(reply)), Ok(_)) => _ = reply.send(Ok(())),
            (Some(Call::Cluster(reply)), Ok(Answer::Found(cluster))) => _ = reply.send(Ok(cluster)),
            (Some(Call::Resources(reply)), Ok(Answer::Listed(page))) => _ = reply.send(Ok(page)),
            (Some(Call::Resources(reply)), Err(error)) => _ = reply.send(Err(error)),
            (Some(Call::Renew(reply)), Ok(Answer::Renewed(until))) => _ = reply.send(Ok(self.moment(until))),
            (Some(Call::Show(reply)), Ok(Answer::Shown(details))) => _ = reply.send(Ok(details)),
            (Some(Call::Acquire(_, _, waiter)), Err(error)) => _ = waiter.reply.send(Err(error)),
            (Some(Call::Done(reply)), Err(error)) => _ = reply.send(Err(error)),
            (Some(Call::Cluster(reply)), Err(error)) => _ = reply.send(Err(error)),
            (Some(Call::Renew(reply)), Err(error)) => _ = reply.send(Err(error)),
            (Some(Call::Show(reply)), Err(error)) => _ = reply.send(Err(error)),
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
        // Asked for once more after it was granted: the same grant. Else word of it comes with the effects.
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

    /// Who wants to go on with a grant has no ticket as long as there is no session.
    fn give_up(&mut self, waiter: u64) {
        let is_it = |call: &Call| matches!(call, Call::Acquire(_, _, waiting) if waiting.number == waiter);
        let Some(call) = self.calls.iter().find_map(|(call, asked)| is_it(asked).then_some(*call)) else { return };
        self.step(Input::GiveUp { call });
        // It may have been answered in the same step.
        self.calls.remove(&call);
    }

    /// Nobody waits for a ticket, and nobody has a handle of its grant.
    fn release_if_unwanted(&mut self, ticket: TicketId) {
        let unwanted =
            |clients: &TicketClients| clients.waiters.is_empty() && clients.handles == 0 && !clients.detached;
        if self.tickets.get(&ticket).is_some_and(unwanted) {
            self.step(Input::Release { call: None, ticket });
        }
    }

    /// Gives everybody who waits for a ticket a handle of its grant. A client that does not want it any more drops the
    /// handle, and with the last of them the grant; but not one that wanted to go on and is not there to hear it.
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
            if let Err(Ok(unheard)) = waiter.reply.send(Ok(handle))
                && waiter.resumes
            {
                unheard.detach();
            }
        }
        note.into_iter().for_each(|note| self.name(ticket, note));
    }

    /// What a grant is called from now on.
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

/// What has been kept, as the node hears it.
fn input(stored: Stored) -> Input {
    match stored {
        Stored::Written(number) => Input::Written(number),
        Stored::Belongs => Input::ClusterRecorded,
    }
}

/// Something new, from the operating system.
pub fn random() -> u64 {
    // A process that takes itself for an earlier one of the same host would break every promise.
    getrandom::u64().expect("the operating system has a random source")
}

/// A stream of chance for one process.
pub fn chance() -> Rng {
    Rng::new(random())
}
