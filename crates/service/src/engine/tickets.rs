//! The clients of this peer: who waits, who is inside, and until when.

use std::collections::BTreeSet;

use peerlock_base::{Key, Span, Ticket, Time};
use peerlock_mutex::Grant;
use peerlock_mutex::founded::Charter;
use peerlock_peer::{Event as ClientEvent, Input};

use super::{Alarm, Engine, Out, Phase, Resource, duration};
use crate::health::Health;
use crate::lease::{Lease, Verdict};
use crate::{Error, Event, Name, ResourceView};

/// A request of a client, as long as it waits or is inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TicketId(pub u64);

/// A client's connection to this peer; what it has ends with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// How long a client is willing to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// As long as it takes.
    Forever,
    /// So long.
    For(Span),
    /// Not at all: only if a slot is free and nobody else waits for it.
    Try,
}

/// What a client asks for.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub name: Name,
    /// `None` for as many as the resource has, or one if it is new.
    pub slots: Option<u32>,
    pub ttl: Span,
    pub grace: Span,
    /// We renew the lease as long as we run; else the client does.
    pub kept: bool,
    pub wait: Wait,
    pub label: String,
    pub session: SessionId,
    /// The same request of the same session for the same resource is asked for once.
    pub request: Option<String>,
}

/// A ticket.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub wanted: Wanted,
    pub resource: Key,
    /// What the protocol knows it by; nothing while it cannot be asked for.
    pub claim: Option<Ticket>,
    pub asked: Time,
    /// It does not end with its session.
    pub detached: bool,
    pub stage: Stage,
}

#[derive(Clone, Debug)]
pub(super) enum Stage {
    Waiting {
        /// How many are ahead, when we last heard …
        ahead: Option<u32>,
        /// … and first.
        first: Option<(Time, u32)>,
        /// How often in a row the coordinator did not know it.
        missing: u8,
    },
    Held {
        grant: Grant,
        since: Time,
        lease: Lease,
    },
}

impl Entry {
    pub fn is_held(&self) -> bool {
        matches!(self.stage, Stage::Held { .. })
    }

    pub fn ahead(&self) -> Option<u32> {
        match self.stage {
            Stage::Waiting { ahead, .. } => ahead,
            Stage::Held { .. } => None,
        }
    }
}

impl Engine {
    /// A client asks. The same request of the same session for the same resource gets the same ticket, granted or not.
    ///
    /// # Errors
    /// If nothing was asked for.
    pub fn acquire(&mut self, wanted: Wanted, now: Time) -> Result<TicketId, Error> {
        self.now = now;
        if self.draining || matches!(self.phase, Phase::Leaving(..) | Phase::Left) {
            return Err(Error::Stopped);
        }
        let resource = wanted.name.key();
        let request = wanted.request.clone().map(|request| (wanted.session, resource, request));
        if let Some(&ticket) = request.as_ref().and_then(|request| self.requests.get(request)) {
            return Ok(ticket);
        }
        if self.tickets.len() >= self.config.most_clients {
            return Err(Error::Busy { limit: self.config.most_clients });
        }
        if let Some(charter) = self.charter(resource) {
            check(&wanted, charter)?;
        }
        self.last_ticket += 1;
        let ticket = TicketId(self.last_ticket);
        self.counters.asked += 1;
        self.requests.extend(request.map(|request| (request, ticket)));
        let known = self.resources.entry(resource).or_insert_with(|| Resource {
            name: wanted.name.clone(),
            waiting: BTreeSet::new(),
            holding: BTreeSet::new(),
            health: Health::default(),
            question: 0,
        });
        if known.waiting.is_empty() {
            known.health = Health::default();
        }
        known.waiting.insert(ticket);
        let wait = wanted.wait;
        let stage = Stage::Waiting { ahead: None, first: None, missing: 0 };
        self.tickets.insert(ticket, Entry { wanted, resource, claim: None, asked: now, detached: false, stage });
        self.request(ticket);
        self.after_request(ticket, resource, wait);
        self.settle();
        Ok(ticket)
    }

