//! The clock that leases are counted by.
//!
//! Leases end elsewhere while this machine sleeps, so the clock must count that sleep: `CLOCK_BOOTTIME`.
//! `CLOCK_MONOTONIC` (and with it `std::time::Instant` and tokio's timers) stands still in suspend: a laptop that wakes
//! up would think that its lease, long given to somebody else, has its whole time to go.
//!
//! A [`Moment`] is a point on that clock, the same in all processes of a machine. A [`Clock`] is what a peer reads: the
//! real one, or one that a test can pause and put to sleep.

use std::ops::{Add, Sub};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use tokio::time::{Instant, sleep};

/// The longest that anybody sleeps without a look at the clock.
///
/// tokio's timers are wake-up calls on `CLOCK_MONOTONIC`: after the machine has slept, what was left of them is still
/// to come. So they are set for a second at most, and a machine that wakes up notices within that second that its
/// leases are over. (It does nothing wrong before: whatever else comes in is handled by the clock, too.) A `timerfd` on
/// `CLOCK_BOOTTIME` would ring at once, but for a system call every time the next alarm changes, which is several times
/// per hand-over; tokio's timers are set without one. A wake-up per second costs an idle peer nothing that can be
/// measured. Who must act at once, such as the guard of a command, has such a timer (`peerlock-supervise`).
pub const LONGEST_NAP: Duration = Duration::from_secs(1);

/// A moment on the clock that never goes back and also counts the time a machine sleeps; the same in all processes of
/// a machine until it is started anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Duration);

impl Moment {
    /// The present moment.
    pub fn now() -> Self {
        let now = clock_gettime(ClockId::CLOCK_BOOTTIME);
        Self(now.expect("every Linux since 2.6.39 has this clock").into())
    }

    /// How long after `earlier` this is; nothing if it is not.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// Whole nanoseconds since the machine was started: enough for 584 years.
    pub fn nanos(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }

    /// The moment this many nanoseconds after the machine was started.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(Duration::from_nanos(nanos))
    }

    /// How long after the machine's start this is, for the kernel's timers.
    pub const fn since_start(self) -> Duration {
        self.0
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span))
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;

    fn sub(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(span))
    }
}

/// How long this machine has slept since it was started: what `CLOCK_BOOTTIME` has counted and `CLOCK_MONOTONIC` has
/// not.
pub fn slept() -> Duration {
    let awake = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every Linux has this clock");
    Moment::now().since_start().saturating_sub(awake.into())
}

/// The clock that a peer reads. Copies are the same clock.
#[derive(Clone, Debug, Default)]
pub struct Clock(Option<Arc<Pausable>>);

/// tokio's clock, and how long the machine is to have slept.
#[derive(Debug)]
struct Pausable {
    began: (Moment, Instant),
    slept: AtomicU64,
}

impl Clock {
    /// The machine's: [`Moment::now`].
    pub const fn real() -> Self {
        Self(None)
    }

    /// For tests: it goes as tokio's clock does, which can be paused, and can be put to sleep.
    pub fn pausable() -> Self {
        Self(Some(Arc::new(Pausable { began: (Moment::now(), Instant::now()), slept: AtomicU64::new(0) })))
    }

    /// The present moment.
    pub fn now(&self) -> Moment {
        match &self.0 {
            None => Moment::now(),
            Some(clock) => {
                let (moment, instant) = clock.began;
                moment + instant.elapsed() + Duration::from_nanos(clock.slept.load(Ordering::Relaxed))
            }
        }
    }

    /// As if the machine had slept for this long until now: the clock jumps, and all timers stand where they stood.
    ///
    /// # Panics
    /// If it is the machine's own clock.
    pub fn suspend(&self, span: Duration) {
        let clock = self.0.as_ref().expect("only a clock of tests can be put to sleep");
        clock.slept.fetch_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// How long to sleep before the clock is looked at again, if the next thing to do is at `then`.
    pub fn nap(&self, then: Moment) -> Duration {
        then.since(self.now()).min(LONGEST_NAP)
    }

    /// Waits until `then`. After a sleep of the machine it may be [that](LONGEST_NAP) much later, and never earlier.
    pub async fn sleep_until(&self, then: Moment) {
        while self.now() < then {
            sleep(self.nap(then)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn moments_stay_on_their_clock() {
        let now = Moment::now();
        assert_eq!(Moment::from_nanos(now.nanos()), now);
        assert_eq!(now + SECOND - SECOND, now);
        assert_eq!((now + SECOND).since(now), SECOND);
        assert_eq!(now.since(now + SECOND), Duration::ZERO);
        assert_eq!(now - Duration::MAX, Moment::from_nanos(0), "grace may be longer than the machine runs");
        assert_eq!((now + Duration::MAX).nanos(), u64::MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn who_sleeps_wakes_up_in_time_or_soon_after_the_machine_does() {
        let clock = Clock::pausable();
        let (then, began) = (clock.now() + 10 * SECOND, Instant::now());
        clock.sleep_until(then).await;
        assert!(clock.now() >= then && began.elapsed() < 10 * SECOND + Duration::from_millis(10));
        // The machine sleeps for nine of the next ten seconds, and tokio's timers do not notice.
        let (then, began) = (clock.now() + 10 * SECOND, Instant::now());
        let sleeper = tokio::spawn({
            let clock = clock.clone();
            async move { clock.sleep_until(then).await }
        });
        tokio::task::yield_now().await;
        clock.suspend(3600 * SECOND);
        sleeper.await.unwrap();
        assert!(began.elapsed() <= LONGEST_NAP + Duration::from_millis(10), "{:?}", began.elapsed());
    }
}
