//! Errors of commands: their messages and exit codes.

use std::io;
use std::path::PathBuf;

use peerlock::StartError;
use peerlock_http::ListenError;
use thiserror::Error;

/// An error of a command. Nothing has changed, unless the message says otherwise.
#[derive(Debug, Error)]
pub enum Error {
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Peer(#[from] StartError),
    #[error(transparent)]
    Peerlock(#[from] peerlock::Error),
    #[error("{error}; held by {holder}")]
    Held { error: peerlock::Error, holder: String },
    #[error("cannot use the file {path}: {source}. Check its path and permissions, or name another file")]
    File { path: PathBuf, source: io::Error },
    #[error(
        "cannot use the directory {path}: {source}. Make it writable, or set PEERLOCK_DATA_DIR (for the socket: \
         PEERLOCK_RUNTIME_DIR) to another directory"
    )]
    Dir { path: PathBuf, source: io::Error },
    #[error("cannot create the directory {path}: {source}. Set TMPDIR to a writable directory")]
    Temporary { path: PathBuf, source: io::Error },
    #[error(
        "other users can write to {path} (mode {mode:03o}), and could replace the agent: run `chmod 700` on it, or \
         choose another directory"
    )]
    OpenDir { path: PathBuf, mode: u32 },
    #[error(
        "{path} is on {kind}, which several machines may use: two agents could share one identity and one vote. \
         Choose a directory on a local disk (PEERLOCK_DATA_DIR or --data-dir), or give --any-filesystem if no other \
         machine uses this one",
        path = path.display()
    )]
    SharedFilesystem { path: PathBuf, kind: &'static str },
    #[error(
        "{path} was last used by another machine (machine ID {machine}), whose agent did not exit cleanly. Two agents \
         must not share one identity and one vote: if that agent may still run, stop it; if it certainly does not, \
         remove {path}/agent.lock and start this agent again",
        path = path.display()
    )]
    OtherMachine { path: PathBuf, machine: String },
    #[error(
        "the limit of open files is {files}, and an agent needs at least {least}: raise it (`ulimit -Hn`, or \
         LimitNOFILE= in its systemd unit)"
    )]
    FewFiles { files: usize, least: usize },
    #[error(
        "permission denied: this machine's agent at {socket} belongs to another user. Ask its administrator to start \
         it with `--socket-group` and one of your groups, or use another agent (--agent). An agent of your own \
         (`peerlock agent`) would be a separate cluster: the two would not exclude each other"
    )]
    ForeignAgent { socket: PathBuf },
    #[error(
        "this machine's agent at {socket} is not running: wait until it has restarted, or start it (`systemctl start \
         peerlock`). An agent of your own would be a separate cluster: the two would not exclude each other. To use \
         one anyway, set PEERLOCK_DATA_DIR"
    )]
    SystemAgentDown { socket: PathBuf },
    #[error(
        "{path} belongs to another user (uid {owner}), which could replace the agent: choose another directory, or \
         `chown` it"
    )]
    ForeignDir { path: PathBuf, owner: u32 },
    #[error(
        "other users can read the token file {path} (mode {mode:03o}): run `chmod 600` on it, or create a new token if \
         this one may have leaked"
    )]
    OpenToken { path: PathBuf, mode: u32 },
    #[error(
        "an agent with the data directory {path} is already running{}: stop it, replace it with --replace, or give \
         this one another directory with --data-dir",
        pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
    )]
    SecondAgent { path: PathBuf, pid: Option<u32> },
    #[error(
        "the agent of the data directory {path} is already running{}: stop it before the recovery",
        pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
    )]
    RecoveryOfRunningAgent { path: PathBuf, pid: Option<u32> },
    #[error(
        "not started: {address} of --join belongs to the cluster {theirs}, but this host to {ours}, which has other \
         hosts. Correct --join. To move this host to the other cluster instead, move {path}/cluster and \
         {path}/registry away, and start it again",
        path = path.display()
    )]
    JoinElsewhere { address: String, path: PathBuf, ours: String, theirs: String },
    #[error(
        "not started: {address} of --join belongs to the cluster {theirs}, but this host holds slots in a cluster of \
         its own ({ours}), which a command or an agent without --join has created. Wait until its jobs end, release \
         acquired slots (`peerlock ls`, `peerlock release`), and start the agent again: it then joins the other cluster"
    )]
    HeldInOwnCluster { address: String, ours: String, theirs: String },
    #[error(
        "not started: {address} of --join has another secret, and this host has a cluster of its own in {path}, \
         without other hosts. Pass the secret of the other cluster with --secret-file, or correct --join",
        path = path.display()
    )]
    OtherSecret { address: String, path: PathBuf },
    #[error(
        "no secret at {path}: joining a cluster needs its secret. Copy the file `secret` of a member there (mode 600), \
         or name it with --secret-file. Only for a new cluster, on its first machine: `peerlock secret new`"
    )]
    NoSecret { path: PathBuf },
    #[error(
        "{path} exists and was not changed: with another secret this machine could not reach its cluster. To replace \
         the secret of a running cluster, use `peerlock secret rotate`",
        path = path.display()
    )]
    SecretExists { path: PathBuf },
    #[error("cannot start an agent on this machine: {reason} (more in {log})")]
    AgentFailed { reason: String, log: PathBuf, code: u8 },
    #[error(
        "the agent of this machine is stopped, and commands cannot start it, because its secret or its cluster is not \
         in {dir}: start it again as before (`peerlock agent …`, or its systemd unit)"
    )]
    AgentStopped { dir: PathBuf },
    #[error(
        "this machine is drained: `peerlock drain` has stopped its agent, and commands do not start it again. To end \
         the maintenance, start it with `peerlock agent` or its systemd unit. Its data directory is {dir}"
    )]
    Drained { dir: PathBuf },
    #[error(
        "the agent of this machine is starting or stopping, and has not answered for {seconds} s. See its log, {log}; \
         if it hangs, kill it and try again"
    )]
    AgentUnresponsive { seconds: u64, log: PathBuf },
    #[error(
        "left without confirmation: no quorum could be reached. The slots of this agent are free when its session \
         expires"
    )]
    LeftUnconfirmed,
    #[error("cannot listen for clients: {0}")]
    Listen(#[from] ListenError),
    #[error("cannot start: {0}. Check the limits of this user (`ulimit -a`)")]
    Start(io::Error),
    #[error("cannot write the result: {0}")]
    Output(#[from] io::Error),
}

pub mod exit {
    //! Exit codes: those of sysexits.h where it has one. Errors of peers and agents map by class.

    use std::io;
    use std::process::ExitCode;

    use clap::CommandFactory as _;
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    use peerlock::{Class, NetworkError, StartError};

    use super::{Error, ListenError};
    use crate::Cli;
    use crate::say::say;

    const USAGE: u8 = Class::BadRequest.exit_code();
    const NO_INPUT: u8 = 66;
    const UNAVAILABLE: u8 = Class::Unavailable.exit_code();
    pub const SOFTWARE: u8 = 70;
    const SYSTEM: u8 = 71;
    const CANNOT_CREATE: u8 = 73;
    pub const IO: u8 = 74;
    const NOT_ALLOWED: u8 = Class::Forbidden.exit_code();
    pub const NOT_ACQUIRED: u8 = Class::NotAcquired.exit_code();

    pub fn after(error: &Error) -> ExitCode {
        match error {
            // The reader of the pipe has closed it, as `head` does: not an error.
            Error::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => return ExitCode::SUCCESS,
            _ => say(error),
        }
        ExitCode::from(code(error))
    }

    pub fn code(error: &Error) -> u8 {
        match error {
            Error::Usage(_) => USAGE,
            Error::JoinElsewhere { .. } | Error::HeldInOwnCluster { .. } | Error::OtherSecret { .. } => USAGE,
            Error::File { .. } => NO_INPUT,
            Error::Peerlock(error) | Error::Held { error, .. } => error.class().exit_code(),
            Error::Peer(error) => of_start(error),
            Error::Listen(ListenError::TooLong { .. }) => USAGE,
            Error::SecondAgent { .. } | Error::RecoveryOfRunningAgent { .. } | Error::Listen(_) => UNAVAILABLE,
            Error::SystemAgentDown { .. } | Error::AgentStopped { .. } | Error::AgentUnresponsive { .. } => UNAVAILABLE,
            Error::LeftUnconfirmed | Error::Drained { .. } => UNAVAILABLE,
            Error::AgentFailed { code, .. } => *code,
            Error::NoSecret { .. } | Error::OpenToken { .. } => NO_INPUT,
            Error::OpenDir { .. } | Error::ForeignDir { .. } => NO_INPUT,
            Error::SharedFilesystem { .. } | Error::OtherMachine { .. } => NO_INPUT,
            Error::ForeignAgent { .. } => NOT_ALLOWED,
            Error::Dir { .. } | Error::Temporary { .. } | Error::SecretExists { .. } => CANNOT_CREATE,
            Error::Start(_) | Error::FewFiles { .. } => SYSTEM,
            Error::Output(_) => IO,
        }
    }

    fn of_start(error: &StartError) -> u8 {
        match error {
            StartError::Network(error) => match error {
                NetworkError::IdentityUncreatable { .. } | NetworkError::SecretUncreatable { .. } => CANNOT_CREATE,
                NetworkError::Listen { .. } => UNAVAILABLE,
                NetworkError::IdentityUnreadable { .. }
                | NetworkError::IdentityMalformed { .. }
                | NetworkError::IdentityTooOpen { .. }
                | NetworkError::SecretUnreadable { .. }
                | NetworkError::SecretTooOpen { .. }
                | NetworkError::SecretLines
                | NetworkError::SecretWeak { .. } => NO_INPUT,
                _ => SYSTEM,
            },
            StartError::Places(_) => CANNOT_CREATE,
            StartError::Dir(error) if error.is_full() => crate::exit::IO,
            StartError::Dir(_) | StartError::Token { .. } => NO_INPUT,
            StartError::Unresolved { .. } => UNAVAILABLE,
            StartError::OnlyItself { .. } | StartError::ExpectsTooFew { .. } => USAGE,
            StartError::Join(error) => error.class().exit_code(),
            StartError::Endpoint(_) => USAGE,
            _ => SYSTEM,
        }
    }

    /// Prints a parse result that is no command: an error, the help or the version.
    pub fn after_parsing(error: clap::Error) -> ExitCode {
        let hint = missing_dashes(&error);
        peerlock_console::after_parsing(Cli::command(), error, hint).unwrap_or_else(|error| after(&error.into()))
    }

    fn missing_dashes(error: &clap::Error) -> Option<String> {
        let mut typed = std::env::args_os().skip(1);
        let (command, Some(ContextValue::String(word))) = (typed.next()?, error.get(ContextKind::InvalidArg)) else {
            return None;
        };
        let is_run = command == "run" || command == "lock";
        let is_command = error.kind() == ErrorKind::UnknownArgument && is_run && !word.starts_with('-');
        is_command.then(|| format!("put the command after `--`: peerlock run NAME -- {word} …"))
    }
}
