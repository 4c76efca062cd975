//! Seeded runs of the coordinator protocol with many faults, repaired and as printed.
//!
//! `cargo run --release -p peerlock-protocols --example coordinator_faults [RUNS [FIRST_SEED]]`

#[path = "../tests/faults/mod.rs"]
mod faults;

use std::process::ExitCode;

use peerlock_protocols::coordinator::{Config, Coordinator};
use peerlock_protocols::{Quorum, Replicas};
use peerlock_sim::{Cut, Experiment, Faults, Harm, Spells};
use peerlock_types::{Rng, Span};

/// At most a minority of the replicas is reset within the time that recovery takes.
fn draw(seed: u64) -> (Quorum, Experiment) {
    let mut rng = Rng::stream(seed, 99);
    let mut one_of = |values: &[u64]| values[rng.below(values.len() as u64) as usize];
    let (n, m) = [(3, 2), (3, 2), (4, 3), (5, 3), (7, 4)][one_of(&[0, 1, 2, 3, 4]) as usize];
    let (clients, think) = (one_of(&[3, 6, 12]) as usize, Span::from_millis(one_of(&[100, 1000, 5000])));
    let hold = Span::from_millis(one_of(&[10, 300, 3000]));
    let percent = |percent: u64| percent as f64 / 100.0;
    let faults = Faults {
        loss: 0.01,
        duplication: 0.01,
        replica_life: Some(Span::from_secs(one_of(&[5, 20])) * u64::from(n)),
        resets_at_most: Some(((n - m) as usize, Span::from_secs(30))),
        down_after_reset: Some(Span::from_secs(one_of(&[1, 5]))),
        partitions: Some((
            Cut::Whole,
            Spells { every: Span::from_secs(one_of(&[10, 30])), last: Span::from_secs(one_of(&[2, 8])) },
        )),
        client_crash: percent(one_of(&[0, 2])),
        withdrawals: percent(one_of(&[0, 10])),
        cut_off: Some((percent(one_of(&[0, 5])), Span::from_secs(15))),
        clocks: Some((Span::from_secs(5), 400)),
        ..Faults::default()
    };
    let experiment = Experiment {
        workload: faults::closed(think, hold, 20),
        network: faults::jitter(one_of(&[20, 200, 400])),
        faults,
        count_violations: true,
        seed,
        ..faults::calm(n, clients, 1)
    };
    (Quorum::new(n, m), experiment)
}

/// Returns the number of failures, which are printed if the form `holds`.
fn all(form: &str, runs: u64, first: u64, config: Config, holds: bool) -> u64 {
    let (mut sum, mut failed) = (Harm::default(), 0);
    for seed in first..first + runs {
        let (quorum, experiment) = draw(seed);
        let replicas = Replicas::first(quorum);
        let harm = faults::play(&experiment, |me| Coordinator::new(me, &replicas, config)).harm();
        failed += u64::from(!harm.is_none());
        if holds && !harm.is_none() {
            println!("seed {seed}: {experiment:?}\n{harm:?}");
        }
        sum = sum.plus(harm);
    }
    println!("{form}: {runs} runs, {:.2} % of them failed; {sum:?}", 100.0 * failed as f64 / runs as f64);
    failed
}

fn main() -> ExitCode {
    let mut arguments =
        std::env::args().skip(1).map(|argument| argument.parse().expect("RUNS and FIRST_SEED are numbers"));
    let (runs, first): (u64, u64) = (arguments.next().unwrap_or(10_000), arguments.next().unwrap_or(0));
    println!("seeds {first} to {}", first + runs - 1);
    let failed = all("repaired", runs, first, Config::REPAIRED, true);
    let few = runs.min(1000);
    all("printed", few, first, Config::PRINTED, false);
    // Two defects stop the printed form in every run.
    let served = Config { owner_notified: true, replicas_receive_release: true, ..Config::PRINTED };
    all("printed, with ADDREQUEST to the owner and RELEASE handled", few, first, served, false);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
