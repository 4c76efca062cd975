//! The hop's half of Non-E2E: the replica list, with a partial queue per entry.

use alloc::vec::Vec;
use core::fmt;

use peerlock_base::{PeerId, Time};

use crate::Hop;
use crate::route_quorum::Waiting;
use crate::sigma::Stamp;
use crate::sigma::replica::Entry as Request;

/// An entry of the replica list: whose request for this replica came by, and who has come after it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Entry {
    /// *Replica Id*.
    pub replica: u32,
    /// *Node Id*: the holder of the replica, as far as we know.
    pub holder: Stamp,
    /// *Replica Request Queue*, in order.
    pub queue: Vec<Request>,
    /// How often [`Timer::Ping`](super::Timer::Ping) has come since somebody new was queued.
    pub age: u32,
    /// *Next* on the holder's way to the replica.
    pub next: Neighbour,
    /// *Previous*.
    pub previous: Neighbour,
}

/// A peer beside us on the way of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Neighbour {
    pub peer: PeerId,
    /// Whether a PING is unanswered.
    pub is_silent: bool,
}

impl Neighbour {
    fn new(peer: PeerId) -> Self {
        Self { peer, is_silent: false }
    }
}

impl Entry {
    /// `next` is the peer that the message which brings us here goes on to.
    pub fn new(replica: u32, holder: Stamp, hop: Hop, next: PeerId) -> Self {
        let (next, previous) = (Neighbour::new(next), Neighbour::new(hop.previous));
        Self { replica, holder, queue: Vec::new(), age: 0, next, previous }
    }

    /// The holder's request comes by again, perhaps by a new way.
    pub fn renew(&mut self, hop: Hop, next: PeerId) {
        (self.next, self.previous) = (Neighbour::new(next), Neighbour::new(hop.previous));
    }

    pub fn neighbours(&mut self) -> [&mut Neighbour; 2] {
        [&mut self.next, &mut self.previous]
    }

    pub fn enqueue(&mut self, request: Request) {
        match self.queue.binary_search_by_key(&request.client, |queued| queued.client) {
            Ok(at) => self.queue[at] = request,
            Err(at) => {
                self.queue.insert(at, request);
                self.age = 0;
            }
        }
    }

    /// The queue as it goes on to the replica.
    pub fn into_load(self, now: Time) -> impl Iterator<Item = Waiting> {
        self.queue.into_iter().map(move |queued| queued.into_waiting(now))
    }
}

/// The holder, and who comes after: `1@4 then [1@5, 1@6]`.
impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queue: Vec<Stamp> = self.queue.iter().map(|queued| queued.client).collect();
        write!(f, "{} then {queue:?}", self.holder)
    }
}
