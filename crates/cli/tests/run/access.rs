//! Protection from other users of the machine: the agent's port, its files, guessable secrets, and limits.

use std::fs::{self, Permissions};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use peerlock_net::{Config, Identity, Net, Refusal, Secret};

use crate::common::{Dir, Running, eventually, with_shell};

const USUAL_LIMIT: u64 = 1024;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn below(path: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten().flat_map(|entry| below(&entry.path()));
    std::iter::once(path.to_owned()).chain(entries).collect()
}

#[test]
fn created_files_are_accessible_to_their_user_only() {
    let dir = Dir::new();
    let mut command = with_shell("umask 0", &dir.peerlock("run r -- true"));
    command.env("PEERLOCK_DATA_DIR", dir.path("deep/data")).env("PEERLOCK_RUNTIME_DIR", dir.path("run"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let pid = fs::read_to_string(dir.path("deep/data/agent.lock")).unwrap().lines().next().unwrap().to_owned();
    let made: Vec<_> = ["deep", "run"].iter().flat_map(|made| below(&dir.path(made))).collect();
    let names: Vec<_> = made.iter().filter_map(|path| path.file_name()?.to_str()).collect();
    for name in [
        "agent.lock",
        "agent.log",
        "cluster",
        "registry",
        "process",
        "secret",
        "identity",
        "agent.sock",
        "starting.lock",
    ] {
        assert!(names.contains(&name), "{names:?}");
    }
    for path in &made {
        let expected = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode(path), expected, "{}", path.display());
    }
    assert!(Command::new("kill").arg(pid).status().unwrap().success());
}

#[test]
fn directory_writable_by_others_is_refused() {
    let dir = Dir::new();
    for (name, variable) in [("d", "PEERLOCK_DATA_DIR"), ("r", "PEERLOCK_RUNTIME_DIR")] {
        let open = dir.path(name);
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
        for arguments in ["run r -- true", "agent --listen 127.0.0.1:0"] {
            let mut command = dir.peerlock(arguments);
            let (code, _, stderr) = Running::start(command.env(variable, &open)).ends();
            assert_eq!(code, 66, "{arguments}: {stderr}");
            assert!(stderr.contains(&open.display().to_string()) && stderr.contains("chmod 700"), "{stderr}");
            assert_eq!(fs::read_dir(&open).unwrap().count(), 0, "the directory is unchanged");
        }
    }
    let options = format!("--http unix:{} --http unix:{}", dir.socket().display(), dir.path("r/s").display());
    let (code, _, stderr) = Running::start(&mut dir.peerlock(&format!("agent {options}"))).ends();
    assert!(code == 66 && !dir.path("data").exists(), "{code} {stderr}");
}

#[test]
fn port_requires_the_token() {
    let dir = Dir::new();
    let token = dir.path("data/token");
    let mut before = String::new();
    for _ in 0..2 {
        let (agent, _) = dir.agent("--http 127.0.0.1:0");
        let port = agent.line(|line| Some(line.split_once("http://")?.1.split_once('"')?.0.to_owned()));
        let made = fs::read_to_string(&token).unwrap();
        assert!(mode(&token) == 0o600 && made.trim().len() == 64, "{made}");
        assert!(before.is_empty() || before == made, "the token is the same after a restart");
        before = made;
        agent.line(|line| line.contains("ready").then(|| assert!(!line.contains(before.trim()), "{line}")));
        let ask = |options: &str| Running::start(&mut dir.peerlock(&format!("ls --agent {port} {options}"))).ends();
        let (code, _, stderr) = ask("");
        assert!(code == 77 && stderr.contains("--token-file"), "{code} {stderr}");
        let with_token = format!("--token-file {}", token.display());
        assert_eq!(ask(&with_token).0, 0);
        fs::set_permissions(&token, Permissions::from_mode(0o644)).unwrap();
        let (code, _, stderr) = ask(&with_token);
        assert!(code == 66 && stderr.contains("chmod 600"), "{code} {stderr}");
        fs::set_permissions(&token, Permissions::from_mode(0o600)).unwrap();
    }
    fs::set_permissions(&token, Permissions::from_mode(0o640)).unwrap();
    let mut agent = dir.peerlock("agent --listen 127.0.0.1:0 --http 127.0.0.1:0");
    let (code, _, stderr) = Running::start(&mut agent).ends();
    assert!(code == 66 && stderr.contains("chmod 600"), "{code} {stderr}");
}

#[test]
fn lease_beyond_the_limit_is_refused() {
    for (option, longest, longer) in [("", "24h", "24h1s"), ("--longest-lease 1h", "1h", "2h")] {
        let dir = Dir::new();
        let (_agent, _) = dir.agent(option);
        for command in ["run --try {} r -- true", "acquire --try {} r"] {
            let with = |ttl: &str| Running::start(&mut dir.peerlock(&command.replace("{}", &format!("--ttl {ttl}"))));
            let (code, _, stderr) = with(longer).ends();
            assert!(code == 64 && stderr.contains("--longest-lease"), "{command}: {code} {stderr}");
            assert_eq!(with(longest).ends().0, 0, "{command} {longest}");
        }
    }
}

#[test]
fn guessable_secret_is_refused() {
    let dir = Dir::new();
    let secret = dir.path("weak");
    for text in ["aaaaaaaaaaaaaaaa", "the name of my first cat, and of my second"] {
        fs::write(&secret, text).unwrap();
        fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
        let mut agent = dir.peerlock(&format!("agent --listen 127.0.0.1:0 --secret-file {}", secret.display()));
        let (code, _, stderr) = Running::start(&mut agent).ends();
        assert!(code == 66 && stderr.contains("openssl rand -hex 32"), "{code} {stderr}");
        assert!(!stderr.contains(text), "{stderr}");
    }
}

#[test]
fn too_low_file_limit_is_refused() {
    let dir = Dir::new();
    let mut limited = with_shell("ulimit -n 32", &dir.peerlock("run r -- true"));
    let (code, _, stderr) = Running::start(&mut limited).ends();
    assert!(code == 71 && stderr.contains("limit of open files is 32"), "{code} {stderr}");
}

/// Connections of members must leave files for clients and for the agent's own writes.
#[test]
fn connections_of_members_leave_files_for_the_agent() {
    let dir = Dir::new();
    let agent = Running::start(&mut with_shell("ulimit -n 64", &dir.peerlock("agent --listen 127.0.0.1:0")));
    let address: SocketAddr = agent.line(|line| line.split_once("address=")?.1.split(' ').next()?.parse().ok());
    agent.line(|line| line.contains("ready").then_some(()));
    // The connections' tasks run while this thread waits.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let secret = Secret::load(&dir.path("data/secret")).unwrap();
    let join = || async {
        let config = Config::new("127.0.0.1:0".parse().unwrap());
        let member = Net::start(config, Identity::generate(), secret.clone()).await.unwrap();
        member.maintain(address).unwrap();
        member
    };
    let members: Vec<Net> = (0..60).map(|_| runtime.block_on(join())).collect();
    eventually("a refused member", || {
        members.iter().any(|member| member.metrics().refused.contains_key(&Refusal::Crowded)).then_some(())
    });
    for number in 0..10 {
        dir.run(&format!("job-{number}"), "true").ends_with(0);
    }
    let linked = members.iter().filter(|member| member.metrics().up > 0).count();
    assert!((1..=16).contains(&linked), "{linked} members are linked");
    assert!(!agent.stderr().contains("Too many open files"), "{}", agent.stderr());
    drop(runtime);
}

fn stream(port: &str, token: &str) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(port).ok()?;
    let request = format!("GET /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    Some(stream)
}

/// A client at the port, first without the token and then with it, opens more event streams than the agent may open
/// files.
#[test]
fn event_streams_at_the_port_do_not_disturb_jobs() {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
    let dir = Dir::new();
    let command = dir.peerlock("agent --listen 127.0.0.1:0 --session 3s --http 127.0.0.1:0");
    let agent = Running::start(&mut with_shell(&format!("ulimit -n {USUAL_LIMIT}"), &command));
    let port = agent.line(|line| Some(line.split_once("http://")?.1.split_once('"')?.0.to_owned()));
    let token = fs::read_to_string(dir.path("data/token")).unwrap().trim().to_owned();
    let mut job = dir.holder("job");
    for token in ["some other token", &token] {
        let mut streams: Vec<_> = (0..1100).filter_map(|_| stream(&port, token)).collect();
        // Lasts for several renewals of the job.
        for _ in 0..20 {
            dir.run("--try other", "sleep 0.2").ends_with(0);
        }
        let received = streams.iter_mut().rev().find_map(|stream| {
            let mut head = [0; 12];
            stream.read_exact(&mut head).ok().map(|()| String::from_utf8_lossy(&head).into_owned())
        });
        assert!(
            received.is_some_and(|received| received.contains("401") || received.contains("503")),
            "the agent replied"
        );
    }
    eventually("a free connection at the port", || {
        let options = format!("ls --agent {port} --token-file {}", dir.path("data/token").display());
        dir.peerlock(&options).status().unwrap().success().then_some(())
    });
    dir.touch("go");
    job.ends_with(0);
}
