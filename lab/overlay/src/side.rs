use alloc::vec::Vec;

use peerlock_types::{Key, PeerId};

use crate::Node;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Way {
    Clockwise,
    Back,
}

impl Way {
    fn distance(self, from: Key, to: Key) -> u128 {
        match self {
            Self::Clockwise => from.distance(to),
            Self::Back => to.distance(from),
        }
    }
}

/// A peer's neighbours on one side, the nearest first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Side {
    centre: Key,
    way: Way,
    limit: usize,
    nodes: Vec<Node>,
}

impl Side {
    pub(crate) fn new(centre: Key, way: Way, limit: usize) -> Self {
        assert!(limit > 0, "a ring needs a neighbour on each side");
        Self { centre, way, limit, nodes: Vec::new() }
    }

    pub(crate) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub(crate) fn nearest(&self) -> Option<Node> {
        self.nodes.first().copied()
    }

    pub(crate) fn farthest(&self) -> Option<Node> {
        self.nodes.last().copied()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// A node at the centre is a whole turn away, farther than all others.
    pub(crate) fn distance(&self, node: Node) -> u128 {
        self.way.distance(self.centre, node.key).wrapping_sub(1)
    }

    pub(crate) fn is_nearer(&self, node: Node) -> bool {
        self.nearest().is_none_or(|nearest| self.distance(node) < self.distance(nearest))
    }

    pub(crate) fn insert(&mut self, node: Node) {
        let place = self.nodes.partition_point(|known| self.distance(*known) < self.distance(node));
        if place < self.limit && self.nodes.get(place) != Some(&node) {
            self.nodes.truncate(self.limit - 1);
            self.nodes.insert(place, node);
        }
    }

    pub(crate) fn remove(&mut self, peer: PeerId) {
        self.nodes.retain(|node| node.peer != peer);
    }

    /// Adopts the nearest neighbour's list, so that a dead peer vanishes from both.
    pub(crate) fn follow(&mut self, beyond: impl Iterator<Item = Node>) {
        self.nodes.truncate(1);
        for node in beyond.take(self.limit - 1) {
            // The list has gone around the ring.
            if self.nodes.last().is_some_and(|last| self.distance(node) <= self.distance(*last)) {
                break;
            }
            self.nodes.push(node);
        }
    }

    pub(crate) fn converged(nodes: &[Node], place: usize, way: Way, limit: usize) -> Self {
        let many = limit.min(nodes.len() - 1);
        let step = match way {
            Way::Clockwise => 1,
            Way::Back => nodes.len() - 1,
        };
        let neighbours = (1..=many).map(|rank| nodes[(place + rank * step) % nodes.len()]).collect();
        Self { nodes: neighbours, ..Self::new(nodes[place].key, way, limit) }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn node(number: u64) -> Node {
        Node { key: Key::new(number.into()), peer: PeerId::new(number) }
    }

    fn numbers(side: &Side) -> Vec<u64> {
        side.nodes().iter().map(|node| node.peer.get()).collect()
    }

    #[test]
    fn side_keeps_the_nearest_in_ring_order() {
        for (way, expected) in [(Way::Clockwise, vec![60, 90, 10]), (Way::Back, vec![40, 30, 10])] {
            let mut side = Side::new(Key::new(50), way, 3);
            for number in [90, 10, 30, 60, 40, 60, 40] {
                side.insert(node(number));
            }
            assert_eq!(numbers(&side), expected, "{way:?}");
        }
    }

    #[test]
    fn follow_stops_after_one_turn() {
        let mut side = Side::new(Key::new(50), Way::Clockwise, 8);
        side.insert(node(60));
        side.follow([70, 10, 50, 60].map(node).into_iter());
        assert_eq!(numbers(&side), [60, 70, 10, 50], "the caller excludes the centre itself");
        side.follow([80, 70, 90].map(node).into_iter());
        assert_eq!(numbers(&side), [60, 80], "the list ends where 70 leads back");
    }

    #[test]
    fn converged_side_equals_inserting_all_nodes() {
        let ring: Vec<Node> = [5, 20, 30, 55, 70, 95].map(node).to_vec();
        for way in [Way::Clockwise, Way::Back] {
            for limit in [1, 3, 5, 9] {
                for place in 0..ring.len() {
                    let mut side = Side::new(ring[place].key, way, limit);
                    ring.iter().filter(|other| **other != ring[place]).for_each(|other| side.insert(*other));
                    assert_eq!(Side::converged(&ring, place, way, limit), side, "{way:?} {limit} {place}");
                }
            }
        }
    }
}
