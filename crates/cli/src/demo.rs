//! `peerlock demo`: a cluster in one process with clients, and the live page with controls for failures.

mod actor;
mod browser;
mod cut;
mod workload;

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::future::pending;
use std::io::{ErrorKind, Write as _, stdout};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use futures_util::future::{join_all, try_join_all};
use peerlock::{Endpoint, Request, Secret, Token};
use peerlock_http::{Act, Demo, DemoCommand, DemoState, Listener, serve};
use peerlock_registry::voters_among;
use peerlock_service::{Class, PeerView, Service, Voter};
use peerlock_supervise::Signals;
use peerlock_types::{PeerId, Span};
use tokio::sync::{Mutex, mpsc, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::{Error, Result, duration};
use actor::Actor;
use workload::{Plan, Workload};

const NAMES: [&str; 6] = ["backup", "deploy", "invoices", "reindex", "thumbnails", "vacuum"];
const EXAMPLES: &str = "\
Examples:
  peerlock demo                                          eight peers, three slots
  peerlock demo --slots 1 --peers 16 --hold 50ms         one slot, held briefly
  peerlock demo --http 127.0.0.1:7401 --for 10m          a fixed address, for ten minutes";

/// The connection limit of the page. A browser opens six.
const MOST_CONNECTIONS: usize = 256;
const GOODBYE: Duration = Duration::from_secs(5);
const INTERVAL: Duration = Duration::from_millis(50);
/// How many directories of killed demos are tried.
const MOST_DIRECTORIES: u32 = 1000;
const MOST_CLIENTS: u16 = 1000;

/// Run a cluster of peers in this process, with clients and a live page
///
/// The peers are real and communicate over loopback. Their clients request slots, hold them and release them in a loop.
/// The page shows the tokens, the queue and the waiting times; its controls kill, freeze, disconnect and restore peers.
/// Nothing remains when the demo ends.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// Number of peers
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(2..=64))]
    peers: u16,
    /// Number of slots of each resource
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=64))]
    slots: u32,
    /// Number of clients per peer
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(0..=i64::from(MOST_CLIENTS)))]
    clients: u16,
    /// Number of resources
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=1000))]
    resources: u16,
    /// Mean time for which a client holds a slot
    #[arg(long, value_name = "DUR", default_value = "700ms")]
    hold: Span,
    /// Mean time between a client's requests
    #[arg(long, value_name = "DUR", default_value = "500ms")]
    think: Span,
    /// Session length: after this long the slots of a dead peer are granted again
    ///
    /// Below 8s, clients of other peers also lose their slots when the registry leader dies.
    #[arg(long, value_name = "DUR", default_value = "8s", value_parser = duration)]
    session: Duration,
    /// Address of the page, on loopback; port 0 is any free port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    http: SocketAddr,
    /// Exit after this long [default: run until Ctrl-C]
    #[arg(long = "for", value_name = "DUR", value_parser = duration)]
    runs_for: Option<Duration>,
    /// Do not open the page in a browser
    #[arg(long)]
    no_open: bool,
}

pub fn run(options: &Options) -> Result<()> {
    if !options.http.ip().is_loopback() {
        let message =
            format!("the demo's page is served on loopback only: give --http 127.0.0.1:{}", options.http.port());
        return Err(Error::Usage(message));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Error::Start)?;
    runtime.block_on(demo(options))
}

async fn demo(options: &Options) -> Result<()> {
    let mut signals = Signals::ending().map_err(Error::Start)?;
    let endpoint = Endpoint::Tcp(options.http.to_string());
    let token = Token::generate().map_err(Error::Start)?;
    let listener = Listener::bind(&endpoint, Some(token.clone()), MOST_CONNECTIONS).await?;
    let page = token.page(listener.endpoint());
    let (demo, requests) = Demo::new();
    let stage = tokio::select! {
        stage = Stage::begin(options, demo.clone()) => Arc::new(stage?),
        _ = signals.number() => return Ok(()),
    };
    let started = Instant::now();
    let Options { peers, slots, .. } = options;
    // The demo continues if the pipe is closed.
    _ = writeln!(stdout(), "{peers} peers, {slots} slots. The page: {page}\nCtrl-C ends it.");
    if !options.no_open {
        browser::open(&page);
    }
    let faults = tokio::spawn(Arc::clone(&stage).play(requests));
    serve(vec![listener], demo, end(signals, options.runs_for)).await;

    faults.abort();
    let grants = stage.grants.load(Ordering::Relaxed);
    stage.end().await;
    _ = writeln!(stdout(), "{grants} grants in {:.1} s.", started.elapsed().as_secs_f64());
    Ok(())
}

