//! Other users of the machine, and hosts whose agent is not there: nobody becomes a cluster of its own without a word,
//! and nobody uses what is another's. What needs another user, or a machine's usual places, needs root.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use nix::unistd::geteuid;

use crate::common::{Dir, Running, eventually, is_gone};

/// The user whom nothing belongs to.
const UNPRIVILEGED: u32 = 65_534;

/// Whether there can be another user here.
pub fn has_others() -> bool {
    let can = geteuid().is_root();
    if !can {
        assert!(std::env::var_os("PEERLOCK_CI").is_none(), "this needs root");
        eprintln!("skipped, for it needs root to be somebody else");
    }
    can
}

/// What a script prints and says with a machine's usual places to itself. The program is `/run/program` there, for it
/// may lie where others cannot go; `theirs` is how another user calls it, whose home is `/run/home`.
pub fn on_a_machine(script: &str) -> (String, String) {
    let prepared = "mount -t tmpfs none /run && mount -t tmpfs none /var/lib
        mkdir /run/home && chown 65534 /run/home
        touch /run/program && mount --bind \"$0\" /run/program
        theirs() { setpriv --reuid 65534 --regid 65534 --clear-groups env HOME=/run/home \"$@\"; }
        ip link set lo up";
    let mut command = Command::new("timeout");
    // With a network of its own: the kernel's list of sockets is one for each.
    command.args("-s KILL 60 unshare --mount --net --pid --fork --kill-child --mount-proc sh -c".split(' '));
    command.arg(format!("{prepared}\n{script}")).arg(env!("CARGO_BIN_EXE_peerlock"));
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr))
}

/// Holds its slot until the file `go` is there.
fn holds(dir: &Dir) -> Running {
    let (ready, go) = (dir.path("in"), dir.path("go"));
    let script = format!("echo > {}; while ! test -e {}; do sleep 0.01; done", ready.display(), go.display());
    let holder = dir.run("r", &script);
    dir.written("in");
    holder
}

/// A host whose agent is stopped, killed, or not started yet after a boot took itself for the only one, and let the
/// next one in beside whoever held the slot elsewhere.
#[test]
fn a_run_whose_agent_is_not_there_is_no_cluster_of_its_own() {
    let (one, two) = (Dir::new(), Dir::new());
    one.secret("ours");
    two.secret("ours");
    let (_first, address) = one.agent("");
    let mut holder = holds(&one);
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let (mut second, _) = two.agent(&format!("--join {address}"));
        assert_eq!(two.run("--try r", "echo in").ends_with(75), "");
        second.send(signal);
        second.ends();
        // As after a boot, where nothing is left of a socket.
        let _gone = fs::remove_file(two.socket());
        let (code, out, said) = two.run("--try r", "echo in").ends();
        // What was killed with the agent may still be counted.
        assert!([69, 75].contains(&code) && out.is_empty(), "{signal}: {code} {out} {said}");
        let started = two.started().expect("it has started the agent again");
        nix::sys::signal::kill(started, Signal::SIGTERM).unwrap();
        eventually("its end", || is_gone(&started.to_string()).then_some(()));
    }
    fs::write(one.path("go"), "").unwrap();
    holder.ends_with(0);
}

/// Root's agent is the machine's. Another user was not told of it, and became a cluster of one.
#[test]
fn another_user_is_no_cluster_of_its_own() {
    if !has_others() {
        return;
    }
    let (out, said) = on_a_machine(
        "/run/program agent --listen 127.0.0.1:0 2>/run/log &
        while ! grep -q ready /run/log; do sleep 0.02; done
        theirs /run/program run r -- echo in; echo \"code $?\"; ls -A /run/home
        theirs /run/program doctor >/run/found; echo \"code $?\"
        grep -c 'bad *agent .* permission denied' /run/found",
    );
    assert!(out == "code 77\ncode 1\n1\n", "it is not let in, has no folder, and hears why: {out} {said}");
    assert!(said.contains("--socket-group") && said.contains("a separate cluster"), "{said}");
}

