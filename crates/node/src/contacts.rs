//! Every host that we have met or have something for: whether it is connected, and how messages get to it.
//!
//! A *host* is known by the transport's lasting identity. Which process of it is at the other end matters to the link
//! alone ([`Link`]): what a message means to another process than the one it was sent to is for custody to know.

use std::collections::{BTreeMap, BTreeSet};

use peerlock_registry::{ClusterId, Versions};
use peerlock_types::{PeerId, Span, Time};

use crate::link::{Frame, Link, Received};
use crate::membership::MOST_ADDRESSES;
use crate::relay::{PATIENCE, is_due, is_relayed};
use crate::wire::{MOST_BYTES, Malformed, decode, encode};
use crate::{Effect, Notice, Parting};

/// What we know of one host: its address, its link, and what it has said of itself. To be read only: what happens to it
/// are verbs of [`Contacts`].
#[derive(Clone, Debug)]
pub struct Contact {
    /// Where it was reached last; empty if it was never met.
    pub address: String,
    /// The connection, if there is one.
    pub epoch: Option<u64>,
    /// The connection by way of another host, if there is no other.
    relayed: Option<u64>,
    /// Since when it is connected, or not. What goes by way of others does not count.
    pub since: Time,
    /// When the last connection of either kind has ended …
    lost: Time,
    /// … or, if that is later, when there was something for it again: since then it is looked for.
    missed: Time,
    /// When something was last heard on the connection that there is, or it began.
    last_received: Time,
    /// When there was something unconfirmed for it that followed a time without.
    owed: Time,
    /// When something was last said that one of us needs, either way.
    used: Time,
    /// We have said since then that we do not need the connection …
    let_go: bool,
    /// … and it has said the same: the connection may end.
    is_let_go: bool,
    /// The last connection has ended though one of us needed it.
    pub is_lost: bool,
    /// The cluster that it belongs to, if it has said one.
    pub cluster: Option<ClusterId>,
    /// It knows no cluster, and waits for others who do not either.
    pub expects: bool,
    /// Who should found one, as it thinks.
    pub founder: Option<PeerId>,
    /// It belongs to another cluster, or has no version in common with us: nothing that it says on this connection is
    /// heard.
    is_foreign: bool,
    /// The version that is spoken on this connection, from both hellos on.
    version: u16,
    link: Link,
}

impl Contact {
    /// Whether messages go out at once, over a connection.
    pub fn is_open(&self) -> bool {
        self.epoch.is_some() && self.link.is_open()
    }

    /// Whether both have said hello on a connection of whatever kind.
    pub fn is_connected(&self) -> bool {
        self.way().is_some() && self.link.is_open()
    }

    /// Whether there are messages that it has not confirmed.
    pub fn keeps(&self) -> bool {
        self.link.keeps()
    }

    /// Whether there is a connection by way of another host.
    pub fn is_relayed(&self) -> bool {
        self.relayed.is_some()
    }

    /// Whether anything was said in this time, or is to be: a message that it has not confirmed, or we have not.
    pub fn is_used(&self, now: Time, idle: Span) -> bool {
        now.since(self.used) < idle || self.link.keeps() || self.link.unacknowledged() > 0
    }

    /// Whether nothing was heard of it for a second in which something was not confirmed: its connection may have
    /// broken without a word, of which the transport tells us seconds later.
    fn is_doubted(&self, now: Time) -> bool {
        self.link.keeps() && now.since(self.missed.max(self.last_received)) >= PATIENCE
    }

    /// Whether we would know by now if its connection had broken, as far as one can.
    pub fn is_trusted(&self, now: Time) -> bool {
        now.since(self.last_received) < PATIENCE * 2 && !self.is_doubted(now)
    }

    /// How many messages to it were not confirmed.
    #[cfg(any(test, feature = "fuzz"))]
    pub fn retained(&self) -> usize {
        self.link.retained()
    }

