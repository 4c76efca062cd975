//! Nobody comes in before the command of who has lost its slot is dead.

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

/// Writes its number, and stays for ever.
fn stays(dir: &Dir, file: &str) -> String {
    format!("echo $$ > {}; exec sleep 1000", dir.path(file).display())
}

/// Whether the process whose number is in a file runs. Who is only waited for has ended.
fn reports_of(dir: &Dir, file: &str) -> String {
    format!(
        "grep -qs '^State:[[:space:]]*[RSDTt]' /proc/$(cat {})/status && echo alive || echo dead",
        dir.path(file).display()
    )
}

impl Running {
    /// It has said once that its slot was lost and why, before what came of that: with one of these words for programs.
    fn says_why(&self, words: &[&str]) -> String {
        let notified = |line: &str| {
            let object = serde_json::from_str::<serde_json::Value>(line).ok()?;
            Some((object.get("lost")?.as_str()?.to_owned(), object["why"].as_str()?.to_owned()))
        };
        let (said, why) = self.line(notified);
        assert!(words.contains(&why.as_str()), "{why}: {said}");
        let lines = self.said();
        assert_eq!(lines.lines().filter_map(notified).count(), 1, "{lines}");
        let what_came = lines.find("\"notice\"").unwrap_or(lines.len());
        assert!(lines.find("\"lost\"") < Some(what_came), "{lines}");
        said
    }
}

/// The guard of a run's command.
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

