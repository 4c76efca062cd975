//! Queries to the registry: members, resources, and what administrators want changed.

use std::collections::{BTreeMap, BTreeSet};

use peerlock_registry::{self as registry, Command, Found, Info, Label, Look, MOST_ON_PAGE, Page, View, VoterId};
use peerlock_types::{Key, PeerId, Span, Time};

use super::session::label;
use super::{Alarm, Answer, Effect, Node, Phase};
use crate::contacts::Contact;
use crate::session_state::Ask;
use crate::{Class, ClusterView, Error, Listing, Name, PeerView, ResourceView, Voter, check_slots};

/// The interval at which the cluster view is refreshed …
const LOOK: Span = Span::from_secs(30);
/// … sooner if an unknown host appears …
const LOOK_SOON: Span = Span::from_millis(300);
/// … and if a host cannot be reached where it was.
const LOOK_AGAIN: Span = Span::from_secs(3);
/// The timeout of a `look` call, after which it is answered from the cached view.
const LOOKERS: Span = Span::from_secs(2);
/// The timeout of other calls that need the registry: longer than an election.
const CALLERS: Span = Span::from_secs(5);
/// The maximum number of addresses stored for the next process.
const MOST_WRITTEN: usize = 256;
/// The maximum number of voters.
const MAX_VOTERS: usize = 7;
/// A host that is no member is forgotten after this long without a connection.
const FORGET: Span = Span::from_secs(60);

