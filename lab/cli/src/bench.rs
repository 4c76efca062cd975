//! `peerlock-lab bench`: how fast peers hand over, beside the cost of one message and beside other servers.

mod page;

use std::fmt::Display;
use std::io::{Write, stdout};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use peerlock_bench::Progress;
use serde::Serialize;

use crate::{Error, Result};
use peerlock_console::progress_bar;

/// Measure real peers on loopback: hand-over, fairness, entries per second, memory
#[derive(Args)]
pub struct Options {
    /// One short round: whether it works, not how well
    #[arg(long)]
    quick: bool,
    /// Compare with a server that is installed here; repeatable. It is started for the time of the bench
    #[arg(long, value_name = "SERVER")]
    against: Vec<Against>,
    /// Measure again with messages kept back for this long on their way, between all processes, ours and the servers'
    /// alike; several with commas, such as 5ms,20ms
    #[arg(long, value_name = "TIME", value_delimiter = ',', value_parser = delay)]
    delay: Vec<Duration>,
    /// Measure something else instead: how long it takes until the next one is in when a holder is killed, beside etcd
    /// and Redis where they are installed
    #[arg(long, conflicts_with_all = ["against", "delay"])]
    recovery: bool,
    /// How long the session or lease of a holder that is killed stands; several with commas
    #[arg(long, value_name = "TIME", value_delimiter = ',', value_parser = lease, default_values = ["2s", "15s"])]
    #[arg(requires = "recovery")]
    lease: Vec<Duration>,
    /// How often a holder is killed, for each lease [default: 20, or once with --quick]
    #[arg(long, value_name = "N", requires = "recovery", value_parser = clap::value_parser!(u16).range(1..))]
    times: Option<u16>,
    /// Write a page with plots into this folder, bench.html, and the numbers beside it, bench.json
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The result as JSON
    #[arg(long)]
    json: bool,
}

/// etcd has none below, and nobody waits longer for a number.
const LEASES: RangeInclusive<Duration> = Duration::from_secs(2)..=Duration::from_secs(120);

/// Below, the relay's own time would be measured; above, some servers take each other for dead.
const DELAYS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_millis(200);

/// A server to compare with.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum Against {
    /// Three nodes of etcd, and its lock
    Etcd,
    /// One redis-server, and a token that is passed with BLPOP
    Redis,
    /// Three nodes of ZooKeeper, and the lock recipe of its documentation
    #[value(name = "zookeeper")]
    ZooKeeper,
}

impl From<Against> for peerlock_bench::Against {
    fn from(against: Against) -> Self {
        match against {
            Against::Etcd => Self::Etcd,
            Against::Redis => Self::Redis,
            Against::ZooKeeper => Self::ZooKeeper,
        }
    }
}

/// A process of the bench; for nobody else to call
#[derive(Args)]
pub struct Child {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    part: Vec<String>,
}

/// Runs the command.
pub fn run(options: &Options) -> Result<()> {
    options.out.as_deref().map(crate::html::prepare).transpose()?;
    if options.recovery { recover(options) } else { hand_over(options) }
}

/// How long a death costs.
fn recover(options: &Options) -> Result<()> {
    let mut leases = options.lease.clone();
    leases.sort_unstable();
    leases.dedup();
    let wanted = peerlock_bench::RecoveryOptions {
        program: "/proc/self/exe".into(),
        leases,
        times: options.times.map_or(if options.quick { 1 } else { 20 }, usize::from),
    };
    let report = with_bar(|progress| peerlock_bench::recovery(&wanted, progress))?;
    show(options, &report, page::recovery)
}

/// How fast peers hand over.
fn hand_over(options: &Options) -> Result<()> {
    let (mut against, mut delays) = (options.against.clone(), options.delay.clone());
    against.sort_unstable();
    against.dedup();
    delays.sort_unstable();
    delays.dedup();
    let wanted = peerlock_bench::Options {
        // Not the path that we were called by: that may be another program by now.
        program: "/proc/self/exe".into(),
        quick: options.quick,
        against: against.into_iter().map(Into::into).collect(),
        delays,
    };
    let report = with_bar(|progress| peerlock_bench::run(&wanted, progress))?;
    show(options, &report, page::html)
}

/// Measures, and shows how far that is.
fn with_bar<T>(
    measure: impl FnOnce(&mut dyn FnMut(Progress)) -> std::result::Result<T, peerlock_bench::Error>,
) -> Result<T> {
    let bar = progress_bar();
    let measured = measure(&mut |progress| match progress {
        Progress::ToDo(steps) => bar.set_length(steps),
        Progress::Step(name) => {
            bar.set_message(name);
            bar.inc(1);
        }
    });
    bar.finish_and_clear();
    Ok(measured?)
}

/// Tells what was measured: as text or JSON, and then as a page in a folder. If that cannot be written, the numbers are
/// seen nevertheless.
fn show<R: Serialize + Display>(options: &Options, report: &R, page: impl Fn(&R, &str) -> String) -> Result<()> {
    let shown = notify(options, report);
    let Some(dir) = &options.out else { return shown };
    // Also if whoever reads the numbers has seen enough of them.
    let page = crate::html::write(dir, "bench", &page(report, &crate::html::command()), report)?;
    shown?;
    if !options.json {
        writeln!(stdout(), "\n{}", page.display())?;
    }
    Ok(())
}

fn notify<R: Serialize + Display>(options: &Options, report: &R) -> Result<()> {
    let mut out = stdout().lock();
    if options.json {
        serde_json::to_writer_pretty(&mut out, report).map_err(std::io::Error::from)?;
        writeln!(out)?;
    } else {
        write!(out, "{report}")?;
    }
    Ok(out.flush()?)
}

/// A delay as people write it, within what can be measured.
fn delay(text: &str) -> std::result::Result<Duration, String> {
    let delay = crate::duration(text).map_err(|error| error.to_string())?;
    let is_sound = DELAYS.contains(&delay);
    is_sound.then_some(delay).ok_or_else(|| format!("a delay is from {:?} to {:?}", DELAYS.start(), DELAYS.end()))
}

/// A lease as people write it.
fn lease(text: &str) -> std::result::Result<Duration, String> {
    let lease = crate::duration(text).map_err(|error| error.to_string())?;
    let is_sound = LEASES.contains(&lease) && lease.subsec_nanos() == 0;
    let bad = || format!("a lease is whole seconds, from {:?} to {:?}", LEASES.start(), LEASES.end());
    is_sound.then_some(lease).ok_or_else(bad)
}

/// Plays its part.
pub fn child(child: &Child) -> Result<()> {
    peerlock_bench::child::main(&child.part).map_err(|why| Error::Usage(why.to_string()))
}
