//! What clients want of a node.

use peerlock_base::{Key, Ticket};
use peerlock_mutex::Grant;
use peerlock_peer as peer;

use super::{Alarm, Answer, Draining, Effect, Node};
use crate::clients::{Stage, TicketId, Wait, Wanted};
use crate::lease::Verdict;
use crate::sabotage::{Sabotage, makes};
use crate::{Charter, Counters, Error, Event, Guard, Name, ResourceView, Routing};

impl<P: Guard, O: Routing> Node<P, O> {
    pub(super) fn acquire(&mut self, call: u64, wanted: Wanted) {
        if self.draining != Draining::No || self.membership.is_leaving() {
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
        let charter = self.peer.resources().get(resource);
        if let Some(Err(error)) = charter.map(|charter| wanted.check(charter)) {
            return self.answer(call, Err(error));
        }
        let (name, label, wait) = (wanted.name.clone(), wanted.label.clone(), wanted.wait);
        let (ticket, first) = self.clients.admit(wanted, self.now);
        self.counters.asked += 1;
        self.answer(call, Ok(Answer::Ticket(ticket)));
        if first {
            self.survey.begin(resource);
        }
        self.request(ticket);
        // If it was not granted at once, there will be a line to ask for.
        if self.clients.get(ticket).is_some_and(|entry| !entry.is_held()) {
            self.effects.push(Effect::Event(Event::Waiting { name, label, ticket: ticket.0, ahead: None }));
            if let Wait::For(span) = wait {
                self.timers.set(Alarm::Ticket(ticket), self.now + span);
            }
            self.ask_soon(resource, wait == Wait::Try);
        }
    }

    /// Asks the protocol for a ticket, once the resource is founded.
    fn request(&mut self, ticket: TicketId) {
        let Some(entry) = self.clients.get(ticket) else { return };
        let resource = entry.resource;
        if self.peer.resources().get(resource).is_none() {
            let (name, slots) = (entry.wanted.name.clone(), entry.wanted.slots.unwrap_or(1));
            return self.found(name, slots);
        }
        if let Some(claim) = self.clients.claim(ticket) {
            self.peer_step(peer::Input::Request { resource, ticket: claim });
        }
    }

    /// Takes a ticket back from the protocol: it leaves, or withdraws.
    fn unrequest(&mut self, ticket: TicketId) {
        let Some(resource) = self.clients.get(ticket).map(|entry| entry.resource) else { return };
        if let Some(claim) = self.clients.unclaim(ticket).filter(|_| !makes(Sabotage::Release)) {
            self.peer_step(peer::Input::Release { resource, ticket: claim });
        }
    }

    /// Asks once more, at the end of the line.
    pub(super) fn request_again(&mut self, ticket: TicketId) {
        self.unrequest(ticket);
        self.request(ticket);
    }

    /// Asks for everything that could not be asked for before.
    pub(super) fn ask_for_pending(&mut self) {
        self.clients.unclaimed().into_iter().for_each(|ticket| self.request(ticket));
    }

    /// What has become of a claim.
    pub(super) fn on_client(&mut self, resource: Key, claim: Ticket, event: peer::Event) {
        match (self.clients.claimant(claim), event) {
            (Some(ticket), peer::Event::Granted(grant)) => self.on_granted(ticket, grant),
            // This protocol neither refuses nor loses anybody.
            (Some(ticket), peer::Event::Refused | peer::Event::Lost) => self.end(ticket, Error::Lost),
            // Nobody wants it any more.
            (None, peer::Event::Granted(_)) => self.peer_step(peer::Input::Release { resource, ticket: claim }),
            (None, peer::Event::Refused | peer::Event::Lost) => {}
        }
    }

    fn on_granted(&mut self, ticket: TicketId, grant: Grant) {
        let Some(entry) = self.clients.get(ticket) else { return };
        let (name, label) = (entry.wanted.name.clone(), entry.wanted.label.clone());
        let waited = self.now.since(entry.asked).into();
        let Some((look, until)) = self.clients.grant(ticket, grant, self.now) else { return };
        if !makes(Sabotage::LeaseAlarm) {
            self.timers.set(Alarm::Ticket(ticket), look);
        }
        self.counters.granted += 1;
        let Grant { slot, fencing } = grant;
        self.effects.push(Effect::Granted { ticket, until });
        self.effects.push(Effect::Event(Event::Granted { name, label, ticket: ticket.0, slot, fencing, waited }));
    }

    /// Those who asked for another number of slots go away.
    pub(super) fn refuse_mismatches(&mut self, resource: Key, charter: Charter) {
        let waiting = self.clients.waiting(resource);
        let wrong = waiting.filter_map(|(ticket, entry)| Some((ticket, entry.wanted.check(charter).err()?)));
        wrong.collect::<Vec<_>>().into_iter().for_each(|(ticket, error)| self.end(ticket, error));
    }

    /// A ticket's wait is over, or its lease wants to be looked at.
    pub(super) fn on_ticket_alarm(&mut self, ticket: TicketId) {
        let Some(entry) = self.clients.get(ticket) else { return };
        let (name, place) = (entry.wanted.name.clone(), entry.ahead());
        let Some((verdict, lease)) = self.clients.look(ticket, self.now) else {
            return self.end(ticket, Error::NotAcquired { name, place });
        };
        match verdict {
            Verdict::Stands => {}
            Verdict::Renewed => self.effects.push(Effect::Renewed { ticket, until: lease.deadline() }),
            Verdict::Lost => self.on_lost(ticket, name),
            Verdict::Over => return self.finish(ticket, Error::Lost),
        }
        self.timers.set(Alarm::Ticket(ticket), lease.next());
    }

    pub(super) fn renew(&mut self, call: u64, ticket: TicketId) {
        let Some(lease) = self.clients.renew(ticket, self.now) else { return self.answer(call, Err(Error::Lost)) };
        self.timers.set(Alarm::Ticket(ticket), lease.next());
        self.effects.push(Effect::Renewed { ticket, until: lease.deadline() });
        self.answer(call, Ok(Answer::Renewed(lease.deadline())));
    }

    pub(super) fn detach(&mut self, ticket: TicketId) {
        if let Some(lease) = self.clients.detach(ticket) {
            self.timers.set(Alarm::Ticket(ticket), lease.next());
        }
    }

    pub(super) fn release(&mut self, call: Option<u64>, ticket: TicketId) {
        let stands = match self.clients.get(ticket).map(|entry| &entry.stage) {
            Some(Stage::Held { lease, .. }) => !lease.lost,
            Some(Stage::Waiting { .. }) => true,
            None => false,
        };
        self.finish(ticket, Error::Lost);
        if let Some(call) = call {
            self.answer(call, if stands { Ok(Answer::Released) } else { Err(Error::Lost) });
        }
    }

    pub(super) fn drain(&mut self) {
        self.draining = Draining::Yes;
        for ticket in self.clients.ids() {
            let Some(entry) = self.clients.get(ticket) else { continue };
            if !entry.is_held() {
                self.end(ticket, Error::Stopped);
                continue;
            }
            let name = entry.wanted.name.clone();
            if let Some(until) = self.clients.lose(ticket) {
                self.timers.set(Alarm::Ticket(ticket), until);
                self.on_lost(ticket, name);
            }
        }
    }

    fn on_lost(&mut self, ticket: TicketId, name: Name) {
        self.counters.lost += 1;
        self.effects.push(Effect::Lost(ticket));
        self.effects.push(Effect::Event(Event::Lost { name, ticket: ticket.0 }));
    }

    /// Ends a ticket that its client has not ended.
    pub(super) fn end(&mut self, ticket: TicketId, error: Error) {
        let Some(entry) = self.clients.get(ticket) else { return };
        if !entry.is_held() {
            self.counters.refused += 1;
            let (name, why) = (entry.wanted.name.clone(), error.to_string());
            self.effects.push(Effect::Event(Event::Withdrawn { name, ticket: ticket.0, why }));
        }
        self.finish(ticket, error);
    }

    /// Nothing is left of a ticket.
    fn finish(&mut self, ticket: TicketId, why: Error) {
        self.unrequest(ticket);
        let Some(entry) = self.clients.remove(ticket) else { return };
        self.timers.cancel(&Alarm::Ticket(ticket));
        self.effects.push(Effect::Ended(ticket, why));
        if let Stage::Held { since, lease, .. } = entry.stage {
            self.counters.released += u64::from(!lease.lost);
            let (name, held) = (entry.wanted.name, self.now.since(since).into());
            self.effects.push(Effect::Event(Event::Released { name, ticket: ticket.0, held }));
        }
    }

    /// What this peer has counted.
    pub fn counters(&self) -> Counters {
        let holding = self.clients.holding() as u64;
        Counters { holding, waiting: self.clients.len() as u64 - holding, ..self.counters }
    }

    /// The resources that this peer knows of, by name.
    pub fn resources(&self) -> Vec<ResourceView> {
        let charters = self.peer.resources();
        let here = self.clients.resources().map(|(key, name, holding_here, waiting_here)| {
            let slots = charters.get(key).map(|charter| charter.slots);
            ResourceView { name: name.clone(), slots, holding_here, waiting_here }
        });
        let elsewhere = charters.iter().filter(|(key, _)| self.clients.name(*key).is_none());
        let elsewhere = elsewhere.map(|(_, (name, charter))| ResourceView {
            name: name.clone(),
            slots: Some(charter.slots),
            holding_here: 0,
            waiting_here: 0,
        });
        let mut all: Vec<ResourceView> = here.chain(elsewhere).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }
}
