//! Clusters in operation: voters, recovery after the loss of a quorum, damaged files and full disks.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::common::{Dir, Running, eventually, with_shell};

const SESSION: &str = "--session 3s";

struct Cluster {
    dirs: Vec<Dir>,
    agents: Vec<Running>,
    addresses: Vec<String>,
}

impl Cluster {
    fn new(hosts: usize) -> Self {
        let mut cluster = Self { dirs: Vec::new(), agents: Vec::new(), addresses: Vec::new() };
        for _ in 0..hosts {
            let dir = Dir::new();
            let (agent, address) = dir.agent(&cluster.options());
            cluster.dirs.push(dir);
            cluster.agents.push(agent);
            cluster.addresses.push(address);
        }
        cluster
    }

    fn options(&self) -> String {
        match (self.dirs.first(), self.addresses.first()) {
            (Some(first), Some(address)) => {
                format!("{SESSION} {}", first.join(address))
            }
            _ => SESSION.to_owned(),
        }
    }

    fn voters(&self, at: usize) -> Vec<String> {
        let output = self.dirs[at].peerlock("voters --json").output().unwrap();
        let observed: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let votes = |peer: &&Value| peer["voter"] == "votes" || peer["voter"] == "leads";
        let peers = observed["peers"].as_array().into_iter().flatten();
        peers.filter(votes).map(|peer| peer["address"].as_str().unwrap_or_default().to_owned()).collect()
    }

    fn until_voters(&self, expected: &[usize]) {
        let mut expected: Vec<&String> = expected.iter().map(|host| &self.addresses[*host]).collect();
        expected.sort();
        eventually("the voters", || {
            let mut voters = self.voters(0);
            voters.sort();
            voters.iter().eq(expected.iter().copied()).then_some(())
        });
    }

    fn kill(&mut self, host: usize) {
        self.agents[host].send(Signal::SIGKILL);
        self.agents[host].ends();
    }

    fn stop(&mut self, host: usize) {
        self.agents[host].send(Signal::SIGTERM);
        self.agents[host].ends_with(0);
    }

    fn start(&mut self, host: usize) {
        let secret = self.dirs[0].path("data/secret").display().to_string();
        let (agent, _) = agent_at(&self.dirs[host], &self.addresses[host], &secret);
        self.agents[host] = agent;
    }
}

fn agent_at(dir: &Dir, address: &str, secret: &str) -> (Running, String) {
    let http = dir.socket();
    let options = format!("agent {SESSION} --listen {address} --secret-file {secret} --http unix:{}", http.display());
    let agent = Running::start(&mut dir.peerlock(&options));
    agent.line(|line| line.contains(" ready").then_some(()));
    (agent, address.to_owned())
}

fn refused(command: &mut Command, expected: i32) -> String {
    let (code, out, stderr) = Running::start(command).ends();
    assert_eq!(code, expected, "{out}\n{stderr}");
    stderr
}

fn does_not_start(dir: &Dir, options: &str, expected: i32) -> String {
    let http = dir.socket();
    let stderr = refused(
        &mut dir.peerlock(&format!("agent --listen 127.0.0.1:0 --http unix:{} {options}", http.display())),
        expected,
    );
    let last = stderr.lines().next_back().unwrap_or_default();
    last.strip_prefix("peerlock: ").unwrap_or_else(|| panic!("the last line is not the error: {stderr}")).to_owned()
}

fn token(dir: &Dir, name: &str) -> u64 {
    let printed = dir.run(&format!("-w 30s {name}"), "echo $PEERLOCK_FENCING").ends_with(0);
    printed.trim().parse().unwrap()
}

#[test]
fn voters_are_listed_and_set() {
    let cluster = Cluster::new(3);
    cluster.until_voters(&[0, 1, 2]);
    let text = cluster.dirs[2].peerlock("voters").output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.starts_with("cluster ") && cluster.addresses.iter().all(|it| text.contains(it)), "{text}");
    assert_eq!(text.matches("leads").count(), 1, "{text}");
    let voters = |arguments: &str| cluster.dirs[1].peerlock(&format!("voters {arguments}"));
    // All hosts have the same name here, so only numbers and addresses are unique.
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let stderr = refused(&mut voters(&format!("--set {}", name.trim())), 64);
    assert!(stderr.contains("several hosts have the name"), "{stderr}");
    let stderr = refused(&mut voters("--set absent"), 64);
    assert!(stderr.contains("no member has the name absent") && stderr.contains("peerlock peers"), "{stderr}");
    refused(&mut voters(&format!("--set {}", cluster.addresses[1])), 0);
    cluster.until_voters(&[1]);
    token(&cluster.dirs[2], "r");
    refused(&mut voters("--auto"), 0);
    cluster.until_voters(&[0, 1, 2]);
    token(&cluster.dirs[0], "r");
}

