use std::path::PathBuf;

use peerlock_sim::Failure;
use peerlock_sim::latency::MatrixError;
use thiserror::Error;

/// Why figures could not be made. Finished points stay in the output directory.
#[derive(Debug, Error)]
pub enum Error {
    /// No figure has this ID; nothing was run or written.
    #[error("there is no figure {name:?}; {}", meant(.near))]
    Unknown {
        /// The requested name.
        name: String,
        /// Similar names.
        near: Vec<String>,
    },
    /// An experiment file is invalid; nothing was run or written.
    #[error("the experiment file of {id} is wrong: {what}")]
    Experiment {
        /// The experiment's name.
        id: String,
        /// The mistake.
        what: String,
    },
    /// A user's experiment file cannot be used; nothing was run or written.
    #[error("cannot use the experiment file {}: {what}", .path.display())]
    File {
        /// The file that was named.
        path: PathBuf,
        /// Why it cannot be read, or the mistake in it.
        what: String,
    },
    /// A file of latencies cannot be used.
    #[error("{0}")]
    Latencies(MatrixError),
    /// The output directory cannot be used.
    #[error("cannot write {}: {source}; choose another folder with --out", .path.display())]
    Output {
        /// The file to be written.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A measured protocol was stopped.
    #[error("{run}: {what}; without --count-violations it shows the last events")]
    Stopped {
        /// The command that simulates this run.
        run: String,
        /// The trial, time and reason.
        what: String,
    },
    /// A protocol broke a rule.
    #[error("{run}: {failure}")]
    Broken {
        /// The command that simulates this run.
        run: String,
        /// The rule, and the seed that breaks it.
        failure: Box<Failure>,
    },
}

fn meant(near: &[String]) -> String {
    match near {
        [] => "peerlock-lab reproduce --list shows them all".into(),
        [one] => format!("did you mean {one}?"),
        several => format!("did you mean one of {}?", several.join(", ")),
    }
}
