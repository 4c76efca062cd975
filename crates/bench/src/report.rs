//! What a run has shown, for people and for programs.

use std::fmt;

use serde::Serialize;

use crate::statistics::Times;

/// Everything that was measured in one run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The version of what was measured.
    pub version: &'static str,
    /// How many cores the machine has.
    pub cores: usize,
    /// How often each case had its turn.
    pub rounds: usize,
    /// What one message costs: half a round trip of 128 bytes on a bare TCP connection between two processes.
    pub floor: Times,
    /// The same after 3 ms of rest each: processes and processors have gone to sleep, as they have between the
    /// entries of clients that stay inside.
    pub floor_after_rest: Times,
    /// Acquire and release where nobody else wants in and the token is at hand.
    pub uncontended: Vec<Uncontended>,
    /// Clients that want in all the time.
    pub cases: Vec<Case>,
    /// How large a peer gets.
    pub memory: Memory,
    /// What we want to reach, and whether this run did.
    pub targets: Vec<Target>,
}

/// One client alone.
#[derive(Clone, Debug, Serialize)]
pub struct Uncontended {
    /// How the client reaches its peer.
    pub through: &'static str,
    /// From asking to having left.
    pub times: Times,
}

/// Many clients that go in and out without a pause.
#[derive(Clone, Debug, Serialize)]
pub struct Case {
    /// Who hands over.
    pub who: &'static str,
    /// What it is.
    pub what: &'static str,
    /// How many clients.
    pub clients: usize,
    /// In how many processes; of peerlock, each is a peer.
    pub processes: usize,
    /// How many may be inside.
    pub slots: u32,
    /// How long a client stays inside. With 0 it only notes the time.
    pub hold_ms: f64,
    /// From leaving to the next client's entering the slot, where the two are in different processes.
    pub gap: Times,
    /// Its median, as a multiple of what one message costs.
    pub gap_in_messages: f64,
    /// The same, as a multiple of what one message costs after a rest. Most of those that wait are at rest.
    pub gap_in_messages_after_rest: f64,
    /// How many hand-overs between processes there were in a second.
    pub gaps_per_second: f64,
    /// How many more there were within one process.
    pub handed_over_within_a_process: usize,
    /// How often somebody got in.
    pub entries: usize,
    /// And how often in a second.
    pub entries_per_second: f64,
    /// The same as a share of slots / time inside, where clients stay inside.
    pub share_of_ideal: Option<f64>,
    /// From entering to leaving.
    pub held: Times,
    /// From asking to entering.
    pub wait: Times,
    /// The mean of that.
    pub mean_wait_ms: f64,
    /// The longest wait less the mean.
    pub spread_ms: f64,
}

/// A peer with many clients that wait.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Memory {
    /// How the clients reach their peer.
    pub through: &'static str,
    /// How many wait.
    pub waiting: usize,
    /// For how many resources.
    pub resources: usize,
    /// Resident before they came, in MB.
    pub before_mb: f64,
    /// And with them.
    pub resident_mb: f64,
}

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

impl Report {
    /// What was measured, held against what we want.
    pub(crate) fn new(
        rounds: usize,
        (floor, floor_after_rest): (Times, Times),
        uncontended: Vec<Uncontended>,
        cases: Vec<Case>,
        memory: Memory,
    ) -> Self {
        let targets = targets(&uncontended, &cases, &memory);
        Self {
            version: env!("CARGO_PKG_VERSION"),
            cores: cores(),
            rounds,
            floor,
            floor_after_rest,
            uncontended,
            cases,
            memory,
            targets,
        }
    }
}

