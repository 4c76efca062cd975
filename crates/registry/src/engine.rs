//! The interface to TiKV's `raft`. Only this file, `form.rs` and `log.rs` use it.
//!
//! The engine has no clock, no I/O and, with its election timeout set before each tick, no random source. Its
//! advisories: RUSTSEC-2024-0437 (recursion in protobuf's decoder) does not apply, since it decodes only bounded
//! configuration changes from outside; nor does RUSTSEC-2025-0057 (fxhash), which hashes numbers of our own.
//!
//! ```text
//!   step, tick, propose ─► Ready ─┬─ messages of a leader ──────────────────────────────────► immediately
//!                                 ├─ entries, term, vote ─► one record on disk ─► on_written ─┐
//!                                 └─ messages of a follower ──────────────────────────────────┴► after that
//! ```
//!
//! A leader's messages assume that its vote is on disk. A leader elected by others has sent them its vote from there. A
//! single voter leads before it has written its vote, and after a crash would lead in the same term again, so its
//! messages wait. One write is in progress at a time, and the next record collects what becomes due meanwhile.
//!
//! # A restarted voter cannot decide alone by an old configuration
//!
//! The engine counts votes by the configuration that it has *applied*. The commit index is synced only with the next
//! record, so a voter may restart with an older configuration than the one that has committed entries since. If voter 1
//! restarted with {1} after a change to {1, 2, 3}, it would lead alone. This does not happen:
//!
//! 1. *A leader proposes a change only when it has applied the previous one.* A new leader treats every unapplied entry
//!    as a change. A change of voters is two entries: one enters a joint configuration, in which decisions need a
//!    majority of the old and of the new set; one leaves it.
//! 2. *Every message that carries a change carries a commit index not before the previous change*, by 1. The receiver's
//!    commit index is the smaller of that and its last entry, so it is not before it either.
//! 3. *The record that contains a change contains that commit index, or an earlier one does* (`lazy`). So no file has a
//!    change after another one not known to be committed, which [`Engine::new`] asserts. The engine applies what is
//!    known to be committed before it campaigns.
//! 4. *The entry that leaves a joint configuration is committed by both majorities*, so a majority of the old set has
//!    it on disk. A voter that has it restarts with at least the joint configuration, by 3, and needs both majorities.
//!    A voter without it may count by the old set alone, but some voter of each majority of that set has the entry, and
//!    votes for no log without it. Before that entry is committed, every decision needs a majority of the old set, so
//!    any two have a voter in common.

use std::mem::take;

use peerlock_types::{Rng, Span, Time};
use raft::eraftpb::{ConfChangeV2, MessageType};
use raft::{ProgressState, RawNode, SnapshotStatus, StateRole};
use slog::{Discard, Logger, o};

use crate::config::Config;
use crate::file::Record;
use crate::form::{Entry, EntryKind, Hard, Kind, Message, Snapshot};
use crate::leases::certainly_passed;
use crate::log::Log;
use crate::mutation::Mutation;
use crate::registry::decode_commands;
use crate::state::{Conf, Undecodable};
use crate::{Versions, VoterId};

/// How far ahead the term of an unknown voter may be: twelve days of one election per second. A voter near the bound of
/// terms could never be elected again. A known voter is always believed, or it would be ignored forever once misled.
const MOST_TERMS: u64 = 1 << 20;
const MAX_RETAINED: usize = 1024;
/// Length of a message with entries, well below the network's limit.
const LONG_MESSAGE: u64 = 256 << 10;
/// A learner with a longer lag has not caught up.
const BEHIND: u64 = 256;

#[derive(Default)]
pub(crate) struct Turn {
    pub send: Vec<Message>,
    pub snapshot: Option<Snapshot>,
    pub committed: Vec<Entry>,
    /// Rounds confirmed by a majority, with the index to apply before they count.
    pub rounds: Vec<(u64, u64)>,
}

#[derive(Default)]
struct Job {
    record: Record,
    ready: u64,
    after: Vec<Message>,
    restored: u64,
    /// The record has a new term or vote.
    votes: bool,
}

