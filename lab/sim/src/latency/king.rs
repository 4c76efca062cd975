use std::sync::Arc;

use peerlock_types::{PeerId, Rng, Span, mix};

use super::pair_hash;

/// The locations of hosts, in milliseconds of round trip: three discs with blurred edges, for three continents.
const REGIONS: [Region; 3] = [
    Region { share: 0.63, x: 0.0, y: 0.0, spread: 27.0 },
    Region { share: 0.19, x: 142.0, y: 0.0, spread: 28.0 },
    Region { share: 0.18, x: -140.0, y: 114.0, spread: 25.0 },
];

/// The median of the access delays in milliseconds of round trip: at quantile u it is multiplied by u / (1 − u +
/// `ACCESS_LIMIT`).
const ACCESS: f64 = 9.2;

/// Keeps the worst access delay finite: the smaller, the longer the tail.
const ACCESS_LIMIT: f64 = 0.0132;

/// The largest relative deviation of a pair from its distance: routes are not straight lines.
const DETOUR: f32 = 0.30;

const LONGEST: f32 = 800.0;

/// Nanoseconds one way for a millisecond of round trip.
const ONE_WAY: f32 = 500_000.0;

const STREAM: u64 = u64::from_be_bytes(*b"kinghost");

struct Region {
    share: f64,
    x: f64,
    y: f64,
    spread: f64,
}

/// Delays like those between the 1740 name servers of the King data set, for any number of hosts.
///
/// The measured matrix may not be redistributed, so this is a generator. A host has a location on a plane and an access
/// height (the height vectors of Dabek et al., *Vivaldi*, SIGCOMM 2004). A round trip is the distance plus both
/// heights, times a detour hashed from the pair, at most 800 ms. Only the detours violate the triangle inequality.
/// Hosts are drawn in strata, so that 300 hosts already have the tail of 1740.
///
/// Round trips in milliseconds over all pairs, smallest and largest of seeds 1 to 5. A violation is a pair with a
/// shorter path through a third host, counted as a share of all pairs with a third host.
///
/// | | mean | median | p90 | p99 | max | violations |
/// | --- | --- | --- | --- | --- | --- | --- |
/// | published, 1740 hosts | 182 | 160 | 340 | 680 | 800 | 5–8 % |
/// | 1740 hosts | 182–184 | 158–163 | 340–343 | 665–696 | 800 | 6.5–6.7 % |
/// | 300 hosts | 181–185 | 158–163 | 341–349 | 648–689 | 800 | 6.5–6.8 % |
#[derive(Clone, Debug)]
pub struct King {
    hosts: Arc<[Host]>,
    salt: u64,
}

/// In milliseconds of round trip.
#[derive(Clone, Copy, Debug)]
struct Host {
    x: f32,
    y: f32,
    height: f32,
}

impl King {
    pub fn new(hosts: usize, seed: u64) -> Self {
        let mut rng = Rng::stream(seed, STREAM);
        let (places, heights) = (strata(hosts, &mut rng), strata(hosts, &mut rng));
        let hosts = places.into_iter().zip(heights).map(|(place, height)| Host::new(place, height, &mut rng)).collect();
        Self { hosts, salt: mix(seed ^ STREAM) }
    }

    #[inline]
    pub(super) fn delay(&self, from: PeerId, to: PeerId) -> Span {
        let (a, b) = (self.hosts[from.index()], self.hosts[to.index()]);
        let (x, y) = (a.x - b.x, a.y - b.y);
        // The parentheses make the sum the same both ways.
        let straight = (x * x + y * y).sqrt() + (a.height + b.height);
        let round_trip = straight * (1.0 + DETOUR * triangular(pair_hash(self.salt, from, to)));
        Span::from_nanos((round_trip.min(LONGEST) * ONE_WAY) as u64)
    }
}

impl Host {
    /// At these two quantiles of the distributions.
    fn new(mut place: f64, height: f64, rng: &mut Rng) -> Self {
        let mut region = &REGIONS[0];
        for next in &REGIONS[1..] {
            if place < region.share {
                break;
            }
            place -= region.share;
            region = next;
        }
        Self {
            x: (region.x + region.spread * rng.normal()) as f32,
            y: (region.y + region.spread * rng.normal()) as f32,
            height: (ACCESS * height / (1.0 - height + ACCESS_LIMIT)) as f32,
        }
    }
}