/// Not only the command, which has a death signal, but also what it has started: the guard kills that, and may be late.
#[test]
fn a_run_that_is_killed_frees_its_slot_when_all_of_its_command_is_dead() {
    let dir = Dir::new();
    let (_agent, _) = dir.agent("");
    // An orphan in a group of its own is continued by the system when it was stopped: so it gets another parent.
    set_child_subreaper(true).unwrap();
    let worker = format!("sleep 1000 >/dev/null 2>&1 & echo $! > {}; wait", dir.path("pid").display());
    let mut first = dir.run("--ttl 1h r", &worker);
    let pid = dir.written("pid");
    let mut second = dir.run("r", &reports_of(&dir, "pid"));
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
fn a_frozen_run_loses_its_slot_and_its_command_before_others_come_in() {
    let dir = Dir::new();
    let (_agent, _) = dir.agent("");
    let mut first = dir.run("--ttl 2s --grace 500ms r", &stays(&dir, "pid"));
    dir.written("pid");
    first.send(Signal::SIGSTOP);
    let mut second = dir.run("r", &reports_of(&dir, "pid"));
    assert_eq!(second.ends_with(0), "dead\n");
    first.send(Signal::SIGCONT);
    first.ends_with(76);
    first.says_why(&["lost", "broken"]);
}

/// It ended with 76, though nothing had run, and its place was gone.
#[test]
fn a_run_that_was_frozen_when_its_turn_came_and_went_asks_again() {
    let dir = Dir::new();
    let (_agent, _) = dir.agent("");
    let go = dir.path("go");
    let mut holder = dir.run("r", &format!("while ! test -e {}; do sleep 0.01; done", go.display()));
    holder.notifies("granted");
    let mut waiter = dir.run("--ttl 2s r", "echo in");
    waiter.waits_behind(0);
    waiter.send(Signal::SIGSTOP);
    std::fs::write(&go, "").unwrap();
    holder.ends_with(0);
    let slot = || dir.show("r")["holders"][0].clone();
    eventually("its turn", || (slot()["client"]["pid"] == waiter.pid().as_raw()).then_some(()));
    eventually("the end of its lease", || (slot()["free"] == true).then_some(()));
    waiter.send(Signal::SIGCONT);
    assert_eq!(waiter.ends_with(0), "in\n");
}

/// Its peer is frozen with it, and gives nothing away before it has gone on.
#[test]
fn a_frozen_run_that_is_a_peer_itself_loses_its_command() {
    let dir = Dir::new();
    let mut first = dir.peer("--alone --ttl 2s r", &stays(&dir, "pid"));
    let pid = dir.written("pid");
    first.send(Signal::SIGSTOP);
    eventually("the end of the command", || is_gone(&pid).then_some(()));
    first.send(Signal::SIGCONT);
    first.ends_with(76);
}

#[test]
fn a_frozen_agent_costs_the_command_its_life() {
    let dir = Dir::new();
    let (agent, _) = dir.agent("");
    let mut first = dir.run("--ttl 2s r", &stays(&dir, "pid"));
    let pid = dir.written("pid");
    agent.send(Signal::SIGSTOP);
    eventually("the end of the command", || is_gone(&pid).then_some(()));
    // It asks the agent to take the slot back, but not for ever.
    first.ends_with(76);
    assert!(first.says_why(&["broken"]).contains("no renewal of the lease was confirmed for"));
    agent.send(Signal::SIGCONT);
    dir.run("r", "true").ends_with(0);
}

/// How long to wait is counted by the agent: where that was frozen, nobody counted.
#[test]
fn a_frozen_agent_keeps_nobody_waiting_who_does_not_want_to() {
    let dir = Dir::new();
    let (agent, _) = dir.agent("");
    dir.run("r", "true").ends_with(0);
    agent.send(Signal::SIGSTOP);
    let commands = ["run --try r -- true", "run -w 1s r -- true", "acquire --ttl 1s --try r", "ls", "show r"];
    let mut all: Vec<Running> = commands.iter().map(|it| Running::start(&mut dir.peerlock(it))).collect();
    for (command, asked) in commands.iter().zip(&mut all) {
        let (code, _, said) = asked.ends();
        assert!(code == 69 && said.contains("peerlock doctor"), "{command}: {code} {said}");
    }
    agent.send(Signal::SIGCONT);
    dir.run("r", "true").ends_with(0);
}

#[test]
fn an_agent_that_dies_costs_the_command_its_life_at_the_leases_end() {
    let dir = Dir::new();
    let (agent, _) = dir.agent("");
    // One that was named is not started by others.
    let agent_there = format!("--agent {}", dir.socket().display());
    let mut first = dir.run(&format!("--ttl 2s {agent_there} r"), &stays(&dir, "pid"));
    let pid = dir.written("pid");
    drop(agent);
    first.ends_with(76);
    assert!(first.says_why(&["no_agent"]).contains("without a successor"));
    assert!(is_gone(&pid));
    // Its data folder knows its cluster: the next command starts it there, and waits for what the dead one had.
    dir.run("r", "true").ends_with(0);
    assert!(dir.started().is_some());
}

/// The only voter is frozen. The agent tells its clients before its session's time is over, or then if it comes too
/// late; and not that it is their lease which has ended, as it did.
#[test]
fn a_slot_that_is_lost_with_the_agents_session_is_said_to_be() {
    let (one, two) = (Dir::new(), Dir::new());
    let (voter, address) = one.agent("");
    let secret = one.path("data/secret").display().to_string();
    let (_agent, _) = two.agent(&format!("--session 2s --secret-file {secret} --join {address}"));
    let mut first = two.run("--ttl 1h r", &stays(&two, "pid"));
    let pid = two.written("pid");
    voter.send(Signal::SIGSTOP);
    first.ends_with(76);
    let said = first.says_why(&["no_majority", "session_lost"]);
    assert!(said.contains("no quorum") || said.contains("session"), "{said}");
    assert!(is_gone(&pid));
    voter.send(Signal::SIGCONT);
}

/// No agent stops while somebody is inside. Others that serve a peer do, such as the demo.
#[test]
fn who_has_given_the_slot_stops_and_says_so() {
    let dir = Dir::new();
    let socket = dir.path("served.sock");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let service = runtime.block_on(async {
        let service = Service::builder().start(Network::new(1).endpoint(PeerId::new(1))).await.unwrap();
        let listener = Listener::bind(&Endpoint::Unix(socket.clone()), None, 64).await.unwrap();
        tokio::spawn(serve(vec![listener], App::new(service.clone()), std::future::pending()));
        service
    });
    let mut first = dir.run(&format!("--agent {} r", socket.display()), &stays(&dir, "pid"));
    let pid = dir.written("pid");
    runtime.block_on(service.drain());
    assert!(is_gone(&pid), "nobody is inside when it has drained");
    first.ends_with(76);
    assert!(first.says_why(&["stopped"]).contains("this peer is stopping"));
}

#[test]
fn what_to_do_with_a_command_that_lost_its_slot_can_be_said() {
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

/// Carries bytes between clients and an agent, until it is told to cut them off. New ones come through all the same.
fn go_between(agent: String) -> (String, Arc<Mutex<Vec<TcpStream>>>) {
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

/// A run through somebody who can cut it off from its agent, and its command, which does not listen; with what else the
/// command does first.
fn run_by_way_of(dir: &Dir, first: &str, start: impl FnOnce(&mut Command) -> Running) -> (Running, impl FnOnce()) {
    let (agent, _) = dir.agent("--http 127.0.0.1:0");
    let http = agent.line(|line| Some(line.split_once("http://")?.1.split_once('"')?.0.to_owned()));
    let (address, open) = go_between(http);
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

/// The agent frees a slot whose connection ends. The command must not have its grace then: somebody else is inside.
#[test]
fn a_command_whose_connection_breaks_is_killed_at_once() {
    let dir = Dir::new();
    let (mut first, cut) = run_by_way_of(&dir, "", Running::start);
    let pid = dir.written("pid");
    cut();
    first.ends_with(76);
    assert!(is_gone(&pid));
    dir.run("--try r", "true").ends_with(0);
}

/// Where standard error is a pipe that nobody reads, whoever writes to it waits.
#[test]
fn a_command_whose_slot_is_lost_is_killed_also_if_nobody_hears_why() {
    let dir = Dir::new();
    let (pipe, unread) = std::io::pipe().map(|(read, write)| (write, read)).unwrap();
    let fill = "dd if=/dev/zero bs=1k count=1k oflag=nonblock >&2 2>/dev/null;";
    let (mut first, cut) = run_by_way_of(&dir, fill, |command| Running::start(command.stderr(pipe)));
    let pid = dir.written("pid");
    cut();
    eventually("the end of the command", || is_gone(&pid).then_some(()));
    drop(unread);
    first.ends_with(76);
}
