//! Statements of the paper about the coordinator protocol, and our additions.

#[allow(dead_code, reason = "each protocol's tests use some of it")]
mod scene;

use peerlock_protocols::coordinator::{Config, Coordinator};
use peerlock_protocols::{Observe, Quorum, Replicas};
use peerlock_types::{Span, Ticket};
use scene::votes::{A, B, C, NEWCOMER};
use scene::{InFlight, Scene};

fn scene(n: u32, config: Config) -> Scene<Coordinator> {
    let replicas = Replicas::first(Quorum::new(n, n / 2 + 1));
    Scene::among(n, |me| Coordinator::new(me, &replicas, config))
}

/// A holds, and the clients `waiting` have requested and received their answers.
fn with_waiting(n: u32, config: Config, waiting: &[u64]) -> Scene<Coordinator> {
    let mut scene = scene(n, config);
    scene.request(A);
    scene.stabilize();
    assert_eq!(scene.holders(), [A]);
    for &client in waiting {
        scene.request(client);
        scene.stabilize();
    }
    scene
}

fn sent(scene: &Scene<Coordinator>, kind: &str) -> usize {
    scene.sent[Coordinator::KINDS.iter().position(|known| *known == kind).expect("a kind of message")]
}

/// §4.1.
#[test]
fn first_replica_is_first_coordinator() {
    for config in [Config::PRINTED, Config::REPAIRED] {
        let mut scene = scene(3, config);
        scene.request(A);
        scene.deliver(A, 0, "request");
        (1..3).for_each(|replica| _ = scene.try_deliver(0, replica, "iamcoordinator"));
        (1..3).for_each(|replica| _ = scene.try_deliver(replica, 0, "update"));
        scene.deliver(0, A, "response");
        assert_eq!(scene.holders(), [A]);
    }
}

/// §4.1.
#[test]
fn idle_resource_costs_four_messages() {
    let mut scene = with_waiting(7, Config::REPAIRED, &[]);
    scene.release(A);
    scene.stabilize();
    let before = scene.sent.clone();
    scene.request(B);
    scene.stabilize();
    scene.release(B);
    scene.stabilize();
    let cost: Vec<usize> = scene.sent.iter().zip(before).map(|(now, before)| now - before).collect();
    assert_eq!(cost, [1, 1, 0, 1, 1, 0, 0, 0, 0, 0]);
}

/// §4.1 and Figure 1, REQUEST.
#[test]
fn printed_replicas_all_forward_a_request() {
    let scene = with_waiting(7, Config::PRINTED, &[]);
    assert_eq!((sent(&scene, "request"), sent(&scene, "ping"), sent(&scene, "ok")), (7 + 6, 6, 6));
}

/// §4.1.
#[test]
fn all_waiters_and_replicas_receive_addrequest() {
    let mut scene = with_waiting(3, Config::REPAIRED, &[B, C]);
    let before = sent(&scene, "addrequest");
    scene.request(NEWCOMER);
    scene.deliver(NEWCOMER, 0, "request");
    assert_eq!(sent(&scene, "addrequest") - before, 2 + 2 + 1);
    assert!([1, 2, A, B, C].iter().all(|&to| scene.find(0, to, "addrequest").is_some()));
}

/// Lemma 1.b and Lemma 4.
#[test]
fn token_passes_directly_between_clients() {
    let mut scene = with_waiting(3, Config::REPAIRED, &[C, B, NEWCOMER]);
    for (leaves, next) in [(A, C), (C, B), (B, NEWCOMER)] {
        scene.release(leaves);
        scene.deliver(leaves, next, "release");
        assert_eq!(scene.holders(), [next]);
    }
}

/// The owner receives no ADDREQUEST, and replicas ignore RELEASE.
#[test]
fn printed_form_serves_no_second_client() {
    let mut scene = with_waiting(3, Config::PRINTED, &[B]);
    scene.release(A);
    scene.pass(Span::from_secs(100));
    assert!(scene.grants.is_empty());
}

/// §1.
#[test]
fn token_without_successor_returns_to_coordinator() {
    let mut scene = with_waiting(3, Config::REPAIRED, &[]);
    scene.request(B);
    scene.deliver(B, 0, "request");
    scene.release(A); // It has not received B's ADDREQUEST.
    scene.stabilize();
    assert_eq!(scene.order(), [A, B]);
}

