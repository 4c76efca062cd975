//! `peerlock bench`: how fast peers hand over, beside the cost of one message and beside other servers.

use std::io::{Write, stdout};

use clap::{Args, ValueEnum};
use peerlock_bench::Progress;

use crate::progress::progress_bar;
use crate::{Error, Result};

/// Measure real peers on loopback: hand-over, fairness, entries per second, memory
#[derive(Args)]
pub struct Options {
    /// One short round: whether it works, not how well
    #[arg(long)]
    quick: bool,
    /// Compare with a server that is installed here; repeatable. It is started for the time of the bench
    #[arg(long, value_name = "SERVER")]
    against: Vec<Against>,
    /// The result as JSON
    #[arg(long)]
    json: bool,
}

/// A server to compare with.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum Against {
    /// Three nodes of etcd, and its lock
    Etcd,
    /// One redis-server, and a token that is passed with BLPOP
    Redis,
}

/// A process of the bench; for nobody else to call
#[derive(Args)]
pub struct Child {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    part: Vec<String>,
}

/// Runs the command.
pub fn run(options: &Options) -> Result<()> {
    let mut against = options.against.clone();
    against.sort_unstable();
    against.dedup();
    let against = against.into_iter().map(|against| match against {
        Against::Etcd => peerlock_bench::Against::Etcd,
        Against::Redis => peerlock_bench::Against::Redis,
    });
    let wanted = peerlock_bench::Options {
        // Not the path that we were called by: that may be another program by now.
        program: "/proc/self/exe".into(),
        quick: options.quick,
        against: against.collect(),
    };
    let bar = progress_bar();
    let report = peerlock_bench::run(&wanted, &mut |progress| match progress {
        Progress::ToDo(steps) => bar.set_length(steps),
        Progress::Step(name) => {
            bar.set_message(name);
            bar.inc(1);
        }
    });
    bar.finish_and_clear();
    let report = report?;
    let mut out = stdout().lock();
    if options.json {
        serde_json::to_writer_pretty(&mut out, &report).map_err(std::io::Error::from)?;
        writeln!(out)?;
    } else {
        write!(out, "{report}")?;
    }
    Ok(out.flush()?)
}

/// Plays its part.
pub fn child(child: &Child) -> Result<()> {
    peerlock_bench::child::main(&child.part).map_err(|why| Error::Usage(why.to_string()))
}
