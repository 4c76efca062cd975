//! Statements of the paper about Non-E2E, and each defect of §IV.B beside its repair.

#[allow(dead_code, reason = "each protocol's tests use some of it")]
mod scene;

use peerlock_protocols::non_e2e::{Config, Message, NonE2e};
use peerlock_protocols::sigma::Stamp;
use peerlock_protocols::token::Claim;
use peerlock_protocols::{Cx, Effect, Hop, Input, Quorum, Replicas, step};
use peerlock_types::{Key, PeerId, Rng, Span, Ticket, Time};
use scene::routes::{A, B, C, D};

type Scene = scene::Scene<NonE2e>;

fn new_scene(config: Config) -> Scene {
    Scene::on_routes(|me, replicas| NonE2e::new(me, replicas, config))
}

fn with_requests(config: Config, clients: &[u64]) -> Scene {
    new_scene(config).with_requests(clients)
}

/// §IV.B, 2.
#[test]
fn idle_resource_is_granted_and_every_hop_writes_an_entry() {
    for config in [Config::PRINTED, Config::REPAIRED] {
        let mut scene = new_scene(config);
        scene.request(A);
        scene.stabilize();

        assert_eq!(scene.holders(), [A]);
        let [entry, replica] = [scene.state(10), scene.state(2)];
        assert_eq!(entry, scene.state(11));
        assert!(entry.starts_with("hop to R0: ") && entry.contains("@20 then []; hop to R1: "), "{entry}");
        assert!(
            replica.starts_with("R2: ") && replica.contains("@20, grant ") && !replica.contains("queue"),
            "{replica}"
        );
        assert_eq!(scene.sent[..2], [9, 3], "three hops to each of three replicas, and an answer from each");
    }
}

/// §IV.B, 2.
#[test]
fn first_hop_with_entry_queues_request() {
    let mut scene = with_requests(Config::REPAIRED, &[A]);
    let before = scene.sent.clone();
    scene.request(B);
    scene.stabilize();

    assert_eq!([scene.sent[0] - before[0], scene.sent[1] - before[1]], [3, 3], "one hop, one answer per replica");
    assert!(scene.state(10).contains("@20 then [2000000001@21]"), "{}", scene.state(10));
    assert!(!scene.state(0).contains("@21"), "{}", scene.state(0));
    assert!(scene.state(B).ends_with("waits, votes [], queued [R0 at 10, R1 at 10, R2 at 10]"), "{}", scene.state(B));
}

/// §IV.B, 3.
#[test]
fn replica_that_has_voted_queues_request() {
    let scene = with_requests(Config::REPAIRED, &[A, D]);

    assert!(
        scene.state(0).contains("@20, grant ") && scene.state(0).ends_with("queue [2000000001@23]"),
        "{}",
        scene.state(0)
    );
}

/// §IV.B, 4.
#[test]
fn release_brings_queues_of_all_hops_to_replica() {
    let mut scene = with_requests(Config::REPAIRED, &[A, D, C, B]);
    assert!(scene.state(10).contains("@21]") && scene.state(11).contains("@22]"), "B and C wait at different hops");
    scene.release(A);
    scene.stabilize();

    assert_eq!(scene.holders(), [D], "the earliest waiter");
    for replica in 0..3 {
        let state = scene.state(replica);
        assert!(state.contains("@23, grant ") && state.ends_with("queue [3000000001@22, 4000000001@21]"), "{state}");
    }
    assert_eq!([scene.state(10), scene.state(11)], ["idle", "idle"]);
    for client in [D, C, B] {
        assert_eq!(scene.holders(), [client]);
        scene.leave(client);
    }
    assert_eq!(scene.order(), [A, D, C, B]);
}

/// §IV.B, 5.
#[test]
fn majority_of_votes_is_enough() {
    let mut scene = new_scene(Config::REPAIRED);
    scene.request(D);
    scene.deliver(D, 0, "request");
    scene.deliver(0, D, "grantreq");
    scene.deliver(D, 1, "request");
    assert_eq!(scene.holders(), []);
    scene.deliver(1, D, "grantreq");
    scene.pass(Span::from_secs(1));

    assert_eq!(scene.holders(), [D]);
}

