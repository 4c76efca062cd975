//! What the register is looked at for: who there is, what there is, and what a person wants changed.

use peerlock_base::{PeerId, Span, Time};
use peerlock_register::{Command, Info, Label, Look, MOST_ON_PAGE, Page, Seen, View};

use super::session::label;
use super::{Alarm, Answer, Effect, Node, Phase};
use crate::standing::Ask;
use crate::{Class, ClusterView, Error, Name, PeerView, ResourceView, Voter, check_slots};

/// How often we look who the members are …
const LOOK: Span = Span::from_secs(30);
/// … and how soon when somebody turns up whom we do not know.
const LOOK_SOON: Span = Span::from_millis(300);
/// How long a person waits for it.
const LOOKERS: Span = Span::from_secs(2);
/// How long a person waits for the register to do or list something. A new leader is elected within that.
const CALLERS: Span = Span::from_secs(5);
/// At most so many hosts vote.
const MOST_SEATS: usize = 7;
/// Who is no member and has not been connected for this long is forgotten.
const FORGET: Span = Span::from_secs(60);

impl Node {
    pub(super) fn look_at_cluster(&mut self) {
        if matches!(self.phase, Phase::Leaving | Phase::Left) {
            return;
        }
        self.timers.set(Alarm::Look, self.now + LOOK);
        if !self.standing.is_asking(&Ask::Cluster) {
            self.standing.look(Look::Cluster, Ask::Cluster, self.now);
        }
    }

    pub(super) fn look_soon(&mut self) {
        let soon = self.now + LOOK_SOON;
        if self.phase == Phase::Joined && self.timers.when(&Alarm::Look).is_none_or(|at| at > soon) {
            self.timers.set(Alarm::Look, soon);
        }
    }

    pub(super) fn look_for(&mut self, call: u64) {
        self.lookers.push(call);
        self.timers.set_if_none(Alarm::Lookers, self.now + LOOKERS);
        self.look_at_cluster();
    }

    pub(super) fn look_at_grants(&mut self, after: Option<Label>) {
        let look = Look::Resources { after, most: MOST_ON_PAGE, granted_by: Some(self.host()) };
        self.standing.look(look, Ask::Returned, self.now);
    }

    pub(super) fn list(&mut self, call: u64, after: Option<Name>) {
        let look = Look::Resources { after: after.as_ref().map(label), most: MOST_ON_PAGE, granted_by: None };
        if let Some(error) = self.trouble() {
            return self.answer(call, Err(error));
        }
        self.wait_for_register(call);
        self.standing.look(look, Ask::List(call), self.now);
    }

    pub(super) fn resize(&mut self, call: u64, name: Name, slots: u32) {
        if let Err(error) = check_slots(slots) {
            return self.answer(call, Err(error));
        }
        if let Some(error) = self.trouble() {
            return self.answer(call, Err(error));
        }
        self.wait_for_register(call);
        let command = Command::Resize { resource: label(&name), slots };
        self.standing.ask(command, Ask::Resize(call, name), self.now);
    }

    pub(super) fn expel(&mut self, call: u64, name: Name, peer: PeerId) {
        if let Some(error) = self.trouble() {
            return self.answer(call, Err(error));
        }
        self.wait_for_register(call);
        self.standing.look(Look::Resource(label(&name)), Ask::ExpelWhom(call, name, peer), self.now);
    }

    /// From now on this call waits for the register, and not for ever: it may take a whole session until it is known that
    /// there is no majority.
    pub(super) fn wait_for_register(&mut self, call: u64) {
        self.timers.set(Alarm::Caller(call), self.now + CALLERS);
    }

    /// The register has answered, unless nobody waits for that any more.
    pub(super) fn answer_caller(&mut self, call: u64, answer: Result<Answer, Error>) {
        if self.timers.is_set(&Alarm::Caller(call)) {
            self.timers.cancel(&Alarm::Caller(call));
            self.answer(call, answer);
        }
    }

