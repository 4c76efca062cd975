//! The peers of a world, by number; numbers are never used again.

use std::collections::VecDeque;

use peerlock_base::{PeerId, Rng};

use crate::actor::Actor;

/// All peers, and what is left of those that crashed.
#[derive(Debug)]
pub(crate) struct Hosts<A: Actor> {
    /// Peers 0, 1, 2 …; `None` while they are down.
    residents: Vec<Option<A>>,
    disks: Vec<A::Disk>,
    /// Peers after them that come, ask once and go, from the oldest that is there to the newest. Those who have gone
    /// leave no trace but behind others who are there, so that memory is bounded by those.
    visitors: VecDeque<Option<A>>,
    gone: usize,
}

impl<A: Actor> Hosts<A> {
    pub fn new() -> Self {
        Self { residents: Vec::new(), disks: Vec::new(), visitors: VecDeque::new(), gone: 0 }
    }

    /// The number of the next peer.
    pub fn next(&self) -> PeerId {
        PeerId::new((self.residents.len() + self.gone + self.visitors.len()) as u64)
    }

    /// Takes a peer up; its number is [`Hosts::next`].
    pub fn add(&mut self, actor: A) {
        assert_eq!(self.gone + self.visitors.len(), 0, "residents have the first numbers");
        self.residents.push(Some(actor));
        self.disks.push(A::Disk::default());
    }

    /// The same for a peer that will go again and be forgotten.
    pub fn add_visitor(&mut self, actor: A) {
        self.visitors.push_back(Some(actor));
    }

    #[inline]
    pub fn get(&self, peer: PeerId) -> Option<&A> {
        match self.residents.get(peer.index()) {
            Some(resident) => resident.as_ref(),
            None => self.visitors.get(peer.index().checked_sub(self.residents.len() + self.gone)?)?.as_ref(),
        }
    }

    #[inline]
    pub fn get_mut(&mut self, peer: PeerId) -> Option<&mut A> {
        let before = self.residents.len() + self.gone;
        match self.residents.get_mut(peer.index()) {
            Some(resident) => resident.as_mut(),
            None => self.visitors.get_mut(peer.index().checked_sub(before)?)?.as_mut(),
        }
    }

    /// A peer is gone, or down.
    pub fn remove(&mut self, peer: PeerId) -> Option<A> {
        if let Some(resident) = self.residents.get_mut(peer.index()) {
            return resident.take();
        }
        let at = peer.index().checked_sub(self.residents.len() + self.gone)?;
        let actor = self.visitors.get_mut(at)?.take();
        while let Some(None) = self.visitors.front() {
            self.visitors.pop_front();
            self.gone += 1;
        }
        actor
    }

    /// What a resident keeps through crashes.
    pub fn disk(&mut self, peer: PeerId) -> &mut A::Disk {
        &mut self.disks[peer.index()]
    }

    /// A resident that was down is there again.
    pub fn put_back(&mut self, peer: PeerId, actor: A) {
        let before = self.residents[peer.index()].replace(actor);
        assert!(before.is_none(), "peer {peer} was not down");
    }

    /// How many residents there are, those that are down included.
    pub fn residents(&self) -> usize {
        self.residents.len()
    }

    /// A resident that is not down, if chance finds one: where nearly all are down there may be none.
    pub fn any(&self, rng: &mut Rng) -> Option<PeerId> {
        let peer = PeerId::new(rng.below(self.residents.len().max(1) as u64));
        self.get(peer).map(|_| peer)
    }
}
