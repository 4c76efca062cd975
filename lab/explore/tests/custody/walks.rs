//! Random runs of custody in worlds too large to explore, each from a seed.
//!
//! `PEERLOCK_CASE="…" PEERLOCK_SEED=… cargo test -p peerlock-explore --test custody one_walk -- --nocapture` repeats
//! one; with `PEERLOCK_WALKS=100000` it continues with the next seeds.

use peerlock_explore::walk;
use peerlock_protocols::custody::Rule;

use crate::case::{Case, case};

const STEPS: usize = 2_000;

fn walks(case: &Case, seeds: std::ops::Range<u64>) {
    let (start, world, count) = (std::time::Instant::now(), case.world(), seeds.end - seeds.start);
    let mut steps = 0;
    for seed in seeds {
        match walk(&world, seed, STEPS) {
            Ok(taken) => steps += taken,
            Err(found) => panic!(
                "after {} steps:\n\n{found}\n\nTo see it again: PEERLOCK_CASE=\"{case}\" PEERLOCK_SEED={seed} \
                 cargo test -p peerlock-explore --test custody one_walk\n",
                found.steps
            ),
        }
    }
    println!("{case}: {count} walks, {steps} steps in {:.1} s", start.elapsed().as_secs_f64());
}

#[test]
fn one_walk() {
    let number = |name: &str, usual| std::env::var(name).map_or(usual, |text| text.parse().unwrap());
    let text = std::env::var("PEERLOCK_CASE").unwrap_or("peers=4 slots=2 parties=4 stops=2 requests=3".into());
    let seed = number("PEERLOCK_SEED", 0);
    walks(&case(&text), seed..seed + number("PEERLOCK_WALKS", 1));
}

#[test]
fn walks_with_everything() {
    let all = "requests=20 clients=2 withdrawals=8 stops=6 sessions=5 takeovers=3 forces=2 forgets=6 removes=2 \
               detached=5 renewals=3 repeats=4 any";
    let worlds = [
        "peers=8 slots=1",
        "peers=8 slots=1 numbers=12 timeouts=100000",
        "peers=12 slots=2 resize=1 then=3",
        "peers=20 slots=3 resize=2 then=4",
        "peers=20 slots=3 reach=6 ahead resize=2 then=4",
    ];
    for world in worlds {
        walks(&case(&format!("{world} parties=4 {all}")), 0..150);
    }
}

/// The runs that break the other rules of `rules.rs` are too rare for this number of walks.
#[test]
fn walks_bite() {
    let text = "peers=8 slots=2 requests=20 clients=2 parties=4 stops=6 sessions=5 takeovers=3 forces=2 detached=5 \
                resize=1 then=3 any";
    let rules = [
        Rule::Fence,
        Rule::Forget,
        Rule::NotOurs,
        Rule::CountAll,
        Rule::JoinAhead,
        Rule::PartiesOnly,
        Rule::BySession,
        Rule::Numbers,
        Rule::NothingLeaves,
        Rule::EarlyUpdate,
        Rule::DetachedEnd,
    ];
    for rule in rules {
        let world = case(text).without(rule).world();
        let seed = (0..500).find(|&seed| walk(&world, seed, STEPS).is_err());
        println!("{rule:?} left out: seed {}", seed.unwrap_or_else(|| panic!("{rule:?} left out does no harm")));
    }
}
