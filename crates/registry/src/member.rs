//! One process's part in the register: its session, what it asks, and the voter it may be. Pure, as everything it is
//! made of.
//!
//! ```text
//!   clock    wake        ┐             ┌ Send, Write
//!   network  on_bytes    │             │ Answered  what a command that was asked has come to
//!   disk     on_written  ├─► Member ───┤ Seen      what was to be looked at
//!   here     ask, leave  │             │ Told      what the session must know without having asked
//!            look        ┘             └ Refused   why the cluster does not let it in
//! ```

mod questions;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use peerlock_types::{PeerId, Rng, Span, Time};

use crate::command::{Command, Incarnation, Info, Outcome, Refusal};
use crate::disk::Write;
use crate::file::Damage;
use crate::kind::{EventKind, Topic};
use crate::look::{Found, Look};
use crate::registry::Effect;
use crate::wire::{self, Answer, Malformed, Question, RegistryMessage};
use crate::{ClusterId, Config, Label, Registry, SessionClient, SessionId, SessionRequest, Ttl, VoterId};
use questions::{Questions, RETRY};

/// How often what waits is asked at once since somebody has named a leader, at most.
const HURRY: Span = Span::from_millis(300);
/// Who has waited for this long says whom it misses.
const PATIENCE: Span = Span::from_secs(1);
/// A leader that has not answered for this long is not asked any more. Our choice: the shortest election, so that the
/// next leader is hardly there before; and longer than any way there and back.
const DEAF: Span = Span::from_secs(1);
/// At most this many hosts are known as possible voters.
const MOST_CONTACTS: usize = 64;

/// What the driver is to do, or should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// To be sent to this host, once; it may be lost.
    Send(PeerId, Vec<u8>),
    /// To be written; answered by [`Member::on_written`].
    Write {
        /// To be named in the answer.
        number: u64,
        /// Bytes to add to the file, or to put in its place.
        write: Write,
    },
    /// What was asked with this number is decided.
    Answered(u64, Outcome),
    /// What was to be looked at with this number.
    Found(u64, Found),
    /// The own session is told this: see [`EventKind`]. It may come twice.
    Event {
        /// The resource that it is about.
        resource: Label,
        /// The own session, as long as it is not over.
        session: SessionId,
        /// The resource's generation when this was decided.
        generation: u64,
        /// What was decided.
        kind: EventKind,
    },
    /// The cluster does not let this process in, and why. It goes on asking.
    Refused(Refusal),
}

/// Who a process is.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The cluster that it belongs to.
    pub cluster: ClusterId,
    /// The host that it runs on.
    pub host: PeerId,
    /// The number of the process: higher than that of every earlier process of its host.
    pub process: u64,
    /// What is to be known of it.
    pub info: Info,
    /// How long its session stands after a renewal.
    pub ttl: Ttl,
    /// What it takes over from an earlier process of its host.
    pub predecessor: Option<Predecessor>,
}

/// What a process takes over from an earlier one of its host that is known to be gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Predecessor {
    /// The session of that one, which ends with the opening of ours.
    pub session: SessionId,
    /// The resources of which clients of it may still be inside.
    pub names: Vec<Label>,
}

/// Why nothing is decided, as far as a process can tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Since then nobody has decided anything that this process has asked.
    pub since: Time,
    /// Voters, or hosts that might be if none is known, that have not been heard since, and when they last were.
    pub silent: Vec<(PeerId, Option<Time>)>,
    /// Those that have been heard and have not decided anything: they have no majority, or it is slow.
    pub received: Vec<PeerId>,
}

/// Where the leader is, as far as we know.
#[derive(Clone, Copy, Debug)]
struct Lead {
    host: PeerId,
    /// Since when it has left a question of ours without an answer.
    asked: Option<Time>,
}

