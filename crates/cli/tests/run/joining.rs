//! `agent --join` and the cluster that the host is in afterwards. A host with --join never creates a cluster silently.

use std::fs;
use std::net::TcpListener;

use nix::sys::signal::Signal;

use crate::common::{Dir, Running, eventually};
use crate::doctor::{doctor, healthz};
use crate::users::{has_others, on_a_machine};

fn free() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// With this sysctl, which virtual addresses need, a process can bind any address, and another host's address must not
/// be taken for one of this host.
#[test]
fn join_with_nonlocal_bind_creates_no_cluster() {
    if !has_others() {
        return;
    }
    let (out, stderr) = on_a_machine(
        "exec unshare --net sh -ec '
            ip link set lo up
            echo 1 > /proc/sys/net/ipv4/ip_nonlocal_bind
            mkdir -m 700 /var/lib/peerlock
            head -c 32 /dev/urandom | od -An -tx1 | tr -d \" \\n\" > /var/lib/peerlock/secret
            chmod 600 /var/lib/peerlock/secret
            code=0; /run/program agent --join 10.9.9.9 2>/run/log || code=$?
            echo \"code $code\"; ls /var/lib/peerlock; tail -1 /run/log >&2'",
    );
    assert_eq!(out, "code 69\nagent.lock\nidentity\nprocess\nsecret\n", "{stderr}");
    assert!(stderr.contains("10.9.9.9:7400"), "{stderr}");
}

/// Debian writes `127.0.1.1 HOSTNAME` into /etc/hosts: on a cloned machine the name of the first host.
#[test]
fn join_of_a_name_that_means_this_host_is_refused() {
    if !has_others() {
        return;
    }
    let (out, stderr) = on_a_machine(
        "printf '127.0.0.1 localhost\n127.0.1.1 db1\n' > /run/hosts && mount --bind /run/hosts /etc/hosts
        mkdir -m 700 /var/lib/peerlock
        head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' > /var/lib/peerlock/secret
        chmod 600 /var/lib/peerlock/secret
        unshare --net sh -c 'ip link set lo up; exec /run/program agent --join db1' 2>/run/log; echo \"code $?\"
        ls /var/lib/peerlock; tail -1 /run/log >&2",
    );
    assert_eq!(out, "code 64\nagent.lock\nidentity\nprocess\nsecret\n", "{stderr}");
    assert!(stderr.contains("only this host itself (db1)") && stderr.contains("--expect 1"), "{stderr}");
}

#[test]
fn join_of_itself_creates_a_cluster_only_with_expect() {
    let dir = Dir::new();
    dir.secret("of the first machine");
    let free = free();
    let options = format!("agent --listen {free} --join {free} --http unix:{}", dir.socket().display());
    let (code, _, stderr) = Running::start(&mut dir.peerlock(&options)).ends();
    assert!(code == 64 && stderr.contains("only this host itself"), "{code} {stderr}");
    assert!(!dir.path("data/cluster").exists() && !dir.path("data/registry").exists());
    let mut agent = Running::start(&mut dir.peerlock(&format!("{options} --expect 1")));
    agent.line(|line| line.contains("created a cluster").then_some(()));
    agent.line(|line| line.contains(" ready").then_some(()));
    dir.run("--try r", "true").ends_with(0);
    agent.send(Signal::SIGTERM);
    agent.ends_with(0);
    let agent = Running::start(&mut dir.peerlock(&options));
    agent.line(|line| line.contains(" ready").then_some(()));
    assert!(!agent.stderr().contains("created a cluster"), "{}", agent.stderr());
}

#[test]
fn expect_of_half_the_hosts_or_fewer_is_refused() {
    let dir = Dir::new();
    dir.secret("ours");
    let named = "--join 127.0.0.1:1 --join 127.0.0.1:2 --join 127.0.0.1:3";
    let options = format!("agent --listen {} {named} --http unix:{}", free(), dir.socket().display());
    let (code, _, stderr) = Running::start(&mut dir.peerlock(&format!("{options} --expect 2"))).ends();
    assert!(code == 64 && stderr.contains("4 hosts") && stderr.contains("--expect 3 or more"), "{code} {stderr}");
    let agent = Running::start(&mut dir.peerlock(&format!("{options} --expect 3")));
    agent.line(|line| line.contains(" ready").then_some(()));
}

