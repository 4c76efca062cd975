//! Overlays that have to find and keep their order: joins, leaves, failures, loss and churn.

use peerlock_base::{Key, PeerId, Rng, Span};
use peerlock_overlay::chord::Chord;
use peerlock_overlay::pastry::Pastry;
use peerlock_overlay::{Input, Overlay};

use crate::for_both;
use crate::world::{Most, Subject, Tally, World, churn, seed};

for_both!(
    joins_one_by_one_give_the_converged_overlay,
    joins_all_at_once_give_the_converged_overlay,
    joins_get_through_when_messages_are_lost,
    a_peer_that_comes_back_finds_its_place_again,
    lookups_are_right_again_after_a_fifth_of_the_peers_failed,
    leaving_loses_nothing,
    a_peer_cut_off_from_all_neighbours_finds_back,
    churn_does_little_harm,
    the_same_seed_gives_the_same_bytes,
    anybody_may_be_unreachable_at_any_time,
    two_overlays_grow_together_through_one_peer,
    newcomers_do_not_send_each_other_in_circles,
);

/// Everybody in the ring has the neighbours and owns the keys that knowledge of all peers would give it.
fn assert_settled<O: Subject>(world: &World<O>, expected: usize) {
    let members = world.members();
    assert_eq!(members.len(), expected, "everybody is in the ring");
    for (place, node) in members.iter().enumerate() {
        let (peer, ideal) = (world.overlay(node.peer), O::converged(&members, place, O::CONFIG));
        assert_eq!(peer.range(), ideal.range(), "{node:?} owns what it should");
        assert!(peer.neighbours().eq(ideal.neighbours()), "{node:?} has the right neighbours");
    }
}

/// All lookups went right.
fn assert_perfect(tally: Tally) {
    assert_eq!((tally.wrong, tally.lost), (0, 0), "{tally:?}");
    assert!(tally.right > 0, "there were lookups");
}

fn joins_one_by_one_give_the_converged_overlay<O: Subject>() {
    let mut world = World::<O>::new(seed(1));
    world.join(0, None);
    for peer in 1..64 {
        world.join(peer, Some(peer / 2));
        world.run(Span::from_secs(1));
        assert_eq!(world.ring.len() as u64, peer + 1, "{peer} is in within a second");
        assert_perfect(world.survey(1));
    }
    world.run(Span::from_secs(300));
    assert_settled(&world, 64);
    assert_eq!((world.strange, world.silences), (0, 0), "whatever is asked is answered");
}

fn joins_all_at_once_give_the_converged_overlay<O: Subject>() {
    let mut world = World::<O>::new(seed(2));
    world.join(0, None);
    (1..64).for_each(|peer| world.join(peer, Some(0)));
    world.run(Span::from_secs(300));
    assert_settled(&world, 64);
    assert_perfect(world.survey(5));
    assert_eq!((world.strange, world.silences), (0, 0), "whatever is asked is answered");
}

/// Fingers are not a matter of choice: after some rounds every one is the right one.
#[test]
fn fingers_come_to_be_exact() {
    let mut world = World::<Chord>::new(seed(3));
    world.join(0, None);
    (1..64).for_each(|peer| world.join(peer, Some(0)));
    world.run(Span::from_secs(600));
    let members = world.members();
    for (place, node) in members.iter().enumerate() {
        let ideal = Chord::converged(&members, place, Chord::CONFIG);
        assert_eq!(world.overlay(node.peer).fingers(), ideal.fingers(), "{node:?}");
    }
}

/// A newcomer does not wait for its rounds of upkeep to learn of all its fingers.
#[test]
fn a_newcomer_has_its_fingers_within_seconds() {
    let mut world = World::<Chord>::converged(100, seed(3));
    world.join(100, Some(0));
    world.run(Span::from_secs(4));
    let members = world.members();
    let place = members.iter().position(|node| node.peer == PeerId::new(100)).expect("it is in");
    let ideal = Chord::converged(&members, place, Chord::CONFIG);
    assert_eq!(world.overlay(PeerId::new(100)).fingers(), ideal.fingers());
}

