//! Whole nodes in a tiny world: letters and writes are carried by hand, everything arrives at once, and disks and
//! machines fail when the test says so.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use peerlock_base::Span;

use super::*;
use crate::{ClusterId, NetEvent, Origin, SessionId, Ttl, Wait, Wanted, Write};

const CLUSTER: ClusterId = ClusterId::new(0xc1);
const OTHER: ClusterId = ClusterId::new(0xc2);

/// A node, its disk, and what has come out of it.
struct Machine {
    node: Option<Node>,
    process: u64,
    file: Option<Vec<u8>>,
    cluster: Option<ClusterId>,
    members: Vec<String>,
    /// Writes take until this is called off.
    slow_disk: bool,
    unwritten: VecDeque<u64>,
    heard: Vec<Effect>,
}

/// Machines by number; connections between all that dial each other and are not cut off.
struct World {
    now: Time,
    machines: BTreeMap<u64, Machine>,
    up: BTreeMap<(u64, u64), u64>,
    epochs: u64,
    dials: BTreeSet<(u64, u64)>,
    cut: BTreeSet<u64>,
    frozen: BTreeSet<u64>,
    queue: VecDeque<(u64, Input)>,
}

fn address(number: u64) -> String {
    format!("host{number}:1")
}


impl World {
    fn new() -> Self {
        Self {
            now: Time::ZERO,
            machines: BTreeMap::new(),
            up: BTreeMap::new(),
            epochs: 0,
            dials: BTreeSet::new(),
            cut: BTreeSet::new(),
            frozen: BTreeSet::new(),
            queue: VecDeque::new(),
        }
    }

    /// One that founds, and others that look for it.
    fn of(machines: u64) -> Self {
        let mut world = Self::new();
        world.start(1, Origin::Founds(CLUSTER), &[]);
        for number in 2..=machines {
            world.start(number, Origin::Seeks { expect: None }, &[1]);
        }
        world.run(Span::from_secs(5));
        world
    }

    fn start(&mut self, number: u64, origin: Origin, join: &[u64]) {
        let machine = self.machines.entry(number).or_insert_with(|| Machine {
            node: None,
            process: 0,
            file: None,
            cluster: None,
            members: Vec::new(),
            slow_disk: false,
            unwritten: VecDeque::new(),
            heard: Vec::new(),
        });
        machine.process += 1;
        let birth = Birth {
            process: machine.process,
            rng: Rng::stream(number, machine.process),
            name: format!("host{number}"),
            keeps: true,
            session: Ttl::from_millis(15_000).unwrap(),
            origin,
        };
        let node = Node::new(PeerId::new(number), vec![address(number)], birth, Config::default());
        machine.node = Some(node.expect("a whole file"));
        let addresses = join.iter().map(|number| address(*number)).chain(machine.members.clone()).collect();
        self.queue.push_back((number, Input::Start { join: addresses }));
        self.settle();
    }

    /// The same machine again, as its disk has it.
    fn restart(&mut self, number: u64) {
        let machine = &self.machines[&number];
        let origin = match (&machine.file, machine.cluster) {
            (Some(file), _) => Origin::Votes(file.clone()),
            (None, Some(cluster)) => Origin::Belongs(cluster),
            (None, None) => panic!("{number} knows nothing"),
        };
        self.start(number, origin, &[]);
    }

    fn kill(&mut self, number: u64) {
        self.disconnect(number);
        self.queue.retain(|(to, _)| *to != number);
        let machine = self.machines.get_mut(&number).unwrap();
        machine.node = None;
        machine.unwritten.clear();
        self.dials.retain(|(from, _)| *from != number);
        self.settle();
    }

    fn disconnect(&mut self, number: u64) {
        let ended: Vec<_> =
            self.up.iter().filter(|((a, b), _)| *a == number || *b == number).map(|(k, v)| (*k, *v)).collect();
        for ((a, b), epoch) in ended {
            self.up.remove(&(a, b));
            for (at, peer) in [(a, b), (b, a)] {
                let (peer, why) = (PeerId::new(peer), "the test says so".to_owned());
                self.queue.push_back((at, Input::Net(NetEvent::Down { peer, epoch, why })));
            }
        }
    }

    /// Connects whoever wants to be.
    fn connect(&mut self) {
        for (from, to) in self.dials.clone() {
            let pair = (from.min(to), from.max(to));
            let alive = |number: &u64| self.machines.get(number).is_some_and(|it| it.node.is_some());
            let apart = self.cut.contains(&from) != self.cut.contains(&to);
            if from == to || self.up.contains_key(&pair) || !alive(&from) || !alive(&to) || apart {
                continue;
            }
            self.epochs += 1;
            self.up.insert(pair, self.epochs);
            for (at, peer) in [(from, to), (to, from)] {
                let (epoch, address) = (self.epochs, address(peer));
                let peer = PeerId::new(peer);
                self.queue.push_back((at, Input::Net(NetEvent::Up { peer, epoch, address })));
            }
        }
    }

    /// Cuts these off from all others, or from nobody.
    fn split(&mut self, side: &[u64]) {
        self.cut = side.iter().copied().collect();
        let apart: Vec<u64> =
            self.up.keys().filter(|(a, b)| self.cut.contains(a) != self.cut.contains(b)).map(|(a, _)| *a).collect();
        apart.into_iter().for_each(|number| self.disconnect(number));
        self.settle();
    }

