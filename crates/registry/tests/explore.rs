//! Explores one session under changing leaders, in every order of events: the real `SessionClient`, `Leases` and
//! `State`, and an abstract log.
//!
//! Assumptions about the engine: the majority is in one term at any time. A round is confirmed by a majority that is in
//! the leader's term after the round was started. An entry takes effect while the majority is in its term, or later if
//! the next leader has it. A new leader learns of a time not before the start of the last confirmed round. A former
//! leader may learn late that it was replaced. Messages arrive late or never.

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, VecDeque};
use std::hash::{Hash, Hasher};

use peerlock_registry::leases::Leases;
use peerlock_registry::{
    ClusterId, Command, Incarnation, Info, Label, Mutation, SessionClient, SessionId, SessionRequest, State, Ttl,
    Versions,
};
use peerlock_types::{PeerId, Rng, Span, Time};

const S: SessionId = SessionId::new(1);
/// A leader may have existed before.
const BEGIN: u64 = 100;
const SECONDS: u64 = 5;
/// Older renewals, rounds and answers are lost.
const UNDER_WAY: usize = 1;

#[derive(Clone, Debug)]
struct Round {
    started: u64,
    renewals: Vec<u64>,
    confirmed: bool,
}

#[derive(Clone, Debug)]
struct Leader {
    term: u64,
    leases: Leases,
    waiting: Vec<u64>,
    rounds: Vec<Round>,
    ends: Vec<Command>,
    knows_end: bool,
    lags: bool,
}

#[derive(Clone, Debug)]
struct Model {
    mutation: Option<Mutation>,
    terms: u64,
    now: u64,
    client: SessionClient,
    state: State,
    leaders: Vec<Leader>,
    renewals: Vec<u64>,
    yeses: Vec<u64>,
    leaves: bool,
    /// With `Mutation::OldTermEnds`.
    retried: Vec<Command>,
    /// The start of the last confirmed round.
    received: u64,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Tick,
    Ask(usize, usize),
    Begin(usize),
    Confirm(usize, usize),
    Receive(usize, usize),
    Apply,
    Yes(usize),
    Commit,
    /// With or without the predecessor's last entries.
    Elect(bool),
    Learn(usize),
    Leave,
}

impl Model {
    fn new(mutation: Option<Mutation>, terms: u64) -> Self {
        let ttl = Ttl::from_millis(3000).expect("three seconds");
        let info = Info {
            name: Label::new("h").expect("a short name"),
            addresses: Vec::new(),
            versions: Versions::OURS,
            keeps: true,
        };
        let host = PeerId::new(1);
        let mut state = State::found(ClusterId::new(1), host, info.clone());
        let mut client = SessionClient::new(ttl, None, Rng::new(1)).mutated(mutation);
        let now = time(BEGIN);
        let Some(SessionRequest::Open { nonce, replaces, .. }) = client.wake(now) else { panic!("{client:?}") };
        let incarnation = Incarnation::default();
        let takes = Vec::new();
        state.apply(1, Command::Open { host, nonce, incarnation, ttl, info, voter: None, replaces, takes });
        client.on_opened(nonce, S, now);
        let mut model = Self {
            mutation,
            terms,
            now: BEGIN,
            client,
            state,
            leaders: Vec::new(),
            renewals: Vec::new(),
            yeses: Vec::new(),
            leaves: false,
            retried: Vec::new(),
            received: BEGIN,
        };
        model.elect(false);
        model.leaders[0].leases.on_opened(S, now);
        model.wake();
        model
    }

    fn term(&self) -> u64 {
        self.leaders.last().map_or(0, |leader| leader.term)
    }

