//! The election of the coordinator, its lease, and the recovery of a replica's memory (§4.1).
//!
//! ```text
//!   R₁ (candidate)   R₀ … R_n−1
//!   │ IAMCOORDINATOR    │
//!   ├──────────────────►│ without another valid promise: follows R₁ for a term
//!   │   UPDATE(memory)  │
//!   │◄──────────────────┤ with the m-th vote, its own included, R₁ is coordinator
//!   │              PING │
//!   │◄──────────────────┤ names the last OK: the promise counts from there
//!   │ OK                │
//!   ├──────────────────►│ follows R₁ for another term
//! ```

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use peerlock_types::{Span, Time};

use super::message::{Message, Timer, UpdateKind};
use super::replica::Replica;
use super::{Common, Config, Coordinator};
use crate::Cx;
use crate::quorum::Voters;
use crate::replicas::by_any_clock;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Election {
    /// *Coordinator*: the replica that this one follows; a candidate follows itself. "Initially, the first created
    /// replica will be the coordinator" (§4.1).
    coordinator: u32,
    /// *T_coor*.
    pub epoch: u64,
    pub max_epoch: u64,
    promised: Time,
    /// `sent` of the message that the promise answers.
    last_received: Time,
    timeout: Time,
    state: State,
    was_candidate: bool,
    awake: bool,
    /// Lamport's clock: the source of epochs in print.
    pub clock: u64,
    /// In print: messages to be forwarded when OK arrives.
    deferred: Vec<Message>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
enum State {
    /// This replica and `blanks` have no memory.
    Blank { since: Time, blanks: Voters },
    #[default]
    Follower,
    /// `sent` of the message on which each replica has promised last.
    Candidate { votes: Vec<Option<Time>> },
    /// Starts no chain before `grace`.
    Leading { votes: Vec<Option<Time>>, grace: Time },
}

impl Election {
    /// Creates the state after a loss of memory. In print the replica takes part at once.
    pub fn blank(now: Time, config: &Config) -> Self {
        let blank = State::Blank { since: now, blanks: Voters::NONE };
        Self {
            state: if config.majority_lease { blank } else { State::Follower },
            was_candidate: true,
            ..Self::default()
        }
    }

    pub fn grace(&self) -> Option<Time> {
        match self.state {
            State::Leading { grace, .. } => Some(grace),
            _ => None,
        }
    }

    pub fn is_blank(&self) -> bool {
        matches!(self.state, State::Blank { .. })
    }
}

impl fmt::Display for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.state {
            State::Blank { .. } => f.write_str("without memory"),
            State::Follower => write!(f, "follows R{}, epoch {}", self.coordinator, self.epoch),
            State::Candidate { .. } => write!(f, "candidate, epoch {}", self.epoch),
            State::Leading { .. } => write!(f, "coordinator, epoch {}", self.epoch),
        }
    }
}

/// Returns the time until which m promises are valid. The own one does not expire.
fn lease_end(votes: &[Option<Time>], common: &Common) -> Option<Time> {
    let mut ends: Vec<Time> = votes.iter().flatten().map(|&sent| sent + by_any_clock(common.config.term)).collect();
    ends.sort_unstable();
    match common.sender.replicas.quorum().votes() as usize - 1 {
        0 => Some(Time::from_nanos(u64::MAX)),
        others => ends.len().checked_sub(others).map(|at| ends[at]),
    }
}

impl Replica {
    pub fn is_coordinator(&self) -> bool {
        self.election.coordinator == self.index
    }

    pub fn holds_lease(&mut self, common: &Common, now: Time) -> bool {
        if !common.config.majority_lease {
            return true;
        }
        match &self.election.state {
            State::Leading { votes, .. } if lease_end(votes, common).is_some_and(|end| end > now) => true,
            State::Leading { .. } => {
                self.election.state = State::Follower;
                false
            }
            _ => false,
        }
    }

    pub fn start_timer(&mut self, common: &Common, cx: &mut Cx<'_, Coordinator>) {
        if common.config.majority_lease && !self.election.awake {
            self.election.awake = true;
            self.reset_timeout(common, cx);
            cx.set_timer(Timer::Ping(self.index), common.config.ping);
        }
    }

    /// Waits a random time longer than a term, lest all become candidates at once.
    fn reset_timeout(&mut self, common: &Common, cx: &mut Cx<'_, Coordinator>) {
        let extra = cx.rng().between(Span::ZERO, common.config.ping);
        self.election.timeout = cx.now() + common.config.term + extra;
    }

