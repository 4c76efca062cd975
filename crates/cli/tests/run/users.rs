//! Several users of one machine, and hosts without a running agent. No command creates a cluster of its own silently,
//! and no user can use another's files or agent. Tests that need another user or default paths need root.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use nix::unistd::geteuid;

use crate::common::{Dir, Running, eventually, is_gone, wrapped};

const UNPRIVILEGED: u32 = 65_534;

pub fn has_others() -> bool {
    let can = geteuid().is_root();
    if !can {
        assert!(std::env::var_os("PEERLOCK_CI").is_none(), "this test needs root");
        eprintln!("skipped: acting as another user needs root");
    }
    can
}

/// Runs a script with default paths of its own, and returns its standard output and error. The program is bound to
/// `/run/program`, since other users may not reach its directory. `theirs` runs a command as another user, whose home
/// is `/run/home`.
pub fn on_a_machine(script: &str) -> (String, String) {
    let prepared = "mount -t tmpfs none /run && mount -t tmpfs none /var/lib
        mkdir /run/home && chown 65534 /run/home
        touch /run/program && mount --bind \"$0\" /run/program
        theirs() { setpriv --reuid 65534 --regid 65534 --clear-groups env HOME=/run/home \"$@\"; }
        ip link set lo up";
    let mut command = Command::new("timeout");
    // The network namespace has a list of sockets of its own.
    command.args("-s KILL 60 unshare --mount --net --pid --fork --kill-child --mount-proc sh -c".split(' '));
    command.arg(format!("{prepared}\n{script}")).arg(env!("CARGO_BIN_EXE_peerlock"));
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr))
}

/// The agent is stopped, killed, or not started yet after a boot. A run must not create a cluster, in which the slot
/// would be free.
#[test]
fn run_without_its_agent_creates_no_cluster() {
    let (one, two) = (Dir::new(), Dir::new());
    one.secret("ours");
    two.secret("ours");
    let (_first, address) = one.agent("");
    let mut holder = one.holder("r");
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let (mut second, _) = two.agent(&format!("--join {address}"));
        assert_eq!(two.run("--try r", "echo ran").ends_with(75), "");
        second.send(signal);
        second.ends();
        let _gone = fs::remove_file(two.socket());
        let (code, out, stderr) = two.run("--try r", "echo ran").ends();
        assert!([69, 75].contains(&code) && out.is_empty(), "{signal}: {code} {out} {stderr}");
        let started = two.started().expect("a restarted agent");
        nix::sys::signal::kill(started, Signal::SIGTERM).unwrap();
        eventually("the agent's exit", || is_gone(&started.to_string()).then_some(()));
    }
    one.touch("go");
    holder.ends_with(0);
}

#[test]
fn run_of_another_user_creates_no_cluster() {
    if !has_others() {
        return;
    }
    let (out, stderr) = on_a_machine(
        "/run/program agent --listen 127.0.0.1:0 2>/run/log &
        while ! grep -q ready /run/log; do sleep 0.02; done
        theirs /run/program run r -- echo ran; echo \"code $?\"; ls -A /run/home
        theirs /run/program doctor >/run/found; echo \"code $?\"
        grep -c 'bad *agent .* permission denied' /run/found",
    );
    assert!(out == "code 77\ncode 1\n1\n", "it is refused with the reason, and creates no directory: {out} {stderr}");
    assert!(stderr.contains("--socket-group") && stderr.contains("a separate cluster"), "{stderr}");
}

/// While the machine's agent restarts, or before its first start after a boot, a user of its socket group must not
/// create a cluster, in which the slot would be free.
#[test]
fn socket_group_member_creates_no_cluster() {
    if !has_others() {
        return;
    }
    let (out, stderr) = on_a_machine(
        "start() {
            /run/program agent --session 2s --listen 127.0.0.1:0 --socket-group nogroup 2>/run/log & agent=$!
            while ! grep -q ready /run/log; do sleep 0.02; done
        }
        try() { theirs /run/program run -w 1m r -- echo ran; echo \"code $?\"; ls -A /run/home; }
        start; try
        kill -9 $agent; wait $agent 2>/dev/null; try
        rm -r /run/peerlock; try
        (sleep 1; exec /run/program agent --session 2s --listen 127.0.0.1:0 --socket-group nogroup 2>/run/log) &
        try
        export PEERLOCK_DATA_DIR=/run/home/own; try",
    );
    let down = "code 69\n";
    let own = "ran\ncode 0\nown\n";
    assert_eq!(out, format!("ran\ncode 0\n{down}{down}ran\ncode 0\n{own}"), "{stderr}");
    assert!(stderr.contains("systemctl start peerlock"), "{stderr}");
}

