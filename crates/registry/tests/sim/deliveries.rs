//! Checks events and query results.

use std::collections::{BTreeMap, BTreeSet};

use peerlock_registry::{ClusterId, Command, EventKind, Label, Outcome, Page, SessionId, State, Topic};
use peerlock_types::{PeerId, Span, Time};

use crate::watch::{Counts, Violation};

const DELIVERED_WITHIN: Span = Span::from_secs(1);
/// Longer than any delay of a message or freeze of a host.
const FORGOTTEN: Span = Span::from_secs(15);

type Grant = (Label, u64);

#[derive(Default)]
pub struct Deliveries {
    cluster: Option<ClusterId>,
    /// First observed, and in which cluster.
    generations: BTreeMap<(Label, u64), (ClusterId, Time)>,
    opened: BTreeMap<(Label, u64), EventKind>,
    sent: BTreeSet<(Label, SessionId, u64, Topic)>,
    closed: BTreeMap<(Label, u64), Time>,
    latest: BTreeMap<Label, u64>,
    /// Generation and confirmation of the latest eviction.
    evicted: BTreeMap<(Label, SessionId), (u64, Time)>,
    quit: BTreeMap<(Label, SessionId), u64>,
    held: BTreeMap<Grant, SessionId>,
    over: BTreeMap<Grant, Time>,
    given: BTreeMap<Grant, (PeerId, Time)>,
}

impl Deliveries {
    pub fn look(&mut self, now: Time, state: &State) -> Result<(), Violation> {
        if self.cluster != Some(state.cluster()) {
            // A recovery may lose or restore earlier observations.
            self.cluster = Some(state.cluster());
            self.held.clear();
            self.over.clear();
        }
        for (name, resource) in state.resources() {
            let key = (name.clone(), resource.generation());
            let (cluster, _) = *self.generations.entry(key).or_insert((state.cluster(), now));
            if cluster != state.cluster() {
                return Err(Violation::Reused(format!("{name} {}", resource.generation())));
            }
            let latest = self.latest.entry(name.clone()).or_default();
            if resource.generation() < *latest {
                return Err(Violation::Reused(format!("{name} {} after {latest}", resource.generation())));
            }
            *latest = resource.generation();
        }
        let grants = state.resources().iter().flat_map(|(name, it)| {
            it.detached().iter().map(|(fencing, grant)| ((name.clone(), *fencing), grant.session))
        });
        let held: BTreeMap<Grant, SessionId> = grants.collect();
        if let Some(revived) = held.keys().find(|grant| self.over.contains_key(grant)) {
            return Err(Violation::Revived(format!("{revived:?}")));
        }
        self.over.extend(self.held.keys().filter(|grant| !held.contains_key(grant)).map(|it| (it.clone(), now)));
        self.held = held;
        Ok(())
    }

    pub fn on_event(
        &mut self,
        now: Time,
        at: PeerId,
        (resource, session, generation): (&Label, SessionId, u64),
        kind: &EventKind,
    ) -> Result<bool, Violation> {
        let key = (resource.clone(), generation);
        if let EventKind::Opened { .. } = kind {
            if self.opened.entry(key.clone()).or_insert_with(|| kind.clone()) != kind {
                return Err(Violation::WrongEvent(
                    at,
                    format!("{key:?}: {kind:?}, and {:?} before", self.opened[&key]),
                ));
            }
            if self.closed.get(&key).is_some_and(|closed| now >= *closed + FORGOTTEN) {
                return Err(Violation::WrongEvent(at, format!("{key:?} is closed")));
            }
        }
        Ok(self.sent.insert((resource.clone(), session, generation, Topic::of(kind).expect("a topic"))))
    }

