//! Statements of the two papers, one per test.

use peerlock_overlay::chord::{self, Chord, Way};
use peerlock_overlay::pastry::{self, Pastry};
use peerlock_overlay::{Config, Cx, Effect, Input, KeyRange, Lists, Node, Overlay, RingMessage, Timer, step};
use peerlock_types::{Key, PeerId, Rng, Time};

use crate::world::nodes;

const CONFIG: Config = Config { side: 3, ..Config::CHORD };

fn node(number: u64) -> Node {
    Node { key: Key::new(number.into()), peer: PeerId::new(number) }
}

fn lists(left: &[u64], right: &[u64]) -> Lists {
    let list = |numbers: &[u64]| numbers.iter().map(|number| node(*number)).collect();
    Lists { left: list(left), right: list(right), settled: true }
}

fn peer<O: Overlay>(all: &[u64], me: u64) -> O {
    let nodes: Vec<Node> = all.iter().map(|number| node(*number)).collect();
    O::converged(&nodes, all.iter().position(|number| *number == me).unwrap_or(0), CONFIG)
}

fn feed<O: Overlay>(peer: &mut O, input: Input<O::Message>) -> Vec<Effect<O::Message>> {
    let mut effects = Vec::new();
    let mut rng = Rng::new(1);
    step(peer, input, &mut Cx::new(peer.me().peer, Time::ZERO, &mut rng, &mut effects));
    effects
}

fn message<M>(from: u64, message: impl Into<M>) -> Input<M> {
    Input::Message { from: PeerId::new(from), message: message.into() }
}

fn exchange(from: u64, lists: Lists) -> RingMessage {
    RingMessage::Exchange { key: node(from).key, lists }
}

fn exchanged(from: u64, lists: Lists) -> RingMessage {
    RingMessage::Exchanged { key: node(from).key, lists }
}

fn receivers<M>(effects: &[Effect<M>]) -> Vec<u64> {
    let to = |effect: &Effect<M>| match effect {
        Effect::Send { to, .. } => Some(to.get()),
        _ => None,
    };
    effects.iter().filter_map(to).collect()
}

fn sends<M: Clone>(effects: &[Effect<M>], to: u64) -> Vec<M> {
    let message = |effect: &Effect<M>| match effect {
        Effect::Send { to: receiver, message } if receiver.get() == to => Some(message.clone()),
        _ => None,
    };
    effects.iter().filter_map(message).collect()
}

fn owned(after: u64, last: u64) -> Option<KeyRange> {
    Some(KeyRange { after: node(after).key, last: node(last).key })
}

/// Chord, *notify*.
#[test]
fn chord_notify_adopts_predecessor_between() {
    for (from, after) in [(30, 30), (5, 10), (60, 10)] {
        let mut n: Chord = peer(&[10, 40, 70], 40);
        let effects = feed(&mut n, message(from, exchange(from, lists(&[10], &[40]))));
        assert_eq!(n.range(), owned(after, 40), "{from}");
        assert_eq!(effects.contains(&Effect::Owns { range: n.range() }), after != 10, "{from}");
        assert_eq!(receivers(&effects)[0], from, "the notification is answered");
    }
}

/// Chord, *stabilize*. *Departure:* after its own answer.
#[test]
fn chord_stabilize_adopts_successor_after_answer() {
    let mut n: Chord = peer(&[10, 40, 70], 40);
    let effects = feed(&mut n, message(70, exchanged(70, lists(&[50, 40, 10], &[10]))));
    assert_eq!(receivers(&effects), [50], "50 is queried");
    assert_eq!(n.next_hop(Key::new(45)), Some(PeerId::new(70)), "50 is not adopted before it answers");
    feed(&mut n, message(50, exchanged(50, lists(&[40, 10], &[70, 10]))));
    assert_eq!(n.next_hop(Key::new(45)), Some(PeerId::new(50)));
    assert!(n.neighbours().take(3).eq([50, 70, 10].map(node)), "its list is adopted");
}

