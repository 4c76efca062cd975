//! The client half of Sigma (Figure 5).

use alloc::vec::Vec;
use core::fmt;
use core::hash::{Hash, Hasher};

use peerlock_base::{Span, Ticket, Time};

use super::message::{Message, Number, Stamp, Timer};
use super::{Common, Config, Voting, Yields};
use crate::quorum::{Verdict, Voters};
use crate::{Cx, Grant, fencing};

/// One client with one request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    /// The request, as the application knows it.
    pub ticket: Ticket,
    /// *id* and *timestamp*: the request, as the replicas know it.
    pub stamp: Stamp,
    pub phase: Phase,
    /// *resp[]*: the latest response of each replica.
    resp: Vec<Response>,
    /// Which entries of `resp` stand: from the others no answer is known.
    heard: Voters,
    /// Which of them name us.
    mine: Voters,
    /// Which of our voters have asked for their vote back, for somebody earlier.
    asked: Voters,
    /// What the replicas have answered since we last asked all of them.
    round: Round,
    /// The fencing number of its grant.
    pub number: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    /// Finished. Only the printed form keeps a client beyond its request.
    Idle,
    Waiting,
    /// Inside, until the lease ends at the latest.
    Inside {
        until: Time,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Response {
    owner: Option<Stamp>,
    number: Number,
    /// The end of our lease, if we are the owner.
    until: Time,
    fencing: u64,
    /// When it came.
    at: Time,
}

/// T_w comes from many replicas at once. We take the mean of the first m answers: one that was just reset forecasts
/// too little, one with a strange owner too much.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Round {
    heard: Voters,
    waits: Span,
    forecasts: u32,
}

impl Client {
    pub fn new(ticket: Ticket, stamp: Stamp, replicas: u32) -> Self {
        let resp = (0..replicas).map(|_| Response::default()).collect();
        let (heard, mine, asked) = (Voters::NONE, Voters::NONE, Voters::NONE);
        Self { ticket, stamp, phase: Phase::Waiting, resp, heard, mine, asked, round: Round::default(), number: 0 }
    }

    /// Whoever takes the place of an owner inside, until the lease ends or is renewed.
    pub fn heir(ticket: Ticket, owner: Stamp, until: Time, replicas: u32) -> Self {
        Self { phase: Phase::Inside { until }, ..Self::new(ticket, owner, replicas) }
    }

    /// The name of this client at its peer.
    pub fn id(&self) -> Ticket {
        self.stamp.client.ticket
    }

    /// Figure 5, *Request(CS)*; and every retry, and every renewal.
    pub fn ask<P: Voting>(&mut self, common: &mut Common<P::Message>, cx: &mut Cx<'_, P>) {
        self.round = Round::default();
        let (client, sent, fencing) = (self.stamp, cx.now(), common.fencing);
        for replica in 0..common.quorum().replicas() {
            common.send(replica, Message::Request { replica, client, sent, fencing }, cx);
        }
        match self.phase {
            Phase::Inside { until } => self.wake_to_renew(until, common, cx),
            _ if common.config.default_timer => cx.set_timer(Timer::Wake(self.id()).into(), common.config.retry),
            _ => {}
        }
    }

