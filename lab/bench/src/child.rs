//! The child processes. Each reads commands from standard input, one per line, and answers on standard output: data,
//! then `end`, or `failed` with the reason.
//!
//! | command | answer |
//! | --- | --- |
//! | `ping ROUNDS PAUSE` | nanoseconds of each round trip, each after a pause of PAUSE nanoseconds |
//! | `create NAME SLOTS`, `join NAME SLOTS` | |
//! | `alone NAME ROUNDS` | nanoseconds of each acquire and release |
//! | `contend NAME SLOTS CLIENTS FIRST STRIDE HOLD START END` | slot, fencing number and times of each entry |
//! | `occupy NAME SLOTS`, `vacate` | |
//! | `hold NAME RESOURCES` | |
//! | `wait NAME RESOURCES CLIENTS` | the number of waiters, once all wait |
//! | `acquire NAME LEASE` | the time of the grant; the lease of LEASE milliseconds is renewed |
//! | `release` | |
//! | `delay NANOS`, `to ADDRESS` | of the relay: see `relay.rs` |

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::pin::pin;
use std::process::Command;
use std::time::Duration;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use peerlock::store::Store;
use peerlock::{Endpoint, Peer, PeerBuilder, Secret};
use peerlock_http::{App, Listener, serve};
use tokio::task::{JoinSet, yield_now};
use tokio::time::sleep;

use crate::held_grant::{self, HeldGrant};
use crate::system::{Failure, Granted, Lock, System};
use crate::worker::FAILED;
use crate::{clock, relay};

pub const SECRET: &str = "PEERLOCK_BENCH_SECRET";

const MESSAGE: usize = 128;

/// The interval between the first requests, so that clients of different processes alternate in the queue.
pub const STAGGER: Duration = Duration::from_millis(1);

const AWAKE: Duration = Duration::from_micros(300);

/// Runs the child that the arguments describe, until the parent exits.
///
/// # Errors
/// Returns the reason for which it cannot run.
pub fn main(arguments: &[String]) -> Result<(), Failure> {
    set_pdeathsig(Signal::SIGKILL)?;
    // Every client of an agent has a connection, and many shells allow 1024 open files.
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["server", program, ref rest @ ..] => Err(Command::new(program).args(rest).exec().into()),
        ["echo", ref core @ ..] => stay_on(core).and_then(|()| echo()),
        ["ping", address, ref core @ ..] => stay_on(core).and_then(|()| ping(address.parse()?)),
        ["relay"] => relay::main(),
        ["peer", listen, advertise, ref join @ ..] => {
            in_tasks(async || Ok(System::Peer(peer(listen.parse()?, advertise.parse()?, join).await?)))
        }
        ["survivor", dir, ref join @ ..] => {
            let (store, known) = Store::dir(Path::new(dir))?;
            let builder = local(join)?.service(|service| service.dir(store, known));
            in_tasks(async || Ok(System::Peer(started(builder).await?)))
        }
        ["victim", session, ref join @ ..] => {
            let builder = local(join)?.session(Duration::from_millis(session.parse()?));
            in_tasks(async || Ok(System::Peer(started(builder).await?)))
        }
        ["agent", socket, ref join @ ..] => in_tasks(async || Ok(System::Peer(agent(socket, join).await?))),
        ["client", socket] => in_tasks(async || Ok(System::Agent(Endpoint::Unix(socket.into())))),
        ["etcd", address] => in_tasks(async || Ok(System::Etcd(address.parse()?))),
        ["redis", address] => in_tasks(async || Ok(System::Redis(address.parse()?))),
        ["zookeeper", address] => in_tasks(async || Ok(System::ZooKeeper(address.parse()?))),
        _ => Err("there is no such part in a bench".into()),
    }
}

/// Pins the process to a core: an index into the allowed ones, modulo their number.
fn stay_on(core: &[&str]) -> Result<(), Failure> {
    let [core] = core else { return Ok(()) };
    let allowed = sched_getaffinity(Pid::from_raw(0))?;
    let allowed: Vec<usize> = (0..CpuSet::count()).filter(|&core| allowed.is_set(core) == Ok(true)).collect();
    let mut one = CpuSet::new();
    one.set(allowed[core.parse::<usize>()? % allowed.len()])?;
    Ok(sched_setaffinity(Pid::from_raw(0), &one)?)
}

fn echo() -> Result<(), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    print(&format!("{}\nend", listener.local_addr()?))?;
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let mut buffer = [0; MESSAGE];
    while stream.read_exact(&mut buffer).is_ok() {
        stream.write_all(&buffer)?;
    }
    Ok(())
}

