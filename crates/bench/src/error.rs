use std::io;

use crate::Against;

/// Why there are no numbers. All children have been stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A server to compare with is not there.
    #[error(
        "{against} is not installed here ({missing} is missing): install it ({package} in Debian), or do without \
         --against {against}"
    )]
    NoServer {
        /// What was asked for.
        against: Against,
        /// The program or file that is not there.
        missing: &'static str,
        /// Where it comes from.
        package: &'static str,
    },
    /// A server to compare with does not answer.
    #[error("{against} was started and does not answer: {why}. Its last output: {words}")]
    Mute {
        /// The server that was asked for.
        against: Against,
        /// What went wrong when it was asked.
        why: String,
        /// The end of its log.
        words: String,
    },
    /// A child could not be started or has ended.
    #[error("{who} of the bench has failed: {why}. Try again; if it stays, that is a mistake of ours")]
    Child {
        /// Which of the children, in words.
        who: String,
        /// What it said or what happened.
        why: String,
    },
    /// What the clients noted must not happen.
    #[error("{who} broke a promise: {what}")]
    Broken {
        /// The lock that was measured: peerlock, or a server.
        who: String,
        /// The promise, and how it was broken.
        what: String,
    },
    /// Something that every machine has is missing here.
    #[error("the bench cannot run here: {0}")]
    Io(#[from] io::Error),
    /// Ctrl-C, or whoever wants us to stop.
    #[error("interrupted; all children are stopped")]
    Interrupted,
}
