use peerlock_types::{Rng, Span, Time};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    offset: Span,
    /// Millionths of its time per true second.
    rate: u64,
}

const TRUE: u64 = 1_000_000;

impl Clock {
    /// Up to `offset` ahead, and up to `ppm` parts per million fast or slow.
    pub fn drawn(rng: &mut Rng, offset: Span, ppm: u64) -> Self {
        Self { offset: rng.between(Span::ZERO, offset), rate: TRUE - ppm + rng.below(2 * ppm + 1) }
    }

    pub fn read(self, now: Time) -> Time {
        let nanos = u128::from(now.as_nanos()) * u128::from(self.rate) / u128::from(TRUE);
        Time::from_nanos(nanos as u64) + self.offset
    }

    /// Rounded up, since no timer fires early.
    pub fn true_length(self, span: Span) -> Span {
        Span::from_nanos((u128::from(span.as_nanos()) * u128::from(TRUE)).div_ceil(u128::from(self.rate)) as u64)
    }

    /// Returns the first moment at which it reads `shows`.
    pub fn when(self, shows: Time) -> Time {
        let nanos = u128::from(shows.since(Time::ZERO + self.offset).as_nanos()) * u128::from(TRUE);
        Time::from_nanos(nanos.div_ceil(u128::from(self.rate)) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_when_returns_first_moment() {
        let rng = &mut Rng::new(1);
        for _ in 0..1000 {
            let clock = Clock::drawn(rng, Span::from_secs(1), 10_000);
            let shows = Time::ZERO + rng.between(Span::from_secs(2), Span::from_secs(100));
            let when = clock.when(shows);
            assert!(clock.read(when) >= shows);
            assert!(clock.read(Time::from_nanos(when.as_nanos() - 1)) < shows);
        }
    }
}
