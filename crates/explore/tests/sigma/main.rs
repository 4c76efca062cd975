//! Sigma in every order of events, in small worlds: some replicas, and clients elsewhere.
//!
//! Time stands still, so that no lease ends; what leases do is shown in `peerlock-mutex`. Timers for retries run out at
//! any moment, within a budget. Replicas are taken to be alike, which divides the number of states by nearly n!, and
//! messages that can do nothing any more are taken away, which divides it by thirty and more where no fault can happen.
//!
//! Any other case: `PEERLOCK_CASE="replicas=3 votes=3 clients=2 resets=1" cargo test -p peerlock-explore --test sigma
//! one_case -- --nocapture`.

mod printed;
mod sabotage;
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../stage/mod.rs"]
mod stage;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::str::FromStr;

use peerlock_base::{PeerId, Span};
use peerlock_explore::{Counterexample, Explored, Limits, Violation, World, explore, explore_with_hope};
use peerlock_mutex::sigma::{Config, Sigma};
use peerlock_mutex::strawman::{self, Strawman};
use peerlock_mutex::{Quorum, Replicas};

/// More than any case of the tests has. Ten times as many take some gigabytes and minutes.
const MOST_STATES: usize = 4_000_000;

#[derive(Clone, Copy)]
struct Case {
    votes: u32,
    clients: u64,
    limits: Limits,
    /// How many time-outs must be left for a state to be judged by what can still be reached from it.
    reserve: u32,
}

impl Case {
    /// One request of each client, our form of Sigma, a network that reorders and is reliable otherwise.
    fn new(replicas: usize, votes: u32, clients: u64) -> Self {
        // Retries (0.5 s) and renewals (3.3 s) may come, ends of leases (10 s) may not.
        let limits = Limits { replicas, alike: true, tidy: true, longest_timer: Span::from_secs(5), ..Limits::new(1) };
        Self { votes, clients, limits, reserve: 1 }
    }

    fn with(self, change: fn(&mut Limits)) -> Self {
        let mut limits = self.limits;
        change(&mut limits);
        Self { limits, ..self }
    }

    fn reserve(self, reserve: u32) -> Self {
        Self { reserve, ..self }
    }

    fn world(&self, config: Config) -> World<Sigma> {
        let replicas = Replicas::first(Quorum::new(self.limits.replicas as u32, self.votes));
        World::new(self.limits, self.peers().map(|id| (id, Sigma::new(id, &replicas, config))))
    }

    fn peers(&self) -> impl Iterator<Item = PeerId> + use<> {
        (0..self.limits.replicas as u64 + self.clients).map(PeerId::new)
    }

    /// No order of events breaks anything.
    fn holds(&self) -> Explored {
        match explore_with_hope(&self.world(Config::REPAIRED), MOST_STATES, self.reserve) {
            Ok(explored) => {
                println!("{self}: {explored:?}");
                explored
            }
            Err(found) => panic!("{self}, after {} steps:\n\n{found}\n", found.steps),
        }
    }

