//! A new leader counts sessions from the last round that its voters took part in (see `leases.rs`).
//!
//! ```text
//!   three voters 1, 2, 3 and a peer; 1 leads, and 3 receives nothing from it
//!   peer ── renew ──► 1 ── round ──► 2        a majority, without 3
//!   then 1 dies, and 2 elects 3;  or 2 dies, 1 steps down, and one of 1 and 3 elects the other
//! ```
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::collections::BTreeMap;

use peerlock_registry::{ClusterId, Config, Identity, Info, Label, Member, Mutation, Output, SessionId, Ttl, Versions};
use peerlock_types::{PeerId, Rng, Span, Time};

const CLUSTER: ClusterId = ClusterId::new(3);
/// It never votes.
const PEER: u64 = 4;

fn identity(host: u64) -> Identity {
    let name = Label::new(format!("host{host}")).unwrap();
    let info = Info { name, addresses: Vec::new(), versions: Versions::OURS, keeps: host != PEER };
    let ttl = Ttl::from_millis(15_000).unwrap();
    Identity { cluster: CLUSTER, host: PeerId::new(host), process: 1, info, ttl, predecessor: None }
}

struct World {
    members: BTreeMap<u64, Member>,
    now: Time,
    cut: Vec<(u64, u64)>,
}

impl World {
    fn new(mutation: Option<Mutation>, seed: u64) -> Self {
        let config = Config { mutation, ..Config::default() };
        let founder = Member::found(identity(1), config, Rng::new(seed), Time::ZERO);
        let mut world = Self { members: BTreeMap::from([(1, founder)]), now: Time::ZERO, cut: Vec::new() };
        world.ticks(3);
        for host in 2..=PEER {
            let contacts = vec![PeerId::new(1)];
            let member = Member::new(identity(host), config, contacts, Rng::new(seed + host), world.now);
            world.members.insert(host, member);
        }
        world.ticks(200);
        assert_eq!(world.leader(), Some(1), "the founder leads");
        world
    }

    fn leader(&self) -> Option<u64> {
        let leads = |member: &Member| member.registry().is_some_and(|registry| registry.is_leader());
        self.members.iter().find(|(_, member)| leads(member)).map(|(host, _)| *host)
    }

    fn session(&self) -> SessionId {
        self.members[&PEER].client().session().unwrap()
    }

    fn is_over(&self, session: SessionId) -> bool {
        let ended = |member: &Member| member.registry().is_some_and(|registry| registry.state().is_over(session));
        self.members.values().any(ended)
    }

    fn receives(&self, a: u64, b: u64) -> bool {
        !self.cut.contains(&(a, b)) && !self.cut.contains(&(b, a))
    }

    fn ticks(&mut self, ticks: u64) {
        for _ in 0..ticks {
            self.now = self.now + Span::from_millis(50);
            self.members.values_mut().for_each(|member| member.wake(self.now));
            self.settle();
        }
    }

    fn settle(&mut self) {
        loop {
            let mut registry_messages = Vec::new();
            let mut is_quiet = true;
            for (&from, member) in &mut self.members {
                for output in member.take_outputs() {
                    is_quiet = false;
                    match output {
                        Output::Send(to, bytes) => registry_messages.push((from, to.get(), bytes)),
                        Output::Write { number, .. } => member.on_written(number, self.now),
                        Output::Event { .. } | Output::Answered(..) | Output::Found(..) | Output::Refused(_) => {}
                    }
                }
            }
            if is_quiet {
                return;
            }
            for (from, to, bytes) in registry_messages {
                if self.receives(from, to)
                    && let Some(member) = self.members.get_mut(&to)
                {
                    member.on_bytes(PeerId::new(from), &bytes, self.now).unwrap();
                }
            }
        }
    }
}

struct Outcome {
    is_broken: bool,
    ended_after: Span,
}

/// Voter 3 does not reach the leader. Then the peer is cut off, and `dies` is killed.
fn run(dies: u64, mutation: Option<Mutation>, seed: u64) -> Outcome {
    let mut world = World::new(mutation, seed);
    world.cut.push((1, 3));
    world.ticks(20 * 8);
    assert_eq!(world.leader(), Some(1), "two of three are a majority, and no election starts");
    let (session, last) = (world.session(), world.now);
    world.members.remove(&dies);
    world.cut.extend((1..PEER).map(|voter| (PEER, voter)));
    if dies == 2 {
        while world.leader().is_some() {
            world.ticks(1);
        }
        world.cut.retain(|cut| *cut != (1, 3));
    }
    let mut is_broken = false;
    while !world.is_over(session) {
        world.ticks(1);
        is_broken |= world.is_over(session) && world.members[&PEER].client().stands(world.now) == Some(session);
        assert!(world.now.since(last) < Span::from_secs(60), "no leader ends the session");
    }
    Outcome { is_broken, ended_after: world.now.since(last) }
}

#[test]
fn new_leader_counts_from_last_round_of_its_voters() {
    for (dies, seed) in [1, 2].into_iter().flat_map(|dies| (0..10).map(move |seed| (dies, seed))) {
        let outcome = run(dies, None, seed);
        assert!(!outcome.is_broken, "{dies} dies, seed {seed}");
        // From the last heartbeat, not from the election one or two seconds later.
        let (from, to) = (Span::from_millis(15_450), Span::from_millis(15_850));
        let took = outcome.ended_after;
        assert!(dies == 2 || from <= took && took <= to, "{dies} dies, seed {seed}: ended after {took}");
    }
}

#[test]
fn ignoring_rounds_of_other_voters_is_detected() {
    for (dies, mutation) in [(1, Mutation::ReceivesAlone), (2, Mutation::ForgetsOwnRounds)] {
        let broken = (0..10).filter(|&seed| run(dies, Some(mutation), seed).is_broken).count();
        println!("{mutation:?}: {broken} of 10");
        assert!(broken > 0, "{mutation:?} was not detected");
    }
}
