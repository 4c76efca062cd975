use alloc::format;
use alloc::string::{String, ToString};

use super::*;

fn claim(peer: u64) -> Claim {
    Claim { peer: PeerId::new(peer), ticket: Ticket::new(1) }
}

/// Tokens at peers 1, 2, … in use, and nobody who waits.
fn in_use(slots: u32) -> Line {
    let mut line = Line::new(8, false);
    (0..slots).for_each(|slot| line.add(slot, PeerId::new(u64::from(slot) + 1), 0, false));
    line
}

fn note(line: &mut Line, news: News) {
    line.note(news, ()).expect("nothing strange");
}

fn ask(line: &mut Line, peers: &[u64]) {
    peers.iter().for_each(|&peer| note(line, News::Request(claim(peer))));
}

/// The bindings that follow, as `slot:next`.
fn bound(line: &mut Line) -> String {
    let mut all: Vec<String> = Vec::new();
    while let Some(Binding { slot, following, .. }) = line.bind() {
        all.push(format!("{slot}:{following}"));
    }
    all.join(" ")
}

#[test]
fn a_free_token_goes_to_the_oldest_and_the_others_forget_it() {
    let mut line = in_use(2);
    ask(&mut line, &[5, 6, 7]);
    assert_eq!(bound(&mut line), "0:5 1:6");

    note(&mut line, News::Left { slot: 1, stay: 0, to: claim(6), turn: 0 });
    note(&mut line, News::Free { slot: 1, stay: 1, report: 1 });

    assert_eq!(bound(&mut line), "1:5 0:7", "the oldest gets it, and 0's holder is told of the next");
}

#[test]
fn with_few_who_wait_every_holder_is_told_of_somebody() {
    let mut line = in_use(3);
    ask(&mut line, &[5]);
    assert_eq!(bound(&mut line), "0:5 1:5 2:5");
}

#[test]
fn who_is_known_more_than_needed_makes_room_and_keeps_the_token_that_comes_back_first() {
    let mut line = in_use(3);
    ask(&mut line, &[5]);
    bound(&mut line);

    ask(&mut line, &[6]);
    assert_eq!(bound(&mut line), "1:6");
    ask(&mut line, &[7]);
    assert_eq!(bound(&mut line), "2:7");
    ask(&mut line, &[8]);
    assert_eq!(bound(&mut line), "", "three holders, three who come next");
}

#[test]
fn who_was_passed_is_told_to_one_more() {
    let mut line = in_use(2);
    ask(&mut line, &[5, 6, 7, 8, 9, 10]);
    assert_eq!(bound(&mut line), "0:5 1:6");

    note(&mut line, News::Left { slot: 1, stay: 0, to: claim(6), turn: 0 });
    assert_eq!(bound(&mut line), "1:7", "passed once");
    note(&mut line, News::Left { slot: 1, stay: 1, to: claim(7), turn: 0 });
    assert_eq!(bound(&mut line), "1:8", "passed twice");
    note(&mut line, News::Left { slot: 1, stay: 2, to: claim(8), turn: 0 });
    assert_eq!(bound(&mut line), "1:5", "passed three times");
}

#[test]
fn every_token_that_goes_astray_makes_the_coordinator_slower_to_tell_two_of_one() {
    let mut line = in_use(2);
    ask(&mut line, &[5, 6, 7, 8, 9, 10]);
    bound(&mut line);
    note(&mut line, News::Left { slot: 1, stay: 0, to: claim(6), turn: 0 });
    note(&mut line, News::Left { slot: 1, stay: 1, to: claim(1), turn: 0 }); // Nobody in line.
    note(&mut line, News::Left { slot: 1, stay: 2, to: claim(7), turn: 0 });
    note(&mut line, News::Left { slot: 1, stay: 3, to: claim(8), turn: 0 });
    assert_eq!(bound(&mut line), "1:9", "passed three times");
}

#[test]
fn whoever_has_had_its_token_longest_is_told_first() {
    let mut line = in_use(2);
    note(&mut line, News::Left { slot: 0, stay: 0, to: claim(3), turn: 0 });
    ask(&mut line, &[5, 6]);
    assert_eq!(bound(&mut line), "1:5 0:6");
}

