//! `peerlock agent`: a peer that stays, for all who want slots on this machine.

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
use crate::here::{Kind, LocalPeer, PeerArgs, Prepared};
use crate::say::say;
use crate::start::neighbour;
use crate::{Error, Result, dir, duration};
use files::AgentFiles;
use joining::Own;
use log::Log;
use notify::{READY, STOPPING, notify};

/// What is logged unless somebody says otherwise.
const LOGGED: &str = "info";
/// With fewer files than this an agent hears nobody: its own take a dozen, and each peer and each client one.
const LEAST_FILES: usize = 64;
const OWN_FILES: usize = 12;
/// How many files a process may have open where nobody says otherwise.
const USUAL_LIMIT: usize = 1024;
/// So many connections are served at Unix sockets at most, and by TCP, where the kernel does not tell us who comes. Our
/// choice: each costs some tens of kilobytes.
const MOST_CLIENTS: usize = 16_384;
const MOST_BY_TCP: usize = 1024;
/// How often an agent that is to end by itself looks whether somebody needs it.
const LOOK: Duration = Duration::from_secs(1);
/// How long an agent that takes the place of another waits for that to go.
const SUCCESSION: Duration = Duration::from_secs(15);

/// Stay in the cluster as a peer, for all commands on this machine
///
/// `peerlock run` and the other commands find it by its socket; other programs use its HTTP API, and people its live
/// page. A command that finds none starts one, which ends by itself when it is not needed any more. On SIGTERM or
/// Ctrl-C it ends; those who hold slots or wait go on at the next agent of this machine, which they wait for, or start.
/// `peerlock drain` lets them finish first. On SIGHUP it reads the secret and the token again.
#[derive(Args)]
#[command(after_help = "\
Examples:
  peerlock agent                                         the first of a cluster
  peerlock agent --join 10.0.0.7                         with the same secret file as the others
  peerlock agent --http 127.0.0.1:7401                   and the live page in a browser: it says at which address
  peerlock agent --replace                               instead of the one that runs, after an upgrade

What it logs: PEERLOCK_LOG=warn, PEERLOCK_LOG=info,peerlock_net=debug, … [default: info]")]
pub struct Options {
    #[command(flatten)]
    peer: PeerArgs,
    /// Where clients come in: HOST:PORT besides the socket of this user, or unix:PATH instead of it. Repeatable
    /// [default: agent.sock in $PEERLOCK_RUNTIME_DIR or $PEERLOCK_DATA_DIR; else $XDG_RUNTIME_DIR/peerlock/agent.sock;
    /// /run/peerlock/agent.sock for root]
    #[arg(long, value_name = "ADDR")]
    http: Vec<Endpoint>,
    /// A file with the bearer token that clients at HOST:PORT must know, mode 600 [default: `token` in the data folder,
    /// made at the first start]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The longest lease that a client may ask for
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "24h")]
    longest_lease: Duration,
    /// A group whose members may use its Unix socket, too, and with it do all that its owner may
    #[arg(long, value_name = "GROUP")]
    socket_group: Option<String>,
    /// How long its session stands without a majority of the voters: after that long others may have what it held. At
    /// most 10m [default: 15s]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    session: Option<Duration>,
    /// Found a cluster when this many agents that know none have met, this one included: for the first start of
    /// machines that all start at once, each with --join of the others. More than half of all hosts
    #[arg(long, value_name = "HOSTS")]
    expect: Option<usize>,
    /// End when there has been no client for this long, and nobody holds anything here [default: stay]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    idle: Option<Duration>,
    /// Take over from the agent that has this data folder: it ends, and those who hold slots or wait there go on here.
    /// An upgrade is this one command
    #[arg(long)]
    replace: bool,
    /// Use a data folder that other machines may use, too (NFS, SMB, FUSE): only if none does
    #[arg(long)]
    any_filesystem: bool,
    /// Started by a command: leave its terminal, and let go of whatever it had open
    #[arg(long, hide = true)]
    detached: bool,
}

/// Runs the command.
pub fn run(options: &Options) -> Result<ExitCode> {
    if options.detached {
        let_go();
    }
    end_by_panics();
    let filter = match std::env::var("PEERLOCK_LOG") {
        Ok(wanted) if !wanted.is_empty() => EnvFilter::try_new(&wanted).map_err(|error| {
            Error::Usage(format!(
                "PEERLOCK_LOG={wanted:?} says nothing that can be logged: {error}. Try `info` or `warn`"
            ))
        })?,
        Ok(_) | Err(_) => EnvFilter::new(LOGGED),
    };
    let log = match options.detached {
        true => Log::to_file(&options.peer.data_dir()?),
        false => Log::to_stderr(),
    };
    // A line that cannot be written is lost. By itself the library writes about that, and panics if that fails, too.
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(stderr().is_terminal())
        .log_internal_errors(false)
        .with_writer(Mutex::new(log))
        .init();
    peerlock::runtime().map_err(Error::Start)?.block_on(go(options))
}

