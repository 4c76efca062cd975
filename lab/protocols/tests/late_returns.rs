//! Fair-K with late binding: undelivered messages and dead peers.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use peerlock_protocols::fair_k_late::{Config, Message, Update};
use peerlock_protocols::token::{Claim, Layout};
use peerlock_protocols::{Cx, Effect, FairKLate, Input, Never, Observe as _, fair_k_late, step};
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

fn sent(effects: &Effects) -> Vec<(PeerId, &Message)> {
    let sent = |effect| if let &Effect::Send { to, ref message } = effect { Some((to, message)) } else { None };
    effects.iter().filter_map(sent).collect()
}

#[test]
fn undelivered_token_returns_and_goes_to_next_waiter() {
    let mut home = peer(HOME);
    feed(&mut home, HOME, Input::Request(Ticket::new(1)));
    let update = |peer| Message::Update { epoch: 0, update: Update::Request(claim(peer)) };
    feed(&mut home, HOME, Input::Message { from: ME, message: update(ME) });
    let left = feed(&mut home, HOME, Input::Release(Ticket::new(1)));
    let [(ME, token)] = sent(&left)[..] else { panic!("the token goes to the next: {left:?}") };
    let token = token.clone();
    assert_eq!(home.tokens(), 0);

    feed(&mut home, HOME, Input::PeerDown(ME));
    assert_eq!(feed(&mut home, HOME, Input::Undelivered { to: ME, message: token }), []);
    assert_eq!(home.tokens(), 1);
    let effects = feed(&mut home, HOME, Input::Message { from: OTHER, message: update(OTHER) });
    assert!(matches!(sent(&effects)[..], [(OTHER, Message::Token { .. })]), "{effects:?}");
}

#[test]
fn undelivered_queue_returns() {
    let mut home = peer(HOME);
    let given = feed(&mut home, HOME, Input::Retire { replacement: Some(ME) });
    let queue = sent(&given).into_iter().find(|(_, message)| matches!(message, Message::Queue(_))).unwrap().1.clone();
    assert!(!home.is_coordinator());
    feed(&mut home, HOME, Input::Retire { replacement: None });
    feed(&mut home, HOME, Input::Undelivered { to: ME, message: queue });
    assert!(home.is_coordinator());
}

#[test]
fn other_undelivered_messages_are_resent() {
    let mut one = peer(ME);
    let before = one.clone();
    let update = Message::Update { epoch: 0, update: Update::Request(claim(ME)) };
    let again = feed(&mut one, ME, Input::Undelivered { to: HOME, message: update.clone() });
    assert_eq!(again, [Effect::Send { to: HOME, message: update }]);
    assert_eq!(one, before);
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
