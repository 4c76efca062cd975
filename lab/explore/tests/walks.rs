//! Random runs of the protocols with tokens, also in worlds too large to explore, each from a seed.

use peerlock_explore::{Explorable, Limits, World, walk};
use peerlock_protocols::bv95::{self, Bv95, Heuristic, Organisation};
use peerlock_protocols::token::Layout;
use peerlock_protocols::{FairK, FairKLate, fair_k, fair_k_late};
use peerlock_types::PeerId;

const STEPS: usize = 5_000;

/// Also with more tokens than peers.
fn small() -> impl Iterator<Item = (u64, u32)> {
    (1..=6).flat_map(|peers| (1..=4).map(move |slots| (peers, slots)))
}

fn walks<P: Explorable>(
    name: &str,
    worlds: impl IntoIterator<Item = (u64, u32)>,
    seeds: u64,
    peer: impl Fn(PeerId, &Layout) -> P,
) {
    for (peers, slots) in worlds {
        let layout = Layout::printed(peers, slots);
        let withdrawals = 3 * peers as u32;
        let limits = Limits { requests: 6, clients: 3, withdrawals, ..Limits::new(slots as usize) };
        let world = World::new(limits, (0..peers).map(PeerId::new).map(|id| (id, peer(id, &layout))));
        for seed in 0..seeds {
            if let Err(found) = walk(&world, seed, STEPS) {
                panic!("{name}, {peers} peers, {slots} slots, seed {seed}, after {} steps:\n\n{found}\n", found.steps);
            }
        }
    }
}

#[test]
fn bv95_is_safe_and_live() {
    for organisation in [Organisation::Plain, Organisation::Caching] {
        for heuristic in [Heuristic::Random, Heuristic::LastHeld, Heuristic::RoundRobin] {
            let config = bv95::Config { organisation, heuristic };
            walks(&format!("{config:?}"), small(), 60, |me, layout| Bv95::new(me, layout, config));
        }
    }
}

#[test]
fn fair_k_is_safe_and_live() {
    for config in [fair_k::Config::PRINTED, fair_k::Config::REPAIRED] {
        walks(&format!("{config:?}"), small(), 60, |me, layout| FairK::new(me, layout, config));
    }
}

#[test]
fn fair_k_late_is_safe_live_and_never_idle() {
    for term in [1, 3, 1000] {
        let config = fair_k_late::Config { term, ..fair_k_late::Config::default() };
        let name = format!("{config:?}");
        walks(&name, small(), 100, |me, layout| FairKLate::new(me, layout, config));
        walks(&name, [(20, 3), (40, 7), (60, 20)], 40, |me, layout| FairKLate::new(me, layout, config));
    }
}
