//! The leader's part of a voter, discarded at the end of the term.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem::take;

use peerlock_types::{PeerId, Span, Time};
use raft::eraftpb::{ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2};

use super::delivery::SentEvents;
use super::{Origin, Registry};
use crate::command::{Command, Outcome, Refusal};
use crate::leases::{Counting, Leases, certainly_passed, patience};
use crate::look::{self, Found, Look};
use crate::mutation::Mutation;
use crate::state::{DetachedRecord, MOST_SESSIONS};
use crate::voters::{self, Change};
use crate::wire::{Answer, Question, RegistryMessage, encode_versioned, to_bytes};
use crate::{Label, SessionId, Ttl, VoterId};

const MOST_BATCH: usize = 256;
/// An entry is sent in one message.
const LONG_ENTRY: usize = 128 << 10;
/// Senders retransmit further ones.
const MOST_QUEUED: usize = 8192;
/// So that others are served too.
const MOST_OF_HOST: usize = 1024;

#[derive(Clone, Copy, Debug)]
struct Renewal {
    origin: Origin,
    renewal: u64,
}

type Wanted = (Command, Option<Origin>);

pub(super) struct Lead {
    term: u64,
    leases: Leases,
    /// Proposed once the current entry is applied.
    queue: VecDeque<Wanted>,
    /// So that no retransmission is proposed.
    asked: BTreeMap<PeerId, BTreeSet<u64>>,
    /// The current entry.
    flight: Option<(u64, Vec<Wanted>)>,
    /// Renewals since the last round was started.
    waiting: BTreeMap<SessionId, Renewal>,
    /// Rounds in progress, with the renewals received before.
    rounds: BTreeMap<u64, BTreeMap<SessionId, Renewal>>,
    /// Confirmed rounds, with the index to be applied before they count.
    confirmed: Vec<(u64, BTreeMap<SessionId, Renewal>)>,
    /// Since when the voter's host has had no session.
    absent: BTreeMap<VoterId, Time>,
    /// Since when each voter that lags behind has confirmed nothing more than this entry.
    behind: BTreeMap<VoterId, (Time, u64)>,
    /// The hosts of voters that were stuck, with their sessions at that time: they are not chosen again.
    stuck: BTreeMap<PeerId, SessionId>,
    /// A host that knows an entry beyond the log as committed, and the first round that began later.
    doubt: Option<(u64, PeerId, u64)>,
    pub(super) sent: SentEvents,
    ticks: u64,
}

impl Lead {
    fn new(term: u64, leases: Leases) -> Self {
        Self {
            term,
            leases,
            queue: VecDeque::new(),
            asked: BTreeMap::new(),
            flight: None,
            waiting: BTreeMap::new(),
            rounds: BTreeMap::new(),
            confirmed: Vec::new(),
            absent: BTreeMap::new(),
            behind: BTreeMap::new(),
            stuck: BTreeMap::new(),
            doubt: None,
            sent: SentEvents::default(),
            ticks: 0,
        }
    }

    pub(super) fn retained(&self) -> usize {
        let asked = self.queue.len() + self.flight.iter().map(|(_, flying)| flying.len()).sum::<usize>();
        let rounds = self.rounds.values().chain(self.confirmed.iter().map(|(_, renewals)| renewals));
        asked + self.waiting.len() + rounds.map(BTreeMap::len).sum::<usize>()
    }

    fn under_way(&self) -> impl Iterator<Item = &Command> {
        let flying = self.flight.iter().flat_map(|(_, flying)| flying);
        flying.chain(&self.queue).map(|(command, _)| command)
    }

    pub(super) fn on_outcome(&mut self, outcome: &Outcome, now: Time) {
        match outcome {
            Outcome::Opened { session, .. } => self.leases.on_opened(*session, now),
            Outcome::Ended { sessions, .. } => sessions.iter().for_each(|session| self.leases.on_ended(*session)),
            _ => {}
        }
    }
}

/// A period is shortened after each such part of it: a restarted voter loses at most one. Our choice: 40 log entries
/// per period, and an error of 2.5 %.
const PARTS: u64 = 40;
/// The shortest such part.
const SHORTEST_PART: u64 = 1_000_000_000;

