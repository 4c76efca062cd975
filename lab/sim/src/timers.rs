use std::hash::Hash;

use peerlock_types::PeerId;
use rustc_hash::FxHashMap;

/// The current setting of each timer. A replaced or cancelled timer still fires and is ignored: that is cheaper than
/// removing it from the queue.
#[derive(Debug)]
pub struct Timers<T> {
    pending: FxHashMap<(PeerId, T), u64>,
    set: u64,
}

impl<T: Clone + Hash + Eq> Timers<T> {
    pub fn new() -> Self {
        Self { pending: FxHashMap::default(), set: 0 }
    }

    pub fn set(&mut self, peer: PeerId, timer: T) -> u64 {
        self.set += 1;
        self.pending.insert((peer, timer), self.set);
        self.set
    }

    pub fn cancel(&mut self, peer: PeerId, timer: T) {
        self.pending.remove(&(peer, timer));
    }

    pub fn forget(&mut self, peer: PeerId) {
        self.pending.retain(|(whose, _), _| *whose != peer);
    }

    pub fn take(&mut self, peer: PeerId, timer: T, set: u64) -> Option<T> {
        let name = (peer, timer);
        if self.pending.get(&name) != Some(&set) {
            return None;
        }
        self.pending.remove(&name);
        Some(name.1)
    }
}
