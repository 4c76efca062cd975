//! The real clock includes time in suspend.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::process::Command;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use peerlock_clock::Moment;

const ASLEEP: Duration = Duration::from_secs(100_000);
/// Set in the child process of a test.
const ASKED: &str = "PEERLOCK_TEST_WHAT_TIME";

/// A moment is `CLOCK_MONOTONIC_RAW` and time in suspend. The system's clock differs by NTP's corrections since the
/// boot.
#[test]
fn moment_follows_the_hardware_clock() {
    let read = |clock| Duration::from(clock_gettime(clock).unwrap());
    let slept = || read(ClockId::CLOCK_BOOTTIME).saturating_sub(read(ClockId::CLOCK_MONOTONIC));
    let before = read(ClockId::CLOCK_MONOTONIC_RAW) + slept();
    let now = Duration::from_nanos(Moment::now().nanos());
    let after = read(ClockId::CLOCK_MONOTONIC_RAW) + slept();
    let error = Duration::from_millis(1);
    assert!(before - error <= now && now <= after + error, "{before:?} {now:?} {after:?}");
}

/// In its own time namespace a process sees the clocks of a machine that was suspended: `CLOCK_BOOTTIME` is ahead of
/// `CLOCK_MONOTONIC`. A test cannot suspend the machine.
#[test]
fn suspended_time_counts() {
    if std::env::var_os(ASKED).is_some() {
        println!("now={}", Moment::now().nanos());
        return;
    }
    let before = Moment::now();
    let asleep = ASLEEP.as_secs().to_string();
    let mut there = Command::new("unshare");
    there.args(["--time", "--fork", "--boottime", &asleep]).arg(std::env::current_exe().unwrap()).arg("--nocapture");
    let output = match there.env(ASKED, "1").output() {
        Ok(output) if output.status.success() => String::from_utf8(output.stdout).unwrap(),
        failed => {
            let is_ci = std::env::var_os("PEERLOCK_CI").is_some() && std::fs::metadata("/proc/self/ns/time").is_ok();
            assert!(!is_ci, "{failed:?}");
            eprintln!("skipped, for it needs root, `unshare` and time namespaces: {failed:?}");
            return;
        }
    };
    let after = Moment::now();
    let now = output.lines().find_map(|line| line.split("now=").nth(1)?.trim().parse().ok()).unwrap();
    let error = Duration::from_millis(1);
    assert!(Moment::from_nanos(now) >= before + ASLEEP - error, "the sleep is not counted: {output}");
    assert!(Moment::from_nanos(now) <= after + ASLEEP + error, "more than the sleep is counted: {output}");
}
