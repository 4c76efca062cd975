//! One loop from the command's start to its end.

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

/// How soon we look whether a group that was to end has done so, and how seldom in the end. Nobody tells: they are not
/// our children.
const LOOK: Duration = Duration::from_millis(10);
const SELDOM: Duration = Duration::from_millis(200);

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
    /// How much longer than to the lease's end others wait before they come in: time for what was killed to go.
    pub slack: Duration,
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
    /// By a signal that it did not catch.
    Signalled {
        /// The number of the signal.
        signal: u8,
        /// Whether the command had the terminal: then our own group has not received what was typed there.
        in_foreground: bool,
    },
    /// By us, because the lease ran out.
    Lost,
}

impl Outcome {
    /// The exit code: the command's own, 128 + n after signal n as in a shell, 76 (`EX_PROTOCOL`) if the lease was
    /// lost.
    pub fn code(self) -> u8 {
        match self {
            Self::Exited(code) => code,
            Self::Signalled { signal, .. } => 128 + signal,
            Self::Lost => 76,
        }
    }

    /// Ends this process as the command has ended, for a `main` that has nothing else to do. If the command has died of
    /// SIGINT or SIGQUIT, this process does, too: a shell ends its script only then. If the command had the terminal,
    /// all of our process group receives the signal, as it would have from the terminal without us. Otherwise returns
    /// the exit code.
    pub fn end(self) -> ExitCode {
        if let Self::Signalled { signal, in_foreground } = self {
            die(signal, in_foreground);
        }
        ExitCode::from(self.code())
    }
}

impl From<ExitStatus> for Outcome {
    fn from(status: ExitStatus) -> Self {
        // An end has either, and both are below 256 (signals below 65).
        let byte = |number: i32| u8::try_from(number & 0x7f).unwrap_or(0);
        match status.signal() {
            Some(signal) => Self::Signalled { signal: byte(signal), in_foreground: false },
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
    /// The command was killed, and something of it is alive although others may come in.
    Outlives,
    /// There was nothing left of the lease when the command could have started.
    NotStarted,
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
            Self::Outlives => {
                write!(f, "the slot is lost and processes of the command cannot be killed: stop them yourself")
            }
            Self::NotStarted => write!(f, "the slot was lost before the command was started: it was not"),
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
    connection.as_mut().map(watch::Receiver::mark_unchanged);
    let mut run = Supervision::start(job, end, tell).await?;
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
            connection = another(&mut connection) => run.tell_guard(Some(&connection)),
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

/// A copy of the connection as it is now.
fn latest(connection: &Option<watch::Receiver<Arc<OwnedFd>>>) -> io::Result<Option<OwnedFd>> {
    connection.as_ref().map(|connection| connection.borrow().try_clone()).transpose()
}

/// A command that runs.
struct Supervision<T> {
    lease: Countdown,
    guard: Option<Guard>,
    connection: Option<watch::Receiver<Arc<OwnedFd>>>,
    slack: Duration,
    has_begun: bool,
    /// It was said that something of it cannot be killed.
    outlives: bool,
    terminal: Option<Terminal>,
    child: Child,
    tell: T,
}

impl<T: FnMut(Notice)> Supervision<T> {
    async fn start(job: &Job, end: Moment, tell: T) -> io::Result<Self> {
        let lease = Countdown::new(job.on_lost, job.grace, end);
        let connection = job.connection.clone();
        let guard = lease.dead_by().map(|_| Guard::start(latest(&connection)?)).transpose()?;
        let mut terminal = Terminal::find();
        let foreground = terminal.as_mut().is_some_and(Terminal::starts_in_foreground);
        let child = Child::start(job, foreground).await?;
        let (slack, has_begun, outlives) = (job.slack, true, false);
        let mut run = Self { lease, guard, connection, slack, has_begun, outlives, terminal, child, tell };
        run.tell_guard(None);
        // We may have been frozen, or have waited for somebody to read what was said.
        if run.lease.is_late(Moment::now()) {
            run.has_begun = false;
            let _waits = run.child.signal(Signal::SIGKILL);
            run.say(Notice::NotStarted);
        } else {
            run.child.go();
        }
        Ok(run)
    }

    fn tell_guard(&mut self, connection: Option<&OwnedFd>) {
        let (Some(guard), Some(end), group) = (&mut self.guard, self.lease.dead_by(), self.child.group()) else {
            return;
        };
        // Somebody has killed it. Until the next one is there, at the latest with the next renewal, the command dies
        // with us by its own death signal, and we watch its lease.
        if !guard.tell(group, end, connection)
            && let Ok(mut another) = latest(&self.connection).and_then(Guard::start)
        {
            another.tell(group, end, None);
            *guard = another;
        }
    }

    fn on_renewed(&mut self, end: Moment) {
        self.lease.ends(end);
        self.tell_guard(None);
    }

    fn on_time(&mut self) {
        match self.lease.due(Moment::now()) {
            Some(Due::Ask) => {
                let asked = self.child.signal(Signal::SIGTERM);
                // A stopped process does not get it before it is continued.
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

    /// The command may have the terminal that we write to.
    fn say(&mut self, notice: Notice) {
        holding_back(|| (self.tell)(notice));
    }

    fn say_whether(&mut self, done: nix::Result<()>, notice: Notice) {
        match done {
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
        let was_lost = self.lease.is_lost() || !self.has_begun;
        // We may have been frozen. Whoever was alive at the end was killed by the guard.
        let over = self.lease.is_over(Moment::now());
        if over {
            let _gone = self.child.signal(Signal::SIGKILL);
        } else if !was_lost {
            self.guard = None; // Before the command's number can be anybody else's.
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

    /// Whether others of a group that was to end are still there: they have time, or die of SIGKILL, which takes a
    /// moment. Whoever hears that we have ended may let somebody else in; when the lease would have ended anyway others
    /// do not wait for that, nor do we.
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

    /// What wait(2) says, and what a shell makes of it.
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
