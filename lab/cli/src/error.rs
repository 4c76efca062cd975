//! Errors of the laboratory, and the exit code of each.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use peerlock_sim::Failure;
use peerlock_sim::latency::MatrixError;
use thiserror::Error;

/// An error of a command. Nothing has been changed unless it says so.
#[derive(Debug, Error)]
pub enum Error {
    /// The options contradict each other.
    #[error("{0}")]
    Usage(String),
    /// A latency file cannot be used.
    #[error("{0}")]
    Input(#[from] MatrixError),
    /// A file that was named cannot be used.
    #[error("cannot use {path}: {source}. Check the file, or name another one")]
    File {
        /// The file as it was named.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A protocol broke a rule.
    #[error("{failure}\nTo see it again: {again}")]
    Broken {
        /// The rule that was broken, and the seed.
        failure: Box<Failure>,
        /// The command that shows it.
        again: String,
    },
    /// The program itself is wrong.
    #[error("internal error: {0}. Please report this")]
    Defect(String),
    /// The figures could not be made.
    #[error("{0}")]
    Figures(#[from] peerlock_figures::Error),
    /// The report was written, but these published numbers were not reproduced.
    #[error("{}", .0.join("\npeerlock-lab: "))]
    Moved(Vec<String>),
    /// A benchmark failed.
    #[error("{0}")]
    Bench(#[from] peerlock_bench::Error),
    /// A run of real processes failed.
    #[error("{0}")]
    Live(#[from] peerlock_live::Error),
    /// The result could not be written.
    #[error("cannot write the result: {0}")]
    Output(#[from] io::Error),
}

const BROKEN: u8 = 1;
const USAGE: u8 = peerlock_console::USAGE;
const NO_INPUT: u8 = 66;
const UNAVAILABLE: u8 = 69;
const SOFTWARE: u8 = 70;
const CANNOT_CREATE: u8 = 73;
const IO: u8 = 74;
/// 128 and the number of SIGINT.
const INTERRUPTED: u8 = 130;

/// Prints an error and returns its exit code.
pub fn exit(error: &Error) -> ExitCode {
    match error {
        // The reader of a pipe has seen enough; nothing is wrong.
        Error::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => return ExitCode::SUCCESS,
        _ => peerlock_console::say("peerlock-lab", error),
    }
    ExitCode::from(code(error))
}

fn code(error: &Error) -> u8 {
    match error {
        Error::Usage(_) => USAGE,
        Error::Input(_) | Error::File { .. } => NO_INPUT,
        Error::Broken { .. } | Error::Moved(_) => BROKEN,
        Error::Defect(_) => SOFTWARE,
        Error::Figures(error) => match error {
            peerlock_figures::Error::Unknown { .. } => USAGE,
            peerlock_figures::Error::File { .. } | peerlock_figures::Error::Latencies(_) => NO_INPUT,
            peerlock_figures::Error::Experiment { .. } => SOFTWARE,
            peerlock_figures::Error::Output { .. } => CANNOT_CREATE,
            peerlock_figures::Error::Broken { .. } | peerlock_figures::Error::Stopped { .. } => BROKEN,
        },
        Error::Bench(error) => match error {
            peerlock_bench::Error::NoServer { .. } | peerlock_bench::Error::Mute { .. } => UNAVAILABLE,
            peerlock_bench::Error::Child { .. } | peerlock_bench::Error::Io(_) => SOFTWARE,
            peerlock_bench::Error::Broken { .. } => BROKEN,
            peerlock_bench::Error::Interrupted => INTERRUPTED,
        },
        Error::Live(error) => match error {
            peerlock_live::Error::Refused(_) => USAGE,
            peerlock_live::Error::Setting(_) => BROKEN,
            peerlock_live::Error::Child { .. } | peerlock_live::Error::Io { .. } => SOFTWARE,
        },
        Error::Output(_) => IO,
    }
}
