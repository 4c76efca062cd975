//! The life of an agent: start, replacement, drain, exit, and its output for operators.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::net::{UnixDatagram, UnixListener};

use nix::sys::signal::{Signal, kill};

use crate::common::{Dir, Running, eventually, is_gone};

#[test]
fn stopped_agent_keeps_its_holder_and_its_waiter() {
    let (one, two) = (Dir::new(), Dir::new());
    let (mut first, address) = one.agent("");
    let (_second, _) = two.agent(&one.join(&address));
    let script = format!(
        "trap 'echo killed > {0}; exit 0' TERM; echo > {1}; while ! test -e {2}; do sleep 0.01; done; echo ended > \
         {0}; exit 7",
        one.path("ended").display(),
        one.path("ready").display(),
        one.path("go").display()
    );
    let mut holder = one.run("--ttl 1h r", &script);
    one.written("ready");
    let mut local = one.run("r", "true");
    local.waits_behind(0);
    let mut waiter = two.run("r", &format!("cat {}", one.path("ended").display()));
    waiter.waits_behind(1);
    first.send(Signal::SIGTERM);
    first.ends_with(0);
    // Without a supervisor, the clients start the next agent. The holder continues there, and the waiter requests
    // again.
    eventually("another agent", || one.started());
    eventually("the waiter in the queue", || {
        let queue = two.show("r")["queue"].as_array()?.len();
        (queue == 2).then_some(())
    });
    one.touch("go");
    holder.ends_with(7);
    assert_eq!(waiter.ends_with(0), "ended\n");
    local.ends_with(0);
}

/// An agent that accepts a connection and exits before it answers counts as absent: it is restarted.
#[test]
fn agent_that_exits_before_answering_is_restarted() {
    for options in ["r", "--try r"] {
        let dir = Dir::new();
        let agent = UnixListener::bind(dir.socket()).unwrap();
        let mut run = dir.run(options, "exit 7");
        agent.accept().unwrap();
        drop(agent);
        run.ends_with(7);
        assert!(dir.started().is_some());
    }
}

#[test]
fn second_agent_with_same_directory_or_port_is_refused() {
    let dir = Dir::new();
    let (agent, address) = dir.agent("");
    let (code, _, stderr) = Running::start(&mut dir.peerlock("agent --listen 127.0.0.1:0")).ends();
    assert_eq!(code, 69, "{stderr}");
    let process = format!("(process {})", agent.pid());
    assert!(stderr.contains("--data-dir") && stderr.contains(&process), "{stderr}");
    let other = Dir::new();
    let options = format!("agent --listen {address} --http unix:{}", other.socket().display());
    let (code, _, stderr) = Running::start(&mut other.peerlock(&options)).ends();
    assert_eq!(code, 69, "{stderr}");
    assert!(stderr.contains(&format!("cannot listen on {address}")), "{stderr}");
    let stubborn = format!("trap '' TERM; echo > {}; while :; do sleep 0.01; done", dir.path("ready").display());
    let mut holder = dir.run("--ttl 1h r", &stubborn);
    dir.written("ready");
    let (_next, _) = dir.agent("--replace");
    let mut agent = agent;
    agent.ends_with(0);
    let observed = eventually("an answer", || Some(dir.show("r")).filter(|observed| !observed.is_null()));
    assert_eq!(observed["holders"][0]["client"]["pid"], holder.pid().as_raw(), "{observed}");
    holder.send(Signal::SIGKILL);
    holder.ends();
    dir.run("r", "true").ends_with(0);
}