    pub(super) fn give_up_register(&mut self, call: u64) {
        let error = self.trouble().unwrap_or_else(|| {
            let absent = self.absent_voters(self.now).iter().map(|it| it.name.clone()).collect::<Vec<_>>();
            let why =
                if absent.is_empty() { String::new() } else { format!(" (no connection to {})", absent.join(", ")) };
            let message = format!(
                "no majority of the voters has answered within {CALLERS}{why}: try again. What was to be changed may \
                 still be, when they can be reached"
            );
            Error::Refused { class: Class::Unavailable, message }
        });
        self.answer(call, Err(error));
    }

    /// Everything of one host goes, of whatever session.
    fn on_expel(&mut self, call: u64, name: Name, peer: PeerId, page: Page) {
        let Some(resource) = page.resources.into_iter().next() else {
            return self.answer_caller(call, Err(Error::NoSuchResource { name }));
        };
        let parties = resource.parties.into_iter().filter(|(_, host)| *host == peer).map(|(session, _)| session);
        let givers = resource.detached.iter().filter(|grant| grant.host == peer).map(|grant| grant.session);
        let mut sessions: Vec<_> = parties.chain(givers).collect();
        sessions.sort_unstable();
        sessions.dedup();
        let Some(last) = sessions.pop() else { return self.answer_caller(call, Ok(Answer::Expelled)) };
        // In order: when the last one is answered, it was applied, and the others are on their way at least.
        for session in sessions {
            self.standing.ask(Command::Expel { resource: label(&name), session }, Ask::Inform, self.now);
        }
        self.standing.ask(Command::Expel { resource: label(&name), session: last }, Ask::Expel(call), self.now);
    }

    pub(super) fn seat(&mut self, call: u64, hosts: Option<Vec<PeerId>>) {
        match self.trouble() {
            Some(error) => self.answer(call, Err(error)),
            None if hosts.as_ref().is_none_or(|hosts| (1..=MOST_SEATS).contains(&hosts.len())) => {
                self.wait_for_register(call);
                self.standing.ask(Command::Seats(hosts), Ask::Seats(call), self.now);
            }
            None => {
                let message = format!("1 to {MOST_SEATS} hosts can vote");
                self.answer(call, Err(Error::Refused { class: Class::BadRequest, message }));
            }
        }
    }

    pub(super) fn on_seen(&mut self, ask: Ask, seen: Seen) {
        match (ask, seen) {
            (Ask::Cluster, Seen::Cluster(view)) => self.on_view(view),
            (Ask::Returned, Seen::Resources(page)) => self.on_grants(page),
            (Ask::List(call), Seen::Resources(page)) => {
                let listed = page.resources.iter().filter_map(|resource| self.listed(resource)).collect();
                self.answer_caller(call, Ok(Answer::Listed(listed)));
            }
            (Ask::Show(number), Seen::Resources(page)) => self.on_query_page(number, page),
            (Ask::RevokeFrom(call), Seen::Resources(page)) => self.on_revoke_seen(call, page),
            (Ask::ExpelWhom(call, name, peer), Seen::Resources(page)) => self.on_expel(call, name, peer, page),
            _ => self.strange("something else was seen than was looked at"),
        }
    }

    fn listed(&self, resource: &peerlock_register::ResourceView) -> Option<ResourceView> {
        let name: Name = resource.name.as_str().parse().ok()?;
        let here = self.clients.resources().find(|(key, ..)| *key == name.key());
        let (holding_here, waiting_here) = here.map_or((0, 0), |(_, _, holding, waiting)| (holding, waiting));
        let recovering = !resource.closed && resource.coordinator.is_some();
        Some(ResourceView { name, slots: Some(resource.slots), holding_here, waiting_here, recovering })
    }

