//! Limits: of clients, message sizes, stored items and waiting times.

use peerlock_protocol::custody::MOST_WAITING;

use super::*;
use crate::Progress;
use crate::links::contacts::Update;
use crate::links::link::{Frame, Life, Lives};
use crate::verb::Show;
use crate::wire::{Body, encode, encode_body};

fn tries(name: &str) -> Wanted {
    Wanted { wait: Wait::Try, ..wanted(name) }
}

fn waits(name: &str, seconds: u64) -> Wanted {
    Wanted { wait: Wait::For(Span::from_secs(seconds)), ..wanted(name) }
}

#[test]
fn try_without_quorum_fails_within_two_seconds() {
    let mut world = World::of(3);
    world.run(Span::from_secs(70));
    let known = world.acquire(3, wanted("known"));
    assert!(world.fencing(3, known).is_some());
    world.split(&[3]);
    let ticket = world.acquire(3, tries("new"));
    world.run(Span::from_secs(2));
    assert!(matches!(world.ended(3, ticket), Some(Error::NoMajority { .. })), "{:?}", world.ended(3, ticket));
    assert!(world.fencing(3, known).is_some(), "its session is valid");
}

#[test]
fn try_during_a_long_census_fails_within_two_seconds() {
    let mut world = World::of(3);
    let first = world.acquire(1, wanted("r"));
    let second = world.acquire(2, wanted("r"));
    world.run(Span::from_secs(1));
    assert!(world.fencing(1, first).is_some() && world.fencing(2, second).is_none());
    world.kill(1);
    let ticket = world.acquire(2, tries("r"));
    world.run(Span::from_secs(2));
    assert!(matches!(world.ended(2, ticket), Some(Error::Recovering { .. })), "{:?}", world.ended(2, ticket));
    world.run(Span::from_secs(30));
    assert!(world.fencing(2, second).is_some(), "the waiter is served");
}

#[test]
fn long_wait_survives_the_join_of_a_new_session() {
    let mut world = World::of(3);
    let holder = world.acquire(1, wanted("r"));
    let waits = world.acquire(3, wanted("r"));
    world.run(Span::from_secs(40));
    world.split(&[3]);
    world.run(Span::from_secs(17));
    assert!(world.node(3).problem().is_some(), "its session is over");
    world.split(&[]);
    world.run_until(|world| world.node(3).problem().is_none());
    world.slow_disks(true);
    world.run(Span::from_secs(2));
    assert_eq!(world.ended(3, waits), None, "the registry has had two seconds to answer");
    world.slow_disks(false);
    world.run(Span::from_secs(2));
    world.input(1, Input::Release { call: None, ticket: holder });
    world.run(Span::from_secs(1));
    assert!(world.fencing(3, waits).is_some());
}

#[test]
fn timeout_reports_a_queue_position_or_a_stall() {
    let mut world = World::of(3);
    let first = world.acquire(1, wanted("r"));
    world.run(Span::from_secs(1));
    assert!(world.fencing(1, first).is_some());
    let busy = world.acquire(2, waits("r", 2));
    world.run(Span::from_secs(3));
    assert!(matches!(world.ended(2, busy), Some(Error::NotAcquired { place: Some(0), .. })));
    world.kill(1);
    let dead = world.acquire(2, waits("r", 2));
    world.run(Span::from_secs(3));
    assert!(matches!(world.ended(2, dead), Some(Error::Recovering { .. })), "{:?}", world.ended(2, dead));
}

