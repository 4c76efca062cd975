//! Who is in the cluster with us, and whether we are: joining, being away, leaving.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use peerlock_base::{PeerId, Span, Time};

use crate::contacts::{Contact, Contacts, Host};

/// At most this many addresses are told, and dialled.
const MOST_ADDRESSES: usize = 1024;

/// How far a peer has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// On the way in.
    Joining {
        /// When we began to join.
        since: Time,
        /// The overlay has taken us in.
        is_placed: bool,
        /// Who is in already and was found to join through.
        via: Option<PeerId>,
        /// Those whom it is linked with and we are not yet. They count when a majority is needed, so that nothing may
        /// be decided here without them.
        unmet: BTreeSet<Host>,
    },
    /// A member of the cluster.
    Joined,
    /// On the way out since then, and who gets what we have.
    Leaving(Time, Option<PeerId>),
    /// No member any more.
    Left,
}

/// Our own place in the cluster, and everybody else's.
pub struct Membership {
    me: Host,
    /// Where others reach us.
    addresses: Vec<String>,
    dialled: BTreeSet<String>,
    phase: Phase,
    /// Everybody whom we know.
    pub contacts: Contacts,
}

impl Membership {
    /// Of a process of this host that knows nobody.
    pub fn new(host: PeerId, addresses: Vec<String>, process: u64) -> Self {
        let me = Host(host);
        let phase = Phase::Joining { since: Time::ZERO, is_placed: false, via: None, unmet: BTreeSet::new() };
        let dialled = addresses.iter().cloned().collect();
        Self { me, addresses, dialled, phase, contacts: Contacts::new(me, process) }
    }

    /// How far we have come.
    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// Whether we are in.
    pub fn is_joined(&self) -> bool {
        self.phase == Phase::Joined
    }

    /// Whether we are going, or gone.
    pub fn is_leaving(&self) -> bool {
        matches!(self.phase, Phase::Leaving(..) | Phase::Left)
    }

    /// Our host, by which people know us.
    pub fn host(&self) -> PeerId {
        self.me.0
    }

    /// Where others reach us.
    pub fn address(&self) -> &str {
        self.addresses.first().map_or("", |address| address)
    }

    /// The host of a member, by which people know it.
    pub fn name_of(&self, member: PeerId) -> PeerId {
        let host = if member == self.contacts.me() { Some(self.me) } else { self.contacts.host(member) };
        host.map_or(member, |host| host.0)
    }

    /// Whether an address that we have not dialled is to be dialled now.
    pub fn dial(&mut self, address: &str) -> bool {
        self.dialled.len() < MOST_ADDRESSES && self.dialled.insert(address.to_owned())
    }

    /// The hosts that we are linked with, and where we reached them.
    pub fn linked(&self) -> Vec<(PeerId, String)> {
        let open = self.contacts.all().filter(|(_, contact)| contact.is_open());
        open.map(|(host, contact)| (host.0, contact.address.clone())).take(MOST_ADDRESSES).collect()
    }

    /// A member has greeted us, and is linked with these hosts: which addresses to dial.
    pub fn on_hosts(&mut self, from: PeerId, hosts: &[(PeerId, String)]) -> Vec<String> {
        let teller = self.contacts.of(from).map(|contact| contact.address.clone()).unwrap_or_default();
        let here = hosts.iter().map(|(_, address)| from_here(address, &teller));
        here.collect::<Vec<_>>().into_iter().filter(|address| self.dial(address)).collect()
    }

    /// A member that is in has greeted us. True if it is the first, and we are to join through it.
    pub fn on_joined(&mut self, from: PeerId, hosts: &[(PeerId, String)]) -> bool {
        let Phase::Joining { via, unmet, .. } = &mut self.phase else { return false };
        let first = via.replace(from).is_none();
        let met = |host: &Host| self.contacts.all().any(|(known, contact)| known == *host && contact.is_open());
        unmet.extend(hosts.iter().map(|(host, _)| Host(*host)).filter(|host| *host != self.me && !met(host)));
        first
    }

    /// The overlay has taken us in, a member was met, or our patience with those that were not is at an end. True if we
    /// are in with that.
    pub fn progress(&mut self, placed: bool, met: Option<PeerId>, impatient: bool) -> bool {
        let met = met.and_then(|member| self.contacts.host(member));
        let Phase::Joining { is_placed, unmet, .. } = &mut self.phase else { return false };
        *is_placed |= placed;
        unmet.retain(|host| !impatient && Some(*host) != met);
        let done = *is_placed && unmet.is_empty();
        if done {
            self.phase = Phase::Joined;
        }
        done
    }

