//! Addresses: our own, and those that are dialled to find others.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use peerlock_types::PeerId;

/// The maximum number of addresses in a message, and of dialled ones.
pub const MOST_ADDRESSES: usize = 4096;
/// Addresses dialled at a time because one host has named them …
const MOST_NAMED: usize = 128;
/// … and of attempts for each.
const MOST_FAILURES: u32 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// Our own, configured, or stored.
    Given,
    /// A needed host has registered it.
    Needed(PeerId),
    /// A host has named it; with failed attempts.
    Event { by: PeerId, failures: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dialled {
    why: Why,
    found: Option<PeerId>,
}

impl Dialled {
    fn host(&self) -> Option<PeerId> {
        match self.why {
            Why::Needed(host) => Some(host),
            Why::Given | Why::Event { .. } => self.found,
        }
    }
}

pub struct Membership {
    me: PeerId,
    addresses: Vec<String>,
    pub(crate) dialled: BTreeMap<String, Dialled>,
    /// Configured addresses that are not dialled, since the host there is not needed.
    spare: BTreeSet<String>,
}

impl Membership {
    pub fn new(me: PeerId, addresses: Vec<String>) -> Self {
        let mine = Dialled { why: Why::Given, found: Some(me) };
        let dialled = addresses.iter().map(|address| (address.clone(), mine)).collect();
        Self { me, addresses, dialled, spare: BTreeSet::new() }
    }

    pub fn host(&self) -> PeerId {
        self.me
    }

    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    pub fn dial(&mut self, address: &str) -> bool {
        self.begin(address, Why::Given)
    }

    /// Dials registered addresses, which take precedence over named ones. Returns the addresses to stop dialling and
    /// those to dial.
    pub fn dial_host(
        &mut self,
        host: PeerId,
        addresses: impl IntoIterator<Item = String>,
    ) -> (Vec<String>, Vec<String>) {
        let (mut over, mut due) = (Vec::new(), Vec::new());
        for address in addresses {
            if self.dialled.len() >= MOST_ADDRESSES && !self.dialled.contains_key(&address) {
                let named = self.dialled.iter().find(|(_, it)| matches!(it.why, Why::Event { .. }));
                let weaker = named.map(|(address, _)| address.clone());
                weaker.iter().for_each(|address| _ = self.dialled.remove(address));
                over.extend(weaker);
            }
            if self.begin(&address, Why::Needed(host)) {
                due.push(address);
            }
        }
        (over, due)
    }

    fn begin(&mut self, address: &str, why: Why) -> bool {
        let has_room = self.dialled.len() < MOST_ADDRESSES;
        match self.dialled.get_mut(address) {
            // A configured address stays so: it is dialled again when any host is needed.
            Some(Dialled { why: Why::Given, .. }) => false,
            Some(dialled) => {
                dialled.why = why;
                false
            }
            None => {
                if has_room {
                    self.dialled.insert(address.to_owned(), Dialled { why, found: None });
                }
                has_room
            }
        }
    }

    fn dial_named(&mut self, address: &str, by: PeerId) -> bool {
        let named = self.dialled.values().filter(|it| matches!(it.why, Why::Event { by: sender, .. } if sender == by));
        if self.dialled.contains_key(address) || self.dialled.len() >= MOST_ADDRESSES || named.count() >= MOST_NAMED {
            return false;
        }
        self.dialled.insert(address.to_owned(), Dialled { why: Why::Event { by, failures: 0 }, found: None });
        true
    }

    pub fn on_found(&mut self, address: &str, host: PeerId) {
        if let Some(dialled) = self.dialled.get_mut(address) {
            dialled.found = Some(host);
            if let Why::Event { failures, .. } = &mut dialled.why {
                *failures = 0;
            }
        }
    }

    pub fn on_unreached(&mut self, address: &str) -> bool {
        let Some(Dialled { why: Why::Event { failures, .. }, .. }) = self.dialled.get_mut(address) else {
            return false;
        };
        *failures += 1;
        let is_over = *failures >= MOST_FAILURES;
        if is_over {
            self.dialled.remove(address);
        }
        is_over
    }

    pub fn needed_at(&self, address: &str) -> Option<PeerId> {
        self.dialled.get(address).and_then(Dialled::host)
    }

    /// Returns the dialled addresses that satisfy the predicate. It is given the host and, if that is the only reason
    /// to dial it, the address.
    pub fn dialled_at(&self, is_so: impl Fn(PeerId, Option<&str>) -> bool) -> Vec<String> {
        let those = self.dialled.iter().filter(|(address, dialled)| {
            let needed_at = matches!(dialled.why, Why::Needed(_)).then_some(address.as_str());
            dialled.host().is_some_and(|host| host != self.me && is_so(host, needed_at))
        });
        those.map(|(address, _)| address.clone()).collect()
    }

    pub fn stop(&mut self, addresses: &[String]) {
        for address in addresses {
            if let Some(Dialled { why: Why::Given, .. }) = self.dialled.remove(address) {
                self.spare.insert(address.clone());
            }
        }
    }

    pub fn spare(&mut self) -> Vec<String> {
        let spare = std::mem::take(&mut self.spare);
        spare.into_iter().filter(|address| self.dial(address)).collect()
    }

    pub fn dial_spare(&mut self, address: &str) -> bool {
        self.spare.remove(address) && self.dial(address)
    }

    /// Dials the addresses that a greeting names, within limits.
    pub fn on_hosts(
        &mut self,
        from: PeerId,
        reached_at: &str,
        hosts: &[(PeerId, String)],
        is_linked: impl Fn(PeerId) -> bool,
    ) -> Vec<String> {
        let unmet = hosts.iter().filter(|(host, _)| *host != self.me && !is_linked(*host));
        let here = unmet.map(|(_, address)| from_here(address, reached_at));
        here.collect::<Vec<_>>().into_iter().filter(|address| self.dial_named(address, from)).collect()
    }
}

/// Replaces a loopback address by the address at which we reached the peer that named it, so that peers that have met
/// on one machine are found from others.
fn from_here(named: &str, sender: &str) -> String {
    match (named.parse::<SocketAddr>(), sender.parse::<SocketAddr>()) {
        (Ok(socket), Ok(sender)) if socket.ip().is_loopback() && !sender.ip().is_loopback() => {
            SocketAddr::new(sender.ip(), socket.port()).to_string()
        }
        _ => named.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_address_is_translated_to_the_sender_host() {
        for (named, sender, expected) in [
            ("127.0.0.1:7401", "10.0.0.7:7400", "10.0.0.7:7401"),
            ("[::1]:7401", "[2001:db8::7]:7400", "[2001:db8::7]:7401"),
            ("127.0.0.1:7401", "127.0.0.1:7400", "127.0.0.1:7401"),
            ("10.0.0.8:7400", "10.0.0.7:7400", "10.0.0.8:7400"),
            ("10.0.0.8:7400", "127.0.0.1:7400", "10.0.0.8:7400"),
            ("no address", "10.0.0.7:7400", "no address"),
        ] {
            assert_eq!(from_here(named, sender), expected, "{named} from {sender}");
        }
    }

    /// A member must not make all peers dial any number of addresses.
    #[test]
    fn addresses_named_by_a_host_are_dialled_within_limits() {
        let mut membership = Membership::new(PeerId::new(1), vec!["me".to_owned()]);
        let sender = PeerId::new(9);
        let named = |from: u64| (from..from + 1000).map(|at| (PeerId::new(100 + at), format!("host{at}:1"))).collect();
        let hosts: Vec<(PeerId, String)> = named(0);
        let dialled = membership.on_hosts(sender, "", &hosts, |_| false);
        assert_eq!(dialled.len(), MOST_NAMED);
        assert!(membership.on_hosts(sender, "", &named(1000), |_| false).is_empty());
        assert_eq!(
            membership.on_hosts(PeerId::new(8), "", &named(2000), |_| false).len(),
            MOST_NAMED,
            "named by another host"
        );
        for address in &dialled {
            let failures = (0..MOST_FAILURES).filter(|_| membership.on_unreached(address)).count();
            assert_eq!(failures, 1, "it is given up once");
        }
        assert_eq!(membership.on_hosts(sender, "", &named(3000), |_| false).len(), MOST_NAMED);
        assert!(membership.dial("known") && !(0..100).any(|_| membership.on_unreached("known")));
        let seven = vec!["seven".to_owned()];
        assert_eq!(membership.dial_host(PeerId::new(7), seven.clone()), (Vec::new(), seven));
        assert!(!(0..100).any(|_| membership.on_unreached("seven")));
    }

    #[test]
    fn unneeded_host_is_not_dialled_but_spare_addresses_remain() {
        let (me, needed, other) = (PeerId::new(1), PeerId::new(2), PeerId::new(3));
        let mut membership = Membership::new(me, vec!["me".to_owned()]);
        for (address, found) in [("given", Some(other)), ("nobody", None)] {
            assert!(membership.dial(address));
            found.into_iter().for_each(|host| membership.on_found(address, host));
        }
        membership.dial_host(needed, ["here", "there"].map(str::to_owned));
        membership.dial_host(other, ["elsewhere".to_owned()]);
        let over = membership.dialled_at(|host, needed_at| host != needed || needed_at == Some("there"));
        assert_eq!(over, ["elsewhere", "given", "there"], "neither unreached addresses nor our own");
        membership.stop(&over);
        assert_eq!(membership.spare(), ["given"]);
        assert!(membership.spare().is_empty());
    }

    /// A host that left is not dialled forever, and many identities do not fill the table.
    #[test]
    fn registered_addresses_take_precedence_and_expire() {
        let mut membership = Membership::new(PeerId::new(1), vec!["me".to_owned()]);
        let at = |numbers: std::ops::Range<u64>| numbers.map(|at| format!("host{at}:1")).collect::<Vec<_>>();
        for round in 0..1000 {
            let host = PeerId::new(1000 + round);
            let named = at(16 * round..16 * round + 16);
            assert_eq!(membership.dial_host(host, named.clone()), (Vec::new(), named.clone()));
            let over = membership.dialled_at(|it, _| it == host);
            assert_eq!(over.len(), 16);
            membership.stop(&over);
        }
        assert_eq!(membership.dialled.len(), 1);
        for sender in 0..40 {
            let named = at(1000 * sender..1000 * sender + 1000).into_iter().map(|it| (PeerId::new(9), it));
            membership.on_hosts(PeerId::new(100 + sender), "", &named.collect::<Vec<_>>(), |_| false);
        }
        assert_eq!(membership.dialled.len(), MOST_ADDRESSES);
        let (over, due) = membership.dial_host(PeerId::new(7), ["new:1".to_owned()]);
        assert_eq!((over.len(), due), (1, vec!["new:1".to_owned()]));
    }

    #[test]
    fn address_is_dialled_once_within_the_limit() {
        let mut membership = Membership::new(PeerId::new(1), vec!["me".to_owned()]);
        assert!(!membership.dial("me"));
        assert!(membership.dial("a") && !membership.dial("a"));
        let dialled = (0..9000).filter(|number| membership.dial(&number.to_string())).count();
        assert_eq!(dialled, MOST_ADDRESSES - 2);
    }
}