/// Which peer has a place in the table is a matter of choice, but no place stays empty that could be taken.
#[test]
fn tables_fill_up() {
    let mut world = World::<Pastry>::new(seed(3));
    world.join(0, None);
    (1..200).for_each(|peer| world.join(peer, Some(0)));
    world.run(Span::from_secs(600));
    let members = world.members();
    let ideal = |place| Pastry::converged(&members, place, Pastry::CONFIG).table().len();
    let places: usize = (0..members.len()).map(ideal).sum();
    let taken: usize = members.iter().map(|node| world.overlay(node.peer).table().len()).sum();
    assert_eq!(taken, places);
}

fn joins_get_through_when_messages_are_lost<O: Subject>() {
    let mut world = World::<O>::new(seed(4));
    world.loss = 0.1;
    world.join(0, None);
    (1..40).for_each(|peer| world.join(peer, Some(0)));
    world.run(Span::from_secs(300));
    world.loss = 0.0;
    world.run(Span::from_secs(300));
    assert_settled(&world, 40);
}

fn a_peer_that_comes_back_finds_its_place_again<O: Subject>() {
    let mut world = World::<O>::converged(50, seed(5));
    world.run(Span::from_secs(30));
    for peer in [3, 17, 29] {
        world.fail(PeerId::new(peer));
        // Nobody has noticed yet when it is back, with an empty memory.
        world.run(Span::from_millis(500));
        world.join(peer, Some(peer + 1));
        world.run(Span::from_secs(2));
        assert!(
            world.overlay(PeerId::new(peer)).range().is_some(),
            "{peer} did not have to wait for a round of upkeep"
        );
    }
    world.run(Span::from_secs(200));
    assert_settled(&world, 50);
    assert_perfect(world.survey(2));
}

fn lookups_are_right_again_after_a_fifth_of_the_peers_failed<O: Subject>() {
    let mut world = World::<O>::converged(1000, seed(6));
    world.run(Span::from_secs(20));
    (0..200).for_each(|peer| world.fail(PeerId::new(peer * 5)));
    world.run(Span::from_secs(60));
    assert_perfect(world.survey(5));
    // Half an hour later nobody speaks of the dead any more: there is nothing to go around.
    world.run(Span::from_secs(1800));
    assert_settled(&world, 800);
    let tally = world.survey(5);
    assert_perfect(tally);
    assert_eq!(tally.detours, 0);
}

fn leaving_loses_nothing<O: Subject>() {
    let mut world = World::<O>::converged(200, seed(7));
    for peer in 0..40 {
        for _ in 0..25 {
            world.look_up_somewhere();
        }
        world.leave(PeerId::new(peer * 5));
        for _ in 0..25 {
            world.look_up_somewhere();
        }
        world.run(Span::from_secs(1));
    }
    world.run(Span::from_secs(20));
    assert_eq!(world.tally.total(), 2000);
    assert_perfect(world.tally);
    // So far they stayed, to hand on what was under way. Now they are not needed any more.
    (0..40).for_each(|peer| world.fail(PeerId::new(peer * 5)));
    world.run(Span::from_secs(180));
    assert_settled(&world, 160);
    assert_perfect(world.survey(5));
}

fn a_peer_cut_off_from_all_neighbours_finds_back<O: Subject>() {
    let mut world = World::<O>::converged(100, seed(8));
    let lonely = PeerId::new(42);
    let neighbours: Vec<PeerId> = world.overlay(lonely).neighbours().map(|node| node.peer).collect();
    neighbours.into_iter().for_each(|peer| world.input(lonely, Input::Unreachable(peer)));
    assert!(world.overlay(lonely).neighbours().next().is_some(), "there are still those for long jumps");
    world.run(Span::from_secs(200));
    assert_settled(&world, 100);
}

/// A loose bound; `examples/overlays.rs` reports what it is for the numbers in docs/overlays.md.
fn churn_does_little_harm<O: Subject>() {
    let tally = churn::<O>(1000, Span::from_secs(600), Span::from_secs(300), true, seed(9)).tally;
    let bad = (tally.wrong + tally.lost) as f64 / tally.total() as f64;
    assert!(bad < 0.01, "{bad} of all lookups were wrong or lost: {tally:?}");
}

