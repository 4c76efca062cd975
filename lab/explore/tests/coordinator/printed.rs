//! Defects of the printed form. All repairs are on except those named.

use peerlock_explore::{Counterexample, Limits, explore_with_hope};
use peerlock_protocols::coordinator::Config;

use crate::case::{Voting, is_stuck, is_two_inside};
use crate::stage::Stage;
use crate::{MOST_STATES, ONCE, breaks, case, of_three, one_inside};

fn found(config: Config) -> Box<Counterexample> {
    let mut stage = Stage::new(of_three("clients=2", config));
    one_inside(&mut stage);
    stage.breaks(explore_with_hope(&stage.world, MOST_STATES, 1))
}

#[test]
fn as_printed() {
    is_stuck(&breaks(&case("replicas=2 clients=2 reserve=0"), Config::PRINTED));
}

#[test]
fn owner_without_update_never_releases() {
    is_stuck(&found(Config { owner_notified: false, named_successor: false, ..ONCE }));
}

#[test]
fn released_owner_remains_holder_without_handler() {
    is_stuck(&found(Config { replicas_receive_release: false, ..ONCE }));
}

#[test]
fn overtaking_release_leaves_waiter_behind() {
    is_stuck(&found(Config { named_successor: false, ..ONCE }));
}

/// Requests are ordered by client clocks, and an ADDREQUEST is late.
#[test]
fn two_heads() {
    let config = Config { coordinator_numbers: false, named_successor: false, owner_lease: false, ..ONCE };
    let mut stage = Stage::new(of_three("clients=3", config));
    one_inside(&mut stage);
    stage.request(5);
    stage.deliver(5, 0, "request");
    stage.deliver(0, 5, "response");
    stage.deliver(0, 3, "addrequest");
    stage.lose_all();

    is_two_inside(&stage.breaks(explore_with_hope(&stage.world, MOST_STATES, 0)));
}

/// A client has one ID for all its requests, and the second grant is never returned.
#[test]
fn duplicated_request_is_served_twice() {
    let case = case("replicas=3 clients=2 duplications=1 reserve=0");

    is_stuck(&breaks(&case, Config { requests_apart: false, ..ONCE }));
}

/// *received(msg)* drops retransmissions.
#[test]
fn lost_answer_is_never_repeated() {
    let case = case("replicas=3 clients=1 losses=1 timeouts=4");

    is_stuck(&breaks(&case, Config { coordinator_dedups: false, ..Config::REPAIRED }));
}

#[test]
fn false_suspicion_gives_two_coordinators() {
    let config = Config { majority_lease: false, one_acts: false, one_asked: false, ..ONCE };
    let limits = Limits { longest_timer: Config::PRINTED.ping, ..Limits::new(1) };

    is_two_inside(&breaks(&Voting::read("replicas=3 clients=2 timeouts=1", limits), config));
}

#[test]
fn reset_coordinator_in_print_gives_two_holders() {
    let case = case("replicas=3 clients=2 resets=1");

    is_two_inside(&breaks(&case, Config { majority_lease: false, ..ONCE }));
}