/// Returns the rest of a period, if a part of it has passed for certain. Whole parts, so that a repeated entry is the
/// same.
fn shortened(grant: &DetachedRecord, counted: Span) -> Option<Ttl> {
    let part = (grant.run?.whole.span().as_nanos() / PARTS).max(SHORTEST_PART);
    let passed = certainly_passed(counted).as_nanos() / part * part;
    let left = grant.ttl.span().as_nanos().checked_sub(passed).filter(|_| passed > 0)?;
    Ttl::from_millis(left / 1_000_000).ok()
}

impl Registry {
    /// Whatever is in progress belongs to another term.
    pub(super) fn check_leader(&mut self, now: Time) {
        let term = self.engine.is_leader().then(|| self.engine.term());
        if self.lead.as_ref().map(|lead| lead.term) == term {
            return;
        }
        let Some(term) = term else {
            if !self.config.makes(Mutation::OldTermEnds) {
                self.lead = None;
            }
            return;
        };
        let since = if self.config.makes(Mutation::EndsAtOnce) { Time::ZERO } else { self.engine.received(now) };
        let mut lead = Lead::new(term, Leases::new(since, self.config.slack));
        if let Some(before) = self.lead.take() {
            lead.queue = before.flight.into_iter().flat_map(|(_, flying)| flying).chain(before.queue).collect();
        }
        self.lead = Some(lead);
    }

    pub(super) fn lead_tick(&mut self, now: Time) {
        // Every voter counts, so that an election does not restart the count.
        let mut expired = Vec::new();
        for (name, resource) in self.state.granted() {
            for (&fencing, grant) in resource.detached() {
                let renewals = grant.renewals;
                let lease = Counting { renewals, ttl: grant.ttl.span(), shortens: grant.run.is_some() };
                let counted = self.grants.counted((name, fencing), lease, now);
                if counted >= patience(grant.ttl.span(), self.config.slack) {
                    expired.push(Command::ExpireDetached { resource: name.clone(), fencing, renewals });
                } else if let Some(ttl) = shortened(grant, counted) {
                    expired.push(Command::Shorten { resource: name.clone(), fencing, renewals, ttl });
                }
            }
        }
        let resources = self.state.resources();
        self.grants.retain(|name, fencing| {
            resources.get(name).is_some_and(|resource| resource.detached().contains_key(&fencing))
        });
        expired.extend(self.lift_quarantine(now));
        if !self.engine.is_settled() {
            return;
        }
        let Some(lead) = &mut self.lead else { return };
        lead.ticks += 1;
        let sessions = self.state.sessions().iter().map(|(id, session)| (*id, session.ttl.span()));
        let due = lead.leases.due(now, sessions);
        if !due.is_empty() {
            lead.queue.push_back((Command::End { sessions: due, term: lead.term }, None));
        }
        let under_way: Vec<&Command> = lead.under_way().filter(|command| command.is_leaders()).collect();
        expired.retain(|expire_detached| !under_way.contains(&expire_detached));
        let version = self.state.version() + 1;
        let raise = Command::Raise { version };
        if self.versions.has(version) && self.state.can_raise(version) && !under_way.contains(&&raise) {
            expired.push(raise);
        }
        lead.queue.extend(expired.into_iter().map(|command| (command, None)));
        self.settle_change();
        self.begin_round(now);
        self.change_voters(now);
        self.notify_learners();
        self.delivery(now);
        if let Some(lead) = self.lead.as_mut().filter(|lead| lead.ticks % 20 == 0) {
            lead.sent.forget(&self.state);
        }
    }

    /// Every voter counts from the moment when it learns of the quarantine.
    fn lift_quarantine(&mut self, now: Time) -> Option<Command> {
        let Some(ttl) = self.state.quarantine() else {
            self.quarantined = None;
            return None;
        };
        let since = *self.quarantined.get_or_insert(now);
        (now >= since + patience(ttl.span(), self.config.slack)).then_some(Command::LiftQuarantine)
    }

    /// Ends an applied change at once: until it is settled, a power loss may leave voters that wait for a majority of
    /// the old ones.
    pub(super) fn end_change(&mut self, now: Time) {
        if !self.engine.is_settled() {
            return;
        }
        if self.state.conf().outgoing.is_empty() {
            self.settle_change();
        } else {
            self.change_voters(now);
        }
    }

    fn settle_change(&mut self) {
        let Some(lead) = &mut self.lead else { return };
        let Some(change) = self.state.unsettled().filter(|_| self.state.conf().outgoing.is_empty()) else { return };
        let settle = Command::Settle { change };
        if lead.under_way().all(|command| *command != settle) {
            lead.queue.push_back((settle, None));
        }
    }

