//! One process's access to the registry: its session, its questions, and its voter if it has one.
//!
//! ```text
//!   clock    wake        ┐             ┌ Send, Write
//!   network  on_bytes    │             │ Answered  the outcome of a command
//!   disk     on_written  ├─► Member ───┤ Found     the result of a query
//!   local    ask, leave  │             │ Event     an event for the own session
//!            look        ┘             └ Refused   the registry refuses to open a session
//! ```

mod questions;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use peerlock_types::{EventKind, PeerId, Rng, Span, Time};

use crate::command::{Command, Incarnation, Info, Outcome, Refusal};
use crate::disk::Write;
use crate::event::Topic;
use crate::file::Damage;
use crate::look::{Found, Look};
use crate::registry::Effect;
use crate::wire::{self, Answer, Malformed, Question, RegistryMessage};
use crate::{ClusterId, Config, Label, Registry, SessionClient, SessionId, SessionRequest, Ttl, VoterId};
use questions::{Questions, RETRY};

/// The minimum interval between retransmissions after an `Elsewhere`.
const REDIRECTS: Span = Span::from_millis(300);
/// The time without a decision until [`Member::missing`] reports.
const PATIENCE: Span = Span::from_secs(1);
/// How long a leader may take to answer. Our choice: the shortest election timeout, and longer than any round trip.
const ANSWER_TIMEOUT: Span = Span::from_secs(1);
const MOST_CONTACTS: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// May be lost.
    Send(PeerId, Vec<u8>),
    /// Execute, then call [`Member::on_written`].
    Write { number: u64, write: Write },
    /// The outcome of a command.
    Answered(u64, Outcome),
    /// The result of a query.
    Found(u64, Found),
    /// An event for the own, valid session. May be repeated.
    Event { resource: Label, session: SessionId, generation: u64, kind: EventKind },
    /// The process keeps requesting a session.
    Refused(Refusal),
}

#[derive(Clone, Debug)]
pub struct Identity {
    pub cluster: ClusterId,
    pub host: PeerId,
    /// Higher than that of every earlier process of the host.
    pub process: u64,
    pub info: Info,
    pub ttl: Ttl,
    pub predecessor: Option<Predecessor>,
}

/// An earlier process of the host, which has exited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Predecessor {
    pub session: SessionId,
    pub names: Vec<Label>,
}

/// Why nothing is decided, as far as this process knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// When the oldest undecided question was sent.
    pub since: Time,
    /// Voters that have sent nothing since, and when they last did. Contacts if no voter is known.
    pub silent: Vec<(PeerId, Option<Time>)>,
    /// Voters that have sent something since, but no decision.
    pub received: Vec<PeerId>,
}

#[derive(Clone, Copy, Debug)]
struct Lead {
    host: PeerId,
    /// When the oldest unanswered question was sent.
    asked: Option<Time>,
}

/// One process's access to the registry.
pub struct Member {
    identity: Identity,
    config: Config,
    rng: Rng,
    client: SessionClient,
    registry: Option<Registry>,
    /// No voter is started twice.
    highest_voter: Option<VoterId>,
    questions: Questions,
    /// All questions have higher numbers.
    first: u64,
    numbers: u64,
    /// The highest index of an answer.
    index: u64,
    leader: Option<Lead>,
    leads: bool,
    /// The version of questions: the oldest that this process understands, or the newest received.
    version: u16,
    contacts: Vec<PeerId>,
    /// The voters that a message named last.
    voters: Vec<PeerId>,
    /// The leader that last renewed the session, and its voters.
    trusted: Vec<PeerId>,
    /// The last message of each contact or voter.
    received: BTreeMap<PeerId, Time>,
    waiting_since: Option<Time>,
    turn: usize,
    /// The question that opens the session, and its nonce.
    opening: Option<(u64, u64)>,
    is_outdated: bool,
    /// Set when the member stops, with the question that ends the session, if there was one.
    stopping: Option<Option<u64>>,
    next_tick: Time,
    next_redirect: Time,
    /// Writes of earlier voters of this process.
    writes: u64,
    unexpected: u64,
    out: Vec<Output>,
}

