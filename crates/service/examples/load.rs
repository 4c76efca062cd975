//! Measures many real peers on loopback, in a few processes: time to join, cost at rest, hand-over, recovery after all
//! voters were frozen for longer than a session, and memory for unused names. `docs/notes/2026-11-19-scale.md` has
//! results.
//!
//! `cargo run -p peerlock-service --example load -- PEERS [PROCESSES [SECONDS]]`

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use peerlock_net::{Config, Net};
use peerlock_service::{Identity, RealNetwork, Request, Secret, Service};
use tokio::task::JoinSet;

type Failure = Box<dyn std::error::Error + Send + Sync>;

const SECRET: &str = "LOAD_SECRET";
const VOTERS: usize = 5;
const AT_ONCE: usize = 16;
const HANDING: usize = 32;
const NAMES: usize = 1000;
/// A number of peers that are all connected with each other.
const FEW: usize = 8;
const FROZEN: Duration = Duration::from_secs(25);

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default| arguments.get(at).map_or(Ok(default), |text| text.parse::<usize>());
    if arguments.first().is_some_and(|first| first == "child") {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        return runtime.block_on(child(number(1, 1)?, arguments.get(2)));
    }
    let (peers, processes, seconds) = (number(0, 100)?, number(1, 4)?.max(1), number(2, 60)?);
    let mut random = [0; 32];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut random)?;
    let secret: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    // For comparison: clusters that have only the peers that hand over.
    for handing in [FEW, HANDING] {
        let mut few = start(handing, processes.min(handing), &secret)?;
        hand_on(&mut few, handing, seconds)?;
        few.into_iter().try_for_each(Process::end)?;
    }
    let clock_start = Instant::now();
    let mut all = start(peers, processes, &secret)?;
    println!("{peers} peers in {processes} processes: joined within {:.1} s", clock_start.elapsed().as_secs_f64());
    // Until unneeded connections are closed.
    std::thread::sleep(Duration::from_secs(150));
    for (at, line) in ask_all(&mut all, &format!("rest {seconds}"))?.iter().enumerate() {
        println!("process {at} with {} peers: {line}", share(peers, processes, at));
    }
    for handing in [FEW, HANDING] {
        hand_on(&mut all, handing.min(peers), seconds)?;
    }
    freeze(&mut all)?;
    for (at, line) in ask_all(&mut all, &format!("names {NAMES}"))?.iter().enumerate() {
        println!("process {at}: {line}");
    }
    all.into_iter().try_for_each(Process::end)
}

fn share(peers: usize, processes: usize, at: usize) -> usize {
    peers / processes + usize::from(at < peers % processes)
}

fn start(peers: usize, processes: usize, secret: &str) -> Result<Vec<Process>, Failure> {
    let mut first = Process::start(share(peers, processes, 0).max(1), None, secret)?;
    let address = first.receive()?;
    let mut all = vec![first];
    for at in 1..processes {
        all.push(Process::start(share(peers, processes, at), Some(&address), secret)?);
    }
    for process in &mut all {
        process.receive()?;
    }
    Ok(all)
}

fn hand_on(all: &mut [Process], peers: usize, seconds: usize) -> Result<(), Failure> {
    let each = peers.div_ceil(all.len());
    let (mut entries, mut relayed) = (0, 0);
    for line in ask_all(all, &format!("hand {each} {seconds}"))? {
        let mut numbers = line.split(' ').map(str::parse::<u64>);
        entries += numbers.next().ok_or("no entries")??;
        relayed += numbers.next().ok_or("no frames")??;
    }
    let micros = seconds as f64 * 1e6 / entries.max(1) as f64;
    let handing = each * all.len();
    println!("{handing} peers handed a slot on {entries} times, every {micros:.0} µs; {relayed} frames by the leader");
    Ok(())
}

/// Freezes the first process, which has all voters, until all sessions are lost. Measures the time to recover.
fn freeze(all: &mut [Process]) -> Result<(), Failure> {
    let first = all[0].child.id().to_string();
    let signal = |name: &str| Command::new("kill").args([name, first.as_str()]).status();
    signal("-STOP")?;
    std::thread::sleep(FROZEN);
    signal("-CONT")?;
    let clock_start = Instant::now();
    let lost = ask_all(all, "back")?.iter().map(|line| line.parse::<u64>()).sum::<Result<u64, _>>()?;
    println!("{lost} sessions were lost, and all had one again after {:.1} s", clock_start.elapsed().as_secs_f64());
    Ok(())
}

fn ask_all(all: &mut [Process], question: &str) -> Result<Vec<String>, Failure> {
    for process in &mut *all {
        writeln!(process.say, "{question}")?;
    }
    all.iter_mut().map(Process::receive).collect()
}

struct Process {
    child: Child,
    say: ChildStdin,
    receive: BufReader<ChildStdout>,
}

impl Process {
    fn start(peers: usize, join: Option<&String>, secret: &str) -> Result<Self, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.env(SECRET, secret);
        command.arg("child").arg(peers.to_string()).args(join).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let (say, receive) = (child.stdin.take().ok_or("no way in")?, child.stdout.take().ok_or("no way out")?);
        Ok(Self { child, say, receive: BufReader::new(receive) })
    }

    fn receive(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        match self.receive.read_line(&mut line)? {
            0 => Err("a process has ended".into()),
            _ => Ok(line.trim().to_owned()),
        }
    }

    fn end(mut self) -> Result<(), Failure> {
        drop(self.say);
        self.child.wait()?;
        Ok(())
    }
}

