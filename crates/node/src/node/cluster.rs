//! The other peers: meeting them, missing them, leaving them.


use peerlock_base::{PeerId, Span, Time};
use peerlock_peer as peer;

use super::{Alarm, Effect, NetEvent, Node, Wire};
use crate::contacts::{Host, News};
use crate::membership::Phase;
use crate::wire::Body;
use crate::{Config, Error, Event, Guard, PeerView, Routing};

/// At most this many resources are told at once.
const MOST_CHARTERS: usize = 100;
/// Who was met so short a time ago may not have heard of others who came at the same time.
const RECENT: Span = Span::from_secs(10);
/// How long a confirmation waits for a message to go with.
pub(super) const ACK_AFTER: Span = Span::from_millis(20);
/// How often we look whether all is handed over.
const LEAVE_CHECK: Span = Span::from_millis(20);

impl<P: Guard, O: Routing> Node<P, O> {
    pub(super) fn start(&mut self, join: Vec<String>) {
        self.membership.start(self.now);
        if join.is_empty() {
            return self.peer_step(peer::Input::Join(None));
        }
        join.into_iter().for_each(|address| self.dial(address));
        self.timers.set(Alarm::Join, self.now + self.config.join_patience);
    }

    fn dial(&mut self, address: String) {
        if self.membership.dial(&address) {
            self.effects.push(Effect::Dial(address));
        }
    }

    pub(super) fn on_net(&mut self, event: NetEvent) {
        match event {
            NetEvent::Up { peer, epoch, address } => {
                self.membership.dial(&address);
                self.timers.cancel(&Alarm::Absent(Host(peer)));
                self.membership.contacts.up(Host(peer), epoch, address, self.now);
            }
            NetEvent::Down { peer, epoch, why } => {
                if self.membership.contacts.down(Host(peer), epoch, self.now) {
                    self.timers.set(Alarm::Absent(Host(peer)), self.now + self.config.suspect);
                    self.effects.push(Effect::Event(Event::PeerDown { peer, why }));
                }
            }
            NetEvent::Message { from, epoch, bytes } => {
                self.counters.received += 1;
                if *self.membership.phase() != Phase::Left {
                    self.membership.contacts.on_bytes(Host(from), epoch, &bytes, &mut self.news);
                }
            }
            NetEvent::Unreached { address, why } => {
                self.effects.push(Effect::Event(Event::Unreached { address, why }));
            }
        }
    }

    pub(super) fn on_news(&mut self, news: News) {
        match news {
            News::Met(member) => self.on_met(member),
            News::Gone(member, heir, unsent) => {
                self.membership.contacts.lose(member);
                self.on_departed(member, heir);
                self.give_back(member, unsent, None);
            }
            News::Said(from, bytes) => self.on_body(from, &bytes),
            News::Notice(notice) => self.notice(notice),
        }
    }

    fn on_met(&mut self, member: PeerId) {
        let peer = self.membership.name_of(member);
        if let Some(contact) = self.membership.contacts.of(member) {
            let address = contact.address.clone();
            self.effects.push(Effect::Event(Event::PeerUp { peer, address }));
        }
        let greeting = self.greeting();
        self.mention(member, &greeting);
        // Those who came just before may have been greeted by everybody before it was there.
        let (joined, hosts) = (self.membership.is_joined(), self.membership.linked());
        let hosts = hosts.into_iter().filter(|(host, _)| *host == peer).collect();
        let newcomer = Body::Greeting { joined, hosts, departed: Vec::new() };
        let recent = self.membership.contacts.recent(self.now, RECENT).into_iter().filter(|other| *other != member);
        recent.for_each(|other| self.mention(other, &newcomer));
        let known: Vec<_> = self.peer.resources().iter().map(|(_, known)| known.clone()).collect();
        for some in known.chunks(MOST_CHARTERS) {
            self.mention(member, &Body::Charters(some.to_vec()));
        }
        if let Phase::Leaving(_, heir) = *self.membership.phase() {
            self.tell(member, &Body::Leaving { heir });
        }
        self.on_progress(false, Some(member), false);
        self.ask_for_pending();
    }

    fn greeting(&self) -> Body<Wire<P, O>> {
        let (joined, hosts) = (self.membership.is_joined(), self.membership.linked());
        Body::Greeting { joined, hosts, departed: self.membership.contacts.departed().collect() }
    }

    pub(super) fn on_greeting(
        &mut self,
        from: PeerId,
        joined: bool,
        hosts: &[(PeerId, String)],
        departed: Vec<(PeerId, PeerId)>,
    ) {
        let addresses = self.membership.on_hosts(from, hosts);
        self.effects.extend(addresses.into_iter().map(Effect::Dial));
        departed.into_iter().for_each(|(gone, heir)| self.depart(gone, heir));
        if let Some(contact) = self.membership.contacts.of(from) {
            contact.joined = joined;
        }
        // Being in already, this is how two sides grow together again after the network had fallen apart.
        if joined && (self.membership.on_joined(from, hosts) || self.membership.is_joined()) {
            self.peer_step(peer::Input::Join(Some(from)));
        }
    }

    /// We may be in with this.
    pub(super) fn on_progress(&mut self, placed: bool, met: Option<PeerId>, impatient: bool) {
        if self.membership.progress(placed, met, impatient) {
            self.timers.cancel(&Alarm::Join);
            self.effects.push(Effect::Joined);
            let greeting = self.greeting();
            self.mention_to_all(&greeting);
            self.ask_for_pending();
        }
    }

