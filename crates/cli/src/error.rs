//! The one place that tells a person what went wrong, and the shell how badly.

use std::io;
use std::path::PathBuf;

use peerlock_http::client;
use peerlock_service::{Error as ServiceError, StartError};
use peerlock_sim::Failure;
use peerlock_sim::latency::MatrixError;
use thiserror::Error;

/// What can go wrong in a command. Nothing has been changed unless it says so.
#[derive(Debug, Error)]
pub enum Error {
    /// The options make no sense together.
    #[error("{0}")]
    Usage(String),
    /// A file that was named cannot be used.
    #[error("{0}")]
    Input(#[from] MatrixError),
    /// A protocol broke a rule.
    #[error("{failure}\nTo see it again: {again}")]
    Broken {
        /// What happened.
        failure: Box<Failure>,
        /// The command that shows it.
        again: String,
    },
    /// Figures could not be made.
    #[error("{0}")]
    Figures(#[from] peerlock_figures::Error),
    /// The report was written, but numbers that we claim to reproduce are not: a sentence for each.
    #[error("{}", .0.join("\npeerlock: "))]
    Moved(Vec<String>),
    /// There are no numbers.
    #[error("{0}")]
    Bench(#[from] peerlock_bench::Error),
    /// A peer did not start.
    #[error(transparent)]
    Peer(#[from] StartError),
    /// A peer has refused something.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// An agent did not do what it was asked for.
    #[error(transparent)]
    Agent(Box<client::Error>),
    /// Others were first, and this code was wished for then.
    #[error("{0}")]
    Conflict(Box<Error>, u8),
    /// A file that was named cannot be used.
    #[error("cannot use {path}: {source}. Check the file, or name another one")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The data folder cannot be used.
    #[error("cannot use the data folder {path}: {source}. Make it writable, or name another one with --data-dir")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another agent has the data folder.
    #[error("an agent with the data folder {path} runs already: stop it, or give this one a folder with --data-dir")]
    SecondAgent {
        /// The folder.
        path: PathBuf,
    },
    /// Nothing could be listened on for clients.
    #[error("cannot listen for clients: {0}")]
    Clients(String),
    /// The system gives us no process, thread or file to work with.
    #[error("cannot start anything: {0}. Check the limits of this user (`ulimit -a`)")]
    Start(io::Error),
    /// The result could not be written.
    #[error("cannot write the result: {0}")]
    Output(#[from] io::Error),
}

impl From<client::Error> for Error {
    fn from(error: client::Error) -> Self {
        Self::Agent(Box::new(error))
    }
}

impl Error {
    /// What a peer has said, be it our own or the agent's.
    pub fn service(&self) -> Option<&ServiceError> {
        match self {
            Self::Service(error) | Self::Peer(StartError::Join(error)) => Some(error),
            Self::Agent(error) => match &**error {
                client::Error::Service(error) => Some(error),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether a grant does not stand any more.
    pub fn is_lost(&self) -> bool {
        self.service() == Some(&ServiceError::Lost)
    }
}

pub mod exit {
    //! Exit codes, after sysexits.h where it has one.

    use std::io::{self, IsTerminal};
    use std::process::ExitCode;

    use clap::error::ErrorKind;
    use peerlock_net as net;
    use peerlock_service::{Error as ServiceError, StartError};

    use super::{Error, client};
    use crate::say::say;

    const BROKEN: u8 = 1;
    const USAGE: u8 = 64;
    const NO_INPUT: u8 = 66;
    const UNAVAILABLE: u8 = 69;
    const SOFTWARE: u8 = 70;
    const SYSTEM: u8 = 71;
    const CANNOT_CREATE: u8 = 73;
    const IO: u8 = 74;
    pub const NOT_ACQUIRED: u8 = 75;
    const LOST: u8 = 76;
    const NOT_ALLOWED: u8 = 77;
    /// 128 and the number of SIGINT.
    const INTERRUPTED: u8 = 130;

    /// Prints an error and says how to exit.
    pub fn after(error: &Error) -> ExitCode {
        match error {
            // The reader of a pipe has seen enough; nothing is wrong.
            Error::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => return ExitCode::SUCCESS,
            _ => say(error),
        }
        ExitCode::from(code(error))
    }

    /// The exit code of an error.
    pub fn code(error: &Error) -> u8 {
        match error {
            Error::Usage(_) => USAGE,
            Error::Input(_) | Error::File { .. } => NO_INPUT,
            Error::Broken { .. } | Error::Moved(_) => BROKEN,
            Error::Figures(error) => match error {
                peerlock_figures::Error::Unknown { .. } => USAGE,
                peerlock_figures::Error::Experiment { .. } => SOFTWARE,
                peerlock_figures::Error::Output { .. } => CANNOT_CREATE,
                peerlock_figures::Error::Broken { .. } => BROKEN,
            },
            Error::Bench(error) => match error {
                peerlock_bench::Error::NoServer { .. } | peerlock_bench::Error::Mute { .. } => UNAVAILABLE,
                peerlock_bench::Error::Child { .. } | peerlock_bench::Error::Io(_) => SOFTWARE,
                peerlock_bench::Error::Broken { .. } => BROKEN,
                peerlock_bench::Error::Interrupted => INTERRUPTED,
            },
            Error::Service(error) => of_service(error),
            Error::Peer(error) => of_start(error),
            Error::Agent(error) => match &**error {
                client::Error::Service(error) => of_service(error),
                client::Error::Refused(_) => NOT_ALLOWED,
                client::Error::NoAgent { .. } | client::Error::Broken { .. } => UNAVAILABLE,
            },
            Error::Conflict(_, code) => *code,
            Error::SecondAgent { .. } | Error::Clients(_) => UNAVAILABLE,
            Error::Folder { .. } => CANNOT_CREATE,
            Error::Start(_) => SYSTEM,
            Error::Output(_) => IO,
        }
    }

    fn of_service(error: &ServiceError) -> u8 {
        match error {
            ServiceError::BadName { .. }
            | ServiceError::BadSlots { .. }
            | ServiceError::BadLease { .. }
            | ServiceError::SlotsMismatch { .. } => USAGE,
            ServiceError::NoSuchResource { .. } => NO_INPUT,
            ServiceError::NotAcquired { .. } | ServiceError::Busy { .. } => NOT_ACQUIRED,
            ServiceError::Lost => LOST,
            ServiceError::Stalled { .. }
            | ServiceError::SessionEnded
            | ServiceError::NoPeer { .. }
            | ServiceError::Stopped => UNAVAILABLE,
        }
    }

    fn of_start(error: &StartError) -> u8 {
        match error {
            StartError::Network(error) => match error {
                net::Error::IdentityUncreatable { .. } | net::Error::SecretUncreatable { .. } => CANNOT_CREATE,
                net::Error::Listen { .. } => UNAVAILABLE,
                net::Error::IdentityUnreadable { .. }
                | net::Error::IdentityMalformed { .. }
                | net::Error::IdentityTooOpen { .. }
                | net::Error::SecretUnreadable { .. }
                | net::Error::SecretTooOpen { .. }
                | net::Error::SecretTooShort { .. } => NO_INPUT,
            },
            StartError::Places(_) => CANNOT_CREATE,
            StartError::Unresolved { .. } => UNAVAILABLE,
            StartError::Join(error) => of_service(error),
        }
    }

    /// Prints what the parser has to say: help and version are no errors.
    pub fn after_parsing(error: &clap::Error) -> ExitCode {
        // A person wants the usage; a log wants one line. Who has typed nothing at all wants the help.
        let is_help = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
        if error.use_stderr() && !is_help && !std::io::stderr().is_terminal() {
            let text = error.to_string();
            // What is missing stands below, up to the first line without anything.
            let lines = text.lines().map(str::trim).take_while(|line| !line.is_empty());
            let line = lines.collect::<Vec<_>>().join(" ");
            say(line.strip_prefix("error: ").unwrap_or(&line));
        } else if error.print().is_err() {
            return ExitCode::from(IO);
        }
        if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS }
    }
}
