//! The data directory of a simulated host, on a disk with realistic effects of power failures.

use peerlock_node::{ClusterId, JournalEntry, Predecessor, Write as RegisterWrite};
use peerlock_registry::file;
use peerlock_types::{Rng, Span, Time};

#[derive(Clone, Debug, Default)]
pub struct Dir {
    pub cluster: Option<ClusterId>,
    pub members: Vec<String>,
    pub registry: Option<Vec<u8>>,
    pub was_lost: bool,
    pub boots: u64,
    pub predecessor: Option<Predecessor>,
}

#[derive(Clone, Debug)]
pub enum Write {
    Cluster(ClusterId),
    Members(Vec<String>),
    /// With the node's number for it.
    Registry(u64, RegisterWrite),
    Journal(JournalEntry),
}

const SECTOR: usize = 512;

impl Dir {
    pub fn write(&mut self, write: Write) {
        match write {
            Write::Cluster(cluster) => self.cluster = Some(cluster),
            Write::Members(members) => self.members = members,
            Write::Registry(_, RegisterWrite::Append(bytes)) => {
                self.registry.as_mut().expect("a file is created before it is appended to").extend(bytes);
            }
            Write::Registry(_, RegisterWrite::Replace(bytes)) => self.registry = Some(bytes),
            Write::Registry(_, RegisterWrite::Remove) => {
                // A process that was killed between its voter's file and the cluster ID leaves the file only. The next
                // process stores the ID before it starts.
                let cluster =
                    self.registry.take().and_then(|bytes| file::read(&bytes).ok()).map(|it| it.header.cluster);
                self.cluster = self.cluster.or(cluster);
            }
            Write::Journal(entry) => {
                self.predecessor = Predecessor::after(self.predecessor.take(), &self.boot(), entry)
            }
        }
    }

    pub fn boot(&self) -> String {
        self.boots.to_string()
    }

    /// The machine's clock restarts, so recorded ends become meaningless: long past or far in the future.
    pub fn reboot(&mut self) {
        self.boots += 1;
        for record in self.predecessor.iter_mut().flat_map(|predecessor| &mut predecessor.grants) {
            record.until = if self.boots % 2 == 1 { Time::ZERO } else { record.until + Span::from_secs(1000) };
        }
    }

    /// Interrupts a write by a power failure or kill: none, all, a prefix, or all but a sector is written. Replaced
    /// files are synced first, so their writes are atomic.
    pub fn tear(&mut self, write: Write, rng: &mut Rng) {
        match (rng.below(4), write) {
            (0, _) => {}
            (1, write) => self.write(write),
            (how, Write::Registry(_, RegisterWrite::Append(mut bytes))) => {
                if how == 2 {
                    bytes.truncate(rng.below(bytes.len() as u64) as usize);
                } else {
                    self.punch(&mut bytes, rng);
                }
                self.write(Write::Registry(0, RegisterWrite::Append(bytes)));
            }
            (2, write) => self.write(write),
            _ => {}
        }
    }

    fn punch(&self, bytes: &mut [u8], rng: &mut Rng) {
        let begin = self.registry.as_ref().map_or(0, Vec::len);
        let (first, last) = (begin / SECTOR, (begin + bytes.len() - 1) / SECTOR);
        let hole = first + rng.below((last - first + 1) as u64) as usize;
        let (from, to) = ((hole * SECTOR).max(begin), ((hole + 1) * SECTOR).min(begin + bytes.len()));
        bytes[from - begin..to - begin].fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts the outcomes of crashes during an append of 1,000 bytes to 300.
    #[test]
    fn torn_write_leaves_nothing_all_prefix_or_hole() {
        let rng = &mut Rng::new(1);
        let mut found = [0; 4];
        for _ in 0..1000 {
            let mut dir = Dir { registry: Some(vec![1; 300]), ..Dir::default() };
            dir.tear(Write::Registry(1, RegisterWrite::Append(vec![2; 1000])), rng);
            let file = dir.registry.expect("the file exists");
            assert_eq!(file[..300], [1; 300], "synced bytes must survive");
            let (written, zeros) = (file.len() - 300, file.iter().filter(|byte| **byte == 0).count());
            let is = match (written, zeros) {
                (0, 0) => 0,
                (1000, 0) => 1,
                (_, 0) => 2,
                (1000, 212 | 276 | 512) => 3,
                other => panic!("{other:?}"),
            };
            found[is] += 1;
        }
        assert!(found.iter().all(|times| *times > 200), "{found:?}");
    }
}
