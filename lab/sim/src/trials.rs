//! Many trials of one setting: run in parallel, put together in order.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use peerlock_types::Rng;
use rayon::prelude::*;
use thiserror::Error;

use crate::actor::Actor;
use crate::report::{Report, Sheet, put_together};
use crate::watch::{Trace, Watch};
use crate::workload::Workload;
use crate::world::{Violation, World};

/// How many events are shown when a rule is broken.
pub(crate) const SHOWN: usize = 24;

/// A rule was broken in one of the trials.
#[derive(Clone, Debug, Error)]
#[error("trial {trial} with seed {seed} broke a rule {violation}\nThe last events:\n{}", .events.join("\n"))]
pub struct Failure {
    /// Which trial, counted from 0.
    pub trial: u32,
    /// The seed of the experiment.
    pub seed: u64,
    /// What went wrong.
    pub violation: Violation,
    /// What happened just before.
    pub events: Vec<String>,
}

/// One setting: what a trial of it is.
pub trait Setting: Sync {
    /// Who lives in it.
    type Actor: Actor;
    /// What happens to them.
    type Workload: Workload<Self::Actor>;
    /// What must hold.
    type Rules: Watch<Self::Actor>;
    /// What is counted, without stopping anything.
    type Counts: Watch<Self::Actor>;

    /// A world with all its peers, in which nothing has happened yet. What it is watched by is made of rules and
    /// counts.
    fn world<W: Watch<Self::Actor>>(
        &self,
        seed: u64,
        watch: impl FnOnce(Self::Rules, Self::Counts) -> W,
    ) -> World<'_, Self::Actor, Self::Workload, W>;

    /// Whether a trial that a broken rule has stopped is counted, instead of stopping all of them.
    fn counts(&self) -> bool {
        false
    }

    /// Resources that are asked for: each has a line of its own in the sheet.
    fn resources(&self) -> usize {
        1
    }

    /// As many replicas of a resource must forget within a lease time for a quorum to promise nothing.
    fn bound(&self) -> u32 {
        u32::MAX
    }
}

/// Runs all trials, on as many threads as rayon has; neither the report nor which failure is told depends on their
/// number. `progress` is told of every trial that has ended.
pub(crate) fn run<S: Setting>(
    setting: &S,
    trials: u32,
    seed: u64,
    progress: impl Fn(u64) + Sync,
) -> Result<Report, Box<Failure>> {
    // Of those that fail the first is told: when one has failed, only those before it still matter.
    let failed = AtomicU32::new(u32::MAX);
    let ended = |number| {
        if number > failed.load(Relaxed) {
            return None;
        }
        let sheet = run_trial(setting, number, seed).inspect(|_| progress(1));
        if sheet.is_err() {
            failed.fetch_min(number, Relaxed);
        }
        Some(sheet)
    };
    let sheets: Vec<Option<_>> = (0..trials).into_par_iter().map(ended).collect();
    let sheets = sheets.into_iter().flatten().collect::<Result<Vec<Sheet>, _>>()?;
    Ok(put_together(sheets, setting.bound()))
}

fn run_trial<S: Setting>(setting: &S, number: u32, seed: u64) -> Result<Sheet, Box<Failure>> {
    let mut world = setting.world(seed_of(number, seed), |rules, counts| (rules, counts));
    match world.run() {
        Ok(()) => Ok(world.sheet(setting.resources())),
        Err(violation) if setting.counts() => {
            let mut sheet = world.sheet(setting.resources());
            sheet.harm[0].stopped = 1;
            sheet.stop = Some(format!("trial {number} {violation}"));
            Ok(sheet)
        }
        Err(violation) => Err(explain(setting, number, seed, violation)),
    }
}

/// Runs a failed trial again with a trace: the same seed gives the same run.
fn explain<S: Setting>(setting: &S, trial: u32, seed: u64, violation: Violation) -> Box<Failure> {
    let mut again = setting.world(seed_of(trial, seed), |rules, _| (Trace::of_last(SHOWN), rules));
    let same = again.run();
    debug_assert_eq!(same.as_ref(), Err(&violation), "the same seed gives the same run");
    notified(&again.watch.0, trial, seed, violation)
}

/// A failure with what happened just before it.
pub(crate) fn notified(trace: &Trace, trial: u32, seed: u64, violation: Violation) -> Box<Failure> {
    let events = trace.lines().map(String::from).collect();
    Box::new(Failure { trial, seed, violation, events })
}

/// The seed of one trial.
pub fn seed_of(trial: u32, seed: u64) -> u64 {
    Rng::stream(seed, trial.into()).bits()
}
