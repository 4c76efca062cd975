//! Read access to a protocol for watchers, traces and tables.

use alloc::vec::Vec;
use core::hash::Hasher;

use peerlock_types::{PeerId, Ticket};

use crate::token::Arrival;
use crate::{Grant, Protocol};

/// A message in flight, for [`Observe::is_void`].
pub struct UnderWay<'a, P: Protocol> {
    pub message: &'a P::Message,
    /// In its present state.
    pub sender: &'a P,
    /// All other messages in flight between the two, in both directions.
    pub others: &'a mut dyn Iterator<Item = &'a P::Message>,
    /// From now on each message arrives once, no timer fires, nothing is forgotten, no waiter withdraws, and neither of
    /// the two peers requests again.
    pub is_calm: bool,
}

/// Read access to a protocol. No method changes a run.
///
/// With the defaults a watcher checks nothing.
pub trait Observe: Protocol {
    /// Of the message types.
    const KINDS: &'static [&'static str];

    /// The index in [`Observe::KINDS`].
    fn kind(message: &Self::Message) -> usize;

    /// In the whole system, held or in flight.
    fn tokens_in_all(&self) -> Option<usize> {
        None
    }

    /// At this peer, in use or free.
    fn tokens(&self) -> usize {
        0
    }

    fn tokens_in(_message: &Self::Message) -> usize {
        0
    }

    /// Whether exactly one peer, or one message, has the role of coordinator.
    const HAS_COORDINATOR: bool = false;

    fn is_coordinator(&self) -> bool {
        false
    }

    fn carries_coordinator(_message: &Self::Message) -> bool {
        false
    }

    /// Whether no slot is free while a client waits, except for messages in flight.
    const NEVER_IDLE: bool = false;

    /// How many later requests may enter before a waiting one.
    fn most_passes(&self) -> Option<u64> {
        None
    }

    /// The peer to which requests are forwarded. These pointers never form a cycle.
    fn parent(&self) -> Option<PeerId> {
        None
    }

    /// Each tree is free of cycles, but not their union.
    fn trees(&self) -> usize {
        1
    }

    fn parent_in(&self, _tree: usize) -> Option<PeerId> {
        self.parent()
    }

    /// Returns the replica that `message` is to or from, and the same message for replica 0. Together with
    /// [`Observe::digest`], this is complete if replicas differ only in their index.
    fn replica_in(_message: &Self::Message) -> Option<(u32, Self::Message)> {
        None
    }

    /// Hashes all that this peer stores or knows of one replica, except its index; without a replica, all the rest. May
    /// omit what never changes, and what is never used again.
    fn digest(&self, _replica: Option<u32>, _state: &mut dyn Hasher) {}

    /// The slots whose tokens are here, if lost tokens are recreated.
    fn slots_here(&self) -> Vec<u32> {
        Vec::new()
    }

    /// As far as this peer knows, if it can change.
    fn slots(&self) -> Option<u32> {
        None
    }

    fn generation(&self) -> u64 {
        0
    }

    fn arrival_of(&self, _ticket: Ticket) -> Option<Arrival> {
        None
    }

    /// Creates another session at the same address: a new process that takes over the grants `inside` or, without any,
    /// one that knows nothing.
    fn successor(&self, _session: u64, _inside: &[(Ticket, Grant)]) -> Option<Self> {
        None
    }

    /// Returns whether a message has no effect whenever it arrives, as long as time does not pass.
    fn is_void(&self, _message: UnderWay<'_, Self>) -> bool {
        false
    }
}
