//! The clock that all processes share.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Returns nanoseconds on `CLOCK_MONOTONIC`: the same in every process of a machine, unlike `std::time::Instant`.
pub fn now() -> u64 {
    let now: Duration = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every Linux has this clock").into();
    nanos(now)
}

pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

pub fn until(then: u64) -> Duration {
    Duration::from_nanos(then.saturating_sub(now()))
}
