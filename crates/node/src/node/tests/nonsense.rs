//! A member whose messages are corrupted: real traffic with bytes changed, cut, repeated and recombined.
//!
//! Members trust each other, so it may stall resources that it is a party of. It must not end another process, and its
//! malformed messages are counted.
//!
//! `SEED=12 SEEDS=1000 cargo test -p peerlock-node --lib nonsense` runs other seeds.

use super::world::{Spoil, World, wanted};
use super::*;
use crate::verb::Show;

/// Returns a function that corrupts one in so many messages.
fn spoil(seed: u64, one_in: u64) -> Spoil {
    let mut rng = Rng::new(seed);
    let mut earlier: Vec<Vec<u8>> = Vec::new();
    Box::new(move |mut bytes| {
        if earlier.len() < 1000 {
            earlier.push(bytes.clone());
        }
        if rng.below(one_in) > 0 {
            return bytes;
        }
        // Half of the time version, frame and numbers stay, so that the payload is decoded.
        let first = rng.below(2) * 4;
        for _ in 0..=rng.below(4) {
            let place = (first + rng.below(bytes.len() as u64)) as usize;
            match (rng.below(6), bytes.get_mut(place)) {
                (0 | 1, Some(byte)) => *byte ^= 1 << rng.below(8),
                (2, Some(byte)) => *byte = rng.bits() as u8,
                (3, Some(_)) => bytes.truncate(place.max(1)),
                (4, Some(_)) => bytes.extend_from_within(place..),
                _ => {
                    let other = &earlier[rng.below(earlier.len() as u64) as usize];
                    bytes.truncate(place.max(1));
                    bytes.extend(other.iter().skip(place));
                }
            }
        }
        bytes
    })
}

#[test]
fn member_with_corrupted_messages_crashes_no_peer() {
    let number = |name, usual| std::env::var(name).map_or(usual, |value| value.parse().expect("a number"));
    let (first, seeds) = (number("SEED", 0), number("SEEDS", 12));
    let mut counters = Counters::default();
    for seed in first..first + seeds {
        let mut world = World::of(3);
        world.spoils = Some((9, spoil(seed, [2, 5, 20][seed as usize % 3])));
        // It may fail to join.
        world.start(9, Origin::Seeks { expect: None }, &[1]);
        let rng = &mut Rng::stream(seed, 1);
        for _ in 0..400 {
            let number = [1, 2, 3, 9][rng.below(4) as usize];
            let name = format!("r{}", rng.below(3));
            let wanted = Wanted { wait: Wait::For(Span::from_secs(3)), slots: Some(2), ..wanted(&name) };
            world.input(number, Input::Acquire { call: 1, wanted });
            world.input(number, Input::call(2, Show { name: name.parse().unwrap() }));
            world.run(Span::from_millis(rng.below(80)));
            let received = world
                .machines
                .iter_mut()
                .flat_map(|(number, machine)| machine.received.drain(..).map(|effect| (*number, effect)));
            let granted = |(number, effect)| match effect {
                Effect::Granted { ticket, .. } => Some((number, ticket)),
                _ => None,
            };
            for (number, ticket) in received.filter_map(granted).collect::<Vec<_>>() {
                world.input(number, Input::Release { call: None, ticket });
            }
        }
        for number in 1..=3 {
            let Counters { malformed, unexpected, .. } = world.node(number).counters();
            counters.malformed += malformed;
            counters.unexpected += unexpected;
        }
    }
    assert!(counters.malformed > 100 && counters.unexpected > 100, "corrupted messages are counted: {counters:?}");
}