impl Member {
    /// `rng` must be another stream for each process.
    pub fn new(identity: Identity, config: Config, contacts: Vec<PeerId>, mut rng: Rng, now: Time) -> Self {
        let before = identity.predecessor.as_ref().map(|predecessor| predecessor.session);
        let client = SessionClient::new(identity.ttl, before, Rng::new(rng.bits()));
        // So that late answers to an earlier process are recognized.
        let first = rng.bits() >> 1;
        #[cfg(feature = "mutation")]
        let client = client.mutated(config.mutation);
        Self {
            version: identity.info.versions.min,
            identity,
            config,
            client,
            registry: None,
            highest_voter: None,
            questions: Questions::default(),
            first,
            numbers: first,
            index: 0,
            leader: None,
            leads: false,
            contacts,
            voters: Vec::new(),
            trusted: Vec::new(),
            received: BTreeMap::new(),
            waiting_since: None,
            turn: 0,
            opening: None,
            is_outdated: false,
            stopping: None,
            next_tick: now,
            next_redirect: now,
            writes: 0,
            unexpected: 0,
            out: Vec::new(),
            rng,
        }
    }

    pub fn found(identity: Identity, config: Config, rng: Rng, now: Time) -> Self {
        let mut member = Self::new(identity, config, Vec::new(), rng, now);
        let Identity { cluster, host, info, .. } = member.identity.clone();
        let rng = Rng::new(member.rng.bits());
        member.adopt(Registry::found(config, cluster, host, info, rng, now));
        member
    }

    pub fn restart(
        identity: Identity,
        config: Config,
        contacts: Vec<PeerId>,
        file: &[u8],
        rng: Rng,
        now: Time,
    ) -> Result<Self, Damage> {
        let mut member = Self::new(identity, config, contacts, rng, now);
        let rng = Rng::new(member.rng.bits());
        let registry = Registry::restart(config, member.identity.info.versions, file, rng, now)?;
        if registry.cluster() != member.identity.cluster {
            return Err(Damage::NoRegister("it belongs to another cluster"));
        }
        member.adopt(registry);
        Ok(member)
    }

    pub fn client(&self) -> &SessionClient {
        &self.client
    }

    /// Returns the own voter, which may have [halted](Registry::halted).
    pub fn registry(&self) -> Option<&Registry> {
        self.registry.as_ref()
    }

    pub fn leader(&self) -> Option<PeerId> {
        self.leader.map(|lead| lead.host)
    }

    /// Returns the known hosts of the leader, voters and learners, with duplicates.
    pub fn seated(&self) -> impl Iterator<Item = PeerId> {
        let own = self
            .registry
            .iter()
            .flat_map(|registry| registry.state().voter_records().values().map(|voter_record| voter_record.host));
        own.chain(self.voters.iter().copied()).chain(self.leader())
    }

    /// Counts malformed messages, not those to the voter or of other versions and clusters.
    pub fn unexpected(&self) -> u64 {
        self.unexpected
    }

