//! Performance targets, and whether a run met them.

use std::fmt;

use serde::Serialize;

use crate::report::{Case, Memory, Uncontended, cores};

/// A performance target.
#[derive(Clone, Debug, Serialize)]
pub struct Target {
    /// The quantity.
    pub what: String,
    /// The result, in the unit that `what` names.
    pub measured: f64,
    /// The target, in the unit of `measured`.
    pub bound: f64,
    /// Whether it was met. `at_least` says whether more is better.
    pub met: bool,
    /// Whether the bound is a lower one.
    pub at_least: bool,
}

impl Target {
    fn at_most(what: impl Into<String>, measured: f64, bound: f64) -> Self {
        Self { what: what.into(), measured, bound, met: measured <= bound, at_least: false }
    }

    fn at_least(what: impl Into<String>, measured: f64, bound: f64) -> Self {
        Self { what: what.into(), measured, bound, met: measured >= bound, at_least: true }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, measured, bound, met, at_least } = self;
        let (verdict, way) = (if *met { "met" } else { "MISSED" }, if *at_least { "least" } else { "most" });
        write!(f, "{verdict:<6} {what}: {measured:.2} (at {way} {bound:.2})")
    }
}

/// The gap with hold time 0 and a core per process, where processes need not sleep: in messages on one core. If
/// processes share cores: in messages that wake their receiver.
const MESSAGES: f64 = 3.0;
const CROWDED_MESSAGES: f64 = 6.0;
/// The gap in delays, if messages are delayed.
const DELAYS: f64 = 1.2;
/// The longest wait, as a multiple of the mean.
const LONGEST: f64 = 3.0;

/// Returns all targets, in the order of the report.
pub fn targets(uncontended: &[Uncontended], cases: &[Case], memory: &Memory) -> Vec<Target> {
    let mut targets = Vec::new();
    for case in cases.iter().filter(|case| case.system == "peerlock") {
        of_order(case, &mut targets);
        match case.share_of_ideal.filter(|_| case.slots > 1) {
            None => of_handover(case, &mut targets),
            Some(share) => {
                targets.push(Target::at_least("semaphore, share of the ideal rate", share, 0.98));
                targets.push(Target::at_most("semaphore, spread of waits in ms", case.spread_ms, 15.0));
            }
        }
        for other in cases.iter().filter(|other| is_the_same(case, other)) {
            beside(case, other, &mut targets);
        }
    }
    for Uncontended { through, times } in uncontended {
        let bound = if *through == "the library" { 20.0 } else { 200.0 };
        targets.push(Target::at_most(format!("re-acquire through {through}, median in µs"), times.p50_us, bound));
    }
    let Memory { waiting, resources, resident_mb, .. } = *memory;
    let what = format!("resident MB with {waiting} waiting clients and {resources} resources");
    targets.push(Target::at_most(what, resident_mb, 100.0));
    targets
}

/// Describes a case.
fn name(case: &Case) -> String {
    let Case { clients, processes, slots, hold_ms, delay_ms, .. } = case;
    let mut name = format!("{clients} clients in {processes} processes, {hold_ms} ms inside");
    if *slots > 1 {
        name += &format!(", {slots} slots");
    }
    if *delay_ms > 0.0 {
        name += &format!(", {delay_ms} ms apart");
    }
    name
}

/// Returns whether `other` is another lock's run of the same case.
fn is_the_same(ours: &Case, other: &Case) -> bool {
    let what =
        |case: &Case| (case.clients, case.processes, case.slots, case.hold_ms.to_bits(), case.delay_ms.to_bits());
    other.system != "peerlock" && what(ours) == what(other)
}

/// Returns whether more processes have clients than there are cores.
fn is_crowded(case: &Case) -> bool {
    case.processes > cores().max(2)
}

fn of_order(case: &Case, targets: &mut Vec<Target>) {
    let what = format!("{}: entries out of order by more than two messages", name(case));
    targets.push(Target::at_most(what, case.out_of_order as f64, 0.0));
    // Without any wait the ratio says nothing; missing grants show in the hand-overs.
    if case.hold_ms == 0.0 && case.wait.count > 0 {
        let what = format!("{}: longest wait as a multiple of the mean", name(case));
        targets.push(Target::at_most(what, case.longest_wait_over_mean, LONGEST));
    }
}

fn of_handover(case: &Case, targets: &mut Vec<Target>) {
    let name = name(case);
    if case.gap.count == 0 {
        targets.push(Target::at_least(format!("{name}: hand-overs between processes"), 0.0, 1.0));
    } else if case.delay_ms > 0.0 {
        let delays = case.gap.p50_us / 1e3 / case.delay_ms;
        targets.push(Target::at_most(format!("{name}: median gap as a multiple of the delay"), delays, DELAYS));
    } else if is_crowded(case) {
        let what = format!("{name}: median gap in messages to another core that sleeps");
        targets.push(Target::at_most(what, case.gap_in_messages_between_cores, CROWDED_MESSAGES));
    } else {
        targets.push(Target::at_most(format!("{name}: median gap in messages"), case.gap_in_messages, MESSAGES));
    }
}

