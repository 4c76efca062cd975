//! Joins, leaves, failures, loss and churn.

use peerlock_overlay::chord::Chord;
use peerlock_overlay::pastry::Pastry;
use peerlock_overlay::{Input, Overlay};
use peerlock_types::{Key, PeerId, Rng, Span};

use crate::for_both;
use crate::world::{Most, Subject, Tally, World, churn, seed};

for_both!(
    sequential_joins_converge,
    simultaneous_joins_converge,
    joins_complete_under_message_loss,
    restarted_peer_rejoins_within_seconds,
    lookups_recover_after_a_fifth_of_peers_fail,
    leaving_peers_lose_no_lookup,
    peer_without_neighbours_rejoins,
    churn_fails_less_than_one_percent_of_lookups,
    same_seed_gives_identical_trace,
    unreachable_reports_at_any_time_are_survived,
    two_overlays_merge_through_one_peer,
    joining_peers_do_not_route_in_circles,
);

/// Asserts that the peers route as with complete knowledge.
fn assert_settled<O: Subject>(world: &World<O>, expected: usize) {
    let members = world.members();
    assert_eq!(members.len(), expected, "all peers are in the ring");
    for (place, node) in members.iter().enumerate() {
        let (peer, ideal) = (world.overlay(node.peer), O::converged(&members, place, O::CONFIG));
        assert_eq!(peer.range(), ideal.range(), "{node:?} owns its keys");
        assert!(peer.neighbours().eq(ideal.neighbours()), "{node:?} has the right neighbours");
    }
}

fn assert_perfect(tally: Tally) {
    assert_eq!((tally.wrong, tally.lost), (0, 0), "{tally:?}");
    assert!(tally.right > 0, "there were lookups");
}

fn sequential_joins_converge<O: Subject>() {
    let mut world = World::<O>::new(seed(1));
    world.join(0, None);
    for peer in 1..64 {
        world.join(peer, Some(peer / 2));
        world.run(Span::from_secs(1));
        assert_eq!(world.ring.len() as u64, peer + 1, "{peer} has joined within a second");
        assert_perfect(world.survey(1));
    }
    world.run(Span::from_secs(300));
    assert_settled(&world, 64);
    assert_eq!((world.unexpected, world.silences), (0, 0), "every query is answered");
}

fn simultaneous_joins_converge<O: Subject>() {
    let mut world = World::<O>::new(seed(2));
    world.join(0, None);
    (1..64).for_each(|peer| world.join(peer, Some(0)));
    world.run(Span::from_secs(300));
    assert_settled(&world, 64);
    assert_perfect(world.survey(5));
    assert_eq!((world.unexpected, world.silences), (0, 0), "every query is answered");
}

