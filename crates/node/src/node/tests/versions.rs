//! Programs of several versions in one cluster. There is one version so far; the tests simulate later ones.

use peerlock_registry::{Refusal, Versions};
use peerlock_types::Span;

use super::world::{World, wanted};
use super::*;
use crate::Origin;

const NEXT: Versions = Versions { min: 1, max: 2 };
/// The release after the next.
const LATER: Versions = Versions { min: 2, max: 3 };

fn in_turn(world: &mut World, mut last: Option<u64>) -> Option<u64> {
    for number in 1..=3 {
        let ticket = world.acquire(number, wanted("r"));
        world.run(Span::from_secs(1));
        let fencing = world.fencing(number, ticket);
        assert!(fencing > last, "{number}: {fencing:?} after {last:?}, {:?}", world.node(number).problem());
        last = fencing;
        world.input(number, Input::Release { call: None, ticket });
    }
    last
}

fn is_refused(effect: &Effect) -> bool {
    matches!(effect, Effect::Notice(Notice::Refused(Refusal::Version(_))))
}

#[test]
fn rolling_upgrade_keeps_the_cluster_available() {
    let mut world = World::of(3);
    let mut last = in_turn(&mut world, None);
    for versions in [NEXT, LATER] {
        world.versions = versions;
        for number in 1..=3 {
            world.kill(number);
            world.restart(number);
            // The session of the previous process ends first.
            world.run(Span::from_secs(40));
            last = in_turn(&mut world, last);
        }
    }
    assert!((1..=3).all(|number| !world.received(number).iter().any(is_refused)));
    // All hosts support version 3, so the registry uses it. A host that was not upgraded is refused.
    world.versions = NEXT;
    world.start(4, Origin::Seeks { expect: None }, &[1]);
    world.run(Span::from_secs(5));
    assert!(world.received(4).iter().any(is_refused) && !world.received(4).contains(&Effect::Joined));
}

#[test]
fn programs_without_a_common_version_refuse_each_other() {
    let mut world = World::of(1);
    world.versions = LATER;
    world.start(2, Origin::Seeks { expect: None }, &[1]);
    (0..3).for_each(|_| world.run(Span::from_secs(5)));
    for (number, ours, theirs) in [(1, "1", "2 to 3"), (2, "2 to 3", "1")] {
        let sentence = |effect: &Effect| match effect {
            Effect::Notice(Notice::Problem(error @ Error::OtherVersion { .. })) => Some(error.to_string()),
            _ => None,
        };
        let said: Vec<String> = world.received(number).iter().filter_map(sentence).collect();
        let words =
            format!("supports version {theirs} of peerlock's messages, and this program {ours}: upgrade the older");
        assert!(said.len() == 1 && said[0].contains(&words), "once, not at every attempt: {said:?}");
    }
    assert!(world.received(2).contains(&Effect::NotJoined));
    assert!(matches!(world.node(2).problem(), Some(Error::OtherVersion { .. })));
    let ticket = world.acquire(1, wanted("r"));
    assert!(world.fencing(1, ticket).is_some(), "the first continues");
}

/// The messages could still be decoded.
#[test]
fn host_without_the_registry_version_is_refused() {
    let mut world = World::new();
    world.versions = NEXT;
    world.start(1, Origin::Founds(world::CLUSTER), &[]);
    world.run(Span::from_secs(2));
    world.versions = Versions::OURS;
    world.start(2, Origin::Seeks { expect: None }, &[1]);
    world.run(Span::from_secs(5));
    assert!(world.received(2).iter().any(is_refused), "{:?}", world.received(2));
    assert!(!world.received(2).contains(&Effect::Joined));
}
