//! The replica side (Figure 6).

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;
use core::hash::{Hash, Hasher};

use peerlock_types::{PeerId, Span, Time};

use super::message::{Message, Number, Stamp, Timer};
use super::{Common, Config, Voting};
use crate::replicas::{by_any_clock, mean};
use crate::{Cx, fencing};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Replica {
    pub index: u32,
    /// *C_owner*, *T_owner*.
    owner: Option<Owner>,
    /// *Queue*. New requests usually join at the end.
    queue: VecDeque<Entry>,
    number: Number,
    fencing: u64,
    clock: u64,
    lease_timer_runs: bool,
    released: Option<Time>,
    /// T_CS.
    t_cs: Option<Span>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Entry {
    pub client: Stamp,
    /// Send time by the client's clock; `arrived` is by the replica's.
    pub sent: Time,
    pub arrived: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Owner {
    entry: Entry,
    /// Receives messages for the owner: its peer, or its successor.
    speaker: PeerId,
    granted: Time,
    until: Time,
}

impl Owner {
    /// The end of the lease by the client's clock, rounded down: the request arrived after it was sent.
    fn until_by_client_clock(&self) -> Time {
        self.entry.sent + by_any_clock(self.until.since(self.entry.arrived))
    }
}

impl Replica {
    pub fn new(index: u32, incarnation: u64) -> Self {
        Self {
            index,
            owner: None,
            queue: VecDeque::new(),
            number: Number { incarnation, count: 0 },
            fencing: incarnation,
            clock: 0,
            lease_timer_runs: false,
            released: None,
            t_cs: None,
        }
    }

    pub fn reset<P: Voting>(&mut self, incarnation: u64, cx: &mut Cx<'_, P>) {
        cx.cancel_timer(Timer::Lease(self.index).into());
        *self = Self::new(self.index, incarnation);
    }

    pub fn merge_clocks(&mut self, client: Stamp, fencing: u64) {
        self.clock = self.clock.max(client.time);
        self.fencing = self.fencing.max(fencing);
    }

    /// Figure 6, *OnRequest(C, timestamp)*.
    pub fn on_request<P: Voting>(&mut self, entry: Entry, common: &mut Common<P::Message>, cx: &mut Cx<'_, P>) {
        let client = entry.client;
        self.expire(common, cx);
        let Some(owner) = &mut self.owner else {
            return self.grant(entry, common, cx);
        };
        if common.config.idempotent_requests && owner.entry.client == client {
            owner.until = cx.now() + common.config.lease;
            owner.entry.refresh(entry);
            return self.respond(client, 0, common, cx);
        }
        let (position, is_known) = self.enqueue(entry, &common.config);
        self.respond(client, position, common, cx);
        self.inquire(position, is_known, common, cx);
    }

    pub fn merge<M>(&mut self, entry: Entry, common: &Common<M>) {
        self.merge_clocks(entry.client, 0);
        if !self.is_owner(entry.client, common) {
            self.enqueue(entry, &common.config);
        }
    }

    /// Grants or inquires after calls of `merge`.
    pub fn finish_merge<P: Voting>(&mut self, common: &mut Common<P::Message>, cx: &mut Cx<'_, P>) {
        if self.owner.is_none() {
            self.resp_queue(common, cx);
        } else if !self.queue.is_empty() {
            self.inquire(0, false, common, cx);
        }
    }

    pub fn owner(&self) -> Option<Stamp> {
        self.owner.map(|owner| owner.entry.client)
    }

    pub fn speaker(&self, client: Stamp) -> Option<PeerId> {
        self.owner.filter(|owner| owner.entry.client == client).map(|owner| owner.speaker)
    }

    /// Makes `peer` the receiver of the owner's messages. Its clock is unknown, so it has no lease before its REQUEST.
    pub fn set_speaker(&mut self, client: Stamp, peer: PeerId) {
        if let Some(owner) = self.owner.as_mut().filter(|owner| owner.entry.client == client && owner.speaker != peer) {
            owner.speaker = peer;
            owner.entry.sent = Time::ZERO;
        }
    }

    pub fn answer<P: Voting>(&mut self, to: Stamp, common: &mut Common<P::Message>, cx: &mut Cx<'_, P>) {
        self.respond(to, 0, common, cx);
    }

    pub fn take_queue(&mut self, but: Stamp) -> Vec<Entry> {
        let (stay, go): (Vec<_>, _) = self.queue.drain(..).partition(|entry| entry.client == but);
        self.queue.extend(stay);
        go
    }

    pub fn knows<M>(&self, client: Stamp, common: &Common<M>) -> bool {
        self.is_owner(client, common) || self.position(client, &common.config).is_some()
    }

    /// *Queue.Insert(C, timestamp)*. Returns also whether it was queued before.
    fn enqueue(&mut self, entry: Entry, config: &Config) -> (usize, bool) {
        match self.queue.binary_search_by_key(&entry.client, |waiting| waiting.client) {
            Ok(position) if config.idempotent_requests => {
                self.queue[position].refresh(entry);
                (position, true)
            }
            Ok(position) | Err(position) => {
                self.queue.insert(position, entry);
                (position, false)
            }
        }
    }

    /// Sends `Inquire` on behalf of the first waiter if it is earlier than the owner or retries, and of another if it
    /// is earlier and retries, since the first may have finished.
    fn inquire<P: Voting>(
        &mut self,
        position: usize,
        is_known: bool,
        common: &mut Common<P::Message>,
        cx: &mut Cx<'_, P>,
    ) {
        let (Some(owner), true) = (self.owner, common.config.ask_owner) else { return };
        let earlier = self.queue[position].client < owner.entry.client;
        let asks = if position == 0 { earlier || is_known } else { earlier && is_known };
        if asks {
            let (replica, speaker, owner, number) = (self.index, owner.speaker, owner.entry.client, self.number);
            common.sender.send(speaker, Message::Inquire { replica, owner, number, earlier }.into(), cx);
        }
    }

    /// Figure 6, *OnRelease(C)*.
    pub fn on_release<P: Voting>(&mut self, client: Stamp, common: &mut Common<P::Message>, cx: &mut Cx<'_, P>) {
        if self.is_owner(client, common) {
            self.observe_release(cx.now(), &common.config);
            self.resp_queue(common, cx);
        } else if let Some(position) = self.position(client, &common.config) {
            self.queue.remove(position);
        }
    }

    /// Figure 6, *OnYield(C)*.
    pub fn on_yield<P: Voting>(
        &mut self,
        entry: Entry,
        number: Number,
        common: &mut Common<P::Message>,
        cx: &mut Cx<'_, P>,
    ) {
        let client = entry.client;
        if self.is_owner(client, common) {
            if common.config.numbered_grants && number != self.number {
                return; // Stale.
            }
            if let Some(owner) = self.owner {
                self.enqueue(owner.entry, &common.config);
            }
            self.resp_queue(common, cx);
        }
        if self.is_owner(client, common) {
            return;
        }
        match self.position(client, &common.config) {
            Some(position) => self.respond(client, position, common, cx),
            None if common.config.yield_is_request => self.on_request(entry, common, cx),
            None => self.respond(client, 0, common, cx),
        }
    }

    /// Figure 6, *RespQueue()*.
    fn resp_queue<P: Voting>(&mut self, common: &mut Common<P::Message>, cx: &mut Cx<'_, P>) {
        self.owner = None;
        if let Some(first) = self.queue.pop_front() {
            self.grant(first, common, cx);
        }
    }

    fn grant<P: Voting>(&mut self, entry: Entry, common: &mut Common<P::Message>, cx: &mut Cx<'_, P>) {
        self.number.count += 1;
        let (speaker, until) = (entry.client.peer(), cx.now() + common.config.lease);
        self.owner = Some(Owner { entry, speaker, granted: cx.now(), until });
        if !self.lease_timer_runs {
            self.lease_timer_runs = true;
            cx.set_timer(Timer::Lease(self.index).into(), common.config.lease);
        }
        self.respond(entry.client, 0, common, cx);
    }

    /// *SendResponse(C, C_owner, T_owner)*.
    fn respond<P: Voting>(&self, to: Stamp, position: usize, common: &mut Common<P::Message>, cx: &mut Cx<'_, P>) {
        let owner = self.owner.filter(|owner| owner.entry.client == to);
        let message = Message::Response {
            replica: self.index,
            to: to.client.ticket,
            owner: self.owner.map(|owner| owner.entry.client),
            number: self.number,
            until: owner.map_or(Time::ZERO, |owner| owner.until_by_client_clock()),
            // T_w = T_CS (P + 1/2).
            wait: self.t_cs.map(|t_cs| t_cs * position as u64 + t_cs / 2),
            fencing: self.fencing,
            clock: self.clock,
        };
        common.sender.send(owner.map_or(to.peer(), |owner| owner.speaker), message.into(), cx);
    }

    /// §4.
    pub fn expire<P: Voting>(&mut self, common: &mut Common<P::Message>, cx: &mut Cx<'_, P>) {
        if self.owner.is_some_and(|owner| owner.until <= cx.now()) {
            self.fencing += fencing::LEAP; // The client may have held.
            self.resp_queue(common, cx);
        }
    }

    /// One timer for all owners.
    pub fn on_lease_timer<P: Voting>(&mut self, common: &mut Common<P::Message>, cx: &mut Cx<'_, P>) {
        self.lease_timer_runs = false;
        self.expire(common, cx);
        if let Some(owner) = self.owner.filter(|_| !self.lease_timer_runs) {
            self.lease_timer_runs = true;
            cx.set_timer(Timer::Lease(self.index).into(), owner.until.since(cx.now()));
        }
    }

    /// §4.
    fn observe_release(&mut self, now: Time, config: &Config) {
        let granted = self.owner.map(|owner| owner.granted);
        if let Some(since) = if config.busy_intervals { granted } else { self.released } {
            self.t_cs = Some(mean(self.t_cs, now.since(since)));
        }
        self.released = Some(now);
    }

    /// See [`crate::Observe::digest`].
    pub fn digest(&self, mut state: &mut dyn Hasher) {
        Self { index: 0, ..self.clone() }.hash(&mut state);
    }

    /// Returns whether this RELEASE has no effect here.
    pub fn has_done(&self, release: &Message) -> bool {
        let Message::Release { replica, client, fencing } = *release else { return false };
        let mut entries = self.owner.iter().map(|owner| &owner.entry).chain(&self.queue);
        let is_update =
            self.clock < client.time || self.fencing < fencing || entries.any(|entry| entry.client == client);
        replica != self.index || !is_update
    }

    /// *C = C_owner*.
    fn is_owner<M>(&self, client: Stamp, common: &Common<M>) -> bool {
        self.owner.is_some_and(|owner| is_same(owner.entry.client, client, &common.config))
    }

    /// *Queue.Contains(C)*.
    fn position(&self, client: Stamp, config: &Config) -> Option<usize> {
        if config.requests_apart {
            self.queue.binary_search_by_key(&client, |waiting| waiting.client).ok()
        } else {
            self.queue.iter().position(|waiting| is_same(waiting.client, client, config))
        }
    }
}

/// In print, compares only the clients of two requests.
pub(crate) fn is_same(one: Stamp, other: Stamp, config: &Config) -> bool {
    if config.requests_apart { one == other } else { one.client == other.client }
}

impl Entry {
    pub fn refresh(&mut self, newer: Self) {
        if newer.sent > self.sent {
            *self = newer;
        }
    }
}

impl fmt::Display for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.owner {
            Some(owner) => write!(f, "owner {}, grant {}", owner.entry.client, self.number)?,
            None => write!(f, "owner nil")?,
        }
        if !self.queue.is_empty() {
            write!(f, ", queue {:?}", self.queue.iter().map(|entry| entry.client).collect::<Vec<_>>())?;
        }
        Ok(())
    }
}