    /// Three renewals to a lease, so that one may be lost; and in any case we are awake when it ends.
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
            return self.yield_vote(replica, common, cx); // It does not know yet, or the YIELD was lost.
        }
        let is_turn = is_mine && self.mine.is_empty();
        if !self.record(replica, Response { owner, number, until, fencing, at: cx.now() }, is_mine, common) {
            return;
        }
        match self.phase {
            Phase::Idle => {}
            Phase::Waiting => {
                self.weigh(replica, wait, common, cx);
                if is_turn && common.config.default_timer && self.phase == Phase::Waiting {
                    // Our turn has come, whatever was forecast: ask soon for what does not come by itself.
                    cx.set_timer(Timer::Wake(self.id()).into(), common.config.retry);
                }
            }
            Phase::Inside { until } => {
                if let Some(later) = self.lease_end(common) {
                    self.phase = Phase::Inside { until: until.max(later) };
                }
            }
        }
    }

    /// Writes the response down, unless it is older than what we know.
    ///
    /// On an overlay two peers may take themselves for one replica for a while, and the one with the longer memory may
    /// be the one that stays. It is believed again when nothing was heard of the other for a lease time: whatever was
    /// promised on either side has run out by then.
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
        self.heard.insert(replica);
        if is_mine {
            self.mine.insert(replica);
        } else {
            self.mine.remove(replica);
        }
        true
    }

    /// Whether this is a grant that we had, and gave back.
    fn has_yielded<M>(&self, replica: u32, number: Number, common: &Common<M>) -> bool {
        let known = &self.resp[replica as usize];
        let was_mine = known.owner == Some(self.stamp) && known.number == number;
        common.config.numbered_grants && was_mine && !self.mine.contains(replica)
    }

    /// §4: what the answers so far say of the race, with three outcomes.
    fn weigh<P: Voting>(
        &mut self,
        replica: u32,
        wait: Option<Span>,
        common: &mut Common<P::Message>,
        cx: &mut Cx<'_, P>,
    ) {
        let votes = common.quorum().votes();
        let is_first = self.round.heard.insert(replica);
        if is_first && let Some(wait) = wait {
            self.round.waits += wait;
            self.round.forecasts += 1;
        }
        if self.mine.len() >= votes && self.enter(common, cx) {
            return; // Case 1. Case 2, somebody else has won, is to do nothing.
        }
        self.yield_if_hopeless(common, cx); // Case 3.
        if is_first && self.round.heard.len() == votes {
            self.back_off(common, cx);
        }
    }

    /// Goes in, if m votes stand and agree on a fencing number. If they do not, asking again will renew the ones and
    /// raise the others.
    fn enter<P: Voting>(&mut self, common: &mut Common<P::Message>, cx: &mut Cx<'_, P>) -> bool {
        let stands = |vote: &&Response| !common.config.client_leases || vote.until > cx.now();
        let mut levels: Vec<u64> = self.votes().filter(stands).map(|vote| vote.fencing).collect();
        let agreed = fencing::number(&mut levels, common.quorum().votes());
        let highest = levels.last().filter(|_| !common.config.levels_agree).map(|level| level + 1);
        let (Some(number), Some(until)) = (agreed.or(highest), self.lease_end(common)) else {
            cx.set_timer(Timer::Wake(self.id()).into(), common.config.retry);
            return false;
        };
        common.fencing = common.fencing.max(number);
        self.number = number;
        self.phase = Phase::Inside { until };
        self.wake_to_renew(until, common, cx);
        cx.grant(self.ticket, Grant { slot: 0, fencing: number });
        true
    }

    fn votes(&self) -> impl Iterator<Item = &Response> {
        self.mine.iter().map(|replica| &self.resp[replica as usize])
    }

    /// Until when m of our votes stand.
    fn lease_end<M>(&self, common: &Common<M>) -> Option<Time> {
        let mut ends: Vec<Time> = self.votes().map(|vote| vote.until).collect();
        ends.sort_unstable();
        ends.len().checked_sub(common.quorum().votes() as usize).map(|at| ends[at])
    }

    /// Case 3, *winner = nil*. The printed form yields every vote as soon as nobody can win, to find out from the
    /// replicas who is first. Ours yields only what a replica has asked back for somebody earlier, since every other
    /// vote would come straight back; and does so as soon as we cannot win.
    fn yield_if_hopeless<P: Voting>(&mut self, common: &mut Common<P::Message>, cx: &mut Cx<'_, P>) {
        let given_up = match common.yields {
            Yields::Asked if self.cannot_win(common) => self.mine.and(self.asked),
            Yields::AtOnce if self.nobody_can_win(common) => self.mine,
            Yields::Asked | Yields::AtOnce | Yields::Later => Voters::NONE,
        };
        for replica in given_up.iter() {
            self.yield_vote(replica, common, cx);
        }
    }

    /// Yields all votes.
    pub fn yield_all<P: Voting>(&mut self, common: &mut Common<P::Message>, cx: &mut Cx<'_, P>) {
        for replica in self.mine.iter() {
            self.yield_vote(replica, common, cx);
        }
    }

    fn cannot_win<M>(&self, common: &Common<M>) -> bool {
        common.quorum().verdict(self.mine.len(), self.heard.len()) == Verdict::Cannot
    }

    /// *ComputeWinner() = nil*, as far as we have heard.
    pub fn nobody_can_win<M>(&self, common: &Common<M>) -> bool {
        common.quorum().verdict(self.same(), self.heard.len()) == Verdict::Cannot
    }

    /// Which replicas have voted for us.
    pub fn mine(&self) -> Voters {
        self.mine
    }

    /// We wait at this replica, though it has not said so itself: its vote is not to be expected now.
    pub fn hear_say(&mut self, replica: u32) {
        self.heard.insert(replica);
    }

    fn yield_vote<P: Voting>(&mut self, replica: u32, common: &mut Common<P::Message>, cx: &mut Cx<'_, P>) {
        let (client, number, sent) = (self.stamp, self.resp[replica as usize].number, cx.now());
        for set in [&mut self.mine, &mut self.heard, &mut self.asked] {
            set.remove(replica); // *Clear(resp[i])*; the number stays, so that we know the grant if we meet it again.
        }
        common.send(replica, Message::Yield { replica, client, number, sent }, cx);
    }

    /// j_same: how many responses name the same owner at most.
    fn same(&self) -> u32 {
        let mut owners: Vec<(Stamp, u32)> = Vec::new();
        for owner in self.heard.iter().filter_map(|replica| self.resp[replica as usize].owner) {
            match owners.iter_mut().find(|(known, _)| *known == owner) {
                Some((_, count)) => *count += 1,
                None => owners.push((owner, 1)),
            }
        }
        owners.iter().map(|&(_, count)| count).max().unwrap_or(0)
    }

    /// §4, informed backoff: when do we ask again?
    fn back_off<P: Voting>(&mut self, common: &Common<P::Message>, cx: &mut Cx<'_, P>) {
        if self.round.forecasts == 0 {
            return; // Nobody knows: then it is the default timer, or in the printed form none.
        }
        let t_w = self.round.waits / u64::from(self.round.forecasts);
        let after = if common.config.early_retry { (t_w * 5 / 8).max(common.config.retry) } else { t_w };
        cx.set_timer(Timer::Wake(self.id()).into(), after);
    }

    /// A replica asks for its vote back, for somebody earlier.
    pub fn on_inquire<P: Voting>(
        &mut self,
        replica: u32,
        number: Number,
        common: &mut Common<P::Message>,
        cx: &mut Cx<'_, P>,
    ) {
        if self.phase != Phase::Waiting || self.resp[replica as usize].number != number {
            return; // We are inside, or the grant has not come yet: then it will ask again.
        }
        if self.mine.contains(replica) && self.asked.insert(replica) {
            self.yield_if_hopeless(common, cx);
        } else {
            // Asked again, after the backoff of the one who waits: what we still hope for must have been lost, or else
            // our YIELD was.
            self.yield_vote(replica, common, cx);
        }
    }

    /// The timer: asks again. True if the lease has run out and the client is not inside any more.
    pub fn on_wake<P: Voting>(&mut self, common: &mut Common<P::Message>, cx: &mut Cx<'_, P>) -> bool {
        if matches!(self.phase, Phase::Inside { until } if common.config.client_leases && until <= cx.now()) {
            return true;
        }
        self.ask(common, cx);
        false
    }

    /// Figure 5, *Release(CS)*; and withdrawal.
    pub fn release<P: Voting>(&mut self, common: &mut Common<P::Message>, cx: &mut Cx<'_, P>) {
        self.phase = Phase::Idle;
        cx.cancel_timer(Timer::Wake(self.id()).into());
        for replica in 0..common.quorum().replicas() {
            common.send(replica, Message::Release { replica, client: self.stamp, fencing: common.fencing }, cx);
        }
    }

    /// Whether a numbered response of this grant tells us nothing that we shall ever use.
    pub fn is_old(&self, replica: u32, number: Number) -> bool {
        number < self.resp[replica as usize].number || self.is_settled(replica)
    }

    /// Whether we are inside and shall not yield a vote to this replica any more, whatever it says.
    pub fn is_settled(&self, replica: u32) -> bool {
        let has_yielded = !self.mine.contains(replica) && self.resp[replica as usize].owner == Some(self.stamp);
        matches!(self.phase, Phase::Inside { .. }) && !has_yielded
    }

    /// See [`crate::Observe::digest`].
    pub fn digest(&self, replica: Option<u32>, config: &Config, mut state: &mut dyn Hasher) {
        let Self { ticket, stamp, phase, resp, heard, mine, asked, round, number } = self;
        // Where a timer is always pending, forecasts only say when it will run out.
        let round = if config.default_timer { &Round::default() } else { round };
        match replica {
            None => (ticket, stamp, phase, round.waits, round.forecasts, number).hash(&mut state),
            Some(at) if config.numbered_grants && self.is_settled(at) => {} // It is not used any more.
            Some(at) => {
                let is_in = [heard, mine, asked, &round.heard].map(|voters| voters.contains(at));
                (resp[at as usize], is_in).hash(&mut state);
            }
        }
    }

    /// The printed form's next request: *Request(CS)* never clears *resp[]*.
    pub fn reuse(&mut self, ticket: Ticket, time: u64) {
        (self.ticket, self.stamp.time, self.phase) = (ticket, time, Phase::Waiting);
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = match self.phase {
            Phase::Idle => "finished",
            Phase::Waiting => "waiting",
            Phase::Inside { .. } => "inside",
        };
        write!(f, "{} {phase}, resp[]", self.stamp)?;
        for replica in self.heard.iter() {
            match self.resp[replica as usize].owner {
                Some(owner) => write!(f, " R{replica}: {owner}")?,
                None => write!(f, " R{replica}: nil")?,
            }
        }
        if self.heard.is_empty() { write!(f, " empty") } else { Ok(()) }
    }
}
