//! Peers on an overlay in rounds.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod clerk;
#[path = "../rough_swarm/mod.rs"]
mod rough_swarm;

use clerk::{Clerk, Fault};
use peerlock_protocols::sigma::{Config, Sigma};
use peerlock_protocols::{Coordinator, E2e, NonE2e, Quorum, coordinator, e2e, non_e2e};
use peerlock_sim::{Failure, Faults, Harm, Load, OverlayKind, Report, Rounds};
use peerlock_types::Span;

fn small() -> Rounds {
    Rounds { peers: 60, resources: 4, quorum: Quorum::new(5, 3), rounds: 6, trials: 3, ..Rounds::default() }
}

fn sigma(rounds: &Rounds) -> Report {
    let config = Config { lease: rounds.lease, ..Config::REPAIRED };
    let report = rounds.run(|me, replicas| Sigma::new(me, replicas, config), |_| {});
    report.unwrap_or_else(|failure| panic!("{failure}"))
}

fn non_e2e(rounds: &Rounds) -> Report {
    let config = non_e2e::Config { lease: rounds.lease, ..non_e2e::Config::REPAIRED };
    let report = rounds.run(|me, replicas| NonE2e::new(me, replicas, config), |_| {});
    report.unwrap_or_else(|failure| panic!("{failure}"))
}

fn e2e(rounds: &Rounds) -> Report {
    let config = e2e::Config { lease: rounds.lease, ping: rounds.lease, ..e2e::Config::REPAIRED };
    let report = rounds.run(|me, replicas| E2e::new(me, replicas, config), |_| {});
    report.unwrap_or_else(|failure| panic!("{failure}"))
}

fn coordinator(rounds: &Rounds) -> Report {
    let config = coordinator::Config { lease: rounds.lease, ..coordinator::Config::REPAIRED };
    let report = rounds.run(|me, replicas| Coordinator::new(me, replicas, config), |_| {});
    report.unwrap_or_else(|failure| panic!("{failure}"))
}

fn clerk(rounds: &Rounds, fault: Fault) -> Result<Report, Box<Failure>> {
    rounds.run(|me, replicas| Clerk::new(me, replicas.key(0).unwrap(), fault), |_| {})
}

fn counts<const N: usize>(report: &Report, names: [&str; N]) -> [u64; N] {
    names.map(|name| report.numbers.count(name))
}

#[test]
fn the_same_seed_gives_the_same_report_on_any_number_of_threads() {
    let rough = Rounds { trials: 5, churn: 4, faults: Faults { loss: 0.01, ..Faults::default() }, ..small() };
    let on = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| format!("{:?}", sigma(&rough)))
    };
    let one = on(1);
    assert_eq!(one, on(2));
    assert_eq!(one, on(3));
    assert_ne!(one, format!("{:?}", sigma(&Rounds { seed: 2, ..rough.clone() })));
}

#[test]
fn all_clients_are_served_on_both_overlays_and_loads() {
    for overlay in [OverlayKind::Chord, OverlayKind::Pastry] {
        for (load, requests, asked) in [(Load::Whole, 20, 3 * 6 * 20), (Load::PerPeer, 2, 3 * 6 * 60 * 2)] {
            let report = sigma(&Rounds { overlay, load, requests, ..small() });
            let [has_asked, skipped, waiting] =
                counts(&report, ["asked in rounds", "skipped", "waiting after the rounds"]);
            assert_eq!(has_asked + skipped, asked);
            assert!(report.harm().is_none(), "{report:?}");
            assert_eq!(report.entries, has_asked, "all requests are served");
            assert_eq!(waiting + report.steady_flow.entries, has_asked);
            assert!(waiting > 0 && skipped > 0, "{report:?}");
        }
    }
}

#[test]
fn upkeep_is_counted_apart_from_messages() {
    let report = clerk(&small(), Fault::None).unwrap();
    assert!(report.harm().is_none());
    assert_eq!(report.sent(), report.rounds.iter().map(|round| round.messages).sum::<u64>());
    let [upkeep, hops, asked] = counts(&report, ["upkeep", "hops", "asked in rounds"]);
    assert_eq!((upkeep, report.received.total()), (0, 3 * 6 * 60));
    let [ask, grant, done] = report.messages[..] else { panic!("{:?}", report.messages) };
    assert_eq!((ask.0, grant.0, done.0), ("ask", "grant", "done"));
    assert_eq!(hops, ask.1 + done.1, "only these are routed");
    assert!(grant.1 <= report.steady_flow.entries, "one each, or none where the clerk is the client's own peer");
    assert!(ask.1 > asked, "with one message per hop");
    let received: u64 = report.received.counts().map(|(messages, peers)| u64::from(messages) * peers).sum();
    assert_eq!(received, report.sent());
    assert_eq!(report.sent(), report.steady_flow.messages);

    let churned = clerk(&Rounds { churn: 10, count_violations: true, ..small() }, Fault::None).unwrap();
    let [upkeep, failed, came, forgotten] = counts(&churned, ["upkeep", "failed", "came", "forgotten"]);
    assert!(upkeep > churned.sent() && forgotten > 0);
    assert_eq!((failed, came), (3 * 6 * 5, 3 * 6 * 5));
}