/// Draws one number from each n-th of the range from 0 to 1, in random order.
fn strata(n: usize, rng: &mut Rng) -> Vec<f64> {
    let mut strata: Vec<f64> = (0..n).map(|i| (i as f64 + rng.unit()) / n as f64).collect();
    for i in (1..n).rev() {
        strata.swap(i, rng.below(i as u64 + 1) as usize);
    }
    strata
}

/// Returns a number from −1 to 1 with a triangular distribution.
#[inline]
fn triangular(hash: u64) -> f32 {
    const SCALE: f32 = 1.0 / (1u64 << 32) as f32;
    (hash as u32 as f32 + (hash >> 32) as f32) * SCALE - 1.0
}

#[cfg(test)]
mod tests {
    use std::ops::RangeInclusive;

    use super::*;

    struct Statistics {
        mean: f64,
        median: f64,
        p90: f64,
        p99: f64,
        max: f64,
        violations: f64,
    }

    fn statistics(hosts: usize, seed: u64) -> Statistics {
        let king = King::new(hosts, seed);
        let rtt = |a: usize, b: usize| 2e3 * king.delay(PeerId::new(a as u64), PeerId::new(b as u64)).as_secs_f64();
        let mut all: Vec<f64> = (0..hosts).flat_map(|a| (0..a).map(move |b| (a, b))).map(|(a, b)| rtt(a, b)).collect();
        all.sort_by(f64::total_cmp);
        let quantile = |q: f64| all[((all.len() - 1) as f64 * q) as usize];

        let mut rng = Rng::new(seed);
        let mut tried = 0;
        let mut violated = 0;
        while tried < 400_000 {
            let [a, b, via] = [(); 3].map(|()| rng.below(hosts as u64) as usize);
            if a != b && b != via && a != via {
                tried += 1;
                violated += usize::from(rtt(a, b) > rtt(a, via) + rtt(via, b));
            }
        }
        Statistics {
            mean: all.iter().sum::<f64>() / all.len() as f64,
            median: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            max: quantile(1.0),
            violations: violated as f64 / tried as f64,
        }
    }

    /// The allowed relative deviations from the published numbers.
    #[test]
    fn king_matches_published_statistics() {
        for (hosts, mean, median, p90, p99) in
            [(300, 0.03, 0.03, 0.03, 0.06), (700, 0.02, 0.03, 0.02, 0.04), (1740, 0.02, 0.03, 0.02, 0.04)]
        {
            for seed in 1..=5 {
                let found = statistics(hosts, seed);
                let near = |published: f64, by: f64| -> RangeInclusive<f64> {
                    published * (1.0 - by)..=published * (1.0 + by)
                };
                for (name, found, wanted) in [
                    ("mean", found.mean, near(182.0, mean)),
                    ("median", found.median, near(160.0, median)),
                    ("p90", found.p90, near(340.0, p90)),
                    ("p99", found.p99, near(680.0, p99)),
                    ("max", found.max, near(800.0, 0.001)),
                    ("violations", found.violations, 0.06..=0.07),
                ] {
                    assert!(wanted.contains(&found), "{hosts} hosts, seed {seed}: {name} {found}, wanted {wanted:?}");
                }
            }
        }
    }

    #[test]
    fn king_with_100000_hosts_stores_no_pairs() {
        let king = King::new(100_000, 1);
        assert_eq!(size_of_val(&*king.hosts), 1_200_000);
        let mut rng = Rng::new(1);
        for _ in 0..100_000 {
            let [a, b] = [(); 2].map(|()| PeerId::new(rng.below(100_000)));
            assert!(a == b || king.delay(a, b) > Span::ZERO);
            assert!(king.delay(a, b) <= Span::from_millis(400));
        }
    }

    #[test]
    fn strata_hold_one_number_each() {
        let mut numbers = strata(50, &mut Rng::new(4));
        assert!(!numbers.is_sorted());
        numbers.sort_by(f64::total_cmp);
        assert!(numbers.iter().enumerate().all(|(i, u)| (u * 50.0) as usize == i), "{numbers:?}");
    }

    #[test]
    fn detours_are_between_minus_one_and_one() {
        assert_eq!([0, u64::MAX, 1 << 63].map(triangular), [-1.0, 1.0, -0.5]);
    }
}
