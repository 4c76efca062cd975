//! Sigma and its strawman in an open workload.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod rough;

use peerlock_protocols::sigma::{self, Sigma};
use peerlock_protocols::strawman::{self, Strawman};
use peerlock_protocols::{Quorum, Replicas};
use peerlock_sim::latency::Model;
use peerlock_sim::{Failure, Faults, Hold, Links, Open, Poisson, Report};
use peerlock_types::{PeerId, Span};
use rough::Rough;

const RUNS: u64 = 500;

/// The paper's setting (§5), but for five minutes in all.
fn open(rate: f64, latency: &str) -> Open {
    Open {
        replicas: 32,
        workload: Poisson {
            gap: Span::from_secs_f64(1.0 / rate),
            hold: None,
            settle: Span::from_secs(60),
            measure: Span::from_secs(240),
        },
        network: latency.parse::<Model>().unwrap().load(32).unwrap(),
        links: Links::Unordered,
        faults: Faults::default(),
        lease: sigma::Config::REPAIRED.lease,
        count_violations: false,
        trials: 1,
        seed: 1,
    }
}

fn try_sigma(open: &Open, votes: u32, config: sigma::Config) -> Result<Report, Box<Failure>> {
    let replicas = Replicas::first(Quorum::new(open.replicas, votes));
    open.run(|me| Sigma::new(me, &replicas, config), |_| {})
}

fn sigma(open: &Open, votes: u32) -> Report {
    try_sigma(open, votes, sigma::Config::REPAIRED).unwrap_or_else(|failure| panic!("{failure}\n{open:?}"))
}

fn strawman(open: &Open, config: strawman::Config) -> Report {
    let replicas = Replicas::first(Quorum::DEFAULT);
    open.run(|me: PeerId| Strawman::new(me, &replicas, config), |_| {}).unwrap()
}

/// §5, Figure 7: "the throughput increases linearly when request rate ramps up, until a point when it reaches the
/// saturated rate and then stays flat as predicted".
#[test]
fn throughput_is_the_arrival_rate_and_then_the_theory() {
    for (latency, low, high) in
        [("constant:100ms", 100, 100), ("uniform:50ms..150ms", 50, 150), ("uniform:0s..200ms", 0, 200)]
    {
        let theory = Quorum::DEFAULT.saturation(Span::from_millis(low), Span::from_millis(high));
        let above = sigma(&open(8.0, latency), 24);
        let throughput = above.throughput().unwrap();
        assert!((throughput / theory - 1.0).abs() < 0.01, "{latency}: {throughput} of {theory}");
        assert_eq!(above.numbers.count("order inversions"), 0, "{latency}: the queue is in order");
        assert!(above.worst_of_bound().unwrap() <= 1.0, "{latency}: no storms: {:?}", above.worst);
        assert!(above.numbers.count("yields of a client") < 32, "{latency}: {:?}", above.numbers);
        let below = sigma(&open(2.0, latency), 24);
        let throughput = below.throughput().unwrap();
        assert!((throughput / 2.0 - 1.0).abs() < 0.15, "{latency}: {throughput}");
        let left_over = below.numbers.count("asked") - below.entries;
        assert!(left_over < 20, "{latency}: nearly all clients are served by the end");
    }
}

/// §5, Figure 8: replicas that live for 30 s cost less than a tenth of the throughput of those that live for 10,000 s.
#[test]
fn replicas_that_forget_cost_little() {
    let [short, long] = [30, 10_000].map(|life| {
        let faults = Faults { replica_life: Some(Span::from_secs(life)), ..Faults::default() };
        sigma(&Open { faults, trials: 4, ..open(8.0, "uniform:0s..200ms") }, 24).throughput().unwrap()
    });
    assert!((0.9..1.0).contains(&(short / long)), "{short} of {long}");
}

/// §5: "message cost … is asymptotically bound by 4n": a REQUEST, its RESPONSE and a RELEASE for each replica; without
/// contention the grant is the RESPONSE.
#[test]
fn lone_client_costs_three_messages_per_replica() {
    let flow = sigma(&open(0.05, "constant:100ms"), 24).steady_flow;
    assert_eq!(flow.messages, flow.entries * 3 * 32);
}

#[test]
fn strawman_refuses_only_without_retry() {
    let open = open(1.0, "uniform:0s..200ms");
    let Report { numbers, entries, .. } = strawman(&open, strawman::Config::GIVES_UP);
    let (came, refused) = (numbers.count("asked"), numbers.count("refused"));
    assert!(refused > 0 && refused + entries <= came, "{numbers:?}");
    assert!(came - refused - entries < 10, "{numbers:?}");
    assert_eq!(strawman(&open, strawman::Config::BACKS_OFF).numbers.count("refused"), 0);
}

