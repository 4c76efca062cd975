//! Where we look for others, and where they reach us.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use peerlock_types::PeerId;

/// At most this many addresses are told, and dialled: as many as a network keeps.
pub const MOST_ADDRESSES: usize = 4096;
/// At most this many addresses are dialled by the word of one host at a time …
const MOST_BY_WORD: usize = 128;
/// … and each so often, if nobody of ours is found there.
const MOST_FAILURES: u32 = 4;

/// Why an address is dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// It is our own, or a person has named it, or it was written down.
    Given,
    /// This host listens there, as the register says, and is needed.
    Needed(PeerId),
    /// A host has named it, and nobody was found there, so often.
    Event { by: PeerId, failures: u32 },
}

/// An address that is dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Dialled {
    why: Why,
    /// The host that answered there last.
    found: Option<PeerId>,
}

impl Dialled {
    /// Who is there, as far as we know.
    fn host(&self) -> Option<PeerId> {
        match self.why {
            Why::Needed(host) => Some(host),
            Why::Given | Why::Event { .. } => self.found,
        }
    }
}

/// Our own addresses, and everybody else's.
pub struct Membership {
    me: PeerId,
    /// Where others reach us.
    addresses: Vec<String>,
    dialled: BTreeMap<String, Dialled>,
    /// Where we were told to look, and found somebody whom we do not need now.
    spare: BTreeSet<String>,
}

impl Membership {
    /// Of a host that listens there, and knows of nobody else.
    pub fn new(me: PeerId, addresses: Vec<String>) -> Self {
        let mine = Dialled { why: Why::Given, found: Some(me) };
        let dialled = addresses.iter().map(|address| (address.clone(), mine)).collect();
        Self { me, addresses, dialled, spare: BTreeSet::new() }
    }

    /// Our host, by which everybody knows us.
    pub fn host(&self) -> PeerId {
        self.me
    }

    /// Where others reach us.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// Whether an address that we were given and do not dial is to be dialled now.
    pub fn dial(&mut self, address: &str) -> bool {
        self.begin(address, Why::Given)
    }

