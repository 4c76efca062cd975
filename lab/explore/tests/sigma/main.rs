//! Sigma in small worlds of replicas and separate clients. Time does not pass. Merging permuted replicas divides the
//! number of states by nearly n!, and discarding messages without effect by thirty and more.

#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../case/mod.rs"]
mod case;
#[path = "../large/mod.rs"]
mod large;
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../mutated/mod.rs"]
mod mutated;
mod mutation;
mod printed;
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../stage/mod.rs"]
mod stage;

use std::collections::{BTreeSet, HashMap, HashSet};

use case::{Voting, is_two_inside};
use peerlock_explore::{Counterexample, Explored, Limits, Violation, World, explore};
use peerlock_protocols::sigma::{Config, Sigma};
use peerlock_protocols::strawman::{self, Strawman};
use peerlock_types::Span;

const MOST_STATES: usize = 4_000_000;

/// Retries (0.5 s) and renewals (3.3 s) may occur, ends of leases (10 s) may not.
fn case(text: &str) -> Voting {
    let limits = Limits { alike: true, tidy: true, longest_timer: Span::from_secs(5), ..Limits::new(1) };
    Voting::read(text, limits)
}

fn world(case: &Voting, config: Config) -> World<Sigma> {
    case.world(|id, replicas| Sigma::new(id, replicas, config))
}

fn holds(text: &str) -> Explored {
    holds_within(text, MOST_STATES)
}

fn holds_within(text: &str, most_states: usize) -> Explored {
    let case = case(text);
    case::holds(text, case.explore(&world(&case, Config::REPAIRED), most_states))
}

fn breaks(text: &str, config: Config) -> Box<Counterexample> {
    let case = case(text);
    case::breaks(text, case.explore(&world(&case, config), MOST_STATES))
}

#[test]
fn one_case() {
    holds_within(&case::typed("replicas=2 votes=2 clients=2"), 20 * MOST_STATES);
}

#[test]
fn large_worlds() {
    let page = include_str!("../../../docs/papers/sigma.md");
    large::worlds_are_as_documented(page, case, |text| holds(text).states);
}

fn is_documented(explored: &Explored) {
    case::is_documented(include_str!("../../../docs/papers/sigma.md"), explored);
}

#[test]
fn two_clients_and_no_fault() {
    is_documented(&holds("replicas=3 votes=2 clients=2 reserve=0"));
    holds("replicas=3 votes=3 clients=2");
    holds("replicas=2 votes=2 clients=2 withdrawals=2");
}

#[test]
fn three_clients_at_two_replicas() {
    is_documented(&holds("replicas=2 votes=2 clients=3"));
}

/// Half a minute and half a gigabyte.
#[test]
fn three_clients_at_three_replicas() {
    is_documented(&holds("replicas=3 votes=2 clients=3"));
}

/// A replica asks for its vote back, and the message overtakes the vote.
#[test]
fn three_clients_may_need_a_retry() {
    let found = breaks("replicas=2 votes=2 clients=3 reserve=0", Config::REPAIRED);
    assert!(matches!(found.violation, Violation::Hopeless(_)), "{found}");
}

#[test]
fn reset_loss_and_duplicate_are_tolerated() {
    let cases = [
        "replicas=3 votes=3 clients=2 resets=1 losses=1",
        "replicas=2 votes=2 clients=2 resets=1 losses=1 duplications=1",
        "replicas=3 votes=2 clients=2 losses=1",
        "replicas=3 votes=3 clients=2 resets=2",
    ];
    cases.iter().for_each(|case| is_documented(&holds(case)));
}

#[test]
fn too_many_resets_give_two_holders() {
    let found = breaks("replicas=3 votes=2 clients=2 resets=1", Config::REPAIRED);

    assert_eq!(
        found.to_string(),
        "\
3: request
4: request
3 → 0  REQUEST(R0, 1@3)
0: reset
0 → 3  RESPONSE(R0, 1@3, grant 1)
3 → 1  REQUEST(R1, 1@3)
1 → 3  RESPONSE(R1, 1@3, grant 1)
3: enter slot 0, fencing 1
4 → 0  REQUEST(R0, 1@4)
0 → 4  RESPONSE(R0, 1@4, grant 1.1)
4 → 2  REQUEST(R2, 1@4)
2 → 4  RESPONSE(R2, 1@4, grant 1)
4: enter slot 0, fencing 2
under way: 3 → 2  REQUEST(R2, 1@3)
under way: 4 → 1  REQUEST(R1, 1@4)
2 clients hold slots, 1 allowed"
    );
    let found = breaks("replicas=2 votes=2 clients=2 resets=2", Config::REPAIRED);
    is_two_inside(&found);
}