pub(crate) struct Engine {
    raw: RawNode<Log>,
    rng: Rng,
    timeout: usize,
    config: Config,
    versions: Versions,
    writing: Option<(Job, Time)>,
    next: Option<Job>,
    /// A newer commit index, which needs no write of its own.
    lazy: Option<Hard>,
    send: Vec<Message>,
    /// When this voter, or one that voted for it, last took part in a leader's round, at the latest. `None` before the
    /// first tick: earlier processes took part before that.
    received: Option<Time>,
}

impl Engine {
    pub fn new(voter: VoterId, log: Log, config: Config, versions: Versions, rng: Rng, now: Time) -> Self {
        let raft_config = raft::Config {
            id: voter.get(),
            election_tick: config.election_ticks,
            heartbeat_tick: config.heartbeat_ticks,
            applied: log.snapshot_index(),
            max_size_per_msg: LONG_MESSAGE,
            max_inflight_msgs: 64,
            check_quorum: true,
            pre_vote: true,
            ..raft::Config::default()
        };
        assert!(
            config.makes(Mutation::ForgetsCommit) || log.knows_last_change_but_one(),
            "the file of {voter:?} has a configuration change after one that is not known to be committed"
        );
        let raw = RawNode::new(&raft_config, log, &Logger::root(Discard, o!()))
            // The configuration is valid by the config test, and the log never fails.
            .unwrap_or_else(|error| panic!("the Raft engine does not start: {error}"));
        let writing = Some((Job::default(), now));
        let timeout = config.election_ticks;
        Self { raw, rng, timeout, config, versions, writing, next: None, lazy: None, send: Vec::new(), received: None }
    }

    pub fn is_leader(&self) -> bool {
        self.raw.raft.state == StateRole::Leader
    }

    pub fn term(&self) -> u64 {
        self.raw.raft.term
    }

    pub fn leader(&self) -> Option<VoterId> {
        Some(self.raw.raft.leader_id).filter(|id| *id != 0).map(VoterId::new)
    }

    /// Returns whether an entry of its own term is committed. Before that a leader may not know everything committed.
    pub fn is_settled(&self) -> bool {
        self.is_leader() && self.raw.raft.commit_to_current_term()
    }

    /// Returns a time after which no confirmed round of an earlier leader started.
    pub fn received(&self, now: Time) -> Time {
        self.received.unwrap_or(now)
    }

    pub fn last_index(&self) -> u64 {
        self.raw.raft.raft_log.last_index()
    }

    /// A voter whose disk hangs does not lead. A voter campaigns only with its writes complete: a single one would
    /// lead without having stored its vote.
    pub fn tick(&mut self, now: Time) {
        self.received.get_or_insert(now);
        let hangs = self.writing.as_ref().is_some_and(|(_, since)| now >= *since + self.config.disk_patience);
        if hangs {
            self.step_down();
        }
        if self.is_leader() || self.is_recorded() {
            if self.raw.raft.election_elapsed == 0 {
                self.timeout = self.config.election_ticks + self.rng.below(self.config.election_ticks as u64) as usize;
            }
            self.raw.raft.set_randomized_election_timeout(self.timeout);
            self.raw.tick();
        }
    }

    pub fn lead_alone(&mut self) -> bool {
        let is_alone = self.raw.raft.promotable() && self.raw.raft.prs().is_singleton();
        if !is_alone || self.is_leader() || !self.is_recorded() {
            return false;
        }
        // Ignored while a committed change is not applied; the caller retries.
        _ = self.raw.campaign();
        self.is_leader()
    }

    fn is_recorded(&self) -> bool {
        self.writing.is_none() && self.next.is_none() && !self.raw.has_ready()
    }

