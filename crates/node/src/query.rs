//! Queries: `show`, and the questions of peers to each other.
//!
//! `show` has up to three steps, each with a time-out and repeated a few times:
//!
//! 1. The registry: slots, generation, coordinator, detached grants.
//! 2. `Question::QueueReport` to the coordinator: the queue and the locations of tokens.
//! 3. `Question::Here` to the hosts of holders and of the first waiters: labels, ages, deadlines.
//!
//! A peer with waiting clients asks the coordinator at intervals, for positions and to notice a slow recovery
//! ([`acquire`](crate::acquire)).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use peerlock_protocol::token::Claim;
use peerlock_protocol::{Custody, custody};
use peerlock_registry::{Look, MOST_HOSTS, Page, ResourceView, View};
use peerlock_types::{Key, PeerId, Span, Ticket, Time};
use serde::{Deserialize, Serialize};

use crate::node::{Alarm, Node};
use crate::session::label;
use crate::session_state::Ask;
use crate::wire::{Body, Client, MAX_LISTED, Question, Reply, that_fit};
use crate::{Answer, ClientView, Error, Name, PeriodView, ResourceDetails, SlotView, WaiterView};

const QUERY: Span = Span::from_millis(500);
pub const QUERY_TRIES: u8 = 4;
const MOST_ASKED: usize = 64;
/// Answers to this many of the latest questions are accepted: with long delays, an old answer still shows that the
/// coordinator is alive.
const QUESTIONS: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueReport {
    pub generation: u64,
    pub slots: u32,
    /// In serving order, at most [`MAX_LISTED`].
    pub waiting: Vec<Claim>,
    /// Positions of the receiver's clients after these.
    pub behind: Vec<(Ticket, u32)>,
    pub locations: Vec<TokenPlace>,
}

impl QueueReport {
    pub fn of(custody: &Custody, asker: PeerId) -> Option<Self> {
        let report = custody.queue()?;
        let location = |&custody::Location { slot, at, free, next, .. }: &_| TokenPlace { slot, at, free, next };
        let behind = report.waiting().zip(0..).skip(MAX_LISTED).filter(|(claim, _)| claim.peer == asker);
        Some(Self {
            generation: custody.generation(),
            slots: custody.slots(),
            waiting: report.waiting().take(MAX_LISTED).collect(),
            behind: behind.map(|(claim, place)| (claim.ticket, place)).collect(),
            locations: report.locations().map(location).collect(),
        })
    }