#[test]
fn retry_recovers_from_reset() {
    holds("replicas=2 votes=2 clients=2 timeouts=1");
    is_documented(&holds("replicas=2 votes=2 clients=2 timeouts=1 resets=1"));
}

#[test]
fn retry_recovers_from_loss() {
    holds("replicas=2 votes=2 clients=1 timeouts=1 losses=1");
    let found = breaks("replicas=2 votes=2 clients=2 timeouts=1 losses=1", Config::REPAIRED);
    assert!(matches!(found.violation, Violation::Hopeless(_)), "{found}");
}

#[test]
fn merged_states_have_same_continuations() {
    for case in [
        "replicas=2 votes=2 clients=2 resets=1",
        "replicas=3 votes=2 clients=2",
        "replicas=3 votes=3 clients=2",
        "replicas=2 votes=2 clients=3",
    ] {
        let (states, classes) = classes(case);
        println!("{case}: {states} states, {classes} that differ");
        assert_eq!(classes, holds(case).states, "{case}");
    }
}

#[test]
fn merging_keeps_counterexample_length() {
    for case in [
        "replicas=3 votes=2 clients=2 resets=1",
        "replicas=2 votes=2 clients=2 timeouts=1 losses=1",
        "replicas=2 votes=2 clients=2 resets=2 duplications=1",
    ] {
        let all = breaks(&format!("{case} alike=0 tidy=0"), Config::REPAIRED);
        assert_eq!(breaks(case, Config::REPAIRED).steps, all.steps, "{case}");
    }
}

/// Returns the number of states, and of classes that the search merges them into.
fn classes(text: &str) -> (usize, usize) {
    let start = [1, 0].map(|alike| world(&case(&format!("{text} alike={alike} tidy=0")), Config::REPAIRED));
    let class_of = |world: &World<Sigma>| {
        let mut world = world.clone();
        world.tidy();
        world.fingerprint()
    };
    let mut found = HashSet::from([start[1].fingerprint()]);
    let mut classes: HashMap<u64, BTreeSet<u64>> = HashMap::new();
    let mut ahead = vec![start];
    while let Some([alike, apart]) = ahead.pop() {
        let class = class_of(&alike);
        let mut leads_to = BTreeSet::new();
        let mut actions = Vec::new();
        alike.actions(&mut actions);
        for action in &actions {
            let mut next = [alike.clone(), apart.clone()];
            next.iter_mut().for_each(|world| assert_eq!(world.apply(action, &mut Vec::new()), None));
            leads_to.insert(class_of(&next[0]));
            if found.insert(next[1].fingerprint()) {
                ahead.push(next);
            }
        }
        leads_to.remove(&class);
        assert_eq!(*classes.entry(class).or_insert_with(|| leads_to.clone()), leads_to);
    }
    (found.len(), classes.len())
}

fn strawman(text: &str, config: strawman::Config) -> case::Outcome {
    let case = case(&format!("{text} alike=0 tidy=0"));
    explore(&case.world(|id, replicas| Strawman::new(id, replicas, config)), MOST_STATES)
}

#[test]
fn the_strawman_is_safe() {
    let (gives_up, backs_off) = (strawman::Config::GIVES_UP, strawman::Config::BACKS_OFF);
    for (text, config) in [
        ("replicas=3 votes=2 clients=2", gives_up),
        ("replicas=3 votes=2 clients=2", backs_off),
        ("replicas=2 votes=2 clients=2 requests=2", gives_up),
        ("replicas=2 votes=2 clients=2 losses=1 duplications=1 timeouts=1", gives_up),
        ("replicas=2 votes=2 clients=2 losses=1 timeouts=1", backs_off),
    ] {
        case::holds(&format!("{text}, {config:?}"), strawman(text, config));
    }
}

#[test]
fn reset_gives_strawman_two_holders() {
    let text = "replicas=3 votes=2 clients=2 resets=1";

    is_two_inside(&case::breaks(text, strawman(text, strawman::Config::GIVES_UP)));
}
