//! A voter without I/O: inputs with the time, effects out.
//!
//! ```text
//!   clock    tick                   ┐               ┌ Send
//!   network  on_registry_message    ├─► Registry ───┤
//!   disk     on_written             ┘               └ Write
//!
//!   engine.rs             the Raft engine, and effects that wait for the disk
//!   registry/lead.rs      the leader: ends of sessions, rounds, answers, voters
//!   registry/delivery.rs  the leader: events for sessions
//!   registry/pieces.rs    long snapshots
//!   registry.rs           the state, the messages, the file
//! ```
//!
//! The local clock is read *after* an input was received: a leader elected by a message counts from then.

mod delivery;
mod lead;
mod pieces;

use std::collections::BTreeMap;

use peerlock_types::{PeerId, Rng, Time};

use self::lead::Lead;
use self::pieces::Pieces;
use crate::command::{Command, Info, Outcome};
use crate::config::Config;
use crate::disk::Write;
use crate::engine::{Engine, change_of};
use crate::file::{self, Damage, Header, Record, Writer};
use crate::form::{Entry, EntryKind, Hard, Message, Snapshot};
use crate::leases::Grants;
use crate::log::Log;
use crate::mutation::Mutation;
use crate::recover::damage;
use crate::state::{State, Undecodable, VoterRecord};
use crate::wire::{Answer, RegistryMessage, decode_versioned};
use crate::{ClusterId, Versions, VoterId};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send in this version: that of the registry, or of the question.
    Send { to: PeerId, version: u16, registry_message: RegistryMessage },
    /// Execute, then call [`Registry::on_written`].
    Write { number: u64, write: Write },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Origin {
    host: PeerId,
    number: u64,
    version: u16,
}

pub struct Registry {
    config: Config,
    versions: Versions,
    voter: VoterId,
    engine: Engine,
    state: State,
    applied: u64,
    /// The version of the snapshot in the file.
    snapshot_version: u16,
    writer: Writer,
    writes: u64,
    /// Never reset: rounds of two terms must differ.
    rounds: u64,
    grants: Grants,
    /// When this voter learned of the quarantine.
    quarantined: Option<Time>,
    lead: Option<Lead>,
    pieces: Pieces,
    received: Option<(VoterId, PeerId)>,
    unexpected: BTreeMap<&'static str, u64>,
    halted: Option<String>,
    /// The evidence that this leader's log lacks confirmed data.
    forgotten: Option<String>,
    out: Vec<Effect>,
}

impl Registry {
    pub fn found(config: Config, cluster: ClusterId, host: PeerId, info: Info, rng: Rng, now: Time) -> Self {
        let versions = info.versions;
        let state = State::found(cluster, host, info);
        let snapshot = Snapshot { index: 1, term: 1, state: state.encode() };
        let record =
            Record { snapshot: Some(snapshot), entries: Vec::new(), hard: Some(Hard { term: 1, vote: 0, commit: 1 }) };
        let header = Header { cluster, voter: VoterId::new(1), file: 1 };
        Self::begin(config, versions, header, record, rng, now)
            .unwrap_or_else(|damage| panic!("a new registry file is damaged: {damage}"))
    }

    pub fn enlist(config: Config, versions: Versions, cluster: ClusterId, voter: VoterId, rng: Rng, now: Time) -> Self {
        let header = Header { cluster, voter, file: 1 };
        Self::begin(config, versions, header, Record::default(), rng, now)
            .unwrap_or_else(|damage| panic!("an empty registry file is damaged: {damage}"))
    }

    pub fn restart(config: Config, versions: Versions, bytes: &[u8], rng: Rng, now: Time) -> Result<Self, Damage> {
        let contents = file::read(bytes)?;
        let header = Header { file: contents.header.file + 1, ..contents.header };
        Self::begin(config, versions, header, contents.record, rng, now)
    }

