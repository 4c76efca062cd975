//! Fair-K on the bench: the paper's plateau, safety in rough weather, and the same bytes from the same seed.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use peerlock_base::{PeerId, Span};
use peerlock_mutex::fair_k::Config;
use peerlock_mutex::token::Layout;
use peerlock_mutex::{Bv95, FairK, FairKLate, Observe, bv95, fair_k_late};
use peerlock_sim::latency::{Latency, Model};
use peerlock_sim::{Closed, Experiment, Faults, Ideal, Links, Report};

fn experiment(peers: usize, slots: u32, hold: &str, think: f64, latency: &str, entries: u32) -> Experiment {
    Experiment {
        peers,
        servers: 0,
        slots,
        workload: Closed { think: Span::from_secs_f64(1.0 / think), hold: hold.parse().unwrap(), entries },
        network: latency.parse::<Model>().unwrap().load(peers).unwrap(),
        links: Links::Unordered,
        faults: Faults::default(),
        count_violations: false,
        warm_up: 20,
        trials: 2,
        seed: 1,
    }
}

fn run<P: Observe<Timer: std::hash::Hash>>(
    experiment: &Experiment,
    peer: impl Fn(PeerId, &Layout) -> P + Sync,
) -> Report {
    let layout = Layout::printed(experiment.peers as u64, experiment.slots);
    let ids = || (0..experiment.peers as u64).map(PeerId::new);
    let peers = |_: &Latency| ids().map(|me| peer(me, &layout)).collect();
    experiment.run(peers, |_| {}).unwrap_or_else(|failure| panic!("{failure}\n{experiment:?}"))
}

fn fair_k(experiment: &Experiment, config: Config) -> Report {
    run(experiment, |me, layout| FairK::new(me, layout, config))
}

/// §4: with every slot busy and a hand-off of one message, a wait is N(cset + T)/k − cset − 1/λ.
#[test]
fn the_mean_wait_is_the_closed_bound_wherever_it_is_saturated() {
    for (peers, slots, think) in [(100, 3, 0.5), (100, 3, 1.0), (100, 1, 0.5), (60, 5, 0.2), (40, 3, 10.0)] {
        let experiment = experiment(peers, slots, "10s", think, "constant:1s", 300);
        let bound = peers as f64 * 11.0 / f64::from(slots) - 10.0 - 1.0 / think;
        for config in [Config::PRINTED, Config::REPAIRED] {
            let mean = fair_k(&experiment, config).steady.unwrap().all.mean;
            assert!((mean / bound - 1.0).abs() < 1e-3, "N = {peers}, k = {slots}, λ = {think}: {mean} against {bound}");
        }
    }
}

#[test]
fn the_ideal_reaches_the_same_bound_and_keeps_the_order() {
    let experiment = experiment(100, 3, "10s", 0.5, "constant:1s", 300);
    let report = experiment.run(|latency| Ideal::peers(100, 3, latency), |_| {}).unwrap();
    assert!((report.steady.unwrap().all.mean / 354.667 - 1.0).abs() < 1e-3);
    assert_eq!(report.numbers.count("order inversions"), 0);
}

/// Every rule is watched in every run; this is only about which runs.
#[test]
fn no_rule_is_broken_in_rough_weather() {
    for latency in ["constant:1s", "uniform:0s..4s", "jitter:0s..4s", "king"] {
        for (peers, slots, hold) in [(1, 1, "1s"), (2, 5, "exp:1s"), (7, 2, "exp:1s"), (30, 4, "two-point:1s/100s")] {
            for (think, links) in [(0.01, Links::Unordered), (5.0, Links::Unordered), (0.3, Links::Ordered)] {
                let experiment = Experiment { links, ..experiment(peers, slots, hold, think, latency, 60) };
                fair_k(&experiment, Config::PRINTED);
                fair_k(&experiment, Config::REPAIRED);
                run(&experiment, |me, layout| FairKLate::new(me, layout, fair_k_late::Config { term: 5 }));
                run(&experiment, |me, layout| Bv95::new(me, layout, bv95::Config::default()));
            }
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_report_on_any_number_of_threads() {
    let experiment = Experiment { trials: 6, ..experiment(20, 3, "exp:1s", 1.0, "jitter:0s..200ms", 40) };
    let on = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| fair_k(&experiment, Config::REPAIRED))
    };
    let once = on(1);
    assert_eq!(once, on(4));
    assert_ne!(once, fair_k(&Experiment { seed: 2, ..experiment.clone() }, Config::REPAIRED));
}

/// Ordered links differ from unordered ones only where a message could overtake another.
#[test]
fn the_order_of_links_matters_only_with_jitter() {
    for (latency, matters) in [("constant:1s", false), ("uniform:0s..2s", false), ("jitter:0s..2s", true)] {
        let reports = [Links::Ordered, Links::Unordered]
            .map(|links| fair_k(&Experiment { links, ..experiment(20, 2, "1s", 1.0, latency, 30) }, Config::PRINTED));
        assert_eq!(reports[0] != reports[1], matters, "{latency}");
    }
}
