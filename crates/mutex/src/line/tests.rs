use alloc::format;
use alloc::string::{String, ToString};

use super::*;

fn claim(peer: u64) -> Claim {
    Claim { peer: PeerId::new(peer), ticket: Ticket::new(1) }
}

/// Tokens at peers 1, 2, … in use, and nobody who waits.
fn in_use(slots: u32) -> Line {
    let mut line = Line::new(8);
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
    let mut line = Line::new(8);
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
fn a_request_told_twice_costs_a_detour_and_no_more() {
    let mut line = in_use(1);
    ask(&mut line, &[5, 5, 6]);
    assert_eq!(bound(&mut line), "0:5 5 6");
    note(&mut line, News::Left { slot: 0, stay: 0, to: claim(5), turn: 0 });
    assert_eq!(bound(&mut line), "0:5 6");
    note(&mut line, News::Left { slot: 0, stay: 1, to: claim(5), turn: 2 });
    assert_eq!(bound(&mut line), "");
    assert_eq!(line.to_string(), "waiting [6], tokens [0 at 5, next 6]");
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
    let mut line: Line = Line::new(4);
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
    let mut line: Line = Line::new(1);
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
    let mut line: Line = Line::new(2);
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

/// What is let go of three tokens, of which `in_use` are, as the slots' numbers.
fn let_go(in_use: &[u32], slots: u32, room: usize) -> Vec<u32> {
    let mut line: Line = Line::new(8);
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
