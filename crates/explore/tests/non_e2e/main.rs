//! Non-E2E in every order of events, on small routes that never change.
//!
//! Time stands still, so that no lease ends; what leases do is shown in `peerlock-mutex`. Timers for asking again and
//! for pings run out at any moment, within a budget.

use std::sync::Arc;

use peerlock_base::{PeerId, Span};
use peerlock_explore::{Counterexample, Explored, Limits, Violation, World, explore_with_hope};
use peerlock_mutex::non_e2e::{Config, NonE2e};
use peerlock_mutex::{Quorum, Replicas};
use peerlock_peer::fixed::{OnRoutes, Routes};

/// More than any case of the tests has.
const MOST_STATES: usize = 5_000_000;

/// Which way a client's messages take to a replica.
type Ways = fn(client: u64, replica: u64) -> Vec<u64>;

#[derive(Clone)]
struct Case {
    votes: u32,
    replicas: u32,
    clients: Vec<u64>,
    ways: Ways,
    limits: Limits,
    reserve: u32,
}

/// Renewals and the ends of leases do not come here; everything else may.
const REPAIRED: Config = Config { lease: Span::from_secs(1000), ..Config::REPAIRED };

impl Case {
    /// Peers from 0: the replicas, then `hops` without clients, then the clients.
    fn new(replicas: u32, votes: u32, hops: u64, clients: u64, ways: Ways) -> Self {
        let first = u64::from(replicas) + hops;
        let limits = Limits { replicas: first as usize, longest_timer: Span::from_secs(100), ..Limits::new(1) };
        Self { votes, replicas, clients: (first..first + clients).collect(), ways, limits, reserve: 1 }
    }

    fn with(self, change: fn(&mut Limits)) -> Self {
        let mut limits = self.limits;
        change(&mut limits);
        Self { limits, ..self }
    }

    fn reserve(self, reserve: u32) -> Self {
        Self { reserve, ..self }
    }

    fn world(&self, config: Config) -> World<OnRoutes<NonE2e>> {
        let replicas = Replicas::on_overlay("resource", Quorum::new(self.replicas, self.votes));
        let mut routes = Routes::default();
        for replica in 0..self.replicas {
            let key = replicas.key(replica).expect("on an overlay every replica has a key");
            for &client in &self.clients {
                routes = routes.with(key, &(self.ways)(client, replica.into()));
            }
        }
        let routes = Arc::new(routes);
        let peer = |id| (id, OnRoutes::new(NonE2e::new(id, &replicas, config), routes.clone()));
        World::new(self.limits, (0..=self.clients[self.clients.len() - 1]).map(PeerId::new).map(peer))
    }

    fn run(&self, config: Config) -> Result<Explored, Box<Counterexample>> {
        explore_with_hope(&self.world(config), MOST_STATES, self.reserve)
    }

    /// No order of events breaks anything.
    fn holds(&self) -> Explored {
        match self.run(REPAIRED) {
            Ok(explored) => {
                println!("{:?}: {explored:?}", self.limits);
                explored
            }
            Err(found) => panic!("{:?}, after {} steps:\n\n{found}\n", self.limits, found.steps),
        }
    }

    /// The shortest run that breaks something.
    fn breaks(&self, config: Config) -> Box<Counterexample> {
        match self.run(config) {
            Ok(explored) => panic!("{:?}: nothing was found: {explored:?}", self.limits),
            Err(found) => {
                println!("{} steps:\n{found}\n", found.steps);
                found
            }
        }
    }
}

/// All ways to a single replica lead through peer 1.
fn to_one_replica(client: u64, replica: u64) -> Vec<u64> {
    vec![client, 1, replica]
}

/// All ways to two replicas lead through peer 2.
fn to_two_replicas(client: u64, replica: u64) -> Vec<u64> {
    vec![client, 2, replica]
}

/// Client 3 is the hop of client 4 …, and the first of them stands at the door of the replica.
fn in_a_line(client: u64, replica: u64) -> Vec<u64> {
    (replica..=client).rev().collect()
}

/// Replica 1 is the hop to replica 0.
fn by_the_other_replica(client: u64, replica: u64) -> Vec<u64> {
    if replica == 0 { vec![client, 1, 0] } else { vec![client, replica] }
}

/// What takes too long for every day: `PEERLOCK_CASE=three-at-two-replicas cargo test -p peerlock-explore --test non_e2e
/// one_case -- --nocapture`.
#[test]
fn one_case() {
    let case = match std::env::var("PEERLOCK_CASE").as_deref() {
        Err(_) => Case::new(1, 1, 1, 2, to_one_replica).reserve(0),
        Ok("three-at-two-replicas") => Case::new(2, 2, 1, 3, to_two_replicas),
        Ok("three-and-a-replica-as-hop") => Case::new(2, 2, 0, 3, by_the_other_replica),
        Ok("a-retry-at-two-replicas") => Case::new(2, 2, 0, 2, by_the_other_replica).with(|limits| limits.timeouts = 1),
        Ok("a-split-vote") => {
            let case = Case::new(2, 2, 1, 2, to_two_replicas);
            case.with(|limits| (limits.timeouts, limits.longest_timer) = (1, Span::from_secs(1)))
        }
        Ok("a-retry-in-a-line") => Case::new(1, 1, 0, 3, in_a_line).with(|limits| limits.timeouts = 1),
        Ok("a-loss-and-two-retries") => {
            let case = Case::new(1, 1, 1, 2, to_one_replica).reserve(2);
            case.with(|limits| (limits.timeouts, limits.losses) = (2, 1))
        }
        Ok(other) => panic!("there is no case {other}"),
    };
    case.holds();
}

