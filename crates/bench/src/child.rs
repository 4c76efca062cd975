//! What the children do: they are told on their standard input, a line each, and answer on their standard output, data
//! first and then `end` or `failed` with the reason.
//!
//! | told | answer |
//! | --- | --- |
//! | `ping ROUNDS PAUSE` | nanoseconds of each round trip; after PAUSE nanoseconds of rest each |
//! | `found NAME SLOTS` | |
//! | `alone NAME ROUNDS` | nanoseconds of each acquire and release |
//! | `contend NAME SLOTS CLIENTS FIRST STRIDE HOLD START END` | slot, fencing number, asked, sent, entered, left; of
//! each entry |
//! | `hold NAME RESOURCES` | |
//! | `wait NAME RESOURCES CLIENTS` | how many wait, once all do |
//! | `take NAME LEASE` | when it got in, as the holder of a lease of so many milliseconds, which it keeps |
//! | `give` | |
//! | `delay NANOS`, `to ADDRESS` | what the relay is told; see `relay.rs` |

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
use crate::kept::{Kept, take};
use crate::{clock, relay};

/// Where a child finds the secret of the bench's cluster. Not among its arguments, which everybody can see.
pub const SECRET: &str = "PEERLOCK_BENCH_SECRET";

/// As much as a message between peers.
const MESSAGE: usize = 128;

/// How long after the one before it each client comes, so that clients of different processes alternate in line.
pub const STAGGER: Duration = Duration::from_millis(1);

/// Longer than a sleeping thread takes to wake up and to wake the clients' own.
const AWAKE: Duration = Duration::from_micros(300);

/// Plays the part that the arguments name, until the parent is gone.
///
/// # Errors
/// A sentence, if it cannot.
pub fn main(arguments: &[String]) -> Result<(), Failure> {
    // Whatever becomes of the parent, nothing of it stays behind.
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
        ["stayer", folder, ref join @ ..] => {
            let (store, known) = Store::folder(Path::new(folder))?;
            let builder = local(join)?.folder(store, known);
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

/// Stays on this one of the cores that it may use, if one is named, from the first, 0, on; and begins anew after the
/// last.
fn stay_on(core: &[&str]) -> Result<(), Failure> {
    let [core] = core else { return Ok(()) };
    let allowed = sched_getaffinity(Pid::from_raw(0))?;
    let allowed: Vec<usize> = (0..CpuSet::count()).filter(|&core| allowed.is_set(core) == Ok(true)).collect();
    let mut one = CpuSet::new();
    one.set(allowed[core.parse::<usize>()? % allowed.len()])?;
    Ok(sched_setaffinity(Pid::from_raw(0), &one)?)
}

/// Sends back whatever comes, with nothing between it and the socket.
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
            let begun = clock::now();
            stream.write_all(&buffer)?;
            stream.read_exact(&mut buffer)?;
            writeln!(answer, "{}", clock::now() - begun)?;
        }
        say(&(answer + "end"))?;
    }
    Ok(())
}

/// That the parent said something strange.
pub fn unknown(line: &str) -> Failure {
    format!("told what it does not know: {line}").into()
}

/// Says something to the parent.
pub fn say(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}

/// A peer of its own, which tells the others to find it where it advertises.
async fn peer(listen: SocketAddr, advertise: SocketAddr, join: &[&str]) -> Result<Peer, Failure> {
    started(local(join)?.listen(listen).advertise(advertise)).await
}

/// How a peer of the bench's cluster begins, on any port.
fn local(join: &[&str]) -> Result<PeerBuilder, Failure> {
    let secret = Secret::new(std::env::var(SECRET)?.as_bytes())?;
    let builder = Peer::builder().listen(([127, 0, 0, 1], 0).into()).secret(secret);
    Ok(join.iter().fold(builder, |builder, address| builder.join(*address)))
}

/// Starts it, and says where others find it.
async fn started(builder: PeerBuilder) -> Result<Peer, Failure> {
    let peer = builder.start().await?;
    say(&peer.advertised().to_string())?;
    Ok(peer)
}

/// The same, with an agent's API on a Unix socket.
async fn agent(socket: &str, join: &[&str]) -> Result<Peer, Failure> {
    let peer = started(local(join)?.clients_elsewhere()).await?;
    let listener = Listener::bind(&Endpoint::Unix(socket.into()), None, usize::MAX).await?;
    tokio::spawn(serve(vec![listener], App::new(peer.service().clone()), std::future::pending()));
    Ok(peer)
}

