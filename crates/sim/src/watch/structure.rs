//! Rules about what the peers and the messages under way are, taken together. All three keep a count that each step
//! changes a little, so that none has to look at every peer.

use std::hash::Hash;

use peerlock_base::{PeerId, Time};
use peerlock_mutex::Observe;

use super::{Broken, Watch};
use crate::actor::Bare;
use crate::ledger::Ledger;

/// All three; or none, in a run in which messages get lost, come twice or peers crash: tokens are lost there, and that
/// is no fault of the protocol's.
#[derive(Debug)]
pub struct Structure(Option<(Tokens, OneCoordinator, Acyclic)>);

impl Structure {
    /// For these peers, before the first event.
    pub fn of<P: Observe>(peers: &[P]) -> Self {
        Self(Some((Tokens::of(peers), OneCoordinator::of(peers), Acyclic::of(peers))))
    }

    /// Makes no checks.
    pub fn none() -> Self {
        Self(None)
    }
}

impl<P: Observe<Timer: Hash>> Watch<Bare<P>> for Structure {
    fn on_send(&mut self, now: Time, from: PeerId, to: PeerId, message: &P::Message) -> Result<(), Broken> {
        self.0.as_mut().map_or(Ok(()), |all| Watch::<Bare<P>>::on_send(all, now, from, to, message))
    }

    fn on_deliver(&mut self, now: Time, from: PeerId, to: PeerId, message: &P::Message) -> Result<(), Broken> {
        self.0.as_mut().map_or(Ok(()), |all| Watch::<Bare<P>>::on_deliver(all, now, from, to, message))
    }

    fn after_step(&mut self, now: Time, peer: PeerId, actor: &Bare<P>) -> Result<(), Broken> {
        self.0.as_mut().map_or(Ok(()), |all| all.after_step(now, peer, actor))
    }

    fn at_end(&mut self, now: Time, ledger: &Ledger) -> Result<(), Broken> {
        self.0.as_mut().map_or(Ok(()), |all| Watch::<Bare<P>>::at_end(all, now, ledger))
    }
}

/// Exactly k tokens, held or under way.
#[derive(Debug)]
struct Tokens {
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

impl<P: Observe<Timer: Hash>> Watch<Bare<P>> for Tokens {
    fn on_send(&mut self, _now: Time, _from: PeerId, _to: PeerId, message: &P::Message) -> Result<(), Broken> {
        self.under_way += P::tokens_in(message);
        Ok(())
    }

    fn on_deliver(&mut self, _now: Time, _from: PeerId, _to: PeerId, message: &P::Message) -> Result<(), Broken> {
        self.under_way -= P::tokens_in(message);
        Ok(())
    }

    fn after_step(&mut self, _now: Time, peer: PeerId, actor: &Bare<P>) -> Result<(), Broken> {
        let Some(expected) = self.expected else { return Ok(()) };
        let (before, now) = (&mut self.held[peer.index()], actor.0.tokens());
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
struct OneCoordinator {
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

impl<P: Observe<Timer: Hash>> Watch<Bare<P>> for OneCoordinator {
    fn on_send(&mut self, _now: Time, _from: PeerId, _to: PeerId, message: &P::Message) -> Result<(), Broken> {
        self.under_way += usize::from(P::carries_coordinator(message));
        Ok(())
    }

    fn on_deliver(&mut self, _now: Time, _from: PeerId, _to: PeerId, message: &P::Message) -> Result<(), Broken> {
        self.under_way -= usize::from(P::carries_coordinator(message));
        Ok(())
    }

    fn after_step(&mut self, _now: Time, peer: PeerId, actor: &Bare<P>) -> Result<(), Broken> {
        if !P::HAS_COORDINATOR {
            return Ok(());
        }
        let (before, now) = (&mut self.is[peer.index()], actor.0.is_coordinator());
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
///
/// A pointer that moves is followed upwards, since any new cycle goes through it. Under load the trees are as deep as
/// the queue is long, so beyond `FOLLOWED` peers the walk stops, and the whole tree is looked over once for every as
/// many moves as there are peers, and at the end.
#[derive(Debug)]
struct Acyclic {
    trees: Vec<Tree>,
}

/// How far a moved pointer is followed at once.
const FOLLOWED: usize = 128;

#[derive(Debug)]
struct Tree {
    parents: Vec<Option<PeerId>>,
    /// How many pointers have moved since the whole tree was looked over.
    moved: usize,
}

impl Acyclic {
    /// For these peers, before the first event.
    pub fn of<P: Observe>(peers: &[P]) -> Self {
        let trees = peers.first().map_or(0, P::trees);
        let parents = |tree| peers.iter().map(|peer| peer.parent_in(tree)).collect();
        Self { trees: (0..trees).map(|tree| Tree { parents: parents(tree), moved: 0 }).collect() }
    }
}

impl<P: Observe<Timer: Hash>> Watch<Bare<P>> for Acyclic {
    fn after_step(&mut self, _now: Time, peer: PeerId, actor: &Bare<P>) -> Result<(), Broken> {
        for (number, tree) in self.trees.iter_mut().enumerate() {
            tree.turn(peer, actor.0.parent_in(number))?;
        }
        Ok(())
    }

    fn at_end(&mut self, _now: Time, _ledger: &Ledger) -> Result<(), Broken> {
        self.trees.iter_mut().try_for_each(Tree::look_over)
    }
}

impl Tree {
    fn turn(&mut self, peer: PeerId, parent: Option<PeerId>) -> Result<(), Broken> {
        if self.parents[peer.index()] == parent {
            return Ok(());
        }
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

    /// Follows every pointer once: a walk that meets its own trail goes in a circle.
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

fn lead_back(peer: PeerId) -> Broken {
    format!("the parent pointers of peer {peer} lead back to it")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(peers: usize) -> Tree {
        let parents = (0..peers).map(|number| (number > 0).then(|| PeerId::new(number as u64 - 1))).collect();
        Tree { parents, moved: 0 }
    }

    #[test]
    fn a_short_cycle_is_seen_at_once() {
        let mut tree = chain(5);
        assert_eq!(tree.turn(PeerId::new(1), None), Ok(()));
        assert_eq!(tree.turn(PeerId::new(1), Some(PeerId::new(4))), Err(lead_back(PeerId::new(1))));
    }

    #[test]
    fn a_long_cycle_is_seen_when_the_tree_is_looked_over() {
        let peers = 10 * FOLLOWED;
        let mut tree = chain(peers);
        assert_eq!(tree.look_over(), Ok(()));
        assert_eq!(tree.turn(PeerId::new(0), Some(PeerId::new(peers as u64 - 1))), Ok(()), "too long to see at once");
        assert!(tree.look_over().is_err());
    }
}
