//! How long `acquire` and `release` take together through an agent's Unix socket, where the token is at hand, beside two
//! round trips of as many bytes over a bare socket.
//!
//! `cargo run --release -p peerlock-http --example socket [rounds]`
#![allow(clippy::unwrap_used, reason = "a measurement may fail loudly")]

use std::path::Path;
use std::time::{Duration, Instant};

use peerlock_http::client::Agent;
use peerlock_http::{App, Endpoint, Listener, Want, serve};
use peerlock_service::memory::Network;
use peerlock_service::{PeerId, Service};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Builder;

/// About as long as a request or an answer.
const BYTES: usize = 180;

fn main() {
    let rounds = std::env::args().nth(1).map_or(20_000, |rounds| rounds.parse().unwrap());
    let directory = std::env::temp_dir().join(format!("peerlock-socket-{}", std::process::id()));
    let (echo, agent) = (directory.join("echo.sock"), directory.join("agent.sock"));
    std::fs::create_dir(&directory).unwrap();
    // The agent has a thread of its own, as it has a process of its own.
    let (ready, is_ready) = std::sync::mpsc::channel();
    let paths = (echo.clone(), agent.clone());
    std::thread::spawn(move || {
        Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let service = Service::builder().start(Network::new(1).endpoint(PeerId::new(1))).await.unwrap();
            let listener = Listener::bind(&Endpoint::Unix(paths.1), None).await.unwrap();
            let echo = UnixListener::bind(paths.0).unwrap();
            ready.send(()).unwrap();
            tokio::join!(serve(vec![listener], App::new(service), std::future::pending()), serve_echo(echo));
        });
    });
    is_ready.recv().unwrap();
    let (bare, through) = Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(async { (bare(&echo, rounds).await, through_agent(agent, rounds).await) });
    print("two round trips, bare socket", bare);
    print("acquire + release, agent", through);
    std::fs::remove_dir_all(&directory).unwrap();
}

async fn serve_echo(listener: UnixListener) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut bytes = [0; BYTES];
    while stream.read_exact(&mut bytes).await.is_ok() {
        stream.write_all(&bytes).await.unwrap();
    }
}

async fn bare(path: &Path, rounds: usize) -> Vec<Duration> {
    let mut stream = UnixStream::connect(path).await.unwrap();
    let (mut bytes, mut times) = ([0; BYTES], Vec::with_capacity(rounds));
    for _ in 0..rounds {
        let began = Instant::now();
        for _ in 0..2 {
            stream.write_all(&bytes).await.unwrap();
            stream.read_exact(&mut bytes).await.unwrap();
        }
        times.push(began.elapsed());
    }
    times
}

async fn through_agent(path: std::path::PathBuf, rounds: usize) -> Vec<Duration> {
    let agent = Agent::new(Endpoint::Unix(path), None);
    let (want, mut times) = (Want::default(), Vec::with_capacity(rounds));
    for _ in 0..rounds {
        let began = Instant::now();
        let granted = agent.acquire("r", &want).await.unwrap();
        agent.release("r", &granted.grant).await.unwrap();
        times.push(began.elapsed());
    }
    times
}

fn print(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |part: usize| times[(times.len() * part / 1000).min(times.len() - 1)].as_nanos() as f64 / 1000.0;
    println!("{what:30} p50 {:8.1} µs   p99 {:8.1} µs   max {:8.1} µs", at(500), at(990), at(1000));
}
