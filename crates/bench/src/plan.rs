//! What is measured, and in which order.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

use crate::child::STAGGER;
use crate::crew::{Crew, Worker};
use crate::report::{Case, Memory, Report, Uncontended, cores};
use crate::server::Server;
use crate::statistics::{Entry, Times, Turn, spread, turn};
use crate::{Error, clock};

/// A server to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Against {
    /// etcd's lock, by its JSON gateway.
    Etcd,
    /// A list with one token.
    Redis,
}

impl fmt::Display for Against {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Etcd => "etcd",
            Self::Redis => "redis",
        })
    }
}

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program whose hidden command `bench-child` is [`crate::child::main`].
    pub program: PathBuf,
    /// One short round: whether it works, not how well.
    pub quick: bool,
    /// What to compare with.
    pub against: Vec<Against>,
}

/// How far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// How many steps there are.
    ToDo(u64),
    /// The next one.
    Step(String),
}

/// How many peers there are. Clients that hand over are spread over as many as there are cores, at least two; where
/// they are spread over all of them, how a few cores are shared by many processes is measured, too.
const PEERS: usize = 8;
/// The clients of each hand-over case; as many in a line where others are compared.
const CLIENTS: [usize; 4] = [2, 8, 32, 100];
const COMPARED: usize = 32;
/// The semaphore's case.
const SLOTS: u32 = 3;
const SLOT_CLIENTS: usize = 100;
const HOLD: Duration = Duration::from_millis(10);
/// As long as a slot of the semaphore's case is quiet.
const REST: Duration = Duration::from_millis(3);
/// A lock whose holders stay long enough to know who comes next.
const CALM_CLIENTS: usize = 8;
const CALM_HOLD: Duration = Duration::from_millis(1);
/// The memory's case.
const WAITING: usize = 1000;
const RESOURCES: usize = 100;

/// How long everything takes.
struct Pace {
    rounds: usize,
    /// How long a turn of a hand-over case is counted, and how long a turn of the semaphore's.
    turn: Duration,
    long_turn: Duration,
    pings: usize,
    alone: usize,
}

impl Pace {
    fn new(quick: bool) -> Self {
        let (ms, s) = (Duration::from_millis, Duration::from_secs);
        if quick {
            Self { rounds: 1, turn: ms(200), long_turn: ms(500), pings: 500, alone: 500 }
        } else {
            Self { rounds: 5, turn: s(1), long_turn: s(3), pings: 2_000, alone: 5_000 }
        }
    }
}

/// Runs the whole bench.
///
/// # Errors
/// See [`Error`]. Whatever it is, nothing that was started is left.
pub fn run(options: &Options, progress: &mut dyn FnMut(Progress)) -> Result<Report, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        tokio::select! {
            report = measure(options, progress) => report,
            _ = interrupt.recv() => Err(Error::Interrupted),
            _ = terminate.recv() => Err(Error::Interrupted),
        }
    })
}

/// One case and what it came to so far.
struct Setting {
    who: &'static str,
    what: &'static str,
    clients: usize,
    /// How many processes the clients are spread over.
    processes: usize,
    slots: u32,
    hold: Duration,
    /// Which of the crews.
    crew: usize,
    turns: Vec<Turn>,
}

impl Setting {
    fn handover(crew: usize, who: &'static str, what: &'static str, clients: usize) -> Self {
        let processes = cores().clamp(2, PEERS).min(clients);
        Self { who, what, clients, processes, slots: 1, hold: Duration::ZERO, crew, turns: Vec::new() }
    }

    /// Spread over all peers.
    fn crowded(self) -> Self {
        Self { processes: self.clients.min(PEERS), ..self }
    }

    fn name(&self) -> String {
        format!("bench-{}-{}-{}-{}", self.who, self.clients, self.processes, self.slots)
    }

    /// Until everybody has stood in line once: then the line is as it will be.
    fn warm_up(&self) -> Duration {
        let clients = u32::try_from(self.clients).unwrap_or(u32::MAX);
        STAGGER * clients + self.hold * clients / self.slots + Duration::from_millis(50)
    }
}