    /// The shortest run that breaks something.
    fn breaks(&self, config: Config) -> Box<Counterexample> {
        match explore_with_hope(&self.world(config), MOST_STATES, self.reserve) {
            Ok(explored) => panic!("{self}: nothing was found: {explored:?}"),
            Err(found) => {
                println!("{self}, {} steps:\n{found}\n", found.steps);
                found
            }
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Limits { replicas, requests, withdrawals, losses, duplications, timeouts, resets, .. } = self.limits;
        write!(f, "replicas={replicas} votes={} clients={} requests={requests}", self.votes, self.clients)?;
        write!(f, " withdrawals={withdrawals} losses={losses} duplications={duplications}")?;
        write!(f, " timeouts={timeouts} reserve={} resets={resets}", self.reserve)
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut case = Self::new(3, 2, 2);
        for word in text.split_whitespace() {
            let (key, value) = word.split_once('=').ok_or_else(|| format!("{word} has no value"))?;
            let value: u32 = value.parse().map_err(|_| format!("{word} has no number"))?;
            match key {
                "replicas" => case.limits.replicas = value as usize,
                "votes" => case.votes = value,
                "clients" => case.clients = value.into(),
                "requests" => case.limits.requests = value.into(),
                "withdrawals" => case.limits.withdrawals = value,
                "losses" => case.limits.losses = value,
                "duplications" => case.limits.duplications = value,
                "timeouts" => case.limits.timeouts = value,
                "reserve" => case.reserve = value,
                "resets" => case.limits.resets = value,
                _ => return Err(format!("{word} is no part of a case")),
            }
        }
        Ok(case)
    }
}

/// The case in `PEERLOCK_CASE`, or a small one.
#[test]
fn one_case() {
    let case = std::env::var("PEERLOCK_CASE").unwrap_or("replicas=2 votes=2 clients=2".into());
    let case: Case = case.parse().unwrap();
    let explored = explore_with_hope(&case.world(Config::REPAIRED), 20 * MOST_STATES, case.reserve);
    println!("{case}: {:?}", explored.unwrap_or_else(|found| panic!("{case}:\n\n{found}")));
}

#[test]
fn a_case_can_be_typed_as_it_is_printed() {
    let text = "replicas=4 votes=3 clients=2 requests=2 withdrawals=1 losses=1 duplications=2 timeouts=3 reserve=2 \
                resets=1";
    assert_eq!(text.parse::<Case>().unwrap().to_string(), text);
    assert!("replicas=some".parse::<Case>().is_err());
}

/// What docs/papers/sigma.md says of an exploration is what it was.
fn is_documented(explored: &Explored) {
    let Explored { states, steps, .. } = explored;
    let page = include_str!("../../../../docs/papers/sigma.md").replace(',', "");
    assert!(
        page.contains(&format!("| {states} | {steps} |")),
        "{states} states and {steps} steps are not in the table"
    );
}

/// With two of three votes nobody ever needs a timer: from every state all can still be served without.
#[test]
fn two_clients_and_no_fault() {
    is_documented(&Case::new(3, 2, 2).reserve(0).holds());
    Case::new(3, 3, 2).holds();
    Case::new(2, 2, 2).with(|limits| limits.withdrawals = 2).holds();
}

#[test]
fn three_clients_at_two_replicas() {
    is_documented(&Case::new(2, 2, 3).holds());
}

/// Half a minute and half a gigabyte; the largest world of all.
#[test]
fn three_clients_at_three_replicas() {
    is_documented(&Case::new(3, 2, 3).holds());
}

/// … but three may come to wait for each other, and then it takes a timer: a replica asks for its vote back, and the
/// question overtakes the vote.
#[test]
fn three_clients_may_need_a_retry() {
    let found = Case::new(2, 2, 3).reserve(0).breaks(Config::REPAIRED);
    assert!(matches!(found.violation, Violation::Hopeless(_)), "{found}");
}

/// Fewer than 2m − n resets are safe.
#[test]
fn a_reset_and_a_loss_and_a_message_that_comes_twice() {
    let cases = [
        Case::new(3, 3, 2).with(|limits| (limits.resets, limits.losses) = (1, 1)),
        Case::new(2, 2, 2).with(|limits| (limits.resets, limits.losses, limits.duplications) = (1, 1, 1)),
        Case::new(3, 2, 2).with(|limits| limits.losses = 1),
        Case::new(3, 3, 2).with(|limits| limits.resets = 2),
    ];
    cases.iter().for_each(|case| is_documented(&case.holds()));
}

/// As many as 2m − n are not, and this is why.
#[test]
fn too_many_resets_let_two_in() {
    let found = Case::new(3, 2, 2).with(|limits| limits.resets = 1).breaks(Config::REPAIRED);

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
2 clients are inside, 1 may be"
    );
    let found = Case::new(2, 2, 2).with(|limits| limits.resets = 2).breaks(Config::REPAIRED);
    assert!(matches!(found.violation, Violation::TooManyInside { inside: 2, slots: 1 }), "{found}");
}

/// A retry makes up for what came too early, or was forgotten: from every state with a time-out left all can be served.
#[test]
fn a_retry_makes_up_for_a_reset() {
    Case::new(2, 2, 2).with(|limits| limits.timeouts = 1).holds();
    is_documented(&Case::new(2, 2, 2).with(|limits| (limits.timeouts, limits.resets) = (1, 1)).holds());
}

