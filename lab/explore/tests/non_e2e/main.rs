//! Non-E2E on small fixed routes. Time does not pass. Timers for retries and pings expire at any moment.

#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../case/mod.rs"]
mod case;
#[path = "../large/mod.rs"]
mod large;
#[path = "../on_routes/mod.rs"]
mod on_routes;

use case::{Outcome, Voting, is_two_inside};
use peerlock_explore::{Counterexample, Explored, Limits};
use peerlock_protocols::NonE2e;
use peerlock_protocols::non_e2e::Config;
use peerlock_types::Span;

const REPAIRED: Config = Config { lease: Span::from_secs(1000), ..Config::REPAIRED };

fn explored(text: &str, config: Config) -> Outcome {
    on_routes::explore(text, |id, replicas| NonE2e::new(id, replicas, config))
}

fn holds(text: &str) -> Explored {
    case::holds(text, explored(text, REPAIRED))
}

fn breaks(text: &str, config: Config) -> Box<Counterexample> {
    case::breaks(text, explored(text, config))
}

/// The sizes of `replicas=2 votes=2 clients=3 by-the-other`, `replicas=2 votes=2 hops=1 clients=2 timeouts=1
/// longest-timer-ms=1000` and `replicas=1 votes=1 clients=3 in-a-line timeouts=1` are unknown.
#[test]
fn one_case() {
    holds(&case::typed("replicas=1 votes=1 hops=1 clients=2"));
}

#[test]
fn large_worlds() {
    let page = include_str!("../../../docs/papers/non-e2e.md");
    large::worlds_are_as_documented(page, |text| Voting::read(text, Limits::new(1)), |text| holds(text).states);
}

#[test]
fn three_clients_behind_one_hop() {
    holds("replicas=1 votes=1 hops=1 clients=3");
}

#[test]
fn three_clients_that_are_each_others_hops() {
    holds("replicas=1 votes=1 clients=3 in-a-line");
}

#[test]
fn two_clients_two_replicas_and_a_hop() {
    holds("replicas=2 votes=2 hops=1 clients=2");
}

#[test]
fn loss_duplicate_and_withdrawal_are_tolerated() {
    holds("replicas=1 votes=1 hops=1 clients=2 duplications=1 losses=1 withdrawals=1");
}

#[test]
fn a_reset_and_a_loss() {
    holds("replicas=2 votes=2 hops=1 clients=2 resets=1 losses=1");
}

/// After a hop's ping the next request reaches a replica that has forgotten the first.
#[test]
fn too_many_resets_give_two_holders() {
    let case = "replicas=1 votes=1 hops=1 clients=2 resets=1 timeouts=2";

    is_two_inside(&breaks(case, REPAIRED));
}

#[test]
fn retries_and_pings_serve_all_clients() {
    holds("replicas=1 votes=1 hops=1 clients=2 timeouts=1 withdrawals=1");
}

/// The request of client 3 reaches the hop twice, which names client 3 as the holder.
#[test]
fn hop_is_named_as_holder() {
    let case = "replicas=1 votes=1 hops=1 clients=2 duplications=1";
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

#[test]
fn finished_client_gets_a_vote_forever() {
    let case = "replicas=1 votes=1 hops=1 clients=2 withdrawals=1 timeouts=1";
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
no continuation serves all clients, and these wait: 3 with ticket 1"
    );
}

/// Each is queued behind the other, and the yielded votes return.
#[test]
fn a_split_vote() {
    let case = "replicas=2 votes=2 hops=1 clients=2 timeouts=3 longest-timer-ms=1000";
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
no continuation serves all clients, and these wait: 3 with ticket 1, 4 with ticket 1"
    );
}

#[test]
fn a_late_release_hits_the_next_request() {
    let case = "replicas=1 votes=1 hops=1 clients=2 requests=2";

    is_two_inside(&breaks(case, Config { epochs: false, ..REPAIRED }));
}
