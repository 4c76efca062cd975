//! Other hosts: meeting them, and joining or creating a cluster with them.
//!
//! 1. A connection is up: both sides send a hello (`link.rs`), then `Greeting` with their cluster and the hosts they
//!    know.
//! 2. A host without a cluster adopts that of the first host it meets: `Effect::Belongs`, then it opens a session.
//! 3. With `--expect`, hosts without a cluster name the one with the smallest number as the creator. The host that all
//!    others name creates the cluster. A host keeps its choice until the named host disconnects, so two hosts cannot
//!    both be named by all hosts they have met, if these are more than half of the expected ones.
//! 4. A host of another cluster is ignored, unless it shows that ours was recovered without us.

use std::collections::BTreeMap;

use peerlock_registry::{ClusterId, Versions};
use peerlock_types::{PeerId, Span, Time};

use super::contacts::Update;
use crate::health::INCIDENT;
use crate::node::{Alarm, Node, Phase};
use crate::wire::Body;
use crate::{Effect, Error, Event, NetEvent, Notice};

/// Hosts that connected this recently may not know each other.
const RECENT: Span = Span::from_secs(10);
/// How long an acknowledgement waits for a message to carry it.
pub(crate) const ACK_AFTER: Span = Span::from_millis(20);
const AGAIN: Span = Span::from_secs(1);

#[derive(Default)]
pub struct Founding {
    pub(crate) founder: Option<PeerId>,
}

impl Founding {
    pub fn name(&mut self, me: PeerId, others: &[(PeerId, Option<PeerId>)]) -> bool {
        let is_new = self.founder.is_none();
        if is_new {
            self.founder = others.iter().map(|(host, _)| *host).chain([me]).min();
        }
        is_new
    }

    /// Returns whether all hosts have named us.
    pub fn is_for(&self, me: PeerId, others: &[(PeerId, Option<PeerId>)]) -> bool {
        self.founder == Some(me) && others.iter().all(|(_, founder)| *founder == Some(me))
    }

    pub fn on_down(&mut self, host: PeerId) {
        self.founder.take_if(|founder| *founder == host);
    }

    pub fn check(&self, is_there: impl Fn(PeerId) -> bool) {
        assert!(self.founder.is_none_or(is_there), "the host that is to create a cluster has disconnected");
    }
}

/// One is enough to report a second cluster.
const MOST: usize = 100;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Other {
    pub address: String,
    pub cluster: ClusterId,
    pub met: Time,
}

#[derive(Default)]
pub struct Others {
    pub(crate) hosts: BTreeMap<PeerId, Other>,
}

impl Others {
    pub fn meet(&mut self, host: PeerId, other: Other) {
        if self.hosts.len() < MOST || self.hosts.contains_key(&host) {
            self.hosts.insert(host, other);
        }
    }

    /// Removes entries that belong to a member of our cluster.
    pub fn on_member(&mut self, host: PeerId, address: &str) {
        self.hosts.retain(|known, other| *known != host && other.address != address);
    }
}

impl Node {
    pub(crate) fn start(&mut self, join: Vec<String>) {
        self.session_state.start(self.now);
        if self.session_state.seeks() && self.session_state.expects().is_none() {
            self.timers.set(Alarm::Join, self.now + self.config.join_timeout);
        }
        self.timers.set(Alarm::Health, self.now + INCIDENT);
        self.timers.set(Alarm::Sweep, self.now + self.config.idle.min(Span::from_secs(3)));
        join.into_iter().for_each(|address| self.dial(address));
        self.try_to_found();
    }

    pub(crate) fn dial(&mut self, address: String) {
        if self.membership.dial(&address) {
            self.effects.push(Effect::Dial(address));
        }
    }

    pub(crate) fn on_net(&mut self, event: NetEvent) {
        if self.phase == Phase::Left {
            return;
        }
        match event {
            NetEvent::Up { peer, epoch, address } => {
                self.membership.on_found(&address, peer);
                let ours = self.session_state.cluster();
                self.contacts.up(peer, epoch, address, ours, self.now);
            }
            NetEvent::Down { peer, epoch, why } => self.on_down(peer, epoch, why),
            NetEvent::Message { from, epoch, bytes } => {
                self.counters.received += 1;
                let ours = self.session_state.cluster();
                self.contacts.on_bytes(from, epoch, &bytes, ours, self.now, &mut self.update);
            }
            NetEvent::Unreached { address, why } => {
                if self.membership.on_unreached(&address) {
                    self.effects.push(Effect::Forget(address.clone()));
                }
                // The host may have moved.
                if self.membership.needed_at(&address).is_some() {
                    self.look_again();
                }
                self.effects.push(Effect::Event(Event::Unreached { address, why }));
            }
        }
    }

