//! The client side (Figure 5).

use alloc::vec::Vec;
use core::fmt;
use core::hash::{Hash, Hasher};

use peerlock_types::{Span, Ticket, Time};

use super::message::{Message, Number, Stamp, Timer};
use super::{Common, Config, Voting, Yields};
use crate::quorum::{Verdict, Voters};
use crate::{Cx, Grant, fencing};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub ticket: Ticket,
    /// *id* and *timestamp*.
    pub stamp: Stamp,
    pub phase: Phase,
    /// *resp[]*: the latest response of each replica.
    resp: Vec<Response>,
    received: Voters,
    /// Those that name this client.
    mine: Voters,
    asked: Voters,
    round: Round,
    pub number: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    /// Finished; only in print.
    Idle,
    Waiting,
    Holding {
        until: Time,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Response {
    owner: Option<Stamp>,
    number: Number,
    /// If this client is the owner.
    until: Time,
    fencing: u64,
    at: Time,
}

/// T_w is the mean of the first m answers: a replica after a reset forecasts too little.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Round {
    received: Voters,
    waits: Span,
    forecasts: u32,
}

impl Client {
    pub fn new(ticket: Ticket, stamp: Stamp, replicas: u32) -> Self {
        let resp = (0..replicas).map(|_| Response::default()).collect();
        let (received, mine, asked) = (Voters::NONE, Voters::NONE, Voters::NONE);
        Self { ticket, stamp, phase: Phase::Waiting, resp, received, mine, asked, round: Round::default(), number: 0 }
    }

    pub fn replacement(ticket: Ticket, owner: Stamp, until: Time, replicas: u32) -> Self {
        Self { phase: Phase::Holding { until }, ..Self::new(ticket, owner, replicas) }
    }

    pub fn id(&self) -> Ticket {
        self.stamp.client.ticket
    }

    /// Figure 5, *Request(CS)*; also retries and renewals.
    pub fn ask<P: Voting>(&mut self, common: &mut Common<P::Message>, cx: &mut Cx<'_, P>) {
        self.round = Round::default();
        let (client, sent, fencing) = (self.stamp, cx.now(), common.fencing);
        for replica in 0..common.quorum().replicas() {
            common.send(replica, Message::Request { replica, client, sent, fencing }, cx);
        }
        match self.phase {
            Phase::Holding { until } => self.wake_to_renew(until, common, cx),
            _ if common.config.default_timer => cx.set_timer(Timer::Wake(self.id()).into(), common.config.retry),
            _ => {}
        }
    }

    /// Three renewals per lease, so that one may be lost.
    pub fn wake_to_renew<P: Voting>(&self, until: Time, common: &Common<P::Message>, cx: &mut Cx<'_, P>) {
        if common.config.client_leases {
            let after = (common.config.lease / 3).min(until.since(cx.now()));
            cx.set_timer(Timer::Wake(self.id()).into(), after);
        } else {
            cx.cancel_timer(Timer::Wake(self.id()).into());
        }
    }

    /// Figure 5, *OnResponse(R[i], owner, timestamp)*.
    pub fn on_response<P: Voting>(&mut self, message: Message, common: &mut Common<P::Message>, cx: &mut Cx<'_, P>) {
        let Message::Response { replica, owner, number, until, wait, fencing, .. } = message else { return };
        let is_mine = owner.is_some_and(|owner| owner.client == self.stamp.client);
        if is_mine && self.has_yielded(replica, number, common) {
            return self.yield_vote(replica, common, cx); // The YIELD is in flight, or lost.
        }
        let is_turn = is_mine && self.mine.is_empty();
        if !self.record(replica, Response { owner, number, until, fencing, at: cx.now() }, is_mine, common) {
            return;
        }
        match self.phase {
            Phase::Idle => {}
            Phase::Waiting => {
                self.count_response(replica, wait, common, cx);
                if is_turn && common.config.default_timer && self.phase == Phase::Waiting {
                    // Its turn has come before the forecast.
                    cx.set_timer(Timer::Wake(self.id()).into(), common.config.retry);
                }
            }
            Phase::Holding { until } => {
                if let Some(later) = self.lease_end(common) {
                    self.phase = Phase::Holding { until: until.max(later) };
                }
            }
        }
    }

