//! E2E in every order of events, on small routes that never change.
//!
//! Time stands still, so that no lease ends; what leases do is shown in `peerlock-mutex`. Where nothing is lost nobody
//! needs a timer, but for votes that are split while messages overtake each other (as in Sigma).

#[path = "../on_routes/mod.rs"]
mod on_routes;

use on_routes::Case;
use peerlock_base::Span;
use peerlock_explore::{Counterexample, Explored, Violation, World};
use peerlock_mutex::e2e::{Config, E2e};
use peerlock_peer::fixed::OnRoutes;

/// Renewals, pings and the ends of leases do not come here, and nobody has a copy of the queue.
const REPAIRED: Config = Config { lease: Span::from_secs(1000), backups: 0, ..Config::REPAIRED };

fn world(case: &Case, config: Config) -> World<OnRoutes<E2e>> {
    case.world(|id, replicas| E2e::new(id, replicas, config))
}

fn holds(case: &Case) -> Explored {
    case.holds(&world(case, REPAIRED))
}

/// The shortest run that breaks something without one of the repairs. With it, nothing breaks there.
fn breaks(case: &Case, config: Config) -> Box<Counterexample> {
    case.breaks(&world(case, config))
}

fn direct(client: u64, replica: u64) -> Vec<u64> {
    vec![client, replica]
}

/// All ways to a single replica lead through peer 1.
fn to_one_replica(client: u64, replica: u64) -> Vec<u64> {
    vec![client, 1, replica]
}

/// All ways to two replicas lead through peer 2.
fn to_two_replicas(client: u64, replica: u64) -> Vec<u64> {
    vec![client, 2, replica]
}

/// All ways to three replicas lead through peer 3.
fn to_three_replicas(client: u64, replica: u64) -> Vec<u64> {
    vec![client, 3, replica]
}

/// Client 1 is the hop of client 2 …, and stands at the door of the replica.
fn in_a_line(client: u64, replica: u64) -> Vec<u64> {
    (replica..=client).rev().collect()
}

#[test]
fn probe() {
    let which = std::env::var("CASE").unwrap_or_default();
    match which.as_str() {
        "a" => drop(holds(&Case::new(1, 1, 1, 2, to_one_replica))),
        "a2" => drop(holds(&Case::new(1, 1, 1, 2, to_one_replica).with(|l| l.requests = 2))),
        "j" => drop(holds(&Case::new(1, 1, 0, 3, direct))),
        "line" => drop(holds(&Case::new(1, 1, 0, 3, in_a_line))),
        "Line" => drop(holds(&Case::new(1, 1, 0, 3, in_a_line).with(|l| l.ordered = true))),
        "k" => drop(holds(&Case::new(2, 2, 0, 2, direct).reserve(1))),
        "kt" => drop(holds(&Case::new(2, 2, 0, 2, direct).with(|l| l.timeouts = 1).reserve(1))),
        "al" => drop(holds(&Case::new(1, 1, 1, 2, to_one_replica).with(|l| (l.losses, l.timeouts) = (1, 1)).reserve(1))),
        "ad" => drop(holds(&Case::new(1, 1, 1, 2, to_one_replica).with(|l| l.duplications = 1))),
        "aw" => drop(holds(&Case::new(1, 1, 1, 2, to_one_replica).with(|l| l.withdrawals = 1))),
        "ilw" => drop(holds(&Case::new(1, 1, 0, 2, direct).with(|l| (l.losses, l.timeouts, l.withdrawals, l.duplications) = (1, 1, 1, 1)).reserve(1))),
        "kr" => drop(holds(&Case::new(2, 2, 0, 2, direct).with(|l| (l.resets, l.ordered) = (1, true)).reserve(1))),
        "B" => drop(holds(&Case::new(2, 2, 1, 2, to_two_replicas).with(|l| l.ordered = true))),
        "C" => drop(holds(&Case::new(1, 1, 1, 3, to_one_replica).with(|l| l.ordered = true))),
        "D" => drop(holds(&Case::new(3, 2, 1, 2, to_three_replicas).with(|l| l.ordered = true))),
        "L" => drop(holds(&Case::new(3, 2, 0, 2, direct).with(|l| l.ordered = true))),
        "M" => drop(holds(&Case::new(2, 2, 0, 3, direct).with(|l| l.ordered = true))),
        "x1" => drop(breaks(&Case::new(1, 1, 0, 2, direct).with(|l| l.requests = 2), Config { successor_named: false, ..REPAIRED })),
        "x2" => drop(breaks(&Case::new(2, 2, 0, 2, direct).with(|l| l.ordered = true), Config { losers_kept: false, asks_again: false, ..REPAIRED })),
        "x3" => drop(breaks(&Case::new(1, 1, 1, 2, to_one_replica), Config { losers_kept: false, asks_again: false, ..REPAIRED })),
        "x4" => drop(breaks(&Case::new(2, 2, 1, 2, to_two_replicas).with(|l| l.ordered = true), Config { marks_of_winners: false, ..REPAIRED })),
        "x5" => drop(breaks(&Case::new(1, 1, 0, 2, direct).with(|l| l.requests = 2), Config { epochs: false, ..REPAIRED })),
        "x6" => drop(breaks(&Case::new(1, 1, 0, 2, direct).with(|l| (l.losses, l.timeouts) = (1, 1)).reserve(1), Config { acknowledged: false, ..REPAIRED })),
        "y6" => drop(holds(&Case::new(1, 1, 0, 2, direct).with(|l| (l.losses, l.timeouts) = (1, 1)).reserve(1))),
        "y1" => drop(holds(&Case::new(1, 1, 0, 2, direct).with(|l| l.requests = 2))),
        _ => assert!(matches!(Violation::Livelock(1), Violation::Livelock(_))),
    }
}