    fn on_view(&mut self, view: View) {
        let me = self.host();
        let linked = |host: PeerId| host == me || self.membership.is_linked(host);
        let absent: Vec<String> = {
            let absent = view.members.iter().filter(|(host, _)| !linked(*host));
            absent.flat_map(|(_, info)| info.addresses.iter().map(ToString::to_string)).collect()
        };
        absent.into_iter().for_each(|address| self.dial(address));
        let others = view.members.iter().filter(|(host, info)| *host != me && info.keeps);
        let addresses: Vec<String> =
            others.flat_map(|(_, info)| info.addresses.iter().map(ToString::to_string)).collect();
        if addresses != self.addresses {
            self.addresses.clone_from(&addresses);
            self.effects.push(Effect::Members(addresses));
        }
        let members: std::collections::BTreeSet<PeerId> = view.members.iter().map(|(host, _)| *host).collect();
        self.membership.forget(|host| members.contains(&host), self.now, FORGET);
        // Who is on its way in will be seen in a moment.
        if self.membership.contacts.open().any(|(host, _)| !members.contains(&host)) {
            self.look_soon();
        }
        self.view = Some(view);
        self.answer_lookers();
    }

    pub(super) fn answer_lookers(&mut self) {
        self.timers.cancel(&Alarm::Lookers);
        let seen = self.cluster_view(self.now);
        for call in std::mem::take(&mut self.lookers) {
            self.answer(call, Ok(Answer::Seen(seen.clone())));
        }
    }

    /// The cluster as this peer has last heard of it.
    fn cluster_view(&self, now: Time) -> ClusterView {
        ClusterView {
            cluster: self.standing.cluster().map(|cluster| cluster.to_string()).unwrap_or_default(),
            version: self.view.as_ref().map(|view| view.version),
            applied: self.view.as_ref().map(|view| view.index),
            peers: self.peers(now),
            session: self.standing.bound().map(|bound| bound.until.since(now).into()),
            trouble: self.trouble().map(|error| error.to_string()),
        }
    }

    /// Everybody whom this peer knows, itself first, with what the register has told of them last.
    pub fn peers(&self, now: Time) -> Vec<PeerView> {
        let me = self.host();
        let address = self.membership.addresses().first().cloned().unwrap_or_default();
        let mine = self.peer_view(me, address, true, now.since(Time::ZERO));
        let known: std::collections::BTreeSet<PeerId> = {
            let members = self.view.iter().flat_map(|view| view.members.iter().map(|(host, _)| *host));
            members.chain(self.membership.contacts.all().map(|(host, _)| host)).filter(|host| *host != me).collect()
        };
        let others = known.into_iter().map(|host| match self.membership.contacts.get(host) {
            Some(contact) => self.peer_view(host, contact.address.clone(), contact.is_open(), now.since(contact.since)),
            None => self.peer_view(host, String::new(), false, now.since(Time::ZERO)),
        });
        std::iter::once(mine).chain(others).collect()
    }

    fn peer_view(&self, peer: PeerId, address: String, up: bool, since: Span) -> PeerView {
        let view = self.view.as_ref();
        let members = view.map(|view| &view.members[..]).unwrap_or_default();
        let info: Option<&Info> = members.iter().find(|(host, _)| *host == peer).map(|(_, info)| info);
        let has = |seats: &[(peerlock_register::VoterId, PeerId)]| seats.iter().any(|(_, host)| *host == peer);
        let voter = match view {
            Some(view) if view.leader == Some(peer) => Voter::Leads,
            Some(view) if has(&view.voters) => Voter::Votes,
            Some(view) if has(&view.learners) => Voter::Learns,
            Some(_) | None => Voter::No,
        };
        let sessions = view.map(|view| &view.sessions[..]).unwrap_or_default();
        let session = sessions.iter().rev().find(|(_, host, _)| *host == peer).map(|(session, ..)| session.get());
        let told = info.and_then(|info| info.addresses.first()).map(ToString::to_string).unwrap_or_default();
        PeerView {
            peer,
            address: if address.is_empty() { told } else { address },
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
