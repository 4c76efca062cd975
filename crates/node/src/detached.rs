//! Detached grants: the registry has them, so they outlive sessions.
//!
//! 1. Acquire: custody has granted a slot. `Command::Detach` to the registry; when it is done, the client is notified.
//! 2. Renew: `Command::Detach` again, and the answer to the client after it.
//! 3. Release: `Command::DropDetached`, repeated in the next session if the session ends before the answer.
//! 4. The next process of this host queries its grants when its first session is valid, and reports each that it does
//!    not know by `Effect::Returned`, except the ends of runs ([`conclude`](crate::conclude)). While one of them is not
//!    renewed, the query is repeated: it ends here when it is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;

use peerlock_protocol::{self as protocol, Grant};
use peerlock_registry::{self as registry, Command, Label, Look, MOST_ON_PAGE, Outcome, Refusal};
use peerlock_types::{Key, Span, Ticket, Time};

use crate::clients::{Entry, TicketId, Wanted};
use crate::node::{Alarm, Node};
use crate::session::label;
use crate::session_state::Ask;
use crate::{Answer, Class, Effect, Error, Name};

/// A request fails after this many refusals. Our choice: losing the participation twice in a row is not unusual.
const MOST_REFUSED: u32 = 3;

#[derive(Default)]
pub struct Detached {
    /// Grants without an owner, to be dropped in the next session.
    pub(crate) orphans: Vec<(Name, u64)>,
    /// Grants that have ended here without their client's knowledge, until the registry confirms the drop: aliases to
    /// release.
    pub(crate) ending: BTreeMap<(Key, u64), Ticket>,
    /// The grants on the received pages …
    found: BTreeSet<(Key, u64)>,
    /// … and the lowest log index of these.
    index: Option<u64>,
    /// The highest log index of a page from which a grant was added as returned.
    returned: u64,
    /// All pages were received once: an unknown grant is not of an earlier process.
    is_known: bool,
}

impl Detached {
    fn begin_page(&mut self, index: u64) {
        self.index = Some(self.index.map_or(index, |all| all.min(index)));
    }

    /// Returns all reported grants, unless the pages are older than a returned grant.
    fn end_pages(&mut self) -> Option<BTreeSet<(Key, u64)>> {
        self.is_known = true;
        let (found, index) = (take(&mut self.found), self.index.take());
        (index >= Some(self.returned)).then_some(found)
    }
}

impl Node {
    pub(crate) fn ask_to_detach(&mut self, ticket: TicketId, grant: Grant, call: Option<u64>) {
        let (Some(session), Some(entry)) = (self.session_state.session(), self.clients.get(ticket)) else { return };
        let Some((ttl, note)) = entry.wanted.detachable() else { return };
        let Grant { slot, fencing } = grant;
        let of = entry.wanted.name.clone();
        let resource = label(&of);
        if call.is_none() {
            self.takeover.owe(&of, grant, self.now);
        }
        let ask = Ask::Detach { ticket, of, fencing, at: self.now, call };
        self.session_state.ask(
            Command::Detach { session, resource, slot, fencing, ttl, note, run: None },
            ask,
            self.now,
        );
    }