fn ping(address: SocketAddr) -> Result<(), Failure> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    print("end")?;
    let mut buffer = [0; MESSAGE];
    for line in std::io::stdin().lines() {
        let line = line?;
        let ["ping", rounds, pause] = line.split(' ').collect::<Vec<_>>()[..] else { return Err(unknown(&line)) };
        let pause = Duration::from_nanos(pause.parse()?);
        let mut answer = String::new();
        for _ in 0..rounds.parse()? {
            if !pause.is_zero() {
                std::thread::sleep(pause);
            }
            let running = clock::now();
            stream.write_all(&buffer)?;
            stream.read_exact(&mut buffer)?;
            writeln!(answer, "{}", clock::now() - running)?;
        }
        print(&(answer + "end"))?;
    }
    Ok(())
}

pub(crate) fn unknown(line: &str) -> Failure {
    format!("unknown command: {line}").into()
}

pub fn print(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}

async fn peer(listen: SocketAddr, advertise: SocketAddr, join: &[&str]) -> Result<Peer, Failure> {
    started(local(join)?.listen(listen).advertise(advertise)).await
}

fn local(join: &[&str]) -> Result<PeerBuilder, Failure> {
    let secret = Secret::new(std::env::var(SECRET)?.as_bytes())?;
    let builder = Peer::builder().listen(([127, 0, 0, 1], 0).into()).secret(secret);
    Ok(join.iter().fold(builder, |builder, address| builder.join(*address)))
}

async fn started(builder: PeerBuilder) -> Result<Peer, Failure> {
    let peer = builder.start().await?;
    print(&peer.advertised().to_string())?;
    Ok(peer)
}

async fn agent(socket: &str, join: &[&str]) -> Result<Peer, Failure> {
    let peer = started(local(join)?.service(|service| service.clients_elsewhere())).await?;
    let listener = Listener::bind(&Endpoint::Unix(socket.into()), None, usize::MAX).await?;
    tokio::spawn(serve(vec![listener], App::new(peer.service().clone()), std::future::pending()));
    Ok(peer)
}

/// Executes commands. Network, peer and clients share one thread, so that they wake each other without the kernel.
fn in_tasks(system: impl AsyncFnOnce() -> Result<System, Failure>) -> Result<(), Failure> {
    peerlock::runtime()?.block_on(async {
        let system = system().await?;
        let (lines, mut commands) = tokio::sync::mpsc::unbounded_channel();
        std::thread::spawn(move || {
            std::io::stdin().lines().map_while(Result::ok).try_for_each(|line| lines.send(line))
        });
        let mut state = State::default();
        print("end")?;
        while let Some(line) = commands.recv().await {
            let answer = match on_command(&system, &line, &mut state).await {
                Ok(answer) => answer + "end",
                Err(why) => format!("{FAILED}{}", why.to_string().replace('\n', " ")),
            };
            // Blocks if the parent does not read yet, while other processes still need this peer.
            tokio::task::spawn_blocking(move || print(&answer)).await??;
        }
        Ok(())
    })
}

#[derive(Default)]
struct State {
    locks: Vec<Lock>,
    occupied: Vec<Lock>,
    waiting: JoinSet<Result<Granted, Failure>>,
    held: Vec<HeldGrant>,
}

async fn on_command(system: &System, line: &str, state: &mut State) -> Result<String, Failure> {
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        ["create", name, slots] => create(system, name, slots.parse()?).await,
        ["join", name, slots] => join(system, name, slots.parse()?).await,
        ["alone", name, rounds] => alone(system, name, rounds.parse()?).await,
        ["contend", name, slots, ref numbers @ ..] => {
            let numbers: Result<Vec<u64>, _> = numbers.iter().map(|number| number.parse()).collect();
            let [clients, first, stride, hold, start, end] = numbers?[..] else { return Err("numbers missing".into()) };
            let load = Load { clients, first, stride, hold: Duration::from_nanos(hold), start, end };
            contend(system, name, slots.parse()?, load).await
        }
        ["occupy", name, slots] => {
            let mut lock = system.lock(name, slots.parse()?).await?;
            lock.acquire().await?;
            state.occupied.push(lock);
            Ok(String::new())
        }
        ["vacate"] => {
            for mut lock in state.occupied.drain(..) {
                lock.release().await?;
            }
            Ok(String::new())
        }
        ["hold", name, resources] => {
            for number in 0..resources.parse::<usize>()? {
                let mut lock = system.lock(&format!("{name}-{number}"), 1).await?;
                lock.acquire().await?;
                state.locks.push(lock);
            }
            Ok(String::new())
        }
        ["wait", name, resources, clients] => {
            wait(system, name, resources.parse()?, clients.parse()?, &mut state.waiting).await
        }
        ["acquire", name, lease] => {
            state.held.push(held_grant::acquire(system, name, Duration::from_millis(lease.parse()?)).await?);
            Ok(format!("{}\n", clock::now()))
        }
        ["release"] => {
            state.held.clear();
            Ok(String::new())
        }
        _ => Err(unknown(line)),
    }
}

