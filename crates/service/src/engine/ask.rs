//! Who waits, and where the tokens are: asked of the coordinator, and then of the peers that it names.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use peerlock_base::{Key, PeerId, Span, Time};
use peerlock_mutex::token::Claim;

use super::tickets::Stage;
use super::{Alarm, Engine, Out, TicketId, Wait, duration};
use crate::wire::{Answer, Body, Client, Question, Seat};
use crate::{ClientView, Error, Event, Name, Progress, ResourceDetails, SlotView, WaiterView};

/// How often a client's place is asked for at most, and how often when it will not wait.
const SURVEY: Span = Span::from_secs(2);
const SURVEY_FIRST: Span = Span::from_millis(100);
const SURVEY_TRY: Span = Span::from_millis(50);
/// How long `show` waits for an answer, and how often it asks the coordinator.
const QUERY: Span = Span::from_millis(500);
const QUERY_TRIES: u8 = 4;
/// A question that was passed on so often goes round in circles.
const MOST_HOPS: u8 = 64;

/// A question of `show`.
pub(super) struct Query {
    name: Name,
    resource: Key,
    tries: u8,
    line: Option<(PeerId, Vec<Claim>, Vec<Seat>)>,
    /// Who has not told yet.
    silent: BTreeSet<PeerId>,
    clients: BTreeMap<PeerId, Vec<Client>>,
}

impl Engine {
    /// Asks for the line of a resource soon, if nobody has.
    pub(super) fn survey_soon(&mut self, resource: Key, at_once: bool) {
        if at_once {
            self.survey(resource);
        } else {
            self.timers.set_if_none(Alarm::Survey(resource), self.now + SURVEY_FIRST);
        }
    }

    /// Sends away who waits in vain, and asks the coordinator for the line.
    pub(super) fn survey(&mut self, resource: Key) {
        self.end_stalled(resource);
        let Some(known) = self.resources.get(&resource).filter(|known| !known.waiting.is_empty()) else { return };
        let waiting = known.waiting.iter().filter_map(|ticket| self.tickets.get(ticket));
        let often = waiting.map(|entry| if entry.wanted.wait == Wait::Try { SURVEY_TRY } else { entry.wanted.ttl / 3 });
        let after = often.min().unwrap_or(SURVEY).min(SURVEY);
        self.timers.set(Alarm::Survey(resource), self.now + after);
        self.ask_for_pending();
        let Some(coordinator) = self.protocol(resource).map(|protocol| protocol.coordinator()) else { return };
        self.last_question += 1;
        let question = self.last_question;
        if let Some(known) = self.resources.get_mut(&resource) {
            known.question = question;
            known.health.asked(coordinator, self.now);
        }
        self.ask(coordinator, question, Question::Line(resource));
    }

    fn end_stalled(&mut self, resource: Key) {
        let Some(known) = self.resources.get(&resource) else { return };
        let stall = |ticket: &TicketId| {
            let wanted = self.tickets.get(ticket)?;
            // A little less than the lease, so that the last question before its end finds out.
            let patience = wanted.wanted.ttl * 5 / 6;
            Some((*ticket, known.health.stall(wanted.asked, self.now, patience)?))
        };
        let stalled: Vec<_> = known.waiting.iter().filter_map(stall).collect();
        for (ticket, stall) in stalled {
            let name = self.resources[&resource].name.clone();
            let who = stall.who.map(|member| self.name_of(member));
            let since = duration(self.now.since(stall.since));
            self.end(ticket, Error::Stalled { name, who, since });
        }
    }

    /// The host of a member, by which people know it.
    pub(super) fn name_of(&self, member: PeerId) -> PeerId {
        if member == self.contacts.me() { self.me.0 } else { self.contacts.host(member).map_or(member, |host| host.0) }
    }

    pub(super) fn ask(&mut self, to: PeerId, number: u64, question: Question) {
        let me = self.contacts.me();
        self.pass_on(to, Body::Ask { asker: me, number, hops: 0, question });
    }

    /// To another, or to ourselves.
    fn pass_on(&mut self, to: PeerId, body: Body) {
        if self.contacts.heir(to) == self.contacts.me() {
            if let Body::Ask { asker, number, hops, question } = body {
                self.on_ask(asker, number, hops, question);
            }
        } else {
            self.mention(to, &body);
        }
    }

    /// Answers a question, or passes it on to who can.
    pub(super) fn on_ask(&mut self, asker: PeerId, number: u64, hops: u8, question: Question) {
        let answer = match question {
            Question::Here(resource) => self.here(resource),
            Question::Found(resource, question) => self.on_question(asker, resource, question),
            Question::Line(resource) => {
                self.recall(resource);
                let Some(protocol) = self.protocol(resource) else { return };
                let Some(line) = protocol.line() else {
                    let to = protocol.coordinator();
                    // Not to ourselves: the role is on its way here.
                    if hops < MOST_HOPS && self.contacts.heir(to) != self.contacts.me() {
                        self.mention(to, &Body::Ask { asker, number, hops: hops + 1, question });
                    }
                    return;
                };
                let seats = line.seats().map(|seat| Seat {
                    slot: seat.slot,
                    at: seat.at,
                    stay: seat.stay,
                    free: seat.free,
                    next: seat.next,
                });
                Answer::Line { waiting: line.waiting().collect(), seats: seats.collect() }
            }
        };
        let me = self.contacts.me();
        if asker == me {
            self.on_answer(me, number, answer);
        } else {
            self.mention(asker, &Body::Answer { number, answer });
        }
    }

