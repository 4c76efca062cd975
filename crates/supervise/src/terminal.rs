//! The terminal: foreground and Ctrl-Z.
//!
//! The command has its own process group, so that it can be stopped without stopping the supervisor. A terminal sends
//! Ctrl-C to the foreground group only, and stops other groups that read from it. The supervisor therefore puts the
//! command's group into the foreground, as a shell would, and takes the terminal back when the command stops or ends.

use std::fs::File;
use std::io::{self, IsTerminal};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::{Pid, getpgrp, getsid, tcgetpgrp, tcsetpgrp};

pub struct Terminal {
    tty: File,
    ours: Pid,
    /// The terminal's modes before the command was started.
    modes: Termios,
    wanted: bool,
    given: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnStop {
    /// Stop this process as well, so that the shell sees a stopped job.
    StopToo,
    /// Give the command the terminal, and continue it.
    Give,
    /// Continue the command, since no shell could continue this process later.
    GoOn,
    /// Leave the command stopped, until the process that stopped it continues it. The lease is renewed meanwhile.
    Leave,
}

impl Terminal {
    /// Returns the controlling terminal; `None` for services, cron and ssh without -t.
    ///
    /// A command whose input and output are the terminal gets it at the start. In a pipeline (`peerlock run … -- cmd |
    /// less`) `less` wants the keyboard, so the command gets the terminal when it is stopped for using it.
    pub fn find() -> Option<Self> {
        let tty = File::options().read(true).write(true).open("/dev/tty").ok()?;
        let wanted = io::stdin().is_terminal() && io::stdout().is_terminal();
        Some(Self { ours: getpgrp(), modes: tcgetattr(&tty).ok()?, tty, wanted, given: false })
    }

    /// Returns whether the command takes the foreground before exec.
    pub fn starts_in_foreground(&mut self) -> bool {
        self.given = self.wanted && self.is_ours();
        self.given
    }

    /// Gives the command the terminal, if it wants it and this job has the foreground.
    pub fn give(&mut self, group: Pid) {
        if self.wanted && self.is_ours() {
            self.given = put_in_foreground(&self.tty, group).is_ok();
        }
    }

    /// Takes the terminal back. Returns whether the command had it.
    pub fn take(&mut self) -> bool {
        let given = std::mem::take(&mut self.given);
        if given {
            let _gone = put_in_foreground(&self.tty, self.ours);
        }
        given
    }

    pub fn restore(&self) {
        if self.is_ours() {
            let _gone = holding_back(|| tcsetattr(&self.tty, SetArg::TCSADRAIN, &self.modes));
        }
    }

    pub fn on_stop(&mut self, signal: Signal) -> OnStop {
        let ours = self.given || self.is_ours();
        // No shell could continue a process in the session leader's group (`docker run -it`, `ssh -t host peerlock run
        // …`).
        let shell = getsid(None).is_ok_and(|session| session != self.ours);
        let what = on_stop(signal, ours, shell);
        self.wanted |= what == OnStop::Give;
        what
    }

    fn is_ours(&self) -> bool {
        tcgetpgrp(&self.tty) == Ok(self.ours)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.take();
    }
}

/// `ours`: this job has the terminal. `shell`: a shell could continue this process.
fn on_stop(signal: Signal, ours: bool, shell: bool) -> OnStop {
    match signal {
        Signal::SIGTTIN | Signal::SIGTTOU if ours => OnStop::Give,
        _ if shell => OnStop::StopToo,
        // The kernel does not stop an orphaned group on SIGTSTP, but the command's group is not orphaned.
        Signal::SIGTSTP => OnStop::GoOn,
        _ => OnStop::Leave,
    }
}

/// Takes the foreground. Called by the process that becomes the command.
pub fn take_foreground() {
    if let Ok(tty) = File::open("/dev/tty") {
        // Fails if the terminal is closed, which the command notices as well.
        let _gone = put_in_foreground(&tty, getpgrp());
    }
}

fn put_in_foreground(tty: &File, group: Pid) -> nix::Result<()> {
    holding_back(|| tcsetpgrp(tty, group))
}

/// Blocks SIGTTOU meanwhile, which stops a background process that writes to the terminal.
pub fn holding_back<R>(use_it: impl FnOnce() -> R) -> R {
    let before = SigSet::from(Signal::SIGTTOU).thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let used = use_it();
    if let Ok(before) = before {
        let _cannot_fail = before.thread_set_mask();
    }
    used
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stop_signal_decides_the_reaction() {
        use OnStop::{Give, GoOn, Leave, StopToo};
        use Signal::{SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU};
        let table = [
            (SIGTSTP, true, true, StopToo),
            (SIGTSTP, false, true, StopToo),
            (SIGTSTP, true, false, GoOn),
            (SIGTSTP, false, false, GoOn),
            (SIGTTIN, true, true, Give),
            (SIGTTOU, true, false, Give),
            (SIGTTIN, false, true, StopToo),
            (SIGTTOU, false, false, Leave),
            (SIGSTOP, true, true, StopToo),
            (SIGSTOP, true, false, Leave),
        ];
        for (signal, ours, shell, what) in table {
            assert_eq!(on_stop(signal, ours, shell), what, "{signal}, ours {ours}, shell {shell}");
        }
    }
}
