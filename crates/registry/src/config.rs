//! What can be chosen.

use peerlock_types::Span;

use crate::mutation::Mutation;

/// How patient a register is. The defaults are the product's; the simulator uses shorter ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// How often [`Registry::tick`](crate::Register::tick) is called: elections, heartbeats and rounds are counted in
    /// these.
    pub tick: Span,
    /// An election begins after this many ticks without a leader, or up to twice as many, at random.
    pub election_ticks: usize,
    /// How many ticks there are between two heartbeats of a leader.
    pub heartbeat_ticks: usize,
    /// What a leader waits beyond `ttl · (1 + 3ρ)`, but at most an eighth of the ttl. Not needed for safety, and of no
    /// use to whoever renews late, since it has stopped by then: it is for a command that takes a moment to be killed.
    /// On top of what good clocks leave of the three hundredths.
    pub slack: Span,
    /// A voter whose host has had no session for this long is replaced.
    pub replace_after: Span,
    /// A write that takes longer hangs, and its voter does not lead.
    pub disk_patience: Span,
    /// After this many entries there is the next snapshot, and a new file.
    pub compact_after: u64,
    /// The rule that is left out.
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
            disk_patience: Span::from_secs(1),
            compact_after: 1000,
            #[cfg(feature = "mutation")]
            mutation: None,
        }
    }
}

impl Config {
    /// Whether this rule is left out.
    pub(crate) fn makes(&self, _mistake: Mutation) -> bool {
        #[cfg(feature = "mutation")]
        return self.mutation == Some(_mistake);
        #[cfg(not(feature = "mutation"))]
        false
    }
}
