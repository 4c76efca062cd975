//! Statements of the paper about E2E, and defects of §IV.A and §V.A beside their repairs.

#[allow(dead_code, reason = "each protocol's tests use some of it")]
mod scene;

use peerlock_protocols::e2e::{Config, Message, Owner};
use peerlock_protocols::sigma::Stamp;
use peerlock_protocols::token::Claim;
use peerlock_protocols::{Cx, E2e, Effect, Hop, Input, Quorum, Replicas, step};
use peerlock_types::{Key, PeerId, Rng, Span, Ticket, Time};
use scene::routes::{A, B, C, D};

type Scene = scene::Scene<E2e>;

const REPAIRED: Config = Config::REPAIRED;

fn new_scene(config: Config) -> Scene {
    Scene::on_routes(|me, replicas| E2e::new(me, replicas, config))
}

fn with_requests(config: Config, clients: &[u64]) -> Scene {
    new_scene(config).with_requests(clients)
}

/// D was elected and has handed over to A. Also returns late copies of D's REQUESTs.
fn handed_over() -> (Scene, Vec<scene::InFlight<E2e>>) {
    let mut scene = new_scene(REPAIRED);
    scene.request(D);
    let mut late = Vec::new();
    for replica in 0..3 {
        scene.duplicate(D, replica, "request");
        scene.deliver(D, replica, "request");
        late.extend(scene.hold_back(D, replica));
    }
    scene.stabilize();
    scene.request(A);
    scene.pass(Span::from_secs(1));
    scene.leave(D);
    (scene, late)
}

fn sent<const N: usize>(scene: &Scene, kinds: [&str; N]) -> [usize; N] {
    kinds.map(|kind| {
        let at = <E2e as peerlock_protocols::Observe>::KINDS.iter().position(|name| *name == kind);
        scene.sent[at.expect("a type of message")]
    })
}

/// §IV.A, 4.
#[test]
fn idle_resource_is_won_by_votes_and_hops_record_the_winner() {
    let scene = with_requests(REPAIRED, &[A]);

    assert_eq!(scene.holders(), [A]);
    assert_eq!(sent(&scene, ["request", "response", "iamwinner"]), [9, 3, 9], "three hops to each of three replicas");
    assert!(scene.state(10).starts_with("to R0: ") && scene.state(10).contains("@20, epoch "), "{}", scene.state(10));
}

/// §IV.A, 2.
#[test]
fn hop_that_knows_the_owner_stops_request() {
    let mut scene = with_requests(REPAIRED, &[A]);
    let before = scene.sent.clone();
    scene.request(B);
    scene.stabilize();

    let more: Vec<usize> = scene.sent.iter().zip(before).map(|(after, before)| after - before).collect();
    assert_eq!((more[0], more[6], more[7]), (3, 3, 1), "one hop and one ENQUEUE per replica, and one QUEUED");
    assert_eq!(more.iter().sum::<usize>(), 7);
    assert!(scene.state(A).contains("then [") && scene.state(A).contains("@21]"), "{}", scene.state(A));
}

/// §IV.A, 7.
#[test]
fn token_carries_rest_of_queue_to_first_waiter() {
    let mut scene = with_requests(REPAIRED, &[A, B, C, D]);
    for client in [A, B, C, D] {
        assert_eq!(scene.holders(), [client]);
        scene.leave(client);
    }
    assert_eq!(sent(&scene, ["token", "got", "response"]), [3, 3, 3], "only A was voted for");
    let epochs: Vec<u64> = scene.entered.iter().map(|&(.., fencing)| fencing).collect();
    assert!(epochs.windows(2).all(|pair| pair[1] == pair[0] + 1), "{epochs:?}");
}

/// §IV.A.
#[test]
fn queue_is_ordered_by_time_stamp() {
    let mut scene = with_requests(REPAIRED, &[A]);
    scene.request(B);
    let late = scene.hold_back(B, 10);
    scene.pass(Span::from_millis(10));
    scene.request(C);
    scene.stabilize();
    scene.wire.extend(late);
    scene.stabilize();
    [A, B, C].iter().for_each(|&client| scene.leave(client));

    assert_eq!(scene.order(), [A, B, C]);
}

/// §IV.A, 6.
#[test]
fn release_by_last_owner_clears_replicas_and_hops() {
    for config in [Config::PRINTED, REPAIRED] {
        let mut scene = with_requests(config, &[A]);
        scene.leave(A);

        for peer in [0, 1, 2] {
            assert_eq!(scene.state(peer), format!("R{peer}: owner nil"));
        }
        assert_eq!([scene.state(10), scene.state(11)], ["idle", "idle"]);
        scene.request(B);
        scene.stabilize();
        assert_eq!(scene.order(), [A, B]);
    }
}

