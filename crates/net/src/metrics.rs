use std::collections::BTreeMap;

use crate::{Refusal, Why};

/// What a peer has counted since it started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Links that are up now.
    pub up: u64,
    /// Links that ever came up.
    pub ups: u64,
    /// Links that went down, by reason.
    pub downs: BTreeMap<Why, u64>,
    /// Messages handed to a connection.
    pub sent: u64,
    /// Their bytes, without framing.
    pub sent_bytes: u64,
    /// Messages handed to the application's queue.
    pub received: u64,
    /// Their bytes, without framing.
    pub received_bytes: u64,
    /// Messages that were to be sent and were not: no link, a full queue, too long, or still queued when the link
    /// ended.
    pub dropped: u64,
    /// Connections, in either direction, that never became a link, by reason.
    pub refused: BTreeMap<Refusal, u64>,
    /// How often the system could not give us a connection that somebody wanted to make: there is no descriptor left,
    /// or no memory. They wait, and it is tried again.
    pub not_accepted: u64,
    /// How often an address was dialled.
    pub dials: u64,
    /// Of those, again after a failure or a lost link.
    pub redials: u64,
    /// Dials that led nowhere.
    pub unreached: u64,
}