/// Chord, *check_predecessor* and the successor list.
#[test]
fn chord_dead_neighbour_is_replaced_from_list() {
    for (dead, range, successor) in [(20, owned(10, 40), 60), (60, owned(20, 40), 90)] {
        let mut n: Chord = peer(&[10, 20, 40, 60, 90], 40);
        assert!(receivers(&feed(&mut n, Input::Timer(Timer::Stabilize))).starts_with(&[60, 20]));
        for _ in 0..CONFIG.tries {
            assert_eq!(n.range(), owned(20, 40), "the neighbour is kept until the last try");
            feed(&mut n, Input::Timer(Timer::Silence(PeerId::new(dead))));
        }
        assert_eq!(n.range(), range);
        assert_eq!(n.next_hop(Key::new(50)), Some(PeerId::new(successor)));
    }
}

/// Chord, *check_predecessor*.
#[test]
fn chord_active_predecessor_is_not_queried() {
    let mut n: Chord = peer(&[10, 20, 40, 60, 90], 40);
    feed(&mut n, message(20, exchange(20, lists(&[10, 90], &[40, 60]))));
    for asked in [&[60][..], &[60, 20]] {
        let effects = feed(&mut n, Input::Timer(Timer::Stabilize));
        let exchanges = effects.iter().filter_map(|effect| match effect {
            Effect::Send { to, message: chord::Message::Ring(RingMessage::Exchange { .. }) } => Some(to.get()),
            _ => None,
        });
        assert_eq!(exchanges.collect::<Vec<_>>(), asked);
    }
}

#[test]
fn chord_lost_side_is_replaced_by_the_other() {
    let mut n: Chord = peer(&[10, 20, 30, 40, 50, 60, 70, 80], 40);
    for dead in [10, 20, 30] {
        feed(&mut n, Input::Unreachable(PeerId::new(dead)));
    }
    assert_eq!(n.range(), owned(70, 40), "the range begins at the nearest peer of the other side");
}

#[test]
fn silence_timer_is_not_reset_by_more_messages() {
    let mut n: Chord = peer(&[10, 20, 40, 60, 90], 40);
    for (hops, times) in [(0, 1), (1, 0), (2, 0)] {
        let seek =
            chord::Message::Seek { key: Key::new(55), origin: PeerId::new(10), way: Way { hops, ..Way::default() } };
        let effects = feed(&mut n, message(10, seek));
        let is_set = |effect: &&Effect<_>| matches!(effect, Effect::SetTimer { timer: Timer::Silence(_), .. });
        assert_eq!(effects.iter().filter(is_set).count(), times, "{effects:?}");
    }
}

#[test]
fn peer_with_another_key_is_unexpected() {
    let mut n: Chord = peer(&[10, 20, 40, 60, 90], 40);
    let before = n.clone();
    for (from, key) in [(20, 30), (30, 20), (30, 40)] {
        let effects = feed(&mut n, message(from, RingMessage::Ping { key: node(key).key }));
        assert!(matches!(effects[..], [Effect::Unexpected { .. }]), "{from} at {key}: {effects:?}");
        assert_eq!(n, before);
    }
}

#[test]
fn quarantine_ends_with_a_message() {
    for alive in [false, true] {
        let mut n: Chord = peer(&[10, 20, 40, 60, 90], 40);
        feed(&mut n, Input::Unreachable(PeerId::new(90)));
        if alive {
            let seek = chord::Message::Seek { key: Key::new(15), origin: PeerId::new(90), way: Way::default() };
            feed(&mut n, message(90, seek));
        }
        feed(&mut n, message(60, exchanged(60, lists(&[40, 20], &[90, 10]))));
        assert_eq!(n.neighbours().any(|known| known == node(90)), alive);
    }
}