/// One process's part in the register.
pub struct Member {
    identity: Identity,
    config: Config,
    rng: Rng,
    client: SessionClient,
    registry: Option<Registry>,
    /// The highest voter that this process has been: none is begun twice.
    been: Option<VoterId>,
    questions: Questions,
    /// No question had a number as low as this.
    first: u64,
    numbers: u64,
    /// The last entry that an answer was part of.
    index: u64,
    /// Where the leader is, and where voters are.
    leader: Option<Lead>,
    /// Whether that is our own voter, as it was when we last looked.
    leads: bool,
    /// The version in which questions are put: the oldest that we know, until a newer one was heard.
    version: u16,
    contacts: Vec<PeerId>,
    /// The voters, as they were when somebody last named them.
    voters: Vec<PeerId>,
    /// Who has last said yes to our session, and the voters that it has named.
    sworn: Vec<PeerId>,
    /// When those that might be voters were last heard.
    received: BTreeMap<PeerId, Time>,
    /// Since when nothing that was asked was decided.
    waits: Option<Time>,
    turn: usize,
    /// The number of the question that opens the session, and what it was asked with.
    opening: Option<(u64, u64)>,
    /// The register has refused the last request for a session, since it knows a later one.
    is_outdated: bool,
    /// It ends in good order: with the number of the question that ends its session, if it had one.
    stopping: Option<Option<u64>>,
    next_tick: Time,
    next_hurry: Time,
    /// The writes of earlier registers of this process, so that numbers go on.
    writes: u64,
    unexpected: u64,
    out: Vec<Output>,
}

impl Member {
    /// A process without a voter, which asks those hosts. `rng` must be another stream for each process.
    pub fn new(identity: Identity, config: Config, contacts: Vec<PeerId>, mut rng: Rng, now: Time) -> Self {
        let before = identity.predecessor.as_ref().map(|predecessor| predecessor.session);
        let client = SessionClient::new(identity.ttl, before, Rng::new(rng.bits()));
        // Not from 1: a late answer to an earlier process of this host is nobody's.
        let first = rng.bits() >> 1;
        #[cfg(feature = "mutation")]
        let client = client.mutated(config.mutation);
        Self {
            version: identity.info.versions.min,
            identity,
            config,
            client,
            registry: None,
            been: None,
            questions: Questions::default(),
            first,
            numbers: first,
            index: 0,
            leader: None,
            leads: false,
            contacts,
            voters: Vec::new(),
            sworn: Vec::new(),
            received: BTreeMap::new(),
            waits: None,
            turn: 0,
            opening: None,
            is_outdated: false,
            stopping: None,
            next_tick: now,
            next_hurry: now,
            writes: 0,
            unexpected: 0,
            out: Vec::new(),
            rng,
        }
    }

    /// The process that founds a cluster, and is its first voter.
    pub fn found(identity: Identity, config: Config, rng: Rng, now: Time) -> Self {
        let mut member = Self::new(identity, config, Vec::new(), rng, now);
        let Identity { cluster, host, info, .. } = member.identity.clone();
        let rng = Rng::new(member.rng.bits());
        member.adopt(Registry::found(config, cluster, host, info, rng, now));
        member
    }

    /// A process that has the file of a voter.
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

    /// Keeps this process's session.
    pub fn client(&self) -> &SessionClient {
        &self.client
    }

    /// Its voter, which may have halted: see [`Registry::halted`].
    pub fn registry(&self) -> Option<&Registry> {
        self.registry.as_ref()
    }

    /// The host of the leader, as far as this process knows.
    pub fn leader(&self) -> Option<PeerId> {
        self.leader.map(|lead| lead.host)
    }

    /// The hosts that vote or learn to, and the one that leads, as far as this process knows; some of them twice.
    pub fn seated(&self) -> impl Iterator<Item = PeerId> {
        let own = self
            .registry
            .iter()
            .flat_map(|registry| registry.state().voter_records().values().map(|voter_record| voter_record.host));
        own.chain(self.voters.iter().copied()).chain(self.leader())
    }

    /// How many letters made no sense, but for those to its voter and those of other versions and clusters.
    pub fn unexpected(&self) -> u64 {
        self.unexpected
    }