    /// Transfers the leadership to the most advanced active voter, and returns it. Complete when that one is elected.
    pub fn hand_over(&mut self, voters: impl Iterator<Item = VoterId>) -> Option<VoterId> {
        let progress = self.raw.raft.prs();
        let matched = |voter: VoterId| progress.get(voter.get()).filter(|it| it.recent_active).map(|it| it.matched);
        let takeover = voters.filter_map(|voter| matched(voter).map(|it| (it, voter))).max()?.1;
        if self.is_leader() {
            self.raw.transfer_leader(takeover.get());
        }
        Some(takeover)
    }

    /// Drops messages that contradict something committed: the engine would panic.
    pub fn on_message(&mut self, message: Message, is_known: bool, now: Time) -> Result<(), &'static str> {
        if message.kind == Kind::TimeoutNow && !self.is_recorded() {
            return Ok(()); // As in `tick`; the leader retries.
        }
        if !is_known && message.term > self.term() + MOST_TERMS {
            return Err("a term that is too far ahead");
        }
        let log = &self.raw.raft.raft_log;
        let is_possible = match message.kind {
            Kind::Heartbeat => message.commit <= log.last_index(),
            Kind::AppendResponse => !self.is_leader() || message.reject || message.index <= log.last_index(),
            Kind::Append => message.entries.iter().all(|entry| {
                let is_known = (log.first_index()..=log.committed).contains(&entry.index);
                !is_known || log.term(entry.index).is_ok_and(|term| term == entry.term)
            }),
            _ => true,
        };
        if !is_possible && message.term >= self.term() {
            return Err("a message that contradicts committed entries");
        }
        // The file could not be read again.
        let is_ours = |entry: &Entry| {
            entry.kind != EntryKind::Commands || entry.data.is_empty() || {
                !matches!(decode_commands(&entry.data, self.versions), Err(Undecodable::Format))
            }
        };
        if !message.entries.iter().all(is_ours) {
            return Err("an invalid entry");
        }
        self.note_round(&message, now);
        let Ok(message) = message.into_raft(self.versions) else { return Err("an invalid snapshot") };
        // The engine ignores an invalid message.
        _ = self.raw.step(message);
        Ok(())
    }

    /// Notes a leader's message, or a vote, which reports the voter's last one. It counts by another clock, so a little
    /// less counts here.
    fn note_round(&mut self, message: &Message, now: Time) {
        match message.kind {
            Kind::Append | Kind::Heartbeat | Kind::Snapshot if message.term >= self.term() => self.received = Some(now),
            Kind::VoteResponse if !message.reject && message.term == self.term() && !self.is_leader() => {
                let silent = <[u8; 8]>::try_from(message.context.as_slice()).map_or(0, u64::from_le_bytes);
                let at = now.as_nanos().saturating_sub(certainly_passed(Span::from_nanos(silent)).as_nanos());
                if !self.config.makes(Mutation::ReceivesAlone) {
                    self.received = Some(self.received(now).max(Time::from_nanos(at)));
                }
            }
            _ => {}
        }
    }

    pub fn propose(&mut self, data: Vec<u8>) -> Option<u64> {
        let is_taken = self.is_leader() && self.raw.propose(Vec::new(), data).is_ok();
        is_taken.then(|| self.last_index())
    }

    pub fn has_pending_change(&self) -> bool {
        self.raw.raft.has_pending_conf()
    }

    pub fn propose_change(&mut self, change: ConfChangeV2, context: Vec<u8>) {
        if self.is_leader() {
            // Refused while another change is in progress; the caller retries.
            _ = self.raw.propose_conf_change(context, change);
        }
    }

    /// Applies a committed change. A removed leader steps down here, since the engine does not let it.
    pub fn apply_change(&mut self, change: &ConfChangeV2) -> Option<Conf> {
        let conf = self.raw.apply_conf_change(change).ok().map(|conf| Conf::from_raft(&conf))?;
        if ![&conf.voters, &conf.outgoing].iter().any(|group| group.contains(&VoterId::new(self.raw.raft.id))) {
            self.step_down();
        }
        Some(conf)
    }

    fn step_down(&mut self) {
        if self.is_leader() {
            let term = self.term();
            self.raw.raft.become_follower(term, raft::INVALID_ID);
        }
    }

    /// Asks a majority whether this voter still leads. May be ignored.
    pub fn begin_round(&mut self, round: u64, now: Time) {
        if self.is_leader() && !self.config.makes(Mutation::ForgetsOwnRounds) {
            self.received = Some(now);
        }
        self.raw.read_index(round.to_le_bytes().to_vec());
    }

    /// Returns whether a voter has all but the newest entries: under load, many are in flight.
    pub fn has_caught_up(&self, voter: VoterId) -> bool {
        let committed = self.raw.raft.raft_log.committed;
        let progress = self.raw.raft.prs().get(voter.get());
        progress.is_some_and(|it| {
            it.state == ProgressState::Replicate && it.matched + BEHIND >= committed && it.recent_active
        })
    }

    /// Returns the last entry that this voter has confirmed.
    pub fn confirmed_by(&self, voter: VoterId) -> u64 {
        self.raw.raft.prs().get(voter.get()).map_or(0, |progress| progress.matched)
    }

    pub fn wants_snapshot_at(&self, voter: VoterId) -> bool {
        let first = self.raw.raft.raft_log.first_index();
        self.raw.raft.prs().get(voter.get()).is_some_and(|progress| progress.matched + 1 < first)
    }

    pub fn has(&self, voter: VoterId, index: u64) -> bool {
        self.raw.raft.prs().get(voter.get()).is_some_and(|progress| progress.matched >= index)
    }

    pub fn has_started(&self, voter: VoterId) -> bool {
        self.raw.raft.prs().get(voter.get()).is_some_and(|progress| progress.matched > 0)
    }

    pub fn has_turn(&self) -> bool {
        self.raw.has_ready() || !self.send.is_empty()
    }

    pub fn turn(&mut self, now: Time) -> Option<Turn> {
        if !self.raw.has_ready() {
            let has_some = !self.send.is_empty();
            return has_some.then(|| Turn { send: take(&mut self.send), ..Turn::default() });
        }
        let mut ready = self.raw.ready();
        let mut turn = Turn { send: take(&mut self.send), ..Turn::default() };
        let mut job = Job { ready: ready.number(), ..Job::default() };
        let stored = self.raw.store().hard;
        job.votes = ready.hs().is_some_and(|hard| (hard.term, hard.vote) != (stored.term, stored.vote));
        let must_wait = (job.votes || self.writes_vote()) && !self.config.makes(Mutation::LeadsBeforeDisk);
        let (at_once, after) = (ready.take_messages(), ready.take_persisted_messages());
        self.convert(at_once, if must_wait { &mut job.after } else { &mut turn.send }, now);
        self.convert(after, &mut job.after, now);
        if !ready.snapshot().is_empty() {
            let metadata = ready.snapshot().get_metadata();
            let (index, term, conf) = (metadata.index, metadata.term, metadata.get_conf_state().clone());
            let snapshot = Snapshot { index, term, state: ready.snapshot().data.to_vec() };
            self.raw.mut_store().restore(snapshot.clone(), conf);
            (turn.snapshot, job.record.snapshot, job.restored) = (Some(snapshot.clone()), Some(snapshot), index);
        }
        let entries = ready.take_entries();
        self.raw.mut_store().append(&entries);
        job.record.entries = entries.into_iter().map(Entry::from_raft).collect();
        if let Some(hard) = ready.hs() {
            let hard = Hard::from_raft(hard);
            self.raw.mut_store().hard = hard;
            self.lazy = Some(hard);
        }
        let needs_hard = job.votes || job.record.snapshot.is_some();
        if ready.must_sync() && (needs_hard || !self.config.makes(Mutation::ForgetsCommit)) {
            job.record.hard = self.lazy.take();
        }
        turn.committed = ready.take_committed_entries().into_iter().map(Entry::from_raft).collect();
        turn.rounds = ready.take_read_states().into_iter().filter_map(round).collect();
        let must_sync = ready.must_sync();
        self.raw.advance_append_async(ready);
        self.remaining(job, must_sync);
        turn.send.append(&mut self.send);
        Some(turn)
    }

    fn writes_vote(&self) -> bool {
        let (writing, next) = (self.writing.iter().map(|(job, _)| job), self.next.iter());
        writing.chain(next).any(|job| job.votes)
    }

    pub fn applied(&mut self, index: u64) {
        self.raw.advance_apply_to(index);
    }

    fn remaining(&mut self, job: Job, must_sync: bool) {
        if self.writing.is_none() && self.next.is_none() && !must_sync {
            return self.finish(job);
        }
        if self.config.makes(Mutation::AckBeforeDisk) {
            let record = job.record.clone();
            self.finish(Job { record: Record::default(), ..job });
            self.next.get_or_insert_default().record.merge(record);
            return;
        }
        let next = self.next.get_or_insert_default();
        next.record.merge(job.record);
        next.after.extend(job.after);
        // While a disk hangs, only the newest messages are kept: any may be lost.
        let too_many = next.after.len().saturating_sub(MAX_RETAINED);
        next.after.drain(..too_many);
        (next.ready, next.restored) = (job.ready, next.restored.max(job.restored));
        next.votes |= job.votes;
    }

    pub fn next_write(&mut self, now: Time) -> Option<Record> {
        if self.writing.is_some() {
            return None;
        }
        let job = self.next.take()?;
        if job.record == Record::default() {
            self.finish(job);
            return None;
        }
        let record = job.record.clone();
        self.writing = Some((job, now));
        Some(record)
    }

    /// Starts a new file, which includes the next record.
    pub fn begin_whole(&mut self, now: Time) -> Record {
        let job = self.next.take().unwrap_or_default();
        self.lazy = None;
        self.writing = Some((job, now));
        self.raw.store().whole()
    }

    pub fn on_written(&mut self) {
        if let Some((job, _)) = self.writing.take() {
            self.finish(job);
        }
    }

    fn finish(&mut self, job: Job) {
        if job.ready > 0 {
            self.raw.on_persist_ready(job.ready);
        }
        if job.restored > 0 {
            self.raw.advance_apply_to(job.restored);
        }
        self.send.extend(job.after);
    }

    pub fn compact(&mut self, index: u64, state: Vec<u8>, conf: &Conf) {
        self.raw.mut_store().compact(index, state, conf.to_raft());
    }

    pub fn wants_snapshot(&self, applied: u64, is_old: bool) -> bool {
        let log = self.raw.store();
        let is_long = applied >= log.snapshot_index() + self.config.compact_after;
        self.writing.is_none() && (is_long || is_old || log.wants_newer())
    }

    fn convert(&mut self, messages: Vec<raft::eraftpb::Message>, to: &mut Vec<Message>, now: Time) {
        for mut message in messages {
            if message.get_msg_type() == MessageType::MsgSnapshot {
                // The message may be lost, so the engine must not wait for a report on it.
                self.raw.report_snapshot(message.to, SnapshotStatus::Finish);
            }
            if message.get_msg_type() == MessageType::MsgRequestVoteResponse && !message.reject {
                message.context = now.since(self.received(now)).as_nanos().to_le_bytes().to_vec().into();
            }
            to.extend(Message::from_raft(message));
        }
    }
}

fn round(read: raft::ReadState) -> Option<(u64, u64)> {
    let round = u64::from_le_bytes(read.request_ctx.try_into().ok()?);
    Some((round, read.index))
}

pub(crate) fn change_of(entry: &Entry) -> Option<ConfChangeV2> {
    use protobuf::Message as _;
    assert!(entry.kind == EntryKind::Change, "entry {} is not a configuration change", entry.index);
    ConfChangeV2::parse_from_bytes(&entry.data).ok()
}

/// Returns the maximum duration of an election without a competitor.
pub fn election_time(config: &Config) -> Span {
    config.tick * (2 * config.election_ticks as u64)
}
