//! Everybody whom we know: who is connected, who was, and how messages get to them.
//!
//! **Two names.** The transport knows a *host* by its lasting identity. Protocol and overlay know a *member*: one
//! process of a host, from its start to its end. A process that begins anew is another member, so that nothing that was
//! meant for the old one, and nothing that the old one had, can be taken for its own.

use std::collections::{BTreeMap, BTreeSet};

use peerlock_base::{PeerId, Span, Time, mix};

use crate::link::{Frame, Heard, Link};
use crate::sabotage::{Sabotage, makes};
use crate::wire::{decode, encode};
use crate::{Effect, Notice};

/// A peer as the transport knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Host(pub PeerId);

/// What we know of one host: its address, its link, and whether it is a member.
#[derive(Clone, Debug)]
pub struct Contact {
    /// Its present process, once it has said hello.
    pub member: Option<PeerId>,
    /// Where it was reached last.
    pub address: String,
    /// The connection, if there is one.
    pub epoch: Option<u64>,
    /// Since when it is connected, or not.
    pub since: Time,
    /// It has been away for so long that it does not count any more.
    pub forgotten: bool,
    /// It is in the overlay.
    pub joined: bool,
    /// It is about to leave, and this one will have what it has.
    pub leaving: Option<Option<PeerId>>,
    link: Link,
}

impl Contact {
    /// Whether messages go out at once.
    pub fn is_open(&self) -> bool {
        self.link.is_open()
    }
}

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// A member is connected and has said hello.
    Met(PeerId),
    /// This member is gone for good: its process has ended, or it has lost messages that had to arrive. If it was about
    /// to leave, another has what it had. What was meant for it and never went out comes back.
    Gone(PeerId, Option<PeerId>, Vec<Vec<u8>>),
    /// A member says this.
    Said(PeerId, Vec<u8>),
    /// Something is not as it should be: what was strange or malformed was dropped.
    Notice(Notice),
}

/// At most this many messages are kept for members that we have heard of and not met.
const MOST_UNMET: usize = 4096;
/// At most this many of those who left are remembered.
const MOST_DEPARTED: usize = 4096;
/// After this many messages we acknowledge them, even if there is nothing else to say.
const ACK_EVERY: u64 = 64;

/// Every host that we have met or heard of, by number.
pub struct Contacts {
    process: u64,
    /// How many links there have been.
    links: u32,
    me: PeerId,
    hosts: BTreeMap<Host, Contact>,
    members: BTreeMap<PeerId, Host>,
    unmet: BTreeMap<PeerId, Vec<Vec<u8>>>,
    /// The same for what may get lost: a newcomer hears from those who have not met it as soon as they do.
    unmet_loose: BTreeMap<PeerId, Vec<Vec<u8>>>,
    /// Who left, and who has what it had.
    departed: BTreeMap<PeerId, PeerId>,
    /// Whose process has ended without a word: nothing is sent there any more.
    gone: BTreeSet<PeerId>,
    /// What is to be sent and whom to hang up on, in order; for the node to take out.
    pub out: Vec<Effect>,
}

fn send(to: Host, epoch: u64, frame: &Frame) -> Effect {
    Effect::Send { to: to.0, epoch, bytes: encode(frame) }
}

/// The member that a process of a host is.
fn member(host: Host, process: u64) -> PeerId {
    PeerId::new(mix(host.0.get() ^ mix(process)))
}

impl Contacts {
    /// Of a process of this host that knows nobody.
    pub fn new(host: Host, process: u64) -> Self {
        Self {
            process,
            links: 0,
            me: member(host, process),
            hosts: BTreeMap::new(),
            members: BTreeMap::new(),
            unmet: BTreeMap::new(),
            unmet_loose: BTreeMap::new(),
            departed: BTreeMap::new(),
            gone: BTreeSet::new(),
            out: Vec::new(),
        }
    }

    /// Who we are to other members.
    pub fn me(&self) -> PeerId {
        self.me
    }

    /// Everybody who was ever connected and has not left.
    pub fn all(&self) -> impl Iterator<Item = (Host, &Contact)> {
        self.hosts.iter().map(|(host, contact)| (*host, contact))
    }

    /// The members that messages reach at once.
    pub fn open(&self) -> impl Iterator<Item = (PeerId, &Contact)> {
        self.hosts.values().filter(|contact| contact.is_open()).filter_map(|contact| Some((contact.member?, contact)))
    }

    /// The same without what is known of them.
    pub fn members(&self) -> Vec<PeerId> {
        self.open().map(|(member, _)| member).collect()
    }

    /// The members that were met within this time.
    pub fn recent(&self, now: Time, within: Span) -> Vec<PeerId> {
        self.open().filter(|(_, contact)| now.since(contact.since) < within).map(|(member, _)| member).collect()
    }

    /// A host that is not connected: since when, its member, and whether that was about to leave and to whom.
    pub fn absent(&self, host: Host) -> Option<(Time, Option<PeerId>, Option<Option<PeerId>>)> {
        let contact = self.hosts.get(&host).filter(|contact| contact.epoch.is_none())?;
        Some((contact.since, contact.member, contact.leaving))
    }

