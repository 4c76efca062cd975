//! No overlay at all: for protocols that never route, where everybody is linked with everybody.

use alloc::vec::Vec;

use peerlock_base::{Key, PeerId};

use crate::{Config, Cx, KeyRange, Node, Overlay, Proximity, Timer};

/// A place without routes. Every peer takes itself for the owner of every key, so what is routed all the same goes no
/// further than the peer that routes it. Joining is complete at once, and nothing is ever sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Unrouted {
    me: Node,
    joined: bool,
}

/// The message of an overlay in which nothing is ever said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Nothing {}

impl Overlay for Unrouted {
    type Message = Nothing;

    fn new(me: Node, _config: Config) -> Self {
        Self { me, joined: false }
    }

    fn converged(nodes: &[Node], place: usize, _config: Config, _proximity: Proximity<'_>) -> Self {
        Self { me: nodes[place], joined: true }
    }

    fn me(&self) -> Node {
        self.me
    }

    fn range(&self) -> Option<KeyRange> {
        self.joined.then_some(KeyRange { after: self.me.key, last: self.me.key })
    }

    fn next_hop(&self, _key: Key) -> Option<PeerId> {
        None
    }

    fn replica_set(&self, _key: Key, n: usize) -> Vec<PeerId> {
        self.range().map(|_| self.me.peer).into_iter().take(n).collect()
    }

    fn neighbours(&self) -> impl Iterator<Item = Node> {
        core::iter::empty()
    }

    fn join(&mut self, _via: Option<PeerId>, cx: &mut Cx<'_, Nothing>) {
        if !core::mem::replace(&mut self.joined, true) {
            cx.owns(self.range());
        }
    }

    fn leave(&mut self, cx: &mut Cx<'_, Nothing>) {
        self.joined = false;
        cx.owns(None);
    }

    fn on_message(&mut self, _from: PeerId, message: Nothing, _cx: &mut Cx<'_, Nothing>) {
        match message {}
    }

    fn on_timer(&mut self, _timer: Timer, _cx: &mut Cx<'_, Nothing>) {}

    fn on_unreachable(&mut self, _peer: PeerId, _cx: &mut Cx<'_, Nothing>) {}
}

#[cfg(test)]
mod tests {
    use peerlock_base::{Rng, Time};

    use super::*;
    use crate::{Effect, Input, UNKNOWN, step};

    #[test]
    fn who_joins_is_in_at_once_and_nothing_is_said() {
        let me = Node::of(PeerId::new(1));
        let mut overlay = Unrouted::new(me, Config::CHORD);
        let (mut rng, mut effects) = (Rng::new(1), Vec::new());
        let mut hear = |overlay: &mut Unrouted, input| {
            step(overlay, input, &mut Cx::new(me.peer, Time::ZERO, &mut rng, UNKNOWN, &mut effects));
            core::mem::take(&mut effects)
        };
        let all = Some(KeyRange { after: me.key, last: me.key });
        assert_eq!((overlay.range(), overlay.replica_set(me.key, 3)), (None, Vec::new()));
        assert_eq!(hear(&mut overlay, Input::Join(Some(PeerId::new(2)))), [Effect::Owns { range: all }]);
        assert_eq!(hear(&mut overlay, Input::Join(Some(PeerId::new(3)))), [], "it is in already");
        assert_eq!((overlay.range(), overlay.next_hop(Key::new(7))), (all, None));
        assert_eq!(hear(&mut overlay, Input::Leave), [Effect::Owns { range: None }]);
        assert_eq!(overlay.range(), None);
    }
}
