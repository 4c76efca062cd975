//! Agents quit unused resources, which the registry keeps.

use peerlock_types::Span;

use super::super::*;
use super::world::{World, wanted};
use crate::Name;
use crate::verb::Resize;

const MINUTE: Span = Span::from_secs(60);

impl World {
    fn use_once(&mut self, number: u64, name: &str) -> u64 {
        let ticket = self.acquire(number, wanted(name));
        self.run(Span::from_secs(1));
        let fencing = self.fencing(number, ticket).unwrap_or_else(|| panic!("{number} is not granted a slot"));
        self.input(number, Input::Release { call: None, ticket });
        fencing
    }

    fn parts(&self) -> usize {
        self.machines.values().filter_map(|machine| machine.node.as_ref()).map(|node| node.parts.iter().count()).sum()
    }
}

#[test]
fn unused_resource_is_given_up_and_keeps_its_numbers() {
    let mut world = World::of(3);
    let first: Vec<u64> = (0..100).map(|name| world.use_once(2, &format!("name-{name}"))).collect();
    assert_eq!(world.parts(), 100);
    world.run(MINUTE * 12);
    assert_eq!(world.parts(), 0);
    let state = world.node(1).registry().expect("the first is a voter").state();
    assert_eq!(state.resources().len(), 100, "the registry keeps them");
    assert!(state.resources().values().all(|resource| resource.parties().is_empty()));
    for (name, first) in first.into_iter().enumerate() {
        assert!(world.use_once(3, &format!("name-{name}")) > first, "no number is given twice");
    }
}

#[test]
fn unused_parties_quit_and_used_ones_do_not() {
    let mut world = World::of(4);
    let mut last = 0;
    for number in [1, 2, 3, 4, 2] {
        let fencing = world.use_once(number, "r");
        assert!(fencing > last);
        last = fencing;
    }
    let inside = world.acquire(1, wanted("used"));
    let waits = world.acquire(2, wanted("used"));
    world.run(MINUTE * 60);
    let has = |world: &World, number: u64, name: &str| {
        world.node(number).parts.contains(name.parse::<Name>().expect("a name").key())
    };
    assert!((1..=4).all(|number| !has(&world, number, "r")));
    assert!(has(&world, 1, "used") && has(&world, 2, "used"));
    world.input(1, Input::Release { call: None, ticket: inside });
    assert!(world.fencing(2, waits).is_some());
    assert!((1..=4).all(|number| world.use_once(number, "r") > last), "the next request is granted");
}

/// A census that arrives after its receiver has given up the resource.
#[test]
fn given_up_party_answers_a_census() {
    let mut world = World::of(3);
    let first = world.acquire(1, wanted("r"));
    let second = world.acquire(2, wanted("r"));
    world.input(1, Input::Release { call: None, ticket: first });
    world.run(Span::from_secs(1));
    assert!(world.fencing(2, second).is_some());
    world.input(2, Input::Release { call: None, ticket: second });
    let key = "r".parse::<Name>().expect("a name").key();
    // As if the registry had not applied the `Quit`: the coordinator asks all parties.
    let two = world.machines.get_mut(&2).and_then(|it| it.node.as_mut()).expect("it runs");
    assert!(two.parts.give_up(key, two.now));
    world.input(3, Input::call(7, Resize { name: "r".parse().expect("a name"), slots: 2 }));
    world.run(Span::from_secs(1));
    world.use_once(3, "r");
}
