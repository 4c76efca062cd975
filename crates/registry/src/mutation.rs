//! Mutations: rules left out on purpose, one at a time, to show that a test notices. They need the feature `mutation`.

/// A rule to leave out.
#[cfg_attr(not(feature = "mutation"), allow(dead_code, reason = "some variants are used only with the feature"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// A leader confirms a renewal without a round.
    YesWithoutRound,
    /// A renewal is confirmed by a round that was in progress when it arrived.
    RoundBeforeRequest,
    /// A round counts before everything up to it is applied.
    YesBeforeApplied,
    /// A new leader counts from the start of its clock.
    EndsAtOnce,
    /// A new leader counts from its own last round, and ignores the reports of its voters.
    ReceivesAlone,
    /// A former leader does not count its own rounds.
    ForgetsOwnRounds,
    /// A decision of an earlier term is proposed, and applied, in a later one.
    OldTermEnds,
    /// The peer counts from the answer instead of from its renewal.
    CountsFromAnswer,
    /// Messages that depend on a write are sent before it is done.
    AckBeforeDisk,
    /// A single voter sends as a leader before its vote is on disk.
    LeadsBeforeDisk,
    /// A record has the commit index only if it has a new term or vote.
    ForgetsCommit,
    /// A late confirmation revives a stopped session.
    NoLatch,
    /// A leader sends each event once.
    SendsOnce,
    /// The next session of a host ends the previous one at once.
    ReplacesSession,
    /// A query may be answered by a voter that lags behind what the sender has seen.
    LooksAnywhere,
    /// A resource is deleted even if it is in use, or another one of the same name.
    RemovesUsed,
    /// A resource created after a deletion starts with the first generation.
    ForgetsFloor,
    /// A recovered registry announces generations at once.
    NoQuarantine,
    /// A session is evicted even if it has joined again since the query.
    ExpelsLate,
    /// The number of slots is changed even if it has changed since the query.
    ResizesLate,
    /// A session is opened even if a later one of the host is known.
    OpensLate,
    /// A session that replaced another, and was not stored, does not end with it.
    KeepsUnwritten,
    /// The voters are chosen even if they were chosen again since the query.
    VotersLate,
}