#[test]
fn the_same_seed_gives_the_same_report_on_any_number_of_threads() {
    let replica_life = Some(Span::from_secs(100));
    let faults = Faults { loss: 0.02, duplication: 0.02, client_crash: 0.05, replica_life, ..Faults::default() };
    let open = Open { trials: 4, faults, ..open(2.0, "jitter:0s..200ms") };
    let on = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| sigma(&open, 24))
    };
    let once = on(1);
    assert_eq!(once, on(3));
    assert_ne!(once, sigma(&Open { seed: 2, ..open.clone() }, 24));
    assert!(once.numbers.count("crashed") > 0 && once.numbers.count("resets") > 0);
}

#[test]
fn crashed_holder_blocks_until_lease_expires() {
    let faults = Faults { client_crash: 0.2, ..Faults::default() };
    let report = sigma(&Open { faults, ..open(0.2, "constant:100ms") }, 24);
    let (came, crashed) = (report.numbers.count("asked"), report.numbers.count("crashed"));
    assert!(crashed > 3, "{report:?}");
    assert!(came < crashed + report.entries + 10, "{report:?}"); // Some of the clients that entered crashed.
    let longest = report.wait.unwrap().all.max;
    assert!((8.0..60.0).contains(&longest), "{longest}");
}

/// The strawman's lease is never renewed.
#[test]
fn client_beyond_its_lease_loses_its_grant() {
    let mut open = open(0.02, "constant:100ms");
    open.workload.hold = Some(Hold::Constant(Span::from_secs(11)));
    let report = strawman(&open, strawman::Config::GIVES_UP);
    let lost = report.numbers.count("lost");
    assert!(lost > 0 && lost <= report.entries, "{report:?}");
}

#[test]
fn violations_stop_a_run_unless_they_are_counted() {
    let mut open = open(1.0, "uniform:0s..200ms");
    (open.replicas, open.workload.hold) = (3, Some(Hold::Constant(Span::from_secs(1))));
    open.faults.replica_life = Some(Span::from_secs(2));
    let failure = try_sigma(&open, 2, sigma::Config::REPAIRED).unwrap_err().to_string();
    assert!(failure.contains("trial 0 with seed 1 broke a rule"), "{failure}");
    assert!(failure.contains("enters as holder 2 of 1"), "{failure}");
    let report = sigma(&Open { count_violations: true, ..open }, 2);
    assert!(report.harm().violations > 0 && report.numbers.count("resets within a lease") >= 2, "{report:?}");
}

/// Replicas that are reset often grant before the release of the last holder can be known.
#[test]
fn instant_holds_hide_no_violation() {
    let mut open = open(3.0, "constant:100ms");
    (open.replicas, open.count_violations, open.trials) = (3, true, 4);
    let mut violations = |life| {
        open.faults.replica_life = Some(Span::from_millis(life));
        sigma(&open, 2).harm().violations
    };
    assert!(violations(500) > 0);
    assert_eq!(violations(1_000_000), 0);
}

/// The example `fault_runs` plays ten thousand.
#[test]
fn resets_below_bound_preserve_exclusion() {
    let (mut few, mut many, mut entries) = (0, 0, 0);
    for seed in 0..RUNS {
        let run = rough::play(seed, sigma::Config::REPAIRED);
        if run.is_within_the_bound() {
            few += 1;
            entries += run.report.entries;
            assert_eq!(run.violations(), 0, "seed {seed}: {run:?}");
        } else {
            many += 1;
        }
    }
    assert!(entries > 20 * few, "only {entries} entries in {few} runs");
    assert!(few > RUNS / 3 && many > RUNS / 10, "{few} runs within the bound, {many} beyond it");
}

/// Shows that the runs above depend on clients that know the end of their lease.
#[test]
fn unknown_leases_give_two_holders() {
    let config = sigma::Config { client_leases: false, ..sigma::Config::REPAIRED };
    let runs = (0..RUNS).map(|seed| rough::play(seed, config));
    let violations: u64 = runs.filter(Rough::is_within_the_bound).map(|run| run.violations()).sum();
    assert!(violations > 0, "no violation without them: these runs prove nothing");
}

/// That takes a YIELD followed by an old answer: messages that take longer than a retry, and half of them twice.
#[test]
fn late_answers_without_grant_numbers_give_two_holders() {
    let mut late = open(0.3, "jitter:0s..1s");
    (late.replicas, late.count_violations, late.trials) = (5, true, 300);
    (late.workload.settle, late.workload.measure) = (Span::ZERO, Span::from_secs(60));
    late.workload.hold = Some(Hold::Exponential(Span::from_secs(1)));
    late.faults.duplication = 0.5;
    let violations = |numbered_grants| {
        let config = sigma::Config { numbered_grants, ..sigma::Config::REPAIRED };
        let report = try_sigma(&late, 3, config).unwrap();
        report.harm().violations + report.harm().fencing_back
    };
    assert!(violations(false) > 0);
    assert_eq!(violations(true), 0);
}