    /// Starts with a new file in any case. Nothing is sent before it is synced.
    fn begin(
        config: Config,
        versions: Versions,
        header: Header,
        record: Record,
        rng: Rng,
        now: Time,
    ) -> Result<Self, Damage> {
        let damage = |why| damage(why, versions);
        let snapshot = record.snapshot.clone();
        let state = match &snapshot {
            Some(snapshot) => State::decode(&snapshot.state, versions).map_err(damage)?,
            None => State::blank(header.cluster, versions),
        };
        let snapshot_version = state.version();
        let (writer, bytes) = Writer::begin(header, &record);
        let log = Log::new(record, versions).map_err(damage)?;
        let mut registry = Self {
            config,
            versions,
            voter: header.voter,
            engine: Engine::new(header.voter, log, config, versions, rng, now),
            state,
            applied: snapshot.map_or(0, |snapshot| snapshot.index),
            snapshot_version,
            writer,
            writes: 0,
            rounds: 0,
            grants: Grants::default(),
            quarantined: None,
            lead: None,
            pieces: Pieces::default(),
            received: None,
            unexpected: BTreeMap::new(),
            halted: None,
            forgotten: None,
            out: Vec::new(),
        };
        registry.write(Write::Replace(bytes));
        registry.settle(now);
        Ok(registry)
    }

    pub fn voter(&self) -> VoterId {
        self.voter
    }

    pub fn cluster(&self) -> ClusterId {
        self.writer.header().cluster
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    pub fn applied(&self) -> u64 {
        self.applied
    }

    /// Returns whether it leads, as far as it knows.
    pub fn is_leader(&self) -> bool {
        self.engine.is_leader()
    }

    pub fn term(&self) -> u64 {
        self.engine.term()
    }

    pub fn leader(&self) -> Option<PeerId> {
        self.engine
            .leader()
            .and_then(|voter| self.state.voter_records().get(&voter))
            .map(|voter_record| voter_record.host)
    }

    /// Returns whether it votes and has a leader. A removed voter loses its leader within an election timeout; a
    /// learner may not notice its removal.
    pub fn is_led(&self) -> bool {
        let conf = self.state.conf();
        let votes = [&conf.voters, &conf.outgoing].iter().any(|group| group.contains(&self.voter));
        votes && self.halted.is_none() && self.engine.leader().is_some()
    }

    pub fn unexpected(&self) -> &BTreeMap<&'static str, u64> {
        &self.unexpected
    }

    fn count_unexpected(&mut self, why: &'static str) {
        *self.unexpected.entry(why).or_default() += 1;
    }

    /// Returns why it has halted: this program does not understand its log.
    pub fn halted(&self) -> Option<&str> {
        self.halted.as_deref()
    }

    /// Returns the evidence that confirmed data was lost: when it led, a host referred to an entry or session that was
    /// confirmed to it, and that the log does not have. Either a majority of the voters has restored an old file or has
    /// a disk that drops synced writes, or that host is wrong; so the voter continues.
    pub fn forgotten(&self) -> Option<&str> {
        self.forgotten.as_deref()
    }

    pub fn file_length(&self) -> usize {
        self.writer.length()
    }

    pub fn writes(&self) -> u64 {
        self.writes
    }

    pub fn retained(&self) -> usize {
        self.lead.as_ref().map_or(0, Lead::retained) + self.pieces.retained() / 64
    }