    pub(crate) fn on_down(&mut self, peer: PeerId, epoch: u64, why: String) {
        if self.contacts.down(peer, epoch, self.now) {
            self.session_state.part(peer);
            self.on_link_down(peer);
            self.founding.on_down(peer);
            self.effects.push(Effect::Event(Event::PeerDown { peer, why }));
            self.try_to_found();
            self.relay_soon();
        }
    }

    pub(crate) fn on_update(&mut self, update: Update) {
        match update {
            Update::Met(host) => self.on_met(host),
            Update::Lost { host, bodies, goes_on } => self.on_messages_lost(host, bodies, goes_on),
            Update::Message(from, bytes) => self.on_body(from, &bytes),
            Update::Foreign(host, theirs) => self.on_foreign(host, theirs),
            Update::Incompatible(host, theirs) => self.on_incompatible(host, theirs),
            Update::Notice(notice) => self.notice(notice),
        }
    }

    fn on_met(&mut self, host: PeerId) {
        // A relayed host is not announced to others.
        let Some(contact) = self.contacts.get(host).filter(|contact| contact.is_open()) else { return };
        let (address, cluster) = (contact.address.clone(), contact.cluster);
        self.effects.push(Effect::Event(Event::PeerUp { peer: host, address: address.clone() }));
        let greeting = self.greeting(self.announced());
        self.send_unreliable(host, &greeting);
        // Hosts that connected recently were greeted before this one. In a cluster, only voters are announced.
        if self.session_state.cluster().is_none() || self.cached_view.registry_hosts.contains(&host) {
            let newcomer = self.greeting(vec![(host, address)]);
            let is_recent = |since| self.now.since(since) < RECENT;
            let open = self.contacts.open();
            let recent = open.filter(|(other, contact)| *other != host && is_recent(contact.since));
            let recent: Vec<PeerId> = recent.map(|(other, _)| other).collect();
            recent.into_iter().for_each(|other| self.send_unreliable(other, &newcomer));
        }
        if let Some(cluster) = cluster {
            self.on_cluster(host, cluster);
        }
        if self.session_state.registry().is_none() && !self.is_member(host) {
            self.look_soon();
        }
    }

    pub(crate) fn announced(&self) -> Vec<(PeerId, String)> {
        let all = self.session_state.cluster().is_none();
        self.contacts.linked(|host| all || self.cached_view.registry_hosts.contains(&host))
    }

    pub(crate) fn greeting(&self, hosts: Vec<(PeerId, String)>) -> Body {
        let expects = self.session_state.expects().is_some();
        Body::Greeting { cluster: self.session_state.cluster(), expects, founder: self.founding.founder, hosts }
    }

    fn greet_all(&mut self) {
        let greeting = self.greeting(Vec::new());
        let hosts: Vec<PeerId> = self.contacts.open().map(|(host, _)| host).collect();
        hosts.into_iter().for_each(|host| self.send_unreliable(host, &greeting));
    }

    pub(crate) fn on_greeting(
        &mut self,
        from: PeerId,
        cluster: Option<ClusterId>,
        expects: bool,
        founder: Option<PeerId>,
        hosts: &[(PeerId, String)],
    ) {
        self.contacts.greeted(from, cluster, expects, founder);
        if let Some(cluster) = cluster {
            self.on_cluster(from, cluster);
        }
        // A peer with a session takes addresses from the registry.
        if self.session_state.session().is_none() {
            let reached_at = self.contacts.get(from).map_or("", |contact| contact.address.as_str());
            let addresses = self.membership.on_hosts(from, reached_at, hosts, |host| self.contacts.is_linked(host));
            self.effects.extend(addresses.into_iter().map(Effect::Dial));
        }
        self.try_to_found();
    }

    fn on_cluster(&mut self, host: PeerId, cluster: ClusterId) {
        match self.session_state.cluster() {
            Some(ours) if ours != cluster => {
                self.contacts.hang_up(host, Update::Foreign(host, cluster), &mut self.update);
            }
            Some(_) => {
                self.session_state.meet(host, self.now);
                let address = self.contacts.get(host).map_or("", |contact| contact.address.as_str());
                self.others.on_member(host, address);
            }
            None => {
                if self.session_state.learn(cluster) {
                    self.effects.push(Effect::Belongs(cluster));
                }
            }
        }
    }

