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
    /// Starts the run.
    Begin(Pace),
    /// A restarted process listens at this address.
    Moved(usize, SocketAddr),
    /// Drops messages to exactly these processes.
    Cut(Vec<usize>),
    /// The child kills itself, on another machine.
    Die,
    /// Ends the run. Answered by `ChildReport::Counted`.
    Stop,
}

/// The task of a child.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Prepare {
    /// In JSON.
    pub setting: String,
    /// The trial, which determines the seed.
    pub trial: u32,
    pub share: Share,
    pub address: IpAddr,
    /// Authenticates the processes.
    pub key: [u8; 16],
    /// Whether it replaces a killed process.
    pub resumes: bool,
}

/// Sent by a child to the parent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ChildReport {
    /// It listens on this port.
    Ready(u16),
    /// In nanoseconds.
    Clock(u64),
    /// It is connected to all processes in both directions.
    Linked,
    /// Serialized records, and their part that the parent reads.
    Records(Vec<u8>, Vec<(Time, Update)>),
    /// Whether all its clients have been served.
    Served(bool),
    /// Its counters at the end of a trial.
    Counted(Counted),
    Failed(String),
}

/// The part of a record that does not depend on the protocol.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Update {
    /// A client of this peer has requested.
    Asked(PeerId),
    /// A client of this peer has acquired.
    Entered(PeerId),
    /// A client of this peer no longer holds or waits.
    Over(PeerId),
    /// This peer has received a message.
    Got(PeerId),
}