/// §VI: "… the average holding time of a critical section is 2 rounds."
#[test]
fn a_resource_is_held_for_two_rounds() {
    // A grant every other round, except the first.
    let busy = Rounds { resources: 1, rounds: 400, requests: 2, trials: 4, drain: Span::ZERO, ..small() };
    let report = clerk(&Rounds { count_violations: true, ..busy }, Fault::None).unwrap();
    let rounds_per_grant = 4.0 * 400.0 / report.steady_flow.entries as f64;
    assert!((1.85..2.15).contains(&rounds_per_grant), "{rounds_per_grant}");
}

#[test]
fn without_drain_waiters_are_stuck() {
    let report = clerk(&Rounds { drain: Span::ZERO, count_violations: true, ..small() }, Fault::None).unwrap();
    let [waiting] = counts(&report, ["waiting after the rounds"]);
    assert!(report.harm().stuck > 0 && report.harm().stuck <= waiting);
}

#[test]
fn each_mutation_is_detected() {
    for (fault, sentence) in [
        (Fault::TooManyHolders, "enters as holder 2 of 1"),
        (Fault::NeverGrants, "requests were never served, the oldest by peer"),
        (Fault::RepeatsFencing, "slot 0 gives fencing number 7 to peer"),
        (Fault::GrantsTwice, "which is not waiting there"),
        (Fault::UnexpectedMessage, "got nonsense"),
    ] {
        let error = clerk(&small(), fault).expect_err("the fault must be seen").to_string();
        assert!(error.contains(sentence), "{fault:?}: {error}");
        assert!(error.starts_with("trial ") && error.contains(" with seed 1 broke a rule at "), "{error}");
        assert!(error.contains("The last events:\n") && error.contains("requests (t"), "{error}");
    }
}

#[test]
fn each_fault_is_counted() {
    let count = |fault| clerk(&Rounds { count_violations: true, ..small() }, fault).unwrap();
    let harm = count(Fault::TooManyHolders).harm();
    assert!(harm.violations > 0 && harm.stuck == 0, "{harm:?}");
    let report = count(Fault::NeverGrants);
    assert_eq!((report.harm().stuck, report.entries), (report.numbers.count("asked in rounds"), 0));
    assert_eq!(report.steady_messages_per_entry(), None);
    let harm = count(Fault::RepeatsFencing).harm();
    assert!(harm.fencing_back > 0 && harm.violations == 0, "{harm:?}");
    assert!(count(Fault::UnexpectedMessage).numbers.count("unexpected") > 0);
}

/// Grants after the last round do not count for the ratio either.
#[test]
fn messages_per_entry_are_those_of_the_rounds() {
    let report = sigma(&small());
    assert!(report.entries > report.steady_flow.entries, "clients enter after the rounds");
    assert_eq!(Some(report.messages_per_entry()), report.steady_messages_per_entry());
    let table = report.trials_csv();
    for (trial, row) in report.each.iter().zip(table.lines().skip(1)) {
        let per_entry = row.split(',').nth(7).unwrap().parse().ok();
        assert_eq!(per_entry, trial.steady_messages_per_entry(), "{row}");
    }
}

/// All others would be stuck if no client were served.
#[test]
fn crashed_clients_are_not_stuck() {
    let faults = Faults { client_crash: 0.5, ..Faults::default() };
    let report = clerk(&Rounds { faults, count_violations: true, ..small() }, Fault::NeverGrants).unwrap();
    let (stuck, [crashed, came, asked]) = (report.harm().stuck, counts(&report, ["crashed", "came", "asked"]));
    // Half of them crash only as holders. Some peers have several clients.
    assert!(crashed > 0 && came == crashed, "{report:?}");
    assert!(stuck > 0 && stuck <= asked - crashed, "{report:?}");
}

#[test]
fn rough_swarms_do_no_harm_within_the_bound() {
    [sigma, e2e, non_e2e, coordinator].into_iter().for_each(does_no_harm);
}

fn does_no_harm(run: fn(&Rounds) -> Report) {
    let (mut all, mut episodes) = (Harm::default(), [0; 4]);
    for seed in 0..100 {
        let report = run(&rough_swarm::draw(seed));
        assert!(report.within.is_none(), "seed {seed}: {report:?}");
        all = all.plus(report.within);
        let more = counts(&report, ["failed", "crashed", "resets", "forgotten"]);
        episodes.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
    }
    assert!(all.grants > 2000, "{all:?}");
    assert!(episodes.iter().zip([100, 20, 20, 100]).all(|(had, least)| *had > least), "{episodes:?}");
}

/// With ten times the resets and two votes of three.
#[test]
fn resets_beyond_bound_are_counted_apart() {
    let faults = Faults { replica_life: Some(Span::from_secs(20)), ..Faults::default() };
    let rough = Rounds { quorum: Quorum::new(3, 2), faults, rounds: 20, count_violations: true, ..small() };
    let report = sigma(&rough);
    assert!(report.within.is_none(), "{report:?}");
    assert!(report.beyond.violations > 0, "{report:?}");
    assert_eq!(report.within.resources + report.beyond.resources, 3 * 4);
}