#[test]
fn cluster_created_without_a_joined_host_is_logged() {
    let (one, two) = (Dir::new(), Dir::new());
    one.secret("ours");
    two.secret("ours");
    let (here, there, away) = (free(), free(), free());
    let start = |dir: &Dir, listen: &str, other: &str| {
        let join = format!("--join {other} --join {away} --expect 2");
        let options = format!("agent --listen {listen} {join} --http unix:{}", dir.socket().display());
        Running::start(&mut dir.peerlock(&options))
    };
    let agents = [start(&one, &here, &there), start(&two, &there, &here)];
    let founder = agents.each_ref().map(|agent| {
        agent.line(|line| line.contains(" ready").then_some(()));
        agent
            .stderr()
            .lines()
            .find(|line| line.contains("WARN") && line.contains("created a cluster"))
            .map(str::to_owned)
    });
    let [line] = &founder.iter().flatten().collect::<Vec<_>>()[..] else {
        panic!("one creates the cluster: {founder:?}")
    };
    assert!(line.contains(&away) && !line.contains(&here) && !line.contains(&there), "{line}");
}

fn agent_at(dir: &Dir, listen: &str, options: &str) -> Running {
    let options = format!("agent --listen {listen} --http unix:{} {options}", dir.socket().display());
    Running::start(&mut dir.peerlock(&options))
}

fn is_ready(agent: &Running) {
    agent.line(|line| line.contains(" ready").then_some(()));
}

fn cluster(dir: &Dir) -> String {
    fs::read_to_string(dir.path("data/cluster")).unwrap()[..32].to_owned()
}

fn stop(mut agent: Running) {
    agent.send(Signal::SIGTERM);
    agent.ends_with(0);
}

fn finds(dir: &Dir, words: &str) -> bool {
    let (code, lines) = doctor(dir);
    code == 1 && lines.iter().any(|line| line.starts_with("bad cluster ") && line.contains(words))
}

/// The first command of the README creates a cluster of one host, which a later `agent --join` must leave.
#[test]
fn join_after_a_first_run_leaves_its_own_cluster() {
    let (one, two) = (Dir::new(), Dir::new());
    let (_first, address) = one.agent("");
    two.run("backup", "true").ends_with(0);
    let (own, theirs) = (cluster(&two), cluster(&one));
    assert_ne!(own, theirs);
    let (second, _) = two.agent(&one.join(&address));
    let stderr = second.stderr();
    assert!(stderr.contains("WARN") && stderr.contains("left its own cluster"), "{stderr}");
    assert!(stderr.contains(&format!("peerlock: left the cluster {own}")) && stderr.contains(&theirs), "{stderr}");
    assert_eq!(cluster(&two), theirs);
    assert!(two.path("data/registry.left").exists());
    let mut holder = one.holder("migrate");
    assert_eq!(two.run("--try migrate", "echo ran").ends_with(75), "");
    one.touch("go");
    holder.ends_with(0);
    assert_eq!(doctor(&two).0, 0);
}

#[test]
fn join_with_another_secret_is_refused() {
    let (one, two) = (Dir::new(), Dir::new());
    let (_first, address) = one.agent("");
    two.run("backup", "true").ends_with(0);
    let own = cluster(&two);
    let (code, _, stderr) = agent_at(&two, "127.0.0.1:0", &format!("--join {address}")).ends();
    assert!(code == 64 && stderr.contains("another secret") && stderr.contains("--secret-file"), "{code} {stderr}");
    assert_eq!(cluster(&two), own);
}

#[test]
fn join_is_refused_while_its_own_cluster_has_holders() {
    for detached in [false, true] {
        let (one, two) = (Dir::new(), Dir::new());
        let (_first, address) = one.agent("");
        let options = one.join(&address);
        let mut running = None;
        let mut grant = String::new();
        if detached {
            grant = Running::start(&mut two.peerlock("acquire --ttl 1h backup")).ends_with(0);
        } else {
            running = Some(two.holder("backup"));
        }
        let own = cluster(&two);
        let (code, _, stderr) = agent_at(&two, "127.0.0.1:0", &options).ends();
        assert!(code == 64 && stderr.contains("holds slots in a cluster of its own"), "{detached}: {code} {stderr}");
        assert_eq!(cluster(&two), own);
        match running {
            Some(mut holder) => {
                two.touch("go");
                holder.ends_with(0);
            }
            None => {
                let id = grant.lines().find_map(|line| line.split_once("PEERLOCK_GRANT=")).unwrap().1;
                let release = format!("release --grant {} backup", id.trim_matches('\''));
                Running::start(&mut two.peerlock(&release)).ends_with(0);
            }
        }
        let _second = eventually("an agent that has joined", || {
            let mut second = agent_at(&two, "127.0.0.1:0", &options);
            let is_ready = |agent: &Running| agent.stderr().contains(" ready");
            let ended = eventually("the agent's start", || match second.has_ended() {
                true => Some(true),
                false => is_ready(&second).then_some(false),
            });
            (!ended).then_some(second)
        });
        assert_eq!(cluster(&two), cluster(&one), "{detached}");
    }
}

