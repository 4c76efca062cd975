//! The view of the cluster: members, voters, sessions and resources, from the registry.
//!
//! 1. The view of the hosts of interest is refreshed every 30 s, and soon after an unknown or unreachable host appears.
//! 2. `Cluster` queries all members, page by page; without an answer in time, the view is the answer.
//! 3. `Listing` queries a page of resources.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;

use peerlock_registry::{Info, Look, MOST_HOSTS, MOST_ON_PAGE, Page, SessionId, Ttl, View, VoterId};
use peerlock_types::{Key, PeerId, Span, Time};

use crate::links::contacts::Contact;
use crate::node::{Alarm, Node, Phase};
use crate::session::label;
use crate::session_state::Ask;
use crate::{Answer, ClusterView, Effect, Listing, Name, PeerView, ResourceView, Voter};

/// The interval at which the cluster view is refreshed …
const LOOK: Span = Span::from_secs(30);
/// … sooner if an unknown host appears …
const LOOK_SOON: Span = Span::from_millis(300);
/// … and if a host cannot be reached where it was.
const LOOK_AGAIN: Span = Span::from_secs(3);
/// After this time, a `look` is answered from the cached view.
const LOOK_TIMEOUT: Span = Span::from_secs(2);
const MOST_WRITTEN: usize = 256;
const FORGET: Span = Span::from_secs(60);
const MOST_NAMED: usize = 256;
/// In a large cluster all members may lose their sessions at once.
const MOST_SOUGHT: usize = 16;

#[derive(Default)]
pub struct CachedView {
    view: Option<View>,
    pub(crate) looked_for: BTreeSet<PeerId>,
    pub(crate) named: BTreeSet<PeerId>,
    /// Voters, learners and leader.
    pub(crate) registry_hosts: BTreeSet<PeerId>,
    addresses: Vec<String>,
    all_members: Option<View>,
    looks: Vec<u64>,
    pub(crate) rounds: usize,
}

impl CachedView {
    pub fn members(&self) -> impl Iterator<Item = (PeerId, &Info)> {
        self.view.iter().flat_map(|view| view.members.iter().map(|(host, info)| (*host, info)))
    }

    pub fn info_of(&self, host: PeerId) -> Option<&Info> {
        self.members().find(|(member, _)| *member == host).map(|(_, info)| info)
    }

    pub fn voters(&self) -> impl Iterator<Item = PeerId> {
        self.view.iter().flat_map(|view| view.voters.iter().map(|(_, host)| *host))
    }

    pub fn voters_and_learners(&self) -> Option<impl Iterator<Item = PeerId>> {
        self.view.as_ref().map(|view| view.voters.iter().chain(&view.learners).map(|(_, host)| *host))
    }

    pub fn sessions_of(&self, host: PeerId) -> impl DoubleEndedIterator<Item = (SessionId, Ttl)> {
        let sessions = self.view.iter().flat_map(|view| &view.sessions);
        sessions.filter(move |(_, of, _)| *of == host).map(|(session, _, ttl)| (*session, *ttl))
    }

    pub fn set_registry_hosts(&mut self, others: impl Iterator<Item = PeerId>) {
        let mut hosts: Vec<PeerId> = self.voters_and_learners().into_iter().flatten().chain(others).collect();
        hosts.sort_unstable();
        hosts.dedup();
        // Usually unchanged.
        if !self.registry_hosts.iter().eq(&hosts) {
            self.registry_hosts = hosts.into_iter().collect();
        }
    }

    pub fn wanted(&self, dealt_with: impl Iterator<Item = PeerId>) -> BTreeSet<PeerId> {
        self.named.iter().copied().chain(dealt_with).take(MOST_HOSTS).collect()
    }

    /// Includes hosts within the limit. Returns whether one is new.
    pub fn mention(&mut self, hosts: impl Iterator<Item = PeerId>) -> bool {
        let before = self.named.len();
        self.named.extend(hosts.take(MOST_NAMED.saturating_sub(before)));
        self.named.len() > before
    }

    pub fn on_event(&mut self, view: View) -> BTreeSet<PeerId> {
        let members: BTreeSet<PeerId> = view.members.iter().map(|(host, _)| *host).collect();
        self.view = Some(view);
        self.named.clear();
        self.looked_for.difference(&members).copied().collect()
    }