/// How many processes can run at once.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn targets(uncontended: &[Uncontended], cases: &[Case], memory: &Memory) -> Vec<Target> {
    let mut targets = Vec::new();
    for case in cases.iter().filter(|case| case.who == "peerlock") {
        match case.share_of_ideal.filter(|_| case.slots > 1) {
            None => targets.push(Target::at_most(
                format!(
                    "hand-over among {} clients in {} processes, {} ms inside, median gap in messages",
                    case.clients, case.processes, case.hold_ms
                ),
                case.gap_in_messages,
                4.0,
            )),
            Some(share) => {
                targets.push(Target::at_least("semaphore, share of the ideal rate", share, 0.95));
                targets.push(Target::at_most("semaphore, spread of waits in ms", case.spread_ms, 50.0));
            }
        }
    }
    if let Some(etcd) = cases.iter().find(|case| case.who == "etcd") {
        let ours = cases.iter().find(|case| {
            case.who == "peerlock" && (case.clients, case.processes, case.slots) == (etcd.clients, etcd.processes, 1)
        });
        if let Some(ours) = ours {
            let entries = ours.entries_per_second / etcd.entries_per_second;
            targets.push(Target::at_least("entries per second, as a multiple of etcd's", entries, 10.0));
            // The stricter reading: what a client does again while the token is still with it does not count.
            let handed = ours.gaps_per_second / etcd.gaps_per_second;
            targets.push(Target::at_least("hand-overs between processes, as a multiple of etcd's", handed, 10.0));
            targets.push(Target::at_most("spread of waits in ms, beside etcd's", ours.spread_ms, etcd.spread_ms));
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

/// Tables for people.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, cores, rounds) = (self.floor.count, self.cores, self.rounds);
        writeln!(f, "{:<58}{:>8} {:>9} {:>10}", "µs", "p50", "p99", "max")?;
        times(f, &format!("one message: half a round trip by TCP, {count} times"), self.floor)?;
        times(f, "one message after 3 ms of rest", self.floor_after_rest)?;
        for alone in &self.uncontended {
            times(f, &format!("acquire and release alone through {}", alone.through), alone.times)?;
        }
        writeln!(f, "\nClients that go in and out all the time, each case in {rounds} turns, on {cores} cores:\n")?;
        cases(f, &self.cases)?;
        let Memory { through, waiting, resources, before_mb, resident_mb } = self.memory;
        writeln!(f, "\n{waiting} clients that wait for {resources} resources through {through}:")?;
        writeln!(f, "{resident_mb:.1} MB resident, {before_mb:.1} MB before they came\n")?;
        for Target { what, measured, bound, met, at_least } in &self.targets {
            let (verdict, way) = (if *met { "met" } else { "MISSED" }, if *at_least { "least" } else { "most" });
            writeln!(f, "{verdict:<6} {what}: {measured:.2} (at {way} {bound:.2})")?;
        }
        Ok(())
    }
}

fn times(f: &mut fmt::Formatter<'_>, what: &str, times: Times) -> fmt::Result {
    writeln!(f, "{what:<58}{:>8.1} {:>9.1} {:>10.1}", times.p50_us, times.p99_us, times.max_us)
}

fn cases(f: &mut fmt::Formatter<'_>, cases: &[Case]) -> fmt::Result {
    let (gap, waits) = ("gap between processes, µs, messages", "waits, ms");
    writeln!(f, "{:<9}{:>8}{:>7}{:>6}{:>6} │{gap:^48}│{waits:^26}│", "", "", "proc-", "", "hold")?;
    write!(f, "{:<9}{:>8}{:>7}{:>6}{:>6} │", "", "clients", "esses", "slots", "ms")?;
    write!(f, "{:>9}{:>9}{:>10}{:>8}{:>11} │", "p50", "p99", "max", "p50", "after rest")?;
    writeln!(f, "{:>9}{:>8}{:>8} │{:>11}{:>11}", "mean", "max", "spread", "handed/s", "entries/s")?;
    for case in cases {
        let Times { p50_us, p99_us, max_us, .. } = case.gap;
        write!(f, "{:<9}{:>8}{:>7}{:>6}{:>6} │", case.who, case.clients, case.processes, case.slots, case.hold_ms)?;
        write!(f, "{p50_us:>9.1}{p99_us:>9.1}{max_us:>10.1}")?;
        write!(f, "{:>8.2}{:>11.2} │", case.gap_in_messages, case.gap_in_messages_after_rest)?;
        write!(f, "{:>9.2}{:>8.1}{:>8.1} │", case.mean_wait_ms, case.wait.max_us / 1e3, case.spread_ms)?;
        write!(f, "{:>11.1}{:>11.1}", case.gaps_per_second, case.entries_per_second)?;
        match case.share_of_ideal {
            Some(share) => writeln!(f, " ({:.1} % of the ideal)", share * 100.0)?,
            None => writeln!(f)?,
        }
    }
    for case in cases.iter().filter(|case| case.who != "peerlock") {
        writeln!(f, "{}: {}", case.who, case.what)?;
    }
    Ok(())
}
