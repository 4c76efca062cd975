//! Admission of incoming connections before they have proved the secret.
//!
//! Any host can connect, send nothing, and occupy a place. Places are therefore few, and a new connection always gets
//! one: when all are taken, the oldest connection of the address with the most places is closed. A member proves itself
//! within a few round trips, so silent connections do not keep it out; and addresses of members have separate places.
//!
//! ```text
//!   connection ── arrives ──▶ handshake ──▶ proof ──▶ link, or refused: leaves
//!                              └── displaced ────┴──▶ closed
//! ```

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::table::Table;

/// Resolves when an unproved connection must close.
pub(crate) type MustClose = oneshot::Receiver<()>;

pub(crate) struct Admission {
    table: Arc<Table>,
    most: usize,
    waiting: Mutex<VecDeque<Unauthenticated>>,
}

struct Unauthenticated {
    address: SocketAddr,
    is_known: bool,
    _stays: oneshot::Sender<()>,
}

impl Admission {
    /// `most` places for all addresses, and as many for those of members.
    pub fn new(table: Arc<Table>, most: usize) -> Self {
        Self { table, most: most.max(1), waiting: Mutex::default() }
    }

    pub fn arrive(&self, address: SocketAddr) -> MustClose {
        let is_known = self.table.knows(address.ip());
        let mut waiting = self.lock();
        if waiting.iter().filter(|unauthenticated| unauthenticated.is_known == is_known).count() >= self.most {
            make_room(&mut waiting, is_known);
        }
        let (stays, goes) = oneshot::channel();
        waiting.push_back(Unauthenticated { address, is_known, _stays: stays });
        goes
    }

    pub fn leave(&self, address: SocketAddr) {
        let mut waiting = self.lock();
        let place = waiting.iter().position(|unauthenticated| unauthenticated.address == address);
        place.and_then(|place| waiting.remove(place));
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Unauthenticated>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes the oldest connection of the source with the most places, of one kind.
fn make_room(waiting: &mut VecDeque<Unauthenticated>, is_known: bool) {
    let of_kind = |unauthenticated: &&Unauthenticated| unauthenticated.is_known == is_known;
    let mut counts: HashMap<IpAddr, usize> = HashMap::new();
    for unauthenticated in waiting.iter().filter(of_kind) {
        *counts.entry(source(unauthenticated.address)).or_default() += 1;
    }
    let most = counts.values().max();
    let is_one_of_most = |unauthenticated: &Unauthenticated| counts.get(&source(unauthenticated.address)) == most;
    let oldest =
        waiting.iter().position(|unauthenticated| of_kind(&unauthenticated) && is_one_of_most(unauthenticated));
    oldest.and_then(|oldest| waiting.remove(oldest));
}

/// Returns the source of a connection. An IPv6 /64 network is one source, since its owner has every address in it.
fn source(address: SocketAddr) -> IpAddr {
    match address.ip() {
        IpAddr::V4(ip) => ip.into(),
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
    }
}

#[cfg(test)]
mod tests {
    use peerlock_types::PeerId;
    use tokio::sync::oneshot::error::TryRecvError;

    use super::*;
    use crate::{Config, Secret};

    fn admission(most: usize) -> Admission {
        let config = Config::new("127.0.0.1:0".parse().unwrap());
        Admission::new(Arc::new(Table::new(PeerId::new(1), config, Secret::generate())), most)
    }

    fn at(ip: &str, port: u16) -> SocketAddr {
        SocketAddr::new(ip.parse().unwrap(), port)
    }

    fn left(admission: &Admission) -> Vec<u16> {
        admission.lock().iter().map(|unauthenticated| unauthenticated.address.port()).collect()
    }

    #[test]
    fn oldest_of_the_largest_source_is_displaced() {
        let admission = admission(4);
        drop(admission.arrive(at("10.0.0.1", 1)));
        let mut goes: Vec<_> = (2..5).map(|port| admission.arrive(at("10.0.0.2", port))).collect();
        assert!(goes.iter_mut().all(|goes| goes.try_recv() == Err(TryRecvError::Empty)));
        drop(admission.arrive(at("10.0.0.3", 5)));
        assert_eq!(left(&admission), [1, 3, 4, 5]);
        assert_eq!(goes[0].try_recv(), Err(TryRecvError::Closed), "it has to close");
        assert_eq!(goes[1].try_recv(), Err(TryRecvError::Empty));
        admission.leave(at("10.0.0.2", 3));
        admission.leave(at("10.0.0.2", 3));
        drop(admission.arrive(at("10.0.0.4", 6)));
        drop(admission.arrive(at("10.0.0.5", 7)));
        assert_eq!(left(&admission), [4, 5, 6, 7]);
    }

    #[test]
    fn ipv6_network_is_one_source() {
        let admission = admission(3);
        drop(admission.arrive(at("2001:db8:0:1::1", 1)));
        drop(admission.arrive(at("2001:db8:0:2::1", 2)));
        drop(admission.arrive(at("2001:db8:0:2::2", 3)));
        drop(admission.arrive(at("2001:db8:0:3::1", 4)));
        assert_eq!(left(&admission), [1, 3, 4]);
    }

    #[test]
    fn member_addresses_have_separate_places() {
        let admission = admission(2);
        admission.table.know("10.0.0.9".parse().unwrap());
        drop(admission.arrive(at("10.0.0.9", 1)));
        (2..20).for_each(|port| drop(admission.arrive(at("10.0.0.2", port))));
        assert_eq!(left(&admission), [1, 18, 19], "other connections do not displace it");
        (20..40).for_each(|port| drop(admission.arrive(at("10.0.0.9", port))));
        assert_eq!(left(&admission), [18, 19, 38, 39], "nor does it displace them");
    }
}
