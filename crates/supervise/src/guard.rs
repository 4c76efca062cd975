//! The guard: a separate process that kills the command when the supervisor cannot.
//!
//! The supervisor may be killed or frozen while the command runs on and its lease expires. The guard kills the
//! command's group at that moment, or when the supervisor's end of the socket is closed. It exits when the group is
//! empty, which closes the last copy of the connection that the slot belongs to. The next waiter acquires the slot
//! after that.
//!
//! ```text
//!   peerlock run ──(stdin: group, end, end, …)──▶ guard ──SIGKILL──▶ the command's group
//!        └───────────────connection──────────────┴──▶ agent
//! ```

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd, RawFd};
use std::process::{Child, ExitCode, Stdio};
use std::thread::sleep;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, recvmsg, sendmsg, socketpair,
};
use nix::unistd::Pid;
use peerlock_clock::Moment;

use crate::clock::Timer;
use crate::errand;
use crate::group::is_alive;

pub const NAME: &str = "peerlock-guard";

const WIDTH: usize = size_of::<u64>();

/// The first and the longest interval of checks whether the group is empty. A member that cannot be killed may live for
/// hours.
const LOOK: Duration = Duration::from_millis(1);
const SELDOM: Duration = Duration::from_secs(1);

pub struct Guard {
    process: Child,
    socket: OwnedFd,
}

impl Guard {
    /// Starts a guard without a task. It keeps `connection` open as its unused standard output.
    pub fn start(connection: Option<OwnedFd>) -> io::Result<Self> {
        // A pipe could not carry a connection, or preserve the boundaries of messages.
        let (socket, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
            .map_err(io::Error::from)?;
        // The guard must not inherit the supervisor's output, for whose end other processes may wait.
        let process = errand::send(NAME, [])
            .current_dir("/")
            .stdin(Stdio::from(theirs))
            .stdout(connection.map_or_else(Stdio::null, Stdio::from))
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { process, socket })
    }

    /// Sends the group to kill and the time to kill it. If the slot moves to another agent, also sends the new
    /// connection to keep open. Returns whether the guard is alive.
    pub fn notify(&mut self, group: Pid, end: Moment, connection: Option<&OwnedFd>) -> bool {
        let group = u64::from(group.as_raw().unsigned_abs()).to_le_bytes();
        let message = [group, end.nanos().to_le_bytes()].concat();
        let connection: Vec<RawFd> = connection.map(OwnedFd::as_raw_fd).into_iter().collect();
        let rights = ControlMessage::ScmRights(&connection);
        let rights = if connection.is_empty() { &[][..] } else { std::slice::from_ref(&rights) };
        // A frozen guard must not block the supervisor.
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        let sent = sendmsg::<()>(self.socket.as_raw_fd(), &[IoSlice::new(&message)], rights, flags, None);
        !matches!(sent, Err(Errno::EPIPE | Errno::ECONNRESET | Errno::ENOTCONN))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _gone = self.process.kill();
        let _gone = self.process.wait();
    }
}

pub fn watch() -> ExitCode {
    // Signals that arrive here were sent to all processes, such as by a terminal.
    let deaf = SigSet::all().thread_block();
    match deaf.map_err(io::Error::from).and_then(|()| wait()) {
        Ok(Some(group)) => {
            let _empty = killpg(group, Signal::SIGKILL);
            let mut pause = LOOK;
            while is_alive(group) {
                sleep(pause);
                pause = (2 * pause).min(SELDOM);
            }
            ExitCode::SUCCESS
        }
        Ok(None) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn wait() -> io::Result<Option<Pid>> {
    let input = io::stdin();
    let timer = Timer::new()?;
    let mut notified: Option<(Pid, Moment)> = None;
    loop {
        let mut fds = [PollFd::new(input.as_fd(), PollFlags::POLLIN), PollFd::new(timer.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::NONE)?;
        // After a freeze, a renewal that was sent in time may be unread.
        if fds[0].any() != Some(false) {
            match next(&input)? {
                Some(update) => {
                    timer.set(update.1)?;
                    notified = Some(update);
                }
                None => return Ok(notified.map(|(group, _)| group)),
            }
        } else if let Some((group, end)) = notified {
            if Moment::now() >= end {
                return Ok(Some(group));
            }
            timer.set(end)?; // The timer expires early.
        }
    }
}

/// Returns `None` after the last message. A received connection stays open.
fn next(input: &io::Stdin) -> io::Result<Option<(Pid, Moment)>> {
    let mut message = [0; 2 * WIDTH];
    let mut rights = nix::cmsg_space!([RawFd; 1]);
    let mut parts = [IoSliceMut::new(&mut message)];
    let count = loop {
        match recvmsg::<UnixAddr>(input.as_raw_fd(), &mut parts, Some(&mut rights), MsgFlags::MSG_CMSG_CLOEXEC) {
            Err(Errno::EINTR) => {}
            done => break done?.bytes,
        }
    };
    if count < message.len() {
        return Ok(None);
    }
    let (group, end) = message.split_at(WIDTH);
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("half of the message"));
    let group = i32::try_from(number(group)).map_err(io::Error::other)?;
    Ok(Some((Pid::from_raw(group), Moment::from_nanos(number(end)))))
}
