//! `peerlock agent`: the background service with the peer that this machine's clients use.

mod files;
mod joining;
mod log;
mod notify;

use std::fs;
use std::future::pending;
use std::io::{ErrorKind, IsTerminal as _, stderr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::Args;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Group, Pid, close, setsid};
use peerlock::store::Store;
use peerlock::{Endpoint, GrantFile, Identity, Peer, SHORTEST_TTL, StartError, Token, places};
use peerlock_http::{App, Files as _, Listener, Program, serve};
use peerlock_net::private;
use peerlock_supervise::Signals;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tracing_subscriber::EnvFilter;

use crate::client::{socket, token};
use crate::dir::{DataDir, Occupant};
use crate::error::exit;
use crate::local_peer::{Kind, LocalPeer, PeerArgs, Prepared};
use crate::say::say;
use crate::start::foreign_agent;
use crate::{Error, Result, dir, duration};
use files::AgentFiles;
use joining::Own;
use log::Log;
use notify::{READY, STOPPING, notify};

const DEFAULT_FILTER: &str = "info";
/// The lowest accepted limit of open files, and the agent's own share of it: the rest is for peers and clients.
const LEAST_FILES: usize = 64;
const OWN_FILES: usize = 12;
/// The assumed limit of open files if the system reports none that fits.
const USUAL_LIMIT: usize = 1024;
/// Connection limits of Unix sockets and of TCP. Our choice: a connection costs some tens of kilobytes.
const MOST_CLIENTS: usize = 16_384;
const MOST_BY_TCP: usize = 1024;
const IDLE_CHECK: Duration = Duration::from_secs(1);
const SUCCESSION: Duration = Duration::from_secs(15);

/// Run the background service that `run` and the other commands use
///
/// The agent is this machine's member of the cluster. Commands connect to its socket; other programs use its HTTP API,
/// and browsers its live page. A command that finds no agent starts one, which exits when it is no longer needed.
///
/// The agent exits on SIGTERM and Ctrl-C; jobs continue, and clients wait for the next agent of this machine or start
/// it. `peerlock drain` waits for the jobs first. SIGHUP reloads the secret and the token.
#[derive(Args)]
#[command(after_help = "\
Examples:
  peerlock agent                                         create a cluster with this machine
  peerlock agent --join 10.0.0.7                         join a cluster; the secret file must be the same
  peerlock agent --http 127.0.0.1:7401                   also serve the live page, and print its address
  peerlock agent --replace                               replace the running agent, after an upgrade

Environment:
  PEERLOCK_LOG    log filter, such as warn or info,peerlock_net=debug [default: info]")]
pub struct Options {
    #[command(flatten)]
    peer: PeerArgs,
    /// Also serve the API at HOST:PORT, or at unix:PATH instead of the default socket; repeatable
    ///
    /// Default: agent.sock in $PEERLOCK_RUNTIME_DIR or $PEERLOCK_DATA_DIR, otherwise
    /// $XDG_RUNTIME_DIR/peerlock/agent.sock, and /run/peerlock/agent.sock for root.
    #[arg(long, value_name = "ADDR")]
    http: Vec<Endpoint>,
    /// File with the bearer token for HOST:PORT, mode 600 [default: `token` in the data directory]
    ///
    /// The default file is created at the first start.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Longest lease that a client may request
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "24h")]
    longest_lease: Duration,
    /// Group whose members may also use the Unix socket, with all rights of its owner
    #[arg(long, value_name = "GROUP")]
    socket_group: Option<String>,
    /// Session length: how long other hosts wait after this one dies; at most 10m [default: 15s]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    session: Option<Duration>,
    /// Create a cluster when this many new agents are connected, including this one
    ///
    /// For the first start of machines that all start at once, each with --join of the others. Give more than half of
    /// all hosts.
    #[arg(long, value_name = "HOSTS")]
    expect: Option<usize>,
    /// Exit after this long without clients, grants and waiting requests [default: never]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    idle: Option<Duration>,
    /// Replace the running agent of the data directory, for example after an upgrade
    ///
    /// The running agent exits. Jobs and waiting clients continue at this one.
    #[arg(long)]
    replace: bool,
    /// Accept a data directory on NFS, SMB or FUSE, if no other machine uses it
    #[arg(long)]
    any_filesystem: bool,
    /// Started by a command: leave its terminal and close inherited descriptors
    #[arg(long, hide = true)]
    detached: bool,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    if options.detached {
        detach();
    }
    exit_on_panic();
    let filter = match std::env::var("PEERLOCK_LOG") {
        Ok(filter) if !filter.is_empty() => EnvFilter::try_new(&filter).map_err(|error| {
            Error::Usage(format!(
                "PEERLOCK_LOG={filter:?} is not a log filter: {error}. Use a level, such as `info` or `warn`"
            ))
        })?,
        Ok(_) | Err(_) => EnvFilter::new(DEFAULT_FILTER),
    };
    let log = match options.detached {
        true => Log::to_file(&options.peer.data_dir()?),
        false => Log::to_stderr(),
    };
    // By default the library panics if it can write neither a line nor the error about it.
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(stderr().is_terminal())
        .log_internal_errors(false)
        .with_writer(Mutex::new(log))
        .init();
    peerlock::runtime().map_err(Error::Start)?.block_on(serve_until_end(options))
}

