use alloc::vec;
use alloc::vec::Vec;

use peerlock_types::{PeerId, Ticket};

use crate::token::Claim;

/// The positions of all waiters: open addressing with linear probing, several times as fast as a tree. Its order is
/// never visible.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    /// A power of two of entries, of which at most a quarter are used; the others are [`NOWHERE`].
    table: Vec<Entry>,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    claim: Claim,
    place: u64,
}

const NOWHERE: u64 = u64::MAX;

const EMPTY: Entry = Entry { claim: Claim { peer: PeerId::new(0), ticket: Ticket::NONE }, place: NOWHERE };

const LEAST: usize = 8;

impl Index {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    fn home(&self, Claim { peer, ticket }: Claim) -> usize {
        // Odd constants that spread each bit over the upper half, as in SplitMix64.
        let hash = (peer.get().wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ ticket.get()).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (hash >> 32) as usize & (self.table.len() - 1)
    }

    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.table.len() - 1)
    }

    /// The place of a claim, or for its insertion.
    fn find(&self, claim: Claim) -> Result<usize, usize> {
        let mut at = self.home(claim);
        loop {
            match self.table[at] {
                Entry { place: NOWHERE, .. } => return Err(at),
                entry if entry.claim == claim => return Ok(at),
                _ => at = self.after(at),
            }
        }
    }

    pub(super) fn get(&self, claim: Claim) -> Option<u64> {
        if self.len == 0 {
            return None;
        }
        self.find(claim).ok().map(|at| self.table[at].place)
    }

    /// Returns whether the claim is new.
    pub(super) fn insert(&mut self, claim: Claim, place: u64) -> bool {
        if 4 * (self.len + 1) > self.table.len() {
            self.grow();
        }
        let Err(at) = self.find(claim) else { return false };
        self.table[at] = Entry { claim, place };
        self.len += 1;
        true
    }

    fn grow(&mut self) {
        let larger = vec![EMPTY; (2 * self.table.len()).max(LEAST)];
        for entry in core::mem::replace(&mut self.table, larger).into_iter().filter(|entry| entry.place != NOWHERE) {
            if let Err(at) = self.find(entry.claim) {
                self.table[at] = entry;
            }
        }
    }

    pub(super) fn remove(&mut self, claim: Claim) -> Option<u64> {
        if self.len == 0 {
            return None;
        }
        let mut gap = self.find(claim).ok()?;
        let place = self.table[gap].place;
        // Closes the gap with entries that would not be found beyond it.
        let mut at = self.after(gap);
        while self.table[at].place != NOWHERE {
            let distance = |from: usize| at.wrapping_sub(from) & (self.table.len() - 1);
            if distance(self.home(self.table[at].claim)) >= distance(gap) {
                self.table[gap] = self.table[at];
                gap = at;
            }
            at = self.after(at);
        }
        self.table[gap].place = NOWHERE;
        self.len -= 1;
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use peerlock_types::Rng;

    use super::*;

    #[test]
    fn index_agrees_with_tree() {
        let mut rng = Rng::new(1);
        for peers in [3, 40, 400] {
            let (mut index, mut tree) = (Index::default(), BTreeMap::new());
            for place in 0..20_000 {
                let claim = Claim { peer: PeerId::new(rng.below(peers)), ticket: Ticket::new(1 + rng.below(3)) };
                assert_eq!(index.get(claim), tree.get(&claim).copied());
                if rng.below(2) == 0 {
                    let is_new = index.insert(claim, place);
                    assert_eq!(is_new, !tree.contains_key(&claim));
                    tree.entry(claim).or_insert(place);
                } else {
                    assert_eq!(index.remove(claim), tree.remove(&claim));
                }
                assert_eq!(index.len(), tree.len());
            }
        }
    }
}
