//! n replicas, peers 0 … n − 1, and clients, with direct messages.

use peerlock_protocols::sigma::{Config, Message, Sigma, Stamp};
use peerlock_protocols::token::Claim;
use peerlock_protocols::{Cx, Effect, Input, Observe, Quorum, Replicas, step};
use peerlock_types::{PeerId, Rng, Ticket};

use super::Scene;

pub const A: u64 = 100;
pub const B: u64 = 101;
pub const C: u64 = 102;
pub const NEWCOMER: u64 = 103;

impl<P: Observe> Scene<P> {
    pub fn among(replicas: u32, new: impl Fn(PeerId) -> P) -> Self {
        let peers = (0..u64::from(replicas)).chain([A, B, C, NEWCOMER]);
        Self::of(peers, new, Box::new(|key, here, _| panic!("{here} routes to {key}")))
    }
}

impl Scene<Sigma> {
    pub fn new(n: u32, m: u32, config: Config) -> Self {
        let replicas = Replicas::first(Quorum::new(n, m));
        Self::among(n, |me| Sigma::new(me, &replicas, config))
    }

    pub fn owner(&self, replica: u64) -> Option<u64> {
        let unauthenticated = PeerId::new(999);
        let client = Stamp { time: u64::MAX, client: Claim { peer: unauthenticated, ticket: Ticket::new(1) } };
        let message = Message::Request { replica: replica as u32, client, sent: self.now, fencing: 0 };
        let (mut copy, mut effects, mut rng) = (self.peers[&replica].clone(), Vec::new(), Rng::new(1));
        let mut cx = Cx::new(PeerId::new(replica), self.now, &mut rng, &mut effects);
        step(&mut copy, Input::Message { from: unauthenticated, message }, &mut cx);
        let notified = effects.iter().find_map(|effect| match effect {
            Effect::Send { to, message: Message::Response { owner, .. } } if *to == unauthenticated => *owner,
            _ => None,
        });
        notified.map(|owner| owner.peer().get()).filter(|&owner| owner != unauthenticated.get())
    }
}
