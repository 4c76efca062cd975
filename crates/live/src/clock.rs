//! The one clock of all processes of a run, and the run's own time by it.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use peerlock_base::Time;
use serde::{Deserialize, Serialize};

/// Nanoseconds on `CLOCK_MONOTONIC`: the same in every process of a machine, unlike what `std::time::Instant` shows.
pub fn now() -> u64 {
    let now: Duration = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every Linux has this clock").into();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// When a run began, and how much faster than real its time passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pace {
    pub began: u64,
    pub speed: u32,
}

impl Pace {
    /// How long the run has been going on.
    pub fn now(self) -> Time {
        self.at(now())
    }

    /// The run's time at this moment; zero before it has begun.
    pub fn at(self, moment: u64) -> Time {
        Time::from_nanos(moment.saturating_sub(self.began).saturating_mul(self.speed.into()))
    }

    /// How long it really is until then.
    pub fn until(self, then: Time) -> Duration {
        let moment = self.began.saturating_add(then.as_nanos().div_ceil(self.speed.into()));
        Duration::from_nanos(moment.saturating_sub(now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_as_much_faster_as_was_said() {
        let pace = Pace { began: 1_000, speed: 100 };
        assert_eq!(pace.at(0), Time::ZERO);
        assert_eq!(pace.at(1_000), Time::ZERO);
        assert_eq!(pace.at(1_010), Time::from_nanos(1_000));
        assert_eq!(pace.until(Time::ZERO), Duration::ZERO, "it has passed long ago");
        let later = Pace { began: now() + 60_000_000_000, speed: 2 };
        assert!(later.until(Time::from_nanos(20)) > Duration::from_secs(59));
    }
}