/// Makes every panic exit the process before unwinding. An agent that lives on without its driver would hold the data
/// directory; one that has exited is replaced, and its jobs continue.
fn exit_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        report(info);
        std::process::exit(exit::SOFTWARE.into());
    }));
}

async fn serve_until_end(options: &Options) -> Result<ExitCode> {
    let files = raise_limit();
    if files < LEAST_FILES {
        return Err(Error::FewFiles { files, least: LEAST_FILES });
    }
    Signals::outlive_file_limit().map_err(Error::Start)?;
    let mut signals = Signals::ending_a_server().map_err(Error::Start)?;
    let mut hangups = Signals::hangup().map_err(Error::Start)?;
    let mut start = pin!(Agent::start(options, files));
    let agent = tokio::select! {
        biased;
        // Exits immediately, with the directory locked: another thread writes its files, and a successor must not run
        // meanwhile.
        signal = signals.number() => std::process::exit(i32::from(128 + signal)),
        agent = &mut start => agent?,
    };
    notify(READY);

    let (app, peer) = (&agent.app, &agent.here.peer);
    tokio::select! {
        biased;
        signal = ended(&mut signals, &mut hangups, &agent.files) => {
            if peer.service().has_clients().await {
                notify(STOPPING);
                // Like a killed agent: an orderly exit would revoke the slots of clients.
                tracing::info!(signal, "exiting; clients continue at the next agent of this machine");
                std::process::exit(0);
            }
            tracing::info!(signal, "leaving");
        }
        () = drained(app, peer, &agent.data_dir) => tracing::info!("leaving: drained, no client holds a slot"),
        () = idle_for(app, peer, options.idle) => tracing::info!("leaving: not used for the time of --idle"),
    }
    notify(STOPPING);
    tokio::select! {
        biased;
        signal = signals.number() => Ok(ExitCode::from(128 + signal)),
        confirmed = agent.leave() => match confirmed {
            true => {
                tracing::info!("left");
                Ok(ExitCode::SUCCESS)
            }
            false => Err(Error::LeftUnconfirmed),
        }
    }
}

struct Agent {
    here: LocalPeer,
    app: App,
    files: Arc<AgentFiles>,
    close: oneshot::Sender<()>,
    /// Ends when the last answer has been sent.
    serving: JoinHandle<()>,
    data_dir: PathBuf,
    lock: DataDir,
}