    /// Takes the effects since the last call, in order.
    pub fn effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.out)
    }

    /// Handles a tick. Missed ticks are not repeated.
    pub fn tick(&mut self, now: Time) {
        if self.halted.is_some() {
            return;
        }
        self.engine.tick(now);
        self.settle(now);
        self.lead_tick(now);
        self.settle(now);
        self.forget_pieces();
        // The next release would not understand a file of the previous version.
        let is_old = self.snapshot_version < self.state.version();
        self.compact_if_due(is_old, now);
    }

    fn compact_if_due(&mut self, is_old: bool, now: Time) {
        if self.engine.wants_snapshot(self.applied, is_old) {
            self.compact(now);
        }
    }

    pub fn on_registry_message(&mut self, from: PeerId, registry_message: RegistryMessage, version: u16, now: Time) {
        if self.halted.is_some() {
            return;
        }
        match registry_message {
            RegistryMessage::Voter(message) => self.on_message(from, *message, now),
            // The leader has sent other messages before.
            RegistryMessage::Piece { message, at, all } if message.to == self.voter && self.follows(&message) => {
                if let Some(message) = self.on_piece(from, *message, at, all) {
                    self.on_message(from, message, now);
                }
            }
            RegistryMessage::Piece { .. } => {}
            RegistryMessage::Had { from: voter, to, index, bytes } if to == self.voter => {
                self.on_had(from, voter, index, bytes)
            }
            RegistryMessage::Had { .. } => {}
            RegistryMessage::Ask { number, question } => {
                self.on_ask(Origin { host: from, number, version }, question, now)
            }
            RegistryMessage::EventAck { resource, session, generation, topic } => {
                self.on_received(from, (resource, session, generation, topic));
            }
            RegistryMessage::Enlist { .. }
            | RegistryMessage::Retired { .. }
            | RegistryMessage::Answer { .. }
            | RegistryMessage::Event { .. } => {
                self.count_unexpected("a message that is not for a voter");
            }
        }
        self.settle(now);
    }

    pub fn on_written(&mut self, number: u64, now: Time) {
        if number == self.writes && self.halted.is_none() {
            self.engine.on_written();
            // Under load the disk may be busy at every tick.
            self.compact_if_due(false, now);
            self.settle(now);
        }
    }

    fn on_message(&mut self, from: PeerId, message: Message, now: Time) {
        // This may be the only host that can reply to an earlier voter.
        if self.state.is_retired(message.from) {
            if self.state.unsettled().is_none() {
                self.send(from, RegistryMessage::Retired { voter: message.from });
            }
            return;
        }
        if message.to != self.voter {
            return;
        }
        self.received = Some((message.from, from));
        let voter_record = self.state.voter_records().get(&message.from).map(|voter_record| voter_record.host);
        if voter_record.is_some_and(|host| host != from) {
            self.count_unexpected("a message of a voter from another host");
        } else if let Err(why) = self.engine.on_message(message, voter_record.is_some(), now) {
            self.count_unexpected(why);
        }
    }

    fn follows(&self, message: &Message) -> bool {
        self.engine.leader() == Some(message.from) && self.engine.term() == message.term
    }

    fn settle(&mut self, now: Time) {
        if self.halted.is_some() {
            return self.out.clear();
        }
        loop {
            while let Some(turn) = self.engine.turn(now) {
                for message in turn.send {
                    self.send_to_voter(message);
                }
                if let Some(snapshot) = turn.snapshot {
                    self.restore(&snapshot);
                }
                let has_update = !turn.committed.is_empty();
                let has_changed = self.apply(turn.committed, now);
                self.check_leader(now);
                if has_changed {
                    self.end_change(now);
                }
                if has_update {
                    self.delivery(now);
                }
                self.on_rounds(turn.rounds, now);
                if self.halted.is_some() {
                    return self.out.clear();
                }
            }
            self.check_leader(now);
            let has_proposed = self.propose();
            if let Some(record) = self.engine.next_write(now) {
                let bytes = self.writer.append(&record);
                self.write(Write::Append(bytes));
            } else if !has_proposed && !self.engine.has_turn() && !self.engine.lead_alone() {
                return;
            }
        }
    }

    fn apply(&mut self, entries: Vec<Entry>, now: Time) -> bool {
        let Some(last) = entries.last().map(|entry| entry.index) else { return false };
        let has_changed = entries.iter().any(|entry| entry.kind == EntryKind::Change);
        for entry in entries {
            assert!(entry.index == self.applied + 1, "entry {} is applied after {}", entry.index, self.applied);
            self.applied = entry.index;
            match entry.kind {
                EntryKind::Commands => self.apply_commands(&entry, now),
                EntryKind::Change => self.apply_change(&entry),
            }
        }
        self.engine.applied(last);
        has_changed
    }

    fn apply_commands(&mut self, entry: &Entry, now: Time) {
        if entry.data.is_empty() {
            return; // The start of a term.
        }
        match decode_commands(&entry.data, self.versions) {
            Ok(commands) => {
                let outcomes: Vec<Outcome> =
                    commands.into_iter().map(|command| self.apply_command(entry.term, command, now)).collect();
                self.answer(entry.index, entry.term, outcomes);
            }
            Err(Undecodable::Version(version)) => {
                self.halted = Some(format!(
                    "entry {} of the registry has version {version}, and this program understands {}: upgrade it",
                    entry.index, self.versions
                ));
            }
            Err(Undecodable::Format) => {
                self.halted = Some(format!("entry {} of the registry cannot be decoded", entry.index));
            }
        }
    }

    fn apply_command(&mut self, term: u64, command: Command, now: Time) -> Outcome {
        let term = match &command {
            Command::End { term, .. } if self.config.makes(Mutation::OldTermEnds) => *term,
            _ => term,
        };
        let outcome = self.state.apply_but(term, command, |mistake| self.config.makes(mistake));
        if let Some(lead) = &mut self.lead {
            lead.on_outcome(&outcome, now);
        }
        outcome
    }

    fn apply_change(&mut self, entry: &Entry) {
        let Some(change) = change_of(entry) else { return };
        let enlisted: Option<(VoterId, VoterRecord)> = postcard::from_bytes(&entry.context).ok();
        // The same at all voters, since their states are equal here.
        if enlisted.is_some_and(|(voter, voter_record)| !self.state.may_enlist(voter, voter_record)) {
            return;
        }
        if let Some(conf) = self.engine.apply_change(&change) {
            self.state.configure(conf, enlisted);
        }
    }

    fn restore(&mut self, snapshot: &Snapshot) {
        match State::decode(&snapshot.state, self.versions) {
            Ok(state) => {
                (self.snapshot_version, self.applied) = (state.version(), snapshot.index);
                self.state = state;
            }
            // It was decoded on receipt.
            Err(_) => self.halted = Some("the leader's snapshot cannot be decoded".to_owned()),
        }
    }

    fn compact(&mut self, now: Time) {
        self.engine.compact(self.applied, self.state.encode(), self.state.conf());
        self.snapshot_version = self.state.version();
        let record = self.engine.begin_whole(now);
        let header = Header { file: self.writer.header().file + 1, ..self.writer.header() };
        let (writer, bytes) = Writer::begin(header, &record);
        self.writer = writer;
        self.write(Write::Replace(bytes));
    }

    fn write(&mut self, write: Write) {
        self.writes += 1;
        self.out.push(Effect::Write { number: self.writes, write });
    }

    fn send(&mut self, to: PeerId, registry_message: RegistryMessage) {
        let version = self.state.version();
        self.out.push(Effect::Send { to, version, registry_message });
    }

    /// Sends to the host in the state, or where its message came from while there is no state.
    fn send_to_voter(&mut self, message: Message) {
        let voter_record = self.state.voter_records().get(&message.to).map(|voter_record| voter_record.host);
        let received = self.received.filter(|(voter, _)| *voter == message.to).map(|(_, host)| host);
        if let Some(host) = voter_record.or(received)
            && let Some(message) = self.send_in_pieces(message, host)
        {
            self.send(host, RegistryMessage::Voter(Box::new(message)));
        }
    }

    fn answer_to(&mut self, origin: Origin, answer: Answer) {
        let registry_message = RegistryMessage::Answer { number: origin.number, answer };
        self.out.push(Effect::Send { to: origin.host, version: origin.version, registry_message });
    }
}

