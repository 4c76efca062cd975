//! Finds the agent of this user, or starts one.
//!
//! ```text
//!   command A    no agent ── lock ── no agent ── start it ── it answers ── unlock ── connect
//!   command B    no agent ── waits for the lock ─────────────────────────── it answers ── connect
//! ```

use std::env;
use std::fs::{self, File};
use std::io::{ErrorKind, IsTerminal as _, Read as _, Seek as _, SeekFrom, stderr};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf, absolute};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::Flock;
use nix::unistd::geteuid;
use peerlock::{Endpoint, StartError, places};
use tokio::time::sleep;

use crate::error::exit;
use crate::say::say;
use crate::{Error, Result, dir};

/// How long an agent that a command started stays without clients.
pub const IDLE: &str = "10m";
const INTERVAL: Duration = Duration::from_millis(5);
/// How long a start may take, including the exit of a predecessor.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a supervisor has to restart an agent before its clients do.
const SUPERVISED: Duration = Duration::from_secs(3);
/// How long an agent takes at most to admit its group after it has created its private directory.
const ADMITTED: Duration = Duration::from_secs(1);
/// The pause before another attempt to reach an agent that this user cannot start.
const ABSENT: Duration = Duration::from_millis(100);

pub async fn agent(is_quiet: bool) -> Result<Endpoint> {
    let output = match (is_quiet, stderr().is_terminal()) {
        (true, _) => Output::Errors,
        (false, true) => Output::All,
        (false, false) => Output::Warnings,
    };
    agent_and(output).await
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Output {
    All,
    Warnings,
    Errors,
    Nothing,
}

/// Waits for the next agent after one of this user that has disappeared, or starts it; for any other agent, only
/// pauses. An administrator or systemd that started the agent has some time to restart it first. Failures are not
/// returned: the caller notices them when it connects.
pub async fn await_successor(endpoint: &Endpoint, left: Duration) {
    let Ok((data_dir, socket)) = locations() else { return sleep(ABSENT).await };
    let last = dir::last(&data_dir);
    let is_ours = |path: &PathBuf| *path == socket || last.as_ref().is_some_and(|last| last.socket == *path);
    if !matches!(endpoint, Endpoint::Unix(path) if is_ours(path)) {
        return sleep(ABSENT).await;
    }
    let since = Instant::now();
    while last.as_ref().is_some_and(|last| !last.ends_by_itself) && since.elapsed() < SUPERVISED.min(left / 4) {
        sleep(INTERVAL).await;
        if running(&socket, &data_dir).is_some() {
            return;
        }
    }
    if let Err(error) = agent_and(Output::Nothing).await {
        tracing::debug!(%error, "the agent could not be started again");
        sleep(ABSENT).await;
    }
}

/// Finds or starts the agent. With `Output::Nothing` the agent is for clients of a previous one, whose jobs finish, so
/// it is started even on a drained machine.
async fn agent_and(output: Output) -> Result<Endpoint> {
    let (data_dir, socket) = locations()?;
    let running = || running(&socket, &data_dir);
    if let Some(agent) = running() {
        return Ok(agent);
    }
    let since = Instant::now();
    let mut refused = None;
    while let Some(system) = system_agent(&data_dir).or_else(|| service_of_another_user(&data_dir, &socket)) {
        let is_soon = match &system {
            // A supervisor soon restarts it.
            Err(Error::SystemAgentDown { .. }) => since.elapsed() < SUPERVISED,
            Err(Error::ForeignAgent { .. }) => refused.get_or_insert_with(Instant::now).elapsed() < ADMITTED,
            Ok(_) | Err(_) => false,
        };
        if !is_soon {
            return system;
        }
        sleep(INTERVAL).await;
    }
    let _lock = loop {
        match start_lock(&socket) {
            Ok(Some(lock)) => break lock,
            Ok(None) if since.elapsed() < PATIENCE => sleep(INTERVAL).await,
            Ok(None) => return Err(unresponsive(&data_dir)),
            Err(error) => return Err(error),
        }
        if let Some(agent) = running() {
            return Ok(agent);
        }
    };
    // The previous owner of the lock may have started the agent.
    match running() {
        Some(agent) => Ok(agent),
        None if output != Output::Nothing && dir::is_drained(&data_dir) => Err(Error::Drained { dir: data_dir }),
        None => start(&data_dir, &socket, running, output).await,
    }
}

/// Returns the data directory if this machine is drained.
pub fn drained() -> Option<PathBuf> {
    let (data_dir, _) = locations().ok()?;
    dir::is_drained(&data_dir).then_some(data_dir)
}

pub fn present() -> Result<Option<Endpoint>> {
    let (data_dir, socket) = locations()?;
    running(&socket, &data_dir).map(Ok).or_else(|| system_agent(&data_dir)).transpose()
}

fn locations() -> Result<(PathBuf, PathBuf)> {
    let data_dir = absolute(places::data_dir().map_err(StartError::from)?).map_err(Error::Start)?;
    let socket = absolute(places::agent_socket().map_err(StartError::from)?).map_err(Error::Start)?;
    let socket = dir::place(&data_dir, socket);
    Ok((data_dir, socket))
}

fn running(socket: &Path, data_dir: &Path) -> Option<Endpoint> {
    let answers = |socket: &Path| UnixStream::connect(socket).is_ok();
    if answers(socket) {
        return Some(Endpoint::Unix(socket.to_owned()));
    }
    let recorded = dir::last(data_dir)?.socket;
    (dir::is_taken(data_dir) && answers(&recorded)).then_some(Endpoint::Unix(recorded))
}

/// Returns the machine's agent, for users without an agent and a data directory of their own. Fails if they may not use
/// it, or if it is not running: an agent of their own would be a separate cluster.
fn system_agent(data_dir: &Path) -> Option<Result<Endpoint>> {
    let socket = Path::new(places::SYSTEM_SOCKET);
    if geteuid().is_root() || places::is_data_dir_named() || dir::last(data_dir).is_some() {
        return None;
    }
    match UnixStream::connect(socket) {
        Ok(_) => Some(Ok(Endpoint::Unix(socket.to_owned()))),
        // The private directory of an agent that a command of root started remains after its exit.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            let is_there = places::has_system_agent() || places::listens_for_system();
            is_there.then(|| Err(Error::ForeignAgent { socket: socket.to_owned() }))
        }
        Err(_) => places::has_system_agent().then(|| Err(Error::SystemAgentDown { socket: socket.to_owned() })),
    }
}

