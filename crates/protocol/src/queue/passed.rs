//! The passes of each waiter.
//!
//! An entry passes all older waiters, so it is counted once, at the position of the entering waiter, and summed over
//! all later positions when needed (binary indexed tree).

use alloc::vec;
use alloc::vec::Vec;

#[derive(Clone, Debug, Default)]
pub(super) struct Passed {
    base: u64,
    /// Empty while no waiter was passed.
    tree: Vec<u32>,
    total: u32,
}

impl Passed {
    pub(super) fn starting(base: u64, places: usize) -> Self {
        Self { base, tree: vec![0; (2 * places + 2).next_power_of_two()], total: 0 }
    }

    /// `list` is sorted by age; a younger waiter was passed no more often.
    pub(super) fn from_list(base: u64, places: usize, list: Vec<(u64, u32)>) -> Self {
        let mut passed = Self::starting(base, places);
        // The difference is counted below the position of the next waiter.
        let next = list.iter().skip(1).copied().chain([(base + places as u64, 0)]);
        for (&(_, times), (place, fewer)) in list.iter().zip(next) {
            passed.add_times(place, times.saturating_sub(fewer));
        }
        if passed.total == 0 { Self::default() } else { passed }
    }

    /// The tree has to be rebuilt for this position.
    pub(super) fn ends_before(&self, place: u64) -> bool {
        !self.tree.is_empty() && place - self.base >= self.tree.len() as u64
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tree.is_empty()
    }

    pub(super) fn add(&mut self, place: u64) {
        self.add_times(place, 1);
    }

    fn add_times(&mut self, place: u64, times: u32) {
        let mut at = (place - self.base) as usize + 1;
        while at <= self.tree.len() {
            self.tree[at - 1] += times;
            at += at & at.wrapping_neg();
        }
        self.total += times;
    }

    /// Entries from later positions.
    pub(super) fn of(&self, place: u64) -> u32 {
        let mut at = ((place - self.base) as usize + 1).min(self.tree.len());
        let mut before = 0;
        while at > 0 {
            before += self.tree[at - 1];
            at -= at & at.wrapping_neg();
        }
        self.total - before
    }
}

#[cfg(test)]
mod tests {
    use peerlock_types::Rng;

    use super::*;

    #[test]
    fn counts_agree_with_counting_at_every_waiter() {
        let mut rng = Rng::new(1);
        for _ in 0..200 {
            let mut waiting: Vec<(u64, u32)> = Vec::new();
            let (mut passed, mut end) = (Passed::default(), 0);
            for _ in 0..300 {
                if waiting.is_empty() || rng.below(2) == 0 {
                    waiting.push((end, 0));
                    end += 1;
                    if passed.ends_before(end) {
                        let first = waiting[0].0;
                        passed = Passed::from_list(first, (end - first) as usize, waiting.clone());
                    }
                } else {
                    let at = rng.below((waiting.len() as u64).min(5)) as usize;
                    let (place, _) = waiting.remove(at);
                    waiting[..at].iter_mut().for_each(|(_, times)| *times += 1);
                    if at > 0 {
                        let first = waiting[0].0;
                        if passed.is_empty() {
                            passed = Passed::starting(first, (end - first) as usize);
                        }
                        passed.add(place);
                    }
                }
                waiting.iter().for_each(|&(place, times)| assert_eq!(passed.of(place), times, "at {place}"));
            }
        }
    }
}
