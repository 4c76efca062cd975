//! Ends this process by the signal that ended the command.
//!
//! At Ctrl-C a shell ends its script only if it receives SIGINT itself and its child dies of SIGINT. Signal handlers
//! cannot be removed without unsafe code, but exec(2) removes them: the process executes this program again, which
//! raises the signal first.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use nix::sys::prctl::set_dumpable;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpid};

pub const NAME: &str = "peerlock-signalled";

const RAISED: [Signal; 2] = [Signal::SIGINT, Signal::SIGQUIT];

/// Dies of a signal of the keyboard. Returns if the signal is another one, or is ignored.
pub fn die(signal: u8, group: bool) {
    if RAISED.iter().any(|raised| *raised as i32 == i32::from(signal)) {
        let numbers = [i32::from(signal), group.into()];
        // Fails only for want of memory.
        let _failed = Command::new("/proc/self/exe").arg0(NAME).args(numbers.map(|number| number.to_string())).exec();
    }
}

/// Raises the signal. Arguments: its number, and whether to send it to the whole process group.
pub fn raise(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let mut number = || args.next()?.to_str()?.parse::<i32>().ok();
    let (Some(number), Some(group)) = (number(), number()) else { return ExitCode::FAILURE };
    // Whether SIGQUIT dumps core is the command's decision, not this process's.
    let _cannot_fail = set_dumpable(false);
    if let Ok(signal) = Signal::try_from(number) {
        let target = if group == 0 { getpid() } else { Pid::from_raw(0) };
        let _cannot_fail = kill(target, signal);
    }
    // Ignored, or this is PID 1 of a container.
    ExitCode::from(u8::try_from(128 + number).unwrap_or(u8::MAX))
}
