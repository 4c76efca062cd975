//! Acquire: from a request to a confirmed grant.
//!
//! 1. `Input::Acquire` is checked and gets a ticket: `Answer::Ticket`.
//! 2. The first request for a resource in a session joins it: `Command::Join` to the registry, `Outcome::Joined` back.
//! 3. Custody sends `Request` to the coordinator, which answers with an arrival number.
//! 4. While a client waits, `Question::QueueReport` to the coordinator yields its position, `Effect::Progress`; a
//!    request that is stalled for too long, or out of time, ends with the reason.
//! 5. Custody grants a slot: the token is here. A detached grant is persisted first ([`detached`](crate::detached)).
//! 6. The lease begins: `Effect::Granted`, after its record for the takeover file.

use std::collections::BTreeMap;

use peerlock_protocol::custody::MOST_WAITING;
use peerlock_protocol::registry::{EventKind, RegistryEvent};
use peerlock_protocol::token::Claim;
use peerlock_protocol::{self as protocol, Grant};
use peerlock_registry::{Outcome, Refusal, SessionId};
use peerlock_types::{Key, Span, Ticket, Time};

use crate::clients::{Entry, Stage, TicketId, Wait, Wanted};
use crate::node::{Alarm, Draining, Node};
use crate::query::{QueueReport, expected};
use crate::takeover::places::Place;
use crate::testing::mutation::{Mutation, makes};
use crate::wire::Question;
use crate::{Answer, Class, Effect, Error, Event, Progress};

/// The coordinator is asked at these intervals: at most, at first, and for clients that do not wait.
const SURVEY: Span = Span::from_secs(2);
const SURVEY_FIRST: Span = Span::from_millis(100);
const SURVEY_TRY: Span = Span::from_millis(50);
/// How long a client that does not want to wait waits for the registry or a census: longer than these take while all
/// hosts are up.
const TRY_PATIENCE: Span = Span::from_millis(1500);

impl Node {
    pub(crate) fn acquire(&mut self, call: u64, wanted: Wanted) {
        if self.draining != Draining::No || self.is_leaving() {
            return self.answer(call, Err(Error::Stopped));
        }
        if let Some(ticket) = self.clients.same(&wanted) {
            return self.answer(call, Ok(Answer::Ticket(ticket)));
        }
        let limit = self.config.most_clients;
        if self.clients.len() >= limit {
            return self.answer(call, Err(Error::Busy { limit }));
        }
        let resource = wanted.name.key();
        if self.clients.waits(resource) >= MOST_WAITING {
            return self.answer(call, Err(Error::Busy { limit: MOST_WAITING }));
        }
        if let Some(Err(error)) = self.slots_of(resource).map(|slots| wanted.check(slots)) {
            return self.answer(call, Err(error));
        }
        if wanted.detached.is_some() && wanted.detachable().is_none() {
            let message = "a detached grant needs an ID of 1 to 255 bytes and a lease of at most 30 days".to_owned();
            return self.answer(call, Err(Error::Refused { class: Class::BadRequest, message }));
        }
        let (name, label, wait) = (wanted.name.clone(), wanted.label.clone(), wanted.wait);
        // A request that does not wait must not take the place of one that does.
        let client = wanted.client().filter(|_| wait != Wait::Try);
        let (ticket, first) = self.clients.admit(wanted, self.now);
        if let Some(arrival) = client.and_then(|client| self.takeover.reclaim(ticket, &name, client, self.now)) {
            self.clients.arrive(ticket, arrival);
        }
        self.counters.asked += 1;
        self.answer(call, Ok(Answer::Ticket(ticket)));
        if first {
            self.survey.watched.remove(&resource); // Earlier answers are outdated.
        }
        self.request(ticket);
        if self.clients.get(ticket).is_some_and(|entry| !entry.is_held()) {
            self.effects.push(Effect::Event(Event::Waiting { name, label, ticket: ticket.0, ahead: None }));
            if let Wait::For(span) = wait {
                self.timers.set(Alarm::Ticket(ticket), self.now + span);
            }
            self.survey_soon(resource, wait == Wait::Try);
        }
    }

    pub(crate) fn slots_of(&self, resource: Key) -> Option<u32> {
        self.parts.get(resource).filter(|part| part.custody.is_party()).map(|part| part.custody.slots())
    }

    pub(crate) fn request(&mut self, ticket: TicketId) {
        let Some(entry) = self.clients.get(ticket).filter(|_| self.session_state.session().is_some()) else { return };
        let (resource, name) = (entry.resource, entry.wanted.name.clone());
        let arrival = entry.arrival;
        self.open_part(&name);
        match (self.clients.give_alias(ticket), arrival) {
            (Some(alias), None) => self.part_step(resource, protocol::Input::Request(alias)),
            (Some(alias), Some(arrival)) => {
                self.part_apply(resource, |custody, cx| custody.request_again(alias, arrival, cx));
            }
            (None, _) => {}
        }
    }

