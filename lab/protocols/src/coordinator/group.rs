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

use super::message::{Message, Telling, Timer};
use super::replica::Replica;
use super::{Common, Config, Coordinator};
use crate::Cx;
use crate::quorum::Voters;
use crate::replicas::by_any_clock;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Group {
    /// *Coordinator*: the replica that this one follows; a candidate follows itself. "Initially, the first created
    /// replica will be the coordinator" (§4.1).
    coordinator: u32,
    /// *T_coor*.
    pub epoch: u64,
    pub found: u64,
    promised: Time,
    /// `sent` of the message that the promise answers.
    last_received: Time,
    patience: Time,
    state: State,
    was_candidate: bool,
    awake: bool,
    /// Lamport's clock: the source of epochs in print.
    pub clock: u64,
    /// In print: until OK arrives.
    deferred: Vec<Message>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
enum State {
    /// Without memory, and so are the replicas `blanks`.
    Blank { since: Time, blanks: Voters },
    #[default]
    Follower,
    /// For each replica, `sent` of the latest message on which it has promised.
    Candidate { votes: Vec<Option<Time>> },
    /// Starts no chain before `grace`.
    Office { votes: Vec<Option<Time>>, grace: Time },
}

impl Group {
    /// In print it continues as before.
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
            State::Office { grace, .. } => Some(grace),
            _ => None,
        }
    }

    pub fn is_blank(&self) -> bool {
        matches!(self.state, State::Blank { .. })
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.state {
            State::Blank { .. } => f.write_str("without memory"),
            State::Follower => write!(f, "follows R{}, epoch {}", self.coordinator, self.epoch),
            State::Candidate { .. } => write!(f, "candidate, epoch {}", self.epoch),
            State::Office { .. } => write!(f, "coordinator, epoch {}", self.epoch),
        }
    }
}

