//! Custody in every order of events, in small worlds with an abstract register.
//!
//! A case that fails prints how to play it alone. The same way explores any other case, for example a larger one:
//! `PEERLOCK_CASE="peers=3 slots=1 parties=2 stops=2 sessions=1" cargo test -p peerlock-explore --test custody one_case
//! -- --nocapture`. Worlds that are too large for every day are listed with their states and times in
//! lab/docs/custody.md.
//!
//! **What a world is.** There are `peers` peers, of which the first `parties` are parties of the resource from the
//! beginning, with all tokens at peer 0; the others join before their first request. Each peer's clients make
//! `requests` requests, at most `clients` at a time. `stops`, `sessions`, `takeovers`, `forces`, `forgets`, `removes`,
//! `detached`, `renewals`, `repeats` and `withdrawals` may each happen at most this many times, to anybody, at any
//! moment (a removal when somebody sees that nobody takes part, and what is asked of the register then takes any time;
//! a renewal at a later process of a detached client's host). Where there are renewals a process may take a detached
//! grant for over, and its client not know; `resize` and `then` are the numbers of slots that follow. `unreachable`
//! times the coordinator cannot reach a peer where somebody waits, for any time. A session may end at any moment after
//! its peer has stopped. With `any`, the register names any party as coordinator. Messages, words of the register and
//! wishes to it take any time and overtake each other. A generation has 100 fencing numbers unless `numbers` says
//! otherwise. Arrival numbers are told at once, or with `timeouts`, when a timer runs out. Without `parties` there is
//! no register.
//!
//! **What is checked**, in every state: at most one token of each slot, and none where a detached client is inside; who
//! enters is one of at most as many as there are slots, has a slot of its own, and a number above all earlier ones of
//! the slot that nobody else had; with one slot, nobody who waits was told an earlier arrival; and where nothing is
//! under way, nobody has stopped and nothing is detached, no slot is empty while somebody waits. Whenever nothing is
//! left that happens by itself: nobody waits, and every slot's token exists. Who was forced out does not count for any
//! of it until it has heard of that, or takes part again with nothing from before.
//!
//! **No run without end.** As in late binding, numbers only grow, so that an exploration that comes to its end has
//! shown that every run does.

mod case;
#[path = "../large/mod.rs"]
mod large;
mod rules;
mod walks;

use std::sync::{Mutex, PoisonError};

use case::{Case, case};

/// The case in `PEERLOCK_CASE`, or a small one.
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
fn a_case_can_be_typed_as_it_is_printed() {
    let text = "peers=3 slots=2 requests=4 clients=2 withdrawals=1 unreachable=1 timeouts=1 numbers=8 reach=2 \
                ahead=1 ordered=1 untidy=1 parties=2 stops=3 sessions=1 takeovers=2 forces=1 \
                forgets=1 removes=1 detached=2 renewals=1 repeats=1 resize=1 then=2 any=1";
    assert_eq!(case(text).to_string(), text);
    assert!("peers=many".parse::<Case>().is_err());
    assert!("pears=3".parse::<Case>().is_err());
}

/// How many of the tests below explore worlds.
const TESTS: usize = 17;

/// What they have explored so far: how many tests, worlds and states.
static EXPLORED: Mutex<(usize, usize, usize)> = Mutex::new((0, 0, 0));

/// All of these hold. When all tests have come to their end, in whichever order, the page has the sum.
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

/// `6,712,345`
fn in_thousands(number: usize) -> String {
    let below = |number: usize| format!("{:03}", number % 1000);
    match (number / 1_000_000, number / 1000) {
        (0, 0) => number.to_string(),
        (0, thousands) => format!("{thousands},{}", below(number)),
        (millions, thousands) => format!("{millions},{},{}", below(thousands), below(number)),
    }
}

/// As long as nobody dies the register is not needed, and no slot is empty while somebody waits.
#[test]
fn nobody_dies() {
    hold(&[
        "peers=3 slots=1",
        "peers=3 slots=2",
        "peers=3 slots=1 requests=2",
        "peers=2 slots=2 requests=2 clients=2",
        "peers=2 slots=1 requests=2 withdrawals=2",
    ]);
}

/// The coordinator cannot reach a peer where somebody waits, and reaches it again at some time.
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

/// What nobody uses is given up, by the coordinator, by who has the token, by who has nothing, and asked for again.
#[test]
fn what_is_given_up() {
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

/// Nobody takes part any more, the resource is removed, and founded again by who asks: while that is under way, twice,
/// with deaths and with messages of before.
#[test]
fn what_is_removed() {
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

/// Who asks or answers again because an answer is late does no harm. Nor does a copy of an order that was done: force
/// counts only for the participation that was seen when it was asked for.
#[test]
fn words_and_wishes_that_arrive_twice() {
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

/// Messages that can do nothing any more are taken away, which makes worlds ten times smaller. It must leave nothing
/// out.
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

/// Who comes next is said so little ahead that the token comes to the end of it, with others behind.
#[test]
fn little_is_said_ahead() {
    hold(&[
        "peers=3 slots=1 requests=2 reach=1 ordered",
        "peers=3 slots=1 requests=2 clients=2 reach=2 ordered",
        "peers=2 slots=1 requests=2 clients=2 withdrawals=1 reach=1",
        "peers=3 slots=1 reach=1 parties=2 stops=1",
        "peers=3 slots=1 withdrawals=1 reach=2 parties=3 stops=1",
    ]);
}

/// Who comes next is said ahead with several slots, too, as where stays are short.
#[test]
fn said_ahead_with_several_slots() {
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
fn numbers_that_run_out() {
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

/// Among them those where an entry of a grant that was left early is still there when the slot's next one dies.
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

/// Who is detached comes to the next process of its host, which finds the grant in the register and has no token of it.
/// Among them those where an earlier process has taken the grant for over, and its client does not know.
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
