//! Every fault with every workload and kind of peer.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use peerlock_protocols::backed::{self, Ring};
use peerlock_protocols::token::Layout;
use peerlock_protocols::{
    Backed, Coordinator, FairK, FairKLate, Quorum, Replicas, Sigma, coordinator, fair_k, fair_k_late, sigma,
};
use peerlock_sim::latency::Model;
use peerlock_sim::{Closed, Cut, Experiment, Failure, Faults, Hold, Links, Open, Poisson, Report, Rounds, Spells};
use peerlock_types::{PeerId, Span};

const fn seconds(every: u64, last: u64) -> Spells {
    Spells { every: Span::from_secs(every), last: Span::from_secs(last) }
}

/// With the name of its count.
fn each() -> Vec<(Faults, &'static str)> {
    let none = Faults::default();
    let partition = |cut| Faults { partitions: Some((cut, seconds(20, 5))), ..none };
    vec![
        (Faults { loss: 0.02, ..none }, ""),
        (Faults { duplication: 0.05, ..none }, ""),
        (Faults { client_crash: 0.05, ..none }, "crashed"),
        (Faults { replica_life: Some(Span::from_secs(60)), ..none }, "resets"),
        (Faults { delays: Some((0.05, Span::from_millis(300))), ..none }, ""),
        (Faults { crashes: Some(seconds(30, 5)), ..none }, "restarted"),
        (Faults { deaths: Some(Span::from_secs(40)), ..none }, "crashed"),
        (Faults { freezes: Some(seconds(10, 3)), ..none }, ""),
        (partition(Cut::Whole), ""),
        (partition(Cut::OneWay), ""),
        (partition(Cut::Partial), ""),
        (partition(Cut::Pairs), ""),
        (Faults { cut_off: Some((0.1, Span::from_secs(5))), ..none }, ""),
        (Faults { withdrawals: 0.1, ..none }, "withdrawn"),
        (Faults { catastrophe: Some((0.3, Span::from_secs(10))), ..none }, "crashed"),
        (Faults { clocks: Some((Span::from_secs(5), 400)), ..none }, ""),
    ]
}

fn closed(faults: Faults) -> Experiment {
    Experiment {
        peers: 11,
        servers: 5,
        slots: 1,
        workload: Closed { think: Span::from_secs(2), hold: Hold::Exponential(Span::from_millis(300)), entries: 15 },
        network: Model::Uniform { low: Span::ZERO, high: Span::from_millis(200) }.load(11).unwrap(),
        links: Links::Ordered,
        faults,
        count_violations: true,
        warm_up: 0,
        trials: 4,
        seed: 3,
    }
}

fn fair_k(experiment: &Experiment) -> Result<Report, Box<Failure>> {
    let layout = Layout::printed(experiment.peers as u64, experiment.slots);
    let peers = || (0..experiment.peers as u64).map(PeerId::new);
    experiment.run(|_| peers().map(|me| FairK::new(me, &layout, fair_k::Config::REPAIRED)).collect(), |_| {})
}

fn fair_k_late(experiment: &Experiment) -> Result<Report, Box<Failure>> {
    let layout = Layout::printed(experiment.peers as u64, experiment.slots);
    let peers = || (0..experiment.peers as u64).map(PeerId::new);
    let config = fair_k_late::Config { term: 5, ..fair_k_late::Config::default() };
    experiment.run(|_| peers().map(|me| FairKLate::new(me, &layout, config)).collect(), |_| {})
}

fn closed_sigma(experiment: &Experiment) -> Result<Report, Box<Failure>> {
    let replicas = Replicas::first(Quorum::new(experiment.servers as u32, 4));
    let peer = |number| Sigma::new(PeerId::new(number), &replicas, sigma::Config::REPAIRED);
    experiment.run(|_| (0..experiment.peers as u64).map(peer).collect(), |_| {})
}

fn open_sigma(faults: Faults) -> Result<Report, Box<Failure>> {
    let open = Open {
        replicas: 5,
        workload: Poisson {
            gap: Span::from_secs(1),
            hold: Some(Hold::Exponential(Span::from_millis(200))),
            settle: Span::ZERO,
            measure: Span::from_secs(100),
        },
        network: Model::Uniform { low: Span::ZERO, high: Span::from_millis(200) }.load(5).unwrap(),
        links: Links::Ordered,
        faults,
        lease: sigma::Config::REPAIRED.lease,
        count_violations: true,
        trials: 4,
        seed: 3,
    };
    let replicas = Replicas::first(Quorum::new(5, 4));
    open.run(|me| Sigma::new(me, &replicas, sigma::Config::REPAIRED), |_| {})
}

