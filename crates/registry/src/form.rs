//! The engine's messages and entries in our own encoding: protobuf's decoder must not read bytes from outside
//! (RUSTSEC-2024-0437: unbounded recursion), except a configuration change of up to [`MOST_CHANGE`] bytes.

use raft::eraftpb::{self, ConfState, EntryType, HardState, MessageType};
use serde::{Deserialize, Serialize};

use crate::command::MOST_NUMBER;
use crate::state::{Conf, State, Undecodable};
use crate::{Versions, VoterId};

/// Bytes of an entry.
pub const MOST_ENTRY: usize = 1 << 20;
const MOST_CHANGE: usize = 256;
const MOST_CONTEXT: usize = 64;
/// As many of the smallest entries as fit into a message of the engine.
const MOST_ENTRIES: usize = 1 << 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryKind {
    Commands,
    Change,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub index: u64,
    pub term: u64,
    pub kind: EntryKind,
    pub data: Vec<u8>,
    pub context: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hard {
    pub term: u64,
    pub vote: u64,
    pub commit: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    pub index: u64,
    pub term: u64,
    pub state: Vec<u8>,
}

/// Named as in Ongaro's thesis (chapters 3, 6 and 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    Append,
    AppendResponse,
    Vote,
    VoteResponse,
    PreVote,
    PreVoteResponse,
    Heartbeat,
    HeartbeatResponse,
    Snapshot,
    /// Campaign immediately: the leader transfers its leadership.
    TimeoutNow,
}

const KINDS: [(Kind, MessageType); 10] = [
    (Kind::Append, MessageType::MsgAppend),
    (Kind::AppendResponse, MessageType::MsgAppendResponse),
    (Kind::Vote, MessageType::MsgRequestVote),
    (Kind::VoteResponse, MessageType::MsgRequestVoteResponse),
    (Kind::PreVote, MessageType::MsgRequestPreVote),
    (Kind::PreVoteResponse, MessageType::MsgRequestPreVoteResponse),
    (Kind::Heartbeat, MessageType::MsgHeartbeat),
    (Kind::HeartbeatResponse, MessageType::MsgHeartbeatResponse),
    (Kind::Snapshot, MessageType::MsgSnapshot),
    (Kind::TimeoutNow, MessageType::MsgTimeoutNow),
];

/// A message with the engine's field names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    pub kind: Kind,
    pub from: VoterId,
    pub to: VoterId,
    pub term: u64,
    pub log_term: u64,
    pub index: u64,
    pub commit: u64,
    pub commit_term: u64,
    pub reject: bool,
    pub reject_hint: u64,
    pub context: Vec<u8>,
    pub entries: Vec<Entry>,
    pub snapshot: Option<Snapshot>,
}

impl Message {
    pub(crate) fn from_raft(message: eraftpb::Message) -> Option<Self> {
        let &(kind, _) = KINDS.iter().find(|(_, theirs)| *theirs == message.get_msg_type())?;
        Some(Self {
            kind,
            from: VoterId::new(message.from),
            to: VoterId::new(message.to),
            term: message.term,
            log_term: message.log_term,
            index: message.index,
            commit: message.commit,
            commit_term: message.commit_term,
            reject: message.reject,
            reject_hint: message.reject_hint,
            context: message.context.to_vec(),
            snapshot: (kind == Kind::Snapshot).then(|| Snapshot::from_raft(message.get_snapshot())),
            entries: message.entries.into_iter().map(Entry::from_raft).collect(),
        })
    }

    pub(crate) fn into_raft(self, versions: Versions) -> Result<eraftpb::Message, Undecodable> {
        let mut message = eraftpb::Message::default();
        let theirs = KINDS.iter().find(|(ours, _)| *ours == self.kind).map(|(_, theirs)| *theirs);
        message.set_msg_type(theirs.unwrap_or(MessageType::MsgHeartbeat));
        (message.from, message.to, message.term) = (self.from.get(), self.to.get(), self.term);
        (message.log_term, message.index) = (self.log_term, self.index);
        (message.commit, message.commit_term) = (self.commit, self.commit_term);
        (message.reject, message.reject_hint) = (self.reject, self.reject_hint);
        message.context = self.context.into();
        message.entries = self.entries.into_iter().map(Entry::into_raft).collect();
        if let Some(snapshot) = self.snapshot {
            message.set_snapshot(snapshot.into_raft(versions)?);
        }
        Ok(message)
    }

