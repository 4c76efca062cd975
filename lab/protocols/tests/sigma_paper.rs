//! Statements of the Sigma paper, and each defect of Figures 5 and 6 beside its repair.

#[allow(dead_code, reason = "each protocol's tests use some of it")]
mod scene;

use peerlock_protocols::sigma::Config;
use peerlock_protocols::{Input, Sigma};
use peerlock_types::{Span, Ticket};
use scene::Scene;
use scene::votes::{A, B, C, NEWCOMER};

/// Plays the printed form and the repaired one.
fn both<T>(play: impl Fn(Config) -> T) -> [T; 2] {
    [Config::PRINTED, Config::REPAIRED].map(play)
}

/// §4, case 1.
#[test]
fn idle_resource_costs_three_messages_per_replica() {
    let sent = both(|config| {
        let mut scene = Scene::new(4, 3, config);
        scene.request(A);
        scene.stabilize();
        assert_eq!(scene.holders(), [A]);
        scene.release(A);
        scene.stabilize();
        scene.sent
    });
    assert_eq!(sent, [[4, 4, 0, 0, 4]; 2]);
}

#[test]
fn waiter_is_granted_at_release() {
    let mut scene = Scene::new(4, 3, Config::REPAIRED);
    for client in [A, B, C] {
        scene.request(client);
        scene.stabilize();
    }
    for client in [A, B, C] {
        assert_eq!(scene.holders(), [client]);
        scene.release(client);
        scene.stabilize();
    }
    assert_eq!(scene.sent, [12, 12 + 8, 0, 0, 12]);
}

#[test]
fn withdrawn_waiter_is_skipped() {
    let mut scene = Scene::new(3, 2, Config::REPAIRED);
    for client in [A, B, C] {
        scene.request(client);
        scene.stabilize();
    }
    scene.release(B);
    scene.release(A);
    scene.stabilize();
    assert_eq!(scene.entered.iter().map(|&(peer, ..)| peer).collect::<Vec<_>>(), [A, C]);
}

#[test]
fn tickets_of_one_peer_wait_independently() {
    let mut scene = Scene::new(3, 2, Config::REPAIRED);
    let tickets = [scene.request(A), scene.request(A), scene.request(A)];
    scene.stabilize();
    for ticket in tickets {
        assert_eq!(scene.grants.iter().map(|&(_, ticket, _)| ticket).collect::<Vec<_>>(), [ticket]);
        scene.grants.clear();
        scene.step(A, Input::Release(Ticket::new(ticket)));
        scene.stabilize();
    }
}

/// §4, informed backoff.
#[test]
fn retries_rebuild_reset_replica() {
    let mut scene = Scene::new(3, 3, Config::REPAIRED);
    for client in [A, B, C] {
        scene.request(client);
        scene.stabilize();
    }
    scene.reset(0, 1);
    scene.pass(Span::from_secs(5));
    assert_eq!(scene.owner(0), Some(A), "A renews");
    scene.release(A);
    scene.stabilize();
    assert_eq!(scene.holders(), [B], "all three votes are needed");
}

/// On an overlay two peers may act as one replica for a while.
#[test]
fn earlier_incarnation_counts_after_later_one_is_gone() {
    let mut scene = Scene::new(3, 2, Config::REPAIRED);
    scene.request(A);
    scene.stabilize();
    let both_live_on_as = |life: u64, scene: &mut Scene<Sigma>| {
        scene.reset(0, life);
        scene.reset(1, life);
        scene.pass(Config::REPAIRED.lease / 2); // A renews.
    };
    both_live_on_as(1000, &mut scene);
    scene.request(B);
    scene.stabilize();
    both_live_on_as(5, &mut scene);
    assert_eq!(scene.holders(), [A]);
    scene.release(A);
    scene.pass(Config::REPAIRED.lease / 4);
    assert_eq!(scene.holders(), [], "the later incarnation may still be active");
    scene.pass(Config::REPAIRED.lease * 2);
    assert_eq!(scene.holders(), [B]);
}

#[test]
fn crashed_holder_delays_others_by_one_lease() {
    let entered = both(|config| {
        let mut scene = Scene::new(3, 2, config);
        scene.request(A);
        scene.stabilize();
        scene.request(B);
        scene.stabilize();
        scene.cut_off = Some(A);
        scene.timers.retain(|&(peer, _), _| peer != A);
        scene.pass(Span::from_secs(11));
        scene.entered.len()
    });
    assert_eq!(entered, [2, 2]);
}

