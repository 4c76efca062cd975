//! Rules on all peers together. Each updates a count with each step, so that no step inspects every peer.

use std::hash::Hash;

use peerlock_protocols::Observe;
use peerlock_types::{PeerId, Time};

use super::{Broken, Event, Watch};
use crate::actor::Bare;

/// `None` with faults: tokens may then be lost without a defect of the protocol.
#[derive(Debug)]
pub struct Structure(Option<Rules>);

impl Structure {
    pub fn of<P: Observe>(peers: &[P]) -> Self {
        let (counted, trees) = (Counted::of(peers), Tree::of(peers));
        let has_any = counted.expected.is_some() || P::HAS_COORDINATOR || !trees.is_empty();
        Self(has_any.then_some(Rules { counted, trees }))
    }

    pub fn none() -> Self {
        Self(None)
    }
}

impl<P: Observe<Timer: Hash>> Watch<Bare<P>> for Structure {
    #[inline(always)]
    fn on(&mut self, _now: Time, event: Event<'_, Bare<P>>) -> Result<(), Broken> {
        let Some(Rules { counted, trees }) = &mut self.0 else { return Ok(()) };
        match event {
            Event::Send { message, .. } => {
                counted.tokens_under_way += P::tokens_in(message);
                counted.coordinators_under_way += usize::from(P::carries_coordinator(message));
            }
            Event::Deliver { message, .. } => {
                counted.tokens_under_way -= P::tokens_in(message);
                counted.coordinators_under_way -= usize::from(P::carries_coordinator(message));
            }
            Event::Step(peer, Bare(actor)) => {
                counted.note(peer, Has::of(actor));
                if counted.is_broken(P::HAS_COORDINATOR) {
                    return Err(counted.broken(peer));
                }
                for (number, tree) in trees.iter_mut().enumerate() {
                    tree.turn(peer, actor.parent_in(number))?;
                }
            }
            Event::End(_) => trees.iter_mut().try_for_each(Tree::look_over)?,
            _ => {}
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Rules {
    counted: Counted,
    trees: Vec<Tree>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Has {
    tokens: usize,
    is_coordinator: bool,
}

impl Has {
    #[inline(always)]
    fn of<P: Observe>(peer: &P) -> Self {
        Self { tokens: peer.tokens(), is_coordinator: peer.is_coordinator() }
    }
}

/// Exactly k tokens, held or under way, and exactly one coordinator, at a peer or under way.
#[derive(Debug)]
struct Counted {
    expected: Option<usize>,
    peers: Vec<Has>,
    tokens: usize,
    tokens_under_way: usize,
    coordinators: usize,
    coordinators_under_way: usize,
}

impl Counted {
    fn of<P: Observe>(peers: &[P]) -> Self {
        let expected = peers.first().and_then(P::tokens_in_all);
        let peers: Vec<Has> = peers.iter().map(Has::of).collect();
        Self {
            expected,
            tokens: peers.iter().map(|has| has.tokens).sum(),
            tokens_under_way: 0,
            coordinators: peers.iter().filter(|has| has.is_coordinator).count(),
            coordinators_under_way: 0,
            peers,
        }
    }

    #[inline(always)]
    fn note(&mut self, peer: PeerId, has: Has) {
        // Unconditional: a branch on whether anything has changed could not be predicted.
        let before = std::mem::replace(&mut self.peers[peer.index()], has);
        self.tokens = self.tokens - before.tokens + has.tokens;
        self.coordinators = self.coordinators - usize::from(before.is_coordinator) + usize::from(has.is_coordinator);
    }

    #[inline(always)]
    fn is_broken(&self, has_coordinator: bool) -> bool {
        self.expected.is_some_and(|expected| self.tokens + self.tokens_under_way != expected)
            || (has_coordinator && self.coordinators + self.coordinators_under_way != 1)
    }

    #[cold]
    fn broken(&self, peer: PeerId) -> Broken {
        let &Self { tokens, tokens_under_way, coordinators, coordinators_under_way, .. } = self;
        let broken = match self.expected {
            Some(expected) if tokens + tokens_under_way != expected => format!(
                "there are {} tokens after peer {peer}'s step, {tokens} held and {tokens_under_way} under way, instead \
                 of {expected}",
                tokens + tokens_under_way,
            ),
            _ => format!(
                "after peer {peer}'s step there are {coordinators} coordinators and {coordinators_under_way} messages \
                 that make one, instead of one in all",
            ),
        };
        broken.into()
    }
}

const FOLLOWED: usize = 128;

/// Parent pointers form no cycle, in one of a protocol's trees.
///
/// A pointer that moves is followed upwards, since any new cycle contains it. Under load a tree is as deep as the queue
/// is long, so the walk stops after `FOLLOWED` peers, and the whole tree is checked after as many moves as there are
/// peers.
#[derive(Debug)]
struct Tree {
    parents: Vec<Option<PeerId>>,
    moved: usize,
}

impl Tree {
    fn of<P: Observe>(peers: &[P]) -> Vec<Self> {
        let trees = peers.first().map_or(0, P::trees);
        let parents = |tree| peers.iter().map(|peer| peer.parent_in(tree)).collect();
        (0..trees).map(|tree| Self { parents: parents(tree), moved: 0 }).collect()
    }

    #[inline(always)]
    fn turn(&mut self, peer: PeerId, parent: Option<PeerId>) -> Result<(), Broken> {
        if self.parents[peer.index()] == parent { Ok(()) } else { self.follow(peer, parent) }
    }

    #[inline(never)]
    fn follow(&mut self, peer: PeerId, parent: Option<PeerId>) -> Result<(), Broken> {
        self.parents[peer.index()] = parent;
        self.moved += 1;
        let mut above = parent;
        for _ in 0..FOLLOWED.min(self.parents.len()) {
            match above {
                None => return Ok(()),
                Some(at) if at == peer => return Err(lead_back(peer)),
                Some(at) => above = self.parents[at.index()],
            }
        }
        if self.moved < self.parents.len() { Ok(()) } else { self.look_over() }
    }

    /// Follows every pointer once: a walk that meets its own path is a cycle.
    fn look_over(&mut self) -> Result<(), Broken> {
        self.moved = 0;
        let mut trail_of: Vec<usize> = vec![usize::MAX; self.parents.len()];
        for start in 0..self.parents.len() {
            let mut at = start;
            while trail_of[at] == usize::MAX {
                trail_of[at] = start;
                match self.parents[at] {
                    Some(parent) if trail_of[parent.index()] == start => return Err(lead_back(parent)),
                    Some(parent) => at = parent.index(),
                    None => break,
                }
            }
        }
        Ok(())
    }
}

#[cold]
fn lead_back(peer: PeerId) -> Broken {
    format!("the parent pointers of peer {peer} lead back to it").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(peers: usize) -> Tree {
        let parents = (0..peers).map(|number| (number > 0).then(|| PeerId::new(number as u64 - 1))).collect();
        Tree { parents, moved: 0 }
    }

    #[test]
    fn short_parent_cycle_is_detected_at_once() {
        let mut tree = chain(5);
        assert_eq!(tree.turn(PeerId::new(1), None), Ok(()));
        assert_eq!(tree.turn(PeerId::new(1), Some(PeerId::new(4))), Err(lead_back(PeerId::new(1))));
    }

    #[test]
    fn long_parent_cycle_is_detected_by_full_check() {
        let peers = 10 * FOLLOWED;
        let mut tree = chain(peers);
        assert_eq!(tree.look_over(), Ok(()));
        assert_eq!(tree.turn(PeerId::new(0), Some(PeerId::new(peers as u64 - 1))), Ok(()), "too long to see at once");
        assert!(tree.look_over().is_err());
    }
}
