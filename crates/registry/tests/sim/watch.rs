//! Invariants, checked at every event.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use peerlock_registry::{
    ClusterId, Command, EventKind, Label, Member, Mutation, Outcome, Page, Registry, Resource, SessionId,
    SessionRecord, State, View, VoterId, file,
};
use peerlock_types::{Key, PeerId, Time, mix};

use crate::deliveries::Deliveries;

/// A recovered registry skips this many generations.
const GAP: u64 = 65_536;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// The session has ended.
    TwoMayUse(PeerId, SessionId),
    Shared(PeerId, SessionId),
    Disagree(PeerId, u64),
    /// A confirmed command has no effect.
    Lost(String),
    /// The voter may have forgotten a vote.
    StartedTwice(VoterId),
    Unnoticed(PeerId),
    Refused(PeerId, String),
    NoSession(PeerId),
    /// With other content, or for a generation closed long ago.
    WrongEvent(PeerId, String),
    Undelivered(String),
    Revived(String),
    Reused(String),
    /// A query does not reflect what the process knows.
    Unseen(PeerId, String),
    Late(String),
    /// They replaced the same session: one process was killed before it received its own.
    Unwritten(SessionId, SessionId),
    SetVoters(String),
    /// It has a session or votes, and is no member.
    NoMember(PeerId),
    Unexpected(PeerId, String),
    /// A leader notices that its log lacks confirmed data.
    Forgotten(PeerId),
}

#[derive(Default)]
pub struct Watch {
    believed: BTreeMap<SessionId, (PeerId, u64)>,
    ended: BTreeSet<SessionId>,
    /// A recovered registry ended them in its quarantine: they may be in use.
    doubtful: BTreeSet<SessionId>,
    digests: BTreeMap<(ClusterId, u64), Key>,
    pub deliveries: Deliveries,
    applied: BTreeMap<PeerId, u64>,
    started: BTreeSet<VoterId>,
    confirmed: Vec<(Command, Outcome)>,
    mutation: Option<Mutation>,
    opened: BTreeMap<SessionId, Command>,
    recovered: bool,
    pub counts: Counts,
}

/// Show that a run has covered something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub events: u64,
    pub ended: u64,
    pub elections: u64,
    pub answers: u64,
    pub most_voters: usize,
    pub crashes: u64,
    /// Lost and replaced voters.
    pub wounds: u64,
    pub healed: u64,
    pub torn: u64,
    pub full: u64,
    pub flips: u64,
    pub partitions: u64,
    pub freezes: u64,
    pub compactions: u64,
    pub raised: u64,
    /// Events received, and some kinds of them.
    pub sent: u64,
    pub expired: u64,
    pub evicted: u64,
    pub given_back: u64,
    /// Graceful stops, those of leaders, and transfers of the leadership.
    pub stops: u64,
    pub led: u64,
    pub resigned: u64,
    pub recovered: u64,
    pub chosen: u64,
    pub removed: u64,
    pub resized: u64,
    pub taken_back: u64,
    pub forgotten: u64,
    pub repeated: u64,
}

impl Counts {
    pub fn add(&mut self, run: Self) {
        self.events += run.events;
        self.ended += run.ended;
        self.elections += run.elections;
        self.answers += run.answers;
        self.most_voters = self.most_voters.max(run.most_voters);
        self.crashes += run.crashes;
        self.torn += run.torn;
        self.wounds += run.wounds;
        self.healed += run.healed;
        self.full += run.full;
        self.flips += run.flips;
        self.partitions += run.partitions;
        self.freezes += run.freezes;
        self.compactions += run.compactions;
        self.raised += run.raised;
        self.sent += run.sent;
        self.expired += run.expired;
        self.evicted += run.evicted;
        self.given_back += run.given_back;
        self.stops += run.stops;
        self.led += run.led;
        self.resigned += run.resigned;
        self.recovered += run.recovered;
        self.chosen += run.chosen;
        self.removed += run.removed;
        self.resized += run.resized;
        self.taken_back += run.taken_back;
        self.forgotten += run.forgotten;
        self.repeated += run.repeated;
    }

