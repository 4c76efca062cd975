//! Whom we are linked with, and where we look for others.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use peerlock_base::{PeerId, Span, Time};
use peerlock_register::Versions;

use crate::contacts::{Contact, Contacts};

/// At most this many addresses are told, and dialled.
const MOST_ADDRESSES: usize = 1024;

/// Our own addresses, and everybody else's.
pub struct Membership {
    me: PeerId,
    /// Where others reach us.
    addresses: Vec<String>,
    dialled: BTreeSet<String>,
    /// Everybody whom we know.
    pub contacts: Contacts,
}

impl Membership {
    /// Of a process of this host that knows nobody, and understands these versions.
    pub fn new(me: PeerId, addresses: Vec<String>, process: u64, versions: Versions) -> Self {
        let dialled = addresses.iter().cloned().collect();
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

    /// Whether an address that we have not dialled is to be dialled now.
    pub fn dial(&mut self, address: &str) -> bool {
        self.dialled.len() < MOST_ADDRESSES && self.dialled.insert(address.to_owned())
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
        here.collect::<Vec<_>>().into_iter().filter(|address| self.dial(address)).collect()
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

    #[test]
    fn an_address_is_dialled_once_and_there_is_an_end_to_it() {
        let mut membership = Membership::new(PeerId::new(1), vec!["me".to_owned()], 7, Versions::OURS);
        assert!(!membership.dial("me"));
        assert!(membership.dial("a") && !membership.dial("a"));
        let dialled = (0..5000).filter(|number| membership.dial(&number.to_string())).count();
        assert_eq!(dialled, MOST_ADDRESSES - 2);
    }
}
