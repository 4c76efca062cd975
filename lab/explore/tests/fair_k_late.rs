//! Fair-K with late binding in every order of events. `stay`, `turn`, `report` and `epoch` only grow, so an exploration
//! that ends shows that every run does.

#[allow(dead_code, reason = "other tests use more of it")]
mod case;
mod large;

use peerlock_explore::{Explored, Limits, World, explore};
use peerlock_protocols::FairKLate;
use peerlock_protocols::fair_k_late::Config;
use peerlock_protocols::token::Layout;
use peerlock_types::PeerId;

const MOST_STATES: usize = 10_000_000;

const NEVER: u32 = 1000;

/// With `term=1` the role moves after every entry; with `reach=1` successors are sent for one hand-over only; with
/// `ahead`, with several slots, too.
fn world(case: &str) -> World<FairKLate> {
    let (mut peers, mut limits) = (1, Limits::new(1));
    let mut config = Config { term: NEVER, ..Config::default() };
    case::read(case, &mut limits, |key, value| {
        match key {
            "peers" => peers = value.into(),
            "term" => config.term = value,
            "reach" => config.reach = value,
            "ahead" => config.always_ahead = value == 1,
            _ => return false,
        }
        true
    });
    let layout = Layout::printed(peers, limits.slots as u32);
    World::new(limits, (0..peers).map(PeerId::new).map(|id| (id, FairKLate::new(id, &layout, config))))
}

fn holds(case: &str) -> Explored {
    case::holds(case, explore(&world(case), MOST_STATES))
}

fn all_hold(case: &str, more: &[&str]) {
    more.iter().for_each(|more| _ = holds(&format!("{case} {more}")));
}

#[test]
fn one_case() {
    holds(&case::typed("peers=2 slots=1 requests=2"));
}

#[test]
fn large_worlds() {
    let page = include_str!("../../docs/papers/fair-k-late.md");
    large::worlds_are_as_documented(page, world, |case| holds(case).states);
}

#[test]
fn two_and_three_peers() {
    for slots in [1, 2] {
        for case in ["peers=2 requests=2 clients=2", "peers=3"] {
            all_hold(&format!("{case} slots={slots}"), &["", "term=1", "ordered", "ordered term=1"]);
        }
    }
    holds("peers=3 slots=3 term=1");
    holds("peers=3 slots=1 requests=2");
    holds("peers=3 slots=1 requests=2 ordered term=1");
    holds("peers=3 slots=1 requests=2 clients=2 ordered");
}

#[test]
fn four_peers() {
    holds("peers=4 slots=1");
    holds("peers=4 slots=1 ordered term=1");
    holds("peers=4 slots=2 ordered");
}

#[test]
fn withdrawals() {
    for slots in [1, 2] {
        holds(&format!("peers=2 slots={slots} requests=2 withdrawals=4"));
        holds(&format!("peers=2 slots={slots} requests=2 clients=2 withdrawals=1 ordered term=1"));
        holds(&format!("peers=3 slots={slots} withdrawals=2"));
    }
    holds("peers=2 slots=1 requests=2 withdrawals=1 term=1");
    holds("peers=3 slots=1 withdrawals=1 term=1");
    holds("peers=3 slots=2 withdrawals=1 ordered term=1");
}

#[test]
fn one_hand_over_ahead_suffices() {
    for reach in [1, 2] {
        holds(&format!("peers=4 slots=1 reach={reach} ordered"));
        holds(&format!("peers=3 slots=1 requests=2 reach={reach} ordered"));
        holds(&format!("peers=2 slots=1 requests=3 clients=2 withdrawals=1 reach={reach} ordered"));
        holds(&format!("peers=2 slots=1 requests=2 clients=2 withdrawals=1 reach={reach}"));
        holds(&format!("peers=3 slots=1 withdrawals=2 reach={reach}"));
        holds(&format!("peers=3 slots=1 withdrawals=1 reach={reach} term=1"));
        holds(&format!("peers=3 slots=1 withdrawals=1 suspicions=1 reach={reach} ordered"));
    }
}

#[test]
fn successors_with_several_slots() {
    let case = "peers=2 slots=2 requests=3 clients=3 ahead reach=4 ordered";
    holds(case);
    holds("peers=2 slots=2 requests=2 clients=2 withdrawals=2 ahead reach=4 ordered");
    holds("peers=2 slots=2 requests=2 clients=2 ahead reach=4");
}

#[test]
fn suspicions() {
    for slots in [1, 2] {
        all_hold(&format!("peers=2 slots={slots} requests=2 suspicions=2"), &["", "term=1", "withdrawals=1"]);
        holds(&format!("peers=3 slots={slots} suspicions=1 withdrawals=1 ordered"));
    }
    holds("peers=3 slots=1 suspicions=2 ordered term=1");
}

#[test]
fn more_slots_than_peers() {
    for (peers, slots) in [(1, 3), (2, 3), (2, 5)] {
        let case = format!("peers={peers} slots={slots} requests=2 clients=2 ordered");
        all_hold(&case, &["withdrawals=1", "withdrawals=1 term=1", ""]);
    }
}

#[test]
fn one_peer_alone() {
    holds("peers=1 slots=1 requests=4 clients=3 withdrawals=2 term=1");
    holds("peers=1 slots=2 requests=4 clients=4 withdrawals=2 term=1");
}

#[test]
fn large_worlds_of_four() {
    holds("peers=4 slots=2 ordered term=1");
    holds("peers=4 slots=3");
}

#[test]
fn large_worlds_of_three_and_two() {
    holds("peers=3 slots=2 withdrawals=1 term=1");
    holds("peers=3 slots=1 requests=2 withdrawals=1");
    holds("peers=4 slots=1 withdrawals=2 ordered");
    holds("peers=2 slots=3 requests=2 clients=2 withdrawals=1");
}
