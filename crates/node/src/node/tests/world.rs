//! Whole nodes in a small world: messages are delivered at once, and disks and machines fail as the test says.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use peerlock_registry::Versions;
use peerlock_types::Span;

use super::super::*;
use crate::{ClusterId, NetEvent, Origin, Parting, Predecessor, Ttl, Wanted, Write};

pub(super) const CLUSTER: ClusterId = ClusterId::new(0xc1);
pub(super) const OTHER: ClusterId = ClusterId::new(0xdead << 64);

pub(super) struct Machine {
    pub(super) node: Option<Node>,
    pub(super) process: u64,
    pub(super) file: Option<Vec<u8>>,
    pub(super) cluster: Option<ClusterId>,
    pub(super) members: Vec<String>,
    /// The takeover file.
    pub(super) predecessor: Option<Predecessor>,
    /// Writes do not complete while this is set.
    pub(super) slow_disk: bool,
    pub(super) unwritten: VecDeque<u64>,
    pub(super) received: Vec<Effect>,
}

pub(super) struct World {
    pub(super) now: Time,
    pub(super) machines: BTreeMap<u64, Machine>,
    pub(super) up: BTreeMap<(u64, u64), u64>,
    pub(super) epochs: u64,
    pub(super) dials: BTreeSet<(u64, u64)>,
    /// Of machines that have moved; 1 otherwise.
    pub(super) ports: BTreeMap<u64, u64>,
    pub(super) cut: BTreeSet<u64>,
    /// Pairs that cannot connect.
    pub(super) apart: BTreeSet<(u64, u64)>,
    /// Pairs whose connection is silently broken.
    pub(super) silent: BTreeSet<(u64, u64)>,
    /// Closed connections; dialled again when time passes.
    pub(super) hung_up: BTreeMap<(u64, u64), Parting>,
    pub(super) frozen: BTreeSet<u64>,
    /// A machine whose messages are changed on their way.
    pub(super) spoils: Option<(u64, Spoil)>,
    /// Returns how many copies of a message arrive.
    pub(super) loses: Option<Loss>,
    /// A machine whose messages, in both directions, are recorded.
    pub(super) overheard: Option<(u64, Vec<Vec<u8>>)>,
    pub(super) queue: VecDeque<(u64, Input)>,
    /// Of machines started from now on, as the following.
    pub(super) keeps: bool,
    pub(super) versions: Versions,
    pub(super) session: Ttl,
    /// The limit of items stored for one host.
    pub(super) ration: usize,
}

pub(super) type Spoil = Box<dyn FnMut(Vec<u8>) -> Vec<u8>>;
pub(super) type Loss = Box<dyn FnMut(&[u8]) -> usize>;

pub(super) fn address(number: u64) -> String {
    format!("host{number}:1")
}

impl World {
    pub(super) fn new() -> Self {
        Self {
            now: Time::ZERO,
            machines: BTreeMap::new(),
            up: BTreeMap::new(),
            epochs: 0,
            dials: BTreeSet::new(),
            ports: BTreeMap::new(),
            cut: BTreeSet::new(),
            apart: BTreeSet::new(),
            silent: BTreeSet::new(),
            hung_up: BTreeMap::new(),
            frozen: BTreeSet::new(),
            spoils: None,
            loses: None,
            overheard: None,
            queue: VecDeque::new(),
            keeps: true,
            versions: Versions::OURS,
            session: Ttl::from_millis(15_000).unwrap(),
            ration: Config::default().ration,
        }
    }

    /// Returns a world with one machine that creates a cluster, and others that join it.
    pub(super) fn of(machines: u64) -> Self {
        let mut world = Self::new();
        world.start(1, Origin::Founds(CLUSTER), &[]);
        for number in 2..=machines {
            world.start(number, Origin::Seeks { expect: None }, &[1]);
        }
        world.run(Span::from_secs(5));
        world
    }

