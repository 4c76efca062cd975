//! A lost slot: its command is dead before the slot is granted to another client.

use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};

use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use peerlock_http::{App, Endpoint, Listener, serve};
use peerlock_service::memory::Network;
use peerlock_service::{PeerId, Service};

use crate::common::{Dir, Running, eventually, is_gone};

fn sleeps(dir: &Dir, file: &str) -> String {
    format!("echo $$ > {}; exec sleep 1000", dir.path(file).display())
}

/// Returns a script that prints whether the process named in a file is alive. A zombie counts as dead.
fn reports_state_of(dir: &Dir, file: &str) -> String {
    format!(
        "grep -qs '^State:[[:space:]]*[RSDTt]' /proc/$(cat {})/status && echo alive || echo dead",
        dir.path(file).display()
    )
}

impl Running {
    /// Returns the message of the loss, which is printed once, before its consequences, with one of these codes.
    fn lost_reason(&self, codes: &[&str]) -> String {
        let notified = |line: &str| {
            let object = serde_json::from_str::<serde_json::Value>(line).ok()?;
            Some((object.get("lost")?.as_str()?.to_owned(), object["why"].as_str()?.to_owned()))
        };
        let (message, why) = self.line(notified);
        assert!(codes.contains(&why.as_str()), "{why}: {message}");
        let lines = self.stderr();
        assert_eq!(lines.lines().filter_map(notified).count(), 1, "{lines}");
        let consequence = lines.find("\"notice\"").unwrap_or(lines.len());
        assert!(lines.find("\"lost\"") < Some(consequence), "{lines}");
        message
    }
}

fn guard_of(run: &Running) -> Pid {
    let is_guard = |pid: &str| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let name = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse().ok());
        parent == Some(run.pid().as_raw()) && name.starts_with("peerlock-guard")
    };
    let processes = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.file_name());
    let guard = processes.filter_map(|pid| pid.into_string().ok()).find(|pid| is_guard(pid)).expect("a guard");
    Pid::from_raw(guard.parse().unwrap())
}

/// The command has a death signal. Its descendants are killed by the guard, perhaps later.
#[test]
fn slot_of_killed_run_is_free_after_all_its_processes() {
    let dir = Dir::new();
    let (_agent, _) = dir.agent("");
    // Gives the stopped orphan another parent: the kernel continues it if its process group becomes orphaned.
    set_child_subreaper(true).unwrap();
    let worker = format!("sleep 1000 >/dev/null 2>&1 & echo $! > {}; wait", dir.path("pid").display());
    let mut first = dir.run("--ttl 1h r", &worker);
    let pid = dir.written("pid");
    let mut second = dir.run("r", &reports_state_of(&dir, "pid"));
    second.waits_behind(0);
    let guard = guard_of(&first);
    kill(guard, Signal::SIGSTOP).unwrap();
    first.send(Signal::SIGKILL);
    first.ends();
    dir.run("--try r", "true").ends_with(75);
    assert!(!is_gone(&pid));
    kill(guard, Signal::SIGCONT).unwrap();
    assert_eq!(second.ends_with(0), "dead\n");
    set_child_subreaper(false).unwrap();
}

#[test]
fn frozen_run_is_dead_before_the_next_grant() {
    let dir = Dir::new();
    let (_agent, _) = dir.agent("");
    let mut first = dir.run("--ttl 2s --grace 500ms r", &sleeps(&dir, "pid"));
    dir.written("pid");
    first.send(Signal::SIGSTOP);
    let mut second = dir.run("r", &reports_state_of(&dir, "pid"));
    assert_eq!(second.ends_with(0), "dead\n");
    first.send(Signal::SIGCONT);
    first.ends_with(76);
    first.lost_reason(&["lost", "broken"]);
}

/// The command has not started, so an expired lease is no loss (76): the slot is requested again.
#[test]
fn run_frozen_through_its_grant_requests_again() {
    let dir = Dir::new();
    let (_agent, _) = dir.agent("");
    let mut holder = dir.run("r", &dir.until("go"));
    holder.notifies("granted");
    let mut waiter = dir.run("--ttl 2s r", "echo in");
    waiter.waits_behind(0);
    waiter.send(Signal::SIGSTOP);
    dir.touch("go");
    holder.ends_with(0);
    let slot = || dir.show("r")["holders"][0].clone();
    eventually("its grant", || (slot()["client"]["pid"] == waiter.pid().as_raw()).then_some(()));
    eventually("the end of its lease", || (slot()["free"] == true).then_some(()));
    waiter.send(Signal::SIGCONT);
    assert_eq!(waiter.ends_with(0), "in\n");
}