#[test]
fn member_that_is_gone_is_forgotten_and_returns() {
    let mut cluster = Cluster::new(4);
    cluster.until_voters(&[0, 1, 2]);
    let address = cluster.addresses[3].clone();
    let forget =
        |dirs: &[Dir], host: &str| Running::start(&mut dirs[1].peerlock(&format!("peers --forget {host}"))).ends();
    for host in [&address, &cluster.addresses[0]] {
        let (code, _, stderr) = forget(&cluster.dirs, host);
        assert!(code == 75 && stderr.contains("the host has a session"), "{code} {stderr}");
    }
    assert_eq!(forget(&cluster.dirs, "absent").0, 64);
    cluster.kill(3);
    eventually("its session has expired", || (forget(&cluster.dirs, &address).0 == 0).then_some(()));
    cluster.start(3);
    token(&cluster.dirs[3], "r");
}

#[test]
fn recover_continues_with_one_of_three_voters() {
    let mut cluster = Cluster::new(3);
    cluster.until_voters(&[0, 1, 2]);
    let before = token(&cluster.dirs[1], "r");
    cluster.kill(1);
    cluster.kill(2);
    let stderr = eventually("nothing is granted", || {
        let (code, _, stderr) = cluster.dirs[0].run("--try r", "true").ends();
        (code == 69).then_some(stderr)
    });
    assert!(stderr.contains("no quorum") && stderr.contains("peerlock recover"), "{stderr}");

    let recover = |arguments: &str| cluster.dirs[0].peerlock(&format!("recover {arguments}"));
    assert!(refused(&mut recover("--yes"), 69).contains("is already running"));
    cluster.agents[0].send(Signal::SIGTERM);
    cluster.agents[0].ends_with(69); // No quorum confirmed that it left.
    let files = || ["cluster", "registry"].map(|name| fs::read(cluster.dirs[0].path("data").join(name)).unwrap());
    let was = files();
    let stderr = refused(&mut recover(""), 64);
    for words in ["are lost", "highest term", "a new ID", "nothing was changed", "--yes"] {
        assert!(stderr.contains(words), "{words}: {stderr}");
    }
    assert!(files() == was, "it was not confirmed");
    assert!(stderr.contains("Nothing is granted in the first 16 s after"), "as long as the default session: {stderr}");
    refused(&mut recover("--yes"), 0);
    assert!(files() != was);
    cluster.start(0);
    let after = token(&cluster.dirs[0], "r");
    assert!(after > before, "{after} after {before}");

    // A former voter exits when it learns of the recovery. After its next start it is a member.
    let secret = cluster.dirs[0].path("data/secret").display().to_string();
    let old = cluster.dirs[1].path("data");
    assert!(old.join("registry").exists());
    let options = format!("agent {SESSION} --listen {} --secret-file {secret}", cluster.addresses[1]);
    let stderr = refused(&mut cluster.dirs[1].peerlock(&options), 75);
    assert!(stderr.lines().last().is_some_and(|line| line.contains("the cluster was recovered")), "{stderr}");
    assert!(!old.join("registry").exists(), "the old registry is discarded");
    cluster.start(1);
    assert!(token(&cluster.dirs[1], "r") > after);
    let id = |host: usize| fs::read_to_string(cluster.dirs[host].path("data/cluster")).unwrap()[..32].to_owned();
    assert_eq!(id(0), id(1));
}

#[test]
fn session_beyond_its_limit_is_refused() {
    for (session, is_good) in [("11m", false), ("99ms", false), ("10m", true)] {
        let dir = Dir::new();
        if is_good {
            dir.agent(&format!("--session {session}"));
            continue;
        }
        let stderr = does_not_start(&dir, &format!("--session {session}"), 64);
        assert!(stderr.contains("choose between 100 ms and 10 min"), "{stderr}");
    }
}

/// The offset of the first record, which has the state at the creation of the file.
const HEADER: usize = 64;