/// §V.A.
#[test]
fn first_waiters_receive_copy_of_queue() {
    let mut scene = with_requests(REPAIRED, &[A]);
    for client in [B, C, D] {
        scene.request(client);
    }
    scene.pass(Span::from_secs(3));

    assert_eq!(sent(&scene, ["update"]), [2], "changes of one second in one message each");
}

/// §V.A.
#[test]
fn waiter_succeeds_crashed_owner_with_its_queue() {
    let mut scene = with_requests(REPAIRED, &[A, B, C, D]);
    scene.kill(A);
    scene.pass(REPAIRED.ping + REPAIRED.lease * 3);
    assert_eq!(scene.holders().len(), 1);
    for _ in 0..3 {
        let holders = scene.holders();
        holders.iter().for_each(|&client| scene.leave(client));
    }

    let mut order = scene.order();
    assert_eq!(order[..2], [A, B], "the earliest request is elected");
    order.sort_unstable();
    assert_eq!(order, [A, B, C, D]);
}

/// §V.A.
#[test]
fn dead_hop_is_bypassed() {
    let mut scene = with_requests(REPAIRED, &[A, B]);
    scene.kill(10);
    scene.leave(A);
    assert_eq!(scene.holders(), [B]);
    assert!(scene.state(12).starts_with("to R0: "), "{}", scene.state(12));
    scene.request(C);
    scene.pass(Span::from_secs(1));
    scene.leave(B);

    assert_eq!(scene.holders(), [C]);
}

#[test]
fn renewal_restores_vote_at_moved_replica() {
    let mut scene = with_requests(REPAIRED, &[A, B]);
    scene.kill(0);
    scene.pass(REPAIRED.lease * 2);
    assert!(scene.state(13).starts_with("R0: ") && scene.state(13).contains("@20, grant "), "{}", scene.state(13));
    scene.leave(A);

    assert_eq!((scene.holders(), scene.lost.len()), (vec![B], 0));
}

// Additions to the paper.

#[test]
fn withdrawn_waiter_is_skipped() {
    let mut scene = with_requests(REPAIRED, &[A, B, C]);
    scene.leave(B);
    scene.leave(A);

    assert_eq!(scene.order(), [A, C]);
    assert_eq!(sent(&scene, ["withdraw", "token"]), [1, 1]);
}

#[test]
fn token_for_withdrawn_client_is_forwarded() {
    let mut scene = with_requests(REPAIRED, &[A, B, C]);
    scene.release(A);
    scene.release(B);
    scene.pass(Span::from_secs(1));

    assert_eq!(scene.order(), [A, C]);
}

#[test]
fn tickets_of_one_peer_wait_independently() {
    let mut scene = new_scene(REPAIRED);
    let first = scene.request(A);
    scene.pass(Span::from_secs(1));
    let other = scene.request(B);
    scene.pass(Span::from_secs(1));
    let last = scene.request(A);
    scene.pass(Span::from_secs(1));
    for (peer, ticket) in [(A, first), (B, other), (A, last)] {
        assert_eq!(scene.grants.iter().map(|&(peer, ticket, _)| (peer, ticket)).collect::<Vec<_>>(), [(peer, ticket)]);
        scene.grants.clear();
        scene.step(peer, Input::Release(Ticket::new(ticket)));
        scene.pass(Span::from_secs(1));
    }
}

#[test]
fn owner_renews_votes_three_times_per_lease() {
    let mut scene = with_requests(REPAIRED, &[A]);
    let before = scene.sent.clone();
    scene.pass(REPAIRED.lease);
    let renewals: Vec<usize> = scene.sent.iter().zip(before).map(|(after, before)| after - before).collect();

    assert_eq!((renewals[0], renewals[1]), (3 * 9, 3 * 3));
    assert_eq!(scene.holders(), [A]);
}

/// A has used most of the lease that the token carries.
#[test]
fn hand_over_renews_a_short_lease_first() {
    let mut scene = with_requests(REPAIRED, &[A, B]);
    scene.cut_off = Some(A);
    scene.pass(REPAIRED.lease - Span::from_secs(5));
    scene.cut_off = None;
    assert_eq!(scene.holders(), [A]);
    scene.release(A);
    assert_eq!(sent(&scene, ["token"]), [0]);
    scene.pass(Span::from_secs(1));
    assert_eq!((scene.holders(), sent(&scene, ["token"])), (vec![B], [1]));
    scene.pass(REPAIRED.lease * 2);

    assert_eq!(scene.holders(), [B]);
}

