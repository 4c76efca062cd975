//! `stateright` finds the same states and counterexamples in the same worlds.

use peerlock_explore::{Action, Limits, World, explore};
use peerlock_protocols::Never;
use stateright::{Checker, Model, Property};

use crate::mutation::{self, BrokenFairK, Fault};

const PROMISES: &str = "safe in every state, and all are served at the end";

struct Second(World<BrokenFairK>);

#[derive(Clone, PartialEq, Hash)]
struct State {
    world: World<BrokenFairK>,
    broken: bool,
}

impl Model for Second {
    type State = State;
    type Action = Action<Never>;

    fn init_states(&self) -> Vec<State> {
        vec![State { world: self.0.clone(), broken: false }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action<Never>>) {
        if !state.broken {
            state.world.actions(actions);
        }
    }

    fn next_state(&self, state: &State, action: Action<Never>) -> Option<State> {
        let mut world = state.world.clone();
        let broken = world.apply(&action, &mut Vec::new()).is_some();
        Some(State { world, broken })
    }

    /// With several properties, stateright reports the last run found for each, not the shortest.
    fn properties(&self) -> Vec<Property<Self>> {
        let retained = |_: &Self, state: &State| {
            let mut actions = Vec::new();
            state.world.actions(&mut actions);
            !state.broken && (!actions.is_empty() || state.world.all_waiting().is_empty())
        };
        vec![Property::always(PROMISES, retained)]
    }
}

#[test]
fn the_same_states_are_counted() {
    let table = [
        (2, Limits { requests: 3, clients: 2, ..Limits::new(1) }),
        (3, Limits { requests: 2, ..Limits::new(1) }),
        (3, Limits { requests: 2, ordered: true, ..Limits::new(2) }),
        (3, Limits { requests: 2, withdrawals: 2, ..Limits::new(2) }),
        (4, Limits { withdrawals: 1, ..Limits::new(2) }),
        (5, Limits::new(3)),
    ];
    for (peers, limits) in table {
        let world = World::new(limits, mutation::peers(peers, limits.slots as u32, Fault::None));
        let ours = explore(&world, 1_000_000).unwrap_or_else(|counterexample| panic!("{counterexample}"));

        let theirs = Second(world).checker().spawn_bfs().join();

        assert_eq!(theirs.unique_state_count(), ours.states, "{peers} peers, {limits:?}");
        assert_eq!(theirs.discoveries().len(), 0, "{peers} peers, {limits:?}");
    }
}

#[test]
fn the_shortest_counterexample_is_as_short() {
    let limits = |slots| Limits { requests: 2, ..Limits::new(slots) };
    let table = [
        (Fault::TailNotUpdated, 4, limits(2)),
        (Fault::ReversalToWrongPeer, 4, limits(1)),
        (Fault::ChildForgotten, 3, limits(2)),
        (Fault::NextForgotten, 3, limits(1)),
    ];
    for (fault, peers, limits) in table {
        let world = World::new(limits, mutation::peers(peers, limits.slots as u32, fault));
        let ours = explore(&world, 1_000_000).unwrap_err();

        let theirs = Second(world).checker().spawn_bfs().join();

        let found = theirs.discovery(PROMISES).map(|path| path.into_actions().len());
        assert_eq!(found, Some(ours.steps), "{fault:?}");
    }
}