    /// If it was not granted at once, there will be a line to ask for.
    fn after_request(&mut self, ticket: TicketId, resource: Key, wait: Wait) {
        let Some(entry) = self.tickets.get(&ticket).filter(|entry| !entry.is_held()) else { return };
        let (name, label) = (entry.wanted.name.clone(), entry.wanted.label.clone());
        self.out.push(Out::Event(Event::Waiting { name, label, ticket: ticket.0, ahead: None }));
        if let Wait::For(span) = wait {
            self.timers.set(Alarm::Ticket(ticket), self.now + span);
        }
        self.survey_soon(resource, wait == Wait::Try);
    }

    /// Asks the protocol for a ticket, once the resource is founded.
    fn request(&mut self, ticket: TicketId) {
        let Some(entry) = self.tickets.get_mut(&ticket).filter(|entry| entry.claim.is_none()) else { return };
        let resource = entry.resource;
        if !self.known.contains_key(&resource) {
            let (name, slots) = (entry.wanted.name.clone(), entry.wanted.slots.unwrap_or(1));
            return self.found(&name, slots);
        }
        self.last_claim = self.last_claim.next();
        entry.claim = Some(self.last_claim);
        self.claims.insert(self.last_claim, ticket);
        self.recall(resource);
        self.step(Input::Request { resource, ticket: self.last_claim });
    }

    /// Takes a ticket back from the protocol: it leaves, or withdraws.
    fn unrequest(&mut self, ticket: TicketId) {
        let Some(entry) = self.tickets.get_mut(&ticket) else { return };
        let resource = entry.resource;
        if let Some(claim) = entry.claim.take() {
            self.claims.remove(&claim);
            self.step(Input::Release { resource, ticket: claim });
        }
    }

    /// Asks once more, at the end of the line.
    pub(super) fn request_again(&mut self, ticket: TicketId) {
        self.unrequest(ticket);
        self.request(ticket);
    }

    /// Asks for everything that could not be asked for before.
    pub(super) fn ask_for_pending(&mut self) {
        let pending: Vec<TicketId> =
            self.tickets.iter().filter(|(_, entry)| entry.claim.is_none()).map(|(id, _)| *id).collect();
        pending.into_iter().for_each(|ticket| self.request(ticket));
    }

    /// What has become of a claim.
    pub(super) fn on_client(&mut self, resource: Key, claim: Ticket, event: ClientEvent) {
        let Some(&ticket) = self.claims.get(&claim) else {
            if matches!(event, ClientEvent::Granted(_)) {
                self.step(Input::Release { resource, ticket: claim });
            }
            return;
        };
        match event {
            ClientEvent::Granted(grant) => self.on_granted(ticket, resource, grant),
            // This protocol neither refuses nor loses anybody.
            ClientEvent::Refused | ClientEvent::Lost => self.end(ticket, Error::Lost),
        }
    }

    fn on_granted(&mut self, ticket: TicketId, resource: Key, grant: Grant) {
        let now = self.now;
        let Some(entry) = self.tickets.get_mut(&ticket) else { return };
        let Entry { ref wanted, asked, .. } = *entry;
        let lease = Lease { ttl: wanted.ttl, grace: wanted.grace, kept: wanted.kept, renewed: now, lost: false };
        let (name, label, waited) = (wanted.name.clone(), wanted.label.clone(), duration(now.since(asked)));
        entry.stage = Stage::Held { grant, since: now, lease };
        self.timers.set(Alarm::Ticket(ticket), lease.next());
        if let Some(resource) = self.resources.get_mut(&resource) {
            resource.waiting.remove(&ticket);
            resource.holding.insert(ticket);
        }
        self.counters.granted += 1;
        let (slot, fencing) = (grant.slot, grant.fencing);
        self.out.push(Out::Granted(ticket, lease.deadline()));
        self.out.push(Out::Event(Event::Granted { name, label, ticket: ticket.0, slot, fencing, waited }));
    }