/// Returns until when m promises are valid. The own one does not expire.
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
        self.group.coordinator == self.index
    }

    pub fn is_in_office(&mut self, common: &Common, now: Time) -> bool {
        if !common.config.majority_lease {
            return true;
        }
        match &self.group.state {
            State::Office { votes, .. } if lease_end(votes, common).is_some_and(|end| end > now) => true,
            State::Office { .. } => {
                self.group.state = State::Follower;
                false
            }
            _ => false,
        }
    }

    pub fn wake_up(&mut self, common: &Common, cx: &mut Cx<'_, Coordinator>) {
        if common.config.majority_lease && !self.group.awake {
            self.group.awake = true;
            self.be_patient(common, cx);
            cx.set_timer(Timer::Ping(self.index), common.config.ping);
        }
    }

    /// Waits a random time longer than a term, lest all become candidates at once.
    fn be_patient(&mut self, common: &Common, cx: &mut Cx<'_, Coordinator>) {
        let while_longer = cx.rng().between(Span::ZERO, common.config.ping);
        self.group.patience = cx.now() + common.config.term + while_longer;
    }

    pub fn on_ping_timer(&mut self, common: &mut Common, cx: &mut Cx<'_, Coordinator>) {
        if !common.config.majority_lease {
            return self.elect_in_print(common, cx);
        }
        let now = cx.now();
        cx.set_timer(Timer::Ping(self.index), common.config.ping);
        self.is_in_office(common, now);
        match &self.group.state {
            State::Blank { since, .. } => {
                if now.since(*since) >= common.config.term && !self.restarts(common, cx) {
                    self.ask_for_memory(common, cx);
                }
            }
            State::Office { votes, .. } => {
                let is_late = |sent: &Option<Time>| sent.is_none_or(|sent| now.since(sent) > common.config.ping * 2);
                let late: Vec<u32> = (0..).zip(votes).filter(|(_, sent)| is_late(sent)).map(|(at, _)| at).collect();
                self.announce(late.into_iter(), common, cx);
            }
            State::Candidate { .. } if self.group.promised <= now => {
                self.group.state = State::Follower;
                self.be_patient(common, cx);
            }
            State::Candidate { .. } => self.announce(self.others(common), common, cx),
            State::Follower if now >= self.group.patience => self.stand(common, cx),
            State::Follower if self.is_coordinator() => {}
            State::Follower => {
                let (to, from, epoch, last_received) =
                    (self.group.coordinator, self.index, self.group.epoch, self.group.last_received);
                common.send(to, Message::Ping { to, from, epoch, last_received }, cx);
            }
        }
    }

    fn announce(&mut self, to: impl Iterator<Item = u32>, common: &mut Common, cx: &mut Cx<'_, Coordinator>) {
        let (from, epoch, sent) = (self.index, self.group.epoch, cx.now());
        for to in to.filter(|&to| to != from) {
            common.send(to, Message::IamCoordinator { to, from, epoch, sent }, cx);
        }
    }

    /// Figure 1, *Election()*.
    pub fn stand(&mut self, common: &mut Common, cx: &mut Cx<'_, Coordinator>) {
        let (now, group) = (cx.now(), &mut self.group);
        let is_early = group.was_candidate && now < group.patience;
        if group.state != State::Follower || group.promised > now || is_early {
            return;
        }
        let replicas = common.sender.replicas.quorum().replicas();
        if group.was_candidate || self.index != 0 || group.found > 0 {
            // The lowest epoch of this replica above all known.
            let (all, mine) = (u64::from(replicas), u64::from(self.index));
            let round = (group.found + 1).saturating_sub(mine).div_ceil(all);
            group.found = round * all + mine;
        }
        (group.was_candidate, group.coordinator, group.epoch) = (true, self.index, group.found);
        group.promised = cx.now() + common.config.term;
        group.state = State::Candidate { votes: vec![None; replicas as usize] };
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
        let (now, group) = (cx.now(), &mut self.group);
        group.clock = group.clock.max(epoch);
        if !common.config.majority_lease {
            if epoch > group.epoch {
                (group.coordinator, group.epoch) = (from, epoch);
            }
            return;
        }
        // A candidate's promise to itself does not bind it against a higher epoch.
        let gives_way = matches!(group.state, State::Candidate { .. }) && epoch > group.epoch;
        let is_free = group.promised <= now || group.coordinator == from || gives_way;
        if group.is_blank() || !is_free {
            return;
        }
        let why = if epoch >= group.found { Telling::Vote } else { Telling::Refusal };
        if self.is_in_office(common, now) {
            return; // Its own promises from the others are valid.
        }
        if why == Telling::Vote {
            self.group.state = State::Follower;
            self.group.found = epoch;
            self.follow(from, epoch, sent, common, cx);
        }
        let memory = self.memory();
        common.send(from, Message::Update { to: from, from: self.index, why, sent, epoch, memory }, cx);
    }

    fn follow(&mut self, target: u32, epoch: u64, sent: Time, common: &Common, cx: &mut Cx<'_, Coordinator>) {
        let is_new = (self.group.coordinator, self.group.epoch) != (target, epoch);
        (self.group.coordinator, self.group.epoch) = (target, epoch);
        self.group.last_received = if is_new { sent } else { self.group.last_received.max(sent) };
        self.group.promised = cx.now() + common.config.term;
        self.be_patient(common, cx);
    }

    pub fn on_update(&mut self, message: Message, common: &mut Common, cx: &mut Cx<'_, Coordinator>) {
        let Message::Update { from, why, sent, epoch, memory, .. } = message else { return };
        if !common.config.majority_lease {
            self.learn(memory, cx.now());
            (self.group.coordinator, self.group.epoch) = (from, epoch);
            return;
        }
        self.is_in_office(common, cx.now()); // An expired lease cannot be renewed.
        match (&mut self.group.state, why) {
            (State::Candidate { votes } | State::Office { votes, .. }, Telling::Vote) if epoch == self.group.epoch => {
                let vote = &mut votes[from as usize];
                *vote = (*vote).max(Some(sent));
                if matches!(self.group.state, State::Candidate { .. }) {
                    self.learn(memory, cx.now());
                    self.count_votes(common, cx);
                }
            }
            (State::Candidate { .. }, Telling::Refusal) => {
                self.group.found = self.group.found.max(memory.found);
                self.group.state = State::Follower; // Its promise to itself expires first.
            }
            (State::Blank { since, .. }, Telling::Recovery) if sent.since(*since) >= common.config.term => {
                self.learn(memory, cx.now());
                self.group.found = self.group.found.max(epoch);
                (self.group.coordinator, self.group.epoch) = (from, epoch);
                self.group.state = State::Follower;
                self.be_patient(common, cx);
            }
            (State::Blank { since, blanks }, Telling::Blank) if sent.since(*since) >= common.config.term => {
                blanks.insert(from);
                self.group.found = self.group.found.max(memory.found);
                self.restarts(common, cx);
            }
            _ => {}
        }
    }

    /// Resumes voting without memory if there can be no coordinator to recover from. Grace covers the lost promises.
    fn restarts(&mut self, common: &Common, cx: &mut Cx<'_, Coordinator>) -> bool {
        let State::Blank { blanks, .. } = &self.group.state else { return false };
        let (quorum, blank) = (common.sender.replicas.quorum(), blanks.len() + 1);
        let is_so = blank > quorum.replicas() - quorum.votes();
        if is_so {
            self.group.state = State::Follower;
            self.be_patient(common, cx);
        }
        is_so
    }

    fn count_votes(&mut self, common: &mut Common, cx: &mut Cx<'_, Coordinator>) {
        let (now, State::Candidate { votes }) = (cx.now(), &mut self.group.state) else { return };
        if self.group.promised > now && lease_end(votes, common).is_some_and(|end| end > now) {
            // After a lease all clients of earlier coordinators have left. Epoch 0 has none.
            let grace = if self.group.epoch == 0 { Time::ZERO } else { now + common.config.lease };
            self.group.state = State::Office { votes: core::mem::take(votes), grace };
            self.take_office(common, cx);
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
            let is_mine = self.is_in_office(common, cx.now()) && epoch == self.group.epoch;
            let State::Office { votes, .. } = &mut self.group.state else { return };
            if !is_mine {
                return;
            }
            let vote = &mut votes[from as usize];
            *vote = (*vote).max(Some(last_received));
        }
        let (me, epoch, sent, front) = (self.index, self.group.epoch, cx.now(), self.front());
        common.send(from, Message::Ok { to: from, from: me, epoch, sent, front }, cx);
    }

    pub fn on_ok(&mut self, message: Message, common: &mut Common, cx: &mut Cx<'_, Coordinator>) {
        let Message::Ok { from, epoch, sent, front, .. } = message else { return };
        if !common.config.majority_lease {
            cx.cancel_timer(Timer::Ping(self.index));
            let deferred = core::mem::take(&mut self.group.deferred);
            return deferred.into_iter().for_each(|message| self.hand_on(message, common, cx));
        }
        let is_free = self.group.promised <= cx.now() || self.group.coordinator == from;
        if self.group.state == State::Follower && is_free && epoch >= self.group.found {
            self.group.found = epoch;
            self.follow(from, epoch, sent, common, cx);
            self.drop_before(front);
        }
    }

    /// §4.1, *Recovering the memory*. *Departure:* after a term, when forgotten promises and votes in flight have
    /// expired.
    pub fn start_recovery(&mut self, common: &mut Common, cx: &mut Cx<'_, Coordinator>) {
        if common.config.majority_lease {
            self.wake_up(common, cx);
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
            if from == self.group.coordinator {
                self.elect_in_print(common, cx);
            }
            return if self.is_coordinator() {
                self.send_memory(from, sent, Telling::Recovery, common, cx);
            } else {
                self.pass_on(message, common, cx);
            };
        }
        if self.group.is_blank() {
            self.send_memory(from, sent, Telling::Blank, common, cx);
        } else if self.is_in_office(common, cx.now()) {
            self.send_memory(from, sent, Telling::Recovery, common, cx);
        }
    }

    fn send_memory(&self, to: u32, sent: Time, why: Telling, common: &mut Common, cx: &mut Cx<'_, Coordinator>) {
        let (epoch, memory) = (self.group.epoch, self.memory());
        common.send(to, Message::Update { to, from: self.index, why, sent, epoch, memory }, cx);
    }

    /// *active(Coordinator)*, in print.
    pub fn pass_on(&mut self, message: Message, common: &mut Common, cx: &mut Cx<'_, Coordinator>) {
        let (to, from, epoch) = (self.group.coordinator, self.index, self.group.epoch);
        common.send(to, Message::Ping { to, from, epoch, last_received: Time::ZERO }, cx);
        self.group.deferred.push(message);
        cx.set_timer(Timer::Ping(self.index), common.config.ping);
    }

    fn elect_in_print(&mut self, common: &mut Common, cx: &mut Cx<'_, Coordinator>) {
        self.group.clock += 1;
        (self.group.coordinator, self.group.epoch) = (self.index, self.group.clock);
        self.announce(self.others(common), common, cx);
        let deferred = core::mem::take(&mut self.group.deferred);
        deferred.into_iter().for_each(|message| self.hand_on(message, common, cx));
    }

    pub fn hand_on(&mut self, message: Message, common: &mut Common, cx: &mut Cx<'_, Coordinator>) {
        let coordinator = self.group.coordinator;
        match message {
            Message::Request { .. } if self.is_coordinator() => self.answer(message, common, cx),
            Message::Recover { from, sent, .. } if self.is_coordinator() => {
                self.send_memory(from, sent, Telling::Recovery, common, cx);
            }
            Message::Request { client, stamp, place, holds, inside, newest, sent, .. } => {
                let (to, alone) = (coordinator, false);
                common.send(to, Message::Request { to, client, stamp, place, holds, inside, newest, alone, sent }, cx);
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
            let group = Group { coordinator: 1, epoch: 7, found: 7, ..Group::default() };
            let mut replica = Replica::new(2, group);
            let front = Place { epoch: 0, count: 1 };
            replica.on_ok(Message::Ok { to: 2, from, epoch, sent: now, front }, &mut common, &mut cx);
            assert_eq!((replica.group.coordinator, replica.group.epoch), follows, "R{from} in epoch {epoch}");
            let is_received = (from, epoch) == follows;
            assert_eq!(replica.group.promised > now, is_received, "R{from} in epoch {epoch}");
        }
    }
}