async fn peer(number: usize, join: Option<String>) -> Result<(Service, String), Failure> {
    let mut config = Config::new("127.0.0.1:0".parse()?);
    // Voters have the most connections.
    config.max_peers = 16 * 1024;
    let net = Net::start(config, Identity::generate(), Secret::new(std::env::var(SECRET)?.as_bytes())?).await?;
    let address = net.address().to_string();
    let builder = Service::builder().name(format!("peer-{number}"));
    let config =
        peerlock_service::Config { join_timeout: peerlock_service::Span::from_secs(120), ..Default::default() };
    let builder = builder.config(config);
    let builder = if number < VOTERS { builder.votes_from_memory() } else { builder };
    let builder = join.into_iter().fold(builder, |builder, address| builder.join(address));
    Ok((builder.start(RealNetwork::new(net)).await?, address))
}

async fn child(peers: usize, join: Option<&String>) -> Result<(), Failure> {
    let mut services = Vec::new();
    let mut join = join.cloned();
    let begin = if join.is_some() { VOTERS } else { 0 };
    if join.is_none() {
        let (service, address) = peer(0, None).await?;
        services.push(service);
        println!("{address}");
        join = Some(address);
    }
    let mut starting: JoinSet<Result<(Service, String), Failure>> = JoinSet::new();
    for number in services.len()..peers {
        if starting.len() >= AT_ONCE {
            let started: Result<_, _> = starting.join_next().await.ok_or("nobody starts")?;
            services.push(started??.0);
        }
        starting.spawn(peer(begin + number, join.clone()));
    }
    while let Some(started) = starting.join_next().await {
        services.push(started??.0);
    }
    println!("joined");
    let questions = BufReader::new(std::io::stdin()).lines();
    for question in questions {
        let question = question?;
        let words: Vec<&str> = question.split(' ').collect();
        match words[..] {
            ["rest", seconds] => rest(&services, seconds.parse()?).await?,
            ["hand", each, seconds] => hand(&services, each.parse()?, Duration::from_secs(seconds.parse()?)).await?,
            ["back"] => back(&services).await?,
            ["names", count] => names(&services, count.parse()?).await?,
            _ => return Err(format!("what is {question}?").into()),
        }
    }
    Ok(())
}

async fn rest(services: &[Service], seconds: u64) -> Result<(), Failure> {
    let before = (cpu_seconds()?, sent(services).await?);
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let after = (cpu_seconds()?, sent(services).await?);
    let mut links = Vec::new();
    for service in services {
        links.push(service.counters().await?.links);
    }
    links.sort_unstable();
    let each = (seconds * services.len() as u64) as f64;
    println!(
        "each {:.3} % of a core, {:.2} frames sent a second, {} links in the median and {} at most; {} MB in all",
        (after.0 - before.0) * 100.0 / each,
        (after.1 - before.1) as f64 / each,
        links[links.len() / 2],
        links[links.len() - 1],
        resident()? / 1_000_000
    );
    Ok(())
}

/// Hands over one slot among clients at different peers, here and in the other processes.
async fn hand(services: &[Service], each: usize, span: Duration) -> Result<(), Failure> {
    let before = relayed(services).await?;
    let end = Instant::now() + span;
    let mut clients = JoinSet::new();
    // The first peers are the voters, which take no part.
    for service in services.iter().rev().take(each) {
        let service = service.clone();
        clients.spawn(async move {
            let mut entries = 0_u64;
            while Instant::now() < end {
                let grant = service.acquire(Request::new("load")).await?;
                entries += 1;
                grant.release().await?;
            }
            Ok::<u64, peerlock_service::Error>(entries)
        });
    }
    let mut entries = 0;
    while let Some(client) = clients.join_next().await {
        entries += client??;
    }
    println!("{entries} {}", relayed(services).await? - before);
    Ok(())
}

/// Waits until all peers have a session. Prints how many were lost.
async fn back(services: &[Service]) -> Result<(), Failure> {
    let mut lost = 0;
    for service in services {
        loop {
            let health = service.health().await?;
            if health.session.is_some() {
                lost += health.sessions_lost;
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    println!("{lost}");
    Ok(())
}

/// Uses many names once. Prints the memory that they occupy afterwards.
async fn names(services: &[Service], count: usize) -> Result<(), Failure> {
    let service = services.last().ok_or("no peers")?;
    let (before, clock_start) = (resident()?, Instant::now());
    for number in 0..count {
        service.acquire(Request::new(format!("name-{}-{number}", std::process::id()))).await?.release().await?;
    }
    let took = clock_start.elapsed().as_secs_f64();
    // Until the other processes have done so, and the registry is applied here.
    tokio::time::sleep(Duration::from_secs(30)).await;
    let bytes = resident()?.saturating_sub(before);
    println!("{count} names were used once within {took:.1} s, after which {} KB are kept", bytes / 1000);
    Ok(())
}

async fn sent(services: &[Service]) -> Result<u64, Failure> {
    let mut sum = 0;
    for service in services {
        sum += service.counters().await?.sent;
    }
    Ok(sum)
}

async fn relayed(services: &[Service]) -> Result<u64, Failure> {
    let mut sum = 0;
    for service in services {
        sum += service.counters().await?.relayed;
    }
    Ok(sum)
}

fn cpu_seconds() -> Result<f64, Failure> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let after_name = stat.rsplit(')').next().ok_or("no name")?;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    Ok((fields[11].parse::<f64>()? + fields[12].parse::<f64>()?) / 100.0)
}

fn resident() -> Result<u64, Failure> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    Ok(statm.split_whitespace().nth(1).ok_or("no size")?.parse::<u64>()? * 4096)
}
