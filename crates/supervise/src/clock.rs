//! Alarms on the clock of leases, which also expire right after a suspend.

use std::future::pending;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use peerlock_clock::Moment;
use tokio::sync::mpsc;

/// A timer that expires at a moment or shortly before it; if the machine is suspended then, when it resumes.
pub struct Timer(TimerFd);

impl Timer {
    pub fn new() -> io::Result<Self> {
        Ok(Self(TimerFd::new(ClockId::CLOCK_BOOTTIME, TimerFlags::TFD_CLOEXEC)?))
    }

    /// Arms the timer. It may expire early: NTP slews kernel timers, but not the clock of leases.
    pub fn set(&self, at: Moment) -> io::Result<()> {
        // Zero would disarm the timer, and the kernel counts in signed seconds.
        let at = at.timer().clamp(Duration::from_nanos(1), Duration::from_secs(u32::MAX.into()));
        Ok(self.0.set(Expiration::OneShot(TimeSpec::from(at)), TimerSetTimeFlags::TFD_TIMER_ABSTIME)?)
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// An async timer. A thread waits for it, since tokio offers no safe way to wait for a foreign file descriptor.
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

    pub async fn until(&mut self, at: Option<Moment>) -> io::Result<()> {
        let (Some(at), Some(rings)) = (at, &mut self.rings) else { return pending().await };
        // The timer may expire early, and a notification of an earlier setting may be left.
        while Moment::now() < at {
            self.timer.set(at)?;
            rings.recv().await.ok_or(io::ErrorKind::BrokenPipe)?;
        }
        Ok(())
    }
}

impl Drop for Alarm {
    /// Wakes the thread, which ends when it finds no receiver.
    fn drop(&mut self) {
        self.rings = None;
        let _cannot_fail = self.timer.set(Moment::from_nanos(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