impl Agent {
    /// Locks the data directory, starts the peer and serves clients. An exit meanwhile has no effect on other peers.
    async fn start(options: &Options, files: usize) -> Result<Self> {
        let data_dir = options.peer.data_dir()?;
        let socket = options.socket(&data_dir)?;
        options.check_sockets(&socket)?;
        options.check_names()?;
        let (lock, prepared) = options.prepare(&data_dir, &socket, files).await?;
        options.mark_system(&data_dir, &socket)?;
        // After all other steps that can fail here, since the command that started this agent takes an answer as
        // success; but before the peer starts, since another agent may have the address.
        let token = options.token(&data_dir)?;
        let listeners = options.listeners(socket, token.as_ref(), files).await?;
        let here = prepared.start().await?;
        let (host, secret) = (here.peer.service().name(), here.secret.display());
        tracing::info!(host, address = %here.address(), %secret, "peer started");
        if let Some((uid, process)) = foreign_agent() {
            tracing::warn!(
                uid,
                process,
                "another user's agent runs on this machine: its jobs and those of this agent exclude each other only \
                 if both are members of one cluster"
            );
        }
        let addresses = peerlock_net::dialable(here.peer.advertised()).iter().map(ToString::to_string).collect();
        let program = Program {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: env!("PEERLOCK_COMMIT").to_owned(),
            data_dir: std::path::absolute(&data_dir).ok().map(|dir| dir.display().to_string()),
            listens: here.peer.address().to_string(),
            addresses,
            join: options.peer.join.clone(),
        };
        let files = options.files(&here, &listeners, &data_dir)?;
        let app = App::agent(here.peer.service().clone(), program, options.longest_lease, Some(files.clone()));
        print_page(&listeners, token.as_ref());
        let clients: Vec<String> = listeners.iter().map(|listener| listener.endpoint().to_string()).collect();
        let (close, closed) = oneshot::channel::<()>();
        let serving = tokio::spawn(serve(listeners, app.clone(), async move { _ = closed.await }));
        tracing::info!(?clients, "ready");
        if !options.detached {
            dir::unmark_drained(&data_dir).map_err(|source| Error::Dir { path: data_dir.clone(), source })?;
        } else if dir::is_drained(&data_dir) {
            // Started for jobs whose agent exited while it was draining: they finish, and new requests are refused.
            app.drain();
        }
        Ok(Self { here, app, files, close, serving, data_dir, lock })
    }

    async fn leave(self) -> bool {
        let Self { here, close, serving, lock, .. } = self;
        here.peer.drain().await;
        drop(close);
        // Only a panic could end it with an error, and would have ended the process.
        let _served = serving.await;
        let confirmed = here.leave().await;
        lock.end();
        confirmed
    }
}

impl Options {
    /// Locks the data directory, and reads or creates its files. Afterwards only the network can prevent the start.
    async fn prepare(&self, data_dir: &Path, socket: &Path, files: usize) -> Result<(DataDir, Prepared)> {
        if !self.any_filesystem {
            dir::check_filesystem(data_dir)?;
        }
        let me = Occupant { pid: std::process::id(), ends_by_itself: self.idle.is_some(), socket: socket.to_owned() };
        let mut signalled = None;
        let waits = || self.waits(data_dir, socket, &mut signalled);
        let lock = DataDir::take(data_dir, SUCCESSION, &me, waits).await?;
        let identity = Identity::load_or_create(&places::identity(data_dir)).map_err(StartError::from)?;
        // With the directory locked, the predecessor no longer writes the file.
        let path = grants(socket);
        let grants = GrantFile::open(&path, identity.peer()).map_err(|source| Error::File { path, source })?;
        if !self.peer.join.is_empty()
            && let Some(own) = Own::of(data_dir, grants.1.as_ref())?
        {
            own.decide(&self.peer.probe(&identity, own.cluster).await?)?;
        }
        let (store, known) = Store::dir(data_dir).map_err(StartError::from)?;
        if let Some(cluster) = known.cluster {
            let (members, votes) = (known.members.len(), known.registry.is_some());
            tracing::info!(%cluster, members, votes, "returning to its cluster");
        }
        if let Some(predecessor) = grants.1.as_ref().filter(|predecessor| !predecessor.grants.is_empty()) {
            tracing::info!(grants = predecessor.grants.len(), "continuing the grants of its predecessor");
        }
        // An agent that a command started listens on loopback only, unless another host is in its cluster.
        let is_local = self.idle.is_some() && (known.cluster.is_none() || known.is_alone());
        let prepared = self.peer.prepare(Kind {
            is_local,
            grants: Some(grants),
            identity: Some(identity),
            any_port: self.idle.is_some(),
            dir: Some((store, known)),
            expect: self.expect,
            session: self.session,
            descriptors: Some(for_peers(files)),
        })?;
        Ok((lock, prepared))
    }

