//! Who waits, and where the tokens are: asked of the coordinator, and then of the peers that it names.
//!
//! A peer whose clients wait asks at intervals, and finds out what has come to a standstill. A client that wants to see
//! a resource in the whole cluster asks once: a [`Query`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use peerlock_base::{Key, PeerId, Span, Time};

use crate::guard::Line;
use crate::health::{Health, Stall};
use crate::wire::Client;
use crate::{ClientView, Name, ResourceDetails, SlotView, WaiterView};

/// How often the coordinator is asked for a [`Query`].
pub const QUERY_TRIES: u8 = 4;

/// Answers to at most this many questions about a resource are heard.
const QUESTIONS: usize = 8;

/// What is known of a resource that clients here wait for.
#[derive(Clone, Debug, Default)]
struct Watched {
    health: Health,
    /// The last questions that were asked about it, the latest last. Where messages take long, an answer comes when the
    /// next question has been asked: whoever gives it is alive all the same.
    questions: VecDeque<u64>,
}

/// A question about the whole cluster that somebody here has asked.
#[derive(Clone, Debug)]
pub struct Query {
    /// Who wants to know.
    pub call: u64,
    /// The resource that it is about.
    pub name: Name,
    tries: u8,
    line: Option<(PeerId, Line)>,
    /// Who has not told yet.
    silent: BTreeSet<PeerId>,
    clients: BTreeMap<PeerId, Vec<Client>>,
}

/// All that is being asked.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    watched: BTreeMap<Key, Watched>,
    queries: BTreeMap<u64, Query>,
    last_question: u64,
}

impl Survey {
    /// The first client here waits for a resource: whatever was heard before is old.
    pub fn begin(&mut self, resource: Key) {
        self.watched.insert(resource, Watched::default());
    }

    /// A coordinator is asked for the line: the number of the question.
    pub fn ask(&mut self, resource: Key, coordinator: PeerId, now: Time) -> u64 {
        self.last_question += 1;
        let watched = self.watched.entry(resource).or_default();
        watched.questions.push_back(self.last_question);
        if watched.questions.len() > QUESTIONS {
            watched.questions.pop_front();
        }
        watched.health.asked(coordinator, now);
        self.last_question
    }

    /// Who holds up a client that has waited since `asked`, if anybody does.
    pub fn stall(&self, resource: Key, asked: Time, now: Time, patience: Span) -> Option<Stall> {
        self.watched.get(&resource)?.health.stall(asked, now, patience)
    }

    /// The resource that a question was about.
    fn asked_with(&mut self, number: u64) -> Option<(Key, &mut Watched)> {
        let mut watched = self.watched.iter_mut();
        watched.find(|(_, watched)| watched.questions.contains(&number)).map(|(resource, watched)| (*resource, watched))
    }

    /// The coordinator has answered: the resource, who should have its tokens and is to be asked next, and whether it
    /// is the answer to the latest question, so that all who asked before it stand in line.
    pub fn on_line(
        &mut self,
        from: PeerId,
        number: u64,
        line: &Line,
        now: Time,
    ) -> Option<(Key, BTreeSet<PeerId>, bool)> {
        let (resource, Watched { health, questions }) = self.asked_with(number)?;
        line.seats.iter().for_each(|seat| health.on_seat(from, seat.slot, seat.at, seat.stay, now));
        Some((resource, health.holders().collect(), questions.back() == Some(&number)))
    }

    /// A peer has told which tokens are there.
    pub fn on_tokens(&mut self, from: PeerId, number: u64, tokens: &[u32], now: Time) {
        if let Some((_, watched)) = self.asked_with(number) {
            tokens.iter().for_each(|&slot| watched.health.on_token(from, slot, now));
        }
    }

    /// Somebody here wants to see a resource: the number of the question.
    pub fn query(&mut self, call: u64, name: Name) -> u64 {
        self.last_question += 1;
        let query = Query { call, name, tries: 0, line: None, silent: BTreeSet::new(), clients: BTreeMap::new() };
        self.queries.insert(self.last_question, query);
        self.last_question
    }

    /// Whether this is the number of a query.
    pub fn is_query(&self, number: u64) -> bool {
        self.queries.contains_key(&number)
    }

    /// The resource of a query whose coordinator is to be asked, once more; `None` if it must do with what was told.
    pub fn try_again(&mut self, number: u64) -> Option<Key> {
        let query = self.queries.get_mut(&number)?;
        query.tries += 1;
        (query.line.is_none() && query.tries <= QUERY_TRIES).then(|| query.name.key())
    }

    /// The coordinator has answered a query: the resource, and everybody who is to be asked next.
    pub fn on_query_line(&mut self, from: PeerId, number: u64, line: Line) -> Option<(Key, BTreeSet<PeerId>)> {
        let query = self.queries.get_mut(&number).filter(|query| query.line.is_none())?;
        let named = line.waiting.iter().map(|claim| claim.peer).chain(line.seats.iter().map(|seat| seat.at));
        query.silent = named.collect();
        query.line = Some((from, line));
        Some((query.name.key(), query.silent.clone()))
    }

    /// A peer has told of its clients. True if nobody is missing any more.
    pub fn on_query_clients(&mut self, from: PeerId, number: u64, clients: Vec<Client>) -> bool {
        let Some(query) = self.queries.get_mut(&number) else { return false };
        query.silent.remove(&from);
        query.clients.insert(from, clients);
        query.line.is_some() && query.silent.is_empty()
    }

