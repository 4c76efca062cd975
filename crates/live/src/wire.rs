//! What the parent and its children say to each other.

use std::net::{IpAddr, SocketAddr};

use peerlock_base::{PeerId, Time};
use peerlock_sim::{Counted, Share};
use serde::{Deserialize, Serialize};

use crate::clock::Pace;

/// From the parent to a child.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Order {
    /// The first: what is to be played. Answered by `Told::Ready`.
    Prepare(Box<Prepare>),
    /// Where everybody is heard, but for those that are dead. Answered by `Told::Linked`, when it has reached all of
    /// them.
    Meet(Vec<Option<SocketAddr>>),
    /// What its clock shows. Answered by `Told::Clock`, at once.
    Clock,
    /// The run begins.
    Begin(Pace),
    /// A process has come back, and is heard there.
    Moved(usize, SocketAddr),
    /// From now on these are cut off from this process, and nobody else.
    Cut(Vec<usize>),
    /// It kills itself with SIGKILL: where nobody else can, since it is on another machine.
    Die,
    /// The run is over. Answered by `Told::Counted`, the last.
    Stop,
}

/// What a child is to play.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Prepare {
    /// The setting as JSON, whose own form it is.
    pub setting: String,
    /// The trial, counted from 0: it decides the seed.
    pub trial: u32,
    /// Who lives where.
    pub share: Share,
    /// The address by which the others reach it.
    pub address: IpAddr,
    /// The key by which the processes of the run know each other.
    pub key: [u8; 16],
    /// The process takes the place of one that was killed.
    pub resumes: bool,
}

/// From a child to the parent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Told {
    /// It listens on this port.
    Ready(u16),
    /// What its clock shows, in nanoseconds.
    Clock(u64),
    /// It has a connection to everybody, and everybody one to it.
    Linked,
    /// What has happened: the setting's own records, and what of it the parent understands, and when that was.
    Records(Vec<u8>, Vec<(Time, News)>),
    /// Whether everybody there was served.
    Served(bool),
    /// Once, at the end of a trial: what the child counted itself.
    Counted(Counted),
    /// Why it cannot go on.
    Failed(String),
}

/// What the parent understands of a record, whichever protocol it is of.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum News {
    /// A client of this peer asks.
    Asked(PeerId),
    /// A client of this peer is inside.
    Entered(PeerId),
    /// A client of this peer is not inside any more, or does not wait any more.
    Over(PeerId),
    /// This peer has got a message.
    Got(PeerId),
}
