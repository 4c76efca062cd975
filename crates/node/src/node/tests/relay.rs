//! Two hosts that cannot connect to each other; the third leads the registry.

use peerlock_registry::{Registry, Versions};
use peerlock_types::Span;

use super::super::*;
use super::world::{World, wanted};
use crate::Origin;
use crate::links::link::{Frame, Life, Lives};
use crate::verb::Resize;
use crate::wire::{Body, encode, encode_body};

impl World {
    fn epoch(&self, one: u64, other: u64) -> Option<u64> {
        self.node(one).contacts.get(PeerId::new(other)).and_then(|contact| contact.epoch)
    }

    fn relayed(&self, number: u64) -> usize {
        let contacts = self.node(number).contacts.all();
        contacts.filter(|(_, contact)| contact.link.is_relayed() || contact.is_asked()).count()
    }

    fn relay(&mut self, from: u64, to: u64, frame: &Frame) {
        let lives = Lives { sender: Life { process: 1, part: 7 << 32 }, receiver: None };
        let frame = encode(frame, 1, Versions::OURS);
        let body = encode_body(&Body::Relay { from: PeerId::new(from), to: PeerId::new(to), lives, frame });
        self.inject(1, to, encode(&Frame::Loose { body }, 1, Versions::OURS));
    }
}

fn hello() -> Frame {
    Frame::Hello { life: Life { process: 1, part: 7 << 32 }, has: None, cluster: None }
}

fn others() -> [Frame; 3] {
    [Frame::Ack { has: 7 }, Frame::Data { number: 1, has: 0, body: vec![7] }, Frame::Loose { body: vec![7] }]
}

/// Returns a world of three, where the first leads, with a holder at this host.
fn one_inside(holder: u64) -> (World, TicketId) {
    let mut world = World::of(3);
    assert!(world.node(1).registry().is_some_and(Registry::is_leader));
    let first = world.acquire(holder, wanted("r"));
    world.run(Span::from_secs(10));
    assert!(world.fencing(holder, first).is_some() && world.epoch(2, 3).is_some());
    (world, first)
}

#[test]
fn unreachable_coordinator_is_reached_via_the_leader() {
    let mut world = World::of(3);
    let name = "partial";
    let first = world.acquire(2, wanted(name));
    world.run(Span::from_secs(1));
    assert!(world.fencing(2, first).is_some());
    assert!(world.node(1).registry().is_some_and(Registry::is_leader));
    world.apart.insert((2, 3));
    world.disconnect_pair(2, 3);
    world.settle();
    let second = world.acquire(3, wanted(name));
    world.run(Span::from_secs(4));
    assert_eq!(world.fencing(3, second), None, "there is a holder");
    world.input(2, Input::Release { call: None, ticket: first });
    world.run(Span::from_secs(2));
    assert!(world.fencing(3, second).is_some(), "the request and the token were relayed");
    // A census is relayed, too: 1 joins, and the resource is resized.
    let third = world.acquire(1, wanted(name));
    world.run(Span::from_secs(1));
    world.input(1, Input::call(2, Resize { name: name.parse().unwrap(), slots: 2 }));
    world.run(Span::from_secs(4));
    assert!(world.fencing(1, third).is_some(), "the census is complete");
    world.apart.clear();
    world.run(Span::from_secs(2));
    let fourth = world.acquire(2, wanted(name));
    world.run(Span::from_secs(1));
    world.input(3, Input::Release { call: None, ticket: second });
    world.run(Span::from_secs(1));
    assert!(world.fencing(2, fourth).is_some());
}

#[test]
fn first_hello_replaces_a_connection_lost_on_one_side() {
    for (holder, asker) in [(2, 3), (3, 2)] {
        let (mut world, first) = one_inside(holder);
        world.part_silently(2, 3);
        world.notice(asker, holder);
        let next = world.acquire(asker, wanted("r"));
        assert!(world.epoch(holder, asker).is_some() && world.epoch(asker, holder).is_none());
        world.run(Span::from_millis(1050));
        assert_eq!(world.epoch(holder, asker), None, "the hello has ended it");
        world.input(holder, Input::Release { call: None, ticket: first });
        assert!(world.fencing(asker, next).is_some(), "{asker} reaches {holder} via the leader");
    }
}

