//! A process ends, its clients do not, and the next process takes over their grants.

use std::time::Duration;

use super::super::*;
use super::world::{CLUSTER, World, wanted};
use crate::links::link::Frame;
use crate::verb::Show;
use crate::wire::{encode, encode_body};
use crate::{Event, JournalEntry, Name, Origin, Ttl, Wanted};
use peerlock_protocol::queue::Update;
use peerlock_protocol::registry::Session;
use peerlock_protocol::token::Claim;
use peerlock_registry::MOST_TAKEN;
use peerlock_types::{Span, Ticket};

fn outlasting(name: &str, note: &str) -> Wanted {
    Wanted { taken_over_as: Some(note.into()), auto_renew: false, ..wanted(name) }
}

fn resume(world: &mut World, number: u64, note: &str) {
    let (name, note) = ("r".parse().unwrap(), note.to_owned());
    world.input(number, Input::Resume { call: 9, name, note });
}

fn resumed(world: &World, number: u64) -> Option<TicketId> {
    match world.answer(number) {
        Some(Ok(Answer::Ticket(ticket))) => Some(*ticket),
        _ => None,
    }
}

/// On each of three hosts: two do not lead, one coordinates.
#[test]
fn takeover_continues_a_grant_exclusively() {
    for number in 1..=3 {
        let mut world = World::of(3);
        let holder = world.acquire(number, outlasting("r", "mine"));
        let before = world.fencing(number, holder).expect("it was free");
        let others: Vec<_> =
            (1..=3).filter(|it| *it != number).map(|it| (it, world.acquire(it, wanted("r")))).collect();
        world.run(Span::from_secs(1));
        world.kill(number);
        world.restart(number);
        resume(&mut world, number, "mine");
        world.run(Span::from_secs(4));
        let ticket = resumed(&world, number).expect("it has resumed in a session");
        assert_eq!(world.fencing(number, ticket), Some(before), "the same grant");
        // Beyond the length of a session, by renewing the lease.
        for _ in 0..6 {
            world.run(Span::from_secs(8));
            world.input(number, Input::Renew { call: 10, ticket });
            assert!(matches!(world.answer(number), Some(Ok(Answer::Renewed(_)))), "{:?}", world.answer(number));
            assert!(others.iter().all(|(it, ticket)| world.fencing(*it, *ticket).is_none()));
        }
        world.input(number, Input::Release { call: None, ticket });
        world.run(Span::from_secs(1));
        assert!(others.iter().any(|(it, ticket)| world.fencing(*it, *ticket) > Some(before)));
    }
}

/// On a busy machine the cluster ID is recorded after the first grants.
#[test]
fn grant_before_the_cluster_is_recorded_is_taken_over() {
    let mut world = World::new();
    world.start(1, Origin::Founds(CLUSTER), &[]);
    world.kill(1);
    let machine = world.machines.get_mut(&1).unwrap();
    (machine.slow_disk, machine.file, machine.cluster, machine.predecessor) = (true, None, None, None);
    world.start(1, Origin::Founds(CLUSTER), &[]);
    while let Some(number) = world.machines.get_mut(&1).unwrap().unwritten.pop_front() {
        world.input(1, Input::Written(number));
        world.run(Span::from_millis(100));
    }
    assert_eq!(world.machines[&1].cluster, None, "it is not recorded yet");
    let holder = world.acquire(1, outlasting("r", "mine"));
    while let Some(number) = world.machines.get_mut(&1).unwrap().unwritten.pop_front() {
        world.input(1, Input::Written(number));
        world.run(Span::from_millis(100));
    }
    let before = world.fencing(1, holder).expect("its voter's file is written, and the slot was free");
    world.kill(1);
    world.machines.get_mut(&1).unwrap().slow_disk = false;
    world.restart(1);
    resume(&mut world, 1, "mine");
    world.run(Span::from_secs(4));
    let ticket = resumed(&world, 1).expect("it has resumed in a session");
    assert_eq!(world.fencing(1, ticket), Some(before), "the same grant");
}

fn held_for(world: &mut World, at: u64) -> Option<Duration> {
    world.input(at, Input::call(7, Show { name: "r".parse().unwrap() }));
    world.run(Span::from_secs(1));
    let Some(Ok(Answer::Shown(shown))) = world.answer(at) else { panic!("{:?}", world.answer(at)) };
    Some(shown.holders.first()?.client.as_ref()?.age)
}

