//! Health: why nothing is granted, for errors, the log and monitoring.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use peerlock_registry::leases::patience;
use peerlock_registry::{ClusterId, Refusal};
use peerlock_types::{Key, PeerId, Span, Time};

use crate::links::join::Other;
use crate::node::{Alarm, Draining, Node};
use crate::{Counters, Error, Health, Missing, Name, Notice, OtherCluster, ResourceHealth, Stall};

/// A coordinator counts as silent from each question to its answer.
const SILENT: Span = Span::from_secs(5);
/// After this time without a session it is logged, and repeated.
pub(crate) const INCIDENT: Span = Span::from_secs(5);
const INCIDENT_AGAIN: Span = Span::from_secs(60);
const MOST_FOREIGN: usize = 100;

#[derive(Default)]
pub struct Incidents {
    missing: Vec<PeerId>,
    refused: Option<Refusal>,
    halted: bool,
    forgotten: bool,
    /// Why our own voter has dropped messages.
    registry_drops: BTreeSet<&'static str>,
    registry_message: Option<String>,
    other: Option<Error>,
    pub(crate) foreign: BTreeSet<(PeerId, ClusterId)>,
    /// Clusters that ours was reportedly recovered as while our session is valid: since when, and whether that was
    /// logged.
    pub(crate) beside: BTreeMap<ClusterId, (Time, bool)>,
    /// The cluster that ours was reportedly recovered as, and since when.
    recovery: Option<(ClusterId, Time)>,
}

impl Incidents {
    /// Halting is final.
    pub fn on_session(&mut self) {
        (self.missing, self.refused, self.registry_message, self.other) = <_>::default();
    }

    pub fn miss(&mut self, voters: Vec<PeerId>) -> bool {
        let is_new = self.missing != voters;
        self.missing = voters;
        is_new
    }

    pub fn refuse(&mut self, why: Refusal) -> bool {
        self.refused.replace(why) != Some(why)
    }

    pub fn halt(&mut self) -> bool {
        !std::mem::replace(&mut self.halted, true)
    }

    /// The log of our own voter lacks confirmed data. Returns whether that is new.
    pub fn forget(&mut self) -> bool {
        !std::mem::replace(&mut self.forgotten, true)
    }

    /// Our own voter has dropped a message for this reason. Returns whether that is new.
    pub fn registry_drops(&mut self, why: &'static str) -> bool {
        self.registry_drops.insert(why)
    }

    pub fn misread(&mut self, why: &str) -> bool {
        self.registry_message.replace(why.to_owned()).as_deref() != Some(why)
    }

    pub fn meet(&mut self, other: Error) -> bool {
        self.other.replace(other.clone()) != Some(other)
    }

    pub fn other(&self) -> Option<&Error> {
        self.other.as_ref()
    }

    /// Returns whether that is new and there is room.
    pub fn meet_foreign(&mut self, host: PeerId, theirs: ClusterId) -> bool {
        self.foreign.len() < MOST_FOREIGN && self.foreign.insert((host, theirs))
    }

    /// Records a report that our cluster was recovered while our session is valid. Returns `None` as long as no later
    /// renewal contradicts it, otherwise whether it is new.
    pub fn meet_beside(&mut self, theirs: ClusterId, confirmed: Time, now: Time) -> Option<bool> {
        if self.beside.len() >= MOST_FOREIGN && !self.beside.contains_key(&theirs) {
            return None;
        }
        let (first, is_logged) = self.beside.entry(theirs).or_insert((now, false));
        (confirmed > *first).then(|| !std::mem::replace(is_logged, true))
    }

    /// Returns whether this recovery was first reported at least this long ago.
    pub fn is_recovered(&mut self, theirs: ClusterId, now: Time, certain: Span) -> bool {
        self.recovery.take_if(|(id, _)| *id != theirs);
        let (_, first) = *self.recovery.get_or_insert((theirs, now));
        now.since(first) >= certain
    }
}

impl Node {
    /// Returns why there is no session, if there is none.
    pub fn problem(&self) -> Option<Error> {
        if self.session_state.session().is_some() {
            return None;
        }
        if self.contacts.open().next().is_none()
            && let Some(other) = self.incidents.other()
        {
            return Some(other.clone());
        }
        Some(self.no_majority(self.session_state.since()))
    }

    pub(crate) fn no_majority(&self, since: Time) -> Error {
        Error::NoMajority { missing: self.absent_voters(since), since: self.now.since(since).into() }
    }

    pub(crate) fn absent_voters(&self, since: Time) -> Vec<Missing> {
        let mut voters: Vec<PeerId> = self
            .cached_view
            .voters()
            .chain(self.session_state.voters(self.now))
            .filter(|host| *host != self.host())
            .collect();
        voters.sort_unstable();
        voters.dedup();
        voters.retain(|host| !self.contacts.is_linked(*host));
        voters.into_iter().map(|host| self.missing(host, since)).collect()
    }

    pub(crate) fn recovering(&self, name: Name, since: Time, hosts: &[PeerId]) -> Error {
        let missing: Vec<Missing> = hosts.iter().map(|host| self.missing_party(*host, since)).collect();
        Error::Recovering { name, missing, since: self.now.since(since).into() }
    }

    /// Describes an awaited host.
    pub(crate) fn missing(&self, peer: PeerId, asked: Time) -> Missing {
        let absent = self.contacts.get(peer).filter(|contact| contact.epoch.is_none());
        let since = absent.map_or(asked, |contact| contact.since);
        Missing { peer, name: self.name_of(peer), since: self.now.since(since).into(), ends: None }
    }

