use std::collections::VecDeque;

use peerlock_base::{PeerId, Time};

use crate::faults::Crash;

/// One client of an open run: a peer that asks once.
#[derive(Debug)]
pub struct Client<P> {
    pub peer: P,
    pub crash: Crash,
    pub place: Place,
}

/// Where a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Waiting,
    Inside,
    /// It has been inside, or was sent away, and only answers what still comes.
    Done,
}

/// The clients that are there, in the order they came. A client's number follows from its ticket, so none is searched
/// for; and those who have gone leave no trace but at the front, so that memory is bounded by those who are there.
#[derive(Debug)]
pub struct Clients<P> {
    /// The number of the first client: replicas come before.
    first: u64,
    /// From the oldest that is there to the newest; `None` for those that have gone before it.
    there: VecDeque<Option<Client<P>>>,
    gone: u64,
    /// Those who are done, and until when they answer.
    leaving: VecDeque<(Time, PeerId)>,
}

impl<P> Clients<P> {
    pub fn new(first: u64) -> Self {
        Self { first, there: VecDeque::new(), gone: 0, leaving: VecDeque::new() }
    }

    /// The peer that the client with the next ticket will be.
    pub fn next(&self) -> PeerId {
        PeerId::new(self.first + self.gone + self.there.len() as u64)
    }

    pub fn add(&mut self, client: Client<P>) {
        self.there.push_back(Some(client));
    }

    pub fn get_mut(&mut self, peer: PeerId) -> Option<&mut Client<P>> {
        let at = peer.get().checked_sub(self.first + self.gone)?;
        self.there.get_mut(usize::try_from(at).ok()?)?.as_mut()
    }

    /// The client is done; it answers until the given moment, which may not be before that of those who left earlier.
    pub fn leave(&mut self, peer: PeerId, until: Time) {
        if let Some(client) = self.get_mut(peer) {
            client.place = Place::Done;
            self.leaving.push_back((until, peer));
        }
    }

    /// One who has answered for long enough, and is now gone.
    pub fn take_leave(&mut self, now: Time) -> Option<PeerId> {
        let &(until, peer) = self.leaving.front()?;
        if until > now {
            return None;
        }
        self.leaving.pop_front();
        self.remove(peer);
        Some(peer)
    }

    /// Takes a client out at once.
    pub fn remove(&mut self, peer: PeerId) {
        let at = peer.get().checked_sub(self.first + self.gone).and_then(|at| usize::try_from(at).ok());
        if let Some(place) = at.and_then(|at| self.there.get_mut(at)) {
            *place = None;
        }
        while let Some(None) = self.there.front() {
            self.there.pop_front();
            self.gone += 1;
        }
    }
}