#[test]
fn hold_time_spans_processes() {
    let mut world = World::of(3);
    world.acquire(3, outlasting("r", "mine"));
    for process in 1..4 {
        world.run(Span::from_secs(6));
        let held = held_for(&mut world, 1).expect("it holds the slot");
        assert!(held >= Duration::from_secs(6 * process), "{held:?} after {process}");
        world.kill(3);
        world.restart(3);
        resume(&mut world, 3, "mine");
    }
    world.run(Span::from_secs(2));
    let ticket = resumed(&world, 3).expect("it has resumed");
    world.input(3, Input::Release { call: None, ticket });
    let held = world.received(3).iter().find_map(|effect| match effect {
        Effect::Event(Event::Released { held, .. }) => Some(*held),
        _ => None,
    });
    assert!(held >= Some(Duration::from_secs(18)), "{held:?}");
}

#[test]
fn grant_without_resume_is_held_until_its_deadline() {
    let mut world = World::of(3);
    let holder = world.acquire(3, outlasting("r", "mine"));
    let until = world.node(3).grant(holder).unwrap().1;
    let waits = world.acquire(1, wanted("r"));
    world.kill(3);
    world.restart(3);
    while world.now + Span::from_millis(100) < until {
        world.run(Span::from_millis(100));
        assert_eq!(world.fencing(1, waits), None, "its deadline has not passed");
    }
    world.run(Span::from_secs(1));
    assert!(world.fencing(1, waits).is_some());
    resume(&mut world, 3, "mine");
    assert_eq!(world.answer(3), Some(&Err(Error::Lost)));
}

#[test]
fn cancelled_resume_is_unanswered_and_the_grant_stays() {
    let mut world = World::of(3);
    let holder = world.acquire(3, outlasting("r", "mine"));
    let until = world.node(3).grant(holder).unwrap().1;
    let waits = world.acquire(1, wanted("r"));
    world.kill(3);
    world.restart(3);
    resume(&mut world, 3, "mine");
    world.input(3, Input::GiveUp { call: 9 });
    while world.now + Span::from_millis(100) < until {
        world.run(Span::from_millis(100));
        assert_eq!(world.fencing(1, waits), None, "its deadline has not passed");
    }
    let answered = world.received(3).iter().any(|effect| matches!(effect, Effect::Answer { call: 9, .. }));
    assert!(!answered, "the resume was cancelled");
    world.run(Span::from_secs(1));
    assert!(world.fencing(1, waits).is_some());
}

#[test]
fn predecessor_session_without_grants_ends_at_once() {
    let mut world = World::of(3);
    let lies = world.acquire(3, outlasting("r", "mine"));
    world.input(3, Input::Release { call: None, ticket: lies });
    world.kill(3);
    let waits = world.acquire(1, wanted("r"));
    world.run(Span::from_secs(2));
    assert_eq!(world.fencing(1, waits), None, "the token was at the killed process");
    world.restart(3);
    world.run(Span::from_secs(2));
    assert!(world.fencing(1, waits).is_some());
}

#[test]
fn takeover_file_of_another_boot_or_cluster_is_ignored() {
    type Change = fn(&mut crate::Predecessor);
    let changes: [Change; 2] = [|it| it.boot = "two".into(), |it| it.cluster = CLUSTER.recovered(7)];
    for change in changes {
        let mut world = World::of(3);
        world.acquire(3, outlasting("r", "mine"));
        world.kill(3);
        change(world.machines.get_mut(&3).unwrap().predecessor.as_mut().unwrap());
        let waits = world.acquire(1, wanted("r"));
        world.restart(3);
        resume(&mut world, 3, "mine");
        assert_eq!(world.answer(3), Some(&Err(Error::Lost)));
        world.run(Span::from_secs(10));
        assert_eq!(world.fencing(1, waits), None, "the earlier session expires");
        world.run(Span::from_secs(10));
        assert!(world.fencing(1, waits).is_some());
        let predecessor = world.machines[&3].predecessor.as_ref().unwrap();
        assert_eq!((predecessor.boot.as_str(), predecessor.cluster, predecessor.grants.len()), ("one", CLUSTER, 0));
    }
}

