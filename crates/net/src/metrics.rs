use std::collections::BTreeMap;

use crate::{Refusal, Why};

/// Counters since the start of the peer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metrics {
    pub up: u64,
    pub ups: u64,
    pub downs: BTreeMap<Why, u64>,
    pub sent: u64,
    /// Bytes without framing.
    pub sent_bytes: u64,
    pub received: u64,
    /// Bytes without framing.
    pub received_bytes: u64,
    /// Messages not sent: no link, queue full, too long, or still queued when the link ended.
    pub dropped: u64,
    /// Connections in either direction.
    pub refused: BTreeMap<Refusal, u64>,
    /// The system lacked descriptors or memory. The connection is accepted later.
    pub not_accepted: u64,
    pub dials: u64,
    pub redials: u64,
    pub unreached: u64,
}
