use std::path::PathBuf;

use peerlock_sim::Failure;
use peerlock_sim::latency::MatrixError;
use thiserror::Error;

/// Why figures could not be made. Points that were finished before stay in the output folder.
#[derive(Debug, Error)]
pub enum Error {
    /// No figure has this id; nothing was run or written.
    #[error("there is no figure {name:?}; {}", meant(.near))]
    Unknown {
        /// What was asked for.
        name: String,
        /// What may have been meant.
        near: Vec<String>,
    },
    /// An experiment file makes no sense; nothing was run or written.
    #[error("the experiment file of {id} is wrong: {what}")]
    Experiment {
        /// The experiment's name.
        id: String,
        /// What is wrong.
        what: String,
    },
    /// Somebody's own experiment file cannot be used; nothing was run or written.
    #[error("cannot use the experiment file {}: {what}", .path.display())]
    File {
        /// The file that was named.
        path: PathBuf,
        /// Why it cannot be read, or what is wrong in it.
        what: String,
    },
    /// A file of latencies cannot be used.
    #[error("{0}")]
    Latencies(MatrixError),
    /// The output folder cannot be used.
    #[error("cannot write {}: {source}; choose another folder with --out", .path.display())]
    Output {
        /// What was to be written.
        path: PathBuf,
        /// Why it was not.
        source: std::io::Error,
    },
    /// A protocol is run to be measured, and stopped.
    #[error("{run}: {what}; without --count-violations it shows the last events")]
    Stopped {
        /// The command that simulates this run.
        run: String,
        /// Which trial, when and why.
        what: String,
    },
    /// A protocol broke a rule.
    #[error("{run}: {failure}")]
    Broken {
        /// The command that simulates this run.
        run: String,
        /// The rule, and the seed with which it is broken.
        failure: Box<Failure>,
    },
}

fn meant(near: &[String]) -> String {
    match near {
        [] => "peerlock reproduce --list shows them all".into(),
        [one] => format!("did you mean {one}?"),
        several => format!("did you mean one of {}?", several.join(", ")),
    }
}
