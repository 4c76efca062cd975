//! Follows `docs/three-servers.md` literally, on three machines in namespaces. Only `systemctl` and `scp` are replaced
//! by scripts, which support the commands of the page.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use super::network::{Network, network};

const PAGE: &str = include_str!("../../../../docs/three-servers.md");
const UNIT: &str = include_str!("../../../../contrib/peerlock.service");

/// Gives the machine its own files in the directories of the page, and the page's host names.
const MACHINE: &str = r#"
set -e
mount -t tmpfs tmpfs /run; mount -t tmpfs tmpfs /var/lib; mount -t tmpfs tmpfs /usr/local/bin
mkdir "$ALL/etc$N"; cp -a /etc/. "$ALL/etc$N"; mount --bind "$ALL/etc$N" /etc
mkdir -p /etc/systemd/system
printf '127.0.0.1 localhost\n10.77.0.1 db1\n10.77.0.2 db2\n10.77.0.3 db3\n' > /etc/hosts
hostname "db$N"
touch /usr/local/bin/peerlock; mount --bind "$PROGRAM" /usr/local/bin/peerlock
cp "$ALL/systemctl" "$ALL/scp" /usr/local/bin/
export PATH="/usr/local/bin:$PATH"
cd "$ALL"
set +e
"#;

const SYSTEMCTL: &str = r#"#!/bin/bash
unit=/etc/systemd/system/peerlock.service
case "$*" in
daemon-reload) ;;
"enable --now peerlock")
    of() { sed -n "s/^$1=//p" "$unit" | sed 's,%S,/var/lib,g; s,%t,/run,g'; }
    user=$(of User) words=$(of ExecStart) before=$(of ExecStartPre)
    arguments=$(sed -n 's/^PEERLOCK_ARGS=//p' /etc/peerlock/agent.env)
    export $(of Environment)
    install -d -o "$user" -g "$user" -m 700 /var/lib/peerlock
    install -d -o "$user" -g "$user" -m 710 /run/peerlock
    ${before#+-}
    setsid setpriv --reuid "$user" --regid "$user" --init-groups --bounding-set=-all --no-new-privs \
        ${words/\$PEERLOCK_ARGS/$arguments} < /dev/null > /run/log 2>&1 & agent=$!
    until grep -q ready /run/log; do kill -0 $agent || { cat /run/log >&2; exit 1; }; sleep 0.05; done ;;
*) echo "systemctl $*: the page has no such command" >&2; exit 64 ;;
esac
"#;

const SCP: &str = r#"#!/bin/bash
case "$1 $3" in
"-p db"?:/etc/*) exec cp -p "$2" "$ALL/etc${3:2:1}/${3#db?:/etc/}" ;;
*) echo "scp $*: the page has no such command" >&2; exit 64 ;;
esac
"#;

struct Server {
    shell: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone = self.shell.kill();
        let _gone = self.shell.wait();
    }
}

impl Server {
    fn new(network: &Network, number: usize, all: &Path) -> Self {
        let mut command = network.command(number, "unshare");
        command.args("--mount --uts --pid --fork --kill-child --mount-proc bash".split(' '));
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", "/root");
        command.env("ALL", all).env("N", number.to_string()).env("PROGRAM", env!("CARGO_BIN_EXE_peerlock"));
        let mut shell = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (shell.stdin.take().unwrap(), BufReader::new(shell.stdout.take().unwrap()));
        let mut server = Self { shell, input, output };
        server.begins(MACHINE);
        server.ends();
        server
    }

    fn begins(&mut self, script: &str) {
        writeln!(self.input, "{script}\necho \"code $?\"").unwrap();
    }

    fn ends(&mut self) -> String {
        let mut printed = String::new();
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the shell has ended: {printed}");
            match line.trim().strip_prefix("code ") {
                Some("0") => return printed,
                Some(code) => panic!("code {code}: {printed}"),
                None => printed += &line,
            }
        }
    }
}

fn steps() -> Vec<(Vec<usize>, String)> {
    let mut steps = Vec::new();
    for (before, rest) in PAGE.split("```sh\n").zip(PAGE.split("```sh\n").skip(1)) {
        let paragraph = before.trim_end().rsplit("\n\n").next().unwrap();
        let machines = if paragraph.starts_with("On db1") { vec![1] } else { vec![1, 2, 3] };
        steps.push((machines, rest.split("```").next().unwrap().to_owned()));
    }
    steps
}

#[test]
fn page_three_servers_works_as_written() {
    let Some(network) = network(3) else { return };
    let all = tempfile::tempdir().unwrap();
    for (name, text) in [("systemctl", SYSTEMCTL), ("scp", SCP), ("peerlock.service", UNIT)] {
        fs::write(all.path().join(name), text).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(all.path().join(name), mode).unwrap();
    }
    let mut servers: Vec<Server> = (1..=3).map(|number| Server::new(&network, number, all.path())).collect();
    let steps = steps();
    assert_eq!(steps.len(), 5, "{steps:?}");
    let mut printed = Vec::new();
    for (machines, script) in &steps {
        let script = format!("(set -e\n{script})");
        machines.iter().for_each(|machine| servers[machine - 1].begins(&script));
        printed = machines.iter().map(|machine| servers[machine - 1].ends()).collect();
    }
    assert_eq!(printed, ["my turn on db1\n", "my turn on db2\n", "my turn on db3\n"]);
    let mut ask = |script: &str| -> Vec<String> {
        servers.iter_mut().for_each(|server| server.begins(script));
        servers.iter_mut().map(Server::ends).collect()
    };
    let clusters = ask("head -1 /var/lib/peerlock/cluster");
    assert!(clusters.iter().all(|id| *id == clusters[0]), "{clusters:?}");
    let owners = ask("stat -c %U /etc/peerlock/secret /proc/$(head -1 /var/lib/peerlock/agent.lock)");
    assert!(owners.iter().all(|owners| owners == "peerlock\npeerlock\n"), "{owners:?}");
    let left = ask("cat /etc/peerlock/agent.env");
    assert!(left.iter().all(|line| line == "PEERLOCK_ARGS=--join db1 --join db2 --join db3\n"), "{left:?}");
}
