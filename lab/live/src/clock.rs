//! The clocks of a run.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use peerlock_types::Time;
use serde::{Deserialize, Serialize};

/// Returns nanoseconds on `CLOCK_MONOTONIC`, which all processes of a machine share.
pub fn now() -> u64 {
    let now: Duration = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every Linux has this clock").into();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pace {
    pub started: u64,
    pub speed: u32,
}

impl Pace {
    pub fn now(self) -> Time {
        self.at(now())
    }

    /// Converts a moment to the run's time; zero before the start.
    pub fn at(self, moment: u64) -> Time {
        Time::from_nanos(moment.saturating_sub(self.started).saturating_mul(self.speed.into()))
    }

    pub fn until(self, then: Time) -> Duration {
        let moment = self.started.saturating_add(then.as_nanos().div_ceil(self.speed.into()));
        Duration::from_nanos(moment.saturating_sub(now()))
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    pub ahead: i64,
    /// The largest error of the offset: half the round trip.
    pub error: u64,
}

impl Reading {
    /// Computes a reading from the own times of request and reply, and the value in between.
    pub fn of(sent: u64, value: u64, received: u64) -> Self {
        let error = received.saturating_sub(sent).div_ceil(2);
        let ahead = i128::from(value) - i128::from(sent) - i128::from(error);
        Self { ahead: i64::try_from(ahead).expect("clock values are below 292 years"), error }
    }

    pub fn convert(self, moment: u64) -> u64 {
        moment.saturating_add_signed(self.ahead)
    }

    pub fn error_by(self, later: Self) -> u64 {
        self.error + later.error + self.ahead.abs_diff(later.ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pace_scales_time() {
        let pace = Pace { started: 1_000, speed: 100 };
        assert_eq!(pace.at(0), Time::ZERO);
        assert_eq!(pace.at(1_000), Time::ZERO);
        assert_eq!(pace.at(1_010), Time::from_nanos(1_000));
        assert_eq!(pace.until(Time::ZERO), Duration::ZERO, "a past time needs no wait");
        let later = Pace { started: now() + 60_000_000_000, speed: 2 };
        assert!(later.until(Time::from_nanos(20)) > Duration::from_secs(59));
    }

    #[test]
    fn clock_reading_error_is_half_a_round_trip() {
        let reading = Reading::of(1_000, 5_100, 1_200);
        assert_eq!(reading, Reading { ahead: 4_000, error: 100 });
        assert_eq!(reading.convert(2_000), 6_000);
        let behind = Reading::of(9_000, 500, 9_400);
        assert_eq!(behind, Reading { ahead: -8_700, error: 200 });
        assert_eq!(behind.convert(10_000), 1_300);
        assert_eq!(reading.error_by(Reading { ahead: 3_950, error: 20 }), 170);
    }
}
