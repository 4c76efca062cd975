//! Hosts that this node has met or has messages for: their connections and links.
//!
//! A *host* is identified by the transport's persistent identity. Only the [`Link`] distinguishes its processes.

use std::collections::{BTreeMap, BTreeSet};

use peerlock_registry::{ClusterId, Versions};
use peerlock_types::{PeerId, Span, Time};

use crate::links::link::{Frame, Link, Lives, Received};
use crate::links::membership::MOST_ADDRESSES;
use crate::links::relay::{BEAT, LONG, MOST_ASKED, PATIENCE, RARELY};
use crate::wire::{MOST_BODY, MOST_BYTES, Malformed, decode, encode};
use crate::{Effect, Notice, Parting};

/// A host: its address, its link, and its last greeting.
#[derive(Clone, Debug)]
pub struct Contact {
    /// Where it was last reached; empty if it was never met.
    pub address: String,
    pub epoch: Option<u64>,
    /// The host that has relayed its last frame.
    pub via: Option<PeerId>,
    /// When it was last asked via another host.
    asked: Option<Time>,
    pub since: Time,
    /// The end of the last connection, or of its relayed frames …
    lost: Time,
    /// … or the later time at which a message was queued again.
    missed: Time,
    /// A frame; or the start of the current connection.
    last_received: Time,
    /// The last acknowledgement of a message; or since when there is an unacknowledged one.
    owed: Time,
    /// The last message that needs the connection.
    used: Time,
    /// We have sent `Idle` since then …
    let_go: bool,
    /// … and so has the other side: the connection may be closed.
    is_let_go: bool,
    /// The last connection ended although a side needed it.
    pub is_lost: bool,
    pub cluster: Option<ClusterId>,
    /// It knows no cluster and waits for enough hosts to create one …
    pub expects: bool,
    /// … which is to be created by this one, in its opinion.
    pub founder: Option<PeerId>,
    /// Of another cluster, or without a common version: the rest of this connection is ignored.
    is_foreign: bool,
    version: u16,
    pub(crate) link: Link,
}

impl Contact {
    pub fn is_open(&self) -> bool {
        self.epoch.is_some() && self.link.is_open()
    }

    pub fn is_connected(&self) -> bool {
        self.link.is_open()
    }

    pub fn awaits_ack(&self) -> bool {
        self.link.awaits_ack()
    }

    pub fn is_asked(&self) -> bool {
        self.link.asked() > 0
    }

    pub fn is_used(&self, now: Time, idle: Span) -> bool {
        now.since(self.used) < idle || self.link.awaits_ack() || self.link.unacknowledged() > 0
    }

    /// Returns for how long nothing was received although it was missed.
    fn silent(&self, now: Time) -> Span {
        now.since(self.missed.max(self.last_received))
    }

    /// Returns whether nothing was received for a second while a message was unacknowledged. The transport reports a
    /// silently broken connection only later.
    fn is_doubted(&self, now: Time) -> bool {
        self.link.awaits_ack() && self.silent(now) >= PATIENCE
    }

    pub fn is_trusted(&self, now: Time) -> bool {
        now.since(self.last_received) < PATIENCE * 2 && !self.is_doubted(now)
    }

