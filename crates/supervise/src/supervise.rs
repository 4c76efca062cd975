//! One loop from the command's start to its end.

use std::ffi::OsString;
use std::fmt;
use std::future::pending;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use peerlock_clock::Moment;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::child::{Child, ChildEvent};
use crate::clock::Alarm;
use crate::guard::Guard;
use crate::lease::{Countdown, Due, OnLost};
use crate::signals::Signals;
use crate::terminal::{OnStop, Terminal, holding_back};

/// How often we look whether a group that was asked to end has done so. Nobody tells: they are not our children.
const LOOK: Duration = Duration::from_millis(10);

/// What to run, and what happens to it when the lease runs out.
#[derive(Clone, Debug)]
pub struct Job {
    /// The program, looked for in the PATH, and its arguments.
    pub command: Vec<OsString>,
    /// What it finds in its environment, besides our own.
    pub env: Vec<(OsString, OsString)>,
    /// What happens when the grant is lost.
    pub on_lost: OnLost,
    /// How long before the lease's end that is.
    pub grace: Duration,
    /// What stands for the slot while it is open, such as the connection to an agent, as it may change. If we are
    /// killed, it is closed when nothing of the command is alive any more, and not before.
    pub connection: Option<watch::Receiver<Arc<OwnedFd>>>,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// With a code of its own. 127 if there was no such program, 126 if it could not be run; a line on stderr has
    /// said so, as in a shell.
    Exited(u8),
    /// By a signal.
    Signalled(u8),
    /// By us, because the lease ran out.
    Lost,
}

impl Outcome {
    /// The exit code: the command's own, 128 + n after signal n as in a shell, 76 (`EX_PROTOCOL`) if the lease was
    /// lost.
    pub fn code(self) -> u8 {
        match self {
            Self::Exited(code) => code,
            Self::Signalled(signal) => 128 + signal,
            Self::Lost => 76,
        }
    }
}

impl From<ExitStatus> for Outcome {
    fn from(status: ExitStatus) -> Self {
        // An end has either, and both are below 256 (signals below 65).
        let byte = |number: i32| u8::try_from(number & 0x7f).unwrap_or(0);
        match status.signal() {
            Some(signal) => Self::Signalled(byte(signal)),
            None => Self::Exited(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)),
        }
    }
}

/// What a person should hear while it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The lease is running out: the command was asked to end.
    Asked,
    /// The lease is over: the command was killed.
    Killed,
    /// The lease is over, and the command runs on as it was wished.
    RunsOn,
    /// The command cannot be stopped by us.
    Untouchable(Errno),
    /// The command has ended, and processes that it has started run on.
    LeftBehind,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked => {
                write!(f, "the slot is being lost: the command was asked to end, and is killed if it does not")
            }
            Self::Killed => write!(f, "the slot is lost: the command was killed"),
            Self::RunsOn => write!(f, "the slot is lost and the command runs on: others may run at the same time"),
            Self::Untouchable(why) => {
                write!(f, "the slot is lost and the command cannot be stopped ({why}): stop it yourself")
            }
            Self::LeftBehind => write!(
                f,
                "the command has ended and has left processes that run without the slot: \
                 if they need it, let the command wait for them (`wait`)"
            ),
        }
    }
}

/// Runs a command while a lease stands.
///
/// `lease` is the moment by which nothing of the command may be alive; each renewal moves it. If the grant is taken
/// away before its time, send an earlier one: `Moment::now() + grace` asks the command to end and kills it then,
/// `Moment::now()` kills it. A sender that is dropped renews no more.
///
/// The error is that nothing could be started. If this future is dropped, the command is killed (except
/// [`OnLost::Leave`]). `tell` should write a notice in one piece (`eprintln!` does not): the command may be writing to
/// the same terminal. The program must call [`errand`](crate::errand::errand) first in its `main`.
pub async fn supervise(job: &Job, mut lease: watch::Receiver<Moment>, tell: impl FnMut(Notice)) -> io::Result<Outcome> {
    let mut signals = Signals::listen()?;
    let mut alarm = Alarm::new()?;
    let end = *lease.borrow_and_update();
    let mut connection = job.connection.clone();
    let first = connection.as_mut().map(|connection| connection.borrow_and_update().try_clone()).transpose()?;
    let mut run = Supervision::start(job, end, first, tell).await?;
    let mut ended = None;
    loop {
        tokio::select! {
            biased;
            event = run.child.event(), if ended.is_none() => match event {
                ChildEvent::Stopped(signal) => run.on_stopped(signal),
                ChildEvent::Ended => ended = Some(run.on_ended()?),
            },
            end = change(&mut lease) => run.on_renewed(end),
            connection = another(&mut connection) => run.tell_guard(Some(&connection)),
            rung = alarm.until(run.lease.next()) => {
                rung?;
                run.on_time();
            }
            signal = signals.next() => run.on_signal(signal),
            () = sleep(LOOK), if ended.is_some() => {}
        }
        if let Some(outcome) = ended
            && !run.is_ending()
        {
            return Ok(outcome);
        }
    }
}

/// What comes next, such as the lease's next end; nothing does if nobody renews it any more.
async fn change<V: Clone>(news: &mut watch::Receiver<V>) -> V {
    match news.changed().await {
        Ok(()) => news.borrow_and_update().clone(),
        Err(_) => pending().await,
    }
}

/// The next connection, if there is anything that could change.
async fn another(connection: &mut Option<watch::Receiver<Arc<OwnedFd>>>) -> Arc<OwnedFd> {
    match connection {
        Some(connection) => change(connection).await,
        None => pending().await,
    }
}