#[test]
fn replace_with_a_wrong_option_stops_no_agent() {
    let dir = Dir::new();
    let (agent, _) = dir.agent("");
    for (slip, code) in [
        ("--secret-file /nowhere", 66),
        ("--token-file /nowhere", 66),
        ("--socket-group no-such-group", 64),
        ("--longest-lease 0s", 64),
        ("--expect 0", 64),
        ("--listen 192.0.2.77:0", 69),
    ] {
        let mut next = Running::start(&mut dir.peerlock(&format!("agent --replace {slip}")));
        let (ended, _, stderr) = next.ends();
        assert_eq!(ended, code, "{slip}: {stderr}");
        assert!(!stderr.contains("replacing the running agent"), "{slip}: {stderr}");
    }
    dir.run("r", "true").ends_with(0);
    assert!(!is_gone(&agent.pid().to_string()));
}

/// An agent listens on other networks only if an administrator starts it, and a job's environment is not inherited.
#[test]
fn agent_started_by_a_command_listens_on_loopback() {
    let dir = Dir::new();
    let mut run = dir.peerlock("run r -- true");
    Running::start(run.env("A_SECRET_OF_THE_JOB", "x").env("PEERLOCK_LOG", "info")).ends_with(0);
    let log = fs::read_to_string(dir.path("data/agent.log")).unwrap();
    assert!(log.contains("address=127.0.0.1:"), "{log}");
    let agent = dir.started().unwrap();
    let environment = fs::read(format!("/proc/{agent}/environ")).unwrap();
    let environment = String::from_utf8_lossy(&environment);
    assert!(environment.contains("PEERLOCK_DATA_DIR") && !environment.contains("A_SECRET_OF_THE_JOB"), "{environment}");
    assert_eq!(fs::read_to_string(format!("/proc/{agent}/comm")).unwrap(), "peerlock\n");
    let mut agent = Running::start(&mut dir.peerlock("agent --listen 0.0.0.0:0"));
    agent.line(|line| line.contains(" ready").then_some(()));
    assert!(!agent.stderr().contains("address=127."), "{}", agent.stderr());
    agent.send(Signal::SIGTERM);
    agent.ends_with(0);
}

#[test]
fn suspended_agent_is_replaced() {
    let dir = Dir::new();
    let (mut agent, _) = dir.agent("");
    agent.send(Signal::SIGSTOP);
    let (_next, _) = dir.agent("--replace");
    agent.ends_with(0);
}

#[test]
fn age_of_a_grant_survives_the_agent() {
    let dir = Dir::new();
    let (agent, _) = dir.agent("");
    let mut holder = dir.run("--ttl 1h r", &format!("echo > {}; exec sleep 1000", dir.path("ready").display()));
    dir.written("ready");
    let age = || dir.show("r")["holders"][0]["client"]["age_ms"].as_u64();
    let before = eventually("a while", || age().filter(|age| *age > 3000));
    let (_next, _) = dir.agent("--replace");
    let mut agent = agent;
    agent.ends_with(0);
    let after = eventually("the holder", age);
    assert!(after >= before, "{after} ms after {before} ms");
    holder.send(Signal::SIGTERM);
    holder.ends();
}

/// A supervisor may need a second or more to restart an agent. Until then the release is retried; otherwise the slot
/// would be held until its lease expires.
#[test]
fn release_reaches_the_next_agent() {
    let dir = Dir::new();
    let (agent, _) = dir.agent("");
    let mut job = dir.holder(&format!("--ttl 1h --agent {} r", dir.socket().display()));
    drop(agent);
    dir.touch("go");
    std::thread::sleep(std::time::Duration::from_secs(2));
    let (_next, _) = dir.agent("");
    job.ends_with(0);
    dir.run("-w 4s r", "true").ends_with(0);
}

