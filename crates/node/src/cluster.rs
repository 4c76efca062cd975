//! The view of the cluster: members, voters, sessions and resources, from the registry.
//!
//! 1. The view of the hosts of interest is refreshed every 30 s, and soon after an unknown or unreachable host appears.
//! 2. `Input::Look` queries all members, page by page; without an answer in time, the view is the answer.
//! 3. `Input::List` queries a page of resources.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;

use peerlock_registry::{self as registry, Info, Look, MOST_HOSTS, MOST_ON_PAGE, Page, SessionId, Ttl, View, VoterId};
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

/// The timeout of a `look` call, which is then answered from the cached view.
const LOOKERS: Span = Span::from_secs(2);

/// Addresses stored for the next process.
const MOST_WRITTEN: usize = 256;

const FORGET: Span = Span::from_secs(60);

/// Hosts included because they were named to clients.
const MOST_MENTIONED: usize = 256;

/// Hosts dialled or asked at a time: in a large cluster all members may lose their sessions at once.
const MOST_SOUGHT: usize = 16;

#[derive(Default)]
pub struct CachedView {
    /// The last result: hosts of interest and voters.
    view: Option<View>,
    looked_for: BTreeSet<PeerId>,
    mentioned: BTreeSet<PeerId>,
    /// Voters, learners and leader.
    seated: BTreeSet<PeerId>,
    /// Of all members, as last reported.
    addresses: Vec<String>,
    /// Received pages of the member list.
    everybody: Option<View>,
    lookers: Vec<u64>,
    rounds: usize,
}

impl CachedView {
    pub fn view(&self) -> Option<&View> {
        self.view.as_ref()
    }

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

    pub fn seated(&self) -> &BTreeSet<PeerId> {
        &self.seated
    }

    pub fn is_seated(&self, host: PeerId) -> bool {
        self.seated.contains(&host)
    }

    /// Sets the voters, learners and leader: these and those of the last result.
    pub fn set_others(&mut self, others: impl Iterator<Item = PeerId>) {
        let mut seated: Vec<PeerId> = self.voters_and_learners().into_iter().flatten().chain(others).collect();
        seated.sort_unstable();
        seated.dedup();
        // Usually unchanged.
        if !self.seated.iter().eq(&seated) {
            self.seated = seated.into_iter().collect();
        }
    }

    pub fn wanted(&self, dealt_with: impl Iterator<Item = PeerId>) -> BTreeSet<PeerId> {
        self.mentioned.iter().copied().chain(dealt_with).take(MOST_HOSTS).collect()
    }

    pub fn look_for(&mut self, hosts: BTreeSet<PeerId>) {
        self.looked_for = hosts;
    }

    pub fn covers(&self, hosts: &BTreeSet<PeerId>) -> bool {
        hosts.is_subset(&self.looked_for)
    }

    pub fn was_looked_for(&self, host: PeerId) -> bool {
        self.looked_for.contains(&host)
    }

    pub fn need(&mut self, host: PeerId) {
        self.mentioned.insert(host);
    }

    /// Includes hosts that were named to clients, within the limit. Returns whether one is new.
    pub fn mention(&mut self, hosts: impl Iterator<Item = PeerId>) -> bool {
        let before = self.mentioned.len();
        self.mentioned.extend(hosts.take(MOST_MENTIONED.saturating_sub(before)));
        self.mentioned.len() > before
    }

    pub fn on_event(&mut self, view: View) -> BTreeSet<PeerId> {
        let members: BTreeSet<PeerId> = view.members.iter().map(|(host, _)| *host).collect();
        self.view = Some(view);
        self.mentioned.clear();
        self.looked_for.difference(&members).copied().collect()
    }

    pub fn list(&mut self, addresses: &[String]) -> bool {
        let is_new = self.addresses != addresses;
        if is_new {
            self.addresses = addresses.to_vec();
        }
        is_new
    }

    pub fn await_all(&mut self, call: u64) {
        self.lookers.push(call);
    }

    pub fn begin_all(&mut self) {
        self.everybody = None;
    }

    /// Stores a page. Returns the last host, if another page follows it.
    pub fn on_page(&mut self, page: View) -> Option<PeerId> {
        let last = page.members.last().map(|(host, _)| *host).filter(|_| page.more);
        match &mut self.everybody {
            Some(all) => {
                all.members.extend(page.members);
                all.sessions.extend(page.sessions);
            }
            None => self.everybody = Some(page),
        }
        last
    }

    pub fn end_all(&mut self) -> (Option<View>, Vec<u64>) {
        (self.everybody.take(), take(&mut self.lookers))
    }

    pub fn check(&self, has_alarm: bool) {
        assert!(
            self.lookers.is_empty() || has_alarm,
            "calls {:?} wait for the member list without a timer",
            self.lookers
        );
    }

    pub fn next_round(&mut self) {
        self.rounds += 1;
    }

    pub fn in_turn(&self, hosts: &BTreeSet<PeerId>) -> Vec<PeerId> {
        let first = (self.rounds * MOST_SOUGHT).checked_rem(hosts.len()).unwrap_or(0);
        hosts.iter().copied().cycle().skip(first).take(hosts.len().min(MOST_SOUGHT)).collect()
    }
}

impl Node {
    pub(crate) fn look_at_cluster(&mut self) {
        if matches!(self.phase, Phase::Leaving | Phase::Left) {
            return;
        }
        self.timers.set(Alarm::Look, self.now + LOOK);
        let looked_for = self.dealt_with();
        if !self.session_state.is_asking(&Ask::Cluster) {
            let look = Look::Hosts(looked_for.iter().copied().collect());
            if self.session_state.look(look, Ask::Cluster, self.now) {
                self.cached_view.look_for(looked_for);
            }
        } else if !self.cached_view.covers(&looked_for) {
            self.look_soon();
        }
    }