/// Also after a crashed holder; see `peerlock_protocols::fencing`.
#[test]
fn fencing_numbers_increase() {
    let mut scene = Scene::new(3, 2, Config::REPAIRED);
    for client in [A, B, A] {
        scene.request(client);
        scene.stabilize();
        scene.release(client);
        scene.stabilize();
    }
    scene.request(A);
    scene.stabilize();
    scene.timers.retain(|&(peer, _), _| peer != A);
    scene.request(C);
    scene.pass(Span::from_secs(11));
    let numbers: Vec<u64> = scene.entered.iter().map(|&(.., fencing)| fencing).collect();
    assert_eq!(numbers[..4], [1, 2, 3, 4]);
    assert_eq!(numbers[4], 4 + peerlock_protocols::fencing::LEAP, "no replica knows whether A used 4");
}

// Safety.

#[test]
fn yielded_vote_is_not_counted_again() {
    let holders = both(|config| {
        let mut scene = Scene::new(3, 2, config);
        for client in [A, B, C] {
            scene.request(client);
        }
        scene.hold_back(A, 1); // A's request to R1 is lost.
        scene.duplicate(C, 2, "request");
        for (client, replica) in [(A, 0), (B, 1), (C, 2)] {
            scene.deliver(client, replica, "request");
        }
        // A second copy of C's request arrives at R2: "owner = you". The answer is slow.
        scene.deliver(C, 2, "request");
        scene.deliver(2, C, "response");
        let answer = scene.hold_back(2, C);
        for (client, replica) in [(C, 0), (C, 1), (A, 2)] {
            scene.deliver(client, replica, "request");
        }
        for replica in [0, 1] {
            scene.deliver(replica, C, "response");
        }
        scene.try_deliver(2, C, "inquire"); // R2 asks for its vote, for A.
        scene.deliver(C, 2, "yield");
        scene.deliver(2, A, "response");
        scene.deliver(2, A, "response");
        scene.deliver(0, A, "response");
        assert_eq!(scene.holders(), [A], "with R0 and R2");
        // B withdraws, and C gets R1. Then the slow answer arrives.
        scene.release(B);
        scene.deliver(B, 1, "release");
        scene.deliver(1, C, "response");
        scene.put_back(answer);
        while scene.try_deliver(2, C, "response") {}
        scene.holders()
    });
    assert_eq!(holders, [vec![A, C], vec![A]]);
}

#[test]
fn answers_to_earlier_request_are_discarded() {
    let holders = both(|config| {
        let mut scene = Scene::new(3, 2, config);
        for client in [A, B] {
            scene.request(client);
            scene.stabilize();
        }
        scene.release(A);
        scene.stabilize();
        assert_eq!(scene.holders(), [B]);
        scene.request(A);
        scene.stabilize();
        scene.holders()
    });
    // One answer names B, and two old ones name A.
    assert_eq!(holders, [vec![B, A], vec![B]]);
}

#[test]
fn late_grant_of_earlier_request_is_not_counted() {
    let holders = both(|config| {
        let mut scene = Scene::new(3, 2, config);
        scene.request(A);
        for replica in 0..3 {
            scene.deliver(A, replica, "request");
        }
        let late = [scene.hold_back(0, A), scene.hold_back(1, A), scene.hold_back(2, A)].concat();
        scene.release(A); // Withdraws before any answer.
        scene.request(B);
        scene.stabilize();
        assert_eq!(scene.holders(), [B]);
        scene.request(A);
        scene.put_back(late);
        scene.stabilize();
        scene.holders()
    });
    assert_eq!(holders, [vec![B, A], vec![B]]);
}

#[test]
fn late_release_does_not_affect_next_request() {
    let holders = both(|config| {
        let mut scene = Scene::new(3, 2, config);
        scene.request(A);
        scene.stabilize();
        scene.release(A);
        for replica in 0..3 {
            scene.duplicate(A, replica, "release");
            scene.deliver(A, replica, "release");
        }
        let late = [scene.hold_back(A, 0), scene.hold_back(A, 1), scene.hold_back(A, 2)].concat();
        scene.request(A);
        scene.stabilize();
        scene.put_back(late);
        scene.stabilize();
        scene.request(B);
        scene.stabilize();
        scene.holders()
    });
    assert_eq!(holders, [vec![A, B], vec![A]]);
}

#[test]
fn late_yield_does_not_affect_next_grant() {
    let owners = both(|config| {
        let mut scene = Scene::new(3, 2, config);
        let last = NEWCOMER;
        for (client, replica) in [(A, 0), (B, 1), (last, 2)] {
            scene.request(client);
            scene.deliver(client, replica, "request");
        }
        for (client, replica) in [(A, 2), (last, 0), (last, 1)] {
            scene.deliver(client, replica, "request");
        }
        for replica in 0..3 {
            scene.deliver(replica, last, "response");
        }
        scene.try_deliver(2, last, "inquire");
        scene.duplicate(last, 2, "yield");
        scene.deliver(last, 2, "yield");
        let late = scene.hold_back(last, 2);
        assert_eq!(scene.owner(2), Some(A));
        // The last client enters. C requests, and then the second copy of the YIELD arrives.
        for client in [A, B] {
            scene.release(client);
        }
        scene.stabilize();
        assert_eq!(scene.holders(), [last]);
        scene.request(C);
        scene.stabilize();
        scene.put_back(late);
        scene.stabilize();
        scene.owner(2)
    });
    assert_eq!(owners, [Some(C), Some(NEWCOMER)]);
}