/// A command that runs.
struct Supervision<T> {
    lease: Countdown,
    guard: Option<Guard>,
    terminal: Option<Terminal>,
    child: Child,
    tell: T,
}

impl<T: FnMut(Notice)> Supervision<T> {
    async fn start(job: &Job, end: Moment, connection: Option<OwnedFd>, tell: T) -> io::Result<Self> {
        let lease = Countdown::new(job.on_lost, job.grace, end);
        let guard = lease.dead_by().map(|_| Guard::start(connection)).transpose()?;
        let mut terminal = Terminal::find();
        let foreground = terminal.as_mut().is_some_and(Terminal::starts_in_foreground);
        let child = Child::start(job, foreground).await?;
        let mut run = Self { lease, guard, terminal, child, tell };
        run.tell_guard(None);
        run.child.go();
        Ok(run)
    }

    fn tell_guard(&mut self, connection: Option<&OwnedFd>) {
        if let (Some(guard), Some(end)) = (&mut self.guard, self.lease.dead_by()) {
            guard.tell(self.child.group(), end, connection);
        }
    }

    fn on_renewed(&mut self, end: Moment) {
        self.lease.ends(end);
        self.tell_guard(None);
    }

    fn on_time(&mut self) {
        match self.lease.due(Moment::now()) {
            Some(Due::Ask) => {
                self.end_with(Signal::SIGTERM, Notice::Asked);
                // A stopped process does not get it before it is continued.
                let _ended = self.child.signal(Signal::SIGCONT);
            }
            Some(Due::Kill) => self.end_with(Signal::SIGKILL, Notice::Killed),
            Some(Due::Warn) => self.say(Notice::RunsOn),
            None => {}
        }
    }

    /// The command may have the terminal that we write to.
    fn say(&mut self, notice: Notice) {
        holding_back(|| (self.tell)(notice));
    }

    fn end_with(&mut self, signal: Signal, notice: Notice) {
        match self.child.signal(signal) {
            Ok(()) => self.say(notice),
            Err(Errno::ESRCH) => {} // It has just ended by itself.
            Err(why) => self.say(Notice::Untouchable(why)),
        }
    }

    /// A signal that was sent to us is meant for the command. A terminal sends its own to one group: to the command's,
    /// or to ours, never to both.
    fn on_signal(&mut self, signal: Signal) {
        if signal == Signal::SIGCONT
            && let Some(terminal) = &mut self.terminal
        {
            terminal.give(self.child.group());
        }
        // It fails if the command has just ended: then it is too late for signals.
        let _ended = self.child.signal(signal);
    }

    fn on_stopped(&mut self, signal: Signal) {
        let Some(terminal) = &mut self.terminal else { return };
        match terminal.on_stop(signal) {
            OnStop::StopToo => {
                terminal.take();
                // All of the shell's job: a script that waits for us must stop, too, or no prompt comes back. We go on
                // when SIGCONT comes, and `on_signal` hands it to the command.
                let _cannot_fail = kill(Pid::from_raw(0), Signal::SIGSTOP);
            }
            OnStop::Give => {
                terminal.give(self.child.group());
                let _ended = self.child.signal(Signal::SIGCONT);
            }
            OnStop::GoOn => {
                let _ended = self.child.signal(Signal::SIGCONT);
            }
            OnStop::Leave => {}
        }
    }

    /// The command has ended. If the lease was lost, the rest of its group follows; if not, the slot was the
    /// command's, and what it has left behind is its own affair.
    fn on_ended(&mut self) -> io::Result<Outcome> {
        let was_lost = self.lease.is_lost();
        // We may have been frozen. Whoever was alive at the end was killed by the guard.
        let over = self.lease.is_over(Moment::now());
        if over {
            let _gone = self.child.signal(Signal::SIGKILL);
        } else if !was_lost {
            self.guard = None; // Before the command's number can be anybody else's.
        }
        let outcome = Outcome::from(self.child.reap()?);
        let killed = outcome == Outcome::Signalled(Signal::SIGKILL as u8);
        if let Some(terminal) = &mut self.terminal {
            terminal.take();
            if was_lost || !matches!(outcome, Outcome::Exited(_)) {
                terminal.restore();
            }
        }
        if over && killed {
            self.say(Notice::Killed);
        } else if !over && !was_lost && self.child.has_group() {
            self.say(Notice::LeftBehind);
        }
        Ok(if was_lost || (over && killed) { Outcome::Lost } else { outcome })
    }

    /// Whether others of a group that was asked to end still have time to do so.
    fn is_ending(&self) -> bool {
        self.lease.is_lost() && self.lease.next().is_some() && self.child.has_group()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What wait(2) says, and what a shell makes of it.
    #[test]
    fn codes_are_those_of_a_shell() {
        let table = [
            (0x0000, Outcome::Exited(0), 0),
            (0x0100, Outcome::Exited(1), 1),
            (0x4c00, Outcome::Exited(76), 76),
            (0xff00, Outcome::Exited(255), 255),
            (0x0009, Outcome::Signalled(9), 137),
            (0x008b, Outcome::Signalled(11), 139), // with a core dump
            (0x0040, Outcome::Signalled(64), 192),
        ];
        for (raw, outcome, code) in table {
            let ended = Outcome::from(ExitStatus::from_raw(raw));
            assert_eq!((ended, ended.code()), (outcome, code), "{raw:#06x}");
        }
        assert_eq!(Outcome::Lost.code(), 76);
    }
}