/// A, B and C have a vote each, and are queued behind one another elsewhere.
fn split(config: Config) -> Scene {
    let mut scene = new_scene(config);
    for client in [A, B, C] {
        scene.request(client);
    }
    scene.deliver(A, 10, "request"); // For R0.
    scene.deliver(A, 10, "request"); // For R1, but behind C at 11.
    let late = scene.hold_back(A, 10);
    (0..3).for_each(|_| scene.deliver(B, 10, "request")); // For R2; behind A for the others.
    let first =
        scene.wire.iter().position(|in_flight| in_flight.1 == 11 && in_flight.0 == 10).expect("A's request for R0");
    let first = scene.wire.remove(first);
    let second = scene.hold_back(10, 11);
    scene.wire.push(first);
    scene.deliver(10, 11, "request");
    (0..2).for_each(|_| scene.deliver(C, 11, "request"));
    let third = scene.hold_back(C, 11);
    scene.wire.extend(second.into_iter().chain(late).chain(third));
    scene.stabilize();
    let votes =
        [A, B, C].map(|client| scene.state(client).split_once("votes ").map(|(_, votes)| votes[..4].to_owned()));
    assert_eq!(votes.map(Option::unwrap_or_default), ["[R0]", "[R2]", "[R1]"]);
    scene
}

/// §IV.B, 5 and 6.
#[test]
fn printed_clients_all_yield_after_split_vote() {
    let mut scene = split(Config { hearsay: true, ..Config::PRINTED });
    scene.pass(Span::from_millis(500));

    assert!(scene.sent[3] > 0, "{:?}", scene.sent);
}

/// §V.B.
#[test]
fn predecessor_of_dead_hop_sends_queue_by_new_route() {
    let mut scene = with_requests(Config { asks_again: false, ..Config::REPAIRED }, &[A, B]);
    scene.kill(11);
    scene.pass(Span::from_secs(40));

    assert_eq!([scene.state(10), scene.state(12)], ["idle", "idle"]);
    let state = scene.state(0);
    assert!(state.contains("@20, grant ") && state.contains("queue [2000000001@21]"), "{state}");
    scene.leave(A);
    assert_eq!(scene.order(), [A, B]);
}

/// §V.B.
#[test]
fn successor_of_dead_hop_cleans_up() {
    let mut scene = with_requests(Config { asks_again: false, ..Config::REPAIRED }, &[A, C]);
    assert!(scene.state(11).contains("@20 then [2000000001@22]"), "{}", scene.state(11));
    scene.kill(10);
    scene.pass(Span::from_secs(40));

    assert_eq!(scene.state(11), "idle");
    let state = scene.state(0);
    assert!(state.contains("@20, grant ") && state.contains("queue [2000000001@22]"), "{state}");
    scene.leave(A);
    assert_eq!(scene.order(), [A, C]);
}

/// §V.B.
#[test]
fn last_hop_keeps_queue_until_replica_has_it() {
    let mut scene = with_requests(Config { asks_again: false, ..Config::REPAIRED }, &[A, C, B]);
    scene.release(A);
    (0..3).for_each(|_| scene.deliver(A, 10, "release"));
    (0..3).for_each(|_| scene.deliver(10, 11, "release"));
    for replica in 0..3 {
        scene.kill(replica); // With the queues on their way to them.
    }
    scene.pass(Span::from_secs(5));
    assert_eq!(scene.holders(), [C], "peer 13 hosts the replicas");
    scene.leave(C);
    assert_eq!(scene.order(), [A, C, B]);
}

/// §II: a replica may lose its memory.
#[test]
fn waiters_retry_after_resets() {
    let mut scene = with_requests(Config::REPAIRED, &[A, D, C]);
    scene.step(0, Input::Reset { incarnation: u64::MAX / 2 });
    scene.step(11, Input::Reset { incarnation: 1 });
    scene.pass(Span::from_secs(30));
    for client in [A, D, C] {
        assert_eq!(scene.holders(), [client]);
        scene.leave(client);
    }
}

/// The former owner of the key forwards messages that still reach it.
#[test]
fn moved_replica_has_no_memory() {
    let mut scene = with_requests(Config::REPAIRED, &[A, D]);
    for replica in 0..3 {
        let key = Replicas::on_overlay("resource", Quorum::new(3, 2)).key(replica);
        scene.step(replica.into(), Input::Disowned(key.expect("a key")));
        assert_eq!(scene.state(replica.into()), "idle");
    }
    scene.pass(Span::from_secs(30));
    assert_eq!(scene.holders(), [A], "A renews its votes");
    scene.leave(A);
    assert_eq!(scene.order(), [A, D]);
}

