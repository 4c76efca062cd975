//! Rough minutes for Sigma, a different one from every seed. Used by the tests and by the example `fault_runs`.

use peerlock_protocols::sigma::{Config, Sigma};
use peerlock_protocols::{Quorum, Replicas};
use peerlock_sim::latency::Model;
use peerlock_sim::{Faults, Hold, Links, Open, Poisson, Report};
use peerlock_types::{Rng, Span};

/// One run: its quorum, and what came of it.
#[derive(Debug)]
pub struct Rough {
    quorum: Quorum,
    pub report: Report,
}

impl Rough {
    /// Whether fewer than 2m − n replicas were reset within any one lease time: then nothing may go wrong.
    pub fn is_within_the_bound(&self) -> bool {
        self.report.numbers.count("resets within a lease") < u64::from(self.quorum.intersection())
    }

    /// Two inside at a time, or a fencing number that is no larger than an earlier one.
    pub fn violations(&self) -> u64 {
        self.report.harm().violations + self.report.harm().fencing_back
    }
}

/// Draws a setting from the seed and runs it for a minute.
pub fn play(seed: u64, config: Config) -> Rough {
    let (quorum, open) = draw(seed);
    let (replicas, config) = (Replicas::first(quorum), Config { lease: open.lease, ..config });
    let report = open.run(|me| Sigma::new(me, &replicas, config), |_| {});
    Rough { quorum, report: report.unwrap_or_else(|failure| panic!("seed {seed}: {failure}")) }
}

/// Small quorums mostly, where little has to go wrong; stays from much shorter than a message's way to longer than a
/// lease; from nobody waiting to everybody; messages that take longer than a retry, half of them twice; and about as
/// many resets as the quorum bears.
fn draw(seed: u64) -> (Quorum, Open) {
    let mut rng = Rng::stream(seed, 99); // Apart from the streams of the run itself.
    let mut one_of = |values: &[u64]| values[rng.below(values.len() as u64) as usize];
    let (n, m) =
        [(3, 2), (3, 2), (4, 3), (4, 3), (5, 3), (5, 4), (7, 5), (32, 24)][one_of(&[0, 1, 2, 3, 4, 5, 6, 7]) as usize];
    let quorum = Quorum::new(n, m);
    let lease = Span::from_secs(one_of(&[2, 5, 10]));
    // Where no reset is allowed at all, one in the whole minute is as many as it bears.
    let life = match quorum.intersection() {
        1 => Span::from_secs(60) * u64::from(n) * one_of(&[1, 3]),
        _ => lease * u64::from(n) * one_of(&[1, 4]),
    };
    let percent = |percent: u64| percent as f64 / 100.0;
    let high = Span::from_millis(one_of(&[20, 200, 1000, 3000]));
    let open = Open {
        replicas: n,
        workload: Poisson {
            gap: Span::from_millis(one_of(&[100, 300, 1000, 3000])),
            hold: Some(Hold::Exponential(Span::from_millis(one_of(&[10, 200, 1000, 5000])))),
            settle: Span::ZERO,
            measure: Span::from_secs(60),
        },
        network: Model::Jitter { low: Span::ZERO, high }.load(n as usize).expect("jitter needs no file"),
        links: Links::Unordered,
        faults: Faults {
            loss: percent(one_of(&[0, 5, 20])),
            duplication: percent(one_of(&[0, 5, 20, 50])),
            client_crash: percent(one_of(&[0, 5])),
            replica_life: Some(life),
            ..Faults::default()
        },
        lease,
        count_violations: true,
        trials: 1,
        seed,
    };
    (quorum, open)
}