async fn measure(options: &Options, progress: &mut dyn FnMut(Progress)) -> Result<Report, Error> {
    for against in &options.against {
        against.check().await?;
    }
    let pace = Pace::new(options.quick);
    let crew = Crew { program: &options.program, secret: secret()? };
    let cases = CLIENTS.len() + 3 + options.against.len();
    progress(Progress::ToDo((1 + pace.rounds * (cases + 1) + 1) as u64));
    progress(Progress::Step("starting peers".to_owned()));

    let (_echo, address) = crew.start(&["echo"]).await?;
    let mut floor = Floor::new(crew.start(&["ping", said(&address)]).await?.0, pace.pings);
    let mut crews = vec![peers(&crew, PEERS).await?];
    let mut pair = Pair::start(&crew).await?;
    let mut settings: Vec<Setting> =
        CLIENTS.iter().map(|&clients| Setting::handover(0, "peerlock", "a lock between peers", clients)).collect();
    let crowded = Setting::handover(0, "peerlock", "a lock between peers", COMPARED).crowded();
    let mut semaphore = Setting::handover(0, "peerlock", "a semaphore between peers", SLOT_CLIENTS).crowded();
    (semaphore.slots, semaphore.hold) = (SLOTS, HOLD);
    let mut calm = Setting::handover(0, "peerlock", "a lock between peers", CALM_CLIENTS).crowded();
    calm.hold = CALM_HOLD;
    settings.extend([crowded, calm, semaphore]);
    let mut servers: Vec<Server> = Vec::new();
    for &against in &options.against {
        let server = against.start(&crew).await?;
        let (who, address) = (against.to_string(), server.address.to_string());
        let mut clients = Vec::new();
        for _ in 0..PEERS {
            clients.push(crew.start(&[&who, &address]).await?.0);
        }
        let who = match against {
            Against::Etcd => "etcd",
            Against::Redis => "redis",
        };
        settings.push(Setting::handover(crews.len(), who, server.what, COMPARED));
        crews.push(clients);
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
            progress(Progress::Step(format!("{}, {} clients", setting.who, setting.clients)));
            floor.measure().await?;
            let length = if setting.hold.is_zero() { pace.turn } else { pace.long_turn };
            let turn = contend(&mut crews[setting.crew], setting, length).await?;
            setting.turns.push(turn);
        }
    }
    progress(Progress::Step("waiting clients".to_owned()));
    let memory = pair.memory().await?;
    let (floor, rested) = (Times::of(floor.times), Times::of(floor.rested));
    let alone = [("the library", library), ("an agent's socket", socket)];
    let alone = alone.map(|(through, times)| Uncontended { through, times: Times::of(times) }).into();
    let cases = settings.into_iter().map(|setting| case(setting, floor, rested)).collect();
    Ok(Report::new(pace.rounds, (floor, rested), alone, cases, memory))
}

fn secret() -> Result<String, Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| std::io::Error::other(error.to_string()))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A cluster of this many peers.
async fn peers(crew: &Crew<'_>, count: usize) -> Result<Vec<Worker>, Error> {
    let (first, address) = crew.start(&["peer"]).await?;
    let mut all = vec![first];
    for _ in 1..count {
        all.push(crew.start(&["peer", said(&address)]).await?.0);
    }
    Ok(all)
}

/// The first word.
fn said(words: &[String]) -> &str {
    words.first().map_or("", String::as_str)
}

/// What one message costs: half of each round trip.
struct Floor {
    ping: Worker,
    pings: usize,
    times: Vec<u64>,
    /// The same where nothing was sent for a while: processes and processors have gone to sleep.
    rested: Vec<u64>,
}

impl Floor {
    fn new(ping: Worker, pings: usize) -> Self {
        Self { ping, pings, times: Vec::new(), rested: Vec::new() }
    }

