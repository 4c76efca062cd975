//! The time until the next grant after a holder is killed.
//!
//! ```text
//!   holder   ── in, and keeps its lease ──✝ kill -9
//!   waiter        ── asks ────────────────────── the lease runs out ── in
//!                                         ├──────── measured ────────┤
//! ```
//!
//! For peerlock, the holder's whole peer is killed, like its machine: the death of a client under a live agent is
//! detected at once. The remaining peers store the registry on three disks, like etcd's nodes.

use std::cell::RefCell;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use tempfile::TempDir;
use tokio::time::sleep;

use crate::crew::{Crew, PATIENCE, Worker, said};
use crate::plan::{interruptible, secret};
use crate::relay::Way;
use crate::{Against, Error, Progress, clock};

/// The time given to the waiter to be queued before the holder dies.
const QUEUED: Duration = Duration::from_millis(500);
/// The number of peers that survive, each with a disk.
const STAY: usize = 3;

/// What to measure.
#[derive(Clone, Debug)]
pub struct RecoveryOptions {
    /// The program whose hidden command `bench-child` is [`crate::child::main`].
    pub program: PathBuf,
    /// The durations of session or lease.
    pub leases: Vec<Duration>,
    /// The number of measurements of each.
    pub times: usize,
}

/// The results.
#[derive(Clone, Debug, Serialize)]
pub struct Recovery {
    /// The version measured.
    pub version: &'static str,
    /// One row per lock and lease.
    pub rows: Vec<RecoveryRow>,
    /// Servers that are not compared, with the reason.
    pub left_out: Vec<String>,
}

/// The results of one lock with one lease.
#[derive(Clone, Debug, Serialize)]
pub struct RecoveryRow {
    /// The lock measured.
    pub system: &'static str,
    /// A description: a heading in the table.
    pub what: &'static str,
    /// The duration of the holder's session or lease after a renewal.
    pub lease_s: f64,
    /// From kill to grant, sorted.
    pub seconds: Vec<f64>,
    /// The median.
    pub median_s: f64,
}

/// Measures all locks concurrently: they mostly wait.
///
/// # Errors
/// See [`Error`]. On any error, all children are stopped.
pub fn recovery(options: &RecoveryOptions, progress: &mut dyn FnMut(Progress)) -> Result<Recovery, Error> {
    interruptible(async {
        let crew = Crew { program: &options.program, secret: secret()? };
        let (mut left_out, mut others) = (Vec::new(), Vec::new());
        for against in [Against::Etcd, Against::Redis] {
            match against.check() {
                Ok(()) => others.push(against),
                Err(Error::NoServer { missing, .. }) => {
                    left_out.push(format!("{against} is not installed ({missing} is missing)"));
                }
                Err(error) => return Err(error),
            }
        }
        let steps = options.leases.len() * options.times * (1 + others.len());
        progress(Progress::ToDo(steps as u64));
        let step = RefCell::new(|what| progress(Progress::Step(what)));
        let (ours, etcd, redis) = tokio::try_join!(
            ours(options, &crew, &step),
            theirs(options, &crew, &step, others.contains(&Against::Etcd).then_some(Against::Etcd)),
            theirs(options, &crew, &step, others.contains(&Against::Redis).then_some(Against::Redis)),
        )?;
        let mut rows: Vec<RecoveryRow> = [ours, etcd, redis].concat();
        rows.sort_by(|a, b| a.lease_s.total_cmp(&b.lease_s));
        Ok(Recovery { version: env!("CARGO_PKG_VERSION"), rows, left_out })
    })
}

type Step<'a> = RefCell<dyn FnMut(String) + 'a>;

async fn ours(options: &RecoveryOptions, crew: &Crew<'_>, step: &Step<'_>) -> Result<Vec<RecoveryRow>, Error> {
    // Fields in this order: a process is killed before its directory is removed.
    let (mut folders, mut stayers, mut first) = (Vec::new(), Vec::new(), None);
    for _ in 0..STAY {
        let dir = TempDir::new()?;
        let path = dir.path().display().to_string();
        let part = ["stayer", path.as_str()].into_iter().chain(first.as_deref()).collect::<Vec<_>>();
        let (stayer, address) = crew.start(&part).await?;
        first.get_or_insert_with(|| said(&address).to_owned());
        stayers.push(stayer);
        folders.push(dir);
    }
    let first = first.unwrap_or_default();
    let what = "the holder's peer is killed; three others keep the register on disk";
    let holder = |lease: Duration| vec!["mortal".to_owned(), lease.as_millis().to_string(), first.clone()];
    rows(options, crew, step, ("peerlock", what), &mut stayers[1], holder).await
}

