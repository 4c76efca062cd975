//! Hosts that this node has met or has messages for: their connections and links.
//!
//! A *host* is identified by the transport's persistent identity. Only the [`Link`] distinguishes its processes.

use std::collections::{BTreeMap, BTreeSet};

use peerlock_registry::{ClusterId, Versions};
use peerlock_types::{PeerId, Span, Time};

use crate::links::connections::BEAT;
use crate::links::link::{Frame, Link, Received};
use crate::links::membership::MOST_ADDRESSES;
use crate::links::relay::{LONG, PATIENCE, RARELY, is_relayed};
use crate::wire::{MOST_BYTES, Malformed, decode, encode};
use crate::{Effect, Notice, Parting};

/// A host: its address, its link, and its last greeting.
#[derive(Clone, Debug)]
pub struct Contact {
    /// Where it was last reached; empty if it was never met.
    pub address: String,
    pub epoch: Option<u64>,
    /// Only if there is no direct one.
    relayed: Option<u64>,
    pub since: Time,
    /// The end of the last connection of either kind …
    lost: Time,
    /// … or the later time at which a message was queued again.
    missed: Time,
    /// On the current connection, or its start.
    last_received: Time,
    /// Since when there is an unacknowledged message.
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
        self.way().is_some() && self.link.is_open()
    }

    pub fn awaits_ack(&self) -> bool {
        self.link.awaits_ack()
    }

    pub fn is_relayed(&self) -> bool {
        self.relayed.is_some()
    }

    pub fn is_used(&self, now: Time, idle: Span) -> bool {
        now.since(self.used) < idle || self.link.awaits_ack() || self.link.unacknowledged() > 0
    }

    /// Returns whether nothing was received for a second while a message was unacknowledged. The transport reports a
    /// silently broken connection only later.
    fn is_doubted(&self, now: Time) -> bool {
        self.link.awaits_ack() && now.since(self.missed.max(self.last_received)) >= PATIENCE
    }

    pub fn is_trusted(&self, now: Time) -> bool {
        now.since(self.last_received) < PATIENCE * 2 && !self.is_doubted(now)
    }

    fn way(&self) -> Option<u64> {
        self.epoch.or(self.relayed)
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
}

impl Contacts {
    pub fn new(process: u64, versions: Versions) -> Self {
        Self { process, versions, links: 0, hosts: BTreeMap::new(), unacknowledged: BTreeSet::new(), out: Vec::new() }
    }

    fn post(&mut self, to: PeerId, epoch: u64, frame: &Frame) {
        let version = self.hosts.get(&to).map_or(self.versions.min, |contact| contact.version);
        self.out.push(Effect::Send { to, epoch, bytes: encode(frame, version, self.versions) });
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
            relayed: None,
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
        (contact.relayed, contact.used, contact.last_received) = (None, now, now);
        (contact.let_go, contact.is_let_go, contact.is_lost) = (false, false, false);
        (contact.cluster, contact.expects, contact.founder, contact.is_foreign) = (None, false, None, false);
        let hello = contact.link.up(ours);
        self.post(host, epoch, &hello);
    }

