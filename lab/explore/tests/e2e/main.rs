//! E2E on small fixed routes. Time does not pass. Without losses only split votes with reordered messages need a timer.

#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../case/mod.rs"]
mod case;
#[path = "../large/mod.rs"]
mod large;
#[path = "../on_routes/mod.rs"]
mod on_routes;

use case::{Outcome, Voting, is_stuck, is_two_inside};
use peerlock_explore::{Counterexample, Explored, Limits, Violation};
use peerlock_protocols::e2e::{Config, E2e};
use peerlock_types::Span;

const REPAIRED: Config = Config { lease: Span::from_secs(1000), backups: 0, ..Config::REPAIRED };

fn explored(text: &str, config: Config) -> Outcome {
    on_routes::explore(&format!("reserve=0 {text}"), |id, replicas| E2e::new(id, replicas, config))
}

fn holds(text: &str) -> Explored {
    case::holds(text, explored(text, REPAIRED))
}

fn holds_as_documented(text: &str) {
    let states = holds(text).states;
    let page = include_str!("../../../docs/papers/e2e.md").replace(',', "");
    assert!(page.contains(&format!("| {states} |\n")), "{text}: {states} states are not in the table");
}

fn breaks(text: &str, config: Config) -> Box<Counterexample> {
    case::breaks(text, explored(text, config))
}

#[test]
fn one_case() {
    holds(&case::typed("replicas=1 votes=1 clients=2"));
}

#[test]
fn large_worlds() {
    let page = include_str!("../../../docs/papers/e2e.md");
    large::worlds_are_as_documented(page, |text| Voting::read(text, Limits::new(1)), |text| holds(text).states);
}

#[test]
fn two_clients_behind_a_hop() {
    holds_as_documented("replicas=1 votes=1 hops=1 clients=2");
}

#[test]
fn two_clients_behind_a_hop_one_of_which_may_withdraw() {
    holds_as_documented("replicas=1 votes=1 hops=1 clients=2 withdrawals=1");
}

#[test]
fn three_clients() {
    holds_as_documented("replicas=1 votes=1 clients=3 ordered");
}

#[test]
fn three_clients_that_are_each_others_hops() {
    holds_as_documented("replicas=1 votes=1 clients=3 in-a-line ordered");
}

#[test]
fn two_clients_and_two_replicas() {
    holds_as_documented("replicas=2 votes=2 clients=2 ordered");
}

#[test]
fn duplicated_message_and_withdrawal_are_harmless() {
    holds_as_documented("replicas=1 votes=1 clients=2 duplications=1 withdrawals=1");
}

#[test]
fn a_reset() {
    holds_as_documented("replicas=2 votes=2 clients=2 resets=1 ordered reserve=1");
}

#[test]
fn a_loss_and_a_time_out() {
    holds_as_documented("replicas=1 votes=1 clients=2 losses=1 timeouts=1 reserve=1");
}

#[test]
fn too_many_resets_give_two_holders() {
    let case = "replicas=1 votes=1 clients=2 resets=1";

    is_two_inside(&breaks(case, REPAIRED));
}

// The defects of the printed form.

#[test]
fn release_without_successor_gives_two_holders() {
    let case = "replicas=1 votes=1 clients=2 requests=2";
    let found = breaks(case, Config { successor_named: false, ..REPAIRED });

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
2 clients hold slots, 1 allowed"
    );
}

#[test]
fn a_split_vote_stays_split() {
    let case = "replicas=2 votes=2 clients=2 ordered";
    let found = breaks(case, Config { losers_queued: false, asks_again: false, ..REPAIRED });

    assert!(matches!(found.violation, Violation::Stuck(_)), "{found}");
    assert!(!found.to_string().contains("enter"), "{found}");
    holds(case);
}

#[test]
fn request_to_finished_owner_is_lost() {
    let case = "replicas=1 votes=1 hops=1 clients=2";
    let found = breaks(case, Config { losers_queued: false, asks_again: false, ..REPAIRED });

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
no event is possible and these wait: 3 with ticket 1"
    );
}

#[test]
fn two_requests_wait_for_each_other() {
    let case = "replicas=2 votes=2 hops=1 clients=2 ordered";
    let found = breaks(case, Config { marks_of_winners: false, asks_again: false, ..REPAIRED });

    is_stuck(&found);
    assert!(!found.to_string().contains("enter"), "{found}");
}

#[test]
fn a_late_release_hits_the_next_owner() {
    let case = "replicas=1 votes=1 clients=2 requests=2";

    is_two_inside(&breaks(case, Config { epochs: false, ..REPAIRED }));
}

/// With copies of the queue at waiting clients, their pings would resolve it much later.
#[test]
fn lost_token_is_never_replaced() {
    let case = "replicas=1 votes=1 clients=2 losses=1 timeouts=1 reserve=1";
    let found = breaks(case, Config { acknowledged: false, ..REPAIRED });

    is_stuck(&found);
    assert!(found.to_string().contains("TOKEN(1@2, epoch 2, []) (lost)"), "{found}");
}