fn on_overlay(faults: Faults) -> Result<Report, Box<Failure>> {
    let rounds = Rounds {
        peers: 40,
        resources: 3,
        quorum: Quorum::new(5, 3),
        rounds: 6,
        requests: 6,
        faults,
        count_violations: true,
        trials: 4,
        ..Rounds::default()
    };
    rounds.run(|me, replicas| Coordinator::new(me, replicas, coordinator::Config::REPAIRED), |_| {})
}

type Run = fn(Faults) -> Result<Report, Box<Failure>>;

/// The same seed gives the same report. Only Fair-K may panic, if messages are duplicated or peers reset.
#[test]
fn every_fault_has_effect_under_every_workload() {
    let runs: [(&str, Run); 5] = [
        ("Fair-K in a closed loop", |faults| fair_k(&closed(faults))),
        ("Fair-K with late binding in a closed loop", |faults| fair_k_late(&closed(faults))),
        ("Sigma in a closed loop", |faults| closed_sigma(&closed(faults))),
        ("Sigma under an open workload", open_sigma),
        ("the coordinator in rounds", on_overlay),
    ];
    for (name, run) in runs {
        let calm = run(Faults::default()).unwrap();
        assert!(calm.harm().is_none() && calm.entries > 50, "{name}: {:?}", calm.harm());
        for (faults, number) in each() {
            let rough = run(faults).unwrap();
            if let Some(what) = &rough.stop {
                let may_break = faults.duplication > 0.0 || faults.crashes.is_some();
                assert!(name.starts_with("Fair-K") && may_break, "{name}, {faults:?}: {what}");
                assert!(
                    what.contains("panicked: ") || what.contains("messages multiply"),
                    "{name}, {faults:?}: {what}"
                );
                assert!(rough.harm().stopped > 0, "{name}, {faults:?}: {:?}", rough.harm());
                continue;
            }
            assert!(rough.entries > 5, "{name}, {faults:?}: {:?}", rough.harm());
            assert!(number.is_empty() || rough.numbers.count(number) > 0, "{name}, {faults:?}: {:?}", rough.numbers);
            assert_eq!(rough, run(faults).unwrap(), "{name}, {faults:?}: the same seed");
            // Fair-K has no leases and no clock.
            let is_immune = name.starts_with("Fair-K") && (faults.clocks.is_some() || faults.replica_life.is_some());
            assert_eq!(rough.wait == calm.wait, is_immune, "{name}, {faults:?}");
        }
    }
}

/// Lost messages lose tokens.
#[test]
fn fair_k_tolerates_delay_but_not_loss() {
    let run = |faults| fair_k(&closed(faults)).unwrap().harm();
    let none = Faults::default();
    let slow = Faults {
        delays: Some((0.2, Span::from_secs(1))),
        freezes: Some(seconds(10, 3)),
        withdrawals: 0.1,
        clocks: Some((Span::from_secs(5), 400)),
        ..none
    };
    assert!(run(slow).is_none(), "{:?}", run(slow));
    assert!(run(Faults { loss: 0.02, ..none }).stuck > 0);
    assert!(run(Faults { deaths: Some(Span::from_secs(40)), ..none }).stuck > 0);
}

/// The first stopped trial is reported, on any number of threads.
#[test]
fn stopped_trial_is_counted_and_others_continue() {
    let twice = Faults { duplication: 0.0005, ..Faults::default() };
    let report = fair_k(&Experiment { servers: 0, trials: 12, seed: 2, ..closed(twice) }).unwrap();
    let stopped: Vec<u64> = report.each.iter().map(|trial| trial.harm().stopped).collect();
    assert_eq!((report.trials, stopped.len()), (12, 12));
    assert!(stopped.contains(&0) && stopped.contains(&1), "{stopped:?}");
    assert_eq!(report.harm().stopped, stopped.iter().sum::<u64>());
    let first = stopped.iter().position(|&stopped| stopped > 0).unwrap();
    assert!(report.stop.as_ref().unwrap().starts_with(&format!("trial {first} at ")), "{:?}", report.stop);
    assert!(report.each.iter().all(|trial| trial.stop.is_some() == (trial.harm().stopped > 0)));
    let lines = report.trials_csv();
    assert_eq!(lines.lines().filter(|row| row.ends_with(",1")).count() as u64, report.harm().stopped, "{lines}");
}