    /// Describes an awaited party. If it is disconnected, `ends` is the time until its session has expired, an election
    /// included: it may have led the registry.
    pub(crate) fn missing_party(&self, peer: PeerId, asked: Time) -> Missing {
        let missing = self.missing(peer, asked);
        let last = self.cached_view.sessions_of(peer).next_back();
        let ttl = last.map_or(self.session_state.ttl(), |(_, ttl)| ttl.span());
        let registry = self.config.registry;
        let ends = patience(ttl, registry.slack) + registry.tick * (2 * registry.election_ticks as u64);
        let is_away = self.contacts.get(peer).is_none_or(|contact| contact.epoch.is_none());
        Missing { ends: is_away.then(|| Duration::from(ends).saturating_sub(missing.since)), ..missing }
    }

    pub(crate) fn on_health_alarm(&mut self) {
        let Some(problem) = self.problem() else { return };
        let Error::NoMajority { missing, since } = &problem else { return };
        self.timers.set(Alarm::Health, self.now + INCIDENT_AGAIN);
        let hosts = missing.iter().map(|missing| missing.peer).collect();
        if self.incidents.miss(hosts) || *since < (INCIDENT * 2).into() {
            self.notice(Notice::Problem(problem));
        }
    }

    /// Returns the health of this peer.
    pub fn health(&self, now: Time) -> Health {
        let leaves = self.draining != Draining::No || self.is_leaving();
        let problem = self.problem();
        let bound = self.session_state.bound();
        let parts = self.parts.iter().map(|(key, part)| (&part.name, (*key, (0, 0))));
        let waiters = self.clients.resources().map(|(key, name, holding, waiting)| (name, (key, (holding, waiting))));
        let known: BTreeMap<&Name, (Key, (usize, usize))> = parts.chain(waiters).collect();
        let of = |(name, (key, here))| self.resource_health(name, key, here, problem.as_ref(), now);
        Health {
            session: self.session_state.session().map(|session| session.get()),
            since: now.since(self.session_state.since()).into(),
            ends: bound.map(|bound| bound.until.max(now).since(now).into()),
            sessions_lost: self.counters.sessions_lost,
            leaves,
            problem: problem.clone().or(leaves.then_some(Error::Stopped)).map(|error| error.to_string()),
            resources: known.into_iter().map(of).collect(),
            registry_fault: self
                .session_state
                .forgotten()
                .map(crate::notice::forgotten)
                .or_else(|| self.session_state.halted().map(crate::notice::halted)),
            others: self.others.hosts.iter().map(|(host, other)| self.other_cluster(*host, other, now)).collect(),
        }
    }

    fn other_cluster(&self, host: PeerId, other: &Other, now: Time) -> OtherCluster {
        OtherCluster {
            host: self.called(host),
            address: other.address.clone(),
            cluster: other.cluster.to_string(),
            is_joined: false,
            met: now.since(other.met).into(),
        }
    }

    fn resource_health(
        &self,
        name: &Name,
        key: Key,
        (holding, waiting): (usize, usize),
        problem: Option<&Error>,
        now: Time,
    ) -> ResourceHealth {
        let part = self.parts.get(key);
        let oldest = self.clients.waiting(key).map(|(_, entry)| entry.asked).min();
        ResourceHealth {
            name: name.clone(),
            slots: self.slots_of(key),
            holding,
            waiting,
            oldest_wait: oldest.map(|asked| now.since(asked).into()),
            generation: part.map_or(0, |part| part.custody.generation()),
            recoveries: part.map_or(0, |part| part.recoveries),
            stall: self.stall(name, key, problem, now),
        }
    }

    /// Returns why a resource is stalled. Without a session, only a resource with waiters is.
    fn stall(&self, name: &Name, key: Key, problem: Option<&Error>, now: Time) -> Option<Stall> {
        let why = match problem {
            Some(error) => self.clients.waiting(key).next().map(|_| error.clone())?,
            None => {
                let counts = self.parts.get(key).and_then(|part| Some((part.opened, part.custody.missing()?)));
                let ours = counts.map(|(since, asked)| (since, asked.iter().map(|session| session.peer).collect()));
                let silent = || self.survey.stall(key).filter(|(since, _)| now.since(*since) >= SILENT);
                let (since, hosts) = ours.or_else(silent)?;
                self.recovering(name.clone(), since, &hosts)
            }
        };
        let text = why.to_string();
        match why {
            Error::NoMajority { missing, since } | Error::Recovering { missing, since, .. } => {
                Some(Stall { since, missing, why: text })
            }
            _ => Some(Stall { since: now.since(self.session_state.since()).into(), missing: Vec::new(), why: text }),
        }
    }

    /// Returns the counters.
    pub fn counters(&self) -> Counters {
        let holding = self.clients.holding() as u64;
        let links = self.contacts.open().count() as u64;
        Counters { links, holding, waiting: self.clients.len() as u64 - holding, ..self.counters }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incident_is_reported_once_until_there_is_a_session() {
        let mut incidents = Incidents::default();
        let voters = || vec![PeerId::new(1)];
        for update in [true, false] {
            assert_eq!(incidents.miss(voters()), update);
            assert_eq!(incidents.refuse(Refusal::Full), update);
            assert_eq!(incidents.misread("what?"), update);
            assert_eq!(incidents.meet(Error::Lost), update);
            assert_eq!(incidents.halt(), update);
            assert_eq!(incidents.forget(), update);
            assert_eq!(incidents.registry_drops("why"), update);
        }
        assert!(incidents.misread("how?") && incidents.misread("what?"), "another one was reported in between");
        incidents.on_session();
        assert_eq!(incidents.other(), None);
        assert!(incidents.miss(voters()) && incidents.refuse(Refusal::Full) && incidents.meet(Error::Lost));
        assert!(!incidents.halt(), "halting is final");
    }
}