async fn theirs(
    options: &RecoveryOptions,
    crew: &Crew<'_>,
    step: &Step<'_>,
    against: Option<Against>,
) -> Result<Vec<RecoveryRow>, Error> {
    let Some(against) = against else { return Ok(Vec::new()) };
    let server = against.start(crew, &mut Way::Straight).await?;
    let what = match against {
        Against::Etcd => "the holder's client is killed; three nodes, a lease that the client keeps alive",
        Against::Redis | Against::ZooKeeper => {
            "the holder's client is killed; one node, SET NX PX and PEXPIRE, tried again every 10 ms: no line, not on \
             disk"
        }
    };
    let node = server.addresses[0].to_string();
    let mut waiter = crew.start(&[against.name(), &node]).await?.0;
    let holder = |_| vec![against.name().to_owned(), node.clone()];
    rows(options, crew, step, (against.name(), what), &mut waiter, holder).await
}

/// Measures each lease `times` times, each with its own resource.
async fn rows(
    options: &RecoveryOptions,
    crew: &Crew<'_>,
    step: &Step<'_>,
    (system, what): (&'static str, &'static str),
    waiter: &mut Worker,
    holder: impl Fn(Duration) -> Vec<String>,
) -> Result<Vec<RecoveryRow>, Error> {
    let mut rows = Vec::new();
    for &lease in &options.leases {
        let part = holder(lease);
        let part: Vec<&str> = part.iter().map(String::as_str).collect();
        let mut seconds = Vec::new();
        for time in 0..options.times {
            step.borrow_mut()(format!("{system}, lease {lease:?}, {}", time + 1));
            let take = format!("take bench-recovery-{}-{time} {}", lease.as_millis(), lease.as_millis());
            let mut holder = crew.start(&part).await?.0;
            holder.ask(&take).await?;
            waiter.send(&take).await?;
            // A different moment between two renewals each time.
            sleep(QUEUED + lease / 3 * time as u32 / options.times as u32).await;
            let killed = clock::now();
            holder.kill().await?;
            let answer = waiter.answer_within(lease + PATIENCE).await?;
            let entered = waiter.numbers::<1>(&answer)?.concat().first().copied().unwrap_or(0);
            // Not a violation: the lease expires if the machine is too busy to renew it.
            let Some(nanos) = entered.checked_sub(killed) else {
                let why = format!("its lease of {lease:?} had ended, and the next one was in, before it was killed");
                return Err(Error::Child { system: format!("a holder ({system})"), why });
            };
            waiter.ask("give").await?;
            seconds.push(nanos as f64 / 1e9);
        }
        seconds.sort_by(f64::total_cmp);
        let median_s = median(&seconds);
        rows.push(RecoveryRow { system, what, lease_s: lease.as_secs_f64(), seconds, median_s });
    }
    Ok(rows)
}

/// Returns the median of sorted values; 0 if there are none.
fn median(sorted: &[f64]) -> f64 {
    match (sorted.get(sorted.len().saturating_sub(1) / 2), sorted.get(sorted.len() / 2)) {
        (Some(low), Some(high)) => (low + high) / 2.0,
        _ => 0.0,
    }
}

impl RecoveryRow {
    /// Returns the shortest and the longest time.
    pub fn range(&self) -> (f64, f64) {
        (self.seconds.first().copied().unwrap_or(0.0), self.seconds.last().copied().unwrap_or(0.0))
    }
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "From kill -9 of the holder to the next entry, in seconds:\n")?;
        let heads = ["lease", "times", "median", "shortest", "longest", "median − lease"];
        writeln!(f, "{:<9}{}", "", heads.map(|head| format!("{head:>10}")).join(" "))?;
        for row in &self.rows {
            let ((low, high), count) = (row.range(), row.seconds.len());
            let times = [row.median_s, low, high, row.median_s - row.lease_s].map(|it| format!("{it:>10.2}"));
            writeln!(f, "{:<9}{:>10} {count:>10} {}", row.system, row.lease_s, times.join(" "))?;
        }
        let mut said: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !said.contains(&row.system) {
                writeln!(f, "{}{}: {}", if said.is_empty() { "\n" } else { "" }, row.system, row.what)?;
                said.push(row.system);
            }
        }
        self.left_out.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn median_is_in_the_middle() {
        for (sorted, median) in
            [(&[][..], 0.0), (&[3.0], 3.0), (&[1.0, 2.0], 1.5), (&[1.0, 2.0, 9.0], 2.0), (&[1.0, 2.0, 4.0, 9.0], 3.0)]
        {
            assert_eq!(super::median(sorted), median, "{sorted:?}");
        }
    }
}
