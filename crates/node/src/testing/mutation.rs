//! Mutations: deliberate errors of a node, to test that the watchers of whole nodes notice them. Available with the
//! feature `mutation` only.

use peerlock_protocol::custody::Rule;
use peerlock_types::PeerId;

use crate::links::contacts::Contacts;

/// A deliberate error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mutation {
    /// After a hello, the last unacknowledged message is not retransmitted.
    Resend = 1,
    /// An acknowledgement counts for one message more.
    Ack,
    /// The end of a lease has no timer.
    LeaseAlarm,
    /// A client's release is not passed to the protocol.
    Release,
    /// A client receives the end of its own lease although its session ends earlier.
    BeyondSession,
    /// A client is notified of a detached grant before it is in the registry.
    DetachedUntold,
    /// A client is notified of a detached grant that is still recorded as owed.
    StillOwed,
    /// The end of a session keeps the parts.
    KeepsParts,
    /// No connection is relayed.
    Relay,
    /// Custody without R1.
    Fence,
    /// Custody without R3.
    CountAll,
    /// Custody without R8.
    NothingLeaves,
    /// Custody without R9.
    EarlyUpdate,
    /// A token is created beside a detached grant.
    DetachedEnd,
    /// An evicted session ignores its eviction.
    ForceUnheard,
    /// Slots are granted while there are too many holders.
    HoldBack,
    /// Journal entries are written after the client was notified.
    AnsweredBeforeRecorded,
    /// Renewals are not journaled.
    OldEnds,
    /// A takeover reports only grants whose clients have resumed.
    OnlyPresented,
    /// A takeover ends the predecessor's session without taking its resources.
    TakesNothing,
    /// A takeover file of another boot is used.
    OtherBoot,
    /// The session after a takeover may be shorter than its predecessor.
    ShorterSession,
    /// A connection is closed when one side does not need it, without its unacknowledged messages.
    IdleForgets,
    /// Custody without R10: a party that quits continues until the answer.
    GiveUpFirst,
    /// A census of a given-up resource is ignored.
    SilentOnceGivenUp,
}

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

/// Sets the mutation of all nodes.
#[cfg(feature = "mutation")]
pub fn mutation(mistake: Option<Mutation>) {
    NOW.store(mistake.map_or(0, |mistake| mistake as u8), core::sync::atomic::Ordering::SeqCst);
}

pub(crate) fn makes(_mistake: Mutation) -> bool {
    #[cfg(feature = "mutation")]
    return NOW.load(core::sync::atomic::Ordering::Relaxed) == _mistake as u8;
    #[cfg(not(feature = "mutation"))]
    false
}

impl Contacts {
    /// Drops unacknowledged messages.
    pub fn drop_unconfirmed(&mut self, host: PeerId) {
        if let Some(contact) = self.hosts.get_mut(&host) {
            contact.link.restart();
        }
    }
}