    fn on_foreign(&mut self, host: PeerId, theirs: ClusterId) {
        let (Some(ours), Some(contact)) = (self.session_state.cluster(), self.contacts.get(host)) else { return };
        let address = contact.address.clone();
        // A host of a cluster that ours was recovered from follows by itself.
        if !theirs.follows(ours) && !ours.follows(theirs) {
            self.others.meet(host, Other { address: address.clone(), cluster: theirs, met: self.now });
        }
        let is_recovered = theirs.follows(ours) && self.could_recover(host);
        // A session may remain valid for a while after the loss of the quorum. A renewed one contradicts the message.
        if theirs.follows(ours)
            && let Some(bound) = self.session_state.bound()
        {
            let Some(is_new) = self.incidents.meet_beside(theirs, self.session_state.confirmed(bound), self.now) else {
                return;
            };
            if is_new {
                self.notice(Notice::RecoveredBeside { host, ours, theirs });
            }
            return self.unexpected("a recovery of a cluster that has a quorum");
        }
        // Following is irreversible, since the voter's file is given up, so a single report does not suffice.
        if is_recovered && !self.incidents.is_recovered(theirs, self.now, AGAIN) {
            return;
        }
        let (here, there) = (ours.to_string(), theirs.to_string());
        let other = Error::OtherCluster { peer: host, address, ours: here, theirs: there };
        self.incidents.meet(other.clone());
        if self.incidents.meet_foreign(host, theirs) {
            self.notice(match is_recovered {
                true => Notice::Recovered { host, ours, theirs },
                false => Notice::Problem(other),
            });
        }
    }

    /// Returns whether a host may have had a voter's file to recover the cluster from. Without a file or view of our
    /// own, following cannot lose anything.
    fn could_recover(&self, host: PeerId) -> bool {
        let file = self.session_state.registry().map(|registry| registry.state().voter_records());
        let view = self.cached_view.voters_and_learners();
        file.is_none() && view.is_none()
            || file.is_some_and(|records| records.values().any(|record| record.host == host))
            || view.is_some_and(|mut voters| voters.any(|voter| voter == host))
    }

    fn on_incompatible(&mut self, host: PeerId, theirs: Versions) {
        let (ours, contact) = (self.config.versions, self.contacts.get(host));
        let address = contact.map(|contact| contact.address.clone()).unwrap_or_default();
        let (ours, theirs) = (ours.to_string(), theirs.to_string());
        let error = Error::OtherVersion { peer: host, address, ours, theirs };
        if self.incidents.meet(error.clone()) {
            self.notice(Notice::Problem(error));
        }
    }

    pub(crate) fn on_recorded(&mut self) {
        self.timers.cancel(&Alarm::Join);
        self.session_state.on_recorded(self.now);
        self.greet_all();
        let known = self.contacts.open().filter_map(|(host, contact)| Some((host, contact.cluster?)));
        for (host, cluster) in known.collect::<Vec<_>>() {
            self.on_cluster(host, cluster);
        }
    }

    fn try_to_found(&mut self) {
        let Some((enough, cluster)) = self.session_state.expects() else { return };
        let (me, others) = (self.host(), self.contacts.expecting());
        if others.len() + 1 < enough {
            return;
        }
        if self.founding.name(me, &others) {
            self.greet_all();
        }
        if self.founding.is_for(me, &others) {
            self.session_state.found(cluster, self.now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_creator_stays_until_it_disconnects() {
        let (me, older, younger) = (PeerId::new(2), PeerId::new(1), PeerId::new(3));
        let mut founding = Founding::default();
        assert!(founding.name(me, &[(younger, None)]));
        assert!(!founding.is_for(me, &[(younger, None)]), "it has not named this host yet");
        assert!(!founding.name(me, &[(older, None), (younger, Some(me))]), "this host remains named");
        assert!(founding.is_for(me, &[(younger, Some(me))]));
        assert!(!founding.is_for(me, &[(older, Some(older)), (younger, Some(me))]));
        founding.on_down(younger);
        assert_eq!(founding.founder, Some(me));
        founding.on_down(me);
        assert!(founding.name(me, &[(older, Some(older))]));
        assert_eq!(founding.founder, Some(older));
        founding.check(|host| host == older);
    }

    #[test]
    #[should_panic(expected = "has disconnected")]
    fn absent_creator_panics() {
        let mut founding = Founding::default();
        founding.name(PeerId::new(1), &[]);
        founding.check(|_| false);
    }

    #[test]
    fn host_is_reported_until_it_is_a_member() {
        let other = |address: &str| Other { address: address.to_owned(), cluster: ClusterId::new(9), met: Time::ZERO };
        let mut others = Others::default();
        others.meet(PeerId::new(1), other("10.0.0.1:7400"));
        others.meet(PeerId::new(1), other("10.0.0.1:7400"));
        others.meet(PeerId::new(2), other("10.0.0.2:7400"));
        assert_eq!(others.hosts.len(), 2);
        others.on_member(PeerId::new(3), "10.0.0.2:7400");
        assert_eq!(others.hosts.keys().copied().collect::<Vec<_>>(), [PeerId::new(1)]);
        others.on_member(PeerId::new(1), "10.0.0.7:7400");
        assert_eq!(others.hosts.len(), 0);
        (0..2 * MOST as u64).for_each(|host| others.meet(PeerId::new(host), other("")));
        assert_eq!(others.hosts.len(), MOST);
    }
}