    pub(crate) fn on_detached(
        &mut self,
        ticket: TicketId,
        of: Name,
        fencing: u64,
        at: Time,
        call: Option<u64>,
        outcome: Outcome,
    ) {
        let entry = self.clients.get(ticket).filter(|entry| entry.has(fencing));
        let is_held = entry.map(Entry::is_held);
        let is_returned = entry.is_some_and(|entry| entry.returned);
        let is_late = entry.is_some_and(|entry| self.now.since(at) + entry.wanted.grace >= entry.wanted.ttl);
        match &outcome {
            Outcome::Refused(Refusal::NoSession) if call.is_none() => {
                // It may have been persisted before the session ended, and the answer was lost.
                self.drop_detached(of.clone(), fencing);
            }
            Outcome::Refused(_) if call.is_none() => self.takeover.settle(&of, fencing),
            _ => {}
        }
        match (outcome, is_held) {
            // The client would have to stop at once. Retrying does not help a client whose lease is shorter than a
            // round trip.
            (Outcome::Done, Some(false)) if is_late => {
                self.drop_detached(of, fencing);
                self.end(ticket, Error::Lost);
            }
            (Outcome::Done, Some(false)) => self.confirm(ticket, at),
            (Outcome::Done, Some(true)) => self.on_detached_renewed(ticket, at, call),
            // A renewed grant was released meanwhile; or this peer is shutting down, and the client keeps it.
            (Outcome::Done, None) => match call {
                Some(call) => self.answer_gone(call),
                None => self.drop_detached(of, fencing),
            },
            (Outcome::Refused(Refusal::Full), Some(false)) => {
                let message = Refusal::Full.to_string();
                self.end(ticket, Error::Refused { class: Class::Busy, message });
            }
            // We are no party any more, as a later event will report: the slot is void.
            (outcome, Some(false)) => self.on_not_persisted(ticket, &of, outcome),
            (Outcome::Refused(Refusal::NoSession), Some(true)) => {
                // Renewed in a session that was over: unchanged.
                if let Some(call) = call {
                    let error = self.problem().unwrap_or(Error::Lost);
                    self.answer_caller(call, Err(error));
                }
            }
            (outcome, Some(true)) => {
                // It has not expired, unless it is a returned one: its deadline in the registry is later than here.
                let is_taken = outcome == Outcome::Refused(Refusal::NoSuchGrant) && !is_returned;
                let why = if is_taken { Error::Revoked { name: of, forced: true } } else { Error::Lost };
                self.end(ticket, why.clone());
                call.into_iter().for_each(|call| self.answer_caller(call, Err(why.clone())));
            }
            (_, None) => call.into_iter().for_each(|call| self.answer_gone(call)),
        }
    }

    fn on_detached_renewed(&mut self, ticket: TicketId, at: Time, call: Option<u64>) {
        let renewed = self.clients.renew_from(ticket, at);
        if let Some(lease) = renewed {
            self.timers.set(Alarm::Ticket(ticket), lease.next());
            self.effects.push(Effect::Renewed { ticket, until: lease.deadline() });
        }
        if let Some(call) = call {
            let renewed = renewed.map(|lease| Answer::Renewed(lease.deadline()));
            self.answer_caller(call, renewed.ok_or(Error::Lost));
        }
    }

    fn on_not_persisted(&mut self, ticket: TicketId, of: &Name, outcome: Outcome) {
        match self.clients.refuse(ticket) {
            0..MOST_REFUSED => self.request_again(ticket),
            times => {
                let why = match outcome {
                    Outcome::Refused(why) => why.to_string(),
                    outcome => format!("{outcome:?}"),
                };
                let message = format!("the registry has refused to persist {times} grants of {of}: {why}");
                self.end(ticket, Error::Refused { class: Class::Unavailable, message });
            }
        }
    }

    fn answer_gone(&mut self, call: u64) {
        self.answer_caller(call, Err(if self.is_leaving() { Error::Stopped } else { Error::Lost }));
    }

    pub(crate) fn drop_detached(&mut self, name: Name, fencing: u64) {
        match self.session_state.session() {
            Some(session) => {
                let command = Command::DropDetached { session, resource: label(&name), fencing };
                self.session_state.ask(command, Ask::DropDetached(session, name, fencing), self.now);
            }
            None => self.detached.orphans.push((name, fencing)),
        }
    }

    /// Releases the slot of a dropped grant, which cannot be renewed.
    pub(crate) fn on_attached(&mut self, name: &Name, fencing: u64) {
        self.takeover.settle(name, fencing);
        if let Some(alias) = self.detached.ending.remove(&(name.key(), fencing)) {
            self.part_step(name.key(), protocol::Input::Release(alias));
        }
    }

    /// Queries returned grants again: only the registry knows their deadlines.
    pub(crate) fn look_at_returned(&mut self) {
        let is_asking = self.session_state.is_asking(&Ask::Returned);
        if self.knows_returned() && !is_asking && self.clients.returned().next().is_some() {
            self.look_at_grants(None);
        }
    }

