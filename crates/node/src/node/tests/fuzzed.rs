//! A fuzzing member ([`Fuzzer`]) among three correct ones.
//!
//! Members trust each other: messages of a false voter or about a false token may stall a resource, or grant a slot
//! twice. But no process may end, use unbounded memory, or dial arbitrary addresses; and where the fuzzing member
//! spares a resource and the registry, all clients are served.
//!
//! `SEED=12 SEEDS=1000 cargo test -p peerlock-node --lib fuzzed -- --nocapture` runs other seeds.

use std::collections::BTreeMap;

use super::world::{World, wanted};
use super::*;
use crate::Name;
use crate::testing::fuzz::Fuzzer;
use crate::verb::Show;

const MAX_RETAINED: usize = 20_000;
const MOST_DIALS: usize = 400;
const NINE: u64 = 9;

struct Run {
    world: World,
    fuzzer: Fuzzer,
    rng: Rng,
    waits: BTreeMap<u64, (TicketId, Time)>,
    entries: u64,
    longest: Span,
}

impl Run {
    fn new(seed: u64, spared: Option<&Name>) -> Self {
        let mut world = World::of(3);
        world.spoils = Some((NINE, Box::new(|bytes| bytes)));
        world.overheard = Some((NINE, Vec::new()));
        world.start(NINE, Origin::Seeks { expect: None }, &[1, 2, 3]);
        world.run(Span::from_secs(2));
        let fuzzer = Fuzzer::new(seed);
        let fuzzer = match spared {
            Some(name) => fuzzer.sparing(name),
            None => fuzzer,
        };
        let (waits, longest) = (BTreeMap::new(), Span::ZERO);
        Self { world, fuzzer, rng: Rng::stream(seed, 1), waits, entries: 0, longest }
    }

    fn round(&mut self) {
        let world = &mut self.world;
        let number = [1, 2, 3, NINE][self.rng.below(4) as usize];
        let wanted = Wanted {
            wait: Wait::For(Span::from_secs(3)),
            slots: Some(2),
            ..wanted(&format!("r{}", self.rng.below(3)))
        };
        world.input(number, Input::Acquire { call: 1, wanted: wanted.clone() });
        world.input(number, Input::call(2, Show { name: wanted.name }));
        for bytes in world.overheard.iter_mut().flat_map(|(_, received)| received.drain(..)) {
            self.fuzzer.receive(&bytes);
        }
        for _ in 0..self.rng.below(20) {
            let to = 1 + self.rng.below(3);
            world.inject(NINE, to, self.fuzzer.frame());
        }
        world.run(Span::from_millis(self.rng.below(80)));
        let granted: Vec<(u64, TicketId)> = world
            .machines
            .iter_mut()
            .flat_map(|(number, machine)| {
                machine.received.drain(..).filter_map(|effect| match effect {
                    Effect::Granted { ticket, .. } => Some((*number, ticket)),
                    _ => None,
                })
            })
            .collect();
        for (number, ticket) in granted {
            if let Some((_, since)) = self.waits.get(&number).filter(|(waits, _)| *waits == ticket) {
                self.longest = self.longest.max(world.now.since(*since));
                self.entries += 1;
                self.waits.remove(&number);
            }
            world.input(number, Input::Release { call: None, ticket });
        }
    }

    fn ask(&mut self, spared: &Name) {
        for number in 1..=3 {
            if !self.waits.contains_key(&number) {
                let wanted = Wanted { name: spared.clone(), ..wanted("x") };
                let before = self.world.machines[&number].received.len();
                self.world.input(number, Input::Acquire { call: 3, wanted });
                let received = &self.world.machines[&number].received[before..];
                let ticket = received.iter().find_map(|effect| match effect {
                    Effect::Answer { call: 3, answer: Ok(Answer::Ticket(ticket)) } => Some(*ticket),
                    _ => None,
                });
                self.waits.insert(number, (ticket.expect("there is room"), self.world.now));
            }
        }
    }

    fn retained(&self) -> usize {
        (1..=3).map(|number| self.world.node(number).retained()).max().unwrap_or_default()
    }

    fn dials(&self) -> usize {
        (1..=3).map(|number| self.world.node(number).membership.dialled.len()).max().unwrap_or_default()
    }
}

fn seeds(usual: u64) -> std::ops::Range<u64> {
    let number = |name, usual| std::env::var(name).map_or(usual, |value| value.parse().expect("a number"));
    let first = number("SEED", 0);
    first..first + number("SEEDS", usual)
}

fn report(seed: u64, run: &Run) {
    let unexpected: u64 = (1..=3).map(|number| run.world.node(number).counters().unexpected).sum();
    let malformed: u64 = (1..=3).map(|number| run.world.node(number).counters().malformed).sum();
    println!(
        "seed {seed}: {:?}, {unexpected} unexpected, {malformed} malformed, {} stored, {} grants, longest wait {:?}",
        run.fuzzer.made(),
        run.retained(),
        run.entries,
        run.longest
    );
    assert!(unexpected + malformed > 100, "seed {seed}: unexpected messages are counted");
}

#[test]
fn fuzzing_member_crashes_no_peer_and_memory_is_bounded() {
    for seed in seeds(20) {
        let mut run = Run::new(seed, None);
        let before = run.retained();
        for _ in 0..300 {
            run.round();
            assert!(run.retained() < before + MAX_RETAINED, "seed {seed}: {} are stored", run.retained());
            assert!(run.dials() < MOST_DIALS, "seed {seed}: {} are dialled", run.dials());
        }
        report(seed, &run);
    }
}

#[test]
fn fuzzing_member_does_not_affect_a_spared_resource() {
    let spared: Name = "spared".parse().unwrap();
    for seed in seeds(20) {
        let mut run = Run::new(seed, Some(&spared));
        for _ in 0..300 {
            run.ask(&spared);
            run.round();
        }
        report(seed, &run);
        run.world.spoils = None;
        let waits = run.waits.values().map(|(_, since)| run.world.now.since(*since)).max().unwrap_or_default();
        assert!(
            run.entries > 200 && run.longest.max(waits) < Span::from_secs(10),
            "seed {seed}: {} grants",
            run.entries
        );
    }
}
