//! The children of the bench. Each reads commands from standard input, one per line, and answers on standard output:
//! data, then `end`, or `failed` with the reason.
//!
//! | command | answer |
//! | --- | --- |
//! | `ping ROUNDS PAUSE` | nanoseconds of each round trip, each after a pause of PAUSE nanoseconds |
//! | `found NAME SLOTS` | |
//! | `alone NAME ROUNDS` | nanoseconds of each acquire and release |
//! | `contend NAME SLOTS CLIENTS FIRST STRIDE HOLD START END` | per entry: slot, fencing number, times of request,
//! departure, grant and release |
//! | `hold NAME RESOURCES` | |
//! | `wait NAME RESOURCES CLIENTS` | the number of waiters, once all wait |
//! | `take NAME LEASE` | the time of the grant; the child keeps renewing its lease of LEASE milliseconds |
//! | `give` | |
//! | `delay NANOS`, `to ADDRESS` | commands of the relay; see `relay.rs` |

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

use crate::crew::FAILED;
use crate::door::{Door, Failure, Pass, Place};
use crate::held_grant::{HeldGrant, take};
use crate::{clock, relay};

/// The environment variable with the cluster secret. Arguments would be visible to other users.
pub const SECRET: &str = "PEERLOCK_BENCH_SECRET";

/// The size of a message between peers.
const MESSAGE: usize = 128;

/// The interval between the first requests of clients, so that clients of different processes alternate in the queue.
pub const STAGGER: Duration = Duration::from_millis(1);

/// Longer than waking a sleeping thread and the clients' thread.
const AWAKE: Duration = Duration::from_micros(300);

/// Plays the part that the arguments name, until the parent ends.
///
/// # Errors
/// Describes why it cannot.
pub fn main(arguments: &[String]) -> Result<(), Failure> {
    // Ends with the parent.
    set_pdeathsig(Signal::SIGKILL)?;
    // Many shells allow 1024 open files, and every client of an agent has a connection.
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["server", program, ref rest @ ..] => Err(Command::new(program).args(rest).exec().into()),
        ["echo", ref core @ ..] => stay_on(core).and_then(|()| echo()),
        ["ping", address, ref core @ ..] => stay_on(core).and_then(|()| ping(address.parse()?)),
        ["relay"] => relay::main(),
        ["peer", listen, advertise, ref join @ ..] => {
            in_tasks(async || Ok(Place::Peer(peer(listen.parse()?, advertise.parse()?, join).await?)))
        }
        ["stayer", dir, ref join @ ..] => {
            let (store, known) = Store::dir(Path::new(dir))?;
            let builder = local(join)?.dir(store, known);
            in_tasks(async || Ok(Place::Peer(started(builder).await?)))
        }
        ["mortal", session, ref join @ ..] => {
            let builder = local(join)?.session(Duration::from_millis(session.parse()?));
            in_tasks(async || Ok(Place::Peer(started(builder).await?)))
        }
        ["agent", socket, ref join @ ..] => in_tasks(async || Ok(Place::Peer(agent(socket, join).await?))),
        ["client", socket] => in_tasks(async || Ok(Place::Agent(Endpoint::Unix(socket.into())))),
        ["etcd", address] => in_tasks(async || Ok(Place::Etcd(address.parse()?))),
        ["redis", address] => in_tasks(async || Ok(Place::Redis(address.parse()?))),
        ["zookeeper", address] => in_tasks(async || Ok(Place::ZooKeeper(address.parse()?))),
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

/// Echoes all input directly on the socket.
fn echo() -> Result<(), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    say(&format!("{}\nend", listener.local_addr()?))?;
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
    say("end")?;
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
        say(&(answer + "end"))?;
    }
    Ok(())
}

/// Returns the error for an unknown command.
pub fn unknown(line: &str) -> Failure {
    format!("told what it does not know: {line}").into()
}

/// Sends a line to the parent.
pub fn say(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}

/// Starts a peer that advertises this address.
async fn peer(listen: SocketAddr, advertise: SocketAddr, join: &[&str]) -> Result<Peer, Failure> {
    started(local(join)?.listen(listen).advertise(advertise)).await
}

/// Returns the builder of a peer of the bench's cluster, on any port.
fn local(join: &[&str]) -> Result<PeerBuilder, Failure> {
    let secret = Secret::new(std::env::var(SECRET)?.as_bytes())?;
    let builder = Peer::builder().listen(([127, 0, 0, 1], 0).into()).secret(secret);
    Ok(join.iter().fold(builder, |builder, address| builder.join(*address)))
}

/// Starts a peer and prints its address.
async fn started(builder: PeerBuilder) -> Result<Peer, Failure> {
    let peer = builder.start().await?;
    say(&peer.advertised().to_string())?;
    Ok(peer)
}

/// Starts a peer with an agent's API on a Unix socket.
async fn agent(socket: &str, join: &[&str]) -> Result<Peer, Failure> {
    let peer = started(local(join)?.clients_elsewhere()).await?;
    let listener = Listener::bind(&Endpoint::Unix(socket.into()), None, usize::MAX).await?;
    tokio::spawn(serve(vec![listener], App::new(peer.service().clone()), std::future::pending()));
    Ok(peer)
}

/// Executes commands. Network, peer and clients share one thread, so that they wake each other without the kernel, and
/// as many processes as cores run at once.
fn in_tasks(place: impl AsyncFnOnce() -> Result<Place, Failure>) -> Result<(), Failure> {
    peerlock::runtime()?.block_on(async {
        let place = place().await?;
        let (lines, mut commands) = tokio::sync::mpsc::unbounded_channel();
        std::thread::spawn(move || {
            std::io::stdin().lines().map_while(Result::ok).try_for_each(|line| lines.send(line))
        });
        let mut state = State::default();
        say("end")?;
        while let Some(line) = commands.recv().await {
            let answer = match on_command(&place, &line, &mut state).await {
                Ok(answer) => answer + "end",
                Err(why) => format!("{FAILED}{}", why.to_string().replace('\n', " ")),
            };
            // Blocking, because the parent may not read yet and other processes still need this peer.
            tokio::task::spawn_blocking(move || say(&answer)).await??;
        }
        Ok(())
    })
}

