//! `peerlock-lab`: the papers' protocols, simulated, run on sockets, measured and compared.

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

/// The version, and the commit that it was built from.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("PEERLOCK_COMMIT"), ")");

/// The laboratory of peerlock: protocols of mutual exclusion, simulated, run on sockets, measured and compared
#[derive(Parser)]
#[command(name = "peerlock-lab", version = VERSION, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a protocol in virtual time: waits, fairness, messages
    Simulate(Box<simulate::Options>),
    /// Run a protocol in processes of their own, over sockets, in real time
    Live(Box<live::Options>),
    /// Reproduce the papers' figures as one page with plots, tables and published numbers
    Reproduce(reproduce::Options),
    /// Measure real peers on loopback: hand-over, fairness, entries per second, memory
    Bench(bench::Options),
    Completions(Completions),
    Man(Man),
    #[command(hide = true)]
    BenchChild(bench::Child),
    #[command(hide = true)]
    LiveChild,
}

/// Print the completion script of a shell
#[derive(Args)]
struct Completions {
    /// The shell
    shell: Shell,
}

/// Write the manual pages, one for each command
#[derive(Args)]
struct Man {
    /// The directory to write them to; created if it does not exist
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
        Command::Man(options) => peerlock_console::man(&options.directory, Cli::command()).map_err(Error::Output),
        Command::BenchChild(child) => bench::child(&child),
        Command::LiveChild => live::child(),
    };
    done.map_or_else(|error| error::exit(&error), |()| ExitCode::SUCCESS)
}

type Result<T> = std::result::Result<T, Error>;

/// Runs `work` on `asked` threads, or one per core.
///
/// A panic of a peer breaks a rule, which the simulator reports with the run that led there, so its own message is
/// suppressed. A panic that the simulator does not catch becomes an error with that message.
fn on_threads<T: Send>(asked: Option<u16>, work: impl FnOnce() -> T + Send) -> Result<T> {
    const TRIAL: &str = "trial";
    let (loud, last) = (panic::take_hook(), Arc::new(Mutex::new(String::new())));
    let said = last.clone();
    panic::set_hook(Box::new(move |info| match said.lock() {
        Ok(mut said) if thread::current().name() == Some(TRIAL) => *said = info.to_string(),
        _ => loud(info),
    }));
    let threads = usize::from(asked.unwrap_or(0)); // 0: rayon counts the cores.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).thread_name(|_| TRIAL.into()).build();
    let pool = pool.map_err(|error| Error::Usage(format!("cannot start {threads} threads: {error}")))?;
    let done = panic::catch_unwind(AssertUnwindSafe(|| pool.install(work)));
    done.map_err(|_| Error::Defect(last.lock().map(|last| last.clone()).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn command_line_is_sound() {
        super::Cli::command().debug_assert();
    }

    #[test]
    fn panic_on_a_thread_becomes_an_error() {
        assert_eq!(super::on_threads(Some(2), || 5).ok(), Some(5));
        let message = super::on_threads(Some(2), || -> u32 { panic!("a panic of this test") }).unwrap_err().to_string();
        assert!(message.contains("main.rs:") && message.contains("a panic of this test"), "{message}");
    }
}