#[test]
fn logs_call_hosts_by_their_names() {
    let (one, two, three) = (Dir::new(), Dir::new(), Dir::new());
    let (first, address) = one.agent("");
    let joins = one.join(&address);
    let (mut second, _) = two.agent(&joins);
    let (third, _) = three.agent(&joins);
    eventually("all three", || {
        let peers = one.peerlock("peers --json").output().unwrap();
        let peers: serde_json::Value = serde_json::from_slice(&peers.stdout).ok()?;
        let named = peers.as_array()?.iter().filter(|peer| peer["name"] != "" && peer["up"] == true);
        (named.count() == 3).then_some(())
    });
    second.send(Signal::SIGTERM);
    second.ends_with(0);
    third.send(Signal::SIGKILL);
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let (left, broke) = ("\"it left\"", "\"the connection broke\"");
    for why in [left, broke] {
        let line_down = format!("a peer is disconnected host=\"{}\" why={why}", host.trim());
        first.line(|line| line.contains(&line_down).then_some(()));
    }
    for log in [first.stderr(), second.stderr(), third.stderr()] {
        let digits = |word: &&str| word.len() >= 15 && word.chars().all(|c| c.is_ascii_digit());
        let number = log.split(|c: char| !c.is_alphanumeric()).find(digits);
        assert_eq!(number, None, "{log}");
        assert!(log.contains(&format!("peer started host=\"{}\"", host.trim())), "{log}");
    }
}

#[test]
fn restarted_agent_is_the_same_peer() {
    let dir = Dir::new();
    let me = || {
        let (mut agent, _) = dir.agent("");
        let output = dir.peerlock("peers --json").output().unwrap();
        agent.send(Signal::SIGINT);
        agent.ends_with(0);
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()[0]["peer"].clone()
    };
    assert_eq!(me(), me());
}

#[test]
fn systemd_is_notified_of_ready_and_stopping() {
    let dir = Dir::new();
    let socket = UnixDatagram::bind(dir.path("notify")).unwrap();
    let http = format!("--http unix:{}", dir.socket().display());
    let mut command = dir.peerlock(&format!("agent --listen 127.0.0.1:0 {http}"));
    let mut agent = Running::start(command.env("NOTIFY_SOCKET", dir.path("notify")));
    let receive = || {
        let mut received = [0; 64];
        let length = socket.recv(&mut received).unwrap();
        String::from_utf8_lossy(&received[..length]).into_owned()
    };
    assert_eq!(receive(), "READY=1");
    agent.send(Signal::SIGTERM);
    assert_eq!(receive(), "STOPPING=1");
    agent.ends_with(0);
}

#[test]
fn queries_show_holders_waiters_and_peers() {
    let dir = Dir::new();
    let (_agent, address) = dir.agent("");
    let holder = dir.run("-n 1 r", "sleep 1000");
    holder.notifies("granted");
    let waiter = dir.run("r", "true");
    waiter.waits_behind(0);
    let observed = eventually("holder and waiter", || {
        let observed = dir.show("r");
        (observed["queue"].as_array()?.len() == 1 && observed["holders"][0]["client"].is_object()).then_some(observed)
    });
    assert!(observed["holders"][0]["client"]["label"].as_str().unwrap().ends_with(": sh"), "{observed}");
    let text = |arguments: &str| {
        let output = dir.peerlock(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let shown = text("show r");
    assert!(shown.starts_with("r: 1 of 1 slots held, 1 waiting; generation 1\n"), "{shown}");
    assert!(shown.contains("slot 0") && shown.contains("wait 1"), "{shown}");
    assert_eq!(text("ls").lines().count(), 2);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&text("ls --json")).unwrap()[0]["waiting_here"], 1);
    assert!(text("peers").contains(&address));
    waiter.send(Signal::SIGTERM);
    eventually("an empty queue", || dir.show("r")["queue"].as_array()?.is_empty().then_some(()));
    let (code, _, stderr) = Running::start(&mut dir.peerlock("show other")).ends();
    assert_eq!(code, 66, "{stderr}");
}

#[test]
fn watch_prints_events_of_all_or_one_resource() {
    let dir = Dir::new();
    let (mut agent, _) = dir.agent("");
    let mut all = Running::start(&mut dir.peerlock("watch"));
    let mut one = Running::start(&mut dir.peerlock("watch --json one"));
    eventually("events", || {
        dir.run("one", "true").ends_with(0);
        dir.run("two", "true").ends_with(0);
        (one.stdout().contains("\"released\"") && all.stdout().contains("released after")).then_some(())
    });
    agent.send(Signal::SIGTERM);
    agent.ends_with(0);
    let (_, out, _) = one.ends();
    for line in out.lines() {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(event["name"], "one", "{line}");
    }
    let (_, out, _) = all.ends();
    assert!(out.contains("two #") && out.contains("acquired slot 0, fencing number"), "{out}");
}

