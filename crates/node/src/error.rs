use alloc::borrow::ToOwned as _;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use peerlock_base::PeerId;

use crate::Name;
use crate::name::MOST_SLOTS;

/// What can go wrong. After every one of these the client holds nothing and waits for nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Nothing was asked for: the name cannot be one.
    #[error("{name:?} cannot be the name of a resource: {why}. Use 1 to 255 bytes without control characters")]
    BadName {
        /// What was given.
        name: String,
        /// Why not, in words.
        why: &'static str,
    },
    /// Nothing was asked for: there cannot be so many slots.
    #[error("a resource cannot have {slots} slots: give a number from 1 to {MOST_SLOTS}")]
    BadSlots {
        /// What was given.
        slots: u32,
    },
    /// Nothing was asked for: the lease is too short, or its grace is not shorter than it.
    #[error(
        "a lease of {ttl:?} with a grace of {grace:?} cannot be kept: give at least 100 ms, and less grace than half of it"
    )]
    BadLease {
        /// How long the lease should be.
        ttl: Duration,
        /// How long before its end it should be taken for lost.
        grace: Duration,
    },
    /// The resource has another number of slots. It is unchanged.
    #[error("{name} has {has} slot{}, not {asked}: ask for {has}, or use another name", if *.has == 1 { "" } else { "s" })]
    SlotsMismatch {
        /// The resource.
        name: Name,
        /// How many slots it has.
        has: u32,
        /// How many were asked for.
        asked: u32,
    },
    /// No peer that we know has heard of it.
    #[error("no peer here has heard of {name}: nobody has acquired it yet, or it is spelt differently")]
    NoSuchResource {
        /// What was asked for.
        name: Name,
    },
    /// The wait is over, and others were first. `place` is how many are still ahead, if that is known.
    #[error("{name} was not acquired{}", match .place { Some(0) => ": next in line".to_owned(), Some(n) => format!(": {n} are ahead in line"), None => String::new() })]
    NotAcquired {
        /// The resource.
        name: Name,
        /// How many are ahead in line.
        place: Option<u32>,
    },
    /// Nothing moves: who keeps the line, or everybody who holds a slot, cannot be reached.
    #[error("{name} is stalled: {} for {since:?}. Bring it back, or wait until it is", match .who { Some(peer) => format!("peer {peer} has not been heard of"), None => "too few peers can be reached".to_owned() })]
    Stalled {
        /// The resource.
        name: Name,
        /// Who is missing; `None` if there are too few peers to found the resource.
        who: Option<PeerId>,
        /// For how long.
        since: Duration,
    },
    /// The lease ended before it was renewed; or there never was such a grant.
    #[error("this grant does not stand any more: its lease has ended, or it was released")]
    Lost,
    /// The client's session has ended.
    #[error("the session has ended")]
    SessionEnded,
    /// Too many clients wait at this peer.
    #[error("{limit} clients wait or hold a slot at this peer, and no more fit: try again later, or at another peer")]
    Busy {
        /// How many there may be.
        limit: usize,
    },
    /// No other peer was there to join.
    #[error(
        "no peer could be reached at {}: check that a peer runs there and that both have the same secret file, or start \
         without joining",
        .tried.iter().map(|(address, why)| format!("{address} ({why})")).collect::<Vec<_>>().join(", ")
    )]
    NoPeer {
        /// Where we tried, and what came of it.
        tried: Vec<(String, String)>,
    },
    /// The peer has been stopped.
    #[error("this peer has stopped")]
    Stopped,
}