#[test]
fn old_news_and_news_told_twice_change_neither_line_nor_tokens() {
    let mut line = in_use(2);
    ask(&mut line, &[5, 6, 7]);
    bound(&mut line);
    let left = |slot, stay, peer| News::Left { slot, stay, to: claim(peer), turn: 0 };
    note(&mut line, left(0, 1, 6)); // Overtakes the news of stay 0.
    bound(&mut line);
    let before = line.to_string();

    let old = [
        left(0, 0, 6),
        left(0, 1, 6),
        News::Free { slot: 0, stay: 1, report: 1 },
        News::Busy { slot: 1, stay: 0, report: 1 },
        News::Free { slot: 1, stay: 0, report: 1 },
        News::Withdraw(claim(6)),
    ];
    for news in old {
        note(&mut line, news);
        assert_eq!(line.to_string(), before, "{news:?}");
    }
}

#[test]
fn a_report_that_comes_before_its_token_counts_when_that_has_come() {
    let mut line = in_use(1);
    note(&mut line, News::Free { slot: 0, stay: 2, report: 1 });
    note(&mut line, News::Left { slot: 0, stay: 0, to: claim(5), turn: 0 });
    assert_eq!(line.to_string(), "waiting [], tokens [0 at 5]");
    note(&mut line, News::Left { slot: 0, stay: 1, to: claim(6), turn: 0 });
    assert_eq!(line.to_string(), "waiting [], tokens [0 at 6, free]");
}

#[test]
fn a_peer_that_is_gone_waits_no_more() {
    let mut line = in_use(2);
    ask(&mut line, &[5, 6, 7]);
    assert_eq!(bound(&mut line), "0:5 1:6");
    line.forget(PeerId::new(5));
    assert_eq!(bound(&mut line), "0:7");
    assert_eq!(line.to_string(), "waiting [6, 7], tokens [0 at 1, next 7; 1 at 2, next 6]");
}

/// Once a waiter was told of a free token that had died with its peer, and of no other for ever.
#[test]
fn a_free_token_of_a_peer_that_is_gone_is_not_waited_for() {
    let mut line = Line::new(8, false);
    [0, 1].into_iter().for_each(|slot| line.add(slot, PeerId::new(u64::from(slot) + 1), 0, true));
    line.forget(PeerId::new(1));
    ask(&mut line, &[5]);
    assert_eq!(bound(&mut line), "1:5");
    ask(&mut line, &[6]);
    assert_eq!(bound(&mut line), "0:6", "it may be alive after all");
    note(&mut line, News::Left { slot: 1, stay: 0, to: claim(5), turn: 0 });
    note(&mut line, News::Free { slot: 1, stay: 1, report: 1 });
    assert_eq!(bound(&mut line), "1:6", "and if not, there is another");
}

#[test]
fn news_of_a_token_that_does_not_exist_are_strange() {
    let mut line = in_use(1);
    let before = line.clone();
    let strange = [
        News::Left { slot: 1, stay: 0, to: claim(5), turn: 0 },
        News::Free { slot: 7, stay: 0, report: 1 },
        News::Busy { slot: u32::MAX, stay: 0, report: 1 },
    ];
    for news in strange {
        assert!(line.note(news, ()).is_err(), "{news:?}");
        assert_eq!(line, before);
    }
}

#[test]
fn a_request_told_twice_costs_a_detour_at_most() {
    let mut line = in_use(1);
    ask(&mut line, &[5, 5, 6]);
    assert_eq!(bound(&mut line), "0:5 6", "it is in line already");
    note(&mut line, News::Left { slot: 0, stay: 0, to: claim(5), turn: 0 });
    ask(&mut line, &[5]);
    assert_eq!(bound(&mut line), "0:5", "it was: the token will pass through");
    note(&mut line, News::Left { slot: 0, stay: 1, to: claim(6), turn: 0 });
    assert_eq!(line.to_string(), "waiting [5], tokens [0 at 6, next 5]");
}

/// The one token, where word goes and what it says: `PEER@STAY:claims`, with `+` if there are more.
fn told(line: &mut Line) -> String {
    let mut all: Vec<String> = Vec::new();
    while let Some(Binding { at, stay, following, .. }) = line.bind() {
        all.push(format!("{at}@{stay}:{following}{}", if following.more { "+" } else { "" }));
    }
    all.join(" ")
}