    /// A query is over.
    pub fn finish(&mut self, number: u64) -> Option<Query> {
        self.queries.remove(&number)
    }

    /// What must be true after each step; `has_alarm` tells whether a query will be looked at again.
    pub fn check(&self, has_alarm: impl Fn(u64) -> bool) {
        for number in self.queries.keys() {
            assert!(has_alarm(*number), "question {number} is never given up");
        }
    }
}

impl Query {
    /// What was told, with peers called as people know them; nothing if there was no answer from the coordinator.
    pub fn details(self, name_of: impl Fn(PeerId) -> PeerId) -> Result<ResourceDetails, Name> {
        let Self { name, line, clients, .. } = self;
        let Some((coordinator, Line { waiting, mut seats })) = line else { return Err(name) };
        let find = |peer: PeerId, is: &dyn Fn(&Client) -> bool| {
            let client = clients.get(&peer)?.iter().find(|client| is(client))?;
            let age = Duration::from_millis(client.millis);
            Some(ClientView { label: client.label.clone(), age, fencing: client.grant.map(|(_, fencing)| fencing) })
        };
        seats.sort_by_key(|seat| seat.slot);
        let holders = seats.iter().map(|seat| {
            let client = find(seat.at, &|client| client.grant.is_some_and(|(slot, _)| slot == seat.slot));
            SlotView { slot: seat.slot, peer: name_of(seat.at), free: client.is_none() && seat.free, client }
        });
        let queue = waiting.iter().map(|claim| WaiterView {
            peer: name_of(claim.peer),
            client: find(claim.peer, &|client| client.ticket == claim.ticket),
        });
        Ok(ResourceDetails {
            slots: seats.len() as u32,
            coordinator: name_of(coordinator),
            holders: holders.collect(),
            queue: queue.collect(),
            name,
        })
    }
}

/// How long it will take for `ahead` to become nobody, at the speed since `first`.
pub fn expected(first: (Time, u32), now: Time, ahead: u32) -> Option<Duration> {
    let done = first.1.checked_sub(ahead).filter(|done| *done > 0)?;
    Some((now.since(first.0) * u64::from(ahead + 1) / u64::from(done)).into())
}

#[cfg(test)]
mod tests {
    
    use peerlock_base::Ticket;
    use peerlock_mutex::token::Claim;

    use super::*;
    use crate::guard::Seat;

    const COORDINATOR: PeerId = PeerId::new(1);
    const HOLDER: PeerId = PeerId::new(2);

    fn line() -> Line {
        let seat = Seat { slot: 0, at: HOLDER, stay: 4, free: false, next: None };
        Line { waiting: vec![Claim { peer: COORDINATOR, ticket: Ticket::new(7) }], seats: vec![seat] }
    }

    fn client(ticket: u64, grant: Option<(u32, u64)>) -> Client {
        Client { ticket: Ticket::new(ticket), label: "x".into(), millis: 5, grant }
    }

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

    #[test]
    fn a_query_is_complete_when_everybody_named_has_told() {
        let name: Name = "r".parse().unwrap();
        let mut survey = Survey::default();
        let number = survey.query(9, name.clone());
        assert_eq!(survey.try_again(number), Some(name.key()));
        let asked = survey.on_query_line(COORDINATOR, number, line()).unwrap().1;
        assert_eq!(asked, [COORDINATOR, HOLDER].into());
        assert_eq!(survey.on_query_line(COORDINATOR, number, line()), None, "answered already");
        assert!(!survey.on_query_clients(COORDINATOR, number, vec![client(7, None)]));
        assert!(survey.on_query_clients(HOLDER, number, vec![client(3, Some((0, 44)))]));
        let query = survey.finish(number).unwrap();
        assert_eq!(query.call, 9);
        let details = query.details(|peer| peer).unwrap();
        assert_eq!((details.slots, details.coordinator, details.queue.len()), (1, COORDINATOR, 1));
        assert_eq!(details.holders[0].client.as_ref().unwrap().fencing, Some(44));
        assert!(details.queue[0].client.is_some());
    }

    #[test]
    fn a_coordinator_that_does_not_answer_is_asked_four_times() {
        let mut survey = Survey::default();
        let number = survey.query(9, "r".parse().unwrap());
        assert_eq!((0..10).filter(|_| survey.try_again(number).is_some()).count(), usize::from(QUERY_TRIES));
        assert!(survey.finish(number).unwrap().details(|peer| peer).is_err());
    }

    #[test]
    fn a_late_answer_tells_that_its_sender_is_alive_and_no_more() {
        let (resource, at) = (Key::new(1), |second| Time::ZERO + Span::from_secs(second));
        let mut survey = Survey::default();
        survey.begin(resource);
        let numbers: Vec<u64> = (0..=QUESTIONS as u64).map(|n| survey.ask(resource, COORDINATOR, at(n))).collect();
        assert_eq!(survey.on_line(COORDINATOR, numbers[0], &line(), at(10)), None, "too old");
        assert_eq!(survey.stall(resource, at(0), at(30), Span::from_secs(30)).unwrap().who, Some(COORDINATOR));
        let heard = |latest| Some((resource, [HOLDER].into(), latest));
        assert_eq!(survey.on_line(COORDINATOR, numbers[1], &line(), at(10)), heard(false));
        assert_eq!(survey.stall(resource, at(0), at(39), Span::from_secs(30)), None);
        assert_eq!(survey.on_line(COORDINATOR, numbers[QUESTIONS], &line(), at(10)), heard(true));
    }
}