/// Whoever panics ends the process, before anything is unwound: an agent without its driver would keep the folder and
/// answer that it has stopped, and would have told its jobs so. One that is gone leaves them to the next.
fn end_by_panics() {
    let says = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        says(info);
        std::process::exit(exit::SOFTWARE.into());
    }));
}

async fn go(options: &Options) -> Result<ExitCode> {
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
        // At once, and with the lock of its folder to the very end: its files are written by another thread, and
        // whoever takes the folder next must not find that one at work.
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
                // At once, as if it were killed: whatever is done in good order would take something away from them.
                tracing::info!(signal, "ends; those who hold slots or wait here go on at the next agent of this \
                    machine");
                std::process::exit(0);
            }
            tracing::info!(signal, "leaving");
        }
        () = drained(app, peer, &agent.data_dir) => tracing::info!("leaving: those who held slots have finished"),
        () = unneeded(app, peer, options.idle) => tracing::info!("leaving: nobody has needed it for long enough"),
    }
    notify(STOPPING);
    tokio::select! {
        biased;
        signal = signals.number() => Ok(ExitCode::from(128 + signal)),
        notified = agent.leave() => match notified {
            true => {
                tracing::info!("left");
                Ok(ExitCode::SUCCESS)
            }
            false => Err(Error::Untold),
        }
    }
}

/// An agent at work.
struct Agent {
    here: LocalPeer,
    app: App,
    /// What it reads again when it is told to.
    files: Arc<AgentFiles>,
    /// Clients are served until this is dropped …
    close: oneshot::Sender<()>,
    /// … and the last of them has had its answer.
    serving: JoinHandle<()>,
    data_dir: PathBuf,
    /// There is no other of its data folder.
    only_one: DataDir,
}

impl Agent {
    /// Takes the data folder, becomes a peer and serves clients. The process may end halfway: then nothing has begun
    /// that others would miss.
    async fn start(options: &Options, files: usize) -> Result<Self> {
        let data_dir = options.peer.data_dir()?;
        let socket = options.socket(&data_dir)?;
        options.check_doors(&socket)?;
        options.check_names()?;
        let (only_one, prepared) = options.prepare(&data_dir, &socket, files).await?;
        options.mark_system(&data_dir, &socket)?;
        // Before it starts, because it is the part that another agent can be in the way of; and after what it can fail
        // for by itself, because whoever has started it takes it for running when it answers there.
        let token = options.token(&data_dir)?;
        let listeners = options.listeners(socket, token.as_ref(), files).await?;
        let here = prepared.start().await?;
        let (host, secret) = (here.peer.service().name(), here.secret.display());
        tracing::info!(host, address = %here.address(), %secret, "a peer");
        if let Some((uid, process)) = neighbour() {
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
        };
        let files = options.files(&here, &listeners, &data_dir)?;
        let app = App::agent(here.peer.service().clone(), program, options.longest_lease, Some(files.clone()));
        say_page(&listeners, token.as_ref());
        let clients: Vec<String> = listeners.iter().map(|listener| listener.endpoint().to_string()).collect();
        let (close, closed) = oneshot::channel::<()>();
        let serving = tokio::spawn(serve(listeners, app.clone(), async move { _ = closed.await }));
        tracing::info!(?clients, "ready");
        if !options.detached {
            dir::unmark_drained(&data_dir).map_err(|source| Error::Dir { path: data_dir.clone(), source })?;
        } else if dir::is_drained(&data_dir) {
            // For jobs that lost their agent while it was draining: they finish, and nothing else begins.
            app.drain();
        }
        Ok(Self { here, app, files, close, serving, data_dir, only_one })
    }

    /// Leaves in good order: clients first, and then the cluster, whether or not it could be told.
    async fn leave(self) -> bool {
        let Self { here, close, serving, only_one, .. } = self;
        here.peer.drain().await;
        drop(close);
        // It ends by itself, and its panic would be its own.
        let _served = serving.await;
        let notified = here.leave().await;
        only_one.end();
        notified
    }
}

