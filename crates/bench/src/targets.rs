//! What we want to reach, and whether a run did.

use std::fmt;

use serde::Serialize;

use crate::report::{Case, Memory, Uncontended, cores};

/// Something that we want to reach.
#[derive(Clone, Debug, Serialize)]
pub struct Target {
    /// The number that has a target, in words.
    pub what: String,
    /// What was measured.
    pub measured: f64,
    /// The target, in the unit of `measured`.
    pub bound: f64,
    /// Whether it was met. More is better if `at_least`, else less.
    pub met: bool,
    /// Which way the bound goes.
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

/// With nothing inside in as few processes as there are cores, and where processes share the cores.
const MESSAGES: f64 = 3.0;
const CROWDED_MESSAGES: f64 = 6.0;
/// Of the delay, where messages are kept back.
const DELAYS: f64 = 1.2;
/// The longest wait, as a multiple of the mean.
const LONGEST: f64 = 3.0;

/// Everything that has a target, in the order of the report.
pub fn targets(uncontended: &[Uncontended], cases: &[Case], memory: &Memory) -> Vec<Target> {
    let mut targets = Vec::new();
    for case in cases.iter().filter(|case| case.who == "peerlock") {
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

/// Which case it is, in words.
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

/// Whether this is another's part of the same comparison.
fn is_the_same(ours: &Case, other: &Case) -> bool {
    let what =
        |case: &Case| (case.clients, case.processes, case.slots, case.hold_ms.to_bits(), case.delay_ms.to_bits());
    other.who != "peerlock" && what(ours) == what(other)
}

/// Whether more processes have clients than there are cores.
fn is_crowded(case: &Case) -> bool {
    case.processes > cores().max(2)
}

fn of_order(case: &Case, targets: &mut Vec<Target>) {
    let what = format!("{}: entries out of order by more than two messages", name(case));
    targets.push(Target::at_most(what, case.out_of_order as f64, 0.0));
    if case.hold_ms == 0.0 {
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
    } else {
        let bound = if is_crowded(case) { CROWDED_MESSAGES } else { MESSAGES };
        targets.push(Target::at_most(format!("{name}: median gap in messages"), case.gap_in_messages, bound));
    }
}

/// Ours beside another's.
fn beside(ours: &Case, other: &Case, targets: &mut Vec<Target>) {
    let (name, who) = (name(ours), other.who);
    if ours.delay_ms > 0.0 || ours.hold_ms > 0.0 || is_crowded(ours) {
        let what = format!("{name}: median gap in µs, beside {who}'s");
        targets.push(Target::at_most(what, ours.gap.p50_us, other.gap.p50_us));
        return;
    }
    let times = match who {
        "redis" => 3.0,
        _ => 50.0,
    };
    // Hand-overs and not entries: what a client does again while the token is still with it does not count.
    let handed = ours.gaps_per_second / other.gaps_per_second;
    targets.push(Target::at_least(format!("{name}: hand-overs, as a multiple of {who}'s"), handed, times));
    let what = format!("{name}: spread of waits in ms, beside {who}'s");
    targets.push(Target::at_most(what, ours.spread_ms, other.spread_ms));
}
