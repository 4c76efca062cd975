//! What can be chosen.

use peerlock_base::Span;

/// How patient a register is. The defaults are the product's; the simulator uses shorter ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// How often [`Register::tick`](crate::Register::tick) is called: elections, heartbeats and rounds are counted in
    /// these.
    pub tick: Span,
    /// An election begins after this many ticks without a leader, or up to twice as many, at random.
    pub election_ticks: usize,
    /// How many ticks there are between two heartbeats of a leader.
    pub heartbeat_ticks: usize,
    /// What a leader waits beyond `ttl · (1 + 3ρ)`. Not needed for safety: it spares those that are late by a moment.
    pub slack: Span,
    /// A voter whose host has had no session for this long is replaced.
    pub replace_after: Span,
    /// A write that takes longer hangs, and its voter does not lead.
    pub disk_patience: Span,
    /// After this many entries there is the next snapshot, and a new file.
    pub compact_after: u64,
    /// What is wrong on purpose.
    #[doc(hidden)]
    pub sabotage: Sabotage,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            tick: Span::from_millis(50),
            election_ticks: 20,
            heartbeat_ticks: 4,
            slack: Span::from_millis(500),
            replace_after: Span::from_secs(60),
            disk_patience: Span::from_secs(1),
            compact_after: 1000,
            sabotage: Sabotage::None,
        }
    }
}

/// One rule left out, to see whether the tests notice. Only the tests choose anything but `None`.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sabotage {
    /// Nothing is wrong.
    #[default]
    None,
    /// A leader says yes without asking a majority.
    YesWithoutRound,
    /// A renewal is answered by a round that was under way when it came.
    RoundBeforeRequest,
    /// A round counts before everything up to it is applied.
    YesBeforeApplied,
    /// A new leader counts from the beginning of its clock instead of from its election.
    EndsAtOnce,
    /// What was decided in an earlier term is proposed, and applied, in a later one.
    OldTermEnds,
    /// The peer counts from the yes instead of from its renewal.
    CountsFromAnswer,
    /// What depends on a write is sent before it is done.
    AckBeforeDisk,
    /// A yes revives a session that was stopped.
    NoLatch,
}
