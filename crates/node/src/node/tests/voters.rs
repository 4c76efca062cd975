//! Voters whose disks hang, voters that have lost confirmed data, and members that are removed.

use peerlock_registry::Registry;

use super::*;
/// Returns the registry of the machine that leads.
fn leading(world: &World) -> &Registry {
    let voters = world.machines.values().filter_map(|machine| machine.node.as_ref()?.registry());
    voters.into_iter().find(|registry| registry.is_leader()).expect("one leads")
}

fn voters(world: &World) -> Vec<u64> {
    leading(world).state().voter_hosts().iter().map(|host| host.get()).collect()
}

/// Returns a world of this many hosts, of which 1, 2 and 3 vote.
fn voting(hosts: u64) -> World {
    let mut world = World::of(3);
    world.run(Span::from_secs(5));
    (4..=hosts).for_each(|number| world.start(number, Origin::Seeks { expect: None }, &[1]));
    world.run(Span::from_secs(5));
    assert_eq!(voters(&world), [1, 2, 3]);
    world
}

/// Writes an entry every 30 s.
fn run_with_entries(world: &mut World, minutes: u64, at: u64) {
    for half in 0..2 * minutes {
        let name = format!("{}-{half}", world.now.as_nanos()).parse().expect("a name");
        let ticket = world.acquire(at, Wanted { name, ..wanted("r") });
        world.run(Span::from_secs(30));
        world.input(at, Input::Release { call: None, ticket });
    }
}

#[test]
fn voter_with_a_hanging_disk_is_replaced() {
    let mut world = voting(4);
    let leads = |number: &u64| world.node(*number).registry().is_some_and(Registry::is_leader);
    let (leader, hangs) = ((1..=3).find(leads).unwrap(), (1..=3).find(|number| !leads(number)).unwrap());
    world.machines.get_mut(&hangs).unwrap().slow_disk = true;
    run_with_entries(&mut world, 4, leader);
    assert_eq!(voters(&world), [1, 2, 3]);
    run_with_entries(&mut world, 3, leader);
    let left: Vec<u64> = (1..=4).filter(|number| *number != hangs).collect();
    assert_eq!(voters(&world), left);
    assert!(world.node(hangs).problem().is_none(), "its session needs no disk");
    // It is not chosen again when another voter is lost.
    let lost = left.into_iter().find(|number| *number != leader).unwrap();
    world.kill(lost);
    run_with_entries(&mut world, 3, leader);
    assert!(voters(&world).contains(&lost), "no other host is left");
}

#[test]
fn learner_with_a_hanging_disk_blocks_no_replacement() {
    let mut world = voting(5);
    world.machines.get_mut(&4).unwrap().slow_disk = true;
    world.kill(3);
    run_with_entries(&mut world, 4, 1);
    assert_eq!(voters(&world), [1, 2, 3]);
    run_with_entries(&mut world, 5, 1);
    assert_eq!(voters(&world), [1, 2, 5]);
}

/// The directory of the only voter is put back from a copy.
#[test]
fn registry_that_has_lost_entries_is_reported() {
    let mut world = World::of(2);
    let copy = world.machines[&1].file.clone();
    for number in 0..20 {
        let name = format!("r{number}").parse().expect("a name");
        let ticket = world.acquire(2, Wanted { name, ..wanted("r") });
        world.run(Span::from_secs(1));
        assert!(world.fencing(2, ticket).is_some());
    }
    assert_eq!(world.node(1).health(world.now).registry_fault, None);
    world.spoils = Some((9, Box::new(|bytes| bytes))); // Unexpected messages follow.
    world.kill(1);
    world.machines.get_mut(&1).unwrap().file = copy;
    world.restart(1);
    world.run(Span::from_secs(5));
    world.step(2, Input::Look { call: 9 });
    world.run(Span::from_secs(5));
    let reports = |effect: &&Effect| matches!(effect, Effect::Notice(Notice::Forgotten(_)));
    assert_eq!(world.received(1).iter().filter(reports).count(), 1, "it is logged once");
    let fault = world.node(1).health(world.now).registry_fault.expect("a fault");
    assert!(fault.contains("host 2 knows entry") && fault.contains("peerlock recover"), "{fault}");
}

#[test]
fn absent_host_is_forgotten_and_joins_again() {
    let mut world = voting(4);
    let members = |world: &World| world.node(1).registry().expect("it votes").state().members().len();
    let forget = |world: &mut World, host| {
        world.machines.get_mut(&2).unwrap().received.clear();
        world.input(2, Input::Forget { call: 9, host: PeerId::new(host) });
        world.run(Span::from_secs(2));
        world.answer(2).cloned()
    };
    for host in [3, 4] {
        let Some(Err(error)) = forget(&mut world, host) else { panic!("{host} is there") };
        assert!(error.class() == Class::NotAcquired && error.to_string().contains("has a session"), "{error}");
    }
    world.kill(4);
    world.run(Span::from_secs(60));
    assert_eq!((forget(&mut world, 4), members(&world)), (Some(Ok(Answer::Forgotten)), 3));
    assert_eq!(forget(&mut world, 4), Some(Ok(Answer::Forgotten)), "asked again");
    world.restart(4);
    world.run(Span::from_secs(5));
    let ticket = world.acquire(4, wanted("r"));
    world.run(Span::from_secs(1));
    assert!(world.fencing(4, ticket).is_some() && members(&world) == 4);
}
