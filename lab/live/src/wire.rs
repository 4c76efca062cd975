//! The messages between the parent and its children.

use std::net::{IpAddr, SocketAddr};

use peerlock_sim::{Counted, Share};
use peerlock_types::{PeerId, Time};
use serde::{Deserialize, Serialize};

use crate::clock::Pace;

/// Sent by the parent to a child.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Order {
    /// The first message. Answered by `ChildReport::Ready`.
    Prepare(Box<Prepare>),
    /// The addresses of all live processes. Answered by `ChildReport::Linked` once all are connected.
    Meet(Vec<Option<SocketAddr>>),
    /// Answered by `ChildReport::Clock` at once.
    Clock,
    Begin(Pace),
    Moved(usize, SocketAddr),
    /// Drops messages to exactly these processes.
    Cut(Vec<usize>),
    Die,
    /// Ends the run. Answered by `ChildReport::Counted`.
    Stop,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Prepare {
    pub setting: String,
    /// The trial, which determines the seed.
    pub trial: u32,
    pub share: Share,
    pub address: IpAddr,
    pub key: [u8; 16],
    pub resumes: bool,
}

/// Sent by a child to the parent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ChildReport {
    Ready(u16),
    Clock(u64),
    /// It is connected to all processes in both directions.
    Linked,
    /// Serialized records, and their part that the parent reads.
    Records(Vec<u8>, Vec<(Time, Update)>),
    Served(bool),
    Counted(Counted),
    Failed(String),
}

/// The part of a record that does not depend on the protocol.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Update {
    Asked(PeerId),
    Entered(PeerId),
    /// A client of this peer no longer holds or waits.
    Over(PeerId),
    Got(PeerId),
}
