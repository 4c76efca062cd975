//! The machine's own clock counts the time in which it sleeps.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::process::Command;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use peerlock_clock::Moment;

const ASLEEP: Duration = Duration::from_secs(100_000);
/// Set where the test runs itself.
const ASKED: &str = "PEERLOCK_TEST_WHAT_TIME";

/// `CLOCK_MONOTONIC_RAW` and the time in suspend are what counts. The system's clock differs from that by what NTP has
/// corrected since the machine was started.
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

/// In a time namespace of its own a process sees the clock of a machine that has slept: `CLOCK_BOOTTIME` is ahead, and
/// `CLOCK_MONOTONIC` is not. A test cannot put the machine to sleep, and without that both show the same.
#[test]
fn a_machine_that_has_slept_is_that_much_later() {
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
