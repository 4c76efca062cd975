//! BV95 in small worlds.

use peerlock_explore::{Limits, World, explore};
use peerlock_protocols::Bv95;
use peerlock_protocols::bv95::{Config, Heuristic, Organisation};
use peerlock_protocols::token::Layout;
use peerlock_types::PeerId;

fn holds(peers: u64, limits: Limits, config: Config) {
    let layout = Layout::printed(peers, limits.slots as u32);
    let world = World::new(limits, (0..peers).map(PeerId::new).map(|id| (id, Bv95::new(id, &layout, config))));
    match explore(&world, 1_000_000) {
        Ok(explored) => println!("{config:?}, {peers} peers, {limits:?}: {explored:?}"),
        Err(found) => panic!("{config:?}, {peers} peers, {limits:?}, after {} steps:\n\n{found}\n", found.steps),
    }
}

fn worlds() -> impl Iterator<Item = (u64, Limits)> {
    let limits = |slots| Limits { requests: 2, ..Limits::new(slots) };
    let worlds = move |slots| {
        [
            (1, Limits { clients: 2, withdrawals: 1, ..limits(slots) }),
            (2, Limits { clients: 2, withdrawals: 1, ..limits(slots) }),
            (3, limits(slots)),
            (3, Limits { ordered: true, withdrawals: 2, ..limits(slots) }),
            (4, Limits { withdrawals: 1, ..Limits::new(slots) }),
        ]
    };
    [1, 2, 3].into_iter().flat_map(worlds)
}

#[test]
fn bv95_with_either_organisation() {
    for organisation in [Organisation::Plain, Organisation::Caching] {
        for heuristic in [Heuristic::LastHeld, Heuristic::RoundRobin] {
            worlds().for_each(|(peers, limits)| holds(peers, limits, Config { organisation, heuristic }));
        }
    }
}
