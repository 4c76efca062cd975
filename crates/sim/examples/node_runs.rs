//! Seeded runs of the product's own peers with as much going wrong as they promise to bear.
//!
//! `cargo run -p peerlock-sim --example node_runs -- [RUNS [FIRST_SEED]]`, and to see every event of one:
//! `cargo run -p peerlock-sim --example node_runs -- trace SEED`

#[path = "../tests/nodes/plan.rs"]
mod plan;

use std::process::ExitCode;

use rayon::prelude::*;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default| arguments.get(at).map_or(default, |text| text.parse().expect("a number"));
    if arguments.first().is_some_and(|first| first == "trace") {
        let seed = number(1, 0);
        println!("seed {seed}, {}: {:?}", plan::KINDS[(seed % 4) as usize], plan::plan(seed));
        plan::trace(seed).iter().for_each(|line| println!("{line}"));
        return ExitCode::SUCCESS;
    }
    let (runs, first) = (number(0, 10_000), number(1, 0));
    let play = |seed| plan::play(seed).err().map(|failure| (seed, failure));
    let failures: Vec<_> = (first..first + runs).into_par_iter().filter_map(play).collect();
    for (seed, failure) in &failures {
        println!("seed {seed}, {}: {failure}\n", plan::KINDS[(seed % 4) as usize]);
    }
    println!("{} of {runs} runs from seed {first} broke a rule", failures.len());
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
