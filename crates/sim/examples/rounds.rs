//! The rounds of the E2E paper's §VI with Sigma, and how fast they run.
//!
//! `cargo run --release -p peerlock-sim --example rounds [SETTING=VALUE…]`, by default Table 1; settings are peers,
//! overlay, resources, replicas, rounds, requests, load, churn, drain, trials, seed, and Sigma's retry.

use std::time::Instant;

use peerlock_mutex::Quorum;
use peerlock_mutex::sigma::{Config, Sigma};
use peerlock_sim::Rounds;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut rounds = Rounds { count_violations: true, ..Rounds::default() };
    let mut config = Config::REPAIRED;
    for argument in std::env::args().skip(1) {
        let (name, value) = argument.split_once('=').ok_or("write SETTING=VALUE")?;
        match name {
            "peers" => rounds.peers = value.parse()?,
            "overlay" => rounds.overlay = value.parse()?,
            "resources" => rounds.resources = value.parse()?,
            "replicas" => rounds.quorum = Quorum::new(value.parse()?, value.parse::<u32>()? / 2 + 1),
            "rounds" => rounds.rounds = value.parse()?,
            "requests" => rounds.requests = value.parse()?,
            "load" => rounds.load = value.parse()?,
            "churn" => rounds.churn = value.parse()?,
            "drain" => rounds.drain = value.parse()?,
            "trials" => rounds.trials = value.parse()?,
            "seed" => rounds.seed = value.parse()?,
            "retry" => config.retry = value.parse()?,
            _ => return Err(format!("there is no setting {name:?}").into()),
        }
    }
    let started = Instant::now();
    let report = rounds.run(|me, replicas| Sigma::new(me, replicas, config), |_| {})?;
    let seconds = started.elapsed().as_secs_f64();

    let each = |count: u64| count as f64 / f64::from(report.trials);
    let count = |name| report.numbers.count(name);
    println!("mean of {} trials, seed {}", report.trials, rounds.seed);
    println!("  messages            {:>12.1}  of which hops {:.1}", each(report.sent()), each(count("hops")));
    for &(kind, count) in &report.messages {
        println!("    {kind:<16}  {:>12.1}", each(count));
    }
    println!("  upkeep              {:>12.1}", each(count("upkeep")));
    println!("  asked               {:>12.1}  skipped {:.1}", each(count("asked in rounds")), each(count("skipped")));
    println!("  grants              {:>12.1}", each(report.steady_flow.entries));
    println!("  messages per grant  {:>12.1}", report.steady_messages_per_entry().unwrap_or(f64::NAN));
    println!("  waiting at the end  {:>12.1}", each(count("waiting after the rounds")));
    let quantiles = [50, 90, 99, 100].map(|percent| report.received.quantile(percent).unwrap_or(0));
    let mean = report.received.mean().unwrap_or(0.0);
    println!("received per peer and round: mean {mean:.1}; p50, p90, p99, max {quantiles:?}");
    println!("within the bound: {:?}\nbeyond it: {:?}\n{:?}", report.within, report.beyond, report.numbers);
    println!(
        "{} events in {seconds:.1} s: {:.2} million a second",
        report.events,
        report.events as f64 / seconds / 1e6
    );
    Ok(())
}
