use alloc::format;
use alloc::string::{String, ToString};

use super::*;

fn claim(peer: u64) -> Claim {
    Claim { peer: PeerId::new(peer), ticket: Ticket::new(1) }
}

fn in_use(slots: u32) -> Queue {
    let mut queue = Queue::new(8, false);
    (0..slots).for_each(|slot| queue.add(slot, PeerId::new(u64::from(slot) + 1), 0, false));
    queue
}

fn note(queue: &mut Queue, update: Update) {
    queue.note(update, ()).expect("a valid update");
}

fn ask(queue: &mut Queue, peers: &[u64]) {
    peers.iter().for_each(|&peer| note(queue, Update::Request(claim(peer))));
}

/// The next bindings, as `slot:next`.
fn bound(queue: &mut Queue) -> String {
    let mut all: Vec<String> = Vec::new();
    while let Some(Binding { slot, following, .. }) = queue.bind() {
        all.push(format!("{slot}:{following}"));
    }
    all.join(" ")
}

#[test]
fn free_token_goes_to_oldest_waiter_only() {
    let mut queue = in_use(2);
    ask(&mut queue, &[5, 6, 7]);
    assert_eq!(bound(&mut queue), "0:5 1:6");

    note(&mut queue, Update::Left { slot: 1, stay: 0, to: claim(6), turn: 0 });
    note(&mut queue, Update::Free { slot: 1, stay: 1, report: 1 });

    assert_eq!(bound(&mut queue), "1:5 0:7", "the oldest gets it, and the next is announced to 0's holder");
}

#[test]
fn single_waiter_is_announced_to_every_holder() {
    let mut queue = in_use(3);
    ask(&mut queue, &[5]);
    assert_eq!(bound(&mut queue), "0:5 1:5 2:5");
}

#[test]
fn new_waiter_replaces_one_known_to_several_holders() {
    let mut queue = in_use(3);
    ask(&mut queue, &[5]);
    bound(&mut queue);

    ask(&mut queue, &[6]);
    assert_eq!(bound(&mut queue), "1:6");
    ask(&mut queue, &[7]);
    assert_eq!(bound(&mut queue), "2:7");
    ask(&mut queue, &[8]);
    assert_eq!(bound(&mut queue), "", "three holders, three waiters");
}

#[test]
fn passed_waiter_is_announced_to_one_more_holder() {
    let mut queue = in_use(2);
    ask(&mut queue, &[5, 6, 7, 8, 9, 10]);
    assert_eq!(bound(&mut queue), "0:5 1:6");

    note(&mut queue, Update::Left { slot: 1, stay: 0, to: claim(6), turn: 0 });
    assert_eq!(bound(&mut queue), "1:7", "passed once");
    note(&mut queue, Update::Left { slot: 1, stay: 1, to: claim(7), turn: 0 });
    assert_eq!(bound(&mut queue), "1:8", "passed twice");
    note(&mut queue, Update::Left { slot: 1, stay: 2, to: claim(8), turn: 0 });
    assert_eq!(bound(&mut queue), "1:5", "passed three times");
}

#[test]
fn astray_token_delays_second_announcement() {
    let mut queue = in_use(2);
    ask(&mut queue, &[5, 6, 7, 8, 9, 10]);
    bound(&mut queue);
    note(&mut queue, Update::Left { slot: 1, stay: 0, to: claim(6), turn: 0 });
    note(&mut queue, Update::Left { slot: 1, stay: 1, to: claim(1), turn: 0 }); // Not a waiter.
    note(&mut queue, Update::Left { slot: 1, stay: 2, to: claim(7), turn: 0 });
    note(&mut queue, Update::Left { slot: 1, stay: 3, to: claim(8), turn: 0 });
    assert_eq!(bound(&mut queue), "1:9", "passed three times");
}

#[test]
fn longest_holder_receives_oldest_waiter() {
    let mut queue = in_use(2);
    note(&mut queue, Update::Left { slot: 0, stay: 0, to: claim(3), turn: 0 });
    ask(&mut queue, &[5, 6]);
    assert_eq!(bound(&mut queue), "1:5 0:6");
}

