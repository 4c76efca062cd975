//! Nobody is linked with everybody.

use std::collections::BTreeSet;

use peerlock_base::Span;

use super::super::*;
use super::world::{World, wanted};
use crate::NetEvent;

const MINUTE: Span = Span::from_secs(60);

impl World {
    /// The hosts that vote, as one of them knows.
    fn voters(&self) -> BTreeSet<u64> {
        let register = self.machines.values().find_map(|it| it.node.as_ref()?.register());
        register.expect("somebody votes").state().voter_hosts().into_iter().map(PeerId::get).collect()
    }

    fn links_of(&self, number: u64) -> BTreeSet<u64> {
        let ends = self.up.keys().filter(|(a, b)| *a == number || *b == number);
        ends.map(|(a, b)| if *a == number { *b } else { *a }).collect()
    }

    fn are_linked(&self, one: u64, other: u64) -> bool {
        self.up.contains_key(&(one.min(other), one.max(other)))
    }
}

/// Twelve that have met one another, of which the last ones do not vote.
fn at_rest() -> World {
    let mut world = World::of(12);
    let dials = world.dials.clone();
    world.dials = (1..=12).flat_map(|one| (1..one).map(move |other| (one, other))).collect();
    world.settle();
    world.dials = dials;
    assert_eq!(world.up.len(), 66, "everybody is linked with everybody");
    world.run(MINUTE * 4);
    world
}

#[test]
fn links_that_nobody_needs_end_and_those_to_the_voters_stay() {
    let mut world = at_rest();
    let voters = world.voters();
    let others: Vec<u64> = (1..=12).filter(|number| !voters.contains(number)).collect();
    assert!(!others.is_empty());
    for number in &others {
        assert_eq!(world.links_of(*number), voters, "of {number}");
    }
    world.run(MINUTE * 10);
    assert!(others.iter().all(|number| world.links_of(*number) == voters), "nothing is opened again and again");
    assert!((1..=12).all(|number| world.node(number).counters().sessions_lost == 0));
    // Everybody is seen all the same.
    world.input(others[0], Input::Look { call: 1 });
    let Some(Ok(Answer::Seen(seen))) = world.answer(others[0]) else { panic!("{:?}", world.answer(others[0])) };
    assert_eq!(seen.peers.iter().filter(|peer| peer.up && peer.session.is_some() && !peer.name.is_empty()).count(), 12);
}

#[test]
fn who_has_something_to_say_opens_a_link_and_who_comes_next_is_dialled_when_that_is_told() {
    let mut world = at_rest();
    let voters = world.voters();
    let others: Vec<u64> = (1..=12).filter(|number| !voters.contains(number)).collect();
    let [one, two, three] = others[..3] else { panic!("{others:?}") };
    let first = world.acquire(one, wanted("r"));
    assert!(world.fencing(one, first).is_some());
    let second = world.acquire(two, wanted("r"));
    let third = world.acquire(three, wanted("r"));
    world.run(MINUTE * 10);
    assert!(world.are_linked(one, two), "its next is known, and a link is kept for it");
    world.input(one, Input::Release { call: None, ticket: first });
    assert!(world.fencing(two, second) > None, "without a dial, and without time to pass");
    assert!(world.are_linked(two, three), "who comes after that is dialled as soon as the token has come");
    world.input(two, Input::Release { call: None, ticket: second });
    assert!(world.fencing(three, third) > None);
    world.input(three, Input::Release { call: None, ticket: third });
    world.run(MINUTE * 4);
    assert!(others.iter().all(|number| world.links_of(*number) == voters));
    assert!((1..=12).all(|number| world.node(number).counters().relayed == 0));
}

/// The one side lets go while the other has just said something: it is said again on the next connection.
#[test]
fn what_is_on_its_way_when_a_link_ends_arrives() {
    let mut world = at_rest();
    let voters = world.voters();
    let others: Vec<u64> = (1..=12).filter(|number| !voters.contains(number)).collect();
    let (one, two) = (others[0], others[1]);
    let first = world.acquire(one, wanted("r"));
    let second = world.acquire(two, wanted("r"));
    world.frozen.insert(two);
    world.step(one, Input::Release { call: None, ticket: first });
    world.settle();
    // The token waits at the door of the other, and the connection ends with it.
    world.queue.retain(|(to, input)| *to != two || !matches!(input, Input::Net(NetEvent::Message { .. })));
    world.disconnect_pair(one, two);
    world.frozen.clear();
    world.run(Span::from_secs(1));
    assert!(world.fencing(two, second) > None);
}

#[test]
fn who_has_moved_is_found_where_it_is_now() {
    let mut world = at_rest();
    let voters = world.voters();
    let others: Vec<u64> = (1..=12).filter(|number| !voters.contains(number)).collect();
    let (one, two) = (others[0], others[1]);
    let first = world.acquire(one, wanted("r"));
    let second = world.acquire(two, wanted("r"));
    world.input(one, Input::Release { call: None, ticket: first });
    world.input(two, Input::Release { call: None, ticket: second });
    world.run(MINUTE * 4);
    assert!(!world.are_linked(one, two));
    world.move_to(two, 2);
    world.run(MINUTE);
    let first = world.acquire(one, wanted("r"));
    let second = world.acquire(two, wanted("r"));
    world.run(Span::from_secs(1));
    world.input(one, Input::Release { call: None, ticket: first });
    assert!(world.fencing(two, second) > None && world.are_linked(one, two));
}

/// All who voted are gone from where they were, and the others have let each other go.
#[test]
fn who_has_no_session_looks_for_everybody_again() {
    let mut world = at_rest();
    let voters = world.voters();
    let others: Vec<u64> = (1..=12).filter(|number| !voters.contains(number)).collect();
    for (voter, port) in voters.iter().zip(2..) {
        world.move_to(*voter, port);
    }
    world.run(MINUTE);
    for number in others {
        assert!(world.node(number).trouble().is_none(), "{number}: {:?}", world.node(number).trouble());
    }
}