    pub fn check(&self) {
        let all = [self.ended, self.elections, self.answers, self.healed, self.crashes, self.torn, self.flips];
        let more = [self.partitions, self.freezes, self.compactions, self.raised, self.full, self.expired];
        let late = [self.given_back, self.stops, self.resigned, self.recovered, self.chosen, self.evicted];
        let names = [self.removed, self.resized, self.taken_back, self.forgotten, self.repeated];
        assert!(self.resigned * 3 > self.led * 2, "leaders that stop do not transfer the leadership: {self}");
        // Some hosts have no replacement, or failed just before the end.
        assert!(self.healed * 3 > self.wounds * 2, "lost voters are not replaced: {self}");
        assert!(
            all.iter().chain(&more).chain(&late).chain(&names).all(|count| *count > 10) && self.most_voters == 5,
            "too little: {self}"
        );
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { events, ended, elections, answers, most_voters, wounds, healed, .. } = self;
        let Self { crashes, torn, full, flips, partitions, freezes, compactions, raised, .. } = self;
        let Self { sent, expired, evicted, given_back, stops, led, resigned, recovered, chosen, removed, .. } = self;
        let Self { resized, taken_back, forgotten, repeated, .. } = self;
        write!(
            f,
            "{events} events, {elections} elections, {ended} sessions ended, {answers} answers, up to {most_voters} \
             voters, {healed} of {wounds} lost ones replaced; {crashes} crashes ({torn} with torn writes, {flips} with \
             flipped bits, {full} of full disks), {partitions} partitions, {freezes} freezes, {compactions} new files, \
             {raised} upgraded; {sent} events ({expired} ends of grants, {evicted} forced out), {given_back} grants \
             given back later, {stops} stops ({resigned} of {led} leaders resigned), {chosen} choices of voters, \
             {recovered} recoveries, {removed} resources deleted, {resized} resized, {taken_back} grants revoked, \
             {forgotten} hosts forgotten; {repeated} commands repeated late; no violation"
        )
    }
}

impl Watch {
    pub fn new(mutation: Option<Mutation>) -> Self {
        Self { mutation, ..Self::default() }
    }

    /// `beliefs`: sessions that processes consider valid now.
    pub fn look(
        &mut self,
        now: Time,
        at: PeerId,
        member: &Member,
        beliefs: &[(PeerId, u64, SessionId)],
    ) -> Result<(), Violation> {
        for &(peer, process, session) in beliefs {
            if *self.believed.entry(session).or_insert((peer, process)) != (peer, process) {
                return Err(Violation::Shared(peer, session));
            }
        }
        if let Some(registry) = member.registry()
            && self.applied.insert(at, registry.applied()) != Some(registry.applied())
        {
            self.look_at_state(now, at, registry)?;
        }
        match beliefs.iter().find(|(_, _, session)| self.ended.contains(session)) {
            Some(&(peer, _, session)) => Err(Violation::TwoMayUse(peer, session)),
            None if member.registry().is_some_and(|registry| registry.forgotten().is_some()) => {
                Err(Violation::Forgotten(at))
            }
            None if member.unexpected() > 0 => Err(Violation::Unexpected(at, "a message".to_owned())),
            None => match member.registry().filter(|registry| !registry.unexpected().is_empty()) {
                Some(registry) => Err(Violation::Unexpected(at, format!("{:?}", registry.unexpected()))),
                None => Ok(()),
            },
        }
    }

    fn look_at_state(&mut self, now: Time, at: PeerId, registry: &Registry) -> Result<(), Violation> {
        let (state, index) = (registry.state(), registry.applied());
        let digest = Key::of(&state.encode());
        let is_newest = self.digests.keys().next_back().is_none_or(|newest| *newest < (state.cluster(), index));
        if index > 0 && *self.digests.entry((state.cluster(), index)).or_insert(digest) != digest {
            return Err(Violation::Disagree(at, index));
        }
        if is_newest {
            self.deliveries.look(now, state)?;
            look_for_members(state)?;
            self.look_at_late_copy(state, index)?;
            self.look_for_unwritten(state)?;
        }
        for &session in self.believed.keys().filter(|session| state.is_over(**session)) {
            if state.quarantine().is_some() && !self.ended.contains(&session) {
                self.doubtful.insert(session);
            } else if self.ended.insert(session) {
                self.counts.ended += 1;
            }
        }
        self.counts.most_voters = self.counts.most_voters.max(state.conf().voters.len());
        self.counts.raised = self.counts.raised.max(u64::from(state.version() > 1));
        Ok(())
    }

