//! Other hosts: meeting them, joining or creating a cluster with them, leaving it.

use peerlock_registry::{ClusterId, Versions};
use peerlock_types::{PeerId, Span};

use super::{Alarm, Effect, Node, Phase};
use crate::contacts::Update;
use crate::others::Other;
use crate::wire::Body;
use crate::{Error, Event, NetEvent, Notice};

/// A host that connected this recently may not know others that connected at the same time.
const RECENT: Span = Span::from_secs(10);
/// How long an acknowledgement waits for a message to carry it.
pub(super) const ACK_AFTER: Span = Span::from_millis(20);
/// A recovery of the cluster is believed if it is reported again after this long.
const AGAIN: Span = Span::from_secs(1);

impl Node {
    pub(super) fn start(&mut self, join: Vec<String>) {
        self.session_state.start(self.now);
        if self.session_state.seeks() && self.session_state.expects().is_none() {
            self.timers.set(Alarm::Join, self.now + self.config.join_timeout);
        }
        self.watch_health();
        self.timers.set(Alarm::Sweep, self.now + self.config.idle.min(Span::from_secs(3)));
        join.into_iter().for_each(|address| self.dial(address));
        self.try_to_found();
    }

    pub(super) fn dial(&mut self, address: String) {
        if self.membership.dial(&address) {
            self.effects.push(Effect::Dial(address));
        }
    }

    pub(super) fn on_net(&mut self, event: NetEvent) {
        if self.phase == Phase::Left {
            return;
        }
        match event {
            NetEvent::Up { peer, epoch, address } => {
                self.membership.on_found(&address, peer);
                self.relay.forget(peer);
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

    pub(super) fn on_down(&mut self, peer: PeerId, epoch: u64, why: String) {
        if self.contacts.down(peer, epoch, self.now) {
            self.session_state.part(peer);
            self.on_link_down(peer);
            self.founding.on_down(peer);
            self.effects.push(Effect::Event(Event::PeerDown { peer, why }));
            self.try_to_found();
            self.relay_soon();
        }
    }

    pub(super) fn on_update(&mut self, update: Update) {
        match update {
            Update::Met(host) => self.on_met(host),
            Update::Lost { host, bodies, goes_on } => self.on_messages_lost(host, bodies, goes_on),
            Update::Said(from, bytes) => self.on_body(from, &bytes),
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
        let greeting = self.greeting(self.told_of());
        self.mention(host, &greeting);
        // Hosts that connected recently were greeted before this one. In a cluster, only voters are announced.
        if self.session_state.cluster().is_none() || self.cached_view.is_seated(host) {
            let newcomer = self.greeting(vec![(host, address)]);
            let is_recent = |since| self.now.since(since) < RECENT;
            let open = self.contacts.open();
            let recent = open.filter(|(other, contact)| *other != host && is_recent(contact.since));
            let recent: Vec<PeerId> = recent.map(|(other, _)| other).collect();
            recent.into_iter().for_each(|other| self.mention(other, &newcomer));
        }
        if let Some(cluster) = cluster {
            self.on_cluster(host, cluster);
        }
        if self.session_state.registry().is_none() && !self.is_member(host) {
            self.look_soon();
        }
    }

    /// Returns the hosts to announce: the voters, or all while no cluster is known.
    pub(super) fn told_of(&self) -> Vec<(PeerId, String)> {
        let all = self.session_state.cluster().is_none();
        self.contacts.linked(|host| all || self.cached_view.is_seated(host))
    }

    pub(super) fn greeting(&self, hosts: Vec<(PeerId, String)>) -> Body {
        let expects = self.session_state.expects().is_some();
        Body::Greeting { cluster: self.session_state.cluster(), expects, founder: self.founding.founder(), hosts }
    }

    fn greet_all(&mut self) {
        let greeting = self.greeting(Vec::new());
        self.mention_to_all(&greeting);
    }

    pub(super) fn on_greeting(
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
            Some(ours) if ours != cluster => self.contacts.refuse(host, cluster, &mut self.update),
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
            let Some(is_update) = self.incidents.meet_beside(theirs, self.session_state.confirmed(bound), self.now)
            else {
                return;
            };
            if is_update {
                self.notice(Notice::RecoveredBeside { host, ours, theirs });
            }
            return self.unexpected("a recovery of a cluster that has a quorum");
        }
        // Following is irreversible, since the voter's file is given up, so a single report does not suffice.
        if is_recovered && !self.incidents.is_recovered(theirs, self.now, AGAIN) {
            return;
        }
        let (here, there) = (ours.to_string(), theirs.to_string());
        let other = Error::OtherCluster { peer: host, address: address.clone(), ours: here, theirs: there };
        self.incidents.meet(other);
        if self.incidents.meet_foreign(host, theirs) {
            self.notice(match is_recovered {
                true => Notice::Recovered { host, ours, theirs },
                false => Notice::OtherCluster { host, address, ours, theirs },
            });
        }
    }

    /// Returns whether a host may have had a voter's file from which to recover the cluster. Without a file or view of
    /// our own, following cannot lose anything.
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
        let other = Notice::OtherVersion { host, address: address.clone(), ours, theirs };
        let (here, there) = (ours.to_string(), theirs.to_string());
        let error = Error::OtherVersion { peer: host, address, ours: here, theirs: there };
        if self.incidents.meet(error) {
            self.notice(other);
        }
    }

    pub(super) fn on_recorded(&mut self) {
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

    pub(super) fn leave(&mut self) {
        if matches!(self.phase, Phase::Leaving | Phase::Left) {
            return;
        }
        self.phase = Phase::Leaving;
        self.clients.attached().collect::<Vec<_>>().into_iter().for_each(|ticket| self.end(ticket, Error::Stopped));
        for ticket in self.clients.ids() {
            self.timers.cancel(&Alarm::Ticket(ticket));
            self.clients.take_alias(ticket);
            self.clients.remove(ticket);
        }
        for alarm in [Alarm::Join, Alarm::Health, Alarm::Look] {
            self.timers.cancel(&alarm);
        }
        self.timers.set(Alarm::Leave, self.now + self.config.leave_patience);
    }

    pub(super) fn left(&mut self, confirmed: bool) {
        if self.phase == Phase::Leaving {
            self.phase = Phase::Left;
            self.timers.cancel(&Alarm::Leave);
            self.contacts.ack_all();
            self.effects.push(Effect::Left { confirmed });
        }
    }
}