/// The transport takes seconds to notice.
#[test]
fn unacknowledged_message_is_relayed_after_a_second() {
    for (holder, asker) in [(2, 3), (3, 2)] {
        let (mut world, first) = one_inside(holder);
        world.part_silently(2, 3);
        let next = world.acquire(asker, wanted("r"));
        world.run(Span::from_secs(2));
        assert_eq!((world.epoch(2, 3), world.epoch(3, 2)), (None, None));
        world.input(holder, Input::Release { call: None, ticket: first });
        assert!(world.fencing(asker, next).is_some(), "{asker} reaches {holder} via the leader");
        // They reconnect when the fault is over.
        world.silent.clear();
        world.apart.clear();
        world.run(Span::from_secs(2));
        assert!(world.epoch(2, 3).is_some() && world.epoch(2, 3) == world.epoch(3, 2));
    }
}

/// It must not be asked any more when the doubt has passed.
#[test]
fn doubted_connection_stays_if_the_peer_is_only_slow() {
    for (holder, asker, millis) in [(2, 3, 3000), (3, 2, 1500), (3, 2, 2100), (3, 2, 3000)] {
        let (mut world, first) = one_inside(holder);
        let before = world.epoch(3, 2);
        world.frozen.insert(holder);
        let next = world.acquire(asker, wanted("r"));
        world.run(Span::from_millis(millis));
        world.frozen.clear();
        world.run(Span::from_millis(1500));
        assert!((1..=3).all(|number| world.relayed(number) == 0), "no link is relayed");
        world.run(Span::from_secs(10));
        assert_eq!((world.epoch(3, 2), world.epoch(2, 3)), (before, before), "{asker} asks {holder}, {millis}");
        world.input(holder, Input::Release { call: None, ticket: first });
        assert!(world.fencing(asker, next).is_some());
    }
}

/// The other side has lost a connection that is idle here.
#[test]
fn relayed_hello_ends_a_silent_connection() {
    for (seconds, is_over) in [(0, false), (5, true)] {
        let mut world = World::of(2);
        world.start(3, Origin::Seeks { expect: None }, &[1, 2]);
        world.settle();
        world.run(Span::from_secs(seconds));
        let two = world.epoch(2, 3);
        assert!(two.is_some());
        world.relay(3, 2, &hello());
        assert_eq!(world.epoch(2, 3) != two, is_over, "after {seconds} s");
    }
}

/// Other frames may be late.
#[test]
fn other_relayed_frames_end_no_connection() {
    let (mut world, _) = one_inside(2);
    let before = world.epoch(2, 3);
    for frame in others() {
        world.relay(3, 2, &frame);
        assert_eq!(world.epoch(2, 3), before);
    }
}

/// Any voter may claim to relay for a host.
#[test]
fn relayed_unknown_hosts_leave_no_state() {
    let (mut world, _) = one_inside(2);
    let before = world.node(2).retained();
    for from in 0..500 {
        world.relay(1000 + from, 2, &others().into_iter().chain([hello()]).nth(from as usize % 4).unwrap());
    }
    world.run(Span::from_secs(10));
    assert_eq!(world.relayed(2), 0);
    assert!(world.node(2).retained() <= before + 500, "named hosts are forgotten later");
}

#[test]
fn silent_host_is_asked_once_in_a_second() {
    let (mut world, _) = one_inside(2);
    world.apart.insert((2, 3));
    world.disconnect_pair(2, 3);
    world.frozen.insert(2);
    world.run(Span::from_secs(1));
    for _ in 0..100 {
        world.acquire(3, wanted("r"));
        world.run(Span::from_millis(40));
    }
    let asked = world.node(3).counters().relayed;
    assert!((3..=5).contains(&asked), "{asked} in four seconds");
}

#[test]
fn loss_and_duplication_on_a_relayed_path_are_repaired() {
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let (mut world, first) = one_inside(2);
        world.apart.insert((2, 3));
        world.disconnect_pair(2, 3);
        world.loses = Some(Box::new(move |bytes| {
            let is_relayed = describe(bytes).contains("relay(");
            if is_relayed { [0, 2, 1, 1, 1, 1, 1, 1][rng.below(8) as usize] } else { 1 }
        }));
        let (mut holder, mut other, mut held) = (2, 3, first);
        for round in 0..6 {
            let next = world.acquire(other, wanted("r"));
            world.run(Span::from_secs(3));
            world.input(holder, Input::Release { call: None, ticket: held });
            world.run(Span::from_secs(30));
            assert!(world.fencing(other, next).is_some(), "seed {seed}, round {round}: {other} acquires the slot");
            (holder, other, held) = (other, holder, next);
        }
        assert!((1..=3).all(|number| world.node(number).counters().sessions_lost == 0));
    }
}
