//! Where somebody stands in line, by claim.

use alloc::vec;
use alloc::vec::Vec;

use crate::token::Claim;

/// The places of everybody who waits, to be found by their claims.
///
/// A table of hashes in one piece of memory: a request takes a look, an entry and a removal, for each of which a tree
/// takes several times as long. Nobody ever sees its order. It keeps places only: who stands there says its claim.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    /// A power of two of places, at most half of which are taken; the others are [`NOBODY`]. Who is not found where its
    /// claim's hash points to is at one of the next, before the first that is empty.
    table: Vec<u64>,
    len: usize,
}

const NOBODY: u64 = u64::MAX;

/// As large as the first table is.
const LEAST: usize = 16;

impl Index {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    fn home(&self, Claim { peer, ticket }: Claim) -> usize {
        // Two odd numbers that spread each bit over the upper half, as in SplitMix64.
        let hash = (peer.get().wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ ticket.get()).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (hash >> 32) as usize & (self.table.len() - 1)
    }

    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.table.len() - 1)
    }

    /// Where a claim is in the table, or else where it would be put.
    fn find(&self, claim: Claim, claim_at: impl Fn(u64) -> Option<Claim>) -> Result<usize, usize> {
        let mut at = self.home(claim);
        loop {
            match self.table[at] {
                NOBODY => return Err(at),
                place if claim_at(place) == Some(claim) => return Ok(at),
                _ => at = self.after(at),
            }
        }
    }

    /// The place of a claim. `claim_at` tells whose a place is.
    pub(super) fn get(&self, claim: Claim, claim_at: impl Fn(u64) -> Option<Claim>) -> Option<u64> {
        if self.len == 0 {
            return None;
        }
        self.find(claim, claim_at).ok().map(|at| self.table[at])
    }

    /// Adds a claim at a place; whether it was not there.
    pub(super) fn insert(&mut self, claim: Claim, place: u64, claim_at: impl Fn(u64) -> Option<Claim>) -> bool {
        if 2 * (self.len + 1) > self.table.len() {
            self.grow(&claim_at);
        }
        let Err(at) = self.find(claim, claim_at) else { return false };
        self.table[at] = place;
        self.len += 1;
        true
    }

    fn grow(&mut self, claim_at: &impl Fn(u64) -> Option<Claim>) {
        let larger = vec![NOBODY; (2 * self.table.len()).max(LEAST)];
        for place in core::mem::replace(&mut self.table, larger).into_iter().filter(|&place| place != NOBODY) {
            if let Some(Err(at)) = claim_at(place).map(|claim| self.find(claim, claim_at)) {
                self.table[at] = place;
            }
        }
    }

    /// Takes a claim out, which must still stand at its place; that place.
    pub(super) fn remove(&mut self, claim: Claim, claim_at: impl Fn(u64) -> Option<Claim>) -> Option<u64> {
        if self.len == 0 {
            return None;
        }
        let mut gap = self.find(claim, &claim_at).ok()?;
        let place = self.table[gap];
        // Whoever comes after it and could not be found beyond a gap moves into it, and leaves another.
        let mut at = self.after(gap);
        while self.table[at] != NOBODY {
            let home = claim_at(self.table[at]).map_or(at, |claim| self.home(claim));
            let distance = |from: usize| at.wrapping_sub(from) & (self.table.len() - 1);
            if distance(home) >= distance(gap) {
                self.table[gap] = self.table[at];
                gap = at;
            }
            at = self.after(at);
        }
        self.table[gap] = NOBODY;
        self.len -= 1;
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use peerlock_base::{PeerId, Rng, Ticket};

    use super::*;

    /// Beside a tree, with claims few enough to come again and again.
    #[test]
    fn it_finds_who_is_there_and_nobody_else() {
        let mut rng = Rng::new(1);
        for peers in [3, 40, 400] {
            let (mut index, mut tree, mut places) = (Index::default(), BTreeMap::new(), Vec::new());
            for _ in 0..20_000 {
                let claim = Claim { peer: PeerId::new(rng.below(peers)), ticket: Ticket::new(1 + rng.below(3)) };
                let claim_at = |place: u64| places.get(place as usize).copied().flatten();
                assert_eq!(index.get(claim, claim_at), tree.get(&claim).copied());
                if rng.below(2) == 0 {
                    let place = places.len() as u64;
                    let is_new = index.insert(claim, place, claim_at);
                    assert_eq!(is_new, !tree.contains_key(&claim));
                    if is_new {
                        tree.insert(claim, place);
                        places.push(Some(claim));
                    }
                } else {
                    let place = index.remove(claim, claim_at);
                    assert_eq!(place, tree.remove(&claim));
                    place.into_iter().for_each(|place| places[place as usize] = None);
                }
                assert_eq!(index.len(), tree.len());
            }
        }
    }
}
