use std::path::PathBuf;

use peerlock_sim::Failure;
use peerlock_sim::latency::MatrixError;
use thiserror::Error;

/// Why there is no report. Finished points stay in the output directory.
#[derive(Debug, Error)]
pub enum Error {
    #[error("there is no figure {name:?}; {}", suggestion(.near))]
    Unknown { name: String, near: Vec<String> },
    #[error("invalid experiment file {id}: {what}")]
    Experiment { id: String, what: String },
    #[error("cannot use the experiment file {}: {what}", .path.display())]
    File { path: PathBuf, what: String },
    #[error("{0}")]
    Latencies(MatrixError),
    #[error("cannot write {}: {source}; choose another directory with --out", .path.display())]
    Output { path: PathBuf, source: std::io::Error },
    #[error("{run}: {what}; omit --count-violations to see the last events")]
    Stopped { run: String, what: String },
    #[error("{run}: {failure}")]
    Broken { run: String, failure: Box<Failure> },
}

fn suggestion(near: &[String]) -> String {
    match near {
        [] => "peerlock-lab reproduce --list shows all figures".into(),
        [one] => format!("did you mean {one}?"),
        several => format!("did you mean one of {}?", several.join(", ")),
    }
}