    async fn measure(&mut self) -> Result<(), Error> {
        let Self { ping, pings, times, rested } = self;
        for (rounds, pause, times) in [(*pings, Duration::ZERO, times), (*pings / 40, REST, rested)] {
            let answer = ping.ask(&format!("ping {rounds} {}", clock::nanos(pause))).await?;
            times.extend(ping.numbers::<1>(&answer)?.into_iter().map(|[round]| round / 2));
        }
        Ok(())
    }
}

/// One turn of a case: all clients come in turns, and go in and out until the time is over.
async fn contend(workers: &mut [Worker], setting: &Setting, length: Duration) -> Result<Turn, Error> {
    let (name, slots, processes) = (setting.name(), setting.slots, setting.processes);
    workers[0].ask(&format!("found {name} {slots}")).await?;
    // For the order to reach everybody before it begins.
    let begin = clock::now() + clock::nanos(Duration::from_millis(100));
    let start = begin + clock::nanos(setting.warm_up());
    let end = start + clock::nanos(length);
    let hold = clock::nanos(setting.hold);
    for (process, worker) in workers[..processes].iter_mut().enumerate() {
        let clients = (setting.clients + processes - 1 - process) / processes;
        worker.tell(&format!("contend {name} {slots} {clients} {process} {processes} {hold} {begin} {end}")).await?;
    }
    // Reading what they say while they work would take the time of theirs.
    sleep(clock::until(end)).await;
    let mut entries = Vec::new();
    for (process, worker) in workers[..processes].iter_mut().enumerate() {
        let answer = worker.answer().await?;
        for [slot, fencing, asked, entered, left] in worker.numbers(&answer)? {
            entries.push(Entry { process, slot: slot as u32, fencing, asked, entered, left });
        }
    }
    turn(entries, start, end).map_err(|what| Error::Broken { who: setting.who.to_owned(), what })
}

fn case(setting: Setting, floor: Times, rested: Times) -> Case {
    let all = |part: fn(&Turn) -> &Vec<u64>| setting.turns.iter().flat_map(part).copied().collect::<Vec<u64>>();
    let (waits, gap) = (all(|turn| &turn.waits), Times::of(all(|turn| &turn.gaps)));
    let seconds = setting.turns.iter().map(|turn| turn.nanos).sum::<u64>() as f64 / 1e9;
    let (spread_ms, mean_wait_ms) = spread(&waits);
    let per_second = waits.len() as f64 / seconds;
    let ideal = (!setting.hold.is_zero()).then(|| f64::from(setting.slots) / setting.hold.as_secs_f64());
    Case {
        who: setting.who,
        what: setting.what,
        clients: setting.clients,
        processes: setting.processes,
        slots: setting.slots,
        hold_ms: setting.hold.as_secs_f64() * 1e3,
        gap,
        gap_in_messages: gap.p50_us / floor.p50_us,
        gap_in_messages_after_rest: gap.p50_us / rested.p50_us,
        gaps_per_second: gap.count as f64 / seconds,
        handed_over_within_a_process: setting.turns.iter().map(|turn| turn.gaps_within).sum(),
        entries: waits.len(),
        entries_per_second: per_second,
        share_of_ideal: ideal.map(|ideal| per_second / ideal),
        held: Times::of(all(|turn| &turn.holds)),
        wait: Times::of(waits),
        mean_wait_ms,
        spread_ms,
    }
}

/// A peer, and an agent with a client process of its own.
struct Pair {
    peer: Worker,
    agent: Worker,
    client: Worker,
    _folder: TempDir,
}

impl Pair {
    async fn start(crew: &Crew<'_>) -> Result<Self, Error> {
        let folder = tempfile::tempdir()?;
        let socket = folder.path().join("agent.sock").display().to_string();
        let (peer, address) = crew.start(&["peer"]).await?;
        let (agent, _) = crew.start(&["agent", &socket, said(&address)]).await?;
        let (client, _) = crew.start(&["client", &socket]).await?;
        Ok(Self { peer, agent, client, _folder: folder })
    }

    /// How large an agent is with many who wait, for many resources that another peer holds.
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
    kilobytes.map(|kilobytes| kilobytes / 1e3).ok_or_else(|| Error::Io(std::io::ErrorKind::InvalidData.into()))
}