    pub fn on_ping_timer(&mut self, common: &mut Common, cx: &mut Cx<'_, Coordinator>) {
        if !common.config.majority_lease {
            return self.elect_in_print(common, cx);
        }
        let now = cx.now();
        cx.set_timer(Timer::Ping(self.index), common.config.ping);
        self.holds_lease(common, now);
        match &self.election.state {
            State::Blank { since, .. } => {
                if now.since(*since) >= common.config.term && !self.restarts(common, cx) {
                    self.ask_for_memory(common, cx);
                }
            }
            State::Leading { votes, .. } => {
                let is_late = |sent: &Option<Time>| sent.is_none_or(|sent| now.since(sent) > common.config.ping * 2);
                let late: Vec<u32> = (0..).zip(votes).filter(|(_, sent)| is_late(sent)).map(|(at, _)| at).collect();
                self.announce(late.into_iter(), common, cx);
            }
            State::Candidate { .. } if self.election.promised <= now => {
                self.election.state = State::Follower;
                self.reset_timeout(common, cx);
            }
            State::Candidate { .. } => self.announce(self.others(common), common, cx),
            State::Follower if now >= self.election.timeout => self.become_candidate(common, cx),
            State::Follower if self.is_coordinator() => {}
            State::Follower => {
                let (to, from, epoch, last_received) =
                    (self.election.coordinator, self.index, self.election.epoch, self.election.last_received);
                common.send(to, Message::Ping { to, from, epoch, last_received }, cx);
            }
        }
    }

    fn announce(&mut self, to: impl Iterator<Item = u32>, common: &mut Common, cx: &mut Cx<'_, Coordinator>) {
        let (from, epoch, sent) = (self.index, self.election.epoch, cx.now());
        for to in to.filter(|&to| to != from) {
            common.send(to, Message::IamCoordinator { to, from, epoch, sent }, cx);
        }
    }

    /// Figure 1, *Election()*.
    pub fn become_candidate(&mut self, common: &mut Common, cx: &mut Cx<'_, Coordinator>) {
        let (now, election) = (cx.now(), &mut self.election);
        let is_early = election.was_candidate && now < election.timeout;
        if election.state != State::Follower || election.promised > now || is_early {
            return;
        }
        let replicas = common.sender.replicas.quorum().replicas();
        if election.was_candidate || self.index != 0 || election.max_epoch > 0 {
            // The lowest epoch of this replica above all known.
            let (all, mine) = (u64::from(replicas), u64::from(self.index));
            let round = (election.max_epoch + 1).saturating_sub(mine).div_ceil(all);
            election.max_epoch = round * all + mine;
        }
        (election.was_candidate, election.coordinator, election.epoch) = (true, self.index, election.max_epoch);
        election.promised = cx.now() + common.config.term;
        election.state = State::Candidate { votes: vec![None; replicas as usize] };
        self.announce(self.others(common), common, cx);
        self.count_votes(common, cx);
    }

    pub fn on_iam_coordinator(
        &mut self,
        from: u32,
        epoch: u64,
        sent: Time,
        common: &mut Common,
        cx: &mut Cx<'_, Coordinator>,
    ) {
        let (now, election) = (cx.now(), &mut self.election);
        election.clock = election.clock.max(epoch);
        if !common.config.majority_lease {
            if epoch > election.epoch {
                (election.coordinator, election.epoch) = (from, epoch);
            }
            return;
        }
        // A candidate's promise to itself does not bind it against a higher epoch.
        let yields = matches!(election.state, State::Candidate { .. }) && epoch > election.epoch;
        let is_free = election.promised <= now || election.coordinator == from || yields;
        if election.is_blank() || !is_free {
            return;
        }
        let kind = if epoch >= election.max_epoch { UpdateKind::Vote } else { UpdateKind::Refusal };
        if self.holds_lease(common, now) {
            return; // It leads: the promises of the others are valid.
        }
        if kind == UpdateKind::Vote {
            self.election.state = State::Follower;
            self.election.max_epoch = epoch;
            self.follow(from, epoch, sent, common, cx);
        }
        let memory = self.memory();
        common.send(from, Message::Update { to: from, from: self.index, kind, sent, epoch, memory }, cx);
    }

    fn follow(&mut self, target: u32, epoch: u64, sent: Time, common: &Common, cx: &mut Cx<'_, Coordinator>) {
        let is_new = (self.election.coordinator, self.election.epoch) != (target, epoch);
        (self.election.coordinator, self.election.epoch) = (target, epoch);
        self.election.last_received = if is_new { sent } else { self.election.last_received.max(sent) };
        self.election.promised = cx.now() + common.config.term;
        self.reset_timeout(common, cx);
    }

