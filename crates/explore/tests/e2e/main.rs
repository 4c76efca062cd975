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

/// Client 1 is the hop of client 2 …, and stands at the door of the replica.
fn in_a_line(client: u64, replica: u64) -> Vec<u64> {
    (replica..=client).rev().collect()
}

/// What takes too long for every day: `PEERLOCK_CASE=three-behind-a-hop cargo test -p peerlock-explore --test e2e
/// one_case -- --nocapture`.
#[test]
fn one_case() {
    let case = match std::env::var("PEERLOCK_CASE").as_deref() {
        Err(_) => Case::new(1, 1, 0, 2, direct),
        Ok("three-behind-a-hop") => Case::new(1, 1, 1, 3, to_one_replica).with(|limits| limits.ordered = true),
        Ok("three-in-any-order") => Case::new(1, 1, 0, 3, direct),
        Ok("two-of-two-in-any-order") => Case::new(2, 2, 0, 2, direct).reserve(1),
        Ok("two-of-three") => Case::new(3, 2, 0, 2, direct).with(|limits| limits.ordered = true),
        Ok(other) => panic!("there is no case {other}"),
    };
    holds(&case);
}

#[test]
fn two_clients_behind_a_hop() {
    holds(&Case::new(1, 1, 1, 2, to_one_replica));
}

#[test]
fn two_clients_behind_a_hop_one_of_which_may_withdraw() {
    holds(&Case::new(1, 1, 1, 2, to_one_replica).with(|limits| limits.withdrawals = 1));
}

#[test]
fn three_clients() {
    holds(&Case::new(1, 1, 0, 3, direct).with(|limits| limits.ordered = true));
}

#[test]
fn three_clients_that_are_each_others_hops() {
    holds(&Case::new(1, 1, 0, 3, in_a_line).with(|limits| limits.ordered = true));
}

#[test]
fn two_clients_and_two_replicas() {
    holds(&Case::new(2, 2, 0, 2, direct).with(|limits| limits.ordered = true));
}

#[test]
fn a_message_that_comes_twice_and_a_withdrawal() {
    holds(&Case::new(1, 1, 0, 2, direct).with(|limits| (limits.duplications, limits.withdrawals) = (1, 1)));
}

/// Fewer than 2m − n resets are safe. It may take a retry to be served then.
#[test]
fn a_reset() {
    holds(&Case::new(2, 2, 0, 2, direct).with(|limits| (limits.resets, limits.ordered) = (1, true)).reserve(1));
}

/// From every state with a time-out left all can be served, whichever message was lost.
#[test]
fn a_loss_and_a_time_out() {
    holds(&Case::new(1, 1, 0, 2, direct).with(|limits| (limits.losses, limits.timeouts) = (1, 1)).reserve(1));
}

/// As many as 2m − n resets are not safe.
#[test]
fn too_many_resets_let_two_in() {
    let case = Case::new(1, 1, 0, 2, direct).with(|limits| limits.resets = 1);

    is_two_inside(&breaks(&case, REPAIRED));
}

fn is_two_inside(found: &Counterexample) {
    assert!(matches!(found.violation, Violation::TooManyInside { inside: 2, slots: 1 }), "{found}");
}

// The defects of the printed form. In each case all other repairs are on, unless they would hide it.

/// The replica is blank while the successor is inside.
#[test]
fn a_release_without_successor_lets_two_in() {
    let case = Case::new(1, 1, 0, 2, direct).with(|limits| limits.requests = 2);
    let found = breaks(&case, Config { successor_named: false, ..REPAIRED });

    assert_eq!(
        found.to_string(),
        "\
1: request
2: request
1 → 0  REQUEST(R0, 1@1)…
0 → 1  RESPONSE(R0, 1@1, grant 1)
1: enter slot 0, fencing 1
1 → 0  IAMWINNER(R0, 1@1, epoch 1)…
2 → 0  REQUEST(R0, 1@2)…
0 → 1  ENQUEUE(1@2)
1: leave
1#2: request
1 → 0  RELEASE(R0, 1@1)…
1 → 0  REQUEST(R0, 2@1#2)…
0 → 1  RESPONSE(R0, 2@1#2, grant 2)
1#2: enter slot 0, fencing 2
1 → 2  TOKEN(1@2, epoch 2, [])
2: enter slot 0, fencing 2
under way: 1 → 0  IAMWINNER(R0, 2@1#2, epoch 2)…
under way: 1 → 2  QUEUED(1@2 at 1@1, epoch 1)
under way: 2 → 1  GOT(1)
2 clients are inside, 1 may be"
    );
}

/// A split vote: the losers are stored nowhere.
#[test]
fn a_split_vote_stays_split() {
    let case = Case::new(2, 2, 0, 2, direct).with(|limits| limits.ordered = true);
    let found = breaks(&case, Config { losers_kept: false, asks_again: false, ..REPAIRED });

    assert!(matches!(found.violation, Violation::Stuck(_)), "{found}");
    assert!(!found.to_string().contains("enter"), "{found}");
    holds(&Case { reserve: 0, ..case });
}

/// An ENQUEUE to an owner who has finished is lost.
#[test]
fn a_request_is_sent_to_an_owner_who_has_finished() {
    let case = Case::new(1, 1, 1, 2, to_one_replica);
    let found = breaks(&case, Config { losers_kept: false, asks_again: false, ..REPAIRED });

    assert_eq!(
        found.to_string(),
        "\
2: request
3: request
2 → 1  REQUEST(R0, 1@2)…
1 → 0  REQUEST(R0, 1@2)…
0 → 2  RESPONSE(R0, 1@2, grant 1)
2: enter slot 0, fencing 1
2: leave
2 → 1  RELEASE(R0, 1@2)…
1 → 0  RELEASE(R0, 1@2)…
2 → 1  IAMWINNER(R0, 1@2, epoch 1)…
1 → 0  IAMWINNER(R0, 1@2, epoch 1)…
3 → 1  REQUEST(R0, 1@3)…
1 → 2  ENQUEUE(1@3)
nothing can happen any more and these still wait: 3 with ticket 1"
    );
}

/// Each is parked at the other. Without asking again, which makes up for it.
#[test]
fn two_are_parked_at_each_other() {
    let case = Case::new(2, 2, 1, 2, to_two_replicas).with(|limits| limits.ordered = true);
    let found = breaks(&case, Config { marks_of_winners: false, asks_again: false, ..REPAIRED });

    assert!(matches!(found.violation, Violation::Stuck(_) | Violation::Hopeless(_)), "{found}");
    assert!(!found.to_string().contains("enter"), "{found}");
}

/// A late RELEASE hits the wrong owner.
#[test]
fn a_late_release_hits_the_next_owner() {
    let case = Case::new(1, 1, 0, 2, direct).with(|limits| limits.requests = 2);

    is_two_inside(&breaks(&case, Config { epochs: false, ..REPAIRED }));
}

/// TOKEN is the only copy of the queue. (With a copy at those who wait, it is their ping that helps, long after.)
#[test]
fn a_token_that_is_lost_is_lost_for_ever() {
    let case = Case::new(1, 1, 0, 2, direct).with(|limits| (limits.losses, limits.timeouts) = (1, 1)).reserve(1);
    let found = breaks(&case, Config { acknowledged: false, ..REPAIRED });

    assert!(matches!(found.violation, Violation::Stuck(_) | Violation::Hopeless(_)), "{found}");
    assert!(found.to_string().contains("TOKEN(1@2, epoch 2, []) (lost)"), "{found}");
}
