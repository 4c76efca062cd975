use peerlock_types::Rng;

use crate::{Action, Counterexample, Explorable, Fault, Trace, Violation, World};

/// An optional event, such as a crash, happens in one step of this many; otherwise few runs would see a grant.
const SELDOM: u64 = 40;

/// Takes up to `steps` random steps, then runs until no event is left. Returns the number of steps.
///
/// # Errors
/// Returns a run with a violation; it is not a shortest one.
pub fn walk<P: Explorable>(start: &World<P>, seed: u64, steps: usize) -> Result<usize, Box<Counterexample>> {
    let mut taken = Vec::new();
    match stroll(start, seed, steps, &mut taken) {
        None => Ok(taken.len()),
        Some(violation) => {
            let (mut trace, mut world, mut effects) = (Trace::default(), start.clone(), Vec::new());
            for action in &taken {
                trace.step(&mut world, action, &mut effects);
            }
            Err(Box::new(Counterexample { violation, steps: taken.len(), trace }))
        }
    }
}

fn stroll<P: Explorable>(
    start: &World<P>,
    seed: u64,
    steps: usize,
    taken: &mut Vec<Action<P::Timer>>,
) -> Option<Violation> {
    let (mut world, mut rng) = (start.clone(), Rng::new(seed));
    let (mut actions, mut effects) = (Vec::new(), Vec::new());
    loop {
        actions.clear();
        world.actions(&mut actions);
        if world.is_at_rest(&actions)
            && let Some(violation) = world.wrong_at_rest()
        {
            return Some(violation);
        }
        let is_over = taken.len() >= steps;
        if is_over {
            actions.retain(is_certain);
        }
        let (rare, common): (Vec<_>, Vec<_>) = actions.drain(..).partition(is_rare);
        let is_rare_now = !rare.is_empty() && (common.is_empty() || rng.below(SELDOM) == 0);
        let choice = if is_rare_now { &rare } else { &common };
        if choice.is_empty() {
            return None;
        }
        let action = choice[rng.below(choice.len() as u64) as usize].clone();
        taken.push(action.clone());
        if let Some(violation) = world.apply(&action, &mut effects) {
            return Some(violation);
        }
    }
}

fn is_certain<T>(action: &Action<T>) -> bool {
    match action {
        Action::Fault(fault) => fault.is_certain(),
        Action::Leave(..) | Action::Deliver(_) | Action::Fire(..) | Action::Pass => true,
        _ => false,
    }
}

fn is_rare<T>(action: &Action<T>) -> bool {
    match action {
        Action::Request(_) => false,
        Action::Fault(Fault::LeaveAlone(_)) => true,
        action => !is_certain(action),
    }
}
