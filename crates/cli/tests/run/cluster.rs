//! A cluster as its operator meets it: who votes, what is left when voters are lost, and files that are not as they
//! were written.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::common::{Dir, Running, eventually};

/// Short enough for a test to wait for its end.
const SESSION: &str = "--session 3s";

/// Agents of one cluster: the first has founded it.
struct Cluster {
    folders: Vec<Dir>,
    agents: Vec<Running>,
    addresses: Vec<String>,
}

impl Cluster {
    fn new(hosts: usize) -> Self {
        let mut cluster = Self { folders: Vec::new(), agents: Vec::new(), addresses: Vec::new() };
        for _ in 0..hosts {
            let dir = Dir::new();
            let (agent, address) = dir.agent(&cluster.options());
            cluster.folders.push(dir);
            cluster.agents.push(agent);
            cluster.addresses.push(address);
        }
        cluster
    }

    /// How another agent joins.
    fn options(&self) -> String {
        match (self.folders.first(), self.addresses.first()) {
            (Some(first), Some(address)) => {
                format!("{SESSION} --secret-file {} --join {address}", first.path("data/secret").display())
            }
            _ => SESSION.to_owned(),
        }
    }

    /// The hosts that vote, as one of them sees it.
    fn voters(&self, at: usize) -> Vec<String> {
        let output = self.folders[at].peerlock("voters --json").output().unwrap();
        let observed: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let votes = |peer: &&Value| peer["voter"] == "votes" || peer["voter"] == "leads";
        let peers = observed["peers"].as_array().into_iter().flatten();
        peers.filter(votes).map(|peer| peer["address"].as_str().unwrap_or_default().to_owned()).collect()
    }