    /// What is here of a resource.
    fn here(&self, resource: Key) -> Answer {
        let tokens = self
            .protocol(resource)
            .map_or(Vec::new(), |protocol| protocol.held().map(|(token, _)| token.slot).collect());
        Answer::Here { tokens, clients: self.clients(resource, self.now).collect() }
    }

    /// The clients here that have asked the protocol: those inside, then those who wait.
    pub(super) fn clients(&self, resource: Key, now: Time) -> impl Iterator<Item = Client> {
        let tickets = self.resources.get(&resource).map(|known| known.holding.iter().chain(&known.waiting));
        tickets.into_iter().flatten().filter_map(move |ticket| {
            let entry = self.tickets.get(ticket)?;
            let (since, grant) = match entry.stage {
                Stage::Held { grant, since, .. } => (since, Some((grant.slot, grant.fencing))),
                Stage::Waiting { .. } => (entry.asked, None),
            };
            let millis = now.since(since).as_nanos() / 1_000_000;
            Some(Client { ticket: entry.claim?, label: entry.wanted.label.clone(), millis, grant })
        })
    }

    pub(super) fn on_answer(&mut self, from: PeerId, number: u64, answer: Answer) {
        if let Answer::Found(memory) = answer {
            return self.on_founding_answer(from, number, memory);
        }
        if self.queries.contains_key(&number) {
            return self.on_query_answer(from, number, answer);
        }
        let Some((&resource, _)) = self.resources.iter().find(|(_, known)| known.question == number) else { return };
        match answer {
            Answer::Line { waiting, seats } => self.on_line(from, resource, number, &waiting, &seats),
            Answer::Found(_) => {}
            Answer::Here { tokens, .. } => {
                if let Some(known) = self.resources.get_mut(&resource) {
                    tokens.into_iter().for_each(|slot| known.health.on_token(from, slot, self.now));
                }
            }
        }
    }

    fn on_line(&mut self, from: PeerId, resource: Key, number: u64, waiting: &[Claim], seats: &[Seat]) {
        let (me, now) = (self.contacts.me(), self.now);
        let Some(known) = self.resources.get_mut(&resource) else { return };
        for seat in seats {
            known.health.on_seat(from, seat.slot, seat.at, seat.stay, now);
        }
        let holders: BTreeSet<PeerId> = known.health.holders().collect();
        let tickets: Vec<TicketId> = known.waiting.iter().copied().collect();
        let places: BTreeMap<Claim, u32> = waiting.iter().copied().zip(0..).collect();
        for ticket in tickets {
            let Some(entry) = self.tickets.get(&ticket) else { continue };
            let Some(claim) = entry.claim.map(|ticket| Claim { peer: me, ticket }) else { continue };
            match places.get(&claim) {
                Some(&ahead) => {
                    let comes = seats.iter().any(|seat| seat.free && seat.next == Some(claim));
                    self.on_place(ticket, ahead, comes);
                }
                None => self.on_missing(ticket),
            }
        }
        holders.into_iter().for_each(|holder| self.ask(holder, number, Question::Here(resource)));
    }

    /// A ticket is in line, with so many ahead. Who does not want to wait goes, unless a free token is on its way.
    fn on_place(&mut self, ticket: TicketId, now_ahead: u32, comes: bool) {
        let now = self.now;
        let Some(entry) = self.tickets.get_mut(&ticket) else { return };
        let (name, label) = (entry.wanted.name.clone(), entry.wanted.label.clone());
        if entry.wanted.wait == Wait::Try && !comes {
            return self.end(ticket, Error::NotAcquired { name, place: Some(now_ahead) });
        }
        let Stage::Waiting { ahead, first, missing } = &mut entry.stage else { return };
        let changed = ahead.replace(now_ahead) != Some(now_ahead);
        let first = *first.get_or_insert((now, now_ahead));
        *missing = 0;
        if changed {
            let progress = Progress { ahead: Some(now_ahead), expected: expected(first, now, now_ahead) };
            self.out.push(Out::Progress(ticket, progress));
            self.out.push(Out::Event(Event::Waiting { name, label, ticket: ticket.0, ahead: Some(now_ahead) }));
        }
    }

    /// The coordinator does not know a ticket. Once: its token may be on the way. Twice: it was struck out when we
    /// could not be reached.
    fn on_missing(&mut self, ticket: TicketId) {
        let Some(entry) = self.tickets.get_mut(&ticket) else { return };
        let Stage::Waiting { missing, .. } = &mut entry.stage else { return };
        *missing += 1;
        if *missing >= 2 {
            *missing = 0;
            self.request_again(ticket);
        }
    }