/// Chord, *join*. *Departure.*
#[test]
fn chord_join_owns_nothing_before_both_answers() {
    let mut s: Chord = peer(&[10, 40, 70], 40);
    let join = chord::Message::Join { node: node(30), way: Way { hops: 2, is_past: false } };
    let welcome = sends(&feed(&mut s, message(10, join)), 30);
    assert!(matches!(welcome[..], [chord::Message::Welcome { .. }]), "{welcome:?}");
    assert_eq!(s.range(), owned(10, 40), "the owner still has the whole range");

    let mut n = Chord::new(node(30), CONFIG);
    assert_eq!(receivers(&feed(&mut n, Input::Join(Some(PeerId::new(70))))), [70]);
    assert_eq!(receivers(&feed(&mut n, message(40, welcome[0].clone()))), [10, 40], "both neighbours are queried");
    feed(&mut n, message(40, exchanged(40, lists(&[30, 10, 70], &[70, 10]))));
    assert_eq!(n.range(), None);
    assert_eq!(n.next_hop(Key::new(25)), Some(PeerId::new(40)));
    let mut later = n.clone();
    feed(&mut n, message(10, exchanged(10, lists(&[70, 40], &[30, 40, 70]))));
    assert_eq!(n.range(), owned(10, 30));
    // A third peer has joined between the two.
    feed(&mut later, message(10, exchanged(10, lists(&[70, 40], &[20, 30, 40]))));
    assert_eq!(later.range(), None);
    feed(&mut later, message(20, exchanged(20, lists(&[10, 70], &[30, 40]))));
    assert_eq!(later.range(), owned(20, 30));
}

/// *Departure.* The peer that sent it here learns of the peer between.
#[test]
fn chord_message_past_its_key_goes_back() {
    let (key, origin) = (Key::new(25), PeerId::new(90));
    let mut s: Chord = peer(&[10, 20, 30, 40, 50, 60], 50);
    let seek = |is_past| chord::Message::Seek { key, origin, way: Way { hops: 3, is_past } };
    let effects = feed(&mut s, message(20, seek(true)));
    assert_eq!(sends(&effects, 30), [chord::Message::Seek { key, origin, way: Way { hops: 4, is_past: true } }]);
    let notified = sends(&effects, 20);
    let Some(chord::Message::Ring(RingMessage::Exchange { lists, .. })) = notified.last() else {
        panic!("{notified:?}")
    };
    assert_eq!(lists.left[1], node(30), "{notified:?}");
    let around = sends(&feed(&mut s, message(60, seek(false))), 20);
    assert_eq!(
        around,
        [chord::Message::Seek { key, origin, way: Way { hops: 4, is_past: false } }],
        "a message that is not past its key goes clockwise"
    );
}

/// *Departure.*
#[test]
fn lists_of_unsettled_peer_are_not_followed() {
    let mut known = [false, true].map(|settled| {
        let mut n: Chord = peer(&[10, 30, 40, 50], 10);
        let lists = Lists { settled, ..lists(&[10, 50], &[50]) };
        feed(&mut n, message(20, exchanged(20, lists)));
        n.neighbours().take(3).map(|node| node.peer.get()).collect::<Vec<_>>()
    });
    assert_eq!(known[0], [20, 30, 40]);
    assert_eq!(known[1].drain(..2).collect::<Vec<_>>(), [20, 50], "the lists of a settled neighbour are followed");
}