#[test]
fn grant_passes_through_several_processes() {
    let mut world = World::of(3);
    let holder = world.acquire(3, outlasting("r", "mine"));
    let before = world.fencing(3, holder);
    let waits = world.acquire(1, wanted("r"));
    world.kill(3);
    world.split(&[3]);
    world.restart(3);
    world.run(Span::from_secs(2));
    world.kill(3);
    world.split(&[]);
    for _ in 0..3 {
        world.restart(3);
        world.run(Span::from_secs(1));
        world.kill(3);
    }
    world.restart(3);
    resume(&mut world, 3, "mine");
    world.run(Span::from_secs(3));
    let ticket = resumed(&world, 3).expect("it has resumed in time");
    assert_eq!((world.fencing(3, ticket), world.fencing(1, waits)), (before, None));
}

/// The next process must not replace a session that is over.
#[test]
fn process_killed_before_its_session_is_valid_delays_none() {
    let mut world = World::of(3);
    world.acquire(3, outlasting("r", "mine"));
    let waits = world.acquire(1, wanted("r"));
    world.kill(3);
    let sessions = |world: &World| {
        let registry = world.node(1).registry().expect("it votes");
        let of_host = registry.state().sessions().iter().filter(|(_, session)| session.host == PeerId::new(3));
        of_host.map(|(session, _)| *session).collect::<Vec<_>>()
    };
    let before = sessions(&world);
    world.machines.get_mut(&3).unwrap().received.clear();
    world.restart(3);
    while sessions(&world) == before || world.machines[&3].predecessor.as_ref().is_some_and(|it| before == [it.session])
    {
        world.run(Span::from_millis(1));
    }
    assert!(!world.received(3).contains(&Effect::Joined), "it is open, but not valid yet");
    world.kill(3);
    world.restart(3);
    resume(&mut world, 3, "mine");
    world.run(Span::from_secs(3));
    let ticket = resumed(&world, 3).expect("it has resumed in time");
    world.input(3, Input::Release { call: None, ticket });
    world.run(Span::from_secs(3));
    assert!(world.fencing(1, waits).is_some(), "the session in between has ended");
}

/// It would end before the grants.
#[test]
fn takeover_session_is_not_shorter_than_its_predecessor() {
    let mut world = World::of(3);
    world.acquire(3, outlasting("r", "mine"));
    world.kill(3);
    world.session = Ttl::from_millis(1000).unwrap();
    world.restart(3);
    world.run(Span::from_secs(1));
    assert_eq!(world.node(3).session_state.ttl(), Span::from_secs(15));
    world.run(Span::from_secs(20));
    world.kill(3);
    world.restart(3);
    world.run(Span::from_secs(1));
    assert_eq!(world.node(3).session_state.ttl(), Span::from_secs(1), "there is no holder any more");
}

#[test]
fn deadlines_are_recorded_before_clients_are_notified() {
    let mut world = World::of(1);
    let ticket = world.acquire(1, outlasting("r", "mine"));
    world.run(Span::from_secs(10));
    world.input(1, Input::Renew { call: 5, ticket });
    world.run(Span::from_secs(10));
    let mut written = None;
    for effect in world.received(1) {
        match effect {
            Effect::Record(JournalEntry::Grant(record)) => written = Some(record.until),
            Effect::Record(JournalEntry::Until { until, .. }) => written = Some(*until),
            Effect::Granted { until, .. } | Effect::Renewed { until, .. } => assert!(written >= Some(*until)),
            Effect::Answer { answer: Ok(Answer::Renewed(until)), .. } => assert!(written >= Some(*until)),
            _ => {}
        }
    }
    assert!(written > Some(Time::ZERO + Span::from_secs(20)), "the session is renewed every few seconds");
    world.input(1, Input::Release { call: None, ticket });
    assert_eq!(world.machines[&1].predecessor.as_ref().unwrap().grants, []);
}

/// Nothing would be taken over until the next boot.
#[test]
fn too_many_grants_are_not_taken_over_and_are_dropped() {
    let mut world = World::of(3);
    for number in 0..=MOST_TAKEN {
        world.acquire(3, outlasting(&format!("r{number}"), &format!("note {number}")));
    }
    world.kill(3);
    world.restart(3);
    world.run(Span::from_secs(3));
    let holder = world.acquire(3, outlasting("r", "mine"));
    let before = world.fencing(3, holder).expect("it is free");
    world.kill(3);
    world.restart(3);
    resume(&mut world, 3, "mine");
    world.run(Span::from_secs(4));
    let ticket = resumed(&world, 3).expect("it has resumed in a session");
    assert_eq!(world.fencing(3, ticket), Some(before), "the same grant");
}

