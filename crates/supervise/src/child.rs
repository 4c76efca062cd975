//! The command as a process: how it starts, stops and ends.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt;
use std::process::{Child as Process, Command, ExitCode, ExitStatus};
use std::thread;

use nix::errno::Errno;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, getpid, getppid};
use tokio::sync::{mpsc, oneshot};

use crate::errand;
use crate::lease::OnLost;
use crate::supervise::Job;
use crate::terminal;

/// How the process calls itself that becomes the command.
pub const NAME: &str = "peerlock-child";

/// The command was found and could not be run, or was not found: the same numbers that shells use.
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// What the command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildEvent {
    Stopped(Signal),
    /// It has ended. Its number is not free before [`Child::reap`], so that no signal can reach a stranger.
    Ended,
}

/// A command that was started.
pub struct Child {
    process: Process,
    group: Pid,
    /// Whether it shall not outlive its supervision.
    dies: bool,
    events: mpsc::UnboundedReceiver<ChildEvent>,
}

impl Child {
    /// Starts a command in a group of its own, with the terminal if `foreground`.
    ///
    /// It is started and waited for by a thread that lives as long as the command: the death signal that the command
    /// asks for comes when the *thread* ends that has started it (prctl(2)). What is there now is not yet the command:
    /// it waits for [`Child::go`], so that the guard can be told before anything happens.
    pub async fn start(job: &Job, foreground: bool) -> io::Result<Self> {
        let dies = job.on_lost != OnLost::Leave;
        let mut command = errand::send(NAME, [std::process::id(), dies.into(), foreground.into()]);
        command.args(&job.command).envs(job.env.iter().map(|(name, value)| (name, value)));
        let (started, starts) = oneshot::channel();
        let (happened, events) = mpsc::unbounded_channel();
        thread::Builder::new().name("command".into()).spawn(move || {
            let process = command.spawn();
            let id = process.as_ref().ok().map(pid);
            if let Some(id) = id {
                next_event(id); // It waits for us, or could not be started: then `watch` will see its end again.
            }
            // Nobody hears it if the supervision was dropped: then the command's death signal follows.
            if started.send(process).is_ok()
                && let Some(id) = id
            {
                watch(id, &happened);
            }
        })?;
        let process = starts.await.map_err(io::Error::other)??;
        Ok(Self { group: pid(&process), process, dies, events })
    }

    /// Now it becomes the command.
    pub fn go(&self) {
        // It fails if it has ended already.
        let _ended = self.signal(Signal::SIGCONT);
    }

    /// Its process group, which has the number of the command itself.
    pub fn group(&self) -> Pid {
        self.group
    }

    /// What it does next.
    pub async fn event(&mut self) -> ChildEvent {
        // The thread ends after it has told of the end, or if the kernel does not know the command any more.
        self.events.recv().await.unwrap_or(ChildEvent::Ended)
    }

    /// A signal for all of the group.
    pub fn signal(&self, signal: Signal) -> nix::Result<()> {
        killpg(self.group, signal)
    }

    /// How it ended, once it has. Its number is free for others then, unless its group still has members.
    pub fn reap(&mut self) -> io::Result<ExitStatus> {
        self.process.wait()
    }
}

impl Drop for Child {
    /// Whatever ends the supervision ends the command.
    fn drop(&mut self) {
        if self.dies && matches!(self.process.try_wait(), Ok(None)) {
            let _ended = self.signal(Signal::SIGKILL);
        }
    }
}

fn pid(process: &Process) -> Pid {
    Pid::from_raw(process.id().cast_signed())
}

/// Tells what a process does until it has ended, and leaves it to be reaped.
fn watch(id: Pid, happened: &mpsc::UnboundedSender<ChildEvent>) {
    loop {
        let event = next_event(id);
        if happened.send(event).is_err() || event == ChildEvent::Ended {
            return;
        }
    }
}

/// Waits for a process to stop or end.
fn next_event(id: Pid) -> ChildEvent {
    let either = WaitPidFlag::WEXITED | WaitPidFlag::WSTOPPED | WaitPidFlag::WNOWAIT;
    loop {
        match waitid(Id::Pid(id), either) {
            Ok(WaitStatus::Stopped(_, signal)) => {
                // Only looked at so far: this takes it. Nothing there: it was continued in between.
                let _continued = waitid(Id::Pid(id), WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG);
                return ChildEvent::Stopped(signal);
            }
            Err(Errno::EINTR) => {}
            // An error, too: it is what becomes of an end by a real-time signal, which has no name here.
            _ => return ChildEvent::Ended,
        }
    }
}

/// In the new process: its arguments are our number, whether it shall die with us, whether it shall be in the
/// foreground, and the command.
pub fn become_command(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let mut number = || args.next()?.to_str()?.parse::<i32>().ok();
    let (Some(parent), Some(dies), Some(foreground), Some(program)) = (number(), number(), number(), args.next())
    else {
        return ExitCode::from(NOT_EXECUTABLE); // We have written them ourselves.
    };
    // If the parent ended before the signal was asked for, it does not come.
    if dies != 0 && (set_pdeathsig(Signal::SIGKILL).is_err() || getppid() != Pid::from_raw(parent)) {
        return ExitCode::from(NOT_EXECUTABLE);
    }
    if foreground != 0 {
        terminal::take_foreground();
    }
    // Until `Child::go`.
    let _cannot_fail = kill(getpid(), Signal::SIGSTOP);
    let error = Command::new(&program).args(args).exec();
    let (code, hint) = match error.kind() {
        io::ErrorKind::NotFound => (NOT_FOUND, "is it installed, and in the PATH?"),
        _ => (NOT_EXECUTABLE, "is it a program, and may you run it?"),
    };
    // A line that cannot be written must not change the exit code.
    let _lost = writeln!(io::stderr(), "peerlock: cannot run {program:?}: {error}; {hint}");
    ExitCode::from(code)
}