    fn begin_round(&mut self, now: Time) {
        let Some(lead) = &mut self.lead else { return };
        if !lead.waiting.is_empty() {
            self.rounds += 1;
            lead.rounds.insert(self.rounds, take(&mut lead.waiting));
            self.engine.begin_round(self.rounds, now);
        }
    }

    /// A majority has confirmed these rounds after they were started.
    pub(super) fn on_rounds(&mut self, rounds: Vec<(u64, u64)>, now: Time) {
        let applied = if self.config.makes(Mutation::YesBeforeApplied) { u64::MAX } else { self.applied };
        let Some(lead) = &mut self.lead else { return };
        let last = rounds.iter().map(|(round, _)| *round).max().unwrap_or(0);
        for (round, index) in rounds {
            if let Some(mut renewals) = lead.rounds.remove(&round) {
                if self.config.makes(Mutation::RoundBeforeRequest) {
                    renewals.append(&mut lead.waiting);
                    take(&mut lead.rounds).into_values().for_each(|mut later| renewals.append(&mut later));
                }
                lead.confirmed.push((index, renewals));
            }
        }
        if let Some((_, host, since)) = lead.doubt.take_if(|(round, ..)| *round <= last)
            && since > self.engine.last_index()
        {
            self.on_forgotten(host, format!("entry {since}"));
        }
        let Some(lead) = &mut self.lead else { return };
        let (ready, later) = take(&mut lead.confirmed).into_iter().partition(|(index, _)| *index <= applied);
        lead.confirmed = later;
        for (session, renewal) in Vec::from_iter(ready).into_iter().flat_map(|(_, renewals)| renewals) {
            self.confirm(session, renewal, now);
        }
    }

    fn confirm(&mut self, session: SessionId, Renewal { origin, renewal }: Renewal, now: Time) {
        let Some(lead) = &mut self.lead else { return };
        if self.state.sessions().contains_key(&session) {
            if lead.leases.confirm(session, now) {
                let voters = self.state.voter_hosts();
                self.answer_to(origin, Answer::Yes { session, renewal, voters });
            }
        } else if self.state.is_over(session) {
            self.answer_to(origin, Answer::Over { session });
        } else {
            // Everything confirmed before the renewal is applied, so the session was opened in another history.
            self.on_forgotten(origin.host, format!("session {session}"));
        }
    }

    fn on_forgotten(&mut self, host: PeerId, what: String) {
        let last = self.engine.last_index();
        self.forgotten.get_or_insert_with(|| {
            format!("host {host} knows {what} as confirmed, and the log, which ends at entry {last}, does not have it")
        });
    }

    pub(super) fn on_ask(&mut self, origin: Origin, question: Question, now: Time) {
        if let Question::Renew { session, .. } = question
            && self.state.is_over(session)
        {
            // An end is final, so any voter may answer.
            return self.answer_to(origin, Answer::Over { session });
        }
        if let Question::Look { look, since } = &question
            && (self.applied >= *since || self.config.makes(Mutation::LooksAnywhere))
            && !self.state.conf().voters.is_empty()
        {
            let found = self.look(look, now);
            return self.answer_to(origin, Answer::Found(found));
        }
        if self.lead.is_none() || !self.engine.is_leader() {
            let (leader, voters) = (self.leader(), self.state.voter_hosts());
            return self.answer_to(origin, Answer::Elsewhere { leader, voters });
        }
        if !self.is_theirs(origin.host, &question) {
            self.count_unexpected("a question about another host's session, or for a leader only");
            let outcome = Outcome::Refused(Refusal::NotYours);
            return self.answer_to(origin, Answer::Done { outcome, index: 0 });
        }
        let Some(lead) = &mut self.lead else { return };
        match question {
            Question::Renew { session, renewal } if self.config.makes(Mutation::YesWithoutRound) => {
                self.confirm(session, Renewal { origin, renewal }, now);
            }
            // The session retransmits.
            Question::Renew { .. } if lead.waiting.len() >= MOST_SESSIONS => {}
            Question::Renew { session, renewal } => _ = lead.waiting.insert(session, Renewal { origin, renewal }),
            Question::Do(mut command) => {
                if let Command::Open { host, replaces, .. } = &mut command
                    && self.config.makes(Mutation::ReplacesSession)
                {
                    *replaces = replaces.or(self.state.session_of(*host).map(|(session, _)| session));
                }
                if let Command::Close { session, .. } = &command {
                    lead.sent.closed.insert(*session, now);
                }
                let of_host = lead.asked.get(&origin.host).map_or(0, BTreeSet::len);
                if lead.queue.len() < MOST_QUEUED
                    && of_host < MOST_OF_HOST
                    && lead.asked.entry(origin.host).or_default().insert(origin.number)
                {
                    lead.queue.push_back((command, Some(origin)));
                }
            }
            // Another voter may lead already. So this proves something only if a later round succeeds.
            Question::Look { since, .. } if since > self.engine.last_index() => {
                lead.doubt.get_or_insert((self.rounds + 1, origin.host, since));
            }
            // Retransmitted; this voter applies more soon.
            Question::Look { .. } => {}
        }
    }