    fn until_voters(&self, expected: &[usize]) {
        let mut expected: Vec<&String> = expected.iter().map(|host| &self.addresses[*host]).collect();
        expected.sort();
        eventually("who votes", || {
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

    /// The agent of a host that has one no more, where it was before.
    fn start(&mut self, host: usize) {
        let secret = self.folders[0].path("data/secret").display().to_string();
        let (agent, _) = agent_at(&self.folders[host], &self.addresses[host], &secret);
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

/// What a command says when it ends with this code.
fn refused(command: &mut Command, expected: i32) -> String {
    let (code, out, said) = Running::start(command).ends();
    assert_eq!(code, expected, "{out}\n{said}");
    said
}

/// An agent that does not start, and what it says.
fn does_not_start(dir: &Dir, options: &str, expected: i32) -> String {
    let http = dir.socket();
    let said = refused(
        &mut dir.peerlock(&format!("agent --listen 127.0.0.1:0 --http unix:{} {options}", http.display())),
        expected,
    );
    let last = said.lines().next_back().unwrap_or_default();
    last.strip_prefix("peerlock: ")
        .unwrap_or_else(|| panic!("the last that it says is its sentence: {said}"))
        .to_owned()
}

/// The fencing number that a command gets.
fn token(dir: &Dir, name: &str) -> u64 {
    let said = dir.run(&format!("-w 30s {name}"), "echo $PEERLOCK_FENCING").ends_with(0);
    said.trim().parse().unwrap()
}

#[test]
fn who_votes_can_be_seen_and_chosen() {
    let cluster = Cluster::new(3);
    cluster.until_voters(&[0, 1, 2]);
    let text = cluster.folders[2].peerlock("voters").output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.starts_with("cluster ") && cluster.addresses.iter().all(|it| text.contains(it)), "{text}");
    assert_eq!(text.matches("leads").count(), 1, "{text}");
    let voters = |arguments: &str| cluster.folders[1].peerlock(&format!("voters {arguments}"));
    // All hosts are called the same here: only a number or an address says which.
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let said = refused(&mut voters(&format!("--set {}", name.trim())), 64);
    assert!(said.contains("several hosts have the name"), "{said}");
    let said = refused(&mut voters("--set nobody"), 64);
    assert!(said.contains("no member has the name nobody") && said.contains("peerlock peers"), "{said}");
    refused(&mut voters(&format!("--set {}", cluster.addresses[1])), 0);
    cluster.until_voters(&[1]);
    token(&cluster.folders[2], "r");
    refused(&mut voters("--auto"), 0);
    cluster.until_voters(&[0, 1, 2]);
    token(&cluster.folders[0], "r");
}

#[test]
fn after_the_loss_of_a_majority_one_goes_on_when_somebody_says_so() {
    let mut cluster = Cluster::new(3);
    cluster.until_voters(&[0, 1, 2]);
    let before = token(&cluster.folders[1], "r");
    cluster.kill(1);
    cluster.kill(2);
    let said = eventually("nothing is granted", || {
        let (code, _, said) = cluster.folders[0].run("--try r", "true").ends();
        (code == 69).then_some(said)
    });
    assert!(said.contains("no quorum") && said.contains("peerlock recover"), "{said}");

    let recover = |arguments: &str| cluster.folders[0].peerlock(&format!("recover {arguments}"));
    assert!(refused(&mut recover("--yes"), 69).contains("is already running"));
    cluster.agents[0].send(Signal::SIGTERM);
    cluster.agents[0].ends_with(69); // It could tell nobody that it left.
    let files = || ["cluster", "registry"].map(|name| fs::read(cluster.folders[0].path("data").join(name)).unwrap());
    let was = files();
    let said = refused(&mut recover(""), 64);
    for words in ["is lost", "highest term", "a new ID", "nothing was changed", "--yes"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(files() == was, "nobody has said yes");
    assert!(said.contains("Nothing is granted in the first 16 s after"), "as long as the default session: {said}");
    refused(&mut recover("--yes"), 0);
    assert!(files() != was);
    cluster.start(0);
    let after = token(&cluster.folders[0], "r");
    assert!(after > before, "{after} after {before}");

    // One that comes back with its old file ends when it hears of this, and is a member when it starts again.
    let secret = cluster.folders[0].path("data/secret").display().to_string();
    let old = cluster.folders[1].path("data");
    assert!(old.join("registry").exists());
    let options = format!("agent {SESSION} --listen {} --secret-file {secret}", cluster.addresses[1]);
    let said = refused(&mut cluster.folders[1].peerlock(&options), 75);
    assert!(said.lines().last().is_some_and(|line| line.contains("the cluster was recovered")), "{said}");
    assert!(!old.join("registry").exists(), "it says what nobody has confirmed any more");
    cluster.start(1);
    assert!(token(&cluster.folders[1], "r") > after);
    let id = |host: usize| fs::read_to_string(cluster.folders[host].path("data/cluster")).unwrap()[..32].to_owned();
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
        let said = does_not_start(&dir, &format!("--session {session}"), 64);
        assert!(said.contains("choose between 100 ms and 10 min"), "{said}");
    }
}

/// Where a file's records begin; the first has the state when this file was begun.
const HEADER: usize = 64;

#[test]
fn a_damaged_register_is_refused_and_comes_back_as_a_new_voter() {
    let mut cluster = Cluster::new(3);
    cluster.until_voters(&[0, 1, 2]);
    let before = token(&cluster.folders[1], "r");
    cluster.stop(2);
    let registry = cluster.folders[2].path("data/registry");
    let whole = fs::read(&registry).unwrap();
    let mut damaged = whole.clone();
    damaged[HEADER + 40] ^= 1;
    fs::write(&registry, &damaged).unwrap();
    let said = does_not_start(&cluster.folders[2], "", 66);
    let path = registry.display().to_string();
    for words in [path.as_str(), "record 1 at byte 64", "does not match its sum", "Move the file away"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(fs::read(&registry).unwrap() == damaged, "nothing has changed");
    // A command says the same, since it cannot start the agent either.
    let (code, _, said) = cluster.folders[2].run("--try r", "true").ends();
    assert_eq!(code, 66, "{said}");
    assert!(said.contains("record 1 at byte 64"), "{said}");
    fs::rename(&registry, cluster.folders[2].path("moved")).unwrap();
    cluster.start(2);
    assert!(token(&cluster.folders[2], "r") > before);
    cluster.until_voters(&[0, 1, 2]);
    eventually("its new file", || registry.exists().then_some(()));
}

#[test]
fn a_record_that_a_crash_has_torn_is_cut_off_and_nothing_else_is_lost() {
    let mut cluster = Cluster::new(1);
    let before = token(&cluster.folders[0], "r");
    cluster.kill(0);
    let registry = cluster.folders[0].path("data/registry");
    let mut file = fs::read(&registry).unwrap();
    file.extend([0; 100]); // What was never written is zeros.
    fs::write(&registry, &file).unwrap();
    cluster.start(0);
    cluster.agents[0].line(|line| (line.contains("torn record") && line.contains("bytes=100")).then_some(()));
    assert!(token(&cluster.folders[0], "r") > before);
}

#[test]
fn data_of_a_development_version_is_refused() {
    let mut cluster = Cluster::new(1);
    cluster.stop(0);
    let (registry, earlier) = ["registry", "register"].map(|name| cluster.folders[0].path("data").join(name)).into();
    fs::rename(&registry, &earlier).unwrap();
    let before = fs::read(&earlier).unwrap();
    let said = does_not_start(&cluster.folders[0], "", 66);
    for words in [earlier.display().to_string().as_str(), "development version", "move their data directories away"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(!registry.exists(), "no cluster is created beside it");
    assert!(fs::read(&earlier).unwrap() == before, "nothing has changed");
}

#[test]
fn what_a_newer_program_has_written_is_refused() {
    let mut cluster = Cluster::new(1);
    cluster.stop(0);
    let registry = cluster.folders[0].path("data/registry");
    let mut file = fs::read(&registry).unwrap();
    file[8] = 2; // The format, and the sum of the header, which is the beginning of a SHA-256.
    let sum = peerlock_types::Key::of(&file[..HEADER - 16]).get().to_le_bytes();
    file[HEADER - 16..HEADER].copy_from_slice(&sum);
    fs::write(&registry, &file).unwrap();
    let said = does_not_start(&cluster.folders[0], "", 66);
    assert!(
        said.contains("is of format 2") && said.contains("newer program") && said.contains("Start that one"),
        "{said}"
    );
    assert!(fs::read(&registry).unwrap() == file, "nothing has changed");
}

#[test]
fn a_folder_that_does_not_say_its_cluster_founds_no_other() {
    let mut cluster = Cluster::new(1);
    let path = cluster.folders[0].path("data/cluster");
    // Its voter's file is there first, and is enough to begin with.
    let was = eventually("the file", || fs::read_to_string(&path).ok());
    cluster.stop(0);
    fs::write(&path, "not an id\n").unwrap();
    let said = does_not_start(&cluster.folders[0], "", 66);
    assert!(said.contains(&path.display().to_string()) && said.contains("copy the first line"), "{said}");
    // The voter's file knows it, too.
    fs::remove_file(&path).unwrap();
    cluster.start(0);
    assert_eq!(fs::read_to_string(&path).unwrap()[..32], was[..32]);
}

#[test]
fn who_joins_on_an_empty_folder_needs_the_secret() {
    let dir = Dir::new();
    let said = does_not_start(&dir, "--join 127.0.0.1:1", 66);
    let path = dir.path("data/secret");
    assert!(said.contains(&path.display().to_string()) && said.contains("Copy the file `secret`"), "{said}");
    assert!(!path.exists() && !dir.path("data/cluster").exists(), "nothing was made up");
}

/// A file system of this many kilobytes, gone when it is dropped.
struct Small(PathBuf);

impl Small {
    /// None if this machine does not let us have one. CI must.
    fn new(path: &Path, kilobytes: usize) -> Option<Self> {
        fs::create_dir_all(path).unwrap();
        let size = format!("size={kilobytes}k,mode=700");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(path).output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self(path.to_owned())),
            failed => {
                let is_ci = std::env::var_os("PEERLOCK_CI").is_some() && nix::unistd::geteuid().is_root();
                assert!(!is_ci, "a tmpfs cannot be mounted: {failed:?}");
                eprintln!("skipped, for it needs root and a tmpfs: {failed:?}");
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

/// Nothing is granted that could not be kept, and what was granted is kept.
#[test]
fn a_full_disk_ends_the_agent_before_anybody_is_told_what_it_forgets() {
    let dir = Dir::new();
    let Some(small) = Small::new(&dir.path("data"), 1024) else { return };
    let (mut agent, _) = dir.agent(SESSION);
    dir.run("r", "true").ends_with(0);
    // To the last block.
    let mut filling = fs::File::create(small.0.join("filling")).unwrap();
    let full = std::io::copy(&mut std::io::repeat(7), &mut filling).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    let mut granted = Vec::new();
    let failed = (0..500).find_map(|number| {
        let (code, _, said) = Running::start(&mut dir.peerlock(&format!("acquire --ttl 1h r{number}"))).ends();
        granted.extend((code == 0).then_some(number));
        (code != 0).then_some((code, said))
    });
    let (code, said) = failed.expect("a disk that is full");
    // Its agent has gone, before it asked or after; then another one could not be started either.
    assert!([69, 73, 74].contains(&code), "{code}: {said}");
    let (code, _, said) = agent.ends();
    assert_eq!(code, 74, "{said}");
    let sentence = said.lines().next_back().unwrap_or_default();
    assert!(sentence.contains("could not be written") && sentence.contains("Free space"), "{said}");

    drop(filling);
    fs::remove_file(small.0.join("filling")).unwrap();
    let (_agent, _) = dir.agent(SESSION);
    dir.run("-w 30s r", "true").ends_with(0);
    for number in granted {
        let (code, _, said) = dir.run(&format!("--try r{number}"), "true").ends();
        assert_eq!(code, 75, "r{number} was granted for an hour: {said}");
    }
    dir.run("-w 30s another", "true").ends_with(0);
}

/// The log is on the disk that is full, too: the agent ended with 70, and `run` said that it had ended without a word.
#[test]
fn full_disk_with_the_log_on_it_ends_the_agent_with_74() {
    let dir = Dir::new();
    let Some(small) = Small::new(&dir.path("data"), 1024) else { return };
    let log = || fs::File::options().append(true).create(true).open(small.0.join("log")).unwrap();
    let options = format!("agent --listen 127.0.0.1:0 --http unix:{} {SESSION}", dir.socket().display());
    let mut agent = Running::start(dir.peerlock(&options).stderr(log()));
    dir.agent_answers();
    dir.run("-w 30s r", "true").ends_with(0);
    let mut filling = fs::File::create(small.0.join("filling")).unwrap();
    std::io::copy(&mut std::io::repeat(7), &mut filling).unwrap_err();
    // To the last byte of the log's last block.
    while log().write(&[b'x'; 64]).is_ok() {}
    let named = format!("--agent {}", dir.socket().display());
    let refused = (0..500).find(|number| {
        let mut acquire = dir.peerlock(&format!("acquire {named} --ttl 1h r{number}"));
        Running::start(&mut acquire).ends().0 != 0
    });
    assert!(refused.is_some(), "a disk that is full");
    agent.ends_with(74);
    // Nor can a command start another one.
    let (code, _, said) = dir.run("-w 1s new", "true").ends();
    assert!(code == 74 && said.contains("free space"), "{code}: {said}");
}

/// A file that may not grow is a disk that is full. Whoever does not listen for SIGXFSZ is killed by it, without a
/// word.
#[test]
fn an_agent_whose_files_may_not_grow_ends_with_a_sentence() {
    let dir = Dir::new();
    let program = dir.peerlock("");
    let options = format!("agent --listen 127.0.0.1:0 --http unix:{}", dir.socket().display());
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -f 16; exec \"$0\" \"$@\""]).arg(program.get_program()).args(options.split(' '));
    limited.env_clear().envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut agent = Running::start(limited.stdout(Stdio::piped()).stderr(Stdio::piped()));
    agent.line(|line| line.contains(" ready").then_some(()));
    let failed = (0..500).find(|number| {
        let asked = dir.peerlock(&format!("acquire --agent {} --ttl 1h r{number}", dir.socket().display()));
        Running::start(&mut { asked }).ends().0 != 0
    });
    assert!(failed.is_some_and(|number| number > 0), "{failed:?}");
    let (code, _, said) = agent.ends();
    assert_eq!(code, 74, "{said}");
    let sentence = said.lines().next_back().unwrap_or_default();
    assert!(sentence.contains("could not be written") && sentence.contains("ulimit -f"), "{said}");
}
