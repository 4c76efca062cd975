//! Queries to other peers and answers to theirs: queue positions, `show`, and slow recoveries.

use std::collections::BTreeMap;

use peerlock_protocol::token::Claim;
use peerlock_registry::{Look, MOST_HOSTS, Page, View};
use peerlock_types::{Key, PeerId, Span, Time};

use super::session::label;
use super::{Alarm, Effect, Node};
use crate::clients::{Entry, TicketId, Wait};
use crate::session_state::Ask;
use crate::survey::{Next, QueueReport, expected};
use crate::wire::{Body, Client, Question, Reply, that_fit};
use crate::{Error, Event, Missing, Name, Progress};

/// The intervals at which the coordinator is asked: at most, at first, and for clients that do not wait.
const SURVEY: Span = Span::from_secs(2);
const SURVEY_FIRST: Span = Span::from_millis(100);
const SURVEY_TRY: Span = Span::from_millis(50);
const QUERY: Span = Span::from_millis(500);
/// How long a client that does not want to wait waits for the registry or a census. Our choice: longer than these take
/// while all hosts are up.
const TRY_PATIENCE: Span = Span::from_millis(1500);

impl Node {
    pub(super) fn ask_soon(&mut self, resource: Key, at_once: bool) {
        if at_once {
            self.ask_for_line(resource);
        } else {
            self.timers.set_if_none(Alarm::Survey(resource), self.now + SURVEY_FIRST);
        }
    }

    pub(super) fn ask_for_line(&mut self, resource: Key) {
        self.end_stalled(resource);
        let often = |wait: Wait, ttl: Span| if wait == Wait::Try { SURVEY_TRY } else { ttl / 3 };
        let waiting = self.clients.waiting(resource).map(|(_, entry)| often(entry.wanted.wait, entry.wanted.ttl));
        let Some(after) = waiting.min() else { return self.survey.end(resource) };
        self.timers.set(Alarm::Survey(resource), self.now + after.min(SURVEY));
        let part = self.parts.get(resource).filter(|part| part.custody.is_party());
        let Some(coordinator) = part.map(|part| part.custody.coordinator()) else { return };
        let question = self.survey.ask(resource, coordinator, self.now);
        self.ask(coordinator, question, Question::QueueReport(resource));
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
        // The registry has not confirmed our join: it has no quorum, but our session has not expired yet.
        let part = self.parts.get(resource);
        let since = part.map_or(entry.asked, |part| part.opened.max(entry.asked));
        let is_party = part.is_some_and(|part| part.custody.is_party());
        (!is_party && is_long(since)).then(|| self.no_majority(since))
    }

    pub(super) fn not_acquired(&self, entry: &Entry) -> Error {
        let patience = match entry.wanted.wait {
            Wait::For(span) => TRY_PATIENCE.min(span / 2),
            Wait::Try | Wait::Forever => TRY_PATIENCE,
        };
        let (name, place) = (entry.wanted.name.clone(), entry.ahead());
        self.stalled(entry, patience).unwrap_or(Error::NotAcquired { name, place })
    }

    pub(super) fn recovering(&self, name: Name, since: Time, hosts: &[PeerId]) -> Error {
        let missing: Vec<Missing> = hosts.iter().map(|host| self.missing_party(*host, since)).collect();
        Error::Recovering { name, missing, since: self.now.since(since).into() }
    }

    pub(super) fn ask(&mut self, to: PeerId, number: u64, question: Question) {
        if to == self.host() {
            return self.on_ask(to, number, question);
        }
        let body = Body::Ask { number, question };
        let contact = self.contacts.get(to);
        // A host that is not connected gets one reliable question. Others are repeated by their timers.
        match contact.is_some_and(|contact| contact.is_connected() || contact.keeps()) {
            true => self.mention(to, &body),
            false => self.send_body(to, &body),
        }
    }

    pub(super) fn on_ask(&mut self, asker: PeerId, number: u64, question: Question) {
        let reply = match question {
            Question::Here(resource) => Some(Reply::Here(that_fit(self.clients_of(resource, self.now)))),
            Question::QueueReport(resource) => self.line_of(resource, asker),
            Question::Used { resource, give_up } => Some(Reply::Used(self.is_used(resource, give_up))),
            // A new process may not know the grants of its predecessors yet.
            Question::Revoke { .. } if !self.knows_returned() => None,
            Question::Revoke { resource, fencing } => Some(Reply::Revoked(self.ask_to_stop(resource, fencing))),
        };
        match reply {
            Some(reply) if asker == self.host() => self.on_reply(asker, number, reply),
            Some(reply) => self.mention(asker, &Body::Reply { number, reply }),
            None => {}
        }
    }

    fn line_of(&self, resource: Key, asker: PeerId) -> Option<Reply> {
        let part = self.parts.get(resource)?;
        if let Some(missing) = part.custody.missing() {
            let missing = missing.iter().map(|session| session.peer).collect();
            return Some(Reply::Counting { missing, millis: self.now.since(part.opened).as_nanos() / 1_000_000 });
        }
        QueueReport::of(&part.custody, asker).map(Reply::QueueReport)
    }

    pub(super) fn clients_of(&self, resource: Key, now: Time) -> impl Iterator<Item = Client> {
        self.clients.of(resource).map(move |entry| Client::of(entry, now))
    }