    /// Slots are granted from now on, if a recovered registry opened this generation: an event of an earlier one may
    /// arrive late.
    pub fn on_opened(&self, generation: u64, beliefs: &[(PeerId, u64, SessionId)]) -> Result<(), Violation> {
        if generation < GAP {
            return Ok(());
        }
        match beliefs.iter().find(|(_, _, session)| self.doubtful.contains(session)) {
            Some(&(peer, _, session)) => Err(Violation::TwoMayUse(peer, session)),
            None => Ok(()),
        }
    }

    fn look_for_unwritten(&mut self, state: &State) -> Result<(), Violation> {
        for (id, it) in state.sessions() {
            let is_twin = |(other, its): &(SessionId, &SessionRecord)| {
                *other > *id && it.replaces.is_some() && its.replaces == it.replaces
            };
            if let Some((other, _)) = state.sessions_of(it.host).find(is_twin) {
                return Err(Violation::Unwritten(*id, other));
            }
        }
        Ok(())
    }

    /// One late copy per state, since a run has hundreds.
    fn look_at_late_copy(&mut self, state: &State, index: u64) -> Result<(), Violation> {
        for (id, it) in state.sessions().iter().filter(|(id, _)| !self.opened.contains_key(id)).collect::<Vec<_>>() {
            let SessionRecord { host, nonce, ttl, voter, incarnation, replaces } = it.clone();
            let (info, takes) = (state.members()[&host].clone(), Vec::new());
            let open = Command::Open { host, nonce, incarnation, ttl, info, voter, replaces, takes };
            self.opened.insert(*id, open);
        }
        let done: Vec<&Command> = match self.recovered {
            // The recovered cluster rejects messages of its predecessor.
            true => Vec::new(),
            false => {
                let confirmed = self.confirmed.iter().filter(|(_, it)| !matches!(it, Outcome::Refused(_)));
                confirmed.map(|it| &it.0).chain(self.opened.values()).collect()
            }
        };
        let Some(command) = (mix(index) as usize).checked_rem(done.len()).map(|at| done[at].clone()) else {
            return Ok(());
        };
        let mut late = state.clone();
        late.apply_but(0, command.clone(), |mistake| self.mutation == Some(mistake));
        self.counts.repeated += 1;
        match late == *state || may_change(&command, state, &late) {
            true => Ok(()),
            false => Err(Violation::Late(format!("{command:?}"))),
        }
    }

    pub fn on_file(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        let header = file::read(bytes).expect("a new file is intact").header;
        self.counts.compactions += 1;
        if header.file == 1 && !self.started.insert(header.voter) {
            return Err(Violation::StartedTwice(header.voter));
        }
        Ok(())
    }

    pub fn on_answer(&mut self, now: Time, by: PeerId, command: Command, outcome: Outcome) {
        self.counts.answers += 1;
        self.deliveries.on_answer(now, by, &command, &outcome, &mut self.counts);
        self.confirmed.push((command, outcome));
    }

    pub fn on_recovered(&mut self) {
        self.counts.recovered += 1;
        self.recovered = true;
    }

    pub fn on_event(
        &mut self,
        now: Time,
        at: PeerId,
        resource: &Label,
        session: SessionId,
        generation: u64,
        kind: &EventKind,
    ) -> Result<bool, Violation> {
        let is_new = self.deliveries.on_event(now, at, (resource, session, generation), kind)?;
        self.counts.sent += u64::from(is_new);
        self.counts.expired += u64::from(is_new && matches!(kind, EventKind::Expired { .. }));
        self.counts.evicted += u64::from(is_new && *kind == EventKind::Evicted);
        Ok(is_new)
    }

    /// A view contains the process's own session, unless that has ended.
    pub fn on_view(&self, at: PeerId, asked_as: Option<SessionId>, view: &View) -> Result<(), Violation> {
        let stands = |session: &SessionId| view.sessions.iter().any(|(it, host, _)| (it, *host) == (session, at));
        let is_over = |session: &SessionId| self.ended.contains(session) || self.doubtful.contains(session);
        let is_there = |session: &SessionId| stands(session) || is_over(session);
        match asked_as.filter(|session| !is_there(session)) {
            Some(session) => Err(Violation::Unseen(at, session.to_string())),
            None => Ok(()),
        }
    }

    pub fn on_grants(&self, at: PeerId, asked: Time, page: &Page) -> Result<(), Violation> {
        if self.recovered { Ok(()) } else { self.deliveries.on_grants(at, asked, page) }
    }

    /// After a period without faults.
    pub fn check_deliveries(&self, now: Time, state: &State, there: &BTreeSet<SessionId>) -> Result<(), Violation> {
        self.deliveries.check_deliveries(now, state, there)
    }