/// In the second in which the machine's agent is started again, or before it is at a boot, who may use it founded a
/// cluster of its own, was let in beside whoever held the slot, and never used the machine's agent again.
#[test]
fn who_may_use_the_machines_agent_founds_nothing_while_that_is_down() {
    if !has_others() {
        return;
    }
    let (out, said) = on_a_machine(
        "start() {
            /run/program agent --session 2s --listen 127.0.0.1:0 --socket-group nogroup 2>/run/log & agent=$!
            while ! grep -q ready /run/log; do sleep 0.02; done
        }
        try() { theirs /run/program run -w 1m r -- echo in; echo \"code $?\"; ls -A /run/home; }
        start; try
        kill -9 $agent; wait $agent 2>/dev/null; try
        rm -r /run/peerlock; try
        (sleep 1; exec /run/program agent --session 2s --listen 127.0.0.1:0 --socket-group nogroup 2>/run/log) &
        try
        export PEERLOCK_DATA_DIR=/run/home/own; try",
    );
    let down = "code 69\n";
    let own = "in\ncode 0\nown\n";
    assert_eq!(out, format!("in\ncode 0\n{down}{down}in\ncode 0\n{own}"), "{said}");
    assert!(said.contains("systemctl start peerlock"), "{said}");
}

/// A user's cron knows no `$XDG_RUNTIME_DIR`, and its shells do: the agent that came after a death, or was to replace
/// another, was at another place than the jobs looked at, and knew nothing of them.
#[test]
fn cron_and_a_shell_of_one_user_have_the_same_agent_also_after_its_death() {
    if !has_others() {
        return;
    }
    let (out, said) = on_a_machine(
        "mkdir /run/user && chown 65534 /run/user
        shell() { theirs XDG_RUNTIME_DIR=/run/user /run/program \"$@\"; }
        data=/run/home/.local/share/peerlock
        theirs /run/program run r -- sh -c 'touch ~/in; until test -e /run/go; do sleep 0.02; done; exit 7' & job=$!
        until test -e /run/home/in; do sleep 0.02; done
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
    assert_eq!(out, format!("{socket}{socket}code 7\n"), "{said}");
}

/// Root has one usual socket: who named another data folder was served by the agent of the usual one; or started its
/// own there, when that was down just then, and the jobs of the usual one were killed.
#[test]
fn a_data_folder_that_is_named_has_an_agent_of_its_own() {
    if !has_others() {
        return;
    }
    let (out, said) = on_a_machine(
        "/run/program run r -- sh -c 'touch /run/in; until test -e /run/go; do sleep 0.02; done; exit 7' & job=$!
        until test -e /run/in; do sleep 0.02; done
        export PEERLOCK_DATA_DIR=/run/other
        /run/program run --try r -- echo in; echo \"code $?\"
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
    assert_eq!(out, format!("in\ncode 0\n{sockets}code 7\n"), "{said}");
}

/// The unit for systemd takes every right away from its agent, which could not look into the process of another of the
/// same user that has them.
#[test]
fn an_agent_without_any_rights_takes_over_from_one_that_has_them() {
    if !has_others() {
        return;
    }
    let dir = Dir::new();
    let mut holder = holds(&dir);
    let started = dir.started().expect("an agent that a command has started");
    let command = dir.peerlock("agent --listen 127.0.0.1:0");
    let mut without = Command::new("setpriv");
    without.args(["--bounding-set=-all", "--inh-caps=-all"]).arg(command.get_program()).args(command.get_args());
    without.env_clear().envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let agent = Running::start(without.stdout(Stdio::piped()).stderr(Stdio::piped()));
    agent.line(|line| line.contains(" ready ").then_some(()));
    eventually("the end of the first one", || is_gone(&started.to_string()).then_some(()));
    fs::write(dir.path("go"), "").unwrap();
    holder.ends_with(0);
}

/// What belongs to one user is neither read, nor locked, nor asked by another, whose folders are no place for it
/// either.
#[test]
fn what_is_one_users_is_nothing_to_another() {
    if !has_others() {
        return;
    }
    let dir = Dir::new();
    // The folder of the folders is not what protects them.
    fs::set_permissions(dir.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let (agent, _) = dir.agent("--http 127.0.0.1:0");
    let port = agent.line(|line| Some(line.split_once("http://")?.1.split_once('"')?.0.to_owned()));
    let them = |script: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).current_dir(dir.path("")).uid(UNPRIVILEGED).gid(UNPRIVILEGED);
        shell.stdin(Stdio::null()).output().unwrap()
    };
    assert!(them("ls").status.success(), "they get as far as that");
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
    let said = shell.output().unwrap();
    assert!(String::from_utf8_lossy(&said.stdout).contains("401"), "{said:?}");
    // Whoever owns a folder can do with it what it likes, whatever its mode says.
    for variable in ["PEERLOCK_DATA_DIR", "PEERLOCK_RUNTIME_DIR"] {
        let theirs = dir.path("theirs");
        fs::create_dir_all(&theirs).unwrap();
        chown(&theirs, Some(UNPRIVILEGED), None).unwrap();
        let other = Dir::new();
        let mut command = other.peerlock("run r -- true");
        let (code, _, said) = Running::start(command.env(variable, &theirs)).ends();
        assert!(code == 66 && said.contains("another user (uid 65534)"), "{variable}: {code} {said}");
        assert_eq!(fs::read_dir(&theirs).unwrap().count(), 0, "nothing is left there");
    }
}

/// Ends the agent of root that a command has started.
const END_ROOTS: &str = "agent=$(head -1 /var/lib/peerlock/agent.lock); kill $agent
    while test -e /proc/$agent; do sleep 0.02; done";

/// The directories of the agent that it had started stayed, and every other user was told for good to use that agent.
#[test]
fn one_command_of_root_locks_no_other_user_out() {
    if !has_others() {
        return;
    }
    let try_it = "theirs /run/program run --try r -- echo in; echo \"code $?\"";
    let (out, said) = on_a_machine(&format!(
        "/run/program run r -- true
        stat -c %a /run/peerlock /var/lib/peerlock
        {try_it}
        {END_ROOTS}
        {try_it}
        rm -r /run/peerlock; {try_it}"
    ));
    // While it runs it is the machine's.
    assert_eq!(out, "700\n700\ncode 77\nin\ncode 0\nin\ncode 0\n", "{said}");
}

/// After a boot there is nothing of it but its data directory.
#[test]
fn agent_of_root_that_stays_is_waited_for_after_a_boot() {
    if !has_others() {
        return;
    }
    let (out, said) = on_a_machine(
        "/run/program agent --listen 127.0.0.1:0 2>/run/log & agent=$!
        while ! grep -q ready /run/log; do sleep 0.02; done
        stat -c %a /run/peerlock /var/lib/peerlock
        kill $agent; wait $agent; rm -r /run/peerlock
        theirs /run/program run --try r -- echo in; echo \"code $?\"",
    );
    assert_eq!(out, "710\n710\ncode 69\n", "{said}");
}

/// Each user has an agent and a cluster: whoever expected the other's job to be excluded was not told.
#[test]
fn command_warns_of_another_users_agent() {
    if !has_others() {
        return;
    }
    let (out, said) = on_a_machine(
        "mkdir /run/other && chown 1001 /run/other
        other() { setpriv --reuid 1001 --regid 1001 --clear-groups env HOME=/run/other \"$@\"; }
        other /run/program run r -- true 2>/run/first
        theirs /run/program run r -- true 2>/run/second
        theirs /run/program run r -- true 2>/run/third
        for run in first second third; do grep -c 'warning: .*(uid 1001, ' /run/$run; done
        cat /proc/$(head -1 /run/home/.local/share/peerlock/agent.lock)/comm",
    );
    assert_eq!(out, "0\n1\n0\npeerlock\n", "{said}");
}
