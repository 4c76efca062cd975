//! A cluster that was recovered while sessions of the old one were still valid.

use super::*;

fn follows(world: &World) -> bool {
    world.received(1).iter().any(|effect| matches!(effect, Effect::Notice(Notice::Recovered { .. })))
}

fn contradicts(world: &World) -> bool {
    world.received(1).iter().any(|effect| matches!(effect, Effect::Notice(Notice::RecoveredBeside { .. })))
}

#[test]
fn host_follows_a_cluster_that_was_recovered_at_once() {
    let mut world = World::of(3);
    [2, 3].into_iter().for_each(|number| world.kill(number));
    world.start(2, Origin::Founds(CLUSTER.recovered(7)), &[1]);
    (0..8).for_each(|_| world.run(Span::from_secs(1)));
    assert!(!follows(&world), "its session is valid");
    (0..20).for_each(|_| world.run(Span::from_secs(1)));
    assert!(follows(&world));
    assert!(!contradicts(&world), "the cluster has had no majority since");
}

#[test]
fn session_that_is_renewed_contradicts_a_recovery() {
    let mut world = World::of(3);
    world.spoils = Some((9, Box::new(|bytes| bytes))); // Recorded as unexpected.
    world.kill(3);
    world.start(3, Origin::Founds(CLUSTER.recovered(7)), &[1]);
    (0..20).for_each(|_| world.run(Span::from_secs(1)));
    assert!(contradicts(&world) && !follows(&world));
}