#[test]
fn with_one_token_the_last_who_was_told_hears_who_comes_after_it() {
    let mut line = in_use(1);
    ask(&mut line, &[5]);
    assert_eq!(told(&mut line), "1@0:5");
    ask(&mut line, &[6]);
    assert_eq!(told(&mut line), "5@1:6");
    note(&mut line, News::Left { slot: 0, stay: 0, to: claim(5), turn: 0 });
    ask(&mut line, &[7]);
    assert_eq!(told(&mut line), "6@2:7", "wherever the token is by now");
}

#[test]
fn with_many_who_wait_several_are_told_together_when_half_of_the_way_is_left() {
    let mut line: Line = Line::new(4, false);
    line.add(0, PeerId::new(1), 0, false);
    ask(&mut line, &[5, 6, 7, 8, 9, 10, 11]);
    assert_eq!(told(&mut line), "1@0:5 6 7 8+");
    note(&mut line, News::Left { slot: 0, stay: 0, to: claim(5), turn: 0 });
    assert_eq!(told(&mut line), "");
    note(&mut line, News::Left { slot: 0, stay: 1, to: claim(6), turn: 0 });
    assert_eq!(told(&mut line), "8@4:9 10+", "8 and 9 and 10 are left, and one behind them");
}

/// Hand-overs among clients of one peer take no time: they do not count.
#[test]
fn clients_of_one_peer_are_told_together() {
    let mut line: Line = Line::new(1, false);
    line.add(0, PeerId::new(1), 0, false);
    for (peer, ticket) in [(5, 1), (5, 2), (5, 3), (6, 1)] {
        note(&mut line, News::Request(Claim { peer: PeerId::new(peer), ticket: Ticket::new(ticket) }));
    }
    assert_eq!(told(&mut line), "1@0:5 5#2 5#3+");
}

/// Where all that was told is known to the token, and room is left, who asks is told at once; where there is none, the
/// token hears that there may be more, and the next who asks is told when there is.
#[test]
fn nobody_is_left_out_silently() {
    let mut line: Line = Line::new(2, false);
    line.add(0, PeerId::new(1), 0, false);
    ask(&mut line, &[5]);
    assert_eq!(told(&mut line), "1@0:5");
    ask(&mut line, &[6]);
    assert_eq!(told(&mut line), "5@1:6+", "no more fit");
    ask(&mut line, &[7]);
    assert_eq!(told(&mut line), "");
    note(&mut line, News::Left { slot: 0, stay: 0, to: claim(5), turn: 0 });
    assert_eq!(told(&mut line), "6@2:7+");
}

#[test]
fn who_withdraws_keeps_its_place_in_what_was_told() {
    let mut line = in_use(1);
    ask(&mut line, &[5, 6]);
    assert_eq!(told(&mut line), "1@0:5 6");
    note(&mut line, News::Withdraw(claim(5)));
    ask(&mut line, &[7]);
    assert_eq!(told(&mut line), "6@2:7");
    assert_eq!(line.to_string(), "waiting [6, 7], tokens [0 at 1, next 5 6 7]");
}

#[test]
fn a_token_that_went_another_way_is_told_anew() {
    let mut line = in_use(1);
    ask(&mut line, &[5, 6]);
    assert_eq!(told(&mut line), "1@0:5 6");
    note(&mut line, News::Forgotten(claim(5)));
    assert_eq!(told(&mut line), "1@0:6");
    note(&mut line, News::Left { slot: 0, stay: 0, to: claim(5), turn: 0 }); // Before it heard of that.
    assert_eq!(told(&mut line), "5@1:6");
}

/// Word of a later stay is faster: who had the token in between has been served.
#[test]
fn who_had_the_token_in_between_waits_no_more() {
    let mut line = in_use(1);
    ask(&mut line, &[5, 6, 7]);
    told(&mut line);
    assert_eq!(line.note(News::Left { slot: 0, stay: 1, to: claim(6), turn: 0 }, ()), Ok(2));
    assert_eq!(line.to_string(), "waiting [7], tokens [0 at 6, next 7]");
    assert_eq!(line.note(News::Left { slot: 0, stay: 0, to: claim(5), turn: 0 }, ()), Ok(0));
    assert_eq!(line.to_string(), "waiting [7], tokens [0 at 6, next 7]");
}