    /// Nobody was in yet. If everybody waits for the others, the first of them begins: whether that is us.
    pub fn begins(&self) -> bool {
        let me = self.contacts.me();
        let is_after_me = |(member, contact): (PeerId, &Contact)| !contact.joined && me < member;
        let alone = matches!(self.phase, Phase::Joining { via: None, .. });
        alone && self.contacts.open().count() > 0 && self.contacts.open().all(is_after_me)
    }

    /// For how long we have been on the way in or out.
    pub fn under_way(&self, now: Time) -> Option<Span> {
        match self.phase {
            Phase::Joining { since, .. } | Phase::Leaving(since, _) => Some(now.since(since)),
            Phase::Joined | Phase::Left => None,
        }
    }

    /// We begin to join.
    pub fn start(&mut self, now: Time) {
        self.phase = Phase::Joining { since: now, is_placed: false, via: None, unmet: BTreeSet::new() };
    }

    /// We begin to leave, or look for another heir: who it is, which is whoever is linked and stays. Others may have
    /// told us that somebody has left whose connection still seems to be there.
    pub fn leave(&mut self, now: Time) -> Option<PeerId> {
        let since = if let Phase::Leaving(since, _) = self.phase { since } else { now };
        let mut open = self.contacts.open();
        let stays = |(member, contact): &(PeerId, &Contact)| {
            contact.leaving.is_none() && self.contacts.heir(*member) == *member
        };
        let heir = open.find(stays).map(|(member, _)| member);
        drop(open);
        self.phase = Phase::Leaving(since, heir);
        heir
    }

    /// All is handed over.
    pub fn left(&mut self) {
        self.phase = Phase::Left;
    }
}

/// An address as a peer tells it, seen from here: what is on the teller's own machine to the teller is on the teller's
/// machine to us. So two peers of one machine that listen on all its addresses, and have met inside it, are found by
/// others.
fn from_here(told: &str, teller: &str) -> String {
    fn parse(address: &str) -> Option<(&str, SocketAddr)> {
        let (scheme, socket) = address.split_at(address.rfind('/').map_or(0, |slash| slash + 1));
        Some((scheme, socket.parse().ok()?))
    }
    match (parse(told), parse(teller)) {
        (Some((scheme, mut socket)), Some((_, teller))) if socket.ip().is_loopback() && !teller.ip().is_loopback() => {
            socket.set_ip(teller.ip());
            scheme.to_owned() + &socket.to_string()
        }
        _ => told.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    
    use super::*;

    #[test]
    fn what_is_here_to_the_teller_is_there_to_us() {
        for (told, teller, expected) in [
            ("127.0.0.1:7401", "10.0.0.7:7400", "10.0.0.7:7401"),
            ("quic://127.0.0.1:7401", "10.0.0.7:7400", "quic://10.0.0.7:7401"),
            ("127.0.0.1:7401", "quic://10.0.0.7:7400", "10.0.0.7:7401"),
            ("[::1]:7401", "[2001:db8::7]:7400", "[2001:db8::7]:7401"),
            ("127.0.0.1:7401", "127.0.0.1:7400", "127.0.0.1:7401"),
            ("10.0.0.8:7400", "10.0.0.7:7400", "10.0.0.8:7400"),
            ("10.0.0.8:7400", "127.0.0.1:7400", "10.0.0.8:7400"),
            ("no address", "10.0.0.7:7400", "no address"),
        ] {
            assert_eq!(from_here(told, teller), expected, "{told} from {teller}");
        }
    }

    #[test]
    fn an_address_is_dialled_once_and_there_is_an_end_to_it() {
        let mut membership = Membership::new(PeerId::new(1), vec!["me".to_owned()], 7);
        assert!(!membership.dial("me"));
        assert!(membership.dial("a") && !membership.dial("a"));
        let dialled = (0..5000).filter(|number| membership.dial(&number.to_string())).count();
        assert_eq!(dialled, MOST_ADDRESSES - 2);
    }

    /// A founder asks all members that it knows, so it must know those that the others know.
    #[test]
    fn a_newcomer_is_in_when_it_has_met_everybody_or_waited_long_enough() {
        for patient in [true, false] {
            let mut membership = Membership::new(PeerId::new(1), vec![], 7);
            membership.start(Time::ZERO);
            let hosts = [(PeerId::new(1), String::new()), (PeerId::new(3), String::new())];
            assert!(membership.on_joined(PeerId::new(20), &hosts));
            assert!(!membership.on_joined(PeerId::new(30), &[]), "through one is enough");
            assert!(!membership.progress(true, None, false), "3 is still to be met");
            assert!(!membership.is_joined() && !membership.begins());
            assert_eq!(membership.progress(false, None, !patient), !patient);
            assert_eq!(membership.is_joined(), !patient);
        }
        let mut alone = Membership::new(PeerId::new(1), vec![], 7);
        assert!(alone.progress(true, None, false), "nobody was named");
    }
}