    /// Makes room if the table is full: one machine can have any number of identities.
    fn make_room(&mut self, newcomer: PeerId) {
        if !self.hosts.contains_key(&newcomer) && self.hosts.len() >= MOST_HOSTS {
            let gone = self.all().filter(|(_, contact)| contact.way().is_none() && !contact.link.awaits_ack());
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

    pub fn relayed_up(&mut self, host: PeerId, epoch: u64, ours: Option<ClusterId>, now: Time) {
        if !self.hosts.contains_key(&host) && self.hosts.len() >= MOST_HOSTS {
            return;
        }
        let contact = self.entry(host, now);
        if contact.epoch.is_none() {
            (contact.relayed, contact.is_foreign) = (Some(epoch), false);
            let hello = contact.link.up(ours);
            self.post(host, epoch, &hello);
        }
    }

    pub fn relayed_down(&mut self, host: PeerId, epoch: u64, now: Time) {
        if let Some(contact) = self.hosts.get_mut(&host).filter(|contact| contact.relayed == Some(epoch)) {
            (contact.relayed, contact.lost, contact.missed) = (None, now, now);
            contact.link.down();
        }
    }

    pub fn awaited(&self) -> Vec<PeerId> {
        let is_awaited = |(_, contact): &(PeerId, &Contact)| contact.relayed.is_none() && contact.link.awaits_ack();
        self.all().filter(is_awaited).map(|(host, _)| host).collect()
    }

    /// Returns whether to relay to an awaited host. One that was never met, or let go, is dialled first, which is as
    /// fast.
    pub fn is_due(&self, host: PeerId, now: Time) -> bool {
        let contact = self.get(host).filter(|contact| contact.relayed.is_none() && contact.link.awaits_ack());
        contact.is_some_and(|contact| {
            let lost = if contact.is_lost { contact.lost } else { contact.missed };
            let sought = now.since(contact.missed);
            let is_rare = (sought.as_nanos() / BEAT.as_nanos()).is_multiple_of(RARELY);
            match contact.epoch {
                Some(_) => contact.is_doubted(now),
                None => now.since(lost) >= PATIENCE && (sought < LONG || is_rare),
            }
        })
    }

    pub fn is_well(&self, host: PeerId, now: Time) -> bool {
        self.get(host).is_some_and(|contact| contact.epoch.is_some() && !contact.is_doubted(now))
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
        let is_received = |contact: &&mut Contact| contact.way() == Some(epoch) && !contact.is_foreign;
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
        let mut again = Vec::new();
        match contact.link.on_frame(frame, &mut again) {
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
                self.out.push(Effect::HangUp(host, Parting::Nonsense));
            }
            Received::Unexpected(why) => {
                update.push(Update::Notice(Notice::Unexpected(why)));
                self.out.push(Effect::HangUp(host, Parting::Nonsense));
            }
        }
        again.iter().for_each(|frame| self.post(host, epoch, frame));
        if self.hosts.get(&host).is_some_and(|contact| contact.link.unacknowledged() > 0) {
            self.unacknowledged.insert(host);
        }
        if self.hosts.get(&host).is_some_and(|contact| contact.link.unacknowledged() >= ACK_EVERY) {
            self.ack(host);
        }
    }

    pub fn hang_up(&mut self, host: PeerId, why: Update, update: &mut Vec<Update>) {
        if let Some(contact) = self.hosts.get_mut(&host) {
            contact.is_foreign = true;
            contact.link.down();
        }
        self.out.push(Effect::HangUp(host, Parting::Nonsense));
        update.push(why);
    }

    pub fn send(&mut self, to: PeerId, body: Vec<u8>, now: Time, update: &mut Vec<Update>) -> bool {
        // A message that is never transmitted would never be acknowledged.
        if body.len() > MOST_BYTES {
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
        let (epoch, way) = (contact.epoch, contact.way());
        if !contact.link.awaits_ack() {
            (contact.missed, contact.owed) = (now, now);
        }
        match (contact.link.send(body), way) {
            (Ok(Some(frame)), Some(epoch)) => self.post(to, epoch, &frame),
            (Ok(_), _) => {}
            (Err(lost), _) => {
                update.push(Update::Notice(Notice::Broken { host: to, messages: lost.len() }));
                update.push(Update::Lost { host: to, bodies: lost, goes_on: true });
                self.out.push(Effect::HangUp(to, Parting::Nonsense));
            }
        }
        epoch.is_some()
    }

    /// Sends an unreliable message. `by_any_way` allows relaying.
    pub fn send_loose(&mut self, to: PeerId, body: Vec<u8>, by_any_way: bool) {
        let Some(contact) = self.hosts.get(&to).filter(|_| body.len() <= MOST_BYTES) else { return };
        let way = if by_any_way { contact.way() } else { contact.epoch };
        if let (Some(frame), Some(epoch)) = (contact.link.loose(body), way) {
            self.post(to, epoch, &frame);
        }
    }

    pub fn wants_acks(&self) -> bool {
        !self.unacknowledged.is_empty()
    }

    pub fn ack_all(&mut self) {
        std::mem::take(&mut self.unacknowledged).into_iter().for_each(|host| self.ack(host));
    }

    fn ack(&mut self, host: PeerId) {
        let Some(contact) = self.hosts.get_mut(&host) else { return };
        if let (Some(frame), Some(epoch)) = (contact.link.ack(), contact.way()) {
            self.post(host, epoch, &frame);
        }
    }

    pub fn take_relayed(&mut self) -> Vec<Effect> {
        let hosts = &self.hosts;
        let goes_by_others = |effect: &mut Effect| match effect {
            Effect::Send { epoch, .. } => is_relayed(*epoch),
            Effect::HangUp(host, _) => hosts.get(host).is_some_and(Contact::is_relayed),
            _ => false,
        };
        self.out.extract_if(.., goes_by_others).collect()
    }

    pub fn hand_out(&mut self, out: &mut Vec<Effect>) -> u64 {
        let sent = self.out.iter().filter(|effect| matches!(effect, Effect::Send { .. })).count();
        out.append(&mut self.out);
        sent as u64
    }

    pub fn forget(&mut self, is_member: impl Fn(PeerId) -> bool, now: Time, long: Span) {
        let is_gone = |(host, contact): &(PeerId, &Contact)| {
            contact.way().is_none() && !is_member(*host) && now.since(contact.since) >= long
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

    pub fn check(&self, is_up: impl Fn(PeerId, u64) -> bool) {
        for host in &self.unacknowledged {
            assert!(self.hosts.contains_key(host), "an acknowledgement to {host} is due, which is forgotten");
        }
        for (host, contact) in &self.hosts {
            if let Some(epoch) = contact.relayed {
                assert!(contact.epoch.is_none(), "{host} has both a direct and a relayed connection");
                assert!(is_up(*host, epoch), "{host} has a relayed connection that is over");
            }
            assert!(
                !contact.epoch.is_some_and(is_relayed),
                "a direct connection to {host} has an epoch of relayed ones"
            );
            assert!(
                contact.way().is_some() || !contact.link.is_open(),
                "the link to {host} is open without a connection"
            );
        }
        let detours = |effect: &Effect| matches!(effect, Effect::Send { epoch, .. } if is_relayed(*epoch));
        assert!(!self.out.iter().any(detours), "a relayed packet is passed to the transport");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: PeerId = PeerId::new(2);
    const RELAYED: u64 = 1 << 63;

    impl Contacts {
        /// Breaks a link, as if its buffer were full.
        pub fn break_link(&mut self, host: PeerId, goes_on: bool, update: &mut Vec<Update>) {
            let bodies = self.hosts.get_mut(&host).expect("it was met").link.restart();
            update.push(Update::Lost { host, bodies, goes_on });
            self.out.push(Effect::HangUp(host, Parting::Nonsense));
        }
    }

    fn contacts() -> Contacts {
        let mut contacts = Contacts::new(7, Versions::OURS);
        contacts.relayed_up(HOST, RELAYED, None, Time::ZERO);
        contacts.take_relayed();
        contacts.check(|host, epoch| (host, epoch) == (HOST, RELAYED));
        contacts
    }

    #[test]
    fn forgotten_host_leaves_no_state() {
        let mut contacts = contacts();
        contacts.unacknowledged.insert(HOST);
        contacts.relayed_down(HOST, RELAYED, Time::ZERO);
        contacts.forget(|_| false, Time::ZERO, Span::ZERO);
        contacts.check(|_, _| false);
        assert!(contacts.hosts.is_empty() && !contacts.wants_acks());
    }

    #[test]
    #[should_panic(expected = "which is forgotten")]
    fn acknowledgement_to_an_unknown_host_panics() {
        let mut contacts = contacts();
        contacts.unacknowledged.insert(PeerId::new(3));
        contacts.check(|_, _| true);
    }

    #[test]
    #[should_panic(expected = "has a relayed connection that is over")]
    fn relayed_contact_without_a_connection_panics() {
        contacts().check(|_, _| false);
    }

    #[test]
    #[should_panic(expected = "both a direct and a relayed connection")]
    fn connected_and_relayed_contact_panics() {
        let mut contacts = contacts();
        contacts.hosts.get_mut(&HOST).unwrap().epoch = Some(1);
        contacts.check(|_, _| true);
    }

    #[test]
    #[should_panic(expected = "has an epoch of relayed ones")]
    fn transport_epoch_in_the_relayed_range_panics() {
        let mut contacts = contacts();
        contacts.up(HOST, RELAYED + 1, String::new(), None, Time::ZERO);
        contacts.check(|_, _| true);
    }

    #[test]
    #[should_panic(expected = "is passed to the transport")]
    fn relayed_packet_for_the_transport_panics() {
        let mut contacts = contacts();
        contacts.relayed_up(HOST, RELAYED, None, Time::ZERO);
        contacts.check(|_, _| true);
    }
}
