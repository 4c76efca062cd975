//! Configuration.

use peerlock_types::Span;

use crate::mutation::Mutation;

/// Timeouts of the registry. The defaults are the product's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The interval of [`Registry::tick`](crate::Registry::tick).
    pub tick: Span,
    /// An election starts after this many ticks without a leader, or up to twice as many, at random.
    pub election_ticks: usize,
    /// Ticks between two heartbeats of a leader.
    pub heartbeat_ticks: usize,
    /// How long a leader waits beyond `ttl · (1 + 3ρ)`, at most an eighth of the ttl. Not needed for safety: it gives a
    /// killed process time to exit.
    pub slack: Span,
    /// A voter whose host has had no session for this long is replaced.
    pub replace_after: Span,
    /// A voter that confirms nothing for this long is replaced although its host has a session: its disk hangs, or it
    /// has halted.
    pub stuck_after: Span,
    /// A voter whose write takes longer does not lead.
    pub disk_patience: Span,
    /// Entries after which a snapshot is written.
    pub compact_after: u64,
    /// The rule to leave out.
    #[cfg(feature = "mutation")]
    pub mutation: Option<Mutation>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            tick: Span::from_millis(50),
            election_ticks: 20,
            heartbeat_ticks: 4,
            slack: Span::from_millis(250),
            replace_after: Span::from_secs(60),
            stuck_after: Span::from_secs(300),
            disk_patience: Span::from_secs(1),
            compact_after: 1000,
            #[cfg(feature = "mutation")]
            mutation: None,
        }
    }
}

impl Config {
    pub(crate) fn makes(&self, _mistake: Mutation) -> bool {
        #[cfg(feature = "mutation")]
        return self.mutation == Some(_mistake);
        #[cfg(not(feature = "mutation"))]
        false
    }
}
