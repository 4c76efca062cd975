//! What is wrong in the printed form, found by the search: a short run for each. All repairs are on but those named.

use peerlock_explore::{Counterexample, Violation, explore_with_hope};
use peerlock_mutex::coordinator::{Config, Coordinator};

use crate::stage::Stage;
use crate::{Case, MOST_STATES, ONCE, one_inside};

/// The shortest run from where client 3 is inside.
fn found(case: Case, config: Config) -> Box<Counterexample> {
    let mut stage: Stage<Coordinator> = Stage::new(case.world(config));
    one_inside(&mut stage);
    match explore_with_hope(&stage.world, MOST_STATES, case.reserve) {
        Ok(explored) => panic!("{}--- from here on nothing was found: {explored:?}", stage.trace),
        Err(found) => {
            println!("{}--- from here on: {} steps\n{found}\n", stage.trace, found.steps);
            found
        }
    }
}

fn is_stuck(found: &Counterexample) {
    assert!(matches!(found.violation, Violation::Stuck(_) | Violation::Hopeless(_)), "{found}");
}

fn is_two_inside(found: &Counterexample) {
    assert!(matches!(found.violation, Violation::TooManyInside { inside: 2, slots: 1 }), "{found}");
}

/// The whole of Figure 1: the second client waits for ever, whatever happens.
#[test]
fn as_printed() {
    let found = Case::new(2, 2).reserve(0).breaks(Config::PRINTED);

    is_stuck(&found);
}

/// "ADDREQUEST never reaches the owner": it has nobody to release to.
#[test]
fn the_owner_is_not_told() {
    let found = found(Case::new(3, 2), Config { owner_told: false, named_successor: false, ..ONCE });

    println!("{found}");
    is_stuck(&found);
}

/// "Replicas have no RELEASE handler": the first owner is inside for ever.
#[test]
fn replicas_do_not_hear_release() {
    let found = found(Case::new(3, 2), Config { replicas_hear_release: false, ..ONCE });

    is_stuck(&found);
}

/// "RELEASE overtaking ADDREQUEST or RESPONSE leaves a waiter behind."
#[test]
fn release_overtakes() {
    let found = found(Case::new(3, 2), Config { named_successor: false, ..ONCE });

    is_stuck(&found);
}

/// "Ordering by client clocks with a late ADDREQUEST gives two heads."
#[test]
fn two_heads() {
    let config = Config { coordinator_numbers: false, named_successor: false, owner_lease: false, ..ONCE };
    let mut stage = Stage::new(Case::new(3, 3).world(config));
    one_inside(&mut stage);
    stage.request(5);
    stage.deliver(5, 0, "request");
    stage.deliver(0, 5, "response");
    stage.deliver(0, 3, "addrequest");
    stage.lose_all();
    let found = explore_with_hope(&stage.world, MOST_STATES, 0).unwrap_err();

    println!("{}--- from here on: {} steps\n{found}\n", stage.trace, found.steps);
    is_two_inside(&found);
}

/// A client has one id for all its requests: one that comes twice is served twice, and nobody gives the second grant
/// back.
#[test]
fn requests_are_not_told_apart() {
    let case = Case::new(3, 2).with(|limits| limits.duplications = 1);

    is_stuck(&case.reserve(0).breaks(Config { requests_apart: false, ..ONCE }));
}

/// "`received(msg)` … drops retransmissions": whose answer is lost is never answered.
#[test]
fn received_drops_what_comes_again() {
    let case = Case::new(3, 1).with(|limits| (limits.losses, limits.timeouts) = (1, 4));

    is_stuck(&case.breaks(Config { coordinator_dedups: false, ..Config::REPAIRED }));
}

/// "Election by latest time stamp makes two coordinators under false suspicion."
#[test]
fn a_false_suspicion_makes_two_coordinators() {
    let config = Config { majority_lease: false, one_acts: false, one_asked: false, ..ONCE };
    let case = Case::new(3, 2).with(|limits| (limits.timeouts, limits.longest_timer) = (1, Config::PRINTED.ping));

    is_two_inside(&case.breaks(config));
}

/// … and a replica that has forgotten everything goes on as if nothing had happened.
#[test]
fn a_coordinator_that_forgets_lets_another_in() {
    let case = Case::new(3, 2).with(|limits| limits.resets = 1);

    is_two_inside(&case.breaks(Config { majority_lease: false, ..ONCE }));
}