    /// The connection, of whatever kind.
    fn way(&self) -> Option<u64> {
        self.epoch.or(self.relayed)
    }
}

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    /// A host is connected and has said hello.
    Met(PeerId),
    /// These messages to a host got lost, and nobody will say them again.
    Lost {
        /// The host that they were for.
        host: PeerId,
        /// What was to be said.
        bodies: Vec<Vec<u8>>,
        /// The process that they were meant for goes on without them. Otherwise it has ended, and its session will.
        goes_on: bool,
    },
    /// A host says this.
    Said(PeerId, Vec<u8>),
    /// A host belongs to another cluster.
    Foreign(PeerId, ClusterId),
    /// A host's program understands these versions, none of which is ours.
    Incompatible(PeerId, Versions),
    /// Something is not as it should be: what was strange or malformed was dropped.
    Notice(Notice),
}

/// Who has confirmed nothing for this long is taken for unreachable. Our choice: as long as it takes to doubt a
/// connection and to be linked via the leader instead.
const UNREACHABLE: Span = Span::from_secs(2);
/// At most this many hosts are kept in mind. As many as a cluster has members at most, and some more.
const MOST_HOSTS: usize = 18_000;
/// After this many messages we acknowledge them, even if there is nothing else to say.
const ACK_EVERY: u64 = 64;

/// Every host that we have met or heard of, by number.
pub struct Contacts {
    process: u64,
    /// What this program understands.
    versions: Versions,
    /// How many links there have been.
    links: u32,
    hosts: BTreeMap<PeerId, Contact>,
    /// Those who may not know yet what we have of theirs.
    unacknowledged: BTreeSet<PeerId>,
    /// What is to be sent and whom to hang up on, in order.
    out: Vec<Effect>,
}

impl Contacts {
    /// Of a process that knows nobody.
    pub fn new(process: u64, versions: Versions) -> Self {
        Self { process, versions, links: 0, hosts: BTreeMap::new(), unacknowledged: BTreeSet::new(), out: Vec::new() }
    }

    /// Has a frame sent on a connection.
    fn post(&mut self, to: PeerId, epoch: u64, frame: &Frame) {
        let version = self.hosts.get(&to).map_or(self.versions.min, |contact| contact.version);
        self.out.push(Effect::Send { to, epoch, bytes: encode(frame, version, self.versions) });
    }

    /// Everybody who is kept in mind.
    pub fn all(&self) -> impl Iterator<Item = (PeerId, &Contact)> {
        self.hosts.iter().map(|(host, contact)| (*host, contact))
    }

    /// The hosts that messages reach at once.
    pub fn open(&self) -> impl Iterator<Item = (PeerId, &Contact)> {
        self.all().filter(|(_, contact)| contact.is_open())
    }

    /// What is known of a host.
    pub fn get(&self, host: PeerId) -> Option<&Contact> {
        self.hosts.get(&host)
    }

    /// Whether there is a connection to a host, greeted or not.
    pub fn is_connected(&self, host: PeerId) -> bool {
        self.get(host).is_some_and(|contact| contact.epoch.is_some())
    }

    /// Whether messages to a host go out at once.
    pub fn is_linked(&self, host: PeerId) -> bool {
        self.get(host).is_some_and(Contact::is_open)
    }

    /// Those of the hosts that we are linked with that are to be told, and where we reached them.
    pub fn linked(&self, is_notified: impl Fn(PeerId) -> bool) -> Vec<(PeerId, String)> {
        let open = self.open().filter(|(host, _)| is_notified(*host));
        open.map(|(host, contact)| (host, contact.address.clone())).take(MOST_ADDRESSES).collect()
    }

    /// Those who know no cluster and wait for others who do not either, and who should found one, as they think.
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

    /// A connection begins. We say that we belong to this cluster, if we know.
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

    /// Whoever has been gone longest makes room for a host that is new, if there is nothing for it: one machine can
    /// have any number of identities.
    fn make_room(&mut self, newcomer: PeerId) {
        if !self.hosts.contains_key(&newcomer) && self.hosts.len() >= MOST_HOSTS {
            let gone = self.all().filter(|(_, contact)| contact.way().is_none() && !contact.link.keeps());
            if let Some((host, _)) = gone.min_by_key(|(_, contact)| contact.since) {
                self.drop_host(host);
            }
        }
    }

