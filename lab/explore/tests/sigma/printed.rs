//! Defects of the printed form: as printed, and with one repair off and all others on. If two defects need the same
//! repair, the one with the longer run is found from a stage that allows only that one.

use peerlock_explore::{Counterexample, Violation, explore, seek};
use peerlock_protocols::sigma::{Config, Sigma};

use crate::case::is_two_inside;
use crate::large::is_for_now;
use crate::stage::Stage;
use crate::{MOST_STATES, case, world};

const NOT_APART: Config = Config { requests_apart: false, ..Config::REPAIRED };
const NOT_NUMBERED: Config = Config { numbered_grants: false, ..Config::REPAIRED };

/// Finds the shortest run of three replicas with two votes from a stage.
fn found(text: &str, config: Config, set: fn(&mut Stage<Sigma>)) -> Box<Counterexample> {
    let mut stage = Stage::new(world(&case(&format!("replicas=3 votes=2 {text}")), config));
    set(&mut stage);
    stage.breaks(explore(&stage.world, MOST_STATES))
}

fn lets_two_in(text: &str, config: Config) -> String {
    let world = world(&case(&format!("replicas=3 votes=2 clients=2 {text}")), config);
    let found = seek(&world, MOST_STATES, |violation| matches!(violation, Violation::TooManyHolders { .. }));
    let found = crate::case::breaks(text, found);
    found.trace.to_string().lines().filter(|text| !text.starts_with("under way")).collect::<Vec<_>>().join("\n")
}

/// When a client requests a second time, R1's answer to its first request still counts, although R1 has another owner.
#[test]
fn printed_form_gives_two_holders_without_fault() {
    assert_eq!(
        lets_two_in("requests=2", Config::PRINTED),
        "\
3: request
4: request
3 → 0  REQUEST(R0, 1@3)
0 → 3  RESPONSE(R0, 1@3, grant 1)
3 → 1  REQUEST(R1, 1@3)
1 → 3  RESPONSE(R1, 1@3, grant 1)
3: enter slot 0, fencing 1
3: leave
3#2: request
3 → 0  REQUEST(R0, 2@3)
0 → 3  RESPONSE(R0, 1@3, grant 1)
3#2: enter slot 0, fencing 2
3 → 1  RELEASE(R1, 1@3)
4 → 1  REQUEST(R1, 1@4)
1 → 4  RESPONSE(R1, 1@4, grant 2)
4 → 2  REQUEST(R2, 1@4)
2 → 4  RESPONSE(R2, 1@4, grant 1)
4: enter slot 0, fencing 2"
    );
}

/// Old votes let a client enter with its old fencing number.
#[test]
fn resp_is_not_cleared() {
    let found = found("clients=2 requests=2", NOT_APART, |_| {});

    assert_eq!(
        found.to_string(),
        "\
3: request
3 → 0  REQUEST(R0, 1@3)
0 → 3  RESPONSE(R0, 1@3, grant 1)
3 → 1  REQUEST(R1, 1@3)
1 → 3  RESPONSE(R1, 1@3, grant 1)
3: enter slot 0, fencing 1
3: leave
3#2: request
3 → 2  REQUEST(R2, 1@3)
2 → 3  RESPONSE(R2, 1@3, grant 1)
3#2: enter slot 0, fencing 1
under way: 3 → 0  REQUEST(R0, 2@3)
under way: 3 → 0  RELEASE(R0, 1@3)
under way: 3 → 1  REQUEST(R1, 2@3)
under way: 3 → 1  RELEASE(R1, 1@3)
under way: 3 → 2  REQUEST(R2, 2@3)
under way: 3 → 2  RELEASE(R2, 1@3)
3 enters slot 0 with fencing number 1, which is not new"
    );
}

