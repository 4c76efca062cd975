//! The initial state of a process.

use peerlock_registry::{ClusterId, Ttl};
use peerlock_types::Rng;

use crate::Predecessor;

#[derive(Clone, Debug)]
pub struct Setup {
    /// Higher than that of every earlier process of its host: otherwise the registry refuses a session.
    pub process: u64,
    /// A random stream, different for each process.
    pub rng: Rng,
    pub name: String,
    /// The host has a data directory: it can vote, and stays a member while disconnected.
    pub keeps: bool,
    /// The session length. 15 s in the product.
    pub session: Ttl,
    /// Its cluster, as far as known.
    pub origin: Origin,
    pub boot: String,
    /// The predecessor's state, if that process is known to have ended.
    pub predecessor: Option<Predecessor>,
}

/// The knowledge of a cluster with which a process starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Creates a cluster with this ID as its first voter.
    Founds(ClusterId),
    /// A voter, with the contents of its file, which has the cluster ID and the other voters.
    Votes(Vec<u8>),
    /// A member of this cluster without a voter's file.
    Belongs(ClusterId),
    /// Knows no cluster, and joins that of the first host it meets.
    Seeks {
        /// Creates a cluster with this ID when so many such hosts have met, including this one, and all name this host
        /// (the smallest number) as the creator.
        expect: Option<(usize, ClusterId)>,
    },
}
