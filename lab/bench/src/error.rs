use std::io;

use crate::Against;

/// Why there are no results. All children have been stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A server for comparison is not installed.
    #[error(
        "{against} is not installed here ({missing} is missing): install it ({package} in Debian), or do without \
         --against {against}"
    )]
    NoServer {
        /// The requested server.
        against: Against,
        /// The missing program or file.
        missing: &'static str,
        /// Its package.
        package: &'static str,
    },
    /// A server for comparison does not answer.
    #[error("{against} was started and does not answer: {why}. Its last output: {words}")]
    Mute {
        /// The requested server.
        against: Against,
        /// The last error.
        why: String,
        /// The last line of its log.
        words: String,
    },
    /// A child could not be started or has ended.
    #[error("{system} of the bench has failed: {why}. Try again; if it stays, that is a mistake of ours")]
    Child {
        /// The child's description.
        system: String,
        /// The reason.
        why: String,
    },
    /// The clients' records violate a guarantee.
    #[error("{system} broke a promise: {what}")]
    Broken {
        /// The lock that was measured: peerlock, or a server.
        system: String,
        /// The guarantee, and how it was violated.
        what: String,
    },
    /// A system call failed.
    #[error("the bench cannot run here: {0}")]
    Io(#[from] io::Error),
    /// Interrupted by a signal.
    #[error("interrupted; all children are stopped")]
    Interrupted,
}
