//! Release: the end of a ticket, whatever its reason.
//!
//! 1. `Input::Release` by the client; or a time-out, an expired lease, an eviction, the end of the session.
//! 2. `Effect::Ended`, recorded for the takeover file before the slot moves.
//! 3. Custody releases the slot: `Token` to the next waiter, `Left` to the coordinator; or withdraws the request.
//! 4. A detached grant is also dropped from the registry ([`detached`](crate::detached)). If its client does not know
//!    of the end, step 3 waits for the registry's confirmation.

use peerlock_protocol as protocol;
use peerlock_types::Ticket;

use crate::clients::TicketId;
use crate::node::{Alarm, Node};
use crate::testing::mutation::{Mutation, makes};
use crate::{Answer, Effect, Error, Event, Name};

impl Node {
    pub(crate) fn release(&mut self, call: Option<u64>, ticket: TicketId) {
        let is_valid = self.clients.get(ticket).is_some_and(|entry| !entry.is_notified());
        let why = self.why_not(ticket);
        self.finish(ticket, Error::Lost, true);
        if let Some(call) = call {
            self.answer(call, if is_valid { Ok(Answer::Released) } else { Err(why) });
        }
    }

    pub(crate) fn why_not(&self, ticket: TicketId) -> Error {
        match self.clients.get(ticket).filter(|entry| entry.revoked) {
            Some(entry) => Error::Revoked { name: entry.wanted.name.clone(), forced: false },
            None => Error::Lost,
        }
    }

    pub(crate) fn on_revoked(&mut self, alias: Ticket) {
        self.detached.ending.retain(|_, ending| *ending != alias);
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

    pub(crate) fn on_lost(&mut self, ticket: TicketId, name: Name, why: Error) {
        self.counters.lost += 1;
        let event = Event::Lost { name, ticket: ticket.0, why: why.to_string() };
        self.effects.push(Effect::Lost(ticket, why));
        self.effects.push(Effect::Event(event));
    }

    pub(crate) fn end(&mut self, ticket: TicketId, error: Error) {
        let Some(entry) = self.clients.get(ticket) else { return };
        if !entry.is_held() {
            self.counters.refused += 1;
            let (name, why) = (entry.wanted.name.clone(), error.to_string());
            self.effects.push(Effect::Event(Event::Withdrawn { name, ticket: ticket.0, why }));
        }
        self.finish(ticket, error, false);
    }

    pub(crate) fn finish(&mut self, ticket: TicketId, why: Error, by_client: bool) {
        let Some(entry) = self.clients.get(ticket) else { return };
        let (name, resource) = (entry.wanted.name.clone(), entry.resource);
        let held = entry.held();
        self.timers.cancel(&Alarm::Ticket(ticket));
        self.effects.push(Effect::Ended(ticket, why));
        if let Some((_, since, lease)) = held {
            self.counters.released += u64::from(lease.lost.is_none());
            let (name, held) = (name.clone(), since.until(self.now).into());
            self.effects.push(Effect::Event(Event::Released { name, ticket: ticket.0, held }));
        }
        let detached = held.filter(|(.., lease)| lease.bound.is_none()).map(|(grant, ..)| grant);
        // The client's next renewal, perhaps at another process of this host, has to fail: the registry must record the
        // end before the slot is handed over.
        if let Some(grant) = detached.filter(|_| !by_client)
            && let Some(alias) = self.clients.take_alias(ticket)
        {
            self.detached.ending.insert((resource, grant.fencing), alias);
        }
        self.unrequest(ticket);
        self.clients.remove(ticket);
        if let Some(grant) = detached {
            self.takeover.owe(&name, grant, self.now);
            self.drop_detached(name, grant.fencing);
        }
    }

    pub(crate) fn unrequest(&mut self, ticket: TicketId) {
        let Some(resource) = self.clients.get(ticket).map(|entry| entry.resource) else { return };
        if let Some(alias) = self.clients.take_alias(ticket).filter(|_| !makes(Mutation::Release)) {
            self.part_step(resource, protocol::Input::Release(alias));
        }
    }
}
