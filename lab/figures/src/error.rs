use std::path::PathBuf;

use peerlock_sim::Failure;
use peerlock_sim::latency::MatrixError;
use thiserror::Error;

/// Why there is no report. Finished points stay in the output directory.
#[derive(Debug, Error)]
pub enum Error {
    /// No figure has this ID.
    #[error("there is no figure {name:?}; {}", suggestion(.near))]
    Unknown {
        /// The requested name.
        name: String,
        /// Similar names.
        near: Vec<String>,
    },
    /// A built-in experiment file is invalid.
    #[error("invalid experiment file {id}: {what}")]
    Experiment {
        /// The figure's ID.
        id: String,
        /// The mistake.
        what: String,
    },
    /// A user's experiment file cannot be used.
    #[error("cannot use the experiment file {}: {what}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        what: String,
    },
    /// A file of latencies cannot be used.
    #[error("{0}")]
    Latencies(MatrixError),
    /// The output directory cannot be used.
    #[error("cannot write {}: {source}; choose another directory with --out", .path.display())]
    Output {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A trial was stopped.
    #[error("{run}: {what}; omit --count-violations to see the last events")]
    Stopped {
        /// The command that simulates this run.
        run: String,
        /// The trial, time and reason.
        what: String,
    },
    /// A protocol violated a rule.
    #[error("{run}: {failure}")]
    Broken {
        /// The command that simulates this run.
        run: String,
        /// The violation and its seed.
        failure: Box<Failure>,
    },
}

fn suggestion(near: &[String]) -> String {
    match near {
        [] => "peerlock-lab reproduce --list shows all figures".into(),
        [one] => format!("did you mean {one}?"),
        several => format!("did you mean one of {}?", several.join(", ")),
    }
}