    /// The host of a member, as far as it is known and still the same process.
    pub fn host(&self, member: PeerId) -> Option<Host> {
        self.members.get(&member).copied()
    }

    /// What is known of a member's host.
    pub fn of(&mut self, member: PeerId) -> Option<&mut Contact> {
        self.hosts.get_mut(self.members.get(&member)?)
    }

    /// Who left, and who has what it had.
    pub fn departed(&self) -> impl Iterator<Item = (PeerId, PeerId)> {
        self.departed.iter().map(|(gone, heir)| (*gone, *heir))
    }

    /// How many are more than half of all whom we have met and not forgotten, ourselves included.
    pub fn majority(&self) -> usize {
        let counts = |contact: &&Contact| contact.member.is_some() && !contact.forgotten;
        let all = self.hosts.values().filter(counts).count() + 1;
        all / 2 + usize::from(!makes(Sabotage::Majority))
    }

    /// How many messages have not been confirmed by our heir, or by those that can be reached or could a moment ago.
    pub fn kept(&self, heir: Option<PeerId>, now: Time, recent: Span) -> usize {
        let is_heir = |contact: &Contact| heir.is_some() && contact.member == heir;
        let matters = |contact: &&Contact| contact.is_open() || is_heir(contact) || now.since(contact.since) < recent;
        self.hosts.values().filter(matters).map(|contact| contact.link.kept()).sum()
    }

    /// The members that have not been connected for at least this long.
    pub fn missing(&self, now: Time, long: Span) -> Vec<PeerId> {
        let absent = self.hosts.values().filter(|contact| contact.epoch.is_none() && now.since(contact.since) >= long);
        absent.filter_map(|contact| contact.member).collect()
    }

    /// A connection begins.
    pub fn up(&mut self, host: Host, epoch: u64, address: String, now: Time) {
        self.links += u32::from(!self.hosts.contains_key(&host));
        let contact = self.hosts.entry(host).or_insert_with(|| Contact {
            member: None,
            address: String::new(),
            epoch: None,
            since: now,
            forgotten: false,
            joined: false,
            leaving: None,
            link: Link::new(self.process, self.links),
        });
        (contact.epoch, contact.address, contact.since) = (Some(epoch), address, now);
        contact.forgotten = false;
        let hello = contact.link.up();
        self.out.push(send(host, epoch, &hello));
    }

    /// A connection has ended. False if it was not the last that began.
    pub fn down(&mut self, host: Host, epoch: u64, now: Time) -> bool {
        let Some(contact) = self.hosts.get_mut(&host).filter(|contact| contact.epoch == Some(epoch)) else {
            return false;
        };
        (contact.epoch, contact.since) = (None, now);
        contact.link.down();
        true
    }

    /// Decodes what arrived on a connection; what it means to the node is appended to `news`.
    pub fn on_bytes(&mut self, host: Host, epoch: u64, bytes: &[u8], news: &mut Vec<News>) {
        let Some(contact) = self.hosts.get_mut(&host).filter(|contact| contact.epoch == Some(epoch)) else { return };
        let frame = match decode(bytes) {
            Ok(frame) => frame,
            Err(malformed) => return news.push(News::Notice(Notice::Malformed(malformed))),
        };
        let mut again = Vec::new();
        let heard = contact.link.on_frame(frame, &mut again);
        match heard {
            Heard::Nothing => {}
            Heard::Body(body) => news.extend(contact.member.map(|member| News::Said(member, body))),
            Heard::Hello => self.meet(host, news),
            Heard::NewLife { lost, unsent } => {
                if lost > 0 {
                    news.push(News::Notice(Notice::Lost { host: host.0, messages: lost }));
                }
                let heir = contact.leaving.flatten();
                news.extend(contact.member.map(|member| News::Gone(member, heir, unsent)));
                self.meet(host, news);
            }
            Heard::Strange(why) => {
                news.push(News::Notice(Notice::Strange(why)));
                self.out.push(Effect::HangUp(host.0));
            }
        }
        self.out.extend(again.iter().map(|frame| send(host, epoch, frame)));
        if self.hosts.get(&host).is_some_and(|contact| contact.link.unacknowledged() >= ACK_EVERY) {
            self.ack(host);
        }
    }

    fn meet(&mut self, host: Host, news: &mut Vec<News>) {
        let Some(contact) = self.hosts.get_mut(&host) else { return };
        let Some(life) = contact.link.theirs() else { return };
        let now = member(host, life.process);
        if let Some(before) = contact.member.replace(now).filter(|before| *before != now) {
            self.members.remove(&before);
            (contact.joined, contact.leaving) = (false, None);
        }
        self.members.insert(now, host);
        self.gone.remove(&now);
        news.push(News::Met(now));
        for body in self.unmet.remove(&now).unwrap_or_default() {
            self.send(now, body, news);
        }
        for body in self.unmet_loose.remove(&now).unwrap_or_default() {
            self.send_loose(now, body);
        }
    }

