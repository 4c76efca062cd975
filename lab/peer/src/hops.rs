//! Routed messages that the next hop has not confirmed.

use alloc::collections::BTreeMap;

use peerlock_types::{Key, PeerId};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sent<M> {
    pub resource: Key,
    pub key: Key,
    pub origin: PeerId,
    pub hops: u8,
    pub message: M,
    pub to: PeerId,
    pub tries: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Hops<M> {
    given: u64,
    sent: BTreeMap<u64, Sent<M>>,
}

impl<M> Default for Hops<M> {
    fn default() -> Self {
        Self { given: 0, sent: BTreeMap::new() }
    }
}

impl<M> Hops<M> {
    /// Stores a message until its receipt is confirmed.
    pub fn insert(&mut self, sent: Sent<M>) -> u64 {
        self.given += 1;
        self.sent.insert(self.given, sent);
        self.given
    }

    /// Removes a message that was confirmed, or will get another receipt.
    pub fn take(&mut self, receipt: u64) -> Option<Sent<M>> {
        self.sent.remove(&receipt)
    }

    pub fn holder(&self, receipt: u64) -> Option<PeerId> {
        self.sent.get(&receipt).map(|sent| sent.to)
    }

    pub fn take_from(&mut self, peer: PeerId) -> BTreeMap<u64, Sent<M>> {
        let (theirs, rest) = core::mem::take(&mut self.sent).into_iter().partition(|(_, sent)| sent.to == peer);
        self.sent = rest;
        theirs
    }
}