/// The frozen process is also the peer, which hands nothing over before it continues.
#[test]
fn frozen_run_with_its_own_peer_loses_its_command() {
    let dir = Dir::new();
    let mut first = dir.peer("--alone --ttl 2s r", &sleeps(&dir, "pid"));
    let pid = dir.written("pid");
    first.send(Signal::SIGSTOP);
    eventually("the end of the command", || is_gone(&pid).then_some(()));
    first.send(Signal::SIGCONT);
    first.ends_with(76);
}

#[test]
fn command_of_a_frozen_agent_is_killed() {
    let dir = Dir::new();
    let (agent, _) = dir.agent("");
    let mut first = dir.run("--ttl 2s r", &sleeps(&dir, "pid"));
    let pid = dir.written("pid");
    agent.send(Signal::SIGSTOP);
    eventually("the end of the command", || is_gone(&pid).then_some(()));
    first.ends_with(76);
    assert!(first.lost_reason(&["broken"]).contains("no renewal of the lease was confirmed for"));
    agent.send(Signal::SIGCONT);
    dir.run("r", "true").ends_with(0);
}

/// The wait is counted by the agent, and by the client while the agent is frozen.
#[test]
fn limited_wait_at_a_frozen_agent_ends() {
    let dir = Dir::new();
    let (agent, _) = dir.agent("");
    dir.run("r", "true").ends_with(0);
    agent.send(Signal::SIGSTOP);
    let commands = [
        ("run --try r -- true", 2),
        ("run -w 1s r -- true", 10),
        ("acquire --ttl 1s --try r", 2),
        ("ls", 10),
        ("show r", 10),
        ("peers", 10),
        ("voters", 10),
        ("watch", 10),
    ];
    let mut all: Vec<Running> = commands.iter().map(|(it, _)| Running::start(&mut dir.peerlock(it))).collect();
    for ((command, seconds), asked) in commands.iter().zip(&mut all) {
        let (code, _, stderr) = asked.ends();
        let text = format!("has not answered for {seconds} s: check with `peerlock doctor`");
        assert!(code == 69 && stderr.contains(&text), "{command}: {code} {stderr}");
    }
    agent.send(Signal::SIGCONT);
    dir.run("r", "true").ends_with(0);
}

#[test]
fn command_of_a_dead_agent_is_killed_when_the_lease_ends() {
    let dir = Dir::new();
    let (agent, _) = dir.agent("");
    let agent_there = format!("--agent {}", dir.socket().display());
    let mut first = dir.run(&format!("--ttl 2s {agent_there} r"), &sleeps(&dir, "pid"));
    let pid = dir.written("pid");
    drop(agent);
    first.ends_with(76);
    assert!(first.lost_reason(&["no_agent"]).contains("without a successor"));
    assert!(is_gone(&pid));
    dir.run("r", "true").ends_with(0);
    assert!(dir.started().is_some());
}

/// The only voter is frozen. The agent notifies its clients before its session expires, or when it continues
/// afterwards. The reason is the session, not the lease.
#[test]
fn loss_with_the_session_is_reported_as_such() {
    let (one, two) = (Dir::new(), Dir::new());
    let (voter, address) = one.agent("");
    let (_agent, _) = two.agent(&format!("--session 2s {}", one.join(&address)));
    let mut first = two.run("--ttl 1h r", &sleeps(&two, "pid"));
    let pid = two.written("pid");
    voter.send(Signal::SIGSTOP);
    first.ends_with(76);
    let message = first.lost_reason(&["no_majority", "session_lost"]);
    assert!(message.contains("no quorum") || message.contains("session"), "{message}");
    assert!(is_gone(&pid));
    voter.send(Signal::SIGCONT);
}

