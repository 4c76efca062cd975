use std::collections::BTreeMap;

use crate::{Refusal, Why};

/// Counters of a peer since its start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Links that are up now.
    pub up: u64,
    /// Links that have come up.
    pub ups: u64,
    /// Links that went down, by reason.
    pub downs: BTreeMap<Why, u64>,
    /// Messages handed to a connection.
    pub sent: u64,
    /// Without framing.
    pub sent_bytes: u64,
    /// Messages placed in the application's queue.
    pub received: u64,
    /// Without framing.
    pub received_bytes: u64,
    /// Messages that could not be sent: no link, queue full, too long, or still queued when the link ended.
    pub dropped: u64,
    /// Connections, in either direction, that did not become a link, by reason.
    pub refused: BTreeMap<Refusal, u64>,
    /// How often the system could not accept a connection for lack of descriptors or memory. The connection waits and
    /// is accepted later.
    pub not_accepted: u64,
    pub dials: u64,
    /// Dials after a failure or a lost link.
    pub redials: u64,
    /// Dials that failed.
    pub unreached: u64,
}
