//! The results of a run.

use std::fmt;

use serde::Serialize;

use crate::floor::Messages;
use crate::statistics::Times;

#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub version: &'static str,
    pub cores: usize,
    pub rounds: usize,
    pub messages: Messages,
    /// The cost of one message through the relay, for each delay.
    pub delayed: Vec<Message>,
    /// Acquire and release without contention, with the token at this peer.
    pub uncontended: Vec<Uncontended>,
    pub cases: Vec<Case>,
    pub memory: Memory,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct Message {
    pub delay_ms: f64,
    pub times: Times,
}

#[derive(Clone, Debug, Serialize)]
pub struct Uncontended {
    pub through: &'static str,
    pub times: Times,
}

#[derive(Clone, Debug, Serialize)]
pub struct Case {
    pub system: &'static str,
    pub what: &'static str,
    pub clients: usize,
    pub processes: usize,
    pub slots: u32,
    /// Of these, held by other clients throughout.
    pub occupied: u32,
    pub hold_ms: f64,
    pub delay_ms: f64,
    /// From a release to the next grant of the slot in another process.
    pub gap: Times,
    /// The median gap in messages on one core.
    pub gap_in_messages: f64,
    /// The median gap in messages to another, sleeping core.
    pub gap_in_messages_between_cores: f64,
    pub gaps_per_second: f64,
    pub handed_over_within_a_process: usize,
    pub entries: usize,
    pub entries_per_second: f64,
    pub share_of_ideal: Option<f64>,
    pub held: Times,
    pub wait: Times,
    pub mean_wait_ms: f64,
    pub spread_ms: f64,
    pub longest_wait_over_mean: f64,
    /// Grants that overtook a request that was sent more than two messages earlier.
    pub out_of_order: usize,
    pub most_ahead_ms: f64,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct Memory {
    pub through: &'static str,
    pub waiting: usize,
    pub resources: usize,
    pub before_mb: f64,
    pub resident_mb: f64,
}

impl Report {
    pub(crate) fn new(
        rounds: usize,
        (messages, delayed): (Messages, Vec<Message>),
        uncontended: Vec<Uncontended>,
        cases: Vec<Case>,
        memory: Memory,
    ) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            cores: cores(),
            rounds,
            messages,
            delayed,
            uncontended,
            cases,
            memory,
        }
    }
}

pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cores = self.cores;
        let Messages { one_core, one_core_after_rest, two_cores, two_cores_after_rest } = self.messages;
        writeln!(f, "{:<58}{:>8} {:>9} {:>10}", "µs", "p50", "p99", "max")?;
        times(f, "one message, half a TCP round trip, on one core", one_core)?;
        times(f, "… after 3 ms of rest", one_core_after_rest)?;
        times(f, "one message to another, sleeping core", two_cores)?;
        times(f, "… after 3 ms of rest", two_cores_after_rest)?;
        for alone in &self.uncontended {
            times(f, &format!("acquire and release without contention, through {}", alone.through), alone.times)?;
        }
        for Message { delay_ms, times } in &self.delayed {
            self::times(f, &format!("one message with a delay of {delay_ms} ms"), *times)?;
        }
        writeln!(f, "\nClients that acquire and release without a pause, on {cores} cores:\n")?;
        handovers(f, &self.cases)?;
        writeln!(f, "\nWaits and order:\n")?;
        waits(f, &self.cases)?;
        let Memory { through, waiting, resources, before_mb, resident_mb } = self.memory;
        writeln!(f, "\n{waiting} clients waiting for {resources} resources through {through}:")?;
        writeln!(f, "{resident_mb:.1} MB resident, {before_mb:.1} MB before they connected")
    }
}

fn times(f: &mut fmt::Formatter<'_>, name: &str, times: Times) -> fmt::Result {
    writeln!(f, "{name:<58}{:>8.1} {:>9.1} {:>10.1}", times.p50_us, times.p99_us, times.max_us)
}

fn heading(f: &mut fmt::Formatter<'_>, above: &str, below: &str) -> fmt::Result {
    writeln!(f, "{:<9}{:>8}{:>7}{:>6}{:>6}{:>7} │{above}", "", "", "proc-", "", "hold", "delay")?;
    writeln!(f, "{:<9}{:>8}{:>7}{:>6}{:>6}{:>7} │{below}", "", "clients", "esses", "slots", "ms", "ms")
}

fn name(f: &mut fmt::Formatter<'_>, case: &Case) -> fmt::Result {
    let Case { system, clients, processes, slots, occupied, hold_ms, delay_ms, .. } = case;
    let slots = if *occupied == 0 { slots.to_string() } else { format!("{slots}-{occupied}") };
    write!(f, "{system:<9}{clients:>8}{processes:>7}{slots:>6}{hold_ms:>6}{delay_ms:>7} │")
}

fn handovers(f: &mut fmt::Formatter<'_>, cases: &[Case]) -> fmt::Result {
    let above = format!("{:^30}│{:^20}│", "gap between processes, µs", "in messages");
    let times = format!("{:>9}{:>10}{:>10} │", "p50", "p99", "max");
    let below = format!("{times}{:>9}{:>10} │{:>13}{:>11}", "one core", "two cores", "hand-overs/s", "entries/s");
    heading(f, &above, &below)?;
    for case in cases {
        let Times { count, p50_us, p99_us, max_us } = case.gap;
        name(f, case)?;
        if count == 0 {
            write!(f, "{:>9}{:>10}{:>10} │{:>8}{:>11} │", "none", "", "", "", "")?;
        } else {
            write!(f, "{p50_us:>9.1}{p99_us:>10.1}{max_us:>10.1} │")?;
            write!(f, "{:>9.2}{:>10.2} │", case.gap_in_messages, case.gap_in_messages_between_cores)?;
        }
        write!(f, "{:>13.1}{:>11.1}", case.gaps_per_second, case.entries_per_second)?;
        match case.share_of_ideal {
            Some(share) => writeln!(f, " ({:.1} % of the ideal)", share * 100.0)?,
            None => writeln!(f)?,
        }
    }
    writeln!(f, "3-2: two of three slots are held throughout by other clients")?;
    let mut described = vec!["peerlock"];
    for case in cases {
        if !described.contains(&case.system) {
            writeln!(f, "{}: {}", case.system, case.what)?;
            described.push(case.system);
        }
    }
    Ok(())
}

fn waits(f: &mut fmt::Formatter<'_>, cases: &[Case]) -> fmt::Result {
    let above = format!("{:^29}│{:^11}│{:>30}", "waits, ms", "longest", "out of order by > 2 messages");
    let times = format!("{:>9}{:>10}{:>9} │", "mean", "max", "spread");
    let below = format!("{times}{:>10} │{:>9}{:>11}{:>12}", "× mean", "entries", "of", "by most, ms");
    heading(f, &above, &below)?;
    for case in cases {
        name(f, case)?;
        write!(f, "{:>9.2}{:>10.1}{:>9.1} │", case.mean_wait_ms, case.wait.max_us / 1e3, case.spread_ms)?;
        write!(f, "{:>10.2} │{:>9}{:>11}", case.longest_wait_over_mean, case.out_of_order, case.entries)?;
        writeln!(f, "{:>12.2}", case.most_ahead_ms)?;
    }
    Ok(())
}