fn the_same_seed_gives_the_same_bytes<O: Subject>() {
    let trace = |seed| {
        let mut world = World::<O>::converged(30, seed);
        world.trace = Some(String::new());
        world.loss = 0.05;
        (0..5).for_each(|peer| world.fail(PeerId::new(peer)));
        (30..40).for_each(|peer| world.join(peer, Some(10)));
        world.run(Span::from_secs(60));
        world.survey(1);
        world.trace.take()
    };
    assert!(trace(10) == trace(10), "two runs of one seed differ");
    assert!(trace(10) != trace(11), "the seed means nothing");
}

fn anybody_may_be_unreachable_at_any_time<O: Subject>() {
    let first = seed(0);
    for seed in first..first + 20 {
        println!("{seed}");
        let mut world = World::<O>::new(seed);
        let mut rng = Rng::new(seed);
        world.join(0, None);
        for peer in 1..20 {
            world.join(peer, Some(rng.below(peer)));
            for _ in 0..10 {
                let (at, to) = (PeerId::new(rng.below(peer + 1)), PeerId::new(rng.below(25)));
                world.input(at, Input::Unreachable(to));
                world.run(rng.between(Span::ZERO, Span::from_millis(400)));
                world.look_up(at, Key::of_peer(to));
            }
        }
        // Some may have been talked out of everybody they knew, and the overlay may have fallen apart.
        world.run(Span::from_secs(100));
        (1..20).for_each(|peer| world.input(PeerId::new(peer), Input::Join(Some(PeerId::new(0)))));
        world.run(Span::from_secs(300));
        assert_settled(&world, 20);
        assert_perfect(world.survey(1));
    }
}

fn two_overlays_grow_together_through_one_peer<O: Subject>() {
    let mut world = World::<O>::new(seed(12));
    world.join(0, None);
    world.join(1, None);
    (2..60).for_each(|peer| world.join(peer, Some(peer % 2)));
    world.run(Span::from_secs(100));
    world.input(PeerId::new(7), Input::Join(Some(PeerId::new(8))));
    world.run(Span::from_secs(600));
    assert_settled(&world, 60);
}

/// Whatever the overlay sends from hop to hop itself comes to an end, and soon: each hop is nearer to the key. Sixty
/// peers that all come at once, a chain of peers that join through each other, and neighbours that come back together
/// with nothing in memory knew so little of each other that joins circled for 228 hops, and lookups for 175.
fn newcomers_do_not_send_each_other_in_circles<O: Subject>() {
    let first = seed(1);
    for seed in first..first + 20 {
        println!("{seed}");
        let mut at_once = World::<O>::new(seed);
        at_once.join(0, None);
        (1..64).for_each(|peer| at_once.join(peer, Some(0)));

        let mut chain = World::<O>::new(seed);
        chain.join(0, None);
        (1..32).for_each(|peer| chain.join(peer, Some(peer / 2)));

        let mut back = World::<O>::converged(50, seed);
        back.run(Span::from_secs(30));
        let ring = back.members();
        let peer = |place: u64| ring[((seed * 3 + place) % 50) as usize].peer;
        (0..5).for_each(|place| back.fail(peer(place)));
        (0..5).for_each(|place| back.join(peer(place).get(), Some(peer(10).get())));

        for (mut world, peers) in [(at_once, 64), (chain, 32), (back, 50)] {
            for tenth in 0..200 {
                (0..5).for_each(|_| world.look_up_somewhere());
                world.run(Span::from_millis(100));
                assert!(tenth < 20 || world.ring.len() == peers, "all are in after two seconds");
            }
            world.run(Span::from_secs(30));
            let Most { own, looked_up } = world.most_hops;
            assert!(own <= 16 && looked_up <= 24, "{own} hops of a join or a search, {looked_up} of a lookup");
            assert_eq!((world.tally.lost, world.strange), (0, 0));
        }
    }
}
