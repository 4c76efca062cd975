//! Ends this process by the signal that has ended the command.
//!
//! At Ctrl-C a shell ends its script only if it receives SIGINT itself and its child dies of SIGINT. An exit code of 130
//! says that the child has handled the signal, and the script goes on. Our handlers cannot be removed without unsafe
//! code, but exec(2) removes them: the process becomes this program again, which raises the signal first of all.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use nix::sys::prctl::set_dumpable;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpid};

/// The name of the process that is about to die.
pub const NAME: &str = "peerlock-signalled";

/// The signals of the keyboard that shells treat in this way.
const RAISED: [Signal; 2] = [Signal::SIGINT, Signal::SIGQUIT];

/// Raises the signal for this process, or for all of its group, if it is one of the keyboard's. Returns if it is not,
/// or if the process ignores it.
pub fn die(signal: u8, group: bool) {
    if RAISED.iter().any(|raised| *raised as i32 == i32::from(signal)) {
        let numbers = [i32::from(signal), group.into()];
        // The error is that the kernel has no memory: then there is an exit code.
        let _failed = Command::new("/proc/self/exe").arg0(NAME).args(numbers.map(|number| number.to_string())).exec();
    }
}

/// The rest of the process: its arguments are the signal, and whether all of its group receives it.
pub fn raise(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let mut number = || args.next()?.to_str()?.parse::<i32>().ok();
    let (Some(number), Some(group)) = (number(), number()) else { return ExitCode::FAILURE };
    // SIGQUIT dumps core: the command has done that, if it was wanted.
    let _cannot_fail = set_dumpable(false);
    if let Ok(signal) = Signal::try_from(number) {
        let target = if group == 0 { getpid() } else { Pid::from_raw(0) };
        let _cannot_fail = kill(target, signal);
    }
    // It is ignored, or we are the first process of a container.
    ExitCode::from(u8::try_from(128 + number).unwrap_or(u8::MAX))
}