#[test]
fn absent_named_agent_is_reported_with_advice() {
    let dir = Dir::new();
    let absent = dir.socket();
    for arguments in
        ["ls", "show r", "peers", "watch", "acquire --ttl 1s r", "renew --grant 1 r", "release --grant 1 r"]
    {
        let (code, _, stderr) = Running::start(dir.peerlock(arguments).env("PEERLOCK_AGENT", &absent)).ends();
        assert_eq!(code, 69, "{arguments}: {stderr}");
        assert!(stderr.contains("peerlock agent"), "{arguments}: {stderr}");
    }
}

#[test]
fn agent_started_by_a_command_is_detached() {
    let dir = Dir::new();
    let lines = "exec 9>held; flock 9; exec \"$0\" ls";
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", lines, env!("CARGO_BIN_EXE_peerlock")]).current_dir(dir.path(""));
    shell.env("PEERLOCK_DATA_DIR", "data").env("PEERLOCK_RUNTIME_DIR", dir.path(""));
    shell.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    // The output ends although the agent runs, since the agent has no copy of the pipe.
    Running::start(&mut shell).ends_with(0);
    let agent = dir.started().expect("an agent that a command has started");
    let file = std::fs::File::open(dir.path("held")).unwrap();
    assert!(nix::fcntl::Flock::lock(file, nix::fcntl::FlockArg::LockExclusiveNonblock).is_ok(), "the lock is free");
    assert_eq!(nix::unistd::getsid(Some(agent)).unwrap(), agent);
    nix::sys::signal::kill(agent, Signal::SIGKILL).unwrap();
    eventually("its end", || is_gone(&agent.to_string()).then_some(()));
    dir.run("r", "true").ends_with(0);
    assert_ne!(dir.started(), Some(agent));
}

#[test]
fn idle_agent_exits() {
    let dir = Dir::new();
    let socket = dir.socket();
    let options = format!("agent --idle 400ms --listen 127.0.0.1:0 --http unix:{}", socket.display());
    let mut agent = Running::start(&mut dir.peerlock(&options));
    agent.line(|line| line.contains("ready").then_some(()));
    // The slot is held without a connection, for longer than --idle.
    let (code, _, stderr) = Running::start(&mut dir.peerlock("acquire --ttl 2s r")).ends();
    assert_eq!(code, 0, "{stderr}");
    let waiter = dir.run("r", "true");
    waiter.notifies("granted");
    agent.ends_with(0);
    assert!(!socket.exists());
}

#[test]
fn failed_start_of_an_agent_reports_its_error() {
    let dir = Dir::new();
    dir.secret("in the open");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(dir.path("data/secret"), open).unwrap();
    let (code, _, stderr) = dir.run("r", "true").ends();
    assert_eq!(code, 66, "{stderr}");
    assert!(stderr.contains("chmod 600") && stderr.contains("agent.log"), "{stderr}");
}

#[test]
fn agent_with_an_unwritable_log_continues() {
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let closed = || nix::unistd::pipe().unwrap().1.into();
    for log in [full, closed] {
        let dir = Dir::new();
        let options = format!("agent --listen 127.0.0.1:0 --http unix:{}", dir.socket().display());
        let mut agent = Running::start(dir.peerlock(&options).stderr(log()));
        dir.agent_answers();
        let agent_of = format!("--agent {} -w 30s r", dir.socket().display());
        dir.run(&agent_of, "exit 7").ends_with(7);
        agent.send(Signal::SIGHUP);
        agent.send(Signal::SIGTERM);
        agent.ends_with(0);
    }
}