#[test]
fn fingers_become_exact() {
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

#[test]
fn joining_peer_learns_fingers_within_seconds() {
    let mut world = World::<Chord>::converged(100, seed(3));
    world.join(100, Some(0));
    world.run(Span::from_secs(4));
    let members = world.members();
    let place = members.iter().position(|node| node.peer == PeerId::new(100)).expect("the peer has joined");
    let ideal = Chord::converged(&members, place, Chord::CONFIG);
    assert_eq!(world.overlay(PeerId::new(100)).fingers(), ideal.fingers());
}

#[test]
fn tables_fill_every_possible_place() {
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

fn joins_complete_under_message_loss<O: Subject>() {
    let mut world = World::<O>::new(seed(4));
    world.loss = 0.1;
    world.join(0, None);
    (1..40).for_each(|peer| world.join(peer, Some(0)));
    world.run(Span::from_secs(300));
    world.loss = 0.0;
    world.run(Span::from_secs(300));
    assert_settled(&world, 40);
}

fn restarted_peer_rejoins_within_seconds<O: Subject>() {
    let mut world = World::<O>::converged(50, seed(5));
    world.run(Span::from_secs(30));
    for peer in [3, 17, 29] {
        world.fail(PeerId::new(peer));
        world.run(Span::from_millis(500));
        world.join(peer, Some(peer + 1));
        world.run(Span::from_secs(2));
        assert!(world.overlay(PeerId::new(peer)).range().is_some(), "{peer} has joined before a round of upkeep");
    }
    world.run(Span::from_secs(200));
    assert_settled(&world, 50);
    assert_perfect(world.survey(2));
}

fn lookups_recover_after_a_fifth_of_peers_fail<O: Subject>() {
    let mut world = World::<O>::converged(1000, seed(6));
    world.run(Span::from_secs(20));
    (0..200).for_each(|peer| world.fail(PeerId::new(peer * 5)));
    world.run(Span::from_secs(60));
    assert_perfect(world.survey(5));
    // Half an hour later no peer lists a dead one.
    world.run(Span::from_secs(1800));
    assert_settled(&world, 800);
    let tally = world.survey(5);
    assert_perfect(tally);
    assert_eq!(tally.detours, 0);
}

fn leaving_peers_lose_no_lookup<O: Subject>() {
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
    // The departed peers have forwarded messages in flight by now.
    (0..40).for_each(|peer| world.fail(PeerId::new(peer * 5)));
    world.run(Span::from_secs(180));
    assert_settled(&world, 160);
    assert_perfect(world.survey(5));
}

fn peer_without_neighbours_rejoins<O: Subject>() {
    let mut world = World::<O>::converged(100, seed(8));
    let lonely = PeerId::new(42);
    let neighbours: Vec<PeerId> = world.overlay(lonely).neighbours().map(|node| node.peer).collect();
    neighbours.into_iter().for_each(|peer| world.input(lonely, Input::Unreachable(peer)));
    assert!(world.overlay(lonely).neighbours().next().is_some(), "the peers for long hops are still known");
    world.run(Span::from_secs(200));
    assert_settled(&world, 100);
}

/// A loose bound. `benches/overlays.rs` measures the rate.
fn churn_fails_less_than_one_percent_of_lookups<O: Subject>() {
    let tally = churn::<O>(1000, Span::from_secs(600), Span::from_secs(300), true, seed(9)).tally;
    let bad = (tally.wrong + tally.lost) as f64 / tally.total() as f64;
    assert!(bad < 0.01, "{bad} of all lookups were wrong or lost: {tally:?}");
}

fn same_seed_gives_identical_trace<O: Subject>() {
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
    assert!(trace(10) != trace(11), "the seed has no effect");
}

fn unreachable_reports_at_any_time_are_survived<O: Subject>() {
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
        // The overlay may be partitioned.
        world.run(Span::from_secs(100));
        (1..20).for_each(|peer| world.input(PeerId::new(peer), Input::Join(Some(PeerId::new(0)))));
        world.run(Span::from_secs(300));
        assert_settled(&world, 20);
        assert_perfect(world.survey(1));
    }
}

fn two_overlays_merge_through_one_peer<O: Subject>() {
    let mut world = World::<O>::new(seed(12));
    world.join(0, None);
    world.join(1, None);
    (2..60).for_each(|peer| world.join(peer, Some(peer % 2)));
    world.run(Span::from_secs(100));
    world.input(PeerId::new(7), Input::Join(Some(PeerId::new(8))));
    world.run(Span::from_secs(600));
    assert_settled(&world, 60);
}

fn joining_peers_do_not_route_in_circles<O: Subject>() {
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
                assert!(tenth < 20 || world.ring.len() == peers, "all peers have joined after two seconds");
            }
            world.run(Span::from_secs(30));
            let Most { own, looked_up } = world.most_hops;
            assert!(own <= 16 && looked_up <= 24, "{own} hops of a join or a search, {looked_up} of a lookup");
            assert_eq!((world.tally.lost, world.unexpected), (0, 0));
        }
    }
}