async fn create(system: &System, name: &str, slots: u32) -> Result<String, Failure> {
    let mut lock = system.lock(name, slots).await?;
    lock.prepare().await?;
    Ok(String::new())
}

/// Acquires and releases once: a peer's first request takes longer, since the registry adds a party.
async fn join(system: &System, name: &str, slots: u32) -> Result<String, Failure> {
    let mut lock = system.lock(name, slots).await?;
    lock.acquire().await?;
    lock.release().await?;
    Ok(String::new())
}

async fn alone(system: &System, name: &str, rounds: usize) -> Result<String, Failure> {
    let mut lock = system.lock(name, 1).await?;
    let mut answer = String::new();
    for _ in 0..rounds {
        let running = clock::now();
        lock.acquire().await?;
        lock.release().await?;
        writeln!(answer, "{}", clock::now() - running)?;
    }
    Ok(answer)
}

#[derive(Clone, Copy)]
struct Load {
    clients: u64,
    /// The position of the first client in the queue, and the distance of the next.
    first: u64,
    stride: u64,
    hold: Duration,
    start: u64,
    end: u64,
}

async fn contend(system: &System, name: &str, slots: u32, load: Load) -> Result<String, Failure> {
    let mut clients = JoinSet::new();
    for client in 0..load.clients {
        let (number, mut lock) = (load.first + client * load.stride, system.lock(name, slots).await?);
        clients.spawn(async move {
            sleep(clock::until(load.start + number * clock::nanos(STAGGER))).await;
            let mut entries = String::new();
            loop {
                let asked = clock::now();
                let ((slot, fencing), sent) = acquire(&mut lock).await?;
                let entered = clock::now();
                if load.hold > Duration::ZERO {
                    hold_for(load.hold).await?;
                }
                let left = clock::now();
                lock.release().await?;
                let sent = sent.unwrap_or(asked);
                writeln!(entries, "{slot} {fencing} {asked} {sent} {entered} {left}")?;
                if left > load.end {
                    return Ok::<String, Failure>(entries);
                }
            }
        });
    }
    let mut answer = String::new();
    while let Some(client) = clients.join_next().await {
        answer += &client??;
    }
    Ok(answer)
}

/// Waits for the grant. Unless it is immediate, also returns when the request had left the process: every other task of
/// this thread has run and the sockets were polled by then.
async fn acquire(lock: &mut Lock) -> Result<(Granted, Option<u64>), Failure> {
    let mut acquiring = pin!(lock.acquire());
    let sending = async {
        yield_now().await;
        yield_now().await;
    };
    tokio::select! {
        biased;
        granted = &mut acquiring => Ok((granted?, None)),
        () = sending => {
            let sent = clock::now();
            Ok((acquiring.await?, Some(sent)))
        }
    }
}

/// Holds for this time, to the microsecond: a thread sleeps, since tokio's timers have a resolution of a millisecond,
/// then the task yields.
async fn hold_for(hold: Duration) -> Result<(), Failure> {
    let end = clock::now() + clock::nanos(hold);
    let asleep = end - clock::nanos(hold.min(AWAKE));
    tokio::task::spawn_blocking(move || std::thread::sleep(clock::until(asleep))).await?;
    while clock::now() < end {
        yield_now().await;
    }
    Ok(())
}

async fn wait(
    system: &System,
    name: &str,
    resources: usize,
    clients: usize,
    waiting: &mut JoinSet<Result<Granted, Failure>>,
) -> Result<String, Failure> {
    for client in 0..clients {
        let mut lock = system.lock(&format!("{name}-{}", client % resources), 1).await?;
        waiting.spawn(async move { lock.acquire().await });
    }
    loop {
        if let Some(ended) = waiting.try_join_next() {
            return Err(format!("a client does not wait: {ended:?}").into());
        }
        match system.waiting().await? {
            all if all >= clients => return Ok(format!("{all}\n")),
            _ => sleep(Duration::from_millis(10)).await,
        }
    }
}
