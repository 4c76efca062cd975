//! One-minute runs of Sigma under faults, one per seed.

use peerlock_protocols::sigma::{Config, Sigma};
use peerlock_protocols::{Quorum, Replicas};
use peerlock_sim::latency::Model;
use peerlock_sim::{Faults, Hold, Links, Open, Poisson, Report};
use peerlock_types::{Rng, Span};

#[derive(Debug)]
pub struct Rough {
    quorum: Quorum,
    pub report: Report,
}

impl Rough {
    /// With fewer than 2m − n replicas reset within any one lease, no violation is allowed.
    pub fn is_within_the_bound(&self) -> bool {
        self.report.numbers.count("resets within a lease") < u64::from(self.quorum.intersection())
    }

    pub fn violations(&self) -> u64 {
        self.report.harm().violations + self.report.harm().fencing_back
    }
}

pub fn play(seed: u64, config: Config) -> Rough {
    let (quorum, open) = draw(seed);
    let (replicas, config) = (Replicas::first(quorum), Config { lease: open.lease, ..config });
    let report = open.run(|me| Sigma::new(me, &replicas, config), |_| {});
    Rough { quorum, report: report.unwrap_or_else(|failure| panic!("seed {seed}: {failure}")) }
}

/// Mostly small quorums, which few resets break; hold times from much shorter than a message delay to longer than a
/// lease; messages that take longer than a retry, half of them twice; about as many resets as the quorum tolerates.
fn draw(seed: u64) -> (Quorum, Open) {
    let mut rng = Rng::stream(seed, 99); // Separate from the streams of the run itself.
    let mut one_of = |values: &[u64]| values[rng.below(values.len() as u64) as usize];
    let (n, m) =
        [(3, 2), (3, 2), (4, 3), (4, 3), (5, 3), (5, 4), (7, 5), (32, 24)][one_of(&[0, 1, 2, 3, 4, 5, 6, 7]) as usize];
    let quorum = Quorum::new(n, m);
    let lease = Span::from_secs(one_of(&[2, 5, 10]));
    // About one in the whole minute.
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
