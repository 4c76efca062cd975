//! The messages between the parent and its children.

use std::net::{IpAddr, SocketAddr};

use peerlock_sim::{Counted, Share};
use peerlock_types::{PeerId, Time};
use serde::{Deserialize, Serialize};

use crate::clock::Pace;

/// Sent by the parent to a child.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Order {
    /// The first message: the task. Answered by `ChildReport::Ready`.
    Prepare(Box<Prepare>),
    /// The addresses of all live processes. Answered by `ChildReport::Linked` once the child is connected to all of
    /// them.
    Meet(Vec<Option<SocketAddr>>),
    /// Requests the child's clock. Answered by `ChildReport::Clock` at once.
    Clock,
    /// Starts the run.
    Begin(Pace),
    /// A process was restarted and listens at this address. The child connects to it.
    Moved(usize, SocketAddr),
    /// Cuts the child off from exactly these processes.
    Cut(Vec<usize>),
    /// The child kills itself with SIGKILL: it is on a machine where the parent cannot.
    Die,
    /// Ends the run. Answered by `ChildReport::Counted`, the child's last message.
    Stop,
}

/// The task of a child.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Prepare {
    /// The setting as JSON.
    pub setting: String,
    /// The trial, counted from 0, which determines the seed.
    pub trial: u32,
    /// The distribution of the peers over the processes.
    pub share: Share,
    /// The address at which the child listens.
    pub address: IpAddr,
    /// The key by which the processes authenticate each other.
    pub key: [u8; 16],
    /// Whether the child replaces a killed process.
    pub resumes: bool,
}

/// Sent by a child to the parent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ChildReport {
    /// It listens on this port.
    Ready(u16),
    /// Its clock, in nanoseconds.
    Clock(u64),
    /// It is connected to all processes, and all are connected to it.
    Linked,
    /// Records of the setting, and those events that the parent understands, with their times.
    Records(Vec<u8>, Vec<(Time, Update)>),
    /// Whether all its clients have been served.
    Served(bool),
    /// Its counters, once at the end of a trial.
    Counted(Counted),
    /// It cannot continue, for this reason.
    Failed(String),
}

/// The part of a record that the parent understands, whatever the protocol.
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
