//! The one clock of all processes.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Nanoseconds on `CLOCK_MONOTONIC`: the same in every process of a machine, unlike what `std::time::Instant` shows.
pub fn now() -> u64 {
    let now: Duration = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every Linux has this clock").into();
    nanos(now)
}

/// Whole nanoseconds: enough for 584 years.
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// How long it is until then.
pub fn until(then: u64) -> Duration {
    Duration::from_nanos(then.saturating_sub(now()))
}