    /// Those who asked for another number of slots go away.
    pub(super) fn refuse_mismatches(&mut self, resource: Key, charter: Charter) {
        let Some(known) = self.resources.get(&resource) else { return };
        let wrong =
            known.waiting.iter().filter_map(|id| Some((*id, check(&self.tickets.get(id)?.wanted, charter).err()?)));
        let wrong: Vec<(TicketId, Error)> = wrong.collect();
        wrong.into_iter().for_each(|(ticket, error)| self.end(ticket, error));
    }

    /// A ticket's wait is over, or its lease wants to be looked at.
    pub(super) fn on_ticket_alarm(&mut self, ticket: TicketId) {
        let now = self.now;
        let Some(entry) = self.tickets.get_mut(&ticket) else { return };
        let name = entry.wanted.name.clone();
        let Stage::Held { lease, .. } = &mut entry.stage else {
            let place = entry.ahead();
            return self.end(ticket, Error::NotAcquired { name, place });
        };
        let verdict = lease.look(now);
        let (next, deadline) = (lease.next(), lease.deadline());
        match verdict {
            Verdict::Stands => {}
            Verdict::Renewed => self.out.push(Out::Renewed(ticket, deadline)),
            Verdict::Lost => self.on_lost(ticket, name),
            Verdict::Over => return self.finish(ticket),
        }
        self.timers.set(Alarm::Ticket(ticket), next);
    }

    /// A client renews its lease: until when it stands then.
    ///
    /// # Errors
    /// If it does not stand any more.
    pub fn renew(&mut self, ticket: TicketId, now: Time) -> Result<Time, Error> {
        self.now = now;
        let Some(Entry { stage: Stage::Held { lease, .. }, .. }) = self.tickets.get_mut(&ticket) else {
            return Err(Error::Lost);
        };
        if !lease.renew(now) {
            return Err(Error::Lost);
        }
        let (next, deadline) = (lease.next(), lease.deadline());
        self.timers.set(Alarm::Ticket(ticket), next);
        self.out.push(Out::Renewed(ticket, deadline));
        Ok(deadline)
    }

    /// From now on it is the client that renews the lease of this grant, and its session does not matter.
    pub fn detach(&mut self, ticket: TicketId, now: Time) {
        self.now = now;
        let Some(entry) = self.tickets.get_mut(&ticket) else { return };
        entry.detached = true;
        if let Stage::Held { lease, .. } = &mut entry.stage {
            lease.kept = false;
            let next = lease.next();
            self.timers.set(Alarm::Ticket(ticket), next);
        }
    }

    /// A client leaves, or does not want to wait any more.
    ///
    /// # Errors
    /// If it was inside and its lease has ended, or if there is no such ticket.
    pub fn release(&mut self, ticket: TicketId, now: Time) -> Result<(), Error> {
        self.now = now;
        let lost = match self.tickets.get(&ticket).map(|entry| &entry.stage) {
            Some(Stage::Held { lease, .. }) => lease.lost,
            Some(Stage::Waiting { .. }) => false,
            None => return Err(Error::Lost),
        };
        self.finish(ticket);
        self.settle();
        if lost { Err(Error::Lost) } else { Ok(()) }
    }

    /// A client has gone, with all that it has.
    pub fn end_session(&mut self, session: SessionId, now: Time) {
        self.now = now;
        let ends = |entry: &Entry| entry.wanted.session == session && !entry.detached;
        let of_session = self.tickets.iter().filter(|(_, entry)| ends(entry));
        let tickets: Vec<TicketId> = of_session.map(|(id, _)| *id).collect();
        tickets.into_iter().for_each(|ticket| self.end(ticket, Error::SessionEnded));
        self.settle();
    }