pub(crate) fn decode_commands(bytes: &[u8], versions: Versions) -> Result<Vec<Command>, Undecodable> {
    let (commands, _): (Vec<Command>, u16) = decode_versioned(bytes, versions)?;
    if commands.iter().all(|command| command.check().is_ok()) { Ok(commands) } else { Err(Undecodable::Format) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Label;
    use crate::form::Kind;
    use crate::wire::Question;

    fn leader() -> Registry {
        let info = Info {
            name: Label::new("host").expect("a short name"),
            addresses: Vec::new(),
            versions: Versions::OURS,
            keeps: true,
        };
        let cluster = ClusterId::new(7);
        let mut voter = Registry::found(Config::default(), cluster, PeerId::new(1), info, Rng::new(1), Time::ZERO);
        while let Some((number, _)) = written(&mut voter) {
            voter.on_written(number, Time::ZERO);
        }
        assert!(voter.is_leader());
        voter
    }

    fn written(voter: &mut Registry) -> Option<(u64, Write)> {
        voter.effects().into_iter().find_map(|effect| match effect {
            Effect::Write { number, write } => Some((number, write)),
            Effect::Send { .. } => None,
        })
    }

    /// Otherwise the file would grow under load, and no learner would receive a snapshot.
    #[test]
    fn voter_with_busy_disk_compacts() {
        let mut voter = leader();
        let resize = Command::Resize { resource: Label::new("r").expect("a short name"), slots: 2, generation: 1 };
        for number in 1..2_000 {
            let ask = RegistryMessage::Ask { number, question: Question::Do(resize.clone()) };
            voter.on_registry_message(PeerId::new(1), ask, 1, Time::ZERO);
            let (mut number, write) = written(&mut voter).expect("an entry");
            if matches!(write, Write::Replace(_)) {
                return;
            }
            voter.tick(Time::ZERO);
            loop {
                voter.on_written(number, Time::ZERO);
                match written(&mut voter) {
                    Some((_, Write::Replace(_))) => return,
                    Some((next, _)) => number = next,
                    None => break,
                }
            }
        }
        panic!("no new file was started at {} bytes", voter.file_length());
    }

    fn say(voter: &mut Registry, kind: Kind, term: u64, entries: Vec<Entry>) {
        let message = Message {
            kind,
            from: VoterId::new(999),
            to: voter.voter(),
            term,
            log_term: voter.term() * u64::from(kind == Kind::Append),
            index: voter.applied() * u64::from(kind == Kind::Append),
            commit: 0,
            commit_term: 0,
            reject: false,
            reject_hint: 0,
            context: Vec::new(),
            entries,
            snapshot: None,
        };
        message.check().expect("a valid message");
        voter.on_registry_message(PeerId::new(9), RegistryMessage::Voter(Box::new(message)), 1, Time::ZERO);
    }

    /// It could never be elected again, nor read its own file.
    #[test]
    fn term_far_ahead_is_rejected() {
        let mut voter = leader();
        let before = voter.term();
        for (term, is_believed) in [((1 << 48) - 1, false), (before + (1 << 21), false), (before + 9, true)] {
            say(&mut voter, Kind::Heartbeat, term, Vec::new());
            assert_eq!(voter.term() == term, is_believed, "{term}");
        }
        assert_eq!(voter.unexpected().values().sum::<u64>(), 2);
    }

    /// The file could not be read again.
    #[test]
    fn invalid_entry_is_not_written() {
        let mut voter = leader();
        let (term, index) = (voter.term() + 1, voter.applied() + 1);
        let entry = |data| Entry { index, term, kind: EntryKind::Commands, data, context: Vec::new() };
        say(&mut voter, Kind::Append, term, vec![entry(vec![1, 0, 255, 255])]);
        assert_eq!(voter.unexpected().keys().collect::<Vec<_>>(), [&"an invalid entry"]);
        assert!(voter.effects().is_empty());
        say(&mut voter, Kind::Append, term, vec![entry(Vec::new())]);
        assert!(matches!(voter.effects()[..], [Effect::Write { .. }, ..]), "a valid entry is written");
    }
}
