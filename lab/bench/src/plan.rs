//! The order of the measurements.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};

use crate::Error;
use crate::distance;
use crate::floor::{Floor, Messages};
use crate::relay::Network;
use crate::report::{Case, Memory, Report, Uncontended};
use crate::server::Server;
use crate::setting::{PEERS, Setting};
use crate::statistics::Times;
use crate::worker::{Launcher, Worker, first};

/// A server to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Against {
    /// The lock of etcd, three nodes
    Etcd,
    /// A token passed with BLPOP, one redis-server
    Redis,
    /// The lock recipe of ZooKeeper, three nodes
    #[value(name = "zookeeper")]
    ZooKeeper,
}

impl Against {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::Redis => "redis",
            Self::ZooKeeper => "zookeeper",
        }
    }
}

impl fmt::Display for Against {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Clone, Debug)]
pub struct Options {
    pub program: PathBuf,
    pub quick: bool,
    pub against: Vec<Against>,
    pub delays: Vec<Duration>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    ToDo(u64),
    Step(String),
}

const CLIENTS: [usize; 4] = [2, 8, 32, 100];
const COMPARED: usize = 32;
const SLOTS: u32 = 3;
const SLOT_CLIENTS: usize = 100;
const HOLD: Duration = Duration::from_millis(10);
/// A lock with holds long enough for the holder to receive its successor.
const CALM_CLIENTS: usize = 8;
const CALM_HOLD: Duration = Duration::from_millis(1);
/// The numbers of slots of the cases in which all but one are held throughout: each waiter needs the only free one.
const OCCUPIED: [u32; 3] = [2, 3, 10];
const WAITING: usize = 1000;
const RESOURCES: usize = 100;

pub(crate) struct Pace {
    rounds: usize,
    /// The measured time of a turn, without and with hold time.
    turn: Duration,
    long_turn: Duration,
    pings: usize,
    alone: usize,
    pub far_rounds: usize,
    /// The measured time of a turn, in delays.
    pub far_turn: u32,
    pub far_pings: usize,
}

impl Pace {
    fn new(quick: bool) -> Self {
        let (ms, s) = (Duration::from_millis, Duration::from_secs);
        let (far_rounds, far_turn, far_pings) = if quick { (1, 30, 3) } else { (2, 150, 20) };
        let (rounds, turn, long_turn) = if quick { (1, ms(200), ms(500)) } else { (5, s(1), s(3)) };
        let (pings, alone) = if quick { (500, 500) } else { (2_000, 5_000) };
        Self { rounds, turn, long_turn, pings, alone, far_rounds, far_turn, far_pings }
    }
}

/// Runs the whole bench.
///
/// # Errors
/// See [`Error`]. On any error, all children are stopped.
pub fn run(options: &Options, progress: &mut dyn FnMut(Progress)) -> Result<Report, Error> {
    interruptible(measure(options, progress))
}

pub(crate) fn interruptible<T>(measure: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let mut hang_up = signal(SignalKind::hangup())?;
        tokio::select! {
            measured = measure => measured,
            _ = interrupt.recv() => Err(Error::Interrupted),
            _ = terminate.recv() => Err(Error::Interrupted),
            _ = hang_up.recv() => Err(Error::Interrupted),
        }
    })
}

async fn measure(options: &Options, progress: &mut dyn FnMut(Progress)) -> Result<Report, Error> {
    for against in &options.against {
        against.check()?;
    }
    let pace = Pace::new(options.quick);
    let launcher = Launcher { program: &options.program, secret: secret()? };
    let cases = peerlock_cases().len() + options.against.len() * server_cases(0, "", "").len();
    let far = distance::steps(options, &pace);
    progress(Progress::ToDo((1 + pace.rounds * (cases + 1) + 1 + far) as u64));
    let mut near = near(options, &pace, &launcher, progress).await?;
    let far = distance::measure(options, &pace, &launcher, progress).await?;
    near.cases.extend(far.cases);
    let Near { messages, alone, cases, memory } = near;
    Ok(Report::new(pace.rounds, (messages, far.messages), alone, cases, memory))
}

struct Near {
    messages: Messages,
    alone: Vec<Uncontended>,
    cases: Vec<Case>,
    memory: Memory,
}

