//! Every state that a world can get into, breadth first, so that the first violation found is a shortest one.
//!
//! Safety is checked in each state. "Every request is granted in every run" is checked on the whole graph: in each
//! state where nothing can happen any more nobody waits, and there is no cycle. A cycle would be a run without end; as
//! a client that is inside can always leave and requests are counted, a run without end is one in which peers talk for
//! ever and nobody gets in. Where a timer is pending but the world's [`Limits`](crate::Limits) let no more run out,
//! nothing is said about those who wait.
//!
//! A protocol that asks again from time to time needs the weaker promise of [`explore_with_hope`]: a run in which it
//! never gets to ask cannot be served, and one in which it asks for ever has no end.
//!
//! *Why an own search.* `stateright` is the model checker that one would take, and a test runs the same worlds through
//! it to see that it counts the same states and finds runs as short. But its `eventually` overlooks runs that end in a
//! cycle or join a state seen before (its authors say so), which leaves the second promise unproved; with several
//! properties it reports the last run found for each (0.31), not the shortest; and every state waits in its queue with
//! the whole way to it. Here one peer changes per step and the rest is shared, and of a state that has been dealt with
//! only a fingerprint and some numbers are kept: some sixty bytes.

use std::collections::VecDeque;
use std::fmt;

use crate::graph::Graph;
use crate::{Action, Explorable, Trace, Violation, World};

/// What was looked at, when nothing was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explored {
    /// How many different states were seen.
    pub states: usize,
    /// Ways to get from one state to another.
    pub steps: usize,
    /// States in which nothing can happen any more, or where there is a register, nothing that happens by itself.
    pub ends: usize,
    /// Steps from the start to the state that is farthest from it.
    pub depth: usize,
}

/// A shortest run that breaks a promise.
#[derive(Clone, Debug)]
pub struct Counterexample {
    /// The promise that was broken.
    pub violation: Violation,
    /// How many steps it takes to get there.
    pub steps: usize,
    /// How to get there.
    pub trace: Trace,
}

impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.trace, self.violation)
    }
}

/// Looks at every state that `start` can lead to.
///
/// # Panics
/// If there are more than `limit` states: then the world is too large to be proved anything about.
pub fn explore<P: Explorable>(start: &World<P>, limit: usize) -> Result<Explored, Box<Counterexample>> {
    search(start, limit, None, |_| true)
}

/// Looks for a shortest run that breaks the promise that is `wanted`, in a world that breaks many. A run that breaks
/// another first is not followed any further.
///
/// # Panics
/// As [`explore`].
pub fn seek<P: Explorable>(
    start: &World<P>,
    limit: usize,
    wanted: fn(&Violation) -> bool,
) -> Result<Explored, Box<Counterexample>> {
    search(start, limit, None, wanted)
}

/// As [`explore`], and proves that hope is never lost: from every state in which at least `reserve` timers may still
/// run out, a state in which nobody waits can be reached.
///
/// # Panics
/// As [`explore`].
pub fn explore_with_hope<P: Explorable>(
    start: &World<P>,
    limit: usize,
    reserve: u32,
) -> Result<Explored, Box<Counterexample>> {
    search(start, limit, Some(reserve), |_| true)
}

fn search<P: Explorable>(
    start: &World<P>,
    limit: usize,
    reserve: Option<u32>,
    wanted: fn(&Violation) -> bool,
) -> Result<Explored, Box<Counterexample>> {
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

/// What a state means to [`explore_with_hope`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hope {
    /// Nobody waits any more.
    Fulfilled,
    /// Somebody waits, and must be able to get in.
    Needed,
    /// Somebody waits, but too few timers may still run out.
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

/// The first state from which hope cannot be fulfilled and must be.
fn hopeless(graph: &Graph, hopes: &[Hope]) -> Option<u32> {
    let fulfilled = (0..).zip(hopes).filter(|(_, hope)| **hope == Hope::Fulfilled).map(|(at, _)| at);
    let leads_there = graph.leads_to(fulfilled);
    let mut states = (0..).zip(hopes);
    states.find(|&(at, hope)| *hope == Hope::Needed && !leads_there[at as usize]).map(|(at, _)| at)
}

/// Plays the run along `path` once more, this time with a pen, and then `last`.
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
        let action = actions.iter().find(leads_there).expect("the search went this way before");
        trace.step(&mut world, action, &mut effects);
    }
    if let Some(action) = last {
        trace.step(&mut world, action, &mut effects);
    }
    if let Violation::Hopeless(waiting) = &mut violation {
        *waiting = world.all_waiting();
    }
    for packet in world.packets() {
        trace.line(format_args!("under way: {packet}"));
    }
    let steps = path.len() - 1 + usize::from(last.is_some());
    Box::new(Counterexample { violation, steps, trace })
}
