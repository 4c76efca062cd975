//! The *replica list* (§IV.A). A mark has the paper's *Previous* and *Next* hop: when a later message takes another
//! route, the peer at which the routes part returns the next hop of the old one, to clear it.

use alloc::vec::Vec;

use peerlock_types::PeerId;

/// The previous and the next hop; the replica has no next one.
pub(super) type Way = (PeerId, Option<PeerId>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Mark<T> {
    replica: u32,
    pub known: T,
    pub previous: PeerId,
    pub next: Option<PeerId>,
}

/// At most one mark per replica.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Trail<T> {
    marks: Vec<Mark<T>>,
}

impl<T> Default for Trail<T> {
    fn default() -> Self {
        Self { marks: Vec::new() }
    }
}

impl<T> Trail<T> {
    fn at(&self, replica: u32) -> Result<usize, usize> {
        self.marks.binary_search_by_key(&replica, |mark| mark.replica)
    }

    pub fn get(&self, replica: u32) -> Option<&Mark<T>> {
        self.at(replica).ok().map(|at| &self.marks[at])
    }

    pub fn get_mut(&mut self, replica: u32) -> Option<&mut Mark<T>> {
        self.at(replica).ok().map(|at| &mut self.marks[at])
    }

    /// Returns the next hop of the previous route if the routes part here.
    pub fn mark(&mut self, replica: u32, known: T, (previous, next): Way) -> Option<PeerId> {
        let mark = Mark { replica, known, previous, next };
        match self.at(replica) {
            Ok(at) => {
                let old = core::mem::replace(&mut self.marks[at], mark);
                old.next.filter(|_| old.next != next)
            }
            Err(at) => {
                self.marks.insert(at, mark);
                None
            }
        }
    }

    pub fn remove(&mut self, replica: u32, wanted: impl FnOnce(&T) -> bool) -> Option<Mark<T>> {
        let at = self.at(replica).ok()?;
        wanted(&self.marks[at].known).then(|| self.marks.remove(at))
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.marks.iter().map(|mark| (mark.replica, &mark.known))
    }

    pub fn clear(&mut self) {
        self.marks.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(previous: u64, next: Option<u64>) -> Way {
        (PeerId::new(previous), next.map(PeerId::new))
    }

    /// §V.A: the pointers show where a route has changed.
    #[test]
    fn changed_route_returns_old_next_hop() {
        let mut trail = Trail::default();
        let cases = [
            (0, 'a', way(1, Some(5)), None),
            (3, 'a', way(1, Some(5)), None),
            (0, 'b', way(2, Some(5)), None), // Another route here, the same from here on.
            (0, 'c', way(2, Some(6)), Some(PeerId::new(5))),
            (0, 'd', way(2, None), Some(PeerId::new(6))), // The replica has moved here.
            (0, 'e', way(2, Some(7)), None),
        ];
        for (replica, known, way, parted) in cases {
            assert_eq!(trail.mark(replica, known, way), parted, "{known}");
        }
        assert_eq!(trail.get(0).map(|mark| (mark.known, mark.next)), Some(('e', Some(PeerId::new(7)))));
        assert_eq!(trail.get(3).map(|mark| (mark.known, mark.previous)), Some(('a', PeerId::new(1))));
        assert!(trail.get(1).is_none());
    }

    #[test]
    fn mark_is_removed_only_if_accepted() {
        let mut trail = Trail::default();
        trail.mark(2, 'a', way(1, None));
        assert!(trail.remove(2, |&known| known == 'b').is_none() && trail.remove(1, |_| true).is_none());
        assert_eq!(trail.remove(2, |&known| known == 'a').map(|mark| mark.known), Some('a'));
        assert!(trail.get(2).is_none());
    }
}
