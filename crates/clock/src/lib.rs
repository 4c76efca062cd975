//! The clock of leases.
//!
//! A lease is safe as long as the clocks of any two machines run at the same rate within 1 %, suspend included
//! (`crates/registry/src/leases.rs`). No single clock of Linux does:
//!
//! | clock | counts suspend | rate |
//! | --- | --- | --- |
//! | `CLOCK_MONOTONIC` (also `std::time::Instant` and tokio's timers) | no | slewed by NTP, up to 10 % |
//! | `CLOCK_BOOTTIME` | yes | slewed by NTP |
//! | `CLOCK_MONOTONIC_RAW` | no | the hardware counter's |
//!
//! A [`Moment`] is therefore `CLOCK_MONOTONIC_RAW` + (`CLOCK_BOOTTIME` − `CLOCK_MONOTONIC`). The difference is the time
//! in suspend, which the kernel keeps as one number. A moment is the same in all processes of a machine in one time
//! namespace, within 20 µs, because the clocks are read one after the other.
//!
//! The kernel has no timers on that clock. They are set early, and the clock is read again when they expire
//! ([`Moment::timer`], [`Clock::nap`]).

#![allow(missing_docs, reason = "internal: comments say only what the names do not")]

use std::ops::{Add, Sub};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use tokio::time::{Instant, sleep};

/// The longest sleep between two reads of the clock.
///
/// tokio's timers run on `CLOCK_MONOTONIC`, so a resumed machine notices expired leases within this time, or when
/// another event reads the clock. A `timerfd` on `CLOCK_BOOTTIME` would expire at once, but costs a system call
/// whenever the next alarm changes, several times per hand-over. The guard of a command uses one
/// (`peerlock-supervise`).
pub const LONGEST_NAP: Duration = Duration::from_secs(1);

/// Bounds the error of a [`Moment`]. A hundred times the usual duration: the thread was interrupted.
const ENOUGH: Duration = Duration::from_micros(20);

/// The quickest attempt counts.
const READS: usize = 8;

/// The error of a shorter span is at most a tenth of this.
const EXACT: Duration = Duration::from_millis(20);

static LATEST: AtomicU64 = AtomicU64::new(0);

/// A moment on a clock that never goes back and includes time in suspend, until a reboot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Duration);

impl Moment {
    /// Never goes back within a process.
    pub fn now() -> Self {
        let now = Self(moment(kernel)).nanos();
        Self::from_nanos(LATEST.fetch_max(now, Ordering::Relaxed).max(now))
    }

    /// Returns how long after `earlier` this is, or zero.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the nanoseconds since the boot, enough for 584 years.
    pub fn nanos(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }

    pub const fn from_nanos(nanos: u64) -> Self {
        Self(Duration::from_nanos(nanos))
    }

    /// Returns the time on `CLOCK_BOOTTIME` for which to set a kernel timer. The timer may expire before this moment,
    /// and at most 3 ms after it.
    pub fn timer(self) -> Duration {
        // Read first: if the machine suspends between the two reads, the timer expires on resume.
        let kernel_now = kernel(ClockId::CLOCK_BOOTTIME);
        kernel_now + early(self.since(Self::now()))
    }
}

fn kernel(clock: ClockId) -> Duration {
    clock_gettime(clock).expect("every Linux since 2.6.39 has this clock").into()
}

/// `CLOCK_MONOTONIC` is read last, so the result is too small by at most the duration of the reads. If the machine
/// suspends between two reads, the result is that of the moment before or after the suspend.
fn moment(read: impl Fn(ClockId) -> Duration) -> Duration {
    let mut best = (Duration::MAX, Duration::ZERO);
    for _ in 0..READS {
        let before = read(ClockId::CLOCK_MONOTONIC);
        let boot = read(ClockId::CLOCK_BOOTTIME);
        let raw = read(ClockId::CLOCK_MONOTONIC_RAW);
        let after = read(ClockId::CLOCK_MONOTONIC);
        best = best.min((after.saturating_sub(before), (raw + boot).saturating_sub(after)));
        if best.0 <= ENOUGH {
            break;
        }
    }
    best.1
}

