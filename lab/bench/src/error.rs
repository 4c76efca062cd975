use std::io;

use crate::Against;

/// Why there are no results. All children are stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "{against} is not installed: {missing} is missing. Install it ({package} in Debian), or omit --against \
         {against}"
    )]
    NoServer { against: Against, missing: &'static str, package: &'static str },
    #[error("{against} does not answer: {why}. Its last output: {output}")]
    NoAnswer { against: Against, why: String, output: String },
    #[error("{system} failed: {why}. Try again, and report this if it persists.")]
    Child { system: String, why: String },
    #[error("{system} violated a guarantee: {what}")]
    Broken { system: String, what: String },
    #[error("cannot run the bench: {0}")]
    Io(#[from] io::Error),
    #[error("interrupted; all children are stopped")]
    Interrupted,
}
