//! What a watcher, a trace or a table may ask of a protocol without knowing which one it is.

use alloc::vec::Vec;
use core::hash::Hasher;

use peerlock_types::{PeerId, Ticket};

use crate::token::Arrival;
use crate::{Grant, Protocol};

/// What an explorer knows of a message under way, for [`Observe::is_void`].
pub struct UnderWay<'a, P: Protocol> {
    /// The message as it was sent.
    pub message: &'a P::Message,
    /// Who sent it, as it is now.
    pub sender: &'a P,
    /// All other messages under way between sender and receiver, in both directions.
    pub others: &'a mut dyn Iterator<Item = &'a P::Message>,
    /// Whether from now on every message arrives once, no timer runs out, nothing is forgotten, and those who wait
    /// do not withdraw; and neither of the two peers asks again.
    pub is_calm: bool,
}

/// A window into a protocol's state and messages, for watchers. Nothing here may change a run.
///
/// The answers' defaults fit a protocol that has no such thing; a watcher then has nothing to check.
pub trait Observe: Protocol {
    /// The names of the message types, in the order of [`Observe::kind`].
    const KINDS: &'static [&'static str];

    /// The place of `message`'s type in [`Observe::KINDS`].
    fn kind(message: &Self::Message) -> usize;

    /// How many tokens there are in the whole system, held or under way; `None` if the protocol has no tokens.
    fn tokens_in_all(&self) -> Option<usize> {
        None
    }

    /// How many tokens this peer has, in use or idle.
    fn tokens(&self) -> usize {
        0
    }

    /// How many tokens travel in `message`.
    fn tokens_in(_message: &Self::Message) -> usize {
        0
    }

    /// Whether the protocol has a role that exactly one peer has, or one message carries.
    const HAS_COORDINATOR: bool = false;

    /// Whether this peer has that role.
    fn is_coordinator(&self) -> bool {
        false
    }

    /// Whether `message` carries it.
    fn carries_coordinator(_message: &Self::Message) -> bool {
        false
    }

    /// Whether the protocol promises that no slot is empty while somebody waits, but for messages under way.
    const NEVER_IDLE: bool = false;

    /// Returns how many later requests may enter before one that waits, if the protocol bounds that.
    fn most_passes(&self) -> Option<u64> {
        None
    }

    /// Where this peer forwards requests to, in a protocol with one tree, whose pointers must never form a cycle.
    fn parent(&self) -> Option<PeerId> {
        None
    }

    /// How many trees of such pointers there are. Each must be free of cycles, but not all of them together.
    fn trees(&self) -> usize {
        1
    }

    /// The pointer in one of the trees, counted from 0. For code that is generic over protocols.
    fn parent_in(&self, _tree: usize) -> Option<PeerId> {
        self.parent()
    }

    /// The replica that `message` is to or from, and the same message to or from replica 0. In a protocol whose
    /// replicas differ in nothing but their index this tells everything, together with [`Observe::digest`].
    fn replica_in(_message: &Self::Message) -> Option<(u32, Self::Message)> {
        None
    }

    /// Writes down all that this peer is or knows of one replica, but for its index; or without a replica, all the
    /// rest. What never changes may be left out, and what is never used again.
    fn digest(&self, _replica: Option<u32>, _state: &mut dyn Hasher) {}

    /// Which slots' tokens are here, in a protocol whose tokens may get lost and be made anew.
    fn slots_here(&self) -> Vec<u32> {
        Vec::new()
    }

    /// How many may be inside, as far as this peer knows, where that may change.
    fn slots(&self) -> Option<u32> {
        None
    }

    /// The latest generation that this peer has moved to, where there are such: what it has from before is void.
    fn generation(&self) -> u64 {
        0
    }

    /// The arrival number that a client who waits was told, where there are such.
    fn arrival_of(&self, _ticket: Ticket) -> Option<Arrival> {
        None
    }

    /// Another process at the same address, or the same one after its session has ended, with another session. It
    /// answers for these clients, who are inside; without any, it knows nothing. `None` where there are no sessions.
    fn successor(&self, _session: u64, _inside: &[(Ticket, Grant)]) -> Option<Self> {
        None
    }

    /// Whether it makes no difference any more, whatever happens, if and when a message comes here, as long as time
    /// stands still.
    fn is_void(&self, _letter: UnderWay<'_, Self>) -> bool {
        false
    }
}
