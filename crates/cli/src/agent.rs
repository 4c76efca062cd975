//! `peerlock agent`: a peer that stays, for all who want slots on this machine.

mod notify;

use std::fs;
use std::future::pending;
use std::io::{IsTerminal as _, stderr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{close, setsid};
use peerlock::store::Store;
use peerlock::{Endpoint, Identity, Peer, StartError, places};
use peerlock_http::{App, Listener, Program, serve};
use peerlock_supervise::Signals;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};
use tracing_subscriber::EnvFilter;

use crate::client::{socket, token};
use crate::folder::{DataFolder, Occupant};
use crate::here::{Kind, PeerArgs};
use crate::{Error, Result, duration};
use notify::{READY, STOPPING, notify};

/// What is logged unless somebody says otherwise.
const LOGGED: &str = "info,libp2p_swarm=warn";
/// How often an agent that is to end by itself looks whether somebody needs it.
const LOOK: Duration = Duration::from_secs(1);
/// How long an agent that a command has started waits for the one before it to go.
const SUCCESSION: Duration = Duration::from_secs(15);

/// Stay in the cluster as a peer, for all commands on this machine
///
/// `peerlock run` and the other commands find it by its socket; other programs use its HTTP API, and people its live
/// page. A command that finds none starts one, which ends by itself when it is not needed any more. On SIGTERM or Ctrl-C it lets nobody in any more, waits until those who hold slots have stopped or their leases
/// have ended, hands everything over to the other peers, and ends. A second signal ends it at once.
#[derive(Args)]
#[command(after_help = "\
Examples:
  peerlock agent                                         the first of a cluster
  peerlock agent --join 10.0.0.7                         with the same secret file as the others
  peerlock agent --http 127.0.0.1:7401                   and the live page in a browser

What it logs: PEERLOCK_LOG=warn, PEERLOCK_LOG=info,peerlock_net=debug, … [default: info]")]
pub struct Options {
    #[command(flatten)]
    peer: PeerArgs,
    /// Where clients come in: HOST:PORT besides the socket of this user, or unix:PATH instead of it. Repeatable;
    /// addresses that other machines can reach need a bearer token [default: $XDG_RUNTIME_DIR/peerlock/agent.sock;
    /// /run/peerlock/agent.sock for root]
    #[arg(long, value_name = "ADDR")]
    http: Vec<Endpoint>,
    /// A file with the bearer token that clients at HOST:PORT must know
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// How long its session stands without a majority of the voters: after that long others may have what it held
    /// [default: 15s]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    session: Option<Duration>,
    /// Found a cluster when this many agents that know none have met, this one included: for machines that all start at
    /// once, each with --join of the others
    #[arg(long, value_name = "HOSTS")]
    expect: Option<usize>,
    /// End when there has been no client for this long, and nobody holds anything here [default: stay]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    idle: Option<Duration>,
    /// Started by a command: leave its terminal, and let go of whatever it had open
    #[arg(long, hide = true)]
    detached: bool,
}

/// Runs the command.
pub fn run(options: &Options) -> Result<ExitCode> {
    if options.detached {
        let_go();
    }
    let filter = match std::env::var("PEERLOCK_LOG") {
        Ok(wanted) if !wanted.is_empty() => EnvFilter::try_new(&wanted).map_err(|error| {
            Error::Usage(format!(
                "PEERLOCK_LOG={wanted:?} says nothing that can be logged: {error}. Try `info` or `warn`"
            ))
        })?,
        Ok(_) | Err(_) => EnvFilter::new(LOGGED),
    };
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(stderr().is_terminal()).with_writer(stderr).init();
    peerlock::runtime().map_err(Error::Start)?.block_on(go(options))
}

