use std::ffi::OsString;
use std::fmt;
use std::future::pending;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
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
use crate::death::die;
use crate::group::is_alive;
use crate::guard::Guard;
use crate::lease::{Countdown, Due, OnLost};
use crate::signals::Signals;
use crate::terminal::{OnStop, Terminal, holding_back};

/// The first and the longest interval of checks whether a group is empty. There is no notification, since its members
/// are not children of this process.
const LOOK: Duration = Duration::from_millis(10);
const SELDOM: Duration = Duration::from_millis(200);

/// A command, and what happens to it when its lease expires.
#[derive(Clone, Debug)]
pub struct Job {
    /// The program, which is searched for in the PATH, and its arguments.
    pub command: Vec<OsString>,
    pub env: Vec<(OsString, OsString)>,
    pub on_lost: OnLost,
    pub grace: Duration,
    /// How long other clients wait after the end of the lease, so that killed processes can exit.
    pub slack: Duration,
    /// The connection that the slot belongs to. If the supervisor is killed, it stays open until the command's group is
    /// dead.
    pub connection: Option<watch::Receiver<Arc<OwnedFd>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// 127 if the command was not found, and 126 if it could not be run, after an error message on stderr.
    Exited(u8),
    /// `in_foreground`: the terminal's signals did not reach this process, only the command's group.
    Signalled { signal: u8, in_foreground: bool },
    /// The lease was lost, so the supervisor ended the command.
    Lost,
}

impl Outcome {
    /// Returns the exit code as in a shell; 76 (`EX_PROTOCOL`) if the lease was lost.
    pub fn code(self) -> u8 {
        match self {
            Self::Exited(code) => code,
            Self::Signalled { signal, .. } => 128 + signal,
            Self::Lost => 76,
        }
    }

    /// Ends this process as the command ended, or returns its exit code. If the command died of SIGINT or SIGQUIT,
    /// raises that signal, since a shell ends its script only then. If the command had the terminal, raises it for the
    /// whole process group, as the terminal would have.
    pub fn end(self) -> ExitCode {
        if let Self::Signalled { signal, in_foreground } = self {
            die(signal, in_foreground);
        }
        ExitCode::from(self.code())
    }
}