#[test]
fn cut_off_owner_stops_before_next_one_enters() {
    let mut scene = with_requests(REPAIRED, &[A, B]);
    scene.cut_off = Some(A);
    for _ in 0..12 {
        scene.pass(REPAIRED.ping / 10);
        assert!(scene.holders().len() <= 1);
    }

    assert_eq!((scene.lost.clone(), scene.holders()), (vec![A], vec![B]));
    assert!(scene.entered[1].2 > scene.entered[0].2, "the fencing number is above all that A's reign may have used");
}

#[test]
fn late_token_is_only_a_queue() {
    let mut scene = with_requests(REPAIRED, &[A, B, C]);
    scene.release(A);
    let late = scene.hold_back(A, B);
    scene.cut_off = Some(A);
    scene.pass(REPAIRED.lease + Span::from_secs(1));
    assert_eq!(scene.holders(), [0; 0]);
    scene.wire.extend(late);
    scene.pass(Span::from_secs(1));
    assert_eq!(sent(&scene, ["iamwinner"]), [18], "B needs votes of its own");
    scene.leave(B);

    assert_eq!(scene.order(), [A, B, C], "the queue was used");
}

/// The duplicate arrives after the turn, and no client waits.
#[test]
fn duplicate_token_is_ignored() {
    let mut scene = with_requests(REPAIRED, &[A, B]);
    scene.release(A);
    scene.duplicate(A, B, "token");
    scene.deliver(A, B, "token");
    let second = scene.hold_back(A, B);
    scene.request(C);
    scene.pass(Span::from_secs(1));
    scene.leave(B);
    assert_eq!(scene.holders(), [C]);
    scene.wire.extend(second);
    scene.stabilize();
    scene.request(D);
    scene.pass(Span::from_secs(1));

    assert_eq!((scene.order(), scene.holders()), (vec![A, B, C], vec![C]));
}

/// D receives `Inquire` after a late REQUEST.
#[test]
fn former_owner_keeps_votes_of_its_successor() {
    let (mut scene, late) = handed_over();
    scene.wire.extend(late);
    scene.stabilize();

    assert_eq!(scene.holders(), [A]);
    for replica in 0..3 {
        let state = scene.state(replica);
        assert!(
            state.contains("@23, grant ") && !state.contains("queue"),
            "the vote is still for the reign of D: {state}"
        );
    }
}

/// B retries, so each replica sends D `Inquire`.
#[test]
fn restarted_owner_keeps_votes_of_its_successor() {
    let mut scene = with_requests(REPAIRED, &[D, A]);
    scene.leave(D);
    assert_eq!(scene.holders(), [A]);
    let replicas = Replicas::on_overlay("resource", Quorum::new(3, 2));
    scene.peers.insert(D, E2e::new(PeerId::new(D), &replicas, REPAIRED));
    scene.cut_off = Some(A);
    scene.request(B);
    scene.pass(Span::from_secs(30));

    assert!(sent(&scene, ["inquire"])[0] > 0, "no peer was asked, so the run tests nothing");
    assert_eq!(scene.order(), [D, A], "A has a lease of 60 s");
}

/// A late REQUEST of D arrives.
#[test]
fn late_request_of_restarted_owner_returns_no_vote() {
    let (mut scene, late) = handed_over();
    let replicas = Replicas::on_overlay("resource", Quorum::new(3, 2));
    scene.peers.insert(D, E2e::new(PeerId::new(D), &replicas, REPAIRED));
    scene.request(D);
    scene.stabilize();
    scene.wire.extend(late);
    scene.stabilize();

    assert_eq!((scene.holders(), sent(&scene, ["decline"])), (vec![A], [0]));
}

/// A's token is still in flight.
#[test]
fn inquire_before_token_returns_no_vote() {
    let mut scene = with_requests(REPAIRED, &[D, A]);
    scene.release(D);
    let token = scene.hold_back(D, A);
    scene.cut_off = Some(D);
    scene.request(B);
    scene.pass(Span::from_secs(30));
    assert!(sent(&scene, ["inquire"])[0] > 0, "no peer was asked, so the run tests nothing");
    scene.wire.extend(token);
    scene.stabilize();

    assert_eq!((scene.order(), scene.holders()), (vec![D, A], vec![A]));
}