    /// Sends what must arrive, to the member or to whoever has what it had.
    pub fn send(&mut self, to: PeerId, body: Vec<u8>, news: &mut Vec<News>) {
        let to = self.heir(to);
        let Some(&host) = self.members.get(&to) else {
            let kept: usize = self.unmet.values().map(Vec::len).sum();
            if self.gone.contains(&to) {
            } else if kept < MOST_UNMET {
                self.unmet.entry(to).or_default().push(body);
            } else {
                news.push(News::Notice(Notice::Unmet(to)));
            }
            return;
        };
        let Some(contact) = self.hosts.get_mut(&host) else { return };
        match (contact.link.send(body), contact.epoch) {
            (Ok(Some(frame)), Some(epoch)) => self.out.push(send(host, epoch, &frame)),
            (Ok(_), _) => {}
            (Err(broken), _) => {
                news.push(News::Notice(Notice::Broken { host: host.0, messages: broken.lost }));
                self.out.push(Effect::HangUp(host.0));
                news.push(News::Gone(to, None, Vec::new()));
            }
        }
    }

    /// Sends what may get lost.
    pub fn send_loose(&mut self, to: PeerId, body: Vec<u8>) {
        let to = self.heir(to);
        let Some(&host) = self.members.get(&to) else {
            // Many of those whom we only hear of are gone, and nobody else tells us so.
            if self.unmet_loose.len() >= MOST_UNMET / 8 {
                self.unmet_loose.clear();
            }
            let kept = self.unmet_loose.entry(to).or_default();
            if kept.len() < 8 {
                kept.push(body);
            }
            return;
        };
        let Some(contact) = self.hosts.get(&host) else { return };
        if let (Some(frame), Some(epoch)) = (contact.link.loose(body), contact.epoch) {
            self.out.push(send(host, epoch, &frame));
        }
    }

    /// Whether anybody is to be told what we have.
    pub fn wants_acks(&self) -> bool {
        self.hosts.values().any(|contact| contact.is_open() && contact.link.unacknowledged() > 0)
    }

    /// Tells everybody what we have of theirs.
    pub fn ack_all(&mut self) {
        let hosts: Vec<Host> = self.hosts.keys().copied().collect();
        hosts.into_iter().for_each(|host| self.ack(host));
    }

    fn ack(&mut self, host: Host) {
        let Some(contact) = self.hosts.get_mut(&host) else { return };
        if let (Some(frame), Some(epoch)) = (contact.link.ack(), contact.epoch) {
            self.out.push(send(host, epoch, &frame));
        }
    }

    /// A member has left for good, and `heir` has what it had. False if we knew, or it cannot be.
    pub fn depart(&mut self, gone: PeerId, heir: PeerId, news: &mut Vec<News>) -> bool {
        if gone == self.me || gone == heir || self.departed.contains_key(&gone) || self.heir(heir) == gone {
            return false;
        }
        if self.departed.len() >= MOST_DEPARTED {
            self.departed.pop_first();
        }
        self.departed.insert(gone, heir);
        for body in self.unmet.remove(&gone).unwrap_or_default() {
            self.send(gone, body, news);
        }
        true
    }

    /// A member says goodbye. It has acted on all that it has confirmed and on nothing else: that is returned, for
    /// whoever has what it had.
    pub fn on_bye(&mut self, member: PeerId) -> Vec<Vec<u8>> {
        let contact = self.members.remove(&member).and_then(|host| self.hosts.remove(&host));
        contact.map(|mut contact| contact.link.take_kept()).unwrap_or_default()
    }

    /// A member's process has ended without a word, or it has broken the link: until it is met again, if ever, nothing
    /// is sent to it.
    pub fn lose(&mut self, member: PeerId) {
        if self.gone.len() >= MOST_DEPARTED {
            self.gone.pop_first();
        }
        self.gone.insert(member);
        self.unmet.remove(&member);
    }

    /// Whether a member's process has ended, or has not been connected for at least this long.
    pub fn is_gone(&self, member: PeerId, now: Time, long: Span) -> bool {
        let host = self.members.get(&member).and_then(|host| self.hosts.get(host));
        let is_absent = |contact: &Contact| contact.epoch.is_none() && now.since(contact.since) >= long;
        self.gone.contains(&member) || host.is_some_and(is_absent)
    }

    /// Takes back what was meant for a member that is gone and never went out.
    pub fn take_unsent(&mut self, member: PeerId) -> Vec<Vec<u8>> {
        self.of(member).map(|contact| contact.link.take_unsent()).unwrap_or_default()
    }

    /// A host has been away for very long: from now on it does not count. What is kept for it stays, and arrives should
    /// it come back.
    pub fn forget(&mut self, host: Host) {
        if let Some(contact) = self.hosts.get_mut(&host) {
            contact.forgotten = true;
        }
    }

    /// A host has left without a goodbye that we heard.
    pub fn remove(&mut self, host: Host) {
        if let Some(member) = self.hosts.remove(&host).and_then(|contact| contact.member) {
            self.members.remove(&member);
        }
    }

    /// Who has what a member had: mostly the member itself.
    pub fn heir(&self, mut member: PeerId) -> PeerId {
        while let Some(&heir) = self.departed.get(&member) {
            member = heir;
        }
        member
    }
}