// Additions to the paper.

#[test]
fn withdrawn_waiter_is_skipped() {
    let mut scene = with_requests(Config::REPAIRED, &[A, B, C]);
    scene.leave(B);
    assert!(!scene.state(10).contains("@21"), "{}", scene.state(10));
    scene.leave(A);
    assert_eq!(scene.order(), [A, C]);
}

#[test]
fn requests_behind_withdrawn_one_take_its_place() {
    let mut scene = with_requests(Config { asks_again: false, ..Config::REPAIRED }, &[C, A, B]);
    assert!(scene.state(10).contains("@20 then [3000000001@21]"), "{}", scene.state(10));
    scene.leave(A);
    assert!(scene.state(11).contains("@22 then [3000000001@21]"), "{}", scene.state(11));
    scene.leave(C);
    assert_eq!(scene.order(), [C, B]);
}

#[test]
fn tickets_of_one_peer_wait_independently() {
    let mut scene = new_scene(Config::REPAIRED);
    let tickets = [scene.request(A), scene.request(A), scene.request(A)];
    scene.pass(Span::from_secs(2));
    for ticket in tickets {
        assert_eq!(scene.grants.iter().map(|&(_, ticket, _)| ticket).collect::<Vec<_>>(), [ticket]);
        scene.grants.clear();
        scene.step(A, Input::Release(Ticket::new(ticket)));
        scene.pass(Span::from_secs(2));
    }
}

#[test]
fn fencing_numbers_increase_past_crashed_holder() {
    let mut scene = with_requests(Config::REPAIRED, &[A]);
    scene.leave(A);
    scene.request(B);
    scene.pass(Span::from_secs(1));
    scene.kill(B);
    scene.request(C);
    scene.pass(Span::from_secs(60));
    assert_eq!(scene.order(), [A, B, C]);
    assert!(scene.entered.windows(2).all(|pair| pair[0].2 < pair[1].2), "{:?}", scene.entered);
}

#[test]
fn cut_off_holder_stops_in_time() {
    let mut scene = with_requests(Config::REPAIRED, &[A, B]);
    scene.cut_off = Some(A);
    for _ in 0..600 {
        scene.pass(Span::from_millis(100));
        assert!(scene.grants.len() <= 1);
    }
    assert_eq!((scene.lost.as_slice(), scene.holders().as_slice()), ([A].as_slice(), [B].as_slice()));
}

