//! Wait times per second, for a chart.

use std::collections::VecDeque;
use std::time::Duration;

use serde::Serialize;
use utoipa::ToSchema;

/// How many seconds are kept.
pub const RETAINED: u64 = 120;

/// The grants of one resource.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Waits {
    entries: u64,
    /// The latest last; seconds without a grant are omitted.
    seconds: VecDeque<Second>,
}

/// The grants of one second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, ToSchema)]
pub struct Second {
    /// The second since the start.
    pub at_s: u64,
    /// Number of grants.
    pub entries: u64,
    /// Mean wait.
    pub mean_ms: f64,
    /// Longest wait.
    pub max_ms: f64,
}

impl Waits {
    /// Records a grant after a wait.
    pub fn enter(&mut self, at_s: u64, waited: Duration) {
        let waited = waited.as_secs_f64() * 1000.0;
        self.entries += 1;
        match self.seconds.iter_mut().rev().find(|second| second.at_s == at_s) {
            Some(second) => {
                second.entries += 1;
                second.mean_ms += (waited - second.mean_ms) / second.entries as f64;
                second.max_ms = second.max_ms.max(waited);
            }
            None => self.seconds.push_back(Second { at_s, entries: 1, mean_ms: waited, max_ms: waited }),
        }
        while self.seconds.front().is_some_and(|first| first.at_s + RETAINED <= at_s) {
            self.seconds.pop_front();
        }
    }

    pub fn entries(&self) -> u64 {
        self.entries
    }

    pub fn until(&self, now_s: u64) -> Vec<Second> {
        self.seconds.iter().filter(|second| second.at_s + RETAINED > now_s).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_longest_of_each_second() {
        let mut waits = Waits::default();
        for (at_s, waited) in [(3, 10), (3, 20), (3, 60), (5, 7)] {
            waits.enter(at_s, Duration::from_millis(waited));
        }
        let seconds = [
            Second { at_s: 3, entries: 3, mean_ms: 30.0, max_ms: 60.0 },
            Second { at_s: 5, entries: 1, mean_ms: 7.0, max_ms: 7.0 },
        ];
        assert_eq!((waits.entries(), waits.until(5)), (4, seconds.to_vec()));
    }

    #[test]
    fn old_seconds_are_dropped_but_still_counted() {
        let mut waits = Waits::default();
        (0..3 * RETAINED).for_each(|at_s| waits.enter(at_s, Duration::ZERO));
        assert_eq!((waits.entries(), waits.seconds.len() as u64), (3 * RETAINED, RETAINED));
        let left: Vec<u64> = waits.until(4 * RETAINED - 2).iter().map(|second| second.at_s).collect();
        assert_eq!(left, [3 * RETAINED - 1]);
    }
}