    pub(super) fn start(&mut self, number: u64, origin: Origin, join: &[u64]) {
        let listens_at = self.address_of(number);
        let machine = self.machines.entry(number).or_insert_with(|| Machine {
            node: None,
            process: 0,
            file: None,
            cluster: None,
            members: Vec::new(),
            predecessor: None,
            slow_disk: false,
            unwritten: VecDeque::new(),
            received: Vec::new(),
        });
        machine.process += 1;
        let setup = Setup {
            process: machine.process,
            rng: Rng::stream(number, machine.process),
            name: format!("host{number}"),
            keeps: self.keeps,
            session: self.session,
            origin,
            boot: "one".into(),
            predecessor: machine.predecessor.clone(),
        };
        let config = Config { versions: self.versions, ration: self.ration, ..Config::default() };
        let node = Node::new(PeerId::new(number), vec![listens_at], setup, config);
        machine.node = Some(node.expect("a whole file"));
        let addresses = join.iter().map(|number| address(*number)).chain(machine.members.clone()).collect();
        self.queue.push_back((number, Input::Start { join: addresses }));
        self.settle();
    }

    pub(super) fn restart(&mut self, number: u64) {
        let machine = &self.machines[&number];
        let origin = match (&machine.file, machine.cluster) {
            (Some(file), _) => Origin::Votes(file.clone()),
            (None, Some(cluster)) => Origin::Belongs(cluster),
            (None, None) => panic!("{number} knows nothing"),
        };
        self.start(number, origin, &[]);
    }

    fn address_of(&self, number: u64) -> String {
        self.ports.get(&number).map_or(address(number), |port| format!("host{number}:{port}"))
    }

    fn at(&self, address: &str) -> Option<u64> {
        let number = address.trim_start_matches("host").split(':').next()?.parse().ok()?;
        (self.address_of(number) == address).then_some(number)
    }

    pub(super) fn move_to(&mut self, number: u64, port: u64) {
        self.kill(number);
        self.dials.retain(|(_, to)| *to != number);
        self.ports.insert(number, port);
        self.restart(number);
    }

    pub(super) fn kill(&mut self, number: u64) {
        self.disconnect(number);
        self.queue.retain(|(to, _)| *to != number);
        let machine = self.machines.get_mut(&number).unwrap();
        machine.node = None;
        machine.unwritten.clear();
        self.dials.retain(|(from, _)| *from != number);
        self.settle();
    }

    pub(super) fn disconnect(&mut self, number: u64) {
        self.disconnect_all(|(a, b)| a == number || b == number);
    }

    pub(super) fn disconnect_pair(&mut self, one: u64, other: u64) {
        self.disconnect_all(|pair| pair == (one.min(other), one.max(other)));
    }

    /// Breaks the connection of a pair for good, without an event.
    pub(super) fn part_silently(&mut self, one: u64, other: u64) {
        let pair = (one.min(other), one.max(other));
        self.apart.insert(pair);
        self.silent.insert(pair);
    }

    pub(super) fn notice(&mut self, one: u64, other: u64) {
        let epoch = self.up.remove(&(one.min(other), one.max(other))).expect("they were connected");
        let (peer, why) = (PeerId::new(other), "it does not answer".to_owned());
        self.queue.push_back((one, Input::Net(NetEvent::Down { peer, epoch, why })));
        self.settle();
    }

    fn disconnect_all(&mut self, ends: impl Fn((u64, u64)) -> bool) {
        let ended: Vec<_> = self.up.iter().filter(|(pair, _)| ends(**pair)).map(|(k, v)| (*k, *v)).collect();
        for ((a, b), epoch) in ended {
            self.up.remove(&(a, b));
            for (at, peer) in [(a, b), (b, a)] {
                let (peer, why) = (PeerId::new(peer), "closed by the test".to_owned());
                self.queue.push_back((at, Input::Net(NetEvent::Down { peer, epoch, why })));
            }
        }
    }

    pub(super) fn connect(&mut self) {
        for (from, to) in self.dials.clone() {
            let pair = (from.min(to), from.max(to));
            let alive = |number: &u64| self.machines.get(number).is_some_and(|it| it.node.is_some());
            let apart = self.cut.contains(&from) != self.cut.contains(&to) || self.apart.contains(&pair);
            if from == to
                || self.up.contains_key(&pair)
                || self.hung_up.contains_key(&pair)
                || !alive(&from)
                || !alive(&to)
                || apart
            {
                continue;
            }
            self.epochs += 1;
            self.up.insert(pair, self.epochs);
            for (at, peer) in [(from, to), (to, from)] {
                let (epoch, address) = (self.epochs, self.address_of(peer));
                let peer = PeerId::new(peer);
                self.queue.push_back((at, Input::Net(NetEvent::Up { peer, epoch, address })));
            }
        }
    }

