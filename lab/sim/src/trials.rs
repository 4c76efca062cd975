use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use peerlock_types::Rng;
use rayon::prelude::*;
use thiserror::Error;

use crate::actor::Actor;
use crate::report::{Report, Sheet, put_together};
use crate::watch::Trace;
use crate::workload::Workload;
use crate::world::{Violation, World};

const SHOWN: usize = 24;

#[derive(Clone, Debug, Error)]
#[error("trial {trial} with seed {seed} broke a rule {violation}\nThe last events:\n{}", .events.join("\n"))]
pub struct Failure {
    pub trial: u32,
    pub seed: u64,
    pub violation: Violation,
    pub events: Vec<String>,
}

/// One setting, from which trials are made.
pub trait Setting: Sync {
    type Actor: Actor;
    type Workload: Workload<Self::Actor>;
    fn world(&self, seed: u64) -> World<'_, Self::Actor, Self::Workload>;

    /// A broken rule is counted and ends only its trial.
    fn counts(&self) -> bool {
        false
    }

    fn resources(&self) -> usize {
        1
    }

    /// The number of resets of a resource's replicas within a lease from which on a quorum guarantees nothing.
    fn bound(&self) -> u32 {
        u32::MAX
    }
}

/// Neither the report nor the choice of the reported failure depends on the number of threads. `progress` is called for
/// every trial that has ended.
pub(crate) fn run<S: Setting>(
    setting: &S,
    trials: u32,
    seed: u64,
    progress: impl Fn(u64) + Sync,
) -> Result<Report, Box<Failure>> {
    // After a failure only the trials before it matter.
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
    let mut world = setting.world(seed_of(number, seed));
    match world.run() {
        Ok(()) => Ok(world.sheet(setting.resources())),
        Err(violation) if setting.counts() => {
            let mut sheet = world.sheet(setting.resources());
            sheet.harm[0].stopped = 1;
            sheet.stop = Some(format!("trial {number} {violation}"));
            Ok(sheet)
        }
        Err(violation) => {
            let repeat = |again: &mut World<'_, S::Actor, S::Workload>| {
                let same = again.run();
                debug_assert_eq!(same.as_ref(), Err(&violation), "the same seed gives the same run");
            };
            let events = traced(setting, seed_of(number, seed), repeat);
            Err(Box::new(Failure { trial: number, seed, violation, events }))
        }
    }
}

/// Repeats a failed trial with a trace, and returns the last events.
pub(crate) fn traced<S: Setting>(
    setting: &S,
    seed: u64,
    repeat: impl FnOnce(&mut World<'_, S::Actor, S::Workload>),
) -> Vec<String> {
    let mut trace = Trace::of_last(SHOWN);
    let mut again = setting.world(seed);
    again.observe(&mut trace);
    repeat(&mut again);
    drop(again);
    trace.into_lines()
}

pub fn seed_of(trial: u32, seed: u64) -> u64 {
    Rng::stream(seed, trial.into()).bits()
}