impl Node {
    pub(super) fn look_at_cluster(&mut self) {
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

    /// Returns the hosts of interest: our own, contacts, and hosts that were named to clients.
    fn dealt_with(&self) -> BTreeSet<PeerId> {
        let contacts = self.contacts.all().map(|(host, _)| host);
        self.cached_view.wanted(std::iter::once(self.host()).chain(contacts))
    }

    /// Returns the registered information of a member, if known. A voter knows all members.
    pub(super) fn info_of(&self, host: PeerId) -> Option<&Info> {
        let own = self.session_state.registry().and_then(|registry| registry.state().members().get(&host));
        own.or_else(|| self.cached_view.info_of(host))
    }

    /// Returns whether a host is a known member.
    pub(super) fn is_member(&self, host: PeerId) -> bool {
        self.info_of(host).is_some()
    }

    /// Refreshes the view within [`LOOK_AGAIN`]: it may be outdated.
    pub(super) fn look_again(&mut self) {
        let at = self.now + LOOK_AGAIN;
        if self.phase == Phase::Joined && self.timers.when(&Alarm::Look).is_none_or(|next| next > at) {
            self.timers.set(Alarm::Look, at);
        }
    }

    pub(super) fn look_soon(&mut self) {
        let soon = self.now + LOOK_SOON;
        if self.phase == Phase::Joined && self.timers.when(&Alarm::Look).is_none_or(|at| at > soon) {
            self.timers.set(Alarm::Look, soon);
        }
    }

    pub(super) fn look_for(&mut self, call: u64) {
        self.cached_view.await_all(call);
        self.timers.set_if_none(Alarm::Lookers, self.now + LOOKERS);
        if !self.session_state.is_asking(&Ask::Everybody) {
            self.cached_view.begin_all();
            self.session_state.look(Look::Cluster, Ask::Everybody, self.now);
        }
    }

    /// Handles a page of the member list.
    fn on_everybody(&mut self, page: View) {
        match self.cached_view.on_page(page) {
            Some(last) => _ = self.session_state.look(Look::Further(last), Ask::Everybody, self.now),
            None => self.answer_lookers(),
        }
    }

    /// Includes hosts that are named to clients in the view, so that their names are known.
    pub(super) fn note_mentioned(&mut self, hosts: &[PeerId]) {
        let unknown: Vec<PeerId> = hosts.iter().copied().filter(|host| !self.is_member(*host)).collect();
        if self.cached_view.mention(unknown.into_iter()) {
            self.look_soon();
        }
    }

    /// Checks whether the detached grants whose deadlines only the registry knows still exist.
    pub(super) fn look_at_returned(&mut self) {
        let is_asking = self.session_state.is_asking(&Ask::Returned);
        if self.knows_returned() && !is_asking && self.clients.returned().next().is_some() {
            self.look_at_grants(None);
        }
    }

    pub(super) fn look_at_grants(&mut self, after: Option<Label>) {
        let (prefix, granted_by) = (None, Some(self.host()));
        let look = Look::Resources { prefix, after, most: MOST_ON_PAGE, granted_by };
        self.session_state.look(look, Ask::Returned, self.now);
    }

    pub(super) fn list(&mut self, call: u64, listing: &Listing) {
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

    pub(super) fn resize(&mut self, call: u64, name: Name, slots: u32) {
        if let Err(error) = check_slots(slots) {
            return self.answer(call, Err(error));
        }
        if let Some(error) = self.problem() {
            return self.answer(call, Err(error));
        }
        self.wait_for_register(call);
        self.session_state.look(Look::Resource(label(&name)), Ask::ResizeFound(call, name, slots), self.now);
    }

    /// Requests the resize in the generation that was found: it is void if a later generation has changed the number of
    /// slots.
    fn on_resize_found(&mut self, call: u64, name: Name, slots: u32, page: Page) {
        let Some(resource) = page.resources.into_iter().next() else {
            return self.answer_caller(call, Err(Error::NoSuchResource { name }));
        };
        let command = Command::Resize { resource: resource.name, slots, generation: resource.generation };
        self.session_state.ask(command, Ask::Resize(call, name), self.now);
    }

    pub(super) fn expel(&mut self, call: u64, name: Name, peer: PeerId) {
        if let Some(error) = self.problem() {
            return self.answer(call, Err(error));
        }
        self.wait_for_register(call);
        self.session_state.look(Look::Resource(label(&name)), Ask::EvictTarget(call, name, peer), self.now);
    }

    /// Starts the timeout of a call that waits for the registry: without a quorum, the session may remain valid for its
    /// whole length.
    pub(super) fn wait_for_register(&mut self, call: u64) {
        self.timers.set(Alarm::Caller(call), self.now + CALLERS);
    }

    /// Answers a call, unless it has timed out.
    pub(super) fn answer_caller(&mut self, call: u64, answer: Result<Answer, Error>) {
        if self.timers.is_set(&Alarm::Caller(call)) {
            self.timers.cancel(&Alarm::Caller(call));
            self.answer(call, answer);
        }
    }

    pub(super) fn give_up_register(&mut self, call: u64) {
        let error = self.problem().unwrap_or_else(|| {
            let absent = self.absent_voters(self.now).iter().map(|it| it.name.clone()).collect::<Vec<_>>();
            let why =
                if absent.is_empty() { String::new() } else { format!(" (no connection to {})", absent.join(", ")) };
            let message = format!(
                "no quorum within {CALLERS}{why}: try again. A change may still be applied when the voters are \
                 reachable again"
            );
            Error::Refused { class: Class::Unavailable, message }
        });
        self.answer(call, Err(error));
    }

    /// Evicts all sessions of a host: detached grants by their fencing numbers, parties by the participation that was
    /// found. Later participations and grants are not affected.
    fn on_expel(&mut self, call: u64, name: Name, peer: PeerId, page: Page) {
        let Some(resource) = page.resources.into_iter().next() else {
            return self.answer_caller(call, Err(Error::NoSuchResource { name }));
        };
        let grants = resource.detached.into_iter().filter(|grant| grant.host == peer);
        let grants = grants.map(|grant| Command::TakeBack {
            resource: label(&name),
            fencing: grant.fencing,
            session: grant.session,
        });
        let parties = resource.parties.into_iter().filter(|party| party.host == peer);
        let parties =
            parties.map(|party| Command::Expel { resource: label(&name), session: party.session, since: party.since });
        let mut commands: Vec<Command> = grants.chain(parties).collect();
        let Some(last) = commands.pop() else { return self.answer_caller(call, Ok(Answer::Expelled)) };
        // Commands are applied in order: the answer to the last one implies that the others were sent.
        for command in commands {
            self.session_state.ask(command, Ask::Inform, self.now);
        }
        self.session_state.ask(last, Ask::Expel(call), self.now);
    }

    pub(super) fn set_voters(&mut self, call: u64, hosts: Option<Vec<PeerId>>) {
        match self.problem() {
            Some(error) => self.answer(call, Err(error)),
            None if hosts.as_ref().is_none_or(|hosts| (1..=MAX_VOTERS).contains(&hosts.len())) => {
                self.wait_for_register(call);
                self.session_state.look(Look::Hosts(Vec::new()), Ask::VotersFound(call, hosts), self.now);
            }
            None => {
                let message = format!("1 to {MAX_VOTERS} hosts can vote");
                self.answer(call, Err(Error::Refused { class: Class::BadRequest, message }));
            }
        }
    }

    pub(super) fn forget_member(&mut self, call: u64, host: PeerId) {
        match self.problem() {
            Some(error) => self.answer(call, Err(error)),
            None => {
                self.wait_for_register(call);
                self.session_state.look(Look::Hosts(Vec::new()), Ask::ForgetFound(call, host), self.now);
            }
        }
    }

    pub(super) fn on_result(&mut self, ask: Ask, found: Found) {
        match (ask, found) {
            (Ask::Cluster, Found::Cluster(view)) => self.on_view(view),
            (Ask::Everybody, Found::Cluster(page)) => self.on_everybody(page),
            (Ask::Names(number), Found::Cluster(view)) => self.on_query_names(number, view),
            (Ask::Returned, Found::Resources(page)) => self.on_grants(page),
            (Ask::List(call), Found::Resources(page)) => {
                let here = self.clients.resources().map(|(key, _, holding, waiting)| (key, (holding, waiting)));
                let here: BTreeMap<Key, (usize, usize)> = here.collect();
                let listed = page.resources.iter().filter_map(|resource| listed(resource, &here)).collect();
                self.answer_caller(call, Ok(Answer::Listed(listed)));
            }
            (Ask::Show(number), Found::Resources(page)) => self.on_query_page(number, page),
            (Ask::ResizeFound(call, name, slots), Found::Resources(page)) => {
                self.on_resize_found(call, name, slots, page);
            }
            (Ask::VotersFound(call, hosts), Found::Cluster(view)) => {
                self.session_state.ask(
                    Command::SetVoters { hosts, after: view.choices },
                    Ask::SetVoters(call),
                    self.now,
                );
            }
            (Ask::ForgetFound(call, host), Found::Cluster(view)) => {
                let forget = Command::Forget { host, after: view.choices };
                self.session_state.ask(forget, Ask::Forget(call), self.now);
            }
            (Ask::RemoveFound(call), Found::Resources(page)) => self.on_remove_found(call, page),
            (Ask::RevokeFrom(call), Found::Resources(page)) => self.on_revoke_found(call, page),
            (Ask::EvictTarget(call, name, peer), Found::Resources(page)) => self.on_expel(call, name, peer, page),
            _ => self.unexpected("a result of another kind than its query"),
        }
    }

    fn on_view(&mut self, view: View) {
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

    /// Returns the addresses of all members if we are a voter, else nothing.
    fn all_addresses(&self) -> Vec<String> {
        let all = self.session_state.registry().map(|registry| registry.state().members());
        let others = all.into_iter().flatten().filter(|(host, info)| **host != self.host() && info.keeps);
        others.flat_map(|(_, info)| info.addresses.iter().map(ToString::to_string)).collect()
    }

    pub(super) fn answer_lookers(&mut self) {
        self.timers.cancel(&Alarm::Lookers);
        let (everybody, lookers) = self.cached_view.end_all();
        let found = self.cluster_view(everybody.as_ref().or(self.cached_view.view()), self.now);
        for call in lookers {
            self.answer(call, Ok(Answer::Found(found.clone())));
        }
    }

    /// Converts a view of the registry to the public view.
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

    /// Returns this peer, its contacts and the voters, with the cached view of them. For all members:
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
        // A host with a session is up, unless we had a connection and lost it recently. This does not hold for voters,
        // to which we would be connected, or without a session of our own, as the view is outdated then.
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
}

/// The registered state of members, by host.
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

/// Converts a resource, with the numbers of local holders and waiters.
fn listed(resource: &registry::ResourceView, here: &BTreeMap<Key, (usize, usize)>) -> Option<ResourceView> {
    let name: Name = resource.name.as_str().parse().ok()?;
    let (holding_here, waiting_here) = here.get(&name.key()).copied().unwrap_or_default();
    let recovering = !resource.closed && resource.coordinator.is_some();
    Some(ResourceView { name, slots: Some(resource.slots), holding_here, waiting_here, recovering })
}

fn has(voter_list: &[(VoterId, PeerId)], peer: PeerId) -> bool {
    voter_list.iter().any(|(_, host)| *host == peer)
}
