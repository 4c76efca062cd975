//! Rules left out on purpose, to show that a test notices.

#[cfg_attr(not(feature = "mutation"), allow(dead_code, reason = "some variants are used only with the feature"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    YesWithoutRound,
    /// A round in progress confirms a renewal that arrived later.
    RoundBeforeRequest,
    /// A round counts before everything up to it is applied.
    YesBeforeApplied,
    /// A new leader counts from the start of its clock.
    EndsAtOnce,
    ReceivesAlone,
    ForgetsOwnRounds,
    OldTermEnds,
    /// The peer counts from the answer.
    CountsFromAnswer,
    AckBeforeDisk,
    /// A single voter sends before its vote is on disk.
    LeadsBeforeDisk,
    /// A record without a new term or vote has no commit index.
    ForgetsCommit,
    NoLatch,
    SendsOnce,
    ReplacesSession,
    /// A voter that lags behind answers a query.
    LooksAnywhere,
    RemovesUsed,
    /// Resources are created with the first generation after a deletion.
    ForgetsFloor,
    NoQuarantine,
    EvictsLate,
    ResizesLate,
    OpensLate,
    /// A session that was never stored does not end with the one it replaced.
    KeepsUnwritten,
    VotersLate,
    ForgetsLate,
    ForgetsPresent,
}