    fn steps(&self) -> Vec<Step> {
        let mut steps = vec![];
        if self.now < BEGIN + SECONDS {
            steps.push(Step::Tick);
        }
        if self.term() < self.terms {
            steps.extend([Step::Elect(false), Step::Elect(true)]);
        }
        let last = self.leaders.len() - 1;
        for (at, leader) in self.leaders.iter().enumerate() {
            steps.extend((0..self.renewals.len()).map(|renewal| Step::Ask(renewal, at)));
            if !leader.waiting.is_empty() {
                steps.push(Step::Begin(at));
            }
            for (number, round) in leader.rounds.iter().enumerate() {
                let may_count = !leader.lags || self.mutation == Some(Mutation::YesBeforeApplied);
                if round.confirmed && may_count {
                    steps.push(Step::Receive(at, number));
                } else if at == last && !round.confirmed {
                    steps.push(Step::Confirm(at, number));
                }
            }
            // A leader that steps down can do nothing else.
            if at < last && self.mutation == Some(Mutation::OldTermEnds) {
                steps.push(Step::Learn(at));
            }
        }
        if self.leaders[last].lags {
            steps.push(Step::Apply);
        }
        if !self.leaders[last].ends.is_empty() {
            steps.push(Step::Commit);
        }
        steps.extend((0..self.yeses.len()).map(Step::Yes));
        if self.leaves {
            steps.push(Step::Leave);
        }
        steps
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Tick => {
                self.now += 1;
                (0..self.leaders.len()).for_each(|at| self.decide(at));
                self.wake();
            }
            Step::Ask(renewal, at) => {
                let renewal = self.renewals.remove(renewal);
                self.leaders[at].waiting.push(renewal);
                if self.mutation == Some(Mutation::YesWithoutRound) {
                    let asked = std::mem::take(&mut self.leaders[at].waiting);
                    self.confirm_renewals(at, asked);
                }
            }
            Step::Begin(at) => {
                let leader = &mut self.leaders[at];
                let renewals = std::mem::take(&mut leader.waiting);
                leader.rounds.push(Round { started: self.now, renewals, confirmed: false });
                retain_newest(&mut leader.rounds);
            }
            Step::Confirm(at, round) => {
                let round = &mut self.leaders[at].rounds[round];
                round.confirmed = true;
                self.received = self.received.max(round.started);
            }
            Step::Receive(at, round) => {
                let leader = &mut self.leaders[at];
                let mut asked = leader.rounds.remove(round).renewals;
                if self.mutation == Some(Mutation::RoundBeforeRequest) {
                    asked.append(&mut leader.waiting);
                }
                self.confirm_renewals(at, asked);
            }
            Step::Yes(yes) => {
                let renewal = self.yeses.remove(yes);
                self.client.on_yes(S, renewal, time(self.now));
            }
            Step::Commit => self.commit(),
            Step::Elect(inherits) => {
                if inherits {
                    // Entries in its log are committed first, with the previous term.
                    self.commit();
                }
                self.elect(true);
                if let Some(leader) = self.leaders.last_mut().filter(|_| inherits) {
                    (leader.lags, leader.knows_end) = (true, false);
                }
            }
            Step::Apply => self.notify_leader(),
            Step::Learn(at) => {
                let leader = self.leaders.remove(at);
                if self.mutation == Some(Mutation::OldTermEnds) {
                    self.retried.extend(leader.ends);
                }
            }
            Step::Leave => {
                self.leaves = false;
                self.state.apply(self.term(), Command::Leave { session: S });
                self.notify_leader();
            }
        }
    }

    fn decide(&mut self, at: usize) {
        let sessions = self.state.sessions().iter().map(|(id, session)| (*id, session.ttl.span()));
        let leader = &mut self.leaders[at];
        let sessions = leader.leases.due(time(self.now), sessions);
        if !sessions.is_empty() {
            leader.ends.push(Command::End { sessions, term: leader.term });
        }
    }

    fn wake(&mut self) {
        match self.client.wake(time(self.now)) {
            Some(SessionRequest::Renew { session: S, renewal }) => {
                self.renewals.push(renewal);
                retain_newest(&mut self.renewals);
            }
            Some(SessionRequest::Open { replaces: Some(S), .. }) => self.leaves = true,
            Some(_) | None => {}
        }
    }

    fn confirm_renewals(&mut self, at: usize, renewals: Vec<u64>) {
        let leader = &mut self.leaders[at];
        for renewal in renewals {
            if !leader.knows_end && leader.leases.confirm(S, time(self.now)) {
                self.yeses.push(renewal);
                retain_newest(&mut self.yeses);
            }
        }
    }

    fn commit(&mut self) {
        let term = self.term();
        let ends = self.leaders.last_mut().map(|leader| std::mem::take(&mut leader.ends)).unwrap_or_default();
        for end in ends {
            let entry = match &end {
                Command::End { term, .. } if self.mutation == Some(Mutation::OldTermEnds) => *term,
                _ => term,
            };
            self.state.apply(entry, end);
        }
        self.notify_leader();
    }

    fn notify_leader(&mut self) {
        let is_over = self.state.is_over(S);
        if let Some(leader) = self.leaders.last_mut() {
            (leader.lags, leader.knows_end) = (false, is_over);
        }
    }

    fn elect(&mut self, keeps_clock: bool) {
        let term = self.term() + 1;
        let since = match self.mutation {
            Some(Mutation::EndsAtOnce) if keeps_clock => Time::ZERO,
            Some(Mutation::ReceivesAlone) => time(BEGIN),
            _ => time(self.received),
        };
        let ends = std::mem::take(&mut self.retried);
        let (leases, knows_end) = (Leases::new(since, Span::ZERO), self.state.is_over(S));
        self.leaders.push(Leader {
            term,
            leases,
            waiting: Vec::new(),
            rounds: Vec::new(),
            ends,
            knows_end,
            lags: false,
        });
    }

    fn is_done(&self) -> bool {
        self.client.session() != Some(S) && self.mutation != Some(Mutation::NoLatch)
    }

    fn is_broken(&self) -> bool {
        self.state.is_over(S) && self.client.stands(time(self.now)) == Some(S)
    }

    fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        // Only a later election reads it.
        let received = (self.term() < self.terms).then_some(self.received);
        (self.now, received, self.state.is_over(S), self.leaves, &self.renewals, &self.yeses).hash(&mut hasher);
        self.client.relevant_state().hash(&mut hasher);
        format!("{:?} {:?}", self.leaders, self.retried).hash(&mut hasher);
        hasher.finish()
    }
}

