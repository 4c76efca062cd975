//! When a message arrives.

use peerlock_types::{PeerId, Rng, Span, Time};
use rustc_hash::FxHashMap;

use crate::latency::Latency;
use crate::names;

/// Whether messages on one link, from one peer to another, keep their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// First sent, first delivered.
    Ordered,
    /// Each message takes its own time.
    Unordered,
}

names!("links", Links { Ordered = "ordered", Unordered = "unordered" });

/// Carries messages: how long each takes, and whether it may overtake another.
#[derive(Debug)]
pub struct Carrier {
    latency: Latency,
    links: Links,
    /// Messages on one link do not all take as long.
    varies: bool,
    /// When the last message on a link arrives. Only kept where a later one could overtake it.
    last_arrival: FxHashMap<(PeerId, PeerId), Time>,
    rng: Rng,
}

impl Carrier {
    /// Nothing is under way. Some messages may be delayed beyond what the links say.
    pub fn new(latency: Latency, links: Links, are_delayed: bool, rng: Rng) -> Self {
        let varies = latency.varies() || are_delayed;
        Self { latency, links, varies, last_arrival: FxHashMap::default(), rng }
    }

    /// When a message that is sent `now` arrives, if it is held up for `delay`.
    #[inline]
    pub fn arrival(&mut self, now: Time, from: PeerId, to: PeerId, delay: Span) -> Time {
        let at = now + self.latency.sample(from, to, &mut self.rng) + delay;
        if self.links == Links::Unordered || !self.varies {
            return at;
        }
        self.after_others(at, from, to)
    }

    // Apart, so that looking at the clock is short where all messages on a link take as long.
    #[inline(never)]
    fn after_others(&mut self, at: Time, from: PeerId, to: PeerId) -> Time {
        let last = self.last_arrival.entry((from, to)).or_default();
        *last = at.max(*last); // Of the same moment, the first pushed comes first.
        *last
    }

    /// No message will go from one of these two to the other any more.
    pub fn forget(&mut self, one: PeerId, other: PeerId) {
        self.last_arrival.remove(&(one, other));
        self.last_arrival.remove(&(other, one));
    }
}
