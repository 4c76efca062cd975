//! The peers of a world, by number; numbers are never reused.

use std::collections::VecDeque;

use peerlock_types::{PeerId, Rng};

use crate::actor::Actor;

pub(crate) struct Hosts<A: Actor> {
    /// `None` while they are down.
    residents: Vec<Option<A>>,
    disks: Vec<Storage<A>>,
    /// Temporary peers with higher numbers, trimmed at the front, so that memory is bounded by the running ones.
    visitors: VecDeque<Option<A>>,
    gone: usize,
}

/// Of a permanent peer, with pending writes, oldest first.
pub(crate) struct Storage<A: Actor> {
    pub disk: A::Disk,
    pub under_way: VecDeque<A::Write>,
}

impl<A: Actor> Hosts<A> {
    pub fn new() -> Self {
        Self { residents: Vec::new(), disks: Vec::new(), visitors: VecDeque::new(), gone: 0 }
    }

    pub fn next(&self) -> PeerId {
        PeerId::new((self.residents.len() + self.gone + self.visitors.len()) as u64)
    }

    /// `None` if the peer is in another process.
    pub fn add(&mut self, actor: Option<A>) {
        assert_eq!(self.gone + self.visitors.len(), 0, "permanent peers must precede temporary ones");
        self.residents.push(actor);
        self.disks.push(Storage { disk: A::Disk::default(), under_way: VecDeque::new() });
    }

    pub fn add_visitor(&mut self, actor: Option<A>) {
        self.visitors.push_back(actor);
    }

    #[inline]
    pub fn get(&self, peer: PeerId) -> Option<&A> {
        match self.residents.get(peer.index()) {
            Some(resident) => resident.as_ref(),
            None => self.visitor(peer),
        }
    }

    #[inline]
    pub fn get_mut(&mut self, peer: PeerId) -> Option<&mut A> {
        if peer.index() < self.residents.len() {
            return self.residents[peer.index()].as_mut();
        }
        self.visitor_mut(peer)
    }

    // Out of line, so that the lookup of a permanent peer can be inlined.
    fn visitor(&self, peer: PeerId) -> Option<&A> {
        self.visitors.get(peer.index().checked_sub(self.residents.len() + self.gone)?)?.as_ref()
    }

    fn visitor_mut(&mut self, peer: PeerId) -> Option<&mut A> {
        self.visitors.get_mut(peer.index().checked_sub(self.residents.len() + self.gone)?)?.as_mut()
    }

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

    pub fn disk(&self, peer: PeerId) -> &A::Disk {
        &self.disks[peer.index()].disk
    }

    pub fn storage(&mut self, peer: PeerId) -> &mut Storage<A> {
        &mut self.disks[peer.index()]
    }

    pub fn finish_write(&mut self, peer: PeerId) {
        let Storage { disk, under_way } = &mut self.disks[peer.index()];
        A::write(disk, under_way.pop_front().expect("a completed write was started"));
    }

    /// The first pending write may take effect, wholly or in part. Returns whether there were any.
    pub fn tear(&mut self, peer: PeerId, rng: &mut Rng) -> bool {
        let Some(Storage { disk, under_way }) = self.disks.get_mut(peer.index()) else { return false };
        let first = std::mem::take(under_way).pop_front();
        let was_writing = first.is_some();
        first.into_iter().for_each(|write| A::tear(disk, write, rng));
        was_writing
    }

    pub fn put_back(&mut self, peer: PeerId, actor: A) {
        let before = self.residents[peer.index()].replace(actor);
        assert!(before.is_none(), "peer {peer} was not down");
    }

    pub fn residents(&self) -> usize {
        self.residents.len()
    }

    /// May find none if nearly all are down.
    pub fn any(&self, rng: &mut Rng) -> Option<PeerId> {
        let peer = PeerId::new(rng.below(self.residents.len().max(1) as u64));
        self.get(peer).map(|_| peer)
    }
}
