//! Quorum arithmetic.

use peerlock_types::Span;

/// m votes among n replicas win.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quorum {
    n: u32,
    m: u32,
}

/// The verdict on a candidate by the answers so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It has the votes.
    Won,
    /// It may still get them.
    Open,
    /// It has too few votes even with all outstanding ones.
    Cannot,
}

impl Quorum {
    /// 24 of 32, "a very practical setting" (Sigma, §3).
    pub const DEFAULT: Self = Self { n: 32, m: 24 };

    /// Creates a quorum of `votes` among `replicas`.
    ///
    /// # Panics
    /// If two quorums need not share a replica, or with more than 64 replicas ([`Voters`]).
    pub const fn new(replicas: u32, votes: u32) -> Self {
        assert!(2 * votes > replicas, "two quorums must share a replica");
        assert!(votes <= replicas, "a quorum cannot exceed the number of replicas");
        assert!(replicas <= Voters::MAX, "a set of voters is limited to 64");
        Self { n: replicas, m: votes }
    }

    /// n.
    pub const fn replicas(self) -> u32 {
        self.n
    }

    /// m.
    pub const fn votes(self) -> u32 {
        self.m
    }

    /// 2m − n: the replicas that must forget before two clients hold.
    pub const fn intersection(self) -> u32 {
        2 * self.m - self.n
    }

    /// Returns the verdict after `received` answers, `same` of them votes (Sigma, §4, case 3: j_same + n − j < m).
    pub const fn verdict(self, same: u32, received: u32) -> Verdict {
        if same >= self.m {
            Verdict::Won
        } else if same + self.n - received < self.m {
            Verdict::Cannot
        } else {
            Verdict::Open
        }
    }

    /// The probability that 2m − n of a winner's m voters forget their vote (Sigma, §3 and Figure 2), each with
    /// probability t/T: the time a vote is held over a replica's mean lifetime. *Departure:* the paper prints a sum
    /// from k = 2; its sentence and its figure say 2m − n.
    pub fn broken(self, forgets: f64) -> f64 {
        at_least(self.intersection(), self.m, forgets)
    }

    /// The maximum rate of hand-overs per second (Sigma, Figure 7, dashed lines): one over the mean of the m-th
    /// smallest of n sums of two latencies, each uniform from `low` to `high`.
    pub fn saturation(self, low: Span, high: Span) -> f64 {
        1.0 / self.hand_over(low.as_secs_f64(), high.as_secs_f64())
    }

    /// Integrates the probability that fewer than m sums are below x, by Simpson's rule. In each half of the range the
    /// distribution function is a parabola.
    fn hand_over(self, low: f64, high: f64) -> f64 {
        const STEPS: u32 = 512;
        // In units of the range, the sum is between 0 and 2.
        let below = |x: f64| if x < 1.0 { x * x / 2.0 } else { 1.0 - (2.0 - x) * (2.0 - x) / 2.0 };
        let too_few = |x: f64| 1.0 - at_least(self.m, self.n, below(x));
        let simpson = |from: f64| {
            let h = 1.0 / f64::from(STEPS);
            let weight = |i| if i == 0 || i == STEPS { 1.0 } else { f64::from(2 + 2 * (i % 2)) };
            (0..=STEPS).map(|i| weight(i) * too_few(from + h * f64::from(i))).sum::<f64>() * h / 3.0
        };
        2.0 * low + (high - low) * (simpson(0.0) + simpson(1.0))
    }
}