    pub(crate) fn look_at_grants(&mut self, after: Option<Label>) {
        let (prefix, granted_by) = (None, Some(self.host()));
        let look = Look::Resources { prefix, after, most: MOST_ON_PAGE, granted_by };
        self.session_state.look(look, Ask::Returned, self.now);
    }

    pub(crate) fn on_grants(&mut self, page: registry::Page) {
        if self.is_leaving() {
            return;
        }
        let (me, index) = (self.host(), page.index);
        self.detached.begin_page(index);
        let after = page.resources.last().map(|last| last.name.clone()).filter(|_| page.more);
        for resource in page.resources {
            let Ok(name) = resource.name.as_str().parse::<Name>() else { continue };
            for found in resource.detached.into_iter().filter(|grant| grant.host == me && grant.holds()) {
                self.detached.found.insert((name.key(), found.fencing));
                let period_ends = found.run.map(|_| self.now + Span::from_millis(found.left));
                if self.clients.has(name.key(), found.fencing) {
                    // The predecessor had concluded it, and its client may have died before the answer.
                    if let (Some(ticket), Some(until)) = (self.clients.holder(name.key(), found.fencing), period_ends) {
                        self.hold_until(ticket, until);
                    }
                    continue;
                }
                if let Some(takes_back) = self.takeover.owes(&name, found.fencing) {
                    if takes_back {
                        self.drop_detached(name.clone(), found.fencing);
                    }
                    continue;
                }
                // It was released after the query.
                if self.detached.is_known {
                    continue;
                }
                let (ttl, note) = (found.ttl.span(), found.note.to_string());
                let grant = Grant { slot: found.slot, fencing: found.fencing };
                if let Some(until) = period_ends {
                    let wanted = Wanted {
                        detached: Some(String::new()),
                        label: note,
                        ..Wanted::new(name.clone(), ttl, Span::ZERO)
                    };
                    let (ticket, _) = self.clients.readmit(wanted, grant, self.now);
                    self.detached.returned = self.detached.returned.max(index);
                    self.hold_until(ticket, until);
                    continue;
                }
                // The label is not in the registry, and the grant ID is secret.
                let wanted = Wanted { detached: Some(note.clone()), ..Wanted::new(name.clone(), ttl, ttl / 5) };
                let (ticket, look) = self.clients.readmit(wanted, grant, self.now);
                self.detached.returned = self.detached.returned.max(index);
                self.timers.set(Alarm::Ticket(ticket), look);
                let (name, ttl) = (name.clone(), ttl.into());
                self.effects.push(Effect::Returned { ticket, name, note, grant, ttl });
            }
        }
        match after {
            Some(_) => self.look_at_grants(after),
            None => {
                self.takeover.on_all_known();
                self.end_returned();
            }
        }
    }

    /// Ends returned grants that are missing, unless the reporting voter is behind.
    fn end_returned(&mut self) {
        let Some(found) = self.detached.end_pages() else { return };
        let is_over = |(_, resource, fencing): &(TicketId, Key, u64)| !found.contains(&(*resource, *fencing));
        let over: Vec<_> = self.clients.returned().filter(is_over).collect();
        over.into_iter().for_each(|(ticket, ..)| self.end(ticket, Error::Lost));
    }

    /// Returns whether all detached grants of earlier processes of this host are known.
    pub fn knows_returned(&self) -> bool {
        self.detached.is_known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_a_lagging_voter_end_no_returned_grant() {
        let mut detached = Detached::default();
        let resource = "a".parse::<Name>().unwrap().key();
        detached.begin_page(7);
        detached.found.insert((resource, 1));
        detached.returned = 7;
        assert_eq!(detached.end_pages(), Some([(resource, 1)].into()));
        assert!(detached.is_known);
        detached.begin_page(9);
        detached.begin_page(6);
        assert_eq!(detached.end_pages(), None);
        detached.begin_page(8);
        assert_eq!(detached.end_pages(), Some(BTreeSet::new()));
    }
}
