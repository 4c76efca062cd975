use peerlock_overlay::KeyRange;
use peerlock_protocols::Replicas;
use peerlock_types::{Key, PeerId, Span, Time};

use super::{Broken, Event, Resets, Watch};
use crate::actor::{OverlayNote, Routing};
use crate::report::Sheet;

#[derive(Debug)]
struct Place {
    key: Key,
    resource: usize,
    replica: u64,
    /// Running peers that consider themselves the owner.
    owners: u32,
}

/// Counts, for each resource, how many of its replicas lost their memory within one lease.
///
/// A replica is at the owner of its key. It loses its memory when its owner fails, is reset, or is replaced by another
/// owner. While two peers consider themselves owners, it has two memories, and counts as losing it all the time.
#[derive(Debug)]
pub struct Memory {
    places: Vec<Place>,
    resets: Vec<Resets>,
    ranges: Vec<Option<KeyRange>>,
    forgotten: u64,
    undelivered: u64,
}

impl Memory {
    /// Each key has one owner.
    pub fn new<'a>(resources: impl Iterator<Item = &'a Replicas>, ranges: Vec<Option<KeyRange>>, lease: Span) -> Self {
        let (mut places, mut resets) = (Vec::new(), Vec::new());
        for (resource, replicas) in resources.enumerate() {
            let keys = (0..).map_while(|replica| Some((replica, replicas.key(replica)?)));
            places.extend(keys.map(|(replica, key)| Place { key, resource, replica: replica.into(), owners: 1 }));
            resets.push(Resets::within(lease));
        }
        Self { places, resets, ranges, forgotten: 0, undelivered: 0 }
    }

    fn owns(&mut self, now: Time, peer: PeerId, range: Option<KeyRange>) {
        if self.ranges.len() <= peer.index() {
            self.ranges.resize(peer.index() + 1, None);
        }
        let before = std::mem::replace(&mut self.ranges[peer.index()], range);
        self.moved(now, before, range);
    }

    fn moved(&mut self, now: Time, before: Option<KeyRange>, after: Option<KeyRange>) {
        let has = |range: Option<KeyRange>, key| range.is_some_and(|range| range.contains(key));
        for at in 0..self.places.len() {
            let Place { key, owners, .. } = &mut self.places[at];
            match (has(before, *key), has(after, *key)) {
                (false, true) => *owners += 1,
                (true, false) => *owners -= 1,
                _ => continue,
            }
            self.forget(now, at);
        }
    }

    fn reset(&mut self, now: Time, range: Option<KeyRange>) {
        for at in 0..self.places.len() {
            if range.is_some_and(|range| range.contains(self.places[at].key)) {
                self.forget(now, at);
            }
        }
    }

    fn forget(&mut self, now: Time, at: usize) {
        self.forgotten += 1;
        let Place { resource, replica, .. } = self.places[at];
        let resets = &mut self.resets[resource];
        for other in self.places.iter().filter(|other| other.resource == resource && other.owners > 1) {
            resets.note(now, other.replica);
        }
        resets.note(now, replica);
    }
}

impl<A: Routing> Watch<A> for Memory {
    #[inline(always)]
    fn on(&mut self, now: Time, event: Event<'_, A>) -> Result<(), Broken> {
        match event {
            Event::Reset(peer) => self.reset(now, self.ranges.get(peer.index()).copied().flatten()),
            Event::Crash(peer) => self.owns(now, peer, None),
            Event::Note(peer, &OverlayNote::Owns(range)) => self.owns(now, peer, range),
            Event::Note(_, OverlayNote::Undelivered(_)) => self.undelivered += 1,
            _ => {}
        }
        Ok(())
    }

    fn fill(&mut self, sheet: &mut Sheet) {
        for (harm, resets) in sheet.harm.iter_mut().zip(&self.resets) {
            harm.most_forgotten = resets.most();
        }
        sheet.numbers.sum("forgotten", self.forgotten);
        sheet.numbers.sum("undelivered", self.undelivered);
    }
}

#[cfg(test)]
mod tests {
    use peerlock_protocols::Quorum;

    use super::*;

    fn second(second: u64) -> Time {
        Time::ZERO + Span::from_secs(second)
    }

    fn only(key: Key) -> Option<KeyRange> {
        Some(KeyRange { after: Key::new(key.get() - 1), last: key })
    }

    #[test]
    fn replica_loses_memory_with_new_owner_or_two_owners() {
        let replicas = Replicas::on_overlay("/a", Quorum::new(3, 2));
        let [a, b, c] = [0, 1, 2].map(|replica| only(replicas.key(replica).unwrap()));
        let mut memory = Memory::new([&replicas].into_iter(), Vec::new(), Span::from_secs(10));
        let most = |memory: &Memory| memory.resets[0].most();

        memory.moved(second(0), None, a); // Two owners.
        assert_eq!(most(&memory), 1);
        memory.reset(second(50), b);
        assert_eq!(most(&memory), 2, "a replica with two owners counts long after");
        memory.moved(second(60), a, None); // One again.
        memory.reset(second(75), c);
        assert_eq!(most(&memory), 2, "and not with one owner");
        memory.reset(second(76), c);
        memory.reset(second(77), None);
        assert_eq!(most(&memory), 2);
    }
}