    /// Returns the last host, if another page follows it.
    pub fn on_page(&mut self, page: View) -> Option<PeerId> {
        let last = page.members.last().map(|(host, _)| *host).filter(|_| page.more);
        match &mut self.all_members {
            Some(all) => {
                all.members.extend(page.members);
                all.sessions.extend(page.sessions);
            }
            None => self.all_members = Some(page),
        }
        last
    }

    pub fn check(&self, has_alarm: bool) {
        assert!(self.looks.is_empty() || has_alarm, "calls {:?} wait for the member list without a timer", self.looks);
    }

    pub fn in_turn(&self, hosts: &BTreeSet<PeerId>) -> Vec<PeerId> {
        let first = (self.rounds * MOST_SOUGHT).checked_rem(hosts.len()).unwrap_or(0);
        hosts.iter().copied().cycle().skip(first).take(hosts.len().min(MOST_SOUGHT)).collect()
    }
}

impl Node {
    pub(crate) fn look_at_cluster(&mut self) {
        if self.is_leaving() {
            return;
        }
        self.timers.set(Alarm::Look, self.now + LOOK);
        let contacts = self.contacts.all().map(|(host, _)| host);
        let looked_for = self.cached_view.wanted(std::iter::once(self.host()).chain(contacts));
        if !self.session_state.is_asking(&Ask::Cluster) {
            let look = Look::Hosts(looked_for.iter().copied().collect());
            if self.session_state.look(look, Ask::Cluster, self.now) {
                self.cached_view.looked_for = looked_for;
            }
        } else if !looked_for.is_subset(&self.cached_view.looked_for) {
            self.look_soon();
        }
    }

    /// A voter knows all members.
    pub(crate) fn info_of(&self, host: PeerId) -> Option<&Info> {
        let own = self.session_state.registry().and_then(|registry| registry.state().members().get(&host));
        own.or_else(|| self.cached_view.info_of(host))
    }

    pub(crate) fn is_member(&self, host: PeerId) -> bool {
        self.info_of(host).is_some()
    }

    pub(crate) fn look_again(&mut self) {
        self.look_within(LOOK_AGAIN);
    }

    pub(crate) fn look_soon(&mut self) {
        self.look_within(LOOK_SOON);
    }

    fn look_within(&mut self, span: Span) {
        let at = self.now + span;
        if self.phase == Phase::Joined && self.timers.when(&Alarm::Look).is_none_or(|next| next > at) {
            self.timers.set(Alarm::Look, at);
        }
    }

    /// Includes hosts in the view whose names are shown to clients.
    pub(crate) fn include_hosts(&mut self, hosts: &[PeerId]) {
        let unknown: Vec<PeerId> = hosts.iter().copied().filter(|host| !self.is_member(*host)).collect();
        if self.cached_view.mention(unknown.into_iter()) {
            self.look_soon();
        }
    }

    pub(crate) fn on_view(&mut self, view: View) {
        let me = self.host();
        // Voters first: the others matter only if all voters have moved.
        let others = view.members.iter().filter(|(host, info)| *host != me && info.keeps);
        let (voters, others): (Vec<_>, Vec<_>) = others.partition(|(host, _)| has(&view.voters, *host));
        let listed = voters.into_iter().chain(others);
        let listed = listed.flat_map(|(_, info)| info.addresses.iter().map(ToString::to_string));
        let mut found = BTreeSet::new();
        let addresses = listed.chain(self.all_addresses()).filter(|address| found.insert(address.clone()));
        let addresses: Vec<String> = addresses.take(MOST_WRITTEN).collect();
        if self.cached_view.addresses != addresses {
            self.cached_view.addresses.clone_from(&addresses);
            self.effects.push(Effect::Members(addresses));
        }
        let gone = self.cached_view.on_event(view);
        self.contacts.forget(|host| !gone.contains(&host), self.now, FORGET);
        self.parts.rations.retain(|host, _| self.contacts.get(*host).is_some());
        // A host that is just joining becomes a member in a moment.
        if self.contacts.open().any(|(host, _)| gone.contains(&host)) {
            self.look_soon();
        }
        self.check_voters();
        let mut cut_off = self.contacts.awaited();
        cut_off.retain(|host| !self.contacts.is_connected(*host));
        let members: BTreeSet<PeerId> = self.cached_view.members().map(|(host, _)| host).collect();
        for host in cut_off {
            match members.contains(&host) {
                true => self.reach(host),
                false => self.look_again(),
            }
        }
    }