    fn look(&self, look: &Look, now: Time) -> Found {
        let index = self.applied;
        let left = |name: &Label, fencing: u64, grant: &DetachedRecord| {
            self.grants.left((name, fencing), grant.renewals, grant.ttl.span(), now)
        };
        match look {
            Look::Cluster => Found::Cluster(look::cluster(&self.state, index, self.leader(), None)),
            Look::Further(host) => Found::Cluster(look::cluster(&self.state, index, self.leader(), Some(*host))),
            Look::Hosts(hosts) => Found::Cluster(look::hosts(&self.state, index, self.leader(), hosts)),
            Look::Resources { prefix, after, most, granted_by } => {
                let names = (prefix.as_ref(), after.as_ref());
                Found::Resources(look::resources(&self.state, index, names, *most, *granted_by, left))
            }
            Look::Resource(name) => Found::Resources(look::resource(&self.state, index, name, left)),
        }
    }

    /// A host may ask for itself and its own sessions, and nothing that only a leader proposes.
    fn is_theirs(&self, host: PeerId, question: &Question) -> bool {
        let owns = |session| self.state.sessions().get(&session).is_none_or(|it| it.host == host);
        match question {
            Question::Renew { session, .. } => owns(*session),
            Question::Look { .. } => true,
            Question::Do(Command::Open { host: opens, .. }) => *opens == host,
            Question::Do(command) => !command.is_leaders() && command.session().is_none_or(owns),
        }
    }

    pub(super) fn propose(&mut self) -> bool {
        let version = self.state.version();
        let Some(lead) = self.lead.as_mut().filter(|lead| lead.flight.is_none() && !lead.queue.is_empty()) else {
            return false;
        };
        let mut most = lead.queue.len().min(MOST_BATCH);
        loop {
            let commands: Vec<&Command> = lead.queue.iter().take(most).map(|(command, _)| command).collect();
            let data = encode_versioned(&commands, version);
            if data.len() > LONG_ENTRY && most > 1 {
                most /= 2;
                continue;
            }
            let Some(index) = self.engine.propose(data) else { return false };
            lead.flight = Some((index, lead.queue.drain(..most).collect()));
            return true;
        }
    }

    pub(super) fn answer(&mut self, index: u64, term: u64, outcomes: Vec<Outcome>) {
        let Some(lead) = self.lead.as_mut().filter(|lead| lead.term == term) else { return };
        let Some((_, flown)) = lead.flight.take_if(|(flying, _)| *flying == index) else { return };
        for ((_, origin), outcome) in flown.into_iter().zip(outcomes) {
            if let Some(origin) = origin {
                if let Some(Entry::Occupied(mut asked)) = self.lead.as_mut().map(|lead| lead.asked.entry(origin.host)) {
                    asked.get_mut().remove(&origin.number);
                    if asked.get().is_empty() {
                        asked.remove();
                    }
                }
                self.answer_to(origin, Answer::Done { outcome, index });
            }
        }
    }

    /// Returns voters whose host has had no session for too long, or a session with another file or none.
    fn lost_voters(&mut self, now: Time) -> BTreeSet<VoterId> {
        let Some(lead) = &mut self.lead else { return BTreeSet::new() };
        let mut lost = BTreeSet::new();
        lead.absent.retain(|voter, _| self.state.voter_records().contains_key(voter));
        for (&voter, voter_record) in self.state.voter_records() {
            match self.state.session_of(voter_record.host) {
                Some((id, session)) => {
                    lead.absent.remove(&voter);
                    if session.voter != Some(voter) && voter_record.session != Some(id) {
                        lost.insert(voter);
                    }
                }
                None => {
                    if now >= *lead.absent.entry(voter).or_insert(now) + self.config.replace_after {
                        lost.insert(voter);
                    }
                }
            }
        }
        lost.extend(self.stuck_voters(now));
        lost.remove(&self.voter);
        lost
    }