#[test]
fn log_of_a_running_agent_is_bounded() {
    let dir = Dir::new();
    dir.run("r", "true").ends_with(0);
    let log = dir.path("data/agent.log");
    File::options().append(true).open(&log).unwrap().write_all(&vec![b'x'; 3 << 20]).unwrap();
    kill(dir.started().unwrap(), Signal::SIGHUP).unwrap();
    let text = eventually("a new log", || {
        let text = std::fs::read_to_string(&log).ok().filter(|text| text.len() < 1 << 20)?;
        text.contains("reloaded secret and token").then_some(text)
    });
    assert!(!text.contains("xxx"), "{text}");
    assert!(dir.path("data/agent.log.old").exists());
    dir.run("r", "exit 7").ends_with(7);
}

#[test]
fn drain_does_not_wait_for_the_next_agent() {
    let dir = Dir::new();
    let (mut agent, _) = dir.agent("");
    let mut holder = dir.run("r", &dir.until("go"));
    holder.notifies("granted");
    let mut drain = Running::start(&mut dir.peerlock("drain"));
    agent.line(|line| line.contains("refuses new requests").then_some(()));
    // The stopped `drain` misses the moment between the two agents.
    drain.send(Signal::SIGSTOP);
    let (_next, _) = dir.agent("--replace");
    agent.ends_with(0);
    drain.send(Signal::SIGCONT);
    let (code, _, stderr) = drain.ends();
    assert!(code == 75 && stderr.contains("another one is running"), "{code}: {stderr}");
    dir.touch("go");
    holder.ends_with(0);
    dir.run("--try r", "exit 7").ends_with(7);
}

#[test]
fn drained_machine_starts_no_agent_until_an_admin_does() {
    for options in ["", "--idle 1h"] {
        let dir = Dir::new();
        let (mut agent, _) = dir.agent(options);
        dir.run("r", "true").ends_with(0);
        Running::start(&mut dir.peerlock("drain")).ends_with(0);
        agent.ends_with(0);
        for command in ["run r -- true", "acquire --ttl 1s r", "ls", "show r", "peers", "voters", "secret show"] {
            let (code, _, stderr) = Running::start(&mut dir.peerlock(command)).ends();
            let words = ["this machine is drained", "start it with `peerlock agent` or its systemd unit"];
            assert!(code == 69 && words.iter().all(|word| stderr.contains(word)), "{command}: {code}: {stderr}");
        }
        let (code, out, _) = Running::start(&mut dir.peerlock("doctor")).ends();
        assert!(code == 1 && out.contains("this machine is drained. To end the maintenance, start it with"), "{out}");
        let (code, _, stderr) = Running::start(&mut dir.peerlock("drain")).ends();
        assert!(code == 0 && stderr.contains("this machine is drained already"), "{code}: {stderr}");
        assert!(dir.started().is_none_or(|process| is_gone(&process.to_string())));
        let (mut agent, _) = dir.agent("");
        dir.run("-w 30s r", "exit 7").ends_with(7);
        agent.send(Signal::SIGTERM);
        agent.ends_with(0);
        dir.run("-w 30s r", "exit 7").ends_with(7);
    }
}

/// The secret is in a file that only the command line of the agent has named.
#[test]
fn stopped_agent_with_options_is_not_started() {
    let dir = Dir::new();
    dir.secret("ours");
    std::fs::rename(dir.path("data/secret"), dir.path("secret")).unwrap();
    let (mut agent, _) = dir.agent(&format!("--secret-file {}", dir.path("secret").display()));
    dir.run("r", "true").ends_with(0);
    agent.send(Signal::SIGTERM);
    agent.ends_with(0);
    for command in ["run r -- true", "ls", "peers"] {
        let (code, _, stderr) = Running::start(&mut dir.peerlock(command)).ends();
        assert!(code == 69 && stderr.contains("is stopped") && !stderr.contains("secret new"), "{code}: {stderr}");
        assert!(stderr.contains("start it again as before"), "{stderr}");
    }
    let (_, out, _) = Running::start(&mut dir.peerlock("doctor")).ends();
    assert!(out.contains("has exited. Start it again as before"), "{out}");
}

