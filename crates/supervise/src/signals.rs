use std::future::poll_fn;
use std::io;
use std::task::Poll;

use nix::sys::signal::Signal;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// All catchable signals that a person or a system may send to a command. Excluded are faults and limits of the process
/// itself (SIGSEGV, SIGXCPU, …), signals about its children and terminal (SIGCHLD, SIGTTIN, SIGTTOU), SIGPIPE, which
/// Rust ignores, and real-time signals, which have no safe API.
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

/// The last one makes a server reload its files.
const ENDING: [Signal; 4] = [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGHUP];

pub struct Signals(Vec<(Signal, Stream)>);

impl Signals {
    /// Handles the forwarded signals, which from here on do not end this process.
    pub(crate) fn listen() -> io::Result<Self> {
        // If SIGCHLD is ignored, the exit status of children is lost.
        drop(signal(SignalKind::child())?);
        Self::listen_to(&FORWARDED)
    }

    pub fn ending() -> io::Result<Self> {
        Self::listen_to(&ENDING)
    }

    /// Like [`ending`](Self::ending), but without SIGHUP.
    pub fn ending_a_server() -> io::Result<Self> {
        Self::listen_to(&ENDING[..3])
    }

    pub fn hangup() -> io::Result<Self> {
        Self::listen_to(&ENDING[3..])
    }

    /// Makes a write beyond the file size limit (`ulimit -f`) fail, instead of ending the process silently.
    pub fn outlive_file_limit() -> io::Result<()> {
        Self::listen_to(&[Signal::SIGXFSZ]).map(drop)
    }

    /// Handles the signals that are not ignored. `nohup peerlock run …` and background jobs of scripts rely on ignored
    /// ones, for which a handler would become the default action in the command.
    fn listen_to(signals: &[Signal]) -> io::Result<Self> {
        let ignored = ignored(&std::fs::read_to_string("/proc/self/status")?);
        let received = signals.iter().copied().filter(|&name| ignored & mask(name) == 0);
        received.map(|name| Ok((name, signal(SignalKind::from_raw(name as i32))?))).collect::<io::Result<_>>().map(Self)
    }

    /// Returns the number of the next signal. Cancel-safe.
    pub async fn number(&mut self) -> u8 {
        // All numbers are below 65.
        self.next().await as u8
    }

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

fn ignored(status: &str) -> u64 {
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_parsed_from_proc_status() {
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