#[test]
fn old_and_duplicate_updates_change_nothing() {
    let mut queue = in_use(2);
    ask(&mut queue, &[5, 6, 7]);
    bound(&mut queue);
    let left = |slot, stay, peer| Update::Left { slot, stay, to: claim(peer), turn: 0 };
    note(&mut queue, left(0, 1, 6)); // Overtakes the update of stay 0.
    bound(&mut queue);
    let before = queue.to_string();

    let old = [
        left(0, 0, 6),
        left(0, 1, 6),
        Update::Free { slot: 0, stay: 1, report: 1 },
        Update::Busy { slot: 1, stay: 0, report: 1 },
        Update::Free { slot: 1, stay: 0, report: 1 },
        Update::Withdraw(claim(6)),
    ];
    for update in old {
        note(&mut queue, update);
        assert_eq!(queue.to_string(), before, "{update:?}");
    }
}

#[test]
fn early_report_takes_effect_when_token_has_moved() {
    let mut queue = in_use(1);
    note(&mut queue, Update::Free { slot: 0, stay: 2, report: 1 });
    note(&mut queue, Update::Left { slot: 0, stay: 0, to: claim(5), turn: 0 });
    assert_eq!(queue.to_string(), "waiting [], tokens [0 at 5]");
    note(&mut queue, Update::Left { slot: 0, stay: 1, to: claim(6), turn: 0 });
    assert_eq!(queue.to_string(), "waiting [], tokens [0 at 6, free]");
}

#[test]
fn waiter_of_failed_peer_is_removed() {
    let mut queue = in_use(2);
    ask(&mut queue, &[5, 6, 7]);
    assert_eq!(bound(&mut queue), "0:5 1:6");
    queue.forget(PeerId::new(5));
    assert_eq!(bound(&mut queue), "0:7");
    assert_eq!(queue.to_string(), "waiting [6, 7], tokens [0 at 1, next 7; 1 at 2, next 6]");
}

/// The token may be lost with its peer: the waiter must get another.
#[test]
fn free_token_of_failed_peer_does_not_block_waiter() {
    let mut queue = Queue::new(8, false);
    [0, 1].into_iter().for_each(|slot| queue.add(slot, PeerId::new(u64::from(slot) + 1), 0, true));
    queue.forget(PeerId::new(1));
    ask(&mut queue, &[5]);
    assert_eq!(bound(&mut queue), "1:5");
    ask(&mut queue, &[6]);
    assert_eq!(bound(&mut queue), "0:6", "the peer may be alive");
    note(&mut queue, Update::Left { slot: 1, stay: 0, to: claim(5), turn: 0 });
    note(&mut queue, Update::Free { slot: 1, stay: 1, report: 1 });
    assert_eq!(bound(&mut queue), "1:6", "and there is another token");
}

#[test]
fn update_of_unknown_token_is_rejected() {
    let mut queue = in_use(1);
    let before = queue.clone();
    let unexpected = [
        Update::Left { slot: 1, stay: 0, to: claim(5), turn: 0 },
        Update::Free { slot: 7, stay: 0, report: 1 },
        Update::Busy { slot: u32::MAX, stay: 0, report: 1 },
    ];
    for update in unexpected {
        assert!(queue.note(update, ()).is_err(), "{update:?}");
        assert_eq!(queue, before);
    }
}

#[test]
fn duplicate_request_is_queued_once() {
    let mut queue = in_use(1);
    ask(&mut queue, &[5, 5, 6]);
    assert_eq!(bound(&mut queue), "0:5 6", "it is queued already");
    note(&mut queue, Update::Left { slot: 0, stay: 0, to: claim(5), turn: 0 });
    ask(&mut queue, &[5]);
    assert_eq!(bound(&mut queue), "0:5", "queued again: the token passes through its peer");
    note(&mut queue, Update::Left { slot: 0, stay: 1, to: claim(6), turn: 0 });
    assert_eq!(queue.to_string(), "waiting [5], tokens [0 at 6, next 5]");
}

/// `PEER@STAY:claims`, with `+` if there are more.
fn announced(queue: &mut Queue) -> String {
    let mut all: Vec<String> = Vec::new();
    while let Some(Binding { at, stay, following, .. }) = queue.bind() {
        all.push(format!("{at}@{stay}:{following}{}", if following.more { "+" } else { "" }));
    }
    all.join(" ")
}

