//! The supervised command's process.

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

pub const NAME: &str = "peerlock-child";

/// Exit codes as in a shell.
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildEvent {
    Stopped(Signal),
    /// Its PID is not reused before [`Child::reap`].
    Ended,
}

pub struct Child {
    process: Process,
    group: Pid,
    dies: bool,
    events: mpsc::UnboundedReceiver<ChildEvent>,
}

impl Child {
    /// Starts a command in its own process group; in the foreground of the terminal if `foreground`.
    ///
    /// A thread of its own starts the command and waits for it, since the parent-death signal is sent when the *thread*
    /// that created the process ends (prctl(2)). The process waits for [`Child::go`], so that the guard knows it first.
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
                next_event(id); // The process has stopped itself, or failed to start.
            }
            // Fails if the supervision was dropped. Then the parent-death signal follows.
            if started.send(process).is_ok()
                && let Some(id) = id
            {
                watch(id, &happened);
            }
        })?;
        let process = starts.await.map_err(io::Error::other)??;
        Ok(Self { group: pid(&process), process, dies, events })
    }

    pub fn go(&self) {
        let _ended = self.signal(Signal::SIGCONT);
    }

    pub fn group(&self) -> Pid {
        self.group
    }

    pub async fn event(&mut self) -> ChildEvent {
        // The thread ends after `Ended`, or if the kernel does not know the process.
        self.events.recv().await.unwrap_or(ChildEvent::Ended)
    }

    pub fn signal(&self, signal: Signal) -> nix::Result<()> {
        killpg(self.group, signal)
    }

    pub fn reap(&mut self) -> io::Result<ExitStatus> {
        self.process.wait()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.dies && matches!(self.process.try_wait(), Ok(None)) {
            let _ended = self.signal(Signal::SIGKILL);
        }
    }
}

fn pid(process: &Process) -> Pid {
    Pid::from_raw(process.id().cast_signed())
}

fn watch(id: Pid, happened: &mpsc::UnboundedSender<ChildEvent>) {
    loop {
        let event = next_event(id);
        if happened.send(event).is_err() || event == ChildEvent::Ended {
            return;
        }
    }
}

fn next_event(id: Pid) -> ChildEvent {
    let either = WaitPidFlag::WEXITED | WaitPidFlag::WSTOPPED | WaitPidFlag::WNOWAIT;
    loop {
        match waitid(Id::Pid(id), either) {
            Ok(WaitStatus::Stopped(_, signal)) => {
                // Consumes the state, which WNOWAIT has only read.
                let _continued = waitid(Id::Pid(id), WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG);
                return ChildEvent::Stopped(signal);
            }
            Err(Errno::EINTR) => {}
            // Includes an error: nix cannot represent an exit by a real-time signal.
            _ => return ChildEvent::Ended,
        }
    }
}

/// Becomes the command. Arguments: the PID of the parent, whether to die with it, whether to take the foreground, and
/// the command.
pub fn become_command(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let mut number = || args.next()?.to_str()?.parse::<i32>().ok();
    let (Some(parent), Some(dies), Some(foreground), Some(program)) = (number(), number(), number(), args.next())
    else {
        return ExitCode::from(NOT_EXECUTABLE); // The supervisor passes valid arguments.
    };
    // If the parent died before `set_pdeathsig`, no signal is sent.
    if dies != 0 && (set_pdeathsig(Signal::SIGKILL).is_err() || getppid() != Pid::from_raw(parent)) {
        return ExitCode::from(NOT_EXECUTABLE);
    }
    if foreground != 0 {
        terminal::take_foreground();
    }
    // Waits for `Child::go`.
    let _cannot_fail = kill(getpid(), Signal::SIGSTOP);
    let error = Command::new(&program).args(args).exec();
    let (code, hint) = match error.kind() {
        io::ErrorKind::NotFound => (NOT_FOUND, "is it installed, and in the PATH?"),
        _ => (NOT_EXECUTABLE, "is it a program, and may you run it?"),
    };
    let _lost = writeln!(io::stderr(), "peerlock: cannot run {program:?}: {error}; {hint}");
    ExitCode::from(code)
}
