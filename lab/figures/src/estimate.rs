//! Confidence intervals.
//!
//! Trials are independent. A mean over trials has Student's 95 % interval, a share of the trials Wilson's, and a
//! percentile that of its per-trial values. The longest wait of all trials has none: it grows with their number.

use crate::figure::Range;
use crate::metric::{Measured, Metric};

/// A measured number and its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub value: f64,
    pub interval: Option<(f64, f64)>,
}

impl Estimate {
    /// Returns the estimate of a metric; `None` if the run has no value.
    pub fn of(metric: Metric, run: &Measured) -> Option<Self> {
        let value = metric.of(run)?;
        let interval = match run.scatter.get(metric.name) {
            Some(scatter) if metric.is_share => Some(wilson(value, scatter.trials)),
            Some(scatter) => {
                let half = student(scatter.trials)? * scatter.deviation / f64::from(scatter.trials).sqrt();
                Some((value - half, value + half))
            }
            None => None,
        };
        Some(Self { value, interval })
    }

    pub fn without_interval(value: f64) -> Self {
        Self { value, interval: None }
    }

    /// Divides by an independent estimate: relative errors add in quadrature. `None` for a division by 0.
    pub fn over(self, other: Self) -> Option<Self> {
        let value = Some(self.value / other.value).filter(|value| value.is_finite())?;
        let relative = |estimate: Self| Some((estimate.interval?.1 - estimate.value) / estimate.value);
        let half = relative(self).zip(relative(other)).map(|(one, two)| value * one.hypot(two));
        let half = half.filter(|half| half.is_finite());
        Some(Self { value, interval: half.map(|half| (value - half, value + half)) })
    }

    /// Returns the bend of three independent numbers: the slope from the second to the third, divided by that from the
    /// first to the second. Errors add in quadrature.
    pub fn bend([(x, from), (y, by), (z, to)]: [(f64, Self); 3]) -> Option<Self> {
        let (first, second, places) = (by.value - from.value, to.value - by.value, (y - x) / (z - y));
        let value = Some(second / first * places).filter(|value| value.is_finite())?;
        let error = |estimate: Self, moves: f64| Some((estimate.interval?.1 - estimate.value) * moves * places);
        let errors = || Some([error(from, second / first.powi(2))?, error(to, 1.0 / first)?]);
        let by = error(by, (first + second) / first.powi(2));
        let half = errors().zip(by).map(|([from, to], by)| from.hypot(by).hypot(to));
        Some(Self { value, interval: half.map(|half| (value - half, value + half)) })
    }

    /// Returns whether the whole interval, or the number if it has none, is in a range.
    pub fn is_within(self, range: Range) -> bool {
        let all = self.all();
        all.from.into_iter().chain(all.to).all(|end| range.has(end))
    }

    /// Returns whether the interval, or the number if it has none, overlaps a range.
    pub fn meets(self, range: Range) -> bool {
        self.all().meets(range)
    }

    fn all(self) -> Range {
        let (low, high) = self.interval.unwrap_or((self.value, self.value));
        Range { from: Some(low), to: Some(high) }
    }
}

/// Returns the half width of the 95 % interval of a mean over so many trials, in standard errors; `None` for one trial.
fn student(trials: u32) -> Option<f64> {
    const TABLE: [f64; 29] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
        2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045,
    ];
    let freedom = trials.checked_sub(2)? as usize; // Index of the degrees of freedom, counted from 1.
    Some(TABLE.get(freedom).copied().unwrap_or(1.96 + 2.4 / f64::from(trials - 1)))
}