#[test]
fn damaged_registry_is_refused_until_moved_away() {
    let mut cluster = Cluster::new(3);
    cluster.until_voters(&[0, 1, 2]);
    let before = token(&cluster.dirs[1], "r");
    cluster.stop(2);
    let registry = cluster.dirs[2].path("data/registry");
    let whole = fs::read(&registry).unwrap();
    let mut damaged = whole.clone();
    damaged[HEADER + 40] ^= 1;
    fs::write(&registry, &damaged).unwrap();
    let stderr = does_not_start(&cluster.dirs[2], "", 66);
    let path = registry.display().to_string();
    for words in [path.as_str(), "record 1 at byte 64", "checksum mismatch", "Move the file away"] {
        assert!(stderr.contains(words), "{words}: {stderr}");
    }
    assert!(fs::read(&registry).unwrap() == damaged, "nothing has changed");
    let (code, _, stderr) = cluster.dirs[2].run("--try r", "true").ends();
    assert!(code == 69 && stderr.contains("start it again as before"), "{code}: {stderr}");
    let (_, out, _) = Running::start(&mut cluster.dirs[2].peerlock("doctor")).ends();
    assert!(out.contains("registry is damaged: record 1 at byte 64"), "{out}");
    fs::rename(&registry, cluster.dirs[2].path("moved")).unwrap();
    cluster.start(2);
    assert!(token(&cluster.dirs[2], "r") > before);
    cluster.until_voters(&[0, 1, 2]);
    eventually("its new file", || registry.exists().then_some(()));
}

#[test]
fn torn_record_is_cut_off() {
    let mut cluster = Cluster::new(1);
    let before = token(&cluster.dirs[0], "r");
    cluster.kill(0);
    let registry = cluster.dirs[0].path("data/registry");
    let mut file = fs::read(&registry).unwrap();
    file.extend([0; 100]); // Unwritten blocks are zeros.
    fs::write(&registry, &file).unwrap();
    cluster.start(0);
    cluster.agents[0].line(|line| (line.contains("torn record") && line.contains("bytes=100")).then_some(()));
    assert!(token(&cluster.dirs[0], "r") > before);
}

#[test]
fn data_of_a_development_version_is_refused() {
    let mut cluster = Cluster::new(1);
    cluster.stop(0);
    let (registry, earlier) = ["registry", "register"].map(|name| cluster.dirs[0].path("data").join(name)).into();
    fs::rename(&registry, &earlier).unwrap();
    let before = fs::read(&earlier).unwrap();
    let stderr = does_not_start(&cluster.dirs[0], "", 66);
    for words in [earlier.display().to_string().as_str(), "development version", "move their data directories away"] {
        assert!(stderr.contains(words), "{words}: {stderr}");
    }
    assert!(!registry.exists(), "no cluster is created beside it");
    assert!(fs::read(&earlier).unwrap() == before, "nothing has changed");
}

#[test]
fn registry_file_of_a_newer_format_is_refused() {
    let mut cluster = Cluster::new(1);
    cluster.stop(0);
    let registry = cluster.dirs[0].path("data/registry");
    let mut file = fs::read(&registry).unwrap();
    file[8] = 2; // The format. The checksum of the header is a prefix of its SHA-256.
    let sum = peerlock_types::Key::of(&file[..HEADER - 16]).get().to_le_bytes();
    file[HEADER - 16..HEADER].copy_from_slice(&sum);
    fs::write(&registry, &file).unwrap();
    let stderr = does_not_start(&cluster.dirs[0], "", 66);
    assert!(
        stderr.contains("has format 2") && stderr.contains("newer program") && stderr.contains("Start that program"),
        "{stderr}"
    );
    assert!(fs::read(&registry).unwrap() == file, "nothing has changed");
}

#[test]
fn directory_without_its_cluster_id_creates_no_cluster() {
    let mut cluster = Cluster::new(1);
    let path = cluster.dirs[0].path("data/cluster");
    // The agent is ready when the registry file exists; the file `cluster` follows.
    let was = eventually("the file", || fs::read_to_string(&path).ok());
    cluster.stop(0);
    fs::write(&path, "not an id\n").unwrap();
    let stderr = does_not_start(&cluster.dirs[0], "", 66);
    assert!(stderr.contains(&path.display().to_string()) && stderr.contains("copy the first line"), "{stderr}");
    fs::remove_file(&path).unwrap();
    cluster.start(0);
    assert_eq!(fs::read_to_string(&path).unwrap()[..32], was[..32]);
}

#[test]
fn join_with_an_empty_directory_needs_the_secret() {
    let dir = Dir::new();
    let stderr = does_not_start(&dir, "--join 127.0.0.1:1", 66);
    let path = dir.path("data/secret");
    assert!(stderr.contains(&path.display().to_string()) && stderr.contains("Copy the file `secret`"), "{stderr}");
    assert!(!path.exists() && !dir.path("data/cluster").exists(), "nothing is created");
}

struct Small(PathBuf);