/// An agent waits for its holders before it exits. Other programs with a peer, such as the demo, do not.
#[test]
fn stopping_peer_is_reported_as_the_reason() {
    let dir = Dir::new();
    let socket = dir.path("served.sock");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let service = runtime.block_on(async {
        let service = Service::builder().start(Network::new(1).endpoint(PeerId::new(1))).await.unwrap();
        let listener = Listener::bind(&Endpoint::Unix(socket.clone()), None, 64).await.unwrap();
        tokio::spawn(serve(vec![listener], App::new(service.clone()), std::future::pending()));
        service
    });
    let mut first = dir.run(&format!("--agent {} r", socket.display()), &sleeps(&dir, "pid"));
    let pid = dir.written("pid");
    runtime.block_on(service.drain());
    assert!(is_gone(&pid), "the drained peer has no holder");
    first.ends_with(76);
    assert!(first.lost_reason(&["stopped"]).contains("this peer is draining or stopping"));
}

#[test]
fn on_lost_option_selects_the_consequence() {
    let dir = Dir::new();
    for (on_lost, code, output) in [("term", 76, "asked\n"), ("kill", 76, ""), ("none", 7, "on\n")] {
        let (agent, _) = dir.agent("");
        let script = format!(
            "trap 'echo asked; exit 0' TERM; echo > {0}; while ! test -e {1}; do sleep 0.01; done; echo on; exit 7",
            dir.path("ready").display(),
            dir.path("go").display()
        );
        let agent_there = format!("--agent {}", dir.socket().display());
        let mut run = dir.run(&format!("--ttl 1s {agent_there} --on-lost {on_lost} r"), &script);
        dir.written("ready");
        drop(agent);
        run.notifies("lost");
        std::fs::write(dir.path("go"), "").unwrap();
        assert_eq!(run.ends_with(code), output, "{on_lost}");
        for file in ["ready", "go"] {
            std::fs::remove_file(dir.path(file)).unwrap();
        }
    }
}

/// Forwards bytes between clients and an agent. The open connections can be closed; new ones are still forwarded.
fn forwarder(agent: String) -> (String, Arc<Mutex<Vec<TcpStream>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let open: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
    let known = Arc::clone(&open);
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (client, server) = (client.unwrap(), TcpStream::connect(&agent).unwrap());
            let clone = |stream: &TcpStream| stream.try_clone().unwrap();
            known.lock().unwrap().extend([clone(&client), clone(&server)]);
            for (mut from, mut to) in [(clone(&client), clone(&server)), (server, client)] {
                std::thread::spawn(move || {
                    let _cut = std::io::copy(&mut from, &mut to);
                    let _gone = to.shutdown(Shutdown::Both);
                });
            }
        }
    });
    (address, open)
}

/// Starts a run whose connection to its agent can be closed. Its command executes `first`, then ignores SIGTERM.
fn run_via_forwarder(dir: &Dir, first: &str, start: impl FnOnce(&mut Command) -> Running) -> (Running, impl FnOnce()) {
    let (agent, _) = dir.agent("--http 127.0.0.1:0");
    let http = agent.line(|line| Some(line.split_once("http://")?.1.split_once('"')?.0.to_owned()));
    let (address, open) = forwarder(http);
    let pid = dir.path("pid");
    let script = format!("trap '' TERM; {first} echo $$ > {}; while :; do sleep 0.01; done", pid.display());
    let token = dir.path("data/token");
    let options = format!("run --json --ttl 1h --agent {address} --token-file {} r -- sh -c", token.display());
    let run = start(dir.peerlock(&options).arg(script));
    let cut = move || {
        open.lock().unwrap().drain(..).for_each(|stream| _ = stream.shutdown(Shutdown::Both));
        drop(agent);
    };
    (run, cut)
}

/// The agent frees the slot when the connection closes, so the command gets no grace.
#[test]
fn command_is_killed_when_the_connection_closes() {
    let dir = Dir::new();
    let (mut first, cut) = run_via_forwarder(&dir, "", Running::start);
    let pid = dir.written("pid");
    cut();
    first.ends_with(76);
    assert!(is_gone(&pid));
    dir.run("--try r", "true").ends_with(0);
}

/// A write to standard error blocks if that is a full pipe without a reader.
#[test]
fn lost_command_is_killed_although_stderr_is_blocked() {
    let dir = Dir::new();
    let (pipe, unread) = std::io::pipe().map(|(read, write)| (write, read)).unwrap();
    let fill = "dd if=/dev/zero bs=1k count=1k oflag=nonblock >&2 2>/dev/null;";
    let (mut first, cut) = run_via_forwarder(&dir, fill, |command| Running::start(command.stderr(pipe)));
    let pid = dir.written("pid");
    cut();
    eventually("the end of the command", || is_gone(&pid).then_some(()));
    drop(unread);
    first.ends_with(76);
}
