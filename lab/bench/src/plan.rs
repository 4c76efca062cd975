//! The order of measurements.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};

use crate::Error;
use crate::crew::{Crew, Worker, said};
use crate::distance;
use crate::floor::{Floor, Messages};
use crate::relay::Way;
use crate::report::{Case, Memory, Report, Uncontended};
use crate::server::Server;
use crate::setting::{PEERS, Setting};
use crate::statistics::Times;

/// A server for comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Against {
    /// etcd's lock, through its JSON gateway.
    Etcd,
    /// A list with one token.
    Redis,
    /// Ephemeral sequential nodes, each watched by the next.
    ZooKeeper,
}

impl Against {
    /// Returns the name of its option.
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

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program whose hidden command `bench-child` is [`crate::child::main`].
    pub program: PathBuf,
    /// Only one short round, as a smoke test.
    pub quick: bool,
    /// The servers for comparison.
    pub against: Vec<Against>,
    /// The message delays of further cases.
    pub delays: Vec<Duration>,
}

/// The progress of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The number of steps.
    ToDo(u64),
    /// The next step.
    Step(String),
}

/// The clients of each hand-over case, and of the comparison.
const CLIENTS: [usize; 4] = [2, 8, 32, 100];
const COMPARED: usize = 32;
/// The semaphore case.
const SLOTS: u32 = 3;
const SLOT_CLIENTS: usize = 100;
const HOLD: Duration = Duration::from_millis(10);
/// A lock with hold times long enough for the holder to learn its successor.
const CALM_CLIENTS: usize = 8;
const CALM_HOLD: Duration = Duration::from_millis(1);
/// The memory case.
const WAITING: usize = 1000;
const RESOURCES: usize = 100;