impl Small {
    /// Returns `None` if the file system cannot be mounted, which fails the test in CI.
    fn new(path: &Path, kilobytes: usize) -> Option<Self> {
        fs::create_dir_all(path).unwrap();
        let size = format!("size={kilobytes}k,mode=700");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(path).output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self(path.to_owned())),
            failed => {
                let is_ci = std::env::var_os("PEERLOCK_CI").is_some() && nix::unistd::geteuid().is_root();
                assert!(!is_ci, "a tmpfs cannot be mounted: {failed:?}");
                eprintln!("skipped: a tmpfs needs root: {failed:?}");
                None
            }
        }
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _gone = Command::new("umount").arg("--lazy").arg(&self.0).output();
    }
}

#[test]
fn full_disk_stops_the_agent_without_losing_a_grant() {
    let dir = Dir::new();
    let Some(small) = Small::new(&dir.path("data"), 1024) else { return };
    let (mut agent, _) = dir.agent(SESSION);
    dir.run("r", "true").ends_with(0);
    let mut filling = fs::File::create(small.0.join("filling")).unwrap();
    let full = std::io::copy(&mut std::io::repeat(7), &mut filling).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    let mut granted = Vec::new();
    let failed = (0..500).find_map(|number| {
        let (code, _, stderr) = Running::start(&mut dir.peerlock(&format!("acquire --ttl 1h r{number}"))).ends();
        granted.extend((code == 0).then_some(number));
        (code != 0).then_some((code, stderr))
    });
    let (code, stderr) = failed.expect("a disk that is full");
    // The agent may have exited before or after the request. If before, no other one could be started.
    assert!([69, 73, 74].contains(&code), "{code}: {stderr}");
    let (code, _, stderr) = agent.ends();
    assert_eq!(code, 74, "{stderr}");
    let message = stderr.lines().next_back().unwrap_or_default();
    assert!(message.contains("could not be written") && message.contains("Free space"), "{stderr}");

    drop(filling);
    fs::remove_file(small.0.join("filling")).unwrap();
    let (_agent, _) = dir.agent(SESSION);
    dir.run("-w 30s r", "true").ends_with(0);
    for number in granted {
        let (code, _, stderr) = dir.run(&format!("--try r{number}"), "true").ends();
        assert_eq!(code, 75, "r{number} was granted for an hour: {stderr}");
    }
    dir.run("-w 30s another", "true").ends_with(0);
}

#[test]
fn full_disk_with_its_log_stops_the_agent_with_74() {
    let dir = Dir::new();
    let Some(small) = Small::new(&dir.path("data"), 1024) else { return };
    let log = || fs::File::options().append(true).create(true).open(small.0.join("log")).unwrap();
    let options = format!("agent --listen 127.0.0.1:0 --http unix:{} {SESSION}", dir.socket().display());
    let mut agent = Running::start(dir.peerlock(&options).stderr(log()));
    dir.agent_answers();
    dir.run("-w 30s r", "true").ends_with(0);
    let mut filling = fs::File::create(small.0.join("filling")).unwrap();
    std::io::copy(&mut std::io::repeat(7), &mut filling).unwrap_err();
    while log().write(&[b'x'; 64]).is_ok() {}
    let named = format!("--agent {}", dir.socket().display());
    let refused = (0..500).find(|number| {
        let mut acquire = dir.peerlock(&format!("acquire {named} --ttl 1h r{number}"));
        Running::start(&mut acquire).ends().0 != 0
    });
    assert!(refused.is_some(), "the disk is full");
    agent.ends_with(74);
    let (code, _, stderr) = dir.run("-w 1s new", "true").ends();
    assert!(code == 74 && stderr.contains("free space"), "{code}: {stderr}");
}

/// A file at its size limit is like a full disk. SIGXFSZ kills a process that does not handle it.
#[test]
fn file_size_limit_stops_the_agent_with_an_error() {
    let dir = Dir::new();
    let options = format!("agent --listen 127.0.0.1:0 --http unix:{}", dir.socket().display());
    let mut agent = Running::start(&mut with_shell("ulimit -f 16", &dir.peerlock(&options)));
    agent.line(|line| line.contains(" ready").then_some(()));
    let failed = (0..500).find(|number| {
        let acquire = format!("acquire --agent {} --ttl 1h r{number}", dir.socket().display());
        Running::start(&mut dir.peerlock(&acquire)).ends().0 != 0
    });
    assert!(failed.is_some_and(|number| number > 0), "{failed:?}");
    let (code, _, stderr) = agent.ends();
    assert_eq!(code, 74, "{stderr}");
    let message = stderr.lines().next_back().unwrap_or_default();
    assert!(message.contains("could not be written") && message.contains("ulimit -f"), "{stderr}");
}