/// Compares a case with another lock's. Without hand-overs there is nothing to compare: a gap of 0 would beat any. Our
/// lack of hand-overs is a missed target of its own.
fn beside(ours: &Case, other: &Case, targets: &mut Vec<Target>) {
    if ours.gap.count == 0 || other.gap.count == 0 {
        return;
    }
    let (name, system) = (name(ours), other.system);
    if ours.delay_ms > 0.0 || ours.hold_ms > 0.0 || is_crowded(ours) {
        let what = format!("{name}: median gap in µs, beside {system}'s");
        targets.push(Target::at_most(what, ours.gap.p50_us, other.gap.p50_us));
        return;
    }
    let times = match system {
        "redis" => 3.0,
        _ => 50.0,
    };
    // Hand-overs, not entries: repeated grants to a client that still has the token do not count.
    let handed = ours.gaps_per_second / other.gaps_per_second;
    targets.push(Target::at_least(format!("{name}: hand-overs, as a multiple of {system}'s"), handed, times));
    let what = format!("{name}: spread of waits in ms, beside {system}'s");
    targets.push(Target::at_most(what, ours.spread_ms, other.spread_ms));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Times;

    /// A case that meets all targets, with a median gap of this many messages of 10 µs.
    fn case(system: &'static str, processes: usize, delay_ms: f64, messages: f64) -> Case {
        let message = 10.0 + delay_ms * 1e3;
        let times = |p50_us| Times { count: 5, p50_us, p99_us: p50_us, max_us: p50_us };
        Case {
            system,
            what: "",
            clients: 8,
            processes,
            slots: 1,
            hold_ms: 0.0,
            delay_ms,
            gap: times(messages * message),
            gap_in_messages: messages,
            gap_in_messages_between_cores: messages,
            gaps_per_second: 1e5 / messages,
            handed_over_within_a_process: 0,
            entries: 10,
            entries_per_second: 10.0,
            share_of_ideal: None,
            held: times(0.0),
            wait: times(10.0),
            mean_wait_ms: 0.01,
            spread_ms: 0.1 * messages,
            longest_wait_over_mean: 1.5,
            out_of_order: 0,
            most_ahead_ms: 0.0,
        }
    }

    /// A lock without hand-overs has no gap to compare.
    #[test]
    fn cases_without_handovers_are_not_compared() {
        let none = Times { count: 0, p50_us: 0.0, p99_us: 0.0, max_us: 0.0 };
        let idle = |case: Case| {
            let case = Case { gap: none, gap_in_messages: 0.0, gaps_per_second: 0.0, ..case };
            Case { entries: 0, wait: none, longest_wait_over_mean: 0.0, ..case }
        };
        let memory = Memory { through: "", waiting: 0, resources: 0, before_mb: 1.0, resident_mb: 1.0 };
        for processes in [2, 8] {
            let cases = ["peerlock", "redis"].map(|system| case(system, processes, 0.0, 2.0));
            let [ours, theirs] = cases;
            for cases in [[idle(ours.clone()), theirs.clone()], [ours.clone(), idle(theirs.clone())]] {
                let all = targets(&[], &cases, &memory);
                assert!(all.iter().all(|target| !target.what.contains("redis") && target.measured.is_finite()));
                let is_judged = all.iter().any(|target| target.what.contains("longest wait"));
                assert_eq!(is_judged, cases[0].entries > 0, "nobody waits short because nobody gets in");
            }
            assert!(targets(&[], &[ours, theirs], &memory).iter().any(|target| target.what.contains("redis")));
        }
    }

    /// Returns the missed targets, without the name of the case.
    fn missed(cases: &[Case]) -> Vec<String> {
        let memory = Memory { through: "", waiting: 0, resources: 0, before_mb: 1.0, resident_mb: 1.0 };
        let missed = targets(&[], cases, &memory).into_iter().filter(|target| !target.met);
        missed.map(|target| target.what.rsplit(": ").next().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn good_case_meets_all_targets() {
        let far = [case("peerlock", 8, 5.0, 1.1), case("etcd", 8, 5.0, 8.0)];
        let near = [case("peerlock", 2, 0.0, 2.0), case("redis", 2, 0.0, 7.0), case("etcd", 2, 0.0, 300.0)];
        assert_eq!(missed(&[&far[..], &near].concat()), Vec::<String>::new());
    }

    #[test]
    fn each_shortfall_misses_its_own_target() {
        let good = || case("peerlock", 2, 0.0, 2.0);
        let none = Times { count: 0, p50_us: 0.0, p99_us: 0.0, max_us: 0.0 };
        for (cases, says) in [
            (vec![Case { out_of_order: 1, ..good() }], "entries out of order by more than two messages"),
            (vec![Case { longest_wait_over_mean: 3.1, ..good() }], "longest wait as a multiple of the mean"),
            (vec![case("peerlock", 2, 0.0, 3.1)], "median gap in messages"),
            (vec![case("peerlock", 64, 0.0, 6.1)], "median gap in messages to another core that sleeps"),
            (vec![Case { gap: none, gap_in_messages: 0.0, ..good() }], "hand-overs between processes"),
            (vec![case("peerlock", 8, 5.0, 1.21)], "median gap as a multiple of the delay"),
            (vec![good(), case("redis", 2, 0.0, 5.9)], "hand-overs, as a multiple of redis's"),
            (vec![good(), case("etcd", 2, 0.0, 99.0)], "hand-overs, as a multiple of etcd's"),
            (
                vec![good(), Case { spread_ms: 0.1, ..case("redis", 2, 0.0, 9.0) }],
                "spread of waits in ms, beside redis's",
            ),
            (vec![case("peerlock", 8, 5.0, 1.1), case("redis", 8, 5.0, 1.0)], "median gap in µs, beside redis's"),
        ] {
            assert_eq!(missed(&cases), [says]);
        }
    }
}
