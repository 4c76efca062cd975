//! How long it takes to acquire and release inside one process, where the token is at hand; and to hand over between
//! two peers of one process. `cargo run --release -p peerlock-service --example reacquire`.

use std::time::{Duration, Instant};

use peerlock_service::memory::Network;
use peerlock_service::{Error, PeerId, Service};

const ROUNDS: usize = 100_000;

fn print(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
    let (half, most, last) = (at(0.5), at(0.99), at(1.0));
    println!("{what}: p50 {half:?}, p99 {most:?}, max {last:?} ({} rounds)", times.len());
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let network = Network::new(1);
    let one = Service::builder().start(network.endpoint(PeerId::new(1))).await?;
    let join = Network::address(one.me());
    let two = Service::builder().join(join).start(network.endpoint(PeerId::new(2))).await?;
    drop(one.resource("r").acquire().await?);

    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let began = Instant::now();
        one.resource("r").acquire().await?.release().await?;
        times.push(began.elapsed());
    }
    print("acquire and release, token at hand", times);

    let mut times = Vec::with_capacity(ROUNDS / 10);
    let mut held = one.resource("r").acquire().await?;
    for round in 0..ROUNDS / 10 {
        let next = if round % 2 == 0 { &two } else { &one }.resource("r").acquire();
        tokio::time::sleep(Duration::from_micros(200)).await; // For its place in line to be known.
        let began = Instant::now();
        drop(held);
        held = next.await?;
        times.push(began.elapsed());
    }
    print("from leaving to the next entering, on a network in memory", times);
    Ok(())
}
