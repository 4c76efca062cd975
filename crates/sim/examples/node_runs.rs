//! Seeded runs of the product's own peers with as much going wrong as they promise to bear.
//!
//! `cargo run -p peerlock-sim --example node_runs -- [RUNS [FIRST_SEED]]`, and to see every event of one:
//! `cargo run -p peerlock-sim --example node_runs -- trace SEED`

#[path = "../tests/nodes/plan.rs"]
mod plan;
#[path = "../tests/nodes/summary.rs"]
mod summary;

use std::process::ExitCode;

use rayon::prelude::*;
use summary::Summary;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default| arguments.get(at).map_or(default, |text| text.parse().expect("a number"));
    if arguments.first().is_some_and(|first| first == "trace") {
        let seed = number(1, 0);
        println!("seed {seed}: {:#?}", plan::plan(seed));
        plan::trace(seed).iter().for_each(|line| println!("{line}"));
        return ExitCode::SUCCESS;
    }
    let (runs, first) = (number(0, 10_000), number(1, 0));
    let played: Vec<_> = (first..first + runs).into_par_iter().map(|seed| (seed, plan::play(seed))).collect();
    let mut failures = 0;
    let mut summary = Summary::default();
    for (seed, result) in played {
        match result {
            Ok(report) => summary = summary.plus(Summary::of(seed, &report)),
            Err(failure) => {
                failures += 1;
                println!("seed {seed}: {failure}\n");
            }
        }
    }
    println!("{failures} of {runs} runs from seed {first} broke a rule; the others: {summary}");
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
