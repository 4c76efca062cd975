use std::io;

use crate::Against;

/// Why there are no results. All children are stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A server is not installed.
    #[error(
        "{against} is not installed: {missing} is missing. Install it ({package} in Debian), or omit --against \
         {against}"
    )]
    NoServer {
        /// The requested server.
        against: Against,
        /// The missing program or file.
        missing: &'static str,
        /// Its package.
        package: &'static str,
    },
    /// A server does not answer.
    #[error("{against} does not answer: {why}. Its last output: {output}")]
    NoAnswer {
        /// The requested server.
        against: Against,
        /// The last error.
        why: String,
        /// The last line of its log.
        output: String,
    },
    /// A child could not be started, or failed.
    #[error("{system} failed: {why}. Try again, and report this if it persists.")]
    Child {
        /// The child.
        system: String,
        /// The reason.
        why: String,
    },
    /// The clients' records violate a guarantee.
    #[error("{system} violated a guarantee: {what}")]
    Broken {
        /// peerlock, or a server.
        system: String,
        /// The violation.
        what: String,
    },
    /// A system call failed.
    #[error("cannot run the bench: {0}")]
    Io(#[from] io::Error),
    /// Interrupted by a signal.
    #[error("interrupted; all children are stopped")]
    Interrupted,
}