    /// After a period without faults.
    pub fn look_for_confirmed(&self, registry: &Registry) -> Result<(), Violation> {
        let state = registry.state();
        // Of a deleted resource only the floor is known.
        let has_come_to = |name: &Label, generation: u64| {
            state.resources().get(name).map_or(state.floor(), |it| it.generation()) >= generation
        };
        // A recovery may lose them.
        for (command, outcome) in self.confirmed.iter().filter(|_| !self.recovered) {
            let is_there = match (command, outcome) {
                (_, Outcome::Opened { session, .. }) => {
                    state.sessions().contains_key(session) || state.is_over(*session)
                }
                (_, Outcome::Ended { sessions, .. }) => sessions.iter().all(|session| state.is_over(*session)),
                (Command::Join { resource, .. }, Outcome::Joined { generation, .. }) => {
                    has_come_to(resource, *generation)
                }
                (Command::DropDetached { resource, fencing, .. }, Outcome::Done) => {
                    state.resources().get(resource).is_none_or(|it| !it.detached().contains_key(fencing))
                }
                (_, Outcome::Advanced(opening)) => has_come_to(&opening.resource, opening.generation),
                _ => true,
            };
            if !is_there {
                return Err(Violation::Lost(format!("{command:?}: {outcome:?}")));
            }
        }
        let newest = self.digests.keys().next_back().map_or(0, |(_, index)| *index);
        if registry.applied() < newest {
            return Err(Violation::Lost(format!("entries up to {newest}, at {}", registry.applied())));
        }
        Ok(())
    }
}

fn look_for_members(state: &State) -> Result<(), Violation> {
    let sessions = state.sessions().values().map(|it| it.host);
    let hosts = sessions.chain(state.voter_records().values().map(|it| it.host));
    match hosts.into_iter().find(|host| !state.members().contains_key(host)) {
        Some(host) => Err(Violation::NoMember(host)),
        None => Ok(()),
    }
}

/// Harmless changes: a `Join` makes a valid session a party again, which reports nothing, or creates the resource
/// again; a `Detach` renews a valid grant.
fn may_change(command: &Command, before: &State, after: &State) -> bool {
    let others = |name: &Label| {
        let of = |state: &State| state.resources().iter().filter(|it| it.0 != name).map(|it| it.1.clone()).collect();
        let (before, after): (Vec<Resource>, Vec<Resource>) = (of(before), of(after));
        before == after
    };
    let same_members = before.members() == after.members() && before.sessions() == after.sessions();
    let of = |state: &State, name: &Label| state.resources().get(name).cloned();
    match command {
        Command::Join { resource, session, .. } => {
            let has_all = |before: Resource, after: &Resource| {
                let parties = before.parties().keys().all(|party| after.parties().contains_key(party));
                parties && before.slots() == after.slots() && before.detached() == after.detached()
            };
            let joined = of(after, resource).filter(|it| it.parties().contains_key(session));
            let retained = |after: &Resource| of(before, resource).is_none_or(|before| has_all(before, after));
            same_members && others(resource) && joined.is_some_and(|after| retained(&after))
        }
        Command::Detach { resource, fencing, .. } => {
            let all = |it: &Resource| it.detached().keys().copied().collect::<Vec<_>>();
            let is_longer = |before: &Resource, after: &Resource| {
                let (one, other) = (&before.detached()[fencing], &after.detached()[fencing]);
                other.ttl >= one.ttl && (one.slot, one.host) == (other.slot, other.host)
            };
            let same = |before: Resource, after: Resource| {
                (before.generation(), before.parties(), all(&before))
                    == (after.generation(), after.parties(), all(&after))
                    && before.detached().contains_key(fencing)
                    && is_longer(&before, &after)
            };
            same_members
                && others(resource)
                && of(before, resource).zip(of(after, resource)).is_some_and(|(before, after)| same(before, after))
        }
        // It was removed with its last session, or forgotten: the copy opens a session without a process, which
        // expires.
        Command::Open { host, incarnation, .. } => {
            // An earlier session at present is such a copy, too.
            let mut sessions = before.sessions_of(*host).map(|(_, it)| it.incarnation).peekable();
            let are_copies = sessions.peek().is_some() && sessions.all(|it| it < *incarnation);
            !before.members().contains_key(host) || are_copies
        }
        _ => false,
    }
}

pub fn stamp(now: Time) -> String {
    format!("{:>10.4}", now.as_secs_f64())
}
