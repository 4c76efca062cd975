//! Seeded simulation of the coordinator protocol.

mod faults;

use faults::{bad_network, closed, crashes_and_withdrawals, jitter, latency, partitions};
use peerlock_protocols::coordinator::{Config, Coordinator};
use peerlock_protocols::{Quorum, Replicas};
use peerlock_sim::{Experiment, Faults, Links, Open, Poisson, Report};
use peerlock_types::Span;

const SEEDS: u32 = 200;

const THREE_OF_FIVE: Quorum = Quorum::new(5, 3);
const TWO_OF_THREE: Quorum = Quorum::new(3, 2);

fn calm(quorum: Quorum) -> Experiment {
    faults::calm(quorum.replicas(), 6, SEEDS)
}

fn holds(experiment: &Experiment, quorum: Quorum) -> u64 {
    let replicas = Replicas::first(quorum);
    faults::holds(experiment, |me| Coordinator::new(me, &replicas, Config::REPAIRED))
}

fn count(experiment: Experiment, quorum: Quorum, config: Config) -> Report {
    let replicas = Replicas::first(quorum);
    let experiment = Experiment { count_violations: true, ..experiment };
    faults::play(&experiment, |me| Coordinator::new(me, &replicas, config))
}

/// Resets at most a minority of the replicas within the time that recovery takes.
fn few_resets(servers: u64) -> Faults {
    Faults {
        replica_life: Some(Span::from_secs(10) * servers),
        resets_at_most: Some((2, Span::from_secs(40))),
        down_after_reset: Some(Span::from_secs(2)),
        ..Faults::default()
    }
}

fn everything(servers: u64) -> Faults {
    let Faults { replica_life, resets_at_most, down_after_reset, .. } = few_resets(servers);
    Faults {
        replica_life,
        resets_at_most,
        down_after_reset,
        cut_off: Some((0.02, Span::from_secs(15))),
        partitions: partitions().partitions,
        ..faults::everything(servers)
    }
}

fn rough(faults: Faults) -> Experiment {
    Experiment { faults, network: jitter(200), ..calm(THREE_OF_FIVE) }
}

#[test]
fn repaired_form_holds_without_faults() {
    assert_eq!(holds(&calm(THREE_OF_FIVE), THREE_OF_FIVE), 0, "no lease is lost");
    holds(&faults::calm(1, 6, SEEDS), Quorum::new(1, 1));
}

#[test]
fn repaired_form_holds_on_bad_network() {
    for quorum in [THREE_OF_FIVE, TWO_OF_THREE] {
        holds(&Experiment { faults: bad_network(), network: jitter(200), ..calm(quorum) }, quorum);
    }
}

#[test]
fn repaired_form_holds_with_resets() {
    holds(&Experiment { faults: few_resets(5), ..calm(THREE_OF_FIVE) }, THREE_OF_FIVE);
}

#[test]
fn repaired_form_holds_with_partitions() {
    for quorum in [THREE_OF_FIVE, TWO_OF_THREE] {
        holds(&Experiment { faults: partitions(), ..calm(quorum) }, quorum);
    }
}

#[test]
fn repaired_form_holds_with_crashes_and_withdrawals() {
    let experiment = Experiment { faults: crashes_and_withdrawals(), ..faults::calm(5, 12, SEEDS) };
    holds(&experiment, THREE_OF_FIVE);
}

#[test]
fn repaired_form_holds_with_all_faults() {
    holds(&rough(everything(5)), THREE_OF_FIVE);
}

#[test]
fn repaired_form_holds_with_clients_on_replicas() {
    let faults = Faults { client_crash: 0.0, ..everything(6) };
    holds(&Experiment { peers: 6, servers: 0, ..rough(faults) }, THREE_OF_FIVE);
}

#[test]
fn repaired_form_holds_with_stays_beyond_the_lease() {
    let workload = closed(Span::from_secs(1), Span::from_secs(8), 6);
    let lost = holds(&Experiment { workload, ..rough(everything(5)) }, THREE_OF_FIVE);
    assert!(lost > 0, "no lease was lost, so the run does not test it");
}

#[test]
fn repaired_form_holds_with_holders_cut_off() {
    assert!(holds(&faults::cut_off(calm(THREE_OF_FIVE)), THREE_OF_FIVE) > 0);
}

#[test]
fn repaired_form_is_safe_with_unlimited_resets() {
    let faults = Faults { replica_life: Some(Span::from_secs(12)), resets_at_most: None, ..few_resets(3) };
    let harm = count(Experiment { faults, ..calm(TWO_OF_THREE) }, TWO_OF_THREE, Config::REPAIRED).harm();
    assert_eq!((harm.violations, harm.stuck), (0, 0), "{harm:?}");
}

/// A reset stops the resource until the replica may vote again.
#[test]
fn repaired_form_holds_with_resets_and_all_votes_needed() {
    let three_of_three = Quorum::new(3, 3);
    let faults = Faults { replica_life: Some(Span::from_secs(100)), ..few_resets(3) };
    holds(&Experiment { faults, ..calm(three_of_three) }, three_of_three);
}

/// One message per hand-over allows 10 per second. If latencies vary, some tokens go to a client that has finished and
/// return through the coordinator, which costs up to a third.
#[test]
fn saturated_throughput_is_one_message_per_hand_over() {
    for (low, high, least) in [(100, 100, 9.0), (50, 150, 9.0), (0, 200, 6.0)] {
        let open = Open {
            replicas: 5,
            workload: Poisson {
                gap: Span::from_millis(60),
                hold: None,
                settle: Span::from_secs(20),
                measure: Span::from_secs(40),
            },
            network: latency(low, high),
            links: Links::Unordered,
            faults: Faults::default(),
            lease: Config::REPAIRED.lease,
            count_violations: false,
            trials: 1,
            seed: 1,
        };
        let replicas = Replicas::first(THREE_OF_FIVE);
        let report = open.run(|me| Coordinator::new(me, &replicas, Config::REPAIRED), |_| {});
        let throughput = report.unwrap_or_else(|failure| panic!("{failure}")).throughput();
        assert!(throughput.is_some_and(|rate| (least..10.5).contains(&rate)), "{low} to {high} ms: {throughput:?}");
    }
}

#[test]
fn printed_form_serves_one_client() {
    let harm = count(Experiment { trials: 20, ..calm(THREE_OF_FIVE) }, THREE_OF_FIVE, Config::PRINTED).harm();
    assert_eq!((harm.grants, harm.stuck), (20, 20 * 6), "{harm:?}");
}

/// Two coordinators grant to two clients.
#[test]
fn election_by_time_stamp_allows_two_holders() {
    let config = Config { majority_lease: false, one_acts: false, ..Config::REPAIRED };
    let harm = count(Experiment { faults: partitions(), ..calm(THREE_OF_FIVE) }, THREE_OF_FIVE, config).harm();
    assert!(harm.violations > 0, "{harm:?}");
}
