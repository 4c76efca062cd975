//! Fair-K: the paper's plateau, safety under jitter, and order.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use peerlock_protocols::fair_k::Config;
use peerlock_protocols::registry::Session;
use peerlock_protocols::token::Layout;
use peerlock_protocols::{Bv95, Custody, FairK, FairKLate, Observe, bv95, custody, fair_k_late};
use peerlock_sim::latency::{Latency, Model};
use peerlock_sim::{Closed, Experiment, Faults, Hold, Ideal, Links, Report, Spells};
use peerlock_types::{PeerId, Span};

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
fn saturated_mean_wait_is_the_closed_bound() {
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
fn patience_covers_slow_messages_and_faults() {
    let slow = experiment(5, 2, "10s", 0.5, "constant:2h", 3);
    assert_eq!(fair_k(&slow, Config::REPAIRED).entries, 2 * 5 * 3);
    let freezes = Some(Spells { every: Span::from_secs(3600), last: Span::from_secs(36_000) });
    let frozen = experiment(5, 2, "10s", 0.5, "constant:1s", 500);
    let frozen = Experiment { faults: Faults { freezes, ..Faults::default() }, ..frozen };
    assert_eq!(fair_k(&frozen, Config::REPAIRED).entries, 2 * 5 * 500);
}

#[test]
fn the_ideal_reaches_the_same_bound_and_keeps_the_order() {
    let experiment = experiment(100, 3, "10s", 0.5, "constant:1s", 300);
    let report = experiment.run(|latency| Ideal::peers(100, 3, latency), |_| {}).unwrap();
    assert!((report.steady.unwrap().all.mean / 354.667 - 1.0).abs() < 1e-3);
    assert_eq!(report.numbers.count("order inversions"), 0);
}

/// All rules are checked in every run; this test selects the runs.
#[test]
fn jitter_and_reordering_break_no_rule() {
    for latency in ["constant:1s", "uniform:0s..4s", "jitter:0s..4s", "king"] {
        for (peers, slots, hold) in [(1, 1, "1s"), (2, 5, "exp:1s"), (7, 2, "exp:1s"), (30, 4, "two-point:1s/100s")] {
            for (think, links) in [(0.01, Links::Unordered), (5.0, Links::Unordered), (0.3, Links::Ordered)] {
                let experiment = Experiment { links, ..experiment(peers, slots, hold, think, latency, 60) };
                fair_k(&experiment, Config::PRINTED);
                fair_k(&experiment, Config::REPAIRED);
                let config = fair_k_late::Config { term: 5, ..fair_k_late::Config::default() };
                run(&experiment, |me, layout| FairKLate::new(me, layout, config));
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

#[test]
fn the_order_of_links_matters_only_with_jitter() {
    for (latency, matters) in [("constant:1s", false), ("uniform:0s..2s", false), ("jitter:0s..2s", true)] {
        let reports = [Links::Ordered, Links::Unordered]
            .map(|links| fair_k(&Experiment { links, ..experiment(20, 2, "1s", 1.0, latency, 30) }, Config::PRINTED));
        assert_eq!(reports[0] != reports[1], matters, "{latency}");
    }
}

/// No client enters before one that requested more than two message times earlier, even if holds are so short that a
/// token has moved on before the coordinator is notified.
#[test]
fn one_slot_is_granted_in_order() {
    for latency in ["constant:1s", "uniform:0s..4s", "jitter:0s..4s"] {
        for (peers, hold, think) in [(3, "1us", 2.0), (10, "1us", 5.0), (10, "10ms", 0.5), (30, "exp:1s", 0.2)] {
            for (links, reach) in [(Links::Unordered, 1), (Links::Unordered, 2), (Links::Ordered, 8)] {
                let experiment = Experiment { links, ..experiment(peers, 1, hold, think, latency, 100) };
                // A moving role must be found first.
                let config = fair_k_late::Config { term: u32::MAX, reach, ..fair_k_late::Config::default() };
                let late = run(&experiment, |me, layout| FairKLate::new(me, layout, config));
                assert_eq!(late.numbers.count("passed by"), 0, "{latency}, {peers} peers, {hold}, {links:?}, {reach}");
                let custody = run(&experiment, |me, layout| {
                    let config = custody::Config { reach, ..custody::Config::default() };
                    Custody::founded(Session { peer: me, number: 0 }, config, layout.root, 1)
                });
                assert_eq!(
                    custody.numbers.count("passed by"),
                    0,
                    "{latency}, {peers} peers, {hold}, {links:?}, {reach}"
                );
            }
        }
    }
}

/// One hold in fifty lasts as long as a thousand others.
#[test]
fn rare_long_holds_have_bounded_passes() {
    let stays = |short: Span, long: u64| Hold::TwoPoint { short, long: short * long, long_share: 0.02 };
    for latency in ["constant:100ms", "uniform:0s..200ms", "jitter:0s..200ms"] {
        for (peers, slots) in [(4, 2), (5, 2), (6, 3), (8, 3), (14, 10), (25, 10)] {
            for (short, long) in [(Span::from_secs(1), 1000), (Span::from_millis(20), 10_000)] {
                for term in [1000, u32::MAX] {
                    let experiment = experiment(peers, slots, "1s", 100.0, latency, 1000);
                    let workload = Closed { hold: stays(short, long), ..experiment.workload.clone() };
                    let experiment = Experiment { workload, ..experiment };
                    let config = fair_k_late::Config { term, ..fair_k_late::Config::default() };
                    run(&experiment, |me, layout| FairKLate::new(me, layout, config));
                    run(&experiment, |me, layout| {
                        let (me, config) = (Session { peer: me, number: 0 }, custody::Config::default());
                        Custody::founded(me, config, layout.root, layout.slots())
                    });
                }
            }
        }
    }
}

/// Fair-K re-admits a peer that has a token.
#[test]
fn passed_waiters_are_counted() {
    let report = fair_k(&experiment(10, 1, "1us", 5.0, "constant:1s", 100), Config::PRINTED);
    assert!(report.numbers.count("passed by") > 0, "{:?}", report.numbers);
}

/// The order is that of the ideal within a message or two.
#[test]
fn short_holds_cost_one_hand_over() {
    for hold in ["1us", "10ms"] {
        let experiment = experiment(100, 1, hold, 0.5, "constant:1s", 200);
        let ideal = experiment.run(|latency| Ideal::peers(100, 1, latency), |_| {}).unwrap();
        let late = run(&experiment, |me, layout| FairKLate::new(me, layout, fair_k_late::Config::default()));
        let (sent, ideal, late) = (late.messages_per_entry(), ideal.steady.unwrap().all, late.steady.unwrap().all);
        println!(
            "{hold}: mean {:.2} and {:.2}, longest {:.2} and {:.2}, {sent:.2} messages",
            ideal.mean, late.mean, ideal.max, late.max
        );
        assert!((late.mean / ideal.mean - 1.0).abs() < 1e-2, "{hold}: {} against {}", late.mean, ideal.mean);
        assert!(late.max <= ideal.max + 2.0, "{hold}: {} against {}", late.max, ideal.max);
        assert!(sent <= 4.0, "{hold}: {sent} messages per entry");
    }
}

/// The one message more is the arrival number.
#[test]
fn custody_costs_at_most_one_message_more_than_late_binding() {
    for (slots, hold) in [(1, "10s"), (3, "10s"), (3, "exp:10s"), (10, "10s")] {
        let experiment = experiment(100, slots, hold, 0.5, "constant:1s", 200);
        // From the same initial state: all tokens at the coordinator, whose role stays there.
        let late = run(&experiment, |me, layout| {
            let tokens = vec![layout.root; layout.tokens.len()];
            let config = fair_k_late::Config { term: u32::MAX, ..fair_k_late::Config::default() };
            FairKLate::new(me, &Layout { tokens, ..layout.clone() }, config)
        });
        let custody = run(&experiment, |me, layout| {
            let (me, config) = (Session { peer: me, number: 0 }, custody::Config::default());
            Custody::founded(me, config, layout.root, layout.slots())
        });
        let (late_sent, sent) = (late.messages_per_entry(), custody.messages_per_entry());
        println!("k = {slots}, {hold}: {late_sent:.2} messages per entry, with custody {sent:.2}");
        assert!(sent <= late_sent + 1.0, "k = {slots}, {hold}: {sent} against {late_sent}");
        if hold == "10s" {
            let bound = 100.0 * 11.0 / f64::from(slots) - 10.0 - 2.0;
            let mean = custody.steady.unwrap().all.mean;
            assert!((mean / bound - 1.0).abs() < 1e-3, "k = {slots}: {mean} against {bound}");
        }
    }
}