async fn near(
    options: &Options,
    pace: &Pace,
    launcher: &Launcher<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Near, Error> {
    progress(Progress::Step("starting peers".to_owned()));
    let mut floor = Floor::start(launcher, pace.pings).await?;
    let mut groups = vec![peers(launcher, PEERS, &mut Network::Direct).await?];
    let mut pair = Pair::start(launcher).await?;
    let mut settings = peerlock_cases();
    let mut servers: Vec<Server> = Vec::new();
    for &against in &options.against {
        let server = against.start(launcher, &mut Network::Direct).await?;
        settings.extend(server_cases(groups.len(), against.name(), server.what));
        groups.push(clients(launcher, against, &server).await?);
        servers.push(server);
    }

    let (mut library, mut socket) = (Vec::new(), Vec::new());
    for _ in 0..pace.rounds {
        progress(Progress::Step("one client".to_owned()));
        for (worker, times) in [(&mut groups[0][0], &mut library), (&mut pair.client, &mut socket)] {
            floor.measure().await?;
            worker.ask("create bench-alone 1").await?;
            let answer = worker.ask(&format!("alone bench-alone {}", pace.alone)).await?;
            times.extend(worker.numbers::<1>(&answer)?.concat());
        }
        for setting in &mut settings {
            progress(Progress::Step(format!("{}, {} clients", setting.system, setting.clients)));
            floor.measure().await?;
            let length = if setting.hold.is_zero() { pace.turn } else { pace.long_turn };
            setting.contend(&mut groups[setting.group], length).await?;
        }
    }
    progress(Progress::Step("waiting clients".to_owned()));
    let memory = pair.memory().await?;
    let messages = floor.times();
    let alone = [("the library", library), ("an agent's socket", socket)];
    let alone = alone.map(|(through, times)| Uncontended { through, times: Times::of(times) }).into();
    let cases = settings.into_iter().map(|setting| setting.case((messages.one_core, messages.two_cores))).collect();
    Ok(Near { messages, alone, cases, memory })
}

fn peerlock_cases() -> Vec<Setting> {
    let lock = |clients| Setting::handover(0, "peerlock", "a lock between peers", clients);
    let semaphore = Setting { slots: SLOTS, what: "a semaphore between peers", ..lock(SLOT_CLIENTS) };
    let mut settings: Vec<Setting> = CLIENTS.map(lock).into();
    settings.extend(oversubscribed(lock));
    settings.push(semaphore.oversubscribed().hold(HOLD));
    settings.extend(OCCUPIED.map(|slots| Setting {
        slots,
        occupied: slots - 1,
        what: "a semaphore beside long holds",
        ..lock(CALM_CLIENTS).hold(CALM_HOLD)
    }));
    settings
}

fn server_cases(group: usize, system: &'static str, what: &'static str) -> Vec<Setting> {
    let lock = |clients| Setting::handover(group, system, what, clients);
    [lock(COMPARED)].into_iter().chain(oversubscribed(lock)).collect()
}

/// Returns the cases in which processes share cores, without a duplicate if each has one.
fn oversubscribed(lock: impl Fn(usize) -> Setting) -> impl Iterator<Item = Setting> {
    let shared = Some(lock(COMPARED).oversubscribed()).filter(|shared| shared.processes != lock(COMPARED).processes);
    shared.into_iter().chain([lock(CALM_CLIENTS).oversubscribed().hold(CALM_HOLD)])
}

pub(crate) fn secret() -> Result<String, Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| std::io::Error::other(error.to_string()))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

pub(crate) async fn peers(launcher: &Launcher<'_>, count: usize, network: &mut Network) -> Result<Vec<Worker>, Error> {
    let (mut all, mut first_address) = (Vec::new(), None);
    for _ in 0..count {
        let listen = network.port()?;
        let (listen, advertise) = (listen.to_string(), network.to(listen).await?.to_string());
        let part = ["peer", &listen, &advertise].into_iter().chain(first_address.as_deref()).collect::<Vec<_>>();
        let (peer, address) = launcher.start(&part).await?;
        all.push(peer);
        first_address.get_or_insert_with(|| first(&address).to_owned());
    }
    Ok(all)
}

pub(crate) async fn clients(launcher: &Launcher<'_>, against: Against, server: &Server) -> Result<Vec<Worker>, Error> {
    let mut all = Vec::new();
    for node in server.addresses.iter().cycle().take(PEERS) {
        all.push(launcher.start(&[against.name(), &node.to_string()]).await?.0);
    }
    Ok(all)
}

struct Pair {
    peer: Worker,
    agent: Worker,
    client: Worker,
    _dir: TempDir,
}

impl Pair {
    async fn start(launcher: &Launcher<'_>) -> Result<Self, Error> {
        let dir = tempfile::tempdir()?;
        let socket = dir.path().join("agent.sock").display().to_string();
        let (peer, address) = launcher.start(&["peer", "127.0.0.1:0", "127.0.0.1:0"]).await?;
        let (agent, _) = launcher.start(&["agent", &socket, first(&address)]).await?;
        let (client, _) = launcher.start(&["client", &socket]).await?;
        Ok(Self { peer, agent, client, _dir: dir })
    }

    async fn memory(&mut self) -> Result<Memory, Error> {
        let before_mb = resident_mb(&self.agent)?;
        self.peer.ask(&format!("hold bench-memory {RESOURCES}")).await?;
        let answer = self.client.ask(&format!("wait bench-memory {RESOURCES} {WAITING}")).await?;
        let waiting = self.client.numbers::<1>(&answer)?.concat().first().copied().unwrap_or(0) as usize;
        let resident_mb = resident_mb(&self.agent)?;
        Ok(Memory { through: "an agent's socket", waiting, resources: RESOURCES, before_mb, resident_mb })
    }
}

fn resident_mb(worker: &Worker) -> Result<f64, Error> {
    let process = worker.id().map(|id| id.to_string()).unwrap_or_default();
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let kilobytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    let kilobytes: Option<f64> = kilobytes.and_then(|number| number.trim().parse().ok());
    // The kernel's kB are 1024 bytes.
    kilobytes.map(|kilobytes| kilobytes * 1.024 / 1e3).ok_or_else(|| Error::Io(std::io::ErrorKind::InvalidData.into()))
}