    /// What is to be done since the last call, in order.
    pub fn take_outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.out)
    }

    /// When [`Member::wake`] is to be called.
    pub fn next(&self) -> Time {
        let asked = self.questions.next().into_iter();
        let tick = self.registry.as_ref().map(|_| self.next_tick);
        let client = self.stopping.is_none().then(|| self.client.next());
        asked.chain(tick).chain(client).min().unwrap_or(Time::END)
    }

    /// Time has passed. The session is looked at first.
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
            self.put(number, now);
        }
        self.settle(now);
    }

    /// Asks for something to be done, and retransmits until it is answered: [`Output::Answered`] with the number that
    /// this returns. What is asked twice is done once, or as if.
    pub fn ask(&mut self, command: Command, now: Time) -> u64 {
        self.begin(Question::Do(command), now)
    }

    /// Looks at what is there: [`Output::Found`] with the number that this returns. Everything that this process was told
    /// before is in it.
    pub fn look(&mut self, look: Look, now: Time) -> u64 {
        self.begin(Question::Look { look, since: self.index }, now)
    }

    fn begin(&mut self, question: Question, now: Time) -> u64 {
        let number = self.number();
        match question {
            // Nothing of this process matters after that.
            Question::Do(Command::Leave { .. }) => self.ask_now(number, question, now),
            question => self.questions.line_up(number, question),
        }
        self.take_turns(now);
        self.settle(now);
        number
    }

    fn ask_now(&mut self, number: u64, question: Question, now: Time) {
        self.questions.begin(number, question, now);
        self.put(number, now);
    }

    /// Asks what there is room for.
    fn take_turns(&mut self, now: Time) {
        while let Some((number, question)) = self.questions.turn() {
            self.ask_now(number, question, now);
        }
    }

    /// Ends the own session: the process uses nothing any more. If it is woken after that it opens another one.
    pub fn leave(&mut self, now: Time) -> Option<u64> {
        let session = self.client.leave(now)?;
        Some(self.ask(Command::Leave { session }, now))
    }

    /// Ends in good order: leaves the own session and opens no other, and gives the lead away, so that nobody waits for
    /// what this process would have done. To be driven on until [`Member::has_stopped`], or for a moment at most.
    pub fn stop(&mut self, now: Time) {
        let leave = self.leave(now);
        self.stopping = Some(leave);
    }

    /// Whether [`Member::stop`] has come to its end: nobody misses this process, but for the vote it may have.
    pub fn has_stopped(&self) -> bool {
        let leads = self.registry.as_ref().is_some_and(|it| it.is_leader() && it.state().conf().voters.len() > 1);
        self.has_left() && !leads
    }

    /// Whether the end of its session is known for good, or it had none.
    pub fn has_left(&self) -> bool {
        self.stopping.is_some_and(|leave| leave.is_none_or(|leave| !self.questions.has(leave)))
    }

    /// Whom this process misses, if what it has asked was not decided for a second.
    pub fn missing(&self, now: Time) -> Option<Missing> {
        let since = self.waits.filter(|since| now >= *since + PATIENCE)?;
        let own = self.registry.as_ref().map(|registry| registry.state().voter_hosts()).unwrap_or_default();
        let voters = [own, self.voters.clone(), self.contacts.clone()].into_iter().find(|it| !it.is_empty());
        let others = voters.into_iter().flatten().filter(|host| *host != self.identity.host);
        let last = others.map(|host| (host, self.received.get(&host).copied()));
        let (received, silent): (Vec<_>, Vec<_>) = last.partition(|(_, last)| last.is_some_and(|last| last >= since));
        Some(Missing { since, silent, received: received.into_iter().map(|(host, _)| host).collect() })
    }

    /// What another host has sent. Why it was refused, if it was: a sentence for the log.
    pub fn on_bytes(&mut self, from: PeerId, bytes: &[u8], now: Time) -> Result<(), Malformed> {
        let read = wire::decode(bytes, self.identity.info.versions, self.identity.cluster);
        match read {
            Err(Malformed::Format | Malformed::Bounds(_)) => self.unexpected += 1,
            // By the id of the letter that we write back, whatever it says, it hears that it has been recovered.
            Err(Malformed::Cluster { theirs, ours }) if ours.follows(theirs) => {
                let answer = Answer::Elsewhere { leader: None, voters: Vec::new() };
                self.send(from, self.identity.info.versions.min, RegistryMessage::Answer { number: 0, answer });
            }
            // It may understand ours: by the version of what we write back it hears which that is.
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
            // Others were contacts, or voted, before.
            if self.received.len() > 4 * MOST_CONTACTS {
                self.received.retain(|host, _| self.contacts.contains(host) || self.voters.contains(host));
            }
        }
        self.on_registry_message(from, registry_message, version, now);
        self.settle(now);
        Ok(())
    }

    /// A write is done.
    pub fn on_written(&mut self, number: u64, now: Time) {
        if let (Some(registry), Some(number)) = (&mut self.registry, number.checked_sub(self.writes)) {
            registry.on_written(number, now);
        }
        self.settle(now);
    }

    fn adopt(&mut self, registry: Registry) {
        self.been = self.been.max(Some(registry.voter()));
        self.registry = Some(registry);
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// What the session needs now.
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
                // The same question again has the same number, so that a slow answer to the first still counts.
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

    fn put(&mut self, number: u64, now: Time) {
        let answers = self.leader.is_some_and(|lead| lead.asked.is_none_or(|asked| now.since(asked) < RETRY));
        if let Some(question) = self.questions.put(number, answers, now, &mut self.rng) {
            self.send_ask(number, question, now);
        }
    }

    /// To the leader if it is known, as long as it answers, and to the next one of those that might know otherwise.
    fn send_ask(&mut self, number: u64, question: Question, now: Time) {
        self.waits.get_or_insert(now);
        if self.registry.as_ref().is_some_and(Registry::is_leader) {
            self.follow(self.identity.host, now);
        }
        if self.leader.take_if(|lead| lead.asked.is_some_and(|asked| now.since(asked) >= DEAF)).is_some() {
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

    /// The leader is there, and answers.
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
                if self.is_own_voter(from) || self.sworn.contains(&from) =>
            {
                self.on_enlist(voter, session, alone, now);
            }
            RegistryMessage::Retired { voter }
                if self.is_own_voter(from) || self.is_blank() && self.sworn.contains(&from) =>
            {
                self.on_retired(voter);
            }
            // Of somebody who neither leads nor votes as far as we know. Where it does, it says it again.
            RegistryMessage::Enlist { .. } | RegistryMessage::Retired { .. } => {}
            RegistryMessage::Answer { number, answer } => self.on_answer(from, number, answer, now),
            // What is told before the session may be used is dropped, and told again: nobody takes part in anything
            // yet. A session that takes over from another is a party from its first moment on.
            RegistryMessage::Event { resource, session, generation, kind }
                if self.client.stands(now) == Some(session) =>
            {
                let topic = kind.topic();
                if topic != Topic::Opened {
                    let resource = resource.clone();
                    self.send(from, version, RegistryMessage::EventAck { resource, session, generation, topic });
                }
                self.out.push(Output::Event { resource, session, generation, kind });
            }
            RegistryMessage::Event { .. } => {} // Or for a session that was here before.
        }
    }

    /// Whether our own voter knows this host as one that votes or learns to: only to those does it write, so only they
    /// answer that it is none any more.
    fn is_own_voter(&self, host: PeerId) -> bool {
        let voter_records = self.registry.iter().flat_map(|registry| registry.state().voter_records().values());
        host == self.identity.host || voter_records.into_iter().any(|voter_record| voter_record.host == host)
    }

    /// Whether our own voter has learnt nothing yet: nothing is lost with it.
    fn is_blank(&self) -> bool {
        self.registry.as_ref().is_some_and(|registry| registry.state().voter_records().is_empty())
    }

    /// Only the process for whose session the number was given out begins the file, and only once: else a voter could
    /// have forgotten its votes.
    fn on_enlist(&mut self, voter: VoterId, session: SessionId, alone: bool, now: Time) {
        let is_new = self.been.is_none_or(|been| voter > been);
        if let Some(been) = self.registry.as_ref().map(Registry::voter)
            && self.client.session() == Some(session)
            && is_new
            && alone
        {
            self.on_retired(been);
        }
        if self.registry.is_none() && self.client.session() == Some(session) && is_new && self.identity.info.keeps {
            let rng = Rng::new(self.rng.bits());
            let versions = self.identity.info.versions;
            self.adopt(Registry::enlist(self.config, versions, self.identity.cluster, voter, rng, now));
            self.next_tick = now;
        }
    }

    /// Nobody leads a voter that has lost its seat: as long as ours is led, whoever says so is wrong, or too early.
    fn on_retired(&mut self, voter: VoterId) {
        if let Some(registry) = self.registry.take_if(|registry| registry.voter() == voter && !registry.is_led()) {
            // Who has founded the cluster may never have asked anybody else.
            self.learn(registry.state().voter_hosts());
            self.writes += registry.writes() + 1;
            self.out.push(Output::Write { number: self.writes, write: Write::Remove });
        }
    }

    fn on_answer(&mut self, from: PeerId, number: u64, answer: Answer, now: Time) {
        // Asked by an earlier process of this host, or by nobody.
        if number <= self.first || number > self.numbers {
            return;
        }
        if !matches!(answer, Answer::Elsewhere { .. }) {
            self.waits = None;
        }
        match answer {
            Answer::Done { outcome, index } => {
                self.follow(from, now);
                self.index = self.index.max(index);
                self.on_outcome(number, outcome, now);
            }
            Answer::Yes { session, renewal, voters } => {
                self.follow(from, now);
                self.sworn = voters.iter().copied().chain([from]).collect();
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
                // A leader that is known is asked at once, but not repeatedly: two who take each other for it
                // would make a storm.
                if let Some(host) = leader.filter(|leader| *leader != from) {
                    self.leader.take_if(|lead| lead.host != host);
                    self.leader.get_or_insert(Lead { host, asked: None });
                }
                if self.leader.is_some() && now >= self.next_hurry {
                    self.next_hurry = now + HURRY;
                    self.client.hurry(now);
                    self.put(number, now);
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
                    // The first time it was most often this process itself.
                    if std::mem::replace(&mut self.is_outdated, true) {
                        self.out.push(Output::Refused(Refusal::OldProcess));
                    }
                }
                Outcome::Refused(why) => self.out.push(Output::Refused(why)),
                Outcome::Ended { .. } | Outcome::Joined { .. } | Outcome::Advanced(_) | Outcome::Done => {}
            }
        } else if self.questions.answered(number) {
            self.out.push(Output::Answered(number, outcome));
        }
    }

    /// This host can be reached, and may know who leads. Who has no session asks at once.
    pub fn meet(&mut self, host: PeerId, now: Time) {
        if host != self.identity.host && !self.contacts.contains(&host) && self.contacts.len() < MOST_CONTACTS {
            self.contacts.push(host);
            if self.client.session().is_none() {
                self.client.hurry(now);
            }
        }
    }

    /// This host cannot be reached any more. One that votes is asked all the same: the way to it is looked for.
    pub fn part(&mut self, host: PeerId) {
        let voters = &self.voters;
        self.contacts.retain(|contact| *contact != host || voters.contains(contact));
    }

    /// Where voters are. Those that were known stay known: they may be asked who is now.
    fn learn(&mut self, voters: Vec<PeerId>) {
        if !voters.is_empty() {
            self.voters.clone_from(&voters);
            self.voters.truncate(MOST_CONTACTS);
        }
        let known: BTreeSet<PeerId> = self.contacts.iter().copied().chain([self.identity.host]).collect();
        let update: Vec<PeerId> = voters.into_iter().filter(|voter| !known.contains(voter)).collect();
        self.contacts.splice(0..0, update);
        // Who has been heard stays before who was only named.
        while self.contacts.len() > MOST_CONTACTS {
            let unheard = self.contacts.iter().rposition(|host| !self.received.contains_key(host));
            self.contacts.remove(unheard.unwrap_or(MOST_CONTACTS));
        }
    }

    /// When our own voter has been elected, what waits for a leader is asked at once.
    fn check_leader(&mut self, now: Time) {
        let leads = self.registry.as_ref().is_some_and(Registry::is_leader);
        if leads && !std::mem::replace(&mut self.leads, leads) {
            self.client.hurry(now);
            self.session_request(now);
            self.questions.all().into_iter().for_each(|number| self.put(number, now));
        }
        self.leads = leads;
    }

    /// Passes on what the voter wants done; what it tells this very process is a call.
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