/// The process after it would end the predecessor's session as if there were no grants.
#[test]
fn process_without_a_cluster_keeps_the_takeover_file() {
    let mut world = World::of(3);
    let holder = world.acquire(3, outlasting("r", "mine"));
    let until = world.node(3).grant(holder).unwrap().1;
    let waits = world.acquire(1, wanted("r"));
    world.kill(3);
    world.split(&[3]);
    world.start(3, Origin::Seeks { expect: None }, &[]);
    world.run(Span::from_secs(1));
    world.kill(3);
    world.split(&[]);
    world.restart(3);
    while world.now + Span::from_millis(100) < until {
        world.run(Span::from_millis(100));
        assert_eq!(world.fencing(1, waits), None, "its deadline has not passed");
    }
    world.run(Span::from_secs(2));
    assert!(world.fencing(1, waits).is_some());
}

#[test]
fn peer_without_takeover_drains_when_grants_have_expired() {
    for is_inside in [false, true] {
        let mut world = World::of(3);
        let holder = world.acquire(3, outlasting("r", "mine"));
        let until = world.node(3).grant(holder).unwrap().1;
        if !is_inside {
            world.input(3, Input::Release { call: None, ticket: holder });
        }
        world.kill(3);
        world.split(&[3]);
        world.restart(3);
        world.input(3, Input::Close);
        assert_eq!(world.received(3).contains(&Effect::Drained), !is_inside);
        world.run(until.since(world.now) + Span::from_secs(2));
        assert!(world.node(3).problem().is_some());
        assert!(world.received(3).contains(&Effect::Drained), "inside: {is_inside}");
    }
}

/// Ten thousand of a host's longest messages would be buffered.
#[test]
fn only_relevant_early_messages_are_buffered() {
    let mut world = World::of(3);
    world.acquire(3, outlasting("r", "mine"));
    world.kill(3);
    world.slow_disks(true);
    world.restart(3);
    world.run(Span::from_secs(1));
    assert!(world.node(3).problem().is_some() && world.up.contains_key(&(1, 3)));
    let session = Session { peer: PeerId::new(1), number: 1 };
    let waiting = (0..1000).map(|ticket| (Ticket::new(ticket), None)).collect();
    let answer = custody::Body::Answer(custody::Answer { session, tokens: Vec::new(), waiting });
    let census = custody::Body::Census { session, slots: 1 };
    for body in [answer, census] {
        let message = custody::Message { generation: 7, body };
        let body = encode_body(&Body::Part { resource: "r".parse::<Name>().unwrap().key(), message });
        world.inject(1, 3, encode(&Frame::Loose { body }, 1, Versions::OURS));
    }
    assert_eq!(world.node(3).takeover.retained(), 1);
}

/// A census is sent once.
#[test]
fn early_messages_above_the_limit_cause_a_census() {
    let mut world = World::of(3);
    world.acquire(3, outlasting("r", "mine"));
    let next = world.acquire(1, wanted("r"));
    world.run(Span::from_secs(1));
    let resource = "r".parse::<Name>().unwrap().key();
    let generation = |world: &World| world.node(1).parts.get(resource).unwrap().custody.generation();
    let before = generation(&world);
    world.kill(3);
    world.slow_disks(true);
    world.restart(3);
    world.run(Span::from_secs(1));
    assert!(world.node(3).problem().is_some() && world.up.contains_key(&(1, 3)) && world.up.contains_key(&(2, 3)));
    let say = |world: &mut World, from, generation, body| {
        let body = encode_body(&Body::Part { resource, message: custody::Message { generation, body } });
        world.inject(from, 3, encode(&Frame::Loose { body }, 1, Versions::OURS));
    };
    for from in [1, 2] {
        for ticket in 0..10_000 {
            let claim = Claim { peer: PeerId::new(from), ticket: Ticket::new(1_000 + ticket) };
            say(&mut world, from, before, custody::Body::Update(Update::Withdraw(claim)));
        }
    }
    assert_eq!(world.node(3).takeover.retained(), 20_000, "the limit is per sender");
    let session = Session { peer: PeerId::new(3), number: 1_000 };
    say(&mut world, 1, before + 1, custody::Body::Census { session, slots: 1 });
    world.slow_disks(false);
    resume(&mut world, 3, "mine");
    world.run(Span::from_secs(4));
    assert!(generation(&world) > before + 1, "another generation follows the lost census");
    let ticket = resumed(&world, 3).expect("it has resumed in a session");
    world.input(3, Input::Release { call: None, ticket });
    world.run(Span::from_secs(2));
    assert!(world.fencing(1, next).is_some(), "the next request is granted");
}