    pub(super) fn on_join_alarm(&mut self) {
        let Some(tried) = self.membership.under_way(self.now) else { return };
        self.timers.set(Alarm::Join, self.now + self.config.join_patience);
        self.on_progress(false, None, true);
        if self.membership.is_joined() {
        } else if tried >= self.config.join_timeout {
            self.effects.push(Effect::NotJoined);
        } else if self.membership.begins() {
            self.peer_step(peer::Input::Join(None));
        }
    }

    /// A host has not come back: first it is routed around, then its clients lose their places, then it is forgotten.
    pub(super) fn on_absent(&mut self, host: Host) {
        let Some((since, member, leaving)) = self.membership.contacts.absent(host) else { return };
        let Config { suspect, gone, forget, .. } = self.config;
        let next = match self.now.since(since) {
            away if away >= forget => return self.membership.contacts.forget(host),
            away if away >= gone => {
                if let Some(member) = member {
                    self.peer_step(peer::Input::PeerDown(member));
                    let unsent = self.membership.contacts.take_unsent(member);
                    self.give_back(member, unsent, None);
                }
                forget
            }
            _ if leaving.is_some() => {
                let heir = leaving.flatten();
                if let Some(member) = member {
                    let unsent = self.membership.contacts.take_unsent(member);
                    self.membership.contacts.remove(host);
                    self.on_departed(member, heir);
                    self.give_back(member, unsent, heir);
                }
                return;
            }
            _ => {
                member.into_iter().for_each(|member| self.peer_step(peer::Input::Unreachable(member)));
                gone.max(suspect)
            }
        };
        self.timers.set(Alarm::Absent(host), since + next);
    }

    pub(super) fn leave(&mut self) {
        if self.membership.is_leaving() {
            return;
        }
        let heir = self.membership.leave(self.now);
        self.clients.ids().into_iter().for_each(|ticket| self.end(ticket, Error::Stopped));
        self.hand_over(heir);
        self.peer_step(peer::Input::Leave);
        self.timers.cancel(&Alarm::Join);
        self.timers.set(Alarm::Leave, self.now + LEAVE_CHECK);
    }

    /// Whoever stays gets what we have. That must be known before we are gone: who missed the goodbye goes by it.
    fn hand_over(&mut self, heir: Option<PeerId>) {
        let body = Body::Leaving { heir };
        self.membership.contacts.members().into_iter().for_each(|member| self.tell(member, &body));
        // Also what nobody has asked for yet: its tokens and its line are ours by its charter.
        let me = self.membership.contacts.me();
        let homes = self.peer.resources().iter().filter(|(_, (_, charter))| charter.home == me);
        let homes: Vec<_> = homes.map(|(resource, _)| resource).collect();
        homes.into_iter().for_each(|resource| _ = self.peer.open(resource));
        self.peer_step(peer::Input::Retire { heir });
    }

    pub(super) fn on_leaving(&mut self, from: PeerId, heir: Option<PeerId>) {
        if let Some(contact) = self.membership.contacts.of(from) {
            contact.leaving = Some(heir);
        }
        if matches!(self.membership.phase(), Phase::Leaving(_, Some(heir)) if *heir == from) {
            let heir = self.membership.leave(self.now);
            self.hand_over(heir);
        }
    }

    pub(super) fn on_leave_alarm(&mut self) {
        let Phase::Leaving(since, heir) = *self.membership.phase() else { return };
        for member in self.membership.contacts.missing(self.now, self.config.suspect) {
            let unsent = self.membership.contacts.take_unsent(member);
            self.give_back(member, unsent, None);
        }
        let recent = self.config.suspect;
        if self.membership.contacts.kept(heir, self.now, recent) > 0
            && self.now.since(since) < self.config.leave_patience
        {
            return self.timers.set(Alarm::Leave, self.now + LEAVE_CHECK);
        }
        self.membership.contacts.ack_all();
        self.mention_to_all(&Body::Bye { heir });
        self.membership.left();
        self.effects.push(Effect::Left);
    }

    pub(super) fn on_bye(&mut self, from: PeerId, heir: Option<PeerId>) {
        let host = self.membership.contacts.host(from);
        let left_over = self.membership.contacts.on_bye(from);
        if let Some(host) = host {
            self.timers.cancel(&Alarm::Absent(host));
            self.effects.push(Effect::Event(Event::PeerDown { peer: host.0, why: "it has left".to_owned() }));
        }
        self.on_departed(from, heir);
        self.give_back(from, left_over, heir);
    }

    /// A member is gone for good. If it has left in good order, its heir has what it had.
    fn on_departed(&mut self, member: PeerId, heir: Option<PeerId>) {
        if let Some(heir) = heir {
            self.depart(member, heir);
        }
        self.peer_step(peer::Input::Unreachable(member));
        self.peer_step(peer::Input::PeerDown(member));
    }

    /// Who left has an heir. If that is us, we tell everybody: somebody who came just then may never have met who left.
    pub(super) fn depart(&mut self, gone: PeerId, heir: PeerId) {
        let is_news = self.membership.contacts.depart(gone, heir, &mut self.news);
        if is_news && heir == self.membership.contacts.me() {
            let (joined, hosts, departed) = (self.membership.is_joined(), Vec::new(), [(gone, heir)].into());
            self.mention_to_all(&Body::Greeting { joined, hosts, departed });
        }
    }

    /// Everybody whom this peer knows, itself first.
    pub fn peers(&self, now: Time) -> Vec<PeerView> {
        let me = PeerView {
            peer: self.membership.host(),
            address: self.membership.address().to_owned(),
            up: true,
            since: now.since(Time::ZERO).into(),
            is_me: true,
        };
        let others = self.membership.contacts.all().map(|(host, contact)| PeerView {
            peer: host.0,
            address: contact.address.clone(),
            up: contact.is_open(),
            since: now.since(contact.since).into(),
            is_me: false,
        });
        std::iter::once(me).chain(others).collect()
    }
}