impl From<ExitStatus> for Outcome {
    fn from(status: ExitStatus) -> Self {
        // Either the signal or the code is present, and both are below 256.
        let byte = |number: i32| u8::try_from(number & 0x7f).unwrap_or(0);
        match status.signal() {
            Some(signal) => Self::Signalled { signal: byte(signal), in_foreground: false },
            None => Self::Exited(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    Asked,
    Killed,
    RunsOn,
    Untouchable(Errno),
    /// Some killed processes still live while other clients may hold the slot.
    Outlives,
    NotStarted,
    LeftBehind,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked => {
                write!(f, "the slot is being lost: the command received SIGTERM, and is killed if it does not end")
            }
            Self::Killed => write!(f, "the slot is lost: the command was killed"),
            Self::RunsOn => write!(f, "the slot is lost and the command continues: others may run at the same time"),
            Self::Untouchable(why) => {
                write!(f, "the slot is lost and the command cannot be stopped ({why}): stop it yourself")
            }
            Self::Outlives => {
                write!(f, "the slot is lost and processes of the command cannot be killed: stop them yourself")
            }
            Self::NotStarted => write!(f, "the slot was lost before the command was started, so it was not started"),
            Self::LeftBehind => write!(
                f,
                "the command has ended, and processes that it started continue without the slot: \
                 if they need it, let the command wait for them (`wait`)"
            ),
        }
    }
}

/// Runs a command while a lease is valid.
///
/// `lease` is the moment at which the command's group must be dead, which renewals move. To revoke the grant, send an
/// earlier moment: `Moment::now() + grace` sends SIGTERM now and SIGKILL then.
///
/// After an error, nothing was started. Dropping this future kills the command (except with [`OnLost::Leave`]).
/// `notify` should write a notice atomically (`eprintln!` does not), since the command may use the same terminal. The
/// program must call [`errand`](crate::errand::errand) first in its `main`.
pub async fn supervise(
    job: &Job,
    mut lease: watch::Receiver<Moment>,
    notify: impl FnMut(Notice),
) -> io::Result<Outcome> {
    let mut signals = Signals::listen()?;
    let mut alarm = Alarm::new()?;
    let end = *lease.borrow_and_update();
    let mut connection = job.connection.clone();
    connection.as_mut().map(watch::Receiver::mark_unchanged);
    let mut run = Supervision::start(job, end, notify).await?;
    let mut ended = None;
    let mut pause = LOOK;
    loop {
        tokio::select! {
            biased;
            event = run.child.event(), if ended.is_none() => match event {
                ChildEvent::Stopped(signal) => run.on_stopped(signal),
                ChildEvent::Ended => ended = Some(run.on_ended()?),
            },
            end = change(&mut lease) => run.on_renewed(end),
            connection = another(&mut connection) => run.notify_guard(Some(&connection)),
            rung = alarm.until(run.lease.next()) => {
                rung?;
                run.on_time();
            }
            signal = signals.next() => run.on_signal(signal),
            () = sleep(pause), if ended.is_some() => pause = (2 * pause).min(SELDOM),
        }
        if let Some(outcome) = ended
            && !run.is_ending()
        {
            return Ok(outcome);
        }
    }
}

async fn change<V: Clone>(update: &mut watch::Receiver<V>) -> V {
    match update.changed().await {
        Ok(()) => update.borrow_and_update().clone(),
        Err(_) => pending().await,
    }
}

async fn another(connection: &mut Option<watch::Receiver<Arc<OwnedFd>>>) -> Arc<OwnedFd> {
    match connection {
        Some(connection) => change(connection).await,
        None => pending().await,
    }
}

fn latest(connection: &Option<watch::Receiver<Arc<OwnedFd>>>) -> io::Result<Option<OwnedFd>> {
    connection.as_ref().map(|connection| connection.borrow().try_clone()).transpose()
}

struct Supervision<T> {
    lease: Countdown,
    guard: Option<Guard>,
    connection: Option<watch::Receiver<Arc<OwnedFd>>>,
    slack: Duration,
    has_started: bool,
    outlives: bool,
    terminal: Option<Terminal>,
    child: Child,
    notify: T,
}

impl<T: FnMut(Notice)> Supervision<T> {
    async fn start(job: &Job, end: Moment, notify: T) -> io::Result<Self> {
        let lease = Countdown::new(job.on_lost, job.grace, end);
        let connection = job.connection.clone();
        let guard = lease.dead_by().map(|_| Guard::start(latest(&connection)?)).transpose()?;
        let mut terminal = Terminal::find();
        let foreground = terminal.as_mut().is_some_and(Terminal::starts_in_foreground);
        let child = Child::start(job, foreground).await?;
        let (slack, has_started, outlives) = (job.slack, true, false);
        let mut run = Self { lease, guard, connection, slack, has_started, outlives, terminal, child, notify };
        run.notify_guard(None);
        // This process may have been frozen, or blocked in writing a message.
        if run.lease.is_late(Moment::now()) {
            run.has_started = false;
            let _waits = run.child.signal(Signal::SIGKILL);
            run.say(Notice::NotStarted);
        } else {
            run.child.go();
        }
        Ok(run)
    }

    fn notify_guard(&mut self, connection: Option<&OwnedFd>) {
        let (Some(guard), Some(end), group) = (&mut self.guard, self.lease.dead_by(), self.child.group()) else {
            return;
        };
        // Another guard runs at the latest after the next renewal. Until then the command dies with this process by its
        // parent-death signal, and this process watches its lease.
        if !guard.notify(group, end, connection)
            && let Ok(mut another) = latest(&self.connection).and_then(Guard::start)
        {
            another.notify(group, end, None);
            *guard = another;
        }
    }

    fn on_renewed(&mut self, end: Moment) {
        self.lease.ends(end);
        self.notify_guard(None);
    }