#[test]
fn waiting_drain_names_what_is_held() {
    let dir = Dir::new();
    let (mut agent, _) = dir.agent("");
    let mut holder = dir.run("backup", &dir.until("go"));
    holder.notifies("granted");
    let (code, _, stderr) = Running::start(&mut dir.peerlock("drain -w 0")).ends();
    assert!(code == 75 && stderr.contains("jobs still hold backup: the agent refuses"), "{code}: {stderr}");
    let (code, _, stderr) = Running::start(&mut dir.peerlock("run r -- true")).ends();
    assert!(code == 69 && stderr.contains("is draining or stopping, and accepts no requests"), "{code}: {stderr}");
    let (_, out, _) = Running::start(&mut dir.peerlock("doctor")).ends();
    assert!(out.contains("; draining. It accepts no requests, and exits when the jobs"), "{out}");
    dir.touch("go");
    holder.ends_with(0);
    agent.ends_with(0);
}

#[test]
fn agent_killed_while_draining_drains_when_started_again() {
    let dir = Dir::new();
    let (mut agent, _) = dir.agent("");
    let mut holder = dir.run("--ttl 1h r", &format!("{}; exit 7", dir.until("go")));
    holder.notifies("granted");
    Running::start(&mut dir.peerlock("drain --wait 0s")).ends_with(75);
    agent.line(|line| line.contains("refuses new requests").then_some(()));
    agent.send(Signal::SIGKILL);
    agent.ends_with(-9);
    let next = eventually("another agent", || dir.started());
    dir.agent_answers();
    let (code, _, stderr) = dir.run("--try other", "true").ends();
    assert_eq!(code, 69, "{stderr}");
    dir.touch("go");
    holder.ends_with(7);
    eventually("the agent's exit", || is_gone(&next.to_string()).then_some(()));
    let (code, _, stderr) = dir.run("--try r", "true").ends();
    assert!(code == 69 && stderr.contains("is drained"), "{code}: {stderr}");
}

#[test]
fn data_directory_of_another_machine_is_refused() {
    let dir = Dir::new();
    if !fs::read_to_string("/etc/machine-id").is_ok_and(|id| !id.trim().is_empty()) {
        assert!(std::env::var_os("PEERLOCK_CI").is_none(), "this test needs a machine with an ID");
        eprintln!("skipped: this machine has no ID");
        return;
    }
    let (mut agent, _) = dir.agent("");
    let lock = dir.path("data/agent.lock");
    let text = fs::read_to_string(&lock).unwrap();
    let (before, machine) = text.split_once("machine ").unwrap();
    assert!(!machine.contains("ended"), "{text}");
    agent.send(Signal::SIGKILL);
    agent.ends();
    let _left = fs::remove_file(dir.socket());
    let there = "0123456789abcdef0123456789abcdef";
    fs::write(&lock, format!("{before}machine {there}\n")).unwrap();
    let options = format!("agent --listen 127.0.0.1:0 --http unix:{}", dir.socket().display());
    let (code, _, stderr) = Running::start(&mut dir.peerlock(&options)).ends();
    assert!(code == 66 && stderr.contains(there) && stderr.contains("another machine"), "{code} {stderr}");
    assert!(fs::read_to_string(&lock).unwrap().contains(there), "the lock file is unchanged");
    fs::write(&lock, format!("{before}machine {there}\nended\n")).unwrap();
    let (mut agent, _) = dir.agent("");
    assert!(fs::read_to_string(&lock).unwrap().ends_with(&format!("machine {machine}")));
    agent.send(Signal::SIGTERM);
    agent.ends_with(0);
    assert!(fs::read_to_string(&lock).unwrap().ends_with("\nended\n"));
}
