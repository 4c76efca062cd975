//! The product's own peers in virtual time, ten thousand times: no second holder, no fencing number that goes back,
//! nobody who is forgotten.
//!
//! More of them, or one with all its events: `cargo run -p peerlock-sim --example node_runs -- 100000 10000`,
//! `… -- trace SEED`.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod plan;

use plan::{KINDS, play, trace};
use rayon::prelude::*;

const RUNS: u64 = 10_000;

#[test]
fn ten_thousand_runs() {
    let seeds = (0..RUNS).into_par_iter();
    let reports: Vec<_> = seeds
        .map(|seed| {
            play(seed).unwrap_or_else(|failure| {
                panic!(
                    "seed {seed}, {}: {failure}\n\nAll its events: cargo run -p peerlock-sim --example node_runs -- trace {seed}",
                    KINDS[(seed % 4) as usize]
                )
            })
        })
        .collect();
    for (kind, name) in KINDS.iter().enumerate() {
        let of_kind = reports.iter().skip(kind).step_by(KINDS.len());
        let count = |number: &str| {
            reports.iter().skip(kind).step_by(KINDS.len()).map(|run| run.numbers.count(number)).sum::<u64>()
        };
        let (grants, asked) = (of_kind.clone().map(|run| run.harm().grants).sum::<u64>(), count("asked"));
        println!(
            "{name}: {asked} asked, {grants} let in, {} not in time, {} stalled, {} stopped, {} lost, {} crashed, {} events",
            count("not acquired"),
            count("stalled"),
            count("stopped"),
            count("lost"),
            count("crashed"),
            of_kind.map(|run| run.events).sum::<u64>(),
        );
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    for seed in 0..8 {
        let (one, other) = (trace(seed), trace(seed));
        assert!(one.len() > 100, "seed {seed}: {} lines", one.len());
        assert_eq!(one, other, "seed {seed}");
    }
}
