//! The coordinator protocol in every order of events, in small worlds: three replicas, and clients elsewhere.
//!
//! What leases promise is in `timed.rs`. Elsewhere time stands still, and timers for retries run out at any moment,
//! within a budget.
//!
//! Any other case: `PEERLOCK_CASE="replicas=3 clients=2 duplications=1" cargo test -p peerlock-explore --test
//! coordinator one_case -- --nocapture`.

mod printed;
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../stage/mod.rs"]
mod stage;
mod timed;

use std::fmt;
use std::str::FromStr;

use peerlock_base::{PeerId, Span};
use peerlock_explore::{Counterexample, Explored, Limits, World, explore_with_hope};
use peerlock_mutex::coordinator::{Config, Coordinator};
use peerlock_mutex::{Quorum, Replicas};
use stage::Stage;

/// More than any case of the tests has. Ten times as many take some gigabytes and minutes.
const MOST_STATES: usize = 3_000_000;

#[derive(Clone, Copy)]
struct Case {
    clients: u64,
    limits: Limits,
    /// How many time-outs must be left for a state to be judged by what can still be reached from it.
    reserve: u32,
}

impl Case {
    /// One request of each client, a network that reorders and is reliable otherwise.
    fn new(replicas: usize, clients: u64) -> Self {
        let limits = Limits { replicas, longest_timer: Span::from_millis(900), ..Limits::new(1) };
        Self { clients, limits, reserve: 1 }
    }

    fn with(self, change: fn(&mut Limits)) -> Self {
        let mut limits = self.limits;
        change(&mut limits);
        Self { limits, ..self }
    }

    fn reserve(self, reserve: u32) -> Self {
        Self { reserve, ..self }
    }

    fn world(&self, config: Config) -> World<Coordinator> {
        let n = self.limits.replicas as u32;
        let replicas = Replicas::first(Quorum::new(n, n / 2 + 1));
        let peers = (0..u64::from(n) + self.clients).map(PeerId::new);
        World::new(self.limits, peers.map(|id| (id, Coordinator::new(id, &replicas, config))))
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
        write!(f, "replicas={replicas} clients={} requests={requests} withdrawals={withdrawals}", self.clients)?;
        write!(f, " losses={losses} duplications={duplications} timeouts={timeouts} reserve={}", self.reserve)?;
        write!(f, " resets={resets}")
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut case = Self::new(3, 2);
        for word in text.split_whitespace() {
            let (key, value) = word.split_once('=').ok_or_else(|| format!("{word} has no value"))?;
            let value: u32 = value.parse().map_err(|_| format!("{word} has no number"))?;
            match key {
                "replicas" => case.limits.replicas = value as usize,
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
    let case = std::env::var("PEERLOCK_CASE").unwrap_or("replicas=1 clients=2".into());
    let case: Case = case.parse().unwrap();
    let explored = explore_with_hope(&case.world(Config::REPAIRED), 5 * MOST_STATES, case.reserve);
    println!("{case}: {:?}", explored.unwrap_or_else(|found| panic!("{case}:\n\n{found}")));
}

/// Replica 0 is in office and client 3 inside, with nothing under way.
fn one_inside(stage: &mut Stage<Coordinator>) {
    stage.request(3);
    stage.deliver(3, 0, "request");
    for replica in 1..3 {
        stage.deliver(0, replica, "iamcoordinator");
        stage.deliver(replica, 0, "update");
    }
    stage.deliver(0, 3, "response");
}

/// What docs/papers/coordinator.md says of an exploration is what it was.
fn is_documented(explored: &Explored) {
    let Explored { states, steps, .. } = explored;
    let page = include_str!("../../../../docs/papers/coordinator.md").replace(',', "");
    assert!(
        page.contains(&format!("| {states} | {steps} |")),
        "{states} states and {steps} steps are not in the table"
    );
}

/// No order of events from a stage on breaks anything.
fn holds_from(stage: &Stage<Coordinator>, reserve: u32) -> Explored {
    match explore_with_hope(&stage.world, MOST_STATES, reserve) {
        Ok(explored) => {
            println!("{}--- from here on: {explored:?}", stage.trace);
            explored
        }
        Err(found) => panic!("{}--- from here on: {} steps\n{found}\n", stage.trace, found.steps),
    }
}

#[test]
fn two_clients_from_the_beginning() {
    is_documented(&Case::new(3, 2).reserve(0).holds());
    is_documented(&Case::new(3, 2).reserve(0).with(|limits| limits.withdrawals = 1).holds());
}

/// One more is in the line, and everybody has been told.
fn one_waits(stage: &mut Stage<Coordinator>, client: u64) {
    stage.request(client);
    stage.deliver(client, 0, "request");
    stage.deliver(0, client, "response");
    (1..client).filter(|&other| other != client).for_each(|other| stage.deliver(0, other, "addrequest"));
}

/// Nothing is lost here, so nothing is sent again.
const ONCE: Config = Config { resends: false, ..Config::REPAIRED };

#[test]
fn three_clients() {
    let mut stage = Stage::new(Case::new(1, 3).world(ONCE));
    holds_from(&stage, 0);
    stage = Stage::new(Case::new(3, 3).world(ONCE));
    one_inside(&mut stage);
    one_waits(&mut stage, 4);
    is_documented(&holds_from(&stage, 0));
}

#[test]
fn four_clients() {
    let mut stage = Stage::new(Case::new(3, 4).world(ONCE));
    one_inside(&mut stage);
    one_waits(&mut stage, 4);
    one_waits(&mut stage, 5);
    is_documented(&holds_from(&stage, 0));
}

#[test]
fn a_message_that_comes_twice() {
    let mut stage = Stage::new(Case::new(3, 2).with(|limits| limits.duplications = 1).world(Config::REPAIRED));
    one_inside(&mut stage);
    is_documented(&holds_from(&stage, 0));
}

/// From every state with a retry left all can still be served.
#[test]
fn a_loss_that_is_made_up_for() {
    let case = Case::new(3, 2).with(|limits| (limits.losses, limits.timeouts) = (1, 1));
    // Whoever waits asks again after a third of the lease.
    let mut stage = Stage::new(case.world(Config { lease: Span::from_secs(2), ..Config::REPAIRED }));
    one_inside(&mut stage);
    one_waits(&mut stage, 4);
    is_documented(&holds_from(&stage, 1));
}

/// A replica that has lost its memory lets nobody in; time stands still here, so that no other can take its place.
#[test]
fn a_replica_that_forgets() {
    let mut stage = Stage::new(Case::new(3, 2).with(|limits| limits.resets = 1).world(Config::REPAIRED));
    one_inside(&mut stage);
    is_documented(&holds_from(&stage, 1));
}
