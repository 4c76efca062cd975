//! Routed messages that the next hop has not confirmed.

use alloc::collections::BTreeMap;

use peerlock_types::{Key, PeerId};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Passed<M> {
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
    passed: BTreeMap<u64, Passed<M>>,
}

impl<M> Default for Hops<M> {
    fn default() -> Self {
        Self { given: 0, passed: BTreeMap::new() }
    }
}

impl<M> Hops<M> {
    /// Until the receipt is confirmed.
    pub fn keep(&mut self, passed: Passed<M>) -> u64 {
        self.given += 1;
        self.passed.insert(self.given, passed);
        self.given
    }

    /// The message was confirmed, or gets another receipt.
    pub fn take(&mut self, receipt: u64) -> Option<Passed<M>> {
        self.passed.remove(&receipt)
    }

    pub fn holder(&self, receipt: u64) -> Option<PeerId> {
        self.passed.get(&receipt).map(|passed| passed.to)
    }

    pub fn take_from(&mut self, peer: PeerId) -> BTreeMap<u64, Passed<M>> {
        let (theirs, rest) = core::mem::take(&mut self.passed).into_iter().partition(|(_, passed)| passed.to == peer);
        self.passed = rest;
        theirs
    }
}