#[test]
fn single_token_extension_goes_to_last_announced() {
    let mut queue = in_use(1);
    ask(&mut queue, &[5]);
    assert_eq!(announced(&mut queue), "1@0:5");
    ask(&mut queue, &[6]);
    assert_eq!(announced(&mut queue), "5@1:6");
    note(&mut queue, Update::Left { slot: 0, stay: 0, to: claim(5), turn: 0 });
    ask(&mut queue, &[7]);
    assert_eq!(announced(&mut queue), "6@2:7", "wherever the token is");
}

#[test]
fn successors_are_extended_when_half_are_left() {
    let mut queue: Queue = Queue::new(4, false);
    queue.add(0, PeerId::new(1), 0, false);
    ask(&mut queue, &[5, 6, 7, 8, 9, 10, 11]);
    assert_eq!(announced(&mut queue), "1@0:5 6 7 8+");
    note(&mut queue, Update::Left { slot: 0, stay: 0, to: claim(5), turn: 0 });
    assert_eq!(announced(&mut queue), "");
    note(&mut queue, Update::Left { slot: 0, stay: 1, to: claim(6), turn: 0 });
    assert_eq!(announced(&mut queue), "8@4:9 10+", "three successors and one more waiter");
}

/// These hand-overs are not moves.
#[test]
fn clients_of_one_peer_are_announced_together() {
    let mut queue: Queue = Queue::new(1, false);
    queue.add(0, PeerId::new(1), 0, false);
    for (peer, ticket) in [(5, 1), (5, 2), (5, 3), (6, 1)] {
        note(&mut queue, Update::Request(Claim { peer: PeerId::new(peer), ticket: Ticket::new(ticket) }));
    }
    assert_eq!(announced(&mut queue), "1@0:5 5#2 5#3+");
}

/// With room a request is announced at once, otherwise when there is room again.
#[test]
fn token_without_room_for_successors_is_marked_more() {
    let mut queue: Queue = Queue::new(2, false);
    queue.add(0, PeerId::new(1), 0, false);
    ask(&mut queue, &[5]);
    assert_eq!(announced(&mut queue), "1@0:5");
    ask(&mut queue, &[6]);
    assert_eq!(announced(&mut queue), "5@1:6+", "no room for more");
    ask(&mut queue, &[7]);
    assert_eq!(announced(&mut queue), "");
    note(&mut queue, Update::Left { slot: 0, stay: 0, to: claim(5), turn: 0 });
    assert_eq!(announced(&mut queue), "6@2:7+");
}

#[test]
fn withdrawn_claim_stays_announced() {
    let mut queue = in_use(1);
    ask(&mut queue, &[5, 6]);
    assert_eq!(announced(&mut queue), "1@0:5 6");
    note(&mut queue, Update::Withdraw(claim(5)));
    ask(&mut queue, &[7]);
    assert_eq!(announced(&mut queue), "6@2:7");
    assert_eq!(queue.to_string(), "waiting [6, 7], tokens [0 at 1, next 5 6 7]");
}

#[test]
fn diverted_token_receives_new_successors() {
    let mut queue = in_use(1);
    ask(&mut queue, &[5, 6]);
    assert_eq!(announced(&mut queue), "1@0:5 6");
    note(&mut queue, Update::Forgotten(claim(5)));
    assert_eq!(announced(&mut queue), "1@0:6");
    note(&mut queue, Update::Left { slot: 0, stay: 0, to: claim(5), turn: 0 }); // Before it received that.
    assert_eq!(announced(&mut queue), "5@1:6");
}

#[test]
fn later_stay_serves_claims_in_between() {
    let mut queue = in_use(1);
    ask(&mut queue, &[5, 6, 7]);
    announced(&mut queue);
    assert_eq!(queue.note(Update::Left { slot: 0, stay: 1, to: claim(6), turn: 0 }, ()), Ok(2));
    assert_eq!(queue.to_string(), "waiting [7], tokens [0 at 6, next 7]");
    assert_eq!(queue.note(Update::Left { slot: 0, stay: 0, to: claim(5), turn: 0 }, ()), Ok(0));
    assert_eq!(queue.to_string(), "waiting [7], tokens [0 at 6, next 7]");
}

/// With two successors each.
fn sending_ahead(slots: u32) -> Queue {
    let mut queue = Queue::new(4, true);
    (0..slots).for_each(|slot| queue.add(slot, PeerId::new(u64::from(slot) + 1), 0, false));
    queue
}