    /// Checks the bounds and everything that the engine relies on.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let numbers = [self.from.get(), self.to.get(), self.term, self.log_term, self.index, self.commit]
            .into_iter()
            .chain([self.commit_term, self.reject_hint]);
        if numbers.into_iter().any(|number| number >= MOST_NUMBER) || self.from.get() == 0 || self.term == 0 {
            return Err("number out of range");
        }
        if self.context.len() > MOST_CONTEXT || self.entries.len() > MOST_ENTRIES {
            return Err("message too long");
        }
        if (self.kind == Kind::Snapshot) != self.snapshot.is_some()
            || self.kind != Kind::Append && !self.entries.is_empty()
            || self.snapshot.as_ref().is_some_and(|it| it.index == 0 || it.term == 0 || it.index >= MOST_NUMBER)
            || self.snapshot.as_ref().is_some_and(|it| it.term > self.term)
        {
            return Err("fields of another kind of message");
        }
        // To the engine, an entry that it does not have is of term 0.
        if self.kind == Kind::Append && (self.index == 0) != (self.log_term == 0) {
            return Err("entries after an impossible one");
        }
        let mut before = (self.index, self.log_term);
        for entry in &self.entries {
            entry.check()?;
            if entry.index != before.0 + 1 || entry.term < before.1 || entry.term > self.term {
                return Err("entries not consecutive");
            }
            before = (entry.index, entry.term);
        }
        Ok(())
    }
}

impl Entry {
    pub(crate) fn from_raft(entry: eraftpb::Entry) -> Self {
        let kind = match entry.get_entry_type() {
            EntryType::EntryNormal => EntryKind::Commands,
            EntryType::EntryConfChange | EntryType::EntryConfChangeV2 => EntryKind::Change,
        };
        let (index, term) = (entry.index, entry.term);
        Self { index, term, kind, data: entry.data.to_vec(), context: entry.context.to_vec() }
    }

    pub(crate) fn into_raft(self) -> eraftpb::Entry {
        let mut entry = eraftpb::Entry::default();
        entry.set_entry_type(match self.kind {
            EntryKind::Commands => EntryType::EntryNormal,
            EntryKind::Change => EntryType::EntryConfChangeV2,
        });
        (entry.index, entry.term) = (self.index, self.term);
        (entry.data, entry.context) = (self.data.into(), self.context.into());
        entry
    }

    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let most = match self.kind {
            EntryKind::Commands => MOST_ENTRY,
            EntryKind::Change => MOST_CHANGE,
        };
        if self.data.len() > most || self.context.len() > MOST_CONTEXT {
            return Err("entry too long");
        }
        let numbers = [self.index, self.term];
        if numbers.iter().any(|number| *number == 0 || *number >= MOST_NUMBER) {
            return Err("entry number out of range");
        }
        Ok(())
    }
}

impl Snapshot {
    fn from_raft(snapshot: &eraftpb::Snapshot) -> Self {
        let metadata = snapshot.get_metadata();
        Self { index: metadata.index, term: metadata.term, state: snapshot.data.to_vec() }
    }

    /// The state contains the configuration.
    pub(crate) fn into_raft(self, versions: Versions) -> Result<eraftpb::Snapshot, Undecodable> {
        let mut snapshot = eraftpb::Snapshot::default();
        if self.index > 0 {
            let state = State::decode(&self.state, versions)?;
            let metadata = snapshot.mut_metadata();
            (metadata.index, metadata.term) = (self.index, self.term);
            metadata.set_conf_state(state.conf().to_raft());
            snapshot.data = self.state.into();
        }
        Ok(snapshot)
    }
}

impl Hard {
    pub(crate) fn from_raft(hard: &HardState) -> Self {
        Self { term: hard.term, vote: hard.vote, commit: hard.commit }
    }

    pub(crate) fn into_raft(self) -> HardState {
        HardState { term: self.term, vote: self.vote, commit: self.commit, ..HardState::default() }
    }
}

impl Conf {
    pub(crate) fn from_raft(conf: &ConfState) -> Self {
        let set = |ids: &[u64]| ids.iter().copied().map(VoterId::new).collect();
        Self {
            voters: set(conf.get_voters()),
            outgoing: set(conf.get_voters_outgoing()),
            learners: set(conf.get_learners()),
        }
    }

    pub(crate) fn to_raft(&self) -> ConfState {
        let ids = |set: &std::collections::BTreeSet<VoterId>| set.iter().map(|voter| voter.get()).collect();
        ConfState {
            voters: ids(&self.voters),
            voters_outgoing: ids(&self.outgoing),
            learners: ids(&self.learners),
            ..ConfState::default()
        }
    }
}
