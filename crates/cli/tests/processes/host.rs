//! Commands of one host find or start its agent in any order, and a slot never has two holders.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use peerlock::{Error, Request};
use peerlock_http::Line;

use super::takeover::{Machine, entered};
use super::world::{api_at, until};

fn run(machine: &Machine, options: &str, script: &str) -> Child {
    let mut command = machine.peerlock("run");
    command.args(options.split_whitespace()).args(["--", "sh", "-c", script]).current_dir(machine.path(""));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(machine.output("run.log"));
    command.spawn().unwrap()
}

async fn code(what: &str, run: &mut Child) -> Option<i32> {
    until(what, async || run.try_wait().unwrap()).await.code()
}

async fn holds(machine: &Machine) {
    until("a holder", async || machine.path("in").exists().then_some(())).await;
}

fn signal(process: &Child, signal: Signal) {
    kill(Pid::from_raw(process.id().cast_signed()), signal).unwrap();
}

#[tokio::test]
async fn run_at_a_stopped_agent_respects_holders_elsewhere() {
    let (one, two) = (Machine::new(), Machine::new());
    let mut first = one.agent(&[]);
    let address = until("its address", async || {
        let text = fs::read_to_string(one.path("agent.log")).ok()?;
        text.contains("ready").then_some(())?;
        Some(text.split("address=").nth(1)?.split_whitespace().next()?.to_owned())
    })
    .await;
    fs::create_dir(two.path("data")).unwrap();
    fs::set_permissions(two.path("data"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::copy(one.path("data/secret"), two.path("data/secret")).unwrap();
    let mut second = two.agent(&["--join", &address]);
    until("the second agent", async || two.path("agent.sock").exists().then_some(())).await;
    let mut before = run(&two, "r", "true");
    assert_eq!(code("a command before", &mut before).await, Some(0));
    let mut holder = run(&one, "r", "echo > in; while ! test -e go; do sleep 0.05; done");
    holds(&one).await;

    signal(&second, Signal::SIGTERM);
    second.wait().unwrap();
    let mut tries = run(&two, "--try r", "echo > beside");
    let refused = code("the one with --try", &mut tries).await;
    assert!(matches!(refused, Some(75 | 69)), "{refused:?}");
    let mut waits = run(&two, "r", "echo > after");
    until("its agent", async || two.pid().filter(|pid| Machine::is_running(*pid))).await;
    assert!(!two.path("beside").exists() && !two.path("after").exists(), "a second holder");
    fs::write(one.path("go"), "").unwrap();
    assert_eq!(code("the holder", &mut holder).await, Some(0));
    assert_eq!(code("the waiter on the other machine", &mut waits).await, Some(0));
    assert!(two.path("after").exists() && !two.path("beside").exists());
    first.kill().unwrap();
    first.wait().unwrap();
}

/// Another user, as in cron, can use the machine's agent if permitted, and gets an error otherwise. The mount namespace
/// has its own `/run`.
#[tokio::test]
async fn other_user_needs_the_socket_group_of_the_agent() {
    let tools = ["unshare", "setpriv"].iter().all(|tool| Command::new(tool).arg("--version").output().is_ok());
    if !geteuid().is_root() || !tools {
        assert!(std::env::var_os("PEERLOCK_CI").is_none(), "this test needs root, unshare and setpriv");
        eprintln!("skipped: this needs root, unshare and setpriv");
        return;
    }
    let machine = Machine::new();
    fs::set_permissions(machine.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_peerlock"), machine.path("peerlock")).unwrap();
    let script = r#"
        mount -t tmpfs -o mode=755 tmpfs /run || exit 99
        cd "$1"; mkdir -m 700 home; chown 65534:65534 home
        ./peerlock agent --listen 127.0.0.1:0 --data-dir data $2 2> agent.log & agent=$!
        while ! test -S /run/peerlock/agent.sock; do sleep 0.05; done
        waits='echo > in; while ! test -e go; do sleep 0.05; done'
        ./peerlock run --agent /run/peerlock/agent.sock r -- sh -c "$waits" & holder=$!
        while ! test -e in; do sleep 0.05; done
        setpriv --reuid 65534 --regid 65534 --clear-groups env -i HOME="$1/home" PATH="$PATH" \
            ./peerlock run --try r -- sh -c 'echo > home/beside' 2> stderr; echo $? > code
        touch go; wait $holder; kill $agent; wait $agent
        find home -mindepth 1 > made
    "#;
    for (options, expected) in [("", 77), ("--socket-group nogroup", 75)] {
        let mut story = Command::new("unshare");
        story.args(["--mount", "sh", "-c", script, "sh"]).arg(machine.path("")).arg(options);
        story.env_remove("PEERLOCK_AGENT").env_remove("PEERLOCK_RUNTIME_DIR").env_remove("PEERLOCK_DATA_DIR");
        let mut story = story.stdin(Stdio::null()).spawn().unwrap();
        let ended = code("the script", &mut story).await;
        let read = |name: &str| fs::read_to_string(machine.path(name)).unwrap_or_default();
        assert_ne!(ended, Some(99), "no mount namespace");
        assert_eq!(read("code"), format!("{expected}\n"), "{options}: {}", read("stderr"));
        assert_eq!(read("made"), "", "no second holder and no cluster of its own");
        for left in ["in", "go", "code", "stderr", "made"] {
            fs::remove_file(machine.path(left)).unwrap();
        }
        fs::remove_dir(machine.path("home")).unwrap();
    }
}

async fn all_are_served(runs: usize, options: &str) {
    let machine = Machine::new();
    let log = machine.path("entries");
    let script = format!("echo enter >> {0}; date > /dev/null; echo leave >> {0}", log.display());
    let mut all: Vec<Child> = (0..runs).map(|_| run(&machine, options, &script)).collect();
    for run in &mut all {
        assert_eq!(code("a run", run).await, Some(0), "{}", fs::read_to_string(machine.path("run.log")).unwrap());
    }
    let lines = fs::read_to_string(&log).unwrap();
    let in_turn: Vec<&str> = ["enter", "leave"].into_iter().cycle().take(2 * runs).collect();
    assert_eq!(lines.lines().collect::<Vec<_>>(), in_turn, "no two at a time");
    assert_eq!(entered(&log), runs);
}

#[tokio::test]
async fn eight_first_runs_at_once_are_all_served() {
    all_are_served(8, "dd").await;
}

#[tokio::test]
async fn hundred_first_runs_at_once_are_all_served() {
    all_are_served(100, "dd").await;
}

#[tokio::test]
async fn killed_holder_and_agent_free_the_slot_for_a_waiter() {
    for with_agent in [false, true] {
        let machine = Machine::new();
        let mut holder = run(&machine, "--ttl 5s r", "echo $$ > pid; echo > in; exec sleep 1000");
        holds(&machine).await;
        let script = "grep -qs '^State:[[:space:]]*[RSDTt]' /proc/$(cat pid)/status && exit 3; exit 7";
        let mut waiter = run(&machine, "--ttl 5s r", script);
        let api = api_at(&machine.path("agent.sock"));
        until("a waiter", async || (api.show("r").await.ok()?.queue.len() == 1).then_some(())).await;
        let agent = machine.pid().unwrap();
        signal(&holder, Signal::SIGKILL);
        if with_agent {
            kill(agent, Signal::SIGKILL).unwrap();
        }
        holder.wait().unwrap();
        assert_eq!(code("the waiter", &mut waiter).await, Some(7), "with its agent: {with_agent}");
    }
}

#[tokio::test]
async fn held_and_acquired_slots_outlive_a_killed_agent() {
    let machine = Machine::new();
    let mut agent = machine.agent(&[]);
    let api = api_at(&machine.path("agent.sock"));
    until("an agent", async || api.about().await.ok()).await;
    let minute = Duration::from_secs(60);
    let mut lines = api.hold(&Request::new("held").ttl(minute)).await.unwrap();
    let held = loop {
        match lines.next().await.unwrap() {
            Line::Granted(granted) => break granted,
            Line::Waiting(_) => {}
            other => panic!("{other:?}"),
        }
    };
    let acquired = api.acquire(&Request::new("acquired").ttl(minute)).await.unwrap();
    let is_refused = async |name: &str| {
        let tried = api.acquire(&Request::new(name).try_only()).await;
        assert!(matches!(tried, Err(Error::NotAcquired { .. })), "{name}: {tried:?}");
    };
    for _ in 0..3 {
        agent.kill().unwrap();
        agent.wait().unwrap();
        assert!(lines.next().await.is_err(), "the connection ended with the agent");
        agent = machine.agent(&[]);
        until("another agent", async || api.about().await.ok()).await;
        for name in ["held", "acquired"] {
            until("an answer", async || match api.show(name).await.ok()?.holders[0].free {
                false => Some(()),
                true => panic!("{name} is free"),
            })
            .await;
            is_refused(name).await;
        }
        lines = api.resume("held", &held.grant, |_| {}).await.unwrap();
        let again = loop {
            match lines.next().await.unwrap() {
                Line::Granted(granted) => break granted,
                Line::Waiting(_) => {}
                other => panic!("{other:?}"),
            }
        };
        assert_eq!((again.slot, again.fencing), (held.slot, held.fencing));
        api.renew("held", &held.grant).await.unwrap();
        api.renew("acquired", &acquired.grant).await.unwrap();
    }
    api.release("acquired", &acquired.grant).await.unwrap();
    drop(lines);
    for (name, fencing) in [("held", held.fencing), ("acquired", acquired.fencing)] {
        let next = until("the next grant", async || api.acquire(&Request::new(name).try_only()).await.ok()).await;
        assert!(next.fencing > fencing, "{name}");
    }
    agent.kill().unwrap();
    agent.wait().unwrap();
}

/// Creates a copy of the program that reports another commit. A second build would take minutes.
pub fn second_build(at: &Path) -> String {
    let mut program = fs::read(env!("CARGO_BIN_EXE_peerlock")).unwrap();
    let commit = env!("PEERLOCK_COMMIT");
    let other: String = commit.chars().map(|c| if c == 'f' { 'e' } else { 'f' }).collect();
    let mut found = 0;
    while let Some(at) = program.windows(commit.len()).position(|text| text == commit.as_bytes()) {
        program[at..at + commit.len()].copy_from_slice(other.as_bytes());
        found += 1;
    }
    assert!(found > 0, "the program contains its commit");
    fs::write(at, program).unwrap();
    fs::set_permissions(at, fs::Permissions::from_mode(0o755)).unwrap();
    other
}