    /// On an overlay two peers may act as one replica for a while, and the one with the longer memory may remain: its
    /// responses count again a lease time after the other's last, when all promises of both have expired.
    fn record<M>(&mut self, replica: u32, mut new: Response, is_mine: bool, common: &Common<M>) -> bool {
        let old = &mut self.resp[replica as usize];
        if common.config.numbered_grants {
            let is_earlier_life = new.number.incarnation < old.number.incarnation;
            let is_forgotten = is_earlier_life && new.at.since(old.at) > common.config.lease;
            if new.number < old.number && !is_forgotten {
                return false;
            }
            if new.number == old.number {
                new.until = new.until.max(old.until); // Both were promised.
            } else {
                self.asked.remove(replica);
            }
        }
        *old = new;
        self.received.insert(replica);
        if is_mine {
            self.mine.insert(replica);
        } else {
            self.mine.remove(replica);
        }
        true
    }

    fn has_yielded<M>(&self, replica: u32, number: Number, common: &Common<M>) -> bool {
        let known = &self.resp[replica as usize];
        let was_mine = known.owner == Some(self.stamp) && known.number == number;
        common.config.numbered_grants && was_mine && !self.mine.contains(replica)
    }

    /// §4: the three outcomes.
    fn count_response<P: Voting>(
        &mut self,
        replica: u32,
        wait: Option<Span>,
        common: &mut Common<P::Message>,
        cx: &mut Cx<'_, P>,
    ) {
        let votes = common.quorum().votes();
        let is_first = self.round.received.insert(replica);
        if is_first && let Some(wait) = wait {
            self.round.waits += wait;
            self.round.forecasts += 1;
        }
        if self.mine.len() >= votes && self.enter(common, cx) {
            return; // Case 1. Case 2, in which another client has won, needs no action.
        }
        self.yield_if_hopeless(common, cx); // Case 3.
        if is_first && self.round.received.len() == votes {
            self.back_off(common, cx);
        }
    }

    /// Enters if m votes are valid and agree on a fencing number. Otherwise a retry renews the votes and raises the
    /// levels.
    fn enter<P: Voting>(&mut self, common: &mut Common<P::Message>, cx: &mut Cx<'_, P>) -> bool {
        let is_valid = |vote: &&Response| !common.config.client_leases || vote.until > cx.now();
        let mut levels: Vec<u64> = self.votes().filter(is_valid).map(|vote| vote.fencing).collect();
        let agreed = fencing::number(&mut levels, common.quorum().votes());
        let highest = levels.last().filter(|_| !common.config.levels_agree).map(|level| level + 1);
        let (Some(number), Some(until)) = (agreed.or(highest), self.lease_end(common)) else {
            cx.set_timer(Timer::Wake(self.id()).into(), common.config.retry);
            return false;
        };
        common.fencing = common.fencing.max(number);
        self.number = number;
        self.phase = Phase::Holding { until };
        self.wake_to_renew(until, common, cx);
        cx.grant(self.ticket, Grant { slot: 0, fencing: number });
        true
    }

    fn votes(&self) -> impl Iterator<Item = &Response> {
        self.mine.iter().map(|replica| &self.resp[replica as usize])
    }

    /// Returns when fewer than m votes will be valid.
    fn lease_end<M>(&self, common: &Common<M>) -> Option<Time> {
        let mut ends: Vec<Time> = self.votes().map(|vote| vote.until).collect();
        ends.sort_unstable();
        ends.len().checked_sub(common.quorum().votes() as usize).map(|at| ends[at])
    }

    /// Case 3, *winner = nil*. Unless in print, yields only the votes that replicas have asked for: others would come
    /// straight back.
    fn yield_if_hopeless<P: Voting>(&mut self, common: &mut Common<P::Message>, cx: &mut Cx<'_, P>) {
        let given_up = match common.yields {
            Yields::Asked if self.cannot_win(common) => self.mine.and(self.asked),
            Yields::AtOnce if self.is_undecidable(common) => self.mine,
            Yields::Asked | Yields::AtOnce | Yields::Later => Voters::NONE,
        };
        for replica in given_up.iter() {
            self.yield_vote(replica, common, cx);
        }
    }

    pub fn yield_all<P: Voting>(&mut self, common: &mut Common<P::Message>, cx: &mut Cx<'_, P>) {
        for replica in self.mine.iter() {
            self.yield_vote(replica, common, cx);
        }
    }

    fn cannot_win<M>(&self, common: &Common<M>) -> bool {
        common.quorum().verdict(self.mine.len(), self.received.len()) == Verdict::Cannot
    }

    /// *ComputeWinner() = nil*.
    pub fn is_undecidable<M>(&self, common: &Common<M>) -> bool {
        common.quorum().verdict(self.same(), self.received.len()) == Verdict::Cannot
    }

    pub fn mine(&self) -> Voters {
        self.mine
    }

    pub fn count_reply(&mut self, replica: u32) {
        self.received.insert(replica);
    }