/// Root's default directory belongs to another user if its agent is a service of that user. A command of root does not
/// start that agent: it could not read the files of a process of root afterwards.
fn service_of_another_user(data_dir: &Path, socket: &Path) -> Option<Result<Endpoint>> {
    let is_theirs = || fs::metadata(data_dir).is_ok_and(|dir| dir.uid() != 0);
    let is_default = geteuid().is_root() && data_dir == Path::new(places::SYSTEM_DATA_DIR);
    (is_default && is_theirs()).then(|| match UnixStream::connect(socket) {
        Ok(_) => Ok(Endpoint::Unix(socket.to_owned())),
        Err(_) => Err(Error::SystemAgentDown { socket: socket.to_owned() }),
    })
}

/// Locks the start of the agent, by a file beside the socket. `None` if another process has the lock.
fn start_lock(socket: &Path) -> Result<Option<Flock<File>>> {
    let dir = socket.parent().unwrap_or(Path::new("."));
    let unusable = |source| Error::Dir { path: dir.to_owned(), source };
    dir::private(dir)?;
    match dir::lock(dir::open(&dir.join("starting.lock")).map_err(unusable)?) {
        Ok(lock) => Ok(Some(lock)),
        Err((_, Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, error)) => Err(unusable(error.into())),
    }
}

