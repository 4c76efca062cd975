//! `peerlock-lab bench`.

mod page;

use std::fmt::Display;
use std::io::{Write, stdout};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use peerlock_bench::{Against, Progress};
use serde::Serialize;

use crate::{Error, Result};
use peerlock_console::progress_bar;

/// Measure hand-over, fairness and memory of real peers on this machine
#[derive(Args)]
pub struct Options {
    /// One short round, as a smoke test
    #[arg(long)]
    quick: bool,
    /// Also measure this server, which must be installed and is started by the bench; repeatable
    #[arg(long, value_name = "SERVER")]
    against: Vec<Against>,
    /// Also measure with this delay of all messages between processes; several with commas: 5ms,20ms
    #[arg(long, value_name = "TIME", value_delimiter = ',', value_parser = delay)]
    delay: Vec<Duration>,
    /// Measure the time from the kill of a holder to the next grant instead; also of etcd and Redis if installed
    #[arg(long, conflicts_with_all = ["against", "delay"])]
    recovery: bool,
    /// Session length or lease of the killed holder; several with commas
    #[arg(long, value_name = "TIME", value_delimiter = ',', value_parser = lease, default_values = ["2s", "15s"])]
    #[arg(requires = "recovery")]
    lease: Vec<Duration>,
    /// Number of kills for each lease [default: 20; with --quick 1]
    #[arg(long, value_name = "N", requires = "recovery", value_parser = clap::value_parser!(u16).range(1..))]
    times: Option<u16>,
    /// Write bench.html (plots) and bench.json (data) to this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The lower bound is etcd's.
const LEASES: RangeInclusive<Duration> = Duration::from_secs(2)..=Duration::from_secs(120);

/// Shorter delays would measure the relay itself; longer ones exceed the servers' failure timeouts.
const DELAYS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_millis(200);

/// Internal: bench worker process
#[derive(Args)]
pub struct Child {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    part: Vec<String>,
}

pub fn run(options: &Options) -> Result<()> {
    options.out.as_deref().map(crate::html::prepare).transpose()?;
    if options.recovery { recover(options) } else { hand_over(options) }
}

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

fn hand_over(options: &Options) -> Result<()> {
    let (mut against, mut delays) = (options.against.clone(), options.delay.clone());
    against.sort_unstable();
    against.dedup();
    delays.sort_unstable();
    delays.dedup();
    let wanted = peerlock_bench::Options {
        // The path of the command may be another program by now.
        program: "/proc/self/exe".into(),
        quick: options.quick,
        against,
        delays,
    };
    let report = with_bar(|progress| peerlock_bench::run(&wanted, progress))?;
    show(options, &report, page::html)
}

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

/// Prints the results, then writes the page, so that the results are shown even if that fails.
fn show<R: Serialize + Display>(options: &Options, report: &R, page: impl Fn(&R, &str) -> String) -> Result<()> {
    let shown = print(options, report);
    let Some(dir) = &options.out else { return shown };
    // The page is written even if standard output was closed.
    let page = crate::html::write(dir, "bench", &page(report, &crate::html::command()), report)?;
    shown?;
    if !options.json {
        writeln!(stdout(), "\n{}", page.display())?;
    }
    Ok(())
}

fn print<R: Serialize + Display>(options: &Options, report: &R) -> Result<()> {
    let mut out = stdout().lock();
    if options.json {
        serde_json::to_writer_pretty(&mut out, report).map_err(std::io::Error::from)?;
        writeln!(out)?;
    } else {
        write!(out, "{report}")?;
    }
    Ok(out.flush()?)
}

fn delay(text: &str) -> std::result::Result<Duration, String> {
    let delay = crate::duration(text).map_err(|error| error.to_string())?;
    let is_sound = DELAYS.contains(&delay);
    is_sound.then_some(delay).ok_or_else(|| format!("a delay is from {:?} to {:?}", DELAYS.start(), DELAYS.end()))
}

fn lease(text: &str) -> std::result::Result<Duration, String> {
    let lease = crate::duration(text).map_err(|error| error.to_string())?;
    let is_sound = LEASES.contains(&lease) && lease.subsec_nanos() == 0;
    let bad = || format!("a lease is whole seconds, from {:?} to {:?}", LEASES.start(), LEASES.end());
    is_sound.then_some(lease).ok_or_else(bad)
}

pub fn child(child: &Child) -> Result<()> {
    peerlock_bench::child::main(&child.part).map_err(|why| Error::Usage(why.to_string()))
}
