//! The other processes that this program can be, started by itself.
//!
//! The guard and the command need system calls between fork and exec, which Rust calls unsafe, or a process of their own. Starting the same
//! program anew is safe code, costs a millisecond or two, and what it does first is ordinary Rust.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use crate::{child, death, guard};

/// Call it first in `main`, before any thread is started: if this process is the guard of a command, is about to become
/// one, or is about to die as one has, that is all that is to be done, and `main` returns what it says.
#[must_use]
pub fn errand() -> Option<ExitCode> {
    let mut args = std::env::args_os();
    match args.next()? {
        name if name == child::NAME => Some(child::become_command(args)),
        name if name == guard::NAME => Some(guard::watch()),
        name if name == death::NAME => Some(death::raise(args)),
        _ => None,
    }
}

/// Starts this very program on an errand, also if its file was replaced or removed since.
pub fn send(name: &str, numbers: impl IntoIterator<Item = u32>) -> Command {
    let mut command = Command::new("/proc/self/exe");
    // The command and the guard each lead a group of their own.
    command.arg0(name).args(numbers.into_iter().map(|number| number.to_string())).process_group(0);
    command
}