#[test]
fn join_is_refused_where_its_own_cluster_has_two_hosts() {
    let (one, two, three) = (Dir::new(), Dir::new(), Dir::new());
    for dir in [&one, &two, &three] {
        dir.secret("ours");
    }
    let (_first, address) = one.agent("");
    let (second, own) = two.agent("");
    let (third, _) = three.agent(&format!("--join {own}"));
    let id = cluster(&two);
    assert!(id == cluster(&three) && id != cluster(&one));
    stop(third);
    let (code, _, stderr) = agent_at(&three, "127.0.0.1:0", &format!("--join {address}")).ends();
    assert!(code == 64 && stderr.contains("which has other hosts") && stderr.contains(&id), "{code} {stderr}");
    // If a host of its own cluster is among those of --join, an agent stays in that cluster.
    let (third, _) = three.agent(&format!("--join {address} --join {own}"));
    eventually("a finding", || finds(&three, &cluster(&one)).then_some(()));
    assert_eq!(cluster(&three), id);
    drop((second, third));
}

/// The other host does not answer at the start, so its cluster is unknown.
#[test]
fn join_target_that_comes_later_in_another_cluster_is_reported() {
    let (one, two) = (Dir::new(), Dir::new());
    for dir in [&one, &two] {
        dir.secret("ours");
    }
    stop(two.agent("").0);
    let (here, there) = (free(), free());
    let second = agent_at(&two, &here, &format!("--join {there}"));
    is_ready(&second);
    assert!(doctor(&two).0 == 0 && healthz(&two).starts_with("HTTP/1.1 200"), "the other cluster is unknown");
    let first = agent_at(&one, &there, "");
    is_ready(&first);
    eventually("a finding", || finds(&two, &format!("{there} belongs to another cluster")).then_some(()));
    let health = healthz(&two);
    assert!(health.starts_with("HTTP/1.1 503") && health.contains(&there), "{health}");
    let metrics = crate::doctor::get(&two, "/metrics");
    for gauge in ["peerlock_other_cluster_joined 1", "peerlock_other_cluster_hosts 1"] {
        assert!(metrics.contains(gauge), "{metrics}");
    }
    // The other host was not given --join, but the first one's connection attempt reveals its cluster.
    eventually("a finding", || finds(&one, "belongs to another cluster").then_some(()));
    assert!(healthz(&one).starts_with("HTTP/1.1 200"));
    stop(second);
    let second = agent_at(&two, &here, &format!("--join {there}"));
    is_ready(&second);
    assert_eq!(cluster(&one), cluster(&two));
    eventually("no finding", || (doctor(&two).0 == 0 && doctor(&one).0 == 0).then_some(()));
    assert!(healthz(&two).starts_with("HTTP/1.1 200"));
    drop(first);
}

#[test]
fn hosts_that_join_each_other_at_once_become_one_cluster() {
    let (one, two) = (Dir::new(), Dir::new());
    for dir in [&one, &two] {
        dir.secret("ours");
    }
    stop(one.agent("").0);
    stop(two.agent("").0);
    let before = [cluster(&one), cluster(&two)];
    let (here, there) = (free(), free());
    let agents = [agent_at(&one, &here, &format!("--join {there}")), agent_at(&two, &there, &format!("--join {here}"))];
    agents.iter().for_each(is_ready);
    assert_eq!(cluster(&one), cluster(&two));
    assert!(before.contains(&cluster(&one)), "one of the two clusters remains");
    one.run("r", "true").ends_with(0);
    two.run("r", "true").ends_with(0);
}

#[test]
fn second_cluster_in_the_log_is_in_doctor() {
    let (one, two) = (Dir::new(), Dir::new());
    for dir in [&one, &two] {
        dir.secret("ours");
    }
    stop(one.agent("").0);
    let second = agent_at(&two, &free(), "");
    is_ready(&second);
    let address = second.line(|line| Some(line.split_once("address=")?.1.split(' ').next()?.to_owned()));
    // The first host's directory names the address of a host that is now in another cluster.
    let members = one.path("data/cluster");
    fs::write(&members, format!("{}\n{address}\n", cluster(&one))).unwrap();
    let (_first, _) = one.agent("");
    for dir in [&one, &two] {
        eventually("a finding", || finds(dir, "belongs to another cluster").then_some(()));
        assert!(healthz(dir).starts_with("HTTP/1.1 200"), "without --join the agent is healthy");
    }
}