    /// Marks the default directories of root, so that other users wait for the machine's agent while it is not running.
    /// An agent that a command started is not marked: it exits when idle.
    fn mark_system(&self, data_dir: &Path, socket: &Path) -> Result<()> {
        if self.idle.is_some() {
            return Ok(());
        }
        let data_dir = Some(data_dir).filter(|dir| *dir == Path::new(places::SYSTEM_DATA_DIR));
        let run_time = Some(socket).filter(|socket| *socket == Path::new(places::SYSTEM_SOCKET)).and_then(Path::parent);
        for directory in data_dir.into_iter().chain(run_time) {
            places::mark_system(directory).map_err(|source| Error::Dir { path: directory.to_owned(), source })?;
        }
        Ok(())
    }

    /// Returns whether to wait until the current agent of the directory has exited. With `--replace`, or if a command
    /// started that agent and an administrator this one, sends SIGTERM to it and to any successor that locks the
    /// directory first. An agent that a command starts waits unless another one answers.
    fn waits(&self, data_dir: &Path, socket: &Path, signalled: &mut Option<Pid>) -> bool {
        let is_temporary = || dir::last(data_dir).is_some_and(|last| last.ends_by_itself);
        if self.replace || self.idle.is_none() && is_temporary() {
            if let Some(process) = dir::holder(data_dir).filter(|process| *signalled != Some(*process)) {
                tracing::info!(%process, "replacing the running agent");
                // The process may have exited. A stopped one handles SIGTERM only after SIGCONT.
                _ = kill(process, Signal::SIGTERM).and_then(|()| kill(process, Signal::SIGCONT));
                *signalled = Some(process);
            }
            return true;
        }
        self.detached && UnixStream::connect(socket).is_err()
    }

    fn socket(&self, data_dir: &Path) -> Result<PathBuf> {
        let named = self.http.iter().find_map(|endpoint| match endpoint {
            Endpoint::Unix(path) => Some(path.clone()),
            _ => None,
        });
        let path = named.map_or_else(|| socket().map(|usual| dir::place(data_dir, usual)), Ok)?;
        std::path::absolute(&path).map_err(|source| Error::File { path, source })
    }

    /// Refuses a socket in a directory in which other users could replace it.
    fn check_sockets(&self, socket: &Path) -> Result<()> {
        let named = self.http.iter().filter_map(|endpoint| match endpoint {
            Endpoint::Unix(path) => Some(path.as_path()),
            _ => None,
        });
        for path in named.chain([socket]) {
            let path = std::path::absolute(path).map_err(|source| Error::File { path: path.to_owned(), source })?;
            path.parent().map_or(Ok(()), dir::private)?;
        }
        Ok(())
    }

    /// Checked before a running agent is replaced: an error must not leave the machine without an agent.
    fn check_names(&self) -> Result<()> {
        if self.longest_lease < SHORTEST_TTL {
            let least = SHORTEST_TTL.as_millis();
            return Err(Error::Usage(format!("--longest-lease must be at least {least} ms, the shortest lease")));
        }
        if self.expect == Some(0) {
            return Err(Error::Usage("--expect must be at least 1: it includes this agent".into()));
        }
        self.token_file.as_deref().map(token).transpose()?;
        self.socket_group.as_deref().map(group).transpose()?;
        self.peer.check()
    }

