//! The one place that tells a person what went wrong, and the shell how badly.

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
    /// The result could not be written.
    #[error("cannot write the result: {0}")]
    Output(#[from] std::io::Error),
}

pub mod exit {
    //! Exit codes, after sysexits.h where it has one.

    use std::io::{self, IsTerminal};
    use std::process::ExitCode;

    use clap::error::ErrorKind;

    use super::Error;

    const BROKEN: u8 = 1;
    const USAGE: u8 = 64;
    const NO_INPUT: u8 = 66;
    const UNAVAILABLE: u8 = 69;
    const SOFTWARE: u8 = 70;
    const CANNOT_CREATE: u8 = 73;
    const IO: u8 = 74;
    /// 128 and the number of SIGINT.
    const INTERRUPTED: u8 = 130;

    /// Prints an error and says how to exit.
    pub fn after(error: &Error) -> ExitCode {
        let code = match error {
            Error::Usage(_) => USAGE,
            Error::Input(_) => NO_INPUT,
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
            // The reader of a pipe has seen enough; nothing is wrong.
            Error::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => return ExitCode::SUCCESS,
            Error::Output(_) => IO,
        };
        eprintln!("peerlock: {error}");
        ExitCode::from(code)
    }

    /// Prints what the parser has to say: help and version are no errors.
    pub fn after_parsing(error: &clap::Error) -> ExitCode {
        // A person wants the usage; a log wants one line. Who has typed nothing at all wants the help.
        let is_help = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
        if error.use_stderr() && !is_help && !std::io::stderr().is_terminal() {
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default();
            eprintln!("peerlock: {}", line.strip_prefix("error: ").unwrap_or(line));
        } else if error.print().is_err() {
            return ExitCode::from(IO);
        }
        if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS }
    }
}