/// Starts the agent in a session of its own with a filtered environment, and waits until it answers.
async fn start(
    data_dir: &Path,
    socket: &Path,
    running: impl Fn() -> Option<Endpoint>,
    output: Output,
) -> Result<Endpoint> {
    // A command does not know the options of an administrator's agent.
    let knows_cluster = ["cluster", "registry"].iter().any(|file| data_dir.join(file).exists());
    let has_secret = places::secret(data_dir).exists();
    let is_admins = dir::last(data_dir).is_some_and(|last| !last.ends_by_itself);
    if is_admins && !(knows_cluster && has_secret) && !dir::is_taken(data_dir) {
        return Err(Error::AgentStopped { dir: data_dir.to_owned() });
    }
    let unusable = |source| Error::Dir { path: data_dir.to_owned(), source };
    let (log, log_path) = dir::log(data_dir)?;
    let logged = log.metadata().map_err(unusable)?.len();
    // Not this program's path, where an upgrade may have put another program.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("peerlock").args(["agent", "--idle", IDLE, "--detached", "--data-dir"]).arg(data_dir);
    command.arg("--http").arg(format!("unix:{}", socket.display()));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).current_dir(data_dir);
    command.env_clear().envs(env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_for_agent)));
    let mut process = command.spawn().map_err(Error::Start)?;
    let since = Instant::now();
    loop {
        if let Some(agent) = running() {
            if output == Output::All {
                let log = log_path.display();
                say(format_args!(
                    "started an agent for this user; it exits {IDLE} after its last client. Its log: {log}"
                ));
            }
            if let Some((uid, pid)) = foreign_agent().filter(|_| matches!(output, Output::All | Output::Warnings)) {
                say(format_args!(
                    "warning: another user's agent runs on this machine (uid {uid}, process {pid}). Its jobs and \
                     yours exclude each other only if both agents are members of one cluster"
                ));
            }
            return Ok(agent);
        }
        // It also exits if another agent answers first.
        if let Some(status) = process.try_wait().map_err(Error::Start)?.filter(|_| running().is_none()) {
            let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(exit::SOFTWARE);
            let reason = last_message(&log_path, logged).unwrap_or_else(|| unlogged(code));
            return Err(Error::AgentFailed { reason, log: log_path, code });
        }
        if since.elapsed() > PATIENCE {
            return Err(unresponsive(data_dir));
        }
        sleep(INTERVAL).await;
    }
}

/// Returns whether an agent that a command starts inherits this variable: locations, and the variables of peerlock but
/// those of a single grant.
fn is_for_agent(name: &str) -> bool {
    const LOCATIONS: [&str; 10] = [
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "LANG",
        "TZ",
        "TMPDIR",
        "XDG_DATA_HOME",
        "XDG_RUNTIME_DIR",
        "RUST_BACKTRACE",
    ];
    const OF_A_GRANT: [&str; 8] = ["AGENT", "NAME", "FENCING", "TOKEN", "SLOT", "DEADLINE", "HELD", "GRANT"];
    match name.strip_prefix("PEERLOCK_") {
        Some(own) => !OF_A_GRANT.contains(&own),
        None => LOCATIONS.contains(&name) || name.starts_with("LD_"),
    }
}

/// Returns the user and the process of another user's agent, from `/proc`.
pub fn foreign_agent() -> Option<(u32, u32)> {
    let me = geteuid().as_raw();
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let uid = entry.metadata().ok()?.uid();
        let is_other = uid != me && fs::read(entry.path().join("comm")).is_ok_and(|name| name == b"peerlock\n");
        // Program and arguments are separated by NUL.
        let command = || fs::read(entry.path().join("cmdline")).unwrap_or_default();
        (is_other && command().split(|byte| *byte == 0).nth(1) == Some(b"agent".as_slice())).then_some((uid, pid))
    })
}

fn unresponsive(data_dir: &Path) -> Error {
    Error::AgentUnresponsive { seconds: PATIENCE.as_secs(), log: data_dir.join("agent.log") }
}

fn last_message(log: &PathBuf, from: u64) -> Option<String> {
    let read = || {
        let mut file = fs::File::open(log)?;
        file.seek(SeekFrom::Start(from))?;
        let mut text = String::new();
        file.read_to_string(&mut text).map(|_| text)
    };
    let text = read().unwrap_or_default();
    let message = text.lines().rev().find_map(|line| line.strip_prefix("peerlock: "));
    message.or_else(|| text.lines().last()).map(ToOwned::to_owned)
}

fn unlogged(code: u8) -> String {
    match code {
        exit::IO => "it could not write its files: free space on the disk of its data directory, or raise its limit \
                     of file sizes (`ulimit -f`)"
            .to_owned(),
        code => format!("it exited with code {code} and logged nothing"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_gets_no_variables_of_a_job() {
        for (name, is_inherited) in [
            ("PATH", true),
            ("XDG_RUNTIME_DIR", true),
            ("PEERLOCK_DATA_DIR", true),
            ("PEERLOCK_LOG", true),
            ("PEERLOCK_FENCING", false),
            ("PEERLOCK_HELD", false),
            ("PEERLOCK_TOKEN", false),
            ("NOTIFY_SOCKET", false),
            ("AWS_SECRET_ACCESS_KEY", false),
            ("PATHS", false),
        ] {
            assert_eq!(is_for_agent(name), is_inherited, "{name}");
        }
    }
}
