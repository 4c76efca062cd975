use peerlock_types::{PeerId, Rng, Span, Time};
use rustc_hash::FxHashMap;

use crate::latency::Latency;
use crate::names;

/// Whether messages on one link, from one peer to another, keep their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    Ordered,
    Unordered,
}

names!("links", Links { Ordered = "ordered", Unordered = "unordered" });

/// Computes the arrival times of messages.
#[derive(Debug)]
pub struct Carrier {
    latency: Latency,
    links: Links,
    /// Delays on one link differ.
    varies: bool,
    /// The arrival of the last message on a link. Kept only if a later one could overtake it.
    last_arrival: FxHashMap<(PeerId, PeerId), Time>,
    rng: Rng,
}

impl Carrier {
    /// `are_delayed` says that faults delay some messages.
    pub fn new(latency: Latency, links: Links, are_delayed: bool, rng: Rng) -> Self {
        let varies = latency.varies() || are_delayed;
        Self { latency, links, varies, last_arrival: FxHashMap::default(), rng }
    }

    #[inline]
    pub fn arrival(&mut self, now: Time, from: PeerId, to: PeerId, delay: Span) -> Time {
        let at = now + self.latency.sample(from, to, &mut self.rng) + delay;
        if self.links == Links::Unordered || !self.varies {
            return at;
        }
        self.after_others(at, from, to)
    }

    // Out of line, so that the check is short if delays on a link are equal.
    #[inline(never)]
    fn after_others(&mut self, at: Time, from: PeerId, to: PeerId) -> Time {
        let last = self.last_arrival.entry((from, to)).or_default();
        *last = at.max(*last); // At the same moment, the first pushed comes first.
        *last
    }

    /// Forgets the links between two peers that exchange no further messages.
    pub fn forget(&mut self, one: PeerId, other: PeerId) {
        self.last_arrival.remove(&(one, other));
        self.last_arrival.remove(&(other, one));
    }
}
