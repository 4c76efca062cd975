//! The signals that go on to the command.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use nix::sys::signal::Signal;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// Every signal that a person or a system may send to a command and that can be caught. Not among them: what tells a
/// process of its own faults and limits (SIGSEGV, SIGXCPU, …), of its own children and its own use of the terminal
/// (SIGCHLD, SIGTTIN, SIGTTOU), SIGPIPE, which Rust programs ignore, and real-time signals, which have no safe way.
const FORWARDED: [Signal; 15] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGVTALRM,
    Signal::SIGPROF,
    Signal::SIGWINCH,
    Signal::SIGURG,
    Signal::SIGIO,
    Signal::SIGPWR,
    Signal::SIGTSTP,
    Signal::SIGCONT,
];

/// Those of them by which a person or a system asks a process to end. A server has another use for the last one.
const ENDING: [Signal; 4] = [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGHUP];

/// Our own ears for them.
pub struct Signals(Vec<(Signal, Stream)>);

impl Signals {
    /// All that go on to the command. From here on they no longer end this process.
    pub(crate) fn listen() -> io::Result<Self> {
        // An exception: whoever ignores the end of its children never hears how they ended.
        drop(signal(SignalKind::child())?);
        Self::listen_to(&FORWARDED)
    }

    /// Those that ask a process to end, for who has something to do before: before there is a command, or without one.
    ///
    /// # Errors
    /// If the system does not allow it.
    pub fn ending() -> io::Result<Self> {
        Self::listen_to(&ENDING)
    }

    /// The same for a server: by SIGHUP it is told to read its files again.
    ///
    /// # Errors
    /// If the system does not allow it.
    pub fn ending_a_server() -> io::Result<Self> {
        Self::listen_to(&ENDING[..3])
    }

    /// SIGHUP alone.
    ///
    /// # Errors
    /// If the system does not allow it.
    pub fn hangup() -> io::Result<Self> {
        Self::listen_to(&ENDING[3..])
    }

    /// From here on a file that may not grow (`ulimit -f`) is a write that fails, with an error that somebody can be
    /// told. Without ears for it the signal ends this process without a word.
    ///
    /// # Errors
    /// If the system does not allow it.
    pub fn outlive_file_limit() -> io::Result<()> {
        Self::listen_to(&[Signal::SIGXFSZ]).map(drop)
    }

    /// What was ignored when we were started stays ignored, for us and for the command: `nohup peerlock run …` and jobs
    /// that a script starts with `&` rely on it, and a handler of ours would become the default action in the command.
    fn listen_to(signals: &[Signal]) -> io::Result<Self> {
        let ignored = ignored(&std::fs::read_to_string("/proc/self/status")?);
        let heard = signals.iter().copied().filter(|&name| ignored & mask(name) == 0);
        heard.map(|name| Ok((name, signal(SignalKind::from_raw(name as i32))?))).collect::<io::Result<_>>().map(Self)
    }

    /// The number of the next signal that came. Cancel-safe.
    pub async fn number(&mut self) -> u8 {
        // They are below 65.
        self.next().await as u8
    }

    /// The next signal that came.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|cx| {
            let mut came =
                self.0.iter_mut().filter_map(|(name, stream)| stream.poll_recv(cx).is_ready().then_some(*name));
            came.next().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

fn mask(name: Signal) -> u64 {
    1 << (name as i32 - 1)
}

/// The set of ignored signals in the text of `/proc/self/status`; none if it does not say.
fn ignored(status: &str) -> u64 {
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_kernels_words() {
        let table = [
            ("SigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\nSigCgt:\t0\n", 0x1001),
            ("SigIgn:\tnonsense\n", 0),
            ("Name:\tx\n", 0),
        ];
        for (status, set) in table {
            assert_eq!(ignored(status), set, "{status:?}");
        }
        assert_eq!(0x1001, mask(Signal::SIGHUP) | mask(Signal::SIGPIPE));
    }
}
