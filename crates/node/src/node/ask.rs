//! Asking the others, and answering them: for places in line, for `show`, and for what has come to a standstill.

use std::collections::{BTreeMap, BTreeSet};

use peerlock_base::{Key, PeerId, Span, Time};
use peerlock_mutex::token::Claim;
use peerlock_peer as peer;

use super::{Alarm, Effect, Node};
use crate::clients::{Stage, TicketId, Wait};
use crate::guard::Line;
use crate::survey::{QUERY_TRIES, expected};
use crate::wire::{Answer, Body, Client, Question};
use crate::{Error, Event, Guard, Name, Progress, Routing};

/// How often a client's place is asked for at most, and how often when it will not wait.
const SURVEY: Span = Span::from_secs(2);
const SURVEY_FIRST: Span = Span::from_millis(100);
const SURVEY_TRY: Span = Span::from_millis(50);
/// How long `show` waits for an answer.
const QUERY: Span = Span::from_millis(500);
/// A question that was passed on so often goes round in circles.
const MOST_HOPS: u8 = 64;

impl<P: Guard, O: Routing> Node<P, O> {
    /// Asks for the line of a resource soon, if nobody has.
    pub(super) fn ask_soon(&mut self, resource: Key, at_once: bool) {
        if at_once {
            self.ask_for_line(resource);
        } else {
            self.timers.set_if_none(Alarm::Survey(resource), self.now + SURVEY_FIRST);
        }
    }

    /// Sends away who waits in vain, and asks the coordinator for the line.
    pub(super) fn ask_for_line(&mut self, resource: Key) {
        self.end_stalled(resource);
        let often = |wait: Wait, ttl: Span| if wait == Wait::Try { SURVEY_TRY } else { ttl / 3 };
        let waiting = self.clients.waiting(resource).map(|(_, entry)| often(entry.wanted.wait, entry.wanted.ttl));
        let Some(after) = waiting.min() else { return };
        self.timers.set(Alarm::Survey(resource), self.now + after.min(SURVEY));
        self.ask_for_pending();
        let Some(coordinator) = self.peer.protocol(resource).map(Guard::coordinator) else { return };
        let question = self.survey.ask(resource, coordinator, self.now);
        self.ask(coordinator, question, Question::Line(resource));
    }

    fn end_stalled(&mut self, resource: Key) {
        let stalled = self.clients.waiting(resource).filter_map(|(ticket, entry)| {
            // A little less than the lease, so that the last question before its end finds out.
            let patience = entry.wanted.ttl * 5 / 6;
            let stall = self.survey.stall(resource, entry.asked, self.now, patience)?;
            let who = stall.who.map(|member| self.membership.name_of(member));
            let (name, since) = (entry.wanted.name.clone(), self.now.since(stall.since).into());
            Some((ticket, Error::Stalled { name, who, since }))
        });
        stalled.collect::<Vec<_>>().into_iter().for_each(|(ticket, error)| self.end(ticket, error));
    }

    /// Asks a member, or ourselves.
    pub(super) fn ask(&mut self, to: PeerId, number: u64, question: Question) {
        let me = self.membership.contacts.me();
        if self.membership.contacts.heir(to) == me {
            self.on_ask(me, number, 0, question);
        } else {
            self.mention(to, &Body::Ask { asker: me, number, hops: 0, question });
        }
    }

    /// Answers a question, or passes it on to who can.
    pub(super) fn on_ask(&mut self, asker: PeerId, number: u64, hops: u8, question: Question) {
        let me = self.membership.contacts.me();
        let answer = match question {
            Question::Here(resource) => Some(self.here(resource)),
            Question::Found(resource, question) => self.on_question(asker, resource, question),
            Question::Line(resource) => {
                self.forget_lost_tokens(resource);
                let Some(protocol) = self.peer.open(resource) else { return };
                let (line, to) = (protocol.line(), protocol.coordinator());
                // Not to ourselves: the role is on its way here.
                if line.is_none() && hops < MOST_HOPS && self.membership.contacts.heir(to) != me {
                    self.mention(to, &Body::Ask { asker, number, hops: hops + 1, question });
                }
                line.map(Answer::Line)
            }
        };
        match answer {
            Some(answer) if asker == me => self.on_answer(me, number, answer),
            Some(answer) => self.mention(asker, &Body::Answer { number, answer }),
            None => {}
        }
    }

