//! `kill -9` of a `run` with a waiter behind it: all processes of its command are dead before the waiter acquires the
//! slot. Other processes occupy all cores, which delays the guard. `ROUNDS=300` repeats it.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::world::{World, rounds, until};

const BUSY: usize = 6;

fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X', 'x']))
}

/// Waits on `hold` with as little delay as possible. Reports when the request is queued, and returns whether this
/// process was still alive at the grant.
fn wait(socket: &Path, pid: u32, queued: &mpsc::Sender<()>) -> bool {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(b"POST /v1/resources/r/hold HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n").unwrap();
    for line in BufReader::new(stream).lines() {
        let line = line.unwrap();
        if line.contains("\"waiting\"") {
            // The receiver is dropped after the first line.
            _ = queued.send(());
        } else if line.contains("\"granted\"") {
            return is_alive(pid);
        }
    }
    panic!("the agent has closed the connection")
}

/// Returns a `run` whose command starts a busy worker without a death signal.
fn holder(socket: &Path, file: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_peerlock"));
    let worker = format!("echo $$ > {0}.new; mv {0}.new {0}; while :; do :; done", file.display());
    command.args(["run", "--ttl", "1h", "--agent"]).arg(socket).args(["r", "--", "sh", "-c"]);
    command.arg("sh -c \"$WORKER\"; true").env("WORKER", worker);
    command
}

#[tokio::test]
async fn killed_run_is_dead_before_the_next_grant() {
    let mut world = World::new(1, Duration::from_secs(60), Duration::ZERO);
    let agent = world.agent(&[]).await;
    let spins = || {
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
        command
    };
    let _busy: Vec<_> = (0..BUSY).map(|_| world.spawn(spins())).collect();
    let file = world.path("pid");
    let (rounds, mut overlaps) = (rounds(5), 0);
    for _ in 0..rounds {
        let (mut run, pid) = loop {
            let mut run = world.spawn(holder(&agent.socket, &file));
            let started = until("the worker", async || match fs::read_to_string(&file) {
                Ok(pid) => Some(pid.trim().parse().ok()),
                Err(_) => run.has_ended().then_some(None),
            });
            if let Some(pid) = started.await {
                break (run, pid);
            }
        };
        fs::remove_file(&file).unwrap();
        let (queued, received) = mpsc::channel();
        let socket = agent.socket.clone();
        let waiter = thread::spawn(move || wait(&socket, pid, &queued));
        until("a queued request", async || received.try_recv().ok()).await;
        run.signal(Signal::SIGKILL);
        overlaps += usize::from(waiter.join().unwrap());
        run.ends().await;
    }
    eprintln!("{rounds} rounds beside {BUSY} busy processes: {overlaps} overlapped");
    assert_eq!(overlaps, 0, "of {rounds}");
}