#[test]
fn cut_off_holder_stops_before_next_one_enters() {
    let found = both(|config| {
        let mut scene = Scene::new(3, 2, config);
        scene.request(A);
        scene.stabilize();
        scene.request(B);
        scene.stabilize();
        scene.cut_off = Some(A);
        scene.pass(Span::from_secs(11));
        (scene.holders(), scene.lost)
    });
    assert_eq!(found, [(vec![A, B], vec![]), (vec![B], vec![A])]);
}

#[test]
fn expired_vote_is_not_counted() {
    let holders = both(|config| {
        let mut scene = Scene::new(3, 2, config);
        scene.request(A);
        for replica in 0..3 {
            scene.deliver(A, replica, "request");
        }
        scene.deliver(0, A, "response");
        let late = [scene.hold_back(1, A), scene.hold_back(2, A)].concat();
        scene.timers.retain(|&(peer, _), _| peer != A); // A is so slow that even its timers are late.
        scene.request(B);
        scene.pass(Span::from_secs(11));
        assert_eq!(scene.holders(), [B]);
        scene.put_back(late);
        scene.deliver(1, A, "response");
        scene.holders()
    });
    assert_eq!(holders, [vec![B, A], vec![B]]);
}

#[test]
fn leases_are_renewed() {
    let found = both(|config| {
        let mut scene = Scene::new(3, 2, config);
        scene.request(A);
        scene.stabilize();
        scene.request(B);
        scene.pass(Span::from_secs(35));
        (scene.holders(), scene.lost)
    });
    assert_eq!(found, [(vec![A, B], vec![]), (vec![A], vec![])]);
}

// Liveness.

#[test]
fn duplicate_request_is_served_once() {
    let owners = both(|config| {
        let mut scene = Scene::new(3, 2, config);
        scene.request(A);
        scene.stabilize();
        scene.request(B);
        scene.duplicate(B, 0, "request");
        scene.stabilize();
        for client in [A, B] {
            scene.release(client);
            scene.stabilize();
        }
        scene.owner(0)
    });
    assert_eq!(owners, [Some(B), None]);
}

/// RELEASE overtaking REQUEST leaves a ghost owner, as does a lost RELEASE.
#[test]
fn replica_detects_that_owner_has_finished() {
    for is_lost in [false, true] {
        let holders = both(|config| {
            let mut scene = Scene::new(3, 2, config);
            scene.request(A);
            let requests = [scene.hold_back(A, 0), scene.hold_back(A, 1), scene.hold_back(A, 2)].concat();
            scene.release(A);
            if is_lost {
                scene.wire.clear();
            }
            scene.stabilize();
            scene.put_back(requests);
            scene.stabilize();
            scene.request(B);
            scene.pass(Span::from_secs(2));
            scene.holders()
        });
        assert_eq!(holders, [vec![], vec![B]], "RELEASE lost: {is_lost}");
    }
}

#[test]
fn yield_at_reset_replica_is_a_request() {
    let owners = both(|config| {
        let mut scene = Scene::new(3, 2, config);
        for (client, replica) in [(A, 0), (B, 1), (C, 2)] {
            scene.request(client);
            scene.deliver(client, replica, "request");
        }
        for (client, replica) in [(A, 2), (C, 0), (C, 1)] {
            scene.deliver(client, replica, "request");
        }
        for replica in 0..3 {
            scene.deliver(replica, C, "response");
        }
        scene.try_deliver(2, C, "inquire");
        scene.reset(2, 1);
        scene.deliver(C, 2, "yield");
        scene.owner(2)
    });
    assert_eq!(owners, [None, Some(C)]);
}

#[test]
fn client_retries_after_losing_first_messages() {
    let holders = both(|config| {
        let mut scene = Scene::new(3, 2, config);
        scene.request(A);
        scene.wire.clear();
        scene.pass(Span::from_secs(60));
        scene.holders()
    });
    assert_eq!(holders, [vec![], vec![A]]);
}