/// State that lasts until the child ends.
#[derive(Default)]
struct State {
    inside: Vec<Door>,
    waiting: JoinSet<Result<Pass, Failure>>,
    held: Vec<HeldGrant>,
}

async fn on_command(place: &Place, line: &str, state: &mut State) -> Result<String, Failure> {
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        ["found", name, slots] => found(place, name, slots.parse()?).await,
        ["visit", name, slots] => visit(place, name, slots.parse()?).await,
        ["alone", name, rounds] => alone(place, name, rounds.parse()?).await,
        ["contend", name, slots, ref numbers @ ..] => {
            let numbers: Result<Vec<u64>, _> = numbers.iter().map(|number| number.parse()).collect();
            let [clients, first, stride, hold, start, end] = numbers?[..] else { return Err("numbers missing".into()) };
            let load = Load { clients, first, stride, hold: Duration::from_nanos(hold), start, end };
            contend(place, name, slots.parse()?, load).await
        }
        ["hold", name, resources] => {
            for number in 0..resources.parse::<usize>()? {
                let mut door = place.door(&format!("{name}-{number}"), 1).await?;
                door.enter().await?;
                state.inside.push(door);
            }
            Ok(String::new())
        }
        ["wait", name, resources, clients] => {
            wait(place, name, resources.parse()?, clients.parse()?, &mut state.waiting).await
        }
        ["take", name, lease] => {
            state.held.push(take(place, name, Duration::from_millis(lease.parse()?)).await?);
            Ok(format!("{}\n", clock::now()))
        }
        ["give"] => {
            state.held.clear();
            Ok(String::new())
        }
        _ => Err(unknown(line)),
    }
}

/// Creates a resource, so that this is not measured.
async fn found(place: &Place, name: &str, slots: u32) -> Result<String, Failure> {
    let mut door = place.door(name, slots).await?;
    door.found().await?;
    Ok(String::new())
}

/// Acquires and releases once: a peer's first request takes longer, since the registry adds it as a party.
async fn visit(place: &Place, name: &str, slots: u32) -> Result<String, Failure> {
    let mut door = place.door(name, slots).await?;
    door.enter().await?;
    door.leave().await?;
    Ok(String::new())
}

async fn alone(place: &Place, name: &str, rounds: usize) -> Result<String, Failure> {
    let mut door = place.door(name, 1).await?;
    let mut answer = String::new();
    for _ in 0..rounds {
        let running = clock::now();
        door.enter().await?;
        door.leave().await?;
        writeln!(answer, "{}", clock::now() - running)?;
    }
    Ok(answer)
}

/// The clients of one process in a case.
#[derive(Clone, Copy)]
struct Load {
    clients: u64,
    /// The position of the first client in the queue, and the distance to the next.
    first: u64,
    stride: u64,
    hold: Duration,
    start: u64,
    end: u64,
}

async fn contend(place: &Place, name: &str, slots: u32, load: Load) -> Result<String, Failure> {
    let mut clients = JoinSet::new();
    for client in 0..load.clients {
        let place = (load.first + client * load.stride, place.door(name, slots).await?);
        clients.spawn(async move {
            let (number, mut door) = place;
            sleep(clock::until(load.start + number * clock::nanos(STAGGER))).await;
            let mut entries = String::new();
            loop {
                let asked = clock::now();
                let ((slot, fencing), sent) = enter(&mut door).await?;
                let entered = clock::now();
                if load.hold > Duration::ZERO {
                    stay(load.hold).await?;
                }
                let left = clock::now();
                door.leave().await?;
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

/// Waits for the grant. If it takes long, also returns when the request had left this process: by then every other task
/// of this thread has run and the sockets were polled. Before that, no other process can know the request.
async fn enter(door: &mut Door) -> Result<(Pass, Option<u64>), Failure> {
    let mut entering = pin!(door.enter());
    let on_its_way = async {
        yield_now().await;
        yield_now().await;
    };
    tokio::select! {
        biased;
        pass = &mut entering => Ok((pass?, None)),
        () = on_its_way => {
            let sent = clock::now();
            Ok((entering.await?, Some(sent)))
        }
    }
}

/// Holds this long, to the microsecond. A thread sleeps for most of it, since tokio's timers have a resolution of a
/// millisecond; the rest is spent yielding.
async fn stay(hold: Duration) -> Result<(), Failure> {
    let end = clock::now() + clock::nanos(hold);
    let asleep = end - clock::nanos(hold.min(AWAKE));
    tokio::task::spawn_blocking(move || std::thread::sleep(clock::until(asleep))).await?;
    while clock::now() < end {
        yield_now().await;
    }
    Ok(())
}

async fn wait(
    place: &Place,
    name: &str,
    resources: usize,
    clients: usize,
    waiting: &mut JoinSet<Result<Pass, Failure>>,
) -> Result<String, Failure> {
    for client in 0..clients {
        let mut door = place.door(&format!("{name}-{}", client % resources), 1).await?;
        waiting.spawn(async move { door.enter().await });
    }
    loop {
        if let Some(ended) = waiting.try_join_next() {
            return Err(format!("somebody does not wait: {ended:?}").into());
        }
        match place.waiting().await? {
            all if all >= clients => return Ok(format!("{all}\n")),
            _ => sleep(Duration::from_millis(10)).await,
        }
    }
}
