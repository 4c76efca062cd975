//! What must hold at every moment. Watches, and never steers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use peerlock_base::{Key, PeerId, Time};
use peerlock_register::{Command, Member, Outcome, Register, SessionId, VoterId, file};

/// What was promised and not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A peer uses a session that the register has ended: somebody else may have what it uses.
    TwoMayUse(PeerId, SessionId),
    /// Two processes believe in the same session.
    Shared(PeerId, SessionId),
    /// Two voters have applied different things.
    Disagree(PeerId, u64),
    /// Something that was confirmed is not there.
    Lost(String),
    /// A voter's file was begun a second time: it may have forgotten a vote.
    BegunTwice(VoterId),
    /// A flipped bit was not noticed.
    Unnoticed(PeerId),
    /// A file that only a loss of power had befallen was refused.
    Refused(PeerId, String),
    /// Nobody troubles anybody, and this peer is still without a session.
    NoSession(PeerId),
    /// A letter that made no sense.
    Strange(PeerId, String),
}

/// What has been seen so far.
#[derive(Default)]
pub struct Watch {
    /// Every session that a peer ever believed in, and which process of it.
    believed: BTreeMap<SessionId, (PeerId, u64)>,
    /// Of these, those that any voter has ever seen ended.
    ended: BTreeSet<SessionId>,
    /// What the state is after each entry.
    digests: BTreeMap<u64, Key>,
    /// The last entry that each voter was seen at.
    applied: BTreeMap<PeerId, u64>,
    /// Voters whose first file was begun.
    begun: BTreeSet<VoterId>,
    /// What peers were told.
    confirmed: Vec<(Command, Outcome)>,
    pub counts: Counts,
}

/// How much has happened, to see that a run says something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub events: u64,
    pub ended: u64,
    pub elections: u64,
    pub answers: u64,
    pub most_voters: usize,
    pub crashes: u64,
    /// Voters that lost their file or host, and those of them that were replaced by the end.
    pub wounds: u64,
    pub healed: u64,
    pub torn: u64,
    pub full: u64,
    pub flips: u64,
    pub partitions: u64,
    pub freezes: u64,
    pub compactions: u64,
    /// Clusters that have gone on to the next version.
    pub raised: u64,
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
    }

    /// Many runs in which nothing happens would say nothing.
    pub fn check(&self) {
        let all = [self.ended, self.elections, self.answers, self.healed, self.crashes, self.torn, self.flips];
        let more = [self.partitions, self.freezes, self.compactions, self.raised, self.full];
        // Not all can be: some hosts are gone with nobody to take their place, or went just before the end.
        assert!(self.healed * 3 > self.wounds * 2, "lost voters are not replaced: {self}");
        assert!(all.iter().chain(&more).all(|count| *count > 10) && self.most_voters == 5, "too little: {self}");
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { events, ended, elections, answers, most_voters, wounds, healed, .. } = self;
        let Self { crashes, torn, full, flips, partitions, freezes, compactions, raised, .. } = self;
        write!(
            f,
            "{events} events, {elections} elections, {ended} sessions ended, {answers} answers, up to {most_voters} \
             voters, {healed} of {wounds} lost ones replaced; {crashes} crashes ({torn} with torn writes, {flips} with flipped bits, {full} of full disks), \
             {partitions} partitions, {freezes} freezes, {compactions} new files, {raised} upgraded; no violation"
        )
    }
}

impl Watch {
    /// A peer's part has changed; `beliefs` are all sessions that peers believe in at this moment, each by its own
    /// clock, and which process of the peer does.
    pub fn look(&mut self, at: PeerId, member: &Member, beliefs: &[(PeerId, u64, SessionId)]) -> Result<(), Violation> {
        for &(peer, process, session) in beliefs {
            if *self.believed.entry(session).or_insert((peer, process)) != (peer, process) {
                return Err(Violation::Shared(peer, session));
            }
        }
        if let Some(register) = member.register()
            && self.applied.insert(at, register.applied()) != Some(register.applied())
        {
            self.look_at_state(at, register)?;
        }
        match beliefs.iter().find(|(_, _, session)| self.ended.contains(session)) {
            Some(&(peer, _, session)) => Err(Violation::TwoMayUse(peer, session)),
            None if member.strange() > 0 => Err(Violation::Strange(at, "a letter".to_owned())),
            None => match member.register().filter(|register| !register.strange().is_empty()) {
                Some(register) => Err(Violation::Strange(at, format!("{:?}", register.strange()))),
                None => Ok(()),
            },
        }
    }

    fn look_at_state(&mut self, at: PeerId, register: &Register) -> Result<(), Violation> {
        let (state, index) = (register.state(), register.applied());
        let digest = Key::of(&state.encode());
        if index > 0 && *self.digests.entry(index).or_insert(digest) != digest {
            return Err(Violation::Disagree(at, index));
        }
        for &session in self.believed.keys() {
            if state.is_over(session) && self.ended.insert(session) {
                self.counts.ended += 1;
            }
        }
        self.counts.most_voters = self.counts.most_voters.max(state.conf().voters.len());
        self.counts.raised = self.counts.raised.max(u64::from(state.version() > 1));
        Ok(())
    }

    /// A file takes the place of another, or is the first.
    pub fn on_file(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        let header = file::read(bytes).expect("a file that was just made is whole").header;
        self.counts.compactions += 1;
        if header.file == 1 && !self.begun.insert(header.voter) {
            return Err(Violation::BegunTwice(header.voter));
        }
        Ok(())
    }

    /// A peer was told that this is so.
    pub fn on_answer(&mut self, command: Command, outcome: Outcome) {
        self.counts.answers += 1;
        self.confirmed.push((command, outcome));
    }

    /// All is quiet: what was confirmed must be in every voter's state.
    pub fn look_for_confirmed(&self, register: &Register) -> Result<(), Violation> {
        let state = register.state();
        for (command, outcome) in &self.confirmed {
            let is_there = match (command, outcome) {
                (_, Outcome::Opened { session, .. }) => {
                    state.sessions().contains_key(session) || state.is_over(*session)
                }
                (_, Outcome::Ended { sessions, .. }) => sessions.iter().all(|session| state.is_over(*session)),
                (Command::Join { resource, .. }, Outcome::Joined { generation, .. }) => {
                    state.resources().get(resource).is_some_and(|it| it.generation() >= *generation)
                }
                (_, Outcome::Advanced(opening)) => {
                    state.resources().get(&opening.resource).is_some_and(|it| it.generation() >= opening.generation)
                }
                _ => true,
            };
            if !is_there {
                return Err(Violation::Lost(format!("{command:?}: {outcome:?}")));
            }
        }
        let newest = self.digests.keys().next_back().copied().unwrap_or(0);
        if register.applied() < newest {
            return Err(Violation::Lost(format!("entries up to {newest}, at {}", register.applied())));
        }
        Ok(())
    }
}

/// A moment for a trace.
pub fn stamp(now: Time) -> String {
    format!("{:>10.4}", now.as_secs_f64())
}