    fn token(&self, data_dir: &Path) -> Result<Option<Token>> {
        if let Some(named) = &self.token_file {
            return token(named).map(Some);
        }
        if self.ports() == 0 {
            return Ok(None);
        }
        let path = self.token_path(data_dir);
        let made = || private::create(&path, Token::generate()?.as_str());
        match made() {
            Err(source) if source.kind() != ErrorKind::AlreadyExists => Err(Error::File { path, source }),
            Ok(()) | Err(_) => token(&path).map(Some),
        }
    }

    fn token_path(&self, data_dir: &Path) -> PathBuf {
        self.token_file.clone().unwrap_or_else(|| data_dir.join("token"))
    }

    fn files(&self, here: &LocalPeer, listeners: &[Listener], data_dir: &Path) -> Result<Arc<AgentFiles>> {
        let absolute =
            |path: &Path| std::path::absolute(path).map_err(|source| Error::File { path: path.to_owned(), source });
        let uses: Vec<_> = listeners.iter().filter_map(Listener::token).collect();
        let token = (!uses.is_empty()).then(|| absolute(&self.token_path(data_dir))).transpose()?;
        let keyring = here.peer.keyring().expect("a peer that is on the network has one").clone();
        Ok(Arc::new(AgentFiles { secret: absolute(&here.secret)?, keyring, token: token.map(|path| (path, uses)) }))
    }

    fn ports(&self) -> usize {
        self.http.iter().filter(|endpoint| matches!(endpoint, Endpoint::Tcp(_))).count()
    }

    /// Opens the listeners. Half of the descriptors are for Unix sockets and an eighth for TCP, which leaves some for
    /// peers ([`for_peers`]) and files.
    async fn listeners(&self, socket: PathBuf, token: Option<&Token>, files: usize) -> Result<Vec<Listener>> {
        let mut endpoints = self.http.clone();
        if endpoints.len() == self.ports() {
            endpoints.insert(0, Endpoint::Unix(socket));
        }
        let sockets = endpoints.len() - self.ports();
        let group = self.socket_group.as_deref().map(group).transpose()?;
        let mut listeners = Vec::new();
        for endpoint in &endpoints {
            let most = match endpoint {
                Endpoint::Unix(_) => for_clients(files) / sockets,
                _ => for_tcp(files) / self.ports(),
            };
            let listener = Listener::bind(endpoint, token.cloned(), most).await?;
            group.map_or(Ok(()), |group| listener.admit(group))?;
            listeners.push(listener);
        }
        Ok(listeners)
    }
}

/// Resolves with the signal that stops the agent. SIGHUP reloads the files, unless it means that the terminal was
/// closed.
async fn ended(signals: &mut Signals, hangups: &mut Signals, files: &AgentFiles) -> u8 {
    let on_terminal = stderr().is_terminal();
    loop {
        let hangup = tokio::select! {
            biased;
            signal = signals.number() => return signal,
            hangup = hangups.number() => hangup,
        };
        if on_terminal && !stderr().is_terminal() {
            return hangup;
        }
        if let Err(why) = files.reload() {
            tracing::error!(%why, "cannot reload the secret or the token; the previous ones remain in use");
        }
    }
}

async fn drained(app: &App, peer: &Peer, data_dir: &Path) {
    app.drained().await;
    if let Err(error) = dir::mark_drained(data_dir) {
        tracing::warn!(%error, "cannot mark the data directory as drained: commands may start another agent");
    }
    tracing::info!("draining: refuses new requests, and leaves when no client holds a slot");
    peer.service().close().await;
}

/// Prints the page's address, on a terminal only: it contains the token, which must not be in a log.
fn print_page(listeners: &[Listener], token: Option<&Token>) {
    let Some(token) = token.filter(|_| stderr().is_terminal()) else { return };
    for listener in listeners.iter().filter(|listener| matches!(listener.endpoint(), Endpoint::Tcp(_))) {
        say(format_args!("the page: {}", token.page(listener.endpoint())));
    }
}

/// Returns the path of the takeover file: `agent.takeover` beside `agent.sock`, and a unique name for other sockets.
fn grants(socket: &Path) -> PathBuf {
    if socket.extension().is_some_and(|extension| extension == "sock") {
        return socket.with_extension("takeover");
    }
    let mut path = socket.as_os_str().to_owned();
    path.push("-takeover");
    path.into()
}