/// Tokens in use with several slots, each of which is told of two ahead.
fn in_haste(slots: u32) -> Line {
    let mut line = Line::new(4, true);
    (0..slots).for_each(|slot| line.add(slot, PeerId::new(u64::from(slot) + 1), 0, false));
    line
}

/// Where word of which token goes and what it says: `SLOT>PEER@STAY:claims`, with `+` if there are more.
fn told_of_each(line: &mut Line) -> String {
    let mut all: Vec<String> = Vec::new();
    while let Some(Binding { at, slot, stay, following, .. }) = line.bind() {
        all.push(format!("{slot}>{at}@{stay}:{following}{}", if following.more { "+" } else { "" }));
    }
    all.join(" ")
}

#[test]
fn where_stays_are_short_each_token_is_told_ahead_in_turn() {
    let mut line = in_haste(2);
    ask(&mut line, &[5, 6, 7, 8, 9]);
    assert_eq!(told_of_each(&mut line), "0>1@0:5+ 1>2@0:6+ 0>5@1:7+ 1>6@1:8+");
    note(&mut line, News::Left { slot: 1, stay: 0, to: claim(6), turn: 0 });
    assert_eq!(told_of_each(&mut line), "1>8@2:9", "to the last who was told, wherever the token is");
    note(&mut line, News::Left { slot: 1, stay: 1, to: claim(8), turn: 0 });
    assert_eq!(line.to_string(), "waiting [5, 7, 9], tokens [0 at 1, next 5 7; 1 at 8, next 9]");
}

#[test]
fn what_was_told_ahead_is_taken_back_where_a_token_lies_unused() {
    let mut line = in_haste(2);
    ask(&mut line, &[5, 6, 7]);
    assert_eq!(told_of_each(&mut line), "0>1@0:5+ 1>2@0:6+ 0>5@1:7");
    note(&mut line, News::Withdraw(claim(6)));
    assert_eq!(told_of_each(&mut line), "1>2@0:5", "whom few know");
    note(&mut line, News::Left { slot: 1, stay: 0, to: claim(6), turn: 0 }); // Before it heard of that.
    note(&mut line, News::Free { slot: 1, stay: 1, report: 1 });
    assert_eq!(told_of_each(&mut line), "1>6@1:5 0>1@0:7", "the oldest gets it, and 0's holder is told anew");
}

/// Words that come too late, one after the other, though others wait: then it is told ahead.
#[test]
fn it_is_found_out_that_stays_are_short() {
    let mut line = in_use(2);
    ask(&mut line, &(10..60).collect::<Vec<_>>());
    assert_eq!(told_of_each(&mut line), "0>1@0:10 1>2@0:11");
    let mut words = Vec::new();
    for (peer, (slot, stay)) in (10..).zip([(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)]) {
        note(&mut line, News::Left { slot, stay, to: claim(peer), turn: 0 });
        words.push(told_of_each(&mut line));
        note(&mut line, News::Free { slot, stay: stay + 1, report: 1 });
    }
    assert_eq!(words[3], "1>13@2:15", "late binding so far");
    assert_eq!(words[4], "0>14@3:16+ 0>16@4:17+ 0>17@5:18+ 0>18@6:19+", "four came too late");
}

/// Slot 0's client stays, and two others take turns with slot 1 while a third one waits.
#[test]
fn passes_are_bounded_behind_a_long_stay() {
    let mut line = in_use(2);
    ask(&mut line, &[5]);
    bound(&mut line);
    for (stay, peer) in (0..100).zip(6..) {
        ask(&mut line, &[peer]);
        if bound(&mut line) != format!("1:{peer}") {
            assert!(stay <= 12, "5 was passed {stay} times");
            return;
        }
        note(&mut line, News::Left { slot: 1, stay, to: claim(peer), turn: 2 * stay + 2 });
        bound(&mut line);
    }
    panic!("5 was passed by a hundred who asked later");
}

/// So many tokens have gone astray that caution alone would take thousands of entries to come down.
#[test]
fn passes_are_bounded_after_many_astray_tokens() {
    let mut line = in_use(2);
    (0..10_000).for_each(|stay| note(&mut line, News::Left { slot: 1, stay, to: claim(1), turn: 0 }));
    ask(&mut line, &(5..25).collect::<Vec<_>>());
    bound(&mut line);
    // Slot 0's client is told of one, and stays.
    let waits = line.seats.iter().find(|placed| placed.seat.slot == 0).and_then(|placed| placed.seat.next);
    let waits = waits.expect("somebody comes after it");
    for passes in 0..13 {
        let Seat { stay, next, turn, .. } = line.seats[1].seat.clone();
        let next = next.expect("somebody comes after it");
        if next == waits {
            return;
        }
        assert!(passes < 12, "{waits} was passed {passes} times");
        note(&mut line, News::Left { slot: 1, stay, to: next, turn });
        bound(&mut line);
    }
}