async fn end(mut signals: Signals, after: Option<Duration>) {
    let time_is_up = async {
        match after {
            Some(after) => sleep(after).await,
            None => pending().await,
        }
    };
    tokio::select! {
        () = time_is_up => {}
        _ = signals.number() => {}
    }
}

struct Stage {
    demo: Demo,
    actors: Vec<Mutex<Actor>>,
    clients: watch::Sender<u16>,
    grants: Arc<AtomicU64>,
    _dir: Dir,
}

impl Stage {
    async fn begin(options: &Options, demo: Demo) -> Result<Self> {
        let (dir, secret) = (Dir::make()?, Secret::generate());
        let (clients, many) = watch::channel(0);
        let grants = Arc::new(AtomicU64::new(0));
        let names: Arc<[String]> = (0..usize::from(options.resources)).map(name).collect();
        let plan = Plan { names, hold: options.hold, think: options.think, grants: Arc::clone(&grants) };
        let workload = Workload { plan, many };
        let actor = |number: usize, join| Actor {
            number,
            dir: dir.0.join(number.to_string()),
            address: Actor::ANYWHERE,
            join,
            secret: secret.clone(),
            session: options.session,
            workload: workload.clone(),
            running: None,
        };
        let mut first = actor(1, None);
        let service = first.start().await?;
        let join = Some(first.address);
        let others = (2..=usize::from(options.peers)).map(async |number| {
            let mut actor = actor(number, join);
            Ok::<_, Error>((actor.start().await?, actor))
        });
        let (mut services, mut actors) = (vec![service], vec![first]);
        for (service, actor) in try_join_all(others).await? {
            services.push(service);
            actors.push(actor);
        }
        // Creates the resources. The clients request no capacity, so that the page can change it.
        let found =
            workload.plan.names.iter().map(async |name| {
                services[0].acquire(Request::new(&**name).slots(options.slots)).await?.release().await
            });
        try_join_all(found).await.map_err(peerlock::StartError::Join)?;
        vote(&services).await.map_err(peerlock::StartError::Join)?;
        (1..).zip(services).for_each(|(number, service)| demo.enter(number, service));
        let actors = actors.into_iter().map(Mutex::new).collect();
        let stage = Self { demo, actors, clients, grants, _dir: dir };
        stage.set_clients(options.clients);
        Ok(stage)
    }

    async fn play(self: Arc<Self>, mut commands: mpsc::UnboundedReceiver<DemoCommand>) {
        while let Some(DemoCommand { act, done }) = commands.recv().await {
            let stage = Arc::clone(&self);
            tokio::spawn(async move { done.send(stage.act(act).await) });
        }
    }

    async fn act(&self, act: Act) -> std::result::Result<(), peerlock::Error> {
        match act {
            Act::Kill { peer } => {
                let mut actor = self.actor(peer)?.lock().await;
                self.demo.set_state(peer, DemoState::Killed);
                actor.kill().await;
            }
            Act::Freeze { peer } => {
                let mut actor = self.actor(peer)?.lock().await;
                let running = actor.running.as_mut().ok_or_else(|| gone(peer))?;
                self.demo.set_state(peer, DemoState::Frozen);
                running.freeze();
            }
            Act::CutOff { peer } => {
                let mut actor = self.actor(peer)?.lock().await;
                let running = actor.running.as_mut().ok_or_else(|| gone(peer))?;
                running.bring_back();
                running.cut_off();
                self.demo.set_state(peer, DemoState::CutOff);
            }
            Act::BringBack { peer } => self.bring_back(peer).await?,
            Act::Clients { clients } if clients <= MOST_CLIENTS => self.set_clients(clients),
            Act::Clients { .. } => return Err(refused(format!("a peer has at most {MOST_CLIENTS} clients"))),
            Act::Slots { name, slots } => self.any_running().await?.resize(&name, slots).await?,
        }
        Ok(())
    }

