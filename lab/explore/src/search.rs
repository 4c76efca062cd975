//! Searches all reachable states breadth first, so that the first violation found has a shortest run.
//!
//! Safety is checked in each state. "Every request is granted in every run" is checked on the whole graph: no client
//! waits in a state without successors, and there is no cycle. Requests are limited, so on a cycle peers would exchange
//! messages forever while no client enters. Clients may wait if a timer is pending and the [`Limits`](crate::Limits)
//! let no more expire.
//!
//! A protocol that retries needs the weaker property of [`explore_with_hope`].
//!
//! `stateright` cannot prove the second property: its `eventually` misses runs that end in a cycle or join a known
//! state. A test compares the number of states with it.

use std::collections::VecDeque;
use std::fmt;

use crate::graph::Graph;
use crate::{Action, Explorable, Trace, Violation, World};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explored {
    pub states: usize,
    pub steps: usize,
    /// States without successors; with a registry, those with optional events only.
    pub ends: usize,
    pub depth: usize,
}

#[derive(Clone, Debug)]
pub struct Counterexample {
    pub violation: Violation,
    pub steps: usize,
    pub trace: Trace,
}

impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.trace, self.violation)
    }
}

/// The size of the graph, or a run that violates a property.
pub type Outcome = Result<Explored, Box<Counterexample>>;

/// Explores every state reachable from `start`.
///
/// # Panics
/// If there are more than `limit` states: the world is too large for a proof.
pub fn explore<P: Explorable>(start: &World<P>, limit: usize) -> Outcome {
    search(start, limit, None, |_| true)
}

/// Searches for a shortest run with a violation that is `wanted`. Runs with another violation are not continued.
///
/// # Panics
/// As [`explore`].
pub fn seek<P: Explorable>(start: &World<P>, limit: usize, wanted: fn(&Violation) -> bool) -> Outcome {
    search(start, limit, None, wanted)
}

/// Explores like [`explore`], and proves that the clients can always be served: from every state in which at least
/// `reserve` timers may still expire, a state without waiting clients is reachable.
///
/// # Panics
/// As [`explore`].
pub fn explore_with_hope<P: Explorable>(start: &World<P>, limit: usize, reserve: u32) -> Outcome {
    search(start, limit, Some(reserve), |_| true)
}

fn search<P: Explorable>(
    start: &World<P>,
    limit: usize,
    reserve: Option<u32>,
    wanted: fn(&Violation) -> bool,
) -> Outcome {
    let mut hopes = Vec::new();
    let mut graph = Graph::new(start.fingerprint());
    let mut frontier = VecDeque::from([(0, start.clone())]);
    let (mut ends, mut depth) = (0, 0);
    let (mut actions, mut effects) = (Vec::new(), Vec::new());
    while let Some((steps, world)) = frontier.pop_front() {
        let at = graph.next();
        depth = steps;
        if let Some(reserve) = reserve {
            hopes.push(Hope::of(&world, reserve));
        }
        actions.clear();
        world.actions(&mut actions);
        if world.is_at_rest(&actions) {
            ends += 1;
            if let Some(wrong) = world.wrong_at_rest().filter(wanted) {
                return Err(replay(&graph, start, &graph.path_to(at), None, wrong));
            }
        }
        for action in &actions {
            let mut next = world.clone();
            if let Some(violation) = next.apply(action, &mut effects) {
                if !wanted(&violation) {
                    continue;
                }
                return Err(replay(&graph, start, &graph.path_to(at), Some(action), violation));
            }
            if graph.step_to(next.fingerprint()) {
                assert!(graph.states() <= limit, "more than {limit} states: explore a smaller world");
                frontier.push_back((steps + 1, next));
            }
        }
    }
    if let Some(cycle) = graph.cycle().filter(|cycle| wanted(&Violation::Livelock(cycle.len() - 1))) {
        let path = [graph.path_to(cycle[0]), cycle[1..].to_vec()].concat();
        return Err(replay(&graph, start, &path, None, Violation::Livelock(cycle.len() - 1)));
    }
    if let Some(at) = hopeless(&graph, &hopes) {
        return Err(replay(&graph, start, &graph.path_to(at), None, Violation::Hopeless(Vec::new())));
    }
    Ok(Explored { states: graph.states(), steps: graph.steps(), ends, depth })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Hope {
    Fulfilled,
    Needed,
    CutOff,
}

impl Hope {
    fn of<P: Explorable>(world: &World<P>, reserve: u32) -> Self {
        match world.all_waiting().is_empty() {
            true => Self::Fulfilled,
            false if world.timeouts_left() >= reserve => Self::Needed,
            false => Self::CutOff,
        }
    }
}

fn hopeless(graph: &Graph, hopes: &[Hope]) -> Option<u32> {
    let fulfilled = (0..).zip(hopes).filter(|(_, hope)| **hope == Hope::Fulfilled).map(|(at, _)| at);
    let leads_there = graph.leads_to(fulfilled);
    let mut states = (0..).zip(hopes);
    states.find(|&(at, hope)| *hope == Hope::Needed && !leads_there[at as usize]).map(|(at, _)| at)
}

fn replay<P: Explorable>(
    graph: &Graph,
    start: &World<P>,
    path: &[u32],
    last: Option<&Action<P::Timer>>,
    mut violation: Violation,
) -> Box<Counterexample> {
    let mut trace = Trace::default();
    let (mut actions, mut effects) = (Vec::new(), Vec::new());
    let mut world = start.clone();
    for &next in &path[1..] {
        actions.clear();
        world.actions(&mut actions);
        let leads_there = |action: &&Action<P::Timer>| {
            let mut world = world.clone();
            world.apply(action, &mut Vec::new());
            world.fingerprint() == graph.fingerprint(next)
        };
        let action = actions.iter().find(leads_there).expect("the search took this step");
        trace.step(&mut world, action, &mut effects);
    }
    if let Some(action) = last {
        trace.step(&mut world, action, &mut effects);
    }
    if let Violation::Hopeless(waiting) = &mut violation {
        *waiting = world.all_waiting();
    }
    for packet in world.packets() {
        trace.push(format_args!("under way: {packet}"));
    }
    let steps = path.len() - 1 + usize::from(last.is_some());
    Box::new(Counterexample { violation, steps, trace })
}