/// §4.4, 1.
#[test]
fn crashed_owner_loses_its_lease() {
    let mut scene = with_waiting(3, Config::REPAIRED, &[B]);
    scene.cut_off = Some(A);
    scene.pass(Span::from_secs(5));
    assert_eq!(scene.holders(), [A]);
    scene.pass(Span::from_secs(10));
    assert_eq!((scene.holders(), scene.lost.clone()), (vec![B], vec![A]));
    let numbers: Vec<u64> = scene.entered.iter().map(|&(.., number)| number).collect();
    assert!(numbers[1] > numbers[0] + 1, "the number leaps: {numbers:?}");
}

/// §4.4, 1.
#[test]
fn live_owner_keeps_its_lease() {
    let mut scene = with_waiting(3, Config::REPAIRED, &[B]);
    scene.pass(Span::from_secs(100));
    assert_eq!(scene.holders(), [A]);
}

#[test]
fn without_leases_crashed_owner_blocks_forever() {
    let mut scene = with_waiting(3, Config { owner_lease: false, ..Config::REPAIRED }, &[B]);
    scene.cut_off = Some(A);
    scene.pass(Span::from_secs(1000));
    assert_eq!(scene.holders(), [A]);
}

/// §4.4, 2.
#[test]
fn crashed_waiter_is_skipped() {
    let mut scene = with_waiting(3, Config::REPAIRED, &[B, C]);
    scene.cut_off = Some(B);
    scene.pass(Span::from_secs(15));
    scene.release(A);
    scene.pass(Span::from_secs(11));
    assert_eq!(scene.holders(), [C]);
}

/// §4.4, 2.
#[test]
fn silent_waiter_is_not_granted() {
    let mut scene = with_waiting(3, Config::REPAIRED, &[B, C]);
    scene.cut_off = Some(B);
    scene.pass(Span::from_secs(15));
    scene.timers.retain(|(peer, _), _| *peer != A); // The owner crashes, too.
    scene.pass(Span::from_secs(11));
    assert_eq!(scene.order(), [A, C]);
}

/// Figure 1, RECOVER.
#[test]
fn printed_recover_is_answered_once() {
    let mut scene = with_waiting(5, Config::PRINTED, &[]);
    scene.reset(4, 1);
    scene.stabilize();
    assert_eq!((sent(&scene, "recover"), sent(&scene, "update")), (4 + 3, 1));
}

/// §4.4, 4 and §4.1. The owner keeps its grant, and waiters their places.
#[test]
fn crashed_coordinator_is_replaced() {
    let mut scene = with_waiting(3, Config::REPAIRED, &[B, C]);
    scene.cut_off = Some(0);
    scene.pass(Span::from_secs(30));
    assert_eq!((scene.holders(), scene.lost.len()), (vec![A], 0));
    for next in [B, C] {
        let holders = scene.holders()[0];
        scene.release(holders);
        scene.pass(Span::from_secs(1));
        assert_eq!(scene.holders(), [next]);
    }
}

#[test]
fn request_survives_coordinator_crash_at_any_step() {
    for steps in 0..40 {
        let mut scene = with_waiting(3, Config::REPAIRED, &[]);
        scene.request(B);
        for step in 0..steps {
            if step == 5 {
                scene.release(A);
            }
            if !scene.wire.is_empty() {
                scene.deliver_first();
            }
        }
        scene.wire.retain(|&(from, to, ..)| from != 0 && to != 0);
        scene.cut_off = Some(0);
        scene.pass(Span::from_secs(60));
        if scene.holders() == [A] {
            scene.release(A);
            scene.pass(Span::from_secs(60));
        }
        assert_eq!(scene.order(), [A, B], "after {steps} steps");
    }
}

/// §4.1: sent after a term here.
#[test]
fn reset_replica_recovers_before_it_votes() {
    let mut scene = with_waiting(3, Config::REPAIRED, &[B]);
    scene.pass(Span::from_secs(2));
    scene.reset(2, 1);
    scene.pass(Span::from_secs(3));
    assert_eq!(sent(&scene, "recover"), 0);
    let votes = sent(&scene, "update");
    scene.pass(Span::from_secs(3));
    assert!(sent(&scene, "recover") > 0 && sent(&scene, "update") > votes);
    // The replica votes again, so the coordinator may fail.
    scene.cut_off = Some(0);
    scene.pass(Span::from_secs(30));
    scene.release(A);
    scene.pass(Span::from_secs(30));
    assert_eq!(scene.holders(), [B]);
}

#[test]
fn replica_without_majority_grants_nothing() {
    let mut scene = with_waiting(3, Config::REPAIRED, &[]);
    scene.release(A);
    scene.stabilize();
    scene.reset(1, 1);
    scene.reset(2, 2);
    scene.cut_off = Some(2);
    scene.pass(Span::from_secs(5));
    scene.request(B);
    scene.pass(Span::from_secs(2));
    assert!(scene.grants.is_empty());
}

