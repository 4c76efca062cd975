//! Requests of clients: acquire, renew, release; and their leases.

use std::ops::Not;

use peerlock_protocol::custody::MOST_WAITING;
use peerlock_protocol::{self as protocol, Grant};
use peerlock_types::{Key, Ticket, Time};

use super::{Alarm, Answer, Draining, Effect, Node, Phase};
use crate::clients::{Stage, TicketId, Wait, Wanted};
use crate::lease::{Bound, Verdict};
use crate::mutation::{Mutation, makes};
use crate::{Class, Counters, Error, Event, Name, ResourceView};

impl Node {
    pub(super) fn acquire(&mut self, call: u64, wanted: Wanted) {
        if self.draining != Draining::No || matches!(self.phase, Phase::Leaving | Phase::Left) {
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
        let (ticket, first) = self.clients.admit(wanted, self.now);
        self.counters.asked += 1;
        self.answer(call, Ok(Answer::Ticket(ticket)));
        if first {
            self.survey.end(resource); // Earlier answers are outdated.
        }
        self.request(ticket);
        if self.clients.get(ticket).is_some_and(|entry| !entry.is_held()) {
            self.effects.push(Effect::Event(Event::Waiting { name, label, ticket: ticket.0, ahead: None }));
            if let Wait::For(span) = wait {
                self.timers.set(Alarm::Ticket(ticket), self.now + span);
            }
            self.ask_soon(resource, wait == Wait::Try);
        }
    }

    pub(super) fn slots_of(&self, resource: Key) -> Option<u32> {
        self.parts.get(resource).filter(|part| part.custody.is_party()).map(|part| part.custody.slots())
    }

    /// Requests a slot from custody, if there is a session.
    fn request(&mut self, ticket: TicketId) {
        let Some(entry) = self.clients.get(ticket).filter(|_| self.session_state.session().is_some()) else { return };
        let (resource, name) = (entry.resource, entry.wanted.name.clone());
        self.open_part(&name);
        if let Some(alias) = self.clients.give_alias(ticket) {
            self.part_step(resource, protocol::Input::Request(alias));
        }
    }

    fn unrequest(&mut self, ticket: TicketId) {
        let Some(resource) = self.clients.get(ticket).map(|entry| entry.resource) else { return };
        if let Some(alias) = self.clients.take_alias(ticket).filter(|_| !makes(Mutation::Release)) {
            self.part_step(resource, protocol::Input::Release(alias));
        }
    }

    pub(super) fn request_again(&mut self, ticket: TicketId) {
        self.unrequest(ticket);
        self.clients.wait_again(ticket);
        self.request(ticket);
    }

    pub(super) fn ask_for_pending(&mut self) {
        let waiting: Vec<TicketId> = self.clients.without_alias().collect();
        waiting.into_iter().for_each(|ticket| self.request(ticket));
    }

    pub(super) fn on_granted(&mut self, resource: Key, alias: Ticket, grant: Grant) {
        // The ticket has ended meanwhile.
        let Some(ticket) = self.clients.by_alias(alias) else {
            return self.part_step(resource, protocol::Input::Release(alias));
        };
        self.clients.enter(ticket, grant);
        match self.clients.get(ticket).is_some_and(|entry| entry.is_detached()) {
            true => {
                self.ask_to_detach(ticket, grant, None);
                if makes(Mutation::DetachedUntold) {
                    self.let_in(ticket, self.now);
                }
            }
            false => self.let_in(ticket, self.now),
        }
    }

    /// The session was renewed: extends leases, and grants the tickets that could not be granted before.
    pub(super) fn extend(&mut self, bound: Bound) {
        for (ticket, until) in self.clients.extend(bound) {
            self.effects.push(Effect::Renewed { ticket, until });
        }
        self.clients.entering().into_iter().for_each(|ticket| self.let_in(ticket, self.now));
    }

    /// If the session is about to expire, so that the client would have to stop at once, the next renewal grants the
    /// ticket, or the end of the session takes the slot.
    pub(super) fn let_in(&mut self, ticket: TicketId, from: Time) {
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

    /// Our host was evicted: this grant is not ours any more.
    pub(super) fn on_revoked(&mut self, alias: Ticket) {
        self.detached.drop_alias(alias);
        let Some(ticket) = self.clients.by_alias(alias) else { return };
        self.clients.take_alias(ticket);
        let Some(entry) = self.clients.get(ticket) else { return };
        let (name, held) = (entry.wanted.name.clone(), entry.is_held());
        if !held {
            self.clients.wait_again(ticket);
            return self.request(ticket);
        }
        let error = Error::Revoked { name: name.clone(), forced: true };
        if self.clients.lose(ticket).is_some() {
            self.on_lost(ticket, name, error.clone());
        }
        self.end(ticket, error);
    }

    pub(super) fn refuse_mismatches(&mut self, resource: Key, slots: u32) {
        let waiting = self.clients.waiting(resource);
        let wrong = waiting.filter_map(|(ticket, entry)| Some((ticket, entry.wanted.check(slots).err()?)));
        wrong.collect::<Vec<_>>().into_iter().for_each(|(ticket, error)| self.end(ticket, error));
    }

    pub(super) fn on_ticket_alarm(&mut self, ticket: TicketId) {
        let Some(entry) = self.clients.get(ticket) else { return };
        let (name, why_not) = (entry.wanted.name.clone(), entry.is_held().not().then(|| self.not_acquired(entry)));
        let Some((verdict, lease)) = self.clients.look(ticket, self.now) else {
            why_not.into_iter().for_each(|why| self.end(ticket, why));
            return;
        };
        match verdict {
            Verdict::Stands => {}
            Verdict::Renewed => self.effects.push(Effect::Renewed { ticket, until: lease.deadline() }),
            Verdict::Lost => {
                // The client has renewed its lease, but the session was not renewed.
                let why = match lease.lost_with(self.now) {
                    Some(bound) => self.no_majority(self.session_state.confirmed(bound)),
                    None => Error::Lost,
                };
                self.on_lost(ticket, name, why);
            }
            Verdict::Over => return self.finish(ticket, Error::Lost, false),
        }
        self.timers.set(Alarm::Ticket(ticket), lease.next());
    }

    pub(super) fn renew(&mut self, call: u64, ticket: TicketId) {
        let granted = self.clients.granted(ticket).map(|(grant, _)| grant);
        let detached = self.clients.get(ticket).is_some_and(|entry| entry.is_detached());
        if let (Some(grant), true) = (granted, detached) {
            return match self.problem() {
                Some(error) => self.answer(call, Err(error)),
                None => {
                    self.wait_for_register(call);
                    self.ask_to_detach(ticket, grant, Some(call));
                }
            };
        }
        let Some(lease) = self.clients.renew(ticket, self.now) else {
            let why = self.why_not(ticket);
            return self.answer(call, Err(why));
        };
        self.timers.set(Alarm::Ticket(ticket), lease.next());
        self.effects.push(Effect::Renewed { ticket, until: lease.deadline() });
        self.answer(call, Ok(Answer::Renewed(lease.deadline())));
    }

    pub(super) fn release(&mut self, call: Option<u64>, ticket: TicketId) {
        let stands = match self.clients.get(ticket).map(|entry| &entry.stage) {
            Some(Stage::Held { lease, .. }) => lease.lost.is_none(),
            Some(Stage::Waiting { .. } | Stage::Entering { .. }) => true,
            None => false,
        };
        let why = self.why_not(ticket);
        self.finish(ticket, Error::Lost, true);
        if let Some(call) = call {
            self.answer(call, if stands { Ok(Answer::Released) } else { Err(why) });
        }
    }

    pub(super) fn why_not(&self, ticket: TicketId) -> Error {
        match self.clients.get(ticket).filter(|entry| entry.revoked) {
            Some(entry) => Error::Revoked { name: entry.wanted.name.clone(), forced: false },
            None => Error::Lost,
        }
    }

    pub(super) fn close(&mut self) {
        self.draining = Draining::Yes;
        let waits = |ticket: &TicketId| self.clients.get(*ticket).is_some_and(|entry| !entry.is_held());
        let waiting: Vec<TicketId> = self.clients.ids().into_iter().filter(waits).collect();
        waiting.into_iter().for_each(|ticket| self.end(ticket, Error::Stopped));
    }

    pub(super) fn drain(&mut self) {
        self.close();
        for ticket in self.clients.ids() {
            let Some(entry) = self.clients.get(ticket).filter(|entry| !entry.is_detached()) else { continue };
            let name = entry.wanted.name.clone();
            if let Some(until) = self.clients.lose(ticket) {
                self.timers.set(Alarm::Ticket(ticket), until);
                self.on_lost(ticket, name, Error::Stopped);
            }
        }
    }

    pub(super) fn on_lost(&mut self, ticket: TicketId, name: Name, why: Error) {
        self.counters.lost += 1;
        let event = Event::Lost { name, ticket: ticket.0, why: why.to_string() };
        self.effects.push(Effect::Lost(ticket, why));
        self.effects.push(Effect::Event(event));
    }

    pub(super) fn end(&mut self, ticket: TicketId, error: Error) {
        let Some(entry) = self.clients.get(ticket) else { return };
        if !entry.is_held() {
            self.counters.refused += 1;
            let (name, why) = (entry.wanted.name.clone(), error.to_string());
            self.effects.push(Effect::Event(Event::Withdrawn { name, ticket: ticket.0, why }));
        }
        self.finish(ticket, error, false);
    }

    /// Ends a ticket. The end is recorded before the slot is granted again.
    fn finish(&mut self, ticket: TicketId, why: Error, by_client: bool) {
        let Some(entry) = self.clients.get(ticket) else { return };
        let (name, resource) = (entry.wanted.name.clone(), entry.resource);
        let held = match entry.stage {
            Stage::Held { since, lease, grant } => Some((since, lease, grant)),
            Stage::Waiting { .. } | Stage::Entering { .. } => None,
        };
        self.timers.cancel(&Alarm::Ticket(ticket));
        self.effects.push(Effect::Ended(ticket, why));
        if let Some((since, lease, _)) = held {
            self.counters.released += u64::from(lease.lost.is_none());
            let (name, held) = (name.clone(), since.until(self.now).into());
            self.effects.push(Effect::Event(Event::Released { name, ticket: ticket.0, held }));
        }
        let detached = held.filter(|(_, lease, _)| lease.bound.is_none()).map(|(.., grant)| grant);
        // The client may not notice before its next renewal, perhaps at another process of this host. That renewal has
        // to fail, so the registry must record the end before the slot is handed over.
        if let Some(grant) = detached.filter(|_| !by_client) {
            let alias = self.clients.take_alias(ticket);
            alias.into_iter().for_each(|alias| self.detached.end(resource, grant.fencing, alias));
        }
        self.unrequest(ticket);
        self.clients.remove(ticket);
        if let Some(grant) = detached {
            self.takeover.owe(&name, grant, self.now);
            self.drop_detached(name, grant.fencing);
        }
    }

    /// Returns whether all detached grants of earlier processes of this host are known.
    pub fn knows_returned(&self) -> bool {
        self.detached.is_known()
    }

    /// Returns whether a client waits here, or holds a grant that ends with our session.
    pub fn has_clients(&self) -> bool {
        self.clients.attached().next().is_some() || self.takeover.holds(self.now)
    }

    /// Returns the counters.
    pub fn counters(&self) -> Counters {
        let holding = self.clients.holding() as u64;
        let links = self.contacts.open().count() as u64;
        Counters { links, holding, waiting: self.clients.len() as u64 - holding, ..self.counters }
    }

    /// Returns the resources that were requested at this peer, by name. For all resources:
    /// [`Listing`](crate::Listing).
    pub fn resources(&self) -> Vec<ResourceView> {
        let here = self.clients.resources().map(|(key, name, holding_here, waiting_here)| {
            let slots = self.slots_of(key);
            let recovering = self.parts.get(key).is_some_and(|part| part.custody.missing().is_some());
            ResourceView { name: name.clone(), slots, holding_here, waiting_here, recovering }
        });
        let mut all: Vec<ResourceView> = here.collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }
}