/// `SLOT>PEER@STAY:claims`, with `+` if there are more.
fn announced_of_each(queue: &mut Queue) -> String {
    let mut all: Vec<String> = Vec::new();
    while let Some(Binding { at, slot, stay, following, .. }) = queue.bind() {
        all.push(format!("{slot}>{at}@{stay}:{following}{}", if following.more { "+" } else { "" }));
    }
    all.join(" ")
}

#[test]
fn short_stays_send_successors_ahead_in_turn() {
    let mut queue = sending_ahead(2);
    ask(&mut queue, &[5, 6, 7, 8, 9]);
    assert_eq!(announced_of_each(&mut queue), "0>1@0:5+ 1>2@0:6+ 0>5@1:7+ 1>6@1:8+");
    note(&mut queue, Update::Left { slot: 1, stay: 0, to: claim(6), turn: 0 });
    assert_eq!(announced_of_each(&mut queue), "1>8@2:9", "to the last announced, wherever the token is");
    note(&mut queue, Update::Left { slot: 1, stay: 1, to: claim(8), turn: 0 });
    assert_eq!(queue.to_string(), "waiting [5, 7, 9], tokens [0 at 1, next 5 7; 1 at 8, next 9]");
}

#[test]
fn free_token_takes_back_announcement_of_its_waiter() {
    let mut queue = sending_ahead(2);
    ask(&mut queue, &[5, 6, 7]);
    assert_eq!(announced_of_each(&mut queue), "0>1@0:5+ 1>2@0:6+ 0>5@1:7");
    note(&mut queue, Update::Withdraw(claim(6)));
    assert_eq!(announced_of_each(&mut queue), "1>2@0:5", "known to one holder");
    note(&mut queue, Update::Left { slot: 1, stay: 0, to: claim(6), turn: 0 }); // Before it received that.
    note(&mut queue, Update::Free { slot: 1, stay: 1, report: 1 });
    assert_eq!(announced_of_each(&mut queue), "1>6@1:5 0>1@0:7", "the oldest gets it, and 0's holder gets another");
}

#[test]
fn late_successors_switch_to_sending_ahead() {
    let mut queue = in_use(2);
    ask(&mut queue, &(10..60).collect::<Vec<_>>());
    assert_eq!(announced_of_each(&mut queue), "0>1@0:10 1>2@0:11");
    let mut sent = Vec::new();
    for (peer, (slot, stay)) in (10..).zip([(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)]) {
        note(&mut queue, Update::Left { slot, stay, to: claim(peer), turn: 0 });
        sent.push(announced_of_each(&mut queue));
        note(&mut queue, Update::Free { slot, stay: stay + 1, report: 1 });
    }
    assert_eq!(sent[3], "1>13@2:15", "late binding so far");
    assert_eq!(sent[4], "0>14@3:16+ 0>16@4:17+ 0>17@5:18+ 0>18@6:19+", "four were late");
}

/// Slot 0's client stays, two others take turns with slot 1, and a third one waits.
#[test]
fn passes_are_bounded_behind_a_long_stay() {
    let mut queue = in_use(2);
    ask(&mut queue, &[5]);
    bound(&mut queue);
    for (stay, peer) in (0..100).zip(6..) {
        ask(&mut queue, &[peer]);
        if bound(&mut queue) != format!("1:{peer}") {
            assert!(stay <= 12, "5 was passed {stay} times");
            return;
        }
        note(&mut queue, Update::Left { slot: 1, stay, to: claim(peer), turn: 2 * stay + 2 });
        bound(&mut queue);
    }
    panic!("5 was passed by 100 later requests");
}

/// So many that caution alone would need thousands of entries to decrease.
#[test]
fn passes_are_bounded_after_many_astray_tokens() {
    let mut queue = in_use(2);
    (0..10_000).for_each(|stay| note(&mut queue, Update::Left { slot: 1, stay, to: claim(1), turn: 0 }));
    ask(&mut queue, &(5..25).collect::<Vec<_>>());
    bound(&mut queue);
    let waits = queue.locations.iter().find(|placed| placed.location.slot == 0).and_then(|placed| placed.location.next);
    let waits = waits.expect("a successor is announced");
    for passes in 0..13 {
        let Location { stay, next, turn, .. } = queue.locations[1].location.clone();
        let next = next.expect("a successor is announced");
        if next == waits {
            return;
        }
        assert!(passes < 12, "{waits} was passed {passes} times");
        note(&mut queue, Update::Left { slot: 1, stay, to: next, turn });
        bound(&mut queue);
    }
}

