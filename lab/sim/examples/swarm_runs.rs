//! `cargo run --release -p peerlock-sim --example swarm_runs PROTOCOL [RUNS [FIRST_SEED]]`: seeded runs of peers on
//! overlays with all faults, until in RUNS of them fewer than 2m − n replicas of every resource lost their memory
//! within any one lease; none of these may have a violation. With RUNS 1 the whole report is shown.

#[path = "../tests/rough_swarm/mod.rs"]
mod rough_swarm;

use std::process::ExitCode;

use peerlock_protocols::{Coordinator, E2e, NonE2e, Sigma, coordinator, e2e, non_e2e, sigma};
use peerlock_sim::{Failure, Harm, Report, Rounds};
use rayon::prelude::*;

const BATCH: u64 = 500;

type Run = fn(&Rounds) -> Result<Report, Box<Failure>>;

const PROTOCOLS: &[(&str, Run)] = &[
    ("sigma", |rounds| {
        let config = sigma::Config { lease: rounds.lease, ..sigma::Config::REPAIRED };
        rounds.run(|me, replicas| Sigma::new(me, replicas, config), |_| {})
    }),
    ("e2e", |rounds| {
        let config = e2e::Config { lease: rounds.lease, ping: rounds.lease, ..e2e::Config::REPAIRED };
        rounds.run(|me, replicas| E2e::new(me, replicas, config), |_| {})
    }),
    ("non-e2e", |rounds| {
        let config = non_e2e::Config { lease: rounds.lease, ..non_e2e::Config::REPAIRED };
        rounds.run(|me, replicas| NonE2e::new(me, replicas, config), |_| {})
    }),
    ("coordinator", |rounds| {
        let config = coordinator::Config { lease: rounds.lease, ..coordinator::Config::REPAIRED };
        rounds.run(|me, replicas| Coordinator::new(me, replicas, config), |_| {})
    }),
];

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_default();
    let Some(&(name, run)) = PROTOCOLS.iter().find(|(known, _)| *known == name) else {
        let known: Vec<&str> = PROTOCOLS.iter().map(|(known, _)| *known).collect();
        eprintln!("unknown protocol {name:?}: use {}", known.join(" or "));
        return ExitCode::FAILURE;
    };
    let mut numbers = arguments.map(|argument| argument.parse().expect("RUNS and FIRST_SEED are numbers"));
    let (runs, first): (u64, u64) = (numbers.next().unwrap_or(10_000), numbers.next().unwrap_or(0));
    if runs == 1 {
        println!("{:#?}\n{:#?}", rough_swarm::draw(first), play(run, first));
        return ExitCode::SUCCESS;
    }
    if many(name, run, runs, first) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn play(run: Run, seed: u64) -> Report {
    run(&rough_swarm::draw(seed)).unwrap_or_else(|failure| panic!("seed {seed}: {failure}"))
}

fn many(name: &str, run: Run, wanted: u64, first: u64) -> bool {
    let (mut few, mut runs, mut seed, mut holds) = (0, 0, first, true);
    let (mut within, mut beyond, mut events) = (Harm::default(), Harm::default(), 0);
    while few < wanted {
        let batch = seed..seed + BATCH;
        seed = batch.end;
        let reports: Vec<(u64, Report)> = batch.into_par_iter().map(|seed| (seed, play(run, seed))).collect();
        for (seed, report) in reports {
            few += u64::from(report.beyond.resources == 0);
            runs += 1;
            if !report.within.is_none() {
                holds = false;
                println!("seed {seed}: {:?} {:?}", report.within, report.numbers);
            }
            (within, beyond) = (within.plus(report.within), beyond.plus(report.beyond));
            events += report.events;
        }
    }
    println!("{name}, seeds {first} to {}: {runs} runs, {few} of them wholly within the bound", seed - 1);
    for (harm, which) in [(within, "fewer than"), (beyond, "at least")] {
        let Harm { resources, grants, violations, fencing_back, stuck, .. } = harm;
        println!(
            "  {which} 2m - n replicas forgot within a lease: {resources} resources, {grants} grants, \
             {violations} beside another, {fencing_back} fencing numbers back, {stuck} stuck"
        );
    }
    println!("  {events} events");
    holds
}
