//! `peerlock agent`: a peer that stays, for all who want slots on this machine.

mod notify;

use std::fs::{self, File};
use std::io::{IsTerminal as _, stderr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use peerlock::{Endpoint, Identity, StartError, places};
use peerlock_http::{App, Listener, serve};
use peerlock_supervise::Signals;
use tokio::sync::oneshot;
use tracing_subscriber::EnvFilter;

use crate::client::{socket, token};
use crate::here::PeerArgs;
use crate::{Error, Result};
use notify::{READY, STOPPING, notify};

/// What is logged unless somebody says otherwise.
const LOGGED: &str = "info,libp2p_swarm=warn";

/// Stay in the cluster as a peer, for all commands on this machine
///
/// `peerlock run` and the other commands find it by its socket; other programs use its HTTP API, and people its live
/// page. On SIGTERM or Ctrl-C it lets nobody in any more, waits until those who hold slots have stopped or their leases
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
}

/// Runs the command.
pub fn run(options: &Options) -> Result<ExitCode> {
    let filter = EnvFilter::try_from_env("PEERLOCK_LOG").unwrap_or_else(|_| EnvFilter::new(LOGGED));
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(stderr().is_terminal()).with_writer(stderr).init();
    peerlock::runtime().map_err(Error::Start)?.block_on(go(options))
}

async fn go(options: &Options) -> Result<ExitCode> {
    let mut signals = Signals::ending().map_err(Error::Start)?;
    let data_dir = options.peer.data_dir()?;
    let _only_one = lock(&data_dir)?;
    let identity = Identity::load_or_create(&places::identity(&data_dir)).map_err(StartError::from)?;
    // First of all, because it is the part that another agent can be in the way of.
    let listeners = options.listeners().await?;
    let here = tokio::select! {
        biased;
        signal = signals.number() => return Ok(ExitCode::from(128 + signal)),
        here = options.peer.start(Some(identity), false) => here?,
    };
    tracing::info!(me = %here.peer.me(), address = %here.address(), secret = %here.secret.display(), "a peer");
    let clients: Vec<String> = listeners.iter().map(|listener| listener.endpoint().to_string()).collect();
    let (close, closed) = oneshot::channel::<()>();
    let app = App::new(here.peer.service().clone());
    let serving = tokio::spawn(serve(listeners, app, async move { _ = closed.await }));
    tracing::info!(?clients, "ready");
    notify(READY);

    let signal = signals.number().await;
    tracing::info!(signal, "leaving, when those who hold slots here have stopped; a second signal ends it at once");
    notify(STOPPING);
    let leave = async {
        here.peer.drain().await;
        drop(close);
        // It ends by itself, and its panic would be its own.
        let _served = serving.await;
        here.leave().await;
    };
    tokio::select! {
        biased;
        signal = signals.number() => Ok(ExitCode::from(128 + signal)),
        () = leave => {
            tracing::info!("left");
            Ok(ExitCode::SUCCESS)
        }
    }
}

impl Options {
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

/// Two agents with one identity would push each other out.
fn lock(data_dir: &Path) -> Result<Flock<File>> {
    let folder = |source| Error::Folder { path: data_dir.to_owned(), source };
    fs::create_dir_all(data_dir).map_err(folder)?;
    let file = File::create(data_dir.join("agent.lock")).map_err(folder)?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| match error {
        Errno::EWOULDBLOCK => Error::SecondAgent { path: data_dir.to_owned() },
        error => folder(error.into()),
    })
}
