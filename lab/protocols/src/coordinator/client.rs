//! The client side (Figure 1, *Client side*).

use alloc::format;
use alloc::vec::Vec;
use core::fmt;

use peerlock_types::{PeerId, Span, Ticket, Time};

use super::message::{Entry, Holder, Message, Place, Timer};
use super::{Common, Config, Coordinator, Forecast, is_same, write_queue};
use crate::outbox::{Outbox, To};
use crate::replicas::write_parts;
use crate::token::Claim;
use crate::{Cx, Grant, fencing};

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Clients {
    requests: Vec<Request>,
    /// *Queue*: the known waiters. Empty without a request.
    queue: Vec<Entry>,
    coordinator: u32,
    /// The highest known number: a grant with a lower one has ended.
    newest: u64,
    t_cs: Option<Span>,
    clock: u64,
    /// Unconfirmed RELEASEs.
    outbox: Outbox<Message>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Request {
    ticket: Ticket,
    stamp: u64,
    place: Option<Place>,
    phase: Phase,
    /// The coordinator starts no other chain before, by this peer's clock.
    lease_until: Time,
    is_responsive: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Waiting,
    /// It may enter under this number once it knows the end of the lease.
    Turn(u64),
    Holding(u64),
}

impl Request {
    fn number(&self) -> Option<u64> {
        match self.phase {
            Phase::Waiting => None,
            Phase::Turn(number) | Phase::Holding(number) => Some(number),
        }
    }
}

impl Clients {
    /// In print a client is identified by its peer.
    fn at(&self, ticket: Ticket, config: &Config) -> Option<usize> {
        self.requests.iter().position(|request| !config.requests_apart || request.ticket == ticket)
    }

    pub fn request(&mut self, ticket: Ticket, common: &mut Common, cx: &mut Cx<'_, Coordinator>) {
        self.clock += 1;
        let (phase, is_responsive) = (Phase::Waiting, common.config.one_asked);
        let request = Request { ticket, stamp: self.clock, place: None, phase, lease_until: Time::ZERO, is_responsive };
        self.requests.push(request);
        self.send_request(self.requests.len() - 1, common, cx);
    }

    /// Sends, repeats or renews a REQUEST.
    fn send_request(&mut self, at: usize, common: &mut Common, cx: &mut Cx<'_, Coordinator>) {
        let Request { ticket, stamp, place, phase, is_responsive, .. } = self.requests[at];
        let (client, holds) = (Claim { peer: common.sender.me, ticket }, self.requests[at].number());
        let (newest, is_holding, alone, sent) =
            (self.newest, matches!(phase, Phase::Holding(_)), is_responsive, cx.now());
        for to in if alone { self.coordinator..self.coordinator + 1 } else { common.all() } {
            let message = Message::Request { to, client, stamp, place, holds, is_holding, newest, alone, sent };
            common.send(to, message, cx);
        }
        self.requests[at].is_responsive = false;
        self.set_timer(at, common, cx);
    }

    fn set_timer(&self, at: usize, common: &Common, cx: &mut Cx<'_, Coordinator>) {
        let (Request { ticket, phase, is_responsive, lease_until, .. }, config) = (&self.requests[at], &common.config);
        let after = match phase {
            Phase::Holding(_) if config.owner_lease => {
                let left = lease_until.since(cx.now());
                Some((config.lease / 3).min(config.retry.max(left / 2)).min(left))
            }
            Phase::Holding(_) => None,
            _ if !config.resends => None,
            Phase::Waiting if *is_responsive => Some(config.lease / 3),
            Phase::Waiting | Phase::Turn(_) => Some(config.retry),
        };
        match after {
            Some(after) => cx.set_timer(Timer::Wake(*ticket), after),
            None => cx.cancel_timer(Timer::Wake(*ticket)),
        }
    }

    pub fn on_response(&mut self, message: Message, common: &mut Common, cx: &mut Cx<'_, Coordinator>) {
        let Message::Response { client, from, place, owner, queue, until, t_cs } = message else { return };
        let me = Claim { peer: common.sender.me, ticket: client };
        self.newest = self.newest.max(owner.map_or(0, |owner| owner.number));
        let is_mine = owner.filter(|owner| owner.client == me);
        let Some(at) = self.at(client, &common.config) else {
            if let Some(mine) = is_mine {
                self.return_grant(mine, common, cx);
            }
            return;
        };
        (self.coordinator, self.t_cs) = (from, t_cs.or(self.t_cs));
        let request = &mut self.requests[at];
        (request.is_responsive, request.place) = (true, place.or(request.place));
        request.lease_until = request.lease_until.max(until);
        if let Some(queue) = queue {
            queue.iter().for_each(|entry| self.merge_clock(*entry, &common.config));
            self.queue = queue;
        }
        match (is_mine, self.requests[at].phase) {
            (Some(mine), Phase::Waiting | Phase::Turn(_)) => self.enter_or_ask(at, mine.number, common, cx),
            (None, Phase::Turn(number)) if number < self.newest => {
                self.requests[at].phase = Phase::Waiting;
                self.set_timer(at, common, cx);
            }
            (None, Phase::Waiting) => self.set_timer(at, common, cx),
            _ => {}
        }
    }

    /// Enters if the known lease end is in the future; otherwise requests a new one. A lease end is valid for the owner
    /// that was named with it and for later ones.
    fn enter_or_ask(&mut self, at: usize, number: u64, common: &mut Common, cx: &mut Cx<'_, Coordinator>) {
        if common.config.owner_lease && number < self.newest {
            return;
        }
        let request = &mut self.requests[at];
        if !common.config.owner_lease || request.lease_until > cx.now() {
            request.phase = Phase::Holding(number);
            cx.grant(request.ticket, Grant { slot: 0, fencing: number });
            self.set_timer(at, common, cx);
        } else if request.phase != Phase::Turn(number) {
            request.phase = Phase::Turn(number);
            self.send_request(at, common, cx);
        }
    }

    pub fn on_add_request(&mut self, entry: Entry, config: &Config) {
        self.merge_clock(entry, config);
        if !self.requests.is_empty()
            && let Err(at) = self.queue.binary_search(&entry)
        {
            self.queue.insert(at, entry);
        }
    }

    fn merge_clock(&mut self, entry: Entry, config: &Config) {
        if !config.coordinator_numbers {
            self.clock = self.clock.max(entry.place.count);
        }
    }

    /// Figure 1, *RELEASE*: the token.
    pub fn on_release(
        &mut self,
        client: Claim,
        number: Option<u64>,
        successor: Option<Claim>,
        common: &mut Common,
        cx: &mut Cx<'_, Coordinator>,
    ) {
        let next = number.map_or(0, |number| number + 1);
        if !common.config.named_successor && number.is_some() {
            // In print the head of the own queue enters.
            let first = (!self.queue.is_empty()).then(|| self.queue.remove(0));
            if let Some(first) = first.filter(|first| first.client.peer == common.sender.me)
                && let Some(at) = self.at(first.client.ticket, &common.config)
                && self.requests[at].phase == Phase::Waiting
            {
                self.enter_or_ask(at, next, common, cx);
            }
            return;
        }
        self.queue.retain(|entry| entry.client != client && Some(entry.client) != successor);
        let Some(successor) = successor.filter(|successor| successor.peer == common.sender.me) else { return };
        match self.at(successor.ticket, &common.config).map(|at| (at, self.requests[at].phase)) {
            Some((at, Phase::Waiting)) => self.enter_or_ask(at, next, common, cx),
            Some((at, Phase::Turn(number))) if number < next => self.enter_or_ask(at, next, common, cx),
            Some(_) => {} // A duplicate.
            None => self.return_grant(Holder { client: successor, number: next }, common, cx),
        }
    }

    /// Figure 1, *releasing*; and withdrawal.
    pub fn release(&mut self, ticket: Ticket, common: &mut Common, cx: &mut Cx<'_, Coordinator>) {
        let Some(at) = self.requests.iter().position(|request| request.ticket == ticket) else { return };
        let request = self.requests.remove(at);
        cx.cancel_timer(Timer::Wake(ticket));
        let client = Claim { peer: common.sender.me, ticket };
        self.queue.retain(|entry| !is_same(entry.client, client, &common.config));
        let successor = match request.phase {
            // A chain is shorter than a leap.
            Phase::Holding(number) if common.config.named_successor && (number + 1) % fencing::LEAP != 0 => {
                self.queue.first().map(|entry| entry.client)
            }
            _ => None,
        };
        self.notify_replicas(client, request.number(), (successor, self.last()), common, cx);
        for peer in peers(&self.queue) {
            let (number, last) = (request.number(), self.last());
            common.sender.send(peer, Message::Release { to: None, client, number, successor, last, receipt: 0 }, cx);
        }
        self.clear_queue_if_idle();
    }

    fn clear_queue_if_idle(&mut self) {
        if self.requests.is_empty() {
            self.queue.clear();
        }
    }

    fn last(&self) -> Option<Place> {
        self.queue.last().map(|entry| entry.place)
    }

    /// Returns a grant for a finished request to the coordinator, unless a RELEASE for it is pending.
    fn return_grant(&mut self, unwanted: Holder, common: &mut Common, cx: &mut Cx<'_, Coordinator>) {
        let has_gone = |message: &Message| match *message {
            Message::Release { client, number, .. } => client == unwanted.client && number >= Some(unwanted.number),
            _ => false,
        };
        if common.config.requests_apart && !self.outbox.pending().any(has_gone) {
            self.notify_replicas(unwanted.client, Some(unwanted.number), (None, None), common, cx);
        }
    }

    fn notify_replicas(
        &mut self,
        client: Claim,
        number: Option<u64>,
        (successor, last): (Option<Claim>, Option<Place>),
        common: &mut Common,
        cx: &mut Cx<'_, Coordinator>,
    ) {
        for to in if common.config.one_asked { self.coordinator..self.coordinator + 1 } else { common.all() } {
            let release = |receipt| Message::Release { to: Some(to), client, number, successor, last, receipt };
            if !common.config.resends {
                common.send(to, release(0), cx);
            } else if self.outbox.send(To::Replica(to), release, &mut common.sender, cx) {
                cx.set_timer(Timer::Resend, common.config.retry);
            }
        }
    }

    pub fn on_got(&mut self, receipt: u64, cx: &mut Cx<'_, Coordinator>) {
        let Some(Message::Release { client: released, number: under, .. }) = self.outbox.on_receipt(receipt) else {
            return;
        };
        self.outbox.discard(|message| {
            matches!(*message, Message::Release { client, number, .. } if (client, number) == (released, under))
        });
        if self.outbox.is_empty() {
            cx.cancel_timer(Timer::Resend);
        }
    }

    /// Resends RELEASEs for two lease times: then no replica considers the client the owner.
    pub fn on_resend(&mut self, common: &mut Common, cx: &mut Cx<'_, Coordinator>) {
        let tries = common.config.lease.as_nanos() * 2 / common.config.retry.as_nanos().max(1);
        let tries = u32::try_from(tries).unwrap_or(u32::MAX);
        self.outbox.resend(tries, &mut common.sender, cx);
        let one_asked = common.config.one_asked;
        for message in self.outbox.pending().filter(|_| one_asked) {
            let Message::Release { to: Some(asked), client, number, successor, last, receipt } = *message else {
                continue;
            };
            for to in common.all().filter(|&to| to != asked) {
                common.send(to, Message::Release { to: Some(to), client, number, successor, last, receipt }, cx);
            }
        }
        if !self.outbox.is_empty() {
            cx.set_timer(Timer::Resend, common.config.retry);
        }
    }

    pub fn on_wake(&mut self, ticket: Ticket, common: &mut Common, cx: &mut Cx<'_, Coordinator>) {
        let Some(at) = self.requests.iter().position(|request| request.ticket == ticket) else { return };
        let request = &self.requests[at];
        if matches!(request.phase, Phase::Holding(_)) && request.lease_until <= cx.now() {
            cx.lost(ticket);
            return self.end_lost(at, common, cx);
        }
        self.send_request(at, common, cx);
    }

    /// The lease has expired (§4.4).
    fn end_lost(&mut self, at: usize, common: &mut Common, cx: &mut Cx<'_, Coordinator>) {
        let request = self.requests.remove(at);
        let client = Claim { peer: common.sender.me, ticket: request.ticket };
        self.queue.retain(|entry| entry.client != client);
        self.clear_queue_if_idle();
        self.notify_replicas(client, request.number(), (None, None), common, cx);
    }

    pub fn forecast(&self, ticket: Ticket) -> Option<Forecast> {
        let request = self.requests.iter().find(|request| request.ticket == ticket)?;
        let place = request.place.filter(|_| request.phase == Phase::Waiting)?;
        let before = self.queue.iter().filter(|entry| entry.place < place).count() as u64;
        Some(Forecast { ahead: before + 1, wait: self.t_cs.map(|t_cs| t_cs * (before + 1)) })
    }
}

impl fmt::Display for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.requests.is_empty() {
            return f.write_str("idle");
        }
        let parts = self.requests.iter().map(|Request { ticket, phase, .. }| match phase {
            Phase::Waiting => format!("{ticket} waits"),
            Phase::Turn(number) => format!("{ticket} next under {number}"),
            Phase::Holding(number) => format!("{ticket} holds under {number}"),
        });
        write_parts(f, parts)?;
        write_queue(f, self.queue.iter())
    }
}

pub(super) fn peers<'a>(queue: impl IntoIterator<Item = &'a Entry>) -> Vec<PeerId> {
    let mut peers: Vec<PeerId> = queue.into_iter().map(|entry| entry.client.peer).collect();
    peers.sort_unstable();
    peers.dedup();
    peers
}
