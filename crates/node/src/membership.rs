//! Whom we are linked with, and where we look for others.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use peerlock_base::{PeerId, Span, Time};
use peerlock_register::Versions;

use crate::contacts::{Contact, Contacts};

/// At most this many addresses are told, and dialled: as many as a network keeps.
const MOST_ADDRESSES: usize = 4096;
/// At most this many addresses are dialled by the word of one host at a time …
const MOST_BY_WORD: usize = 128;
/// … and each so often, if nobody of ours is found there.
const MOST_FAILURES: u32 = 4;

/// Why an address is dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialled {
    /// It is our own, a person's or the register's, or somebody was found there: for good.
    Known,
    /// A host has named it, and nobody was found there, so often.
    Told { by: PeerId, failures: u32 },
}

/// Our own addresses, and everybody else's.
pub struct Membership {
    me: PeerId,
    /// Where others reach us.
    addresses: Vec<String>,
    dialled: BTreeMap<String, Dialled>,
    /// Everybody whom we know.
    pub contacts: Contacts,
}

impl Membership {
    /// Of a process of this host that knows nobody, and understands these versions.
    pub fn new(me: PeerId, addresses: Vec<String>, process: u64, versions: Versions) -> Self {
        let dialled = addresses.iter().map(|address| (address.clone(), Dialled::Known)).collect();
        Self { me, addresses, dialled, contacts: Contacts::new(process, versions) }
    }

    /// Our host, by which everybody knows us.
    pub fn host(&self) -> PeerId {
        self.me
    }

    /// Where others reach us.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// Whether an address that we have not dialled is to be dialled now, for good.
    pub fn dial(&mut self, address: &str) -> bool {
        let is_new = !self.dialled.contains_key(address);
        if !is_new || self.dialled.len() < MOST_ADDRESSES {
            self.dialled.insert(address.to_owned(), Dialled::Known);
            return is_new;
        }
        false
    }

    /// The same, by the word of a host: such a one has an end.
    fn dial_by_word(&mut self, address: &str, by: PeerId) -> bool {
        let by_word =
            self.dialled.values().filter(|it| matches!(it, Dialled::Told { by: teller, .. } if *teller == by));
        if self.dialled.contains_key(address) || self.dialled.len() >= MOST_ADDRESSES || by_word.count() >= MOST_BY_WORD
        {
            return false;
        }
        self.dialled.insert(address.to_owned(), Dialled::Told { by, failures: 0 });
        true
    }

    /// A host was found at this address, or has reached us and says that it listens there.
    pub fn on_found(&mut self, address: &str, host: PeerId) {
        match self.dialled.get_mut(address) {
            Some(Dialled::Told { failures, .. }) => *failures = 0,
            Some(Dialled::Known) => {}
            None => _ = self.dial_by_word(address, host),
        }
    }

    /// Nobody of ours was found at an address: whether it is not to be dialled any more.
    pub fn on_unreached(&mut self, address: &str) -> bool {
        let Some(Dialled::Told { failures, .. }) = self.dialled.get_mut(address) else { return false };
        *failures += 1;
        let is_over = *failures >= MOST_FAILURES;
        if is_over {
            self.dialled.remove(address);
        }
        is_over
    }

    /// How many addresses are dialled, or were.
    #[cfg(any(test, feature = "forge"))]
    pub fn dialled(&self) -> usize {
        self.dialled.len()
    }

    /// Whoever was there is forgotten: another may be found there.
    pub fn forget(&mut self, is_member: impl Fn(PeerId) -> bool, now: Time, long: Span) {
        for address in self.contacts.forget(is_member, now, long) {
            if !self.addresses.contains(&address) {
                self.dialled.remove(&address);
            }
        }
    }

    /// The hosts that we are linked with, and where we reached them.
    pub fn linked(&self) -> Vec<(PeerId, String)> {
        self.contacts.open().map(|(host, contact)| (host, contact.address.clone())).take(MOST_ADDRESSES).collect()
    }

    /// A host has greeted us, and is linked with these: which addresses to dial.
    pub fn on_hosts(&mut self, from: PeerId, hosts: &[(PeerId, String)]) -> Vec<String> {
        let teller = self.contacts.get(from).map(|contact| contact.address.clone()).unwrap_or_default();
        let unmet = hosts.iter().filter(|(host, _)| *host != self.me && !self.is_linked(*host));
        let here = unmet.map(|(_, address)| from_here(address, &teller));
        here.collect::<Vec<_>>().into_iter().filter(|address| self.dial_by_word(address, from)).collect()
    }

    /// Whether messages to a host go out at once.
    pub fn is_linked(&self, host: PeerId) -> bool {
        self.contacts.get(host).is_some_and(Contact::is_open)
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

    /// A member made everybody dial whatever it liked, as long as it liked: a thousand addresses, for ever.
    #[test]
    fn what_a_host_has_named_is_dialled_a_few_times_and_not_too_much_of_it_at_once() {
        let mut membership = Membership::new(PeerId::new(1), vec!["me".to_owned()], 7, Versions::OURS);
        let teller = PeerId::new(9);
        let named = |from: u64| (from..from + 1000).map(|at| (PeerId::new(100 + at), format!("host{at}:1"))).collect();
        let hosts: Vec<(PeerId, String)> = named(0);
        let dialled = membership.on_hosts(teller, &hosts);
        assert_eq!(dialled.len(), MOST_BY_WORD);
        assert!(membership.on_hosts(teller, &named(1000)).is_empty());
        assert_eq!(membership.on_hosts(PeerId::new(8), &named(2000)).len(), MOST_BY_WORD, "another's word");
        for address in &dialled {
            let failures = (0..MOST_FAILURES).filter(|_| membership.on_unreached(address)).count();
            assert_eq!(failures, 1, "it is given up once");
        }
        assert_eq!(membership.on_hosts(teller, &named(3000)).len(), MOST_BY_WORD);
        // What a person or the register has named is dialled for good.
        assert!(membership.dial("known") && !(0..100).any(|_| membership.on_unreached("known")));
    }

    #[test]
    fn an_address_is_dialled_once_and_there_is_an_end_to_it() {
        let mut membership = Membership::new(PeerId::new(1), vec!["me".to_owned()], 7, Versions::OURS);
        assert!(!membership.dial("me"));
        assert!(membership.dial("a") && !membership.dial("a"));
        let dialled = (0..9000).filter(|number| membership.dial(&number.to_string())).count();
        assert_eq!(dialled, MOST_ADDRESSES - 2);
    }
}