    pub fn take_outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.out)
    }

    pub fn next(&self) -> Time {
        let asked = self.questions.next().into_iter();
        let tick = self.registry.as_ref().map(|_| self.next_tick);
        let client = self.stopping.is_none().then(|| self.client.next());
        asked.chain(tick).chain(client).min().unwrap_or(Time::END)
    }

    pub fn wake(&mut self, now: Time) {
        self.session_request(now);
        let has_left = self.has_left();
        if let Some(registry) = &mut self.registry
            && now >= self.next_tick
        {
            self.next_tick = now + self.config.tick;
            registry.tick(now);
            if registry.is_leader() && has_left {
                registry.resign(now);
            }
        }
        for number in self.questions.due(now) {
            self.transmit(number, now);
        }
        self.settle(now);
    }

    /// Proposes a command, and retransmits it until [`Output::Answered`] has the returned number.
    pub fn ask(&mut self, command: Command, now: Time) -> u64 {
        self.begin(Question::Do(command), now)
    }

    /// Queries the registry. The result reflects every answer received so far.
    pub fn look(&mut self, look: Look, now: Time) -> u64 {
        self.begin(Question::Look { look, since: self.index }, now)
    }

    fn begin(&mut self, question: Question, now: Time) -> u64 {
        let number = self.number();
        match question {
            Question::Do(Command::Leave { .. }) => self.ask_now(number, question, now),
            question => self.questions.enqueue(number, question),
        }
        self.take_turns(now);
        self.settle(now);
        number
    }

    fn ask_now(&mut self, number: u64, question: Question, now: Time) {
        self.questions.begin(number, question, now);
        self.transmit(number, now);
    }

    fn take_turns(&mut self, now: Time) {
        while let Some((number, question)) = self.questions.turn() {
            self.ask_now(number, question, now);
        }
    }

    /// Ends the session, which the caller has stopped. The next `wake` opens another.
    pub fn leave(&mut self, now: Time) -> Option<u64> {
        let session = self.client.leave(now)?;
        Some(self.ask(Command::Leave { session }, now))
    }

    /// Ends the session, opens no other, and transfers the leadership. Drive the member until [`Member::has_stopped`],
    /// or for a moment.
    pub fn stop(&mut self, now: Time) {
        let leave = self.leave(now);
        self.stopping = Some(leave);
    }

    pub fn has_stopped(&self) -> bool {
        let leads = self.registry.as_ref().is_some_and(|it| it.is_leader() && it.state().conf().voters.len() > 1);
        self.has_left() && !leads
    }

    /// Returns whether the end of the session is committed, or there was none.
    pub fn has_left(&self) -> bool {
        self.stopping.is_some_and(|leave| leave.is_none_or(|leave| !self.questions.has(leave)))
    }

    /// Returns the unresponsive voters if nothing was decided for a second.
    pub fn missing(&self, now: Time) -> Option<Missing> {
        let since = self.waiting_since.filter(|since| now >= *since + PATIENCE)?;
        let own = self.registry.as_ref().map(|registry| registry.state().voter_hosts()).unwrap_or_default();
        let voters = [own, self.voters.clone(), self.contacts.clone()].into_iter().find(|it| !it.is_empty());
        let others = voters.into_iter().flatten().filter(|host| *host != self.identity.host);
        let last = others.map(|host| (host, self.received.get(&host).copied()));
        let (received, silent): (Vec<_>, Vec<_>) = last.partition(|(_, last)| last.is_some_and(|last| last >= since));
        Some(Missing { since, silent, received: received.into_iter().map(|(host, _)| host).collect() })
    }

    pub fn on_bytes(&mut self, from: PeerId, bytes: &[u8], now: Time) -> Result<(), Malformed> {
        let read = wire::decode(bytes, self.identity.info.versions, self.identity.cluster);
        match read {
            Err(Malformed::Format | Malformed::Bounds(_)) => self.unexpected += 1,
            // The reply shows that our cluster was recovered.
            Err(Malformed::Cluster { theirs, ours }) if ours.follows(theirs) => {
                let answer = Answer::Elsewhere { leader: None, voters: Vec::new() };
                self.send(from, self.identity.info.versions.min, RegistryMessage::Answer { number: 0, answer });
            }
            // The sender may understand our version.
            Err(Malformed::Version(theirs, ours)) if theirs < ours.min => {
                let answer = Answer::Elsewhere { leader: None, voters: Vec::new() };
                self.send(from, ours.min, RegistryMessage::Answer { number: 0, answer });
            }
            Err(_) | Ok(_) => {}
        }
        let (registry_message, version) = read?;
        self.version = self.version.max(version);
        if self.contacts.contains(&from) || self.voters.contains(&from) {
            self.received.insert(from, now);
            if self.received.len() > 4 * MOST_CONTACTS {
                self.received.retain(|host, _| self.contacts.contains(host) || self.voters.contains(host));
            }
        }
        self.on_registry_message(from, registry_message, version, now);
        self.settle(now);
        Ok(())
    }

    pub fn on_written(&mut self, number: u64, now: Time) {
        if let (Some(registry), Some(number)) = (&mut self.registry, number.checked_sub(self.writes)) {
            registry.on_written(number, now);
        }
        self.settle(now);
    }

    fn adopt(&mut self, registry: Registry) {
        self.highest_voter = self.highest_voter.max(Some(registry.voter()));
        self.registry = Some(registry);
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn session_request(&mut self, now: Time) {
        if self.stopping.is_some() {
            return;
        }
        match self.client.wake(now) {
            None => {}
            Some(SessionRequest::Open { nonce, opening, replaces }) => {
                let Identity { host, process, info, ttl, predecessor, .. } = self.identity.clone();
                let incarnation = Incarnation { process, opening };
                let takes =
                    predecessor.filter(|it| Some(it.session) == replaces).map(|it| it.names).unwrap_or_default();
                let voter = self.registry.as_ref().map(Registry::voter);
                // A repetition has the same number, so that a slow answer to the first counts.
                let number = match self.opening {
                    Some((number, asked)) if asked == nonce => number,
                    Some(_) | None => self.number(),
                };
                self.opening = Some((number, nonce));
                let command = Command::Open { host, nonce, incarnation, ttl, info, voter, replaces, takes };
                self.send_ask(number, Question::Do(command), now);
            }
            Some(SessionRequest::Renew { session, renewal }) => {
                let number = self.number();
                self.send_ask(number, Question::Renew { session, renewal }, now);
            }
        }
    }

    fn transmit(&mut self, number: u64, now: Time) {
        let answers = self.leader.is_some_and(|lead| lead.asked.is_none_or(|asked| now.since(asked) < RETRY));
        if let Some(question) = self.questions.attempt(number, answers, now, &mut self.rng) {
            self.send_ask(number, question, now);
        }
    }

    /// Sends to the leader while it is known and answers, otherwise to the contacts in turn.
    fn send_ask(&mut self, number: u64, question: Question, now: Time) {
        self.waiting_since.get_or_insert(now);
        if self.registry.as_ref().is_some_and(Registry::is_leader) {
            self.follow(self.identity.host, now);
        }
        if self.leader.take_if(|lead| lead.asked.is_some_and(|asked| now.since(asked) >= ANSWER_TIMEOUT)).is_some() {
            self.questions.hasten(now);
        }
        let to = match &mut self.leader {
            Some(lead) => {
                lead.asked.get_or_insert(now);
                Some(lead.host)
            }
            None => {
                let me = self.registry.is_some().then_some(self.identity.host);
                let known: Vec<PeerId> = me.into_iter().chain(self.contacts.iter().copied()).collect();
                self.turn += 1;
                known.get(self.turn % known.len().max(1)).copied()
            }
        };
        if let Some(to) = to {
            self.send(to, self.version, RegistryMessage::Ask { number, question });
        }
    }

    fn follow(&mut self, host: PeerId, now: Time) {
        if self.leader.replace(Lead { host, asked: None }).is_none_or(|before| before.host != host) {
            self.questions.hasten(now);
        }
    }

    fn send(&mut self, to: PeerId, version: u16, registry_message: RegistryMessage) {
        self.out.push(Output::Send(to, wire::encode(&registry_message, version, self.identity.cluster)));
    }

    fn on_registry_message(&mut self, from: PeerId, registry_message: RegistryMessage, version: u16, now: Time) {
        match registry_message {
            RegistryMessage::Voter(_)
            | RegistryMessage::Ask { .. }
            | RegistryMessage::EventAck { .. }
            | RegistryMessage::Piece { .. }
            | RegistryMessage::Had { .. } => match &mut self.registry {
                Some(registry) => registry.on_registry_message(from, registry_message, version, now),
                None => {
                    if let RegistryMessage::Ask { number, .. } = registry_message {
                        let leader = self.leader.map(|lead| lead.host);
                        let named = if self.voters.is_empty() { &self.contacts } else { &self.voters };
                        let answer = Answer::Elsewhere { leader, voters: named.clone() };
                        self.send(from, version, RegistryMessage::Answer { number, answer });
                    }
                }
            },
            RegistryMessage::Enlist { voter, session, alone }
                if self.is_own_voter(from) || self.trusted.contains(&from) =>
            {
                self.on_enlist(voter, session, alone, now);
            }
            RegistryMessage::Retired { voter }
                if self.is_own_voter(from) || self.is_blank() && self.trusted.contains(&from) =>
            {
                self.on_retired(voter);
            }
            // If the sender leads, it repeats the message.
            RegistryMessage::Enlist { .. } | RegistryMessage::Retired { .. } => {}
            RegistryMessage::Answer { number, answer } => self.on_answer(from, number, answer, now),
            // An event before the session is usable is repeated later.
            RegistryMessage::Event { resource, session, generation, kind }
                if self.client.stands(now) == Some(session) =>
            {
                if let Some(topic) = Topic::of(&kind).filter(|topic| *topic != Topic::Opened) {
                    let resource = resource.clone();
                    self.send(from, version, RegistryMessage::EventAck { resource, session, generation, topic });
                }
                self.out.push(Output::Event { resource, session, generation, kind });
            }
            RegistryMessage::Event { .. } => {} // For an earlier session of this host.
        }
    }

    /// The own voter sends only to these, so only these answer that it is removed.
    fn is_own_voter(&self, host: PeerId) -> bool {
        let voter_records = self.registry.iter().flat_map(|registry| registry.state().voter_records().values());
        host == self.identity.host || voter_records.into_iter().any(|voter_record| voter_record.host == host)
    }

    fn is_blank(&self) -> bool {
        self.registry.as_ref().is_some_and(|registry| registry.state().voter_records().is_empty())
    }

    /// Starts a voter. Only the process whose session the number was allocated for starts its file, once. Otherwise a
    /// voter could have forgotten its votes.
    fn on_enlist(&mut self, voter: VoterId, session: SessionId, alone: bool, now: Time) {
        let is_new = self.highest_voter.is_none_or(|highest| voter > highest);
        if let Some(former) = self.registry.as_ref().map(Registry::voter)
            && self.client.session() == Some(session)
            && is_new
            && alone
        {
            self.on_retired(former);
        }
        if self.registry.is_none() && self.client.session() == Some(session) && is_new && self.identity.info.keeps {
            let rng = Rng::new(self.rng.bits());
            let versions = self.identity.info.versions;
            self.adopt(Registry::enlist(self.config, versions, self.identity.cluster, voter, rng, now));
            self.next_tick = now;
        }
    }

    /// A removed voter has no leader. While ours has one, the message is wrong or early.
    fn on_retired(&mut self, voter: VoterId) {
        if let Some(registry) = self.registry.take_if(|registry| registry.voter() == voter && !registry.is_led()) {
            // A process that created the cluster may never have asked another host.
            self.learn(registry.state().voter_hosts());
            self.writes += registry.writes() + 1;
            self.out.push(Output::Write { number: self.writes, write: Write::Remove });
        }
    }

    fn on_answer(&mut self, from: PeerId, number: u64, answer: Answer, now: Time) {
        if number <= self.first || number > self.numbers {
            return;
        }
        if !matches!(answer, Answer::Elsewhere { .. }) {
            self.waiting_since = None;
        }
        match answer {
            Answer::Done { outcome, index } => {
                self.follow(from, now);
                self.index = self.index.max(index);
                self.on_outcome(number, outcome, now);
            }
            Answer::Yes { session, renewal, voters } => {
                self.follow(from, now);
                self.trusted = voters.iter().copied().chain([from]).collect();
                self.learn(voters);
                self.client.on_yes(session, renewal, now);
            }
            Answer::Found(found) => {
                if self.questions.answered(number) {
                    self.out.push(Output::Found(number, found));
                }
            }
            Answer::Over { session } => self.client.on_over(session, now),
            Answer::Elsewhere { leader, voters } => {
                if self.leader.take_if(|lead| lead.host == from).is_some() {
                    self.questions.hasten(now);
                }
                self.learn(voters);
                // Not repeatedly: two hosts that each name the other would cause a storm.
                if let Some(host) = leader.filter(|leader| *leader != from) {
                    self.leader.take_if(|lead| lead.host != host);
                    self.leader.get_or_insert(Lead { host, asked: None });
                }
                if self.leader.is_some() && now >= self.next_redirect {
                    self.next_redirect = now + REDIRECTS;
                    self.client.retry_now(now);
                    self.transmit(number, now);
                }
            }
        }
        self.take_turns(now);
        self.session_request(now);
    }

    fn on_outcome(&mut self, number: u64, outcome: Outcome, now: Time) {
        if let Some((_, nonce)) = self.opening.take_if(|(opening, _)| *opening == number) {
            match outcome {
                Outcome::Opened { session, .. } => {
                    self.is_outdated = false;
                    self.client.on_opened(nonce, session, now);
                }
                Outcome::Refused(Refusal::OldProcess) => {
                    self.client.on_outdated(nonce);
                    // The first refusal is mostly due to a late copy of our own request.
                    if std::mem::replace(&mut self.is_outdated, true) {
                        self.out.push(Output::Refused(Refusal::OldProcess));
                    }
                }
                Outcome::Refused(why) => self.out.push(Output::Refused(why)),
                Outcome::Ended { .. }
                | Outcome::Joined { .. }
                | Outcome::Advanced(_)
                | Outcome::Done
                | Outcome::Concluded { .. } => {}
            }
        } else if self.questions.answered(number) {
            self.out.push(Output::Answered(number, outcome));
        }
    }

    /// Adds a reachable host. A process without a session asks it immediately.
    pub fn meet(&mut self, host: PeerId, now: Time) {
        if host != self.identity.host && !self.contacts.contains(&host) && self.contacts.len() < MOST_CONTACTS {
            self.contacts.push(host);
            if self.client.session().is_none() {
                self.client.retry_now(now);
            }
        }
    }

    /// Keeps voters: the network layer looks for a route to them.
    pub fn part(&mut self, host: PeerId) {
        let voters = &self.voters;
        self.contacts.retain(|contact| *contact != host || voters.contains(contact));
    }

    /// Known hosts may know the current voters.
    fn learn(&mut self, voters: Vec<PeerId>) {
        if !voters.is_empty() {
            self.voters.clone_from(&voters);
            self.voters.truncate(MOST_CONTACTS);
        }
        let known: BTreeSet<PeerId> = self.contacts.iter().copied().chain([self.identity.host]).collect();
        let update: Vec<PeerId> = voters.into_iter().filter(|voter| !known.contains(voter)).collect();
        self.contacts.splice(0..0, update);
        // Hosts that were only named are dropped first.
        while self.contacts.len() > MOST_CONTACTS {
            let silent = self.contacts.iter().rposition(|host| !self.received.contains_key(host));
            self.contacts.remove(silent.unwrap_or(MOST_CONTACTS));
        }
    }

    /// A new leader asks itself everything that is open.
    fn check_leader(&mut self, now: Time) {
        let leads = self.registry.as_ref().is_some_and(Registry::is_leader);
        if leads && !std::mem::replace(&mut self.leads, leads) {
            self.client.retry_now(now);
            self.session_request(now);
            self.questions.all().into_iter().for_each(|number| self.transmit(number, now));
        }
        self.leads = leads;
    }

    /// A message to the own process is a call.
    fn settle(&mut self, now: Time) {
        let mut calls = VecDeque::new();
        loop {
            self.check_leader(now);
            let effects = self.registry.as_mut().map(Registry::effects).unwrap_or_default();
            for effect in effects {
                match effect {
                    Effect::Send { to, version, registry_message } => self.send(to, version, registry_message),
                    Effect::Write { number, write } => {
                        self.out.push(Output::Write { number: self.writes + number, write });
                    }
                }
            }
            let host = self.identity.host;
            self.out.retain_mut(|output| match output {
                Output::Send(to, bytes) if *to == host => {
                    calls.push_back(std::mem::take(bytes));
                    false
                }
                _ => true,
            });
            let Some(bytes) = calls.pop_front() else { return };
            if let Ok((registry_message, version)) =
                wire::decode(&bytes, self.identity.info.versions, self.identity.cluster)
            {
                self.on_registry_message(host, registry_message, version, now);
            }
        }
    }
}
