//! Measures both overlays.
//!
//! ```text
//! cargo bench -p peerlock-overlay --bench overlays -- hops [PEERS [SEED]]
//! cargo bench -p peerlock-overlay --bench overlays -- churn [PEERS [HALF-LIFE [MINUTES [SEED]]]]
//! ```

use peerlock_overlay::chord::Chord;
use peerlock_overlay::pastry::Pastry;
use peerlock_types::Span;

// The driver of the tests.
#[allow(dead_code)]
#[path = "../tests/overlays/world.rs"]
mod world;

use world::{Subject, churn, mean_hops};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|text| text != "--bench").collect();
    let number = |place: usize, default: u64| {
        arguments.get(place).map_or(default, |text| text.parse().expect("arguments after the first are whole numbers"))
    };
    match arguments.first().map(String::as_str) {
        Some("hops") => {
            let (peers, seed) = (number(1, 10_000), number(2, 1));
            println!("{peers} peers, 100000 lookups, seed {seed}; all lookups ended at the owner");
            println!("  chord   {:.2} hops, ½·log2 N = {:.2}", hops::<Chord>(peers, seed), (peers as f64).log2() / 2.0);
            println!("  pastry  {:.2} hops, log16 N = {:.2}", hops::<Pastry>(peers, seed), (peers as f64).log2() / 4.0);
        }
        Some("churn") => {
            let (peers, half_life, minutes, seed) = (number(1, 1000), number(2, 600), number(3, 60), number(4, 1));
            println!("{peers} peers, half-life {half_life} s, {minutes} minutes, seed {seed}");
            println!("  overlay dead hops     lookups    wrong     lost   hops  detours  messages per peer and second");
            for detours in [true, false] {
                report::<Chord>("chord", peers, half_life, minutes, detours, seed);
                report::<Pastry>("pastry", peers, half_life, minutes, detours, seed);
            }
        }
        _ => println!("overlays hops [PEERS [SEED]] | churn [PEERS [HALF-LIFE [MINUTES [SEED]]]]"),
    }
}

fn hops<O: Subject>(peers: u64, seed: u64) -> f64 {
    mean_hops::<O>(peers, 100_000, seed)
}

fn report<O: Subject>(name: &str, peers: u64, half_life: u64, minutes: u64, detours: bool, seed: u64) {
    let time = Span::from_secs(minutes * 60);
    let world = churn::<O>(peers, Span::from_secs(half_life), time, detours, seed);
    let tally = world.tally;
    let share = |part: u64| 100.0 * part as f64 / tally.total() as f64;
    println!(
        "  {name:7} {:12} {:8} {:7.3}% {:7.3}% {:6.2} {:8} {:8.2}",
        if detours { "gone around" } else { "lose it" },
        tally.total(),
        share(tally.wrong),
        share(tally.lost),
        tally.hops as f64 / (tally.right + tally.wrong) as f64,
        tally.detours,
        // Counted after the warm-up: in four fifths of the time and the last ten seconds.
        world.messages as f64 / peers as f64 / (time.as_secs_f64() * 0.8 + 10.0),
    );
}
