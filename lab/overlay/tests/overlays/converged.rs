//! Overlays created from complete knowledge: routing and ownership.

use peerlock_overlay::chord::Chord;
use peerlock_overlay::pastry::Pastry;
use peerlock_overlay::{Config, Node, Overlay};
use peerlock_types::{Key, PeerId, Rng};

use crate::for_both;
use crate::world::{Subject, map, mean_hops, nodes, random_key, ring_of};

for_both!(key_has_one_owner_in_every_ring_size);

/// Chord, *path length*: "about ½·log2 N", 6.64 for 10,000 peers.
#[test]
fn chord_lookup_takes_half_log2_n_hops() {
    let mean = mean_hops::<Chord>(10_000, 20_000, 1);
    assert!((5.6..7.0).contains(&mean), "{mean}");
}

/// Pastry, *routing performance*: about log16 N, 3.32 for 10,000 peers.
#[test]
fn pastry_lookup_takes_log16_n_hops() {
    let mean = mean_hops::<Pastry>(10_000, 20_000, 1);
    assert!((2.8..3.6).contains(&mean), "{mean}");
}

fn key_has_one_owner_in_every_ring_size<O: Subject>() {
    for count in (1..40).chain([100]) {
        let nodes = nodes(count);
        let (truth, ring) = (map(&nodes), ring_of::<O>(&nodes, O::CONFIG));
        let mut rng = Rng::new(count);
        let borders = ring.iter().flat_map(|peer| peer.range()).flat_map(|range| [range.last, range.last.plus(1)]);
        let keys: Vec<Key> =
            borders.chain(nodes.iter().map(|node| node.key)).chain((0..50).map(|_| random_key(&mut rng))).collect();
        for key in keys {
            let owners: Vec<PeerId> =
                ring.iter().filter(|peer| peer.next_hop(key).is_none()).map(|peer| peer.me().peer).collect();
            assert_eq!(owners, [O::owner(&truth, key)], "{key} of {count}");
        }
    }
}

#[test]
fn next_hop_in_small_ring_matches_manual_computation() {
    let nodes: Vec<Node> =
        [10, 20, 40, 50, 70, 90].map(|n| Node { key: Key::new(n), peer: PeerId::new(n as u64) }).to_vec();
    let config = Config { side: 2, ..Config::CHORD };
    let chord: Vec<Chord> = ring_of(&nodes, config);
    let pastry: Vec<Pastry> = ring_of(&nodes, config);
    // (peer, key, Chord's next hop, Pastry's next hop)
    for (peer, key, by_chord, by_pastry) in [
        (10, 10, None, None),
        (10, 5, None, None),
        (10, 11, Some(20), None),
        (10, 15, Some(20), None),     // At equal distance: the one before it.
        (10, 16, Some(20), Some(20)), // Nearer to 20.
        (10, 95, None, Some(90)),     // The next clockwise is 10, but 90 is nearer.
        (10, 35, Some(20), Some(40)),
        (40, 95, Some(90), Some(90)),
        (90, 60, Some(70), Some(50)), // One step back is shorter than a turn around the ring.
        (90, 45, Some(20), Some(40)), // The last known before it; 0x28 has the first digits of 0x2d.
    ] {
        let place = nodes.iter().position(|node| node.peer.get() == peer).unwrap();
        let hop = |hop: Option<PeerId>| hop.map(PeerId::get);
        assert_eq!(hop(chord[place].next_hop(Key::new(key))), by_chord, "Chord, {key} at {peer}");
        assert_eq!(hop(pastry[place].next_hop(Key::new(key))), by_pastry, "Pastry, {key} at {peer}");
    }
    // 20 is the successor, 26 is 40's, 42 is 50's, 74 is 90's.
    let fingers: Vec<u64> = chord[0].fingers().iter().map(|node| node.peer.get()).collect();
    assert_eq!(fingers, [40, 50, 90]);
}
