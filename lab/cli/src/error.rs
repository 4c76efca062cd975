//! Errors and their exit codes.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use peerlock_sim::Failure;
use peerlock_sim::latency::MatrixError;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum Error {
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    Input(#[from] MatrixError),
    #[error("cannot use {path}: {source}. Check the file, or choose another one")]
    File { path: PathBuf, source: io::Error },
    #[error("{failure}\nTo repeat: {again}")]
    Broken {
        failure: Box<Failure>,
        /// The command that repeats the run.
        again: String,
    },
    #[error("internal error: {0}. Please report this.")]
    Defect(String),
    #[error("{0}")]
    Figures(#[from] peerlock_figures::Error),
    /// The report was written, but these numbers are outside their ranges.
    #[error("{}", .0.join("\npeerlock-lab: "))]
    Moved(Vec<String>),
    #[error("{0}")]
    Bench(#[from] peerlock_bench::Error),
    #[error("{0}")]
    Live(#[from] peerlock_live::Error),
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
/// 128 + SIGINT.
const INTERRUPTED: u8 = 130;

pub fn exit(error: &Error) -> ExitCode {
    match error {
        // The reader of the pipe has exited.
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
            peerlock_bench::Error::NoServer { .. } | peerlock_bench::Error::NoAnswer { .. } => UNAVAILABLE,
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
