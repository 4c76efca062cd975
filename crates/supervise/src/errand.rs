//! Helper processes, which execute this program again, since system calls between fork and exec are unsafe in Rust.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use crate::{child, death, guard};

/// Does the work of a helper process, if this is one, and returns the exit code for `main`. Must be the first call in
/// `main`, before any thread is started.
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

/// Prepares a helper process, even if the program's file was replaced or removed.
pub fn send(name: &str, numbers: impl IntoIterator<Item = u32>) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0(name).args(numbers.into_iter().map(|number| number.to_string())).process_group(0);
    command
}
