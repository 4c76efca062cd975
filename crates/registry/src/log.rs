//! The log in memory. Its entries are on disk, or on their way there.

use std::cell::Cell;

use raft::eraftpb::{self, ConfState, EntryType};
use raft::{Error, GetEntriesContext, RaftState, Storage, StorageError};

use crate::file::Record;
use crate::form::{Entry, Hard, Snapshot};
use crate::state::{Conf, Undecodable};
use crate::{Versions, VoterId};

#[derive(Debug)]
pub(crate) struct Log {
    pub hard: Hard,
    snapshot: Snapshot,
    conf: ConfState,
    entries: Vec<eraftpb::Entry>,
    versions: Versions,
    /// The engine needs a snapshot for a learner that ours does not contain.
    wants_newer: Cell<bool>,
}

impl Log {
    pub fn new(record: Record, versions: Versions) -> Result<Self, Undecodable> {
        let snapshot = record.snapshot.unwrap_or_default();
        let conf = snapshot.clone().into_raft(versions)?.take_metadata().take_conf_state();
        let mut follow = snapshot.index;
        for entry in &record.entries {
            if entry.index != follow + 1 {
                return Err(Undecodable::Format);
            }
            follow += 1;
        }
        let entries = record.entries.into_iter().map(Entry::into_raft).collect();
        let hard = record.hard.unwrap_or_default();
        if hard.commit > follow || hard.commit < snapshot.index {
            return Err(Undecodable::Format);
        }
        Ok(Self { hard, snapshot, conf, entries, versions, wants_newer: Cell::new(false) })
    }

    /// For the assertion in [`crate::engine`].
    pub fn knows_last_change_but_one(&self) -> bool {
        let is_change = |entry: &&eraftpb::Entry| entry.get_entry_type() != EntryType::EntryNormal;
        self.entries.iter().rev().filter(is_change).nth(1).is_none_or(|change| change.index <= self.hard.commit)
    }

    pub fn whole(&self) -> Record {
        Record {
            snapshot: (self.snapshot.index > 0).then(|| self.snapshot.clone()),
            entries: self.entries.iter().cloned().map(Entry::from_raft).collect(),
            hard: Some(self.hard),
        }
    }

    pub fn wants_newer(&self) -> bool {
        self.wants_newer.get()
    }

    pub fn snapshot_index(&self) -> u64 {
        self.snapshot.index
    }

    /// Discards entries from the first one's index on.
    pub fn append(&mut self, entries: &[eraftpb::Entry]) {
        if let Some(first) = entries.first() {
            let retained = first.index - self.snapshot.index - 1;
            assert!(retained <= self.entries.len() as u64, "entry {} does not follow the log", first.index);
            self.entries.truncate(retained as usize);
            self.entries.extend_from_slice(entries);
        }
    }

    pub fn restore(&mut self, snapshot: Snapshot, conf: ConfState) {
        self.hard.commit = self.hard.commit.max(snapshot.index);
        (self.snapshot, self.conf) = (snapshot, conf);
        self.entries.clear();
    }

    pub fn compact(&mut self, index: u64, state: Vec<u8>, conf: ConfState) {
        let Ok(term) = self.term(index) else { return };
        self.wants_newer.set(false);
        self.entries.drain(..(index - self.snapshot.index) as usize);
        self.hard.commit = self.hard.commit.max(index);
        (self.snapshot, self.conf) = (Snapshot { index, term, state }, conf);
    }
}

impl Storage for Log {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState::new(self.hard.into_raft(), self.conf.clone()))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> raft::Result<Vec<eraftpb::Entry>> {
        if low <= self.snapshot.index {
            return Err(Error::Store(StorageError::Compacted));
        }
        let place = |index: u64| (index - self.snapshot.index - 1) as usize;
        let Some(entries) = self.entries.get(place(low)..place(high)) else {
            return Err(Error::Store(StorageError::Unavailable));
        };
        let mut entries = entries.to_vec();
        raft::util::limit_size(&mut entries, max_size.into());
        Ok(entries)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index == self.snapshot.index {
            return Ok(self.snapshot.term);
        }
        let place = index.checked_sub(self.snapshot.index + 1).ok_or(Error::Store(StorageError::Compacted))?;
        self.entries.get(place as usize).map(|entry| entry.term).ok_or(Error::Store(StorageError::Unavailable))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.snapshot.index + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.snapshot.index + self.entries.len() as u64)
    }

    /// The engine discards a snapshot whose receiver is not in it, so a new learner needs a newer one.
    fn snapshot(&self, request_index: u64, to: u64) -> raft::Result<eraftpb::Snapshot> {
        let conf = Conf::from_raft(&self.conf);
        let is_in_it = [&conf.voters, &conf.outgoing, &conf.learners].iter().any(|it| it.contains(&VoterId::new(to)));
        match self.snapshot.clone().into_raft(self.versions) {
            Ok(snapshot) if self.snapshot.index >= request_index && is_in_it => Ok(snapshot),
            Ok(_) | Err(_) => {
                self.wants_newer.set(true);
                Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable))
            }
        }
    }
}