    pub fn on_update(&mut self, message: Message, common: &mut Common, cx: &mut Cx<'_, Coordinator>) {
        let Message::Update { from, kind, sent, epoch, memory, .. } = message else { return };
        if !common.config.majority_lease {
            self.merge_memory(memory, cx.now());
            (self.election.coordinator, self.election.epoch) = (from, epoch);
            return;
        }
        self.holds_lease(common, cx.now()); // An expired lease cannot be renewed.
        match (&mut self.election.state, kind) {
            (State::Candidate { votes } | State::Leading { votes, .. }, UpdateKind::Vote)
                if epoch == self.election.epoch =>
            {
                let vote = &mut votes[from as usize];
                *vote = (*vote).max(Some(sent));
                if matches!(self.election.state, State::Candidate { .. }) {
                    self.merge_memory(memory, cx.now());
                    self.count_votes(common, cx);
                }
            }
            (State::Candidate { .. }, UpdateKind::Refusal) => {
                self.election.max_epoch = self.election.max_epoch.max(memory.max_epoch);
                self.election.state = State::Follower; // Its promise to itself expires first.
            }
            (State::Blank { since, .. }, UpdateKind::Recovery) if sent.since(*since) >= common.config.term => {
                self.merge_memory(memory, cx.now());
                self.election.max_epoch = self.election.max_epoch.max(epoch);
                (self.election.coordinator, self.election.epoch) = (from, epoch);
                self.election.state = State::Follower;
                self.reset_timeout(common, cx);
            }
            (State::Blank { since, blanks }, UpdateKind::Blank) if sent.since(*since) >= common.config.term => {
                blanks.insert(from);
                self.election.max_epoch = self.election.max_epoch.max(memory.max_epoch);
                self.restarts(common, cx);
            }
            _ => {}
        }
    }

    /// Votes again without memory if too many replicas have none for a coordinator to exist. Called a term after the
    /// reset, when the forgotten promises have expired.
    fn restarts(&mut self, common: &Common, cx: &mut Cx<'_, Coordinator>) -> bool {
        let State::Blank { blanks, .. } = &self.election.state else { return false };
        let (quorum, blank) = (common.sender.replicas.quorum(), blanks.len() + 1);
        let is_so = blank > quorum.replicas() - quorum.votes();
        if is_so {
            self.election.state = State::Follower;
            self.reset_timeout(common, cx);
        }
        is_so
    }

    fn count_votes(&mut self, common: &mut Common, cx: &mut Cx<'_, Coordinator>) {
        let (now, State::Candidate { votes }) = (cx.now(), &mut self.election.state) else { return };
        if self.election.promised > now && lease_end(votes, common).is_some_and(|end| end > now) {
            // A lease later no client of an earlier coordinator holds. Epoch 0 has no earlier one.
            let grace = if self.election.epoch == 0 { Time::ZERO } else { now + common.config.lease };
            self.election.state = State::Leading { votes: core::mem::take(votes), grace };
            self.start_leading(common, cx);
        }
    }

    pub fn on_ping(
        &mut self,
        from: u32,
        epoch: u64,
        last_received: Time,
        common: &mut Common,
        cx: &mut Cx<'_, Coordinator>,
    ) {
        if common.config.majority_lease {
            let is_mine = self.holds_lease(common, cx.now()) && epoch == self.election.epoch;
            let State::Leading { votes, .. } = &mut self.election.state else { return };
            if !is_mine {
                return;
            }
            let vote = &mut votes[from as usize];
            *vote = (*vote).max(Some(last_received));
        }
        let (me, epoch, sent, front) = (self.index, self.election.epoch, cx.now(), self.front());
        common.send(from, Message::Ok { to: from, from: me, epoch, sent, front }, cx);
    }

    pub fn on_ok(&mut self, message: Message, common: &mut Common, cx: &mut Cx<'_, Coordinator>) {
        let Message::Ok { from, epoch, sent, front, .. } = message else { return };
        if !common.config.majority_lease {
            cx.cancel_timer(Timer::Ping(self.index));
            let deferred = core::mem::take(&mut self.election.deferred);
            return deferred.into_iter().for_each(|message| self.forward(message, common, cx));
        }
        let is_free = self.election.promised <= cx.now() || self.election.coordinator == from;
        if self.election.state == State::Follower && is_free && epoch >= self.election.max_epoch {
            self.election.max_epoch = epoch;
            self.follow(from, epoch, sent, common, cx);
            self.drop_before(front);
        }
    }

    /// §4.1, *Recovering the memory*. *Departure:* after a term, when forgotten promises and votes in flight have
    /// expired.
    pub fn start_recovery(&mut self, common: &mut Common, cx: &mut Cx<'_, Coordinator>) {
        if common.config.majority_lease {
            self.start_timer(common, cx);
        } else {
            self.ask_for_memory(common, cx);
        }
    }

