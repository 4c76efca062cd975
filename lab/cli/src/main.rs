//! The program `peerlock-lab`.

use std::io::{self, Write as _};
use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::thread;

use clap::{Args, CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;
use peerlock_console::duration;

mod bench;
mod error;
mod html;
mod live;
mod reproduce;
mod simulate;

use error::Error;

const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("PEERLOCK_COMMIT"), ")");

/// The laboratory of peerlock: simulate, run, measure and compare mutual exclusion protocols
#[derive(Parser)]
#[command(name = "peerlock-lab", version = VERSION, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Simulate a protocol in virtual time: waits, fairness, messages
    Simulate(Box<simulate::Options>),
    /// Run a protocol in separate processes, over TCP, in real time
    Live(Box<live::Options>),
    /// Reproduce the papers' figures in one report, with the published numbers
    Reproduce(reproduce::Options),
    /// Measure hand-over, fairness and memory of real peers on this machine
    Bench(bench::Options),
    Completions(Completions),
    Man(Man),
    #[command(hide = true)]
    BenchChild(bench::Child),
    #[command(hide = true)]
    LiveChild,
}

/// Print a shell completion script
#[derive(Args)]
struct Completions {
    /// The shell
    shell: Shell,
}

/// Write the manual pages
#[derive(Args)]
struct Man {
    /// Output directory; created if missing
    directory: PathBuf,
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let printed = peerlock_console::after_parsing(Cli::command(), error, None);
            return printed.unwrap_or_else(|error| error::exit(&error.into()));
        }
    };
    let done = match cli.command {
        Command::Simulate(options) => simulate::run(&options),
        Command::Live(options) => live::run(&options),
        Command::Reproduce(options) => reproduce::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::Completions(options) => {
            let script = peerlock_console::completions(options.shell, Cli::command());
            io::stdout().write_all(&script).map_err(Error::Output)
        }
        Command::Man(options) => {
            let date = env!("PEERLOCK_DATE");
            peerlock_console::man(&options.directory, Cli::command(), date).map_err(Error::Output)
        }
        Command::BenchChild(child) => bench::child(&child),
        Command::LiveChild => live::child(),
    };
    done.map_or_else(|error| error::exit(&error), |()| ExitCode::SUCCESS)
}

type Result<T> = std::result::Result<T, Error>;

/// Runs `work` on this many threads, by default one per core.
///
/// The simulator reports a panic of a peer as a violation, with its run, so the panic's own message is suppressed. A
/// panic outside a peer is returned as an error.
fn on_threads<T: Send>(threads: Option<u16>, work: impl FnOnce() -> T + Send) -> Result<T> {
    const TRIAL: &str = "trial";
    let (default_hook, last) = (panic::take_hook(), Arc::new(Mutex::new(String::new())));
    let message = last.clone();
    panic::set_hook(Box::new(move |info| match message.lock() {
        Ok(mut message) if thread::current().name() == Some(TRIAL) => *message = info.to_string(),
        _ => default_hook(info),
    }));
    let threads = usize::from(threads.unwrap_or(0)); // 0: rayon counts the cores.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).thread_name(|_| TRIAL.into()).build();
    let pool = pool.map_err(|error| Error::Usage(format!("cannot start {threads} threads: {error}")))?;
    let done = panic::catch_unwind(AssertUnwindSafe(|| pool.install(work)));
    done.map_err(|_| Error::Defect(last.lock().map(|last| last.clone()).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }

    #[test]
    fn panic_on_a_thread_becomes_an_error() {
        assert_eq!(super::on_threads(Some(2), || 5).ok(), Some(5));
        let message = super::on_threads(Some(2), || -> u32 { panic!("a panic of this test") }).unwrap_err().to_string();
        assert!(message.contains("main.rs:") && message.contains("a panic of this test"), "{message}");
    }
}