    /// Word that a free token went to somebody may come after word that this somebody is gone. Nobody shall wait for it
    /// then.
    fn forget_lost_tokens(&mut self, resource: Key) {
        let Some(line) = self.peer.protocol(resource).and_then(Guard::line) else { return };
        let is_gone = |member: &PeerId| self.membership.contacts.is_gone(*member, self.now, self.config.gone);
        let lost: BTreeSet<PeerId> = line.seats.iter().filter(|seat| seat.free).map(|seat| seat.at).collect();
        let lost: Vec<PeerId> = lost.into_iter().filter(is_gone).collect();
        lost.into_iter().for_each(|member| self.peer_step(peer::Input::PeerDown(member)));
    }

    /// What is here of a resource.
    fn here(&self, resource: Key) -> Answer {
        let tokens = self.peer.protocol(resource).into_iter().flat_map(Guard::held);
        Answer::Here {
            tokens: tokens.map(|token| token.slot).collect(),
            clients: self.clients_of(resource, self.now).collect(),
        }
    }

    /// The clients here that have asked the protocol: those inside, then those who wait.
    pub(super) fn clients_of(&self, resource: Key, now: Time) -> impl Iterator<Item = Client> {
        self.clients.of(resource).filter_map(move |entry| {
            let (since, grant) = match entry.stage {
                Stage::Held { grant, since, .. } => (since, Some((grant.slot, grant.fencing))),
                Stage::Waiting { .. } => (entry.asked, None),
            };
            let millis = now.since(since).as_nanos() / 1_000_000;
            Some(Client { ticket: entry.claim()?, label: entry.wanted.label.clone(), millis, grant })
        })
    }

    pub(super) fn on_answer(&mut self, from: PeerId, number: u64, answer: Answer) {
        match answer {
            Answer::Found(memory) => self.on_founding_answer(from, number, memory),
            Answer::Line(line) if self.survey.is_query(number) => {
                let Some((resource, named)) = self.survey.on_query_line(from, number, line) else { return };
                self.timers.set(Alarm::Query(number), self.now + QUERY);
                named.into_iter().for_each(|peer| self.ask(peer, number, Question::Here(resource)));
            }
            Answer::Line(line) => {
                let heard = self.survey.on_line(from, number, &line, self.now);
                let Some((resource, holders, is_latest)) = heard else { return };
                if is_latest {
                    self.on_line(resource, &line);
                }
                holders.into_iter().for_each(|holder| self.ask(holder, number, Question::Here(resource)));
            }
            Answer::Here { clients, .. } if self.survey.is_query(number) => {
                if self.survey.on_query_clients(from, number, clients) {
                    self.finish_query(number);
                }
            }
            Answer::Here { tokens, .. } => self.survey.on_tokens(from, number, &tokens, self.now),
        }
    }

    /// Tells those who wait here how far they have come.
    fn on_line(&mut self, resource: Key, line: &Line) {
        let me = self.membership.contacts.me();
        let places: BTreeMap<Claim, u32> = line.waiting.iter().copied().zip(0..).collect();
        let waiting = self.clients.waiting(resource);
        let claims = waiting.filter_map(|(id, entry)| Some((id, Claim { peer: me, ticket: entry.claim()? })));
        for (ticket, claim) in claims.collect::<Vec<_>>() {
            match places.get(&claim) {
                Some(&ahead) => {
                    let comes = line.seats.iter().any(|seat| seat.free && seat.next == Some(claim));
                    self.on_place(ticket, ahead, comes);
                }
                None => {
                    if self.clients.miss(ticket) {
                        self.request_again(ticket);
                    }
                }
            }
        }
    }

    /// A ticket is in line, with `ahead` others before it. A client that does not want to wait goes, unless a free
    /// token is on its way.
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
        let number = self.survey.query(call, name);
        self.on_query_alarm(number);
    }

    /// Asks the coordinator once more, or makes do with what has been told.
    pub(super) fn on_query_alarm(&mut self, number: u64) {
        let resource = self.survey.try_again(number);
        let asked = resource.and_then(|resource| Some((resource, self.peer.open(resource)?.coordinator())));
        let Some((resource, coordinator)) = asked else { return self.finish_query(number) };
        self.timers.set(Alarm::Query(number), self.now + QUERY);
        self.ask(coordinator, number, Question::Line(resource));
    }

    fn finish_query(&mut self, number: u64) {
        let Some(query) = self.survey.finish(number) else { return };
        self.timers.cancel(&Alarm::Query(number));
        let call = query.call;
        let shown = query.details(|member| self.membership.name_of(member)).map_err(|name| {
            let coordinator = self.peer.protocol(name.key()).map(Guard::coordinator);
            if coordinator.is_none() && self.clients.name(name.key()).is_none() {
                return Error::NoSuchResource { name };
            }
            let who = coordinator.map(|member| self.membership.name_of(member));
            Error::Stalled { name, who, since: (QUERY * u64::from(QUERY_TRIES)).into() }
        });
        self.answer(call, shown.map(super::Answer::Shown));
    }
}