#[test]
fn three_clients_behind_one_hop() {
    Case::new(1, 1, 1, 3, to_one_replica).holds();
}

#[test]
fn three_clients_that_are_each_others_hops() {
    Case::new(1, 1, 0, 3, in_a_line).holds();
}

#[test]
fn two_clients_two_replicas_and_a_hop() {
    Case::new(2, 2, 1, 2, to_two_replicas).holds();
}

#[test]
fn a_loss_and_a_message_that_comes_twice_and_a_withdrawal() {
    let case = Case::new(1, 1, 1, 2, to_one_replica);
    case.with(|limits| (limits.duplications, limits.losses, limits.withdrawals) = (1, 1, 1)).holds();
}

/// A replica or the hop loses its memory; fewer than 2m − n resets are safe.
#[test]
fn a_reset_and_a_loss() {
    Case::new(2, 2, 1, 2, to_two_replicas).with(|limits| (limits.resets, limits.losses) = (1, 1)).holds();
}

/// As many as 2m − n are not: the ping of a hop brings the next request to a replica that has forgotten the first.
#[test]
fn too_many_resets_let_two_in() {
    let found =
        Case::new(1, 1, 1, 2, to_one_replica).with(|limits| (limits.resets, limits.timeouts) = (1, 2)).breaks(REPAIRED);

    assert_eq!(found.violation, Violation::TooManyInside { inside: 2, slots: 1 }, "{found}");
}

/// From every state with enough time-outs left all can be served.
#[test]
fn asking_again_and_pings_find_everybody() {
    let case = Case::new(1, 1, 1, 2, to_one_replica);
    case.with(|limits| (limits.timeouts, limits.withdrawals) = (1, 1)).holds();
}

/// "Answers of hops are hearsay": the hop is asked twice by client 3, and names it as holder.
#[test]
fn a_hop_is_taken_for_the_replica() {
    let case = Case::new(1, 1, 1, 2, to_one_replica).with(|limits| limits.duplications = 1);
    let found = case.breaks(Config { hearsay: false, ..REPAIRED });

    assert_eq!(
        found.to_string(),
        "\
2: request
3: request
2 → 1  REQUEST(R0, 1@2)…
1 → 0  REQUEST(R0, 1@2)…
0 → 2  GRANTREQ(R0, 1@2, grant 1)
2: enter slot 0, fencing 1
2: leave
2 → 1  RELEASE(R0, 1@2)…
3 → 1  REQUEST(R0, 1@3)… (will arrive twice)
3 → 1  REQUEST(R0, 1@3)…
3 → 1  REQUEST(R0, 1@3)…
1 → 3  GRANTREQ(R0, 1@3, hearsay)
3: enter slot 0, fencing 1
under way: 1 → 0  RELEASE(R0, 1@2)…
under way: 1 → 0  REQUEST(R0, 1@3)…
3 enters slot 0 with fencing number 1, which is not new"
    );
}

/// A finished client is left in a queue, and gets a vote for ever.
#[test]
fn a_vote_for_a_ghost() {
    let case = Case::new(1, 1, 1, 2, to_one_replica).with(|limits| (limits.withdrawals, limits.timeouts) = (1, 1));
    let found = case.breaks(Config { answers_ghosts: false, ..REPAIRED });

    assert_eq!(
        found.to_string(),
        "\
2: request
2: withdraw
3: request
2 → 1  REQUEST(R0, 1@2)…
2 → 1  RELEASE(R0, 1@2)…
1 → 0  RELEASE(R0, 1@2)…
1 → 0  REQUEST(R0, 1@2)…
under way: 0 → 2  GRANTREQ(R0, 1@2, grant 1)
under way: 3 → 1  REQUEST(R0, 1@3)…
whatever happens, not all will be served, and these still wait: 3 with ticket 1"
    );
}

/// Each is queued behind the other, and what they yield comes back.
#[test]
fn a_split_vote() {
    let case = Case::new(2, 2, 1, 2, to_two_replicas).with(|limits| {
        (limits.timeouts, limits.longest_timer) = (3, Span::from_secs(1));
    });
    let found = case.breaks(Config { surfaces: false, asks_again: false, ..REPAIRED });

    assert_eq!(
        found.to_string(),
        "\
3: request
4: request
3 → 2  REQUEST(R1, 1@3)…
4 → 2  REQUEST(R0, 1@4)…
under way: 2 → 0  REQUEST(R0, 1@4)…
under way: 2 → 1  REQUEST(R1, 1@3)…
under way: 3 → 2  REQUEST(R0, 1@3)…
under way: 4 → 2  REQUEST(R1, 1@4)…
whatever happens, not all will be served, and these still wait: 3 with ticket 1, 4 with ticket 1"
    );
}

/// A late RELEASE hits the next request of the same client.
#[test]
fn a_late_release_hits_the_next_request() {
    let case = Case::new(1, 1, 1, 2, to_one_replica).with(|limits| limits.requests = 2);
    let found = case.breaks(Config { epochs: false, ..REPAIRED });

    assert_eq!(found.violation, Violation::TooManyInside { inside: 2, slots: 1 }, "{found}");
}
