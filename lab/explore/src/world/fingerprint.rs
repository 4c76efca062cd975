//! Fingerprints of states. Unchanged parts are shared between worlds, together with their fingerprints.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use peerlock_types::{PeerId, mix};

use super::{Explorable, Limits, Local, Packet, World};
use crate::check::Summary;

#[derive(PartialEq)]
pub(super) struct Node<P: Explorable> {
    pub(super) local: Local<P>,
    /// The hash; with interchangeable replicas, without the parts about single replicas.
    hash: u64,
    columns: Vec<u64>,
    pub(super) summary: Summary,
}

#[derive(PartialEq)]
pub(super) struct Sealed<M> {
    pub(super) packet: Packet<M>,
    hash: u64,
    /// The hash omits this interchangeable replica.
    column: Option<usize>,
}

impl<P: Explorable> World<P> {
    pub(super) fn seal(&self, packet: Packet<P::Message>) -> Sealed<P::Message> {
        match P::replica_in(&packet.message) {
            Some((replica, message)) if self.rules.limits.alike => {
                let column = replica as usize;
                let client = if packet.from == self.rules.ids[column] { packet.to } else { packet.from };
                Sealed { hash: hash_of(&(client, message)), packet, column: Some(column) }
            }
            _ => Sealed { hash: hash_of(&packet), packet, column: None },
        }
    }

    /// Two of ten million states collide with a probability of one in 300,000.
    pub fn fingerprint(&self) -> u64 {
        let rest = hash_of(&(self.left, self.now, &self.grants, &self.missed, self.packets.len(), &self.cluster));
        if self.rules.limits.alike {
            return self.fingerprint_of_alike(rest);
        }
        let parts = self.nodes.iter().map(|node| node.hash).chain(self.packets.iter().map(|sealed| sealed.hash));
        parts.fold(rest, |sum, part| mix(sum ^ part))
    }

    fn fingerprint_of_alike(&self, rest: u64) -> u64 {
        let (replicas, clients) = self.nodes.split_at(self.rules.limits.replicas);
        let column = |(at, replica): (usize, &Arc<Node<P>>)| {
            let known = clients.iter().map(|client| client.columns[at]);
            known.fold(mix(replica.hash ^ replica.columns[at]), |sum, part| mix(sum ^ part))
        };
        let mut columns: Vec<u64> = replicas.iter().enumerate().map(column).collect();
        for (sealed, at) in self.packets.iter().filter_map(|sealed| Some((sealed, sealed.column?))) {
            columns[at] = columns[at].wrapping_add(mix(sealed.hash));
        }
        columns.sort_unstable();
        let parts = clients.iter().map(|client| client.hash).chain(columns);
        parts.fold(rest, |sum, part| mix(sum ^ part))
    }
}

impl<P: Explorable> Node<P> {
    pub(super) fn new(local: Local<P>, ids: &[PeerId], limits: &Limits) -> Self {
        let summary = Summary::of(&local.peer, ids);
        if !limits.alike {
            return Self { hash: hash_of(&local), columns: Vec::new(), summary, local };
        }
        let digest = |replica| {
            let mut hasher = DefaultHasher::new();
            local.peer.digest(replica, &mut hasher);
            hasher.finish()
        };
        let Local { peer: _, timers, asked, waiting, inside, .. } = &local;
        let hash = hash_of(&(digest(None), timers, asked, waiting, inside));
        Self { hash, columns: (0..limits.replicas as u32).map(|at| digest(Some(at))).collect(), summary, local }
    }
}

pub(super) fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl<P: Explorable> Hash for World<P> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nodes.iter().for_each(|node| node.local.hash(state));
        self.packets().for_each(|packet| packet.hash(state));
        self.now.hash(state);
        self.left.hash(state);
        self.grants.hash(state);
        self.cluster.hash(state);
    }
}