fn group(name: &str) -> Result<u32> {
    match Group::from_name(name) {
        Ok(Some(group)) => Ok(group.gid.as_raw()),
        Ok(None) | Err(_) => {
            Err(Error::Usage(format!("no group {name:?} on this machine: create it with `groupadd {name}`")))
        }
    }
}

async fn idle_for(app: &App, peer: &Peer, idle: Option<Duration>) {
    let Some(idle) = idle else { return pending().await };
    let (mut needed, mut observed) = (Instant::now(), 0);
    while needed.elapsed() < idle {
        sleep(IDLE_CHECK.min(idle / 4)).await;
        let (open, accepted) = app.connections();
        // Without an answer the service has stopped, and the agent exits for that reason.
        let counters = peer.service().counters().await.unwrap_or_default();
        if open > 0 || accepted != observed || counters.holding > 0 || counters.waiting > 0 {
            (needed, observed) = (Instant::now(), accepted);
        }
    }
}

fn for_clients(files: usize) -> usize {
    (files / 2).min(MOST_CLIENTS)
}

fn for_tcp(files: usize) -> usize {
    (files / 8).min(MOST_BY_TCP)
}

/// Returns the connection limit for peers. A sixteenth remains unused: a closed connection keeps its descriptor for a
/// moment.
fn for_peers(files: usize) -> usize {
    files - for_clients(files) - for_tcp(files) - files / 16 - OWN_FILES
}

/// Raises the limit of open files, whose default suits select(2), and returns it.
fn raise_limit() -> usize {
    // If this fails, fewer connections are accepted, which is logged.
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
    getrlimit(Resource::RLIMIT_NOFILE).map_or(USUAL_LIMIT, |(soft, _)| usize::try_from(soft).unwrap_or(usize::MAX))
}

/// Leaves the session of the starting process and closes its descriptors, so that its pipes end and its file locks are
/// released.
fn detach() {
    // It was started as `/proc/self/exe`, so `ps` and `pgrep` would show `exe`.
    _ = fs::write("/proc/self/comm", "peerlock");
    // Fails for a process group leader, which leads a session already.
    _ = setsid();
    let open = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let open: Vec<i32> = open.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for descriptor in open.into_iter().filter(|descriptor| *descriptor > 2) {
        // Fails for the directory listing, which is closed by now.
        _ = close(descriptor);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn takeover_file_is_unique_per_socket() {
        for (socket, file) in [
            ("/r/agent.sock", "/r/agent.takeover"),
            ("/r/agent", "/r/agent-takeover"),
            ("/r/agent.one", "/r/agent.one-takeover"),
            ("/r/agent.one.sock", "/r/agent.one.takeover"),
        ] {
            assert_eq!(grants(Path::new(socket)), Path::new(file), "{socket}");
        }
    }

    /// Otherwise the next write of a file could end the agent.
    #[test]
    fn connections_leave_descriptors_for_the_agent() {
        for files in LEAST_FILES..100_000 {
            let config = peerlock_net::Config::new("127.0.0.1:0".parse().unwrap()).within(for_peers(files));
            let peers = config.max_peers + config.max_entries() + config.max_dials;
            assert!(for_clients(files) + for_tcp(files) + peers + OWN_FILES <= files, "{files}: {config:?}");
            assert!(config.max_peers >= 4, "{files}: {config:?}");
        }
    }

    #[test]
    fn panic_ends_the_process() {
        const IS_CHILD: &str = "PEERLOCK_TEST_PANICS";
        if std::env::var_os(IS_CHILD).is_some() {
            exit_on_panic();
            let _panicked = std::thread::spawn(|| panic!("an invariant is violated")).join();
            std::process::exit(0);
        }
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args(["agent::tests::panic_ends_the_process", "--exact", "--nocapture"]).env(IS_CHILD, "");
        let output = child.output().unwrap();
        assert_eq!(output.status.code(), Some(70), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("an invariant is violated"), "{output:?}");
    }
}
