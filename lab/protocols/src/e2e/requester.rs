//! The requester's side (§V.A).

use alloc::vec::Vec;
use core::fmt;

use peerlock_types::{PeerId, Span, Ticket, Time};

use super::message::{By, Copy, Message, Owner, Timer};
use super::{Config, E2e};
use crate::Cx;
use crate::route_quorum::Waiting;
use crate::sigma::client::{Client, Phase};
use crate::sigma::replica::Entry;
use crate::sigma::{self, Stamp};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Requester {
    pub votes: Client,
    pub queued_at: Option<Owner>,
    /// Empty unless the client is one of the first waiters.
    pub backup: Backup,
    tries: u32,
    pinged: bool,
    finished: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Backup {
    pub owner: Option<Owner>,
    pub sequence: (u64, u64),
    pub queue: Vec<Entry>,
}

impl Backup {
    pub fn new(owner: Owner, copy: Copy, now: Time) -> Self {
        let queue = copy.queue.into_iter().map(|waiting| waiting.arrived(now)).collect();
        Self { owner: Some(owner), sequence: (owner.epoch, copy.sequence), queue }
    }

    fn into_copy(self, now: Time) -> Copy {
        let queue = self.queue.into_iter().map(|entry| entry.into_waiting(now)).collect();
        Copy { sequence: self.sequence.1, queue }
    }
}

impl Requester {
    pub fn new(ticket: Ticket, stamp: Stamp, replicas: u32) -> Self {
        let (votes, backup) = (Client::new(ticket, stamp, replicas), Backup::default());
        Self { votes, queued_at: None, backup, tries: 0, pinged: false, finished: 0 }
    }

    fn wake_after(&self, after: Span, cx: &mut Cx<'_, E2e>) {
        cx.set_timer(Timer::Wake(self.votes.ticket), after);
    }

    pub fn moved(&mut self, from: PeerId, to: Owner) {
        if self.queued_at.is_some_and(|queued_at| queued_at.peer == from) {
            self.queued_at = Some(to);
        }
    }

    fn set_queued(&mut self, owner: Owner, config: &Config, cx: &mut Cx<'_, E2e>) {
        (self.queued_at, self.tries, self.pinged) = (Some(owner), 0, false);
        if config.asks_again || config.backups > 0 {
            // A client with a copy should detect a failure first.
            let rank = if self.backup.queue.is_empty() { 2 } else { 1 };
            self.wake_after(config.ping * rank, cx);
        }
    }
}

impl E2e {
    /// §IV.A, step 1. *Departure:* if the token is already here, no message is needed.
    pub(super) fn send_first_requests(&mut self, at: usize, cx: &mut Cx<'_, Self>) {
        let client = Waiting { client: self.requesters[at].votes.stamp, sent: cx.now() };
        if let Some(token) = &mut self.token {
            let owner = token.owner;
            token.enqueue(client.arrived(cx.now()));
            self.queue_changed(cx);
            return self.requesters[at].set_queued(owner, &self.config, cx);
        }
        let fencing = self.common.fencing;
        self.send_to_all(|replica| Message::Request { replica, client, fencing }, cx);
        if self.config.asks_again {
            self.requesters[at].wake_after(self.config.retry, cx);
        }
    }

    /// Retries with requests that no hop stops.
    pub(super) fn retry(&mut self, at: usize, cx: &mut Cx<'_, Self>) {
        let requester = &mut self.requesters[at];
        requester.queued_at = None;
        if !self.config.asks_again {
            return;
        }
        requester.votes.ask(&mut self.common, cx);
        let after = (self.config.retry * (1 << requester.tries.min(8))).min(self.config.lease / 2);
        requester.tries += 1;
        requester.wake_after(after, cx);
    }

    /// §IV.A, step 4: RESPONSE to a client, or to an owner that renews.
    pub(super) fn on_response(&mut self, from: PeerId, mut response: sigma::Message, cx: &mut Cx<'_, Self>) {
        let sigma::Message::Response { replica, to, owner, wait, fencing, clock, .. } = &mut response else { return };
        *wait = None; // The queue is elsewhere.
        let (replica, to, owner) = (*replica, *to, *owner);
        self.common.clock = self.common.clock.max(*clock);
        self.common.fencing = self.common.fencing.max(*fencing);
        if owner.is_some() && owner == self.token.as_ref().map(|token| token.owner.elected) {
            return self.on_renewed(response, cx);
        }
        let asked = self.requesters.iter().position(|requester| requester.votes.id() == to);
        if let Some(at) = asked {
            self.requesters[at].votes.on_response(response, &mut self.common, cx);
            self.watch_owner(to, cx);
            if matches!(self.requesters[at].votes.phase, Phase::Holding { .. }) {
                self.win(at, cx);
            }
        }
        if let Some(stale) = owner.filter(|owner| owner.peer() == self.me() && self.requester(*owner).is_none()) {
            self.answer_stale_vote(from, replica, stale, cx);
        }
    }

    /// Answers a vote for a finished request with its successor, or else returns the vote. If this process sent the
    /// request and has no record of its turn, that ended more than a lease ago. Other requests may have a successor, so
    /// their vote is left to expire.
    pub(super) fn answer_stale_vote(&mut self, from: PeerId, replica: u32, stale: Stamp, cx: &mut Cx<'_, Self>) {
        if self.token.as_ref().is_some_and(|token| token.owner.elected == stale) || !self.config.losers_queued {
            return;
        }
        let past = self.past.iter().rev().find(|past| past.owner.elected == stale);
        let is_known = stale.peer() == self.me() && self.first.is_some_and(|first| first <= stale);
        let answer = match past.map(|past| past.successor) {
            Some(Some(owner)) => Message::Release { replica, owner },
            None if !is_known => return,
            _ => Message::Decline { replica, client: stale, fencing: self.common.fencing },
        };
        self.send(from, answer, cx);
    }

    pub(super) fn on_queued(&mut self, to: Stamp, owner: Owner, copy: Option<Copy>, cx: &mut Cx<'_, Self>) {
        self.merge_clocks(owner.elected, owner.epoch);
        let Some(at) = self.requester(to) else {
            let is_holding = self.token.as_ref().is_some_and(|token| token.user == Some(to.client.ticket));
            if !is_holding && self.config.losers_queued {
                self.send(owner.peer, Message::Withdraw { client: to }, cx);
            }
            return;
        };
        let requester = &mut self.requesters[at];
        if requester.queued_at.is_some_and(|queued_at| queued_at.epoch > owner.epoch)
            || owner.epoch <= requester.finished
        {
            return;
        }
        if let Some(copy) = copy {
            let backup = Backup::new(owner, copy, cx.now());
            if backup.sequence > requester.backup.sequence {
                requester.backup = backup;
            }
        }
        requester.set_queued(owner, &self.config, cx);
    }

    /// Retries at the first such answer: every hop may cause one.
    pub(super) fn on_astray(&mut self, to: Stamp, epoch: u64, cx: &mut Cx<'_, Self>) {
        let Some(at) = self.requester(to) else { return };
        let requester = &mut self.requesters[at];
        if epoch > requester.finished && requester.queued_at.is_none_or(|queued_at| queued_at.epoch <= epoch) {
            requester.finished = epoch;
            self.retry(at, cx);
        }
    }

    /// §V.A: pings the owner; requests the votes if it does not answer.
    pub(super) fn on_wake(&mut self, at: usize, cx: &mut Cx<'_, Self>) {
        let me = self.me();
        let requester = &mut self.requesters[at];
        match requester.queued_at {
            Some(owner) if owner.peer == me && self.token.is_some() => requester.wake_after(self.config.ping, cx),
            Some(owner) if owner.peer != me && !requester.pinged => {
                requester.pinged = true;
                requester.wake_after(self.config.retry * 2, cx);
                let client = Waiting { client: requester.votes.stamp, sent: cx.now() };
                self.enqueue_at(owner, client, By::Client, true, cx);
            }
            Some(owner) if !self.config.claims_voted && !requester.backup.queue.is_empty() => {
                self.declare_owner(at, owner.epoch + 1, cx);
            }
            _ => self.retry(at, cx),
        }
    }

    /// Passes its copy of the queue on if no owner has queued it: the copy may be the only one.
    pub(super) fn withdraw(&mut self, at: usize, cx: &mut Cx<'_, Self>) {
        let Requester { votes, queued_at, backup, .. } = self.stop_waiting(at, cx);
        match (queued_at, backup.owner) {
            (Some(owner), _) => self.send(owner.peer, Message::Withdraw { client: votes.stamp }, cx),
            (None, Some(owner)) if self.config.losers_queued => {
                self.pass_queue(owner, backup.into_copy(cx.now()), cx);
            }
            _ => {}
        }
    }

    pub(super) fn stop_waiting(&mut self, at: usize, cx: &mut Cx<'_, Self>) -> Requester {
        let requester = self.requesters.remove(at);
        cx.cancel_timer(Timer::Wake(requester.votes.ticket));
        for replica in requester.votes.mine().iter() {
            let (client, fencing) = (requester.votes.stamp, self.common.fencing);
            self.common.send(replica, sigma::Message::Release { replica, client, fencing }, cx);
        }
        requester
    }
}

impl fmt::Display for Requester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.queued_at {
            Some(owner) => write!(f, "{} queued at {owner}", self.votes.stamp),
            None => {
                let votes: Vec<u32> = self.votes.mine().iter().collect();
                write!(f, "{} waits, votes {votes:?}", self.votes.stamp)
            }
        }
    }
}