    /// A connection has ended. False if it was not the last that began.
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

    /// A host has said this of itself: its cluster, or that it waits for one, and who should found it.
    pub fn greeted(&mut self, host: PeerId, cluster: Option<ClusterId>, expects: bool, founder: Option<PeerId>) {
        if let Some(contact) = self.hosts.get_mut(&host) {
            (contact.cluster, contact.expects, contact.founder) = (cluster, expects, founder);
        }
    }

    /// Something is said that one of us needs.
    pub fn use_now(&mut self, host: PeerId, now: Time) {
        if let Some(contact) = self.hosts.get_mut(&host) {
            (contact.used, contact.let_go, contact.is_let_go) = (now, false, false);
        }
    }

    /// We do not need the connection any more. Whether it does not either, so that it can end.
    pub fn let_go(&mut self, host: PeerId) -> bool {
        let Some(contact) = self.hosts.get_mut(&host) else { return false };
        contact.let_go = true;
        contact.is_let_go
    }

    /// A host has said that it does not need the connection any more.
    pub fn let_go_by(&mut self, host: PeerId) {
        if let Some(contact) = self.hosts.get_mut(&host) {
            contact.is_let_go = true;
        }
    }

    /// A connection by way of another host begins.
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

    /// A connection by way of another host has ended.
    pub fn relayed_down(&mut self, host: PeerId, epoch: u64, now: Time) {
        if let Some(contact) = self.hosts.get_mut(&host).filter(|contact| contact.relayed == Some(epoch)) {
            (contact.relayed, contact.lost, contact.missed) = (None, now, now);
            contact.link.down();
        }
    }

    /// Those for whom there is something that they have not confirmed, and who are not connected by way of others.
    pub fn awaited(&self) -> Vec<PeerId> {
        let is_awaited = |(_, contact): &(PeerId, &Contact)| contact.relayed.is_none() && contact.link.keeps();
        self.all().filter(is_awaited).map(|(host, _)| host).collect()
    }

    /// Whether it is one of them, and to be looked for by way of another host now. Who was never met, or was let go, is
    /// dialled first: that is as quick where nothing is wrong. Who is connected is looked for as soon as that is in
    /// doubt: should it answer by way of another, there is no doubt any more.
    pub fn is_due(&self, host: PeerId, now: Time) -> bool {
        let contact = self.get(host).filter(|contact| contact.relayed.is_none() && contact.link.keeps());
        contact.is_some_and(|contact| match contact.epoch {
            Some(_) => contact.is_doubted(now),
            None => is_due(if contact.is_lost { contact.lost } else { contact.missed }, contact.missed, now),
        })
    }

    /// Whether a host is connected, and nothing speaks against that.
    pub fn is_well(&self, host: PeerId, now: Time) -> bool {
        self.get(host).is_some_and(|contact| contact.epoch.is_some() && !contact.is_doubted(now))
    }

    /// Returns whether nothing was received from a host for this long, and it is not expected to confirm anything.
    pub fn is_silent(&self, host: PeerId, now: Time, span: Span) -> bool {
        self.get(host).is_none_or(|contact| !contact.link.keeps() && now.since(contact.last_received) >= span)
    }

    /// Returns whether a host cannot be reached as far as we know: for two seconds nothing was received from it by
    /// any way, though it had something to confirm.
    pub fn is_unreachable(&self, host: PeerId, now: Time) -> bool {
        let silent = |contact: &Contact| now.since(contact.owed.max(contact.last_received)) >= UNREACHABLE;
        self.get(host).is_some_and(|contact| contact.link.keeps() && silent(contact))
    }