/// The length of the route does not matter.
#[test]
fn renewal_takes_two_messages_per_vote() {
    let mut scene = with_requests(Config::REPAIRED, &[A]);
    let before = scene.sent.clone();
    scene.pass(Span::from_secs(10));
    let renewals: Vec<usize> = scene.sent.iter().zip(before).map(|(after, before)| after - before).collect();
    assert_eq!(renewals, [9, 9, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn invalid_messages_are_dropped() {
    let replicas = Replicas::on_overlay("resource", Quorum::new(3, 2));
    let (me, other) = (PeerId::new(1), PeerId::new(2));
    let stamp = Stamp { time: 1, client: Claim { peer: other, ticket: Ticket::new(1) } };
    let request = |replica| Message::Request { replica, client: stamp, sent: Time::ZERO, fencing: 0 };
    let hop = |key, next| Hop { key, origin: other, previous: other, next };
    let key = replicas.key(0).expect("a key");
    let routed = |hop, message| Input::Routed { hop, message };
    let sent = |message| Input::Message { from: other, message };
    let invalid = [
        sent(Message::Queued { replica: 3, to: Ticket::new(1), holder: stamp }),
        sent(Message::Ping { replica: u32::MAX, holder: stamp }),
        routed(hop(key, None), request(1)),
        routed(hop(key, Some(other)), request(1)),
        routed(hop(Key::new(5), None), request(0)),
        routed(hop(Key::new(5), Some(other)), request(0)),
        routed(hop(key, Some(other)), Message::Taken { receipt: 1 }),
    ];
    for input in invalid {
        let (mut peer, mut effects) = (NonE2e::new(me, &replicas, Config::REPAIRED), Vec::new());
        step(&mut peer, input.clone(), &mut Cx::new(me, Time::ZERO, &mut Rng::new(1), &mut effects));
        assert!(matches!(effects[..], [Effect::Unexpected { .. }]), "{input:?} gave {effects:?}");
        assert_eq!(peer.to_string(), "idle");
    }
}

// The defects of the printed form, each with and without its repair.

#[test]
fn hop_answer_counted_as_vote_allows_two_holders() {
    let play = |hearsay| {
        let mut scene = new_scene(Config { hearsay, asks_again: false, ..Config::PRINTED });
        scene.request(D);
        scene.stabilize();
        assert_eq!(scene.holders(), [D]);
        scene.request(A);
        scene.wire.extend(scene.wire.clone());
        scene.stabilize();
        scene.holders()
    };
    assert_eq!(play(false), [D, A]);
    assert_eq!(play(true), [D]);
}

#[test]
fn split_vote_is_resolved_by_surfacing() {
    let play = |surfaces| {
        let mut scene = split(Config { surfaces, ..Config::REPAIRED });
        scene.pass(Span::from_secs(100));
        scene.order()
    };
    assert_eq!(play(true), [A]);
    assert_eq!(play(false), []);
}

#[test]
fn vote_for_finished_client_is_returned() {
    let play = |answers_ghosts| {
        let mut scene = with_requests(Config { answers_ghosts, ..Config::PRINTED }, &[A]);
        scene.request(B);
        let late = scene.hold_back(B, 10);
        scene.leave(B); // It withdraws, and its RELEASE overtakes its REQUEST.
        scene.wire.extend(late);
        scene.stabilize();
        scene.leave(A);
        scene.request(C);
        scene.pass(Span::from_secs(100));
        scene.order()
    };
    assert_eq!(play(true), [A, C]);
    assert_eq!(play(false), [A]);
}

#[test]
fn late_release_does_not_affect_next_request() {
    let play = |epochs| {
        let mut scene = with_requests(Config { epochs, ..Config::PRINTED }, &[D]);
        scene.release(D);
        (0..3).for_each(|replica| scene.duplicate(D, replica, "release"));
        let late: Vec<_> = (0..3).flat_map(|replica| scene.hold_back(D, replica)).collect();
        let (now, late) = late.into_iter().enumerate().partition::<Vec<_>, _>(|(at, _)| at % 2 == 0);
        scene.wire.extend(now.into_iter().map(|(_, in_flight)| in_flight));
        scene.stabilize();
        scene.request(D);
        scene.pass(Span::from_secs(1));
        assert_eq!(scene.holders(), [D]);
        scene.wire.extend(late.into_iter().map(|(_, in_flight)| in_flight));
        scene.stabilize();
        scene.request(A);
        scene.pass(Span::from_secs(1));
        scene.holders()
    };
    assert_eq!(play(true), [D]);
    assert_eq!(play(false), [D, A]);
}

#[test]
fn lost_release_does_not_lose_its_queue() {
    let play = |keeps_copies| {
        let mut scene = with_requests(Config { keeps_copies, asks_again: false, ..Config::REPAIRED }, &[A, B]);
        scene.release(A);
        (0..3).for_each(|_| scene.deliver(A, 10, "release"));
        (0..3).for_each(|_| scene.lose(10, 11, "release"));
        scene.pass(Span::from_secs(100));
        scene.order()
    };
    assert_eq!(play(true), [A, B]);
    assert_eq!(play(false), [A]);
}

#[test]
fn crashed_holder_loses_its_votes() {
    let play = |leases| {
        let mut scene = with_requests(Config { leases, ..Config::REPAIRED }, &[A, D]);
        scene.kill(A);
        scene.pass(Span::from_secs(1000));
        scene.order()
    };
    assert_eq!(play(true), [A, D]);
    assert_eq!(play(false), [A]);
}

#[test]
fn lost_request_is_repeated() {
    let play = |asks_again| {
        let mut scene = new_scene(Config { asks_again, ..Config::REPAIRED });
        scene.request(A);
        (0..3).for_each(|_| scene.lose(A, 10, "request"));
        scene.pass(Span::from_secs(100));
        scene.order()
    };
    assert_eq!(play(true), [A]);
    assert_eq!(play(false), []);
}
