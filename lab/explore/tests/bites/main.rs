//! Each mutation fails the right check.

mod late;
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../mutated/mod.rs"]
mod mutated;
mod mutation;
mod second_opinion;

use mutated::{Mutation, Sabotaged, Step};
use mutation::Fault;
use peerlock_explore::{Counterexample, Limits, Violation, World, explore};
use peerlock_protocols::fair_k::{Config, Layout};
use peerlock_protocols::registry::Session;
use peerlock_protocols::{Custody, Effect, FairK, custody};
use peerlock_types::PeerId;

fn find(fault: Fault, peers: u64, limits: Limits) -> Box<Counterexample> {
    let world = World::new(limits, mutation::peers(peers, limits.slots as u32, fault));
    match explore(&world, 1_000_000) {
        Ok(explored) => panic!("{fault:?} was not detected among {peers} peers with {limits:?}: {explored:?}"),
        Err(counterexample) => counterexample,
    }
}

#[test]
fn the_wrapper_changes_nothing() {
    let limits = Limits { requests: 2, withdrawals: 1, ..Limits::new(2) };
    let world = World::new(limits, mutation::peers(3, 2, Fault::None));
    let wrapped = explore(&world, 1_000_000).unwrap_or_else(|counterexample| panic!("{counterexample}"));

    let layout = Layout::printed(3, 2);
    let peers = (0..3).map(PeerId::new).map(|id| (id, FairK::new(id, &layout, Config::REPAIRED)));
    let bare =
        explore(&World::new(limits, peers), 1_000_000).unwrap_or_else(|counterexample| panic!("{counterexample}"));
    assert_eq!(wrapped, bare);
}

#[test]
fn every_fault_is_caught_by_the_right_check() {
    let limits = |slots| Limits { requests: 2, ..Limits::new(slots) };
    let withdrawing = Limits { withdrawals: 1, ..limits(1) };
    type Case = (Fault, u64, Limits, fn(&Violation) -> bool);
    let table: [Case; 13] = [
        (Fault::TokenTwice, 2, limits(1), |v| matches!(v, Violation::Tokens { found: 2, expected: 1 })),
        (Fault::LateChildLosesToken, 3, limits(2), |v| matches!(v, Violation::Tokens { found: 1, expected: 2 })),
        (Fault::TailNotUpdated, 4, limits(2), |v| matches!(v, Violation::Unexpected(..))),
        (Fault::ChildToWrongTail, 5, Limits::new(3), |v| matches!(v, Violation::Unexpected(..))),
        (Fault::ChildForgotten, 3, limits(2), |v| matches!(v, Violation::Stuck(_))),
        (Fault::ChildSentBack, 3, limits(2), |v| matches!(v, Violation::Livelock(2))),
        (Fault::NextForgotten, 3, limits(1), |v| matches!(v, Violation::Stuck(_))),
        (Fault::CoordinatorRetained, 3, limits(2), |v| matches!(v, Violation::Coordinators(2))),
        (Fault::ReversalToWrongPeer, 4, limits(1), |v| matches!(v, Violation::ParentCycle(_))),
        (Fault::GrantWithoutToken, 2, limits(1), |v| matches!(v, Violation::TooManyHolders { inside: 2, slots: 1 })),
        (Fault::WithdrawalIgnored, 2, withdrawing, |v| matches!(v, Violation::NotWaiting(..))),
        (Fault::FencingNotAdvanced, 2, limits(1), |v| matches!(v, Violation::Fencing(..))),
        (Fault::SlotMixedUp, 3, limits(2), |v| matches!(v, Violation::WrongSlot(..))),
    ];
    for (fault, peers, limits, is_right) in table {
        let found = find(fault, peers, limits);
        println!("{fault:?}, {} steps:\n{found}\n", found.steps);
        assert!(is_right(&found.violation), "{fault:?} was detected as another violation:\n{found}");
    }
}

/// A protocol whose coordinator confirms the first arrival number to each client.
#[derive(Clone, PartialEq, Eq, Hash)]
struct PromisesEachFirst;

impl Mutation<Custody> for PromisesEachFirst {
    fn on_effects(&mut self, step: Step<'_, Custody>) {
        for effect in step.effects {
            if let Effect::Send { to, message: custody::Message { body: custody::Body::Arrivals(notified), .. } } =
                effect
            {
                notified.iter_mut().for_each(|(_, arrival)| arrival.number = 10 - to.get());
            }
        }
    }
}

#[test]
fn entry_before_earlier_arrival_is_detected() {
    let session = |id| Session { peer: id, number: 0 };
    let config = custody::Config { batch: None, ..custody::Config::default() };
    let peer = |id| Custody::founded(session(id), config, PeerId::new(0), 1);
    let peers = (0..3).map(PeerId::new).map(|id| (id, Sabotaged { peer: peer(id), mutation: PromisesEachFirst }));
    let found = explore(&World::new(Limits::new(1), peers), 1_000_000).expect_err("a client enters out of order");
    assert!(matches!(found.violation, Violation::OutOfOrder(..)), "{found}");
}

#[test]
fn a_counterexample_reads_as_a_trace() {
    let lost = find(Fault::LateChildLosesToken, 3, Limits::new(2));
    assert_eq!(
        lost.to_string(),
        "\
2: request
2 → 0  request(2)
0: request
0 → 2  request(0)
0 → 2  token_locations([2, 1], 1)
2 → 1  child(0) of queue 1
under way: 0 → 2  token 0
under way: 2 → 0  token_locations([2, 0], 0)
1 tokens are held or under way instead of 2"
    );

    let forgotten = find(Fault::NextForgotten, 3, Limits::new(1));
    assert_eq!(
        forgotten.to_string(),
        "\
1: request
2: request
1 → 0  request(1)
0: request
0 → 1  request(0)
0 → 1  token 0
1: enter slot 0, fencing 1
1: leave
0 → 1  token_locations([1], 0)
2 → 0  request(2)
no event is possible and these wait: 0 with ticket 1, 2 with ticket 1"
    );

    let sent_back = find(Fault::ChildSentBack, 3, Limits::new(2));
    assert_eq!(
        sent_back.to_string(),
        "\
1: request
1: enter slot 1, fencing 2
2: request
2 → 0  request(2)
0: request
0 → 2  request(0)
0 → 2  token_locations([2, 1], 1)
2 → 1  child(0) of queue 1
1 → 2  child(0) of queue 1
under way: 0 → 2  token 0
under way: 2 → 0  token_locations([2, 0], 0)
under way: 2 → 1  child(0) of queue 1
the last 2 steps form a cycle"
    );
}