/// NTP can slow kernel timers by 10 %, and 0.1 % more for frequency errors (adjtimex(2)): less than an eighth.
fn early(span: Duration) -> Duration {
    if span > EXACT { span - span / 8 } else { span }
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

/// The time in suspend since the boot.
pub fn slept() -> Duration {
    let awake = kernel(ClockId::CLOCK_MONOTONIC);
    kernel(ClockId::CLOCK_BOOTTIME).saturating_sub(awake)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    disciplined: Duration,
    raw: Duration,
}

impl Reading {
    pub fn now() -> Self {
        let (disciplined, raw) = (kernel(ClockId::CLOCK_MONOTONIC), kernel(ClockId::CLOCK_MONOTONIC_RAW));
        Self { disciplined, raw }
    }

    pub const BOOT: Self = Self { disciplined: Duration::ZERO, raw: Duration::ZERO };

    /// Returns the time since `earlier`, without time in suspend.
    pub fn since(self, earlier: Self) -> Duration {
        self.raw.saturating_sub(earlier.raw)
    }

    /// Returns how much faster than the hardware's clock the system's has run since `earlier`. Over 100 ms, the error
    /// is about 1.
    pub fn ppm_since(self, earlier: Self) -> i64 {
        let span = |late: Duration, early: Duration| late.saturating_sub(early).as_nanos() as i128;
        let (disciplined, raw) = (span(self.disciplined, earlier.disciplined), span(self.raw, earlier.raw));
        i64::try_from((disciplined - raw) * 1_000_000 / raw.max(1)).unwrap_or(i64::MAX)
    }
}

#[derive(Clone, Debug, Default)]
pub struct Clock(Option<Arc<Pausable>>);

#[derive(Debug)]
struct Pausable {
    started: (Moment, Instant),
    slept: AtomicU64,
}

impl Clock {
    pub const fn real() -> Self {
        Self(None)
    }

    /// Returns a clock that follows tokio's and can be suspended.
    pub fn pausable() -> Self {
        Self(Some(Arc::new(Pausable { started: (Moment::now(), Instant::now()), slept: AtomicU64::new(0) })))
    }

    pub fn now(&self) -> Moment {
        match &self.0 {
            None => Moment::now(),
            Some(clock) => {
                let (moment, instant) = clock.started;
                moment + instant.elapsed() + Duration::from_nanos(clock.slept.load(Ordering::Relaxed))
            }
        }
    }

    /// Simulates a suspend that ends now: the clock jumps, and timers do not.
    ///
    /// # Panics
    /// If this is the machine's clock.
    pub fn suspend(&self, span: Duration) {
        let clock = self.0.as_ref().expect("only a clock of tests can be put to sleep");
        clock.slept.fetch_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns how long to sleep before reading the clock again. The timer may expire before `then`, and at most 3 ms
    /// after it.
    pub fn nap(&self, then: Moment) -> Duration {
        early(then.since(self.now())).min(LONGEST_NAP)
    }

    /// Waits until `then`. After a suspend it may return up to [`LONGEST_NAP`] late, but never early.
    pub async fn sleep_until(&self, then: Moment) {
        while self.now() < then {
            sleep(self.nap(then)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

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

    struct Machine {
        raw: Cell<Duration>,
        slept: Cell<Duration>,
        rate: u32,
        /// After this many reads of a clock the thread is interrupted for 5 ms.
        interrupted: usize,
        reads: Cell<usize>,
    }

    impl Machine {
        fn new(rate: u32) -> Self {
            let (raw, slept) = (Cell::new(5 * SECOND), Cell::new(7 * SECOND));
            Self { raw, slept, rate, interrupted: usize::MAX, reads: Cell::new(0) }
        }

        fn read(&self, clock: ClockId) -> Duration {
            self.reads.set(self.reads.get() + 1);
            let is_interrupted = self.reads.get().is_multiple_of(self.interrupted);
            let took = if is_interrupted { Duration::from_millis(5) } else { Duration::from_nanos(40) };
            self.raw.set(self.raw.get() + took);
            let system = self.raw.get() * self.rate / 1_000_000;
            match clock {
                ClockId::CLOCK_MONOTONIC_RAW => self.raw.get(),
                ClockId::CLOCK_MONOTONIC => system,
                ClockId::CLOCK_BOOTTIME => system + self.slept.get(),
                other => panic!("{other} is not to be read"),
            }
        }

        fn now(&self) -> Duration {
            self.raw.get() + self.slept.get()
        }

        fn error(&self) -> Duration {
            let started = self.now();
            let moment = moment(|clock| self.read(clock));
            started.saturating_sub(moment).max(moment.saturating_sub(self.now()))
        }
    }

    const RATES: [u32; 7] = [899_500, 916_667, 999_950, 1_000_000, 1_000_050, 1_083_333, 1_100_500];

    #[test]
    fn moment_counts_suspend_and_is_not_slewed_by_ntp() {
        for rate in RATES {
            let machine = Machine::new(rate);
            for (runs, sleeps) in [(0, 0), (15, 0), (0, 100), (360, 3600), (31_536_000, 0)] {
                machine.raw.set(machine.raw.get() + runs * SECOND);
                machine.slept.set(machine.slept.get() + sleeps * SECOND);
                assert!(machine.error() < Duration::from_micros(1), "{rate}, {runs} s: {:?}", machine.error());
            }
        }
    }

    #[test]
    fn moment_of_an_interrupted_thread_is_read_again() {
        for rate in RATES {
            for interrupted in 4..20 {
                let machine = Machine { interrupted, ..Machine::new(rate) };
                let worst = (0..100).map(|_| machine.error()).max().expect("there are some");
                // If each attempt is interrupted, the error is that of the shortest one.
                let most = if interrupted == 4 { Duration::from_micros(5_600) } else { ENOUGH };
                assert!(worst <= most, "{rate}, every {interrupted} reads: {worst:?}");
            }
        }
    }

    #[test]
    fn moment_never_goes_back() {
        let mut last = Moment::now();
        for _ in 0..100_000 {
            let now = Moment::now();
            assert!(now >= last);
            last = now;
        }
    }

    /// A timer is slewed, the clock of leases is not.
    #[test]
    fn timer_is_late_by_little() {
        for rate in RATES {
            for span in [1, 19, 21, 100, 1_000, 30_000, 3_600_000] {
                let span = Duration::from_millis(span);
                let (mut now, mut wakes) = (Duration::ZERO, 0);
                while now < span {
                    now += early(span - now) * 1_000_000 / rate + Duration::from_nanos(1);
                    wakes += 1;
                }
                assert!(now - span < Duration::from_millis(3) && wakes <= 16, "{rate}, {span:?}: {now:?}, {wakes}");
            }
        }
    }

    #[test]
    fn rate_is_that_of_the_system_clock_over_the_hardware_clock() {
        let at = |disciplined, raw| Reading {
            disciplined: Duration::from_micros(disciplined),
            raw: Duration::from_micros(raw),
        };
        let started = at(2_000_000, 1_000_000);
        for (now, ppm) in [
            (at(3_000_000, 2_000_000), 0),
            (at(3_083_333, 2_000_000), 83_333),
            (at(2_916_667, 2_000_000), -83_333),
            (at(2_000_000, 1_000_000), 0),
        ] {
            assert_eq!(now.ppm_since(started), ppm, "{now:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn sleeper_wakes_in_time_or_soon_after_a_resume() {
        let clock = Clock::pausable();
        let (then, started) = (clock.now() + 10 * SECOND, Instant::now());
        clock.sleep_until(then).await;
        assert!(clock.now() >= then && started.elapsed() < 10 * SECOND + Duration::from_millis(10));
        // For nine of the next ten seconds, unnoticed by tokio's timers.
        let (then, started) = (clock.now() + 10 * SECOND, Instant::now());
        let sleeper = tokio::spawn({
            let clock = clock.clone();
            async move { clock.sleep_until(then).await }
        });
        tokio::task::yield_now().await;
        clock.suspend(3600 * SECOND);
        sleeper.await.unwrap();
        assert!(started.elapsed() <= LONGEST_NAP + Duration::from_millis(10), "{:?}", started.elapsed());
    }
}
