//! The terminal: who may read from it, and what Ctrl-Z means.
//!
//! The command has a process group of its own, so that all of it can be stopped without stopping ourselves. A terminal
//! sends Ctrl-C to one group, the foreground one, and stops everybody else who reads from it. So the command's group
//! must be put there, as a shell would do it, and the terminal taken back when the command stops or ends.

use std::fs::File;
use std::io::{self, IsTerminal};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::{Pid, getpgrp, getsid, tcgetpgrp, tcsetpgrp};

/// The terminal that this process was started from.
pub struct Terminal {
    tty: File,
    ours: Pid,
    /// How it was before the command: echo, whole lines, and so on.
    modes: Termios,
    /// Whether the command shall have it whenever it is ours to give.
    wanted: bool,
    /// Whether the command has it from us.
    given: bool,
}

/// What to do when the command was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnStop {
    /// We stop with it: the shell sees a stopped job.
    StopToo,
    /// It wants the terminal, and can have it.
    Give,
    /// Nobody could ever continue us: it goes on, as it would without us.
    GoOn,
    /// Whoever has stopped it will continue it. The lease is renewed meanwhile.
    Leave,
}

impl Terminal {
    /// None without a controlling terminal: services, cron, ssh without -t.
    ///
    /// A command that has the keyboard and the screen gets the terminal from the start. Otherwise we are part of a
    /// pipeline: in `peerlock run … -- cmd | less` it is `less` that wants the keyboard. There the command gets the
    /// terminal when it asks for it, that is when it was stopped for using it.
    pub fn find() -> Option<Self> {
        let tty = File::options().read(true).write(true).open("/dev/tty").ok()?;
        let wanted = io::stdin().is_terminal() && io::stdout().is_terminal();
        Some(Self { ours: getpgrp(), modes: tcgetattr(&tty).ok()?, tty, wanted, given: false })
    }

    /// Whether the command shall start in the foreground. It takes the terminal itself, before it is what it will be.
    pub fn starts_in_foreground(&mut self) -> bool {
        self.given = self.wanted && self.is_ours();
        self.given
    }

    /// Gives the terminal to the command, if it wants it and it is ours to give: not if we run in the background.
    pub fn give(&mut self, group: Pid) {
        if self.wanted && self.is_ours() {
            self.given = put_in_foreground(&self.tty, group).is_ok();
        }
    }

    /// Takes it back, if it was given, and returns whether it was.
    pub fn take(&mut self) -> bool {
        let given = std::mem::take(&mut self.given);
        if given {
            // It fails if the terminal has gone away: then there is nothing to take.
            let _gone = put_in_foreground(&self.tty, self.ours);
        }
        given
    }

    /// Undoes what a command that did not end by its own will has done to it.
    pub fn restore(&self) {
        if self.is_ours() {
            let _gone = holding_back(|| tcsetattr(&self.tty, SetArg::TCSADRAIN, &self.modes));
        }
    }

    /// The command was stopped by `signal`.
    pub fn on_stop(&mut self, signal: Signal) -> OnStop {
        let ours = self.given || self.is_ours();
        // Shells give each job a group of its own. Who is in the group of the session's first process has no shell
        // above that could continue it (`docker run -it`, `ssh -t host peerlock run …`).
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

/// The rules, with a terminal at hand: whether it is ours to give, and whether a shell is above us.
fn on_stop(signal: Signal, ours: bool, shell: bool) -> OnStop {
    match signal {
        Signal::SIGTTIN | Signal::SIGTTOU if ours => OnStop::Give,
        _ if shell => OnStop::StopToo,
        // The kernel never stops a group that nobody could continue; but the command's group has us.
        Signal::SIGTSTP => OnStop::GoOn,
        _ => OnStop::Leave,
    }
}

/// In the process that becomes the command: to the foreground, if there is a terminal.
pub fn take_foreground() {
    if let Ok(tty) = File::open("/dev/tty") {
        // It fails if the terminal has gone away: the command will see it, too.
        let _gone = put_in_foreground(&tty, getpgrp());
    }
}

fn put_in_foreground(tty: &File, group: Pid) -> nix::Result<()> {
    holding_back(|| tcsetpgrp(tty, group))
}

/// A process that uses the terminal from the background is stopped by SIGTTOU, unless it blocks that signal meanwhile.
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
    fn what_a_stop_means() {
        use OnStop::{Give, GoOn, Leave, StopToo};
        use Signal::{SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU};
        // (signal, the terminal is ours to give, a shell is above us)
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