/// If all votes are needed, a replica without memory has no coordinator to recover from.
#[test]
fn reset_is_survived_when_all_votes_are_needed() {
    for n in [1, 2, 3] {
        let replicas = Replicas::first(Quorum::new(n, n));
        let mut scene = Scene::among(n, |me| Coordinator::new(me, &replicas, Config::REPAIRED));
        scene.request(A);
        scene.stabilize();
        scene.pass(Span::from_secs(2));
        scene.reset(u64::from(n) - 1, 1);
        scene.pass(Span::from_secs(60));
        if scene.holders() == [A] {
            scene.release(A);
        }
        scene.request(B);
        scene.pass(Span::from_secs(60));
        assert_eq!(scene.holders(), [B], "{n} replicas, one of them reset");
        assert!(scene.entered[1].2 > scene.entered[0].2, "numbers increase: {:?}", scene.entered);
    }
}

/// §4.4.
#[test]
fn waiting_time_is_forecast() {
    let mut scene = with_waiting(3, Config::REPAIRED, &[]);
    scene.pass(Span::from_secs(2));
    scene.release(A);
    scene.stabilize();
    for client in [A, B, C] {
        scene.request(client);
        scene.stabilize();
    }
    let forecast = |client: u64| scene.peers[&client].forecast(Ticket::new(1)).expect("it waits");
    assert_eq!((forecast(B).ahead, forecast(B).wait), (1, Some(Span::from_secs(2))));
    assert_eq!((forecast(C).ahead, forecast(C).wait), (2, Some(Span::from_secs(4))));
    assert_eq!(scene.peers[&A].forecast(Ticket::new(2)), None, "it holds");
}

#[test]
fn grant_for_withdrawn_client_is_returned() {
    let mut scene = with_waiting(3, Config::REPAIRED, &[B, C]);
    scene.release(B);
    let late = scene.hold_back(B, A);
    scene.release(A);
    scene.put_back(late);
    scene.stabilize();
    assert_eq!(scene.order(), [A, C]);
}

/// B was served meanwhile, and must not become A's successor.
#[test]
fn client_with_expired_lease_discards_queue() {
    let mut scene = with_waiting(3, Config::REPAIRED, &[B]);
    scene.cut_off = Some(A);
    scene.pass(Span::from_secs(15));
    assert_eq!((scene.holders(), scene.lost.clone()), (vec![B], vec![A]));
    scene.release(B);
    scene.pass(Span::from_secs(1));
    scene.cut_off = None;
    scene.pass(Span::from_secs(1));
    scene.request(A);
    scene.deliver(A, 0, "request");
    scene.lose(0, A, "response");
    scene.pass(Span::from_secs(1));
    assert_eq!(scene.holders(), [A]);
    scene.release(A);
    assert!(scene.find(A, B, "release").is_none(), "B has finished: {:?}", scene.wire);
}

/// A has handed over to B. B counts as dead, so C holds. Also returns A's messages to B.
fn considered_dead() -> (Scene<Coordinator>, Vec<InFlight<Coordinator>>) {
    let mut scene = with_waiting(3, Config::REPAIRED, &[B, C]);
    scene.release(A);
    let late = scene.hold_back(A, B);
    scene.cut_off = Some(B);
    scene.pass(Span::from_secs(20));
    assert_eq!(scene.holders(), [C]);
    scene.cut_off = None;
    (scene, late)
}

#[test]
fn late_token_is_not_used() {
    let (mut scene, late) = considered_dead();
    scene.put_back(late);
    scene.deliver(A, B, "release");
    scene.pass(Span::from_secs(5));
    assert_eq!(scene.holders(), [C]);
    scene.release(C);
    scene.pass(Span::from_secs(5));
    assert_eq!(scene.holders(), [B], "it is served later");
}

/// B knows the end of C's lease, which is not its own.
#[test]
fn lease_end_does_not_cover_earlier_turns() {
    let (mut scene, late) = considered_dead();
    scene.pass(Span::from_secs(5));
    scene.put_back(late);
    scene.deliver(A, B, "release");
    assert_eq!(scene.holders(), [C]);
}

/// A new coordinator knows neither of B's turn nor of C's.
#[test]
fn new_coordinator_accepts_only_a_holder() {
    let (mut scene, late) = considered_dead();
    scene.cut_off = Some(0);
    scene.put_back(late);
    scene.deliver(A, B, "release");
    for _ in 0..60 {
        scene.pass(Span::from_millis(500));
        assert_eq!(scene.holders(), [C]);
    }
}