impl Options {
    /// Takes the data folder, and reads and makes what the peer needs: only the network can be in its way after that.
    async fn prepare(&self, data_dir: &Path, socket: &Path, files: usize) -> Result<(DataDir, Prepared)> {
        if !self.any_filesystem {
            dir::check_filesystem(data_dir)?;
        }
        let me = Occupant { pid: std::process::id(), ends_by_itself: self.idle.is_some(), socket: socket.to_owned() };
        let mut notified = None;
        let waits = || self.waits(data_dir, socket, &mut notified);
        let only_one = DataDir::take(data_dir, SUCCESSION, &me, waits).await?;
        let identity = Identity::load_or_create(&places::identity(data_dir)).map_err(StartError::from)?;
        // Only now: whoever wrote it had the folder.
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
            tracing::info!(%cluster, members, votes, "back in its cluster");
        }
        if let Some(predecessor) = grants.1.as_ref().filter(|predecessor| !predecessor.grants.is_empty()) {
            tracing::info!(grants = predecessor.grants.len(), "answers for what the agent before it has granted");
        }
        // One that a command has started is for this machine, as long as no other one is in its cluster.
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
        Ok((only_one, prepared))
    }

    /// Marks the usual directories of root as those of the machine's own agent, which other users wait for while it
    /// does not run. One that a command has started ends when nothing needs it, and is not waited for.
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

    /// Whether to wait until the agent that has the folder has gone. Who replaces it tells it to go, and whoever has
    /// come in its place meanwhile, too: several may have waited for that. One that a command has started makes way for
    /// one that was started by hand or by systemd; and it is not needed any more when another one answers.
    fn waits(&self, data_dir: &Path, socket: &Path, notified: &mut Option<Pid>) -> bool {
        let by_itself = || dir::last(data_dir).is_some_and(|last| last.ends_by_itself);
        if self.replace || self.idle.is_none() && by_itself() {
            if let Some(process) = dir::holder(data_dir).filter(|process| *notified != Some(*process)) {
                tracing::info!(%process, "takes over from the agent that runs");
                // It may have ended just now; and one that is stopped does not hear it before it goes on.
                _ = kill(process, Signal::SIGTERM).and_then(|()| kill(process, Signal::SIGCONT));
                *notified = Some(process);
            }
            return true;
        }
        self.detached && UnixStream::connect(socket).is_err()
    }

    /// Where this user's commands find it.
    fn socket(&self, data_dir: &Path) -> Result<PathBuf> {
        let named = self.http.iter().find_map(|endpoint| match endpoint {
            Endpoint::Unix(path) => Some(path.clone()),
            _ => None,
        });
        let path = named.map_or_else(|| socket().map(|usual| dir::place(data_dir, usual)), Ok)?;
        std::path::absolute(&path).map_err(|source| Error::File { path, source })
    }

    /// Who could write into the folder of a socket could put another one in its place.
    fn check_doors(&self, socket: &Path) -> Result<()> {
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

    /// What was named on the command line has to be there before another agent is told to go: else a slip in the
    /// command that was to replace it would leave none.
    fn check_names(&self) -> Result<()> {
        if self.longest_lease < SHORTEST_TTL {
            let least = SHORTEST_TTL.as_millis();
            return Err(Error::Usage(format!("--longest-lease: no lease is shorter than {least} ms: give more")));
        }
        if self.expect == Some(0) {
            return Err(Error::Usage("--expect counts this agent, too: give 1 or more".into()));
        }
        self.token_file.as_deref().map(token).transpose()?;
        self.socket_group.as_deref().map(group).transpose()?;
        self.peer.check()
    }

    /// What clients must know who come by TCP: what the file says that was named, or else our own, which is made if
    /// there is none.
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

    /// What it has read from files, for when they have changed.
    fn files(&self, here: &LocalPeer, listeners: &[Listener], data_dir: &Path) -> Result<Arc<AgentFiles>> {
        let absolute =
            |path: &Path| std::path::absolute(path).map_err(|source| Error::File { path: path.to_owned(), source });
        let doors: Vec<_> = listeners.iter().filter_map(Listener::token).collect();
        let token = (!doors.is_empty()).then(|| absolute(&self.token_path(data_dir))).transpose()?;
        let keyring = here.peer.keyring().expect("a peer that is on the network has one").clone();
        Ok(Arc::new(AgentFiles { secret: absolute(&here.secret)?, keyring, token: token.map(|path| (path, doors)) }))
    }

    /// At how many addresses clients come by TCP.
    fn ports(&self) -> usize {
        self.http.iter().filter(|endpoint| matches!(endpoint, Endpoint::Tcp(_))).count()
    }

    /// Half of the files are for the sockets of this user, an eighth for TCP, and the rest for other peers
    /// ([`for_peers`]) and what is written: so nobody who connects can take what the agent needs to go on.
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

/// The signal by which it is told to end. By SIGHUP it is told that its files have changed; unless it was started on a
/// terminal, and that is gone.
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
            tracing::error!(%why, "cannot use what its files say now, and goes on with what they said");
        }
    }
}

/// Resolves when somebody has wanted it to end, and nobody holds a slot here any more.
async fn drained(app: &App, peer: &Peer, data_dir: &Path) {
    app.drained().await;
    if let Err(error) = dir::mark_drained(data_dir) {
        tracing::warn!(%error, "cannot mark the data directory as drained: commands may start another agent");
    }
    tracing::info!("lets nobody in any more, and leaves when those who hold slots have finished");
    peer.service().close().await;
}