    /// Cuts these machines off from all others.
    pub(super) fn split(&mut self, side: &[u64]) {
        self.cut = side.iter().copied().collect();
        let apart: Vec<u64> =
            self.up.keys().filter(|(a, b)| self.cut.contains(a) != self.cut.contains(b)).map(|(a, _)| *a).collect();
        apart.into_iter().for_each(|number| self.disconnect(number));
        self.settle();
    }

    pub(super) fn step(&mut self, number: u64, input: Input) {
        let machine = self.machines.get_mut(&number).unwrap();
        let Some(node) = &mut machine.node else { return };
        let mut out = Vec::new();
        node.step(input, self.now, &mut out);
        for effect in out {
            match &effect {
                Effect::Send { to, epoch, bytes } => {
                    assert!(bytes.len() <= 1 << 20, "a message of {} bytes exceeds the limit", bytes.len());
                    let pair = (number.min(to.get()), number.max(to.get()));
                    if self.up.get(&pair) == Some(epoch) && !self.silent.contains(&pair) {
                        let (from, epoch, mut bytes) = (PeerId::new(number), *epoch, bytes.clone());
                        if let Some((_, spoil)) = self.spoils.as_mut().filter(|(hosts, _)| *hosts == number) {
                            bytes = spoil(bytes);
                        }
                        if let Some((hosts, received)) = &mut self.overheard
                            && [number, to.get()].contains(hosts)
                        {
                            received.push(bytes.clone());
                        }
                        let copies = self.loses.as_mut().map_or(1, |loses| loses(&bytes));
                        for bytes in vec![bytes; copies] {
                            self.queue.push_back((to.get(), Input::Net(NetEvent::Message { from, epoch, bytes })));
                        }
                    }
                }
                Effect::HangUp { peer: to, why, .. } => {
                    let pair = (number.min(to.get()), number.max(to.get()));
                    if let Some(epoch) = self.up.remove(&pair) {
                        self.hung_up.insert(pair, *why);
                        let other = (!self.silent.contains(&pair)).then_some((to.get(), PeerId::new(number)));
                        for (at, peer) in [(number, *to)].into_iter().chain(other) {
                            let why = "hung up".to_owned();
                            self.queue.push_back((at, Input::Net(NetEvent::Down { peer, epoch, why })));
                        }
                    }
                }
                // An address that was left does not answer.
                Effect::Dial(address) => self.dials.extend(self.at(address).map(|to| (number, to))),
                Effect::Forget(address) => {
                    if let Some(to) = self.at(address) {
                        self.dials.remove(&(number, to));
                    }
                }
                Effect::Write { number: write, write: what } => {
                    let machine = self.machines.get_mut(&number).unwrap();
                    match what {
                        Write::Append(bytes) => machine.file.as_mut().unwrap().extend(bytes),
                        Write::Replace(bytes) => machine.file = Some(bytes.clone()),
                        Write::Remove => machine.file = None,
                    }
                    match machine.slow_disk {
                        true => machine.unwritten.push_back(*write),
                        false => self.queue.push_back((number, Input::Written(*write))),
                    }
                }
                Effect::Belongs(cluster) => {
                    let machine = self.machines.get_mut(&number).unwrap();
                    if !machine.slow_disk {
                        machine.cluster = Some(*cluster);
                        self.queue.push_back((number, Input::ClusterRecorded));
                    }
                }
                Effect::Members(addresses) => {
                    self.machines.get_mut(&number).unwrap().members.clone_from(addresses);
                }
                Effect::Record(journal_entry) => {
                    let machine = self.machines.get_mut(&number).unwrap();
                    machine.predecessor = Predecessor::after(machine.predecessor.take(), "one", journal_entry.clone());
                }
                effect => {
                    let bad = matches!(effect, Effect::Notice(Notice::Unexpected(_) | Notice::Malformed(_)));
                    assert!(!bad || self.spoils.is_some(), "{number} at {:?}: {effect:?}", self.now);
                }
            }
            if !matches!(effect, Effect::Send { .. } | Effect::Write { .. }) {
                self.machines.get_mut(&number).unwrap().received.push(effect);
            }
        }
    }

