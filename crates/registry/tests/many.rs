//! Clusters with many resources.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use peerlock_registry::{
    ClusterId, Command, Config, EventKind, Identity, Info, Label, Member, Outcome, Output, SessionId, Ttl, Versions,
};
use peerlock_types::{PeerId, Rng, Span, Time};

const CLUSTER: ClusterId = ClusterId::new(3);
/// The longest message that the network accepts.
const MOST: usize = (1 << 20) - 1024;

fn identity(host: u64) -> Identity {
    let info = Info {
        name: Label::new(format!("host{host}")).unwrap(),
        addresses: Vec::new(),
        versions: Versions::OURS,
        keeps: true,
    };
    let ttl = Ttl::from_millis(15_000).unwrap();
    Identity { cluster: CLUSTER, host: PeerId::new(host), process: 1, info, ttl, predecessor: None }
}

struct World {
    members: BTreeMap<u64, Member>,
    now: Time,
    rng: Rng,
    loses: u64,
    is_slow: bool,
    too_long: usize,
    /// Generations whose `Close` was requested.
    closed: BTreeSet<(Label, u64)>,
    /// Censuses that complete per tick, and pending ones.
    pace: usize,
    uncounted: VecDeque<(u64, Command)>,
    sent: usize,
    joined: usize,
    ended: usize,
}

impl World {
    fn of(hosts: u64) -> Self {
        let mut members = BTreeMap::new();
        members.insert(1, Member::found(identity(1), Config::default(), Rng::new(1), Time::ZERO));
        let (closed, now, rng) = (BTreeSet::new(), Time::ZERO, Rng::new(9));
        let (pace, uncounted) = (usize::MAX, VecDeque::new());
        let mut world = Self {
            members,
            now,
            rng,
            loses: 0,
            is_slow: false,
            too_long: 0,
            closed,
            pace,
            uncounted,
            sent: 0,
            joined: 0,
            ended: 0,
        };
        world.ticks(3);
        (2..=hosts).for_each(|host| world.start(host));
        world.ticks(100);
        world
    }

    fn start(&mut self, host: u64) {
        let contacts = vec![PeerId::new(1)];
        let member = Member::new(identity(host), Config::default(), contacts, Rng::new(host), self.now);
        self.members.insert(host, member);
    }

    fn session(&self, host: u64) -> SessionId {
        self.members[&host].client().session().expect("it has a session")
    }

    fn ticks(&mut self, ticks: u64) {
        for _ in 0..ticks {
            self.now = self.now + Span::from_millis(50);
            let hosts: Vec<u64> = self.members.keys().copied().collect();
            for host in &hosts {
                self.members.get_mut(host).unwrap().wake(self.now);
            }
            let counted = self.uncounted.len().min(self.pace);
            for (host, close) in self.uncounted.drain(..counted) {
                self.members.get_mut(&host).unwrap().ask(close, self.now);
            }
            self.settle(&hosts);
        }
    }

    fn settle(&mut self, hosts: &[u64]) {
        let mut registry_messages: VecDeque<(u64, PeerId, Vec<u8>)> = VecDeque::new();
        let mut long = 0;
        loop {
            let mut is_quiet = true;
            for &host in hosts {
                let member = self.members.get_mut(&host).unwrap();
                for output in member.take_outputs() {
                    is_quiet = false;
                    match output {
                        Output::Send(_, bytes) if bytes.len() > MOST => self.too_long += 1,
                        Output::Send(to, bytes) => registry_messages.push_back((host, to, bytes)),
                        Output::Write { number, .. } => member.on_written(number, self.now),
                        Output::Event { resource, session, generation, kind: EventKind::Opened { asked, .. } } => {
                            self.sent += 1;
                            if self.closed.insert((resource.clone(), generation)) {
                                let remaining = asked.into_iter().map(|it| SessionId::new(it.number)).collect();
                                let close = Command::Close { session, resource, generation, remaining };
                                match self.pace {
                                    usize::MAX => _ = member.ask(close, self.now),
                                    _ => self.uncounted.push_back((host, close)),
                                }
                            }
                        }
                        Output::Answered(_, Outcome::Joined { .. }) => self.joined += 1,
                        Output::Answered(_, Outcome::Ended { .. }) => self.ended += 1,
                        Output::Event { .. } | Output::Answered(..) | Output::Found(..) | Output::Refused(_) => {}
                    }
                }
            }
            while let Some((from, to, bytes)) = registry_messages.pop_front() {
                is_quiet = false;
                let is_lost = self.loses > 0 && self.rng.below(self.loses) == 0;
                long += usize::from(bytes.len() > 1 << 17);
                let is_lost = is_lost || self.is_slow && bytes.len() > 1 << 17 && long > 1;
                if let Some(member) = self.members.get_mut(&to.get()).filter(|_| !is_lost) {
                    member.on_bytes(PeerId::new(from), &bytes, self.now).expect("a valid message");
                }
            }
            if is_quiet {
                return;
            }
        }
    }

