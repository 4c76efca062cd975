//! `cargo run -p peerlock-sim --example node_runs -- [storm] [RUNS [FIRST_SEED]]`: seeded runs of the product's peers
//! with all tolerated faults. `[storm] trace SEED` prints every event of one.

#[path = "../tests/nodes/plan.rs"]
mod plan;
#[path = "../tests/nodes/summary.rs"]
mod summary;

use std::process::ExitCode;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use rayon::prelude::*;
use summary::Summary;

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let storms = arguments.first().is_some_and(|first| first == "storm");
    arguments.drain(..usize::from(storms));
    let plan = if storms { plan::storm } else { plan::plan };
    let number = |at: usize, default| arguments.get(at).map_or(default, |text| text.parse().expect("a number"));
    if arguments.first().is_some_and(|first| first == "trace") {
        let plan = plan(number(1, 0));
        println!("{plan:#?}");
        plan.trace().iter().for_each(|row| println!("{row}"));
        return ExitCode::SUCCESS;
    }
    let (runs, first) = (number(0, 10_000), number(1, 0));
    let failures = AtomicU64::new(0);
    let one = |seed| match plan(seed).run() {
        Ok(report) => Summary::of(seed, &report),
        Err(failure) => {
            failures.fetch_add(1, Relaxed);
            println!("seed {seed}: {failure}\n"); // At once: many runs take long.
            Summary::default()
        }
    };
    let summary = (first..first + runs).into_par_iter().map(one).reduce(Summary::default, Summary::plus);
    let failures = failures.into_inner();
    println!("{failures} of {runs} runs from seed {first} broke a rule; the others: {summary}");
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
