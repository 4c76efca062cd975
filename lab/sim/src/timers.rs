//! Which timers are pending.

use std::hash::Hash;

use peerlock_types::PeerId;
use rustc_hash::FxHashMap;

/// Which setting of each timer counts. A timer that was set again or cancelled still comes up, and is void then: that
/// is cheaper than taking it out of the queue.
#[derive(Debug)]
pub struct Timers<T> {
    pending: FxHashMap<(PeerId, T), u64>,
    set: u64,
}

impl<T: Clone + Hash + Eq> Timers<T> {
    /// No timer is set.
    pub fn new() -> Self {
        Self { pending: FxHashMap::default(), set: 0 }
    }

    /// Sets a timer, instead of any earlier of its name; the number of this setting.
    pub fn set(&mut self, peer: PeerId, timer: T) -> u64 {
        self.set += 1;
        self.pending.insert((peer, timer), self.set);
        self.set
    }

    /// Forgets a timer.
    pub fn cancel(&mut self, peer: PeerId, timer: T) {
        self.pending.remove(&(peer, timer));
    }

    /// Forgets all timers of a peer.
    pub fn forget(&mut self, peer: PeerId) {
        self.pending.retain(|(whose, _), _| *whose != peer);
    }

    /// A timer has come up: the timer, if it is this setting that counts.
    pub fn take(&mut self, peer: PeerId, timer: T, set: u64) -> Option<T> {
        let name = (peer, timer);
        if self.pending.get(&name) != Some(&set) {
            return None;
        }
        self.pending.remove(&name);
        Some(name.1)
    }
}