    fn all_addresses(&self) -> Vec<String> {
        let all = self.session_state.registry().map(|registry| registry.state().members());
        let others = all.into_iter().flatten().filter(|(host, info)| **host != self.host() && info.keeps);
        others.flat_map(|(_, info)| info.addresses.iter().map(ToString::to_string)).collect()
    }

    pub(crate) fn look_for(&mut self, call: u64) {
        self.cached_view.looks.push(call);
        self.timers.set_if_none(Alarm::Looks, self.now + LOOK_TIMEOUT);
        if !self.session_state.is_asking(&Ask::AllMembers) {
            self.cached_view.all_members = None;
            self.session_state.look(Look::Cluster, Ask::AllMembers, self.now);
        }
    }

    pub(crate) fn on_members(&mut self, page: View) {
        match self.cached_view.on_page(page) {
            Some(last) => _ = self.session_state.look(Look::Further(last), Ask::AllMembers, self.now),
            None => self.answer_looks(),
        }
    }

    pub(crate) fn answer_looks(&mut self) {
        self.timers.cancel(&Alarm::Looks);
        let (all_members, looks) = (self.cached_view.all_members.take(), take(&mut self.cached_view.looks));
        let found = self.cluster_view(all_members.as_ref().or(self.cached_view.view.as_ref()), self.now);
        for call in looks {
            self.answer(call, Ok(Answer::Found(found.clone())));
        }
    }

    fn cluster_view(&self, view: Option<&View>, now: Time) -> ClusterView {
        ClusterView {
            cluster: self.session_state.cluster().map(|cluster| cluster.to_string()).unwrap_or_default(),
            version: view.map(|view| view.version),
            applied: view.map(|view| view.index),
            peers: self.peers_of(view, now),
            session: self.session_state.bound().map(|bound| bound.until.since(now).into()),
            problem: self.problem().map(|error| error.to_string()),
        }
    }

    /// Returns this peer, its contacts and the voters, from the cached view.
    pub fn peers(&self, now: Time) -> Vec<PeerView> {
        self.peers_of(self.cached_view.view.as_ref(), now)
    }

    fn peers_of(&self, view: Option<&View>, now: Time) -> Vec<PeerView> {
        let me = self.host();
        let address = self.membership.addresses().first().cloned().unwrap_or_default();
        let known_of = Known::of(view);
        let mine = self.peer_view(&known_of, me, address, now.since(Time::ZERO));
        let known: BTreeSet<PeerId> = {
            let members = view.into_iter().flat_map(|view| view.members.iter().map(|(host, _)| *host));
            members.chain(self.contacts.all().map(|(host, _)| host)).filter(|host| *host != me).collect()
        };
        let others = known.into_iter().map(|host| match self.contacts.get(host) {
            Some(contact) => self.peer_view(&known_of, host, contact.address.clone(), now.since(contact.since)),
            None => self.peer_view(&known_of, host, String::new(), now.since(Time::ZERO)),
        });
        std::iter::once(mine).chain(others).collect()
    }

    fn peer_view(&self, known: &Known<'_>, peer: PeerId, address: String, since: Span) -> PeerView {
        let info = known.members.get(&peer);
        let voter = match known.view {
            Some(view) if view.leader == Some(peer) => Voter::Leads,
            Some(view) if has(&view.voters, peer) => Voter::Votes,
            Some(view) if has(&view.learners, peer) => Voter::Learns,
            Some(_) | None => Voter::No,
        };
        let session = known.sessions.get(&peer).copied();
        let contact = self.contacts.get(peer);
        // A host with a session is up, unless we lost its connection recently. Voters would be connected; without a
        // session of our own the view is outdated.
        let trusts_view = self.session_state.session().is_some() && !self.cached_view.registry_hosts.contains(&peer);
        let is_linked = contact.is_some_and(|contact| contact.is_open());
        let is_recent = |contact: &Contact| self.now.since(contact.since) < self.session_state.ttl() * 2;
        let is_lost = contact.is_some_and(|contact| contact.is_lost && is_recent(contact));
        let up = peer == self.host() || is_linked || trusts_view && session.is_some() && !is_lost;
        let registered = info.and_then(|info| info.addresses.first()).map(ToString::to_string).unwrap_or_default();
        PeerView {
            peer,
            address: if address.is_empty() { registered } else { address },
            up,
            since: since.into(),
            is_me: peer == self.host(),
            name: info.map(|info| info.name.to_string()).unwrap_or_default(),
            version: info.map(|info| info.versions.max),
            voter,
            session,
            keeps: info.is_some_and(|info| info.keeps),
        }
    }

