//! Rules about what the peers and the messages under way are, taken together. All three keep a count that each step
//! changes a little, so that none has to look at every peer.

use peerlock_base::{PeerId, Time};
use peerlock_mutex::Observe;

use super::{Broken, Watch};

/// Exactly k tokens, held or under way.
#[derive(Debug)]
pub struct Tokens {
    /// How many there must be; `None` for protocols without tokens.
    expected: Option<usize>,
    held: Vec<usize>,
    held_in_all: usize,
    under_way: usize,
}

impl Tokens {
    /// For these peers, before the first event.
    pub fn of<P: Observe>(peers: &[P]) -> Self {
        let held: Vec<usize> = peers.iter().map(P::tokens).collect();
        let expected = peers.first().and_then(P::tokens_in_all);
        Self { expected, held_in_all: held.iter().sum(), held, under_way: 0 }
    }
}

impl<P: Observe> Watch<P> for Tokens {
    fn on_send(&mut self, _now: Time, _from: PeerId, _to: PeerId, message: &P::Message) -> Result<(), Broken> {
        self.under_way += P::tokens_in(message);
        Ok(())
    }

    fn on_deliver(&mut self, _now: Time, _from: PeerId, _to: PeerId, message: &P::Message) -> Result<(), Broken> {
        self.under_way -= P::tokens_in(message);
        Ok(())
    }

    fn after_step(&mut self, _now: Time, peer: PeerId, peers: &[P]) -> Result<(), Broken> {
        let Some(expected) = self.expected else { return Ok(()) };
        let (before, now) = (&mut self.held[peer.index()], peers[peer.index()].tokens());
        self.held_in_all = self.held_in_all - *before + now;
        *before = now;
        if self.held_in_all + self.under_way == expected {
            return Ok(());
        }
        Err(format!(
            "there are {} tokens after peer {peer}'s step, {} held and {} under way, instead of {expected}",
            self.held_in_all + self.under_way,
            self.held_in_all,
            self.under_way,
        ))
    }
}

/// Exactly one coordinator, or one message that makes somebody coordinator.
#[derive(Debug)]
pub struct OneCoordinator {
    is: Vec<bool>,
    in_all: usize,
    under_way: usize,
}

impl OneCoordinator {
    /// For these peers, before the first event.
    pub fn of<P: Observe>(peers: &[P]) -> Self {
        let is: Vec<bool> = peers.iter().map(P::is_coordinator).collect();
        Self { in_all: is.iter().filter(|&&is| is).count(), is, under_way: 0 }
    }
}

impl<P: Observe> Watch<P> for OneCoordinator {
    fn on_send(&mut self, _now: Time, _from: PeerId, _to: PeerId, message: &P::Message) -> Result<(), Broken> {
        self.under_way += usize::from(P::carries_coordinator(message));
        Ok(())
    }

    fn on_deliver(&mut self, _now: Time, _from: PeerId, _to: PeerId, message: &P::Message) -> Result<(), Broken> {
        self.under_way -= usize::from(P::carries_coordinator(message));
        Ok(())
    }

    fn after_step(&mut self, _now: Time, peer: PeerId, peers: &[P]) -> Result<(), Broken> {
        if !P::HAS_COORDINATOR {
            return Ok(());
        }
        let (before, now) = (&mut self.is[peer.index()], peers[peer.index()].is_coordinator());
        self.in_all = self.in_all - usize::from(*before) + usize::from(now);
        *before = now;
        if self.in_all + self.under_way == 1 {
            return Ok(());
        }
        Err(format!(
            "after peer {peer}'s step there are {} coordinators and {} messages that make one, instead of one in all",
            self.in_all, self.under_way
        ))
    }
}

/// Parent pointers form no cycle, in any of a protocol's trees.
#[derive(Debug)]
pub struct Acyclic {
    /// By tree, then by peer.
    parents: Vec<Vec<Option<PeerId>>>,
}

impl Acyclic {
    /// For these peers, before the first event.
    pub fn of<P: Observe>(peers: &[P]) -> Self {
        let trees = peers.first().map_or(0, P::trees);
        let parents = |tree| peers.iter().map(|peer| peer.parent_in(tree)).collect();
        Self { parents: (0..trees).map(parents).collect() }
    }
}

impl<P: Observe> Watch<P> for Acyclic {
    fn after_step(&mut self, _now: Time, peer: PeerId, peers: &[P]) -> Result<(), Broken> {
        for (tree, parents) in self.parents.iter_mut().enumerate() {
            let (before, now) = (&mut parents[peer.index()], peers[peer.index()].parent_in(tree));
            if *before == now {
                continue;
            }
            *before = now;
            // Only this pointer has moved, so any new cycle goes through it.
            let mut above = now;
            while let Some(at) = above {
                if at == peer {
                    return Err(format!("the parent pointers of peer {peer} lead back to it"));
                }
                above = parents[at.index()];
            }
        }
        Ok(())
    }
}
