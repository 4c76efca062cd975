//! Seeded simulation of the strawman: safe, but slow.

mod faults;

use peerlock_protocols::strawman::{Config, Strawman};
use peerlock_protocols::{Quorum, Replicas};
use peerlock_sim::{Experiment, Faults, Links, Open, Poisson};
use peerlock_types::Span;

#[test]
fn both_forms_are_safe_and_answer_every_request() {
    let replicas = Replicas::first(Quorum::new(5, 4));
    let workload = faults::closed(Span::from_secs(4), Span::from_millis(300), 10);
    let apart = Experiment { workload, network: faults::jitter(200), ..faults::calm(5, 6, 400) };
    let apart = Experiment { faults: faults::everything(5), ..apart };
    let faults = Faults { client_crash: 0.0, ..faults::everything(6) };
    let together = Experiment { peers: 6, servers: 0, faults, ..apart.clone() };
    for config in [Config::GIVES_UP, Config::BACKS_OFF] {
        for experiment in [&apart, &together] {
            let report = faults::play(experiment, |me| Strawman::new(me, &replicas, config));
            assert!(report.entries > 400, "{report:?}");
        }
    }
}

/// The throughput of `rate` clients a second, which release at once.
fn throughput(config: Config, (low, high): (u64, u64), rate: f64) -> f64 {
    let open = Open {
        replicas: 32,
        workload: Poisson {
            gap: Span::from_secs_f64(1.0 / rate),
            hold: None,
            settle: Span::from_secs(60),
            measure: Span::from_secs(140),
        },
        network: faults::latency(low, high),
        links: Links::Unordered,
        faults: Faults::default(),
        lease: config.lease,
        count_violations: false,
        trials: 1,
        seed: 1,
    };
    let replicas = Replicas::first(Quorum::DEFAULT);
    let report = open.run(|me| Strawman::new(me, &replicas, config), |_| {});
    report.unwrap_or_else(|failure| panic!("{failure}")).throughput().expect("an open workload is measured")
}

/// §3, Figure 3; the more latencies vary, the lower the peak.
#[test]
fn losers_giving_up_follow_aloha_curve() {
    let [low, peak, high] = [0.2, 2.5, 20.0].map(|rate| throughput(Config::GIVES_UP, (0, 200), rate));
    assert!((0.1..0.3).contains(&low) && peak > 0.7 && high < 0.1, "{low} {peak} {high}");
    assert!(throughput(Config::GIVES_UP, (50, 150), 2.5) > 1.2 * peak);
}

/// All replicas receive requests in the same order, so one client always wins.
#[test]
fn constant_latency_prevents_collapse() {
    let [low, high] = [4.0, 20.0].map(|rate| throughput(Config::GIVES_UP, (100, 100), rate));
    assert!(low > 1.8 && high > low, "{low} {high}");
    assert!(throughput(Config::BACKS_OFF, (100, 100), 6.0) > 4.5);
}

/// Below the cliff every client is served eventually, beyond it none.
#[test]
fn losers_backing_off_collapse_beyond_a_load() {
    let [low, high] = [0.2, 1.5].map(|rate| throughput(Config::BACKS_OFF, (0, 200), rate));
    assert!((0.1..0.3).contains(&low) && high < 0.05, "{low} {high}");
}
