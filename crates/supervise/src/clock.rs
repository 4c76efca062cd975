//! The clock that leases are measured by, and an alarm on it.
//!
//! Leases end elsewhere while this machine sleeps, so the clock must count that sleep: `CLOCK_BOOTTIME`.
//! `CLOCK_MONOTONIC` (and with it `std::time::Instant` and tokio's timers) stands still in suspend: a laptop that wakes
//! up would think that its lease, long given to somebody else, has its whole time to go.

use std::future::pending;
use std::io;
use std::ops::{Add, Sub};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use tokio::sync::mpsc;

/// A moment on the clock that never goes back and also counts the time a machine sleeps; the same in all processes of
/// a machine until it is started anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Duration);

impl Moment {
    /// The present moment.
    pub fn now() -> Self {
        let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME);
        Self(now.expect("every Linux since 2.6.39 has this clock").into())
    }

    /// How long after `earlier` this is; nothing if it is not.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// Whole nanoseconds since the machine was started: enough for 584 years.
    pub(crate) fn nanos(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }

    pub(crate) fn from_nanos(nanos: u64) -> Self {
        Self(Duration::from_nanos(nanos))
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

/// A timer of the kernel that expires at a moment, or right after the machine or the process wakes up if it was
/// asleep then.
pub struct Timer(TimerFd);

impl Timer {
    pub fn new() -> io::Result<Self> {
        Ok(Self(TimerFd::new(ClockId::CLOCK_BOOTTIME, TimerFlags::TFD_CLOEXEC)?))
    }

    /// Expires at `at` and not before; at once if that has passed.
    pub fn set(&self, at: Moment) -> io::Result<()> {
        // Zero would switch it off, and the kernel counts in signed seconds.
        let at = at.0.clamp(Duration::from_nanos(1), Duration::from_secs(u32::MAX.into()));
        Ok(self.0.set(Expiration::OneShot(TimeSpec::from(at)), TimerSetTimeFlags::TFD_TIMER_ABSTIME)?)
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A timer to be awaited. A thread waits for it, since tokio has no safe way to wait for a file that it does not know.
pub struct Alarm {
    timer: Arc<Timer>,
    rings: Option<mpsc::UnboundedReceiver<()>>,
}

impl Alarm {
    pub fn new() -> io::Result<Self> {
        let timer = Arc::new(Timer::new()?);
        let (ring, rings) = mpsc::unbounded_channel();
        let waits = Arc::clone(&timer);
        let wait = move || while waits.0.wait().is_ok() && ring.send(()).is_ok() {};
        thread::Builder::new().name("alarm".into()).spawn(wait)?;
        Ok(Self { timer, rings: Some(rings) })
    }

    /// Waits until `at`, or for ever.
    pub async fn until(&mut self, at: Option<Moment>) -> io::Result<()> {
        let (Some(at), Some(rings)) = (at, &mut self.rings) else { return pending().await };
        self.timer.set(at)?;
        // A ring may be left from an earlier setting, hence the loop.
        while Moment::now() < at {
            rings.recv().await.ok_or(io::ErrorKind::BrokenPipe)?;
        }
        Ok(())
    }
}

impl Drop for Alarm {
    /// The thread wakes up once more, finds nobody who listens, and ends.
    fn drop(&mut self) {
        self.rings = None;
        let _cannot_fail = self.timer.set(Moment(Duration::ZERO));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_stay_on_their_clock() {
        let now = Moment::now();
        assert_eq!(Moment::from_nanos(now.nanos()), now);
        assert_eq!(now + Duration::from_secs(1) - Duration::from_secs(1), now);
        assert_eq!((now + Duration::from_secs(1)).since(now), Duration::from_secs(1));
        assert_eq!(now.since(now + Duration::from_secs(1)), Duration::ZERO);
        assert_eq!(now - Duration::MAX, Moment::from_nanos(0), "grace may be longer than the machine runs");
        assert_eq!((now + Duration::MAX).nanos(), u64::MAX);
    }

    #[tokio::test]
    async fn an_alarm_rings_also_if_it_is_late_and_never_early() {
        let mut alarm = Alarm::new().unwrap();
        alarm.until(Some(Moment::from_nanos(0))).await.unwrap();
        for _ in 0..3 {
            let at = Moment::now() + Duration::from_millis(2);
            alarm.until(Some(at)).await.unwrap();
            assert!(Moment::now() >= at);
        }
    }
}
