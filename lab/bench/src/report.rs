//! The results of a run, as tables and as JSON.

use std::fmt;

use serde::Serialize;

use crate::floor::Messages;
use crate::statistics::Times;
use crate::targets::{Target, targets};

/// The results of one run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The version measured.
    pub version: &'static str,
    /// The number of cores.
    pub cores: usize,
    /// The number of turns of each case without a delay.
    pub rounds: usize,
    /// The cost of one message.
    pub messages: Messages,
    /// The cost of one message through the relay, for each delay.
    pub delayed: Vec<Message>,
    /// Acquire and release without contention, with the token at hand.
    pub uncontended: Vec<Uncontended>,
    /// Clients that request without a pause.
    pub cases: Vec<Case>,
    /// The size of a peer.
    pub memory: Memory,
    /// The targets, and whether this run met them.
    pub targets: Vec<Target>,
}

/// One message through the relay.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Message {
    /// The relay's delay.
    pub delay_ms: f64,
    /// The one-way time: half a round trip.
    pub times: Times,
}

/// One client alone.
#[derive(Clone, Debug, Serialize)]
pub struct Uncontended {
    /// The client's connection to its peer.
    pub through: &'static str,
    /// From request to completed release.
    pub times: Times,
}

/// Many clients that acquire and release without a pause.
#[derive(Clone, Debug, Serialize)]
pub struct Case {
    /// The lock measured: peerlock or a server.
    pub system: &'static str,
    /// The setting in a few words.
    pub what: &'static str,
    /// Clients in all processes.
    pub clients: usize,
    /// Processes; with peerlock, each is a peer.
    pub processes: usize,
    /// The capacity.
    pub slots: u32,
    /// The hold time. With 0 a client only records the time.
    pub hold_ms: f64,
    /// The relay's delay per message; 0 without a relay.
    pub delay_ms: f64,
    /// From a release to the next grant of the slot, in different processes.
    pub gap: Times,
    /// The median gap in units of one message on one core.
    pub gap_in_messages: f64,
    /// The median gap in units of one message to a sleeping process on another core.
    pub gap_in_messages_between_cores: f64,
    /// Hand-overs between processes per second.
    pub gaps_per_second: f64,
    /// Further hand-overs within one process.
    pub handed_over_within_a_process: usize,
    /// Grants.
    pub entries: usize,
    /// Grants per second.
    pub entries_per_second: f64,
    /// The same as a share of slots / hold time, if clients hold.
    pub share_of_ideal: Option<f64>,
    /// From grant to release.
    pub held: Times,
    /// From request to grant.
    pub wait: Times,
    /// The mean of `wait`, in milliseconds.
    pub mean_wait_ms: f64,
    /// The longest wait less the mean.
    pub spread_ms: f64,
    /// The longest wait, as a multiple of the mean.
    pub longest_wait_over_mean: f64,
    /// Grants that overtook a request that had left its process more than two messages earlier, by the message times of
    /// that moment.
    pub out_of_order: usize,
    /// The longest time by which an overtaken request was earlier.
    pub most_ahead_ms: f64,
}

/// A peer with many waiters.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Memory {
    /// The clients' connection to their peer.
    pub through: &'static str,
    /// Waiters at this peer when its memory is read.
    pub waiting: usize,
    /// Resources, with equally many waiters each.
    pub resources: usize,
    /// Resident size before they connect, in MB.
    pub before_mb: f64,
    /// Resident size while they wait, in MB.
    pub resident_mb: f64,
}

impl Report {
    /// Compares the results with the targets.
    pub(crate) fn new(
        rounds: usize,
        (messages, delayed): (Messages, Vec<Message>),
        uncontended: Vec<Uncontended>,
        cases: Vec<Case>,
        memory: Memory,
    ) -> Self {
        let targets = targets(&uncontended, &cases, &memory);
        Self {
            version: env!("CARGO_PKG_VERSION"),
            cores: cores(),
            rounds,
            messages,
            delayed,
            uncontended,
            cases,
            memory,
            targets,
        }
    }
}

/// Returns the number of processes that can run at once.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Tables.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cores = self.cores;
        let Messages { one_core, one_core_after_rest, two_cores, two_cores_after_rest } = self.messages;
        writeln!(f, "{:<58}{:>8} {:>9} {:>10}", "µs", "p50", "p99", "max")?;
        times(f, "one message, half a round trip by TCP, on one core", one_core)?;
        times(f, "… after 3 ms of rest", one_core_after_rest)?;
        times(f, "one message to another core that sleeps", two_cores)?;
        times(f, "… after 3 ms of rest", two_cores_after_rest)?;
        for alone in &self.uncontended {
            times(f, &format!("acquire and release alone through {}", alone.through), alone.times)?;
        }
        for Message { delay_ms, times } in &self.delayed {
            self::times(f, &format!("one message that the relay keeps back for {delay_ms} ms"), *times)?;
        }
        writeln!(f, "\nClients that go in and out all the time, on {cores} cores:\n")?;
        handovers(f, &self.cases)?;
        writeln!(f, "\nHow long they waited, and in which order they got in:\n")?;
        waits(f, &self.cases)?;
        let Memory { through, waiting, resources, before_mb, resident_mb } = self.memory;
        writeln!(f, "\n{waiting} clients that wait for {resources} resources through {through}:")?;
        writeln!(f, "{resident_mb:.1} MB resident, {before_mb:.1} MB before they came\n")?;
        self.targets.iter().try_for_each(|target| writeln!(f, "{target}"))
    }
}

fn times(f: &mut fmt::Formatter<'_>, what: &str, times: Times) -> fmt::Result {
    writeln!(f, "{what:<58}{:>8.1} {:>9.1} {:>10.1}", times.p50_us, times.p99_us, times.max_us)
}

/// Writes the columns that identify a case.
fn heading(f: &mut fmt::Formatter<'_>, above: &str, below: &str) -> fmt::Result {
    writeln!(f, "{:<9}{:>8}{:>7}{:>6}{:>6}{:>7} │{above}", "", "", "proc-", "", "hold", "delay")?;
    writeln!(f, "{:<9}{:>8}{:>7}{:>6}{:>6}{:>7} │{below}", "", "clients", "esses", "slots", "ms", "ms")
}

fn name(f: &mut fmt::Formatter<'_>, case: &Case) -> fmt::Result {
    let Case { system, clients, processes, slots, hold_ms, delay_ms, .. } = case;
    write!(f, "{system:<9}{clients:>8}{processes:>7}{slots:>6}{hold_ms:>6}{delay_ms:>7} │")
}

fn handovers(f: &mut fmt::Formatter<'_>, cases: &[Case]) -> fmt::Result {
    let above = format!("{:^30}│{:^20}│", "gap between processes, µs", "in messages");
    let times = format!("{:>9}{:>10}{:>10} │", "p50", "p99", "max");
    let below = format!("{times}{:>9}{:>10} │{:>11}{:>11}", "one core", "two cores", "handed/s", "entries/s");
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
        write!(f, "{:>11.1}{:>11.1}", case.gaps_per_second, case.entries_per_second)?;
        match case.share_of_ideal {
            Some(share) => writeln!(f, " ({:.1} % of the ideal)", share * 100.0)?,
            None => writeln!(f)?,
        }
    }
    let mut said = vec!["peerlock"];
    for case in cases {
        if !said.contains(&case.system) {
            writeln!(f, "{}: {}", case.system, case.what)?;
            said.push(case.system);
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