    /// Returns whether to ask it via the leader. A host that was never met, or let go, is dialled first, which is as
    /// fast.
    fn is_due(&self, now: Time) -> bool {
        let is_rare = || (self.silent(now).as_nanos() / BEAT.as_nanos()).is_multiple_of(RARELY);
        let is_sought = || self.silent(now) < LONG || is_rare();
        if self.asked.is_some_and(|asked| now.since(asked) < BEAT) {
            return false;
        }
        match self.epoch {
            Some(_) => self.is_doubted(now),
            None if self.link.is_relayed() => {
                (self.is_asked() || self.awaits_ack() && now.since(self.owed) >= PATIENCE) && is_sought()
            }
            None => {
                let lost = if self.is_lost { self.lost } else { self.missed };
                self.awaits_ack() && now.since(lost) >= PATIENCE && is_sought()
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    Met(PeerId),
    /// Messages to a host are lost and will not be retransmitted.
    Lost {
        host: PeerId,
        bodies: Vec<Vec<u8>>,
        /// The receiving process continues without them. Otherwise it has ended, and its session will.
        goes_on: bool,
    },
    Message(PeerId, Vec<u8>),
    Foreign(PeerId, ClusterId),
    /// A host's program supports only these versions, none of which is ours.
    Incompatible(PeerId, Versions),
    Notice(Notice),
}

/// A host that acknowledges nothing for this long is unreachable. Our choice: the time to replace a connection by a
/// relayed one.
const UNREACHABLE: Span = Span::from_secs(2);
/// Hosts in memory: more than the maximum number of members.
const MOST_HOSTS: usize = 18_000;
/// An acknowledgement is sent after this many messages at the latest.
const ACK_EVERY: u64 = 64;

pub struct Contacts {
    process: u64,
    versions: Versions,
    links: u32,
    pub(crate) hosts: BTreeMap<PeerId, Contact>,
    unacknowledged: BTreeSet<PeerId>,
    out: Vec<Effect>,
    relayed: Vec<Relayed>,
}

/// A frame to be relayed to a host.
pub struct Relayed {
    pub to: PeerId,
    pub lives: Lives,
    pub frame: Vec<u8>,
}

impl Contacts {
    pub fn new(process: u64, versions: Versions) -> Self {
        Self {
            process,
            versions,
            links: 0,
            hosts: BTreeMap::new(),
            unacknowledged: BTreeSet::new(),
            out: Vec::new(),
            relayed: Vec::new(),
        }
    }

    fn post(&mut self, to: PeerId, frame: &Frame) {
        let Some(contact) = self.hosts.get(&to) else { return };
        let bytes = encode(frame, contact.version, self.versions);
        match contact.epoch {
            Some(epoch) => self.out.push(Effect::Send { to, epoch, bytes }),
            None => self.relayed.push(Relayed { to, lives: contact.link.lives(), frame: bytes }),
        }
    }

    /// Ends the connection to a host, if there is one.
    pub fn end(&mut self, peer: PeerId, why: Parting) {
        let epoch = self.get(peer).and_then(|contact| contact.epoch);
        self.out.extend(epoch.map(|epoch| Effect::HangUp { peer, epoch, why }));
    }

    pub fn all(&self) -> impl Iterator<Item = (PeerId, &Contact)> {
        self.hosts.iter().map(|(host, contact)| (*host, contact))
    }

    pub fn open(&self) -> impl Iterator<Item = (PeerId, &Contact)> {
        self.all().filter(|(_, contact)| contact.is_open())
    }

    pub fn get(&self, host: PeerId) -> Option<&Contact> {
        self.hosts.get(&host)
    }

    pub fn is_connected(&self, host: PeerId) -> bool {
        self.get(host).is_some_and(|contact| contact.epoch.is_some())
    }

    pub fn is_linked(&self, host: PeerId) -> bool {
        self.get(host).is_some_and(Contact::is_open)
    }

    pub fn linked(&self, is_announced: impl Fn(PeerId) -> bool) -> Vec<(PeerId, String)> {
        let open = self.open().filter(|(host, _)| is_announced(*host));
        open.map(|(host, contact)| (host, contact.address.clone())).take(MOST_ADDRESSES).collect()
    }

    pub fn expecting(&self) -> Vec<(PeerId, Option<PeerId>)> {
        let expecting = self.open().filter(|(_, contact)| contact.expects);
        expecting.map(|(host, contact)| (host, contact.founder)).collect()
    }

    fn entry(&mut self, host: PeerId, now: Time) -> &mut Contact {
        self.links += u32::from(!self.hosts.contains_key(&host));
        self.hosts.entry(host).or_insert_with(|| Contact {
            address: String::new(),
            epoch: None,
            via: None,
            asked: None,
            since: now,
            lost: now,
            missed: now,
            last_received: now,
            owed: now,
            used: now,
            let_go: false,
            is_let_go: false,
            is_lost: false,
            cluster: None,
            expects: false,
            founder: None,
            is_foreign: false,
            version: self.versions.min,
            link: Link::new(self.process, self.links),
        })
    }

    pub fn up(&mut self, host: PeerId, epoch: u64, address: String, ours: Option<ClusterId>, now: Time) {
        self.make_room(host);
        let contact = self.entry(host, now);
        (contact.epoch, contact.address, contact.since) = (Some(epoch), address, now);
        (contact.via, contact.used, contact.last_received) = (None, now, now);
        (contact.let_go, contact.is_let_go, contact.is_lost) = (false, false, false);
        (contact.cluster, contact.expects, contact.founder, contact.is_foreign) = (None, false, None, false);
        let hello = contact.link.up(ours);
        self.post(host, &hello);
    }

    /// Makes room if the table is full: one machine can have any number of identities.
    fn make_room(&mut self, newcomer: PeerId) {
        if !self.hosts.contains_key(&newcomer) && self.hosts.len() >= MOST_HOSTS {
            let is_gone = |contact: &Contact| !contact.is_connected() && !contact.awaits_ack();
            let gone = self.all().filter(|(_, contact)| contact.epoch.is_none() && is_gone(contact));
            if let Some((host, _)) = gone.min_by_key(|(_, contact)| contact.since) {
                self.drop_host(host);
            }
        }
    }

    /// Ends a direct connection. Returns false if it is not the current one.
    pub fn down(&mut self, host: PeerId, epoch: u64, now: Time) -> bool {
        let Some(contact) = self.hosts.get_mut(&host).filter(|contact| contact.epoch == Some(epoch)) else {
            return false;
        };
        (contact.epoch, contact.since, contact.lost, contact.missed) = (None, now, now, now);
        (contact.expects, contact.founder) = (false, None);
        contact.is_lost = !contact.let_go;
        contact.link.down();
        true
    }

    pub fn greeted(&mut self, host: PeerId, cluster: Option<ClusterId>, expects: bool, founder: Option<PeerId>) {
        if let Some(contact) = self.hosts.get_mut(&host) {
            (contact.cluster, contact.expects, contact.founder) = (cluster, expects, founder);
        }
    }

    pub fn use_now(&mut self, host: PeerId, now: Time) {
        if let Some(contact) = self.hosts.get_mut(&host) {
            (contact.used, contact.let_go, contact.is_let_go) = (now, false, false);
        }
    }

    /// Marks the connection as unneeded here. Returns whether the other side does not need it either.
    pub fn let_go(&mut self, host: PeerId) -> bool {
        let Some(contact) = self.hosts.get_mut(&host) else { return false };
        contact.let_go = true;
        contact.is_let_go
    }

    pub fn let_go_by(&mut self, host: PeerId) {
        if let Some(contact) = self.hosts.get_mut(&host) {
            contact.is_let_go = true;
        }
    }

    /// Returns the hosts with unacknowledged messages that are not relayed.
    pub fn awaited(&self) -> Vec<PeerId> {
        let is_awaited = |(_, contact): &(PeerId, &Contact)| !contact.link.is_relayed() && contact.awaits_ack();
        self.all().filter(is_awaited).map(|(host, _)| host).collect()
    }

    /// Asks silent hosts via the leader, if `is_looking`. Returns whether any answer is missing.
    pub fn ask_via_leader(&mut self, is_looking: bool, now: Time) -> bool {
        let (mut due, mut is_waiting) = (Vec::new(), false);
        for (host, contact) in &mut self.hosts {
            let is_well = contact.epoch.is_some() && !contact.is_doubted(now);
            let is_over = !contact.link.is_relayed() || contact.link.asked() >= MOST_ASKED;
            if is_well || is_over && !contact.awaits_ack() {
                contact.link.stop_asking(); // A late answer must not end a connection.
            }
            if contact.link.is_relayed() && contact.link.asked() >= MOST_ASKED {
                (contact.lost, contact.missed) = (now, now);
                contact.link.down();
            }
            if is_looking && contact.is_due(now) {
                let hello = contact.link.ask();
                contact.asked = Some(now);
                let frame = encode(&hello, contact.version, self.versions);
                due.push(Relayed { to: *host, lives: contact.link.lives(), frame });
            }
            is_waiting |= contact.awaits_ack() || contact.is_asked();
        }
        self.relayed.append(&mut due);
        is_waiting
    }

    pub fn is_due(&self, host: PeerId, now: Time) -> bool {
        self.get(host).is_some_and(|contact| contact.is_due(now))
    }

    /// Returns whether to probe a host: nothing was received for this long, and no message is unacknowledged.
    pub fn is_silent(&self, host: PeerId, now: Time, span: Span) -> bool {
        self.get(host).is_none_or(|contact| !contact.link.awaits_ack() && now.since(contact.last_received) >= span)
    }

    /// Returns whether nothing was received for too long, directly or relayed, while a message was unacknowledged.
    pub fn is_unreachable(&self, host: PeerId, now: Time) -> bool {
        let silent = |contact: &Contact| now.since(contact.owed.max(contact.last_received)) >= UNREACHABLE;
        self.get(host).is_some_and(|contact| contact.link.awaits_ack() && silent(contact))
    }

    pub fn on_bytes(
        &mut self,
        host: PeerId,
        epoch: u64,
        bytes: &[u8],
        ours: Option<ClusterId>,
        now: Time,
        update: &mut Vec<Update>,
    ) {
        let is_received = |contact: &&mut Contact| contact.epoch == Some(epoch) && !contact.is_foreign;
        let Some(contact) = self.hosts.get_mut(&host).filter(is_received) else { return };
        contact.last_received = now;
        let (frame, version) = match decode(bytes, self.versions) {
            Ok(read) => read,
            Err(Malformed::Version(theirs)) => return self.hang_up(host, Update::Incompatible(host, theirs), update),
            Err(malformed) => return update.push(Update::Notice(Notice::Malformed(malformed))),
        };
        if let Frame::Hello { cluster, .. } = frame {
            (contact.cluster, contact.version) = (cluster, version);
            if let (Some(theirs), Some(ours)) = (cluster, ours)
                && theirs != ours
            {
                return self.hang_up(host, Update::Foreign(host, theirs), update);
            }
        }
        let mut out = Vec::new();
        let before = contact.link.retained.len();
        let received = contact.link.on_frame(frame, &mut out);
        self.on_received(host, received, before, now, update);
        out.iter().for_each(|frame| self.post(host, frame));
    }

    /// Handles a frame of a host without a connection, relayed by another one, with its version.
    pub fn on_relayed(
        &mut self,
        (from, via): (PeerId, PeerId),
        lives: Lives,
        (frame, version): (Frame, u16),
        now: Time,
        update: &mut Vec<Update>,
    ) {
        if !self.hosts.contains_key(&from) && self.hosts.len() >= MOST_HOSTS {
            return;
        }
        let contact = self.entry(from, now);
        if contact.link.is_late(lives) {
            return;
        }
        (contact.via, contact.version, contact.last_received) = (Some(via), version, now);
        let mut out = Vec::new();
        let before = contact.link.retained.len();
        let asked = contact.link.asked();
        let met = contact.link.meet(lives.sender).unwrap_or(Received::Nothing);
        let received = contact.link.on_relayed(lives.receiver, frame, &mut out);
        if contact.link.asked() > asked {
            contact.asked = Some(now);
        }
        self.on_received(from, met, before, now, update);
        self.on_received(from, received, before, now, update);
        out.iter().for_each(|frame| self.post(from, frame));
    }

    fn on_received(&mut self, host: PeerId, received: Received, before: usize, now: Time, update: &mut Vec<Update>) {
        match received {
            Received::Nothing => {}
            Received::Body(body) => update.push(Update::Message(host, body)),
            Received::Hello => update.push(Update::Met(host)),
            Received::NewLife { lost, is_same } => {
                if !lost.is_empty() {
                    update.push(Update::Notice(Notice::Lost { host, messages: lost.len() }));
                    update.push(Update::Lost { host, bodies: lost, goes_on: is_same });
                }
                update.push(Update::Met(host));
            }
            Received::Forgotten { lost } => {
                update.push(Update::Notice(Notice::Broken { host, messages: lost.len() }));
                update.push(Update::Lost { host, bodies: lost, goes_on: true });
                self.end(host, Parting::Nonsense);
            }
            Received::Unexpected(why) => {
                update.push(Update::Notice(Notice::Unexpected(why)));
                self.end(host, Parting::Nonsense);
            }
        }
        let Some(contact) = self.hosts.get_mut(&host) else { return };
        if contact.link.retained.len() < before {
            contact.owed = now;
        }
        let unacknowledged = contact.link.unacknowledged();
        if unacknowledged > 0 {
            self.unacknowledged.insert(host);
        }
        if unacknowledged >= ACK_EVERY {
            self.ack(host);
        }
    }

    pub fn hang_up(&mut self, host: PeerId, why: Update, update: &mut Vec<Update>) {
        if let Some(contact) = self.hosts.get_mut(&host) {
            contact.is_foreign = true;
            contact.link.down();
        }
        self.end(host, Parting::Nonsense);
        update.push(why);
    }

    pub fn send(&mut self, to: PeerId, body: Vec<u8>, now: Time, update: &mut Vec<Update>) -> bool {
        // A message that is never transmitted would never be acknowledged.
        if body.len() > MOST_BODY {
            update.push(Update::Notice(Notice::TooLong { host: to, bytes: body.len() }));
            // With `goes_on` the resource would be counted again, and the next message may be as long.
            update.push(Update::Lost { host: to, bodies: vec![body], goes_on: false });
            return true;
        }
        if !self.hosts.contains_key(&to) && self.hosts.len() >= MOST_HOSTS {
            update.push(Update::Notice(Notice::Unmet(to)));
            update.push(Update::Lost { host: to, bodies: vec![body], goes_on: true });
            return true;
        }
        let contact = self.entry(to, now);
        let is_connected = contact.epoch.is_some();
        if !contact.link.awaits_ack() {
            (contact.missed, contact.owed) = (now, now);
        }
        match contact.link.send(body) {
            Ok(Some(frame)) => self.post(to, &frame),
            Ok(None) => {}
            Err(lost) => {
                update.push(Update::Notice(Notice::Broken { host: to, messages: lost.len() }));
                update.push(Update::Lost { host: to, bodies: lost, goes_on: true });
                self.end(to, Parting::Nonsense);
            }
        }
        is_connected
    }

    /// Sends an unreliable message. `by_any_way` allows relaying.
    pub fn send_loose(&mut self, to: PeerId, body: Vec<u8>, by_any_way: bool) {
        let Some(contact) = self.hosts.get(&to).filter(|_| body.len() <= MOST_BYTES) else { return };
        if let Some(frame) = contact.link.loose(body).filter(|_| by_any_way || contact.epoch.is_some()) {
            self.post(to, &frame);
        }
    }

    pub fn wants_acks(&self) -> bool {
        !self.unacknowledged.is_empty()
    }

    pub fn ack_all(&mut self) {
        std::mem::take(&mut self.unacknowledged).into_iter().for_each(|host| self.ack(host));
    }

    fn ack(&mut self, host: PeerId) {
        if let Some(frame) = self.hosts.get_mut(&host).and_then(|contact| contact.link.ack()) {
            self.post(host, &frame);
        }
    }

    pub fn take_relayed(&mut self) -> Vec<Relayed> {
        std::mem::take(&mut self.relayed)
    }

    pub fn hand_out(&mut self, out: &mut Vec<Effect>) -> u64 {
        let sent = self.out.iter().filter(|effect| matches!(effect, Effect::Send { .. })).count();
        out.append(&mut self.out);
        sent as u64
    }

    pub fn forget(&mut self, is_member: impl Fn(PeerId) -> bool, now: Time, long: Span) {
        let is_gone = |(host, contact): &(PeerId, &Contact)| {
            let last = contact.since.max(contact.last_received);
            contact.epoch.is_none() && !is_member(*host) && now.since(last) >= long
        };
        let gone: Vec<PeerId> = self.all().filter(is_gone).map(|(host, _)| host).collect();
        gone.into_iter().for_each(|host| self.drop_host(host));
    }

    fn drop_host(&mut self, host: PeerId) {
        self.hosts.remove(&host);
        self.unacknowledged.remove(&host);
    }

    pub fn extent(&self) -> usize {
        self.hosts.len()
    }

    pub fn check(&self) {
        for host in &self.unacknowledged {
            assert!(self.hosts.contains_key(host), "an acknowledgement to {host} is due, which is forgotten");
        }
        for (host, contact) in &self.hosts {
            let is_connected = contact.epoch.is_some();
            assert!(!is_connected || !contact.link.is_relayed(), "{host} is connected, and its link is relayed");
            assert!(
                is_connected || contact.link.is_relayed() || !contact.link.is_open(),
                "the link to {host} is open without a connection"
            );
        }
        assert!(self.relayed.is_empty(), "frames are relayed in the step that makes them");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::links::link::Life;

    const HOST: PeerId = PeerId::new(2);
    impl Contacts {
        /// Breaks a link, as if its buffer were full.
        pub fn break_link(&mut self, host: PeerId, goes_on: bool, update: &mut Vec<Update>) {
            let bodies = self.hosts.get_mut(&host).expect("it was met").link.restart();
            update.push(Update::Lost { host, bodies, goes_on });
            self.end(host, Parting::Nonsense);
        }
    }

    /// Returns contacts with one host, whose link is relayed.
    fn contacts() -> Contacts {
        let mut contacts = Contacts::new(7, Versions::OURS);
        contacts.entry(HOST, Time::ZERO);
        let theirs = Life { process: 3, part: 0 };
        let lives = Lives { sender: theirs, receiver: Some(contacts.hosts[&HOST].link.lives().sender) };
        contacts.on_relayed((HOST, HOST), lives, (Frame::Ack { has: 0 }, 1), Time::ZERO, &mut Vec::new());
        contacts.check();
        assert!(contacts.hosts[&HOST].is_connected());
        contacts
    }

    #[test]
    fn forgotten_host_leaves_no_state() {
        let mut contacts = contacts();
        contacts.unacknowledged.insert(HOST);
        contacts.forget(|_| false, Time::ZERO, Span::ZERO);
        contacts.check();
        assert!(contacts.hosts.is_empty() && !contacts.wants_acks());
    }

    #[test]
    #[should_panic(expected = "which is forgotten")]
    fn acknowledgement_to_an_unknown_host_panics() {
        let mut contacts = contacts();
        contacts.unacknowledged.insert(PeerId::new(3));
        contacts.check();
    }

    #[test]
    #[should_panic(expected = "is connected, and its link is relayed")]
    fn connected_and_relayed_contact_panics() {
        let mut contacts = contacts();
        contacts.hosts.get_mut(&HOST).unwrap().epoch = Some(1);
        contacts.check();
    }

    #[test]
    #[should_panic(expected = "in the step that makes them")]
    fn unsent_relayed_frame_panics() {
        let mut contacts = contacts();
        contacts.send(HOST, vec![1], Time::ZERO, &mut Vec::new());
        contacts.check();
    }
}