/// … and for a loss; but where two clients wait for each other, it may take a retry of both.
#[test]
fn a_retry_makes_up_for_a_loss() {
    let lossy = |clients| Case::new(2, 2, clients).with(|limits| (limits.timeouts, limits.losses) = (1, 1));

    lossy(1).holds();
    let found = lossy(2).breaks(Config::REPAIRED);
    assert!(matches!(found.violation, Violation::Hopeless(_)), "{found}");
}

/// Taking replicas for alike and messages away leaves nothing out. States that are taken for one can do the same, in as
/// many steps but for those in which a void message arrives; and every state there is was looked at.
#[test]
fn what_is_taken_for_one_can_do_the_same() {
    let reset = Case::new(2, 2, 2).with(|limits| limits.resets = 1);
    for case in [reset, Case::new(3, 2, 2), Case::new(3, 3, 2), Case::new(2, 2, 3)] {
        let (states, classes) = classes(&case);
        println!("{case}: {states} states, {classes} that differ");
        assert_eq!(classes, case.holds().states, "{case}");
    }
}

/// … nor makes it a run longer that breaks something.
#[test]
fn what_is_taken_for_one_breaks_as_soon() {
    let two = Case::new(2, 2, 2);
    for case in [
        Case::new(3, 2, 2).with(|limits| limits.resets = 1),
        two.with(|limits| (limits.timeouts, limits.losses) = (1, 1)),
        two.with(|limits| (limits.resets, limits.duplications) = (2, 1)),
    ] {
        let all = case.with(|limits| (limits.alike, limits.tidy) = (false, false)).breaks(Config::REPAIRED);
        assert_eq!(case.breaks(Config::REPAIRED).steps, all.steps, "{case}");
    }
}

/// How many states there are, and how many when those are taken for one that the search takes for one.
fn classes(case: &Case) -> (usize, usize) {
    let untidy = |alike| Limits { alike, tidy: false, ..case.limits };
    let start = [true, false].map(|alike| Case { limits: untidy(alike), ..*case }.world(Config::REPAIRED));
    let class_of = |world: &World<Sigma>| {
        let mut world = world.clone();
        world.tidy();
        world.fingerprint()
    };
    let mut seen = HashSet::from([start[1].fingerprint()]);
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
            if seen.insert(next[1].fingerprint()) {
                ahead.push(next);
            }
        }
        leads_to.remove(&class);
        assert_eq!(*classes.entry(class).or_insert_with(|| leads_to.clone()), leads_to);
    }
    (seen.len(), classes.len())
}

fn strawman(replicas: usize, votes: u32, clients: u64, limits: Limits, config: strawman::Config) -> World<Strawman> {
    let case = Case::new(replicas, votes, clients);
    let places = Replicas::first(Quorum::new(replicas as u32, votes));
    let limits = Limits { replicas, longest_timer: Span::from_secs(5), ..limits };
    World::new(limits, case.peers().map(|id| (id, Strawman::new(id, &places, config))))
}

/// The strawman of §3 is safe in every order, as long as no replica forgets.
#[test]
fn the_strawman_is_safe() {
    let (gives_up, backs_off) = (strawman::Config::GIVES_UP, strawman::Config::BACKS_OFF);
    let again = Limits { requests: 2, ..Limits::new(1) };
    let trouble = Limits { losses: 1, duplications: 1, timeouts: 1, ..Limits::new(1) };
    for (replicas, votes, limits, config) in [
        (3, 2, Limits::new(1), gives_up),
        (3, 2, Limits::new(1), backs_off),
        (2, 2, again, gives_up),
        (2, 2, trouble, gives_up),
        (2, 2, Limits { duplications: 0, ..trouble }, backs_off),
    ] {
        match explore(&strawman(replicas, votes, 2, limits, config), MOST_STATES) {
            Ok(explored) => println!("{replicas} replicas, {limits:?}, {config:?}: {explored:?}"),
            Err(found) => panic!("{replicas} replicas, {limits:?}, {config:?}:\n{found}"),
        }
    }
}

#[test]
fn a_reset_lets_two_into_the_strawman() {
    let limits = Limits { resets: 1, ..Limits::new(1) };

    let found = explore(&strawman(3, 2, 2, limits, strawman::Config::GIVES_UP), MOST_STATES).unwrap_err();

    assert!(matches!(found.violation, Violation::TooManyInside { inside: 2, slots: 1 }), "{found}");
}
