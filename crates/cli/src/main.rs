//! `peerlock`: at most k at a time, in fair order, across any number of machines, with no lock server.

use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use clap::{Parser, Subcommand};
use peerlock_base::{Span, SpanError};

mod agent;
mod bench;
mod by_hand;
mod client;
mod demo;
mod doctor;
mod error;
mod folder;
mod here;
mod html;
mod live;
mod look;
mod pages;
mod progress;
mod reproduce;
mod run;
mod say;
mod secret;
mod simulate;
mod start;

use error::{Error, exit};

/// The version, and the commit that it was built from.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("PEERLOCK_COMMIT"), ")");

/// At most k at a time, in fair order, across any number of machines, with no lock server.
#[derive(Parser)]
#[command(name = "peerlock", version = VERSION, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(Box<run::Options>),
    Agent(Box<agent::Options>),
    Ls(look::Ls),
    Show(look::Show),
    Watch(look::Watch),
    Peers(look::Peers),
    Acquire(client::Acquire),
    Renew(client::Renew),
    Release(client::Release),
    Resize(by_hand::Resize),
    Remove(by_hand::Remove),
    Voters(by_hand::Voters),
    Drain(by_hand::Drain),
    Secret(secret::Options),
    Doctor(doctor::Options),
    Recover(by_hand::Recover),
    Demo(demo::Options),
    /// Run a protocol in virtual time: waits, fairness, messages
    Simulate(Box<simulate::Options>),
    /// Run a protocol by real peers: in processes of their own, over sockets, in real time
    Live(Box<live::Options>),
    /// Make the papers' figures again, as one page with plots, tables and published numbers
    Reproduce(reproduce::Options),
    /// Measure real peers on loopback: hand-over, fairness, entries per second, memory
    Bench(bench::Options),
    Completions(pages::Completions),
    Man(pages::Man),
    #[command(hide = true)]
    BenchChild(bench::Child),
    #[command(hide = true)]
    LiveChild,
}

fn main() -> ExitCode {
    // The guard of a command, and the command itself before it is what it will be, are this program, too.
    if let Some(code) = peerlock_supervise::errand() {
        return code;
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return exit::after_parsing(error),
    };
    let done = match cli.command {
        Command::Run(options) => run::run(&options),
        Command::Agent(options) => agent::run(&options),
        Command::Ls(options) => wait_for(look::ls(&options)),
        Command::Show(options) => wait_for(look::show(&options)),
        Command::Watch(options) => wait_for(look::watch(&options)),
        Command::Peers(options) => wait_for(look::peers(&options)),
        Command::Acquire(options) => wait_for(client::acquire(&options)),
        Command::Renew(options) => wait_for(client::renew(&options)),
        Command::Release(options) => wait_for(client::release(&options)),
        Command::Resize(options) => wait_for(by_hand::resize(&options)),
        Command::Remove(options) => wait_for(by_hand::remove(&options)),
        Command::Voters(options) => wait_for(by_hand::voters(&options)),
        Command::Drain(options) => wait_for(by_hand::drain(&options)),
        Command::Secret(options) => wait_for(secret::run(&options)),
        Command::Doctor(options) => wait_for(doctor::run(&options)),
        Command::Recover(options) => wait_for(by_hand::recover(&options)),
        Command::Demo(options) => demo::run(&options).map(|()| ExitCode::SUCCESS),
        Command::Simulate(options) => simulate::run(&options).map(|()| ExitCode::SUCCESS),
        Command::Live(options) => live::run(&options).map(|()| ExitCode::SUCCESS),
        Command::Reproduce(options) => reproduce::run(&options).map(|()| ExitCode::SUCCESS),
        Command::Bench(options) => bench::run(&options).map(|()| ExitCode::SUCCESS),
        Command::Completions(options) => pages::completions(&options).map(|()| ExitCode::SUCCESS),
        Command::Man(options) => pages::man(&options).map(|()| ExitCode::SUCCESS),
        Command::BenchChild(child) => bench::child(&child).map(|()| ExitCode::SUCCESS),
        Command::LiveChild => live::child().map(|()| ExitCode::SUCCESS),
    };
    done.unwrap_or_else(|error| exit::after(&error))
}

/// Runs a command that asks an agent something.
fn wait_for(asked: impl Future<Output = Result<ExitCode>>) -> Result<ExitCode> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::Start)?.block_on(asked)
}

/// A length of time as people write it. A bare number is seconds, as it is for `flock`, `timeout` and `sleep`.
fn duration(text: &str) -> std::result::Result<Duration, SpanError> {
    let is_number = !text.is_empty() && text.chars().all(|c| c.is_ascii_digit() || c == '.');
    let span: Span = if is_number { format!("{text}s").parse() } else { text.parse() }?;
    Ok(Duration::from_nanos(span.as_nanos()))
}

type Result<T> = std::result::Result<T, Error>;

/// Works on as many threads as were asked for; one per core if none were. A peer that panics on one of them has broken
/// a rule: the simulator says so with the run that led there, and the panic's own lines would only stand before that. A
/// panic that the simulator does not catch is told here: nobody else would.
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

    /// Names that clash, and the like: else only who uses the command in question finds out.
    #[test]
    fn the_command_line_is_sound() {
        super::Cli::command().debug_assert();
    }

    #[test]
    fn what_goes_wrong_on_a_thread_is_told() {
        assert_eq!(super::on_threads(Some(2), || 5).ok(), Some(5));
        let told = super::on_threads(Some(2), || -> u32 { panic!("nobody expected this") }).unwrap_err().to_string();
        assert!(told.contains("main.rs:") && told.contains("nobody expected this"), "{told}");
    }

    #[test]
    fn a_bare_number_is_seconds() {
        for (text, millis) in
            [("5", Some(5000)), ("0.5", Some(500)), ("5m", Some(300_000)), ("5x", None), ("", None), (".", None)]
        {
            assert_eq!(super::duration(text).ok().map(|it| it.as_millis()), millis, "{text:?}");
        }
    }
}