    /// Which of the addresses of a host that is needed are to be dialled now; and which others are not any more, to
    /// make room for them: a word of the register's has more weight than a host's.
    pub fn dial_host(
        &mut self,
        host: PeerId,
        addresses: impl IntoIterator<Item = String>,
    ) -> (Vec<String>, Vec<String>) {
        let (mut over, mut due) = (Vec::new(), Vec::new());
        for address in addresses {
            if self.dialled.len() >= MOST_ADDRESSES && !self.dialled.contains_key(&address) {
                let sent = self.dialled.iter().find(|(_, it)| matches!(it.why, Why::Event { .. }));
                let weaker = sent.map(|(address, _)| address.clone());
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
            // What was given stays so: it is dialled again when we need anybody.
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

    /// The same, by the word of a host: such a one has an end.
    fn dial_by_word(&mut self, address: &str, by: PeerId) -> bool {
        let by_word =
            self.dialled.values().filter(|it| matches!(it.why, Why::Event { by: teller, .. } if teller == by));
        if self.dialled.contains_key(address) || self.dialled.len() >= MOST_ADDRESSES || by_word.count() >= MOST_BY_WORD
        {
            return false;
        }
        self.dialled.insert(address.to_owned(), Dialled { why: Why::Event { by, failures: 0 }, found: None });
        true
    }

    /// A host was found at this address, or has reached us and says that it listens there.
    pub fn on_found(&mut self, address: &str, host: PeerId) {
        if let Some(dialled) = self.dialled.get_mut(address) {
            dialled.found = Some(host);
            if let Why::Event { failures, .. } = &mut dialled.why {
                *failures = 0;
            }
        }
    }

    /// Nobody of ours was found at an address: whether it is not to be dialled any more.
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

    /// Whom an address that is dialled was needed for.
    pub fn needed_at(&self, address: &str) -> Option<PeerId> {
        self.dialled.get(address).and_then(Dialled::host)
    }

    /// How many addresses are dialled, or were.
    #[cfg(any(test, feature = "fuzz"))]
    pub fn dialled(&self) -> usize {
        self.dialled.len()
    }

    /// The addresses of other hosts of which that is true, by the host and, where it is dialled only because it is
    /// needed, the address.
    pub fn dialled_at(&self, is_so: impl Fn(PeerId, Option<&str>) -> bool) -> Vec<String> {
        let those = self.dialled.iter().filter(|(address, dialled)| {
            let needed_at = matches!(dialled.why, Why::Needed(_)).then_some(address.as_str());
            dialled.host().is_some_and(|host| host != self.me && is_so(host, needed_at))
        });
        those.map(|(address, _)| address.clone()).collect()
    }

    /// These are not to be dialled any more. Where we were told to look is looked again when we need anybody.
    pub fn stop(&mut self, addresses: &[String]) {
        for address in addresses {
            if let Some(Dialled { why: Why::Given, .. }) = self.dialled.remove(address) {
                self.spare.insert(address.clone());
            }
        }
    }

    /// We need anybody: where we were told to look and do not, to be dialled now.
    pub fn spare(&mut self) -> Vec<String> {
        let spare = std::mem::take(&mut self.spare);
        spare.into_iter().filter(|address| self.dial(address)).collect()
    }

    /// Takes up dialling again at an address that was given and is not dialled any more. Returns false for any other.
    pub fn dial_spare(&mut self, address: &str) -> bool {
        self.spare.remove(address) && self.dial(address)
    }

    /// A host that we have reached there has greeted us, and is linked with these, of whom we are not linked with some:
    /// which addresses to dial.
    pub fn on_hosts(
        &mut self,
        from: PeerId,
        reached_at: &str,
        hosts: &[(PeerId, String)],
        is_linked: impl Fn(PeerId) -> bool,
    ) -> Vec<String> {
        let unmet = hosts.iter().filter(|(host, _)| *host != self.me && !is_linked(*host));
        let here = unmet.map(|(_, address)| from_here(address, reached_at));
        here.collect::<Vec<_>>().into_iter().filter(|address| self.dial_by_word(address, from)).collect()
    }
}

/// An address as a peer tells it, seen from here: what is on the teller's own machine to the teller is on the teller's
/// machine to us. So two peers of one machine that listen on all its addresses, and have met inside it, are found by
/// others.
fn from_here(sent: &str, teller: &str) -> String {
    match (sent.parse::<SocketAddr>(), teller.parse::<SocketAddr>()) {
        (Ok(socket), Ok(teller)) if socket.ip().is_loopback() && !teller.ip().is_loopback() => {
            SocketAddr::new(teller.ip(), socket.port()).to_string()
        }
        _ => sent.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_here_to_the_teller_is_there_to_us() {
        for (sent, teller, expected) in [
            ("127.0.0.1:7401", "10.0.0.7:7400", "10.0.0.7:7401"),
            ("[::1]:7401", "[2001:db8::7]:7400", "[2001:db8::7]:7401"),
            ("127.0.0.1:7401", "127.0.0.1:7400", "127.0.0.1:7401"),
            ("10.0.0.8:7400", "10.0.0.7:7400", "10.0.0.8:7400"),
            ("10.0.0.8:7400", "127.0.0.1:7400", "10.0.0.8:7400"),
            ("no address", "10.0.0.7:7400", "no address"),
        ] {
            assert_eq!(from_here(sent, teller), expected, "{sent} from {teller}");
        }
    }

    /// A member made everybody dial whatever it liked, as long as it liked: a thousand addresses, for ever.
    #[test]
    fn what_a_host_has_named_is_dialled_a_few_times_and_not_too_much_of_it_at_once() {
        let mut membership = Membership::new(PeerId::new(1), vec!["me".to_owned()]);
        let teller = PeerId::new(9);
        let named = |from: u64| (from..from + 1000).map(|at| (PeerId::new(100 + at), format!("host{at}:1"))).collect();
        let hosts: Vec<(PeerId, String)> = named(0);
        let dialled = membership.on_hosts(teller, "", &hosts, |_| false);
        assert_eq!(dialled.len(), MOST_BY_WORD);
        assert!(membership.on_hosts(teller, "", &named(1000), |_| false).is_empty());
        assert_eq!(
            membership.on_hosts(PeerId::new(8), "", &named(2000), |_| false).len(),
            MOST_BY_WORD,
            "another's word"
        );
        for address in &dialled {
            let failures = (0..MOST_FAILURES).filter(|_| membership.on_unreached(address)).count();
            assert_eq!(failures, 1, "it is given up once");
        }
        assert_eq!(membership.on_hosts(teller, "", &named(3000), |_| false).len(), MOST_BY_WORD);
        // What a person has named is dialled for good, and so is whoever is needed as long as it is.
        assert!(membership.dial("known") && !(0..100).any(|_| membership.on_unreached("known")));
        let seven = vec!["seven".to_owned()];
        assert_eq!(membership.dial_host(PeerId::new(7), seven.clone()), (Vec::new(), seven));
        assert!(!(0..100).any(|_| membership.on_unreached("seven")));
    }

    #[test]
    fn who_is_not_needed_is_not_dialled_and_what_was_given_comes_back() {
        let (me, needed, other) = (PeerId::new(1), PeerId::new(2), PeerId::new(3));
        let mut membership = Membership::new(me, vec!["me".to_owned()]);
        for (address, found) in [("given", Some(other)), ("nobody", None)] {
            assert!(membership.dial(address));
            found.into_iter().for_each(|host| membership.on_found(address, host));
        }
        membership.dial_host(needed, ["here", "there"].map(str::to_owned));
        membership.dial_host(other, ["elsewhere".to_owned()]);
        let over = membership.dialled_at(|host, needed_at| host != needed || needed_at == Some("there"));
        assert_eq!(over, ["elsewhere", "given", "there"], "not what was never reached, and not our own");
        membership.stop(&over);
        assert_eq!(membership.spare(), ["given"]);
        assert!(membership.spare().is_empty());
    }

    /// What it had named in the register was dialled for good, also when it was long gone; and many identities filled
    /// the table by word, until there was no room for anybody else's.
    #[test]
    fn what_the_register_names_has_room_and_ends_with_the_need() {
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
        assert_eq!(membership.dialled(), 1);
        for teller in 0..40 {
            let sent = at(1000 * teller..1000 * teller + 1000).into_iter().map(|it| (PeerId::new(9), it));
            membership.on_hosts(PeerId::new(100 + teller), "", &sent.collect::<Vec<_>>(), |_| false);
        }
        assert_eq!(membership.dialled(), MOST_ADDRESSES);
        let (over, due) = membership.dial_host(PeerId::new(7), ["new:1".to_owned()]);
        assert_eq!((over.len(), due), (1, vec!["new:1".to_owned()]));
    }

    #[test]
    fn an_address_is_dialled_once_and_there_is_an_end_to_it() {
        let mut membership = Membership::new(PeerId::new(1), vec!["me".to_owned()]);
        assert!(!membership.dial("me"));
        assert!(membership.dial("a") && !membership.dial("a"));
        let dialled = (0..9000).filter(|number| membership.dial(&number.to_string())).count();
        assert_eq!(dialled, MOST_ADDRESSES - 2);
    }
}