/// Both votes that 3#2 counts are for 3, which has released R0's.
#[test]
fn a_late_grant_is_counted() {
    assert_eq!(
        lets_two_in("requests=2 withdrawals=1", NOT_APART),
        "\
3: request
3: withdraw
3#2: request
4: request
3 → 0  REQUEST(R0, 1@3)
0 → 3  RESPONSE(R0, 1@3, grant 1)
3 → 0  RELEASE(R0, 1@3)
3 → 1  REQUEST(R1, 1@3)
1 → 3  RESPONSE(R1, 1@3, grant 1)
3#2: enter slot 0, fencing 1
4 → 0  REQUEST(R0, 1@4)
0 → 4  RESPONSE(R0, 1@4, grant 2)
4 → 2  REQUEST(R2, 1@4)
2 → 4  RESPONSE(R2, 1@4, grant 1)
4: enter slot 0, fencing 1"
    );
}

/// Of each client's first request all messages but RELEASE were lost.
#[test]
fn a_late_release_hits_the_next_request() {
    let found = found("clients=2 requests=2 withdrawals=2 losses=9", NOT_APART, |stage| {
        for client in [3, 4] {
            stage.request(client);
            (0..3).for_each(|replica| stage.lose(client, replica, "request"));
            stage.withdraw(client, 1);
        }
        (0..3).for_each(|replica| stage.lose(4, replica, "release"));
        stage.request(3);
    });

    is_two_inside(&found);
}

/// A client has R1 and R2, but does not know of R1 yet. Client 3, the earliest, has R0 and requests R2 a second time:
/// the other client yields it.
fn yields(stage: &mut Stage<Sigma>, later: u64) {
    stage.deliver(later, 2, "request");
    stage.deliver(2, later, "response");
    stage.deliver(3, 0, "request");
    stage.deliver(later, 1, "request");
    stage.deliver(3, 2, "request");
    stage.deliver(2, later, "inquire");
    stage.wake(3);
    stage.deliver(3, 2, "request");
    stage.deliver(2, later, "inquire");
}

/// An answer to a retry arrives twice: before the client yields, and after.
#[test]
fn a_vote_that_was_yielded_is_counted_again() {
    assert_eq!(
        lets_two_in("duplications=1 timeouts=1", NOT_NUMBERED),
        "\
3: request
3: timer Wake(t1)
4: request
3 → 0  REQUEST(R0, 1@3)
0 → 3  RESPONSE(R0, 1@3, grant 1)
4 → 1  REQUEST(R1, 1@4)
1 → 4  RESPONSE(R1, 1@4, grant 1) (will arrive twice)
1 → 4  RESPONSE(R1, 1@4, grant 1)
3 → 1  REQUEST(R1, 1@3)
1 → 4  INQUIRE(R1, 1@4, grant 1)
3 → 1  REQUEST(R1, 1@3)
1 → 4  INQUIRE(R1, 1@4, grant 1)
1 → 4  RESPONSE(R1, 1@4, grant 1)
4 → 1  YIELD(R1, 1@4, grant 1)
1 → 3  RESPONSE(R1, 1@3, grant 2)
3: enter slot 0, fencing 1
4 → 2  REQUEST(R2, 1@4)
2 → 4  RESPONSE(R2, 1@4, grant 1)
4: enter slot 0, fencing 1"
    );
}

#[test]
fn yielded_vote_is_counted_once_without_retry() {
    let states = |fault: &str| {
        let world = world(&case(&format!("replicas=3 votes=2 clients=2 {fault}")), NOT_NUMBERED);
        let none = seek(&world, MOST_STATES, |violation| matches!(violation, Violation::TooManyHolders { .. }));
        none.unwrap_or_else(|found| panic!("with {fault}:\n{found}")).states
    };
    assert_eq!(states("duplications=1"), 171_392);
    if is_for_now(1_203_255) {
        assert_eq!(states("timeouts=1"), 1_203_255);
    }
}

/// The duplicate of a YIELD returns the next grant, and the vote goes to client 4.
#[test]
fn a_late_yield_hits_the_next_grant() {
    let found = found("clients=3 duplications=1 timeouts=1 withdrawals=1", NOT_NUMBERED, |stage| {
        stage.request(3);
        stage.request(5);
        yields(stage, 5);
        stage.duplicate(5, 2, "yield");
        stage.deliver(5, 2, "yield");
        stage.withdraw(3, 1);
        (0..3).for_each(|replica| stage.deliver(3, replica, "release"));
    });

    is_two_inside(&found);
}
