//! What a run has shown, for people and for programs.

use std::fmt;

use serde::Serialize;

use crate::floor::Messages;
use crate::statistics::Times;
use crate::targets::{Target, targets};

/// Everything that was measured in one run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The version of what was measured.
    pub version: &'static str,
    /// How many cores the machine has.
    pub cores: usize,
    /// How often each case without a delay had its turn.
    pub rounds: usize,
    /// What one message costs.
    pub messages: Messages,
    /// What one message costs through the relay that keeps it back, for each delay.
    pub delayed: Vec<Message>,
    /// Acquire and release where nobody else wants in and the token is at hand.
    pub uncontended: Vec<Uncontended>,
    /// Clients that want in all the time.
    pub cases: Vec<Case>,
    /// How large a peer gets.
    pub memory: Memory,
    /// What we want to reach, and whether this run did.
    pub targets: Vec<Target>,
}

/// One message through the relay.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Message {
    /// How long the relay keeps it back.
    pub delay_ms: f64,
    /// How long it takes altogether: half a round trip.
    pub times: Times,
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
    /// The setting in a few words, as the table names it.
    pub what: &'static str,
    /// All together, in all processes.
    pub clients: usize,
    /// In how many processes; of peerlock, each is a peer.
    pub processes: usize,
    /// How many may be inside.
    pub slots: u32,
    /// How long a client stays inside. With 0 it only notes the time.
    pub hold_ms: f64,
    /// How long a message is kept back between two processes; 0 without a relay.
    pub delay_ms: f64,
    /// From leaving to the next client's entering the slot, where the two are in different processes.
    pub gap: Times,
    /// Its median, as a multiple of what one message costs between processes on one core.
    pub gap_in_messages: f64,
    /// The same, as a multiple of what one message costs to a process on another core that sleeps.
    pub gap_in_messages_between_cores: f64,
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
    /// The mean of `wait`, in milliseconds.
    pub mean_wait_ms: f64,
    /// The longest wait less the mean.
    pub spread_ms: f64,
    /// The longest wait, as a multiple of the mean.
    pub longest_wait_over_mean: f64,
    /// How often somebody got in before one whose request had left its process more than two messages earlier, as long
    /// as messages took at that time.
    pub out_of_order: usize,
    /// How long after the request of somebody who got in later a client had asked, at most.
    pub most_ahead_ms: f64,
}

/// A peer with many clients that wait.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Memory {
    /// How the clients reach their peer.
    pub through: &'static str,
    /// Clients that wait at this one peer when its memory is read.
    pub waiting: usize,
    /// Resources that they wait for, as many clients for each.
    pub resources: usize,
    /// Resident before they came, in MB.
    pub before_mb: f64,
    /// Resident while they wait, in MB.
    pub resident_mb: f64,
}

impl Report {
    /// What was measured, held against what we want.
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

/// How many processes can run at once.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Tables for people.
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

/// The columns that say which case it is.
fn heading(f: &mut fmt::Formatter<'_>, above: &str, below: &str) -> fmt::Result {
    writeln!(f, "{:<9}{:>8}{:>7}{:>6}{:>6}{:>7} │{above}", "", "", "proc-", "", "hold", "delay")?;
    writeln!(f, "{:<9}{:>8}{:>7}{:>6}{:>6}{:>7} │{below}", "", "clients", "esses", "slots", "ms", "ms")
}

fn name(f: &mut fmt::Formatter<'_>, case: &Case) -> fmt::Result {
    let Case { who, clients, processes, slots, hold_ms, delay_ms, .. } = case;
    write!(f, "{who:<9}{clients:>8}{processes:>7}{slots:>6}{hold_ms:>6}{delay_ms:>7} │")
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
        if !said.contains(&case.who) {
            writeln!(f, "{}: {}", case.who, case.what)?;
            said.push(case.who);
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
