//! The data folder of a simulated host, on a disk that does what disks do when the power fails.
//!
//! `crates/registry/tests/sim` has a disk of its own, for one file: it also turns bits over, and `sim`, which drives
//! whole nodes and so links the register, cannot be linked by the register's tests.

use peerlock_node::{ClusterId, JournalEntry, Predecessor, Write as RegisterWrite};
use peerlock_types::{Rng, Span, Time};

/// What is written for good.
#[derive(Clone, Debug, Default)]
pub struct Dir {
    /// The cluster that the host belongs to.
    pub cluster: Option<ClusterId>,
    /// Where its members listen.
    pub members: Vec<String>,
    /// The file of its voter.
    pub registry: Option<Vec<u8>>,
    /// An earlier folder of this host was lost.
    pub was_lost: bool,
    /// How often the machine was started anew.
    pub boots: u64,
    /// What a process leaves for the next one, in memory of the machine.
    pub predecessor: Option<Predecessor>,
}

/// A change of the folder.
#[derive(Clone, Debug)]
pub enum Write {
    /// The host belongs to this cluster.
    Cluster(ClusterId),
    /// Members listen there.
    Members(Vec<String>),
    /// A change of the voter's file, with the node's number for it.
    Registry(u64, RegisterWrite),
    /// Something for the next process of this machine.
    Journal(JournalEntry),
}

const SECTOR: usize = 512;

impl Dir {
    /// A write is done.
    pub fn write(&mut self, write: Write) {
        match write {
            Write::Cluster(cluster) => self.cluster = Some(cluster),
            Write::Members(members) => self.members = members,
            Write::Registry(_, RegisterWrite::Append(bytes)) => {
                self.registry.as_mut().expect("a file is begun before it is appended to").extend(bytes);
            }
            Write::Registry(_, RegisterWrite::Replace(bytes)) => self.registry = Some(bytes),
            Write::Registry(_, RegisterWrite::Remove) => self.registry = None,
            Write::Journal(entry) => {
                self.predecessor = Predecessor::after(self.predecessor.take(), &self.boot(), entry)
            }
        }
    }

    /// What tells this boot of the machine from others.
    pub fn boot(&self) -> String {
        self.boots.to_string()
    }

    /// The machine is started anew. Its clock begins anew, too, so whatever is left of ends says is nonsense: long
    /// past, or far in the future.
    pub fn reboot(&mut self) {
        self.boots += 1;
        for record in self.predecessor.iter_mut().flat_map(|predecessor| &mut predecessor.grants) {
            record.until = if self.boots % 2 == 1 { Time::ZERO } else { record.until + Span::from_secs(1000) };
        }
    }

    /// The power fails, or the process is killed, during a write: nothing of it is there, all of it, its beginning, or
    /// all but a sector. What is to replace a file is synced before it takes its place, so that is all or nothing.
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

    /// One of the sectors in which these bytes come to lie was never written.
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

    /// Of a thousand crashes while 1,000 bytes were being written behind 300: how often nothing, all, a beginning and
    /// something with a hole is there.
    #[test]
    fn a_crash_leaves_nothing_or_all_or_a_beginning_or_a_hole() {
        let rng = &mut Rng::new(1);
        let mut found = [0; 4];
        for _ in 0..1000 {
            let mut dir = Dir { registry: Some(vec![1; 300]), ..Dir::default() };
            dir.tear(Write::Registry(1, RegisterWrite::Append(vec![2; 1000])), rng);
            let file = dir.registry.expect("there was one");
            assert_eq!(file[..300], [1; 300], "what was safe is safe");
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