    pub(super) fn on_reply(&mut self, from: PeerId, number: u64, reply: Reply) {
        match reply {
            Reply::QueueReport(queue) if self.survey.is_query(number) => {
                let Some((resource, named)) = self.survey.on_query_line(number, queue) else { return };
                self.timers.set(Alarm::Query(number), self.now + QUERY);
                self.ask_for_names(number);
                named.into_iter().for_each(|peer| self.ask(peer, number, Question::Here(resource)));
                self.try_to_finish(number);
            }
            Reply::QueueReport(queue) => {
                if let Some((resource, true)) = self.survey.on_line(number) {
                    self.on_line(resource, &queue);
                }
            }
            Reply::Counting { missing, millis } => {
                let long = Span::from_millis(millis.min(self.now.as_nanos() / 1_000_000));
                let since = Time::from_nanos(self.now.as_nanos() - long.as_nanos());
                self.note_mentioned(&missing);
                if !self.survey.on_query_counting(number, since, missing.clone()) {
                    self.survey.on_counting(number, since, missing);
                }
            }
            Reply::Revoked(left) => self.on_asked_to_stop(from, number, left.is_some()),
            Reply::Used(is_used) => self.on_used(from, number, is_used),
            Reply::Here(clients) => {
                self.survey.on_query_clients(from, number, clients);
                self.try_to_finish(number);
            }
        }
    }

    fn on_line(&mut self, resource: Key, queue: &QueueReport) {
        let me = self.host();
        let behind = queue.behind.iter().map(|&(ticket, place)| (Claim { peer: me, ticket }, place));
        let places: BTreeMap<Claim, u32> = queue.waiting.iter().copied().zip(0..).chain(behind).collect();
        let waiting = self.clients.waiting(resource);
        let claims = waiting.filter_map(|(id, entry)| Some((id, Claim { peer: me, ticket: entry.alias()? })));
        for (ticket, claim) in claims.collect::<Vec<_>>() {
            // A request that is not in the queue is on its way to the coordinator, or its token is on its way here.
            if let Some(&ahead) = places.get(&claim) {
                let comes = queue.locations.iter().any(|location| location.free && location.next == Some(claim));
                self.on_place(ticket, ahead, comes);
            }
        }
    }

    /// Sets a queue position. A client that does not wait fails, unless a free token is on its way to it.
    fn on_place(&mut self, ticket: TicketId, ahead: u32, comes: bool) {
        let Some(entry) = self.clients.get(ticket) else { return };
        let (name, label) = (entry.wanted.name.clone(), entry.wanted.label.clone());
        if entry.wanted.wait == Wait::Try && !comes {
            return self.end(ticket, Error::NotAcquired { name, place: Some(ahead) });
        }
        if let Some((true, first)) = self.clients.place(ticket, ahead, self.now) {
            let progress = Progress { ahead: Some(ahead), expected: expected(first, self.now, ahead) };
            self.effects.push(Effect::Progress(ticket, progress));
            self.effects.push(Effect::Event(Event::Waiting { name, label, ticket: ticket.0, ahead: Some(ahead) }));
        }
    }

    pub(super) fn show(&mut self, call: u64, name: Name) {
        if let Some(error) = self.problem() {
            return self.answer(call, Err(error));
        }
        let number = self.survey.query(call, name, self.now);
        self.on_query_alarm(number);
    }

    pub(super) fn on_query_alarm(&mut self, number: u64) {
        let Some(name) = self.survey.queried(number).cloned() else { return };
        self.timers.set(Alarm::Query(number), self.now + QUERY);
        match self.survey.try_again(number) {
            Next::Registry => {
                if !self.session_state.is_asking(&Ask::Show(number)) {
                    self.session_state.look(Look::Resource(label(&name)), Ask::Show(number), self.now);
                }
            }
            Next::QueueReport(coordinator) => self.ask(coordinator, number, Question::QueueReport(name.key())),
            Next::Finish => self.finish_query(number),
        }
    }

    pub(super) fn on_query_page(&mut self, number: u64, page: Page) {
        match page.resources.into_iter().next() {
            Some(found) => {
                self.survey.on_query_result(number, found);
                self.on_query_alarm(number);
            }
            None => {
                let Some(query) = self.survey.finish(number) else { return };
                self.timers.cancel(&Alarm::Query(number));
                self.answer(query.call, Err(Error::NoSuchResource { name: query.name }));
            }
        }
    }

    /// Queries the registry for unknown names of the hosts to show.
    fn ask_for_names(&mut self, number: u64) {
        let unknown = self.survey.shown(number).into_iter().filter(|host| !self.is_member(*host));
        let unknown: Vec<PeerId> = unknown.take(MOST_HOSTS).collect();
        if !unknown.is_empty() && self.session_state.look(Look::Hosts(unknown), Ask::Names(number), self.now) {
            self.survey.await_names(number);
        }
    }

    pub(super) fn on_query_names(&mut self, number: u64, view: View) {
        self.survey.on_query_names(number, view.members.into_iter().map(|(host, info)| (host, info.name.to_string())));
        self.try_to_finish(number);
    }

    fn try_to_finish(&mut self, number: u64) {
        if self.survey.is_complete(number) {
            self.finish_query(number);
        }
    }

    fn finish_query(&mut self, number: u64) {
        let Some(query) = self.survey.finish(number) else { return };
        self.timers.cancel(&Alarm::Query(number));
        let (call, name, asked, missing) = (query.call, query.name.clone(), query.asked, query.missing());
        let shown = query.details(|host| self.name_of(host)).ok_or_else(|| match missing {
            Some((since, missing)) => self.recovering(name, since, &missing),
            None => {
                let since = self.now.since(asked).into();
                self.problem().unwrap_or(Error::NoMajority { missing: Vec::new(), since })
            }
        });
        self.answer(call, shown.map(super::Answer::Shown));
    }
}