    fn ask_for_memory(&mut self, common: &mut Common, cx: &mut Cx<'_, Coordinator>) {
        for to in self.others(common) {
            common.send(to, Message::Recover { to, from: self.index, sent: cx.now() }, cx);
        }
    }

    pub fn on_recover(&mut self, message: Message, common: &mut Common, cx: &mut Cx<'_, Coordinator>) {
        let Message::Recover { from, sent, .. } = message else { return };
        if !common.config.majority_lease {
            // "If (received(msg)) break".
            if self.recoveries.contains(&(from, sent)) {
                return;
            }
            self.recoveries.push((from, sent));
            if from == self.election.coordinator {
                self.elect_in_print(common, cx);
            }
            return if self.is_coordinator() {
                self.send_memory(from, sent, UpdateKind::Recovery, common, cx);
            } else {
                self.ping_then_forward(message, common, cx);
            };
        }
        if self.election.is_blank() {
            self.send_memory(from, sent, UpdateKind::Blank, common, cx);
        } else if self.holds_lease(common, cx.now()) {
            self.send_memory(from, sent, UpdateKind::Recovery, common, cx);
        }
    }

    fn send_memory(&self, to: u32, sent: Time, kind: UpdateKind, common: &mut Common, cx: &mut Cx<'_, Coordinator>) {
        let (epoch, memory) = (self.election.epoch, self.memory());
        common.send(to, Message::Update { to, from: self.index, kind, sent, epoch, memory }, cx);
    }

    /// *active(Coordinator)*, in print.
    pub fn ping_then_forward(&mut self, message: Message, common: &mut Common, cx: &mut Cx<'_, Coordinator>) {
        let (to, from, epoch) = (self.election.coordinator, self.index, self.election.epoch);
        common.send(to, Message::Ping { to, from, epoch, last_received: Time::ZERO }, cx);
        self.election.deferred.push(message);
        cx.set_timer(Timer::Ping(self.index), common.config.ping);
    }

    fn elect_in_print(&mut self, common: &mut Common, cx: &mut Cx<'_, Coordinator>) {
        self.election.clock += 1;
        (self.election.coordinator, self.election.epoch) = (self.index, self.election.clock);
        self.announce(self.others(common), common, cx);
        let deferred = core::mem::take(&mut self.election.deferred);
        deferred.into_iter().for_each(|message| self.forward(message, common, cx));
    }

    pub fn forward(&mut self, message: Message, common: &mut Common, cx: &mut Cx<'_, Coordinator>) {
        let coordinator = self.election.coordinator;
        match message {
            Message::Request { .. } if self.is_coordinator() => self.answer(message, common, cx),
            Message::Recover { from, sent, .. } if self.is_coordinator() => {
                self.send_memory(from, sent, UpdateKind::Recovery, common, cx);
            }
            Message::Request { client, stamp, place, holds, is_holding, newest, sent, .. } => {
                let (to, alone) = (coordinator, false);
                common.send(
                    to,
                    Message::Request { to, client, stamp, place, holds, is_holding, newest, alone, sent },
                    cx,
                );
            }
            Message::Recover { from, sent, .. } => {
                common.send(coordinator, Message::Recover { to: coordinator, from, sent }, cx);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use peerlock_types::{PeerId, Rng};

    use super::super::message::Place;
    use super::*;
    use crate::replicas::Sender;
    use crate::{Quorum, Replicas};

    #[test]
    fn ok_of_earlier_epoch_is_not_followed() {
        let config = Config::REPAIRED;
        let me = PeerId::new(2);
        let mut common = Common { config, sender: Sender::new(me, &Replicas::first(Quorum::new(3, 2))) };
        let (mut rng, now) = (Rng::new(1), Time::ZERO + Span::from_secs(100));
        for (from, epoch, follows) in [(1, 4, (1, 7)), (0, 3, (1, 7)), (1, 7, (1, 7)), (0, 9, (0, 9))] {
            let mut effects = Vec::new();
            let mut cx = Cx::new(me, now, &mut rng, &mut effects);
            let election = Election { coordinator: 1, epoch: 7, max_epoch: 7, ..Election::default() };
            let mut replica = Replica::new(2, election);
            let front = Place { epoch: 0, count: 1 };
            replica.on_ok(Message::Ok { to: 2, from, epoch, sent: now, front }, &mut common, &mut cx);
            assert_eq!((replica.election.coordinator, replica.election.epoch), follows, "R{from} in epoch {epoch}");
            let is_received = (from, epoch) == follows;
            assert_eq!(replica.election.promised > now, is_received, "R{from} in epoch {epoch}");
        }
    }
}
