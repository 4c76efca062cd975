use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng};

use crate::Span;

/// A random number generator: the same seed gives the same numbers on every machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng(Xoshiro256PlusPlus);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// Creates a stream for one purpose or trial, so that drawing more in one place changes nothing elsewhere.
    /// ```
    /// use peerlock_types::Rng;
    /// assert_eq!(Rng::stream(1, 7), Rng::stream(1, 7));
    /// assert_ne!(Rng::stream(1, 7), Rng::stream(1, 8));
    /// ```
    pub fn stream(seed: u64, number: u64) -> Self {
        Self::new(mix(seed ^ mix(number)))
    }

    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// From 0 (included) to 1 (excluded), with 53 random bits.
    pub fn unit(&mut self) -> f64 {
        unit(self.bits())
    }

    /// Returns a uniformly distributed integer below `bound`.
    ///
    /// # Panics
    ///
    /// Panics if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "no number is below 0");
        // Lemire's method: the high half of the product is unbiased once a few low halves are redrawn.
        let tilted = bound.wrapping_neg() % bound;
        loop {
            let product = u128::from(self.bits()) * u128::from(bound);
            if product as u64 >= tilted {
                return (product >> 64) as u64;
            }
        }
    }

    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Uniform, both bounds included.
    pub fn between(&mut self, low: Span, high: Span) -> Span {
        Span::from_nanos(low.as_nanos() + self.below(high.as_nanos() - low.as_nanos() + 1))
    }

    pub fn exponential(&mut self, mean: Span) -> Span {
        // 1 − u is never 0, so the logarithm is finite.
        Span::from_secs_f64(-libm::log(1.0 - self.unit()) * mean.as_secs_f64())
    }

    /// Standard normal (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - self.unit()));
        radius * libm::cos(core::f64::consts::TAU * self.unit())
    }
}

/// Mixes all bits of `x` (SplitMix64's finaliser).
///
/// Mixing a seed with an object's name gives a number for that object that need not be stored.
pub const fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every published number depends on it.
    #[test]
    fn stream_of_a_seed_is_pinned() {
        let mut rng = Rng::new(1);
        assert_eq!([rng.bits(), rng.bits()], [14971601782005023387, 13781649495232077965]);
    }

    #[test]
    fn below_is_uniform() {
        let mut rng = Rng::new(7);
        let mut found = [0u32; 6];
        for _ in 0..60_000 {
            found[rng.below(6) as usize] += 1;
        }
        assert!(found.iter().all(|n| (9_600..10_400).contains(n)), "{found:?}");
    }

    #[test]
    fn exponential_has_the_requested_mean() {
        let mut rng = Rng::new(3);
        let draws: [f64; 50_000] = core::array::from_fn(|_| rng.exponential(Span::from_secs(10)).as_secs_f64());
        let mean = draws.iter().sum::<f64>() / 50_000.0;
        let variance = draws.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / 50_000.0;
        assert!((mean - 10.0).abs() < 0.15, "{mean}");
        assert!((libm::sqrt(variance) - 10.0).abs() < 0.3, "{variance}");
    }

    #[test]
    fn normal_has_mean_0_and_variance_1() {
        let mut rng = Rng::new(5);
        let draws: [f64; 50_000] = core::array::from_fn(|_| rng.normal());
        let mean = draws.iter().sum::<f64>() / 50_000.0;
        let variance = draws.iter().map(|x| x * x).sum::<f64>() / 50_000.0;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.03, "{mean} {variance}");
    }
}
