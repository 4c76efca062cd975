//! Fair-K with late binding in every order of events, in small worlds.
//!
//! **Size.** A hand-over sends three messages that nobody waits for one by one (`token`, `left`, `next`), and in an
//! unordered world each may stay under way until the end: that, not the peers' own states, is what makes these worlds
//! large. With the role moving at every entry, word of it is under way as well.
//!
//! **No run without end.** `stay`, `turn`, `report` and `epoch` only grow, so that no state can come back and a run
//! without end would not be a cycle. It would be a world with infinitely many states, though: an exploration that comes
//! to its end at all has shown that there is none.

#[allow(dead_code, reason = "other tests use more of it")]
mod case;
mod large;

use peerlock_explore::{Explored, Limits, World, explore};
use peerlock_protocols::FairKLate;
use peerlock_protocols::fair_k_late::Config;
use peerlock_protocols::token::Layout;
use peerlock_types::PeerId;

/// More than any case below has.
const MOST_STATES: usize = 10_000_000;

/// A term after which the coordinator's role never moves in worlds as small as these.
const NEVER: u32 = 1000;

/// One request at each peer, unordered links and one coordinator for good, unless something else is said. With `term=1`
/// the role moves after every entry; with `reach=1` who comes next is said ahead for one hand-over; with `ahead`, it is
/// also with several slots.
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

/// This one, and what more is said.
fn all_hold(case: &str, more: &[&str]) {
    more.iter().for_each(|more| _ = holds(&format!("{case} {more}")));
}

/// For example a larger one: `PEERLOCK_CASE="peers=4 slots=2 requests=2 term=1"`.
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

/// Who comes next is said so little ahead that the token comes to the end of it, with others behind.
#[test]
fn little_is_said_ahead() {
    for reach in [1, 2] {
        holds(&format!("peers=4 slots=1 reach={reach} ordered"));
        holds(&format!("peers=3 slots=1 requests=2 reach={reach} ordered"));
        holds(&format!("peers=2 slots=1 requests=3 clients=2 withdrawals=1 reach={reach} ordered"));
        holds(&format!("peers=2 slots=1 requests=2 clients=2 withdrawals=1 reach={reach}"));
        holds(&format!("peers=3 slots=1 withdrawals=2 reach={reach}"));
        holds(&format!("peers=3 slots=1 withdrawals=1 reach={reach} term=1"));
        holds(&format!("peers=3 slots=1 withdrawals=1 retirements=1 suspicions=1 reach={reach} ordered"));
    }
}

/// With several slots, where stays are short: three or four wait, so that one of them is told ahead.
#[test]
fn said_ahead_with_several_slots() {
    let case = "peers=2 slots=2 requests=3 clients=3 ahead reach=4 ordered";
    all_hold(case, &["", "retirements=1"]);
    holds("peers=2 slots=2 requests=2 clients=2 withdrawals=2 ahead reach=4 ordered");
    holds("peers=2 slots=2 requests=2 clients=2 ahead reach=4");
}

/// Whoever leaves for good takes neither a token nor the role along, and gets in nobody's way.
///
/// On ordered links, as real ones are. Where messages overtake each other, a token can go to and fro between a holder
/// and a former client of the one who left, for as long as word of the first time is under way.
#[test]
fn retirements() {
    for slots in [1, 2] {
        let case = format!("peers=2 slots={slots} requests=2 retirements=1 ordered");
        all_hold(&case, &["", "term=1", "withdrawals=1", "term=1 withdrawals=1"]);
        holds(&format!("peers=3 slots={slots} retirements=1 ordered"));
    }
    holds("peers=3 slots=1 retirements=2 ordered");
    holds("peers=3 slots=1 requests=2 retirements=1 ordered");
    holds("peers=3 slots=1 retirements=1 withdrawals=1 ordered term=1");
}

/// Whoever is taken for gone and is not comes to no harm if none of its clients waits.
#[test]
fn suspicions() {
    for slots in [1, 2] {
        all_hold(&format!("peers=2 slots={slots} requests=2 suspicions=2"), &["", "term=1", "withdrawals=1"]);
        holds(&format!("peers=3 slots={slots} suspicions=1 withdrawals=1 ordered"));
    }
    holds("peers=3 slots=1 suspicions=2 ordered term=1");
    holds("peers=2 slots=1 requests=2 retirements=1 suspicions=1 ordered");
}

/// A token that the network gives back is not lost. On ordered links, as real ones are.
#[test]
fn returns() {
    for slots in [1, 2] {
        all_hold(&format!("peers=2 slots={slots} requests=2 withdrawals=1 returns=2 ordered"), &["", "term=1"]);
        holds(&format!("peers=3 slots={slots} withdrawals=1 returns=1 ordered"));
    }
    holds("peers=3 slots=1 withdrawals=1 suspicions=1 returns=1 ordered");
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

/// Millions of states each; side by side, as tests are. Larger ones are in lab/docs/papers/fair-k-late.md.
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
