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

#[derive(Debug)]
pub struct Carrier {
    latency: Latency,
    links: Links,
    varies: bool,
    /// Kept only if a later message could overtake.
    last_arrival: FxHashMap<(PeerId, PeerId), Time>,
    rng: Rng,
}

impl Carrier {
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

    #[inline(never)]
    fn after_others(&mut self, at: Time, from: PeerId, to: PeerId) -> Time {
        let last = self.last_arrival.entry((from, to)).or_default();
        *last = at.max(*last); // At the same moment, the first pushed comes first.
        *last
    }

    pub fn forget(&mut self, one: PeerId, other: PeerId) {
        self.last_arrival.remove(&(one, other));
        self.last_arrival.remove(&(other, one));
    }
}