    fn yield_vote<P: Voting>(&mut self, replica: u32, common: &mut Common<P::Message>, cx: &mut Cx<'_, P>) {
        let (client, number, sent) = (self.stamp, self.resp[replica as usize].number, cx.now());
        for set in [&mut self.mine, &mut self.received, &mut self.asked] {
            set.remove(replica); // *Clear(resp[i])*; the number stays.
        }
        common.send(replica, Message::Yield { replica, client, number, sent }, cx);
    }

    /// j_same.
    fn same(&self) -> u32 {
        let mut owners: Vec<(Stamp, u32)> = Vec::new();
        for owner in self.received.iter().filter_map(|replica| self.resp[replica as usize].owner) {
            match owners.iter_mut().find(|(known, _)| *known == owner) {
                Some((_, count)) => *count += 1,
                None => owners.push((owner, 1)),
            }
        }
        owners.iter().map(|&(_, count)| count).max().unwrap_or(0)
    }

    /// §4, informed backoff.
    fn back_off<P: Voting>(&mut self, common: &Common<P::Message>, cx: &mut Cx<'_, P>) {
        if self.round.forecasts == 0 {
            return; // The default timer applies, or in print none.
        }
        let t_w = self.round.waits / u64::from(self.round.forecasts);
        let after = if common.config.early_retry { (t_w * 5 / 8).max(common.config.retry) } else { t_w };
        cx.set_timer(Timer::Wake(self.id()).into(), after);
    }

    pub fn on_inquire<P: Voting>(
        &mut self,
        replica: u32,
        number: Number,
        common: &mut Common<P::Message>,
        cx: &mut Cx<'_, P>,
    ) {
        if self.phase != Phase::Waiting || self.resp[replica as usize].number != number {
            return; // It holds, or the grant has not arrived: the replica repeats `Inquire`.
        }
        if self.mine.contains(replica) && self.asked.insert(replica) {
            self.yield_if_hopeless(common, cx);
        } else {
            // The second INQUIRE: the vote that this client waits for, or its YIELD, was lost.
            self.yield_vote(replica, common, cx);
        }
    }

    /// Returns true if the lease has expired.
    pub fn on_wake<P: Voting>(&mut self, common: &mut Common<P::Message>, cx: &mut Cx<'_, P>) -> bool {
        if matches!(self.phase, Phase::Holding { until } if common.config.client_leases && until <= cx.now()) {
            return true;
        }
        self.ask(common, cx);
        false
    }

    /// Figure 5, *Release(CS)*; also withdrawal.
    pub fn release<P: Voting>(&mut self, common: &mut Common<P::Message>, cx: &mut Cx<'_, P>) {
        self.phase = Phase::Idle;
        cx.cancel_timer(Timer::Wake(self.id()).into());
        for replica in 0..common.quorum().replicas() {
            common.send(replica, Message::Release { replica, client: self.stamp, fencing: common.fencing }, cx);
        }
    }

    pub fn is_old(&self, replica: u32, number: Number) -> bool {
        number < self.resp[replica as usize].number || self.is_settled(replica)
    }

    /// The client holds and will not yield to this replica.
    pub fn is_settled(&self, replica: u32) -> bool {
        let has_yielded = !self.mine.contains(replica) && self.resp[replica as usize].owner == Some(self.stamp);
        matches!(self.phase, Phase::Holding { .. }) && !has_yielded
    }

    /// See [`crate::Observe::digest`].
    pub fn digest(&self, replica: Option<u32>, config: &Config, mut state: &mut dyn Hasher) {
        let Self { ticket, stamp, phase, resp, received, mine, asked, round, number } = self;
        // If a timer is always pending, forecasts only determine its time.
        let round = if config.default_timer { &Round::default() } else { round };
        match replica {
            None => (ticket, stamp, phase, round.waits, round.forecasts, number).hash(&mut state),
            Some(at) if config.numbered_grants && self.is_settled(at) => {}
            Some(at) => {
                let is_in = [received, mine, asked, &round.received].map(|voters| voters.contains(at));
                (resp[at as usize], is_in).hash(&mut state);
            }
        }
    }

    pub fn reuse(&mut self, ticket: Ticket, time: u64) {
        (self.ticket, self.stamp.time, self.phase) = (ticket, time, Phase::Waiting);
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = match self.phase {
            Phase::Idle => "finished",
            Phase::Waiting => "waiting",
            Phase::Holding { .. } => "holding",
        };
        write!(f, "{} {phase}, resp[]", self.stamp)?;
        for replica in self.received.iter() {
            match self.resp[replica as usize].owner {
                Some(owner) => write!(f, " R{replica}: {owner}")?,
                None => write!(f, " R{replica}: nil")?,
            }
        }
        if self.received.is_empty() { write!(f, " empty") } else { Ok(()) }
    }
}