/// Where a person at the terminal finds the page. The token is for nobody who reads a log.
fn say_page(listeners: &[Listener], token: Option<&Token>) {
    let Some(token) = token.filter(|_| stderr().is_terminal()) else { return };
    for listener in listeners.iter().filter(|listener| matches!(listener.endpoint(), Endpoint::Tcp(_))) {
        say(format_args!("the page: {}", token.page(listener.endpoint())));
    }
}

/// The file beside a socket that says who may be inside: `agent.takeover` for `agent.sock`, and for any other name one
/// that no other socket has.
fn grants(socket: &Path) -> PathBuf {
    if socket.extension().is_some_and(|extension| extension == "sock") {
        return socket.with_extension("takeover");
    }
    let mut path = socket.as_os_str().to_owned();
    path.push("-takeover");
    path.into()
}

/// The number of a group, by its name.
fn group(name: &str) -> Result<u32> {
    match Group::from_name(name) {
        Ok(Some(group)) => Ok(group.gid.as_raw()),
        Ok(None) | Err(_) => {
            Err(Error::Usage(format!("there is no group {name:?} on this machine: make it with `groupadd {name}`")))
        }
    }
}

/// Resolves when there has been no client for so long, and nobody has or waits for anything here; or never.
async fn unneeded(app: &App, peer: &Peer, idle: Option<Duration>) {
    let Some(idle) = idle else { return pending().await };
    let (mut needed, mut observed) = (Instant::now(), 0);
    while needed.elapsed() < idle {
        sleep(LOOK.min(idle / 4)).await;
        let (open, accepted) = app.connections();
        // If it cannot be asked it has stopped, which others see to.
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

/// What clients leave of the files, but for the agent's own, and for a sixteenth: connections that are only just over
/// take theirs a moment longer.
fn for_peers(files: usize) -> usize {
    files - for_clients(files) - for_tcp(files) - files / 16 - OWN_FILES
}

/// Clients and peers are a descriptor each, and the usual limit of 1024 is meant for programs that use select(2).
/// How many there may be.
fn raise_limit() -> usize {
    // Where it cannot be raised fewer come in at a time, which is said when it happens.
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
    getrlimit(Resource::RLIMIT_NOFILE).map_or(USUAL_LIMIT, |(soft, _)| usize::try_from(soft).unwrap_or(usize::MAX))
}

/// Leaves the session of who has started us, and closes whatever it had open: a pipe that we held would never end, and
/// a file lock never be free.
fn let_go() {
    // It was started as `/proc/self/exe`, and would be called so by `ps` and `pgrep`.
    _ = fs::write("/proc/self/comm", "peerlock");
    // It fails for the leader of a process group, which has a session of its own to lead then.
    _ = setsid();
    let open = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let open: Vec<i32> = open.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for descriptor in open.into_iter().filter(|descriptor| *descriptor > 2) {
        // One of them was for reading the list, and is closed already.
        _ = close(descriptor);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn each_socket_has_a_file_of_grants_of_its_own() {
        for (socket, file) in [
            ("/r/agent.sock", "/r/agent.takeover"),
            ("/r/agent", "/r/agent-takeover"),
            ("/r/agent.one", "/r/agent.one-takeover"),
            ("/r/agent.one.sock", "/r/agent.one.takeover"),
        ] {
            assert_eq!(grants(Path::new(socket)), Path::new(file), "{socket}");
        }
    }

    /// Peers took what was left, and the next file that was to be written ended the agent.
    #[test]
    fn whoever_connects_leaves_enough_files_to_go_on_with() {
        for files in LEAST_FILES..100_000 {
            let config = peerlock_net::Config::new("127.0.0.1:0".parse().unwrap()).within(for_peers(files));
            let peers = config.max_peers + config.max_entries() + config.max_dials;
            assert!(for_clients(files) + for_tcp(files) + peers + OWN_FILES <= files, "{files}: {config:?}");
            assert!(config.max_peers >= 4, "{files}: {config:?}");
        }
    }

    /// In a process of its own: this very test again.
    #[test]
    fn whoever_panics_ends_the_process() {
        const IS_CHILD: &str = "PEERLOCK_TEST_PANICS";
        if std::env::var_os(IS_CHILD).is_some() {
            end_by_panics();
            let _panicked = std::thread::spawn(|| panic!("a rule is broken")).join();
            std::process::exit(0);
        }
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args(["agent::tests::whoever_panics_ends_the_process", "--exact", "--nocapture"]).env(IS_CHILD, "");
        let output = child.output().unwrap();
        assert_eq!(output.status.code(), Some(70), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("a rule is broken"), "{output:?}");
    }
}
