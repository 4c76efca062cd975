//! Non-E2E in every order of events, on small routes that never change.
//!
//! Time stands still, so that no lease ends; what leases do is shown in `peerlock-mutex`. Timers for asking again and
//! for pings run out at any moment, within a budget.

#[path = "../on_routes/mod.rs"]
mod on_routes;

use on_routes::Case;
use peerlock_base::Span;
use peerlock_explore::{Counterexample, Violation, World, explore_with_hope};
use peerlock_mutex::NonE2e;
use peerlock_mutex::non_e2e::Config;
use peerlock_peer::fixed::OnRoutes;

/// Renewals and the ends of leases do not come here; everything else may.
const REPAIRED: Config = Config { lease: Span::from_secs(1000), ..Config::REPAIRED };

fn world(case: &Case, config: Config) -> World<OnRoutes<NonE2e>> {
    case.world(|id, replicas| NonE2e::new(id, replicas, config))
}

/// No order of events breaks our form. Requests in hops' queues that were overtaken may need a time-out.
fn holds(case: Case) {
    let case = case.reserve(1);
    case.holds(&world(&case, REPAIRED));
}

fn breaks(case: Case, config: Config) -> Box<Counterexample> {
    let case = case.reserve(1);
    case.breaks(&world(&case, config))
}

/// All ways to a single replica lead through peer 1.
fn to_one_replica(client: u64, replica: u64) -> Vec<u64> {
    vec![client, 1, replica]
}

/// All ways to two replicas lead through peer 2.
fn to_two_replicas(client: u64, replica: u64) -> Vec<u64> {
    vec![client, 2, replica]
}

/// Client 1 stands at the door of the replica and is the hop of client 2, which is the hop of client 3.
fn in_a_line(client: u64, replica: u64) -> Vec<u64> {
    (replica..=client).rev().collect()
}

/// Replica 1 is the hop to replica 0.
fn by_the_other_replica(client: u64, replica: u64) -> Vec<u64> {
    if replica == 0 { vec![client, 1, 0] } else { vec![client, replica] }
}

/// What takes too long for every day: `PEERLOCK_CASE=three-at-two-replicas cargo test -p peerlock-explore --test
/// non_e2e one_case -- --nocapture`.
#[test]
fn one_case() {
    let case = match std::env::var("PEERLOCK_CASE").as_deref() {
        Err(_) => Case::new(1, 1, 1, 2, to_one_replica),
        Ok("three-at-two-replicas") => Case::new(2, 2, 1, 3, to_two_replicas),
        Ok("three-and-a-replica-as-hop") => Case::new(2, 2, 0, 3, by_the_other_replica),
        Ok("a-retry-at-two-replicas") => Case::new(2, 2, 0, 2, by_the_other_replica).with(|limits| limits.timeouts = 1),
        Ok("a-split-vote") => {
            let case = Case::new(2, 2, 1, 2, to_two_replicas);
            case.with(|limits| (limits.timeouts, limits.longest_timer) = (1, Span::from_secs(1)))
        }
        Ok("a-retry-in-a-line") => Case::new(1, 1, 0, 3, in_a_line).with(|limits| limits.timeouts = 1),
        Ok("a-loss-and-two-retries") => {
            Case::new(1, 1, 1, 2, to_one_replica).with(|limits| (limits.timeouts, limits.losses) = (2, 1)).reserve(2)
        }
        Ok(other) => panic!("there is no case {other}"),
    };
    let explored = explore_with_hope(&world(&case, REPAIRED), 10_000_000, case.reserve.max(1));
    println!("{:?}", explored.unwrap_or_else(|found| panic!("{found}")));
}

#[test]
fn three_clients_behind_one_hop() {
    holds(Case::new(1, 1, 1, 3, to_one_replica));
}

#[test]
fn three_clients_that_are_each_others_hops() {
    holds(Case::new(1, 1, 0, 3, in_a_line));
}

#[test]
fn two_clients_two_replicas_and_a_hop() {
    holds(Case::new(2, 2, 1, 2, to_two_replicas));
}

#[test]
fn a_loss_and_a_message_that_comes_twice_and_a_withdrawal() {
    let case = Case::new(1, 1, 1, 2, to_one_replica);
    holds(case.with(|limits| (limits.duplications, limits.losses, limits.withdrawals) = (1, 1, 1)));
}