impl Default for Quorum {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Returns the probability of `least` or more successes, exact to about thirteen digits.
fn at_least(least: u32, tries: u32, p: f64) -> f64 {
    if p <= 0.0 || p >= 1.0 {
        return if p <= 0.0 && least > 0 { 0.0 } else { 1.0 };
    }
    let ln_factorial = |k: u32| libm::lgamma(f64::from(k) + 1.0);
    let term = |k: u32| {
        let ln_choose = ln_factorial(tries) - ln_factorial(k) - ln_factorial(tries - k);
        libm::exp(ln_choose + f64::from(k) * libm::log(p) + f64::from(tries - k) * libm::log1p(-p))
    };
    // The smallest terms first, if `least` is above the mean.
    (least..=tries).rev().map(term).sum::<f64>().min(1.0)
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Voters(u64);

impl Voters {
    pub const MAX: u32 = u64::BITS;
    pub const NONE: Self = Self(0);

    /// Returns whether the replica is new.
    pub fn insert(&mut self, replica: u32) -> bool {
        let is_new = !self.contains(replica);
        self.0 |= 1 << replica;
        is_new
    }

    pub fn remove(&mut self, replica: u32) {
        self.0 &= !(1 << replica);
    }

    pub const fn contains(self, replica: u32) -> bool {
        self.0 & (1 << replica) != 0
    }

    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub fn iter(self) -> impl Iterator<Item = u32> {
        let mut rest = self.0;
        core::iter::from_fn(move || {
            let first = (rest != 0).then(|| rest.trailing_zeros())?;
            rest &= rest - 1;
            Some(first)
        })
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    /// §4: the three outcomes of a count.
    #[test]
    fn verdict_is_won_open_or_cannot() {
        let cases = [
            // n, m, votes for the same, answers so far
            (32, 24, 24, 24, Verdict::Won),
            (32, 24, 23, 24, Verdict::Open), // "Enough responses", but undecided.
            (32, 24, 23, 31, Verdict::Open),
            (32, 24, 23, 32, Verdict::Cannot),
            (32, 24, 0, 8, Verdict::Open),
            (32, 24, 0, 9, Verdict::Cannot),
            (3, 2, 0, 0, Verdict::Open),
            (3, 2, 1, 2, Verdict::Open),
            (3, 2, 1, 3, Verdict::Cannot),
            (3, 2, 2, 2, Verdict::Won),
            (1, 1, 0, 1, Verdict::Cannot),
        ];
        for (n, m, same, received, verdict) in cases {
            assert_eq!(Quorum::new(n, m).verdict(same, received), verdict, "{same} of {received} at {m} of {n}");
        }
    }

    /// §3: k resets are survived with n = 3k + 1 and m = 2k + 1.
    #[test]
    fn two_quorums_share_2m_minus_n() {
        for (n, m, shared) in [(32, 24, 16), (3, 2, 1), (4, 3, 2), (10, 6, 2), (5, 5, 5)] {
            assert_eq!(Quorum::new(n, m).intersection(), shared);
        }
        for k in 1..10 {
            assert_eq!(Quorum::new(3 * k + 1, 2 * k + 1).intersection(), k + 1, "one replica remembers");
        }
    }

    /// Figure 2, T = 10,000 s and t = 10 s, in exact rational arithmetic.
    #[test]
    fn failure_probability_matches_figure_2() {
        let cases = [
            (32, 24, 1e-3, 7.299516064138912e-43),
            (16, 12, 1e-3, 4.9324237456033e-22),
            (8, 6, 1e-3, 1.4976010000000003e-11),
            (4, 3, 1e-3, 2.998e-6),
            (32, 17, 1e-3, 1.3464711530976345e-4),
            (32, 32, 1e-3, 1e-96),
            (10, 6, 1e-3, 1.4960044976005e-5),
            (32, 24, 0.1, 3.3389130510154036e-11),
            (3, 2, 0.01, 0.0199),
            (3, 2, 0.0, 0.0),
            (3, 2, 1.0, 1.0),
        ];
        for (n, m, forgets, expected) in cases {
            let broken = Quorum::new(n, m).broken(forgets);
            assert!((broken - expected).abs() <= expected * 1e-12, "{m} of {n}: {broken:e}, not {expected:e}");
        }
    }

    /// Figure 7's dashed lines. The last rows have a closed form.
    #[test]
    fn saturation_is_one_over_the_mth_of_n_round_trips() {
        let cases = [
            (32, 24, 100, 100, 5.0),
            (32, 24, 50, 150, 4.407492640980314),
            (32, 24, 0, 200, 3.940533608661093),
            (1, 1, 0, 200, 5.0),
            (2, 2, 0, 1000, 1.0 / (1.0 + 7.0 / 30.0)),
        ];
        for (n, m, low, high, expected) in cases {
            let rate = Quorum::new(n, m).saturation(Span::from_millis(low), Span::from_millis(high));
            assert!((rate - expected).abs() < 1e-6, "{m} of {n}, {low}..{high} ms: {rate}, not {expected}");
        }
    }

    #[test]
    fn voters_are_a_set() {
        let mut voters = Voters::NONE;
        assert!(voters.insert(63) && voters.insert(0) && voters.insert(5) && !voters.insert(5));
        assert_eq!(voters.iter().collect::<Vec<_>>(), [0, 5, 63]);
        voters.remove(0);
        assert_eq!((voters.len(), voters.contains(0), voters.is_empty()), (2, false, false));
    }
}