#[test]
fn lost_yield_is_sent_again() {
    let mut scene = Scene::new(3, 2, Config::REPAIRED);
    for (client, replica) in [(A, 0), (B, 1), (C, 2)] {
        scene.request(client);
        scene.deliver(client, replica, "request");
    }
    for (client, replica) in [(A, 2), (C, 0), (C, 1)] {
        scene.deliver(client, replica, "request");
    }
    for replica in 0..3 {
        scene.deliver(replica, C, "response");
    }
    scene.deliver(2, C, "inquire");
    assert_eq!(scene.hold_back(C, 2).len(), 1, "the YIELD");
    scene.stabilize();
    scene.pass(Span::from_secs(1));
    assert_eq!((scene.owner(2), scene.holders()), (Some(A), vec![A]));
}

/// The REQUEST at the head of the queue arrived after its RELEASE.
#[test]
fn finished_request_in_queue_does_not_block_others() {
    let mut scene = Scene::new(2, 2, Config::REPAIRED);
    scene.request(A);
    scene.duplicate(A, 0, "request");
    scene.deliver(A, 0, "request");
    let late = scene.hold_back(A, 0);
    scene.stabilize();
    scene.release(A);
    scene.stabilize();

    scene.request(B);
    let slow = scene.hold_back(B, 0);
    scene.stabilize();
    scene.request(C);
    scene.stabilize();
    assert_eq!([scene.owner(0), scene.owner(1)], [Some(C), Some(B)], "a split");
    scene.put_back(late);
    scene.deliver(A, 0, "request");
    scene.hold_back(0, C); // The `Inquire` to C is lost.
    scene.put_back(slow);
    scene.pass(Span::from_secs(60));
    assert_eq!(scene.holders(), [B]);
}

/// C may still win, as far as it knows.
#[test]
fn owner_yields_at_second_inquire() {
    let mut scene = Scene::new(3, 2, Config::REPAIRED);
    scene.request(C);
    scene.deliver(C, 2, "request");
    scene.deliver(2, C, "response");
    scene.request(A);
    scene.duplicate(A, 2, "request");
    for asked in 1..=2 {
        scene.deliver(A, 2, "request");
        scene.deliver(2, C, "inquire");
        assert_eq!(scene.find(C, 2, "yield").is_some(), asked == 2);
    }
}

// Speed.

#[test]
fn hand_over_causes_no_yield() {
    let yields = both(|config| {
        let mut scene = Scene::new(4, 3, config);
        for client in [A, B] {
            scene.request(client);
            scene.stabilize();
        }
        scene.release(A);
        scene.stabilize();
        assert_eq!(scene.holders(), [B]);
        scene.sent[3]
    });
    // After two grants B has two entries with its own name and two with A's.
    assert_eq!(yields, [2, 0]);
}

/// In print it yields, too.
#[test]
fn earliest_client_does_not_yield() {
    let yields = both(|config| {
        let mut scene = Scene::new(3, 2, config);
        for (client, replica) in [(A, 0), (B, 1), (C, 2)] {
            scene.request(client);
            scene.deliver(client, replica, "request");
        }
        scene.stabilize();
        assert_eq!(scene.holders(), [A]);
        scene.sent[3]
    });
    assert_eq!(yields, [4, 2]);
}

// Backoff.

/// B is at position 1, after two holds of `stay` with a pause of `idle`.
fn retry_after(config: Config, stay: u64, idle: u64) -> Span {
    let mut scene = Scene::new(3, 2, config);
    for pause in [0, idle] {
        scene.pass(Span::from_secs(pause));
        scene.request(C);
        scene.stabilize();
        scene.pass(Span::from_secs(stay));
        scene.release(C);
        scene.stabilize();
    }
    for client in [C, A, B] {
        scene.request(client);
        scene.stabilize();
    }
    scene.timers.iter().find(|((peer, _), _)| *peer == B).expect("B has a timer").1.since(scene.now)
}

/// In print, with T_w = T_CS (P + ½), it comes after the turn.
#[test]
fn retry_comes_before_the_turn() {
    let after = both(|config| retry_after(config, 8, 0));
    let t_w = Span::from_secs(8) * 3 / 2; // P = 1.
    assert_eq!(after, [t_w, t_w * 5 / 8]);
}

#[test]
fn forecast_excludes_idle_time() {
    let after = both(|config| retry_after(config, 8, 100));
    assert_eq!(after, [Span::from_secs(108) * 3 / 2, Span::from_secs(8) * 3 / 2 * 5 / 8]);
}

#[test]
fn new_client_does_not_overtake() {
    let second = both(|config| {
        let mut scene = Scene::new(3, 2, config);
        for client in [A, B] {
            scene.request(client);
            scene.stabilize();
            scene.release(client);
            scene.stabilize();
        }
        for client in [A, B, NEWCOMER] {
            scene.pass(Span::from_millis(1));
            scene.request(client);
            scene.stabilize();
        }
        scene.release(A);
        scene.stabilize();
        scene.entered.last().map(|&(peer, ..)| peer)
    });
    assert_eq!(second, [Some(NEWCOMER), Some(B)]);
}