/// Does what it is told at a place. Everything is on one thread: network, peer and clients wake each other up without
/// the kernel, and as many processes as there are cores run at once.
fn in_tasks(place: impl AsyncFnOnce() -> Result<Place, Failure>) -> Result<(), Failure> {
    peerlock::runtime()?.block_on(async {
        let place = place().await?;
        let (lines, mut told) = tokio::sync::mpsc::unbounded_channel();
        std::thread::spawn(move || {
            std::io::stdin().lines().map_while(Result::ok).try_for_each(|line| lines.send(line))
        });
        let mut state = State::default();
        say("end")?;
        while let Some(line) = told.recv().await {
            let answer = match on_told(&place, &line, &mut state).await {
                Ok(answer) => answer + "end",
                Err(why) => format!("{FAILED}{}", why.to_string().replace('\n', " ")),
            };
            // The parent may not read yet, and the others still need this peer.
            tokio::task::spawn_blocking(move || say(&answer)).await??;
        }
        Ok(())
    })
}

/// What stays until the child ends.
#[derive(Default)]
struct State {
    inside: Vec<Door>,
    waiting: JoinSet<Result<Pass, Failure>>,
    held: Vec<Kept>,
}

async fn on_told(place: &Place, line: &str, state: &mut State) -> Result<String, Failure> {
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        ["found", name, slots] => found(place, name, slots.parse()?).await,
        ["visit", name, slots] => visit(place, name, slots.parse()?).await,
        ["alone", name, rounds] => alone(place, name, rounds.parse()?).await,
        ["contend", name, slots, ref numbers @ ..] => {
            let numbers: Result<Vec<u64>, _> = numbers.iter().map(|number| number.parse()).collect();
            let [clients, first, stride, hold, start, end] = numbers?[..] else { return Err("numbers missing".into()) };
            let crowd = Crowd { clients, first, stride, hold: Duration::from_nanos(hold), start, end };
            contend(place, name, slots.parse()?, crowd).await
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

/// Makes a resource known, so that this is not measured.
async fn found(place: &Place, name: &str, slots: u32) -> Result<String, Failure> {
    let mut door = place.door(name, slots).await?;
    door.found().await?;
    Ok(String::new())
}

/// Goes in once: with several of us the first time takes longer, since the register has to hear of each peer.
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
        let begun = clock::now();
        door.enter().await?;
        door.leave().await?;
        writeln!(answer, "{}", clock::now() - begun)?;
    }
    Ok(answer)
}

/// The clients of one process in a case.
#[derive(Clone, Copy)]
struct Crowd {
    clients: u64,
    /// The place of the first of them in line, and the distance to the next.
    first: u64,
    stride: u64,
    hold: Duration,
    start: u64,
    end: u64,
}

async fn contend(place: &Place, name: &str, slots: u32, crowd: Crowd) -> Result<String, Failure> {
    let mut clients = JoinSet::new();
    for client in 0..crowd.clients {
        let place = (crowd.first + client * crowd.stride, place.door(name, slots).await?);
        clients.spawn(async move {
            let (number, mut door) = place;
            sleep(clock::until(crowd.start + number * clock::nanos(STAGGER))).await;
            let mut entries = String::new();
            loop {
                let asked = clock::now();
                let ((slot, fencing), sent) = enter(&mut door).await?;
                let entered = clock::now();
                if crowd.hold > Duration::ZERO {
                    stay(crowd.hold).await?;
                }
                let left = clock::now();
                door.leave().await?;
                let sent = sent.unwrap_or(asked);
                writeln!(entries, "{slot} {fencing} {asked} {sent} {entered} {left}")?;
                if left > crowd.end {
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

/// Waits until the client is inside; and, if that takes a while, when its request had left this process: everybody else
/// on this thread has had a turn by then, and the sockets were looked at. Until then nobody can know of it, however
/// long the process has to wait for a core.
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

/// Stays for this long, to the microsecond: a thread sleeps for most of it, for tokio's timers are a millisecond
/// coarse, and the rest is waited for awake, without keeping anybody from working.
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