/// They must fit into messages of 1 MiB: `World` rejects longer ones.
#[test]
fn waiters_are_bounded_and_survive_the_coordinator() {
    let mut world = World::of(3);
    let first = world.acquire(1, wanted("r"));
    world.run(Span::from_secs(1));
    assert!(world.fencing(1, first).is_some());
    let ask = |world: &mut World, number: u64| {
        let wanted = Wanted { label: "a label of the usual length for tests".to_owned(), ..wanted("r") };
        world.step(number, Input::Acquire { call: 1, wanted });
    };
    for number in [2, 3] {
        (0..MOST_WAITING).for_each(|_| ask(&mut world, number));
        world.settle();
        assert!(matches!(world.answer(number), Some(Ok(Answer::Ticket(_)))));
        ask(&mut world, number);
        assert_eq!(world.answer(number), Some(&Err(Error::Busy { limit: MOST_WAITING })));
    }
    world.run(Span::from_secs(3));
    let last = world.received(3).iter().rev().find_map(|effect| match effect {
        Effect::Progress(_, Progress { ahead, .. }) => *ahead,
        _ => None,
    });
    assert_eq!(last, Some(2 * MOST_WAITING as u32 - 1));
    world.input(3, Input::call(7, Show { name: "r".parse().unwrap() }));
    world.run(Span::from_secs(4));
    let Some(Ok(Answer::Shown(shown))) = world.answer(3) else { panic!("{:?}", world.answer(3)) };
    assert_eq!((shown.holders.len(), shown.queue.len()), (1, crate::wire::MAX_LISTED));
    world.kill(1);
    world.run(Span::from_secs(30));
    let inside = [2, 3].map(|number| world.node(number).counters().holding);
    let waiting = [2, 3].map(|number| world.node(number).counters().waiting as usize);
    assert_eq!((inside.iter().sum::<u64>(), waiting.iter().sum::<usize>()), (1, 2 * MOST_WAITING - 1));
}

/// The link has acknowledged the refused request.
#[test]
fn request_above_the_ration_is_served_after_a_census() {
    let mut world = World::new();
    world.ration = 4;
    world.spoils = Some((9, Box::new(|bytes| bytes))); // Refused messages are logged as unexpected.
    world.start(1, Origin::Founds(CLUSTER), &[]);
    world.start(2, Origin::Seeks { expect: None }, &[1]);
    world.run(Span::from_secs(5));
    let holder = world.acquire(1, wanted("r"));
    assert!(world.fencing(1, holder).is_some());
    let waiting: Vec<TicketId> = (0..20).map(|_| world.acquire(2, wanted("r"))).collect();
    world.run(Span::from_secs(5));
    world.input(1, Input::Release { call: None, ticket: holder });
    for ticket in waiting {
        world.run(Span::from_secs(1));
        assert!(world.fencing(2, ticket).is_some());
        world.input(2, Input::Release { call: None, ticket });
    }
}

#[test]
fn oversized_message_is_lost_before_it_is_numbered() {
    let mut contacts = crate::links::contacts::Contacts::new(7, Versions::OURS);
    let mut update = Vec::new();
    contacts.send(PeerId::new(2), vec![0; 1 << 20], Time::ZERO, &mut update);
    let host = PeerId::new(2);
    let lost = Update::Lost { host, bodies: vec![vec![0; 1 << 20]], goes_on: false };
    assert_eq!(update, [Update::Notice(Notice::TooLong { host, bytes: 1 << 20 }), lost], "and is counted as lost");
    assert!(contacts.get(PeerId::new(2)).is_none_or(|contact| contact.retained() == 0));
}

/// The answer goes to the same host, and so on.
#[test]
fn packet_to_its_own_sender_is_dropped() {
    let mut world = World::of(3);
    world.spoils = Some((3, Box::new(|bytes| bytes)));
    for (to, from) in [(1, 1), (1, 3), (2, 2)] {
        let from = PeerId::new(from);
        let lives = Lives { sender: Life { process: 1, part: 0 }, receiver: None };
        let body = encode_body(&Body::Relay { from, to: from, lives, frame: Vec::new() });
        world.inject(3, to, encode(&Frame::Loose { body }, 1, Versions::OURS));
    }
    world.run(Span::from_secs(5));
    let unexpected: u64 = [1, 2].map(|number| world.node(number).counters().unexpected).iter().sum();
    assert_eq!(unexpected, 3);
}

#[test]
fn guests_that_left_use_no_memory() {
    let mut world = World::of(2);
    let retained = |world: &World| world.node(1).retained();
    let mut before = None;
    world.keeps = false;
    for guest in 0..150 {
        let number = 100 + guest;
        world.start(number, Origin::Seeks { expect: None }, &[1]);
        world.run(Span::from_millis(500));
        let ticket = world.acquire(number, wanted("r"));
        world.run(Span::from_millis(100));
        assert!(world.fencing(number, ticket).is_some(), "guest {guest}");
        world.input(number, Input::Release { call: None, ticket });
        world.input(number, Input::Leave);
        world.run(Span::from_secs(1));
        world.kill(number);
        if guest == 50 {
            before = Some(retained(&world));
        }
    }
    assert!(retained(&world) <= before.unwrap() + 20, "{} and {before:?}", retained(&world));
    let last = world.acquire(2, wanted("r"));
    world.run(Span::from_secs(1));
    assert!(world.fencing(2, last).is_some());
}