fn time(seconds: u64) -> Time {
    Time::ZERO + Span::from_secs(seconds)
}

fn retain_newest<T>(things: &mut Vec<T>) {
    if things.len() > UNDER_WAY {
        things.remove(0);
    }
}

/// Returns the number of reachable states, or a shortest path to a violation.
fn explore(mutation: Option<Mutation>, terms: u64) -> Result<usize, Vec<Step>> {
    let start = Model::new(mutation, terms);
    let mut from: HashMap<u64, Option<(u64, Step)>> = HashMap::from([(start.fingerprint(), None)]);
    let mut queue = VecDeque::from([start]);
    while let Some(model) = queue.pop_front() {
        let here = model.fingerprint();
        for step in model.steps() {
            let mut next = model.clone();
            next.take(step);
            let there = next.fingerprint();
            if from.contains_key(&there) {
                continue;
            }
            from.insert(there, Some((here, step)));
            if next.is_broken() {
                let path_back = std::iter::successors(from[&there], |(before, _)| from[before]);
                let mut path: Vec<Step> = path_back.map(|(_, step)| step).collect();
                path.reverse();
                return Err(path);
            }
            if !next.is_done() {
                queue.push_back(next);
            }
        }
        assert!(from.len() < 8_000_000, "more states than expected");
    }
    Ok(from.len())
}

#[test]
fn ended_session_is_unused_in_any_order_of_events() {
    match explore(None, 2) {
        Ok(states) => {
            println!("{states} states");
            assert!(states > 10_000, "only {states} states");
        }
        Err(path) => panic!("{path:?}"),
    }
}

#[test]
fn every_mutation_is_detected_by_exploration() {
    for (mutation, terms) in [
        (Mutation::YesWithoutRound, 2),
        (Mutation::RoundBeforeRequest, 2),
        (Mutation::YesBeforeApplied, 2),
        (Mutation::EndsAtOnce, 2),
        (Mutation::ReceivesAlone, 2),
        (Mutation::OldTermEnds, 3),
        (Mutation::CountsFromAnswer, 1),
        (Mutation::NoLatch, 1),
    ] {
        match explore(Some(mutation), terms) {
            Ok(states) => panic!("{mutation:?} was not found in {states} states"),
            Err(path) => println!("{mutation:?}, {} steps: {path:?}", path.len()),
        }
    }
}