/// *Departure.* It forwards messages, and replies that it is not in the ring.
#[test]
fn joining_peer_is_not_used_as_hop() {
    let mut n = Chord::new(node(30), CONFIG);
    feed(&mut n, Input::Join(Some(PeerId::new(70))));
    let join = chord::Message::Join { node: node(25), way: Way { hops: 3, is_past: true } };
    let effects = feed(&mut n, message(10, join.clone()));
    assert!(matches!(sends(&effects, 10)[..], [chord::Message::Ring(RingMessage::Leave { .. })]), "{effects:?}");
    let replace = chord::Message::Join { node: node(25), way: Way { hops: 4, is_past: false } };
    assert_eq!(sends(&effects, 70), [replace]);
    feed(&mut n, message(40, chord::Message::Welcome { key: node(40).key, lists: lists(&[10, 70], &[70, 10]) }));
    let effects = feed(&mut n, message(10, join));
    assert!(matches!(sends(&effects, 10)[..], [chord::Message::Ring(RingMessage::Pong { .. })]), "{effects:?}");
    assert!(matches!(sends(&effects, 25)[..], [chord::Message::Welcome { .. }]), "{effects:?}");
    assert_eq!(n.range(), None, "it answers before it owns anything");

    let mut n = Pastry::new(node(30), CONFIG);
    feed(&mut n, Input::Join(Some(PeerId::new(70))));
    let join = pastry::Message::Join { node: node(28), rows: Vec::new(), row: 0, hops: 3 };
    let effects = feed(&mut n, message(10, join.clone()));
    assert!(matches!(sends(&effects, 10)[..], [pastry::Message::Ring(RingMessage::Leave { .. })]), "{effects:?}");
    assert!(matches!(sends(&effects, 70)[..], [pastry::Message::Join { hops: 4, .. }]), "{effects:?}");
    let (key, lists) = (node(40).key, lists(&[10, 70], &[70, 10]));
    feed(&mut n, message(40, pastry::Message::Welcome { key, lists, rows: Vec::new() }));
    let effects = feed(&mut n, message(10, join));
    assert!(matches!(sends(&effects, 28)[..], [pastry::Message::Welcome { .. }]), "{effects:?}");
}

/// Chord, *fix_fingers*: finger i is the owner of n + 2ⁱ.
#[test]
fn chord_fix_fingers_asks_one_finger_per_round() {
    let mut n: Chord = peer(&[10, 20, 40, 60, 90], 10);
    for (sought, answer) in [(26, 40), (42, 60), (74, 90), (138, 0)] {
        let effects = feed(&mut n, Input::Timer(Timer::Stabilize));
        let seek = effects.iter().find_map(|effect| match effect {
            Effect::Send { message: chord::Message::Seek { key, .. }, .. } => Some(key.get()),
            _ => None,
        });
        assert_eq!(seek, (answer != 0).then_some(sought), "138 is past the whole ring: no lookup");
        let found = chord::Message::Found { sought: Key::new(sought), key: node(answer).key };
        feed(&mut n, message(answer, found));
    }
    assert!(n.fingers().iter().copied().eq([40, 60, 90].map(node)));
    feed(&mut n, Input::Unreachable(PeerId::new(20)));
    feed(&mut n, Input::Timer(Timer::Stabilize));
    assert!(n.fingers().iter().copied().eq([60, 90].map(node)));
}

/// Chord, *voluntary node departures*.
#[test]
fn chord_leave_notifies_both_neighbours() {
    let mut n: Chord = peer(&[10, 20, 40, 60, 90], 40);
    let effects = feed(&mut n, Input::Leave);
    assert_eq!(receivers(&effects), [20, 60]);
    assert!(effects.contains(&Effect::Owns { range: None }));
    assert_eq!(n.next_hop(Key::new(35)), Some(PeerId::new(60)));
    let goodbye = sends(&effects, 60);
    let mut s: Chord = peer(&[10, 20, 40, 60, 90], 60);
    feed(&mut s, message(40, goodbye[0].clone()));
    assert_eq!(s.range(), owned(20, 60));
    let effects = feed(&mut s, message(90, RingMessage::Leave { lists: lists(&[70, 60], &[10]) }));
    assert_eq!(receivers(&effects), [20, 10, 70], "both neighbours, and the peer between");
    let seek = chord::Message::Seek { key: Key::new(15), origin: PeerId::new(10), way: Way::default() };
    for late in [exchange(10, lists(&[], &[])).into(), exchanged(10, lists(&[], &[])).into(), seek] {
        let answer = sends(&feed(&mut n, message(10, late)), 10);
        assert!(matches!(answer[0], chord::Message::Ring(RingMessage::Leave { .. })), "{answer:?}");
    }
}

