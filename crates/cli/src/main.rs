//! `peerlock`: at most k at a time, in fair order, across any number of machines, with no lock server.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod bench;
mod error;
mod progress;
mod reproduce;
mod simulate;

use error::{Error, exit};

/// At most k at a time, in fair order, across any number of machines, with no lock server.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a protocol in virtual time: waits, fairness, messages
    Simulate(Box<simulate::Options>),
    /// Make the papers' figures again, as one page with plots, tables and published numbers
    Reproduce(reproduce::Options),
    /// Measure real peers on loopback: hand-over, fairness, entries per second, memory
    Bench(bench::Options),
    #[command(hide = true)]
    BenchChild(bench::Child),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return exit::after_parsing(&error),
    };
    let done = match cli.command {
        Command::Simulate(options) => simulate::run(&options),
        Command::Reproduce(options) => reproduce::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::BenchChild(child) => bench::child(&child),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::after(&error),
    }
}

type Result<T> = std::result::Result<T, Error>;

/// A pool of as many threads as were asked for; one per core if none were.
fn threads(asked: Option<u16>) -> Result<rayon::ThreadPool> {
    let threads = usize::from(asked.unwrap_or(0)); // 0: rayon counts the cores.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    pool.map_err(|error| Error::Usage(format!("cannot start {threads} threads: {error}")))
}