    /// No more clients: those who wait are sent away, and those who are inside must stop. Their leases stand to the end
    /// all the same, for those who do not hear of it.
    pub fn drain(&mut self, now: Time) {
        self.now = now;
        self.draining = true;
        let tickets: Vec<TicketId> = self.tickets.keys().copied().collect();
        for ticket in tickets {
            let Some(entry) = self.tickets.get_mut(&ticket) else { continue };
            let Stage::Held { lease, .. } = &mut entry.stage else {
                self.end(ticket, Error::Stopped);
                continue;
            };
            if !std::mem::replace(&mut lease.lost, true) {
                let (deadline, name) = (lease.deadline(), entry.wanted.name.clone());
                self.timers.set(Alarm::Ticket(ticket), deadline);
                self.on_lost(ticket, name);
            }
        }
        self.settle();
    }

    /// Whether nobody is here any more after [`drain`](Self::drain).
    pub fn is_drained(&self) -> bool {
        self.draining && self.tickets.is_empty()
    }

    fn on_lost(&mut self, ticket: TicketId, name: Name) {
        self.counters.lost += 1;
        self.out.push(Out::Lost(ticket));
        self.out.push(Out::Event(Event::Lost { name, ticket: ticket.0 }));
    }

    /// Ends a ticket that its client has not ended.
    pub(super) fn end(&mut self, ticket: TicketId, error: Error) {
        let Some(entry) = self.tickets.get(&ticket) else { return };
        if !entry.is_held() {
            self.counters.refused += 1;
            let (name, why) = (entry.wanted.name.clone(), error.to_string());
            self.out.push(Out::Event(Event::Withdrawn { name, ticket: ticket.0, why }));
        }
        self.out.push(Out::Ended(ticket, error));
        self.finish(ticket);
    }

    /// Nothing is left of a ticket.
    fn finish(&mut self, ticket: TicketId) {
        self.unrequest(ticket);
        let Some(Entry { wanted, resource, stage, .. }) = self.tickets.remove(&ticket) else { return };
        self.out.push(Out::Finished(ticket));
        self.timers.cancel(&Alarm::Ticket(ticket));
        if let Some(request) = wanted.request {
            self.requests.remove(&(wanted.session, resource, request));
        }
        if let Some(known) = self.resources.get_mut(&resource) {
            known.waiting.remove(&ticket);
            known.holding.remove(&ticket);
        }
        if let Stage::Held { since, lease, .. } = stage {
            self.counters.released += u64::from(!lease.lost);
            let held = duration(self.now.since(since));
            self.out.push(Out::Event(Event::Released { name: wanted.name, ticket: ticket.0, held }));
        }
    }

    /// The grant of a ticket and until when it stands, if it has one.
    pub fn grant(&self, ticket: TicketId) -> Option<(Grant, Time)> {
        match self.tickets.get(&ticket)?.stage {
            Stage::Held { grant, lease, .. } if !lease.lost => Some((grant, lease.deadline())),
            Stage::Held { .. } | Stage::Waiting { .. } => None,
        }
    }

    /// The resources that this peer knows of, by name.
    pub fn resources(&self) -> Vec<ResourceView> {
        let here = self.resources.iter().map(|(key, resource)| (key, &resource.name));
        let elsewhere = self.known.iter().map(|(key, (name, _))| (key, name));
        let mut all: Vec<ResourceView> = here
            .chain(elsewhere.filter(|(key, _)| !self.resources.contains_key(key)))
            .map(|(key, name)| ResourceView {
                name: name.clone(),
                slots: self.known.get(key).map(|(_, charter)| charter.slots),
                holding_here: self.resources.get(key).map_or(0, |resource| resource.holding.len()),
                waiting_here: self.resources.get(key).map_or(0, |resource| resource.waiting.len()),
            })
            .collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }
}

/// Whether a client gets as many slots as it asks for.
fn check(wanted: &Wanted, charter: Charter) -> Result<(), Error> {
    match wanted.slots {
        Some(asked) if asked != charter.slots => {
            Err(Error::SlotsMismatch { name: wanted.name.clone(), has: charter.slots, asked })
        }
        _ => Ok(()),
    }
}
