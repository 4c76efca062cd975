//! The peers of a world, by number; numbers are never used again.

use std::collections::VecDeque;

use peerlock_types::{PeerId, Rng};

use crate::actor::Actor;

/// All peers, and what is left of those that crashed.
pub(crate) struct Hosts<A: Actor> {
    /// Peers 0, 1, 2 …; `None` while they are down.
    residents: Vec<Option<A>>,
    disks: Vec<Storage<A>>,
    /// Peers after them that come, ask once and go, from the oldest that is there to the newest. Those who have gone
    /// leave no trace but behind others who are there, so that memory is bounded by those.
    visitors: VecDeque<Option<A>>,
    gone: usize,
}

/// The disk of a resident, and what is being written to it, oldest first.
struct Storage<A: Actor> {
    disk: A::Disk,
    under_way: VecDeque<A::Write>,
}

impl<A: Actor> Hosts<A> {
    pub fn new() -> Self {
        Self { residents: Vec::new(), disks: Vec::new(), visitors: VecDeque::new(), gone: 0 }
    }

    /// The number of the next peer.
    pub fn next(&self) -> PeerId {
        PeerId::new((self.residents.len() + self.gone + self.visitors.len()) as u64)
    }

    /// Takes a peer up, or knows of one that lives elsewhere; its number is [`Hosts::next`].
    pub fn add(&mut self, actor: Option<A>) {
        assert_eq!(self.gone + self.visitors.len(), 0, "residents have the first numbers");
        self.residents.push(actor);
        self.disks.push(Storage { disk: A::Disk::default(), under_way: VecDeque::new() });
    }

    /// The same for a peer that will go again and be forgotten.
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

    // These two apart, so that looking up a resident is short enough to be done in place.
    fn visitor(&self, peer: PeerId) -> Option<&A> {
        self.visitors.get(peer.index().checked_sub(self.residents.len() + self.gone)?)?.as_ref()
    }

    fn visitor_mut(&mut self, peer: PeerId) -> Option<&mut A> {
        self.visitors.get_mut(peer.index().checked_sub(self.residents.len() + self.gone)?)?.as_mut()
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
    pub fn disk(&self, peer: PeerId) -> &A::Disk {
        &self.disks[peer.index()].disk
    }

    /// A resident begins to write.
    pub fn begin_write(&mut self, peer: PeerId, write: A::Write) {
        self.disks[peer.index()].under_way.push_back(write);
    }

    /// A resident writes something that only its machine can forget.
    pub fn keep(&mut self, peer: PeerId, write: A::Write) {
        A::write(&mut self.disks[peer.index()].disk, write);
    }

    /// The machine of a resident was started anew.
    pub fn reboot(&mut self, peer: PeerId) {
        A::reboot(&mut self.disks[peer.index()].disk);
    }

    /// The oldest write under way is done.
    pub fn finish_write(&mut self, peer: PeerId) {
        let Storage { disk, under_way } = &mut self.disks[peer.index()];
        A::write(disk, under_way.pop_front().expect("what is done was begun"));
    }

    /// A resident has crashed: of what it was writing, the first may be there, or some of it. Whether it was writing.
    pub fn tear(&mut self, peer: PeerId, rng: &mut Rng) -> bool {
        let Some(Storage { disk, under_way }) = self.disks.get_mut(peer.index()) else { return false };
        let first = std::mem::take(under_way).pop_front();
        let was_writing = first.is_some();
        first.into_iter().for_each(|write| A::tear(disk, write, rng));
        was_writing
    }

    /// The disk of a resident is gone.
    pub fn lose_disk(&mut self, peer: PeerId) {
        A::lose(&mut self.disks[peer.index()].disk);
    }

    /// A resident that was down is there again.
    pub fn put_back(&mut self, peer: PeerId, actor: A) {
        let before = self.residents[peer.index()].replace(actor);
        assert!(before.is_none(), "peer {peer} was not down");
    }

    /// All residents that are not down.
    pub fn up(&self) -> impl Iterator<Item = PeerId> {
        let is_up = |(number, resident): (usize, &Option<A>)| resident.is_some().then(|| PeerId::new(number as u64));
        self.residents.iter().enumerate().filter_map(is_up)
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