    /// Returns the voters that have confirmed nothing for long, though their hosts have sessions: their disks hang, or
    /// they have halted. Voters chosen by an administrator are not replaced.
    fn stuck_voters(&mut self, now: Time) -> BTreeSet<VoterId> {
        let Some(lead) = self.lead.as_mut().filter(|_| self.state.chosen().is_none()) else { return BTreeSet::new() };
        let mut stuck = BTreeSet::new();
        lead.behind.retain(|voter, _| self.state.voter_records().contains_key(voter));
        for (&voter, voter_record) in self.state.voter_records() {
            if voter == self.voter || self.engine.has_caught_up(voter) {
                lead.behind.remove(&voter);
                continue;
            }
            let confirmed = self.engine.confirmed_by(voter);
            let (since, before) = lead.behind.entry(voter).or_insert((now, confirmed));
            if confirmed > *before {
                (*since, *before) = (now, confirmed);
            }
            let session = self.state.session_of(voter_record.host);
            if let Some((session, _)) = session.filter(|_| now >= *since + self.config.stuck_after) {
                stuck.insert(voter);
                lead.stuck.insert(voter_record.host, session);
            }
        }
        stuck
    }

    fn change_voters(&mut self, now: Time) {
        if self.engine.has_pending_change() {
            return;
        }
        let lost = self.lost_voters(now);
        let engine = &self.engine;
        let Some(Lead { stuck, .. }) = &self.lead else { return };
        let plan = voters::plan(self.voter, &self.state, &lost, stuck, |voter| engine.has_caught_up(voter));
        let Some(change) = plan else { return };
        let single = |kind, voter: VoterId| {
            let mut single = ConfChangeSingle { node_id: voter.get(), ..ConfChangeSingle::default() };
            single.set_change_type(kind);
            single
        };
        let mut proposed = ConfChangeV2::default();
        let mut context = Vec::new();
        let changes: Vec<ConfChangeSingle> = match change {
            Change::Resign => {
                self.hand_over();
                return;
            }
            Change::Leave => Vec::new(),
            Change::Drop(voter) => vec![single(ConfChangeType::RemoveNode, voter)],
            Change::Enlist(voter, voter_record) => {
                context = to_bytes(&(voter, voter_record), Vec::new());
                vec![single(ConfChangeType::AddLearnerNode, voter)]
            }
            Change::Switch { add, remove } => {
                // The engine's automatic way depends on which voter led when.
                proposed.set_transition(ConfChangeTransition::Explicit);
                let add = add.into_iter().map(|voter| single(ConfChangeType::AddNode, voter));
                add.chain(remove.into_iter().map(|voter| single(ConfChangeType::RemoveNode, voter))).collect()
            }
        };
        proposed.set_changes(changes.into());
        self.engine.propose_change(proposed, context);
    }

    /// Returns whether there is another voter. May fail; then call it again.
    pub fn resign(&mut self, now: Time) -> bool {
        let is_received = self.halted.is_none() && self.hand_over();
        self.settle(now);
        is_received
    }

    fn hand_over(&mut self) -> bool {
        let voters: Vec<VoterId> = self.state.conf().voters.iter().copied().filter(|it| *it != self.voter).collect();
        self.engine.hand_over(voters.into_iter()).is_some()
    }

    /// They may not know that they are learners.
    fn notify_learners(&mut self) {
        let Some(lead) = &self.lead else { return };
        if lead.ticks % 4 != 0 {
            return;
        }
        let learners = self.state.conf().learners.iter().filter(|voter| !self.engine.has_started(**voter));
        let voter_records = learners
            .filter_map(|voter| self.state.voter_records().get(voter).map(|voter_record| (*voter, *voter_record)));
        for (voter, voter_record) in voter_records.collect::<Vec<_>>() {
            if let Some(session) = voter_record.session {
                let voter_records =
                    self.state.voter_records().values().filter(|it| it.host == voter_record.host).count();
                let alone = voter_records == 1 && self.state.unsettled().is_none();
                self.send(voter_record.host, RegistryMessage::Enlist { voter, session, alone });
            }
        }
    }
}
