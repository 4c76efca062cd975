//! Fair-K with late binding: dead peers.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use peerlock_protocols::fair_k_late::{Config, Message, Update};
use peerlock_protocols::token::{Claim, Layout};
use peerlock_protocols::{Cx, Effect, FairKLate, Input, Never, fair_k_late, step};
use peerlock_types::{PeerId, Rng, Ticket, Time};

const ME: PeerId = PeerId::new(1);
const HOME: PeerId = PeerId::new(2);
const OTHER: PeerId = PeerId::new(3);

type Effects = Vec<Effect<Message, Never>>;

fn feed(peer: &mut FairKLate, me: PeerId, input: Input<Message, Never>) -> Effects {
    let (mut rng, mut effects) = (Rng::new(1), Vec::new());
    step(peer, input, &mut Cx::new(me, Time::ZERO, &mut rng, &mut effects));
    effects
}

/// A peer of a world in which `HOME` is the coordinator and has the token.
fn peer(me: PeerId) -> FairKLate {
    FairKLate::new(me, &Layout { root: HOME, tokens: vec![HOME] }, Config::default())
}

fn claim(peer: PeerId) -> Claim {
    Claim { peer, ticket: Ticket::new(1) }
}

/// Without the report the coordinator waits for a hand-over of a token that is free.
#[test]
fn dead_successor_of_expected_token_is_reported() {
    let mut one = peer(ME);
    let following = fair_k_late::Following { claims: vec![claim(OTHER)], ..Default::default() };
    let role = fair_k_late::Role { epoch: 0, peer: HOME };
    let message = Message::Next { slot: 0, stay: 1, following, replaces: true, role };
    feed(&mut one, ME, Input::Message { from: HOME, message });
    let message = Message::Update { epoch: 0, update: Update::Forgotten(claim(OTHER)) };
    assert_eq!(feed(&mut one, ME, Input::PeerDown(OTHER)), [Effect::Send { to: HOME, message }]);
}
