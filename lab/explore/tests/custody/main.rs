//! Custody in every order of events, in small worlds with an abstract registry. lab/docs/custody.md explains the words
//! of a world and the checks, and lists the worlds that are too large for every run. Without `parties` there is no
//! registry.

mod case;
#[path = "../large/mod.rs"]
mod large;
mod rules;
mod walks;

use std::sync::{Mutex, PoisonError};

use case::{Case, case};

#[test]
fn one_case() {
    let text = std::env::var("PEERLOCK_CASE").unwrap_or("peers=2 slots=1 parties=2 stops=1".into());
    case(&text).holds();
}

#[test]
fn large_worlds() {
    let page = include_str!("../../../docs/custody.md");
    large::worlds_are_as_documented(page, case, |text| case(text).holds().states);
}

#[test]
fn case_parses_its_printed_form() {
    let text = "peers=3 slots=2 requests=4 clients=2 withdrawals=1 unreachable=1 timeouts=1 numbers=8 reach=2 \
                ahead=1 ordered=1 untidy=1 parties=2 stops=3 sessions=1 takeovers=2 forces=1 \
                forgets=1 removes=1 detached=2 renewals=1 repeats=1 resize=1 then=2 any=1";
    assert_eq!(case(text).to_string(), text);
    assert!("peers=many".parse::<Case>().is_err());
    assert!("pears=3".parse::<Case>().is_err());
}

const TESTS: usize = 17;

static EXPLORED: Mutex<(usize, usize, usize)> = Mutex::new((0, 0, 0));

/// The last test to finish compares the sum with the page.
fn hold(worlds: &[&str]) {
    let states: usize = worlds.iter().map(|world| case(world).holds().states).sum();
    let mut explored = EXPLORED.lock().unwrap_or_else(PoisonError::into_inner);
    *explored = (explored.0 + 1, explored.1 + worlds.len(), explored.2 + states);
    if explored.0 == TESTS {
        let page = include_str!("../../../docs/custody.md").replace('\n', " ");
        let sum = format!("{} worlds and {} states", explored.1, in_thousands(explored.2));
        assert!(page.contains(&sum), "{sum}: that is what is explored every day, and not what the page says");
    }
}

fn in_thousands(number: usize) -> String {
    let below = |number: usize| format!("{:03}", number % 1000);
    match (number / 1_000_000, number / 1000) {
        (0, 0) => number.to_string(),
        (0, thousands) => format!("{thousands},{}", below(number)),
        (millions, thousands) => format!("{millions},{},{}", below(thousands), below(number)),
    }
}

#[test]
fn without_crashes_no_slot_stays_free() {
    hold(&[
        "peers=3 slots=1",
        "peers=3 slots=2",
        "peers=3 slots=1 requests=2",
        "peers=2 slots=2 requests=2 clients=2",
        "peers=2 slots=1 requests=2 withdrawals=2",
    ]);
}

#[test]
fn unreachable_waiters_are_passed_over_and_served_later() {
    hold(&[
        "peers=3 slots=1 unreachable=2",
        "peers=3 slots=2 unreachable=1",
        "peers=3 slots=1 reach=1 unreachable=1",
        "peers=2 slots=1 requests=2 withdrawals=1 unreachable=1",
        "peers=3 slots=1 unreachable=1 parties=3 stops=1",
    ]);
}

#[test]
fn deaths() {
    hold(&[
        "peers=3 slots=1 parties=3 stops=2",
        "peers=3 slots=1 parties=3 stops=2 any",
        "peers=3 slots=2 parties=3 stops=2",
        "peers=3 slots=3 parties=3 stops=1",
        "peers=2 slots=1 parties=2 stops=1 timeouts=3",
        "peers=4 slots=1 parties=4 stops=1",
    ]);
}

#[test]
fn unused_resource_is_left_and_joined_again() {
    hold(&[
        "peers=2 slots=1 requests=2 parties=2 forgets=2",
        "peers=2 slots=1 requests=2 parties=2 forgets=2 repeats=1",
        "peers=2 slots=2 requests=2 parties=2 forgets=2",
        "peers=3 slots=1 parties=3 forgets=2",
        "peers=3 slots=1 parties=2 forgets=2",
        "peers=2 slots=1 parties=2 forgets=1 stops=1 sessions=1",
        "peers=2 slots=1 requests=2 withdrawals=1 parties=2 forgets=1",
        "peers=2 slots=1 withdrawals=1 parties=2 forgets=1 resize=2 then=1",
        "peers=2 slots=1 withdrawals=1 parties=1 forgets=1 repeats=1 resize=2",
        "peers=2 slots=1 parties=2 forces=1 forgets=1",
        "peers=2 slots=1 parties=2 forgets=1 detached=1 stops=1",
        "peers=2 slots=2 parties=2 forgets=1 resize=1",
    ]);
}

#[test]
fn unused_resource_is_removed_and_created_again() {
    hold(&[
        "peers=2 slots=1 requests=2 parties=1 forgets=1 removes=1 repeats=1",
        "peers=2 slots=1 requests=2 parties=1 forgets=2 removes=2",
        "peers=2 slots=2 requests=2 parties=1 forgets=2 removes=1",
        "peers=3 slots=1 parties=1 forgets=2 removes=1",
        "peers=2 slots=1 parties=2 stops=1 sessions=1 forgets=1 removes=1",
        "peers=2 slots=1 parties=2 forces=1 forgets=1 removes=1",
        "peers=2 slots=1 parties=2 stops=1 forgets=1 removes=1 detached=1",
        "peers=2 slots=1 parties=1 takeovers=1 forgets=1 removes=1",
    ]);
}

