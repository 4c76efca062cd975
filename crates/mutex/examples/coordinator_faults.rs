//! Seeded runs of the coordinator protocol with everything going wrong: is anybody let in beside another, or forgotten?
//!
//! `cargo run --release -p peerlock-mutex --example coordinator_faults [RUNS [FIRST_SEED]]`
//!
//! Every seed draws a group of replicas, a load and its troubles: messages that overtake each other, loss and duplication of
//! 1 %, replicas that lose their memory and are down for a while, partitions, clients that crash, withdraw and are cut
//! off, clocks that differ. After a minute the troubles end, and whoever waits must be served. The same seeds are then played as printed.

#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../tests/driver/mod.rs"]
mod driver;

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use driver::{Load, Outcome, Setting, Trouble, play};
use peerlock_base::{Rng, Span};
use peerlock_mutex::coordinator::{Config, Coordinator};
use peerlock_mutex::{Quorum, Replicas};

/// Sums over runs.
#[derive(Default)]
struct Sum {
    runs: AtomicU64,
    entries: AtomicU64,
    asked: AtomicU64,
    lost: AtomicU64,
    violations: AtomicU64,
    fencing_back: AtomicU64,
    unserved: AtomicU64,
    /// Runs in which anything of the last three happened.
    failed: AtomicU64,
}

impl Sum {
    fn add(&self, seen: &Outcome) -> bool {
        let failed = seen.violations + seen.fencing_back + seen.unserved > 0;
        for (sum, more) in [
            (&self.runs, 1),
            (&self.entries, seen.entries),
            (&self.asked, seen.asked),
            (&self.lost, seen.lost),
            (&self.violations, seen.violations),
            (&self.fencing_back, seen.fencing_back),
            (&self.unserved, seen.unserved),
            (&self.failed, u64::from(failed)),
        ] {
            sum.fetch_add(more, Ordering::Relaxed);
        }
        failed
    }

    fn line(&self, form: &str) {
        let [runs, asked, entries, lost, violations, fencing, unserved, failed] = [
            &self.runs,
            &self.asked,
            &self.entries,
            &self.lost,
            &self.violations,
            &self.fencing_back,
            &self.unserved,
            &self.failed,
        ]
        .map(|sum| sum.load(Ordering::Relaxed));
        println!(
            "{form}: {runs} runs, {asked} requests, {entries} entries, {lost} leases lost; {violations} beside another, \
             {fencing} with an old number, {unserved} never served; {:.2} % of the runs failed",
            100.0 * failed as f64 / runs as f64
        );
    }
}

/// At most a minority of the replicas forget within the time that it takes them to remember again.
fn draw(seed: u64) -> Setting {
    let mut rng = Rng::stream(seed, 99);
    let mut one_of = |values: &[u64]| values[rng.below(values.len() as u64) as usize];
    let (n, m) = [(3, 2), (3, 2), (4, 3), (5, 3), (7, 4)][one_of(&[0, 1, 2, 3, 4]) as usize];
    Setting {
        quorum: Quorum::new(n, m),
        load: Load::Closed { clients: one_of(&[3, 6, 12]), think: Span::from_millis(one_of(&[100, 1000, 5000])) },
        hold: Span::from_millis(one_of(&[10, 300, 3000])),
        latency: (Span::ZERO, Span::from_millis(one_of(&[20, 200, 400]))),
        length: Span::from_secs(60),
        trouble: Trouble {
            jitter: true,
            loss: 0.01,
            duplication: 0.01,
            resets_every: Span::from_secs(one_of(&[5, 20])),
            resets_at_most: (n - m) as usize,
            resets_window: Span::from_secs(30),
            down_for: Span::from_secs(one_of(&[1, 5])),
            partitions_every: Span::from_secs(one_of(&[10, 30])),
            partitions_last: Span::from_secs(one_of(&[2, 8])),
            crash: one_of(&[0, 2]) as f64 / 100.0,
            withdraw: one_of(&[0, 10]) as f64 / 100.0,
            cut_off: one_of(&[0, 5]) as f64 / 100.0,
            clocks_differ: true,
            both: one_of(&[0, 0, 1]) == 1,
            ..Trouble::default()
        },
    }
}

/// Plays all seeds with this form; only where it is said to hold are failures shown.
fn all(runs: u64, first: u64, config: Config, holds: bool) -> Sum {
    let (sum, next) = (Sum::default(), AtomicU64::new(first));
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + runs {
                        return;
                    }
                    let setting = draw(seed);
                    let replicas = Replicas::first(setting.quorum);
                    let seen = play(setting, seed, |me| Coordinator::new(me, &replicas, config));
                    if sum.add(&seen) && holds {
                        println!("seed {seed}: {setting:?}\n{seen:?}");
                    }
                }
            });
        }
    });
    sum
}

fn main() -> ExitCode {
    let mut arguments =
        std::env::args().skip(1).map(|argument| argument.parse().expect("RUNS and FIRST_SEED are numbers"));
    let (runs, first): (u64, u64) = (arguments.next().unwrap_or(10_000), arguments.next().unwrap_or(0));
    println!("seeds {first} to {}, a minute of trouble each", first + runs - 1);
    let repaired = all(runs, first, Config::REPAIRED, true);
    repaired.line("repaired");
    let few = runs.min(1000);
    all(few, first, Config::PRINTED, false).line("printed");
    // Without the two defects that stop it in every run.
    let served = Config { owner_told: true, replicas_hear_release: true, ..Config::PRINTED };
    all(few, first, served, false).line("printed, but that RELEASE is heard and the owner told");
    if repaired.failed.into_inner() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