/// Where tokens are told ahead, a waiter that was told behind a long stay is told behind another token as well, before
/// all younger ones.
#[test]
fn claims_told_ahead_of_a_long_stay_are_told_elsewhere() {
    let mut line = in_haste(2);
    ask(&mut line, &(5..60).collect::<Vec<_>>());
    told_of_each(&mut line);
    let behind: Vec<Claim> = line.seats[0].seat.told().collect();
    assert!(behind.len() > 1);
    for entries in 0..20 {
        let Seat { stay, next, turn, .. } = line.seats[1].seat.clone();
        let next = next.expect("it is told ahead");
        if next == behind[0] {
            return assert!(entries <= 10, "after {entries} entries");
        }
        note(&mut line, News::Left { slot: 1, stay, to: next, turn });
        told_of_each(&mut line);
    }
    panic!("{} is told behind the long stay alone: {line}", behind[0]);
}

/// With as many long stays as holders may be told of one waiter.
#[test]
fn waiter_known_to_many_long_stays_is_told_to_others() {
    let slots = MOST_KNOWN + 2;
    let mut line = in_use(slots);
    ask(&mut line, &[1000]);
    bound(&mut line);
    assert_eq!(line.waiting.told(claim(1000)).len(), MOST_KNOWN as usize);
    let last = slots - 1;
    for (stay, peer) in (0..1000).zip(2000..) {
        ask(&mut line, &[peer]);
        bound(&mut line);
        let Seat { stay: at, next, turn, .. } = line.seats[last as usize].seat.clone();
        assert_eq!(at, stay);
        match next {
            Some(next) if next != claim(1000) => note(&mut line, News::Left { slot: last, stay, to: next, turn }),
            next => return assert_eq!(next, Some(claim(1000))),
        }
    }
    panic!("{line}");
}

/// The table beside one that looks at everybody: whatever happens, what was found by its indices is what is there.
#[test]
fn what_is_kept_to_find_things_is_what_is_there() {
    let mut rng = peerlock_base::Rng::new(1);
    for round in 0..300 {
        let slots = 1 + rng.below(6) as u32;
        let mut line: Line = Line::new(4, round % 2 == 0);
        (0..slots).for_each(|slot| line.add_barred(slot, PeerId::new(u64::from(slot)), 0, slot % 2 == 0));
        for (reports, peer) in (1..).zip(10..200) {
            line.let_go(slots, slots as usize);
            while line.bind().is_some() {}
            is_consistent(&line);
            let seat = line.seats().nth(rng.below(u64::from(slots)) as usize).expect("one of them").clone();
            let whom = line.waiting().nth(rng.below(3) as usize);
            let Seat { slot, stay, turn, .. } = seat;
            let news = match (rng.below(8), seat.next, whom) {
                (0..=2, ..) => News::Request(claim(peer)),
                (3 | 4, Some(to), _) => News::Left { slot, stay, to, turn },
                (5, _, Some(to)) => News::Left { slot, stay: stay + rng.below(2), to, turn: turn + rng.below(2) },
                (6, _, Some(whom)) if rng.chance(0.2) => News::Withdraw(whom),
                (6, ..) => News::Busy { slot, stay, report: reports },
                _ => News::Free { slot, stay, report: reports },
            };
            note(&mut line, news);
            if rng.chance(0.02) {
                line.forget(PeerId::new(10 + rng.below(200)));
            }
            is_consistent(&line);
        }
    }
}