/// Pastry, routing: for a key beyond the leaf set.
#[test]
fn pastry_hop_shares_one_digit_more() {
    let all = nodes(2000);
    let mut rng = Rng::new(2);
    for _ in 0..1000 {
        let place = rng.below(2000) as usize;
        let peer = Pastry::converged(&all, place, Config::PASTRY);
        let key = Key::new(u128::from(rng.bits()) << 64);
        let Some(hop) = peer.next_hop(key) else { continue };
        let hop = Node::of(hop);
        let (before, after) = (peer.me().key.shared_digits(key), hop.key.shared_digits(key));
        let is_leaf = peer.neighbours().any(|node| node == hop);
        assert!(after > before || is_leaf, "{} to {} for {key}", peer.me().key, hop.key);
        assert!(after > before || hop.key.gap(key) < peer.me().key.gap(key), "{key}");
    }
}

/// Pastry, *node arrival*.
#[test]
fn pastry_join_collects_rows() {
    let all = nodes(2000);
    let newcomer = Node::of(PeerId::new(5000));
    let mut at = 3;
    let mut join = pastry::Message::Join { node: newcomer, rows: Vec::new(), row: 0, hops: 0 };
    let mut hops = Vec::new();
    let rows = loop {
        let mut peer = Pastry::converged(&all, at, Config::PASTRY);
        hops.push(peer.me());
        let effects = feed(&mut peer, message(4000, join));
        if let [pastry::Message::Welcome { rows, .. }] = &sends(&effects, 5000)[..] {
            break rows.clone();
        }
        let to = receivers(&effects)[1]; // The first message confirms the join.
        at = all.iter().position(|node| node.peer.get() == to).expect("a peer of the overlay");
        join = sends(&effects, to).remove(0);
    };
    assert!(hops.len() > 2, "{hops:?}");
    assert!(hops.iter().all(|hop| rows.contains(hop)), "the hops themselves are candidates");
    let first_row = rows.iter().filter(|node| node.key.shared_digits(newcomer.key) == 0).count();
    assert!(first_row <= 15 + hops.len(), "each row is collected once: {first_row}");
    // With 2000 peers all 15 places of the first two rows can be filled.
    for row in 0..2 {
        let in_row = |node: &&Node| node.key.shared_digits(newcomer.key) == row;
        let mut columns: Vec<u8> = rows.iter().filter(in_row).map(|node| node.key.digit(row)).collect();
        columns.sort();
        columns.dedup();
        assert_eq!(columns.len(), 15, "row {row}");
    }
}

/// Pastry, *node departure*.
#[test]
fn pastry_lost_entry_is_replaced_from_its_row() {
    let all = nodes(2000);
    let mut peer = Pastry::converged(&all, 3, Config::PASTRY);
    let me = peer.me().key;
    let row = |node: &Node| node.key.shared_digits(me);
    let lost = *peer.table().iter().find(|node| row(node) == 1).expect("row 1 is not empty");
    let effects = feed(&mut peer, Input::Unreachable(lost.peer));
    let [asked] = receivers(&effects)[..] else { panic!("one peer is queried: {effects:?}") };
    assert!(row(&Node::of(PeerId::new(asked))) >= 1, "the queried peer shares at least as many digits");
    assert_eq!(sends(&effects, asked), [pastry::Message::AskRow { row: 1 }]);
    // The candidate is added when it answers.
    let other = all.iter().find(|node| row(node) == 1 && node.key.digit(1) == lost.key.digit(1) && **node != lost);
    let other = *other.expect("there are eight of them on average");
    let effects = feed(&mut peer, message(asked, pastry::Message::Row { nodes: vec![lost, other] }));
    assert_eq!(receivers(&effects), [other.peer.get()], "the lost peer is not added again on hearsay");
    assert!(!peer.table().contains(&other));
    feed(&mut peer, message(other.peer.get(), RingMessage::Pong { key: other.key }));
    assert!(peer.table().contains(&other));
}
