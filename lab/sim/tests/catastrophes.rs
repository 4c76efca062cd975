//! Custody in a closed loop when many peers fail at once.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use peerlock_sim::latency::Model;
use peerlock_sim::{Closed, Custody, Cut, Faults, Hold, Report, Spells, Ttl};
use peerlock_types::Span;

const SECOND: Span = Span::from_secs(1);

fn custody(voters: u32, faults: Faults) -> Custody {
    Custody {
        peers: 12,
        voters,
        slots: 3,
        session: Ttl::from_millis(3000).unwrap(),
        workload: Closed { think: SECOND, hold: Hold::Constant(SECOND), entries: 6 },
        network: Model::Constant(Span::from_millis(100)).load(12).unwrap(),
        faults,
        count_violations: false,
        warm_up: 1,
        trials: 12,
        seed: 1,
    }
}

fn run(custody: &Custody) -> Report {
    custody.run(|_| {}).unwrap_or_else(|failure| panic!("{failure}"))
}

#[test]
fn all_clients_are_served_without_faults() {
    let report = run(&custody(3, Faults::default()));
    assert_eq!((report.entries, report.harm().stuck), (12 * 12 * 6, 0));
    let longest = report.wait.unwrap().all.max;
    assert!(longest < 12.0, "{longest}");
}

/// Half of the peers crash at one moment. Without a majority of the voters, requests are refused and counted.
#[test]
fn custody_survives_catastrophe_with_a_majority() {
    let faults = Faults { catastrophe: Some((0.5, SECOND * 10)), ..Faults::default() };
    let report = run(&Custody { count_violations: true, ..custody(3, faults) });
    assert_eq!((report.harm().violations, report.harm().fencing_back), (0, 0));
    let stuck: Vec<bool> = report.each.iter().map(|trial| trial.harm().stuck > 0).collect();
    assert!(stuck.contains(&true) && stuck.contains(&false), "{stuck:?}");
    for (trial, _) in report.each.iter().zip(&stuck).filter(|(_, is_stuck)| !**is_stuck) {
        assert!(trial.numbers.count("recovered") == 1, "{trial:?}");
    }
}

#[test]
fn custody_survives_partitions() {
    let spells = Spells { every: SECOND * 10, last: SECOND * 5 };
    let faults = Faults { partitions: Some((Cut::Whole, spells)), ..Faults::default() };
    let report = run(&custody(5, faults));
    assert!(report.numbers.count("parted") > 12 && report.harm().stuck == 0, "{report:?}");
}