/// A's lease has expired: the token that it has sent to B is only a queue.
fn queue_for_b() -> Scene {
    let mut scene = with_requests(REPAIRED, &[A, B, C, D]);
    scene.release(A);
    let late = scene.hold_back(A, B);
    scene.cut_off = Some(A);
    scene.pass(REPAIRED.lease + Span::from_secs(1));
    assert_eq!(scene.holders(), [0; 0]);
    scene.wire.extend(late);
    scene
}

#[test]
fn queue_for_withdrawn_client_is_forwarded() {
    let mut scene = queue_for_b();
    scene.release(B);
    scene.pass(Span::from_secs(1));
    assert_eq!(scene.holders(), [C]);
    scene.leave(C);

    assert_eq!(scene.order(), [A, C, D]);
}

/// It withdraws before it is elected.
#[test]
fn withdrawing_client_forwards_the_queue() {
    let mut scene = queue_for_b();
    scene.deliver(A, B, "token");
    scene.release(B);
    scene.pass(Span::from_secs(1));
    assert_eq!(scene.holders(), [C]);
    scene.leave(C);

    assert_eq!(scene.order(), [A, C, D]);
}

#[test]
fn token_for_crashed_client_delays_others_by_one_lease() {
    let mut scene = with_requests(REPAIRED, &[A, B, C, D]);
    scene.kill(B);
    scene.release(A);
    scene.pass(REPAIRED.lease * 2);
    assert_eq!(scene.holders(), [C]);
    scene.leave(C);

    assert_eq!(scene.order(), [A, C, D]);
}

#[test]
fn invalid_messages_are_dropped() {
    let replicas = Replicas::on_overlay("resource", Quorum::new(3, 2));
    let (me, other) = (PeerId::new(1), PeerId::new(2));
    let elected = Stamp { time: 1, client: Claim { peer: other, ticket: Ticket::new(1) } };
    let winner = |replica| Message::IAmWinner { replica, owner: Owner { epoch: 1, elected, peer: other } };
    let hop = |key, next| Hop { key, origin: other, previous: other, next };
    let key = replicas.key(0).expect("a key");
    let routed = |hop, message| Input::Routed { hop, message };
    let sent = |message| Input::Message { from: other, message };
    let invalid = [
        sent(winner(3)),
        sent(Message::Forget { replica: u32::MAX, epoch: 1 }),
        routed(hop(key, None), winner(1)),
        routed(hop(key, Some(other)), winner(1)),
        routed(hop(Key::new(5), None), winner(0)),
        routed(hop(Key::new(5), Some(other)), winner(0)),
        routed(hop(key, Some(other)), Message::Got { receipt: 1 }),
    ];
    for input in invalid {
        let (mut peer, mut effects) = (E2e::new(me, &replicas, REPAIRED), Vec::new());
        step(&mut peer, input.clone(), &mut Cx::new(me, Time::ZERO, &mut Rng::new(1), &mut effects));
        assert!(matches!(effects[..], [Effect::Unexpected { .. }]), "{input:?} gave {effects:?}");
        assert_eq!(peer.to_string(), "idle");
    }
}

// Defects of the printed form that are not in `peerlock-explore`.

/// §V.A as printed. A is only slow.
#[test]
fn claim_without_votes_allows_two_holders() {
    let holders = [false, true].map(|claims_voted| {
        let mut scene = with_requests(Config { claims_voted, ..REPAIRED }, &[A, B]);
        scene.pass(Span::from_secs(3));
        scene.pass(REPAIRED.ping - Span::from_secs(10));
        scene.cut_off = Some(B);
        scene.pass(Span::from_secs(30));
        scene.holders().len()
    });
    assert_eq!(holders, [2, 1]);
}

#[test]
fn without_leases_crashed_owner_blocks_forever() {
    let order = [false, true].map(|leases| {
        let mut scene = with_requests(Config { leases, ..REPAIRED }, &[A]);
        scene.kill(A);
        scene.request(B);
        scene.pass(REPAIRED.ping * 2);
        scene.order()
    });
    assert_eq!(order, [vec![A], vec![A, B]]);
}

#[test]
fn without_retries_a_lost_request_waits_forever() {
    let holders = [false, true].map(|asks_again| {
        let mut scene = new_scene(Config { asks_again, ..REPAIRED });
        scene.request(A);
        (0..3).for_each(|_| scene.lose(A, 10, "request"));
        scene.pass(REPAIRED.ping);
        scene.holders().len()
    });
    assert_eq!(holders, [0, 1]);
}