    /// The coordinator has confirmed arrival numbers.
    pub(crate) fn on_arrivals(&mut self, resource: Key) {
        let Some(part) = self.parts.get(resource) else { return };
        for (alias, arrival) in part.custody.arrivals() {
            if let Some(ticket) = self.clients.by_alias(alias).filter(|it| self.clients.arrive(*it, arrival))
                && let Some(entry) = self.clients.get(ticket)
                && let Some(client) = entry.wanted.client()
            {
                self.takeover.on_arrival(ticket, Place { name: entry.wanted.name.clone(), client, arrival });
            }
        }
    }

    pub(crate) fn request_again(&mut self, ticket: TicketId) {
        self.unrequest(ticket);
        self.clients.wait_again(ticket);
        self.request(ticket);
    }

    pub(crate) fn ask_for_pending(&mut self) {
        let waiting: Vec<TicketId> = self.clients.without_alias().collect();
        waiting.into_iter().for_each(|ticket| self.request(ticket));
    }

    pub(crate) fn on_joined(&mut self, resource: Key, session: SessionId, outcome: Outcome) {
        match outcome {
            Outcome::Joined { generation, coordinator, opened, slots } => {
                self.refuse_mismatches(resource, slots);
                // If the join has opened the generation, its event follows, and must come first.
                if !opened {
                    let (to, coordinator) = (self.own(session), coordinator.1);
                    let event = RegistryEvent { to, generation, kind: EventKind::Joined { coordinator, slots } };
                    self.part_step(resource, protocol::Input::RegistryEvent(event));
                }
            }
            Outcome::Refused(Refusal::Full) => {
                self.parts.on_no_such_name(resource, self.now);
                let waiting: Vec<TicketId> = self.clients.waiting(resource).map(|(ticket, _)| ticket).collect();
                for ticket in waiting {
                    self.clients.take_alias(ticket);
                    let message = Refusal::Full.to_string();
                    self.end(ticket, Error::Refused { class: Class::Busy, message });
                }
            }
            _ => {}
        }
    }

    pub(crate) fn refuse_mismatches(&mut self, resource: Key, slots: u32) {
        let waiting = self.clients.waiting(resource);
        let wrong = waiting.filter_map(|(ticket, entry)| Some((ticket, entry.wanted.check(slots).err()?)));
        wrong.collect::<Vec<_>>().into_iter().for_each(|(ticket, error)| self.end(ticket, error));
    }

    pub(crate) fn survey_soon(&mut self, resource: Key, at_once: bool) {
        if at_once {
            self.survey_queue(resource);
        } else {
            self.timers.set_if_none(Alarm::Survey(resource), self.now + SURVEY_FIRST);
        }
    }

    pub(crate) fn survey_queue(&mut self, resource: Key) {
        self.end_stalled(resource);
        let often = |wait: Wait, ttl: Span| if wait == Wait::Try { SURVEY_TRY } else { ttl / 3 };
        let waiting = self.clients.waiting(resource).map(|(_, entry)| often(entry.wanted.wait, entry.wanted.ttl));
        let Some(after) = waiting.min() else {
            self.survey.watched.remove(&resource);
            return;
        };
        self.timers.set(Alarm::Survey(resource), self.now + after.min(SURVEY));
        let part = self.parts.get(resource).filter(|part| part.custody.is_party());
        let Some(coordinator) = part.map(|part| part.custody.coordinator()) else { return };
        let question = self.survey.ask(resource, coordinator, self.now);
        self.ask(coordinator, question, Question::QueueReport(resource));
    }

    pub(crate) fn on_queue_report(&mut self, resource: Key, queue: &QueueReport) {
        let me = self.host();
        let behind = queue.behind.iter().map(|&(ticket, place)| (Claim { peer: me, ticket }, place));
        let places: BTreeMap<Claim, u32> = queue.waiting.iter().copied().zip(0..).chain(behind).collect();
        let waiting = self.clients.waiting(resource);
        let claims = waiting.filter_map(|(id, entry)| Some((id, Claim { peer: me, ticket: entry.alias()? })));
        for (ticket, claim) in claims.collect::<Vec<_>>() {
            // A request that is not in the queue is on its way to the coordinator, or its token is on its way here.
            if let Some(&ahead) = places.get(&claim) {
                let is_on_way = queue.locations.iter().any(|location| location.free && location.next == Some(claim));
                self.set_position(ticket, ahead, is_on_way);
            }
        }
    }

