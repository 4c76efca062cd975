//! Rules left out on purpose, one at a time, to see whether the tests notice. Without the feature `mutation` none can
//! be.

/// One rule left out.
#[cfg_attr(not(feature = "mutation"), allow(dead_code, reason = "a session's are left out with the feature only"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// A leader says yes without asking a majority.
    YesWithoutRound,
    /// A renewal is answered by a round that was under way when it came.
    RoundBeforeRequest,
    /// A round counts before everything up to it is applied.
    YesBeforeApplied,
    /// A new leader counts from the beginning of its clock.
    EndsAtOnce,
    /// A new leader counts from what it has heard itself, and not from what those have heard that voted for it.
    ReceivesAlone,
    /// Who has led does not count its own rounds as heard.
    ForgetsOwnRounds,
    /// What was decided in an earlier term is proposed, and applied, in a later one.
    OldTermEnds,
    /// The peer counts from the yes instead of from its renewal.
    CountsFromAnswer,
    /// What depends on a write is sent before it is done.
    AckBeforeDisk,
    /// Who votes alone sends as a leader before its vote is on the disk.
    LeadsBeforeDisk,
    /// A record has the commit index only if it has a new term or vote.
    ForgetsCommit,
    /// A yes revives a session that was stopped.
    NoLatch,
    /// A leader tells each word once.
    SendsOnce,
    /// The next session of a host ends the one before at once.
    ReplacesSession,
    /// A look may be answered by who does not know what the asker was told.
    LooksAnywhere,
    /// A resource is removed whoever uses it, and whichever of its name it is.
    RemovesUsed,
    /// What is founded after a removal begins in the first generation again.
    ForgetsFloor,
    /// A recovered register announces generations at once.
    NoQuarantine,
    /// A session is evicted also if it has joined again since the asker looked.
    ExpelsLate,
    /// The number of slots is changed also if it was changed since the asker looked.
    ResizesLate,
    /// A session is opened also if a later one of the host is known.
    OpensLate,
    /// A session that was opened in place of another, and was not written down, does not end with it.
    KeepsUnwritten,
    /// The voters are chosen also if they were chosen since the asker looked.
    VotersLate,
}