/// The amount of measurement.
pub(crate) struct Pace {
    rounds: usize,
    /// The measured time of a turn: of hand-over cases, and of the semaphore case.
    turn: Duration,
    long_turn: Duration,
    pings: usize,
    alone: usize,
    /// The same with delays: turns vary less there, and take longer.
    pub far_rounds: usize,
    /// The length of a turn, in messages.
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

/// Runs a measurement until it ends or a signal arrives.
pub(crate) fn interruptible<T>(measure: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        // The terminal was closed: the children must be stopped.
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
    let crew = Crew { program: &options.program, secret: secret()? };
    let cases = our_settings().len() + options.against.len() * their_settings(0, "", "").len();
    let far = distance::steps(options, &pace);
    progress(Progress::ToDo((1 + pace.rounds * (cases + 1) + 1 + far) as u64));
    let mut near = near(options, &pace, &crew, progress).await?;
    let far = distance::measure(options, &pace, &crew, progress).await?;
    near.cases.extend(far.cases);
    let Near { messages, alone, cases, memory } = near;
    Ok(Report::new(pace.rounds, (messages, far.messages), alone, cases, memory))
}

/// The results without a delay.
struct Near {
    messages: Messages,
    alone: Vec<Uncontended>,
    cases: Vec<Case>,
    memory: Memory,
}

/// Measures without a delay.
async fn near(
    options: &Options,
    pace: &Pace,
    crew: &Crew<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Near, Error> {
    progress(Progress::Step("starting peers".to_owned()));
    let mut floor = Floor::start(crew, pace.pings).await?;
    let mut crews = vec![peers(crew, PEERS, &mut Way::Straight).await?];
    let mut pair = Pair::start(crew).await?;
    let mut settings = our_settings();
    let mut servers: Vec<Server> = Vec::new();
    for &against in &options.against {
        let server = against.start(crew, &mut Way::Straight).await?;
        settings.extend(their_settings(crews.len(), against.name(), server.what));
        crews.push(clients(crew, against, &server).await?);
        servers.push(server);
    }

    let (mut library, mut socket) = (Vec::new(), Vec::new());
    for _ in 0..pace.rounds {
        progress(Progress::Step("one client alone".to_owned()));
        for (worker, times) in [(&mut crews[0][0], &mut library), (&mut pair.client, &mut socket)] {
            floor.measure().await?;
            worker.ask("found bench-alone 1").await?;
            let answer = worker.ask(&format!("alone bench-alone {}", pace.alone)).await?;
            times.extend(worker.numbers::<1>(&answer)?.concat());
        }
        for setting in &mut settings {
            progress(Progress::Step(format!("{}, {} clients", setting.system, setting.clients)));
            floor.measure().await?;
            let length = if setting.hold.is_zero() { pace.turn } else { pace.long_turn };
            setting.contend(&mut crews[setting.crew], length).await?;
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

fn our_settings() -> Vec<Setting> {
    let lock = |clients| Setting::handover(0, "peerlock", "a lock between peers", clients);
    let semaphore = Setting { slots: SLOTS, what: "a semaphore between peers", ..lock(SLOT_CLIENTS) };
    let mut settings: Vec<Setting> = CLIENTS.map(lock).into();
    settings.extend(crowded(lock));
    settings.push(semaphore.crowded().hold(HOLD));
    settings
}

/// The settings in which servers are compared with peerlock.
fn their_settings(crew: usize, system: &'static str, what: &'static str) -> Vec<Setting> {
    let lock = |clients| Setting::handover(crew, system, what, clients);
    [lock(COMPARED)].into_iter().chain(crowded(lock)).collect()
}

/// Returns the cases in which processes share cores. With a core for each, there is one less, since it would be a
/// duplicate.
fn crowded(lock: impl Fn(usize) -> Setting) -> impl Iterator<Item = Setting> {
    let shared = Some(lock(COMPARED).crowded()).filter(|shared| shared.processes != lock(COMPARED).processes);
    shared.into_iter().chain([lock(CALM_CLIENTS).crowded().hold(CALM_HOLD)])
}

pub(crate) fn secret() -> Result<String, Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| std::io::Error::other(error.to_string()))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Starts a cluster of `count` peers, which advertise the addresses of `way`.
pub(crate) async fn peers(crew: &Crew<'_>, count: usize, way: &mut Way) -> Result<Vec<Worker>, Error> {
    let (mut all, mut first) = (Vec::new(), None);
    for _ in 0..count {
        let listen = way.port()?;
        let (listen, advertise) = (listen.to_string(), way.to(listen).await?.to_string());
        let part = ["peer", &listen, &advertise].into_iter().chain(first.as_deref()).collect::<Vec<_>>();
        let (peer, address) = crew.start(&part).await?;
        all.push(peer);
        first.get_or_insert_with(|| said(&address).to_owned());
    }
    Ok(all)
}

/// Starts as many client processes of a server as there are peers, distributed over its nodes.
pub(crate) async fn clients(crew: &Crew<'_>, against: Against, server: &Server) -> Result<Vec<Worker>, Error> {
    let mut all = Vec::new();
    for node in server.addresses.iter().cycle().take(PEERS) {
        all.push(crew.start(&[against.name(), &node.to_string()]).await?.0);
    }
    Ok(all)
}

/// A peer, an agent, and a client process of the agent.
struct Pair {
    peer: Worker,
    agent: Worker,
    client: Worker,
    _dir: TempDir,
}

impl Pair {
    async fn start(crew: &Crew<'_>) -> Result<Self, Error> {
        let dir = tempfile::tempdir()?;
        let socket = dir.path().join("agent.sock").display().to_string();
        let (peer, address) = crew.start(&["peer", "127.0.0.1:0", "127.0.0.1:0"]).await?;
        let (agent, _) = crew.start(&["agent", &socket, said(&address)]).await?;
        let (client, _) = crew.start(&["client", &socket]).await?;
        Ok(Self { peer, agent, client, _dir: dir })
    }

    /// Measures an agent with many waiters for many resources that another peer holds.
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
    // The kernel's kilobyte has 1024 bytes.
    kilobytes.map(|kilobytes| kilobytes * 1.024 / 1e3).ok_or_else(|| Error::Io(std::io::ErrorKind::InvalidData.into()))
}
