//! The time until the next grant after a holder is killed.
//!
//! ```text
//!   holder   ── holds and renews its lease ──✝ kill -9
//!   waiter        ── requests ─────────────────── the lease expires ── grant
//!                                            ├──────── measured ───────┤
//! ```
//!
//! The holder's whole peer is killed, since an agent detects the death of a client at once. The registry is on three
//! other peers, like etcd's nodes.

use std::cell::RefCell;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use tempfile::TempDir;
use tokio::time::sleep;

use crate::plan::{interruptible, secret};
use crate::relay::Network;
use crate::worker::{Launcher, PATIENCE, Worker, first};
use crate::{Against, Error, Progress, clock};

const QUEUED: Duration = Duration::from_millis(500);
const SURVIVORS: usize = 3;

#[derive(Clone, Debug)]
pub struct RecoveryOptions {
    pub program: PathBuf,
    pub leases: Vec<Duration>,
    pub times: usize,
}

#[derive(Clone, Debug, Serialize)]
pub struct Recovery {
    pub version: &'static str,
    pub rows: Vec<RecoveryRow>,
    pub left_out: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct RecoveryRow {
    pub system: &'static str,
    pub what: &'static str,
    pub lease_s: f64,
    /// The times from kill to grant, sorted.
    pub seconds: Vec<f64>,
    pub median_s: f64,
}

/// Measures all systems concurrently, since they mostly wait.
///
/// # Errors
/// See [`Error`]. On any error, all children are stopped.
pub fn recovery(options: &RecoveryOptions, progress: &mut dyn FnMut(Progress)) -> Result<Recovery, Error> {
    interruptible(async {
        let launcher = Launcher { program: &options.program, secret: secret()? };
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
        let (peers, etcd, redis) = tokio::try_join!(
            peerlock(options, &launcher, &step),
            server(options, &launcher, &step, others.contains(&Against::Etcd).then_some(Against::Etcd)),
            server(options, &launcher, &step, others.contains(&Against::Redis).then_some(Against::Redis)),
        )?;
        let mut rows: Vec<RecoveryRow> = [peers, etcd, redis].concat();
        rows.sort_by(|a, b| a.lease_s.total_cmp(&b.lease_s));
        Ok(Recovery { version: env!("CARGO_PKG_VERSION"), rows, left_out })
    })
}

type Step<'a> = RefCell<dyn FnMut(String) + 'a>;

async fn peerlock(
    options: &RecoveryOptions,
    launcher: &Launcher<'_>,
    step: &Step<'_>,
) -> Result<Vec<RecoveryRow>, Error> {
    // Variables are dropped in reverse order: a process is killed before its directory is removed.
    let (mut dirs, mut survivors, mut first_address) = (Vec::new(), Vec::new(), None);
    for _ in 0..SURVIVORS {
        let dir = TempDir::new()?;
        let path = dir.path().display().to_string();
        let part = ["survivor", path.as_str()].into_iter().chain(first_address.as_deref()).collect::<Vec<_>>();
        let (survivor, address) = launcher.start(&part).await?;
        first_address.get_or_insert_with(|| first(&address).to_owned());
        survivors.push(survivor);
        dirs.push(dir);
    }
    let first_address = first_address.unwrap_or_default();
    let what = "the holder's peer is killed; three others have the registry on disk";
    let holder = |lease: Duration| vec!["victim".to_owned(), lease.as_millis().to_string(), first_address.clone()];
    rows(options, launcher, step, ("peerlock", what), &mut survivors[1], holder).await
}

async fn server(
    options: &RecoveryOptions,
    launcher: &Launcher<'_>,
    step: &Step<'_>,
    against: Option<Against>,
) -> Result<Vec<RecoveryRow>, Error> {
    let Some(against) = against else { return Ok(Vec::new()) };
    let server = against.start(launcher, &mut Network::Direct).await?;
    let what = match against {
        Against::Etcd => "the holder's client is killed; three nodes, a lease that the client renews",
        Against::Redis | Against::ZooKeeper => {
            "the holder's client is killed; one node, SET NX PX and PEXPIRE, polled every 10 ms: no queue, no disk"
        }
    };
    let node = server.addresses[0].to_string();
    let mut waiter = launcher.start(&[against.name(), &node]).await?.0;
    let holder = |_| vec![against.name().to_owned(), node.clone()];
    rows(options, launcher, step, (against.name(), what), &mut waiter, holder).await
}

async fn rows(
    options: &RecoveryOptions,
    launcher: &Launcher<'_>,
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
            let acquire = format!("acquire bench-recovery-{}-{time} {}", lease.as_millis(), lease.as_millis());
            let mut holder = launcher.start(&part).await?.0;
            holder.ask(&acquire).await?;
            waiter.send(&acquire).await?;
            // The kills are at different moments between two renewals.
            sleep(QUEUED + lease / 3 * time as u32 / options.times as u32).await;
            let killed = clock::now();
            holder.kill().await?;
            let answer = waiter.answer_within(lease + PATIENCE).await?;
            let entered = waiter.numbers::<1>(&answer)?.concat().first().copied().unwrap_or(0);
            // Not a violation: on a busy machine the lease may not be renewed in time.
            let Some(nanos) = entered.checked_sub(killed) else {
                let why = format!("its lease of {lease:?} expired before it was killed");
                return Err(Error::Child { system: format!("a holder ({system})"), why });
            };
            waiter.ask("release").await?;
            seconds.push(nanos as f64 / 1e9);
        }
        seconds.sort_by(f64::total_cmp);
        let median_s = median(&seconds);
        rows.push(RecoveryRow { system, what, lease_s: lease.as_secs_f64(), seconds, median_s });
    }
    Ok(rows)
}

fn median(sorted: &[f64]) -> f64 {
    match (sorted.get(sorted.len().saturating_sub(1) / 2), sorted.get(sorted.len() / 2)) {
        (Some(low), Some(high)) => (low + high) / 2.0,
        _ => 0.0,
    }
}

impl RecoveryRow {
    pub fn range(&self) -> (f64, f64) {
        (self.seconds.first().copied().unwrap_or(0.0), self.seconds.last().copied().unwrap_or(0.0))
    }
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "From the kill of a holder to the next grant, in seconds:\n")?;
        let heads = ["lease", "times", "median", "shortest", "longest", "median − lease"];
        writeln!(f, "{:<9}{}", "", heads.map(|head| format!("{head:>10}")).join(" "))?;
        for row in &self.rows {
            let ((low, high), count) = (row.range(), row.seconds.len());
            let times = [row.median_s, low, high, row.median_s - row.lease_s].map(|it| format!("{it:>10.2}"));
            writeln!(f, "{:<9}{:>10} {count:>10} {}", row.system, row.lease_s, times.join(" "))?;
        }
        let mut described: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !described.contains(&row.system) {
                writeln!(f, "{}{}: {}", if described.is_empty() { "\n" } else { "" }, row.system, row.what)?;
                described.push(row.system);
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