    pub fn on_answer(&mut self, now: Time, by: PeerId, command: &Command, outcome: &Outcome, counts: &mut Counts) {
        match (command, outcome) {
            (Command::Close { resource, generation, .. }, Outcome::Done) => {
                self.closed.entry((resource.clone(), *generation)).or_insert(now);
            }
            (Command::Quit { resource, session, generation }, _) => {
                let latest = self.quit.entry((resource.clone(), *session)).or_default();
                *latest = (*latest).max(*generation);
            }
            (Command::Remove { .. }, Outcome::Done) => counts.removed += 1,
            (Command::Resize { .. }, Outcome::Advanced(_)) => counts.resized += 1,
            (Command::TakeBack { .. }, Outcome::Done) => counts.taken_back += 1,
            (Command::Evict { resource, session, .. }, Outcome::Advanced(opening)) => {
                self.evicted.insert((resource.clone(), *session), (opening.generation, now));
            }
            (Command::Detach { resource, fencing, .. }, Outcome::Done) => {
                let grant = (resource.clone(), *fencing);
                if self.held.contains_key(&grant) {
                    self.given.entry(grant).or_insert((by, now));
                }
            }
            (Command::DropDetached { session, resource, fencing }, Outcome::Done) => {
                let giver = self.held.get(&(resource.clone(), *fencing));
                counts.given_back += u64::from(giver.is_some_and(|giver| giver != session));
            }
            (Command::SetVoters { hosts: Some(_), .. }, Outcome::Done) => counts.chosen += 1,
            (Command::Forget { .. }, Outcome::Done) => counts.forgotten += 1,
            _ => {}
        }
    }

    /// All grants of the host that were confirmed before the query and have not ended.
    pub fn on_grants(&self, at: PeerId, asked: Time, page: &Page) -> Result<(), Violation> {
        let found: BTreeSet<Grant> = page
            .resources
            .iter()
            .flat_map(|it| it.detached.iter().map(|grant| (it.name.clone(), grant.fencing)))
            .collect();
        let given = self.given.iter().filter(|(_, (by, since))| *by == at && *since <= asked).map(|(grant, _)| grant);
        match given.into_iter().find(|grant| !found.contains(grant) && !self.over.contains_key(grant)) {
            Some(missing) => Err(Violation::Unseen(at, format!("{missing:?}"))),
            None => Ok(()),
        }
    }

    /// Every live session has received its events, except for very recent ones.
    pub fn check_deliveries(&self, now: Time, state: &State, there: &BTreeSet<SessionId>) -> Result<(), Violation> {
        let is_due = |since: Option<&Time>| since.is_some_and(|since| now >= *since + DELIVERED_WITHIN);
        for (name, resource) in state.resources() {
            let key = (name.clone(), resource.generation());
            let Some(coordinator) = resource.coordinator() else { continue };
            assert!(state.sessions().contains_key(&coordinator), "the coordinator of {name} has no valid session");
            let was_notified = |topic| self.sent.contains(&(name.clone(), coordinator, resource.generation(), topic));
            if !there.contains(&coordinator) {
                continue;
            }
            let since = self.generations.get(&key).map(|(_, since)| since);
            if !resource.is_closed() && is_due(since) && !was_notified(Topic::Opened) {
                return Err(Violation::Undelivered(format!(
                    "{key:?}: {coordinator} was not notified that it coordinates"
                )));
            }
            let Some(EventKind::Opened { detached, .. }) = self.opened.get(&key) else { continue };
            for fencing in detached.iter().map(|grant| grant.fencing) {
                let over = self.over.get(&(name.clone(), fencing));
                if is_due(over) && !was_notified(Topic::Expired(fencing)) {
                    return Err(Violation::Undelivered(format!(
                        "{key:?}: {coordinator} waits for the end of {fencing}"
                    )));
                }
            }
        }
        for ((name, session), (generation, since)) in &self.evicted {
            let is_it = |event: &&(Label, SessionId, u64, Topic)| {
                (&event.0, event.1, event.3) == (name, *session, Topic::Evicted) && event.2 >= *generation
            };
            let knows = self.quit.get(&(name.clone(), *session)).is_some_and(|quit| quit >= generation);
            let was_notified = knows || self.sent.iter().any(|event| is_it(&event));
            if there.contains(session) && state.sessions().contains_key(session) && is_due(Some(since)) && !was_notified
            {
                return Err(Violation::Undelivered(format!("{name}: {session} was not notified of its eviction")));
            }
        }
        Ok(())
    }
}