#[test]
fn joins_and_new_sessions() {
    hold(&[
        "peers=3 slots=1 parties=0",
        "peers=2 slots=2 parties=0 stops=2 sessions=1",
        "peers=3 slots=1 parties=2 stops=2",
        "peers=3 slots=2 parties=2 stops=1",
        "peers=3 slots=1 parties=2 stops=1 sessions=1",
    ]);
}

#[test]
fn duplicated_registry_messages_are_harmless() {
    hold(&[
        "peers=2 slots=1 parties=0 stops=1 sessions=1 repeats=2",
        "peers=2 slots=1 parties=2 forces=1 repeats=1",
        "peers=2 slots=1 requests=2 parties=2 forces=1 repeats=1",
        "peers=2 slots=1 parties=2 repeats=1 resize=2 then=3",
        "peers=2 slots=1 parties=2 takeovers=1 forces=1 detached=1 renewals=1 repeats=1",
        "peers=2 slots=1 parties=2 stops=1 detached=1 repeats=1",
        "peers=3 slots=1 parties=2 stops=1 repeats=1",
    ]);
}

#[test]
fn void_messages_left_under_way() {
    hold(&[
        "peers=2 slots=1 parties=2 stops=1 sessions=1 untidy",
        "peers=2 slots=1 parties=2 takeovers=1 stops=1 untidy",
        "peers=3 slots=1 parties=2 stops=1 untidy",
    ]);
}

#[test]
fn withdrawals() {
    hold(&["peers=3 slots=1 parties=2 stops=1 withdrawals=1", "peers=2 slots=1 parties=2 stops=1 withdrawals=2"]);
}

#[test]
fn one_hand_over_ahead_suffices() {
    hold(&[
        "peers=3 slots=1 requests=2 reach=1 ordered",
        "peers=3 slots=1 requests=2 clients=2 reach=2 ordered",
        "peers=2 slots=1 requests=2 clients=2 withdrawals=1 reach=1",
        "peers=3 slots=1 reach=1 parties=2 stops=1",
        "peers=3 slots=1 withdrawals=1 reach=2 parties=3 stops=1",
    ]);
}

#[test]
fn successors_with_several_slots() {
    hold(&[
        "peers=2 slots=2 requests=3 clients=3 reach=4 ahead ordered",
        "peers=2 slots=2 requests=2 clients=2 reach=4 ahead ordered parties=2 stops=1",
        "peers=2 slots=1 requests=2 clients=2 reach=4 ahead ordered parties=2 resize=2",
    ]);
}

#[test]
fn other_numbers_of_slots() {
    hold(&[
        "peers=2 slots=2 requests=2 parties=2 resize=1",
        "peers=2 slots=1 requests=2 parties=2 resize=2",
        "peers=2 slots=2 parties=2 resize=1 then=2 stops=1",
        "peers=2 slots=2 parties=2 resize=3 stops=1",
    ]);
}

#[test]
fn exhausted_numbers_are_renewed() {
    hold(&[
        "peers=2 slots=1 requests=2 parties=1 numbers=4",
        "peers=2 slots=1 requests=2 parties=2 numbers=3 withdrawals=1",
    ]);
}

#[test]
fn take_overs() {
    hold(&[
        "peers=2 slots=1 parties=2 takeovers=1 stops=1",
        "peers=2 slots=2 parties=2 takeovers=2",
        "peers=3 slots=1 parties=2 takeovers=1",
    ]);
}

/// In some worlds the entry of a released grant still exists when the slot's next holder crashes.
#[test]
fn detached_grants() {
    hold(&[
        "peers=2 slots=1 parties=2 stops=2 detached=2",
        "peers=2 slots=2 parties=2 stops=1 detached=2 resize=1",
        "peers=3 slots=1 parties=3 stops=1 detached=1",
        "peers=2 slots=1 parties=2 takeovers=1 stops=1 detached=1",
        "peers=2 slots=1 parties=2 stops=1 sessions=1 detached=1",
        "peers=2 slots=1 parties=1 stops=1 sessions=1 detached=1 forces=1",
    ]);
}

#[test]
fn detached_grants_at_the_next_process() {
    hold(&[
        "peers=2 slots=1 parties=2 takeovers=2 detached=1 renewals=1",
        "peers=2 slots=2 parties=2 takeovers=1 detached=1 renewals=1 resize=1",
        "peers=2 slots=2 parties=2 stops=1 sessions=1 detached=2 renewals=2",
        "peers=2 slots=1 parties=2 stops=1 sessions=1 detached=1 renewals=1 repeats=1",
        "peers=2 slots=1 parties=2 takeovers=1 forces=1 detached=1 renewals=1",
        "peers=3 slots=1 parties=3 takeovers=1 detached=1 renewals=1",
    ]);
}

#[test]
fn force() {
    hold(&[
        "peers=2 slots=1 parties=1 forces=1 stops=1",
        "peers=2 slots=1 parties=2 forces=2",
        "peers=2 slots=1 parties=2 forces=1 takeovers=1",
        "peers=2 slots=1 requests=2 parties=2 forces=1 takeovers=1",
        "peers=2 slots=1 parties=2 forces=1 detached=1 stops=1",
        "peers=2 slots=1 parties=2 stops=1 takeovers=1 forces=1 detached=1",
    ]);
}