#[test]
fn a_broken_rule_stops_a_closed_loop_with_faults() {
    let stops = |faults| {
        let experiment = Experiment { count_violations: false, ..closed(faults) };
        fair_k(&experiment).expect_err("a rule is broken").to_string()
    };
    let lost = stops(Faults { loss: 0.02, ..Faults::default() });
    assert!(lost.contains("requests were never served"), "{lost}");
    let twice = stops(Faults { duplication: 0.2, ..Faults::default() });
    assert!(twice.contains("a peer has panicked: a root is the coordinator"), "{twice}");
}

/// A client may hold with a vote that the replica does not remember.
#[test]
fn restarted_replica_does_not_vote() {
    let crashes = Faults { crashes: Some(seconds(5, 1)), ..Faults::default() };
    let experiment = Experiment { trials: 60, ..closed(crashes) };
    let replicas = Replicas::first(Quorum::new(5, 3));
    let config = coordinator::Config::REPAIRED;
    let peer = |number| Coordinator::new(PeerId::new(number), &replicas, config);
    let report = experiment.run(|_| (0..experiment.peers as u64).map(peer).collect(), |_| {}).unwrap();
    assert!(report.numbers.count("restarted") > 100, "{}", report.numbers.count("restarted"));
    assert_eq!((report.harm().violations, report.harm().stuck), (0, 0));
}

#[test]
fn frozen_peer_defers_events_without_loss() {
    let calm = fair_k(&closed(Faults::default())).unwrap();
    let frozen = fair_k(&closed(Faults { freezes: Some(seconds(5, 10)), ..Faults::default() })).unwrap();
    assert!(frozen.harm().is_none() && frozen.entries == calm.entries, "{:?}", frozen.harm());
    let mean = |report: &Report| report.wait.unwrap().all.mean;
    assert!(mean(&frozen) > 2.0 * mean(&calm), "{} and {}", mean(&frozen), mean(&calm));
}

/// The others are notified after 2 s, if at all.
fn backed(faults: Faults) -> Result<Report, Box<Failure>> {
    let experiment = Experiment { peers: 20, servers: 0, slots: 2, trials: 10, ..closed(faults) };
    let layout = Layout::printed(20, 2);
    let peers = || (0..20).map(PeerId::new);
    let (ring, config) = (Ring::mixed(peers()), backed::Config { backups: 2, recovers: true });
    let part = |whose| FairK::new(whose, &layout, fair_k::Config::PRINTED);
    experiment.run(|_| peers().map(|me| Backed::new(me, &ring, config, part)).collect(), |_| {})
}

/// Without notifications the others wait forever.
#[test]
fn after_catastrophe_notified_peers_continue() {
    let catastrophe = Some((0.5, Span::from_secs(10)));
    let notified = backed(Faults { catastrophe, detection: Some(Span::from_secs(2)), ..Faults::default() }).unwrap();
    assert_eq!(notified.numbers.count("crashed"), 10 * 10);
    assert!(notified.harm().is_none(), "{:?}", notified.harm());
    assert_eq!(notified.numbers.count("recovered"), 10);
    let untold = backed(Faults { catastrophe, ..Faults::default() }).unwrap();
    assert!(untold.harm().stuck > 0 && untold.harm().violations == 0, "{:?}", untold.harm());
}

/// After a wrong report, two peers act for one.
#[test]
fn wrong_suspicions_give_too_many_holders() {
    let detection = Some(Span::from_secs(2));
    for faults in [
        Faults { freezes: Some(seconds(5, 10)), detection, ..Faults::default() },
        Faults { partitions: Some((Cut::Whole, seconds(20, 10))), detection, ..Faults::default() },
    ] {
        let harm = backed(faults).unwrap().harm();
        assert!(harm.violations + harm.stopped > 0, "{faults:?}: {harm:?}");
        let unsuspicious = backed(Faults { partitions: None, detection: None, ..faults }).unwrap().harm();
        assert_eq!(unsuspicious.violations, 0, "{unsuspicious:?}");
    }
}

/// More than a million notifications are not all queued at once.
#[test]
fn large_partition_is_reported_one_peer_at_a_time() {
    let partitions = Some((Cut::Whole, seconds(10, 10)));
    let faults = Faults { partitions, detection: Some(Span::from_secs(5)), ..Faults::default() };
    let many = Experiment {
        peers: 1600,
        servers: 0,
        slots: 8,
        workload: Closed { think: Span::from_secs(1), hold: Hold::Constant(Span::from_millis(10)), entries: 1 },
        network: Model::Constant(Span::from_millis(100)).load(1600).unwrap(),
        trials: 1,
        ..closed(faults)
    };
    let report = fair_k_late(&many).unwrap();
    assert_eq!(report.stop, None);
    assert!(report.numbers.count("parted") > 0, "no partition was long enough: then this shows nothing");
}
