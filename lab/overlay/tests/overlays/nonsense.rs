//! Random messages at random times must not break a peer's invariants.

use peerlock_overlay::chord::Chord;
use peerlock_overlay::pastry::Pastry;
use peerlock_overlay::{Cx, Effect, Input, Lists, Node, RingMessage, Timer, chord, pastry, step};
use peerlock_types::{Key, PeerId, Rng, Span, Time};

use crate::world::{Subject, nodes};

trait Nonsense: Subject {
    fn nonsense(rng: &mut Rng) -> Self::Message;
}

/// So few peers and keys that they often collide.
fn any_peer(rng: &mut Rng) -> PeerId {
    PeerId::new(rng.below(8))
}

fn any_key(rng: &mut Rng) -> Key {
    match rng.below(3) {
        0 => Key::of_peer(any_peer(rng)),
        1 => Key::of_peer(any_peer(rng)).plus(1 << rng.below(128)),
        _ => Key::new(rng.below(3).into()),
    }
}

fn any_node(rng: &mut Rng) -> Node {
    match rng.below(4) {
        0 => Node { key: any_key(rng), peer: any_peer(rng) },
        _ => Node::of(any_peer(rng)),
    }
}

fn any_nodes(rng: &mut Rng) -> Vec<Node> {
    (0..rng.below(6)).map(|_| any_node(rng)).collect()
}

fn any_lists(rng: &mut Rng) -> Lists {
    Lists { left: any_nodes(rng), right: any_nodes(rng), settled: rng.chance(0.5) }
}

fn any_way(rng: &mut Rng) -> chord::Way {
    chord::Way { hops: rng.bits() as u8, is_past: rng.chance(0.5) }
}

fn any_ring_message(rng: &mut Rng) -> RingMessage {
    match rng.below(5) {
        0 => RingMessage::Exchange { key: any_key(rng), lists: any_lists(rng) },
        1 => RingMessage::Exchanged { key: any_key(rng), lists: any_lists(rng) },
        2 => RingMessage::Ping { key: any_key(rng) },
        3 => RingMessage::Pong { key: any_key(rng) },
        _ => RingMessage::Leave { lists: any_lists(rng) },
    }
}

impl Nonsense for Chord {
    fn nonsense(rng: &mut Rng) -> chord::Message {
        match rng.below(6) {
            0 => chord::Message::Join { node: any_node(rng), way: any_way(rng) },
            1 => chord::Message::Welcome { key: any_key(rng), lists: any_lists(rng) },
            2 => chord::Message::Seek { key: any_key(rng), origin: any_peer(rng), way: any_way(rng) },
            3 => chord::Message::Found { sought: any_key(rng), key: any_key(rng) },
            _ => any_ring_message(rng).into(),
        }
    }
}

impl Nonsense for Pastry {
    fn nonsense(rng: &mut Rng) -> pastry::Message {
        let (row, hops) = (rng.bits() as u8, rng.bits() as u8);
        match rng.below(6) {
            0 => pastry::Message::Join { node: any_node(rng), rows: any_nodes(rng), row, hops },
            1 => pastry::Message::Welcome { key: any_key(rng), lists: any_lists(rng), rows: any_nodes(rng) },
            2 => pastry::Message::AskRow { row },
            3 => pastry::Message::Row { nodes: any_nodes(rng) },
            _ => any_ring_message(rng).into(),
        }
    }
}

fn any_input<O: Nonsense>(me: PeerId, rng: &mut Rng) -> Input<O::Message> {
    let other = |rng: &mut Rng| PeerId::new((me.get() + 1 + rng.below(7)) % 8);
    match rng.below(20) {
        0 => Input::Join((rng.below(4) > 0).then(|| other(rng))),
        1 => Input::Leave,
        2 => Input::Unreachable(any_peer(rng)),
        3 => Input::Timer(Timer::Join),
        4 => Input::Timer(Timer::Stabilize),
        5 => Input::Timer(Timer::Silence(any_peer(rng))),
        _ => Input::Message { from: other(rng), message: O::nonsense(rng) },
    }
}

fn check_random_messages<O: Nonsense>() {
    let (mut unexpected, mut joined) = (0, 0);
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let me = Node::of(PeerId::new(seed % 8));
        let mut peer = match seed % 3 {
            0 => O::new(me, O::CONFIG),
            _ => {
                let nodes = nodes(8);
                let place = nodes.binary_search(&me).expect("one of the eight");
                O::converged(&nodes, place, O::CONFIG)
            }
        };
        let mut now = Time::ZERO;
        for _ in 0..300 {
            now = now + rng.between(Span::ZERO, Span::from_secs(1));
            let input = any_input::<O>(me.peer, &mut rng);
            let mut effects = Vec::new();
            step(&mut peer, input, &mut Cx::new(me.peer, now, &mut rng, &mut effects));
            unexpected += effects.iter().filter(|effect| matches!(effect, Effect::Unexpected { .. })).count();
            joined += usize::from(peer.range().is_some());
            let key = any_key(&mut rng);
            let (hop, owned) = (peer.next_hop(key), peer.range().is_some_and(|range| range.contains(key)));
            assert!(hop != Some(me.peer), "seed {seed}: the next hop is the peer itself");
            assert!(!owned || hop.is_none(), "seed {seed}: an owned key has a next hop");
            assert!(peer.neighbours().all(|node| node.peer != me.peer && node.key != me.key), "seed {seed}: {peer:?}");
        }
    }
    assert!(
        unexpected > 1000 && joined > 1000,
        "too few cases: {unexpected} unexpected messages, {joined} steps in the ring"
    );
}

#[test]
fn chord_random_messages_keep_invariants() {
    check_random_messages::<Chord>();
}

#[test]
fn pastry_random_messages_keep_invariants() {
    check_random_messages::<Pastry>();
}
