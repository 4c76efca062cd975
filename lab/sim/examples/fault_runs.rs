//! `cargo run --release -p peerlock-sim --example fault_runs [RUNS [FIRST_SEED]]`: seeded runs of Sigma with all
//! faults, until RUNS of them had fewer than 2m − n replicas reset within any one lease; none of these may have a
//! violation. Then the frequency of violations without protection, beside the paper's Figure 2.

#[path = "../tests/rough/mod.rs"]
mod rough;

use std::process::ExitCode;

use peerlock_protocols::sigma::{Config, Sigma};
use peerlock_protocols::{Quorum, Replicas};
use peerlock_sim::latency::Model;
use peerlock_sim::{Faults, Hold, Links, Open, Poisson};
use peerlock_types::Span;
use rayon::prelude::*;
use rough::Rough;

const BATCH: u64 = 500;

fn main() -> ExitCode {
    let mut arguments =
        std::env::args().skip(1).map(|argument| argument.parse().expect("RUNS and FIRST_SEED are numbers"));
    let (runs, first): (u64, u64) = (arguments.next().unwrap_or(10_000), arguments.next().unwrap_or(0));
    let holds = within_the_bound(runs, first);
    beside_the_formula();
    if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn within_the_bound(wanted: u64, first: u64) -> bool {
    let (mut few, mut many) = ([0; 3], [0; 3]);
    let (mut seed, mut holds) = (first, true);
    while few[0] < wanted {
        let batch = seed..seed + BATCH;
        seed = batch.end;
        let runs: Vec<(u64, Rough)> =
            batch.into_par_iter().map(|seed| (seed, rough::play(seed, Config::REPAIRED))).collect();
        for (seed, run) in runs {
            let is_within = run.is_within_the_bound();
            let counts = if is_within { &mut few } else { &mut many };
            for (count, more) in counts.iter_mut().zip([1, run.report.entries, run.violations()]) {
                *count += more;
            }
            if is_within && run.violations() > 0 {
                holds = false;
                println!("seed {seed}: {run:?}");
            }
        }
    }
    println!("seeds {first} to {}, a minute each", seed - 1);
    for (counts, which) in [(few, "fewer than"), (many, "at least")] {
        let [runs, entries, violations] = counts;
        println!("  {which} 2m - n resets within a lease: {runs} runs, {entries} entries, {violations} violations");
    }
    holds
}

/// A vote is held for the two seconds of the hold and about a round trip more.
fn beside_the_formula() {
    println!("\n{:>8}  {:>6}  {:>9}  {:>22}  {:>10}", "quorum", "life", "entries", "violations per entry", "formula");
    for (n, m) in [(3, 2), (4, 3), (5, 3), (5, 4)] {
        for life in [10, 30, 100, 300] {
            let quorum = Quorum::new(n, m);
            let open = Open {
                replicas: n,
                workload: Poisson {
                    gap: Span::from_secs(1),
                    hold: Some(Hold::Constant(Span::from_secs(2))),
                    settle: Span::ZERO,
                    measure: Span::from_secs(2000),
                },
                network: Model::Constant(Span::from_millis(100)).load(n as usize).expect("a constant needs no file"),
                links: Links::Ordered,
                faults: Faults { replica_life: Some(Span::from_secs(life)), ..Faults::default() },
                lease: Config::REPAIRED.lease,
                count_violations: true,
                trials: 20,
                seed: 1,
            };
            let replicas = Replicas::first(quorum);
            let report = open.run(|me| Sigma::new(me, &replicas, Config::REPAIRED), |_| {});
            let report = report.unwrap_or_else(|failure| panic!("{failure}"));
            let (entries, violations) = (report.entries, report.harm().violations);
            let forgets = 1.0 - (-2.2 / life as f64).exp();
            let (rate, formula) = (violations as f64 / entries as f64, quorum.broken(forgets));
            println!("{:>8}  {life:>4} s  {entries:>9}  {rate:>22.6}  {formula:>10.6}", format!("{m} of {n}"));
        }
    }
}