    pub(super) fn settle(&mut self) {
        loop {
            self.connect();
            let Some(at) = self.queue.iter().position(|(to, _)| !self.frozen.contains(to)) else { return };
            let (to, input) = self.queue.remove(at).unwrap();
            self.step(to, input);
        }
    }

    pub(super) fn run(&mut self, span: Span) {
        let end = self.now + span;
        self.hung_up.clear();
        self.settle();
        loop {
            let awake = self.machines.iter().filter(|(number, _)| !self.frozen.contains(number));
            let next = awake.filter_map(|(number, it)| Some((it.node.as_ref()?.next_wake()?, *number))).min();
            let Some((at, number)) = next.filter(|(at, _)| *at <= end) else { break };
            self.now = self.now.max(at);
            self.step(number, Input::Wake);
            self.settle();
        }
        self.now = end;
    }

    pub(super) fn slow_disks(&mut self, slow: bool) {
        self.machines.values_mut().for_each(|machine| machine.slow_disk = slow);
        while !slow && let Some((number, write)) = self.unwritten() {
            self.input(number, Input::Written(write));
        }
    }

    fn unwritten(&mut self) -> Option<(u64, u64)> {
        self.machines.iter_mut().find_map(|(number, machine)| Some((*number, machine.unwritten.pop_front()?)))
    }

    pub(super) fn run_until(&mut self, is_so: impl Fn(&Self) -> bool) {
        while !is_so(self) {
            self.connect();
            let next =
                || self.machines.iter().filter_map(|(number, it)| Some((it.node.as_ref()?.next_wake()?, *number)));
            match self.queue.pop_front() {
                Some((to, input)) => self.step(to, input),
                None => {
                    let (at, number) = next().min().expect("there is a timer");
                    self.now = self.now.max(at);
                    self.step(number, Input::Wake);
                }
            }
        }
    }

    pub(super) fn input(&mut self, number: u64, input: Input) {
        self.step(number, input);
        self.settle();
    }

    /// Delivers a message that the sender's node has not sent.
    pub(super) fn inject(&mut self, from: u64, to: u64, bytes: Vec<u8>) {
        if let Some(&epoch) = self.up.get(&(from.min(to), from.max(to))) {
            self.input(to, Input::Net(NetEvent::Message { from: PeerId::new(from), epoch, bytes }));
        }
    }

    pub(super) fn node(&self, number: u64) -> &Node {
        self.machines[&number].node.as_ref().expect("it runs")
    }

    pub(super) fn acquire(&mut self, number: u64, wanted: Wanted) -> TicketId {
        let before = self.machines[&number].received.len();
        self.input(number, Input::Acquire { call: 1, wanted });
        let received = &self.machines[&number].received[before..];
        let ticket = |effect: &Effect| match effect {
            Effect::Answer { answer: Ok(Answer::Ticket(ticket)), .. } => Some(*ticket),
            _ => None,
        };
        received.iter().find_map(ticket).unwrap_or_else(|| panic!("no ticket: {received:?}"))
    }

    pub(super) fn fencing(&self, number: u64, ticket: TicketId) -> Option<u64> {
        self.node(number).grant(ticket).map(|(grant, _)| grant.fencing)
    }

    pub(super) fn received(&self, number: u64) -> &[Effect] {
        &self.machines[&number].received
    }

    pub(super) fn answer(&self, number: u64) -> Option<&Result<Answer, Error>> {
        self.received(number).iter().rev().find_map(|effect| match effect {
            Effect::Answer { answer, .. } => Some(answer),
            _ => None,
        })
    }

    pub(super) fn has_lost(&self, number: u64, ticket: TicketId) -> bool {
        self.received(number).iter().any(|effect| matches!(effect, Effect::Lost(lost, _) if *lost == ticket))
    }

    pub(super) fn ended(&self, number: u64, ticket: TicketId) -> Option<&Error> {
        self.received(number).iter().find_map(|effect| match effect {
            Effect::Ended(ended, why) if *ended == ticket => Some(why),
            _ => None,
        })
    }
}

pub(super) fn wanted(name: &str) -> Wanted {
    let wanted = Wanted::new(name.parse().unwrap(), Span::from_secs(30), Span::from_secs(6));
    Wanted { auto_renew: true, ..wanted }
}