/// Returns Wilson's interval of a share of trials; its width is positive even if all trials agree.
fn wilson(share: f64, trials: u32) -> (f64, f64) {
    let (n, z2) = (f64::from(trials.max(1)), 1.96 * 1.96);
    let middle = (share + z2 / (2.0 * n)) / (1.0 + z2 / n);
    let half = 1.96 / (1.0 + z2 / n) * (share * (1.0 - share) / n + z2 / (4.0 * n * n)).sqrt();
    ((middle - half).max(0.0), (middle + half).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn students_quantiles_are_those_of_the_table() {
        for (trials, quantile) in [(2, 12.706), (4, 3.182), (10, 2.262), (30, 2.045), (41, 2.021), (101, 1.984)] {
            let found = student(trials).unwrap_or(0.0);
            assert!((found - quantile).abs() < 0.003, "{trials} trials: {found}");
        }
        assert_eq!((student(1), student(0)), (None, None));
    }

    /// By hand from Wilson's formula: 8 of 10, and none of 20.
    #[test]
    fn a_share_has_an_interval_within_0_and_1() {
        let (low, high) = wilson(0.8, 10);
        assert!((low - 0.490).abs() < 0.001 && (high - 0.943).abs() < 0.001, "{low} {high}");
        let (low, high) = wilson(0.0, 20);
        assert!(low.abs() < 1e-9 && (high - 0.161).abs() < 0.001, "{low} {high}");
        assert_eq!(wilson(1.0, 5).1, 1.0);
    }

    #[test]
    fn a_ratio_is_as_uncertain_as_both_together() {
        let one = Estimate { value: 10.0, interval: Some((9.7, 10.3)) };
        let other = Estimate { value: 5.0, interval: Some((4.8, 5.2)) };
        let Some(Estimate { value, interval: Some((low, high)) }) = one.over(other) else { panic!() };
        assert_eq!(value, 2.0);
        assert!((low - 1.9).abs() < 1e-9 && (high - 2.1).abs() < 1e-9, "{low} {high}");
        assert_eq!(one.over(Estimate::without_interval(5.0)), Some(Estimate::without_interval(2.0)));
        let nothing = Estimate { value: 0.0, interval: Some((-0.5, 0.5)) };
        assert_eq!((one.over(nothing), nothing.over(nothing)), (None, None));
        assert_eq!(nothing.over(one), Some(Estimate::without_interval(0.0)));
    }

    /// From 0 to 1 by 10 and from 1 to 3 by 40 is a bend of 2. By hand: 1 more at the start gives 20/9, at the end
    /// 41/20, in the middle 39/22.
    #[test]
    fn a_bend_is_as_uncertain_as_all_three() {
        let exact = Estimate::without_interval;
        let loose = |value: f64, half: f64| Estimate { value, interval: Some((value - half, value + half)) };
        let bend = |[from, by, to]: [Estimate; 3]| Estimate::bend([(0.0, from), (1.0, by), (3.0, to)]).unwrap();
        assert_eq!(bend([exact(0.0), exact(10.0), exact(50.0)]), exact(2.0));
        for (halves, moved) in [([0.1, 0.0, 0.0], 0.02), ([0.0, 0.1, 0.0], 0.025), ([0.0, 0.0, 0.1], 0.005)] {
            let [from, by, to] = halves;
            let found = bend([loose(0.0, from), loose(10.0, by), loose(50.0, to)]);
            let (low, high) = found.interval.unwrap();
            assert!((high - 2.0 - moved).abs() < 1e-9 && (2.0 - low - moved).abs() < 1e-9, "{halves:?}: {found:?}");
        }
        assert_eq!(bend([loose(0.0, 0.1), exact(10.0), exact(50.0)]), exact(2.0), "one of them is a single trial");
        assert_eq!(Estimate::bend([(0.0, exact(1.0)), (1.0, exact(1.0)), (2.0, exact(2.0))]), None);
    }

    #[test]
    fn estimate_is_in_range_only_with_whole_interval() {
        let estimate = Estimate { value: 10.0, interval: Some((9.0, 11.0)) };
        let to = |to: f64| Range { from: Some(9.0), to: Some(to) };
        assert!(estimate.is_within(to(11.0)) && !estimate.is_within(to(10.5)));
        assert!(Estimate::without_interval(10.0).is_within(to(10.5)));
        let from = |from: f64| Range { from: Some(from), to: None };
        assert!(estimate.meets(from(11.0)) && !estimate.meets(from(11.5)) && estimate.meets(to(9.0)));
        assert!(!Estimate::without_interval(10.0).meets(from(10.5)));
    }
}
