//! Many whole nodes in virtual time: churn of one in a hundred a minute, and a rack of one in fifty that crashes at
//! once.
//!
//! `cargo run -p peerlock-sim --example scale -- [PEERS [RESOURCES [SECONDS [SEED]]]]`; results in
//! `docs/notes/2026-11-19-scale.md`.

use std::time::Instant;

use peerlock_node::{Config, Ttl};
use peerlock_sim::latency::Model;
use peerlock_sim::workload::Visits;
use peerlock_sim::{Faults, Nodes, Spells};
use peerlock_types::Span;

/// With a data directory.
const KEEPERS: u64 = 100;
/// The number of peers at which one last client requests each resource.
const LAST: u64 = 20;

fn main() {
    let arguments: Vec<u64> = std::env::args().skip(1).map(|text| text.parse().expect("a number")).collect();
    let number = |at: usize, default| arguments.get(at).copied().unwrap_or(default);
    let (peers, resources, seconds, seed) = (number(0, 1000), number(1, 100), number(2, 60), number(3, 1));
    let millis = Span::from_millis;
    // 500 peers start per second.
    let begin = Span::from_secs(peers / 500 + 20);
    let visits = Visits {
        resources: resources as usize,
        gap: millis(10),
        stay: millis(50),
        apart: millis(2),
        know_first: true,
        begin,
        end: begin + Span::from_secs(seconds),
        stops: None,
        resizes: None,
        forces: None,
        removes: None,
        voter_changes: None,
        careful: false,
        most_waiting: resources as usize,
        last_hosts: LAST,
        rift: false,
    };
    let churn = Spells { every: Span::from_secs(60) * 100 / peers, last: Span::from_secs(20) };
    let faults = Faults {
        quiet: begin,
        crashes: Some(churn),
        catastrophe: Some((0.02, Span::from_secs(seconds / 2))),
        ..Faults::default()
    };
    let nodes = Nodes {
        hosts: peers.min(KEEPERS),
        guests: peers.saturating_sub(KEEPERS),
        expect: false,
        slots: 1,
        session: Ttl::from_millis(15_000).expect("fifteen seconds are a valid session length"),
        config: Config::default(),
        disk: millis(5),
        network: Model::Jitter { low: millis(1), high: millis(5) }.load(0).expect("jitter needs no file"),
        clearly: None,
        faults,
        visits,
        trials: 1,
        seed,
    };
    let started = Instant::now();
    let report = nodes.run().unwrap_or_else(|failure| panic!("{failure}"));
    let took = started.elapsed().as_secs_f64();
    println!("{peers} peers, {resources} resources, seed {seed}: {} entries, {} events", report.entries, report.events);
    println!("{took:.0} s, {:.0} events a second, {} MB at most", report.events as f64 / took, peak_megabytes());
    for name in ["asked", "crashed", "lost", "notified", "served last", "longest standstill, ms"] {
        println!("{name}: {}", report.numbers.count(name));
    }
    let seconds = report.numbers.count("last came, ms") as f64 / 1000.0;
    let each = |count: u64| count as f64 / peers as f64 / seconds;
    for (kind, count) in &report.messages {
        println!("messages about a {kind}: {count}, {:.2} a second of each peer", each(*count));
    }
}

fn peak_megabytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|row| row.strip_prefix("VmHWM:")).unwrap_or_default();
    peak.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap_or(0) / 1000
}
