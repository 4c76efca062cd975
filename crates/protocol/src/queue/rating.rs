//! Sort keys of tokens, each one number.

/// By the token's last move, oldest first, then by slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rating(u128);

impl Rating {
    pub(super) fn new(since: u64, slot: u32) -> Self {
        Self(u128::from(since) << 32 | u128::from(slot))
    }

    pub(super) fn since(self) -> u64 {
        (self.0 >> 32) as u64
    }

    pub(super) fn slot(self) -> u32 {
        self.0 as u32
    }
}

/// By preference for the next announcement, then as [`Rating`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ranked(u128);

impl Ranked {
    pub(super) fn new(rank: u32, rating: Rating) -> Self {
        Self(u128::from(rank) << 96 | rating.0)
    }

    pub(super) fn rank(self) -> u32 {
        (self.0 >> 96) as u32
    }

    pub(super) fn slot(self) -> u32 {
        self.0 as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_rank_then_age_then_slot() {
        let all = [(0, 7, 2), (1, 1 << 40, 3), (1, u64::MAX, 0), (2, 0, 0), (2, 0, u32::MAX), (u32::MAX, 0, 0)];
        let ranked = all.map(|(rank, since, slot)| Ranked::new(rank, Rating::new(since, slot)));
        assert!(ranked.is_sorted());
        assert_eq!(ranked.map(Ranked::rank), all.map(|(rank, ..)| rank));
        assert_eq!(ranked.map(Ranked::slot), all.map(|(.., slot)| slot));
        let rating = all.map(|(_, since, slot)| Rating::new(since, slot));
        assert_eq!(rating.map(|rating| (rating.since(), rating.slot())), all.map(|(_, since, slot)| (since, slot)));
    }
}
