//! The guard: a process of its own that ends the command when we cannot.
//!
//! We may be killed (SIGKILL, out of memory) or frozen (SIGSTOP, Ctrl-Z) while the command runs on; its lease ends all
//! the same. The guard is told when that is. It kills the command's whole group at that moment, or as soon as we are
//! gone, which it sees by the end of its input: the kernel closes our side of the socket, however we died. Only when
//! nothing of the group is left does it end itself, and with it the last copy of the connection that the slot belongs
//! to: whoever waits for the slot comes in after that.
//!
//! ```text
//!   peerlock run ──(stdin: group, end, end, …)──▶ guard ──SIGKILL──▶ the command's group
//!        └───────────────connection──────────────┴──▶ agent
//! ```
//!
//! If the slot goes on at another agent, the guard gets a copy of that connection, too.

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

/// How the guard's process calls itself.
pub const NAME: &str = "peerlock-guard";

/// A message is two numbers of this width.
const WIDTH: usize = size_of::<u64>();

/// How soon the guard looks whether those it has killed are gone, and how seldom in the end: they may be out of its
/// reach, and live for hours.
const LOOK: Duration = Duration::from_millis(1);
const SELDOM: Duration = Duration::from_secs(1);

/// Our end of a guard.
pub struct Guard {
    process: Child,
    socket: OwnedFd,
}

impl Guard {
    /// Starts one that does nothing yet, and ends by itself if we do. It holds this connection open, which it has for
    /// its output and writes nothing to.
    pub fn start(connection: Option<OwnedFd>) -> io::Result<Self> {
        // A pipe could not carry a connection, and messages are to stay whole.
        let (socket, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
            .map_err(io::Error::from)?;
        // It must hold nothing else of ours open: somebody may wait for the end of our output.
        let process = errand::send(NAME, [])
            .current_dir("/")
            .stdin(Stdio::from(theirs))
            .stdout(connection.map_or_else(Stdio::null, Stdio::from))
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { process, socket })
    }

    /// Says whom to kill and when, and gives it a connection to hold open, if there is a new one. What is said later
    /// replaces it, but connections that it has it keeps. Whether it is there to hear it.
    pub fn tell(&mut self, group: Pid, end: Moment, connection: Option<&OwnedFd>) -> bool {
        let group = u64::from(group.as_raw().unsigned_abs()).to_le_bytes();
        let message = [group, end.nanos().to_le_bytes()].concat();
        let connection: Vec<RawFd> = connection.map(OwnedFd::as_raw_fd).into_iter().collect();
        let rights = ControlMessage::ScmRights(&connection);
        let rights = if connection.is_empty() { &[][..] } else { std::slice::from_ref(&rights) };
        // A guard that is frozen must not freeze us when its socket is full. If it was killed there is nobody to read.
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        let sent = sendmsg::<()>(self.socket.as_raw_fd(), &[IoSlice::new(&message)], rights, flags, None);
        !matches!(sent, Err(Errno::EPIPE | Errno::ECONNRESET | Errno::ENOTCONN))
    }
}

impl Drop for Guard {
    /// The guard's work is done: it ends before it can see that its socket is closed.
    fn drop(&mut self) {
        let _gone = self.process.kill();
        let _gone = self.process.wait();
    }
}

/// The guard's whole life.
pub fn watch() -> ExitCode {
    // Whoever wants to end the command sends signals to us, not to the guard; what reaches it was meant for all.
    let deaf = SigSet::all().thread_block();
    match deaf.map_err(io::Error::from).and_then(|()| wait()) {
        Ok(Some(group)) => {
            // No such group: the command has ended by itself.
            let _ended = killpg(group, Signal::SIGKILL);
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

/// Waits for the moment to kill, and says whom.
fn wait() -> io::Result<Option<Pid>> {
    let input = io::stdin();
    let timer = Timer::new()?;
    let mut told: Option<(Pid, Moment)> = None;
    loop {
        let mut fds = [PollFd::new(input.as_fd(), PollFlags::POLLIN), PollFd::new(timer.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::NONE)?;
        // News first: after a freeze, a renewal may lie there that came in time.
        if fds[0].any() != Some(false) {
            match next(&input)? {
                Some(news) => {
                    timer.set(news.1)?;
                    told = Some(news);
                }
                None => return Ok(told.map(|(group, _)| group)),
            }
        } else if let Some((group, end)) = told {
            if Moment::now() >= end {
                return Ok(Some(group));
            }
            timer.set(end)?; // It expires early.
        }
    }
}

/// The next message; none if nobody is there any more to write one. A connection that comes with it stays open for as
/// long as we are there, though nobody here knows it.
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