    fn step(&mut self, number: u64, input: Input) {
        let machine = self.machines.get_mut(&number).unwrap();
        let Some(node) = &mut machine.node else { return };
        let mut out = Vec::new();
        node.step(input, self.now, &mut out);
        for effect in out {
            match &effect {
                Effect::Send { to, epoch, bytes } => {
                    let pair = (number.min(to.get()), number.max(to.get()));
                    if self.up.get(&pair) == Some(epoch) {
                        let (from, epoch, bytes) = (PeerId::new(number), *epoch, bytes.clone());
                        self.queue.push_back((to.get(), Input::Net(NetEvent::Message { from, epoch, bytes })));
                    }
                }
                Effect::HangUp(to) => {
                    let pair = (number.min(to.get()), number.max(to.get()));
                    if let Some(epoch) = self.up.remove(&pair) {
                        self.dials.retain(|(from, dialled)| (*from.min(dialled), *from.max(dialled)) != pair);
                        for (at, peer) in [(number, *to), (to.get(), PeerId::new(number))] {
                            let why = "hung up".to_owned();
                            self.queue.push_back((at, Input::Net(NetEvent::Down { peer, epoch, why })));
                        }
                    }
                }
                Effect::Dial(address) => {
                    let to = address.trim_start_matches("host").trim_end_matches(":1").parse().unwrap();
                    self.dials.insert((number, to));
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
                    self.machines.get_mut(&number).unwrap().cluster = Some(*cluster);
                    self.queue.push_back((number, Input::Kept));
                }
                Effect::Members(addresses) => {
                    self.machines.get_mut(&number).unwrap().members.clone_from(addresses);
                }
                effect => {
                    let bad = matches!(effect, Effect::Notice(Notice::Strange(_) | Notice::Malformed(_)));
                    assert!(!bad, "{number} at {:?}: {effect:?}", self.now);
                }
            }
            if !matches!(effect, Effect::Send { .. } | Effect::Write { .. }) {
                self.machines.get_mut(&number).unwrap().heard.push(effect);
            }
        }
    }

    /// Everything that can happen at once.
    fn settle(&mut self) {
        loop {
            self.connect();
            let Some(at) = self.queue.iter().position(|(to, _)| !self.frozen.contains(to)) else { return };
            let (to, input) = self.queue.remove(at).unwrap();
            self.step(to, input);
        }
    }

    fn run(&mut self, span: Span) {
        let end = self.now + span;
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

    fn input(&mut self, number: u64, input: Input) {
        self.step(number, input);
        self.settle();
    }

    fn node(&self, number: u64) -> &Node {
        self.machines[&number].node.as_ref().expect("it runs")
    }

    /// A client asks; its ticket.
    fn acquire(&mut self, number: u64, wanted: Wanted) -> TicketId {
        let before = self.machines[&number].heard.len();
        self.input(number, Input::Acquire { call: 1, wanted });
        let heard = &self.machines[&number].heard[before..];
        let ticket = |effect: &Effect| match effect {
            Effect::Answer { answer: Ok(Answer::Ticket(ticket)), .. } => Some(*ticket),
            _ => None,
        };
        heard.iter().find_map(ticket).unwrap_or_else(|| panic!("no ticket: {heard:?}"))
    }

    fn fencing(&self, number: u64, ticket: TicketId) -> Option<u64> {
        self.node(number).grant(ticket).map(|(grant, _)| grant.fencing)
    }

    fn heard(&self, number: u64) -> &[Effect] {
        &self.machines[&number].heard
    }

    /// The last answer to a call.
    fn answer(&self, number: u64) -> Option<&Result<Answer, Error>> {
        self.heard(number).iter().rev().find_map(|effect| match effect {
            Effect::Answer { answer, .. } => Some(answer),
            _ => None,
        })
    }

    /// Where a ticket ended, and why.
    fn ended(&self, number: u64, ticket: TicketId) -> Option<&Error> {
        self.heard(number).iter().find_map(|effect| match effect {
            Effect::Ended(ended, why) if *ended == ticket => Some(why),
            _ => None,
        })
    }
}

fn wanted(name: &str) -> Wanted {
    Wanted {
        name: name.parse().unwrap(),
        slots: None,
        ttl: Span::from_secs(30),
        grace: Span::from_secs(6),
        kept: true,
        detached: None,
        wait: Wait::Forever,
        label: String::new(),
        session: SessionId(1),
        request: None,
    }
}

#[test]
fn who_founds_alone_grants_when_its_file_is_written() {
    let mut world = World::new();
    world.start(1, Origin::Founds(CLUSTER), &[]);
    world.run(Span::from_secs(3));
    assert!(world.heard(1).contains(&Effect::Joined));
    assert_eq!(world.machines[&1].cluster, Some(CLUSTER));
    let first = world.acquire(1, wanted("r"));
    let second = world.acquire(1, wanted("r"));
    assert!(world.fencing(1, first).is_some());
    assert_eq!(world.fencing(1, second), None);
    let before = world.fencing(1, first);
    world.input(1, Input::Release { call: None, ticket: first });
    assert!(world.fencing(1, second) > before);
}

#[test]
fn whoever_joins_shares_the_line() {
    let mut world = World::of(3);
    let first = world.acquire(1, wanted("r"));
    let others = [2, 3].map(|number| (number, world.acquire(number, wanted("r"))));
    assert!(world.fencing(1, first).is_some());
    let mut last = world.fencing(1, first);
    world.input(1, Input::Release { call: None, ticket: first });
    for (number, ticket) in others {
        assert!(world.fencing(number, ticket) > last, "{number}");
        last = world.fencing(number, ticket);
        world.input(number, Input::Release { call: None, ticket });
    }
    world.run(Span::from_secs(60));
    let again = world.acquire(1, wanted("r"));
    assert!(world.fencing(1, again) > last, "a minute later everybody still has its session");
    assert_eq!(world.node(1).counters().sessions_lost, 0);
}
