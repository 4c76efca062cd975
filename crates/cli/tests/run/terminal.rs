//! The output of `run` on a terminal.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use nix::pty::{OpenptyResult, Winsize, openpty};

use crate::common::{Dir, Running, eventually};

fn terminal() -> OpenptyResult {
    let size = Winsize { ws_row: 25, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
    openpty(Some(&size), None).unwrap()
}

/// Starts a run with standard error on a terminal. Returns the run and the screen.
fn on_a_terminal(dir: &Dir, options: &str) -> (Running, Arc<Mutex<String>>) {
    let pty = terminal();
    let mut command = dir.peerlock(&format!("run {options}"));
    command.stderr(Stdio::from(pty.slave)).env("TERM", "xterm").args(["--", "sh", "-c", "echo started >&2"]);
    let run = Running::start(&mut command);
    drop(command); // Closes its copy of the terminal.
    (run, screen(pty.master.into()))
}

/// Starts a shell script in a session with a terminal of its own. Returns the shell, its keyboard and its screen.
fn script(dir: &Dir, shell: &[&str], lines: &str) -> (Running, File, Arc<Mutex<String>>) {
    let pty = terminal();
    let mut command = dir.in_environment("setsid");
    command.arg("-c").args(shell).args(["-c", lines]).env("TERM", "xterm");
    command.env("PEERLOCK", env!("CARGO_BIN_EXE_peerlock"));
    let end = || Stdio::from(pty.slave.try_clone().unwrap());
    command.stdin(end()).stdout(end()).stderr(end());
    let script = Running::start(&mut command);
    drop(command);
    let keys = File::from(pty.master);
    let screen = screen(keys.try_clone().unwrap());
    (script, keys, screen)
}

fn shows(screen: &Mutex<String>, text: &str) {
    eventually(text, || screen.lock().unwrap().contains(text).then_some(()));
}

fn screen(mut from: File) -> Arc<Mutex<String>> {
    let screen = Arc::new(Mutex::new(String::new()));
    let observed = Arc::clone(&screen);
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            observed.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    });
    screen
}

#[test]
fn position_is_shown_and_cleared_before_the_command() {
    let dir = Dir::new();
    let first = dir.run("backup", &dir.until("go"));
    first.notifies("granted");
    let (mut second, screen) = on_a_terminal(&dir, "backup");
    let text = "peerlock: waiting for backup: next in the queue";
    eventually(text, || screen.lock().unwrap().contains(text).then_some(()));
    for text in ["; waited ", "peerlock: backup is held by "] {
        eventually(text, || screen.lock().unwrap().contains(text).then_some(()));
    }
    dir.touch("go");
    second.ends_with(0);
    let screen = eventually("the command", || {
        let screen = screen.lock().unwrap();
        screen.contains("started").then(|| screen.clone())
    });
    let (before, _) = screen.split_once("started").unwrap();
    assert!(before.ends_with("\r\u{1b}[2K") || before.ends_with("\u{1b}[K") || before.ends_with('\r'), "{before:?}");
    assert!(!screen.contains("agent"), "the first run has started the agent: {screen:?}");
}

#[test]
fn run_alone_prints_how_others_join() {
    let dir = Dir::new();
    let (mut run, screen) = on_a_terminal(&dir, "--listen 127.0.0.1:0 --alone backup");
    run.ends_with(0);
    let screen = eventually("an invitation", || {
        let screen = screen.lock().unwrap();
        screen.contains("started").then(|| screen.clone())
    });
    assert!(screen.contains("peerlock run --join 127.0.0.1:") && screen.contains(" backup -- "), "{screen:?}");
    assert!(!screen.contains("waiting"), "{screen:?}");
}

#[test]
fn start_of_an_agent_is_reported_in_one_line() {
    let dir = Dir::new();
    let (mut run, screen) = on_a_terminal(&dir, "backup");
    run.ends_with(0);
    let screen = eventually("the command", || {
        let screen = screen.lock().unwrap();
        screen.contains("started\r\n").then(|| screen.clone())
    });
    let lines: Vec<&str> = screen.lines().filter(|line| line.contains("started an agent")).collect();
    assert!(lines.len() == 1 && lines[0].contains("agent.log"), "{screen:?}");
}

#[test]
fn ctrl_c_while_waiting_ends_the_script() {
    let dir = Dir::new();
    let mut first = dir.run("backup", &dir.until("go"));
    first.notifies("granted");
    let lines = "for step in 1 2 3; do \"$PEERLOCK\" run backup -- echo step; done; echo after the loop";
    let (mut script, mut keys, screen) = script(&dir, &["bash"], lines);
    shows(&screen, "next in the queue");
    keys.write_all(b"\x03").unwrap();
    let (code, ..) = script.ends();
    let screen = screen.lock().unwrap().clone();
    assert!(code == -2 && !screen.contains("step") && !screen.contains("after"), "{code}: {screen:?}");
    dir.touch("go");
    first.ends_with(0);
}

/// The line would erase the prompt and the typed text once a second.
#[test]
fn waiting_line_is_not_drawn_in_the_background() {
    let dir = Dir::new();
    let mut first = dir.run("backup", &dir.until("go"));
    first.notifies("granted");
    let lines = "set -m; \"$PEERLOCK\" run backup -- echo running & read key; echo now; fg %1 >/dev/null";
    let (mut script, mut keys, observed) = script(&dir, &["bash"], lines);
    eventually("a waiter", || (dir.show("backup")["queue"].as_array()?.len() == 1).then_some(()));
    let (mut second, witness) = on_a_terminal(&dir, "backup");
    shows(&witness, "; waited 2 s");
    assert!(!observed.lock().unwrap().contains("in the queue"), "{:?}", observed.lock().unwrap());
    keys.write_all(b"\n").unwrap();
    shows(&observed, "now");
    shows(&observed, "next in the queue");
    dir.touch("go");
    script.ends_with(0);
    shows(&observed, "running");
    first.ends_with(0);
    second.ends_with(0);
}