    pub(crate) fn list(&mut self, call: u64, listing: &Listing) {
        let prefix = match listing.label() {
            Ok(prefix) => prefix,
            Err(error) => return self.answer(call, Err(error)),
        };
        let (after, most) = (listing.after.as_ref().map(label), listing.limit.unwrap_or(MOST_ON_PAGE));
        let look = Look::Resources { prefix, after, most: most.clamp(1, MOST_ON_PAGE), granted_by: None };
        self.query_for(call, look, Ask::List(call));
    }

    pub(crate) fn on_listed(&mut self, call: u64, page: &Page) {
        let here = self.clients.resources().map(|(key, _, holding, waiting)| (key, (holding, waiting)));
        let here: BTreeMap<Key, (usize, usize)> = here.collect();
        let listed = page.resources.iter().filter_map(|resource| {
            let name: Name = resource.name.as_str().parse().ok()?;
            let (holding_here, waiting_here) = here.get(&name.key()).copied().unwrap_or_default();
            let recovering = !resource.closed && resource.coordinator.is_some();
            Some(ResourceView { name, slots: Some(resource.slots), holding_here, waiting_here, recovering })
        });
        self.answer_caller(call, Ok(Answer::Listed(listed.collect())));
    }

    /// Returns the resources that were requested at this peer, by name.
    pub fn resources(&self) -> Vec<ResourceView> {
        let here = self.clients.resources().map(|(key, name, holding_here, waiting_here)| {
            let slots = self.slots_of(key);
            let recovering = self.parts.get(key).is_some_and(|part| part.custody.missing().is_some());
            ResourceView { name: name.clone(), slots, holding_here, waiting_here, recovering }
        });
        let mut all: Vec<ResourceView> = here.collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }
}

struct Known<'a> {
    view: Option<&'a View>,
    members: BTreeMap<PeerId, &'a Info>,
    sessions: BTreeMap<PeerId, u64>,
}

impl<'a> Known<'a> {
    fn of(view: Option<&'a View>) -> Self {
        let members = view.into_iter().flat_map(|view| view.members.iter().map(|(host, info)| (*host, info))).collect();
        // Of several sessions of a host, the last is in use.
        let sessions = view.into_iter().flat_map(|view| view.sessions.iter().map(|(id, host, _)| (*host, id.get())));
        let sessions = sessions.collect();
        Self { view, members, sessions }
    }
}

fn has(voter_list: &[(VoterId, PeerId)], peer: PeerId) -> bool {
    voter_list.iter().any(|(_, host)| *host == peer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_has_a_turn_within_bounded_rounds() {
        for count in [0, 1, 5, 16, 17, 32, 100, 1000] {
            let hosts: BTreeSet<PeerId> = (0..count).map(PeerId::new).collect();
            let mut cached_view = CachedView::default();
            let rounds = (0..=count).map(|_| {
                cached_view.rounds += 1;
                cached_view.in_turn(&hosts)
            });
            let rounds: Vec<Vec<PeerId>> = rounds.collect();
            assert!(rounds.iter().all(|round| round.len() == hosts.len().min(MOST_SOUGHT)), "{count}");
            assert_eq!(rounds.concat().into_iter().collect::<BTreeSet<_>>(), hosts, "{count}");
            let soon: BTreeSet<PeerId> = rounds.concat().into_iter().take(count as usize + MOST_SOUGHT).collect();
            assert_eq!(soon, hosts, "every host in turn, {count}");
        }
    }

    #[test]
    #[should_panic(expected = "calls [7] wait for the member list without a timer")]
    fn pending_look_without_a_timer_panics() {
        let mut cached_view = CachedView::default();
        cached_view.check(false);
        cached_view.looks.push(7);
        cached_view.check(true);
        cached_view.check(false);
    }

    #[test]
    fn mentioned_hosts_are_bounded() {
        let mut cached_view = CachedView::default();
        let hosts = |from: u64| (from..from + 200).map(PeerId::new);
        assert!(cached_view.mention(hosts(0)));
        assert!(!cached_view.mention(hosts(0)), "they are known");
        assert!(cached_view.mention(hosts(1000)));
        assert!(!cached_view.mention(hosts(2000)), "there is no room");
        assert_eq!(cached_view.wanted([PeerId::new(7777)].into_iter()).len(), MOST_NAMED + 1);
    }
}
