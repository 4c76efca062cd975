//! Seeded runs of Sigma with everything going wrong: is anybody ever let in beside another?
//!
//! `cargo run --release -p peerlock-sim --example fault_runs [RUNS [FIRST_SEED]]`
//!
//! First: runs are done until RUNS of them had fewer than 2m − n replicas reset within any one lease time. None of these
//! may have a violation; what happens in the others is counted. Then: how often does it happen where nothing
//! prevents it, beside the probability of the paper's Figure 2.

use std::process::ExitCode;

use peerlock_base::Span;
use peerlock_mutex::sigma::{Config, Sigma};
use peerlock_mutex::{Quorum, Replicas};
use peerlock_sim::latency::Model;
use peerlock_sim::{Faults, Hold, Links, Open, Poisson, Tally};
use rayon::prelude::*;

/// As many runs at a time.
const BATCH: u64 = 500;

/// A minute in which about one in twenty of everything goes wrong.
fn rough(quorum: Quorum, replica_life: Span, hold: Hold) -> Open {
    Open {
        replicas: quorum.replicas(),
        workload: Poisson {
            gap: Span::from_secs(1),
            hold: Some(hold),
            settle: Span::ZERO,
            measure: Span::from_secs(60),
        },
        network: Model::Jitter { low: Span::ZERO, high: Span::from_millis(200) }
            .load(quorum.replicas() as usize)
            .expect("jitter needs no file"),
        links: Links::Unordered,
        faults: Faults { loss: 0.05, duplication: 0.05, client_crash: 0.05, replica_life: Some(replica_life) },
        lease: Config::REPAIRED.lease,
        count_violations: true,
        trials: 1,
        seed: 0,
    }
}

fn run(quorum: Quorum, open: &Open) -> (u64, Tally) {
    let replicas = Replicas::first(quorum);
    let report = open.run(|me| Sigma::new(me, &replicas, Config::REPAIRED), |_| {});
    let report = report.unwrap_or_else(|failure| panic!("{failure}"));
    (report.entries, report.open.expect("an open run has a tally"))
}

fn main() -> ExitCode {
    let mut arguments =
        std::env::args().skip(1).map(|argument| argument.parse().expect("RUNS and FIRST_SEED are numbers"));
    let (wanted, mut seed): (u64, u64) = (arguments.next().unwrap_or(10_000), arguments.next().unwrap_or(0));
    let mut failed = false;
    for (quorum, life) in [(Quorum::new(5, 4), 100), (Quorum::new(7, 5), 100), (Quorum::new(32, 24), 30)] {
        failed |= !within_the_bound(quorum, Span::from_secs(life), wanted, &mut seed);
    }
    beside_the_formula();
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// True if nothing went wrong where nothing may.
fn within_the_bound(quorum: Quorum, life: Span, wanted: u64, seed: &mut u64) -> bool {
    let open = rough(quorum, life, Hold::Exponential(Span::from_secs(1)));
    let (mut few, mut many) = ([0; 3], [0; 3]);
    let mut holds = true;
    while few[0] < wanted {
        let batch = *seed..*seed + BATCH.min(wanted - few[0]);
        *seed = batch.end;
        let runs: Vec<(u64, (u64, Tally))> =
            batch.into_par_iter().map(|seed| (seed, run(quorum, &Open { seed, ..open.clone() }))).collect();
        for (seed, (entries, tally)) in runs {
            let is_within = tally.most_resets < quorum.intersection();
            let counts = if is_within { &mut few } else { &mut many };
            let wrong = tally.violations + tally.fencing_back;
            for (count, more) in counts.iter_mut().zip([1, entries, wrong]) {
                *count += more;
            }
            if is_within && wrong > 0 {
                holds = false;
                println!("seed {seed}: {tally:?}");
            }
        }
    }
    let (m, n, bound) = (quorum.votes(), quorum.replicas(), quorum.intersection());
    println!("{m} of {n}, replicas live {life}, 60 s each, seeds up to {seed}");
    for (counts, which) in [(few, "fewer than"), (many, "at least")] {
        let [runs, entries, wrong] = counts;
        println!("  {which} {bound} resets within a lease: {runs} runs, {entries} entries, {wrong} violations");
    }
    holds
}

/// Nothing but resets, and clients that stay for two seconds; a vote is held for that and about a round trip more.
fn beside_the_formula() {
    println!("\n{:>8}  {:>6}  {:>9}  {:>22}  {:>10}", "quorum", "life", "entries", "violations per entry", "formula");
    for (n, m) in [(3, 2), (4, 3), (5, 3), (5, 4)] {
        for life in [10, 30, 100, 300] {
            let quorum = Quorum::new(n, m);
            let mut open = rough(quorum, Span::from_secs(life), Hold::Constant(Span::from_secs(2)));
            open.faults = Faults { replica_life: open.faults.replica_life, ..Faults::default() };
            open.network = Model::Constant(Span::from_millis(100)).load(n as usize).expect("a constant needs no file");
            open.workload.measure = Span::from_secs(2000);
            open.trials = 20;
            let (entries, tally) = run(quorum, &open);
            // From the vote to the RELEASE: the grant's way, the stay, and the RELEASE's way.
            let forgets = 1.0 - (-2.2 / life as f64).exp();
            let (rate, formula) = (tally.violations as f64 / entries as f64, quorum.broken(forgets));
            println!("{:>8}  {life:>4} s  {entries:>9}  {rate:>22.6}  {formula:>10.6}", format!("{m} of {n}"));
        }
    }
}
