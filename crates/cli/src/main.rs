//! The program `peerlock`: a distributed lock and semaphore without a lock server.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use peerlock_console::duration;

mod admin;
mod agent;
mod client;
mod demo;
mod dir;
mod doctor;
mod error;
mod local_peer;
mod pages;
mod query;
mod run;
mod say;
mod secret;
mod start;

use error::{Error, exit};

const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("PEERLOCK_COMMIT"), ")");

const COMMON: &str = "\
Environment:
  PEERLOCK_AGENT            agent to use: path of its socket, or HOST:PORT
  PEERLOCK_API_TOKEN        bearer token for an agent at HOST:PORT
  PEERLOCK_API_TOKEN_FILE   file with that token
  PEERLOCK_DATA_DIR         data directory
  PEERLOCK_RUNTIME_DIR      directory of the agent's socket

Files:
  /var/lib/peerlock         data directory of root: secret, identity, registry, log
  ~/.local/share/peerlock   that of another user, unless $XDG_DATA_HOME is set
  /run/peerlock/agent.sock  socket of this machine's agent

Exit codes:
  0    success
  64   wrong options
  66   a file cannot be used, or there is no such resource
  69   no agent or no quorum
  70   internal error
  71   the system refuses a process, thread or file
  73   a file cannot be created
  74   output or a file cannot be written
  75   not acquired in time, or in use
  76   the slot is lost, or the grant is no longer valid
  77   permission denied";

/// A distributed lock and semaphore without a lock server
#[derive(Parser)]
#[command(name = "peerlock", version = VERSION, arg_required_else_help = true, after_long_help = COMMON)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[command(alias = "lock")]
    Run(Box<run::Options>),
    Agent(Box<agent::Options>),
    #[command(alias = "list")]
    Ls(query::Ls),
    Show(query::Show),
    Watch(query::Watch),
    Peers(query::Peers),
    Acquire(client::Acquire),
    Renew(client::Renew),
    #[command(alias = "unlock")]
    Release(client::Release),
    Resize(admin::Resize),
    Remove(admin::Remove),
    Voters(admin::Voters),
    Drain(admin::Drain),
    Secret(secret::Options),
    #[command(alias = "status")]
    Doctor(doctor::Options),
    Recover(admin::Recover),
    Demo(demo::Options),
    Completions(pages::Completions),
    Man(pages::Man),
    /// Print the version
    #[command(hide = true)]
    Version,
}

fn main() -> ExitCode {
    // The supervisor starts its guard process and the job through this executable.
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
        Command::Ls(options) => wait_for(query::ls(&options)),
        Command::Show(options) => wait_for(query::show(&options)),
        Command::Watch(options) => wait_for(query::watch(&options)),
        Command::Peers(options) => wait_for(query::peers(&options)),
        Command::Acquire(options) => wait_for(client::acquire(&options)),
        Command::Renew(options) => wait_for(client::renew(&options)),
        Command::Release(options) => wait_for(client::release(&options)),
        Command::Resize(options) => wait_for(admin::resize(&options)),
        Command::Remove(options) => wait_for(admin::remove(&options)),
        Command::Voters(options) => wait_for(admin::voters(&options)),
        Command::Drain(options) => wait_for(admin::drain(&options)),
        Command::Secret(options) => wait_for(secret::run(&options)),
        Command::Doctor(options) => wait_for(doctor::run(&options)),
        Command::Recover(options) => wait_for(admin::recover(&options)),
        Command::Demo(options) => demo::run(&options).map(|()| ExitCode::SUCCESS),
        Command::Completions(options) => pages::completions(&options).map(|()| ExitCode::SUCCESS),
        Command::Man(options) => pages::man(&options).map(|()| ExitCode::SUCCESS),
        Command::Version => client::print(&format!("peerlock {VERSION}\n")).map(|()| ExitCode::SUCCESS),
    };
    done.unwrap_or_else(|error| exit::after(&error))
}

fn wait_for(asked: impl Future<Output = Result<ExitCode>>) -> Result<ExitCode> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::Start)?.block_on(asked)
}

type Result<T> = std::result::Result<T, Error>;

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    /// Otherwise clap reports clashing option names only when the command is used.
    #[test]
    fn command_line_definition_is_valid() {
        super::Cli::command().debug_assert();
    }
}
