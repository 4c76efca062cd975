use std::collections::BTreeMap;

use crate::{Refusal, Why};

/// Since the start of the peer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Up now.
    pub up: u64,
    /// Have come up.
    pub ups: u64,
    pub downs: BTreeMap<Why, u64>,
    /// Handed to a connection.
    pub sent: u64,
    /// Without framing.
    pub sent_bytes: u64,
    /// Placed in the application's queue.
    pub received: u64,
    /// Without framing.
    pub received_bytes: u64,
    /// No link, queue full, too long, or still queued when the link ended.
    pub dropped: u64,
    /// In either direction.
    pub refused: BTreeMap<Refusal, u64>,
    /// The system lacked descriptors or memory. The connection is accepted later.
    pub not_accepted: u64,
    pub dials: u64,
    pub redials: u64,
    pub unreached: u64,
}