/// A replica or the hop loses its memory; fewer than 2m − n resets are safe.
#[test]
fn a_reset_and_a_loss() {
    holds(Case::new(2, 2, 1, 2, to_two_replicas).with(|limits| (limits.resets, limits.losses) = (1, 1)));
}

/// As many as 2m − n are not: the ping of a hop brings the next request to a replica that has forgotten the first.
#[test]
fn too_many_resets_let_two_in() {
    let case = Case::new(1, 1, 1, 2, to_one_replica).with(|limits| (limits.resets, limits.timeouts) = (1, 2));
    let found = breaks(case, REPAIRED);

    assert_eq!(found.violation, Violation::TooManyInside { inside: 2, slots: 1 }, "{found}");
}

/// From every state with enough time-outs left all can be served.
#[test]
fn asking_again_and_pings_find_everybody() {
    let case = Case::new(1, 1, 1, 2, to_one_replica);
    holds(case.with(|limits| (limits.timeouts, limits.withdrawals) = (1, 1)));
}

/// "Answers of hops are hearsay": the hop is asked twice by client 3, and names it as holder.
#[test]
fn a_hop_is_taken_for_the_replica() {
    let case = Case::new(1, 1, 1, 2, to_one_replica).with(|limits| limits.duplications = 1);
    let found = breaks(case, Config { hearsay: false, ..REPAIRED });

    assert_eq!(
        found.to_string(),
        "\
2: request
3: request
2 → 1  REQUEST(R0, 1@2)…
1 → 0  REQUEST(R0, 1@2)…
0 → 2  GRANTREQ(R0, 1@2, grant 1)
2: enter slot 0, fencing 1
2: leave
2 → 1  RELEASE(R0, 1@2)…
3 → 1  REQUEST(R0, 1@3)… (will arrive twice)
3 → 1  REQUEST(R0, 1@3)…
3 → 1  REQUEST(R0, 1@3)…
1 → 3  GRANTREQ(R0, 1@3, hearsay)
3: enter slot 0, fencing 1
under way: 1 → 0  RELEASE(R0, 1@2)…
under way: 1 → 0  REQUEST(R0, 1@3)…
3 enters slot 0 with fencing number 1, which is not new"
    );
}

/// A finished client is left in a queue, and gets a vote for ever.
#[test]
fn a_vote_for_a_ghost() {
    let case = Case::new(1, 1, 1, 2, to_one_replica).with(|limits| (limits.withdrawals, limits.timeouts) = (1, 1));
    let found = breaks(case, Config { answers_ghosts: false, ..REPAIRED });

    assert_eq!(
        found.to_string(),
        "\
2: request
2: withdraw
3: request
2 → 1  REQUEST(R0, 1@2)…
2 → 1  RELEASE(R0, 1@2)…
1 → 0  RELEASE(R0, 1@2)…
1 → 0  REQUEST(R0, 1@2)…
under way: 0 → 2  GRANTREQ(R0, 1@2, grant 1)
under way: 3 → 1  REQUEST(R0, 1@3)…
whatever happens, not all will be served, and these still wait: 3 with ticket 1"
    );
}

/// Each is queued behind the other, and what they yield comes back.
#[test]
fn a_split_vote() {
    let case = Case::new(2, 2, 1, 2, to_two_replicas).with(|limits| {
        (limits.timeouts, limits.longest_timer) = (3, Span::from_secs(1));
    });
    let found = breaks(case, Config { surfaces: false, asks_again: false, ..REPAIRED });

    assert_eq!(
        found.to_string(),
        "\
3: request
4: request
3 → 2  REQUEST(R1, 1@3)…
4 → 2  REQUEST(R0, 1@4)…
under way: 2 → 0  REQUEST(R0, 1@4)…
under way: 2 → 1  REQUEST(R1, 1@3)…
under way: 3 → 2  REQUEST(R0, 1@3)…
under way: 4 → 2  REQUEST(R1, 1@4)…
whatever happens, not all will be served, and these still wait: 3 with ticket 1, 4 with ticket 1"
    );
}

/// A late RELEASE hits the next request of the same client.
#[test]
fn a_late_release_hits_the_next_request() {
    let case = Case::new(1, 1, 1, 2, to_one_replica).with(|limits| limits.requests = 2);
    let found = breaks(case, Config { epochs: false, ..REPAIRED });

    assert_eq!(found.violation, Violation::TooManyInside { inside: 2, slots: 1 }, "{found}");
}