/// The service runs as a user of its own. A command of root must neither start an agent on its directory, whose files
/// would become root's, nor create a cluster elsewhere; a recovery by root leaves files that the service can read.
#[test]
fn root_uses_the_service_of_another_user() {
    if !has_others() {
        return;
    }
    let (out, stderr) = on_a_machine(
        "for dir in /run/peerlock /var/lib/peerlock; do mkdir -m 710 $dir; chown 65534:65534 $dir; done
        start() {
            : >/run/log; theirs PEERLOCK_DATA_DIR=/var/lib/peerlock PEERLOCK_RUNTIME_DIR=/run/peerlock \
                /run/program agent --session 2s --listen 127.0.0.1:0 --socket-group nogroup 2>/run/log & agent=$!
            while ! grep -q ready /run/log; do kill -0 $agent || { cat /run/log; exit; }; sleep 0.02; done
        }
        end() {
            pid=$(head -1 /var/lib/peerlock/agent.lock); kill $1 $pid; while test -e /proc/$pid; do sleep 0.02; done
        }
        start
        /run/program run r -- sh -c 'touch /run/held; until test -e /run/go; do sleep 0.02; done; exit 7' & job=$!
        until test -e /run/held; do sleep 0.02; done
        end -9; start; touch /run/go; wait $job; echo \"code $?\"
        end; /run/program run r -- echo ran; echo \"code $?\"
        /run/program recover --yes >/run/recovered; echo \"code $?\"
        find /var/lib/peerlock /run/peerlock ! -user 65534
        start; /run/program run -w 20s r -- echo ran; echo \"code $?\"",
    );
    assert_eq!(out, "code 7\ncode 69\ncode 0\nran\ncode 0\n", "{stderr}");
    assert!(stderr.contains("systemctl start peerlock"), "{stderr}");
}

#[test]
fn agent_of_a_command_leaves_the_port_to_the_machines_agent() {
    if !has_others() {
        return;
    }
    let (out, stderr) = on_a_machine(
        "theirs /run/program run r -- true
        /run/program agent 2>/run/log & agent=$!
        while ! grep -q ' ready ' /run/log; do kill -0 $agent || { cat /run/log; exit; }; sleep 0.02; done
        echo ready",
    );
    assert_eq!(out, "ready\n", "{stderr}");
}

/// A user's cron jobs have no `$XDG_RUNTIME_DIR`, while shells have one. The next agent must listen at the socket of
/// its predecessor, where the jobs look for it.
#[test]
fn cron_and_shell_of_a_user_share_one_agent() {
    if !has_others() {
        return;
    }
    let (out, stderr) = on_a_machine(
        "mkdir /run/user && chown 65534 /run/user
        shell() { theirs XDG_RUNTIME_DIR=/run/user /run/program \"$@\"; }
        data=/run/home/.local/share/peerlock
        theirs /run/program run r -- sh -c 'touch ~/held; until test -e /run/go; do sleep 0.02; done; exit 7' & job=$!
        until test -e /run/home/held; do sleep 0.02; done
        kill -9 $(head -1 $data/agent.lock)
        until shell ls >/dev/null 2>&1; do sleep 0.02; done
        sed -n 3p $data/agent.lock
        shell agent --replace --listen 127.0.0.1:0 2>/run/log &
        until grep -q ready /run/log; do sleep 0.02; done
        sed -n 3p $data/agent.lock
        until shell show r 2>/dev/null | grep -q '1 of 1'; do sleep 0.05; done
        touch /run/go; wait $job; echo \"code $?\"",
    );
    let socket = "/run/home/.local/share/peerlock/agent.sock\n";
    assert_eq!(out, format!("{socket}{socket}code 7\n"), "{stderr}");
}

/// Root has one default socket. An agent of another data directory has another one: otherwise it would serve clients of
/// the default agent, or replace it.
#[test]
fn named_data_directory_has_its_own_agent() {
    if !has_others() {
        return;
    }
    let (out, stderr) = on_a_machine(
        "/run/program run r -- sh -c 'touch /run/held; until test -e /run/go; do sleep 0.02; done; exit 7' & job=$!
        until test -e /run/held; do sleep 0.02; done
        export PEERLOCK_DATA_DIR=/run/other
        /run/program run --try r -- echo ran; echo \"code $?\"
        /run/program agent --replace --listen 127.0.0.1:0 2>/run/log & other=$!
        until grep -q ready /run/log; do sleep 0.02; done
        kill -9 $other $(head -1 /var/lib/peerlock/agent.lock); wait $other
        /run/program ls >/dev/null 2>&1
        sed -sn 3p /run/other/agent.lock /var/lib/peerlock/agent.lock
        unset PEERLOCK_DATA_DIR
        until /run/program show r | grep -q '1 of 1'; do sleep 0.02; done
        touch /run/go; wait $job; echo \"code $?\"",
    );
    let sockets = "/run/other/agent.sock\n/run/peerlock/agent.sock\n";
    assert_eq!(out, format!("ran\ncode 0\n{sockets}code 7\n"), "{stderr}");
}

/// The systemd unit drops all capabilities of its agent, which then may not inspect a process of the same user that has
/// some.
#[test]
fn agent_without_capabilities_takes_over() {
    if !has_others() {
        return;
    }
    let dir = Dir::new();
    let mut holder = dir.holder("r");
    let started = dir.started().expect("an agent that a command has started");
    let agent = dir.peerlock("agent --listen 127.0.0.1:0");
    let agent = Running::start(&mut wrapped(&["setpriv", "--bounding-set=-all", "--inh-caps=-all"], &agent));
    agent.line(|line| line.contains(" ready ").then_some(()));
    eventually("the first agent's exit", || is_gone(&started.to_string()).then_some(()));
    dir.touch("go");
    holder.ends_with(0);
}

#[test]
fn files_of_a_user_are_closed_to_others() {
    if !has_others() {
        return;
    }
    let dir = Dir::new();
    // The parent directory does not protect the files.
    fs::set_permissions(dir.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let (agent, _) = dir.agent("--http 127.0.0.1:0");
    let port = agent.line(|line| Some(line.split_once("http://")?.1.split_once('"')?.0.to_owned()));
    let them = |script: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).current_dir(dir.path("")).uid(UNPRIVILEGED).gid(UNPRIVILEGED);
        shell.stdin(Stdio::null()).output().unwrap()
    };
    assert!(them("ls").status.success(), "the parent directory is readable");
    for script in [
        "ls data",
        "cat data/secret",
        "cat data/token",
        "cat data/registry",
        "flock -n data/agent.lock true",
        "flock -n starting.lock true",
        "exec 3<>agent.sock",
        "mv data other",
        "rm agent.sock",
    ] {
        let output = them(script);
        assert!(!output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stdout));
    }
    let knock = "exec 3<>/dev/tcp/${0/:/\\/}; printf 'GET /v1/resources HTTP/1.0\\r\\n\\r\\n' >&3; head -1 <&3";
    let mut shell = Command::new("bash");
    shell.args(["-c", knock, &port]).uid(UNPRIVILEGED).gid(UNPRIVILEGED).current_dir("/");
    let output = shell.output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("401"), "{output:?}");
    // The owner of a directory can replace its files, whatever its mode.
    for variable in ["PEERLOCK_DATA_DIR", "PEERLOCK_RUNTIME_DIR"] {
        let theirs = dir.path("theirs");
        fs::create_dir_all(&theirs).unwrap();
        chown(&theirs, Some(UNPRIVILEGED), None).unwrap();
        let other = Dir::new();
        let mut command = other.peerlock("run r -- true");
        let (code, _, stderr) = Running::start(command.env(variable, &theirs)).ends();
        assert!(code == 66 && stderr.contains("another user (uid 65534)"), "{variable}: {code} {stderr}");
        assert_eq!(fs::read_dir(&theirs).unwrap().count(), 0, "the directory is unchanged");
    }
}