    fn join(&mut self, hosts: &[u64], resources: usize) {
        let before = self.joined;
        for &host in hosts {
            let session = self.session(host);
            for number in 0..resources {
                let resource = Label::new(format!("a-resource-with-a-name-{number}")).unwrap();
                self.members.get_mut(&host).unwrap().ask(Command::Join { session, resource, slots: 1 }, self.now);
            }
        }
        for _ in 0..400 {
            self.ticks(1);
            if self.joined == before + hosts.len() * resources && self.open() == 0 {
                return;
            }
        }
        panic!("{} of {} joined, {} open", self.joined - before, hosts.len() * resources, self.open());
    }

    fn open(&self) -> usize {
        let state = self.members[&1].registry().expect("it votes").state();
        state.resources().values().filter(|resource| resource.coordinator().is_some() && !resource.is_closed()).count()
    }

    fn states(&self) -> Vec<usize> {
        let registries = self.members.values().filter_map(Member::registry);
        registries.map(|registry| registry.state().resources().len()).collect()
    }
}

/// A power loss in between could leave voters that also wait for a majority of the old ones.
#[test]
fn change_of_voters_is_settled_within_one_tick() {
    let mut world = World::of(1);
    [2, 3].into_iter().for_each(|host| world.start(host));
    let state = |world: &World, host| world.members[&host].registry().unwrap().state().clone();
    let started = (0..100).find(|_| {
        world.ticks(1);
        state(&world, 1).conf().voters.len() == 3
    });
    assert!(started.is_some(), "three hosts make three voters");
    for host in [1, 2, 3] {
        let state = state(&world, host);
        assert!(state.conf().outgoing.is_empty() && state.unsettled().is_none(), "{host}: {:?}", state.conf());
    }
}

#[test]
fn long_snapshot_is_sent_in_pieces() {
    for loses in [0, 9] {
        let mut world = World::of(1);
        world.join(&[1], 40_000);
        world.loses = loses;
        [2, 3].into_iter().for_each(|host| world.start(host));
        world.ticks(400);
        assert_eq!((world.states(), world.too_long), (vec![40_000; 3], 0), "one in {loses} messages is lost");
        let voters = world.members[&1].registry().unwrap().state().conf().voters.len();
        assert_eq!(voters, 3, "they have caught up");
    }
}

#[test]
fn outdated_snapshot_is_followed_by_the_next() {
    let mut world = World::of(1);
    world.join(&[1], 40_000);
    world.is_slow = true;
    [2, 3].into_iter().for_each(|host| world.start(host));
    for tick in 0..200 {
        // A snapshot is outdated before it has arrived.
        for slots in 0..if tick < 30 { 200 } else { 0 } {
            let resource = Label::new("a-resource-with-a-name-0").unwrap();
            world
                .members
                .get_mut(&1)
                .unwrap()
                .ask(Command::Resize { resource, slots: 1 + slots % 2, generation: 1 }, world.now);
            world.settle(&[1, 2, 3]);
        }
        world.ticks(1);
    }
    assert_eq!(world.members[&1].registry().unwrap().state().conf().voters.len(), 3, "they have caught up");
}

#[test]
fn end_of_session_with_many_resources_is_immediate() {
    let resources = std::env::var("RESOURCES").map_or(10_000, |value| value.parse().expect("a number"));
    let mut world = World::of(3);
    world.join(&[1, 2, 3], resources);
    let before = world.now;
    world.members.get_mut(&3).unwrap().stop(world.now);
    world.ticks(2);
    assert_eq!(world.ended, 1, "the session ends within 100 ms");
    let mut ticks = 0;
    while world.open() > 0 {
        let (session, joined) = (world.session(2), world.joined);
        let resource = Label::new(format!("new-{ticks}")).unwrap();
        world.members.get_mut(&2).unwrap().ask(Command::Join { session, resource, slots: 1 }, world.now);
        world.ticks(2);
        assert!(world.joined > joined, "tick {ticks}");
        ticks += 2;
        assert!(ticks < 200, "{} of {resources} are open after {:?}", world.open(), world.now.since(before));
    }
    println!("{resources} resources: closed {:?} after the end of a session", world.now.since(before));
    assert_eq!(world.too_long, 0);
}

/// Repetitions at a fixed interval would add to the load.
#[test]
fn slow_coordinator_receives_few_repetitions() {
    let resources = 6_000;
    for (pace, most) in [(100, 3), (25, 5)] {
        let mut world = World::of(3);
        world.join(&[1, 2, 3], resources);
        (world.sent, world.pace) = (0, pace);
        world.members.get_mut(&3).unwrap().stop(world.now);
        for _ in 0..4 * resources / pace {
            world.ticks(1);
        }
        println!("{pace} censuses per tick: {} generations, {} events", resources, world.sent);
        assert_eq!(world.open(), 0, "all are closed");
        assert!(world.sent <= most * resources, "{pace} censuses per tick: {} events", world.sent);
    }
}
