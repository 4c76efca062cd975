//! The peers of a run, and their clients.

use peerlock_base::{PeerId, Rng, Ticket};
use peerlock_mutex::Protocol;
use peerlock_overlay::{KeyRange, Overlay};
use peerlock_peer::Peer;

use crate::faults::Crash;

/// A client that waits, or is inside. A peer has one at most for each resource.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    pub resource: usize,
    pub ticket: Ticket,
    pub inside: bool,
    pub crash: Crash,
}

/// A live peer.
pub struct Host<O: Overlay, P: Protocol, R> {
    pub peer: Peer<O, P, R>,
    pub clients: Vec<Client>,
    /// What it owns, if it is in the overlay.
    pub range: Option<KeyRange>,
    /// Messages of the protocol that came in this round.
    pub received: u32,
    /// Its place among those that are in the overlay.
    place: usize,
}

impl<O: Overlay, P: Protocol, R> Host<O, P, R> {
    /// Where the client with this ticket stands in the list.
    pub fn find(&self, ticket: Ticket) -> Option<usize> {
        self.clients.iter().position(|client| client.ticket == ticket)
    }

    /// Whether a client waits for this resource, or has it.
    pub fn wants(&self, resource: usize) -> bool {
        self.clients.iter().any(|client| client.resource == resource)
    }
}

/// All peers by number; numbers are never used again.
pub struct Hosts<O: Overlay, P: Protocol, R> {
    all: Vec<Option<Host<O, P, R>>>,
    /// Those that are in the overlay.
    joined: Vec<PeerId>,
}

impl<O: Overlay, P: Protocol, R> Hosts<O, P, R> {
    pub fn with_capacity(peers: usize) -> Self {
        Self { all: Vec::with_capacity(peers), joined: Vec::with_capacity(peers) }
    }

    /// The number of the next peer.
    pub fn next(&self) -> PeerId {
        PeerId::new(self.all.len() as u64)
    }

    /// Takes a peer up; its number is [`Hosts::next`].
    pub fn add(&mut self, peer: Peer<O, P, R>, range: Option<KeyRange>) {
        let id = self.next();
        self.all.push(Some(Host { peer, clients: Vec::new(), range: None, received: 0, place: 0 }));
        self.set_range(id, range);
    }

    #[inline]
    pub fn get(&self, peer: PeerId) -> Option<&Host<O, P, R>> {
        self.all.get(peer.index())?.as_ref()
    }

    #[inline]
    pub fn get_mut(&mut self, peer: PeerId) -> Option<&mut Host<O, P, R>> {
        self.all.get_mut(peer.index())?.as_mut()
    }

    /// A peer owns these keys from now on: what it owned before.
    pub fn set_range(&mut self, peer: PeerId, range: Option<KeyRange>) -> Option<KeyRange> {
        let place = self.joined.len();
        let host = self.get_mut(peer)?;
        let (before, was_at) = (host.range, host.place);
        host.range = range;
        match (before, range) {
            (None, Some(_)) => {
                host.place = place;
                self.joined.push(peer);
            }
            (Some(_), None) => self.drop_out(was_at),
            _ => {}
        }
        before
    }

    /// A peer is gone.
    pub fn remove(&mut self, peer: PeerId) -> Option<Host<O, P, R>> {
        let host = self.all.get_mut(peer.index())?.take()?;
        if host.range.is_some() {
            self.drop_out(host.place);
        }
        Some(host)
    }

    fn drop_out(&mut self, place: usize) {
        self.joined.swap_remove(place);
        if let Some(&moved) = self.joined.get(place)
            && let Some(moved) = self.get_mut(moved)
        {
            moved.place = place;
        }
    }

    /// Those that are in the overlay.
    pub fn joined(&self) -> &[PeerId] {
        &self.joined
    }

    /// One of those that are in the overlay.
    pub fn any(&self, rng: &mut Rng) -> Option<PeerId> {
        (!self.joined.is_empty()).then(|| self.joined[rng.below(self.joined.len() as u64) as usize])
    }

    /// Every live peer, by number.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (PeerId, &mut Host<O, P, R>)> {
        (0..).map(PeerId::new).zip(&mut self.all).filter_map(|(peer, host)| Some((peer, host.as_mut()?)))
    }
}