/// One machine can have any number of identities.
#[test]
fn number_of_met_hosts_is_bounded() {
    let mut contacts = crate::links::contacts::Contacts::new(7, Versions::OURS);
    let mut meet = |number: u64, epoch: u64| {
        let (host, now) = (PeerId::new(number), Time::ZERO + Span::from_millis(epoch));
        contacts.up(host, epoch, address(number), Some(CLUSTER), now);
        (contacts.down(host, epoch, now), contacts.all().count())
    };
    for number in 1..20_000 {
        assert!(meet(number, number).1 <= 18_000, "{number}");
    }
    assert_eq!(meet(19_999, 30_000), (true, 18_000), "the last are there");
    let mut update = Vec::new();
    contacts.send(PeerId::new(12_000), vec![1], Time::ZERO, &mut update);
    for number in 20_000..40_000 {
        contacts.up(PeerId::new(number), 40_000 + number, String::new(), None, Time::ZERO + Span::from_secs(99));
        contacts.down(PeerId::new(number), 40_000 + number, Time::ZERO + Span::from_secs(99));
    }
    assert_eq!(contacts.get(PeerId::new(12_000)).map(|contact| contact.retained()), Some(1), "a host with messages");
}

#[test]
fn recovery_reported_by_a_non_voter_is_ignored() {
    let follows = |world: &World| {
        world.received(1).iter().any(|effect| matches!(effect, Effect::Notice(Notice::Recovered { .. })))
    };
    let mut world = World::of(3);
    world.spoils = Some((9, Box::new(|bytes| bytes)));
    world.keeps = false;
    world.start(9, Origin::Seeks { expect: None }, &[1]);
    world.run(Span::from_secs(5));
    world.split(&[1, 9]);
    world.run(Span::from_secs(20));
    for _ in 0..30 {
        let life = crate::links::link::Life { process: 1, part: 1 };
        let hello = Frame::Hello { life, has: None, cluster: Some(CLUSTER.recovered(7)) };
        world.inject(9, 1, encode(&hello, 1, Versions::OURS));
        world.run(Span::from_secs(1));
    }
    assert!(!follows(&world), "it has never voted");
    (world.spoils, world.keeps) = (None, true);
    [2, 3, 9].into_iter().for_each(|number| world.kill(number));
    world.split(&[]);
    world.start(2, Origin::Founds(CLUSTER.recovered(7)), &[1]);
    world.run(Span::from_millis(100));
    assert!(!follows(&world), "not at once");
    (0..5).for_each(|_| world.run(Span::from_secs(1)));
    assert!(follows(&world));
}

#[test]
fn leaving_without_a_quorum_is_unconfirmed() {
    for (is_cut_off, sent) in [(false, true), (true, false)] {
        let mut world = World::of(3);
        world.run(Span::from_secs(1));
        if is_cut_off {
            world.split(&[3]);
        }
        world.input(3, Input::Leave);
        world.run(Span::from_secs(6));
        assert!(world.received(3).contains(&Effect::Left { confirmed: sent }), "{is_cut_off}");
    }
}

#[test]
fn peer_killed_while_leaving_delays_one_session() {
    let mut world = World::of(3);
    let names: Vec<String> = (0..20).map(|number| format!("r{number}")).collect();
    for name in &names {
        let ticket = world.acquire(3, wanted(name));
        world.run(Span::from_millis(50));
        assert!(world.fencing(3, ticket).is_some());
    }
    world.frozen.extend([1, 2]);
    world.input(3, Input::Leave);
    world.kill(3);
    world.frozen.clear();
    let waiting: Vec<TicketId> = names.iter().map(|name| world.acquire(2, wanted(name))).collect();
    world.run(Span::from_secs(20));
    assert!(waiting.iter().all(|ticket| world.fencing(2, *ticket).is_some()));
}