#[test]
fn claims_behind_long_stay_are_announced_elsewhere() {
    let mut queue = sending_ahead(2);
    ask(&mut queue, &(5..60).collect::<Vec<_>>());
    announced_of_each(&mut queue);
    let behind: Vec<Claim> = queue.locations[0].location.announced().collect();
    assert!(behind.len() > 1);
    for entries in 0..20 {
        let Location { stay, next, turn, .. } = queue.locations[1].location.clone();
        let next = next.expect("successors are sent ahead");
        if next == behind[0] {
            return assert!(entries <= 10, "after {entries} entries");
        }
        note(&mut queue, Update::Left { slot: 1, stay, to: next, turn });
        announced_of_each(&mut queue);
    }
    panic!("{} is announced behind the long stay only: {queue}", behind[0]);
}

/// As many as holders to which one waiter may be announced.
#[test]
fn waiter_known_to_many_long_stays_is_announced_again() {
    let slots = MOST_KNOWN + 2;
    let mut queue = in_use(slots);
    ask(&mut queue, &[1000]);
    bound(&mut queue);
    assert_eq!(queue.waiting.announced(claim(1000)).len(), MOST_KNOWN as usize);
    let last = slots - 1;
    for (stay, peer) in (0..1000).zip(2000..) {
        ask(&mut queue, &[peer]);
        bound(&mut queue);
        let Location { stay: at, next, turn, .. } = queue.locations[last as usize].location.clone();
        assert_eq!(at, stay);
        match next {
            Some(next) if next != claim(1000) => note(&mut queue, Update::Left { slot: last, stay, to: next, turn }),
            next => return assert_eq!(next, Some(claim(1000))),
        }
    }
    panic!("{queue}");
}

#[test]
fn indices_agree_with_full_scan() {
    let mut rng = peerlock_types::Rng::new(1);
    for round in 0..300 {
        let slots = 1 + rng.below(6) as u32;
        let mut queue: Queue = Queue::new(4, round % 2 == 0);
        (0..slots).for_each(|slot| queue.add_barred(slot, PeerId::new(u64::from(slot)), 0, slot % 2 == 0));
        for (reports, peer) in (1..).zip(10..200) {
            queue.let_go(slots, slots as usize);
            while queue.bind().is_some() {}
            is_consistent(&queue);
            let location = queue.locations().nth(rng.below(u64::from(slots)) as usize).expect("one of them").clone();
            let target = queue.waiting().nth(rng.below(3) as usize);
            let Location { slot, stay, turn, .. } = location;
            let update = match (rng.below(8), location.next, target) {
                (0..=2, ..) => Update::Request(claim(peer)),
                (3 | 4, Some(to), _) => Update::Left { slot, stay, to, turn },
                (5, _, Some(to)) => Update::Left { slot, stay: stay + rng.below(2), to, turn: turn + rng.below(2) },
                (6, _, Some(target)) if rng.chance(0.2) => Update::Withdraw(target),
                (6, ..) => Update::Busy { slot, stay, report: reports },
                _ => Update::Free { slot, stay, report: reports },
            };
            note(&mut queue, update);
            if rng.chance(0.02) {
                queue.forget(PeerId::new(10 + rng.below(200)));
            }
            is_consistent(&queue);
        }
    }
}