    /// Decodes what arrived on a connection; what it means to the node is appended to `update`.
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
                return self.refuse(host, theirs, update);
            }
        }
        let mut again = Vec::new();
        match contact.link.on_frame(frame, &mut again) {
            Received::Nothing => {}
            Received::Body(body) => update.push(Update::Said(host, body)),
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

    /// A host belongs to another cluster: nothing is heard of it on this connection any more.
    pub fn refuse(&mut self, host: PeerId, theirs: ClusterId, update: &mut Vec<Update>) {
        self.hang_up(host, Update::Foreign(host, theirs), update);
    }

    fn hang_up(&mut self, host: PeerId, why: Update, update: &mut Vec<Update>) {
        if let Some(contact) = self.hosts.get_mut(&host) {
            contact.is_foreign = true;
            contact.link.down();
        }
        self.out.push(Effect::HangUp(host, Parting::Nonsense));
        update.push(why);
    }

    /// Sends what must arrive, now or when the host is met. False if the host is not connected.
    pub fn send(&mut self, to: PeerId, body: Vec<u8>, now: Time, update: &mut Vec<Update>) -> bool {
        // Before it has a number: what is never sent can never be confirmed.
        if body.len() > MOST_BYTES {
            update.push(Update::Notice(Notice::TooLong { host: to, bytes: body.len() }));
            // The next message may be as long: `goes_on` would have it counted again at once.
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
        if !contact.link.keeps() {
            (contact.missed, contact.owed) = (now, now);
        }
        match (contact.link.send(body), way) {
            (Ok(Some(frame)), Some(epoch)) => self.post(to, epoch, &frame),
            (Ok(_), _) => {}
            (Err(broken), _) => {
                update.push(Update::Notice(Notice::Broken { host: to, messages: broken.lost.len() }));
                update.push(Update::Lost { host: to, bodies: broken.lost, goes_on: true });
                self.out.push(Effect::HangUp(to, Parting::Nonsense));
            }
        }
        epoch.is_some()
    }

    /// What a host has not confirmed is forgotten, and nobody hears of it: a mistake.
    pub fn drop_unconfirmed(&mut self, host: PeerId) {
        if let Some(contact) = self.hosts.get_mut(&host) {
            contact.link.restart();
        }
    }

    /// A link breaks, as it does when too much is unconfirmed.
    #[cfg(test)]
    pub fn break_link(&mut self, host: PeerId, goes_on: bool, update: &mut Vec<Update>) {
        let bodies = self.hosts.get_mut(&host).expect("it was met").link.restart();
        update.push(Update::Lost { host, bodies, goes_on });
        self.out.push(Effect::HangUp(host, Parting::Nonsense));
    }

    /// Sends what may get lost, and does if the host is not connected, or only by way of another where that is not good
    /// enough.
    pub fn send_loose(&mut self, to: PeerId, body: Vec<u8>, by_any_way: bool) {
        let Some(contact) = self.hosts.get(&to).filter(|_| body.len() <= MOST_BYTES) else { return };
        let way = if by_any_way { contact.way() } else { contact.epoch };
        if let (Some(frame), Some(epoch)) = (contact.link.loose(body), way) {
            self.post(to, epoch, &frame);
        }
    }

    /// Whether anybody is to be told what we have.
    pub fn wants_acks(&self) -> bool {
        !self.unacknowledged.is_empty()
    }

    /// Tells everybody what we have of theirs.
    pub fn ack_all(&mut self) {
        std::mem::take(&mut self.unacknowledged).into_iter().for_each(|host| self.ack(host));
    }

    fn ack(&mut self, host: PeerId) {
        let Some(contact) = self.hosts.get_mut(&host) else { return };
        if let (Some(frame), Some(epoch)) = (contact.link.ack(), contact.way()) {
            self.post(host, epoch, &frame);
        }
    }

    /// Takes out of what is to be done what goes by way of other hosts.
    pub fn take_relayed(&mut self) -> Vec<Effect> {
        let hosts = &self.hosts;
        let goes_by_others = |effect: &mut Effect| match effect {
            Effect::Send { epoch, .. } => is_relayed(*epoch),
            Effect::HangUp(host, _) => hosts.get(host).is_some_and(Contact::is_relayed),
            _ => false,
        };
        self.out.extract_if(.., goes_by_others).collect()
    }

    /// Appends what is to be sent and whom to hang up on. How many messages were among that.
    pub fn hand_out(&mut self, out: &mut Vec<Effect>) -> u64 {
        let sent = self.out.iter().filter(|effect| matches!(effect, Effect::Send { .. })).count();
        out.append(&mut self.out);
        sent as u64
    }

    /// Forgets who is no member and has not been connected for this long. Should one come back it is as never met.
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

    /// How much there is to look over.
    pub fn extent(&self) -> usize {
        self.hosts.len()
    }

    /// What must be true after each step; `is_up` tells whether a connection by way of others is.
    pub fn check(&self, is_up: impl Fn(PeerId, u64) -> bool) {
        for host in &self.unacknowledged {
            assert!(self.hosts.contains_key(host), "{host} is to be told what we have of it, and is forgotten");
        }
        for (host, contact) in &self.hosts {
            if let Some(epoch) = contact.relayed {
                assert!(contact.epoch.is_none(), "{host} is connected, and still reached by way of another");
                assert!(is_up(*host, epoch), "{host} is reached by way of another, on a connection that is over");
            }
            assert!(!contact.epoch.is_some_and(is_relayed), "a connection of the transport to {host} has our number");
            assert!(
                contact.way().is_some() || !contact.link.is_open(),
                "{host} is greeted on a connection that is over"
            );
        }
        let detours = |effect: &Effect| matches!(effect, Effect::Send { epoch, .. } if is_relayed(*epoch));
        assert!(!self.out.iter().any(detours), "what goes by way of another is handed to the transport");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: PeerId = PeerId::new(2);
    const RELAYED: u64 = 1 << 63;

    /// One that is connected by way of another.
    fn contacts() -> Contacts {
        let mut contacts = Contacts::new(7, Versions::OURS);
        contacts.relayed_up(HOST, RELAYED, None, Time::ZERO);
        contacts.take_relayed();
        contacts.check(|host, epoch| (host, epoch) == (HOST, RELAYED));
        contacts
    }

    #[test]
    fn nothing_is_left_of_who_is_forgotten() {
        let mut contacts = contacts();
        contacts.unacknowledged.insert(HOST);
        contacts.relayed_down(HOST, RELAYED, Time::ZERO);
        contacts.forget(|_| false, Time::ZERO, Span::ZERO);
        contacts.check(|_, _| false);
        assert!(contacts.hosts.is_empty() && !contacts.wants_acks());
    }

    #[test]
    #[should_panic(expected = "is forgotten")]
    fn who_is_forgotten_is_told_nothing() {
        let mut contacts = contacts();
        contacts.unacknowledged.insert(PeerId::new(3));
        contacts.check(|_, _| true);
    }

    #[test]
    #[should_panic(expected = "on a connection that is over")]
    fn nobody_is_reached_on_a_connection_that_is_over() {
        contacts().check(|_, _| false);
    }

    #[test]
    #[should_panic(expected = "still reached by way of another")]
    fn who_is_connected_is_not_reached_by_way_of_another() {
        let mut contacts = contacts();
        contacts.hosts.get_mut(&HOST).unwrap().epoch = Some(1);
        contacts.check(|_, _| true);
    }

    #[test]
    #[should_panic(expected = "has our number")]
    fn the_numbers_of_connections_are_apart() {
        let mut contacts = contacts();
        contacts.up(HOST, RELAYED + 1, String::new(), None, Time::ZERO);
        contacts.check(|_, _| true);
    }

    #[test]
    #[should_panic(expected = "handed to the transport")]
    fn what_goes_by_way_of_another_never_reaches_the_transport() {
        let mut contacts = contacts();
        contacts.relayed_up(HOST, RELAYED, None, Time::ZERO);
        contacts.check(|_, _| true);
    }
}