    fn dealt_with(&self) -> BTreeSet<PeerId> {
        let contacts = self.contacts.all().map(|(host, _)| host);
        self.cached_view.wanted(std::iter::once(self.host()).chain(contacts))
    }

    /// Returns the registered information of a member. A voter knows all members.
    pub(crate) fn info_of(&self, host: PeerId) -> Option<&Info> {
        let own = self.session_state.registry().and_then(|registry| registry.state().members().get(&host));
        own.or_else(|| self.cached_view.info_of(host))
    }

    pub(crate) fn is_member(&self, host: PeerId) -> bool {
        self.info_of(host).is_some()
    }

    pub(crate) fn look_again(&mut self) {
        let at = self.now + LOOK_AGAIN;
        if self.phase == Phase::Joined && self.timers.when(&Alarm::Look).is_none_or(|next| next > at) {
            self.timers.set(Alarm::Look, at);
        }
    }

    pub(crate) fn look_soon(&mut self) {
        let soon = self.now + LOOK_SOON;
        if self.phase == Phase::Joined && self.timers.when(&Alarm::Look).is_none_or(|at| at > soon) {
            self.timers.set(Alarm::Look, soon);
        }
    }

    /// Includes hosts that are named to clients in the view, so that their names are known.
    pub(crate) fn note_mentioned(&mut self, hosts: &[PeerId]) {
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
        if self.cached_view.list(&addresses) {
            self.effects.push(Effect::Members(addresses));
        }
        let gone = self.cached_view.on_event(view);
        self.contacts.forget(|host| !gone.contains(&host), self.now, FORGET);
        self.parts.retain_rations(|host| self.contacts.get(host).is_some());
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
        self.cached_view.await_all(call);
        self.timers.set_if_none(Alarm::Lookers, self.now + LOOKERS);
        if !self.session_state.is_asking(&Ask::Everybody) {
            self.cached_view.begin_all();
            self.session_state.look(Look::Cluster, Ask::Everybody, self.now);
        }
    }

    pub(crate) fn on_everybody(&mut self, page: View) {
        match self.cached_view.on_page(page) {
            Some(last) => _ = self.session_state.look(Look::Further(last), Ask::Everybody, self.now),
            None => self.answer_lookers(),
        }
    }

    pub(crate) fn answer_lookers(&mut self) {
        self.timers.cancel(&Alarm::Lookers);
        let (everybody, lookers) = self.cached_view.end_all();
        let found = self.cluster_view(everybody.as_ref().or(self.cached_view.view()), self.now);
        for call in lookers {
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

    /// Returns this peer, its contacts and the voters, from the cached view. For all members:
    /// [`Input::Look`](crate::Input::Look).
    pub fn peers(&self, now: Time) -> Vec<PeerView> {
        self.peers_of(self.cached_view.view(), now)
    }

    fn peers_of(&self, view: Option<&View>, now: Time) -> Vec<PeerView> {
        let me = self.host();
        let address = self.membership.addresses().first().cloned().unwrap_or_default();
        let known_of = Known::of(view);
        let mine = self.peer_view(&known_of, me, address, now.since(Time::ZERO));
        let known: std::collections::BTreeSet<PeerId> = {
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
        // A host with a session is up, unless we lost its connection recently. Voters would be connected; and without a
        // session of our own the view is outdated.
        let is_notified = self.session_state.session().is_some() && !self.cached_view.is_seated(peer);
        let is_linked = contact.is_some_and(|contact| contact.is_open());
        let is_recent = |contact: &Contact| self.now.since(contact.since) < self.session_state.ttl() * 2;
        let is_lost = contact.is_some_and(|contact| contact.is_lost && is_recent(contact));
        let up = peer == self.host() || is_linked || is_notified && session.is_some() && !is_lost;
        let sent = info.and_then(|info| info.addresses.first()).map(ToString::to_string).unwrap_or_default();
        PeerView {
            peer,
            address: if address.is_empty() { sent } else { address },
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
        if let Some(error) = self.problem() {
            return self.answer(call, Err(error));
        }
        self.wait_for_register(call);
        self.session_state.look(look, Ask::List(call), self.now);
    }

    pub(crate) fn on_listed(&mut self, call: u64, page: &Page) {
        let here = self.clients.resources().map(|(key, _, holding, waiting)| (key, (holding, waiting)));
        let here: BTreeMap<Key, (usize, usize)> = here.collect();
        let listed = page.resources.iter().filter_map(|resource| listed(resource, &here)).collect();
        self.answer_caller(call, Ok(Answer::Listed(listed)));
    }

    /// Returns the resources that were requested at this peer, by name. For all: [`Input::List`](crate::Input::List).
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

fn listed(resource: &registry::ResourceView, here: &BTreeMap<Key, (usize, usize)>) -> Option<ResourceView> {
    let name: Name = resource.name.as_str().parse().ok()?;
    let (holding_here, waiting_here) = here.get(&name.key()).copied().unwrap_or_default();
    let recovering = !resource.closed && resource.coordinator.is_some();
    Some(ResourceView { name, slots: Some(resource.slots), holding_here, waiting_here, recovering })
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
                cached_view.next_round();
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
        cached_view.await_all(7);
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
        assert_eq!(cached_view.wanted([PeerId::new(7777)].into_iter()).len(), MOST_MENTIONED + 1);
    }
}
