//! `agent --join`: which cluster a host is in afterwards. A host that was told to join never founds a cluster unnoticed.

use std::net::TcpListener;

use crate::common::{Folder, Running};
use crate::doors_users::{has_others, on_a_machine};

/// An address of this machine at which nothing listens.
fn free() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// With the sysctl that virtual addresses need, every address can be bound, and the joining host took the address of
/// the other host for its own, and founded a cluster.
#[test]
fn join_with_nonlocal_bind_founds_no_cluster() {
    if !has_others() {
        return;
    }
    let (out, said) = on_a_machine(
        "exec unshare --net sh -ec '
            ip link set lo up
            echo 1 > /proc/sys/net/ipv4/ip_nonlocal_bind
            mkdir -m 700 /var/lib/peerlock
            head -c 32 /dev/urandom | od -An -tx1 | tr -d \" \\n\" > /var/lib/peerlock/secret
            chmod 600 /var/lib/peerlock/secret
            code=0; /run/program agent --join 10.9.9.9 2>/run/log || code=$?
            echo \"code $code\"; ls /var/lib/peerlock; tail -1 /run/log >&2'",
    );
    assert_eq!(out, "code 69\nagent.lock\nidentity\nsecret\n", "{said}");
    assert!(said.contains("10.9.9.9:7400"), "{said}");
}

/// The installer of Debian writes `127.0.1.1 HOSTNAME` into /etc/hosts; a cloned machine maps the first host's name so.
#[test]
fn join_of_a_name_that_means_this_host_is_refused() {
    if !has_others() {
        return;
    }
    let (out, said) = on_a_machine(
        "printf '127.0.0.1 localhost\n127.0.1.1 db1\n' > /run/hosts && mount --bind /run/hosts /etc/hosts
        mkdir -m 700 /var/lib/peerlock
        head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' > /var/lib/peerlock/secret
        chmod 600 /var/lib/peerlock/secret
        unshare --net sh -c 'ip link set lo up; exec /run/program agent --join db1' 2>/run/log; echo \"code $?\"
        ls /var/lib/peerlock; tail -1 /run/log >&2",
    );
    assert_eq!(out, "code 64\nagent.lock\nidentity\nsecret\n", "{said}");
    assert!(said.contains("only this host itself (db1)") && said.contains("--expect 1"), "{said}");
}

#[test]
fn join_of_itself_founds_only_when_told_to() {
    let folder = Folder::new();
    folder.secret("of the first machine");
    let free = free();
    let options = format!("agent --listen {free} --join {free} --http unix:{}", folder.socket().display());
    let (code, _, said) = Running::start(&mut folder.peerlock(&options)).ends();
    assert!(code == 64 && said.contains("only this host itself"), "{code} {said}");
    assert!(!folder.path("data/cluster").exists() && !folder.path("data/register").exists());
    let mut agent = Running::start(&mut folder.peerlock(&format!("{options} --expect 1")));
    agent.line(|line| line.contains("founded a cluster").then_some(()));
    agent.line(|line| line.contains(" ready").then_some(()));
    folder.run("--try r", "true").ends_with(0);
    agent.send(nix::sys::signal::Signal::SIGTERM);
    agent.ends_with(0);
    // A data directory that belongs to a cluster says enough.
    let agent = Running::start(&mut folder.peerlock(&options));
    agent.line(|line| line.contains(" ready").then_some(()));
    assert!(!agent.said().contains("founded"), "{}", agent.said());
}

#[test]
fn expect_of_half_the_hosts_or_fewer_is_refused() {
    let folder = Folder::new();
    folder.secret("ours");
    let named = "--join 127.0.0.1:1 --join 127.0.0.1:2 --join 127.0.0.1:3";
    let options = format!("agent --listen {} {named} --http unix:{}", free(), folder.socket().display());
    let (code, _, said) = Running::start(&mut folder.peerlock(&format!("{options} --expect 2"))).ends();
    assert!(code == 64 && said.contains("4 hosts") && said.contains("--expect 3 or more"), "{code} {said}");
    let agent = Running::start(&mut folder.peerlock(&format!("{options} --expect 3")));
    agent.line(|line| line.contains(" ready").then_some(()));
}

/// A founder that knows of hosts which it has not reached says so: they may be in another cluster.
#[test]
fn founding_without_a_joined_host_is_logged() {
    let (one, two) = (Folder::new(), Folder::new());
    one.secret("ours");
    two.secret("ours");
    let (here, there, away) = (free(), free(), free());
    let start = |folder: &Folder, listen: &str, other: &str| {
        let join = format!("--join {other} --join {away} --expect 2");
        let options = format!("agent --listen {listen} {join} --http unix:{}", folder.socket().display());
        Running::start(&mut folder.peerlock(&options))
    };
    let agents = [start(&one, &here, &there), start(&two, &there, &here)];
    let founder = agents.each_ref().map(|agent| {
        agent.line(|line| line.contains(" ready").then_some(()));
        agent.said().lines().find(|line| line.contains("WARN") && line.contains("founded a cluster")).map(str::to_owned)
    });
    let [line] = &founder.iter().flatten().collect::<Vec<_>>()[..] else { panic!("one founds: {founder:?}") };
    assert!(line.contains(&away) && !line.contains(&here) && !line.contains(&there), "{line}");
}