fn is_consistent(line: &Line) {
    for (place, seat) in line.seats.iter().map(|placed| (placed.since, &placed.seat)) {
        let standing = Standing::new(place, seat.slot);
        let is_its = |ranked: &Ranked| *ranked == Ranked::new(ranked.rank(), standing);
        let ranks: Vec<u32> = line.ranks.iter().filter(is_its).map(Ranked::rank).collect();
        assert_eq!(ranks, seat.rank().into_iter().collect::<Vec<_>>(), "{line}");
        let is_shared = seat.next.is_some_and(|next| line.waiting.told(next).len() > 1);
        assert_eq!(line.shared.iter().any(|shared| shared == standing), is_shared, "{line}");
    }
    assert_eq!(line.ranks.iter().count(), line.seats.iter().filter_map(|placed| placed.seat.rank()).count());
    let mut known = Vec::new();
    for claim in line.waiting() {
        let told: Vec<u32> = line
            .seats
            .iter()
            .map(|placed| &placed.seat)
            .filter(|seat| seat.told().any(|told| told == claim))
            .map(|seat| seat.slot)
            .collect();
        let mut kept = line.waiting.told(claim).to_vec();
        kept.sort_unstable();
        assert_eq!(kept, told, "{claim} in {line}");
        let is_promised = line.seats.iter().any(|placed| placed.seat.promised() == Some(claim));
        known.extend((!is_promised).then_some((told.len() as u32, line.waiting.place(claim).expect("it waits"))));
    }
    let mut oldest = known.clone();
    oldest.sort_unstable();
    oldest.dedup_by_key(|(known, _)| *known);
    let found = |line: &Line| {
        let unknown = line.waiting.first_unknown().map(|place| (0, place));
        unknown.into_iter().chain(line.waiting.oldest_by_known()).collect::<Vec<_>>()
    };
    assert_eq!(found(line), oldest, "{line}");
    let unknown: Vec<u64> = known.iter().filter(|(known, _)| *known == 0).map(|&(_, place)| place).collect();
    assert_eq!(line.waiting.unknown().collect::<Vec<_>>(), unknown, "{line}");
    let again = Line::from(view::Form::from(line));
    assert_eq!(&again, line, "as it is sent");
    assert!(found(&again).iter().map(|(known, _)| known).eq(oldest.iter().map(|(known, _)| known)), "{line}");
}

/// What is let go of three tokens, of which `in_use` are, as the slots' numbers.
fn let_go(in_use: &[u32], slots: u32, room: usize) -> Vec<u32> {
    let mut line: Line = Line::new(8, false);
    (0..3).for_each(|slot| line.add_barred(slot, PeerId::new(1), 0, !in_use.contains(&slot)));
    line.let_go(slots, room);
    line.seats().filter(|seat| !seat.barred).map(|seat| seat.slot).collect()
}

#[test]
fn tokens_are_let_go_as_long_as_no_more_than_the_slots_can_be_inside() {
    let table: [(&[u32], u32, usize, &[u32]); 9] = [
        (&[], 3, 3, &[0, 1, 2]),
        (&[0, 1, 2], 3, 3, &[0, 1, 2]),
        (&[], 1, 1, &[0]),
        (&[2], 1, 1, &[]), // One is inside with a surplus token.
        (&[2], 2, 2, &[0]),
        (&[1, 2], 2, 2, &[1]),   // Whoever leaves slot 1 makes room for its next, and nobody else.
        (&[0, 1, 2], 2, 2, &[]), // Not even that.
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
        let mut line = in_use(slots);
        ask(&mut line, &[5, 6, 7]);
        bound(&mut line);

        line.set_reachable(PeerId::new(5), false);
        assert_eq!(bound(&mut line), without);
        assert_eq!(line.waiting().next(), Some(claim(5)));

        line.set_reachable(PeerId::new(5), true);
        assert_eq!(bound(&mut line), with, "before those who asked later");
    }
}

/// A token must not pass through the peer of a claim that was withdrawn.
#[test]
fn withdrawn_claim_at_unreachable_peer_is_taken_back() {
    let mut line = in_use(1);
    ask(&mut line, &[5, 6]);
    bound(&mut line);
    note(&mut line, News::Withdraw(claim(5)));

    line.set_reachable(PeerId::new(5), false);

    assert_eq!(bound(&mut line), "0:6");
}

#[test]
fn free_token_goes_to_waiter_that_is_reachable_again() {
    let mut line = in_use(1);
    ask(&mut line, &[5]);
    line.set_reachable(PeerId::new(5), false);
    note(&mut line, News::Free { slot: 0, stay: 0, report: 1 });
    assert_eq!(bound(&mut line), "");
    line.set_reachable(PeerId::new(5), true);
    assert_eq!(bound(&mut line), "0:5");
}