    fn on_time(&mut self) {
        match self.lease.due(Moment::now()) {
            Some(Due::Ask) => {
                let asked = self.child.signal(Signal::SIGTERM);
                // A stopped process handles SIGTERM only when it is continued.
                let _ended = self.child.signal(Signal::SIGCONT);
                self.say_whether(asked, Notice::Asked);
            }
            Some(Due::Kill) => {
                let killed = self.child.signal(Signal::SIGKILL);
                self.say_whether(killed, Notice::Killed);
            }
            Some(Due::Warn) => self.say(Notice::RunsOn),
            None => {}
        }
    }

    fn say(&mut self, notice: Notice) {
        holding_back(|| (self.notify)(notice));
    }

    fn say_whether(&mut self, done: nix::Result<()>, notice: Notice) {
        match done {
            Ok(()) => self.say(notice),
            Err(Errno::ESRCH) => {} // The group has just exited.
            Err(why) => self.say(Notice::Untouchable(why)),
        }
    }

    /// Forwards a signal, since a terminal signals one group: either the command's or this one.
    fn on_signal(&mut self, signal: Signal) {
        if signal == Signal::SIGCONT
            && let Some(terminal) = &mut self.terminal
        {
            terminal.give(self.child.group());
        }
        let _ended = self.child.signal(signal);
    }

    fn on_stopped(&mut self, signal: Signal) {
        let Some(terminal) = &mut self.terminal else { return };
        match terminal.on_stop(signal) {
            OnStop::StopToo => {
                terminal.take();
                // Stops the whole job: if a script that waits for this process did not stop as well, the prompt would
                // not return. On SIGCONT, `on_signal` continues the command.
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

    /// Handles the exit of the command. If the lease was lost, kills the rest of the group.
    fn on_ended(&mut self) -> io::Result<Outcome> {
        let was_lost = self.lease.is_lost() || !self.has_started;
        // If this process was frozen, the guard has killed the group at the end of the lease.
        let over = self.lease.is_over(Moment::now());
        if over {
            let _gone = self.child.signal(Signal::SIGKILL);
        } else if !was_lost {
            self.guard = None; // Before the PID can be reused.
        }
        let mut outcome = Outcome::from(self.child.reap()?);
        let killed = matches!(outcome, Outcome::Signalled { signal, .. } if signal == Signal::SIGKILL as u8);
        if let Some(terminal) = &mut self.terminal {
            let had_it = terminal.take();
            if let Outcome::Signalled { in_foreground, .. } = &mut outcome {
                *in_foreground = had_it;
            }
            if was_lost || !matches!(outcome, Outcome::Exited(_)) {
                terminal.restore();
            }
        }
        if over && killed {
            self.say(Notice::Killed);
        } else if !over && !was_lost && is_alive(self.child.group()) {
            self.say(Notice::LeftBehind);
        }
        Ok(if was_lost || (over && killed) { Outcome::Lost } else { outcome })
    }

    /// Returns whether members of a group that must end are alive. The exit of this process may free the slot, so it
    /// waits for them until other clients stop waiting.
    fn is_ending(&mut self) -> bool {
        if !self.lease.is_lost() || !is_alive(self.child.group()) {
            return false;
        }
        let now = Moment::now();
        if now >= self.lease.end() + self.slack && !std::mem::replace(&mut self.outlives, true) {
            self.say(Notice::Outlives);
        }
        now < self.lease.granted() + self.slack
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_a_shell() {
        let signalled = |signal| Outcome::Signalled { signal, in_foreground: false };
        let table = [
            (0x0000, Outcome::Exited(0), 0),
            (0x0100, Outcome::Exited(1), 1),
            (0x4c00, Outcome::Exited(76), 76),
            (0xff00, Outcome::Exited(255), 255),
            (0x0009, signalled(9), 137),
            (0x008b, signalled(11), 139), // with a core dump
            (0x0040, signalled(64), 192),
        ];
        for (raw, outcome, code) in table {
            let ended = Outcome::from(ExitStatus::from_raw(raw));
            assert_eq!((ended, ended.code()), (outcome, code), "{raw:#06x}");
        }
        assert_eq!(Outcome::Lost.code(), 76);
    }
}
