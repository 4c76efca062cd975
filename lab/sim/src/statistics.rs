//! Computed in integers as far as possible, so that results do not depend on the order of summation.

use peerlock_types::Span;

/// In seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    pub count: u64,
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub max: f64,
    /// The longest less the mean: the paper's *access time spread* (§1).
    pub spread: f64,
}

impl Summary {
    /// Reorders `spans`.
    pub fn of(spans: &mut [Span]) -> Option<Self> {
        let mean = mean(spans)?;
        let max = spans.iter().max()?.as_secs_f64();
        let [p50, p90, p99] = quantiles(spans, [50, 90, 99]);
        Some(Self { count: spans.len() as u64, mean, p50, p90, p99, max, spread: max - mean })
    }
}

pub fn mean(spans: &[Span]) -> Option<f64> {
    let total: u128 = spans.iter().map(|span| u128::from(span.as_nanos())).sum();
    (!spans.is_empty()).then(|| total as f64 / spans.len() as f64 / 1e9)
}

/// Returns, for each of the increasing percentages, the nearest rank in seconds. Reorders `spans`.
///
/// # Panics
/// If `spans` is empty.
pub fn quantiles<const N: usize>(spans: &mut [Span], percents: [usize; N]) -> [f64; N] {
    let (all, mut below) = (spans.len(), 0);
    percents.map(|percent| {
        let rank = (all * percent).div_ceil(100).max(1) - 1;
        let (_, found, _) = spans[below..].select_nth_unstable(rank - below);
        below = rank;
        found.as_secs_f64()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(secs: &[u64]) -> Vec<Span> {
        secs.iter().map(|&secs| Span::from_secs(secs)).collect()
    }

    #[test]
    fn a_summary_of_known_numbers() {
        let mut one_to_hundred = spans(&(1..=100).rev().collect::<Vec<_>>());
        let summary = Summary::of(&mut one_to_hundred).unwrap();
        assert_eq!(summary.count, 100);
        assert_eq!((summary.mean, summary.max, summary.spread), (50.5, 100.0, 49.5));
        assert_eq!((summary.p50, summary.p90, summary.p99), (50.0, 90.0, 99.0));
    }

    #[test]
    fn quantiles_are_observed_values_of_the_nearest_rank() {
        for (values, percent, expected) in [
            (&[7][..], 50, 7.0),
            (&[7], 1, 7.0),
            (&[1, 2], 50, 1.0),
            (&[1, 2], 51, 2.0),
            (&[3, 1, 2], 50, 2.0),
            (&[4, 1, 3, 2], 0, 1.0),
            (&[4, 1, 3, 2], 75, 3.0),
            (&[4, 1, 3, 2], 76, 4.0),
            (&[4, 1, 3, 2], 100, 4.0),
            (&[5, 5, 5, 9], 75, 5.0),
        ] {
            assert_eq!(quantiles(&mut spans(values), [percent]), [expected], "{percent} % of {values:?}");
        }
    }

    #[test]
    fn empty_input_has_no_summary() {
        assert_eq!(Summary::of(&mut []), None);
        assert_eq!(mean(&[]), None);
    }

    #[test]
    fn mean_is_independent_of_order() {
        let values: Vec<Span> = (0..1000).map(|n| Span::from_nanos(n * n * 7919 % 1_000_003)).collect();
        let reversed: Vec<Span> = values.iter().rev().copied().collect();
        assert_eq!(mean(&values), mean(&reversed));
    }
}
