//! Three replicas and separate clients. Except in `timed.rs`, time does not pass.

#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../case/mod.rs"]
mod case;
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../large/mod.rs"]
mod large;
mod printed;
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../stage/mod.rs"]
mod stage;
mod timed;

use case::Voting;
use peerlock_explore::{Counterexample, Explored, Limits, World, explore_with_hope};
use peerlock_protocols::coordinator::{Config, Coordinator};
use peerlock_types::Span;
use stage::Stage;

const MOST_STATES: usize = 3_000_000;

fn case(text: &str) -> Voting {
    Voting::read(text, Limits { longest_timer: Span::from_millis(900), ..Limits::new(1) })
}

fn world(case: &Voting, config: Config) -> World<Coordinator> {
    case.world(|id, replicas| Coordinator::new(id, replicas, config))
}

fn of_three(text: &str, config: Config) -> World<Coordinator> {
    world(&case(&format!("replicas=3 {text}")), config)
}

fn holds(text: &str, most_states: usize) -> Explored {
    let case = case(text);
    case::holds(text, case.explore(&world(&case, Config::REPAIRED), most_states))
}

fn breaks(case: &Voting, config: Config) -> Box<Counterexample> {
    case::breaks(&case.text, case.explore(&world(case, config), MOST_STATES))
}

#[test]
fn one_case() {
    holds(&case::typed("replicas=1 clients=2"), 5 * MOST_STATES);
}

/// Replica 0 is the coordinator and client 3 holds, with no message under way.
fn one_inside(stage: &mut Stage<Coordinator>) {
    stage.request(3);
    stage.deliver(3, 0, "request");
    for replica in 1..3 {
        stage.deliver(0, replica, "iamcoordinator");
        stage.deliver(replica, 0, "update");
    }
    stage.deliver(0, 3, "response");
}

fn is_documented(explored: &Explored) {
    case::is_documented(include_str!("../../../docs/papers/coordinator.md"), explored);
}

fn holds_from(stage: &Stage<Coordinator>, reserve: u32) -> Explored {
    stage.holds(explore_with_hope(&stage.world, MOST_STATES, reserve))
}

#[test]
fn two_clients_from_the_beginning() {
    is_documented(&holds("replicas=3 clients=2 reserve=0", MOST_STATES));
    is_documented(&holds("replicas=3 clients=2 reserve=0 withdrawals=1", MOST_STATES));
}

fn one_waits(stage: &mut Stage<Coordinator>, client: u64) {
    stage.request(client);
    stage.deliver(client, 0, "request");
    stage.deliver(0, client, "response");
    (1..client).filter(|&other| other != client).for_each(|other| stage.deliver(0, other, "addrequest"));
}

const ONCE: Config = Config { resends: false, ..Config::REPAIRED };

#[test]
fn three_clients_and_large() {
    holds_from(&Stage::new(world(&case("replicas=1 clients=3"), ONCE)), 0);
    let mut stage = Stage::new(of_three("clients=3", ONCE));
    one_inside(&mut stage);
    if large::is_for_now(1_349_012) {
        is_documented(&holds_from(&stage, 0));
    }
    one_waits(&mut stage, 4);
    is_documented(&holds_from(&stage, 0));
}

#[test]
fn four_clients() {
    let mut stage = Stage::new(of_three("clients=4", ONCE));
    one_inside(&mut stage);
    one_waits(&mut stage, 4);
    one_waits(&mut stage, 5);
    is_documented(&holds_from(&stage, 0));
}

#[test]
fn duplicated_message_is_harmless() {
    let mut stage = Stage::new(of_three("clients=2 duplications=1", Config::REPAIRED));
    one_inside(&mut stage);
    is_documented(&holds_from(&stage, 0));
}

#[test]
fn loss_is_recovered_by_retry() {
    let config = Config { lease: Span::from_secs(2), ..Config::REPAIRED };
    let mut stage = Stage::new(of_three("clients=2 losses=1 timeouts=1", config));
    one_inside(&mut stage);
    one_waits(&mut stage, 4);
    is_documented(&holds_from(&stage, 1));
}

#[test]
fn reset_replica_grants_nothing() {
    let mut stage = Stage::new(of_three("clients=2 resets=1", Config::REPAIRED));
    one_inside(&mut stage);
    is_documented(&holds_from(&stage, 1));
}