    async fn bring_back(&self, peer: usize) -> std::result::Result<(), peerlock::Error> {
        let mut actor = self.actor(peer)?.lock().await;
        match &mut actor.running {
            Some(running) => {
                running.bring_back();
                self.demo.set_state(peer, DemoState::Runs);
            }
            None => {
                let service = actor.start().await.map_err(|error| refused(error.to_string()))?;
                self.demo.enter(peer, service);
            }
        }
        Ok(())
    }

    fn set_clients(&self, clients: u16) {
        self.clients.send_replace(clients);
        self.demo.clients(clients);
    }

    fn actor(&self, number: usize) -> std::result::Result<&Mutex<Actor>, peerlock::Error> {
        let found = number.checked_sub(1).and_then(|place| self.actors.get(place));
        found.ok_or_else(|| refused(format!("no peer {number}: the peers are 1 to {}", self.actors.len())))
    }

    async fn any_running(&self) -> std::result::Result<Service, peerlock::Error> {
        for actor in &self.actors {
            if let Some(running) = &actor.lock().await.running
                && running.is_in_touch()
            {
                return Ok(running.service.clone());
            }
        }
        Err(refused("no peer is running and connected: bring one back".to_owned()))
    }

    async fn end(&self) {
        self.clients.send_replace(0);
        let leave = self.actors.iter().map(async |actor| {
            let mut actor = actor.lock().await;
            if let Some(running) = &mut actor.running {
                let left = running.is_in_touch();
                running.bring_back();
                if left {
                    _ = timeout(GOODBYE, running.service.leave()).await;
                }
            }
            actor.kill().await;
        });
        join_all(leave).await;
    }
}

/// Resolves when the cluster has all its voters, and every peer knows their addresses. Earlier the first peer is the
/// only voter, and peers that know no other could not find a new leader.
async fn vote(services: &[Service]) -> std::result::Result<(), peerlock::Error> {
    loop {
        let peers = services[0].cluster().await?.peers.into_iter();
        let votes = |peer: &PeerView| matches!(peer.voter, Voter::Votes | Voter::Leads);
        let voters: BTreeSet<PeerId> = peers.filter(votes).map(|peer| peer.peer).collect();
        if voters.len() >= voters_among(services.len()) && know(services, &voters).await? {
            return Ok(());
        }
        sleep(INTERVAL).await;
    }
}

async fn know(services: &[Service], hosts: &BTreeSet<PeerId>) -> std::result::Result<bool, peerlock::Error> {
    for service in services {
        let known = service.peers().await?.into_iter().filter(|peer| !peer.address.is_empty());
        if !hosts.is_subset(&known.map(|peer| peer.peer).collect()) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn name(place: usize) -> String {
    let name = NAMES[place % NAMES.len()];
    if place < NAMES.len() { name.to_owned() } else { format!("{name}-{}", place / NAMES.len() + 1) }
}

fn gone(peer: usize) -> peerlock::Error {
    refused(format!("peer {peer} is not running: bring it back first"))
}

fn refused(message: String) -> peerlock::Error {
    peerlock::Error::Refused { class: Class::BadRequest, message }
}

struct Dir(PathBuf);

impl Dir {
    /// Creates a new directory. A killed demo with the same process ID, as in another container, may have left one.
    fn make() -> Result<Self> {
        let mut number = 1;
        loop {
            let path = std::env::temp_dir().join(format!("peerlock-demo-{}.{number}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(taken) if taken.kind() == ErrorKind::AlreadyExists && number < MOST_DIRECTORIES => number += 1,
                Err(source) => return Err(Error::Temporary { path, source }),
            }
        }
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::Dir;

    #[test]
    fn directory_of_a_killed_demo_is_skipped() {
        let left = Dir::make().expect("a directory");
        let made = Dir::make().expect("another directory");
        assert!(left.0 != made.0 && made.0.is_dir());
        let paths = [left.0.clone(), made.0.clone()];
        drop((left, made));
        assert!(!paths.iter().any(|path| path.exists()));
    }
}
