//! The hosts of other clusters that have proved the secret of ours, for `doctor`, `/healthz` and the metrics.

use std::collections::BTreeMap;

use peerlock_registry::ClusterId;
use peerlock_types::{PeerId, Time};

/// One is enough to report that there is a second cluster.
const MOST: usize = 100;

/// A host of another cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Other {
    pub address: String,
    pub cluster: ClusterId,
    pub met: Time,
}

#[derive(Default)]
pub struct Others {
    hosts: BTreeMap<PeerId, Other>,
}

impl Others {
    pub fn meet(&mut self, host: PeerId, other: Other) {
        if self.hosts.len() < MOST || self.hosts.contains_key(&host) {
            self.hosts.insert(host, other);
        }
    }

    /// Removes the entries of a host and of an address: there is a member of our cluster now.
    pub fn on_member(&mut self, host: PeerId, address: &str) {
        self.hosts.retain(|known, other| *known != host && other.address != address);
    }

    pub fn iter(&self) -> impl Iterator<Item = (PeerId, &Other)> {
        self.hosts.iter().map(|(host, other)| (*host, other))
    }

    #[cfg(any(test, feature = "fuzz"))]
    pub fn retained(&self) -> usize {
        self.hosts.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_reported_until_it_is_a_member() {
        let other = |address: &str| Other { address: address.to_owned(), cluster: ClusterId::new(9), met: Time::ZERO };
        let mut others = Others::default();
        others.meet(PeerId::new(1), other("10.0.0.1:7400"));
        others.meet(PeerId::new(1), other("10.0.0.1:7400"));
        others.meet(PeerId::new(2), other("10.0.0.2:7400"));
        assert_eq!(others.retained(), 2);
        others.on_member(PeerId::new(3), "10.0.0.2:7400");
        assert_eq!(others.iter().map(|(host, _)| host).collect::<Vec<_>>(), [PeerId::new(1)]);
        others.on_member(PeerId::new(1), "10.0.0.7:7400");
        assert_eq!(others.retained(), 0);
        (0..2 * MOST as u64).for_each(|host| others.meet(PeerId::new(host), other("")));
        assert_eq!(others.retained(), MOST);
    }
}