    fn without_parties(found: &ResourceView) -> Self {
        let (generation, slots) = (found.generation, found.slots);
        Self { generation, slots, waiting: Vec::new(), behind: Vec::new(), locations: Vec::new() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenPlace {
    pub slot: u32,
    /// The peer that has it, or to which it is being sent.
    pub at: PeerId,
    pub free: bool,
    pub next: Option<Claim>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Watched {
    /// Newest last.
    questions: VecDeque<u64>,
    answered: u64,
    /// Since when the coordinator has not answered.
    silent: Option<(Time, PeerId)>,
    /// Since when it has been counting, and the parties that have not replied.
    pub(crate) counting: Option<(Time, Vec<PeerId>)>,
}

/// A pending `show`.
#[derive(Clone, Debug)]
pub struct Query {
    call: u64,
    name: Name,
    asked: Time,
    tries: u8,
    found: Option<ResourceView>,
    pub(crate) report: Option<QueueReport>,
    counting: Option<(Time, Vec<PeerId>)>,
    pub(crate) silent: BTreeSet<PeerId>,
    pub(crate) clients: BTreeMap<PeerId, Vec<Client>>,
    /// Names of unknown hosts, from the registry, and whether that query is pending.
    pub(crate) names: BTreeMap<PeerId, String>,
    awaits_names: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Registry,
    QueueReport(PeerId),
    Finish,
}

#[derive(Clone, Debug, Default)]
pub struct Survey {
    pub(crate) watched: BTreeMap<Key, Watched>,
    pub(crate) queries: BTreeMap<u64, Query>,
    last_question: u64,
}

impl Survey {
    pub fn ask(&mut self, resource: Key, coordinator: PeerId, now: Time) -> u64 {
        self.last_question += 1;
        let watched = self.watched.entry(resource).or_default();
        watched.questions.push_back(self.last_question);
        if watched.questions.len() > QUESTIONS {
            watched.questions.pop_front();
        }
        if watched.silent.is_none_or(|(_, silent)| silent != coordinator) {
            watched.silent = Some((now, coordinator));
        }
        self.last_question
    }

    /// Returns the hosts that a resource waits for. Each question marks the coordinator as silent until it is answered,
    /// so the caller judges the duration.
    pub fn stall(&self, resource: Key) -> Option<(Time, Vec<PeerId>)> {
        let watched = self.watched.get(&resource)?;
        watched.counting.clone().or_else(|| watched.silent.map(|(since, coordinator)| (since, vec![coordinator])))
    }

    fn asked_with(&mut self, number: u64) -> Option<(Key, &mut Watched)> {
        let mut watched = self.watched.iter_mut();
        watched.find(|(_, watched)| watched.questions.contains(&number)).map(|(resource, watched)| (*resource, watched))
    }

    /// Returns whether this is the newest answer.
    fn on_report(&mut self, number: u64) -> Option<(Key, bool)> {
        let (resource, watched) = self.asked_with(number)?;
        (watched.silent, watched.counting) = (None, None);
        let is_new = number > watched.answered;
        watched.answered = watched.answered.max(number);
        Some((resource, is_new))
    }

    fn on_counting(&mut self, number: u64, since: Time, missing: Vec<PeerId>) {
        if let Some(query) = self.queries.get_mut(&number) {
            query.counting = Some((since, missing));
        } else if let Some((_, watched)) = self.asked_with(number) {
            (watched.silent, watched.counting) = (None, Some((since, missing)));
        }
    }

    pub fn check(&self, has_alarm: impl Fn(u64) -> bool) {
        for number in self.queries.keys() {
            assert!(has_alarm(*number), "query {number} has no timer");
        }
    }
}

impl Query {
    fn new(call: u64, name: Name, asked: Time) -> Self {
        let (silent, clients, names) = <_>::default();
        let (found, report, counting, awaits_names) = (None, None, None, false);
        Self { call, name, asked, tries: 0, found, report, counting, silent, clients, names, awaits_names }
    }

    fn next(&mut self) -> Next {
        self.tries += 1;
        match (&self.found, &self.report) {
            _ if self.tries > QUERY_TRIES => Next::Finish,
            (None, _) => Next::Registry,
            (Some(ResourceView { coordinator: Some((_, host)), .. }), None) => Next::QueueReport(*host),
            (Some(_), _) => Next::Finish,
        }
    }

    /// Returns the hosts of detached grants, whose clients may hold a slot without a token there.
    fn detached_at(&self) -> impl Iterator<Item = PeerId> {
        self.found.iter().flat_map(|found| found.detached.iter().map(|grant| grant.host))
    }

    /// Returns the peers to ask: those of holders and of the first waiters.
    fn on_report(&mut self, report: QueueReport) -> Option<BTreeSet<PeerId>> {
        if self.report.is_some() {
            return None;
        }
        let holders = report.locations.iter().map(|location| location.at);
        let named = holders.chain(self.detached_at()).chain(report.waiting.iter().map(|claim| claim.peer));
        let mut asked = BTreeSet::new();
        for peer in named {
            if asked.len() >= MOST_ASKED {
                break;
            }
            asked.insert(peer);
        }
        (self.silent, self.report) = (asked.clone(), Some(report));
        Some(asked)
    }

    fn on_clients(&mut self, from: PeerId, clients: Vec<Client>) {
        self.silent.remove(&from);
        self.clients.insert(from, clients);
    }

    fn on_names(&mut self, names: impl Iterator<Item = (PeerId, String)>) {
        self.names.extend(names);
        self.awaits_names = false;
    }

    fn is_complete(&self) -> bool {
        self.report.is_some() && self.silent.is_empty() && !self.awaits_names
    }

    fn shown(&self) -> BTreeSet<PeerId> {
        let report = self.report.iter().flat_map(|report| {
            report.waiting.iter().map(|claim| claim.peer).chain(report.locations.iter().map(|location| location.at))
        });
        report.chain(self.detached_at()).collect()
    }

    fn missing(&self) -> Option<(Time, Vec<PeerId>)> {
        let coordinator = self.found.as_ref()?.coordinator.map(|(_, host)| host);
        Some(self.counting.clone().unwrap_or_else(|| (self.asked, coordinator.into_iter().collect())))
    }

    fn details(self, host_of: impl Fn(PeerId) -> String) -> Option<ResourceDetails> {
        let Self { name, found, report, clients, names, .. } = self;
        let host_of = |host| names.get(&host).cloned().unwrap_or_else(|| host_of(host));
        let found = found?;
        let report = match (report, &found.coordinator) {
            (Some(report), _) => report,
            (None, None) => QueueReport::without_parties(&found),
            (None, Some(_)) => return None,
        };
        let find =
            |peer: PeerId, is: &dyn Fn(&Client) -> bool| Some(clients.get(&peer)?.iter().find(|it| is(it))?.view());
        let mut holders: Vec<SlotView> = Vec::new();
        for location in &report.locations {
            // A client whose grant was superseded may not know it yet: the highest fencing number has the slot.
            let there = clients.get(&location.at).into_iter().flatten();
            let its = there.filter(|client| client.grant.is_some_and(|(slot, _)| slot == location.slot));
            let client = its.max_by_key(|client| client.grant.map(|(_, fencing)| fencing)).map(Client::view);
            let fencing = client.as_ref().and_then(|client| client.fencing);
            let detached = found.detached.iter().any(|grant| Some(grant.fencing) == fencing);
            let (peer, host, free) = (location.at, host_of(location.at), client.is_none() && location.free);
            holders.push(SlotView { slot: location.slot, peer, host, free, detached, client });
        }
        for grant in found.detached.iter().filter(|grant| grant.holds()) {
            if holders.iter().all(|holder| holder.slot != grant.slot) {
                let reported = find(grant.host, &|client| client.grant.is_some_and(|(_, it)| it == grant.fencing));
                // The grant ID is the client's secret.
                let unknown = || ClientView { fencing: Some(grant.fencing), ..ClientView::default() };
                let client = reported.unwrap_or_else(unknown);
                let (peer, host) = (grant.host, host_of(grant.host));
                let (slot, free, detached, client) = (grant.slot, false, true, Some(client));
                holders.push(SlotView { slot, peer, host, free, detached, client });
            }
        }
        holders.sort_by_key(|holder| holder.slot);
        let queue = report.waiting.iter().map(|claim| WaiterView {
            peer: claim.peer,
            host: host_of(claim.peer),
            client: find(claim.peer, &|client| client.ticket == Some(claim.ticket)),
        });
        let runs = found.detached.iter().filter_map(|grant| Some((grant, grant.run?)));
        let run = runs.max_by_key(|(grant, run)| (run.holds, grant.fencing));
        let period = run.map(|(grant, run)| PeriodView {
            succeeded: run.succeeded,
            failures: run.failures,
            holds: run.holds,
            host: host_of(grant.host),
            label: grant.note.to_string(),
            fencing: grant.fencing,
            ended: Duration::from_millis(run.ended),
            left: Duration::from_millis(grant.left),
        });
        Some(ResourceDetails {
            slots: report.slots,
            coordinator: found.coordinator.map(|(_, host)| host),
            holders,
            queue: queue.collect(),
            generation: report.generation,
            period,
            name,
        })
    }
}

pub fn expected(first: (Time, u32), now: Time, ahead: u32) -> Option<Duration> {
    let done = first.1.checked_sub(ahead).filter(|done| *done > 0)?;
    Some((now.since(first.0) * u64::from(ahead + 1) / u64::from(done)).into())
}

impl Node {
    pub(crate) fn show(&mut self, call: u64, name: Name) {
        if let Some(error) = self.problem() {
            return self.answer(call, Err(error));
        }
        self.survey.last_question += 1;
        let number = self.survey.last_question;
        self.survey.queries.insert(number, Query::new(call, name, self.now));
        self.on_query_alarm(number);
    }

    pub(crate) fn on_query_alarm(&mut self, number: u64) {
        let Some(query) = self.survey.queries.get_mut(&number) else { return };
        let (name, next) = (query.name.clone(), query.next());
        self.timers.set(Alarm::Query(number), self.now + QUERY);
        match next {
            Next::Registry => {
                if !self.session_state.is_asking(&Ask::Show(number)) {
                    self.session_state.look(Look::Resource(label(&name)), Ask::Show(number), self.now);
                }
            }
            Next::QueueReport(coordinator) => self.ask(coordinator, number, Question::QueueReport(name.key())),
            Next::Finish => self.finish_query(number),
        }
    }

    pub(crate) fn on_query_page(&mut self, number: u64, page: Page) {
        let Some(query) = self.survey.queries.get_mut(&number) else { return };
        if let Some(found) = page.resources.into_iter().next() {
            (query.found, query.tries) = (Some(found), 0);
            return self.on_query_alarm(number);
        }
        let (call, name) = (query.call, query.name.clone());
        self.survey.queries.remove(&number);
        self.timers.cancel(&Alarm::Query(number));
        self.answer(call, Err(Error::NoSuchResource { name }));
    }

    fn on_query_report(&mut self, number: u64, report: QueueReport) {
        let Some(query) = self.survey.queries.get_mut(&number) else { return };
        let resource = query.name.key();
        let Some(asked) = query.on_report(report) else { return };
        let shown = query.shown();
        self.timers.set(Alarm::Query(number), self.now + QUERY);
        let unknown: Vec<PeerId> = shown.into_iter().filter(|it| !self.is_member(*it)).take(MOST_HOSTS).collect();
        let awaits_names =
            !unknown.is_empty() && self.session_state.look(Look::Hosts(unknown), Ask::Names(number), self.now);
        if let Some(query) = self.survey.queries.get_mut(&number) {
            query.awaits_names = awaits_names;
        }
        asked.into_iter().for_each(|peer| self.ask(peer, number, Question::Here(resource)));
        self.try_to_finish(number);
    }

    pub(crate) fn on_query_names(&mut self, number: u64, view: View) {
        if let Some(query) = self.survey.queries.get_mut(&number) {
            query.on_names(view.members.into_iter().map(|(host, info)| (host, info.name.to_string())));
        }
        self.try_to_finish(number);
    }

    fn try_to_finish(&mut self, number: u64) {
        if self.survey.queries.get(&number).is_some_and(Query::is_complete) {
            self.finish_query(number);
        }
    }

    fn finish_query(&mut self, number: u64) {
        let Some(query) = self.survey.queries.remove(&number) else { return };
        self.timers.cancel(&Alarm::Query(number));
        let (call, name, asked, missing) = (query.call, query.name.clone(), query.asked, query.missing());
        let shown = query.details(|host| self.name_of(host)).ok_or_else(|| match missing {
            Some((since, missing)) => self.recovering(name, since, &missing),
            None => {
                let since = self.now.since(asked).into();
                self.problem().unwrap_or(Error::NoMajority { missing: Vec::new(), since })
            }
        });
        self.answer(call, shown.map(Answer::Shown));
    }

    pub(crate) fn ask(&mut self, to: PeerId, number: u64, question: Question) {
        if to == self.host() {
            return self.on_ask(to, number, question);
        }
        let body = Body::Ask { number, question };
        let contact = self.contacts.get(to);
        // A host that is not connected gets one reliable question. Others are repeated by their timers.
        match contact.is_some_and(|contact| contact.is_connected() || contact.awaits_ack()) {
            true => self.send_unreliable(to, &body),
            false => self.send_reliable(to, &body),
        }
    }

    pub(crate) fn on_ask(&mut self, asker: PeerId, number: u64, question: Question) {
        let reply = match question {
            Question::Here(resource) => Some(Reply::Here(that_fit(self.clients_of(resource, self.now)))),
            Question::QueueReport(resource) => self.queue_report(resource, asker),
            Question::Used { resource, give_up } => Some(Reply::Used(self.is_used(resource, give_up))),
            // A new process may not know the grants of its predecessors yet.
            Question::Revoke { .. } if !self.knows_returned() => None,
            Question::Revoke { resource, fencing } => Some(Reply::Revoked(self.ask_to_stop(resource, fencing))),
        };
        match reply {
            Some(reply) if asker == self.host() => self.on_reply(asker, number, reply),
            Some(reply) => self.send_unreliable(asker, &Body::Reply { number, reply }),
            None => {}
        }
    }

    pub(crate) fn on_reply(&mut self, from: PeerId, number: u64, reply: Reply) {
        match reply {
            Reply::QueueReport(report) if self.survey.queries.contains_key(&number) => {
                self.on_query_report(number, report);
            }
            Reply::QueueReport(report) => {
                if let Some((resource, true)) = self.survey.on_report(number) {
                    self.on_queue_report(resource, &report);
                }
            }
            Reply::Counting { missing, millis } => {
                let long = Span::from_millis(millis.min(self.now.as_nanos() / 1_000_000));
                let since = Time::from_nanos(self.now.as_nanos() - long.as_nanos());
                self.include_hosts(&missing);
                self.survey.on_counting(number, since, missing);
            }
            Reply::Revoked(left) => self.on_asked_to_stop(from, number, left.is_some()),
            Reply::Used(is_used) => self.on_used(from, number, is_used),
            Reply::Here(clients) => {
                if let Some(query) = self.survey.queries.get_mut(&number) {
                    query.on_clients(from, clients);
                }
                self.try_to_finish(number);
            }
        }
    }

    fn queue_report(&self, resource: Key, asker: PeerId) -> Option<Reply> {
        let part = self.parts.get(resource)?;
        if let Some(missing) = part.custody.missing() {
            let missing = missing.iter().map(|session| session.peer).collect();
            return Some(Reply::Counting { missing, millis: self.now.since(part.opened).as_nanos() / 1_000_000 });
        }
        QueueReport::of(&part.custody, asker).map(Reply::QueueReport)
    }

    pub(crate) fn clients_of(&self, resource: Key, now: Time) -> impl Iterator<Item = Client> {
        self.clients.of(resource).map(move |entry| Client::of(entry, now))
    }
}

#[cfg(test)]
mod tests {
    use peerlock_registry::{GrantView, Label, SessionId, Ttl};
    use peerlock_types::Span;

    use super::*;

    const COORDINATOR: PeerId = PeerId::new(1);
    const HOLDER: PeerId = PeerId::new(2);
    const GONE: PeerId = PeerId::new(3);

    fn at(second: u64) -> Time {
        Time::ZERO + Span::from_secs(second)
    }

    fn report() -> QueueReport {
        let location = TokenPlace { slot: 0, at: HOLDER, free: false, next: None };
        let waiting = vec![Claim { peer: COORDINATOR, ticket: Ticket::new(7) }];
        QueueReport { generation: 3, slots: 2, waiting, behind: vec![], locations: vec![location] }
    }

    fn found() -> ResourceView {
        let grant = GrantView {
            fencing: 50,
            slot: 1,
            host: GONE,
            session: SessionId::new(3),
            ttl: Ttl::from_millis(60_000).unwrap(),
            note: Label::new("nightly").unwrap(),
            run: None,
            left: 60_000,
        };
        ResourceView {
            name: Label::new("r").unwrap(),
            slots: 2,
            generation: 3,
            closed: true,
            coordinator: Some((SessionId::new(1), COORDINATOR)),
            parties: Vec::new(),
            detached: vec![grant],
        }
    }

    fn client(ticket: u64, grant: Option<(u32, u64)>) -> Client {
        let (label, ticket) = ("x".into(), Some(Ticket::new(ticket)));
        Client { ticket, label, pid: Some(7), millis: 5, grant, ..Client::default() }
    }

    fn query() -> Query {
        Query::new(9, "r".parse().unwrap(), at(0))
    }

    #[test]
    #[should_panic(expected = "query 1 has no timer")]
    fn query_without_a_timer_panics() {
        let mut survey = Survey::default();
        survey.queries.insert(1, query());
        survey.check(|number| number == 1);
        survey.check(|_| false);
    }

    #[test]
    fn expected_wait_follows_the_recent_rate() {
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
    fn query_asks_registry_coordinator_and_named_peers() {
        let mut query = query();
        assert_eq!(query.next(), Next::Registry);
        query.found = Some(found());
        assert_eq!(query.next(), Next::QueueReport(COORDINATOR));
        let asked = query.on_report(report()).unwrap();
        assert_eq!(asked, [COORDINATOR, HOLDER, GONE].into());
        assert_eq!(query.on_report(report()), None, "answered already");
        query.on_clients(COORDINATOR, vec![client(7, None)]);
        query.on_clients(HOLDER, vec![client(3, Some((0, 44)))]);
        assert!(!query.is_complete());
        // The host of the detached grant does not answer.
        assert_eq!(query.next(), Next::Finish);
        let details = query.details(|host| format!("host{}", host.get())).unwrap();
        assert_eq!((details.slots, details.coordinator, details.queue.len()), (2, Some(COORDINATOR), 1));
        let holders: Vec<_> = details.holders.iter().map(|it| (&it.host[..], it.detached)).collect();
        assert_eq!(holders, [("host2", false), ("host3", true)]);
        let holder = details.holders[0].client.as_ref().unwrap();
        assert_eq!((holder.fencing, holder.pid), (Some(44), Some(7)));
        assert_eq!(details.holders[1].client.as_ref().unwrap().label, "", "the grant ID is secret");
        assert!(details.queue[0].client.is_some());
    }

    #[test]
    fn long_queue_query_is_bounded_and_awaits_host_names() {
        let mut query = query();
        query.found = Some(found());
        let waiting = (100..1100).map(|peer| Claim { peer: PeerId::new(peer), ticket: Ticket::new(1) });
        let asked = query.on_report(QueueReport { waiting: waiting.collect(), ..report() }).unwrap();
        assert_eq!(asked.len(), MOST_ASKED);
        assert!(
            asked.contains(&HOLDER) && asked.contains(&GONE) && asked.contains(&PeerId::new(100)),
            "holders and the first waiters"
        );
        query.awaits_names = true;
        asked.into_iter().for_each(|peer| query.on_clients(peer, Vec::new()));
        assert!(!query.is_complete());
        query.on_names([(PeerId::new(1099), "last".to_owned())].into_iter());
        assert!(query.is_complete());
        let details = query.details(|_| "known".to_owned()).unwrap();
        assert_eq!(details.queue.iter().map(|waiter| &waiter.host[..]).collect::<Vec<_>>()[998..], ["known", "last"]);
    }

    #[test]
    fn silent_coordinator_is_asked_four_times_and_named() {
        let mut query = query();
        query.found = Some(found());
        let asked = (0..10).filter(|_| query.next() == Next::QueueReport(COORDINATOR)).count();
        assert_eq!(asked, usize::from(QUERY_TRIES));
        assert_eq!(query.missing(), Some((at(0), vec![COORDINATOR])));
        assert_eq!(query.details(|_| String::new()), None);
    }

    #[test]
    fn stall_names_the_coordinator_or_its_missing_parties() {
        let (resource, mut survey) = (Key::new(1), Survey::default());
        let first = survey.ask(resource, COORDINATOR, at(1));
        let second = survey.ask(resource, COORDINATOR, at(2));
        assert_eq!(survey.stall(resource), Some((at(1), vec![COORDINATOR])));
        survey.on_counting(first, at(0), vec![HOLDER]);
        assert_eq!(survey.stall(resource), Some((at(0), vec![HOLDER])));
        assert_eq!(survey.on_report(second), Some((resource, true)));
        assert_eq!(survey.stall(resource), None);
        assert_eq!(
            survey.on_report(first),
            Some((resource, false)),
            "an old answer shows that the coordinator is alive"
        );
        let numbers: Vec<u64> = (0..=QUESTIONS as u64).map(|n| survey.ask(resource, COORDINATOR, at(n))).collect();
        assert_eq!(survey.on_report(numbers[0]), None, "too old");
        assert_eq!(
            survey.on_report(numbers[1]),
            Some((resource, true)),
            "later ones were asked, and none was answered"
        );
    }
}
