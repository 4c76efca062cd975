//! Fair-K in every order of events, in small worlds.

#[allow(dead_code, reason = "other tests use more of it")]
mod case;

use peerlock_explore::{Limits, Violation, World, explore};
use peerlock_protocols::FairK;
use peerlock_protocols::fair_k::{Config, Layout};
use peerlock_types::PeerId;

const MOST_STATES: usize = 10_000_000;

fn world(case: &str) -> World<FairK> {
    let (mut peers, mut config, mut limits) = (1, Config::REPAIRED, Limits::new(1));
    case::read(case, &mut limits, |key, value| {
        match key {
            "peers" => peers = value.into(),
            "printed" => config = Config::PRINTED,
            _ => return false,
        }
        true
    });
    let layout = Layout::printed(peers, limits.slots as u32);
    World::new(limits, (0..peers).map(PeerId::new).map(|id| (id, FairK::new(id, &layout, config))))
}

fn holds(case: &str) {
    case::holds(case, explore(&world(case), MOST_STATES));
}

fn both_hold(case: &str) {
    holds(case);
    holds(&format!("{case} printed"));
}

#[test]
fn one_case() {
    holds(&case::typed("peers=2 slots=1 requests=2"));
}

#[test]
fn four_peers_with_two_requests_each() {
    for slots in 1..=3 {
        both_hold(&format!("peers=4 slots={slots} requests=2"));
        both_hold(&format!("peers=4 slots={slots} requests=2 ordered"));
    }
}

#[test]
fn five_and_six_peers() {
    holds("peers=6 slots=2");
    holds("peers=6 slots=3");
    holds("peers=5 slots=1 printed");
    holds("peers=5 slots=2 printed");
    holds("peers=5 slots=3 printed");
}

#[test]
fn several_clients_at_one_peer() {
    both_hold("peers=3 slots=1 requests=2 clients=2");
    both_hold("peers=3 slots=2 requests=2 clients=2");
    holds("peers=3 slots=1 requests=3 clients=3");
    holds("peers=3 slots=1 requests=3 clients=3 printed ordered");
    holds("peers=4 slots=1 requests=2 clients=2 ordered");
}

#[test]
fn withdrawals() {
    for slots in [1, 2] {
        both_hold(&format!("peers=4 slots={slots} withdrawals=4"));
        both_hold(&format!("peers=3 slots={slots} requests=2 withdrawals=6"));
        both_hold(&format!("peers=3 slots={slots} requests=2 clients=2 withdrawals=1"));
    }
}

#[test]
fn more_slots_than_peers() {
    for (peers, slots) in [(1, 3), (2, 3), (2, 5), (3, 4)] {
        both_hold(&format!("peers={peers} slots={slots} requests=2 clients=2 withdrawals=1"));
    }
    holds("peers=2 slots=3 requests=4 clients=4");
}

#[test]
fn one_peer_alone() {
    holds("peers=1 slots=1 requests=4 clients=3 withdrawals=2");
    holds("peers=1 slots=2 requests=4 clients=4 withdrawals=2");
}

/// §3.1 requires links that neither lose nor duplicate messages.
#[test]
fn fair_k_needs_reliable_links() {
    let broken = |case| explore(&world(case), MOST_STATES).unwrap_err().violation;

    assert!(matches!(broken("peers=2 losses=1"), Violation::Tokens { found: 0, expected: 1 }));
    assert!(matches!(broken("peers=2 duplications=1"), Violation::Tokens { found: 2, expected: 1 }));
}