async fn go(options: &Options) -> Result<ExitCode> {
    raise_limit();
    let mut signals = Signals::ending().map_err(Error::Start)?;
    let data_dir = options.peer.data_dir()?;
    let me = Occupant { pid: std::process::id(), ends_by_itself: options.idle.is_some(), socket: options.socket()? };
    let patience = if options.detached { SUCCESSION } else { Duration::ZERO };
    let _only_one = tokio::select! {
        biased;
        signal = signals.number() => return Ok(ExitCode::from(128 + signal)),
        folder = DataFolder::take(&data_dir, patience, &me) => folder?,
    };
    let identity = Identity::load_or_create(&places::identity(&data_dir)).map_err(StartError::from)?;
    let (store, known) = Store::folder(&data_dir).map_err(StartError::from)?;
    if let Some(cluster) = known.cluster {
        tracing::info!(%cluster, members = known.members.len(), votes = known.register.is_some(), "back in its cluster");
    }
    let prepared = options.peer.prepare(Kind {
        identity: Some(identity),
        any_port: options.idle.is_some(),
        folder: Some((store, known)),
        expect: options.expect,
        session: options.session,
    })?;
    // Before it starts, because it is the part that another agent can be in the way of; and after what it can fail for
    // by itself, because whoever has started it takes it for running when it answers there.
    let listeners = options.listeners().await?;
    let here = tokio::select! {
        biased;
        signal = signals.number() => return Ok(ExitCode::from(128 + signal)),
        here = prepared.start() => here?,
    };
    tracing::info!(me = %here.peer.me(), address = %here.address(), secret = %here.secret.display(), "a peer");
    let clients: Vec<String> = listeners.iter().map(|listener| listener.endpoint().to_string()).collect();
    let (close, closed) = oneshot::channel::<()>();
    let addresses = peerlock_net::dialable(here.peer.advertised()).iter().map(ToString::to_string).collect();
    let program = Program {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: env!("PEERLOCK_COMMIT").to_owned(),
        data_dir: std::path::absolute(&data_dir).ok().map(|folder| folder.display().to_string()),
        listens: here.peer.address().to_string(),
        addresses,
    };
    let app = App::agent(here.peer.service().clone(), program);
    let serving = tokio::spawn(serve(listeners, app.clone(), async move { _ = closed.await }));
    tracing::info!(?clients, "ready");
    notify(READY);

    tokio::select! {
        signal = signals.number() => {
            tracing::info!(signal, "leaving, when those who hold slots here have stopped; a second signal ends it at once");
        }
        () = unneeded(&app, &here.peer, options.idle) => tracing::info!("leaving: nobody has needed it for long enough"),
    }
    notify(STOPPING);
    let leave = async {
        here.peer.drain().await;
        drop(close);
        // It ends by itself, and its panic would be its own.
        let _served = serving.await;
        here.leave().await
    };
    tokio::select! {
        biased;
        signal = signals.number() => Ok(ExitCode::from(128 + signal)),
        told = leave => match told {
            true => {
                tracing::info!("left");
                Ok(ExitCode::SUCCESS)
            }
            false => Err(Error::Untold),
        }
    }
}

impl Options {
    /// Where this user's commands find it.
    fn socket(&self) -> Result<PathBuf> {
        let named = self.http.iter().find_map(|endpoint| match endpoint {
            Endpoint::Unix(path) => Some(path.clone()),
            Endpoint::Tcp(_) => None,
        });
        let path = named.map_or_else(socket, Ok)?;
        std::path::absolute(&path).map_err(|source| Error::File { path, source })
    }

    async fn listeners(&self) -> Result<Vec<Listener>> {
        let token = self.token_file.as_deref().map(token).transpose()?;
        let mut endpoints = self.http.clone();
        if !endpoints.iter().any(|endpoint| matches!(endpoint, Endpoint::Unix(_))) {
            endpoints.insert(0, Endpoint::Unix(socket()?));
        }
        let mut listeners = Vec::new();
        for endpoint in &endpoints {
            listeners.push(Listener::bind(endpoint, token.clone()).await?);
        }
        Ok(listeners)
    }
}

/// Resolves when there has been no client for so long, and nobody has or waits for anything here; or never.
async fn unneeded(app: &App, peer: &Peer, idle: Option<Duration>) {
    let Some(idle) = idle else { return pending().await };
    let (mut needed, mut seen) = (Instant::now(), 0);
    while needed.elapsed() < idle {
        sleep(LOOK.min(idle / 4)).await;
        let (open, accepted) = app.connections();
        // If it cannot be asked it has stopped, which others see to.
        let counters = peer.service().counters().await.unwrap_or_default();
        if open > 0 || accepted != seen || counters.holding > 0 || counters.waiting > 0 {
            (needed, seen) = (Instant::now(), accepted);
        }
    }
}

/// Clients and peers are a descriptor each, and the usual limit of 1024 is meant for programs that use select(2).
fn raise_limit() {
    // Where it cannot be raised fewer come in at a time, which is said when it happens.
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}

/// Leaves the session of who has started us, and closes whatever it had open: a pipe that we held would never end, and
/// a file lock never be free.
fn let_go() {
    // It fails for the leader of a process group, which has a session of its own to lead then.
    _ = setsid();
    let open = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let open: Vec<i32> = open.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for descriptor in open.into_iter().filter(|descriptor| *descriptor > 2) {
        // One of them was for reading the list, and is closed already.
        _ = close(descriptor);
    }
}
