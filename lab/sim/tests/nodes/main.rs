//! The product's peers in virtual time with all tolerated faults: exclusion, fencing, progress and order hold.
//!
//! `RUNS=100000 SEED=10000 cargo test -p peerlock-sim --test nodes seeded -- --nocapture` plays other seeds.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod plan;
mod summary;

use plan::plan;
use rayon::prelude::*;
use summary::Summary;

const RUNS: u64 = 10_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn seeded_runs_break_no_rule() {
    let (first, runs) = (number("SEED").unwrap_or(0), number("RUNS").unwrap_or(RUNS));
    let one = |seed| {
        let report = plan(seed).run().unwrap_or_else(|failure| {
            panic!(
                "seed {seed}: {failure}\n\n\
                 Again: SEED={seed} RUNS=1 cargo test -p peerlock-sim --test nodes seeded -- --nocapture\n\
                 All its events: cargo run -p peerlock-sim --example node_runs -- trace {seed}"
            )
        });
        Summary::of(seed, &report)
    };
    let summary = (first..first + runs).into_par_iter().map(one).reduce(Summary::default, Summary::plus);
    println!("{runs} runs from seed {first}: {summary}");
    if runs >= RUNS {
        summary.check();
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    for seed in 0..8 {
        let (one, other) = (plan(seed).trace(), plan(seed).trace());
        assert!(one.len() > 50, "seed {seed}: {} lines", one.len());
        assert!(one == other, "seed {seed} gave another run");
    }
}
