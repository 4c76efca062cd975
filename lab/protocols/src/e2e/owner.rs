//! The owner's side: the token, its queue, and hand-over.

use alloc::vec::Vec;
use core::fmt;
use core::mem::take;

use peerlock_types::{PeerId, Ticket, Time};

use super::message::{By, Copy, Enqueue, Message, Owner, Timer};
use super::requester::Backup;
use super::{Config, E2e};
use crate::outbox::To;
use crate::sigma::client::{Client, Phase};
use crate::sigma::replica::Entry;
use crate::sigma::{self, Stamp};
use crate::token::Claim;
use crate::{Cx, Grant};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Token {
    pub owner: Owner,
    lease: Client,
    /// The holder; `None` while the lease must be renewed before a hand-over.
    pub user: Option<Ticket>,
    pub queue: Vec<Entry>,
    sequence: u64,
    is_new: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Past {
    pub owner: Owner,
    pub successor: Option<Owner>,
    ended: Time,
}

impl Token {
    fn new(owner: Owner, lease: Client, backup: Backup) -> Self {
        let Backup { sequence: (_, sequence), queue, .. } = backup;
        Self { owner, lease, user: None, queue, sequence, is_new: false }
    }

    fn until(&self) -> Time {
        match self.lease.phase {
            Phase::Holding { until } => until,
            Phase::Idle | Phase::Waiting => Time::ZERO,
        }
    }

    /// §IV.A, step 5: *kept sorted by Lamport timestamps*.
    pub fn enqueue(&mut self, entry: Entry) -> bool {
        let place = self.queue.binary_search_by_key(&entry.client, |waiting| waiting.client);
        match place {
            Ok(at) => self.queue[at].refresh(entry),
            Err(at) => self.queue.insert(at, entry),
        }
        place.is_err()
    }

    fn copy(&self, now: Time) -> Copy {
        Copy { sequence: self.sequence, queue: self.queue.iter().map(|entry| entry.into_waiting(now)).collect() }
    }
}

impl E2e {
    /// §IV.A, step 4: *it sends an IAMWINNER message to all the replicas*.
    pub(super) fn win(&mut self, at: usize, cx: &mut Cx<'_, Self>) {
        let requester = self.requesters.remove(at);
        cx.cancel_timer(Timer::Wake(requester.votes.ticket));
        let (stamp, ticket) = (requester.votes.stamp, requester.votes.ticket);
        let owner = Owner { epoch: requester.votes.number, elected: stamp, peer: self.me() };
        self.install(Token::new(owner, requester.votes, requester.backup), Some((stamp, ticket)), cx);
        self.send_to_all(|replica| Message::IAmWinner { replica, owner }, cx);
        let queue: Vec<Stamp> = self.token.iter().flat_map(|token| &token.queue).map(|entry| entry.client).collect();
        for to in queue {
            self.send(to.peer(), Message::Queued { to, owner, copy: None }, cx);
        }
    }

    /// §V.A as printed: *this node routes a message to all the replicas notifying itself as the owner*.
    pub(super) fn declare_owner(&mut self, at: usize, epoch: u64, cx: &mut Cx<'_, Self>) {
        let requester = self.stop_waiting(at, cx);
        let (stamp, ticket) = (requester.votes.stamp, requester.votes.ticket);
        let owner = Owner { epoch, elected: stamp, peer: self.me() };
        let lease = Client::replacement(ticket, stamp, Time::END, self.common.quorum().replicas());
        self.install(Token::new(owner, lease, requester.backup), Some((stamp, ticket)), cx);
        cx.grant(ticket, Grant { slot: 0, fencing: epoch });
        self.send_to_all(|replica| Message::IAmWinner { replica, owner }, cx);
    }

    fn install(&mut self, mut token: Token, user: Option<(Stamp, Ticket)>, cx: &mut Cx<'_, Self>) {
        self.merge_clocks(token.owner.elected, token.owner.epoch);
        token.user = user.map(|(_, ticket)| ticket);
        token.queue.retain(|entry| user.is_none_or(|(stamp, _)| entry.client != stamp));
        let (early, owner) = (take(&mut self.early), token.owner);
        for &entry in early.iter().filter(|entry| user.is_none_or(|(stamp, _)| entry.client != stamp)) {
            token.enqueue(entry);
        }
        let has_queue = !token.queue.is_empty();
        self.token = Some(token);
        for Entry { client: to, .. } in early {
            self.send(to.peer(), Message::Queued { to, owner, copy: None }, cx);
        }
        if has_queue {
            self.queue_changed(cx);
        }
    }

    /// §IV.A, step 5; and PING (§V.A).
    pub(super) fn on_enqueue(&mut self, from: PeerId, wanted: Enqueue, cx: &mut Cx<'_, Self>) {
        let to = wanted.client.client;
        self.merge_clocks(to, 0);
        if let Some(token) = &mut self.token {
            if to.peer() == token.owner.peer && token.user == Some(to.client.ticket) {
                return;
            }
            let (is_new, owner) = (token.enqueue(wanted.client.arrived(cx.now())), token.owner);
            if is_new || wanted.again {
                self.send(to.peer(), Message::Queued { to, owner, copy: None }, cx);
            }
            if is_new {
                self.queue_changed(cx);
            }
            return;
        }
        let is_parked = !self.config.marks_of_winners && !self.requesters.is_empty();
        match self.past.last().copied().filter(|past| past.owner.epoch >= wanted.owner.epoch && !is_parked) {
            Some(past) if self.config.losers_queued => self.redirect(from, wanted, past, cx),
            Some(_) => {}
            // The request has overtaken the token.
            None if self.early.len() >= Config::MAX_EARLY || self.early.iter().any(|entry| entry.client == to) => {}
            None => self.early.push(wanted.client.arrived(cx.now())),
        }
    }

    fn redirect(&mut self, from: PeerId, wanted: Enqueue, past: Past, cx: &mut Cx<'_, Self>) {
        let Past { owner: Owner { epoch, .. }, successor, .. } = past;
        let (client, elected, fencing) = (wanted.client, wanted.owner.elected, self.common.fencing);
        let is_direct = wanted.detours == 0;
        match (successor, wanted.by) {
            (Some(owner), By::Hop(replica) | By::Replica(replica)) if is_direct => {
                self.send(from, Message::Release { replica, owner }, cx);
            }
            (None, By::Hop(replica)) if is_direct => {
                self.send(from, Message::Forget { replica, epoch: epoch + 1 }, cx);
            }
            (None, By::Replica(replica)) if is_direct => {
                return self.send(from, Message::Back { replica, client, elected, fencing }, cx);
            }
            _ => {}
        }
        match successor {
            Some(owner) if wanted.detours < Config::MAX_DETOURS => {
                let onward = Enqueue { owner, detours: wanted.detours + 1, ..wanted };
                self.send(owner.peer, Message::Enqueue(onward), cx);
            }
            _ => self.send(client.client.peer(), Message::Astray { to: client.client, epoch }, cx),
        }
    }

    pub(super) fn on_withdraw(&mut self, client: Stamp, cx: &mut Cx<'_, Self>) {
        let Some(token) = &mut self.token else { return };
        let before = token.queue.len();
        token.queue.retain(|entry| entry.client != client);
        if token.queue.len() < before {
            self.queue_changed(cx);
        }
    }

    /// §V.A: *whenever the request queue is updated, this change is propagated*.
    pub(super) fn queue_changed(&mut self, cx: &mut Cx<'_, Self>) {
        let Some(token) = &mut self.token else { return };
        token.sequence += 1;
        if self.config.backups > 0 && !token.is_new {
            token.is_new = true;
            cx.set_timer(Timer::Update, self.config.update);
        }
    }

    pub(super) fn update(&mut self, cx: &mut Cx<'_, Self>) {
        let me = self.me();
        let Some(token) = &mut self.token else { return };
        token.is_new = false;
        let (owner, copy) = (token.owner, token.copy(cx.now()));
        let first = token.queue.iter().map(|entry| entry.client).filter(|client| client.peer() != me);
        for to in first.take(self.config.backups).collect::<Vec<_>>() {
            self.send(to.peer(), Message::Queued { to, owner, copy: Some(copy.clone()) }, cx);
        }
    }

    pub(super) fn on_renewed(&mut self, response: sigma::Message, cx: &mut Cx<'_, Self>) {
        let Some(token) = &mut self.token else { return };
        token.lease.on_response(response, &mut self.common, cx);
        if token.user.is_none() && !self.is_short(cx.now()) {
            self.end_turn(cx);
        }
    }

    pub(super) fn on_renewal(&mut self, id: Ticket, cx: &mut Cx<'_, Self>) {
        if let Some(token) = self.token.as_mut().filter(|token| token.lease.id() == id) {
            token.lease.ask(&mut self.common, cx);
        }
    }

    /// Sets the renewal timer again: a client may have set the timer of the same name.
    pub(super) fn watch_owner(&self, id: Ticket, cx: &mut Cx<'_, Self>) {
        if let Some(token) = self.token.as_ref().filter(|token| token.lease.id() == id) {
            token.lease.wake_to_renew(token.until(), &self.common, cx);
        }
    }

    pub(super) fn expire(&mut self, cx: &mut Cx<'_, Self>) {
        let Some(token) = self.token.as_mut().filter(|token| token.until() <= cx.now()) else { return };
        if let Some(ticket) = token.user.take() {
            cx.lost(ticket);
        }
        self.end_turn(cx);
    }

    fn is_short(&self, now: Time) -> bool {
        let left = self.token.as_ref().map(|token| token.until().since(now));
        self.config.leases && left.is_some_and(|left| left < self.config.lease / 3)
    }

    /// §IV.A, steps 6 and 7. Renews a lease that is almost over first; an expired token is only a queue.
    pub(super) fn end_turn(&mut self, cx: &mut Cx<'_, Self>) {
        let is_short = self.is_short(cx.now());
        let Some(token) = &mut self.token else { return };
        let is_over = token.until() <= cx.now();
        if token.queue.is_empty() || is_over {
            return self.end_reign(cx);
        }
        if is_short {
            return token.lease.ask(&mut self.common, cx);
        }
        let next = token.queue.remove(0);
        self.queue_changed(cx);
        if next.client.peer() != self.me() {
            return self.hand_over(next, cx);
        }
        match self.requester(next.client) {
            Some(at) => self.enter(at, cx),
            None => self.end_turn(cx),
        }
    }

    fn enter(&mut self, at: usize, cx: &mut Cx<'_, Self>) {
        let ticket = self.stop_waiting(at, cx).votes.ticket;
        let Some(token) = &mut self.token else { return };
        let before = token.owner;
        token.owner.epoch += 1;
        token.user = Some(ticket);
        self.common.fencing = self.common.fencing.max(token.owner.epoch);
        cx.grant(ticket, Grant { slot: 0, fencing: token.owner.epoch });
        let past = Past { owner: before, successor: Some(token.owner), ended: cx.now() };
        self.remember(past, cx.now());
    }

    fn hand_over(&mut self, next: Entry, cx: &mut Cx<'_, Self>) {
        let Some(token) = self.token.take() else { return };
        let Owner { epoch, elected, .. } = token.owner;
        let owner = Owner { epoch: epoch + 1, elected, peer: next.client.peer() };
        self.retire(&token, Some(owner), cx);
        self.send_token((next.client, owner), next.client_clock(token.until()), token.copy(cx.now()), cx);
        let fencing = self.common.fencing;
        let is_named = self.config.successor_named;
        let blank = |replica| sigma::Message::Release { replica, client: elected, fencing }.into();
        self.send_to_all(|replica| if is_named { Message::Release { replica, owner } } else { blank(replica) }, cx);
        for requester in &mut self.requesters {
            requester.moved(token.owner.peer, owner);
        }
    }

    /// §IV.A, step 6, without waiters; or the lease has expired.
    fn end_reign(&mut self, cx: &mut Cx<'_, Self>) {
        let Some(mut token) = self.token.take() else { return };
        self.retire(&token, None, cx);
        token.lease.release(&mut self.common, cx);
        self.send_queue(token.owner, token.copy(cx.now()), cx);
        let me = self.me();
        for at in 0..self.requesters.len() {
            if self.requesters[at].queued_at.is_some_and(|queued_at| queued_at.peer == me) {
                self.retry(at, cx);
            }
        }
    }

    /// Sends the queue of an invalid token, or of one whose receiver is silent.
    pub(super) fn send_queue(&mut self, owner: Owner, mut rest: Copy, cx: &mut Cx<'_, Self>) {
        let me = self.me();
        if let Some(at) = rest.queue.iter().position(|waiting| waiting.client.peer() != me) {
            let to = rest.queue.remove(at).client;
            self.send_token((to, Owner { peer: to.peer(), ..owner }), Time::ZERO, rest, cx);
        }
    }

    /// Passes a queue to the first of its waiters that is at another peer, or still waits here.
    pub(super) fn pass_queue(&mut self, owner: Owner, mut rest: Copy, cx: &mut Cx<'_, Self>) {
        while !rest.queue.is_empty() {
            let to = rest.queue.remove(0).client;
            if to.peer() != self.me() {
                return self.send_token((to, Owner { peer: to.peer(), ..owner }), Time::ZERO, rest, cx);
            }
            if let Some(at) = self.requester(to) {
                self.requesters[at].backup = Backup::new(owner, rest, cx.now());
                return self.retry(at, cx);
            }
        }
    }

    fn send_token(&mut self, (to, owner): (Stamp, Owner), until: Time, rest: Copy, cx: &mut Cx<'_, Self>) {
        let message = |receipt| Message::Token { receipt, to, owner, until, rest };
        if !self.config.acknowledged {
            return self.send(owner.peer, message(0), cx);
        }
        if self.outbox.send(To::Peer(owner.peer), message, &mut self.common.sender, cx) {
            cx.set_timer(Timer::Again, self.config.retry);
        }
    }

    fn retire(&mut self, token: &Token, successor: Option<Owner>, cx: &mut Cx<'_, Self>) {
        cx.cancel_timer(Timer::Update);
        cx.cancel_timer(sigma::Timer::Wake(token.lease.id()).into());
        self.remember(Past { owner: token.owner, successor, ended: cx.now() }, cx.now());
    }

    /// A duplicate token must be recognized during its lease, and an election while votes for it may be counted.
    fn remember(&mut self, past: Past, now: Time) {
        self.past.retain(|past| now.since(past.ended) <= self.config.lease);
        self.past.push(past);
    }

    /// §IV.A, step 7, at the next waiter.
    pub(super) fn on_token(&mut self, to: Stamp, owner: Owner, until: Time, rest: Copy, cx: &mut Cx<'_, Self>) {
        let same = |past: &Past| past.owner.elected == owner.elected && past.owner.epoch >= owner.epoch;
        let is_valid = !self.config.leases || until > cx.now();
        let is_old = self.past.iter().any(same);
        self.merge_clocks(owner.elected, owner.epoch);
        if is_old && (is_valid || until > Time::ZERO) {
            return;
        }
        if !is_valid {
            return self.on_queue(to, owner, until, rest, cx);
        }
        if self.token.is_some() {
            return; // The token here is of a later reign.
        }
        let backup = Backup::new(owner, rest, cx.now());
        let waits = self.requester(to);
        let ticket = to.client.ticket;
        let lease = Client::replacement(ticket, owner.elected, until, self.common.quorum().replicas());
        let user = waits.map(|_| (to, ticket));
        self.install(Token::new(owner, lease, backup), user, cx);
        match waits {
            Some(at) => {
                let requester = self.stop_waiting(at, cx);
                cx.grant(ticket, Grant { slot: 0, fencing: owner.epoch });
                self.watch_lease(until, cx);
                if requester.queued_at.is_none() {
                    self.adopt(requester.backup.queue, cx); // Perhaps the only copy.
                }
            }
            None => self.end_turn(cx),
        }
    }

    /// Handles a token that is only a queue.
    fn on_queue(&mut self, to: Stamp, owner: Owner, until: Time, rest: Copy, cx: &mut Cx<'_, Self>) {
        match (&self.token, self.requester(to)) {
            (Some(token), _) if token.owner.elected == owner.elected => {} // A duplicate.
            (Some(_), _) => self.adopt(Backup::new(owner, rest, cx.now()).queue, cx),
            (None, None) => self.pass_queue(owner, rest, cx),
            (None, Some(at)) => {
                if until > Time::ZERO {
                    // Unused, it was a right to enter for this request only: the reign has ended.
                    self.remember(Past { owner, successor: None, ended: cx.now() }, cx.now());
                    let (client, fencing) = (owner.elected, self.common.fencing);
                    self.send_to_all(|replica| sigma::Message::Release { replica, client, fencing }.into(), cx);
                }
                self.requesters[at].backup = Backup::new(owner, rest, cx.now());
                self.retry(at, cx);
            }
        }
    }

    fn adopt(&mut self, queue: Vec<Entry>, cx: &mut Cx<'_, Self>) {
        let Some(token) = &mut self.token else { return };
        let (owner, user) = (token.owner, token.user.map(|ticket| Claim { peer: token.owner.peer, ticket }));
        let mut changes = Vec::new();
        for entry in queue.into_iter().filter(|entry| Some(entry.client.client) != user) {
            if token.enqueue(entry) {
                changes.push(entry.client);
            }
        }
        if !changes.is_empty() {
            self.queue_changed(cx);
        }
        for to in changes {
            self.send(to.peer(), Message::Queued { to, owner, copy: None }, cx);
        }
    }

    /// Renews an inherited lease after a third of it.
    fn watch_lease(&mut self, until: Time, cx: &mut Cx<'_, Self>) {
        let Some(token) = &mut self.token else { return };
        if self.config.leases && until.since(cx.now()) < self.config.lease * 2 / 3 {
            token.lease.ask(&mut self.common, cx);
        } else {
            token.lease.wake_to_renew(until, &self.common, cx);
        }
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queue: Vec<Stamp> = self.queue.iter().map(|entry| entry.client).collect();
        write!(f, "{}, then {queue:?}", self.owner)
    }
}