const END_ROOTS: &str = "agent=$(head -1 /var/lib/peerlock/agent.lock); kill $agent
    while test -e /proc/$agent; do sleep 0.02; done";

/// An agent that root's command started must not leave directories that seem to be the machine's.
#[test]
fn exited_agent_of_root_locks_no_user_out() {
    if !has_others() {
        return;
    }
    let try_it = "theirs /run/program run --try r -- echo ran; echo \"code $?\"";
    let (out, stderr) = on_a_machine(&format!(
        "/run/program run r -- true
        stat -c %a /run/peerlock /var/lib/peerlock
        {try_it}
        {END_ROOTS}
        {try_it}
        rm -r /run/peerlock; {try_it}"
    ));
    assert_eq!(out, "700\n700\ncode 77\nran\ncode 0\nran\ncode 0\n", "{stderr}");
}

#[test]
fn stopped_agent_of_root_is_not_replaced_after_a_boot() {
    if !has_others() {
        return;
    }
    let (out, stderr) = on_a_machine(
        "/run/program agent --listen 127.0.0.1:0 2>/run/log & agent=$!
        while ! grep -q ready /run/log; do sleep 0.02; done
        stat -c %a /run/peerlock /var/lib/peerlock
        kill $agent; wait $agent; rm -r /run/peerlock
        theirs /run/program run --try r -- echo ran; echo \"code $?\"",
    );
    assert_eq!(out, "710\n710\ncode 69\n", "{stderr}");
}

/// Two users' agents form two clusters, whose jobs do not exclude each other.
#[test]
fn command_warns_of_another_users_agent() {
    if !has_others() {
        return;
    }
    let (out, stderr) = on_a_machine(
        "mkdir /run/other && chown 1001 /run/other
        other() { setpriv --reuid 1001 --regid 1001 --clear-groups env HOME=/run/other \"$@\"; }
        other /run/program run r -- true 2>/run/first
        theirs /run/program run r -- true 2>/run/second
        theirs /run/program run r -- true 2>/run/third
        for run in first second third; do grep -c 'warning: .*(uid 1001, ' /run/$run; done
        cat /proc/$(head -1 /run/home/.local/share/peerlock/agent.lock)/comm",
    );
    assert_eq!(out, "0\n1\n0\npeerlock\n", "{stderr}");
}
