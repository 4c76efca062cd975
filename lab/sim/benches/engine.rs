//! The speed of the simulator relative to a floor measured in the same run, and the cost of a peer.
//!
//! `cargo bench -p peerlock-sim`. The floor is the bare queue: as many events as the run has, each popped and pushed
//! again while as many others wait. The ratio is the result.

use std::hint::black_box;
use std::process::Command;
use std::time::Instant;

use peerlock_protocols::fair_k::Config;
use peerlock_protocols::token::Layout;
use peerlock_protocols::{FairK, FairKLate, Observe};
use peerlock_sim::latency::Model;
use peerlock_sim::queue::Queue;
use peerlock_sim::{Closed, Experiment, Faults, Hold, Links};
use peerlock_types::{PeerId, Rng, Span, Time};

const SLOTS: u32 = 3;
const ROUNDS: usize = 5;

fn main() {
    if let Some(peers) = std::env::args().find_map(|arg| arg.strip_prefix("--peers=").map(String::from)) {
        let peers = peers.parse().expect("a number from our own command line");
        return match std::env::args().any(|arg| arg == "--late") {
            true => grow(peers, late),
            false => grow(peers, fair_k),
        };
    }
    against_the_floor();
    for (protocol, more) in [("Fair-K", None), ("late binding", Some("--late"))] {
        println!("\n{protocol}\n{:>9}  {:>14}  {:>16}", "peers", "bytes per peer", "million events/s");
        for peers in ["100", "1000", "10000", "100000", "1000000"] {
            // For a memory peak of its own.
            let me = std::env::current_exe().expect("the path of the benchmark");
            let status = Command::new(me).arg(format!("--peers={peers}")).args(more).status();
            assert!(status.is_ok_and(|status| status.success()), "the run of {peers} peers failed");
        }
    }
}

fn experiment(peers: usize, entries: u32) -> Experiment {
    Experiment {
        peers,
        servers: 0,
        slots: SLOTS,
        workload: Closed { think: Span::from_secs(2), hold: Hold::Constant(Span::from_secs(10)), entries },
        network: Model::Constant(Span::from_secs(1)).load(peers).expect("a constant needs no file"),
        links: Links::Ordered,
        faults: Faults::default(),
        count_violations: false,
        warm_up: 20,
        trials: 1,
        seed: 1,
    }
}

fn fair_k(peers: usize) -> Vec<FairK> {
    let layout = Layout::printed(peers as u64, SLOTS);
    (0..peers as u64).map(|me| FairK::new(PeerId::new(me), &layout, Config::REPAIRED)).collect()
}

fn late(peers: usize) -> Vec<FairKLate> {
    let layout = Layout::printed(peers as u64, SLOTS);
    (0..peers as u64).map(|me| FairKLate::new(PeerId::new(me), &layout, <_>::default())).collect()
}

fn against_the_floor() {
    const PEERS: usize = 100;
    let experiment = experiment(PEERS, 2000);
    let mut rates = [0.0f64; 2];
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let report = experiment.run(|_| fair_k(PEERS), |_| {}).expect("Fair-K breaks no rule");
        let watched = start.elapsed();

        let floor = floor(PEERS, report.events);
        for (best, took) in rates.iter_mut().zip([floor, watched]) {
            *best = best.max(report.events as f64 / took.as_secs_f64() / 1e6);
        }
    }
    println!("Fair-K, {PEERS} peers, {SLOTS} slots, 2000 entries each, one thread; best of {ROUNDS}, million events/s");
    for (name, rate) in ["bare queue: the floor", "simulator, all watchers and statistics"].iter().zip(rates) {
        println!("{name:<36} {rate:>7.1}  {:>4.0} % of the floor", 100.0 * rate / rates[0]);
    }
}

fn floor(waiting: usize, events: u64) -> std::time::Duration {
    type Payload = [u64; 8];
    let mut rng = Rng::new(1);
    let mut queue: Queue<Payload, ()> = Queue::with_capacity(waiting);
    for number in 0..waiting as u64 {
        queue.push(Time::ZERO + rng.exponential(Span::from_secs(10)), [number; 8]);
    }
    // The floor is the queue alone.
    let delays: Vec<Span> = (0..1024).map(|_| rng.exponential(Span::from_secs(10))).collect();
    let start = Instant::now();
    for number in 0..events as usize {
        let now = queue.first().expect("as many are pushed as are popped");
        let payload = queue.take_first();
        queue.push(now + delays[number % 1024], black_box(payload));
    }
    start.elapsed()
}

fn grow<P: Observe<Timer: std::hash::Hash>>(peers: usize, protocol: fn(usize) -> Vec<P>) {
    let entries = (200_000 / peers).max(1) as u32;
    let experiment = experiment(peers, entries);
    let start = Instant::now();
    let report = experiment.run(|_| protocol(peers), |_| {}).expect("neither breaks a rule");
    let rate = report.events as f64 / start.elapsed().as_secs_f64() / 1e6;
    match peak_bytes() {
        Some(bytes) => println!("{peers:>9}  {:>14}  {rate:>16.1}", bytes / peers as u64),
        None => println!("{peers:>9}  {:>14}  {rate:>16.1}", "unknown"),
    }
}

/// Returns the peak memory of this process, if the system reports it.
fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let row = status.lines().find_map(|row| row.strip_prefix("VmHWM:"))?;
    Some(row.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}
