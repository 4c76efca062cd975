//! As what a process begins.

use peerlock_registry::{ClusterId, Ttl};
use peerlock_types::Rng;

use crate::Predecessor;

/// When and as which process a peer begins. All that is random about a node is here.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The number of this process: higher than that of every earlier process of its host. The register refuses a
    /// session to a process with a lower number than one that it knows.
    pub process: u64,
    /// Random numbers of its own; another stream for each process.
    pub rng: Rng,
    /// The host's name, for people.
    pub name: String,
    /// It has a data folder: it can become a voter, and is remembered as a member when it is away.
    pub keeps: bool,
    /// How long its session stands after a renewal. 15 s in the product.
    pub session: Ttl,
    /// What it knows of a cluster.
    pub origin: Origin,
    /// The boot of this machine, another one each time that it is started.
    pub boot: String,
    /// What the process before it has left, if that is known to be gone.
    pub predecessor: Option<Predecessor>,
}

/// What a process knows of a cluster when it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It begins a new cluster with this id, and is its first voter: an agent on an empty data folder that joins
    /// nobody; tests, benches and a lonely peer in a library, whose driver answers writes at once, from memory.
    Founds(ClusterId),
    /// It has a voter's file: these bytes. The cluster's id is in it, and so is where the other voters are; their
    /// addresses come with [`Input::Start`](crate::Input::Start).
    Votes(Vec<u8>),
    /// It knows its cluster, and has no voter's file.
    Belongs(ClusterId),
    /// It knows none, and takes part in that of whoever it meets.
    Seeks {
        /// It founds one, with this id, when so many hosts, itself included, have met that know none, all of them name
        /// the same founder (which is the one with the smallest number), and it is that one.
        expect: Option<(usize, ClusterId)>,
    },
}