fn is_consistent(queue: &Queue) {
    for (place, location) in queue.locations.iter().map(|placed| (placed.since, &placed.location)) {
        let rating = Rating::new(place, location.slot);
        let is_its = |ranked: &Ranked| *ranked == Ranked::new(ranked.rank(), rating);
        let ranks: Vec<u32> = queue.ranks.iter().filter(is_its).map(Ranked::rank).collect();
        assert_eq!(ranks, location.rank().into_iter().collect::<Vec<_>>(), "{queue}");
        let is_shared = location.next.is_some_and(|next| queue.waiting.announced(next).len() > 1);
        assert_eq!(queue.shared.iter().any(|shared| shared == rating), is_shared, "{queue}");
    }
    assert_eq!(queue.ranks.iter().count(), queue.locations.iter().filter_map(|placed| placed.location.rank()).count());
    let mut known = Vec::new();
    for claim in queue.waiting() {
        let announced: Vec<u32> = queue
            .locations
            .iter()
            .map(|placed| &placed.location)
            .filter(|location| location.announced().any(|announced| announced == claim))
            .map(|location| location.slot)
            .collect();
        let mut retained = queue.waiting.announced(claim).to_vec();
        retained.sort_unstable();
        assert_eq!(retained, announced, "{claim} in {queue}");
        let is_promised = queue.locations.iter().any(|placed| placed.location.promised() == Some(claim));
        known.extend((!is_promised).then_some((announced.len() as u32, queue.waiting.place(claim).expect("it waits"))));
    }
    let mut oldest = known.clone();
    oldest.sort_unstable();
    oldest.dedup_by_key(|(known, _)| *known);
    let found = |queue: &Queue| {
        let unknown = queue.waiting.first_unknown().map(|place| (0, place));
        unknown.into_iter().chain(queue.waiting.oldest_by_known()).collect::<Vec<_>>()
    };
    assert_eq!(found(queue), oldest, "{queue}");
    let unknown: Vec<u64> = known.iter().filter(|(known, _)| *known == 0).map(|&(_, place)| place).collect();
    assert_eq!(queue.waiting.unknown().collect::<Vec<_>>(), unknown, "{queue}");
    let again = Queue::from(view::Form::from(queue));
    assert_eq!(&again, queue, "as it is serialized");
    assert!(found(&again).iter().map(|(known, _)| known).eq(oldest.iter().map(|(known, _)| known)), "{queue}");
}

fn let_go(in_use: &[u32], slots: u32, room: usize) -> Vec<u32> {
    let mut queue: Queue = Queue::new(8, false);
    (0..3).for_each(|slot| queue.add_barred(slot, PeerId::new(1), 0, !in_use.contains(&slot)));
    queue.let_go(slots, room);
    queue.locations().filter(|location| !location.barred).map(|location| location.slot).collect()
}

#[test]
fn tokens_are_let_go_while_slots_in_use_allow() {
    let table: [(&[u32], u32, usize, &[u32]); 9] = [
        (&[], 3, 3, &[0, 1, 2]),
        (&[0, 1, 2], 3, 3, &[0, 1, 2]),
        (&[], 1, 1, &[0]),
        (&[2], 1, 1, &[]), // A surplus token is in use.
        (&[2], 2, 2, &[0]),
        (&[1, 2], 2, 2, &[1]),   // Room for its successor only.
        (&[0, 1, 2], 2, 2, &[]), // Not even for that.
        (&[0], 3, 1, &[0]),
        (&[0], 3, 2, &[0, 1]),
    ];
    for (in_use, slots, room, expected) in table {
        assert_eq!(let_go(in_use, slots, room), expected, "{in_use:?} in use, {slots} slots, room for {room}");
    }
}

#[test]
fn unreachable_waiter_is_passed_over_and_keeps_its_place() {
    for (slots, without, with) in [(1, "0:6 7", "0:5 6 7"), (2, "0:7", "0:5 1:6")] {
        let mut queue = in_use(slots);
        ask(&mut queue, &[5, 6, 7]);
        bound(&mut queue);

        queue.set_reachable(PeerId::new(5), false);
        assert_eq!(bound(&mut queue), without);
        assert_eq!(queue.waiting().next(), Some(claim(5)));

        queue.set_reachable(PeerId::new(5), true);
        assert_eq!(bound(&mut queue), with, "before later requests");
    }
}

#[test]
fn withdrawn_claim_at_unreachable_peer_is_taken_back() {
    let mut queue = in_use(1);
    ask(&mut queue, &[5, 6]);
    bound(&mut queue);
    note(&mut queue, Update::Withdraw(claim(5)));

    queue.set_reachable(PeerId::new(5), false);

    assert_eq!(bound(&mut queue), "0:6");
}

#[test]
fn free_token_goes_to_waiter_that_is_reachable_again() {
    let mut queue = in_use(1);
    ask(&mut queue, &[5]);
    queue.set_reachable(PeerId::new(5), false);
    note(&mut queue, Update::Free { slot: 0, stay: 0, report: 1 });
    assert_eq!(bound(&mut queue), "");
    queue.set_reachable(PeerId::new(5), true);
    assert_eq!(bound(&mut queue), "0:5");
}