    /// Updates a position. A client that does not wait fails, unless a free token is on its way to it.
    fn set_position(&mut self, ticket: TicketId, ahead: u32, is_on_way: bool) {
        let Some(entry) = self.clients.get(ticket) else { return };
        let (name, label) = (entry.wanted.name.clone(), entry.wanted.label.clone());
        if entry.wanted.wait == Wait::Try && !is_on_way {
            return self.end(ticket, Error::NotAcquired { name, place: Some(ahead) });
        }
        if let Some((true, first)) = self.clients.place(ticket, ahead, self.now) {
            let progress = Progress { ahead: Some(ahead), expected: expected(first, self.now, ahead) };
            self.effects.push(Effect::Progress(ticket, progress));
            self.effects.push(Effect::Event(Event::Waiting { name, label, ticket: ticket.0, ahead: Some(ahead) }));
        }
    }

    fn end_stalled(&mut self, resource: Key) {
        let patience = |entry: &Entry| match entry.wanted.wait {
            Wait::Try => TRY_PATIENCE,
            Wait::Forever | Wait::For(_) => (entry.wanted.ttl * 5 / 6).max(self.session_state.ttl() * 2),
        };
        let waiting = self.clients.waiting(resource);
        let stalled = waiting.filter_map(|(ticket, entry)| Some((ticket, self.stalled(entry, patience(entry))?)));
        stalled.collect::<Vec<_>>().into_iter().for_each(|(ticket, error)| self.end(ticket, error));
    }

    fn stalled(&self, entry: &Entry, patience: Span) -> Option<Error> {
        let (name, resource) = (entry.wanted.name.clone(), entry.resource);
        let is_long = |since: Time| self.now.since(since.max(entry.asked)) >= patience;
        if self.session_state.session().is_none() {
            return is_long(self.session_state.since()).then(|| self.problem()).flatten();
        }
        if let Some((since, hosts)) = self.survey.stall(resource) {
            return is_long(since).then(|| self.recovering(name, since, &hosts));
        }
        // The registry has not confirmed our join: it has no quorum, and our session has not expired yet.
        let part = self.parts.get(resource);
        let since = part.map_or(entry.asked, |part| part.opened.max(entry.asked));
        let is_party = part.is_some_and(|part| part.custody.is_party());
        (!is_party && is_long(since)).then(|| self.no_majority(since))
    }

    pub(crate) fn not_acquired(&self, entry: &Entry) -> Error {
        let patience = match entry.wanted.wait {
            Wait::For(span) => TRY_PATIENCE.min(span / 2),
            Wait::Try | Wait::Forever => TRY_PATIENCE,
        };
        let (name, place) = (entry.wanted.name.clone(), entry.ahead());
        self.stalled(entry, patience).unwrap_or(Error::NotAcquired { name, place })
    }

    pub(crate) fn on_granted(&mut self, resource: Key, alias: Ticket, grant: Grant) {
        // The ticket has ended meanwhile.
        let Some(ticket) = self.clients.by_alias(alias) else {
            return self.part_step(resource, protocol::Input::Release(alias));
        };
        self.clients.enter(ticket, grant);
        match self.clients.get(ticket).is_some_and(|entry| entry.is_detached()) {
            true => {
                self.ask_to_detach(ticket, grant, None);
                if makes(Mutation::DetachedUntold) {
                    self.confirm(ticket, self.now);
                }
            }
            false => self.confirm(ticket, self.now),
        }
    }

    /// Starts the lease and notifies the client. If the session is about to expire, so that the client would have to
    /// stop at once, the next renewal does so.
    pub(crate) fn confirm(&mut self, ticket: TicketId, from: Time) {
        let Some(entry) = self.clients.get(ticket) else { return };
        let Stage::Entering { grant } = entry.stage else { return };
        let (name, label) = (entry.wanted.name.clone(), entry.wanted.label.clone());
        let waited = self.now.since(entry.asked).into();
        let is_detached = entry.is_detached();
        let bound = self.session_state.bound().filter(|_| !is_detached);
        if bound.is_some_and(|bound| bound.until.since(self.now) <= entry.wanted.grace.min(bound.grace)) {
            return;
        }
        let Some((look, until)) = self.clients.grant(ticket, grant, from, bound) else { return };
        if !makes(Mutation::LeaseAlarm) {
            self.timers.set(Alarm::Ticket(ticket), look);
        }
        self.counters.granted += 1;
        if is_detached && !makes(Mutation::StillOwed) {
            self.takeover.settle(&name, grant.fencing);
        }
        let Grant { slot, fencing } = grant;
        self.effects.push(Effect::Granted { ticket, until });
        self.effects.push(Effect::Event(Event::Granted { name, label, ticket: ticket.0, slot, fencing, waited }));
    }
}