    /// Who waits for a resource and who is inside, in the whole cluster; [`Out::Shown`] answers.
    pub fn show(&mut self, name: Name, now: Time) -> u64 {
        self.now = now;
        self.last_question += 1;
        let (number, resource) = (self.last_question, name.key());
        self.recall(resource);
        let query = Query { name, resource, tries: 0, line: None, silent: BTreeSet::new(), clients: BTreeMap::new() };
        self.queries.insert(number, query);
        self.on_query_alarm(number);
        self.settle();
        number
    }

    /// Asks the coordinator once more, or makes do with what has been told.
    pub(super) fn on_query_alarm(&mut self, number: u64) {
        let Some(query) = self.queries.get_mut(&number) else { return };
        let (resource, tries) = (query.resource, query.tries);
        query.tries += 1;
        if query.line.is_some() || tries >= QUERY_TRIES {
            return self.finish_query(number);
        }
        let Some(coordinator) = self.protocol(resource).map(|protocol| protocol.coordinator()) else {
            return self.finish_query(number);
        };
        self.timers.set(Alarm::Query(number), self.now + QUERY);
        self.ask(coordinator, number, Question::Line(resource));
    }

    fn on_query_answer(&mut self, from: PeerId, number: u64, answer: Answer) {
        let Some(query) = self.queries.get_mut(&number) else { return };
        match answer {
            Answer::Line { waiting, seats } if query.line.is_none() => {
                let named = waiting.iter().map(|claim| claim.peer).chain(seats.iter().map(|seat| seat.at));
                query.silent = named.collect();
                query.line = Some((from, waiting, seats));
                let (resource, silent) = (query.resource, query.silent.clone());
                self.timers.set(Alarm::Query(number), self.now + QUERY);
                silent.into_iter().for_each(|peer| self.ask(peer, number, Question::Here(resource)));
            }
            Answer::Line { .. } | Answer::Found(_) => {}
            Answer::Here { clients, .. } => {
                query.silent.remove(&from);
                query.clients.insert(from, clients);
                if query.line.is_some() && query.silent.is_empty() {
                    self.finish_query(number);
                }
            }
        }
    }

    fn finish_query(&mut self, number: u64) {
        let Some(query) = self.queries.remove(&number) else { return };
        self.timers.cancel(&Alarm::Query(number));
        let Query { name, resource, line, clients, .. } = query;
        let coordinator = self.protocol(resource).map(|protocol| protocol.coordinator());
        let Some((coordinator, waiting, mut seats)) = line else {
            if coordinator.is_none() && !self.resources.contains_key(&resource) {
                return self.out.push(Out::Shown(number, Err(Error::NoSuchResource { name })));
            }
            let who = coordinator.map(|member| self.name_of(member));
            let since = duration(QUERY * u64::from(QUERY_TRIES));
            return self.out.push(Out::Shown(number, Err(Error::Stalled { name, who, since })));
        };
        let find = |peer: PeerId, is: &dyn Fn(&Client) -> bool| {
            let client = clients.get(&peer)?.iter().find(|client| is(client))?;
            let age = Duration::from_millis(client.millis);
            Some(ClientView { label: client.label.clone(), age, fencing: client.grant.map(|(_, fencing)| fencing) })
        };
        seats.sort_by_key(|seat| seat.slot);
        let holders = seats.iter().map(|seat| {
            let client = find(seat.at, &|client| client.grant.is_some_and(|(slot, _)| slot == seat.slot));
            SlotView { slot: seat.slot, peer: self.name_of(seat.at), free: client.is_none() && seat.free, client }
        });
        let queue = waiting.iter().map(|claim| WaiterView {
            peer: self.name_of(claim.peer),
            client: find(claim.peer, &|client| client.ticket == claim.ticket),
        });
        let details = ResourceDetails {
            slots: seats.len() as u32,
            coordinator: self.name_of(coordinator),
            holders: holders.collect(),
            queue: queue.collect(),
            name,
        };
        self.out.push(Out::Shown(number, Ok(details)));
    }
}

/// How long it will take for `ahead` to become nobody, at the speed since `first`.
fn expected(first: (Time, u32), now: Time, ahead: u32) -> Option<Duration> {
    let done = first.1.checked_sub(ahead).filter(|done| *done > 0)?;
    Some(duration(now.since(first.0) * u64::from(ahead + 1) / u64::from(done)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_to_wait_goes_by_the_time_waited() {
        let at = |second| Time::ZERO + Span::from_secs(second);
        for (first, now, ahead, seconds) in [
            ((10, 5), 10, 5, None),
            ((10, 5), 20, 5, None),
            ((10, 5), 20, 4, Some(50)),
            ((10, 5), 20, 0, Some(2)),
            ((10, 5), 20, 9, None),
        ] {
            let expected = expected((at(first.0), first.1), at(now), ahead);
            assert_eq!(expected, seconds.map(Duration::from_secs), "{first:?} {now} {ahead}");
        }
    }
}
