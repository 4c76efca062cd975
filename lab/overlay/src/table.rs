use alloc::vec::Vec;

use peerlock_types::{Key, PeerId};

use crate::Node;

/// A routing table. Row r has peers that share exactly r first digits with the own key, one for each next digit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Table {
    centre: Key,
    /// By row, then by column.
    nodes: Vec<Node>,
}

impl Table {
    pub(crate) fn new(centre: Key) -> Self {
        Self { centre, nodes: Vec::new() }
    }

    pub(crate) fn converged(nodes: &[Node], place: usize) -> Self {
        let centre = nodes[place].key;
        let mut table = Self::new(centre);
        // Nodes that share the first `row` digits.
        let mut alike = nodes;
        for row in 0..Key::DIGITS {
            if alike.len() == 1 {
                break;
            }
            let start = |digit: u8| alike.partition_point(|node| node.key.digit(row) < digit);
            for digit in (0..16).filter(|digit| *digit != centre.digit(row)) {
                let candidates = &alike[start(digit)..start(digit + 1)];
                table.nodes.extend(table.choose(candidates, row));
            }
            alike = &alike[start(centre.digit(row))..start(centre.digit(row) + 1)];
        }
        table.nodes.shrink_to_fit();
        table
    }

    /// Chooses differently for each peer, to spread the load.
    fn choose(&self, candidates: &[Node], row: usize) -> Option<Node> {
        let at = (self.centre.get() >> row) as usize;
        candidates.get(at.checked_rem(candidates.len())?).copied()
    }

    /// row · 16 + column.
    fn slot(&self, key: Key) -> usize {
        let row = self.row_of(key);
        row * 16 + usize::from(key.digit(row))
    }

    /// Returns the row of another peer's key.
    pub(crate) fn row_of(&self, key: Key) -> usize {
        self.centre.shared_digits(key)
    }

    /// The node that shares one digit more with `key` than the own key.
    pub(crate) fn get(&self, key: Key) -> Option<Node> {
        let slot = self.slot(key);
        self.nodes.binary_search_by_key(&slot, |node| self.slot(node.key)).ok().map(|place| self.nodes[place])
    }

    pub(crate) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub(crate) fn row(&self, row: usize) -> &[Node] {
        let start = self.nodes.partition_point(|node| self.row_of(node.key) < row);
        let end = self.nodes.partition_point(|node| self.row_of(node.key) <= row);
        &self.nodes[start..end]
    }

    pub(crate) fn wants(&self, node: Node) -> bool {
        self.get(node.key).is_none()
    }

    pub(crate) fn insert(&mut self, node: Node) {
        let slot = self.slot(node.key);
        if let Err(place) = self.nodes.binary_search_by_key(&slot, |known| self.slot(known.key)) {
            self.nodes.insert(place, node);
        }
    }

    pub(crate) fn remove(&mut self, peer: PeerId) -> Option<usize> {
        let place = self.nodes.iter().position(|node| node.peer == peer)?;
        let node = self.nodes.remove(place);
        Some(self.row_of(node.key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(digits: &str) -> Node {
        let number = u128::from_str_radix(digits, 16).unwrap() << (4 * (Key::DIGITS - digits.len()));
        Node { key: Key::new(number), peer: PeerId::new(number as u64 ^ (number >> 64) as u64) }
    }

    #[test]
    fn node_place_follows_from_common_digits() {
        let mut table = Table::new(node("10233102").key);
        for digits in ["02212102", "22301203", "11301233", "12230203", "10031203", "1023a"] {
            table.insert(node(digits));
        }
        for (row, expected) in [(0, &["02212102", "22301203"][..]), (1, &["11301233", "12230203"]), (2, &["10031203"])]
        {
            assert!(table.row(row).iter().eq(expected.iter().map(|digits| node(digits)).collect::<Vec<_>>().iter()));
        }
        for (key, expected) in
            [("0fff", Some("02212102")), ("2", Some("22301203")), ("1023a999", Some("1023a")), ("3", None)]
        {
            assert_eq!(table.get(node(key).key), expected.map(node), "{key}");
        }
        assert_eq!(table.remove(node("1023a").peer), Some(4));
        assert_eq!(table.remove(node("1023a").peer), None);
    }

    #[test]
    fn first_of_two_nodes_keeps_the_place() {
        let (first, second) = (node("20"), node("21"));
        let mut table = Table::new(node("1").key);
        for newcomer in [first, second] {
            table.insert(newcomer);
            assert_eq!((table.get(second.key), table.wants(second)), (Some(first), false), "{newcomer:?}");
        }
    }

    #[test]
    fn converged_table_occupies_every_possible_place() {
        let mut nodes: Vec<Node> = (0..300).map(|number| Node::of(PeerId::new(number))).collect();
        nodes.sort();
        for place in [0, 17, 299] {
            let table = Table::converged(&nodes, place);
            let mut inserted = Table::new(nodes[place].key);
            nodes.iter().filter(|node| **node != nodes[place]).for_each(|node| inserted.insert(*node));
            let slots = |table: &Table| table.nodes.iter().map(|node| table.slot(node.key)).collect::<Vec<_>>();
            assert_eq!(slots(&table), slots(&inserted));
        }
    }
}
