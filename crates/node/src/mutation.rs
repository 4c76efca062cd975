//! Mistakes that a node makes on purpose, so that a test can show that the watchers of whole nodes would see them.
//! Without the feature `mutation` there are none.

use peerlock_protocol::custody::Rule;

/// One such mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mutation {
    /// After the next hello the last message that was not confirmed is not retransmitted.
    Resend = 1,
    /// A confirmation counts for one message more than it says.
    Ack,
    /// Nobody looks when the lease of a grant ends.
    LeaseAlarm,
    /// The protocol is not told that a client leaves.
    Release,
    /// A client is told the end of its own lease, also where its session ends before that.
    BeyondSession,
    /// A detached grant is told before it is in the register.
    DetachedUntold,
    /// A client is told that it has a detached grant which is still written down as one that nobody has.
    StillOwed,
    /// A session that is over leaves the parts in resources as they are.
    KeepsParts,
    /// Nobody is connected by way of another host.
    Relay,
    /// Custody does without R1.
    Fence,
    /// Custody does without R3.
    CountAll,
    /// Custody does without R8.
    NothingLeaves,
    /// Custody does without R9.
    EarlyUpdate,
    /// A slot is made anew beside a detached client.
    DetachedEnd,
    /// Who was forced out does not listen when it is told.
    ForceUnheard,
    /// Others are let in while more are inside than there are slots.
    HoldBack,
    /// What a client is told is written down for the next process after it was told.
    AnsweredBeforeRecorded,
    /// A renewal is not written down for the next process.
    OldEnds,
    /// Who takes over answers only for clients that have come to it.
    OnlyPresented,
    /// Who takes over ends the session before it without taking part in what that had.
    TakesNothing,
    /// What was left in another boot of the machine counts.
    OtherBoot,
    /// The session of who takes over may be shorter than the one before it.
    ShorterSession,
    /// A link ends as soon as one side does not need it, and what is unconfirmed is forgotten with it.
    IdleForgets,
    /// Custody does without R10: what nobody uses is given up by who goes on with it until it hears that it has.
    GiveUpFirst,
    /// Who has given up its part in a resource does not answer when it is asked for it.
    SilentOnceGivenUp,
}

/// The rule that custody does without now.
pub(crate) fn without() -> Option<Rule> {
    let rules = [
        (Mutation::Fence, Rule::Fence),
        (Mutation::CountAll, Rule::CountAll),
        (Mutation::NothingLeaves, Rule::NothingLeaves),
        (Mutation::EarlyUpdate, Rule::EarlyUpdate),
        (Mutation::DetachedEnd, Rule::DetachedEnd),
        (Mutation::HoldBack, Rule::HoldBack),
        (Mutation::GiveUpFirst, Rule::GiveUpFirst),
    ];
    rules.into_iter().find(|(mistake, _)| makes(*mistake)).map(|(_, rule)| rule)
}

#[cfg(feature = "mutation")]
static NOW: core::sync::atomic::AtomicU8 = core::sync::atomic::AtomicU8::new(0);

/// All nodes of this process make this mistake from now on.
#[cfg(feature = "mutation")]
pub fn mutation(mistake: Option<Mutation>) {
    NOW.store(mistake.map_or(0, |mistake| mistake as u8), core::sync::atomic::Ordering::SeqCst);
}

/// Whether this mistake is to be made.
pub(crate) fn makes(_mistake: Mutation) -> bool {
    #[cfg(feature = "mutation")]
    return NOW.load(core::sync::atomic::Ordering::Relaxed) == _mistake as u8;
    #[cfg(not(feature = "mutation"))]
    false
}
