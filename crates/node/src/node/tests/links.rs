//! Which peers are connected.

use std::collections::BTreeSet;

use peerlock_types::Span;

use super::super::*;
use super::world::{CLUSTER, World, wanted};
use crate::verb::Cluster;
use crate::{NetEvent, Origin, Parting};

const MINUTE: Span = Span::from_secs(60);

impl World {
    fn voters(&self) -> BTreeSet<u64> {
        let registry = self.machines.values().find_map(|it| it.node.as_ref()?.registry());
        registry.expect("there is a voter").state().voter_hosts().into_iter().map(PeerId::get).collect()
    }

    fn others(&self) -> Vec<u64> {
        let voters = self.voters();
        (1..=12).filter(|number| !voters.contains(number)).collect()
    }

    fn holder_and_waiter(&mut self) -> [(u64, TicketId); 2] {
        let others = self.others();
        [others[0], others[1]].map(|host| (host, self.acquire(host, wanted("r"))))
    }

    fn links_of(&self, number: u64) -> BTreeSet<u64> {
        let ends = self.up.keys().filter(|(a, b)| *a == number || *b == number);
        ends.map(|(a, b)| if *a == number { *b } else { *a }).collect()
    }

    fn are_linked(&self, one: u64, other: u64) -> bool {
        self.up.contains_key(&(one.min(other), one.max(other)))
    }
}

/// Returns twelve connected hosts, some of which do not vote.
fn at_rest() -> World {
    let mut world = World::of(12);
    let dials = world.dials.clone();
    world.dials = (1..=12).flat_map(|one| (1..one).map(move |other| (one, other))).collect();
    world.settle();
    world.dials = dials;
    assert_eq!(world.up.len(), 66, "all hosts are connected to each other");
    world.run(MINUTE * 4);
    world
}

#[test]
fn unneeded_links_end_and_voter_links_stay() {
    let mut world = at_rest();
    let (voters, others) = (world.voters(), world.others());
    assert!(!others.is_empty());
    assert!(!world.hung_up.is_empty() && world.hung_up.values().all(|why| *why == Parting::Unneeded), "no side failed");
    for number in &others {
        assert_eq!(world.links_of(*number), voters, "of {number}");
    }
    world.run(MINUTE * 10);
    assert!(others.iter().all(|number| world.links_of(*number) == voters), "no connection is re-opened");
    assert!((1..=12).all(|number| world.node(number).counters().sessions_lost == 0));
    // All members are visible nevertheless.
    world.input(others[0], Input::call(1, Cluster {}));
    let Some(Ok(Answer::Found(found))) = world.answer(others[0]) else { panic!("{:?}", world.answer(others[0])) };
    assert_eq!(
        found.peers.iter().filter(|peer| peer.up && peer.session.is_some() && !peer.name.is_empty()).count(),
        12
    );
}

#[test]
fn successor_is_dialled_before_the_hand_over() {
    let mut world = at_rest();
    let (voters, others) = (world.voters(), world.others());
    let [one, two, three] = others[..3] else { panic!("{others:?}") };
    let first = world.acquire(one, wanted("r"));
    assert!(world.fencing(one, first).is_some());
    let second = world.acquire(two, wanted("r"));
    let third = world.acquire(three, wanted("r"));
    world.run(MINUTE * 10);
    assert!(world.are_linked(one, two), "the successor is known, and the connection to it is kept");
    world.input(one, Input::Release { call: None, ticket: first });
    assert!(world.fencing(two, second) > None, "without dialling or waiting");
    assert!(world.are_linked(two, three), "its successor is dialled when the token arrives");
    world.input(two, Input::Release { call: None, ticket: second });
    assert!(world.fencing(three, third) > None);
    world.input(three, Input::Release { call: None, ticket: third });
    world.run(MINUTE * 4);
    assert!(others.iter().all(|number| world.links_of(*number) == voters));
    assert!((1..=12).all(|number| world.node(number).counters().relayed == 0));
}

#[test]
fn message_in_flight_arrives_after_its_link_ended() {
    let mut world = at_rest();
    let [(one, first), (two, second)] = world.holder_and_waiter();
    world.frozen.insert(two);
    world.step(one, Input::Release { call: None, ticket: first });
    world.settle();
    // The token is not processed before the connection ends.
    world.queue.retain(|(to, input)| *to != two || !matches!(input, Input::Net(NetEvent::Message { .. })));
    world.disconnect_pair(one, two);
    world.frozen.clear();
    world.run(Span::from_secs(1));
    assert!(world.fencing(two, second) > None);
}

#[test]
fn moved_host_is_found_at_its_new_address() {
    let mut world = at_rest();
    let [(one, first), (two, second)] = world.holder_and_waiter();
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

#[test]
fn peer_without_session_finds_moved_voters() {
    let mut world = at_rest();
    let (voters, others) = (world.voters(), world.others());
    for (voter, port) in voters.iter().zip(2..) {
        world.move_to(*voter, port);
    }
    world.run(MINUTE);
    for number in others {
        assert!(world.node(number).problem().is_none(), "{number}: {:?}", world.node(number).problem());
    }
}

/// A host that joins through a single voter knows only that one.
#[test]
fn isolated_member_is_found_by_the_next_leader() {
    let mut world = World::new();
    world.start(1, Origin::Founds(CLUSTER), &[]);
    world.keeps = false;
    world.start(4, Origin::Seeks { expect: None }, &[1]);
    world.run(Span::from_millis(100));
    assert!(world.node(4).problem().is_none());
    // It is frozen while the others join and the first one dies.
    world.frozen.insert(4);
    world.keeps = true;
    [2, 3].into_iter().for_each(|number| world.start(number, Origin::Seeks { expect: None }, &[1]));
    while world.voters().len() < 3 {
        world.run(Span::from_millis(10));
    }
    world.run(Span::from_millis(200));
    world.queue.retain(|(to, _)| *to != 4);
    world.kill(1);
    world.frozen.clear();
    world.run(MINUTE);
    assert!(world.node(4).problem().is_none(), "{:?}", world.node(4).problem());
    assert_eq!(world.node(4).counters().sessions_lost, 0, "it was found while its session was valid");
}
